//! `cargo xtask product`: the one binary that the tests from outside are handed.
//!
//! Built by itself, so that no test switches a feature on in it (the mutants of the core, say), and kept under a name of
//! its own: cargo replaces `debug/standfast` whenever it builds integration tests. nextest calls this before it runs
//! tests that start the program, and is told where it is.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process;

/// Where tests look for the program; the testkit says the same.
pub(crate) const VARIABLE: &str = "STANDFAST_BINARY";

/// The program for the conformance kits of A2A, which is kept beside the product.
const CONFORMANCE: &str = "standfast-conformance";

/// A file to which a setup script of nextest writes what the tests find in their environment.
const NEXTEST_ENVIRONMENT: &str = "NEXTEST_ENV";

/// Builds the product, unless somebody has named one, and says where it is.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let product = path(root);
    if std::env::var_os(VARIABLE).is_none() {
        build_and_keep(root, &product, &[], "debug")?;
    }
    if let Some(file) = std::env::var_os(NEXTEST_ENVIRONMENT) {
        let file = Path::new(&file);
        tell(file, &product).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(product)
}

/// Builds the product as long runs use it, in release, unless somebody has named one, and says where it is. Kept beside the
/// everyday one, which stays as it is.
pub(crate) fn build_release(root: &Path) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    let product = process::target_folder(root).join("product/release/standfast");
    build_and_keep(root, &product, &["--release"], "release")?;
    Ok(product)
}

/// Where the product is, or will be: what somebody has named, or a place of its own.
pub(crate) fn path(root: &Path) -> PathBuf {
    match std::env::var_os(VARIABLE) {
        Some(named) => PathBuf::from(named),
        None => process::target_folder(root).join("product/standfast"),
    }
}

fn build_and_keep(root: &Path, product: &Path, options: &[&str], folder: &str) -> Result<()> {
    process::cargo(root, &[&["build", "--quiet", "-p", "standfast", "--bins"][..], options].concat())?;
    for kept in [product.to_owned(), product.with_file_name(CONFORMANCE)] {
        let built = process::target_folder(root).join(folder).join(kept.file_name().unwrap_or_default());
        keep(&built, &kept).with_context(|| format!("{} cannot be kept", kept.display()))?;
    }
    Ok(())
}

/// Puts the program in its place in one step: a test that runs has the old one or the new one.
pub(crate) fn keep(built: &Path, product: &Path) -> std::io::Result<()> {
    let beside = product.with_extension(std::process::id().to_string());
    if let Some(folder) = product.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Two file systems have no links between them.
    std::fs::hard_link(built, &beside).or_else(|_| std::fs::copy(built, &beside).map(drop))?;
    std::fs::rename(&beside, product)?;
    // Renaming one name of a file to another of its names leaves both.
    if beside.exists() { std::fs::remove_file(&beside) } else { Ok(()) }
}

fn tell(file: &Path, product: &Path) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file)?;
    writeln!(file, "{VARIABLE}={}", product.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_is_kept_and_replaced_and_tests_are_told_where() {
        let folder = std::env::temp_dir().join(format!("standfast-product-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (built, product) = (folder.join("built"), folder.join("product/standfast"));
        for text in ["one", "two"] {
            // As cargo does: a new file under the old name.
            let _ = std::fs::remove_file(&built);
            std::fs::write(&built, text).unwrap();
            keep(&built, &product).unwrap();
            keep(&built, &product).unwrap();
            assert_eq!(std::fs::read_to_string(&product).unwrap(), text);
        }
        let left = std::fs::read_dir(folder.join("product")).unwrap().count();
        tell(&folder.join("env"), Path::new("/p")).unwrap();
        let told = std::fs::read_to_string(folder.join("env")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((left, told.as_str()), (1, "STANDFAST_BINARY=/p\n"));
    }
}
