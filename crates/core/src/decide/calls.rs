//! What nodes do with calls: begin, give back, report, suspend, find orphaned.
//!
//! `call.started` is durable before the effect; whoever finds a started call that nobody runs any more never guesses
//! what it did (rule 2).

use super::judge::{self, NewHold};
use super::{Answer, Draft};
use crate::actor::Actor;
use crate::body::Body;
use crate::command::{Begin, FinishCall, Suspend, SuspendFor};
use crate::definition::ToolSpec;
use crate::digest::{self, Digest};
use crate::event::{
    AfterOrphan, CallFinished, CallOrphaned, CallProgressed, CallReturned, CallStarted, Driver, Event,
    HoldResolved, OrphanCause, ReleaseReason, RunReleased,
};
use crate::hold::{Ask, Demand, Hold, HoldKind, Resolution, name_files};
use crate::id::{CallNo, HoldKey, Incarnation};
use crate::message::{FileDigest, PolicyVerdict, Replay, ToolResult};
use crate::mutant::Mutant;
use crate::name::RuleId;
use crate::policy::{CombinedVerdict, Effect, Role};
use crate::reconcile::{EffectAnswer, Reconciliation};
use crate::refusal::{CapKind, Refusal};
use crate::run::{Call, CallAttempt, CallOutcome, CallState, Stage};

pub(super) fn begin(draft: &mut Draft<'_>, begin: &Begin) -> Result<Answer, Refusal> {
    draft.refuse_if_ended()?;
    match draft.run.facts.driver {
        Driver::Loop => {}
        Driver::Outside => return Err(Refusal::WrongDriver),
        // Whoever opened the gate starts its call, and nobody else.
        Driver::Gate => {
            let worker = if let Actor::Outside(worker) = &draft.ctx.actor { Some(worker) } else { None };
            super::outside::refuse_unless_claimed_by(draft, worker)?;
        }
    }
    let call = call(draft, begin.call)?;
    if call.state != CallState::Ready || draft.run.is_blocked() {
        return Err(Refusal::CallNotReady(begin.call));
    }
    if begin.start_by <= draft.now && !Mutant::StartByUnchecked.is_on() {
        return Err(Refusal::TooLate(begin.call));
    }
    // Within a pinned definition the schema cannot change; after a move the call remembers what it was shown with.
    let schema = draft.ctx.definition.tools.get(&call.tool).map(ToolSpec::schema_digest);
    let shown_with = call.schema.or(schema).unwrap_or_default();
    let stored = digest::of_call_with(&begin.stored.tool, &begin.stored.arguments, shown_with, call.files);
    let is_as_shown = call.tool == begin.stored.tool && call.digest == Some(stored);
    if !is_as_shown && !Mutant::DigestUnchecked.is_on() {
        return Err(Refusal::Tampered { call: call.no, decided: call.digest, stored });
    }
    let Some(schema) = schema else {
        let judged = PolicyVerdict {
            effect: Effect::Deny,
            rules: Vec::new(),
            policy: None,
            grant: None,
            observed: None,
        };
        let reason = format!("not executed: the agent no longer has a tool {}", call.tool);
        return Ok(refuse(draft, &call, judged, Some(reason)));
    };
    let combined = judge::verdict(draft, call.no);
    if combined.judged.effect == Effect::Deny {
        return Ok(refuse(draft, &call, combined.judged, combined.reason));
    }
    let mut unsatisfied = judge::unsatisfied(&combined.judged, &call.satisfied);
    if shown_with != schema {
        unsatisfied.push(RuleId::schema_changed());
    }
    // What nobody has approved has been shown to nobody either.
    let files = draft.ctx.verdicts.files(call.no);
    let has_other_files = digest::of_files(&files) != call.files && !call.satisfied.is_empty();
    if has_other_files && !Mutant::DigestUnchecked.is_on() {
        unsatisfied.push(RuleId::files_changed());
    }
    if !unsatisfied.is_empty() {
        let now = digest::of_call_with(&call.tool, &begin.stored.arguments, schema, digest::of_files(&files));
        let has_other_tool = shown_with != schema && !call.satisfied.is_empty();
        let is_other = has_other_files || has_other_tool || has_other_findings(&call, &unsatisfied);
        let revision = call.revision + u32::from(is_other);
        return Ok(ask_again(draft, &call, Exhibit { digest: now, files, revision }, combined, unsatisfied));
    }
    draft.emit(Event::CallStarted(CallStarted {
        call: call.no,
        attempt: call.attempt + 1,
        node: begin.node,
        start_by: begin.start_by,
        judged: combined.judged,
        pending: begin.pending.map(|secret| HoldKey { call: call.no, secret }),
        effects: draft.ctx.verdicts.effects(call.no),
        takes: draft.ctx.verdicts.takes(call.no),
        grant_use: draft.ctx.verdicts.grant_use(call.no),
    }));
    Ok(Answer::Done)
}

/// Whether what a rule had looked up is another thing now than what people approved.
fn has_other_findings(call: &Call, unsatisfied: &[RuleId]) -> bool {
    unsatisfied.iter().any(|now| call.satisfied.iter().any(|then| now.is_finding_like(then)))
}

/// Policy may only become stricter while a run waits: what now forbids the call wins.
fn refuse(draft: &mut Draft<'_>, call: &Call, judged: PolicyVerdict, reason: Option<String>) -> Answer {
    let text = reason.unwrap_or_else(|| judge::forbidden(&judged));
    let result = ToolResult::Failed(Body::text(text));
    draft.emit(Event::CallFinished(CallFinished {
        call: call.no,
        attempt: 0,
        result,
        refused: Some(judged),
    }));
    Answer::Refused
}

/// What people are shown when they are asked again.
struct Exhibit {
    digest: Digest,
    files: Vec<FileDigest>,
    revision: u32,
}

/// An approval satisfies the rules it was shown; a new rule, a changed tool or a changed file asks again.
fn ask_again(
    draft: &mut Draft<'_>,
    call: &Call,
    exhibit: Exhibit,
    combined: CombinedVerdict,
    unsatisfied: Vec<RuleId>,
) -> Answer {
    let max = draft.ctx.limits.open_holds;
    if draft.run.state.holds.len() >= max {
        return refuse(draft, call, combined.judged, Some(judge::too_many_holds(max)));
    }
    // Only what asks now can be satisfied by the answer.
    let mut rules = match combined.judged.effect {
        Effect::Hold => combined.judged.rules.clone(),
        Effect::Allow | Effect::Deny => Vec::new(),
    };
    let (votes, demands) = demands_again(&combined, &unsatisfied);
    let is_changed = unsatisfied.contains(&RuleId::files_changed());
    let changed = is_changed.then(|| FILES_CHANGED.to_owned());
    let reason = name_files(combined.reason.into_iter().chain(changed).reduce(join), &exhibit.files);
    rules.extend(unsatisfied);
    rules.sort();
    rules.dedup();
    let terms = draft.ctx.verdicts.terms(call.no);
    let warning = draft.ctx.verdicts.warning(call.no);
    let opening = NewHold {
        call: call.no,
        policy: terms.over(draft.ctx.definition.policy_for(&call.tool)),
        ask: Ask {
            reason,
            warning,
            target: draft.ctx.verdicts.target(call.no),
            stakes: terms.stakes,
            ..Ask::default()
        },
        judged: Some(PolicyVerdict { effect: Effect::Hold, rules, ..combined.judged }),
        votes,
        demands,
        digest: Some(exhibit.digest),
        files: exhibit.files,
        revision: exhibit.revision,
        ..NewHold::default()
    };
    judge::open(draft, opening);
    Answer::Held
}

/// Who must agree when a call is asked about again: whom the new rules name, if that is all that asks; otherwise everybody
/// once more, as what they were shown is another thing now.
fn demands_again(combined: &CombinedVerdict, unsatisfied: &[RuleId]) -> (u32, Vec<Demand>) {
    let demanded = |rule: &RuleId| combined.demands.iter().any(|demand| demand.rule == *rule);
    if !unsatisfied.iter().all(demanded) {
        return (combined.votes, combined.demands.clone());
    }
    let is_new = |demand: &&Demand| unsatisfied.contains(&demand.rule);
    let demands: Vec<Demand> = combined.demands.iter().filter(is_new).cloned().collect();
    (Demand::votes(&demands), demands)
}

/// The text for people when a call is asked about again because of its files.
const FILES_CHANGED: &str = "A file that the call names has changed since it was approved";

fn join(first: String, second: String) -> String {
    format!("{first}. {second}")
}

/// Nothing happened. The call is ready again; after the end of the run it stays not executed (rule 5).
pub(super) fn give_back(draft: &mut Draft<'_>, no: CallNo, attempt: u32) -> Result<Answer, Refusal> {
    let call = call(draft, no)?;
    refuse_unless_current(&call, attempt)?;
    draft.emit(Event::CallReturned(CallReturned { call: no, attempt }));
    Ok(Answer::Done)
}

pub(super) fn progress(
    draft: &mut Draft<'_>,
    no: CallNo,
    note: &Body,
    processing: Option<bool>,
) -> Result<Answer, Refusal> {
    draft.refuse_if_ended()?;
    let call = call(draft, no)?;
    match call.state {
        CallState::Started { .. } | CallState::Held => {}
        CallState::Ready if draft.run.facts.driver.is_elsewhere() => {}
        CallState::Ready | CallState::Done(_) => return Err(Refusal::CallNotReady(no)),
    }
    draft.emit(Event::CallProgressed(CallProgressed { call: no, note: note.clone(), processing }));
    Ok(Answer::Done)
}

pub(super) fn finish(draft: &mut Draft<'_>, finish: &FinishCall) -> Result<Answer, Refusal> {
    refuse_if_erased(draft)?;
    let this = CallAttempt { call: finish.call, attempt: finish.attempt };
    let finished = CallFinished {
        call: finish.call,
        attempt: finish.attempt,
        result: finish.result.clone(),
        refused: None,
    };
    if draft.run.state.disowned.contains(&this) {
        draft.emit(Event::CallContradicted(finished));
        return Ok(Answer::Contradicted);
    }
    let call = call(draft, finish.call)?;
    let stale = Refusal::StaleAttempt { call: call.no, attempt: finish.attempt, current: call.attempt };
    if call.attempt != finish.attempt {
        return Err(stale);
    }
    match call.state {
        CallState::Started { .. } => draft.emit(Event::CallFinished(finished)),
        // Declared idempotent and found orphaned, but it had run after all: no need to run it again.
        CallState::Ready if call.attempt > 0 && call.replay == Replay::Idempotent => {
            draft.emit(Event::CallFinished(finished));
        }
        // An outside worker starts what it was allowed to by itself; its report is its word.
        CallState::Ready if draft.run.facts.driver.is_elsewhere() => {
            super::outside::refuse_unless_claimed_by(draft, finish.worker.as_ref())?;
            draft.emit(Event::CallFinished(finished));
        }
        CallState::Held => answer_recovery(draft, finish)?,
        // The truth about an unknown outcome is welcome however late, from whoever was allowed to run the call.
        CallState::Done(CallOutcome::Unknown) if call.worker == finish.worker => {
            draft.emit(Event::CallFinished(finished));
        }
        CallState::Done(CallOutcome::Unknown) => return Err(Refusal::ClaimedByOther { holder: call.worker }),
        CallState::Ready | CallState::Done(_) => return Err(stale),
    }
    Ok(Answer::Done)
}

/// A late true result answers the recovery hold.
fn answer_recovery(draft: &mut Draft<'_>, finish: &FinishCall) -> Result<(), Refusal> {
    let is_asked = |hold: &&Hold| hold.kind == HoldKind::Recovery && hold.call() == finish.call;
    let Some(hold) = draft.run.state.holds.iter().find(is_asked).map(|hold| hold.key) else {
        return Err(Refusal::CallNotReady(finish.call));
    };
    let resolution = match finish.result.clone() {
        ToolResult::Ok(value) => Resolution::Answer { value },
        ToolResult::Failed(error) => Resolution::Fail { error },
    };
    draft.emit(Event::HoldResolved(Box::new(HoldResolved {
        hold,
        resolution,
        role: Some(Role::System),
        in_place_of: None,
        idempotency_key: None,
        late: false,
        judged: None,
        digest: None,
        message: None,
        grant: None,
        origin: None,
    })));
    Ok(())
}

pub(super) fn suspend(draft: &mut Draft<'_>, suspend: &Suspend) -> Result<Answer, Refusal> {
    draft.refuse_if_ended()?;
    super::outside::refuse_unless_gate_asks(draft, suspend)?;
    refuse_over_cap(draft)?;
    let kind = HoldKind::from(suspend.kind);
    let mut policy = match (suspend.kind, suspend.call) {
        (SuspendFor::External, _) => judge::external_policy(suspend.timeout, suspend.ask.child.is_some()),
        (SuspendFor::Input | SuspendFor::Auth, CallNo::RUN) => draft.ctx.definition.holds.clone(),
        (SuspendFor::Input | SuspendFor::Auth, no) => draft.ctx.definition.policy_for(&call(draft, no)?.tool),
    };
    // A sub-run ends by itself; its parent waits without limit (rule 7).
    policy.timeout = suspend.timeout.or(policy.timeout).filter(|_| suspend.ask.child.is_none());
    if suspend.call == CallNo::RUN {
        may_suspend_run(draft, suspend)?;
    } else {
        may_suspend_call(draft, suspend)?;
    }
    let opening = NewHold {
        call: suspend.call,
        kind,
        policy,
        ask: suspend.ask.clone(),
        secret: suspend.secret,
        ..NewHold::default()
    };
    judge::open(draft, opening);
    if draft.run.state.claim.is_some() && suspend.call == CallNo::RUN {
        super::clock::unreported_calls_are_unknown(draft);
        draft.emit(Event::RunReleased(RunReleased { why: ReleaseReason::Suspended, retry_at: None }));
    }
    Ok(Answer::Done)
}

fn may_suspend_run(draft: &Draft<'_>, suspend: &Suspend) -> Result<(), Refusal> {
    match draft.run.facts.driver {
        Driver::Outside | Driver::Gate => {
            super::outside::refuse_unless_claimed_by(draft, suspend.worker.as_ref())
        }
        Driver::Loop if draft.run.is_blocked() => Err(Refusal::CallNotReady(CallNo::RUN)),
        Driver::Loop => Ok(()),
    }
}

fn may_suspend_call(draft: &Draft<'_>, suspend: &Suspend) -> Result<(), Refusal> {
    if draft.run.facts.driver.is_elsewhere() {
        super::outside::refuse_unless_claimed_by(draft, suspend.worker.as_ref())?;
    }
    let call = call(draft, suspend.call)?;
    match call.state {
        // A node begins every call first, in the same append if need be: policy is asked directly before.
        CallState::Started { .. } => refuse_unless_current(&call, suspend.attempt)?,
        CallState::Ready if draft.run.facts.driver.is_elsewhere() => {}
        CallState::Ready | CallState::Held | CallState::Done(_) => {
            return Err(Refusal::CallNotReady(call.no));
        }
    }
    if suspend.ask.child.is_some() {
        let limits = draft.ctx.limits;
        if draft.run.state.children >= limits.children {
            return Err(Refusal::Cap { what: CapKind::Children, max: limits.children });
        }
        if draft.run.facts.parent.map_or(0, |parent| parent.depth) >= limits.depth {
            return Err(Refusal::Cap { what: CapKind::Depth, max: limits.depth });
        }
    }
    Ok(())
}

pub(super) fn orphan(
    draft: &mut Draft<'_>,
    (no, attempt): (CallNo, u32),
    node: Incarnation,
    (why, reconciled): (&OrphanCause, Option<&Reconciliation>),
) -> Result<Answer, Refusal> {
    let call = call(draft, no)?;
    refuse_unless_current(&call, attempt)?;
    let CallState::Started { node: starter, start_by } = call.state else {
        return Err(Refusal::CallNotReady(no));
    };
    let from = start_by.plus(draft.ctx.limits.orphan_margin);
    if node != starter && draft.now < from {
        return Err(Refusal::NotOrphanedYet { call: no, from });
    }
    // What happened needs neither another start nor a person. That it did not happen is for a person to weigh: it may only
    // not have happened yet.
    let happened = reconciled.filter(|found| found.says == EffectAnswer::Happened);
    let is_idempotent = call.replay == Replay::Idempotent && attempt < draft.ctx.limits.call_attempts;
    let may_retry = happened.is_none() && is_idempotent;
    let then = match draft.run.state.stage {
        Stage::Ended(_) => AfterOrphan::Unknown,
        Stage::Thinking { .. } | Stage::Acting if may_retry || Mutant::OrphanRetriedBlindly.is_on() => {
            AfterOrphan::Retry
        }
        Stage::Thinking { .. } | Stage::Acting => AfterOrphan::Ask,
    };
    draft.emit(Event::CallOrphaned(CallOrphaned {
        call: no,
        attempt,
        then,
        why: Some(why.clone()),
        reconciled: reconciled.cloned().map(Box::new),
    }));
    match happened {
        Some(found) => draft.emit(Event::CallFinished(CallFinished {
            call: no,
            attempt,
            result: ToolResult::Ok(found.result()),
            refused: None,
        })),
        None if then == AfterOrphan::Ask => judge::open_recovery(draft, (no, attempt), reconciled),
        None => {}
    }
    Ok(Answer::Done)
}

fn call(draft: &Draft<'_>, no: CallNo) -> Result<Call, Refusal> {
    draft.run.call(no).cloned().ok_or(Refusal::NoSuchCall(no))
}

/// A result would bring back contents that were deleted.
fn refuse_if_erased(draft: &Draft<'_>) -> Result<(), Refusal> {
    if draft.run.state.erased { Err(Refusal::Erased) } else { Ok(()) }
}

fn refuse_unless_current(call: &Call, attempt: u32) -> Result<(), Refusal> {
    match call.state {
        CallState::Started { .. } if call.attempt == attempt => Ok(()),
        CallState::Started { .. } => {
            Err(Refusal::StaleAttempt { call: call.no, attempt, current: call.attempt })
        }
        CallState::Ready | CallState::Held | CallState::Done(_) => Err(Refusal::CallNotReady(call.no)),
    }
}

/// A recovery hold opens whatever the cap says: an unknown outcome is never dropped.
fn refuse_over_cap(draft: &Draft<'_>) -> Result<(), Refusal> {
    let max = draft.ctx.limits.open_holds;
    if draft.run.state.holds.len() >= max {
        Err(Refusal::Cap { what: CapKind::OpenHolds, max: u32::try_from(max).unwrap_or(u32::MAX) })
    } else {
        Ok(())
    }
}
