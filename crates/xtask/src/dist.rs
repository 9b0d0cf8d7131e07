//! `cargo xtask dist`: what is shipped. The static binary, and the packages that `packaging/dist.py` makes of it.
//!
//! Static, so that it runs on any distribution: with musl where that target can be had, otherwise with the C library of
//! this machine linked in. `--check` installs each package in an empty environment and shows the demo, builds the
//! image and renders the chart; `--binary FILE` packages a binary that is there already. Platforms other than this one are
//! built on machines of theirs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{needs, process};

/// What can be asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DistOptions {
    /// Also install the packages in empty environments.
    pub(crate) check: bool,
    /// A binary that is packaged instead of a new one.
    pub(crate) binary: Option<OsString>,
}

/// Where the packages go, below the target folder.
const FOLDER: &str = "dist";

/// The target that is wanted, what its C code is compiled by, and the package of Debian that has that.
const MUSL: &str = "x86_64-unknown-linux-musl";
const MUSL_COMPILER: &str = "musl-gcc";
const MUSL_PACKAGE: &str = "musl-tools";

/// The target that is built where the wanted one cannot be had.
const GNU: &str = "x86_64-unknown-linux-gnu";

/// Builds and packages.
pub(crate) fn run(root: &Path, options: &DistOptions) -> Result<()> {
    if options.binary.is_none() {
        get_musl(root);
    }
    let target = target(root)?;
    let binary = match &options.binary {
        Some(binary) => PathBuf::from(binary),
        None => build(root, target)?,
    };
    let out = process::target_folder(root).join(FOLDER);
    let mut command = std::process::Command::new("python3");
    command
        .arg("packaging/dist.py")
        .arg("--binary")
        .arg(&binary)
        .args(["--target", target, "--out"])
        .arg(&out);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    if options.binary.is_none() {
        command.arg("--built");
    }
    if options.check {
        command.arg("--check");
    }
    process::run(root, command)
}

/// Installs what the wanted target needs, where that is possible; where it is not, the other one is built.
fn get_musl(root: &Path) {
    if !process::is_on_path(MUSL_COMPILER)
        && let Err(why) = needs::install_packages(root, &[MUSL_PACKAGE])
    {
        eprintln!("{why:#}");
    }
    let mut add = std::process::Command::new("rustup");
    add.args(["target", "add", MUSL]);
    if let Err(why) = process::run(root, add) {
        eprintln!("{why:#}");
    }
}

/// The best target that can be built here.
fn target(root: &Path) -> Result<&'static str> {
    let folder = process::output(root, "rustc", &["--print", "sysroot"])?;
    let folder = String::from_utf8(folder).context("the folder of the toolchain is no text")?;
    let libraries = Path::new(folder.trim()).join("lib/rustlib");
    let is_installed = |target: &str| libraries.join(target).join("lib").is_dir();
    if is_installed(MUSL) && process::is_on_path(MUSL_COMPILER) {
        return Ok(MUSL);
    }
    if !is_installed(GNU) {
        bail!("neither {MUSL} with {MUSL_COMPILER} nor {GNU} is installed; `rustup target add` one of them");
    }
    eprintln!("{MUSL} with {MUSL_COMPILER} is not here: the C library of this machine is linked in");
    Ok(GNU)
}

fn build(root: &Path, target: &str) -> Result<PathBuf> {
    let arguments =
        ["build", "--profile", "dist", "-p", "standfast", "--bin", "standfast", "--target", target];
    let mut command = process::cargo_command(&arguments);
    // Read by the build script; where there is no git, the version stands alone.
    if let Ok(commit) = process::output(root, "git", &["rev-parse", "--short=12", "HEAD"]) {
        command.env("STANDFAST_COMMIT", String::from_utf8_lossy(&commit).trim());
    }
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    process::run(root, command)?;
    Ok(process::target_folder(root).join(target).join("dist/standfast"))
}
