//! The fold: how each event changes a run.
//!
//! Never fails and never refuses: whether an event may happen was settled by `decide` before it was stored. An event
//! that names a call or hold the run does not have changes nothing, so that a damaged log cannot bring a node down.

use crate::actor::Actor;
use crate::approver::Approver;
use crate::digest;
use crate::event::{
    AfterOrphan, Driver, Envelope, Event, HoldEscalated, HoldOpened, HoldResolved, ReleaseReason, RunStarted,
};
use crate::hold::{Demand, Escalation, Hold, HoldKind, Resolution};
use crate::id::{CallNo, HoldKey, RunId};
use crate::message::{ToolCall, ToolResult};
use crate::mutant::Mutant;
use crate::name::RuleId;
use crate::policy::Effect;
use crate::run::{Call, CallAttempt, CallOutcome, CallState, Facts, InboxEntry, Run, Stage, State};
use crate::time::Timestamp;
use crate::transcript;

/// Folds a whole log. None when it is empty or does not begin with `run.started`.
#[must_use]
pub fn fold<'a>(id: RunId, events: impl IntoIterator<Item = &'a Envelope>) -> Option<Run> {
    let mut events = events.into_iter();
    let mut run = begin(id, events.next()?)?;
    events.for_each(|envelope| apply(&mut run, envelope));
    Some(run)
}

/// The run after its first event.
#[must_use]
pub fn begin(id: RunId, first: &Envelope) -> Option<Run> {
    let Event::RunStarted(started) = &first.event else { return None };
    Some(Run { facts: facts(id, first, started), state: fresh(first, started) })
}

/// The run after one more event.
pub fn apply(run: &mut Run, envelope: &Envelope) {
    let was_held = run.is_held();
    run.state.seq = envelope.seq;
    run.state.at = envelope.at;
    change(run, envelope);
    run.state.results = match (run.facts.driver, run.state.stage) {
        (Driver::Loop, Stage::Thinking { .. } | Stage::Acting) => {
            transcript::digest::after(run.state.results, &envelope.event)
        }
        // There is no model to ask.
        (Driver::Loop, Stage::Ended(_)) | (Driver::Outside | Driver::Gate, _) => None,
    };
    settle_turn(run);
    // An outside worker that waited for a person gets its full time again.
    if was_held
        && !run.is_held()
        && let Some(claim) = &mut run.state.claim
    {
        claim.until = envelope.at.plus(claim.period);
    }
}

fn change(run: &mut Run, envelope: &Envelope) {
    let state = &mut run.state;
    match &envelope.event {
        Event::RunStarted(_) => {}
        Event::RunClaimed(claimed) => {
            state.claimed = true;
            state.claimable_at = None;
            state.asked = false;
            if let Some(claim) = &claimed.claim {
                state.claims = claim.attempt;
                state.claim = Some(claim.clone());
            }
        }
        Event::RunReleased(released) => {
            state.claim = None;
            state.claimable_at = released.retry_at;
            state.asked = released.why == ReleaseReason::Suspended;
            state.suspensions += u32::from(state.asked);
        }
        Event::RunRepinned(repinned) => {
            state.definition = repinned.definition;
            for shown in &repinned.shown {
                with_call(state, shown.call, |call| call.schema = Some(shown.schema));
            }
        }
        Event::RunErased(_) => state.erased = true,
        Event::RunEnded(ended) => {
            state.stage = Stage::Ended(ended.outcome);
            state.claim = None;
            state.claimable_at = None;
        }
        Event::MessageReceived(_) | Event::MessageQueued(_) => state.messages += 1,
        Event::ModelReplied(replied) => {
            state.turn += 1;
            state.claimed = false;
            state.usage = state.usage.plus(replied.reply.usage);
            state.replied_at = envelope.seq;
            state.request = None;
            state.calls_made += u32::try_from(replied.reply.calls.len()).unwrap_or(u32::MAX);
            state.calls = replied.reply.calls.iter().map(|call| proposed(call, envelope)).collect();
            state.stage = if replied.reply.calls.is_empty() {
                Stage::Thinking { failures: 0, retry_at: None }
            } else {
                Stage::Acting
            };
        }
        Event::ModelFailed(failed) => {
            state.claimed = state.turn == 0;
            state.stage = Stage::Thinking { failures: failed.failures, retry_at: failed.retry_at };
        }
        Event::CallProposed(asked) => {
            // Of settled calls only those that may still get a true result are remembered.
            state.calls.retain(|call| !is_settled_for_good(call));
            state.calls_made += 1;
            if state.holds.is_empty() {
                state.request = None;
            }
            let worker = Some(asked.worker.clone());
            state.calls.push(Call { worker, ..proposed(&asked.call, envelope) });
        }
        Event::CallStarted(started) => {
            let (node, start_by) = (started.node, started.start_by);
            with_call(state, started.call, |call| {
                call.attempt = started.attempt;
                call.state = CallState::Started { node, start_by };
            });
        }
        Event::CallReturned(returned) => {
            let is_over = matches!(state.stage, Stage::Ended(_));
            with_call(state, returned.call, |call| {
                call.state = match (is_over, returned.attempt) {
                    (false, _) => CallState::Ready,
                    // After the end there is no second try: it never ran …
                    (true, 0 | 1) => CallState::Done(CallOutcome::NotExecuted),
                    // … unless an earlier start, of which nobody has told, did.
                    (true, _) => CallState::Done(CallOutcome::Unknown),
                };
            });
        }
        Event::CallProgressed(progressed) => {
            if let Some(processing) = progressed.processing {
                let of_call = |hold: &&mut Hold| hold.key.call == progressed.call;
                state.holds.iter_mut().filter(of_call).for_each(|hold| hold.processing = processing);
            }
        }
        Event::CallFinished(finished) => {
            let settled = match (&finished.refused, &finished.result) {
                (Some(_), _) => CallOutcome::Refused,
                (None, ToolResult::Ok(_)) => CallOutcome::Ok,
                (None, ToolResult::Failed(_)) => CallOutcome::Failed,
            };
            with_call(state, finished.call, |call| call.state = CallState::Done(settled));
        }
        Event::CallOrphaned(orphaned) => with_call(state, orphaned.call, |call| match orphaned.then {
            AfterOrphan::Retry => call.state = CallState::Ready,
            // The recovery hold that follows in the same link says what it waits for.
            AfterOrphan::Ask => {}
            AfterOrphan::Unknown => call.state = CallState::Done(CallOutcome::Unknown),
        }),
        Event::CallContradicted(finished) => {
            let this = CallAttempt { call: finished.call, attempt: finished.attempt };
            state.disowned.retain(|attempt| *attempt != this);
        }
        Event::HoldOpened(opened) => open(state, envelope, opened),
        Event::HoldVoted(voted) => {
            with_hold(state, voted.hold, |hold| {
                if !hold.votes.contains(&voted.by) {
                    hold.votes.push(voted.by.clone());
                    let counts = |demand: &&mut Demand| voted.counts_for.contains(&demand.rule);
                    for demand in hold.demands.iter_mut().filter(counts) {
                        demand.agreed.push(voted.by.clone());
                    }
                }
                hold.stood_in.extend(voted.in_place_of.clone());
            });
        }
        Event::HoldEdited(edited) => {
            with_hold(state, edited.hold, |hold| {
                hold.revision = edited.edited.revision;
                hold.votes.clear();
                hold.stood_in.clear();
                hold.votes_needed = edited.votes_needed;
                hold.demands.clone_from(&edited.demands);
                hold.rules = holding_rules(edited.judged.effect, &edited.judged.rules, &hold.rules);
            });
            with_call(state, edited.hold.call, |call| {
                call.at = envelope.seq;
                call.show(Some(edited.edited.digest), &edited.edited.files);
            });
        }
        Event::HoldAssigned(assigned) => {
            with_hold(state, assigned.hold, |hold| {
                hold.assignee.clone_from(&assigned.to);
                hold.assigned_until = assigned.until;
            });
        }
        Event::HoldReminded(reminded) => {
            with_hold(state, reminded.hold, |hold| hold.remind_at = reminded.next_at)
        }
        Event::HoldExpired(expired) => {
            with_hold(state, expired.hold, |hold| hold.expired_at = Some(envelope.at));
        }
        Event::HoldReopened(reopened) => {
            with_hold(state, reopened.hold, |hold| {
                hold.expired_at = None;
                hold.expires_at = reopened.expires_at;
            });
        }
        Event::HoldEscalated(escalated) => {
            let_in(state, &escalated.to);
            with_hold(state, escalated.hold, |hold| escalate(hold, envelope, escalated));
        }
        Event::HoldDelegated(delegated) => {
            let_in(state, &[Approver::User(delegated.delegation.to.clone())]);
            with_hold(state, delegated.hold, |hold| {
                // One place is given to one person at a time.
                hold.delegations.retain(|one| one.by != delegated.delegation.by);
                hold.delegations.push(delegated.delegation.clone());
            });
        }
        Event::HoldResolved(resolved) => {
            run.state.request = run.request();
            resolve(run, envelope, resolved);
        }
    }
}

fn facts(id: RunId, first: &Envelope, started: &RunStarted) -> Facts {
    Facts {
        id,
        tenant: started.tenant.clone(),
        agent: started.agent.clone(),
        session: started.session.clone(),
        owner: started.owner.clone(),
        driver: started.driver,
        parent: started.parent,
        started_at: first.at,
        inbox: started.inbox.as_ref().map(|inbox| InboxEntry {
            inbox: inbox.inbox.clone(),
            kind: inbox.kind.clone(),
            priority: inbox.priority,
            target_agent: inbox.target_agent.clone(),
            max_attempts: inbox.max_attempts,
            expires_at: inbox.expires_at,
        }),
    }
}

fn fresh(first: &Envelope, started: &RunStarted) -> State {
    State {
        seq: first.seq,
        at: first.at,
        definition: started.definition,
        stage: match started.driver {
            Driver::Loop => Stage::Thinking { failures: 0, retry_at: None },
            Driver::Outside | Driver::Gate => Stage::Acting,
        },
        turn: 0,
        usage: Default::default(),
        replied_at: Default::default(),
        messages: 0,
        calls: Vec::new(),
        results: None,
        calls_made: 0,
        request: None,
        holds: Vec::new(),
        last_decider: None,
        claimed: started.taken,
        claim: None,
        claims: 0,
        suspensions: 0,
        asked: false,
        claimable_at: None,
        disowned: Vec::new(),
        children: 0,
        let_in: Vec::new(),
        erased: false,
    }
}

fn proposed(call: &ToolCall, envelope: &Envelope) -> Call {
    Call {
        no: call.no,
        tool: call.tool.clone(),
        at: envelope.seq,
        digest: call.digest,
        schema: None,
        files: digest::of_files(&call.files),
        revision: 0,
        replay: call.replay,
        attempt: 0,
        satisfied: Vec::new(),
        worker: None,
        state: match call.refused {
            Some(_) => CallState::Done(CallOutcome::Refused),
            None => CallState::Ready,
        },
    }
}

fn open(state: &mut State, envelope: &Envelope, opened: &HoldOpened) {
    state.children += u32::from(opened.ask.child.is_some());
    let rules = opened.judged.as_ref().map(|judged| judged.rules.clone()).unwrap_or_default();
    state.holds.push(Hold {
        key: opened.hold,
        kind: opened.kind,
        at: envelope.seq,
        opened_at: envelope.at,
        rules,
        revision: opened.revision,
        votes_needed: opened.votes_needed,
        votes: Vec::new(),
        demands: opened.demands.clone(),
        expires_at: opened.expires_at,
        expired_at: None,
        // Nobody is notified of a muted hold, so nobody is reminded of it.
        remind_at: opened.remind_at.or_else(|| plain_reminder(envelope, opened)).filter(|_| !opened.muted),
        policy: opened.policy.clone(),
        muted: opened.muted,
        assignee: None,
        assigned_until: None,
        escalations: opened.escalations.clone(),
        escalated: Vec::new(),
        delegations: Vec::new(),
        stood_in: Vec::new(),
        child: opened.ask.child,
        attempt: opened.attempt,
        processing: false,
        resumes: opened.ask.resume.is_some(),
    });
    with_call(state, opened.hold.call, |call| {
        call.state = CallState::Held;
        if opened.digest.is_some() {
            call.show(opened.digest, &opened.files);
            call.revision = call.revision.max(opened.revision);
        }
    });
}

fn resolve(run: &mut Run, envelope: &Envelope, resolved: &HoldResolved) {
    let (driver, state) = (run.facts.driver, &mut run.state);
    let Some(at) = state.holds.iter().position(|hold| hold.key == resolved.hold) else { return };
    let hold =
        if Mutant::DecisionConsumedTwice.is_on() { state.holds[at].clone() } else { state.holds.remove(at) };
    state.last_decider = Some(match resolved.role {
        Some(_) => envelope.actor.clone(),
        // Nobody decided: expired, withdrawn or superseded.
        None => Actor::Clock,
    });
    let is_answer = matches!(resolved.resolution, Resolution::Answer { .. });
    let after = if hold.resumes && is_answer {
        // The answer is for the tool, which goes on with it.
        CallState::Ready
    } else if is_answer && driver == Driver::Gate && hold.kind == HoldKind::Auth {
        // The login is all that was asked for: nothing runs behind it.
        CallState::Done(CallOutcome::Ok)
    } else {
        after_resolution(hold.kind, &resolved.resolution)
    };
    let voids_attempt = hold.kind == HoldKind::Recovery
        && matches!(resolved.resolution, Resolution::Approve { .. } | Resolution::Deny { .. });
    if voids_attempt {
        state.disowned.push(CallAttempt { call: hold.call(), attempt: hold.attempt });
    }
    with_call(state, hold.call(), |call| {
        call.state = after;
        if hold.kind == HoldKind::Approval && after == CallState::Ready {
            call.satisfied.extend(hold.rules.iter().cloned());
            call.satisfied.sort();
            call.satisfied.dedup();
        }
        if let Resolution::Approve { edited: Some(edited) } = &resolved.resolution {
            call.at = envelope.seq;
            call.show(Some(edited.digest), &edited.files);
        }
    });
}

/// Others are asked as well.
fn escalate(hold: &mut Hold, envelope: &Envelope, escalated: &HoldEscalated) {
    let planned = |one: &Escalation| one.to == escalated.to && one.rule == escalated.rule;
    if let Some(at) = hold.escalations.iter().position(planned) {
        hold.escalations.remove(at);
    }
    // Where a rule names its own people, these are among them from now on.
    let concerned = |demand: &&mut Demand| escalated.rule.as_ref().is_none_or(|rule| *rule == demand.rule);
    let named = hold.demands.iter_mut().filter(concerned).filter_map(|one| one.approvers.as_mut());
    named.for_each(|approvers| approvers.extend(escalated.to.iter().cloned()));
    let (to, rule) = (escalated.to.clone(), escalated.rule.clone());
    hold.escalated.push(Escalation { at: envelope.at, to, rule });
}

/// Who is asked later on may see the run.
fn let_in(state: &mut State, who: &[Approver]) {
    for approver in who.iter().filter(|approver| **approver != Approver::Owner) {
        if !state.let_in.contains(approver) {
            state.let_in.push(approver.clone());
        }
    }
}

/// The reminder of a hold that says only after which span.
fn plain_reminder(envelope: &Envelope, opened: &HoldOpened) -> Option<Timestamp> {
    opened.policy.remind_after.filter(|span| span.0 > 0).map(|span| envelope.at.plus(span))
}

/// Where a call stands after its hold was resolved: the one table of what each answer means for each kind.
#[must_use]
pub fn after_resolution(kind: HoldKind, resolution: &Resolution) -> CallState {
    match (kind, resolution) {
        (_, Resolution::Approve { .. }) => CallState::Ready,
        (HoldKind::Recovery, Resolution::Deny { .. }) => CallState::Done(CallOutcome::NotExecuted),
        (_, Resolution::Deny { .. }) => CallState::Done(CallOutcome::Denied),
        // Credentials are there now: the call itself has not run yet.
        (HoldKind::Auth, Resolution::Answer { .. }) => CallState::Ready,
        (_, Resolution::Answer { .. }) => CallState::Done(CallOutcome::Ok),
        (_, Resolution::Fail { .. }) => CallState::Done(CallOutcome::Failed),
        (_, Resolution::Expire) => CallState::Done(CallOutcome::Expired),
        (HoldKind::Recovery, Resolution::Withdraw | Resolution::Supersede) => {
            CallState::Done(CallOutcome::Unknown)
        }
        (_, Resolution::Withdraw | Resolution::Supersede) => CallState::Done(CallOutcome::NotExecuted),
    }
}

/// The model is due again when every call of the turn is done.
fn settle_turn(run: &mut Run) {
    let all_done = || run.state.calls.iter().all(|call| matches!(call.state, CallState::Done(_)));
    match (run.facts.driver, run.state.stage) {
        (Driver::Loop, Stage::Acting) if all_done() => {
            run.state.stage = Stage::Thinking { failures: 0, retry_at: None };
        }
        (
            Driver::Loop | Driver::Outside | Driver::Gate,
            Stage::Thinking { .. } | Stage::Acting | Stage::Ended(_),
        ) => {}
    }
}

fn is_settled_for_good(call: &Call) -> bool {
    matches!(call.state, CallState::Done(settled) if settled != CallOutcome::Unknown)
}

/// The rules that an approval will satisfy: those that hold now, or the ones shown before if nothing holds any more.
fn holding_rules(effect: Effect, rules: &[RuleId], before: &[RuleId]) -> Vec<RuleId> {
    match effect {
        Effect::Hold => rules.to_vec(),
        Effect::Allow | Effect::Deny => before.to_vec(),
    }
}

fn with_call(state: &mut State, no: CallNo, change: impl FnOnce(&mut Call)) {
    if let Some(call) = state.calls.iter_mut().find(|call| call.no == no) {
        change(call);
    }
}

fn with_hold(state: &mut State, key: HoldKey, change: impl FnOnce(&mut Hold)) {
    if let Some(hold) = state.holds.iter_mut().find(|hold| hold.key == key) {
        change(hold);
    }
}
