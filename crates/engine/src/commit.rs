//! The one write path: definition, decision, append, and whoever is woken by it.
//!
//! [`Commit::commit`] changes a run that exists, [`Commit::commit_jointly`] several at once, [`Commit::commit_start`] begins
//! one, [`Commit::commit_restored`] one that was made of its execution state. All settle in the background: the
//! caller may hang up, and whoever drives or follows the run is notified all the same. `drive.rs` is the only other file
//! that has a pipeline; it pushes the same [`Change`]s and settles them while it works. What is written beside events is
//! said by the caller and completed in [`Commit::order`]: who may see new holds, who is notified.
//! `idempotency.rs` lets a request be sent again, `hold_marks.rs` notes what callers were shown.

mod hold_marks;
mod idempotency;

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{Command, Start};
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::execution_state::RestoredRun;
use standfast_core::hold::RecordedDecision;
use standfast_core::id::RunId;
use standfast_core::name::{AgentName, RuleId, UserId};
use standfast_core::policy::{Role, Verdicts};
use standfast_core::project::RunRow;
use standfast_core::run::Facts;
use standfast_store::pipeline::{
    HoldAudience, LeaseRule, NoticeRule, NoticeTrigger, Order, OrderContext, Pipeline, Writes,
    append_jointly, start_jointly,
};
use standfast_store::{Recipient, StoreError};
use tokio::sync::oneshot;

use super::EngineError;
use super::host::Host;
use super::log::{Log, audience_member, log_events, trace_decided};
use super::wakes::Wakes;
use crate::auth::{Approvers, Party};
use crate::request_context;

pub use hold_marks::{HoldMarks, ImpliedHold, ShownHold, ShownHolds};
pub use idempotency::IdempotencyKey;

/// Commands for one append: who sends them, by what right, and what is written with them.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) actor: Actor,
    pub(crate) authority: Authority,
    /// In order; the events share one link.
    pub(crate) commands: Vec<Command>,
    pub(crate) writes: Writes,
}

/// By what right commands are sent, and what is known of them before they are decided.
#[derive(Debug, Clone, Default)]
pub(crate) struct Authority {
    /// In what role the sender decides holds.
    pub(crate) role: Option<Role>,
    /// The rules whose demands on a hold the sender counts for.
    pub(crate) counts_for: Vec<RuleId>,
    /// What rules and grants say of the calls.
    pub(crate) verdicts: Verdicts,
    /// The recorded decision of a hold that is no longer open.
    pub(crate) recorded: Option<RecordedDecision>,
}

/// The result of an append, durably.
#[derive(Debug)]
pub(crate) struct CommitResult {
    pub(crate) answer: Answer,
    /// The run after it.
    pub(crate) row: RunRow,
}

impl From<Role> for Authority {
    fn from(role: Role) -> Authority {
        Authority { role: Some(role), ..Authority::default() }
    }
}

impl Change {
    /// Commands that need no right of their own, with nothing beside their events.
    pub(crate) fn new(actor: Actor, commands: Vec<Command>) -> Change {
        Change { actor, authority: Authority::default(), commands, writes: Writes::default() }
    }
}

/// The one write path.
pub(crate) struct Commit {
    pub(crate) host: Arc<Host>,
    pub(crate) log: Arc<Log>,
    pub(crate) wakes: Arc<Wakes>,
}

impl Commit {
    pub(crate) fn new(log: Arc<Log>, wakes: Arc<Wakes>) -> Commit {
        Commit { host: log.host.clone(), log, wakes }
    }

    /// Changes a run: decides the commands on this row, or on what others have made of it meanwhile, and appends.
    pub(crate) async fn commit(&self, base: RunRow, change: Change) -> Result<CommitResult, EngineError> {
        let order = self.order_for(&base, change).await?;
        let mut pipeline = Pipeline::of(self.log.store.clone(), base);
        pipeline.push(order);
        self.settled(pipeline).await
    }

    /// Changes several runs in one append, all of them or none. The first change leads: what the others are refused
    /// because their runs have ended is left out.
    pub(crate) async fn commit_jointly(
        &self,
        (base, change): (RunRow, Change),
        others: Vec<(RunRow, Change)>,
    ) -> Result<Answer, EngineError> {
        let lead = (base.clone(), self.order_for(&base, change).await?);
        let mut orders = Vec::new();
        for (base, change) in others {
            orders.push((base.clone(), self.order_for(&base, change).await?));
        }
        let (wakes, log) = (self.wakes.clone(), self.log.clone());
        let (committed, answer) = oneshot::channel();
        self.host.spawn(async move {
            let settled = append_jointly(&log.store, lead, orders).await;
            for (row, events) in settled.iter().flat_map(|settled| settled.rows.iter().zip(&settled.events)) {
                log_events(&row.run, events);
                wakes.wake(row.run.facts.id);
                if row.run.facts.inbox.is_some() {
                    wakes.wake_inboxes();
                }
            }
            wakes.wake_worker();
            let traced: Vec<_> = match (&settled, &log.host.fixed.traces) {
                (Ok(settled), Some(_)) => settled.decided.iter().zip(&settled.events).collect(),
                (Ok(_), None) | (Err(_), _) => Vec::new(),
            };
            let clone = |(holds, events): (&Vec<_>, &Vec<_>)| (holds.clone(), events.clone());
            let traced: Vec<_> = traced.into_iter().map(clone).collect();
            let _ = committed.send(settled);
            for (holds, events) in traced {
                trace_decided(&log, &holds, &events).await;
            }
        });
        Ok(answer.await.map_err(|_| stopping())??.outcome?)
    }

    /// Begins a run.
    pub(crate) async fn commit_start(
        &self,
        start: Start,
        definition: Arc<Definition>,
        change: Change,
    ) -> Result<CommitResult, EngineError> {
        let order = self.order((&start.agent, &start.owner), definition, change);
        let pipeline = Pipeline::start(self.log.store.clone(), start, order)?;
        self.settled(pipeline).await
    }

    /// Begins several runs in one append, all of them or none. Their rows come back in the same order.
    pub(crate) async fn commit_starts(
        &self,
        starts: Vec<(Start, Arc<Definition>, Change)>,
    ) -> Result<Vec<RunRow>, EngineError> {
        let order = |(start, definition, change): (Start, Arc<Definition>, Change)| {
            let order = self.order((&start.agent, &start.owner), definition, change);
            (start, order)
        };
        let orders: Vec<(Start, Order)> = starts.into_iter().map(order).collect();
        let (wakes, store) = (self.wakes.clone(), self.log.store.clone());
        let (committed, answer) = oneshot::channel();
        self.host.spawn(async move {
            let settled = start_jointly(&store, orders).await;
            for (row, events) in settled.iter().flat_map(|settled| settled.rows.iter().zip(&settled.events)) {
                log_events(&row.run, events);
                wakes.wake(row.run.facts.id);
            }
            wakes.wake_worker();
            let _ = committed.send(settled);
        });
        let settled = answer.await.map_err(|_| stopping())??;
        settled.outcome?;
        Ok(settled.rows)
    }

    /// Begins a run that was made of its execution state.
    pub(crate) async fn commit_restored(
        &self,
        restored: RestoredRun,
        definition: Arc<Definition>,
        change: Change,
    ) -> Result<CommitResult, EngineError> {
        let Facts { agent, owner, .. } = &restored.run.facts;
        let order = self.order((agent, owner), definition, change);
        let pipeline = Pipeline::restore(self.log.store.clone(), restored, order)?;
        self.settled(pipeline).await
    }

    /// The order of a change to a run that exists.
    pub(crate) async fn order_for(&self, base: &RunRow, change: Change) -> Result<Order, EngineError> {
        let Facts { agent, owner, .. } = &base.run.facts;
        let definition = self.log.definition(agent, base.run.state.definition).await?;
        Ok(self.order((agent, owner), definition, change))
    }

    /// The order of a change to a run of this agent and owner.
    pub(crate) fn order(
        &self,
        (agent, owner): (&AgentName, &UserId),
        definition: Arc<Definition>,
        change: Change,
    ) -> Order {
        let Change { actor, authority, commands, mut writes } = change;
        let settings = self.host.settings();
        writes.audience = audience_of(owner, &self.host.approvers(agent));
        writes.notices.extend(self.remote_cancel(agent));
        writes.notices.extend(self.file_copies(agent));
        let given = OrderContext {
            now: self.host.clock.now(),
            entropy: self.host.clock.entropy(),
            actor,
            limits: settings.limits_of(&definition.agent).clone(),
            definition,
            verdicts: authority.verdicts,
            authority: authority.role,
            counts_for: authority.counts_for,
            recorded: authority.recorded,
            origin: request_context::origin(),
        };
        Order { commands, given, writes }
    }

    /// The notice of calls that are given up, where an agent has tools that began something outside.
    fn remote_cancel(&self, agent: &AgentName) -> Option<NoticeRule> {
        let settings = self.host.settings();
        let has_some = settings.agents.get(agent)?.tools.values().any(|tool| tool.finds_out());
        has_some.then(|| NoticeRule {
            trigger: NoticeTrigger::HoldGivenUp,
            recipient: Recipient::RemoteTasks,
            owner: String::new(),
        })
    }

    /// The notice of every change, where readable copies of an agent's runs are kept: as durable as the change.
    fn file_copies(&self, agent: &AgentName) -> Option<NoticeRule> {
        let is_copied = self.host.fixed.mirrors.values().any(|agents| agents.contains(agent));
        is_copied.then(|| NoticeRule {
            trigger: NoticeTrigger::RunChanged,
            recipient: Recipient::FileCopies,
            owner: String::new(),
        })
    }

    /// Commits a command of this node, which has the run from then on for as long as there is something to do.
    pub(crate) async fn commit_as_node(
        &self,
        base: RunRow,
        command: Command,
    ) -> Result<CommitResult, EngineError> {
        let writes = Writes { lease: self.while_busy(), ..Writes::default() };
        let change = Change { writes, ..Change::new(Actor::Node(self.host.node), vec![command]) };
        self.commit(base, change).await
    }

    /// Commits what nobody asked for but time.
    pub(crate) async fn commit_by_clock(&self, run: RunId, command: Command) -> Result<Answer, EngineError> {
        let base = self.log.load(run).await?.row;
        Ok(self.commit(base, Change::new(Actor::Clock, vec![command])).await?.answer)
    }

    /// Quarantines a run whose rows or log cannot be read. Everything else goes on.
    pub(crate) async fn quarantine(&self, run: RunId, why: &str) {
        tracing::error!(%run, why, "commit: quarantined: failed to load execution state");
        if let Err(error) = self.log.store.quarantine(run, why.to_owned()).await {
            tracing::warn!(%run, %error, "commit: could not quarantine the run; will retry when it is next due");
        }
        self.wakes.wake(run);
    }

    /// A lease that lasts as long as there is something to do.
    pub(crate) fn while_busy(&self) -> LeaseRule {
        let now = self.host.clock.now();
        LeaseRule::WhileBusy { node: self.host.node, now, until: now.plus(self.host.fixed.lease) }
    }

    /// Settles in the background: the caller may hang up, and whoever drives or follows the run is notified all the same.
    async fn settled(&self, mut pipeline: Pipeline) -> Result<CommitResult, EngineError> {
        let (committed, answer) = oneshot::channel();
        let (wakes, host, log) = (self.wakes.clone(), self.host.clone(), self.log.clone());
        self.host.spawn(async move {
            let waiting = host.fixed.telemetry.write();
            let mut settlement = pipeline.settle().await;
            drop(waiting);
            let row = pipeline.durable().cloned();
            if let Some(row) = &row {
                wakes.wake(row.run.facts.id);
                if row.run.facts.inbox.is_some() {
                    wakes.wake_inboxes();
                }
                settlement.done.iter().for_each(|settled| log_events(&row.run, &settled.events));
            }
            wakes.wake_worker();
            let decided = settlement.done.iter().filter(|settled| !settled.decided.is_empty()).cloned();
            let traced: Option<Vec<_>> = host.fixed.traces.as_ref().map(|_| decided.collect());
            let outcome = match (settlement.failed, settlement.done.pop(), row) {
                (Some(error), _, _) => Err(error.into()),
                (None, Some(settled), Some(row)) => {
                    settled.outcome.map(|answer| CommitResult { answer, row }).map_err(EngineError::from)
                }
                (None, _, _) => Err(EngineError::NotFound),
            };
            let _ = committed.send(outcome);
            for settled in traced.into_iter().flatten() {
                trace_decided(&log, &settled.decided, &settled.events).await;
            }
        });
        answer.await.map_err(|_| stopping())?
    }
}

/// Nobody knows what became of an append whose task is gone.
pub(crate) fn stopping() -> StoreError {
    StoreError::Unknown { why: "the server is stopping".into() }
}

/// Whether an append that was to take a run, or to give it back, found that another node works on it: the first guard
/// of such an append.
pub(crate) fn is_leased_elsewhere(error: &StoreError) -> bool {
    matches!(error, StoreError::Guard { which: 0, .. })
}

/// Who may see and decide the holds of a run: its owner and those named.
fn audience_of(owner: &UserId, approvers: &Approvers) -> HoldAudience {
    let named = approvers.named.iter().flatten().filter_map(Party::of).map(|party| audience_member(&party));
    HoldAudience { owner: Some(owner.clone()), named: named.collect() }
}
