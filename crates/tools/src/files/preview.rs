//! What `write_file` and `edit_file` would do to a file as it is now: for the person who decides.
//!
//! Reads only, with the limits of the tool. What runs later reads the file again.

use standfast_core::time::Timestamp;
use standfast_engine::tool::preview::{FileChange, FileNow};

use super::{FileKind, FileLimits, arguments_of, edit, write};
use crate::workspace::{FileRefusal, Workspace};

/// The change that these arguments ask for; none for a tool that changes no text.
pub(super) fn change(
    kind: FileKind,
    at: &Workspace,
    limits: &FileLimits,
    arguments: &str,
) -> Option<FileChange> {
    match kind {
        FileKind::Write => {
            let asked = arguments_of::<write::Arguments>(arguments).ok()?;
            let before = now(at, limits, &asked.path);
            Some(FileChange { path: asked.path, before, after: Ok(asked.content) })
        }
        FileKind::Edit => {
            let asked = arguments_of::<edit::Arguments>(arguments).ok()?;
            let before = now(at, limits, &asked.path);
            let after = match &before {
                FileNow::Text { text, .. } => edit::changed(text, &asked, limits).map(|(changed, _)| changed),
                FileNow::Missing => Err(format!("{:?} is not there", asked.path)),
                FileNow::Unreadable(why) => Err(why.clone()),
            };
            Some(FileChange { path: asked.path, before, after })
        }
        FileKind::Read | FileKind::Delete | FileKind::List | FileKind::Search => None,
    }
}

fn now(at: &Workspace, limits: &FileLimits, path: &str) -> FileNow {
    match at.read_with_time(path, limits.file_bytes) {
        Ok((text, modified_at)) => FileNow::Text { text, modified_at: Timestamp(modified_at) },
        Err(FileRefusal::Missing { .. }) => FileNow::Missing,
        Err(refused) => FileNow::Unreadable(refused.to_string()),
    }
}
