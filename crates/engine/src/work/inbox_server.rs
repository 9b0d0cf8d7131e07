//! Agents of this server that serve inboxes: they take work by priority and age, as much at once as they may.
//!
//! A task is taken with one append: exactly one node wins it, and when that node dies it is due like any other run. A
//! task that waits for a person takes no place; one that goes on after an answer goes on at once, and counts.

use std::cmp::Reverse;
use std::sync::Arc;

use standfast_core::command::{ClaimRun, Command};
use standfast_core::decide::Answer;
use standfast_core::id::Seq;
use standfast_core::name::AgentName;
use standfast_core::project::RunRow;
use standfast_store::{Claimant, RunFilter, RunQuery, StoreError};

use super::Work;
use crate::EngineError;
use crate::drive::{Queue, TakenRun};
use crate::settings::Agent;

/// Tasks that are looked at beyond what there is room for.
const SPARE: usize = 32;

impl Work {
    /// Serves inboxes from now on, until the engine is dropped or dies.
    pub(super) fn serve_inboxes(self: &Arc<Work>) {
        let shared = Arc::downgrade(self);
        self.host.spawn(async move {
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.host.is_stopping()) {
                // Listens before it looks, so that nothing falls between.
                let news = shared.wakes.inbox_news();
                if shared.take_from_inboxes().await == 0 {
                    let _ = shared.host.clock.timeout(shared.host.fixed.poll, news).await;
                }
            }
        });
    }

    /// Takes what there is room for; says how many tasks that was.
    async fn take_from_inboxes(self: &Arc<Work>) -> usize {
        let mut taken = 0;
        for (name, agent) in self.host.settings().agents.iter() {
            match self.take_for(name, agent).await {
                Ok(count) => taken += count,
                Err(error) => {
                    tracing::warn!(%error, agent = %name, "inboxes: tasks could not be listed; trying again");
                }
            }
        }
        taken
    }

    async fn take_for(self: &Arc<Work>, name: &AgentName, agent: &Agent) -> Result<usize, StoreError> {
        let Some(serves) = &agent.serves else { return Ok(0) };
        let room =
            || serves.max_concurrent.saturating_sub(self.pool.tasks_at_work(name)).min(self.pool.room(name));
        if room() == 0 {
            return Ok(0);
        }
        let mut waiting = Vec::new();
        for inbox in &serves.inboxes {
            let own = Claimant::Agent(name.clone());
            let filter = RunFilter::Claimable(inbox.name.clone(), self.host.clock.now(), own);
            waiting.extend(self.claimable(filter, room()).await?);
        }
        // Each inbox is in order; this is the order over all of them.
        waiting.sort_by_key(|row| {
            let priority = row.run.facts.inbox.as_ref().map_or(0, |place| place.priority);
            (Reverse(priority), row.run.facts.started_at)
        });
        let mut taken = 0;
        for row in waiting {
            if room() == 0 || self.host.is_stopping() {
                break;
            }
            let run = row.run.facts.id;
            match self.take_task(row).await {
                Ok(is_ours) => taken += usize::from(is_ours),
                Err(EngineError::Store(StoreError::Corrupt { why, .. })) => {
                    self.commit.quarantine(run, &why).await
                }
                Err(error) => tracing::debug!(%run, %error, "inboxes: a task was not taken"),
            }
        }
        Ok(taken)
    }

    /// The pending tasks of an agent in an inbox.
    async fn claimable(&self, filter: RunFilter, room: usize) -> Result<Vec<RunRow>, StoreError> {
        let mut found = Vec::new();
        for tenant in self.log.tenants().await? {
            // More than there is room for: other nodes may be faster with some.
            let query = RunQuery {
                tenant,
                filter: filter.clone(),
                phases: Vec::new(),
                since: None,
                cursor: None,
                limit: room.saturating_add(SPARE),
            };
            found.extend(self.log.store.list_runs(query).await?.items);
        }
        Ok(found)
    }

    /// Takes a task and works on it; false when another node was faster.
    async fn take_task(self: &Arc<Work>, row: RunRow) -> Result<bool, EngineError> {
        let (run, agent) = (row.run.facts.id, row.run.facts.agent.clone());
        let Some(guard) = self.drives.guard(run) else { return Ok(false) };
        let Some(slot) = self.pool.slot(&agent, Queue::Inbox) else { return Ok(false) };
        let committed = self.commit.commit_as_node(row, Command::Claim(ClaimRun::Node)).await?;
        match committed.answer {
            Answer::Done => {}
            Answer::Repeated
            | Answer::Voted { .. }
            | Answer::Edited
            | Answer::Held
            | Answer::Refused
            | Answer::Contradicted => return Ok(false),
        }
        tracing::info!(%run, %agent, "inboxes: took a task");
        match self.log.events(run, Seq(0)).await {
            Ok(log) => self.drives.drive(committed.row, TakenRun { slot, guard, log: Arc::new(log) }),
            Err(error @ StoreError::Corrupt { .. }) => return Err(error.into()),
            Err(error) => {
                self.drives.release_later(guard);
                return Err(error.into());
            }
        }
        Ok(true)
    }
}
