//! `list_dir`: what a directory has.
//!
//! One line for each entry, sorted by name: what it is, how many bytes a file has.

use serde::Deserialize;
use standfast_core::body::Body;

use super::{FileLimits, bounded};
use crate::workspace::Workspace;

pub(super) const DESCRIPTION: &str =
    "List a directory of the workspace. Paths begin at the workspace; without a path, the workspace itself.";

pub(super) const SCHEMA: &str =
    r#"{"type":"object","properties":{"path":{"type":"string"}},"additionalProperties":false}"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    #[serde(default)]
    pub(super) path: String,
}

pub(super) fn run(at: &Workspace, limits: &FileLimits, asked: &Arguments) -> Result<Body, String> {
    let listed = at.list(&asked.path, limits.entries).map_err(|refused| format!("not listed: {refused}"))?;
    let (entries, left_out) = listed;
    let mut text = String::new();
    for entry in entries {
        let name = entry.name.replace(['\n', '\r'], "\u{fffd}");
        text.push_str(&match (entry.kind, entry.size) {
            ("a file", Some(size)) => format!("{name} ({size} bytes)\n"),
            ("a directory", _) => format!("{name}/\n"),
            (kind, _) => format!("{name} ({kind})\n"),
        });
    }
    if left_out > 0 {
        text.push_str(&format!("[{left_out} more entries]\n"));
    }
    Ok(bounded(text, limits))
}
