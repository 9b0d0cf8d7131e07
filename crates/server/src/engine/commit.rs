//! The one write path: definition, decision, append, and whoever is woken by it.
//!
//! [`Shared::commit`] changes a run that exists, [`Shared::commit_start`] begins one. Both settle in the background: the
//! caller may hang up, and whoever drives or follows the run hears of it all the same. `drive.rs` is the only other file
//! that has a pipeline; it pushes the same [`Change`]s and settles them while it works. What is written beside events is
//! said by the caller and completed in [`Shared::order`]: who may see new holds, who is notified.

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{Command, Start};
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::hold::Recorded;
use standfast_core::name::{AgentName, UserId};
use standfast_core::policy::{Role, Verdicts};
use standfast_core::project::RunRow;
use standfast_core::run::Facts;
use standfast_store::pipeline::{Given, LeaseRule, Order, Pipeline, Writes};
use standfast_store::{StoreError, Who};
use tokio::sync::oneshot;

use super::{EngineError, Shared};
use crate::auth::Party;
use crate::settings::Approvers;

/// Commands for one append: who sends them, by what right, and what is written with them.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) actor: Actor,
    pub(super) authority: Authority,
    /// In order; the events share one link.
    pub(super) commands: Vec<Command>,
    pub(super) writes: Writes,
}

/// By what right commands are sent, and what is known of them before they are decided.
#[derive(Debug, Clone, Default)]
pub(super) struct Authority {
    /// In what role the sender decides holds.
    pub(super) role: Option<Role>,
    /// What rules and grants say of the calls.
    pub(super) verdicts: Verdicts,
    /// The recorded decision of a hold that is no longer open.
    pub(super) recorded: Option<Recorded>,
}

/// What an append came to, durably.
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) answer: Answer,
    /// The run after it.
    pub(super) row: RunRow,
}

impl From<Role> for Authority {
    fn from(role: Role) -> Authority {
        Authority { role: Some(role), ..Authority::default() }
    }
}

impl Change {
    /// Commands that need no right of their own, with nothing beside their events.
    pub(super) fn new(actor: Actor, commands: Vec<Command>) -> Change {
        Change { actor, authority: Authority::default(), commands, writes: Writes::default() }
    }
}

impl Shared {
    /// Changes a run: decides the commands on this row, or on what others have made of it meanwhile, and appends.
    pub(super) async fn commit(
        self: &Arc<Shared>,
        base: RunRow,
        change: Change,
    ) -> Result<Committed, EngineError> {
        let order = self.order_for(&base, change).await?;
        let mut pipeline = Pipeline::of(self.store.clone(), base);
        pipeline.push(order);
        self.settled(pipeline).await
    }

    /// Begins a run.
    pub(super) async fn commit_start(
        self: &Arc<Shared>,
        start: Start,
        definition: Arc<Definition>,
        change: Change,
    ) -> Result<Committed, EngineError> {
        let order = self.order((&start.agent, &start.owner), definition, change);
        let pipeline = Pipeline::start(self.store.clone(), start, order)?;
        self.settled(pipeline).await
    }

    /// The order of a change to a run that exists.
    pub(super) async fn order_for(&self, base: &RunRow, change: Change) -> Result<Order, EngineError> {
        let Facts { agent, owner, .. } = &base.run.facts;
        let definition = self.definition(agent, base.run.state.definition).await?;
        Ok(self.order((agent, owner), definition, change))
    }

    /// The order of a change to a run of this agent and owner.
    pub(super) fn order(
        &self,
        (agent, owner): (&AgentName, &UserId),
        definition: Arc<Definition>,
        change: Change,
    ) -> Order {
        let Change { actor, authority, commands, mut writes } = change;
        let settings = self.settings();
        writes.audience = audience_of(owner, &self.approvers(agent));
        writes.notices.extend(self.remote_cancel(agent));
        let given = Given {
            now: self.clock.now(),
            entropy: self.clock.entropy(),
            actor,
            limits: settings.agent_limits.get(&definition.agent).unwrap_or(&settings.limits).clone(),
            definition,
            verdicts: authority.verdicts,
            authority: authority.role,
            recorded: authority.recorded,
            over_soft_cap: false,
        };
        Order { commands, given, writes }
    }

    /// A lease that lasts as long as there is something to do.
    pub(super) fn while_busy(&self) -> LeaseRule {
        let now = self.clock.now();
        LeaseRule::WhileBusy { node: self.node, now, until: now.plus(self.settings().lease) }
    }

    /// Settles in the background: the caller may hang up, and whoever drives or follows the run hears of it all the same.
    async fn settled(self: &Arc<Shared>, mut pipeline: Pipeline) -> Result<Committed, EngineError> {
        let (committed, answer) = oneshot::channel();
        let shared = self.clone();
        self.spawn(async move {
            let mut settlement = pipeline.settle().await;
            let row = pipeline.durable().cloned();
            if let Some(row) = &row {
                shared.wakes.wake(row.run.facts.id);
                if row.run.facts.inbox.is_some() {
                    shared.wakes.wake_inboxes();
                }
            }
            shared.wakes.wake_worker();
            let outcome = match (settlement.failed, settlement.done.pop(), row) {
                (Some(error), _, _) => Err(error.into()),
                (None, Some(settled), Some(row)) => {
                    settled.outcome.map(|answer| Committed { answer, row }).map_err(EngineError::from)
                }
                (None, _, _) => Err(EngineError::NotFound),
            };
            let _ = committed.send(outcome);
        });
        answer.await.map_err(|_| stopping())?
    }
}

/// Nobody knows what became of an append whose task is gone.
pub(super) fn stopping() -> StoreError {
    StoreError::Unknown { why: "the server is stopping".into() }
}

/// Whether an append that was to take a run, or to give it back, found that another node works on it: the first guard
/// of such an append.
pub(super) fn is_leased_elsewhere(error: &StoreError) -> bool {
    matches!(error, StoreError::Guard { which: 0, .. })
}

/// Who may see and decide the holds of a run: its owner and those named.
fn audience_of(owner: &UserId, approvers: &Approvers) -> Vec<Who> {
    let mut who = vec![audience(&Party::User(owner.clone()))];
    who.extend(approvers.named.iter().flatten().map(audience));
    who.sort();
    who.dedup();
    who
}

/// How audiences name a user, a group or a role.
pub(super) fn audience(party: &Party) -> Who {
    Who(party.to_string())
}
