//! Following one run until it waits or ends.
//!
//! `think.rs` asks the model, `act.rs` starts calls and reports what they did, `sub_runs.rs` looks after sub-runs,
//! `guard.rs` has the lease, `pool.rs` says how many runs of an agent are worked on at once, `mishaps.rs` is what becomes of
//! a run when driving it fails. A run is driven once at a time in a process, whoever asks for it; between processes the sequence
//! tells who was first. What was handed over is kept until it is durable: a result is never asked for again, nor is a
//! reply that was asked with what is stored. A lease always has somebody who works under it, or is about to give it back.

pub(crate) mod account;
mod act;
mod denied;
mod guard;
mod login;
mod mishaps;
mod missing_pins;
mod pool;
mod sub_runs;
mod think;
mod work_time;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use standfast_core::actor::Actor;
use standfast_core::command::{Command, Start};
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{Incarnation, RunId, Seq};
use standfast_core::next::{NextStep, next};
use standfast_core::policy::{Role, Verdicts};
use standfast_core::project::RunRow;
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallAttempt, Facts, Run, Status, status};
use standfast_core::time::{Millis, Timestamp};
use standfast_store::StoreError;
use standfast_store::pipeline::{
    LeaseRule, NoticeRule, Pipeline, Writes, asks_people, has_relatives, keeps_lease,
};
use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};

use super::EngineError;
use super::commit::{Authority, Change, Commit, is_leased_elsewhere, stopping};
use super::host::Host;
use super::log::Log;
use super::receivers::Callbacks;
use super::wakes::{Continuation, Deltas, RunListener, Wakes};
use crate::tool::Outcome;
use guard::DrivenRun;
use missing_pins::MissingPin;
use work_time::WorkedTime;

pub(crate) use guard::DriveGuard;
pub(crate) use pool::{Crowd, Pool, Queue, Slot};

/// How often a run waits for a store that is away before it is left to whoever finds it later.
const STORE_TRIES: u32 = 120;

/// The result of the first thing that a drive wrote, sent once it is durable.
type AcceptanceSender = oneshot::Sender<Result<Answer, EngineError>>;

/// A run that this node takes: a slot of its agent, the right to drive it, and its log as far as it was read.
pub(crate) struct TakenRun {
    pub(crate) slot: Slot,
    pub(crate) guard: DriveGuard,
    pub(crate) log: Vec<Envelope>,
}

/// Somebody's request, whose append a drive begins with.
struct Request {
    /// Who waits to hear what became of it.
    accepted: AcceptanceSender,
    rivals: Rivals,
}

/// Whether somebody else's request may count in the place of the one that a drive begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rivals {
    /// It is a decision, or a start that a guard can refuse.
    Possible,
    /// Nobody else can ask for it.
    None,
}

/// Follows runs until they wait or end.
pub(crate) struct Drives {
    pub(crate) host: Arc<Host>,
    pub(crate) log: Arc<Log>,
    pub(crate) wakes: Arc<Wakes>,
    deltas: Arc<Deltas>,
    pub(crate) commit: Arc<Commit>,
    callbacks: Arc<Callbacks>,
    pub(crate) pool: Arc<Pool>,
    /// The runs that are driven here.
    driven: Mutex<HashMap<RunId, DrivenRun>>,
}

impl Drives {
    pub(crate) fn new(commit: Arc<Commit>, deltas: Arc<Deltas>, callbacks: Arc<Callbacks>) -> Drives {
        let (host, log, wakes) = (commit.host.clone(), commit.log.clone(), commit.wakes.clone());
        let pool = Arc::new(Pool::new(host.clone(), wakes.clone()));
        let driven = Mutex::default();
        Drives { host, log, wakes, deltas, commit, callbacks, pool, driven }
    }

    /// Appends to a run and drives it on from there. Comes back when the append is durable: whoever asked for it may go
    /// away, what they began goes on.
    pub(crate) async fn take(
        self: &Arc<Drives>,
        base: RunRow,
        change: Change,
        taken: TakenRun,
    ) -> Result<Answer, EngineError> {
        let order = self.commit.order_for(&base, change).await?;
        let mut pipeline = Pipeline::of(self.log.store.clone(), base);
        pipeline.push(order);
        self.accepted(pipeline, taken, Rivals::Possible).await
    }

    /// Begins a run and drives it on from there. Says what never changes of it.
    pub(crate) async fn take_start(
        self: &Arc<Drives>,
        (start, definition): (Start, Arc<Definition>),
        change: Change,
        taken: TakenRun,
        rivals: Rivals,
    ) -> Result<Option<Facts>, EngineError> {
        let order = self.commit.order((&start.agent, &start.owner), definition, change);
        let pipeline = Pipeline::start(self.log.store.clone(), start, order)?;
        let facts = pipeline.tip().map(|run| run.facts.clone());
        self.accepted(pipeline, taken, rivals).await?;
        Ok(facts)
    }

    async fn accepted(
        self: &Arc<Drives>,
        pipeline: Pipeline,
        taken: TakenRun,
        rivals: Rivals,
    ) -> Result<Answer, EngineError> {
        let (accepted, answer) = oneshot::channel();
        self.drive_on(pipeline, taken, Some(Request { accepted, rivals }));
        answer.await.map_err(|_| stopping())?
    }

    /// Drives a run in the background.
    pub(crate) fn drive(&self, row: RunRow, taken: TakenRun) {
        self.drive_on(Pipeline::of(self.log.store.clone(), row), taken, None);
    }

    fn drive_on(&self, pipeline: Pipeline, taken: TakenRun, request: Option<Request>) {
        let TakenRun { slot, guard, log } = taken;
        let (drives, run) = (guard.drives.clone(), guard.run);
        let now = drives.host.clock.now();
        let (accepted, rivals) = match request {
            Some(Request { accepted, rivals }) => (Some(accepted), rivals),
            None => (None, Rivals::None),
        };
        let drive = Drive {
            run,
            worked: WorkedTime::before(&drives, &pipeline, &log),
            pipeline,
            log,
            pushed_at: accepted.as_ref().map(|_| now),
            accepted,
            may_lose: rivals == Rivals::Possible,
            is_void: false,
            is_leased: true,
            leased_until: now,
            is_family_seen: false,
            renews_at: now.plus(drives.renewal()),
            is_lost: false,
            refused: None,
            asks_people: false,
            above: Vec::new(),
            definition: None,
            tools: JoinSet::new(),
            begun: BTreeSet::new(),
            at_work: HashMap::new(),
            woken: drives.wakes.listen(run),
            drives,
            guard,
            _slot: slot,
        };
        let drives = drive.drives.clone();
        self.host.spawn(async move {
            if let Err(panic) = AssertUnwindSafe(drive.until_it_waits()).catch_unwind().await {
                drives.after_panic(run, panic).await;
            }
        });
    }

    /// How often whoever drives a run says that it is still there.
    fn renewal(&self) -> Millis {
        Millis(self.host.settings().fixed.lease.0 / 3)
    }
}

struct Drive {
    pub(super) drives: Arc<Drives>,
    run: RunId,
    pub(super) pipeline: Pipeline,
    /// The run's events, as far as they are durable.
    pub(super) log: Vec<Envelope>,
    /// How long the run has worked.
    worked: WorkedTime,
    /// Who waits to hear that what they wished is durable.
    accepted: Option<AcceptanceSender>,
    /// Whether what they wished may lose to somebody else's wish, so that nobody outside hears of it before it is durable.
    may_lose: bool,
    /// Whether what they wished was not written, so that there is nothing to drive.
    is_void: bool,
    /// Whether this node has the run: the append after which there is nothing to do gives it back by itself.
    is_leased: bool,
    /// Until when no other node can have taken the run, as far as the store has confirmed it.
    leased_until: Timestamp,
    /// When the first of what is on its way was handed over.
    pushed_at: Option<Timestamp>,
    /// Whether this drive has looked after sub-runs and parent.
    is_family_seen: bool,
    /// When it next says that it is still there, however often it is woken until then.
    renews_at: Timestamp,
    /// Whether another node works on the run: this drive begins nothing more, and tells what its tools come to.
    is_lost: bool,
    /// The latest refusal among what settled last.
    refused: Option<Refusal>,
    /// Whether a question to people was opened and not told of yet.
    asks_people: bool,
    /// The receivers of runs above that hear what this one asks.
    pub(super) above: Vec<NoticeRule>,
    /// The definition that the run is pinned to, kept so that nothing in hand is lost to a failing read.
    definition: Option<(Digest, Arc<Definition>)>,
    tools: JoinSet<ToolEnd>,
    /// Starts that this drive itself has durably made and not run yet. Only these are run: any other start, also one of
    /// this very node, may have had its effect already.
    begun: BTreeSet<CallAttempt>,
    at_work: HashMap<Id, CallAttempt>,
    woken: Arc<RunListener>,
    guard: DriveGuard,
    _slot: Slot,
}

/// What became of a tool that was about to run.
enum ToolEnd {
    /// It ran.
    Ran(Outcome),
    /// It was too late for it; nothing happened.
    TooLate,
}

/// Whether there is more to do.
enum Step {
    GoOn,
    Stop,
}

impl Drive {
    async fn until_it_waits(mut self) {
        let mut step = self.begin_with_family().await;
        let ended_well = loop {
            match step {
                Ok(Step::GoOn) => {}
                Ok(Step::Stop) => break true,
                // Nothing was written, and whoever wished it has been told so: it must not happen later.
                Err(_) if self.is_void => break true,
                Err(error) if self.recovers_from(&error).await => {}
                Err(EngineError::Store(StoreError::Corrupt { why, .. })) => {
                    self.drives.commit.quarantine(self.run, &why).await;
                    return;
                }
                Err(error) => {
                    tracing::error!(run = %self.run, %error, "drive: stopped by an error; the run is tried again later");
                    break false;
                }
            }
            step = self.step().await;
        };
        self.leave(ended_well).await;
    }

    /// Gives the run back.
    async fn leave(self, ended_well: bool) {
        let has_family = self
            .pipeline
            .durable()
            .is_some_and(|row| row.run.facts.parent.is_some() || row.run.state.children > 0);
        let was_claimed = self.guard.was_claimed();
        // A claim that found the run driven, or the one that this drive began with, has used up a wake. If nobody looked, it
        // is given back with the lease.
        let is_unseen = (was_claimed || !self.is_family_seen)
            && self.pipeline.durable().is_some_and(|row| has_relatives(&row.run));
        let is_task = self.pipeline.durable().is_some_and(|row| row.run.facts.inbox.is_some());
        let Drive { drives, run, guard, tools, _slot, is_leased, .. } = self;
        drop((tools, _slot));
        let is_due = is_leased || was_claimed;
        if is_due && !ended_well {
            return drives.release_later(guard);
        }
        if is_due {
            // Before the guard is free, so that it cannot undo the next drive's lease.
            drives.release(run, is_unseen.then(|| drives.host.clock.now())).await;
        }
        drop(guard);
        if is_task {
            drives.wakes.wake_inboxes();
        }
        // Looking for due runs costs the writer's time: only when there may be one.
        if is_due || has_family {
            drives.wakes.wake_worker();
        }
    }

    /// Whoever woke the run may have done so for its sub-runs, or for its parent.
    async fn begin_with_family(&mut self) -> Result<Step, EngineError> {
        if self.accepted.is_none() {
            self.see_to_family().await?;
        }
        Ok(Step::GoOn)
    }

    async fn see_to_family(&mut self) -> Result<(), EngineError> {
        sub_runs::look_after_family(self).await?;
        self.is_family_seen = true;
        Ok(())
    }

    /// A store that is away for a while, or a run that many write to: what the model said and what tools reported is
    /// kept and written when it can be, never asked for or run again.
    async fn recovers_from(&mut self, error: &EngineError) -> bool {
        let mut error = error.clone();
        for _ in 0..STORE_TRIES {
            if let EngineError::Store(failure) = &error
                && is_leased_elsewhere(failure)
            {
                self.lose();
                self.leave_the_lease_alone();
                match self.settle().await {
                    Ok(()) => return true,
                    Err(again) => error = again,
                }
            }
            let EngineError::Store(
                StoreError::Unavailable { .. } | StoreError::Unknown { .. } | StoreError::Conflict { .. },
            ) = &error
            else {
                return false;
            };
            tracing::warn!(run = %self.run, %error, "drive: the store is not available; waiting for it");
            self.drives.host.clock.sleep(self.drives.host.settings().fixed.poll).await;
            match self.settle().await {
                Ok(()) => return true,
                Err(again) => error = again,
            }
        }
        false
    }

    async fn step(&mut self) -> Result<Step, EngineError> {
        let Some(run) = self.pipeline.tip().cloned() else { return Ok(Step::Stop) };
        if self.is_void {
            return if self.goes_on_with_claim().await? { Ok(Step::GoOn) } else { Ok(Step::Stop) };
        }
        if (self.drives.host.is_stopping() || self.is_lost) && self.at_work.is_empty() {
            return self.give_back().await;
        }
        match next(&run, self.drives.host.clock.now()) {
            // Only asking a model may come before what it is asked with is durable: `think.rs` says when.
            NextStep::Tick | NextStep::Act { .. } | NextStep::Wait(_) | NextStep::Nothing
                if self.accepted.is_some() =>
            {
                self.settle().await?;
            }
            NextStep::Tick => self.push(Command::Tick, Verdicts::default()).await?,
            // A run that only waits may do so for as long as it takes.
            NextStep::Think | NextStep::Act { .. } if work_time::is_out_of_time(self, &run) => {
                work_time::run_out_of_time(self, &run).await?
            }
            NextStep::Think => self.think(&run).await?,
            NextStep::Act { ready, started } if run.outcome().is_none() => {
                self.act(&run, ready, started).await?
            }
            NextStep::Act { started, .. } => self.stop_tools(started).await?,
            // Somebody gave up a call that is at work here; what comes of it still counts.
            NextStep::Wait(_) if !self.at_work.is_empty() => self.wait_for_news().await?,
            NextStep::Wait(_) | NextStep::Nothing => {
                self.settle().await?;
                if self.goes_on_with_claim().await? {
                    return Ok(Step::GoOn);
                }
                if self.is_family_seen {
                    self.tell_of_pause();
                    return Ok(Step::Stop);
                }
                self.see_to_family().await?;
            }
        }
        Ok(Step::GoOn)
    }

    /// The run was claimed while it was driven here: something made it due, and the lease is this node's. Then there is
    /// more to do, on what is stored now.
    async fn goes_on_with_claim(&mut self) -> Result<bool, EngineError> {
        if self.is_lost || !self.guard.was_claimed() {
            return Ok(false);
        }
        (self.is_leased, self.is_void, self.is_family_seen) = (true, false, false);
        self.leased_until = self.drives.host.clock.now();
        self.refresh().await?;
        Ok(true)
    }

    /// S0-33: a pause is no failure, and is told as what it is.
    fn tell_of_pause(&mut self) {
        let Some(run) = self.pipeline.tip().filter(|run| run.is_held()) else { return };
        if !std::mem::take(&mut self.asks_people) {
            return;
        }
        match run.state.last_decider {
            None => tracing::info!(run = %self.run, "run {} paused for user input", self.run),
            Some(_) => tracing::info!(run = %self.run, "run {} paused again for user input", self.run),
        }
    }

    /// What the run is pinned to and cannot go on without is missing: a person is asked.
    async fn ask_about(&mut self, missing: &MissingPin) -> Result<(), EngineError> {
        tracing::warn!(run = %self.run, ?missing, "drive: pinned agent, model or tool is missing; asking a person");
        self.push(missing.question(), Verdicts::default()).await?;
        self.settle().await
    }

    /// Decides a command on the tip and hands its append over.
    pub(super) async fn push(&mut self, command: Command, verdicts: Verdicts) -> Result<(), EngineError> {
        let authority = Authority { verdicts, ..Authority::default() };
        self.push_with(authority, command, Writes::default()).await
    }

    pub(super) async fn push_as(&mut self, role: Role, command: Command) -> Result<(), EngineError> {
        self.push_with(role.into(), command, Writes::default()).await
    }

    /// The same, with something written beside it.
    async fn push_with(
        &mut self,
        authority: Authority,
        command: Command,
        writes: Writes,
    ) -> Result<(), EngineError> {
        let Some(run) = self.pipeline.tip() else { return Ok(()) };
        let (agent, owner) = (run.facts.agent.clone(), run.facts.owner.clone());
        let definition = self.definition().await?;
        let drives = self.drives.clone();
        let lease = if self.is_lost { LeaseRule::UNTOUCHED } else { drives.commit.while_busy() };
        let change = Change {
            actor: Actor::Node(drives.host.node),
            authority,
            commands: vec![command],
            writes: Writes { lease, notices: self.above.clone(), ..writes },
        };
        let order = drives.commit.order((&agent, &owner), definition, change);
        self.pushed_at.get_or_insert(order.given.now);
        self.pipeline.push(order);
        Ok(())
    }

    /// The definition that the run is pinned to.
    async fn definition(&mut self) -> Result<Arc<Definition>, EngineError> {
        let Some(run) = self.pipeline.tip() else { return Err(EngineError::NotFound) };
        let (agent, pinned) = (run.facts.agent.clone(), run.state.definition);
        if let Some((_, known)) = self.definition.as_ref().filter(|(digest, _)| *digest == pinned) {
            return Ok(known.clone());
        }
        let found = self.drives.log.definition(&agent, pinned).await?;
        self.definition = Some((pinned, found.clone()));
        Ok(found)
    }

    /// Waits until everything is durable, then lets it be seen.
    async fn settle(&mut self) -> Result<(), EngineError> {
        let settlement = self.pipeline.settle().await;
        self.refused = None;
        // Whatever was written has renewed the lease; counted from the first of it.
        if settlement.failed.is_none()
            && let Some(pushed_at) = self.pushed_at.take()
            && settlement.done.iter().any(|settled| !settled.events.is_empty())
        {
            self.leased_until = pushed_at.plus(self.drives.host.settings().fixed.lease);
        }
        self.may_lose &= settlement.failed.is_some();
        for settled in settlement.done {
            if let Err(refusal) = &settled.outcome {
                tracing::debug!(run = %self.run, %refusal, "drive: a command was refused");
                self.refused = Some(refusal.clone());
            }
            if let Some(accepted) = self.accepted.take() {
                // A wish that wrote nothing gave this node no lease either. If it has one, a claim took it meanwhile.
                self.is_void = settled.outcome.is_err() && settled.events.is_empty();
                self.is_leased &= !self.is_void;
                let _ = accepted.send(settled.outcome.map_err(EngineError::from));
            }
            let node = self.drives.host.node;
            if !settled.events.is_empty() {
                let is_kept = self.pipeline.durable().is_none_or(|row| keeps_lease(&row.run));
                self.is_leased = is_kept && !self.is_lost;
            }
            self.asks_people |= settled.events.iter().any(asks_people);
            self.begun.extend(settled.events.iter().filter_map(|envelope| started_by(node, envelope)));
            self.log.extend(settled.events);
        }
        if let Some(error) = &settlement.failed
            && let Some(accepted) = self.accepted.take()
        {
            // An answer that was lost may still turn out to be a yes: then the run must be driven.
            self.is_void = !matches!(error, StoreError::Unknown { .. });
            self.is_leased &= !self.is_void;
            let _ = accepted.send(Err(error.clone().into()));
        }
        if self.is_void {
            return settlement.failed.map_or(Ok(()), |error| Err(error.into()));
        }
        self.catch_up().await?;
        let is_at_rest = |run: &Run| matches!(status(run), Status::Held(_) | Status::Ended(_));
        let rests = self.pipeline.durable().is_none_or(|row| is_at_rest(&row.run));
        self.guard.show(if rests { Continuation::Rests } else { Continuation::GoesOn });
        settlement.failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Keeps the lease, and looks at what others have appended: that makes up for a wake that was lost.
    async fn keep(&mut self) -> Result<(), EngineError> {
        self.renews_at = self.drives.host.clock.now().plus(self.drives.renewal());
        let until = self.drives.host.clock.now().plus(self.drives.host.settings().fixed.lease);
        // Losing a lease never harms state: whoever takes over is told apart by the sequence.
        let kept = self.drives.log.store.renew(vec![self.run], self.drives.host.node, until).await;
        match kept {
            Ok(kept) if kept.is_empty() && self.is_leased => self.lose(),
            Ok(kept) if !kept.is_empty() => self.leased_until = until,
            Ok(_) | Err(_) => {}
        }
        self.refresh().await
    }

    /// Until it must say that it is still there.
    fn until_renewal(&self) -> impl Future<Output = ()> + Send + use<> {
        self.drives.host.clock.sleep(self.renews_at.since(self.drives.host.clock.now()))
    }

    /// Another node has taken the run: this one was silent for too long.
    fn lose(&mut self) {
        if !self.is_lost {
            tracing::warn!(run = %self.run, "drive: lease lost to another node; recording finished tool results, then stopping");
        }
        (self.is_lost, self.is_leased) = (true, false);
    }

    /// What this drive has in hand is still written, with everything that belongs beside it and without a word about the
    /// lease, which is another node's. Only after a guard has refused it: then nothing of it was written.
    fn leave_the_lease_alone(&mut self) {
        for mut order in self.pipeline.take_back() {
            order.writes.lease = LeaseRule::UNTOUCHED;
            self.pipeline.push(order);
        }
    }

    /// Looks at what others have appended.
    async fn refresh(&mut self) -> Result<(), EngineError> {
        self.pipeline.refresh().await?;
        self.catch_up().await
    }

    /// Reads what others appended, so that the log is whole up to what is durable. What was appended since the run was last
    /// loaded is not looked at before the run is: the two must be of the same moment.
    async fn catch_up(&mut self) -> Result<(), EngineError> {
        let durable = self.durable_seq();
        let is_next =
            |(seq, envelope): &(u64, &Envelope)| envelope.seq == Seq(*seq) && envelope.seq <= durable;
        let whole = (1..).zip(&self.log).take_while(is_next).count();
        if whole == self.log.len() && Seq(whole as u64) == durable {
            return Ok(());
        }
        self.log.truncate(whole);
        let more = self.drives.log.events(self.run, Seq(whole as u64)).await?;
        self.log.extend(more.into_iter().take_while(|envelope| envelope.seq <= durable));
        Ok(())
    }

    fn durable_seq(&self) -> Seq {
        self.pipeline.durable().map_or(Seq(0), |row| row.run.state.seq)
    }

    /// The run's events with those that are still on their way. A log that was read a moment later than the run may have
    /// more than the run has heard of.
    fn events(&self) -> Vec<Envelope> {
        let durable = self.durable_seq();
        let log = self.log.iter().take_while(|envelope| envelope.seq <= durable);
        log.chain(self.pipeline.unsettled()).cloned().collect()
    }
}

fn started_by(node: Incarnation, envelope: &Envelope) -> Option<CallAttempt> {
    let Event::CallStarted(started) = &envelope.event else { return None };
    (started.node == node).then_some(CallAttempt { call: started.call, attempt: started.attempt })
}
