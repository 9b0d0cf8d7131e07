//! Runs that a worker elsewhere drives: claim, propose, report, give up.
//!
//! What an outside worker ran is its word. Its calls are judged and held like any other, and what it was allowed to
//! run and never reported is shown as unknown.

use super::clock::{TIMEOUT_TEXT, max_attempts, unreported_calls_are_unknown};
use super::{Answer, Draft, judge, model};
use crate::body::Body;
use crate::command::{ClaimRun, FailKind, FailRun, Propose, Suspend, SuspendFor};
use crate::event::{
    CallProposed, CallReturned, Claim, Driver, Envelope, Event, Outcome, ReleaseReason, RunClaimed,
    RunReleased,
};
use crate::id::CallNo;
use crate::message::Replay;
use crate::name::WorkerName;
use crate::refusal::Refusal;
use crate::run::{CallOutcome, CallState};

pub(super) fn claim(draft: &mut Draft<'_>, claim: &ClaimRun) -> Result<Answer, Refusal> {
    draft.refuse_if_ended()?;
    match claim {
        ClaimRun::Node if draft.run.facts.driver.is_elsewhere() => Err(Refusal::WrongDriver),
        ClaimRun::Node if draft.run.was_claimed() => Ok(Answer::Repeated),
        ClaimRun::Node => {
            draft.emit(Event::RunClaimed(RunClaimed { claim: None, started: false }));
            // A node takes a task only when it has room for it, and works on it at once (S4-1).
            if draft.run.facts.inbox.is_some() {
                draft.emit(Event::RunClaimed(RunClaimed { claim: None, started: true }));
            }
            Ok(Answer::Done)
        }
        ClaimRun::Worker { .. } if draft.run.facts.driver == Driver::Loop => Err(Refusal::WrongDriver),
        ClaimRun::Worker { worker, period } => {
            if let Some(held) = &draft.run.state.claim {
                return Err(Refusal::ClaimedByOther { holder: Some(held.worker.clone()) });
            }
            if !draft.run.is_claimable(draft.now) {
                return Err(Refusal::NotClaimable);
            }
            let until = draft.now.plus(*period);
            let attempt = draft.run.state.claims + 1;
            let claim = Claim { worker: worker.clone(), until, period: *period, attempt, started_at: None };
            draft.emit(Event::RunClaimed(RunClaimed { claim: Some(claim), started: false }));
            Ok(Answer::Done)
        }
    }
}

pub(super) fn propose(draft: &mut Draft<'_>, propose: &Propose) -> Result<Answer, Refusal> {
    refuse_unless_claimed_by(draft, Some(&propose.worker))?;
    if draft.run.state.calls_made > 0 {
        refuse_if_gate(draft)?;
    }
    let no = CallNo(draft.run.state.calls_made + 1);
    let mut judged = [judge::judge(draft, no, &propose.call)];
    judge::refuse_over_cap(draft, &mut judged);
    let [judgement] = judged;
    draft.emit(Event::CallProposed(CallProposed {
        call: judgement.call.clone(),
        worker: propose.worker.clone(),
        context: propose.context.clone(),
        schema: propose.schema,
        grant_use: draft.ctx.verdicts.grant_use(no).filter(|_| judgement.is_granted()),
    }));
    match judgement.hold {
        Some(combined) => {
            judge::open_approval(draft, &judgement.call, combined);
            Ok(Answer::Held)
        }
        None if judgement.call.refused.is_some() => Ok(Answer::Refused),
        None => Ok(Answer::Done),
    }
}

pub(super) fn finish(draft: &mut Draft<'_>, worker: &WorkerName, result: &Body) -> Result<Answer, Refusal> {
    refuse_unless_claimed_by(draft, Some(worker))?;
    refuse_if_gate(draft)?;
    draft.end(Outcome::Completed, None, Some(result.clone()));
    Ok(Answer::Done)
}

pub(super) fn fail(draft: &mut Draft<'_>, fail: &FailRun) -> Result<Answer, Refusal> {
    draft.refuse_if_ended()?;
    match draft.run.facts.driver {
        Driver::Outside | Driver::Gate => refuse_unless_claimed_by(draft, fail.worker.as_ref())?,
        // As with a cancel: what is stopped shows in the receipt as unknown.
        Driver::Loop if fail.kind == FailKind::OutOfTime => {}
        Driver::Loop => refuse_if_something_may_have_run(draft)?,
    }
    model::refuse_if_outdated(draft, fail.heard)?;
    let has_attempts_left = draft.run.attempts() < max_attempts(draft);
    let error = Some(fail.error.clone());
    match fail.kind {
        FailKind::Transient { retry_at }
            if draft.run.facts.driver == Driver::Outside && has_attempts_left =>
        {
            unreported_calls_are_unknown(draft);
            draft.withdraw_holds();
            let why = ReleaseReason::Failed(fail.detail.clone().unwrap_or_else(|| Body::text(&fail.error)));
            draft.emit(Event::RunReleased(RunReleased { why, retry_at: Some(retry_at) }));
        }
        FailKind::Transient { .. } | FailKind::Final | FailKind::OutOfTime => {
            draft.end(Outcome::Failed, error, fail.detail.clone())
        }
        FailKind::Rejected => draft.end(Outcome::Rejected, error, fail.detail.clone()),
    }
    Ok(Answer::Done)
}

pub(super) fn heartbeat(draft: &mut Draft<'_>, worker: &WorkerName) -> Result<Answer, Refusal> {
    refuse_unless_claimed_by(draft, Some(worker))?;
    let Some(mut claim) = draft.run.state.claim.clone() else { return Err(Refusal::NotClaimable) };
    claim.until = draft.now.plus(claim.period);
    draft.emit(Event::RunClaimed(RunClaimed { claim: Some(claim), started: false }));
    Ok(Answer::Done)
}

/// A sign of life that says once that the work has begun (S4-1).
pub(super) fn start_work(draft: &mut Draft<'_>, worker: &WorkerName) -> Result<Answer, Refusal> {
    refuse_unless_claimed_by(draft, Some(worker))?;
    let Some(mut claim) = draft.run.state.claim.clone() else { return Err(Refusal::NotClaimable) };
    if claim.started_at.is_some() {
        return Ok(Answer::Repeated);
    }
    claim.until = draft.now.plus(claim.period);
    claim.started_at = Some(draft.now);
    draft.emit(Event::RunClaimed(RunClaimed { claim: Some(claim), started: true }));
    Ok(Answer::Done)
}

pub(super) fn release(draft: &mut Draft<'_>, worker: &WorkerName) -> Result<Answer, Refusal> {
    refuse_unless_claimed_by(draft, Some(worker))?;
    refuse_if_gate(draft)?;
    unreported_calls_are_unknown(draft);
    // What it asked for was for itself; the next worker asks for its own.
    draft.withdraw_holds();
    draft.emit(Event::RunReleased(RunReleased { why: ReleaseReason::Returned, retry_at: None }));
    Ok(Answer::Done)
}

/// A gate is its one call and its owner's: it asks for nothing else, is handed to nobody, and ends with that call.
pub(super) fn refuse_if_gate(draft: &Draft<'_>) -> Result<(), Refusal> {
    if draft.run.facts.driver == Driver::Gate { Err(Refusal::WrongDriver) } else { Ok(()) }
}

/// A gate may ask for a person's answer, or a login, in the place of its one call, which then never starts; it waits for nothing
/// else.
pub(super) fn refuse_unless_gate_asks(draft: &Draft<'_>, suspend: &Suspend) -> Result<(), Refusal> {
    let is_a_question = matches!(suspend.kind, SuspendFor::Input | SuspendFor::Auth);
    let asks = is_a_question && suspend.call != CallNo::RUN && suspend.attempt == 0;
    if asks { Ok(()) } else { refuse_if_gate(draft) }
}

/// A gate ends with its one call.
pub(super) fn end_with_its_call(draft: &mut Draft<'_>) {
    let call = draft.run.state.calls.first().map(|call| call.state);
    let Some(CallState::Done(came_to)) = call.filter(|_| draft.run.outcome().is_none()) else { return };
    let (outcome, reason) = match came_to {
        CallOutcome::Ok => (Outcome::Completed, None),
        CallOutcome::Failed => (Outcome::Failed, Some("the call failed")),
        CallOutcome::Refused => (Outcome::Rejected, Some("the call was refused")),
        CallOutcome::Denied => (Outcome::Canceled, Some("the call was denied")),
        CallOutcome::Expired => (Outcome::Canceled, Some(TIMEOUT_TEXT)),
        CallOutcome::NotExecuted => (Outcome::Canceled, Some("the call was not executed")),
        CallOutcome::Unknown => (Outcome::Failed, Some("nobody knows what the call did")),
    };
    draft.end(outcome, reason.map(str::to_owned), None);
}

/// What nobody has started when a gate ends did not happen: its owner starts nothing without saying so first. A call that an
/// earlier start may have run is another matter, unless that start was given back in the same breath.
pub(super) fn give_back_unstarted(draft: &mut Draft<'_>) {
    let returned = |no: CallNo| {
        let is_it =
            |one: &Envelope| matches!(&one.event, Event::CallReturned(returned) if returned.call == no);
        draft.events.iter().any(is_it)
    };
    let ready = draft.run.state.calls.iter().filter(|call| call.state == CallState::Ready);
    let unstarted: Vec<_> = ready
        .filter(|call| call.attempt == 0 || returned(call.no))
        .map(|call| CallReturned { call: call.no, attempt: call.attempt })
        .collect();
    unstarted.into_iter().for_each(|returned| draft.emit(Event::CallReturned(returned)));
}

/// Only the worker that holds the claim speaks for the run.
pub(super) fn refuse_unless_claimed_by(
    draft: &Draft<'_>,
    worker: Option<&WorkerName>,
) -> Result<(), Refusal> {
    draft.refuse_if_ended()?;
    if draft.run.facts.driver == Driver::Loop {
        return Err(Refusal::WrongDriver);
    }
    let holder = draft.run.state.claim.as_ref().map(|claim| &claim.worker);
    if holder == worker && holder.is_some() {
        Ok(())
    } else {
        Err(Refusal::ClaimedByOther { holder: holder.cloned() })
    }
}

/// A panic ends a run as failed, unless a call that changes the world had started: then a person is asked (C35).
fn refuse_if_something_may_have_run(draft: &Draft<'_>) -> Result<(), Refusal> {
    let may_have_run = |call: &&crate::run::Call| {
        matches!(call.state, CallState::Started { .. }) && call.replay == Replay::Never
    };
    match draft.run.state.calls.iter().find(may_have_run) {
        Some(call) => Err(Refusal::CallStarted(call.no)),
        None => Ok(()),
    }
}
