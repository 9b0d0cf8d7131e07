//! What an audit of a store finds, and what an export hands over.
//!
//! The proof itself is the backend's ([`crate::sqlite::verify`], [`crate::sqlite::export`]); this is the shape of its
//! answer.

use holdpoint_core::event::Envelope;
use holdpoint_core::id::RunId;
use holdpoint_core::link::Link;

/// What was looked at and what was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Runs looked at.
    pub runs: u64,
    /// Links whose hashes were checked.
    pub links: u64,
    /// Events in them.
    pub events: u64,
    /// Runs whose contents were erased; their chains were checked all the same.
    pub erased: u64,
    /// What is wrong, at most one for each run.
    pub findings: Vec<Finding>,
}

/// Something that is wrong with a run. It is quarantined; others are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The run's id, or the number of its row when it has no readable id.
    pub run: String,
    /// What is wrong with it.
    pub what: String,
}

/// The log of a run, as far as it verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The run.
    pub run: RunId,
    /// Its links up to the first that does not verify.
    pub links: Vec<ExportedLink>,
    /// What is wrong with it.
    pub wrong: Option<String>,
}

/// A link with its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedLink {
    /// The link as it is stored.
    pub link: Link,
    /// Its events with large values in place; none when they were erased.
    pub events: Vec<Envelope>,
}
