//! `write_file`: a whole file, new or instead of the old one.
//!
//! The old file stays until the new one is complete; directories on the way are made.

use serde::Deserialize;
use standfast_core::body::Body;

use super::FileLimits;
use crate::workspace::Workspace;

pub(super) const DESCRIPTION: &str = "Write a text file of the workspace; one that is there already is replaced. Paths begin at the workspace.";

pub(super) const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string","minLength":1},"content":{"type":"string"}},"required":["path","content"],"additionalProperties":false}"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pub(super) path: String,
    pub(super) content: String,
}

pub(super) fn run(at: &Workspace, limits: &FileLimits, asked: &Arguments) -> Result<Body, String> {
    let size = asked.content.len();
    if u64::try_from(size).is_ok_and(|size| size > limits.file_bytes) {
        return Err(format!("not written: {size} bytes; at most {} are written", limits.file_bytes));
    }
    at.write(&asked.path, &asked.content).map_err(|refused| format!("not written: {refused}"))?;
    Ok(Body::text(format!("wrote {size} bytes to {}", asked.path)))
}
