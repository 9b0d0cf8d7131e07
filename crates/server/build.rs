//! Says in `STANDFAST_VERSION` what `standfast --version` prints: the version, and the commit where it is known.
//!
//! A release asks git; `STANDFAST_COMMIT` says it where there is no git, as in a package that is built from an archive. An
//! everyday build asks nobody: it would be built again after every commit. Outside of git there is only the version.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=STANDFAST_COMMIT");
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let version = variable("CARGO_PKG_VERSION").unwrap_or_default();
    let is_release = variable("PROFILE").is_some_and(|profile| profile == "release");
    let commit = variable("STANDFAST_COMMIT").or_else(|| if is_release { commit() } else { None });
    match commit {
        Some(commit) => println!("cargo:rustc-env=STANDFAST_VERSION={version} ({commit})"),
        None => println!("cargo:rustc-env=STANDFAST_VERSION={version}"),
    }
}

/// The commit that is checked out, as git shortens it.
fn commit() -> Option<String> {
    // Looked at again when something else is checked out or committed.
    let head = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={head}");
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
