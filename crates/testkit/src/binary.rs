//! Which program is tested: one product binary, built once and without the features of tests.
//!
//! `cargo xtask test` and nextest's setup script build it and say where it is, in `STANDFAST_BINARY`. Without them the one that
//! `cargo xtask product` left behind is taken. Never the one that cargo builds beside integration tests: that one has
//! the mutants of the core compiled in.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the program is that the tests are handed.
pub const VARIABLE: &str = "STANDFAST_BINARY";

/// A command of the product, without arguments yet.
#[must_use]
pub fn standfast() -> Command {
    Command::new(path())
}

/// A command of the program for the conformance kits of A2A, which is built beside the product.
#[must_use]
pub fn conformance() -> Command {
    Command::new(path().with_file_name("standfast-conformance"))
}

/// The program that is tested.
///
/// # Panics
///
/// When there is none, with the command that builds it.
#[must_use]
pub fn path() -> PathBuf {
    let path = match std::env::var_os(VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => target_folder().join("product/standfast"),
    };
    assert!(
        path.is_file(),
        "there is no product binary at {}: build it with `cargo xtask product`, or name another one in {VARIABLE}",
        path.display()
    );
    path
}

/// Where cargo builds, with the environments of Python that `cargo xtask test` makes beside it.
#[must_use]
pub fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => repository_root().join("target"),
    }
}

/// The folder of the repository.
///
/// # Panics
///
/// Never: this crate is two folders below it.
#[must_use]
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}
