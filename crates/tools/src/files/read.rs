//! `read_file`: the text of a file, or some lines of it.
//!
//! Regular UTF-8 files only; the result is bounded and says what it leaves out.

use serde::Deserialize;
use standfast_core::body::Body;

use super::{FileLimits, bounded};
use crate::workspace::Workspace;

pub(super) const DESCRIPTION: &str =
    "Read a text file of the workspace, whole or some lines of it. Paths begin at the workspace.";

pub(super) const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string","minLength":1},"first_line":{"type":"integer","minimum":1,"description":"Where to begin; lines count from 1"},"lines":{"type":"integer","minimum":1,"description":"How many lines"}},"required":["path"],"additionalProperties":false}"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pub(super) path: String,
    first_line: Option<usize>,
    lines: Option<usize>,
}

pub(super) fn run(at: &Workspace, limits: &FileLimits, asked: &Arguments) -> Result<Body, String> {
    let text = at.read(&asked.path, limits.file_bytes).map_err(|refused| format!("not read: {refused}"))?;
    if asked.first_line.is_none() && asked.lines.is_none() {
        return Ok(bounded(text, limits));
    }
    let before = asked.first_line.unwrap_or(1).saturating_sub(1);
    let lines = text.split_inclusive('\n').skip(before).take(asked.lines.unwrap_or(usize::MAX));
    Ok(bounded(lines.collect(), limits))
}
