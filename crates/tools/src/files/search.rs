//! `search_files`: lines with a text or a pattern, in all files below a directory.
//!
//! Bounded in every way: files, bytes, lines found, and a pattern takes time in proportion to the text. What is not a
//! regular text file is passed over, and so is what git keeps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use standfast_core::body::Body;

use super::{FileLimits, bounded};
use crate::workspace::Workspace;

pub(super) const DESCRIPTION: &str = "Find lines in the files of the workspace, by a text or, with regex, by a regular \
                                      expression. Answers path:line:text. Paths begin at the workspace.";

pub(super) const SCHEMA: &str = r#"{"type":"object","properties":{"pattern":{"type":"string","minLength":1},"path":{"type":"string","description":"The directory to search; without it, the workspace"},"regex":{"type":"boolean"},"ignore_case":{"type":"boolean"},"name":{"type":"string","description":"Only files whose name ends like this, such as .rs"}},"required":["pattern"],"additionalProperties":false}"#;

/// How many characters of a line are shown.
const SHOWN: usize = 300;

/// How much memory a pattern may take.
const PATTERN_BYTES: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pattern: String,
    #[serde(default)]
    pub(super) path: String,
    #[serde(default)]
    regex: bool,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    name: String,
}

pub(super) fn run(
    at: &Workspace,
    limits: &FileLimits,
    asked: &Arguments,
    stop: &AtomicBool,
) -> Result<Body, String> {
    let pattern = pattern(asked)?;
    // The first directory must be there; those found on the way may be gone by the time they are looked at.
    at.list(&asked.path, 0).map_err(|refused| format!("not searched: {refused}"))?;
    let mut search = Search { pattern, limits, found: String::new(), lines: 0, files: 0, bytes: 0 };
    let mut directories = VecDeque::from([asked.path.trim_end_matches('/').to_owned()]);
    while let Some(directory) = directories.pop_front() {
        let Ok((entries, _)) = at.list(&directory, limits.searched_files) else { continue };
        for entry in entries {
            if stop.load(Ordering::Relaxed) {
                return Err("not searched: the call was given up".into());
            }
            let path =
                if directory.is_empty() { entry.name.clone() } else { format!("{directory}/{}", entry.name) };
            match entry.kind {
                "a directory" if entry.name != ".git" => directories.push_back(path),
                "a file" if entry.name.ends_with(&asked.name) => {
                    if let Some(full) = search.look_into(at, &path) {
                        search.found.push_str(full);
                        return Ok(bounded(search.found, limits));
                    }
                }
                _ => {}
            }
        }
    }
    if search.lines == 0 {
        search.found = format!("nothing found in {} files", search.files);
    }
    Ok(bounded(search.found, limits))
}

fn pattern(asked: &Arguments) -> Result<Regex, String> {
    let text = if asked.regex { asked.pattern.clone() } else { regex::escape(&asked.pattern) };
    let built =
        RegexBuilder::new(&text).case_insensitive(asked.ignore_case).size_limit(PATTERN_BYTES).build();
    built.map_err(|error| format!("not searched: the pattern cannot be used: {error}"))
}

struct Search<'a> {
    pattern: Regex,
    limits: &'a FileLimits,
    found: String,
    lines: usize,
    files: usize,
    bytes: u64,
}

impl Search<'_> {
    /// Adds what a file has; says why when it is enough.
    fn look_into(&mut self, at: &Workspace, path: &str) -> Option<&'static str> {
        if self.files >= self.limits.searched_files {
            return Some("[more files were not searched]\n");
        }
        let Ok(text) = at.read(path, self.limits.file_bytes) else { return None };
        self.files += 1;
        self.bytes = self.bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        for (number, line) in text.lines().enumerate().filter(|(_, line)| self.pattern.is_match(line)) {
            let shown: String = line.chars().take(SHOWN).collect();
            self.found.push_str(&format!("{path}:{}:{shown}\n", number + 1));
            self.lines += 1;
            if self.lines >= self.limits.found_lines {
                return Some("[more lines were not shown]\n");
            }
        }
        (self.bytes > self.limits.searched_bytes).then_some("[more files were not searched]\n")
    }
}
