//! What must hold of every run at every time, checked on its log and its state alone.
//!
//! Knows nothing of how the commands were chosen; `fuzz.rs` calls it after each one. Numbers in brackets are the
//! invariants and rules of the architecture (sections 4 and 11).

use std::collections::BTreeMap;

use standfast_core::actor::Actor;
use standfast_core::apply;
use standfast_core::definition::Definition;
use standfast_core::digest::{self, Digest};
use standfast_core::event::{Driver, Envelope, Event, HoldOpened, HoldResolved};
use standfast_core::hold::{AfterGrace, Hold, HoldKind, HoldPolicy, OnDeny, OnTimeout, Resolution};
use standfast_core::id::{CallNo, HoldKey, Seq};
use standfast_core::message::{PolicyVerdict, Replay, ToolCall};
use standfast_core::name::RuleId;
use standfast_core::next::{self, NextStep};
use standfast_core::policy::{Effect, Role};
use standfast_core::project::{self, HoldChange, HoldRow};
use standfast_core::run::{CallOutcome, CallState, Run, Stage, State};
use standfast_core::time::Timestamp;

use super::stored;

/// The row of a run with one call and one hold is below this, as long as names are short.
const SMALL_ROW: usize = 768;
/// The row of a run with two calls and two holds is below this, under ordinary policies.
const LARGER_ROW: usize = 1024;
/// The same, whatever the policies say.
const LARGEST_ROW: usize = 1152;
/// What a digest takes that only some rows have: 52 characters and its name. The result of the calls of a turn so far, and the
/// files that a call names.
const DIGEST: usize = 64;
/// An ordinary policy says what silence does and when, or not even that.
const ORDINARY_SETTINGS: usize = 2;

/// Bytes for each of those who are asked later on, or in somebody's place.
const ASKED_LATER: usize = 112;

/// What the id of a sub-run that a hold waits for takes, with its name.
const CHILD: usize = 48;

/// The definitions that a run may be pinned to, as a store would have them.
pub(crate) type Definitions = BTreeMap<Digest, Definition>;

/// Everything that must hold of a run, whatever happened to it.
pub(crate) fn check_invariants(log: &[Envelope], run: &Run, definitions: &Definitions) -> Result<(), String> {
    the_log_is_in_order(log)?;
    if apply::fold(run.facts.id, log).as_ref() != Some(run) {
        return Err("folding the log does not give the run".into());
    }
    Walk::with(definitions).through(log, run)?;
    an_ended_run_waits_for_nothing(run)?;
    each_held_call_has_its_hold(run)?;
    work_is_never_forgotten(run)?;
    the_row_survives_and_is_small(&run.state)?;
    the_request_is_in_the_log(log, run)?;
    each_reply_was_asked_with_what_is_stored(log)?;
    hold_rows_follow_the_log(log, run)
}

/// The model was asked with what stands before its reply, and with nothing that lost its race.
fn each_reply_was_asked_with_what_is_stored(log: &[Envelope]) -> Result<(), String> {
    for (at, envelope) in log.iter().enumerate() {
        if let Event::ModelReplied(replied) = &envelope.event
            && replied.asked_with != standfast_core::transcript::results_digest(&log[..at])
        {
            return Err(format!("the reply at event {} was asked with something else", envelope.seq));
        }
    }
    Ok(())
}

/// Whatever a run waits for is found in its log by the id that its rows name (S1-4).
fn the_request_is_in_the_log(log: &[Envelope], run: &Run) -> Result<(), String> {
    let Some(key) = run.request() else { return Ok(()) };
    let found = standfast_core::request::requests(log).into_iter().find(|request| request.key == key);
    let found = found.ok_or("the request of the run is not in its log")?;
    let is_named = |hold: &Hold| found.holds.iter().any(|(known, _)| *known == hold.key);
    ensure(run.state.holds.iter().all(is_named), || "an open hold belongs to another request".into())
}

/// Each event is read back as it was written.
pub(crate) fn check_stored_form(events: &[Envelope]) -> Result<(), String> {
    for envelope in events {
        let text = serde_json::to_string(&envelope.event).map_err(|error| error.to_string())?;
        let read: Event = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        ensure(read == envelope.event, || format!("read back as another event: {text}"))?;
    }
    Ok(())
}

/// Recovery holds open whatever the cap says; all others keep it (rule 11).
pub(crate) fn check_cap(run: &Run, cap: usize) -> Result<(), String> {
    let capped = run.state.holds.iter().filter(|hold| hold.kind != HoldKind::Recovery).count();
    ensure(capped <= cap, || format!("{capped} open holds, the cap is {cap}"))
}

/// The rows of all holds that were ever open, as a store would have them.
pub(crate) fn hold_rows(rows: &mut Vec<HoldRow>, changes: Vec<HoldChange>) -> Result<(), String> {
    for change in changes {
        let (row, is_new) = match change {
            HoldChange::Open(row) => (row, true),
            HoldChange::Update(row) | HoldChange::Close(row) => (row, false),
        };
        match (rows.iter_mut().find(|known| known.id == row.id), is_new) {
            (None, true) => rows.push(row),
            (Some(known), false) if known.closed.is_none() => *known = row,
            (None | Some(_), true | false) => return Err(format!("hold {} changes out of order", row.id)),
        }
    }
    Ok(())
}

fn the_log_is_in_order(log: &[Envelope]) -> Result<(), String> {
    let mut before = Timestamp(i64::MIN);
    for (seq, envelope) in (1u64..).zip(log) {
        ensure(envelope.seq == Seq(seq), || format!("event {} stands at {seq}", envelope.seq))?;
        ensure(envelope.at >= before, || format!("time goes back at event {seq}"))?;
        before = envelope.at;
    }
    Ok(())
}

/// What is remembered of a hold on the way through a log.
struct SeenHold {
    kind: HoldKind,
    is_for_a_child: bool,
    resolved: Option<HoldResolved>,
}

/// What is remembered of a call on the way through a log.
#[derive(Default)]
struct SeenCall {
    replay: Replay,
    starts: u32,
    /// A start since which nothing allows another one.
    spent: bool,
    /// The last approval hold of the call.
    approval: Option<HoldKey>,
    may_report: bool,
    /// Its end says of itself that nobody has started it: of a gate.
    may_return: bool,
}

/// A log read from its beginning, with its own memory beside the fold.
struct Walk<'a> {
    definitions: &'a Definitions,
    holds: Vec<(HoldKey, SeenHold)>,
    calls: BTreeMap<CallNo, SeenCall>,
    /// Who resolved the last hold; the clock if nobody did.
    last_decider: Option<Actor>,
    ended: bool,
    erased: bool,
}

impl<'a> Walk<'a> {
    fn with(definitions: &'a Definitions) -> Walk<'a> {
        let (holds, calls, last_decider) = (Vec::new(), BTreeMap::new(), None);
        Walk { definitions, holds, calls, last_decider, ended: false, erased: false }
    }

    fn through(mut self, log: &[Envelope], run: &Run) -> Result<(), String> {
        let Some((first, rest)) = log.split_first() else { return Err("an empty log".into()) };
        let Some(mut before) = apply::begin(run.facts.id, first) else { return Err("no run.started".into()) };
        for (at, envelope) in (1..).zip(rest) {
            let step = self.event(&log[..at], &before, envelope);
            step.map_err(|why| format!("event {} ({}): {why}", envelope.seq, envelope.event.kind()))?;
            apply::apply(&mut before, envelope);
        }
        let open: Vec<HoldKey> =
            self.holds.iter().filter(|(_, seen)| seen.resolved.is_none()).map(|(key, _)| *key).collect();
        let in_state: Vec<HoldKey> = run.state.holds.iter().map(|hold| hold.key).collect();
        ensure(open == in_state, || format!("open by the log: {open:?}, in the state: {in_state:?}"))?;
        let last = &run.state.last_decider;
        ensure(*last == self.last_decider, || format!("the last hold was not resolved by {last:?}"))
    }

    fn event(&mut self, past: &[Envelope], before: &Run, envelope: &Envelope) -> Result<(), String> {
        let event = &envelope.event;
        if self.ended {
            self.after_the_end(event)?;
        }
        match event {
            Event::RunStarted(_) => return Err("a run starts once".into()),
            Event::RunEnded(_) => {
                ensure(before.state.holds.is_empty(), || "it ends with open holds (I6)".into())?;
                self.ended = true;
            }
            Event::RunErased(_) => self.erased = true,
            Event::ModelReplied(replied) => {
                replied.reply.calls.iter().for_each(|call| self.proposed(call, before))
            }
            Event::CallProposed(proposed) => self.proposed(&proposed.call, before),
            Event::CallStarted(started) => {
                ensure(started.judged.effect != Effect::Deny, || "a forbidden call starts".into())?;
                ensure(started.start_by > envelope.at, || "it starts too late (rule 2)".into())?;
                ensure(is_judged(&started.judged), || "nothing allows it".into())?;
                self.started(past, before, started.call, started.attempt)?;
            }
            Event::CallReturned(returned) => {
                let may_return = self.call(returned.call)?.may_return;
                if self.ended && may_return {
                    self.must_be_unrun(before, returned.call)?;
                } else {
                    self.must_be_started(before, returned.call)?;
                }
                self.call(returned.call)?.spent = false;
            }
            Event::CallFinished(finished) => match finished.refused {
                Some(_) => self.must_be_ready(before, finished.call)?,
                None => self.finished(before, finished.call)?,
            },
            Event::CallOrphaned(orphaned) => {
                let state = before.call(orphaned.call).map(|call| call.state);
                let is_reported_by_worker =
                    before.facts.driver.is_elsewhere() && state == Some(CallState::Ready);
                if !is_reported_by_worker {
                    self.must_be_started(before, orphaned.call)?;
                }
            }
            Event::CallContradicted(finished) => {
                let voided = |(key, seen): &(HoldKey, SeenHold)| {
                    key.call == finished.call && seen.kind == HoldKind::Recovery && seen.resolved.is_some()
                };
                ensure(self.holds.iter().any(voided), || "nobody had declared that attempt void".into())?;
            }
            Event::CallProgressed(progressed) => drop(self.call(progressed.call)?),
            Event::HoldOpened(opened) => {
                ensure(self.hold(opened.hold).is_err(), || "the id is used twice".into())?;
                ensure(opened.kind.can_expire() || opened.expires_at.is_none(), || "has a deadline".into())?;
                self.opened(before, opened)?;
            }
            Event::HoldVoted(voted) => self.must_be_open(voted.hold)?,
            Event::HoldEdited(edited) => self.must_be_open(edited.hold)?,
            Event::HoldAssigned(assigned) => self.must_be_open(assigned.hold)?,
            Event::HoldReminded(reminded) => self.must_be_open(reminded.hold)?,
            Event::HoldExpired(expired) => self.must_be_open(expired.hold)?,
            Event::HoldReopened(reopened) => self.must_be_open(reopened.hold)?,
            Event::HoldEscalated(escalated) => self.must_be_open(escalated.hold)?,
            Event::HoldDelegated(delegated) => self.must_be_open(delegated.hold)?,
            Event::HoldResolved(resolved) => {
                self.resolved(before, resolved)?;
                self.last_decider = Some(match resolved.role {
                    Some(_) => envelope.actor.clone(),
                    None => Actor::Clock,
                });
            }
            Event::RunClaimed(_)
            | Event::RunReleased(_)
            | Event::RunRepinned(_)
            | Event::MessageReceived(_)
            | Event::MessageQueued(_)
            | Event::ModelFailed(_) => {}
        }
        Ok(())
    }

    /// Rule 5.
    fn after_the_end(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::CallFinished(finished) | Event::CallContradicted(finished) => {
                ensure(!self.erased, || "contents after they were deleted".into())?;
                let may_report = self.call(finished.call)?.may_report;
                ensure(may_report, || "a result after the end for a call that was never started".into())
            }
            Event::CallOrphaned(orphaned) => {
                let may_report = self.call(orphaned.call)?.may_report;
                ensure(may_report, || "orphaned after the end without a start".into())
            }
            Event::CallReturned(returned) => {
                let SeenCall { may_report, may_return, .. } = self.call(returned.call)?;
                ensure(*may_report || *may_return, || "given back after the end without a start".into())
            }
            Event::RunErased(_) => ensure(!self.erased, || "erased twice".into()),
            Event::RunStarted(_)
            | Event::RunClaimed(_)
            | Event::RunReleased(_)
            | Event::RunRepinned(_)
            | Event::RunEnded(_)
            | Event::MessageReceived(_)
            | Event::MessageQueued(_)
            | Event::ModelReplied(_)
            | Event::ModelFailed(_)
            | Event::CallProposed(_)
            | Event::CallStarted(_)
            | Event::CallProgressed(_)
            | Event::HoldOpened(_)
            | Event::HoldVoted(_)
            | Event::HoldEdited(_)
            | Event::HoldAssigned(_)
            | Event::HoldReminded(_)
            | Event::HoldExpired(_)
            | Event::HoldReopened(_)
            | Event::HoldEscalated(_)
            | Event::HoldDelegated(_)
            | Event::HoldResolved(_) => Err("may not follow run.ended (rule 5)".into()),
        }
    }

    fn proposed(&mut self, call: &ToolCall, before: &Run) {
        let driver = before.facts.driver;
        let (may_report, may_return) = (driver.is_elsewhere(), driver == Driver::Gate);
        let seen = SeenCall { replay: call.replay, may_report, may_return, ..SeenCall::default() };
        self.calls.insert(call.no, seen);
    }

    fn opened(&mut self, before: &Run, opened: &HoldOpened) -> Result<(), String> {
        let no = opened.hold.call;
        let is_ours = before.facts.driver == Driver::Loop && no != CallNo::RUN;
        match opened.kind {
            HoldKind::Approval => self.call(no)?.approval = Some(opened.hold),
            // Policy is asked directly before a call leaves our hands.
            HoldKind::Input | HoldKind::External | HoldKind::Auth if is_ours => {
                self.must_be_started(before, no)?;
            }
            HoldKind::Input | HoldKind::External | HoldKind::Auth => {}
            HoldKind::Recovery => self.must_be_started(before, no)?,
        }
        let (kind, is_for_a_child) = (opened.kind, opened.ask.child.is_some());
        self.holds.push((opened.hold, SeenHold { kind, is_for_a_child, resolved: None }));
        Ok(())
    }

    /// The digest of the call as the log holds it, with its tool as the pinned definition has it.
    fn runs(&self, past: &[Envelope], before: &Run, no: CallNo) -> Option<Digest> {
        let stored = stored(past, no)?;
        let spec = self.definitions.get(&before.state.definition)?.tools.get(&stored.tool)?;
        let files = before.call(no).and_then(|call| call.files);
        Some(digest::of_call_with(&stored.tool, &stored.arguments, spec.schema_digest(), files))
    }

    /// What was approved is what runs (I4), and no second start without a reason (I3).
    fn started(&mut self, past: &[Envelope], before: &Run, no: CallNo, attempt: u32) -> Result<(), String> {
        self.must_be_ready(before, no)?;
        let Some(runs) = self.runs(past, before, no) else { return Err("nothing stored for it".into()) };
        let approved = match self.call(no)?.approval {
            Some(hold) => self.hold(hold)?.resolved.clone(),
            None => None,
        };
        if self.call(no)?.approval.is_some() {
            let Some(approved) = approved else { return Err("its approval is still open (I4)".into()) };
            let is_approved =
                matches!(approved.resolution, Resolution::Approve { .. }) && approved.role.is_some();
            ensure(is_approved, || "nobody approved it (I4)".into())?;
            ensure(approved.digest == Some(runs), || "something else was approved (I4)".into())?;
        }
        let shown = before.call(no).and_then(|call| call.digest);
        ensure(shown == Some(runs), || "it is not the call that was shown".into())?;
        let call = self.call(no)?;
        ensure(attempt == call.starts + 1, || format!("start {attempt} after {}", call.starts))?;
        ensure(!call.spent || call.replay == Replay::Idempotent, || "a second start (I3)".into())?;
        (call.starts, call.spent, call.may_report) = (attempt, true, true);
        Ok(())
    }

    fn finished(&mut self, before: &Run, no: CallNo) -> Result<(), String> {
        let starts = self.call(no)?.starts;
        let is_due = match before.call(no).map(|call| (call.state, call.replay)) {
            Some((CallState::Started { .. } | CallState::Done(CallOutcome::Unknown), _)) => true,
            Some((CallState::Ready, replay)) => {
                before.facts.driver.is_elsewhere() || (starts > 0 && replay == Replay::Idempotent)
            }
            Some((CallState::Held | CallState::Done(_), _)) | None => false,
        };
        ensure(is_due, || "it has its result, or never started".into())
    }

    /// One decision for each hold (I2).
    fn resolved(&mut self, before: &Run, resolved: &HoldResolved) -> Result<(), String> {
        self.must_be_open(resolved.hold)?;
        let SeenHold { kind, is_for_a_child, .. } = *self.hold(resolved.hold)?;
        ensure(!is_for_a_child || matches!(resolved.role, Some(Role::System) | None), || {
            "someone else says what a sub-run came to (rule 7)".into()
        })?;
        let is_someones =
            matches!(resolved.role, Some(Role::Owner | Role::Approver | Role::Admin | Role::Callback));
        let runs_again = match (kind, &resolved.resolution) {
            (HoldKind::Recovery, Resolution::Approve { .. }) => {
                ensure(is_someones, || "only a person runs it again (I3)".into())?;
                true
            }
            (HoldKind::Auth, Resolution::Answer { .. }) => true,
            (_, _) => false,
        };
        ensure(before.hold(resolved.hold).is_some(), || "the state has no such hold".into())?;
        if runs_again && resolved.hold.call != CallNo::RUN {
            self.call(resolved.hold.call)?.spent = false;
        }
        self.hold_mut(resolved.hold)?.resolved = Some(resolved.clone());
        Ok(())
    }

    fn must_be_ready(&self, before: &Run, no: CallNo) -> Result<(), String> {
        let state = before.call(no).map(|call| call.state);
        ensure(state == Some(CallState::Ready), || format!("call {no} is {state:?}, not ready"))
    }

    fn must_be_started(&self, before: &Run, no: CallNo) -> Result<(), String> {
        let state = before.call(no).map(|call| call.state);
        ensure(matches!(state, Some(CallState::Started { .. })), || {
            format!("call {no} is {state:?}, not started")
        })
    }

    /// The end of a gate says of its call that it did not run: of one whose last start, if any, is not open to doubt.
    fn must_be_unrun(&mut self, before: &Run, no: CallNo) -> Result<(), String> {
        match before.call(no).map(|call| call.state) {
            Some(CallState::Started { .. }) => Ok(()),
            Some(CallState::Ready) => {
                ensure(!self.call(no)?.spent, || format!("call {no} was started and never given back"))
            }
            state => Err(format!("call {no} is {state:?}, neither started nor ready")),
        }
    }

    fn must_be_open(&self, key: HoldKey) -> Result<(), String> {
        ensure(self.hold(key)?.resolved.is_none(), || format!("hold {key} has its decision (I2)"))
    }

    fn call(&mut self, no: CallNo) -> Result<&mut SeenCall, String> {
        self.calls.get_mut(&no).ok_or_else(|| format!("call {no} was never proposed"))
    }

    fn hold(&self, key: HoldKey) -> Result<&SeenHold, String> {
        let found = self.holds.iter().find(|(known, _)| *known == key).map(|(_, seen)| seen);
        found.ok_or_else(|| format!("hold {key} was never opened (I2)"))
    }

    fn hold_mut(&mut self, key: HoldKey) -> Result<&mut SeenHold, String> {
        let found = self.holds.iter_mut().find(|(known, _)| *known == key).map(|(_, seen)| seen);
        found.ok_or_else(|| format!("hold {key} was never opened (I2)"))
    }
}

/// What no rule judged is held, never allowed.
fn is_judged(judged: &PolicyVerdict) -> bool {
    judged.effect == Effect::Hold || !judged.rules.contains(&RuleId::no_verdict())
}

fn an_ended_run_waits_for_nothing(run: &Run) -> Result<(), String> {
    let is_ended = run.outcome().is_some();
    ensure(!is_ended || run.state.holds.is_empty(), || "an ended run has open holds (I6)".into())?;
    ensure(!is_ended || run.state.claim.is_none(), || "an ended run is claimed".into())?;
    ensure(!is_ended || next::deadline(run).is_none(), || "an ended run has a deadline".into())
}

/// A call says only that it waits; what for says the one hold that names it.
fn each_held_call_has_its_hold(run: &Run) -> Result<(), String> {
    let held = run.state.calls.iter().filter(|call| call.state == CallState::Held).map(|call| call.no);
    let waiting = run.state.holds.iter().map(|hold| hold.call()).filter(|no| *no != CallNo::RUN);
    let (held, mut waiting): (Vec<CallNo>, Vec<CallNo>) = (held.collect(), waiting.collect());
    waiting.sort();
    ensure(held == waiting, || format!("calls held: {held:?}, calls that holds name: {waiting:?}"))
}

/// `next` and `due_at` see all there is to do, whenever they are asked.
fn work_is_never_forgotten(run: &Run) -> Result<(), String> {
    let is_ours = run.facts.driver == Driver::Loop && !run.is_blocked();
    let is_started = |state: &CallState| matches!(state, CallState::Started { .. });
    let any_started = run.state.calls.iter().any(|call| is_started(&call.state));
    let any_ready = run.state.calls.iter().any(|call| call.state == CallState::Ready);
    let has_work = match run.state.stage {
        Stage::Thinking { .. } => is_ours,
        Stage::Acting => any_started || (is_ours && any_ready),
        Stage::Ended(_) => any_started,
    };
    let due_at = next::due_at(run);
    ensure(!has_work || due_at.is_some(), || "there is work, and it is never due".into())?;
    for now in [run.state.at, Timestamp(i64::MAX)] {
        let next = next::next(run, now);
        let is_idle = matches!(next, NextStep::Wait(None) | NextStep::Nothing);
        ensure(!has_work || !is_idle, || format!("there is work, and next says {next:?}"))?;
    }
    for deadline in deadlines(run) {
        ensure(due_at.is_some_and(|at| at <= deadline), || {
            format!("due at {due_at:?}, deadline {deadline:?}")
        })?;
        ensure(next::next(run, deadline) == NextStep::Tick, || "a deadline passes unnoticed".into())?;
    }
    Ok(())
}

/// Every deadline that the state mentions, worked out from its fields.
fn deadlines(run: &Run) -> Vec<Timestamp> {
    let holds = run.state.holds.iter();
    let expiries = holds.clone().filter(|hold| hold.expired_at.is_none()).filter_map(|hold| hold.expires_at);
    let graces =
        holds.clone().filter(|hold| hold.expired_at.is_some()).filter_map(|hold| hold.grace_ends_at());
    let ends = holds.clone().filter_map(|hold| hold.assigned_until);
    let escalations = holds.clone().flat_map(|hold| hold.escalations.iter().map(|one| one.at));
    let reminders = holds.filter_map(|hold| hold.remind_at);
    let claim = run.state.claim.iter().filter(|_| !run.is_held()).map(|claim| claim.until);
    expiries.chain(graces).chain(reminders).chain(escalations).chain(ends).chain(claim).collect()
}

fn the_row_survives_and_is_small(state: &State) -> Result<(), String> {
    let text = serde_json::to_string(state).map_err(|error| error.to_string())?;
    let read: State = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
    // These three are columns of their own.
    let read = State { seq: state.seq, at: state.at, definition: state.definition, ..read };
    ensure(read == *state, || format!("read back as another state: {text}"))?;
    ensure(!state.claimed || state.turn == 0, || format!("claimed goes without saying: {text}"))?;
    let max = match (state.calls.len(), state.holds.len()) {
        (0 | 1, 0 | 1) => SMALL_ROW,
        (0..=2, 0..=2) if state.holds.iter().all(|hold| settings(&hold.policy) <= ORDINARY_SETTINGS) => {
            LARGER_ROW
        }
        (0..=2, 0..=2) => LARGEST_ROW,
        (_, _) => usize::MAX,
    };
    let digests =
        usize::from(state.results.is_some()) + state.calls.iter().filter(|call| call.files.is_some()).count();
    let asked = state.holds.iter().map(asked_later).sum::<usize>() + state.let_in.len();
    let children = state.holds.iter().filter(|hold| hold.child.is_some()).count();
    let max = max.saturating_add(digests * DIGEST + asked * ASKED_LATER + children * CHILD);
    ensure(text.len() < max, || format!("the row has {} bytes: {text}", text.len()))
}

/// How many things a hold says of who is asked later on, or in whose place.
fn asked_later(hold: &Hold) -> usize {
    let escalations = hold.escalations.len() + hold.escalated.len() + hold.policy.escalate_to.len();
    escalations + hold.delegations.len() + hold.stood_in.len() + usize::from(hold.assigned_until.is_some())
}

/// How many things a policy says that do not go without saying.
fn settings(policy: &HoldPolicy) -> usize {
    let HoldPolicy {
        on_deny,
        on_timeout,
        timeout,
        grace,
        after_grace,
        remind_after,
        escalate_after: _,
        escalate_to: _,
    } = policy;
    let is_said = [
        *on_deny != OnDeny::default(),
        *on_timeout != OnTimeout::default(),
        *after_grace != AfterGrace::default(),
    ];
    let spans = [timeout, grace, remind_after].into_iter().flatten().count();
    spans + is_said.into_iter().filter(|is_said| *is_said).count()
}

fn hold_rows_follow_the_log(log: &[Envelope], run: &Run) -> Result<(), String> {
    let mut rows = Vec::new();
    hold_rows(&mut rows, project::hold_changes(None, log, run))?;
    let open: Vec<HoldRow> = rows.into_iter().filter(|row| row.closed.is_none()).collect();
    let in_state: Vec<HoldRow> = run.state.holds.iter().map(|hold| project::hold_row(run, hold)).collect();
    ensure(open == in_state, || format!("rows {open:?}, holds {in_state:?}"))
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
