//! Runs by when they last changed, for surfaces whose lists are in that order.
//!
//! Stores index runs by when they began, because an index on what changes with every append would cost every append. So
//! the newest runs are read, up to a bound, and put in order here. Whoever sees only their own runs looks at no others, and
//! the columns decide what a filter leaves out, without reading it.

use std::cmp::Reverse;

use standfast_core::id::RunId;
use standfast_core::name::{AgentName, SessionId};
use standfast_core::project::{Phase, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;
use standfast_store::{RunQuery, UnreadableRun};

use super::Reads;
use crate::EngineError;
use crate::auth::Principal;

/// Runs that a list looks at, at most; of more than that the newest.
const LOOKED_AT_MAX: usize = 10_000;
/// Runs that are read at once.
const AT_ONCE: usize = 500;

/// Which runs are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentRuns {
    /// Of which agent.
    pub agent: AgentName,
    /// Of one conversation.
    pub session: Option<SessionId>,
    /// Only those in one of these phases; empty means any.
    pub phases: Vec<Phase>,
    /// Only those that changed at this instant or later.
    pub since: Option<Timestamp>,
}

/// A run of a list.
#[derive(Debug, Clone)]
pub enum ListedRun {
    /// The run.
    Run(Box<RunRow>),
    /// Its rows cannot be read: it counts as failed (C35).
    Quarantined(Box<UnreadableRun>),
}

impl ListedRun {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> RunId {
        match self {
            ListedRun::Run(row) => row.run.facts.id,
            ListedRun::Quarantined(found) => found.run,
        }
    }

    /// When it last changed, as far as that is known.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match self {
            ListedRun::Run(row) => row.run.state.at,
            ListedRun::Quarantined(found) => {
                found.facts.as_ref().map_or(Timestamp(0), |facts| facts.started_at)
            }
        }
    }
}

impl Reads {
    /// The runs of an agent that the caller may see, those that changed last first.
    pub async fn recent_runs(
        &self,
        who: &Principal,
        wanted: RecentRuns,
    ) -> Result<Vec<ListedRun>, EngineError> {
        let filter = self.log.run_filter(who, Some(&wanted.agent), wanted.session.as_ref());
        let is_wanted = |facts: &Facts| {
            facts.agent == wanted.agent
                && wanted.session.as_ref().is_none_or(|session| *session == facts.session)
        };
        let (mut listed, mut cursor, mut looked_at) = (Vec::new(), None, 0);
        loop {
            let query = RunQuery {
                tenant: who.tenant.clone(),
                filter: filter.clone(),
                phases: wanted.phases.clone(),
                since: wanted.since,
                cursor,
                limit: AT_ONCE,
            };
            let found = self.log.store.list_runs(query).await?;
            // A page that gives little has looked at as many rows all the same.
            looked_at += AT_ONCE;
            let seen = |row: &RunRow| is_wanted(&row.run.facts) && self.log.may_see(who, &row.run.facts);
            let seen = found.items.into_iter().filter(seen);
            listed.extend(seen.map(|row| ListedRun::Run(Box::new(row))));
            if wanted.phases.is_empty() || wanted.phases.contains(&Phase::Failed) {
                let unreadable = found.unreadable.into_iter().filter(|one| {
                    one.facts.as_ref().is_none_or(is_wanted) && self.log.may_see_unreadable(who, one)
                });
                listed.extend(unreadable.map(|one| ListedRun::Quarantined(Box::new(one))));
            }
            cursor = found.next;
            if cursor.is_none() || looked_at >= LOOKED_AT_MAX {
                break;
            }
        }
        listed.retain(|one| wanted.since.is_none_or(|since| one.at() >= since));
        listed.sort_by_key(|one| Reverse((one.at(), *one.id().bytes())));
        Ok(listed)
    }
}
