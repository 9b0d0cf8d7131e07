//! `edit_file`: replaces one exact piece of text in a file.
//!
//! The piece must be there, and only once unless all of them are meant: an edit that could mean two places is refused.

use serde::Deserialize;
use standfast_core::body::Body;

use super::FileLimits;
use crate::workspace::{Intent, Workspace};

pub(super) const DESCRIPTION: &str = "Replace an exact piece of text in a file of the workspace. It must occur \
                                      exactly once, unless `all` is true. Paths begin at the workspace.";

pub(super) const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string","minLength":1},"old":{"type":"string","minLength":1},"new":{"type":"string"},"all":{"type":"boolean"}},"required":["path","old","new"],"additionalProperties":false}"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pub(super) path: String,
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

pub(super) fn run(at: &Workspace, limits: &FileLimits, asked: &Arguments) -> Result<Body, String> {
    let refused = |why: String| format!("not edited: {why}");
    if asked.old.is_empty() {
        return Err(refused("old is empty".into()));
    }
    at.checked(&asked.path, Intent::Change).map_err(|why| refused(why.to_string()))?;
    let text = at.read(&asked.path, limits.file_bytes).map_err(|why| refused(why.to_string()))?;
    let (changed, count) = changed(&text, asked, limits).map_err(refused)?;
    at.write(&asked.path, &changed).map_err(|why| refused(why.to_string()))?;
    Ok(Body::text(format!("replaced {count} in {}", asked.path)))
}

/// The text as the edit leaves it, and how many places it changes.
pub(super) fn changed(text: &str, asked: &Arguments, limits: &FileLimits) -> Result<(String, usize), String> {
    if asked.old.is_empty() {
        return Err("old is empty".into());
    }
    let count = text.matches(&asked.old).count();
    match count {
        0 => return Err(format!("{:?} does not have the text", asked.path)),
        2.. if !asked.all => {
            return Err(format!("{:?} has the text {count} times; give more of it, or say all", asked.path));
        }
        _ => {}
    }
    let changed = text.replace(&asked.old, &asked.new);
    if u64::try_from(changed.len()).is_ok_and(|size| size > limits.file_bytes) {
        return Err(format!("it would have {} bytes; at most {}", changed.len(), limits.file_bytes));
    }
    Ok((changed, count))
}
