//! What time does: expiry, the end of a grace, claims that lapse, reminders, escalations.
//!
//! Expiry is decided, not swept: every command first lets the time pass that has passed, so that a slow sweeper
//! changes nothing that anyone can see (rule 4).

use super::{Answer, Draft, judge};
use crate::event::{
    AfterOrphan, CallOrphaned, Driver, Event, HoldAssigned, HoldEscalated, HoldExpired, HoldReminded,
    OrphanCause, Outcome, ReleaseReason, RunReleased,
};
use crate::hold::{AfterGrace, Hold, OnDeny, OnTimeout, Resolution};
use crate::id::CallNo;
use crate::mutant::Mutant;
use crate::refusal::Refusal;
use crate::run::CallState;
use crate::time::Timestamp;

/// S3-28: the text of a run that failed because nobody answered.
pub(super) const TIMEOUT_TEXT: &str = "timeout waiting for user input";

/// S4-29: the text of a task that lay in its inbox for longer than it may.
const NOBODY_TOOK_IT: &str = "the task expired: nobody took it within its time to live (taskTtl)";

pub(super) fn pass_time(draft: &mut Draft<'_>) {
    if Mutant::ExpiryUnchecked.is_on() {
        return;
    }
    if draft.run.facts.driver == Driver::Gate {
        ask_about_overdue_calls(draft);
    }
    let deadlines = draft.run.state.holds.iter().flat_map(|hold| deadlines(hold).map(|at| (at, hold.key)));
    let mut due: Vec<_> = deadlines.filter(|(at, _)| *at <= draft.now).collect();
    // In their own order, however late they are noticed: the first one may have ended the run.
    due.sort_by_key(|(at, _)| *at);
    for (at, key) in due {
        lapse(draft, at);
        if let Some(hold) = draft.run.hold(key).cloned() {
            match hold.expired_at {
                None => expire(draft, &hold),
                Some(_) => end_grace(draft, &hold),
            }
        }
    }
    lapse(draft, draft.now);
    if draft.run.must_be_taken_by().is_some_and(|at| at <= draft.now) {
        draft.end(Outcome::Failed, Some(NOBODY_TOOK_IT.into()), None);
    }
}

/// When a hold expires, and when the grace ends that may follow.
fn deadlines(hold: &Hold) -> impl Iterator<Item = Timestamp> + use<> {
    let expires_at = hold.expires_at.filter(|_| hold.kind.can_expire());
    let grace = hold.policy.grace.filter(|_| hold.policy.on_timeout == OnTimeout::Keep);
    let grace_ends_at = expires_at.zip(grace).map(|(at, grace)| at.plus(grace));
    expires_at.filter(|_| hold.expired_at.is_none()).into_iter().chain(grace_ends_at)
}

fn expire(draft: &mut Draft<'_>, hold: &Hold) {
    let is_due = hold.expires_at.is_some_and(|at| at <= draft.now);
    if !is_due || hold.expired_at.is_some() || !hold.kind.can_expire() {
        return;
    }
    let kept = hold.policy.on_timeout == OnTimeout::Keep;
    draft.emit(Event::HoldExpired(HoldExpired { hold: hold.key, kept }));
    if kept {
        return;
    }
    draft.close(hold.key, Resolution::Expire);
    let blocks_the_loop = hold.call() == CallNo::RUN && draft.run.facts.driver == Driver::Loop;
    match hold.policy.on_timeout {
        OnTimeout::Fail => draft.end(Outcome::Failed, Some(TIMEOUT_TEXT.into()), None),
        OnTimeout::Cancel => draft.end(Outcome::Canceled, Some(TIMEOUT_TEXT.into()), None),
        // There is no call whose result could tell the model.
        OnTimeout::Deny | OnTimeout::ResumeWithError if blocks_the_loop => {
            draft.end(Outcome::Failed, Some(TIMEOUT_TEXT.into()), None);
        }
        // As if denied: what a deny does is the hold's policy.
        OnTimeout::Deny if hold.policy.on_deny == OnDeny::Cancel => {
            draft.end(Outcome::Canceled, Some(TIMEOUT_TEXT.into()), None);
        }
        OnTimeout::Deny | OnTimeout::ResumeWithError | OnTimeout::Keep => {}
    }
}

fn end_grace(draft: &mut Draft<'_>, hold: &Hold) {
    if hold.grace_ends_at().is_some_and(|at| at <= draft.now) {
        draft.close(hold.key, Resolution::Expire);
        let outcome = match hold.policy.after_grace {
            AfterGrace::Fail => Outcome::Failed,
            AfterGrace::Cancel => Outcome::Canceled,
        };
        draft.end(outcome, Some(TIMEOUT_TEXT.into()), None);
    }
}

/// Whoever started the call of a gate has not said in time what it did: a person is asked.
fn ask_about_overdue_calls(draft: &mut Draft<'_>) {
    let started = draft.run.state.calls.iter().filter_map(|call| match call.state {
        CallState::Started { start_by, .. } if start_by <= draft.now => Some((call.no, call.attempt)),
        CallState::Started { .. } | CallState::Ready | CallState::Held | CallState::Done(_) => None,
    });
    for (call, attempt) in started.collect::<Vec<_>>() {
        let why = Some(OrphanCause::Unreported);
        draft.emit(Event::CallOrphaned(CallOrphaned {
            call,
            attempt,
            then: AfterOrphan::Ask,
            why,
            reconciled: None,
        }));
        judge::open_recovery(draft, (call, attempt), None);
    }
}

/// An outside worker that gave no sign of life loses its claim, but not while it waits for a person.
fn lapse(draft: &mut Draft<'_>, by: Timestamp) {
    if draft.run.claim_lapses_at().is_none_or(|at| at > by) {
        return;
    }
    unreported_calls_are_unknown(draft);
    draft.emit(Event::RunReleased(RunReleased { why: ReleaseReason::Lapsed, retry_at: None }));
    if draft.run.attempts() >= max_attempts(draft) {
        let reason = match draft.run.facts.driver {
            Driver::Gate => "nobody reported whether the call was run".to_owned(),
            Driver::Loop | Driver::Outside => {
                format!("no worker reported back in {} attempts", draft.run.attempts())
            }
        };
        draft.end(Outcome::Failed, Some(reason), None);
    }
}

/// What an outside worker was allowed to run and did not report may have run.
pub(super) fn unreported_calls_are_unknown(draft: &mut Draft<'_>) {
    let unreported = |call: &&crate::run::Call| call.state == CallState::Ready;
    for call in draft.run.state.calls.iter().filter(unreported).map(|call| call.no).collect::<Vec<_>>() {
        let then = AfterOrphan::Unknown;
        let why = Some(OrphanCause::Unreported);
        draft.emit(Event::CallOrphaned(CallOrphaned { call, attempt: 0, then, why, reconciled: None }));
    }
}

/// How often an outside run may be tried (S4-28: 3); a gate is only its owner's.
pub(super) fn max_attempts(draft: &Draft<'_>) -> u32 {
    if draft.run.facts.driver == Driver::Gate {
        return 1;
    }
    draft.run.facts.inbox.as_ref().map_or(3, |inbox| inbox.max_attempts)
}

/// The part of a tick that is not about deadlines: people are reminded, others are asked as well, and who was asked in
/// particular for a while no longer is.
pub(super) fn ask_more(draft: &mut Draft<'_>) -> Result<Answer, Refusal> {
    let now = draft.now;
    let is_due = |hold: &&Hold| hold.due_at().is_some_and(|at| at <= now);
    let due: Vec<Hold> = draft.run.state.holds.iter().filter(is_due).cloned().collect();
    for hold in due {
        if hold.assigned_until.is_some_and(|at| at <= now) {
            draft.emit(Event::HoldAssigned(HoldAssigned { hold: hold.key, to: None, until: None }));
        }
        for escalation in hold.escalations.iter().filter(|escalation| escalation.at <= now) {
            let (to, rule) = (escalation.to.clone(), escalation.rule.clone());
            draft.emit(Event::HoldEscalated(HoldEscalated { hold: hold.key, to, rule }));
        }
        if hold.remind_at.is_some_and(|at| at <= now) {
            let plain = || hold.policy.remind_after.map(|span| now.plus(span));
            let times = draft.ctx.verdicts.times(hold.call());
            // What is due now was due before: the next one is later.
            let next_at = times.map_or_else(plain, |times| times.remind_at).filter(|at| *at > now);
            draft.emit(Event::HoldReminded(HoldReminded { hold: hold.key, next_at }));
        }
    }
    if draft.events.is_empty() { Ok(Answer::Repeated) } else { Ok(Answer::Done) }
}
