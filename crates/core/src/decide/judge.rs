//! How a call that somebody asks for becomes one that may run, must wait, or is refused; and how holds are opened.
//!
//! Verdicts come in as values and are combined in `policy.rs`; nothing here knows a rule. What follows when the call
//! is about to run is `calls.rs`.

use super::Draft;
use crate::body::Body;
use crate::command::AskedCall;
use crate::digest::{self, Digest};
use crate::event::{Driver, Event, HoldOpened};
use crate::hold::{Ask, Demand, Escalation, HoldKind, HoldPolicy, OnTimeout, name_files};
use crate::id::{CallNo, HoldKey};
use crate::json::RawJson;
use crate::message::{FileDigest, PolicyVerdict, ToolCall};
use crate::mutant::Mutant;
use crate::name::{RuleId, ToolName};
use crate::policy::{CombinedVerdict, Effect, HoldTimes};
use crate::reconcile::Reconciliation;
use crate::time::{Millis, Timestamp};

/// A call that was looked at, and the hold it needs, if it needs one.
pub(super) struct Judgement {
    pub(super) call: ToolCall,
    pub(super) hold: Option<CombinedVerdict>,
}

impl Judgement {
    /// Whether a standing approval lets it run.
    pub(super) fn is_granted(&self) -> bool {
        let judged = self.call.judged.as_ref();
        self.hold.is_none() && judged.is_some_and(|judged| judged.grant.is_some())
    }
}

/// Looks at one call: its name, its text, what policy says.
pub(super) fn judge(draft: &Draft<'_>, no: CallNo, asked: &AskedCall) -> Judgement {
    // An invalid name still needs an entry in the transcript.
    let tool = ToolName::new(&asked.tool).unwrap_or_else(|_| unnamed());
    let spec = draft.ctx.definition.tools.get(&tool);
    let parsed = RawJson::parse(&asked.arguments);
    let schema = schema_of(draft, &tool);
    let problem = match (&schema, &parsed) {
        (None, _) => Some(unknown_tool(draft, &tool)),
        (Some(_), Err(bad)) => Some(format!("the arguments were not taken: {bad}")),
        (Some(_), Ok(_)) => asked.problem.clone(),
    };
    let arguments = match parsed {
        Ok(json) => Body::Json(json),
        Err(_) => Body::text(&asked.arguments),
    };
    let files = draft.ctx.verdicts.files(no);
    let digest = match (&arguments, schema) {
        (Body::Json(json), Some(schema)) => {
            Some(digest::of_call_with(&tool, json.text(), schema, digest::of_files(&files)))
        }
        (Body::Json(_) | Body::Text(_) | Body::Blob(_), _) => None,
    };
    let mut call = ToolCall {
        no,
        id: asked.id.clone(),
        tool,
        arguments,
        digest,
        replay: spec.map(|spec| spec.replay).unwrap_or_default(),
        judged: None,
        refused: problem,
        files,
    };
    if call.refused.is_some() {
        call.digest = None;
        call.files.clear();
        return Judgement { call, hold: None };
    }
    let combined = verdict(draft, no);
    match combined.judged.effect {
        Effect::Allow => call.judged = Some(combined.judged),
        Effect::Deny => {
            call.refused = Some(combined.reason.clone().unwrap_or_else(|| forbidden(&combined.judged)));
            call.judged = Some(combined.judged);
        }
        Effect::Hold => return Judgement { call, hold: Some(combined) },
    }
    Judgement { call, hold: None }
}

/// Digest of what a tool takes; none when there is no such tool. An outside worker brings tools of its own, of which nothing
/// is known but what it says, unless its run is pinned to some.
pub(super) fn schema_of(draft: &Draft<'_>, tool: &ToolName) -> Option<Digest> {
    let definition = draft.ctx.definition;
    let is_own = draft.run.facts.driver == Driver::Outside && definition.tools.is_empty();
    let pinned = definition.tools.get(tool).map(|spec| spec.schema_digest());
    pinned.or(is_own.then(Digest::default))
}

/// The combined verdict on a call.
pub(super) fn verdict(draft: &Draft<'_>, no: CallNo) -> CombinedVerdict {
    let mut combined = draft.ctx.verdicts.combine(no);
    if Mutant::MissingVerdictAllows.is_on() && combined.judged.rules == [RuleId::no_verdict()] {
        combined.judged.effect = Effect::Allow;
    }
    combined
}

/// What a rule that forbids says when it gives no reason of its own.
pub(super) fn forbidden(judged: &PolicyVerdict) -> String {
    let rules: Vec<&str> = judged.rules.iter().map(RuleId::as_str).collect();
    format!("not executed: the policy forbids this call ({})", rules.join(", "))
}

/// With `hold_batch` one held call holds its whole turn (S1-10, C6).
pub(super) fn hold_whole_batch(judgements: &mut [Judgement]) {
    if !judgements.iter().any(|judgement| judgement.hold.is_some()) {
        return;
    }
    let ready = |j: &&mut Judgement| j.hold.is_none() && j.call.refused.is_none();
    for judgement in judgements.iter_mut().filter(ready) {
        let policy = judgement.call.judged.as_ref().and_then(|judged| judged.policy);
        let judged = PolicyVerdict {
            effect: Effect::Hold,
            rules: vec![RuleId::batch()],
            policy,
            grant: None,
            observed: None,
        };
        judgement.hold = Some(CombinedVerdict { judged, reason: None, votes: 1, demands: Vec::new() });
    }
}

/// The hard cap of open holds: what does not fit is refused, and the model gets the reason (rule 11).
pub(super) fn refuse_over_cap(draft: &Draft<'_>, judgements: &mut [Judgement]) {
    let max = draft.ctx.limits.open_holds;
    let mut open = draft.run.state.holds.len();
    for judgement in judgements.iter_mut().filter(|judgement| judgement.hold.is_some()) {
        open += 1;
        if open > max {
            judgement.hold = None;
            judgement.call.refused = Some(too_many_holds(max));
        }
    }
}

/// The error that the model gets for a call that would need one hold too many.
pub(super) fn too_many_holds(max: usize) -> String {
    format!("not executed: this run already waits for {max} decisions, which is the limit")
}

/// Opens the approval hold of a call that was judged.
pub(super) fn open_approval(draft: &mut Draft<'_>, call: &ToolCall, combined: CombinedVerdict) {
    let terms = draft.ctx.verdicts.terms(call.no);
    let policy = terms.over(draft.ctx.definition.policy_for(&call.tool));
    let warning = draft.ctx.verdicts.warning(call.no);
    let reason = name_files(combined.reason, &call.files);
    let target = draft.ctx.verdicts.target(call.no);
    let ask = Ask { reason, warning, target, stakes: terms.stakes, ..Ask::default() };
    open(
        draft,
        NewHold {
            call: call.no,
            kind: HoldKind::Approval,
            policy,
            ask,
            judged: Some(combined.judged),
            votes: combined.votes,
            demands: combined.demands,
            ..NewHold::default()
        },
    );
}

/// Opens the hold in which a person says what a start did.
pub(super) fn open_recovery(
    draft: &mut Draft<'_>,
    (call, attempt): (CallNo, u32),
    reconciled: Option<&Reconciliation>,
) {
    // What was found stands in the event before; the sentence reaches those who are only told why they are asked.
    let ask = Ask { reason: reconciled.map(Reconciliation::sentence), ..Ask::default() };
    open(draft, NewHold { call, kind: HoldKind::Recovery, attempt, ask, ..NewHold::default() });
}

/// What a new hold is made of.
pub(super) struct NewHold {
    pub(super) call: CallNo,
    pub(super) kind: HoldKind,
    pub(super) policy: HoldPolicy,
    pub(super) ask: Ask,
    pub(super) judged: Option<PolicyVerdict>,
    pub(super) votes: u32,
    pub(super) demands: Vec<Demand>,
    pub(super) digest: Option<Digest>,
    pub(super) files: Vec<FileDigest>,
    pub(super) revision: u32,
    pub(super) attempt: u32,
    pub(super) secret: Option<crate::id::Secret>,
}

impl Default for NewHold {
    fn default() -> NewHold {
        NewHold {
            call: CallNo::RUN,
            kind: HoldKind::Approval,
            policy: HoldPolicy::default(),
            ask: Ask::default(),
            judged: None,
            votes: 1,
            demands: Vec::new(),
            digest: None,
            files: Vec::new(),
            revision: 0,
            attempt: 0,
            secret: None,
        }
    }
}

/// Opens a hold.
pub(super) fn open(draft: &mut Draft<'_>, opening: NewHold) -> HoldKey {
    let secret = match opening.secret {
        Some(secret) => secret,
        None => draft.draw("hold"),
    };
    let hold = HoldKey { call: opening.call, secret };
    let times = times_of(draft, &opening);
    draft.emit(Event::HoldOpened(Box::new(HoldOpened {
        hold,
        kind: opening.kind,
        message: draft.run.state.replied_at,
        digest: opening.digest,
        judged: opening.judged,
        votes_needed: if opening.votes > 1 { opening.votes } else { 0 },
        demands: Demand::listed(opening.demands),
        expires_at: times.expires_at,
        remind_at: times.remind_at,
        escalations: times.escalations,
        policy: opening.policy,
        muted: draft.ctx.verdicts.mutes,
        attempt: opening.attempt,
        revision: opening.revision,
        files: opening.files,
        ask: opening.ask,
    })));
    hold
}

/// When time does what to a hold that opens now: as the engine worked it out, or by the plain spans of its policy. The first
/// reminder by a plain span is not repeated in the event: the policy says it.
fn times_of(draft: &Draft<'_>, opening: &NewHold) -> HoldTimes {
    let can_expire = |_: &Timestamp| opening.kind.can_expire();
    // What rules say of whom to ask as well is about approvals.
    let by_rules = match opening.kind {
        HoldKind::Approval => draft.ctx.verdicts.terms(opening.call).escalations,
        HoldKind::Input | HoldKind::External | HoldKind::Auth | HoldKind::Recovery => Vec::new(),
    };
    let in_order = |mut escalations: Vec<Escalation>| {
        escalations.extend(by_rules);
        escalations.sort_by_key(|one| one.at);
        escalations
    };
    if let Some(times) = draft.ctx.verdicts.times(opening.call) {
        // A rule's own time counts before the agent's.
        let terms = draft.ctx.verdicts.terms(opening.call);
        let by_rule = |span: Option<Millis>| {
            span.filter(|_| opening.kind == HoldKind::Approval).map(|span| draft.now.plus(span))
        };
        return HoldTimes {
            expires_at: by_rule(terms.timeout).or(times.expires_at).filter(can_expire),
            remind_at: by_rule(terms.remind_after).or(times.remind_at),
            escalations: in_order(times.escalations.clone()),
        };
    }
    let policy = &opening.policy;
    let after = |span: Option<Millis>| span.map(|span| draft.now.plus(span));
    let escalation = after(policy.escalate_after).filter(|_| !policy.escalate_to.is_empty());
    let escalation = escalation.map(|at| Escalation { at, to: policy.escalate_to.clone(), rule: None });
    HoldTimes {
        expires_at: after(policy.timeout).filter(can_expire),
        remind_at: None,
        escalations: in_order(escalation.into_iter().collect()),
    }
}

/// An outside job waits 24 hours by default, then the model gets a timeout (S2-34, C7).
pub(super) fn external_policy(timeout: Option<Millis>, has_child: bool) -> HoldPolicy {
    let timeout = match (timeout, has_child) {
        (Some(timeout), _) => Some(timeout),
        // A sub-run ends by itself; its parent waits without limit.
        (None, true) => None,
        (None, false) => Some(Millis::hours(24)),
    };
    HoldPolicy { on_timeout: OnTimeout::ResumeWithError, timeout, ..HoldPolicy::default() }
}

/// Rules that hold a call now and that nobody has satisfied yet.
pub(super) fn unsatisfied(judged: &PolicyVerdict, satisfied: &[RuleId]) -> Vec<RuleId> {
    match judged.effect {
        Effect::Hold => judged.rules.iter().filter(|rule| !satisfied.contains(rule)).cloned().collect(),
        Effect::Allow | Effect::Deny => Vec::new(),
    }
}

fn unnamed() -> ToolName {
    match ToolName::new("(unnamed)") {
        Ok(name) => name,
        Err(_) => unreachable!("the text is a name"),
    }
}

fn unknown_tool(draft: &Draft<'_>, tool: &ToolName) -> String {
    let known: Vec<&str> = draft.ctx.definition.tools.keys().map(ToolName::as_str).collect();
    if known.is_empty() {
        format!("there is no tool {tool}; this agent has no tools")
    } else {
        format!("there is no tool {tool}; the tools are: {}", known.join(", "))
    }
}
