//! Starts other programs, always in the repository's root, and says in full what failed.
//!
//! Nothing here knows what the programs are for; `test.rs` and `needs.rs` do.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The folder that has `crates/xtask`. Found at run time: a path baked in at compile time would be wrong in a
/// second checkout that shares the target folder.
pub(crate) fn repository_root() -> Result<PathBuf> {
    let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::current_dir().context("the current folder cannot be read")?,
    };
    match start.ancestors().find(|folder| folder.join("crates/xtask/Cargo.toml").is_file()) {
        Some(root) => Ok(root.to_path_buf()),
        None => bail!(
            "no folder above {} has crates/xtask/Cargo.toml; run `cargo xtask` inside the repository",
            start.display()
        ),
    }
}

/// Runs cargo with the terminal's input and output; anything but success is an error.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    cargo_with(root, arguments, &[])
}

/// Like [`cargo`], with arguments of the caller's at the end, which need not be UTF-8.
pub(crate) fn cargo_with(root: &Path, arguments: &[&str], more: &[OsString]) -> Result<()> {
    let mut command = cargo_command(arguments);
    command.args(more);
    run(root, command)
}

/// The cargo that runs us with these arguments, for whoever adds to it.
pub(crate) fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(cargo_program());
    command.args(arguments);
    command
}

/// Runs a program with the terminal's input and output; anything but success is an error that quotes the
/// command.
pub(crate) fn run(root: &Path, mut command: Command) -> Result<()> {
    let shown = shown(&command);
    eprintln!("$ {shown}");
    let status = command
        .current_dir(root)
        .status()
        .with_context(|| format!("`{shown}` could not be started; is the program installed?"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status}); its own output above says why");
    }
    Ok(())
}

/// What a program writes to its standard output.
pub(crate) fn output(root: &Path, program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root);
    let shown = shown(&command);
    let done = command
        .output()
        .with_context(|| format!("`{shown}` could not be started; is {program} installed?"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("`{shown}` failed ({}): {}", done.status, said.trim());
    }
    Ok(done.stdout)
}

/// Whether `cargo NAME --version` works, that is, whether that cargo subcommand is installed.
pub(crate) fn has_cargo_subcommand(root: &Path, name: &str) -> bool {
    Command::new(cargo_program())
        .args([name, "--version"])
        .current_dir(root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether a program of this name is in one of the folders of `PATH`.
pub(crate) fn is_on_path(program: &str) -> bool {
    on_path(program).is_some()
}

/// A program from crates.io: on `PATH`, or where `cargo install` puts it, which need not be on it.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
    let by_cargo = cargo_home.map(|folder| folder.join("bin").join(program)).filter(|path| path.is_file());
    on_path(program).or(by_cargo)
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target")))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The cargo that runs us, so that a pinned toolchain is kept for what we start.
fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

/// A program of the same toolchain as the cargo that runs us.
pub(crate) fn beside_cargo(program: &str) -> PathBuf {
    let beside = PathBuf::from(cargo_program()).with_file_name(program);
    if beside.is_file() { beside } else { PathBuf::from(program) }
}

/// The command as a person would type it: `cargo`, not the path of the toolchain's cargo.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy);
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_named_with_its_arguments() {
        let root = repository_root().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let message = run(&root, command).unwrap_err().to_string();
        assert!(message.contains("`sh -c exit 3` failed (exit status: 3)"), "{message}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let root = repository_root().unwrap();
        let message = output(&root, "no-such-program", &["x"]).unwrap_err().to_string();
        assert!(message.contains("`no-such-program x` could not be started"), "{message}");
        assert!(!is_on_path("no-such-program"));
    }
}
