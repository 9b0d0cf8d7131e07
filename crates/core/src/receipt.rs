//! The receipt of a hold, or of a call that nobody was asked about: what was shown, who decided, and what ran.
//!
//! Made from the log alone, so that it can be made again by anyone who has the log, and says where in the chain each
//! part of it stands. What an outside worker ran is its word, and the receipt says whose. The outcome of each call is
//! `transcript/results.rs`; the walk over the log is `receipt/walk.rs`.

#[cfg(test)]
mod tests;
mod walk;

use serde::Serialize;

use crate::actor::Actor;
use crate::body::Body;
use crate::budget::BudgetTake;
use crate::digest::Digest;
use crate::effect::EffectClaim;
use crate::event::{Envelope, Event};
use crate::grant::{GrantUse, SavedGrant};
use crate::hold::{Ask, Demand, HoldKind, Resolution};
use crate::id::{CallNo, HoldKey, Incarnation, Seq};
use crate::message::{PolicyVerdict, ToolResult, is_default};
use crate::name::{GrantId, RuleId, ToolName, UserId};
use crate::policy::{Effect, Role};
use crate::reconcile::Reconciliation;
use crate::time::Timestamp;
use crate::transcript::ResultKind;
use crate::transcript::results::{self, CallTracks, Execution, Track};

/// What was shown, who decided, and what ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Which hold; absent where nobody was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldKey>,
    /// What it waits, or waited, for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<HoldKind>,
    /// The call as it was proposed, and what policy said of it; absent when the whole run waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedCall>,
    /// What was shown, revision by revision.
    pub shown: Vec<ShownRevision>,
    /// Who agreed, where several must.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<Vote>,
    /// The decision; absent while the hold is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// What became of the call; absent when the whole run waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallReceipt>,
    /// The events that it is made of: its places in the chain.
    pub events: Vec<Seq>,
}

/// A call as the model or a worker proposed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskedCall {
    /// The event.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// Who proposed it.
    pub by: Actor,
    /// The tool.
    pub tool: ToolName,
    /// The argument text, byte for byte.
    pub arguments: Body,
    /// Digest of tool, argument text and schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// What policy said, where it did not hold the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<PolicyVerdict>,
    /// The use of a standing approval that let a call run which is run elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_use: Option<GrantUse>,
}

/// What people were asked to decide on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownRevision {
    /// The event that showed it.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// Who caused it: for a later revision, who edited.
    pub by: Actor,
    /// Counts the edits; what the hold opened with is 0.
    pub revision: u32,
    /// The tool; absent when the whole run waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// The argument text, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Body>,
    /// Digest of tool, argument text and schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// What policy said; absent where no policy was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Effect>,
    /// The rules that said so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleId>,
    /// Digest of the policy they belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Digest>,
    /// The grant that spoke, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
    /// Who had to agree, for each rule; empty where one of the agent's approvers decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub demands: Vec<Demand>,
    /// What was asked beside the call.
    #[serde(skip_serializing_if = "is_default")]
    pub ask: Ask,
}

/// One of several people agreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Vote {
    /// The event.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: UserId,
    /// In what role.
    pub role: Role,
    /// In whose place; absent when in their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place_of: Option<UserId>,
    /// The rules whose demands it counts for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts_for: Vec<RuleId>,
    /// To which revision; an edit makes earlier votes void.
    pub revision: u32,
}

/// How a hold was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The event.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// Who; the clock when nobody did in time.
    pub by: Actor,
    /// In what role; absent for expiry, supersession and the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// In whose place; absent when in their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place_of: Option<UserId>,
    /// What, as one word.
    pub word: DecisionWord,
    /// What, with reason, answer or edited arguments.
    pub resolution: Resolution,
    /// The key that the decision was sent with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// It came after the deadline of a kept hold.
    pub late: bool,
    /// What policy said of edited arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<PolicyVerdict>,
    /// Digest of the call that it lets run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The standing approval that it saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Box<SavedGrant>>,
}

/// A decision as one word, by the kind of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionWord {
    /// It may run.
    Approved,
    /// It may run with other arguments.
    Edited,
    /// It must not run.
    Denied,
    /// It has its answer or its result.
    Answered,
    /// The login is there.
    LoggedIn,
    /// The outside job failed.
    Failed,
    /// Nobody decided in time.
    Expired,
    /// It was withdrawn, or the run ended.
    Withdrawn,
    /// A newer message took its place.
    Superseded,
    /// The unknown outcome is let be: run it again.
    RunAgain,
    /// The unknown outcome: it happened.
    Happened,
    /// The unknown outcome: it did not happen.
    DidNotHappen,
}

/// What became of the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallReceipt {
    /// Which call.
    pub no: CallNo,
    /// What ran, in one word.
    pub effect: CallEffect,
    /// Every start of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Whose word the effect is, when an outside worker ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// Results for starts that a person had declared void.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contradictions: Vec<Contradiction>,
}

/// What ran, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEffect {
    /// It ran.
    Executed,
    /// It ran, or tried to, and failed.
    Failed,
    /// It did not run.
    NotExecuted,
    /// It may have run; nobody knows.
    OutcomeUnknown,
    /// It was started and has not reported yet.
    Running,
    /// It has not been started yet.
    Waiting,
}

/// One start of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// The event.
    pub seq: Seq,
    /// Counts the starts.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// The node that started it.
    pub node: Incarnation,
    /// Digest of the call as it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// What policy said directly before.
    pub judged: PolicyVerdict,
    /// What it claimed in the world.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectClaim>,
    /// What it took from rolling budgets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<BudgetTake>,
    /// The use that it took of a standing approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_use: Option<GrantUse>,
    /// What the read-only call said that its tool names for unknown outcomes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconciled: Option<Box<Reconciliation>>,
}

/// What an outside worker said of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// It reported the result.
    ReportedBy(Actor),
    /// It was allowed to run it and never reported.
    NotReported,
}

/// A result for a start that a person had declared void.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// The event.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// Who reported it.
    pub by: Actor,
    /// Which start.
    pub attempt: u32,
    /// What it reported.
    pub result: ToolResult,
}

/// The receipt of a hold, from all events of its run in order. None when the run never had that hold.
#[must_use]
pub fn receipt(hold: HoldKey, events: &[Envelope]) -> Option<Receipt> {
    let followed = results::follow(events);
    let kind = followed.kind_of(hold)?;
    Some(filled((hold.call, Some((hold, kind))), &followed, events))
}

/// The receipt of a call, from all events of its run in order: that of the last hold on which people were asked whether it may
/// run, or of the call alone where nobody was asked. None when the run never had that call.
#[must_use]
pub fn receipt_of_call(call: CallNo, events: &[Envelope]) -> Option<Receipt> {
    let asked = events.iter().rev().find_map(|envelope| {
        let Event::HoldOpened(opened) = &envelope.event else { return None };
        (opened.hold.call == call && opened.kind == HoldKind::Approval).then_some(opened.hold)
    });
    if let Some(hold) = asked {
        return receipt(hold, events);
    }
    let followed = results::follow(events);
    followed.calls.contains_key(&call).then(|| filled((call, None), &followed, events))
}

fn filled(
    (no, hold): (CallNo, Option<(HoldKey, HoldKind)>),
    followed: &CallTracks<'_>,
    events: &[Envelope],
) -> Receipt {
    let track = followed.calls.get(&no);
    let call = track.map(|track| CallReceipt {
        no,
        effect: effect(followed, track),
        attempts: Vec::new(),
        report: None,
        contradictions: Vec::new(),
    });
    let mut receipt = Receipt {
        hold: hold.map(|(hold, _)| hold),
        kind: hold.map(|(_, kind)| kind),
        asked: None,
        shown: Vec::new(),
        votes: Vec::new(),
        decision: None,
        call,
        events: Vec::new(),
    };
    walk::fill(&mut receipt, no, followed.driver, events);
    if let (Some(call), Some(ended_at)) = (&mut receipt.call, followed.ended_at)
        && track.is_some_and(|track| !track.is_settled())
    {
        // Nothing but the end of the run says what became of the call.
        receipt.events.push(ended_at);
        receipt.events.sort();
        let may_have_run = call.effect != CallEffect::NotExecuted;
        call.report = (followed.driver.is_elsewhere() && may_have_run).then_some(Report::NotReported);
    }
    receipt
}

/// What became of a call, from all events of its run; none when there is no such call.
#[must_use]
pub fn call_effect(call: CallNo, events: &[Envelope]) -> Option<CallEffect> {
    let followed = results::follow(events);
    followed.calls.get(&call).map(|track| effect(&followed, track))
}

/// A call that claimed an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimingCall {
    /// Which call of its run.
    pub call: CallNo,
    /// What came of it.
    pub effect: CallEffect,
}

/// The call of a run that has a claim, from all events of the run; none when the log does not have it.
#[must_use]
pub fn claiming_call(claim: &EffectClaim, events: &[Envelope]) -> Option<ClaimingCall> {
    let call = events.iter().find_map(|envelope| {
        let Event::CallStarted(started) = &envelope.event else { return None };
        started.effects.contains(claim).then_some(started.call)
    })?;
    call_effect(call, events).map(|effect| ClaimingCall { call, effect })
}

/// Whether a start is known to have done nothing: it was given back before it ran, or it is settled that its call was not
/// executed, and nothing has contradicted that since.
#[must_use]
pub fn did_nothing(call: CallNo, attempt: u32, events: &[Envelope]) -> bool {
    let is_returned = events.iter().any(|envelope| {
        matches!(&envelope.event, Event::CallReturned(returned) if returned.call == call && returned.attempt == attempt)
    });
    let is_contradicted = events.iter().any(
        |envelope| matches!(&envelope.event, Event::CallContradicted(finished) if finished.call == call),
    );
    !is_contradicted && (is_returned || call_effect(call, events) == Some(CallEffect::NotExecuted))
}

fn effect(followed: &CallTracks<'_>, track: &Track<'_>) -> CallEffect {
    if track.is_running {
        return CallEffect::Running;
    }
    let Some(came_to) = followed.result(track) else {
        return CallEffect::Waiting;
    };
    match (came_to.ran, came_to.kind) {
        (Execution::Perhaps, _) => CallEffect::OutcomeUnknown,
        (Execution::No, _) => CallEffect::NotExecuted,
        (Execution::Yes, ResultKind::Failed) => CallEffect::Failed,
        (Execution::Yes, _) => CallEffect::Executed,
    }
}
