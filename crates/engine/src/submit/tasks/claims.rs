//! What workers elsewhere do: claim, and report on what they have claimed.
//!
//! A claim is one append at an expected sequence, so it has one winner however many ask. Every report names its claim;
//! one that ran out, or was never theirs, is refused by the core.

use standfast_core::actor::Actor;
use standfast_core::command::{ClaimRun, Command, FailKind, FailRun, Suspend, SuspendFor};
use standfast_core::decide::Answer;
use standfast_core::id::{CallNo, RunId};
use standfast_core::name::{InboxName, WorkerName};
use standfast_core::project::RunRow;
use standfast_core::refusal::Refusal;
use standfast_core::run::Run;
use standfast_store::{Claimant, RunFilter, RunQuery, StoreError};

use super::{ClaimTask, TaskQueue, TaskReport, claim_name, is_claim_of, retry};
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::commit::{Change, IdempotencyKey};
use crate::log::needs;

/// Tasks that are looked at, at once: enough unless that many others claim at the same time.
const FIRST_LOOK: usize = 32;
/// How often is looked when others were faster each time.
const LOOKS: usize = 8;

impl TaskQueue {
    /// Claims the most urgent task of an inbox that suits; none when there is none in time.
    pub async fn claim(&self, who: &Principal, claim: ClaimTask) -> Result<Option<RunId>, EngineError> {
        works_in(who, &claim.inbox)?;
        let until = self.host.clock.now().plus(claim.wait);
        loop {
            // Listens before it looks, so that nothing falls between.
            let news = self.wakes.inbox_news();
            if let Some(run) = self.claim_first(who, &claim).await? {
                return Ok(Some(run));
            }
            let left = until.since(self.host.clock.now());
            if left.0 <= 0 || self.host.is_stopping() {
                return Ok(None);
            }
            // A pause after a failure ends without anybody saying so.
            let _ = self.host.clock.timeout(left.min(self.host.fixed.poll), news).await;
        }
    }

    async fn claim_first(&self, who: &Principal, claim: &ClaimTask) -> Result<Option<RunId>, EngineError> {
        let claimant = Claimant::Worker { agent: claim.agent.clone(), kinds: claim.kinds.clone() };
        // What others claim in between is no longer listed, so looking again finds other tasks.
        for _ in 0..LOOKS {
            let query = RunQuery {
                tenant: who.tenant.clone(),
                filter: RunFilter::Claimable(claim.inbox.clone(), self.host.clock.now(), claimant.clone()),
                phases: Vec::new(),
                since: None,
                cursor: None,
                limit: FIRST_LOOK,
            };
            let found = self.log.store.list_runs(query).await?.items;
            let is_last = found.len() < FIRST_LOOK;
            for row in found.into_iter().filter(|row| claimant.suits(&row.run.facts)) {
                let run = row.run.facts.id;
                if self.try_claim(who, row, claim).await? {
                    return Ok(Some(run));
                }
            }
            if is_last {
                break;
            }
        }
        Ok(None)
    }

    /// Claims one task; false when somebody was faster.
    async fn try_claim(&self, who: &Principal, row: RunRow, claim: &ClaimTask) -> Result<bool, EngineError> {
        let number = row.run.state.claims + 1;
        let Some(worker) = claim_name(&claim.worker, number, &who.user) else { return Ok(false) };
        let command = Command::Claim(ClaimRun::Worker { worker: worker.clone(), period: claim.lease });
        match self.as_worker(who, row, worker, command, None).await {
            Ok(_) => Ok(true),
            Err(EngineError::Refused(
                Refusal::ClaimedByOther { .. }
                | Refusal::NotClaimable
                | Refusal::Ended(_)
                | Refusal::WrongDriver,
            ))
            | Err(EngineError::Store(StoreError::Conflict { .. })) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Takes down what a worker says of a task that it has claimed.
    pub async fn report(
        &self,
        who: &Principal,
        (inbox, run): (&InboxName, RunId),
        worker: WorkerName,
        report: TaskReport,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        works_in(who, inbox)?;
        let row = self.inboxes.snapshot(who, inbox, run).await?.stored().row.clone();
        if !is_claim_of(&worker, &who.user) {
            let holder = row.run.state.claim.as_ref().map(|claim| claim.worker.clone());
            return Err(Refusal::ClaimedByOther { holder }.into());
        }
        if self.commit.done_before(who, once.as_ref()).await?.is_some() {
            return Ok(Answer::Repeated);
        }
        let command = self.command(&row.run, &worker, report);
        self.as_worker(who, row, worker, command, once.as_ref()).await
    }

    pub(super) async fn as_worker(
        &self,
        who: &Principal,
        row: RunRow,
        worker: WorkerName,
        command: Command,
        once: Option<&IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        let change = Change {
            writes: self.commit.mark(who, once),
            ..Change::new(Actor::Outside(worker), vec![command])
        };
        self.commit.commit_once(who, once, row, change).await
    }

    fn command(&self, run: &Run, worker: &WorkerName, report: TaskReport) -> Command {
        let worker = worker.clone();
        match report {
            TaskReport::Complete(result) => Command::Finish { worker, result },
            TaskReport::Fail { message, detail, retryable } => {
                let kind = if retryable.unwrap_or_else(|| retry::looks_transient(&message)) {
                    let pause = retry::pause(run.attempts(), &self.host.clock.entropy());
                    FailKind::Transient { retry_at: self.host.clock.now().plus(pause) }
                } else {
                    FailKind::Final
                };
                Command::Fail(FailRun {
                    worker: Some(worker),
                    error: message,
                    detail: Some(detail),
                    kind,
                    heard: None,
                })
            }
            TaskReport::Suspend(ask) => Command::Suspend(Suspend {
                call: CallNo::RUN,
                attempt: 0,
                kind: SuspendFor::Input,
                ask: *ask,
                timeout: None,
                secret: None,
                worker: Some(worker),
            }),
            TaskReport::Start => Command::StartWork { worker },
            TaskReport::Heartbeat => Command::Heartbeat { worker },
            TaskReport::Release => Command::Release { worker },
        }
    }
}

/// A key may be for some inboxes only; the others are as good as not there.
pub(super) fn works_in(who: &Principal, inbox: &InboxName) -> Result<(), EngineError> {
    needs(who, Scope::InboxWork)?;
    if who.works_in(inbox) { Ok(()) } else { Err(EngineError::NotFound) }
}
