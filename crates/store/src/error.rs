//! What can go wrong between the engine and a store.
//!
//! Each says whether something was written: surfaces turn them into "try again", "decide again" or "it is broken".

use standfast_core::id::RunId;

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else appended first, or the run exists already. Nothing was written; load and decide again.
    #[error("run {run} has changed since it was loaded; try again")]
    Conflict {
        /// Which run.
        run: RunId,
    },
    /// A guard did not hold. Nothing was written; decide again with that fact.
    #[error("guard {which} of the append failed: {why}")]
    Guard {
        /// Position of the guard among all guards of the append.
        which: usize,
        /// What it found.
        why: String,
    },
    /// There is no such run.
    #[error("there is no run {run}")]
    NotFound {
        /// Which run.
        run: RunId,
    },
    /// The store cannot do it now. Nothing was written; try again later.
    #[error("the store is not available: {why}")]
    Unavailable {
        /// Why, and what would help.
        why: String,
    },
    /// The answer was lost: it may have been written or not. Read the link at that sequence to find out.
    #[error("the store did not answer, so the write may or may not have happened: {why}")]
    Unknown {
        /// What happened.
        why: String,
    },
    /// Stored rows of this run cannot be read. They are left untouched; other runs are not affected.
    #[error("failed to load execution state: {why} (run {run})")]
    Corrupt {
        /// Which run.
        run: RunId,
        /// What is wrong with them.
        why: String,
    },
    /// The run was last written by a newer version of Standfast; this one leaves it alone.
    #[error("run {run} was written by a newer version (fold {found}); upgrade this node")]
    Newer {
        /// Which run.
        run: RunId,
        /// The fold version of its row.
        found: u32,
    },
}

impl StoreError {
    /// A store that cannot do it now.
    pub(crate) fn unavailable(why: impl Into<String>) -> StoreError {
        StoreError::Unavailable { why: why.into() }
    }
}
