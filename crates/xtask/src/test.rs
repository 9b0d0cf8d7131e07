//! `cargo xtask test`: everything CI does, in order, up to the first failure.
//!
//! The steps are a table. A check that CI should make is a row here and nowhere else; `.ci/run` only calls
//! this.

mod examples;
mod schedule;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{book, long_runs, needs, process, product, tidy};
use schedule::{Step, Work};

/// Cheap checks come first, so that a slip in formatting is not found after ten minutes of tests.
const STEPS: &[Step] = &[
    step("format", |root| process::cargo(root, &["fmt", "--all", "--", "--check"])),
    step("tidy", tidy::check),
    step("needs", needs::install_missing),
    step("typos", needs::find_typos),
    step("clippy", build_with_clippy),
    step("product", |root| product::build(root).map(drop)),
    step("tests", tests),
    Step { name: "browser", work: Work::Beside(browser) },
    step("counts", |root| long_runs::counts(root, &[])),
    step("doc tests", doc_tests),
    step("book", book::build_and_check),
    step("deny", |root| process::cargo(root, &["deny", "check", "bans", "licenses", "sources"])),
];

const fn step(name: &'static str, work: fn(&Path) -> Result<()>) -> Step {
    Step { name, work: Work::Alone(work) }
}

/// Everything that the tests are made of, each feature on: what is built for one step is what the next one runs.
const ALL_OF_IT: [&str; 2] = ["--workspace", "--all-features"];

/// How many tests nextest runs at a time.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";

/// Four fifths of what tests take is waiting: for leases that run out, retries that are due, servers that come back.
const TESTS_FOR_EACH_CORE: usize = 3;

/// Runs every step and prints what each took, also after a failure.
pub(crate) fn run(root: &Path) -> Result<()> {
    schedule::run(root, STEPS, &process::target_folder(root).join("test-output"))
}

/// All tests, with the program that the step before built.
fn tests(root: &Path) -> Result<()> {
    let mut nextest = checked_by_clippy(&[&["nextest", "run", "--profile", "ci"][..], &ALL_OF_IT].concat());
    nextest.env(product::VARIABLE, product::path(root));
    if std::env::var_os(TEST_THREADS).is_none() {
        nextest.env(TEST_THREADS, (cores() * TESTS_FOR_EACH_CORE).to_string());
    }
    process::run(root, nextest)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The pages in Chromium, against the same program. They begin with the tests: each leaves the cores idle where the other
/// does not.
fn browser(root: &Path) -> (PathBuf, Command) {
    // By itself, node leaves one core to itself, which of two is one too many.
    let mut npm = needs::npm(&["test"]);
    npm.args(["--", &format!("--test-concurrency={}", cores())]).env(product::VARIABLE, product::path(root));
    (root.join(needs::BROWSER_TESTS), npm)
}

/// The pictures of README.md and the guide.
pub(crate) fn take_screenshots(root: &Path) -> Result<()> {
    let product = product::build(root)?;
    let folder = root.join(needs::BROWSER_TESTS);
    needs::npm_packages(root, needs::BROWSER_TESTS)?;
    let mut npm = needs::npm(&["run", "screenshots"]);
    npm.env(product::VARIABLE, product);
    process::run(&folder, npm)
}

/// Builds every test, and checks all code of this workspace while it does.
fn build_with_clippy(root: &Path) -> Result<()> {
    process::run(
        root,
        checked_by_clippy(&[&["test", "--no-run", "--quiet", "--all-targets"][..], &ALL_OF_IT].concat()),
    )
}

/// The examples in comments. Collecting them compiles each crate once more, so a crate without one is not asked.
fn doc_tests(root: &Path) -> Result<()> {
    let packages = examples::packages(root)?;
    if packages.is_empty() {
        println!("no comment of a crate has an example");
        return Ok(());
    }
    let named = packages.iter().flat_map(|package| ["-p", package]);
    let arguments: Vec<&str> = ["test", "--doc", "--all-features"].into_iter().chain(named).collect();
    process::run(root, checked_by_clippy(&arguments))
}

/// A cargo that compiles this workspace with clippy, as `cargo clippy` does, where warnings are errors. `cargo clippy` itself
/// only checks, and so would go through every dependency once more than the tests do, which is minutes on a fresh machine.
fn checked_by_clippy(arguments: &[&str]) -> Command {
    let mut cargo = process::cargo_command(arguments);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", process::beside_cargo("clippy-driver"));
    // How `cargo clippy` hands its arguments on.
    cargo.env("CLIPPY_ARGS", ["-D", "warnings", ""].join("__CLIPPY_HACKERY__"));
    cargo
}
