//! The runs of a conversation: which of them a new run continues, and what they said.
//!
//! Chosen once, when a run begins, and pinned by its start: what ends later, on whatever node, is no part of it. How a model
//! is reminded of them is `standfast_core::transcript::history`.

use standfast_core::event::{Driver, EarlierRun, Envelope, History};
use standfast_core::id::Seq;
use standfast_core::project::{Phase, RunRow};
use standfast_store::{RunFilter, RunQuery, SessionKey, StoreError};

use super::Log;
use crate::EngineError;

/// Earlier runs that a start names, at most; of more than that the newest.
const RUNS_MAX: usize = 50;

/// Phases of runs that have ended.
const ENDED: [Phase; 4] = [Phase::Completed, Phase::Failed, Phase::Canceled, Phase::Rejected];

impl Log {
    /// What a run that begins now in this conversation continues; none where nothing came before, or nothing is to be kept
    /// in mind.
    pub(crate) async fn history(&self, of: &SessionKey, tokens: u32) -> Result<Option<History>, EngineError> {
        if tokens == 0 {
            return Ok(None);
        }
        let filter = RunFilter::SessionOf(of.owner.clone(), of.agent.clone(), of.session.clone());
        let query = RunQuery {
            tenant: of.tenant.clone(),
            filter,
            phases: ENDED.to_vec(),
            since: None,
            cursor: None,
            limit: RUNS_MAX,
        };
        let found = self.store.list_runs(query).await?.items;
        let mut runs: Vec<EarlierRun> = found.iter().filter(|row| is_said(row)).map(earlier).collect();
        runs.reverse();
        Ok((!runs.is_empty()).then_some(History { tokens, runs }))
    }

    /// What the runs of a history said, each with large values in their places. One whose contents are gone says nothing.
    pub(crate) async fn earlier_events(&self, pinned: &History) -> Result<Vec<Vec<Envelope>>, StoreError> {
        let mut logs = Vec::new();
        for earlier in &pinned.runs {
            logs.push(match self.events(earlier.run, Seq(0)).await {
                Ok(events) => events,
                Err(StoreError::NotFound { .. }) => Vec::new(),
                // It is quarantined, and shown as such where it is listed: the conversation goes on without it.
                Err(StoreError::Corrupt { run, why }) => {
                    tracing::warn!(%run, why, "sessions: an earlier run of the conversation cannot be read; left out of the history");
                    Vec::new()
                }
                Err(error) => return Err(error),
            });
        }
        Ok(logs)
    }
}

/// Whether a client's own conversation: a sub-run was asked by another agent, a task of an inbox is work and not talk.
fn is_said(row: &RunRow) -> bool {
    let (facts, state) = (&row.run.facts, &row.run.state);
    facts.parent.is_none() && facts.inbox.is_none() && facts.driver == Driver::Loop && !state.erased
}

fn earlier(row: &RunRow) -> EarlierRun {
    EarlierRun { run: row.run.facts.id, upto: row.run.state.seq }
}
