//! The files of the repository, read once, as the rules see them.
//!
//! The list comes from git: what is tracked, and what is new and not ignored, since that is what the next
//! commit brings. Rules never touch the disk; their tests make a repository from a few lines of text.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process;

/// A file with its path from the root, with `/` on every system, and its text. Bytes that are not UTF-8 are
/// replaced: no rule looks inside binary files, but a machine path in one must still be found.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    /// The name of the crate's folder, if the file is below `crates/`.
    pub(crate) fn crate_folder(&self) -> Option<&str> {
        Some(self.path.strip_prefix("crates/")?.split_once('/')?.0)
    }

    /// The path from the crate's folder, such as `src/lib.rs`.
    pub(crate) fn path_in_crate(&self) -> Option<&str> {
        Some(self.path.strip_prefix("crates/")?.split_once('/')?.1)
    }

    /// Whether this is Rust source of a crate, as opposed to its tests, benches and examples.
    pub(crate) fn is_crate_source(&self) -> bool {
        self.is_rust() && self.path_in_crate().is_some_and(|path| path.starts_with("src/"))
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines with their numbers, from 1.
    pub(crate) fn numbered_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

pub(crate) struct Repository {
    files: Vec<SourceFile>,
    folders: BTreeSet<String>,
}

impl Repository {
    /// Reads every file that git tracks or would track.
    pub(crate) fn read(root: &Path) -> Result<Repository> {
        let listed =
            process::output(root, "git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let paths: BTreeSet<&str> = listed
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .map(|path| {
                std::str::from_utf8(path).context("git lists a file whose name is not UTF-8; rename it")
            })
            .collect::<Result<_>>()?;
        let mut files = Vec::new();
        for path in paths {
            if let Some(text) = text_of(&root.join(path)).with_context(|| format!("{path} cannot be read"))? {
                files.push(SourceFile { path: path.to_owned(), text });
            }
        }
        Ok(Repository::from_files(files))
    }

    /// A repository of these files, for the tests of rules.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Repository {
        let owned = |(path, text): &(&str, &str)| SourceFile { path: (*path).into(), text: (*text).into() };
        Repository::from_files(files.iter().map(owned).collect())
    }

    pub(crate) fn files(&self) -> &[SourceFile] {
        &self.files
    }

    pub(crate) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn has_file_or_folder(&self, path: &str) -> bool {
        self.folders.contains(path) || self.file(path).is_some()
    }

    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        self.folders.iter().map(String::as_str)
    }

    fn from_files(files: Vec<SourceFile>) -> Repository {
        let mut folders = BTreeSet::from([String::new()]);
        for file in &files {
            let ends = file.path.match_indices('/').map(|(at, _)| at);
            folders.extend(ends.map(|at| file.path[..at].to_owned()));
        }
        Repository { files, folders }
    }
}

/// The text of a file; for a link, where it points; nothing for a file deleted since its last commit and for
/// a folder (a submodule).
fn text_of(path: &Path) -> std::io::Result<Option<String>> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if kind.is_symlink() {
        return Ok(Some(fs::read_link(path)?.to_string_lossy().into_owned()));
    }
    if kind.is_dir() {
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&fs::read(path)?).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_known_from_their_files() {
        let repository = Repository::of(&[("docs/adr/0001-x.md", "")]);
        let known = ["", "docs", "docs/adr", "docs/adr/0001-x.md", "doc"];
        let found: Vec<bool> = known.iter().map(|path| repository.has_file_or_folder(path)).collect();
        assert_eq!(found, [true, true, true, true, false]);
    }

    #[test]
    fn a_file_knows_its_crate() {
        let repository = Repository::of(&[("crates/core/src/a/b.rs", ""), ("README.md", "")]);
        let [source, readme] = repository.files() else { panic!("two files") };
        assert_eq!((source.crate_folder(), source.path_in_crate()), (Some("core"), Some("src/a/b.rs")));
        assert!(source.is_crate_source());
        assert_eq!(readme.crate_folder(), None);
    }

    #[test]
    fn what_git_would_commit_is_read_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("standfast-tidy-{}", std::process::id()));
        fs::create_dir_all(root.join("target")).unwrap();
        process::output(&root, "git", &["init", "--quiet"]).unwrap();
        for (path, text) in [(".gitignore", "/target"), ("target/x", "x"), ("new.md", "new"), ("gone.md", "")]
        {
            fs::write(root.join(path), text).unwrap();
        }
        process::output(&root, "git", &["add", "gone.md"]).unwrap();
        fs::remove_file(root.join("gone.md")).unwrap();
        let read = Repository::read(&root);
        fs::remove_dir_all(&root).unwrap();
        let paths: Vec<String> = read.unwrap().files().iter().map(|file| file.path.clone()).collect();
        assert_eq!(paths, [".gitignore", "new.md"]);
    }
}
