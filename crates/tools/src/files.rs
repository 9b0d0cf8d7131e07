//! The file tools: read, write, delete, list, search and edit below a workspace. One file for each of them.
//!
//! They share a [`Workspace`], which keeps them inside, and limits. Looking needs no person, changing does unless the
//! configuration says otherwise (S3-13).

mod delete;
mod edit;
mod list;
mod preview;
mod read;
mod search;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::de::DeserializeOwned;
use standfast_core::body::Body;
use standfast_core::definition::ToolSpec;
use standfast_core::json::RawJson;
use standfast_core::message::{FileDigest, Replay, ToolResult};
use standfast_engine::tool::preview::{CallPreview, Risk};
use standfast_engine::tool::{
    FileChanger, HoldReason, Invocation, Judgement, Nature, Outcome, Tool, ToolFuture,
};

use super::workspace::{Intent, Workspace};

/// The rule of paths that no person can allow.
pub const PATH_RULE: &str = "file:path";

/// Which file tool. The names are the types of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// `read_file`
    Read,
    /// `write_file`
    Write,
    /// `delete_file`
    Delete,
    /// `list_dir`
    List,
    /// `search_files`
    Search,
    /// `edit_file`
    Edit,
}

/// How far file tools go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLimits {
    /// Bytes of a file that is read, written or searched.
    pub file_bytes: u64,
    /// Bytes of a result.
    pub result_bytes: usize,
    /// Entries of a listing.
    pub entries: usize,
    /// Files that one search looks into.
    pub searched_files: usize,
    /// Bytes that one search looks through.
    pub searched_bytes: u64,
    /// Lines that one search finds.
    pub found_lines: usize,
}

impl Default for FileLimits {
    fn default() -> FileLimits {
        FileLimits {
            file_bytes: 8 * 1024 * 1024,
            result_bytes: 128 * 1024,
            entries: 1_000,
            searched_files: 20_000,
            searched_bytes: 256 * 1024 * 1024,
            found_lines: 200,
        }
    }
}

impl FileKind {
    /// All of them.
    pub const ALL: [FileKind; 6] =
        [FileKind::Read, FileKind::Write, FileKind::Delete, FileKind::List, FileKind::Search, FileKind::Edit];

    /// Its type in a configuration, and its usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Read => "read_file",
            FileKind::Write => "write_file",
            FileKind::Delete => "delete_file",
            FileKind::List => "list_dir",
            FileKind::Search => "search_files",
            FileKind::Edit => "edit_file",
        }
    }

    /// Whether a person is asked when the configuration does not say.
    #[must_use]
    pub fn needs_approval(self) -> bool {
        self.intent() == Intent::Change
    }

    fn intent(self) -> Intent {
        match self {
            FileKind::Read | FileKind::List | FileKind::Search => Intent::Look,
            FileKind::Write | FileKind::Delete | FileKind::Edit => Intent::Change,
        }
    }

    /// How it is described to a model.
    #[must_use]
    pub fn spec(self) -> ToolSpec {
        let (description, schema) = match self {
            FileKind::Read => (read::DESCRIPTION, read::SCHEMA),
            FileKind::Write => (write::DESCRIPTION, write::SCHEMA),
            FileKind::Delete => (delete::DESCRIPTION, delete::SCHEMA),
            FileKind::List => (list::DESCRIPTION, list::SCHEMA),
            FileKind::Search => (search::DESCRIPTION, search::SCHEMA),
            FileKind::Edit => (edit::DESCRIPTION, edit::SCHEMA),
        };
        let Ok(schema) = RawJson::parse(schema) else { unreachable!("a constant that the tests read") };
        // A change that may have happened is not simply made again: somebody may have changed the file since.
        let replay = match self.intent() {
            Intent::Look => Replay::Idempotent,
            Intent::Change => Replay::Never,
        };
        ToolSpec {
            description: description.into(),
            schema,
            replay,
            reversible: self.intent() == Intent::Look,
            approval_prompt: None,
            holds: None,
        }
    }
}

/// A file tool of an agent.
#[derive(Debug, Clone)]
pub struct FileTool {
    kind: FileKind,
    at: Arc<Workspace>,
    limits: FileLimits,
}

impl FileTool {
    /// A tool of this kind in this workspace.
    #[must_use]
    pub fn new(kind: FileKind, workspace: Arc<Workspace>, limits: FileLimits) -> FileTool {
        FileTool { kind, at: workspace, limits }
    }

    fn work(&self, arguments: &str, stop: &AtomicBool) -> Result<Body, String> {
        let (at, limits) = (&self.at, &self.limits);
        match self.kind {
            FileKind::Read => read::run(at, limits, &arguments_of(arguments)?),
            FileKind::Write => write::run(at, limits, &arguments_of(arguments)?),
            FileKind::Delete => delete::run(at, &arguments_of(arguments)?),
            FileKind::List => list::run(at, limits, &arguments_of(arguments)?),
            FileKind::Search => search::run(at, limits, &arguments_of(arguments)?, stop),
            FileKind::Edit => edit::run(at, limits, &arguments_of(arguments)?),
        }
    }

    fn path_of(&self, arguments: &str) -> Result<String, String> {
        Ok(match self.kind {
            FileKind::Read => arguments_of::<read::Arguments>(arguments)?.path,
            FileKind::Write => arguments_of::<write::Arguments>(arguments)?.path,
            FileKind::Delete => arguments_of::<delete::Arguments>(arguments)?.path,
            FileKind::List => arguments_of::<list::Arguments>(arguments)?.path,
            FileKind::Search => arguments_of::<search::Arguments>(arguments)?.path,
            FileKind::Edit => arguments_of::<edit::Arguments>(arguments)?.path,
        })
    }
}

impl Tool for FileTool {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let tool = self.clone();
        Box::pin(async move {
            let stop = StopsWhenDropped(Arc::new(AtomicBool::new(false)));
            let seen = stop.0.clone();
            let work = tokio::task::spawn_blocking(move || tool.work(&invocation.arguments, &seen));
            let outcome = match work.await {
                Ok(Ok(body)) => Outcome::Done(ToolResult::Ok(body)),
                Ok(Err(why)) => Outcome::Done(ToolResult::Failed(Body::text(why))),
                Err(panic) => Outcome::Unknown(panic.to_string()),
            };
            drop(stop);
            outcome
        })
    }

    /// What cannot work whoever agrees is refused before anybody is asked.
    fn judge(&self, arguments: &str) -> Judgement {
        let checked = self.path_of(arguments).and_then(|path| {
            self.at.checked(&path, self.kind.intent()).map_err(|refused| format!("not executed: {refused}"))
        });
        match checked {
            Ok(_) => Judgement::Allow,
            Err(reason) => Judgement::Forbid(HoldReason { rule: PATH_RULE, reason }),
        }
    }

    fn risk(&self, _arguments: &str) -> Option<Risk> {
        match self.kind {
            FileKind::Read | FileKind::List | FileKind::Search => Some(Risk::ReadOnly),
            FileKind::Delete => Some(Risk::Destructive),
            // What a file had may be kept elsewhere, or not.
            FileKind::Write | FileKind::Edit => None,
        }
    }

    fn preview(&self, arguments: &str) -> Option<CallPreview> {
        preview::change(self.kind, &self.at, &self.limits, arguments).map(CallPreview::FileChange)
    }

    fn nature(&self) -> Nature<'_> {
        Nature::FileChange(self)
    }
}

impl FileChanger for FileTool {
    fn target(&self, arguments: &str) -> Option<FileDigest> {
        preview::change(self.kind, &self.at, &self.limits, arguments).and_then(|change| change.digest())
    }
}

/// A call that was given up ends its work at the next file.
struct StopsWhenDropped(Arc<AtomicBool>);

impl Drop for StopsWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn arguments_of<T: DeserializeOwned>(arguments: &str) -> Result<T, String> {
    let bad = |error: String| format!("not executed: the arguments do not fit: {error}");
    RawJson::parse(arguments).map_err(|error| bad(error.to_string()))?;
    serde_json::from_str(arguments).map_err(|error| bad(error.to_string()))
}

/// As much of a text as fits, with a note of what is missing.
fn bounded(mut text: String, limits: &FileLimits) -> Body {
    if text.len() > limits.result_bytes {
        let more = text.len() - text.floor_char_boundary(limits.result_bytes);
        text.truncate(text.floor_char_boundary(limits.result_bytes));
        text.push_str(&format!("\n[{more} more bytes]"));
    }
    Body::text(text)
}
