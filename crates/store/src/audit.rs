//! What an audit of a store finds.
//!
//! The proof itself is the backend's ([`crate::sqlite::verify`]); this is the shape of its answer.

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
