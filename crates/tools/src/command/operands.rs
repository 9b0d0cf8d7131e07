//! The files that a command names, and what is in them: the program, and every word that is a file within reach (T3).
//!
//! They are shown with the call and compared again directly before it starts, so that a script which is rewritten while
//! its call waits is asked about again. What a program reads without being told (`Makefile`, `package.json`, modules, the
//! contents of directories) is not among them, and neither is what happens between the comparison and the start.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use standfast_core::message::FileDigest;

use super::{CommandOptions, found};
use crate::sandbox::Confinement;

/// Files that are larger are known by their size, place and time of change.
const HASHED_BYTES: u64 = 16 * 1024 * 1024;

/// How many bytes of all files of one command are hashed; the rest is known in the same way.
const ALL_BYTES: u64 = 128 * 1024 * 1024;

/// How many files of one command are listed one by one; the others share one digest.
const LISTED_FILES: usize = 32;

/// The files of a command, by path.
pub(super) fn files(options: &CommandOptions, argv: &[String], path: &OsString) -> Vec<FileDigest> {
    let Some((program, words)) = argv.split_first() else { return Vec::new() };
    let directory = options.working_directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let program = found(program, path).ok().map(|program| directory.join(program));
    let named = words.iter().flat_map(|word| spellings(word)).map(|word| directory.join(word));
    let mut files: Vec<PathBuf> = program
        .into_iter()
        .chain(named)
        .filter(|file| is_file(file) && is_within_reach(options, &directory, file))
        .collect();
    files.sort();
    files.dedup();
    let mut budget = ALL_BYTES;
    let mut known: Vec<FileDigest> = files
        .iter()
        .map(|file| FileDigest { path: shown(file, &directory), sha256: contents(file, &mut budget) })
        .collect();
    // Whatever is not listed is compared all the same.
    let rest = known.split_off(known.len().min(LISTED_FILES));
    if !rest.is_empty() {
        let mut hasher = Sha256::new();
        rest.iter().for_each(|file| hasher.update(format!("{} {}\n", file.path, file.sha256)));
        known.push(FileDigest { path: format!("{} more files", rest.len()), sha256: hexadecimal(hasher) });
    }
    known
}

/// A word as a path, the value of an option, and the parts of a script that is given as one word (`sh -c 'a.sh && b'`).
fn spellings(word: &str) -> Vec<&str> {
    let attached = word.strip_prefix('@').or_else(|| word.strip_prefix('-').and_then(|rest| rest.get(1..)));
    let parts = word.split(|c: char| c.is_whitespace() || ";|&()<>`'\"=,".contains(c));
    std::iter::once(word).chain(attached).chain(parts).filter(|path| !path.is_empty()).collect()
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file())
}

/// What an agent cannot change need not be compared: the system, where it is confined.
fn is_within_reach(options: &CommandOptions, directory: &Path, file: &Path) -> bool {
    let Ok(real) = file.canonicalize() else { return false };
    let is_below = |root: &Path| root.canonicalize().is_ok_and(|root| real.starts_with(root));
    match options.confinement {
        Confinement::Off => true,
        Confinement::On => {
            let roots = options.readable.iter().chain(&options.writable);
            is_below(directory) || roots.into_iter().any(|root| is_below(root))
        }
    }
}

/// Within the working directory as the command says it.
fn shown(file: &Path, directory: &Path) -> String {
    file.strip_prefix(directory).unwrap_or(file).display().to_string()
}

/// SHA-256 in hexadecimal, or what a large file is known by, or why it cannot be read.
fn contents(path: &Path, budget: &mut u64) -> String {
    let mut read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        if meta.len() > HASHED_BYTES.min(*budget) {
            let (inode, seconds, nanos) = (meta.ino(), meta.mtime(), meta.mtime_nsec());
            return Ok(format!(
                "not hashed: {} bytes, inode {inode}, changed {seconds}.{nanos:09}",
                meta.len()
            ));
        }
        *budget = budget.saturating_sub(meta.len());
        let mut hasher = Sha256::new();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            match file.read(&mut chunk)? {
                0 => break,
                read => hasher.update(chunk.get(..read).unwrap_or_default()),
            }
        }
        Ok(hexadecimal(hasher))
    };
    read().unwrap_or_else(|error| format!("not readable: {error}"))
}

fn hexadecimal(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_command_are_found_however_they_are_written() {
        let place = tempfile::tempdir().unwrap();
        for file in ["a.sh", "b", "c"] {
            std::fs::write(place.path().join(file), file).unwrap();
        }
        let options = CommandOptions {
            working_directory: Some(place.path().to_owned()),
            confinement: Confinement::Off,
            ..CommandOptions::default()
        };
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let found =
            files(&options, &words("sh a.sh --config=b -Ic missing"), &OsString::from("/usr/bin:/bin"));
        let paths: Vec<&str> = found.iter().map(|file| file.path.as_str()).collect();
        assert!(paths.iter().any(|path| path.ends_with("/sh")), "{paths:?}");
        assert_eq!(paths.iter().filter(|path| !path.starts_with('/')).count(), 3, "{paths:?}");
        let inside = files(
            &options,
            &["sh".into(), "-c".into(), "cd . && ./a.sh; cat <b".into()],
            &OsString::from("/usr/bin:/bin"),
        );
        assert_eq!(inside.iter().filter(|file| !file.path.starts_with('/')).count(), 2, "{inside:?}");
        let before = found;
        std::fs::write(place.path().join("a.sh"), "another").unwrap();
        let after =
            files(&options, &words("sh a.sh --config=b -Ic missing"), &OsString::from("/usr/bin:/bin"));
        assert_ne!(before, after);
    }
}
