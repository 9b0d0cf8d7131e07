//! Which runs have been over for long enough that their contents can go.
//!
//! What is asked, and what each backend makes of the rows that it looked at. How long runs are kept is the engine's business.

use std::collections::BTreeMap;

use standfast_core::id::RunId;
use standfast_core::name::{AgentName, Tenant};
use standfast_core::time::Timestamp;

use super::Page;

/// Which runs are asked for that have ended and still have their contents. Oldest first.
#[derive(Debug, Clone)]
pub struct EndedQuery {
    /// Whose.
    pub tenant: Tenant,
    /// Whose last event was before this instant.
    pub before: Timestamp,
    /// Agents whose runs must have had theirs before another instant instead.
    pub agents: BTreeMap<AgentName, Timestamp>,
    /// Where to continue.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// What a store knows of a run that may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndedRun {
    /// It goes on, or is somebody else's, or has no contents, or somebody has to be told of it.
    No,
    /// It says that it is erased, and still has its contents.
    ToErase,
    /// It ended before the last of the instants in question.
    Old,
}

impl EndedRun {
    /// As the statements of databases number it.
    pub(crate) fn from_number(number: i64) -> EndedRun {
        match number {
            1 => EndedRun::ToErase,
            2 => EndedRun::Old,
            _ => EndedRun::No,
        }
    }
}

/// A run that such a question looked at.
pub(crate) struct ScannedRun {
    pub(crate) no: i64,
    pub(crate) run: RunId,
    pub(crate) is_wanted: bool,
    /// It began before the instant in question.
    pub(crate) is_old: bool,
}

impl EndedQuery {
    /// How many runs a page looks at.
    pub(crate) const LOOKS_AT: usize = 500;

    /// The last instant that is in question.
    pub(crate) fn last_before(&self) -> Timestamp {
        self.agents.values().copied().fold(self.before, Timestamp::max)
    }

    /// Whether a run is wanted: of which agent, and when its last event was.
    pub(crate) fn wants(&self, run: EndedRun, before: Option<Timestamp>, at: Timestamp) -> bool {
        match run {
            EndedRun::No => false,
            EndedRun::ToErase => true,
            EndedRun::Old => at < before.unwrap_or(self.before),
        }
    }

    /// The page of these runs. Runs are numbered as they begin: where none of so many is old, those
    /// behind them are not either.
    pub(crate) fn page(&self, looked_at: &[ScannedRun]) -> Page<RunId> {
        let mut items = Vec::new();
        for one in looked_at.iter().filter(|one| one.is_wanted) {
            items.push(one.run);
            if items.len() >= self.limit {
                return Page::of(items, Some(one.no.cast_unsigned()));
            }
        }
        let is_last = looked_at.len() < EndedQuery::LOOKS_AT || !looked_at.iter().any(|one| one.is_old);
        let next = looked_at.last().filter(|_| !is_last).map(|last| last.no.cast_unsigned());
        Page::of(items, next)
    }
}
