//! Every decision, on every surface, comes through here: who, which digest, whether still open.
//!
//! In what role the sender may decide is worked out before (`Context::authority`). What each answer means for each
//! kind of hold is the table in `apply.rs`; what silence does is `clock.rs`.

use super::judge;
use super::{Answer, Draft};
use crate::body::Body;
use crate::command::{Choice, Decide, Edit, Reject, Resolve};
use crate::definition::ToolSpec;
use crate::digest::{self, Digest};
use crate::event::{Driver, Event, HoldEdited, HoldResolved, HoldVoted, Outcome, RunRepinned, ShownSchema};
use crate::hold::{Demand, EditedArguments, Hold, HoldKind, OnDeny, RecordedDecision, Resolution};
use crate::id::{CallNo, HoldKey};
use crate::json::RawJson;
use crate::message::{Message, PolicyVerdict};
use crate::mutant::Mutant;
use crate::name::{RuleId, UserId};
use crate::policy::{CombinedVerdict, Effect, Role};
use crate::refusal::Refusal;
use crate::run::{Call, CallState};

pub(super) fn resolve(
    draft: &mut Draft<'_>,
    wanted: &Resolve,
    open_before: &[HoldKey],
) -> Result<Answer, Refusal> {
    let key = wanted.decide.hold;
    let Some(hold) = draft.run.hold(key).cloned() else {
        return closed(draft, key, open_before, Some(wanted));
    };
    let role = authority(draft, key)?;
    let is_withdrawable = hold.kind == HoldKind::External && hold.child.is_none();
    let is_taken = match &wanted.resolution {
        Choice::Withdraw => is_withdrawable,
        Choice::ApproveEdited { .. } => hold.kind == HoldKind::Approval,
        Choice::Approve | Choice::Deny { .. } | Choice::Answer { .. } | Choice::Fail { .. } => {
            hold.kind.takes(&wanted.resolution.plain())
        }
    };
    // The outcome of a sub-run is the sub-run's to say. The server itself says nothing else, except that a tool which
    // finds out by itself how things are outside may look again.
    let is_others = match role {
        Role::System => hold.child.is_none() && !hold.resumes,
        Role::Owner | Role::Approver | Role::Admin | Role::Callback | Role::Delegate => hold.child.is_some(),
    };
    if !is_taken || is_others {
        return Err(Refusal::WrongKind { hold: draft.run.hold_id(key), kind: hold.kind });
    }
    refuse_if_stale(draft, &hold, &wanted.decide)?;
    let hold = tightened(draft, hold);
    match &wanted.resolution {
        Choice::Approve if !decides_alone(draft, &hold) => cast_vote(draft, &hold, role, Some(wanted)),
        Choice::ApproveEdited { arguments } => {
            let change = checked_edit(draft, &hold, arguments)?;
            if !decides_alone(draft, &hold) || change.needs_new_decision {
                let change = Change { message: wanted.message.clone(), ..change };
                return Ok(emit_edit(draft, &hold, change, role));
            }
            let resolution = Resolution::Approve { edited: Some(change.edited) };
            emit(draft, &hold, wanted, resolution, role, Some(change.verdict.judged));
            Ok(Answer::Done)
        }
        Choice::Approve
        | Choice::Deny { .. }
        | Choice::Answer { .. }
        | Choice::Fail { .. }
        | Choice::Withdraw => {
            emit(draft, &hold, wanted, wanted.resolution.plain(), role, None);
            after_deny(draft, &hold, &wanted.resolution);
            Ok(Answer::Done)
        }
    }
}

/// Several holds at once: where one is refused, none is decided.
pub(super) fn resolve_all(
    draft: &mut Draft<'_>,
    each: &[Resolve],
    open_before: &[HoldKey],
) -> Result<Answer, Refusal> {
    let before = (draft.run.clone(), draft.events.len(), draft.cancel_children.len());
    let mut answer = Answer::Repeated;
    for (index, wanted) in each.iter().enumerate() {
        // One of them ended the run, as its policy says: the others are withdrawn with it.
        if index > 0 && draft.run.outcome().is_some() {
            break;
        }
        match resolve(draft, wanted, open_before) {
            Ok(one) if index == 0 => answer = one,
            Ok(_) => {}
            Err(refusal) => {
                let (run, events, children) = before;
                draft.run = run;
                draft.events.truncate(events);
                draft.cancel_children.truncate(children);
                return Err(refusal);
            }
        }
    }
    Ok(answer)
}

/// The denial is on record before the run ends by it. What nobody can deny (a job elsewhere, an unknown outcome) is
/// withdrawn by the end.
pub(super) fn reject(
    draft: &mut Draft<'_>,
    reject: &Reject,
    open_before: &[HoldKey],
) -> Result<Answer, Refusal> {
    for key in &reject.holds {
        if draft.run.hold(*key).is_none() {
            return closed(draft, *key, open_before, None);
        }
    }
    draft.refuse_if_ended()?;
    let role = match reject.holds.first() {
        Some(first) => authority(draft, *first)?,
        None => authority_over_the_run(draft)?,
    };
    for key in &reject.holds {
        let Some(hold) = draft.run.hold(*key).cloned() else { continue };
        let takes_a_no = match hold.kind {
            HoldKind::Approval | HoldKind::Input | HoldKind::Auth => true,
            HoldKind::External | HoldKind::Recovery => false,
        };
        if takes_a_no {
            let in_place_of = in_place_of(draft, &hold, role);
            draft.emit(Event::HoldResolved(Box::new(HoldResolved {
                hold: hold.key,
                resolution: Resolution::Deny { reason: reject.reason.clone() },
                role: Some(role),
                in_place_of,
                idempotency_key: reject.idempotency_key.clone(),
                late: hold.expired_at.is_some(),
                judged: None,
                digest: None,
                message: None,
                grant: None,
                origin: None,
            })));
        }
    }
    draft.end(Outcome::Canceled, reject.reason.clone(), None);
    Ok(Answer::Done)
}

pub(super) fn vote(
    draft: &mut Draft<'_>,
    decide: &Decide,
    open_before: &[HoldKey],
) -> Result<Answer, Refusal> {
    let Some(hold) = draft.run.hold(decide.hold).cloned() else {
        return closed(draft, decide.hold, open_before, None);
    };
    let role = authority(draft, decide.hold)?;
    if hold.kind != HoldKind::Approval {
        return Err(Refusal::WrongKind { hold: draft.run.hold_id(decide.hold), kind: hold.kind });
    }
    refuse_if_stale(draft, &hold, decide)?;
    cast_vote(draft, &hold, role, None)
}

pub(super) fn edit(draft: &mut Draft<'_>, edit: &Edit, open_before: &[HoldKey]) -> Result<Answer, Refusal> {
    let key = edit.decide.hold;
    let Some(hold) = draft.run.hold(key).cloned() else {
        return closed(draft, key, open_before, None);
    };
    let role = authority(draft, key)?;
    if hold.kind != HoldKind::Approval {
        return Err(Refusal::WrongKind { hold: draft.run.hold_id(key), kind: hold.kind });
    }
    refuse_if_stale(draft, &hold, &edit.decide)?;
    let change = checked_edit(draft, &hold, &edit.arguments)?;
    Ok(emit_edit(draft, &hold, change, role))
}

/// Moves the run to another definition; a hold that said something pinned is gone is answered by it.
pub(super) fn repin(draft: &mut Draft<'_>, definition: Digest) -> Result<Answer, Refusal> {
    draft.refuse_if_ended()?;
    let started = |call: &&crate::run::Call| matches!(call.state, CallState::Started { .. });
    if let Some(call) = draft.run.state.calls.iter().find(started) {
        return Err(Refusal::CallStarted(call.no));
    }
    let blocking = draft.run.state.holds.iter().find(|hold| hold.call() == CallNo::RUN).cloned();
    let role = authority_over_the_run(draft)?;
    if draft.run.state.definition == definition {
        return Ok(Answer::Repeated);
    }
    let shown = shown_schemas(draft);
    draft.emit(Event::RunRepinned(RunRepinned { definition, shown }));
    // On an outside run it would be the worker's own question.
    let is_about_the_pin =
        |hold: &Hold| hold.kind == HoldKind::Input && draft.run.facts.driver == Driver::Loop;
    if let Some(hold) = blocking.filter(is_about_the_pin) {
        let value = Body::text(format!("moved to definition {definition}"));
        draft.emit(resolved(&hold, Resolution::Answer { value }, Some(role)));
    }
    Ok(Answer::Done)
}

/// What the unsettled calls were shown with: remembered over the move, so that a call is asked about again exactly when
/// its tool is another one now, and altered arguments are still found out.
fn shown_schemas(draft: &Draft<'_>) -> Vec<ShownSchema> {
    let is_unsettled = |call: &&Call| !matches!(call.state, CallState::Done(_));
    let shown = |call: &Call| {
        let pinned = draft.ctx.definition.tools.get(&call.tool).map(ToolSpec::schema_digest);
        call.schema.or(pinned).map(|schema| ShownSchema { call: call.no, schema })
    };
    draft.run.state.calls.iter().filter(is_unsettled).filter_map(shown).collect()
}

/// What is said of a hold that is not open: who decided it and when, or that its time had passed.
pub(super) fn closed(
    draft: &Draft<'_>,
    key: HoldKey,
    open_before: &[HoldKey],
    wanted: Option<&Resolve>,
) -> Result<Answer, Refusal> {
    // Who may not decide it learns nothing about it.
    authority(draft, key)?;
    if open_before.contains(&key) {
        return Err(closed_by_time(draft, key));
    }
    match draft.ctx.recorded {
        Some(recorded)
            if recorded.by == draft.actor && wanted.is_some_and(|wanted| is_repeat(wanted, recorded)) =>
        {
            Ok(Answer::Repeated)
        }
        Some(recorded) => Err(Refusal::AlreadyDecided(Box::new(recorded.clone()))),
        None => Err(Refusal::NoSuchHold(draft.run.hold_id(key))),
    }
}

/// Time closed it before this command: its own deadline did, or the end of the run.
fn closed_by_time(draft: &Draft<'_>, key: HoldKey) -> Refusal {
    let expired = draft.events.iter().any(|envelope| {
        let Event::HoldResolved(resolved) = &envelope.event else { return false };
        resolved.hold == key && resolved.resolution == Resolution::Expire
    });
    match draft.run.outcome() {
        Some(outcome) if !expired => Refusal::Ended(outcome),
        Some(_) | None => Refusal::Expired(draft.run.hold_id(key)),
    }
}

/// The same decision with the same key, and only with a key, is a repeat.
fn is_repeat(wanted: &Resolve, recorded: &RecordedDecision) -> bool {
    let same_decision = match (&wanted.resolution, &recorded.resolution) {
        (Choice::ApproveEdited { arguments }, Resolution::Approve { edited: Some(edited) }) => {
            edited.arguments.inline() == Some(arguments.text())
        }
        (Choice::ApproveEdited { .. }, _) => false,
        (wanted, recorded) => wanted.plain() == *recorded,
    };
    same_decision && wanted.idempotency_key.is_some() && wanted.idempotency_key == recorded.idempotency_key
}

/// In which role the sender decides this hold. Where rules demand somebody, it must be one of those for one of them.
pub(super) fn authority(draft: &Draft<'_>, key: HoldKey) -> Result<Role, Refusal> {
    let counts = |hold: &Hold| hold.demands.is_empty() || !counted(draft, hold).is_empty();
    role(draft)
        .filter(|_| draft.run.hold(key).is_none_or(counts) || Mutant::AuthorityUnchecked.is_on())
        .ok_or_else(|| Refusal::NotAllowed(Some(draft.run.hold_id(key))))
}

/// The rules of a hold whose demands the sender counts for.
pub(super) fn counted(draft: &Draft<'_>, hold: &Hold) -> Vec<RuleId> {
    let stands_in = draft.ctx.actor.user().filter(|_| draft.ctx.authority == Some(Role::Delegate));
    let place = stands_in.and_then(|who| hold.delegated_to(who, draft.now).next());
    // Whoever stands in counts for what the other one counts for.
    let counts_for = place.map_or(draft.ctx.counts_for, |place| place.counts_for.as_slice());
    let rules = hold.demands.iter().map(|demand| &demand.rule);
    rules.filter(|rule| counts_for.contains(rule)).cloned().collect()
}

/// Whether the sender's yes is enough: one is, and they count for every rule. Whom rules name may have changed since the hold
/// opened, so that nothing in it says that several people are needed.
fn decides_alone(draft: &Draft<'_>, hold: &Hold) -> bool {
    !hold.has_quorum() && counted(draft, hold).len() == hold.demands.len()
}

/// In which role the sender changes the run itself. Whoever may not gets no hold id.
fn authority_over_the_run(draft: &Draft<'_>) -> Result<Role, Refusal> {
    role(draft).ok_or(Refusal::NotAllowed(None))
}

fn role(draft: &Draft<'_>) -> Option<Role> {
    let unchecked = Mutant::AuthorityUnchecked.is_on().then_some(Role::Owner);
    draft.ctx.authority.or(unchecked)
}

fn refuse_if_stale(draft: &Draft<'_>, hold: &Hold, decide: &Decide) -> Result<(), Refusal> {
    let digest = draft.run.call(hold.call()).and_then(|call| call.digest);
    let (hold, revision) = (draft.run.hold_id(hold.key), hold.revision);
    let has_other_digest = decide.digest.is_some_and(|seen| Some(seen) != digest);
    if has_other_digest || decide.revision.is_some_and(|seen| seen != revision) {
        return Err(Refusal::Stale { hold, digest, revision });
    }
    if revision > 0 && decide.digest.is_none() && decide.revision.is_none() {
        return Err(Refusal::MustRepeatDigest { hold, digest, revision });
    }
    Ok(())
}

/// In whose place the sender decides.
fn in_place_of(draft: &Draft<'_>, hold: &Hold, role: Role) -> Option<UserId> {
    let who = draft.ctx.actor.user().filter(|_| role == Role::Delegate)?;
    hold.delegated_to(who, draft.now).next().map(|one| one.by.clone())
}

/// A hold with what its rules demand now, where that is more: rules may only become stricter while it waits.
fn tightened(draft: &Draft<'_>, mut hold: Hold) -> Hold {
    if hold.demands.is_empty() {
        return hold;
    }
    let now = judge::verdict(draft, hold.call()).demands;
    for demand in &mut hold.demands {
        let quorum = now.iter().filter(|now| now.rule == demand.rule).map(|now| now.quorum).max();
        demand.quorum = quorum.unwrap_or(0).max(demand.quorum);
    }
    hold
}

/// Each person counts once; the last one needed decides.
fn cast_vote(
    draft: &mut Draft<'_>,
    hold: &Hold,
    role: Role,
    wanted: Option<&Resolve>,
) -> Result<Answer, Refusal> {
    let Some(by) = draft.ctx.actor.user().cloned() else {
        return Err(Refusal::NotAllowed(Some(draft.run.hold_id(hold.key))));
    };
    let place = in_place_of(draft, hold, role);
    let counts_already = |who: &UserId| hold.votes.contains(who) || hold.stood_in.contains(who);
    // Neither a person nor a place counts twice.
    if counts_already(&by) || place.as_ref().is_some_and(counts_already) {
        return Ok(Answer::Repeated);
    }
    draft.emit(Event::HoldVoted(HoldVoted {
        hold: hold.key,
        by,
        role,
        in_place_of: place.clone(),
        counts_for: counted(draft, hold),
        message: wanted.and_then(|wanted| wanted.message.clone()),
    }));
    let missing = draft.run.hold(hold.key).cloned().map_or(0, |hold| tightened(draft, hold).votes_missing());
    if missing > 0 {
        let votes = u32::try_from(hold.votes.len() + 1).unwrap_or(u32::MAX);
        return Ok(Answer::Voted { votes, needed: votes.saturating_add(missing) });
    }
    let digest = draft.run.call(hold.call()).and_then(|call| call.digest);
    draft.emit(Event::HoldResolved(Box::new(HoldResolved {
        hold: hold.key,
        resolution: Resolution::Approve { edited: None },
        role: Some(role),
        in_place_of: place,
        idempotency_key: wanted.and_then(|wanted| wanted.idempotency_key.clone()),
        late: hold.expired_at.is_some(),
        judged: None,
        digest,
        message: None,
        grant: None,
        origin: None,
    })));
    Ok(Answer::Done)
}

/// Edited arguments that policy has looked at.
struct Change {
    edited: EditedArguments,
    verdict: CombinedVerdict,
    /// A rule that this hold's deciders were not shown holds the new arguments.
    needs_new_decision: bool,
    /// They are what they were.
    asked_again: bool,
    /// The message that they came with.
    message: Option<Box<Message>>,
}

fn checked_edit(draft: &Draft<'_>, hold: &Hold, arguments: &RawJson) -> Result<Change, Refusal> {
    let forbidden = |reason: String| Refusal::Forbidden { hold: draft.run.hold_id(hold.key), reason };
    let Some(call) = draft.run.call(hold.call()) else { return Err(Refusal::NoSuchCall(hold.call())) };
    let Some(schema) = judge::schema_of(draft, &call.tool) else {
        return Err(forbidden(format!("the agent no longer has a tool {}", call.tool)));
    };
    let verdict = judge::verdict(draft, call.no);
    if verdict.judged.effect == Effect::Deny {
        return Err(forbidden(verdict.reason.clone().unwrap_or_else(|| judge::forbidden(&verdict.judged))));
    }
    let files = draft.ctx.verdicts.files(call.no);
    let digest = digest::of_call_with(&call.tool, arguments.text(), schema, digest::of_files(&files));
    let revision = hold.revision + 1;
    let edited = EditedArguments { arguments: Body::Json(arguments.clone()), digest, revision, files };
    let needs_new_decision = !judge::unsatisfied(&verdict.judged, &hold.rules).is_empty();
    // What was shown is known by its digest, with the files that it named then.
    let as_shown = digest::of_call_with(&call.tool, arguments.text(), schema, call.files);
    let asked_again = call.digest == Some(as_shown);
    Ok(Change { edited, verdict, needs_new_decision, asked_again, message: None })
}

fn emit_edit(draft: &mut Draft<'_>, hold: &Hold, change: Change, role: Role) -> Answer {
    let votes = change.verdict.votes.max(hold.votes_needed);
    // What the old arguments demanded stays: an edit does not bypass anybody.
    let demands = Demand::listed(hold.demands.iter().cloned().chain(change.verdict.demands));
    draft.emit(Event::HoldEdited(HoldEdited {
        hold: hold.key,
        edited: change.edited,
        judged: change.verdict.judged,
        votes_needed: if votes > 1 { votes } else { 0 },
        demands,
        stakes: draft.ctx.verdicts.terms(hold.call()).stakes,
        reason: change.verdict.reason,
        asked_again: change.asked_again,
        role,
        message: change.message,
    }));
    Answer::Edited
}

fn emit(
    draft: &mut Draft<'_>,
    hold: &Hold,
    wanted: &Resolve,
    resolution: Resolution,
    role: Role,
    judged: Option<PolicyVerdict>,
) {
    let shown = draft.run.call(hold.call()).and_then(|call| call.digest);
    let digest = match &resolution {
        Resolution::Approve { edited: Some(edited) } => Some(edited.digest),
        Resolution::Approve { edited: None } => shown,
        Resolution::Deny { .. }
        | Resolution::Answer { .. }
        | Resolution::Fail { .. }
        | Resolution::Expire
        | Resolution::Withdraw
        | Resolution::Supersede => None,
    };
    let is_as_shown = matches!(resolution, Resolution::Approve { edited: None });
    let grant = match hold.kind {
        HoldKind::Approval if is_as_shown => draft.ctx.verdicts.saved_grant(hold.call()).map(Box::new),
        HoldKind::Approval | HoldKind::Input | HoldKind::External | HoldKind::Auth | HoldKind::Recovery => {
            None
        }
    };
    let in_place_of = in_place_of(draft, hold, role);
    draft.emit(Event::HoldResolved(Box::new(HoldResolved {
        hold: hold.key,
        resolution,
        role: Some(role),
        in_place_of,
        idempotency_key: wanted.idempotency_key.clone(),
        late: hold.expired_at.is_some(),
        judged,
        digest,
        message: wanted.message.clone(),
        grant,
        origin: None,
    })));
}

fn resolved(hold: &Hold, resolution: Resolution, role: Option<Role>) -> Event {
    Event::HoldResolved(Box::new(HoldResolved {
        hold: hold.key,
        resolution,
        role,
        in_place_of: None,
        idempotency_key: None,
        late: false,
        judged: None,
        digest: None,
        message: None,
        grant: None,
        origin: None,
    }))
}

/// Deny tells the model, or ends the run, as the hold's policy says (C4). On a recovery hold it is a statement of
/// fact, not a refusal.
fn after_deny(draft: &mut Draft<'_>, hold: &Hold, wanted: &Choice) {
    let Choice::Deny { reason } = wanted else { return };
    let blocks_the_loop = hold.call() == CallNo::RUN && draft.run.facts.driver == Driver::Loop;
    if blocks_the_loop {
        draft.end(Outcome::Failed, reason.clone(), None);
    } else if hold.kind != HoldKind::Recovery && hold.policy.on_deny == OnDeny::Cancel {
        draft.end(Outcome::Canceled, reason.clone(), None);
    }
}
