//! `delete_file`: removes one file.
//!
//! No directories, no links, no wildcards.

use serde::Deserialize;
use standfast_core::body::Body;

use crate::workspace::Workspace;

pub(super) const DESCRIPTION: &str =
    "Delete one file of the workspace. It cannot be brought back. Paths begin at the workspace.";

pub(super) const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string","minLength":1}},"required":["path"],"additionalProperties":false}"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pub(super) path: String,
}

pub(super) fn run(at: &Workspace, asked: &Arguments) -> Result<Body, String> {
    at.delete(&asked.path).map_err(|refused| format!("not deleted: {refused}"))?;
    Ok(Body::text(format!("deleted {}", asked.path)))
}
