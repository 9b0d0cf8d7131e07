//! `cargo xtask test`: everything CI does, in order, up to the first failure.
//!
//! The steps are a table. A check that CI should make is a row here and nowhere else; `.ci/run` only calls
//! this.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{book, long_runs, needs, process, product, tidy};

struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<()>,
}

/// Cheap checks come first, so that a slip in formatting is not found after ten minutes of tests.
const STEPS: &[Step] = &[
    Step { name: "format", run: |root| process::cargo(root, &["fmt", "--all", "--", "--check"]) },
    Step { name: "tidy", run: tidy::check },
    Step { name: "needs", run: needs::install_missing },
    Step { name: "typos", run: needs::find_typos },
    Step { name: "clippy", run: build_with_clippy },
    Step { name: "product", run: |root| product::build(root).map(drop) },
    Step { name: "tests", run: tests },
    Step { name: "counts", run: |root| long_runs::counts(root, &[]) },
    Step { name: "browser", run: browser },
    Step { name: "doc tests", run: doc_tests },
    Step { name: "book", run: book::build_and_check },
    Step {
        name: "deny",
        run: |root| process::cargo(root, &["deny", "check", "bans", "licenses", "sources"]),
    },
];

/// Everything that the tests are made of, each feature on: what is built for one step is what the next one runs.
const ALL_OF_IT: [&str; 2] = ["--workspace", "--all-features"];

/// How many tests nextest runs at a time.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";

/// Most of what tests take is waiting: for leases that run out, retries that are due, servers that come back.
const TESTS_FOR_EACH_CORE: usize = 2;

/// How long a step took and whether it passed.
struct Timing {
    name: &'static str,
    took: Duration,
    passed: bool,
}

/// Runs every step and prints what each took, also after a failure.
pub(crate) fn run(root: &Path) -> Result<()> {
    run_steps(root, STEPS)
}

fn run_steps(root: &Path, steps: &[Step]) -> Result<()> {
    let mut timings = Vec::new();
    let mut outcome = Ok(());
    for (index, step) in steps.iter().enumerate() {
        eprintln!("\n== {} ({} of {})", step.name, index + 1, steps.len());
        let started = now();
        outcome = (step.run)(root).with_context(|| format!("step `{}` failed", step.name));
        timings.push(Timing { name: step.name, took: started.elapsed(), passed: outcome.is_ok() });
        if outcome.is_err() {
            break;
        }
    }
    print!("\n{}", table(&timings, &steps[timings.len()..]));
    outcome
}

/// All tests, with the program that the step before built.
fn tests(root: &Path) -> Result<()> {
    let mut nextest = checked_by_clippy(&[&["nextest", "run", "--profile", "ci"][..], &ALL_OF_IT].concat());
    nextest.env(product::VARIABLE, product::path(root));
    if std::env::var_os(TEST_THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        nextest.env(TEST_THREADS, (cores * TESTS_FOR_EACH_CORE).to_string());
    }
    process::run(root, nextest)
}

/// The pages in Chromium, against the same program.
fn browser(root: &Path) -> Result<()> {
    let mut npm = needs::npm(&["test"]);
    npm.env(product::VARIABLE, product::path(root));
    process::run(&root.join(needs::BROWSER_TESTS), npm)
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

fn doc_tests(root: &Path) -> Result<()> {
    process::run(root, checked_by_clippy(&[&["test", "--doc"][..], &ALL_OF_IT].concat()))
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

/// What every step took, and a last line in the form that test runners close with.
fn table(timings: &[Timing], not_run: &[Step]) -> String {
    let mut text = format!("{:12}{:>9}\n", "step", "seconds");
    for Timing { name, took, passed } in timings {
        let mark = if *passed { "" } else { "  failed" };
        text.push_str(&format!("{name:12}{:9.1}{mark}\n", took.as_secs_f64()));
    }
    for step in not_run {
        text.push_str(&format!("{:12}{:>9}  not run\n", step.name, "-"));
    }
    let total: Duration = timings.iter().map(|timing| timing.took).sum();
    let passed = timings.iter().filter(|timing| timing.passed).count();
    text.push_str(&format!("{:12}{:9.1}\n\n", "all", total.as_secs_f64()));
    text.push_str(&format!("steps: {passed} passed, {} failed", timings.len() - passed));
    if !not_run.is_empty() {
        text.push_str(&format!(", {} skipped", not_run.len()));
    }
    text.push('\n');
    text
}

#[expect(clippy::disallowed_methods, reason = "the fence is for the product; this only times the steps")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_stops_the_rest_and_is_named() {
        let steps = [
            Step { name: "first", run: |_| Ok(()) },
            Step { name: "second", run: |_| anyhow::bail!("a reason") },
            Step { name: "third", run: |_| panic!("must not be reached") },
        ];
        let error = run_steps(Path::new("."), &steps).unwrap_err();
        assert_eq!(format!("{error:#}"), "step `second` failed: a reason");
    }

    #[test]
    fn the_table_has_every_step_and_the_sums() {
        let timings = [
            Timing { name: "needs", took: Duration::from_millis(100), passed: true },
            Timing { name: "clippy", took: Duration::from_millis(2300), passed: false },
        ];
        let not_run = [Step { name: "tests", run: |_| Ok(()) }];
        let expected = "\
step          seconds
needs             0.1
clippy            2.3  failed
tests               -  not run
all               2.4

steps: 1 passed, 1 failed, 1 skipped
";
        assert_eq!(table(&timings, &not_run), expected);
        assert!(table(&timings[..1], &[]).ends_with("\n\nsteps: 1 passed, 0 failed\n"));
    }
}
