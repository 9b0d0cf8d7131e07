//! What a call would do, as far as its tool can say without doing it: for the person who decides, never for a rule.
//!
//! Nothing here is approved or compared: what runs are the stored argument bytes. A tool that knows nothing says nothing,
//! and then nothing is claimed. How a preview looks is the business of pages.

use standfast_core::digest::{self, FileDigest};
use standfast_core::time::Timestamp;

/// What is known of the harm that a call can do. Where it is not known there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// It looks and changes nothing.
    ReadOnly,
    /// What it changes can be undone.
    Reversible,
    /// What it changes is lost.
    Destructive,
}

/// What a call would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallPreview {
    /// It changes one file.
    FileChange(FileChange),
    /// It starts a program.
    Command(CommandPreview),
    /// It sends a request.
    Request(RequestPreview),
}

/// A file, as it is now and as the call would leave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// As the call names it.
    pub path: String,
    /// What it has now.
    pub before: FileNow,
    /// What it would have; why the call would fail where it would.
    pub after: Result<String, String>,
}

impl FileChange {
    /// What the file has now, in a word that can be compared; none where that cannot be read.
    #[must_use]
    pub fn digest(&self) -> Option<FileDigest> {
        let sha256 = match &self.before {
            FileNow::Missing => "missing".to_owned(),
            FileNow::Text { text, .. } => {
                digest::of_bytes(text.as_bytes()).0.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            FileNow::Unreadable(_) => return None,
        };
        Some(FileDigest { path: self.path.clone(), sha256 })
    }
}

/// What a file has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileNow {
    /// It is not there.
    Missing,
    /// Its text, and when it last changed.
    Text {
        /// The whole of it.
        text: String,
        /// By the clock of its file system.
        modified_at: Timestamp,
    },
    /// It cannot be shown: why.
    Unreadable(String),
}

/// A program that would be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPreview {
    /// The words that the program gets; no shell reads them.
    pub argv: Vec<String>,
    /// Where it would run.
    pub directory: String,
    /// What the sandbox lets it do.
    pub allowed: Vec<String>,
    /// What the sandbox keeps it from.
    pub denied: Vec<String>,
    /// Why it would not start.
    pub trouble: Option<String>,
}

/// A request that would be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPreview {
    /// Its method.
    pub method: String,
    /// Its address, as written.
    pub url: String,
    /// Its headers, as the call gives them.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Option<String>,
}
