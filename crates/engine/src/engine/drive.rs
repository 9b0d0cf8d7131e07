//! Following one run until it waits or ends.
//!
//! `think.rs` asks the model, `act.rs` starts calls and reports what they did, `family.rs` (beside this file) looks
//! after sub-runs. A run is driven once at a time in a process, whoever asks for it; between processes the sequence
//! tells who was first. What was handed over is kept until it is durable: a result is never asked for again, nor is a
//! reply that was asked with what is stored. A lease always has somebody who works under it, or is about to give it back.

mod act;
mod denied;
mod login;
mod think;
mod work_time;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use futures_util::FutureExt;
use standfast_core::actor::Actor;
use standfast_core::command::Command;
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::id::{Incarnation, RunId, Seq};
use standfast_core::next::{Next, next};
use standfast_core::policy::{Role, Verdicts};
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallAttempt, Run, Status, status};
use standfast_core::time::{Millis, Timestamp};
use standfast_store::StoreError;
use standfast_store::ahead::Driver;
use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};

use super::follow::{Ear, Goes};
use super::gone::Missing;
use super::orders::{Lease, More, beside, is_leased_elsewhere};
use super::{EngineError, Place, Shared, above};
use crate::tool::Outcome;
use work_time::Worked;

/// How often a run waits for a store that is away before it is left to whoever finds it later.
const STORE_TRIES: u32 = 120;

/// What the first thing that a drive wrote came to, told once it is durable.
pub(super) type Accepted = oneshot::Sender<Result<Answer, EngineError>>;

/// Somebody's wish, whose append a drive begins with.
pub(super) struct Wish {
    /// Who waits to hear what became of it.
    pub(super) accepted: Accepted,
    /// Whether somebody else's wish may count in its place: a decision, or a start that a guard can refuse.
    pub(super) may_lose: bool,
}

/// The right to drive a run in this process, given back when it is dropped. Two drives of one run would each take the
/// other's tools for lost.
pub(super) struct Reins {
    shared: Arc<Shared>,
    run: RunId,
}

impl Reins {
    /// Whether the run was claimed once more since this was last asked. The lease of such a claim is this node's, and
    /// whoever asks has it from now on.
    fn was_claimed(&self) -> bool {
        let mut driven = self.shared.driven();
        driven.get_mut(&self.run).is_some_and(|driven| std::mem::take(&mut driven.is_claimed))
    }

    /// Lets the run be seen, and tells whether it goes on.
    fn show(&self, goes: Goes) {
        if let Some(driven) = self.shared.driven().get_mut(&self.run) {
            driven.goes = goes;
        }
        self.shared.wakes.wake_as(self.run, goes);
    }
}

impl Drop for Reins {
    fn drop(&mut self) {
        let Some(driven) = self.shared.driven().remove(&self.run) else { return };
        // It was going on when it was last seen, and nobody here will tell when it rests.
        if driven.goes == Goes::On {
            self.shared.wakes.wake(self.run);
        }
        if driven.is_claimed {
            self.shared.return_claim(self.run);
        }
    }
}

/// A run that is driven here.
#[derive(Debug)]
pub(super) struct Driven {
    /// Whether it was claimed once more meanwhile.
    is_claimed: bool,
    /// Whether it goes on, as far as is durable.
    goes: Goes,
}

impl Shared {
    /// The right to drive a run, unless it is driven here already. Taken before the run is loaded, so that what was
    /// loaded is what is driven.
    pub(super) fn reins(self: &Arc<Shared>, run: RunId) -> Option<Reins> {
        match self.driven().entry(run) {
            Entry::Occupied(_) => None,
            Entry::Vacant(free) => {
                free.insert(Driven { is_claimed: false, goes: Goes::On });
                Some(Reins { shared: self.clone(), run })
            }
        }
    }

    /// The right to drive a run that was claimed. Whoever has it already is told of the claim: that may have been for a
    /// wake, which is used up now.
    pub(super) fn reins_of_claimed(self: &Arc<Shared>, run: RunId) -> Option<Reins> {
        let reins = self.reins(run);
        if reins.is_none()
            && let Some(driven) = self.driven().get_mut(&run)
        {
            driven.is_claimed = true;
        }
        reins
    }

    /// Gives back the lease of a claim that found its run driven here, by somebody who has left it since without a look:
    /// a lease always has somebody who works under it.
    fn return_claim(self: &Arc<Shared>, run: RunId) {
        if self.is_dead.load(Ordering::SeqCst) {
            return;
        }
        let shared = self.clone();
        self.spawn(async move {
            // Whoever drives it by now has the claim.
            let Some(reins) = shared.reins_of_claimed(run) else { return };
            shared.release(run, Some(shared.clock.now())).await;
            drop(reins);
            shared.wakes.wake_worker();
        });
    }

    /// Gives a lease of this node back after a while: trying again at once would fail at once.
    pub(super) fn release_later(self: &Arc<Shared>, reins: Reins) {
        let shared = self.clone();
        self.spawn(async move {
            shared.sleep_unless_stopping(shared.settings().fixed.lease).await;
            shared.release(reins.run, Some(shared.clock.now())).await;
            drop(reins);
            shared.wakes.wake_worker();
        });
    }

    /// Gives a lease of this node back. If the store is away, it runs out.
    pub(super) async fn release(&self, run: RunId, wake_at: Option<Timestamp>) {
        if let Err(error) = self.store.release(run, self.node, wake_at).await {
            tracing::warn!(%run, %error, "engine: could not release a lease; it expires by itself");
        }
    }

    /// Whether a run is driven here and known to go on.
    pub(super) fn goes_on(&self, run: RunId) -> bool {
        self.driven().get(&run).is_some_and(|driven| driven.goes == Goes::On)
    }

    fn driven(&self) -> MutexGuard<'_, HashMap<RunId, Driven>> {
        self.driven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives a run in the background. Into a run with somebody's fresh wish that one is told, also in the background:
    /// whoever wished may go away, what they began goes on.
    pub(super) fn drive(
        &self,
        driver: Driver,
        log: Vec<Envelope>,
        (place, reins): (Place, Reins),
        wish: Option<Wish>,
    ) {
        let (shared, run) = (reins.shared.clone(), reins.run);
        let now = shared.clock.now();
        let (accepted, may_lose) = match wish {
            Some(Wish { accepted, may_lose }) => (Some(accepted), may_lose),
            None => (None, false),
        };
        let drive = Drive {
            run,
            worked: Worked::before(&shared, &driver, &log),
            driver,
            log,
            pushed_at: accepted.as_ref().map(|_| now),
            accepted,
            may_lose,
            is_void: false,
            is_leased: true,
            leased_until: now,
            is_family_seen: false,
            renews_at: now.plus(shared.renewal()),
            is_lost: false,
            refused: None,
            asks_people: false,
            above: Vec::new(),
            definition: None,
            tools: JoinSet::new(),
            begun: BTreeSet::new(),
            at_work: HashMap::new(),
            woken: shared.wakes.listen(run),
            shared,
            reins,
            _place: place,
        };
        let shared = drive.shared.clone();
        self.spawn(async move {
            if let Err(panic) = AssertUnwindSafe(drive.until_it_waits()).catch_unwind().await {
                shared.after_panic(run, panic).await;
            }
        });
    }

    /// How often whoever drives a run says that it is still there.
    fn renewal(&self) -> Millis {
        Millis(self.settings().fixed.lease.0 / 3)
    }
}

pub(super) struct Drive {
    pub(super) shared: Arc<Shared>,
    run: RunId,
    pub(super) driver: Driver,
    /// The run's events, as far as they are durable.
    pub(super) log: Vec<Envelope>,
    /// How long the run has worked.
    worked: Worked,
    /// Who waits to hear that what they wished is durable.
    accepted: Option<Accepted>,
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
    pub(super) above: Vec<super::above::ReceiverAbove>,
    /// The definition that the run is pinned to, kept so that nothing in hand is lost to a failing read.
    definition: Option<(Digest, Arc<Definition>)>,
    tools: JoinSet<Ended>,
    /// Starts that this drive itself has durably made and not run yet. Only these are run: any other start, also one of
    /// this very node, may have had its effect already.
    begun: BTreeSet<CallAttempt>,
    at_work: HashMap<Id, CallAttempt>,
    woken: Arc<Ear>,
    reins: Reins,
    _place: Place,
}

/// What became of a tool that was about to run.
enum Ended {
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
                    self.shared.put_aside(self.run, &why).await;
                    return;
                }
                Err(error) => {
                    tracing::error!(run = %self.run, %error, "left for another try");
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
            .driver
            .durable()
            .is_some_and(|row| row.run.facts.parent.is_some() || row.run.state.children > 0);
        let was_claimed = self.reins.was_claimed();
        // A claim that found the run driven, or the one that this drive began with, has used up a wake. If nobody looked, it
        // is given back with the lease.
        let is_unseen = (was_claimed || !self.is_family_seen)
            && self.driver.durable().is_some_and(|row| has_relatives(&row.run));
        let is_task = self.driver.durable().is_some_and(|row| row.run.facts.inbox.is_some());
        let Drive { shared, run, reins, tools, _place, is_leased, .. } = self;
        drop((tools, _place));
        let is_due = is_leased || was_claimed;
        match is_due {
            true if !ended_well => return shared.release_later(reins),
            // Before the reins are free, so that it cannot undo the next drive's lease.
            true => shared.release(run, is_unseen.then(|| shared.clock.now())).await,
            false => {}
        }
        drop(reins);
        if is_task {
            shared.wakes.wake_inboxes();
        }
        // Looking for due runs costs the writer's time: only when there may be one.
        if is_due || has_family {
            shared.wakes.wake_worker();
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
        self.look_after_family().await?;
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
            tracing::warn!(run = %self.run, %error, "waiting for the store");
            self.shared.clock.sleep(self.shared.settings().fixed.poll).await;
            match self.settle().await {
                Ok(()) => return true,
                Err(again) => error = again,
            }
        }
        false
    }

    async fn step(&mut self) -> Result<Step, EngineError> {
        let Some(run) = self.driver.tip().cloned() else { return Ok(Step::Stop) };
        if self.is_void {
            return match self.goes_on_with_claim().await? {
                true => Ok(Step::GoOn),
                false => Ok(Step::Stop),
            };
        }
        if (self.shared.is_stopping() || self.is_lost) && self.at_work.is_empty() {
            return self.give_back().await;
        }
        match next(&run, self.shared.clock.now()) {
            // Only asking a model may come before what it is asked with is durable: `think.rs` says when.
            Next::Tick | Next::Act { .. } | Next::Wait(_) | Next::Nothing if self.accepted.is_some() => {
                self.settle().await?;
            }
            Next::Tick => self.push(Command::Tick, Verdicts::default()).await?,
            // A run that only waits may do so for as long as it takes.
            Next::Think | Next::Act { .. } if self.is_out_of_time(&run) => self.run_out_of_time(&run).await?,
            Next::Think => self.think(&run).await?,
            Next::Act { ready, started } if run.outcome().is_none() => self.act(&run, ready, started).await?,
            Next::Act { started, .. } => self.stop_tools(started).await?,
            // Somebody gave up a call that is at work here; what comes of it still counts.
            Next::Wait(_) if !self.at_work.is_empty() => self.wait_for_news().await?,
            Next::Wait(_) | Next::Nothing => {
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
        if self.is_lost || !self.reins.was_claimed() {
            return Ok(false);
        }
        (self.is_leased, self.is_void, self.is_family_seen) = (true, false, false);
        self.leased_until = self.shared.clock.now();
        self.refresh().await?;
        Ok(true)
    }

    /// S0-33: a pause is no failure, and is told as what it is.
    fn tell_of_pause(&mut self) {
        let Some(run) = self.driver.tip().filter(|run| run.is_held()) else { return };
        if !std::mem::take(&mut self.asks_people) {
            return;
        }
        match run.state.last_decider {
            None => tracing::info!(run = %self.run, "run {} paused for user input", self.run),
            Some(_) => tracing::info!(run = %self.run, "run {} paused again for user input", self.run),
        }
    }

    /// What the run is pinned to and cannot go on without is missing: a person is asked.
    async fn ask_about(&mut self, missing: &Missing) -> Result<(), EngineError> {
        tracing::warn!(run = %self.run, ?missing, "waits for a person: something that it is pinned to is gone");
        self.push(missing.question(), Verdicts::default()).await?;
        self.settle().await
    }

    /// Decides a command on the tip and hands its append over.
    pub(super) async fn push(&mut self, command: Command, verdicts: Verdicts) -> Result<(), EngineError> {
        self.push_as(None, command, verdicts).await
    }

    pub(super) async fn push_as(
        &mut self,
        authority: Option<Role>,
        command: Command,
        verdicts: Verdicts,
    ) -> Result<(), EngineError> {
        self.push_with(authority, command, verdicts, More::default()).await
    }

    /// The same, with something written beside it.
    async fn push_with(
        &mut self,
        authority: Option<Role>,
        command: Command,
        verdicts: Verdicts,
        more: More,
    ) -> Result<(), EngineError> {
        let Some(run) = self.driver.tip() else { return Ok(()) };
        let agent = run.facts.agent.clone();
        let definition = self.definition().await?;
        let shared = self.shared.clone();
        let actor = Actor::Node(shared.node);
        let lease = if self.is_lost { Lease::Untouched } else { shared.while_busy() };
        let beside = beside(lease, &shared.approvers(&agent), more);
        let beside = above::telling(&self.above, asks_people, beside);
        let mut order = shared.order(vec![command], actor, definition, verdicts, beside);
        order.given.authority = authority;
        self.pushed_at.get_or_insert(order.given.now);
        self.driver.push(order);
        Ok(())
    }

    /// The definition that the run is pinned to.
    async fn definition(&mut self) -> Result<Arc<Definition>, EngineError> {
        let Some(run) = self.driver.tip() else { return Err(EngineError::NotFound) };
        let (agent, pinned) = (run.facts.agent.clone(), run.state.definition);
        if let Some((_, known)) = self.definition.as_ref().filter(|(digest, _)| *digest == pinned) {
            return Ok(known.clone());
        }
        let found = self.shared.definition(&agent, pinned).await?;
        self.definition = Some((pinned, found.clone()));
        Ok(found)
    }

    /// Waits until everything is durable, then lets it be seen.
    async fn settle(&mut self) -> Result<(), EngineError> {
        let settlement = self.driver.settle().await;
        self.refused = None;
        // Whatever was written has renewed the lease; counted from the first of it.
        if settlement.failed.is_none()
            && let Some(pushed_at) = self.pushed_at.take()
            && settlement.done.iter().any(|settled| !settled.events.is_empty())
        {
            self.leased_until = pushed_at.plus(self.shared.settings().fixed.lease);
        }
        self.may_lose &= settlement.failed.is_some();
        for settled in settlement.done {
            if let Err(refusal) = &settled.outcome {
                tracing::debug!(run = %self.run, %refusal, "refused");
                self.refused = Some(refusal.clone());
            }
            if let Some(accepted) = self.accepted.take() {
                // A wish that wrote nothing gave this node no lease either. If it has one, a claim took it meanwhile.
                self.is_void = settled.outcome.is_err() && settled.events.is_empty();
                self.is_leased &= !self.is_void;
                let _ = accepted.send(settled.outcome.map_err(EngineError::from));
            }
            let node = self.shared.node;
            if !settled.events.is_empty() {
                let is_kept = self.driver.durable().is_none_or(|row| is_kept(&row.run));
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
        let goes = match self.driver.durable().is_none_or(|row| is_at_rest(&row.run)) {
            true => Goes::ToRest,
            false => Goes::On,
        };
        self.reins.show(goes);
        settlement.failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Keeps the lease, and looks at what others have appended: that makes up for a wake that was lost.
    async fn keep(&mut self) -> Result<(), EngineError> {
        self.renews_at = self.shared.clock.now().plus(self.shared.renewal());
        let until = self.shared.clock.now().plus(self.shared.settings().fixed.lease);
        // Losing a lease never harms state: whoever takes over is told apart by the sequence.
        let kept = self.shared.store.renew(vec![self.run], self.shared.node, until).await;
        match kept {
            Ok(kept) if kept.is_empty() && self.is_leased => self.lose(),
            Ok(kept) if !kept.is_empty() => self.leased_until = until,
            Ok(_) | Err(_) => {}
        }
        self.refresh().await
    }

    /// Until it must say that it is still there.
    fn until_renewal(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shared.clock.sleep(self.renews_at.since(self.shared.clock.now()))
    }

    /// Another node has taken the run: this one was silent for too long.
    fn lose(&mut self) {
        if !self.is_lost {
            tracing::warn!(run = %self.run, "another node has taken it over; what is known here is told, and it is left");
        }
        (self.is_lost, self.is_leased) = (true, false);
    }

    /// What this drive has in hand is still written, without a word about the lease, which is another node's. Only after
    /// a guard has refused it: then nothing of it was written.
    fn leave_the_lease_alone(&mut self) {
        let agent = self.driver.tip().map(|run| run.facts.agent.clone());
        let approvers = agent.map(|agent| self.shared.approvers(&agent)).unwrap_or_default();
        for mut order in self.driver.take_back() {
            order.beside = beside(Lease::Untouched, &approvers, More::default());
            self.driver.push(order);
        }
    }

    /// Looks at what others have appended.
    async fn refresh(&mut self) -> Result<(), EngineError> {
        self.driver.refresh().await?;
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
        let more = self.shared.events(self.run, Seq(whole as u64)).await?;
        self.log.extend(more.into_iter().take_while(|envelope| envelope.seq <= durable));
        Ok(())
    }

    fn durable_seq(&self) -> Seq {
        self.driver.durable().map_or(Seq(0), |row| row.run.state.seq)
    }

    /// The run's events with those that are still on their way. A log that was read a moment later than the run may have
    /// more than the run has heard of.
    fn events(&self) -> Vec<Envelope> {
        let durable = self.durable_seq();
        let log = self.log.iter().take_while(|envelope| envelope.seq <= durable);
        log.chain(self.driver.unsettled()).cloned().collect()
    }
}

/// Whether whoever has the run keeps it, as `orders.rs` writes it. One with relatives is looked at once more before it is
/// given back.
pub(super) fn is_kept(run: &Run) -> bool {
    is_busy(run) || has_relatives(run)
}

/// Whether a run may be woken for its sub-runs or its parent.
pub(super) fn has_relatives(run: &Run) -> bool {
    let has_children = || run.state.holds.iter().any(|hold| hold.child.is_some());
    run.outcome().is_none() && (run.facts.parent.is_some() || has_children())
}

fn is_busy(run: &Run) -> bool {
    match next(run, run.state.at) {
        Next::Think | Next::Tick | Next::Act { .. } => true,
        Next::Wait(_) | Next::Nothing => false,
    }
}

fn asks_people(envelope: &Envelope) -> bool {
    matches!(&envelope.event, Event::HoldOpened(opened) if opened.kind != HoldKind::External)
}

fn started_by(node: Incarnation, envelope: &Envelope) -> Option<CallAttempt> {
    let Event::CallStarted(started) = &envelope.event else { return None };
    (started.node == node).then_some(CallAttempt { call: started.call, attempt: started.attempt })
}
