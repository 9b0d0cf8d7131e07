//! `cargo xtask clients`: the packages for Python and TypeScript against the product, with the real frameworks.
//!
//! Not a step of `cargo xtask test`: the frameworks are larger than all that it installs. What the packages are is below
//! `packages`, with tests of their own; nothing here knows what they test.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{needs, process, product};

const PYTHON: &str = "packages/python";
const TYPESCRIPT: &str = "packages/typescript";

/// The hooks, with the real coding agents.
const CODING_AGENTS: &str = "packages/coding-agents";

/// Where the environment of Python is, below the target folder.
const ENVIRONMENT: &str = "clients/python";

/// Installs what both need, checks types, and runs the tests with the product.
pub(crate) fn run(root: &Path) -> Result<()> {
    let product = product::build(root)?;
    needs::python(root, ENVIRONMENT, PYTHON)?;
    for arguments in [&["-m", "mypy"][..], &["-m", "pytest"]] {
        let mut python = Command::new(process::target_folder(root).join(ENVIRONMENT).join("bin/python"));
        python.args(arguments).env("PYTHONPATH", "src").env("PYTHONDONTWRITEBYTECODE", "1");
        python.env(product::VARIABLE, &product);
        process::run(&root.join(PYTHON), python)?;
    }
    [TYPESCRIPT, CODING_AGENTS].iter().try_for_each(|folder| {
        process::run(&root.join(folder), needs::npm(&["ci"]))?;
        let mut npm = needs::npm(&["test"]);
        npm.env(product::VARIABLE, &product);
        process::run(&root.join(folder), npm)
    })
}
