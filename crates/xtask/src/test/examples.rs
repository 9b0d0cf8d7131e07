//! Which crates have examples in their comments, for the step that runs them.
//!
//! Only looks at how a comment is written; what an example does, rustdoc finds out. A comment that merely looks like one costs
//! time, one that is missed would not be run: so all that rustdoc could take for code counts.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The packages of the workspace that have one.
pub(super) fn packages(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in folders(&root.join("crates"))? {
        let source = folder.join("src");
        if source.join("lib.rs").is_file() && has_example(&source)? {
            found.push(name(&folder)?);
        }
    }
    found.sort();
    Ok(found)
}

fn has_example(folder: &Path) -> Result<bool> {
    let is_rust = |path: &Path| path.extension().is_some_and(|end| end == "rs");
    for entry in fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let path = entry?.path();
        let found = if path.is_dir() {
            has_example(&path)?
        } else {
            is_rust(&path) && fs::read_to_string(&path)?.lines().any(begins_example)
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether rustdoc may take what follows for code: a fence, or a line that is indented by four or more.
fn begins_example(line: &str) -> bool {
    let line = line.trim_start();
    let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    comment.is_some_and(|text| {
        text.trim_start().starts_with("```")
            || text.trim_start().starts_with("~~~")
            || text.starts_with("     ")
    })
}

fn folders(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_dir()).collect())
}

/// The first name in a manifest is the package's.
fn name(folder: &Path) -> Result<String> {
    let manifest = folder.join("Cargo.toml");
    let text =
        fs::read_to_string(&manifest).with_context(|| format!("{} cannot be read", manifest.display()))?;
    let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    Ok(name.with_context(|| format!("{} has no name", manifest.display()))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rustdoc_takes_for_code_counts_as_an_example() {
        for line in ["/// ```", "    //! ```rust,no_run", "///```", "/// ~~~", "///     let a = 1;"] {
            assert!(begins_example(line), "{line}");
        }
        for line in ["/// `serve` begins", "// ```", "let text = \"```\";", "///   a list goes on", ""] {
            assert!(!begins_example(line), "{line}");
        }
    }

    #[test]
    fn a_crate_with_an_example_is_found_and_one_without_is_not() {
        let root = std::env::temp_dir().join(format!("standfast-examples-{}", std::process::id()));
        for (folder, text) in
            [("one", "/// ```\n/// let a = 1;\n/// ```\npub fn f() {}\n"), ("two", "/// None.\n")]
        {
            let inner = root.join("crates").join(folder).join("src/inner");
            fs::create_dir_all(&inner).unwrap();
            fs::write(inner.join("file.rs"), text).unwrap();
            fs::write(inner.with_file_name("lib.rs"), "mod inner;\n").unwrap();
            let manifest = format!("[package]\nname = \"package-{folder}\"\n");
            fs::write(root.join("crates").join(folder).join("Cargo.toml"), manifest).unwrap();
        }
        let found = packages(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, ["package-one"]);
    }
}
