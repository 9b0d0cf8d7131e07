//! What the log says of a start whose outcome nobody knows: why, what was found out, what follows.
//!
//! Part of the durable format, as everything in `event.rs`. What a reconciliation is: `reconcile.rs`; who decides what
//! follows: `decide/calls.rs`.

use serde::{Deserialize, Serialize};

use crate::id::CallNo;
use crate::reconcile::Reconciliation;

/// What `call.orphaned` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOrphaned {
    /// Which call.
    pub call: CallNo,
    /// Which start of it.
    pub attempt: u32,
    /// What follows from it.
    pub then: AfterOrphan,
    /// Why nobody knows its outcome; none in what earlier versions wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<OrphanCause>,
    /// What the read-only call said that its tool names for this; none where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciled: Option<Box<Reconciliation>>,
}

/// Why nobody knows what a started call did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrphanCause {
    /// The server that ran it stopped, or lost touch, before it reported.
    ServerLost,
    /// The tool itself could not say how it ended: its words.
    Tool(String),
    /// The tool, or what drove the run, crashed.
    Crash,
    /// The run ended while it ran, and it was stopped.
    RunEnded,
    /// An outside worker was allowed to run it and never reported.
    Unreported,
}

/// What follows when nobody knows what a started call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterOrphan {
    /// Declared idempotent: it is started again with the same key.
    Retry,
    /// A person is asked: a recovery hold follows. Where what was looked up says that it happened, its `call.finished`
    /// follows instead.
    Ask,
    /// The run has ended or the worker is gone: the receipt says *outcome unknown*.
    Unknown,
}
