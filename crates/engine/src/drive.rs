//! Following one run until it waits or ends.
//!
//! `think.rs` asks the model, `act.rs` starts calls and reports what they did, `sub_runs.rs` looks after sub-runs,
//! `appends.rs` writes, `lease.rs` keeps the lease, `known_log.rs` is what it knows while some of that is on its way, `guard.rs` has the right to drive, `pool.rs` says how many runs of an agent are
//! worked on at once, `mishaps.rs` is what becomes of a run when driving it fails, `spans.rs` its spans. A run is driven once at a time in a process, whoever asks for it; between processes the sequence
//! tells who was first. What was handed over is kept until it is durable: a result is never asked for again, nor is a
//! reply that was asked with what is stored. A lease always has somebody who works under it, or is about to give it back.

pub(crate) mod account;
mod act;
mod appends;
mod budgets;
mod denials;
pub(crate) mod effects;
pub(crate) mod grants;
mod guard;
mod history;
mod hold_life;
mod known_log;
mod lease;
mod login;
mod mishaps;
mod missing_pins;
mod pool;
mod preconditions;
mod read_only_call;
mod reconcile;
mod spans;
mod sub_runs;
mod think;
mod work_time;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use standfast_core::command::{Command, Start};
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::{Envelope, OrphanCause};
use standfast_core::id::{RunId, Seq};
use standfast_core::name::AgentName;
use standfast_core::next::{NextStep, next};
use standfast_core::policy::Verdicts;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::reconcile::Reconciliation;
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallAttempt, Facts};
use standfast_core::time::{Millis, Timestamp};
use standfast_core::transcript::Entry;
use standfast_store::StoreError;
use standfast_store::pipeline::{NoticeRule, Pipeline, has_relatives};
use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};
use tracing::Instrument as _;

use super::EngineError;
use super::commit::{Change, Commit, stopping};
use super::host::Host;
use super::log::Log;
use super::receivers::Callbacks;
use super::wakes::{Deltas, RestSlot, RestTicket, RunListener, Wakes, rest_slot};
use crate::tool::Outcome;
use guard::DrivenRun;
use missing_pins::MissingPin;
use spans::DriveSpan;
use work_time::WorkedTime;

pub(crate) use guard::DriveGuard;
pub(crate) use pool::{Crowd, Pool, Queue, Slot};

/// The result of the first thing that a drive wrote, sent once it is durable.
type AcceptanceSender = oneshot::Sender<Result<Answer, EngineError>>;

/// A run that this node takes: a slot of its agent, the right to drive it, and its log as far as it was read.
pub(crate) struct TakenRun {
    pub(crate) slot: Slot,
    pub(crate) guard: DriveGuard,
    pub(crate) log: Arc<Vec<Envelope>>,
}

/// The result of somebody's request: it is durable, and its run goes on.
#[derive(Debug)]
pub struct Acceptance {
    /// What was decided.
    pub answer: Answer,
    /// What the run will come to; none when somebody else drives it.
    pub rest: Option<RestTicket>,
}

impl From<Answer> for Acceptance {
    fn from(answer: Answer) -> Acceptance {
        Acceptance { answer, rest: None }
    }
}

/// Somebody's request, whose append a drive begins with.
struct Request {
    /// Who waits to hear what became of it.
    accepted: AcceptanceSender,
    /// Where they find the run as it came to rest.
    rest: RestSlot,
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
    ) -> Result<Acceptance, EngineError> {
        let order = self.commit.order_for(&base, change).await?;
        let mut pipeline = Pipeline::of(self.log.store.clone(), base);
        pipeline.push(order);
        self.accepted(pipeline, taken, Rivals::Possible).await
    }

    /// What a new run is worked on with here, if there is room.
    pub(crate) fn room_for(self: &Arc<Drives>, run: RunId, agent: &AgentName) -> Option<TakenRun> {
        let slot = self.pool.slot(agent, Queue::Other)?;
        Some(TakenRun { guard: self.guard(run)?, slot, log: Arc::default() })
    }

    /// Makes the start of a run durable, and drives it on from there where there is room; any node takes it where there is none.
    /// Says what never changes of it, and what it will come to.
    pub(crate) async fn start(
        self: &Arc<Drives>,
        (start, definition): (Start, Arc<Definition>),
        mut change: Change,
        room: Option<TakenRun>,
        rivals: Rivals,
    ) -> Result<(Option<Facts>, Option<RestTicket>), EngineError> {
        let Some(taken) = room else {
            let done = self.commit.commit_start(start, definition, change).await?;
            return Ok((Some(done.row.run.facts.clone()), None));
        };
        change.writes.lease = self.commit.while_busy();
        let order = self.commit.order((&start.agent, &start.owner), definition, change);
        let pipeline = Pipeline::start(self.log.store.clone(), start, order)?;
        let facts = pipeline.tip().map(|run| run.facts.clone());
        let accepted = self.accepted(pipeline, taken, rivals).await?;
        Ok((facts, accepted.rest))
    }

    async fn accepted(
        self: &Arc<Drives>,
        pipeline: Pipeline,
        taken: TakenRun,
        rivals: Rivals,
    ) -> Result<Acceptance, EngineError> {
        let (accepted, answer) = oneshot::channel();
        let (rest, ticket) = rest_slot(self.wakes.listen(taken.guard.run));
        self.drive_on(pipeline, taken, Some(Request { accepted, rest, rivals }));
        let answer = answer.await.map_err(|_| stopping())??;
        Ok(Acceptance { answer, rest: Some(ticket) })
    }

    /// Drives a run in the background.
    pub(crate) fn drive(&self, row: RunRow, taken: TakenRun) {
        self.drive_on(Pipeline::of(self.log.store.clone(), row), taken, None);
    }

    fn drive_on(&self, pipeline: Pipeline, taken: TakenRun, request: Option<Request>) {
        let TakenRun { slot, guard, log } = taken;
        let (drives, run) = (guard.drives.clone(), guard.run);
        let now = drives.host.clock.now();
        let (accepted, rest, rivals) = match request {
            Some(Request { accepted, rest, rivals }) => (Some(accepted), Some(rest), rivals),
            None => (None, None, Rivals::None),
        };
        let since = pipeline.durable().map_or(Seq(0), |row| row.run.state.seq);
        let drive = Drive {
            run,
            traced: DriveSpan::begin(drives.host.fixed.traces.as_ref(), since),
            worked: WorkedTime::before(&drives, &pipeline, &log),
            pipeline,
            log,
            rest,
            decided: Vec::new(),
            is_rest_left: false,
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
            earlier: None,
            tools: JoinSet::new(),
            begun: BTreeSet::new(),
            at_work: HashMap::new(),
            woken: drives.wakes.listen(run),
            drives,
            guard,
            _slot: slot,
        };
        let drives = drive.drives.clone();
        // It is large, and everything around it would have room for it once more.
        let driving = Box::pin(drive.until_it_waits());
        let driven = async move {
            if let Err(panic) = AssertUnwindSafe(driving).catch_unwind().await {
                drives.after_panic(run, panic).await;
            }
        };
        // Of the highest level, so that it is there whatever lines the operator wants to see. Models and tools log in it.
        self.host.spawn(driven.instrument(tracing::error_span!("drive", %run)));
    }

    /// How often whoever drives a run says that it is still there.
    fn renewal(&self) -> Millis {
        Millis(self.host.fixed.lease.0 / 3)
    }
}

struct Drive {
    pub(super) drives: Arc<Drives>,
    run: RunId,
    pub(super) pipeline: Pipeline,
    /// The run's events, as far as they are durable.
    pub(super) log: Arc<Vec<Envelope>>,
    /// Its span, where traces are on.
    traced: Option<DriveSpan>,
    /// Where whoever began this drive finds what the run came to.
    rest: Option<RestSlot>,
    /// The holds that were decided since it began, for them.
    decided: Vec<HoldRow>,
    /// Whether the run at rest was left for them, and nothing was written since.
    is_rest_left: bool,
    /// How long the run has worked.
    worked: WorkedTime,
    /// Who waits to hear that what they wished is durable.
    accepted: Option<AcceptanceSender>,
    /// Whether what they wished may lose to somebody else's wish, so that nobody outside sees it before it is durable.
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
    /// Whether a question to people was opened and not logged yet.
    asks_people: bool,
    /// The receivers of runs above that hear what this one asks.
    pub(super) above: Vec<NoticeRule>,
    /// The definition that the run is pinned to, kept so that nothing in hand is lost to a failing read.
    definition: Option<(Digest, Arc<Definition>)>,
    /// What came before the run in its conversation, once it was read.
    earlier: Option<Vec<Entry>>,
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
    /// Nobody knows what an earlier start of it did, and what was said of that.
    Reconciled {
        /// Why nobody knows.
        why: OrphanCause,
        /// What was said.
        said: Box<Reconciliation>,
    },
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
                // Nothing was written, and whoever wished it has got the error: it must not happen later.
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
        spans::end_span(&self);
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
            NextStep::Tick => {
                let verdicts = hold_life::of_tick(self, &run);
                self.push(Command::Tick, verdicts).await?
            }
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

    /// S0-33: a pause is not a failure, and is logged as what it is.
    fn tell_of_pause(&mut self) {
        let Some(run) = self.pipeline.tip().filter(|run| run.is_held()) else { return };
        if !std::mem::take(&mut self.asks_people) {
            return;
        }
        match run.state.last_decider {
            None => tracing::info!(run = %self.run, "drive: run {} paused for user input", self.run),
            Some(_) => tracing::info!(run = %self.run, "drive: run {} paused again for user input", self.run),
        }
    }

    /// What the run is pinned to and cannot go on without is missing: a person is asked.
    async fn ask_about(&mut self, missing: &MissingPin) -> Result<(), EngineError> {
        tracing::warn!(run = %self.run, ?missing, "drive: pinned agent, model or tool is missing; asking a person");
        self.push(missing.question(), Verdicts::default()).await?;
        self.settle().await
    }
}
