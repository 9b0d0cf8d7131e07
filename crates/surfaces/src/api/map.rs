//! Between the words of the core and those of the native API: pure functions.
//!
//! Matches are exhaustive, so that a new status, kind or event forces a visit here.

#![warn(clippy::wildcard_enum_match_arm)]

mod records;
#[cfg(test)]
mod tests;

use serde_json::value::RawValue;
use standfast_core::approver::Approver;
use standfast_core::body::Body;
use standfast_core::command::{Choice, OnHold};
use standfast_core::decide::Answer;
use standfast_core::event::{Envelope, Event, Outcome};
use standfast_core::hold::{Demand, Finding, Hold, HoldKind};
use standfast_core::id::{HoldId, HoldKey, RunId};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Part};
use standfast_core::name::AgentName;
use standfast_core::project::{HoldClosure, HoldRow, ResolutionKind, RunRow, hold_of};
use standfast_core::run::{Run, Status, WaitKind, status};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::settings::Agent;
use standfast_engine::{Drift, HoldView, Page, RunView, StartupReport, UnreadableRun};

use super::people;
use super::wire::{self, HoldKindWord, HowWord, OutcomeWord, ResolutionWord, RunStatus, WaitingWord};
use crate::http::{Problem, rfc3339};

pub(super) use records::{call_receipt, deleted, receipt, session, session_view};

pub(super) fn message(input: wire::Input) -> Result<Message, Problem> {
    let texts = match input {
        wire::Input::Text(text) => vec![text],
        wire::Input::Parts(wire::InputParts { parts }) => parts.into_iter().map(|part| part.text).collect(),
    };
    if texts.iter().all(String::is_empty) {
        return Err(Problem::invalid("input is empty; send at least one part"));
    }
    let parts = texts.into_iter().map(|text| Part::Text(Body::text(text))).collect();
    Ok(Message::of(parts))
}

pub(super) fn on_hold(wanted: Option<wire::OnHold>) -> OnHold {
    match wanted {
        Some(wire::OnHold::Supersede) => OnHold::Supersede,
        None => OnHold::Refuse,
    }
}

/// What a decision wants; members that its word does not take are an error, never ignored.
pub(super) fn wanted(body: &wire::ResolveHold) -> Result<Choice, Problem> {
    let refuse = |name: &str, is_given: bool| {
        if is_given { Err(Problem::invalid(format!("this resolution does not take {name}"))) } else { Ok(()) }
    };
    if body.resolution != ResolutionWord::Approve {
        refuse("arguments", body.arguments.is_some())?;
    }
    match body.resolution {
        ResolutionWord::Approve | ResolutionWord::Deny => refuse("value", body.value.is_some())?,
        ResolutionWord::Answer | ResolutionWord::Fail => {}
    }
    match body.resolution {
        ResolutionWord::Approve | ResolutionWord::Answer => refuse("reason", body.reason.is_some())?,
        ResolutionWord::Deny | ResolutionWord::Fail => {}
    }
    Ok(match body.resolution {
        ResolutionWord::Approve => match &body.arguments {
            Some(raw) => Choice::ApproveEdited { arguments: json("arguments", raw)? },
            None => Choice::Approve,
        },
        ResolutionWord::Deny => Choice::Deny { reason: body.reason.clone() },
        ResolutionWord::Answer => {
            let raw = body.value.as_ref().ok_or_else(|| Problem::invalid("an answer needs a value"))?;
            Choice::Answer { value: words(json("value", raw)?) }
        }
        ResolutionWord::Fail => match (&body.value, &body.reason) {
            (Some(raw), None) => Choice::Fail { error: words(json("value", raw)?) },
            (None, Some(reason)) => Choice::Fail { error: Body::text(reason.clone()) },
            (Some(_), Some(_)) | (None, None) => {
                return Err(Problem::invalid("a failure needs either a reason or a value"));
            }
        },
    })
}

/// JSON that two readers understand alike; its text is kept.
fn json(name: &str, raw: &RawValue) -> Result<RawJson, Problem> {
    let bad = |bad: standfast_core::json::BadJson| Problem::invalid(format!("{name}: {bad}"));
    RawJson::parse(raw.get()).map_err(bad)
}

fn words(json: RawJson) -> Body {
    serde_json::from_str::<String>(json.text()).map_or(Body::Json(json), Body::Text)
}

pub(super) fn agent(name: String, agent: &Agent) -> wire::AgentBody {
    let tools = agent.definition.tools.iter().map(|(name, spec)| wire::ToolBody {
        name: name.to_string(),
        description: spec.description.clone(),
        needs_approval: agent.needs_approval.contains(name),
        reversible: spec.reversible,
    });
    wire::AgentBody {
        name,
        model: agent.definition.model.clone(),
        definition: agent.digest.to_string(),
        tools: tools.collect(),
    }
}

pub(super) fn run_view(view: RunView) -> wire::RunBody {
    let result = view.result.and_then(body);
    let below = |(id, of): &(HoldId, HoldKind)| wire::OpenHold { id: id.to_string(), kind: kind(*of) };
    let holds_below = view.holds_below.iter().map(below).collect();
    wire::RunBody { result, reason: view.reason, holds_below, ..run(&view.run) }
}

pub(super) fn run(run: &Run) -> wire::RunBody {
    let status = status(run);
    let usage = run.state.usage;
    let open = |hold: &standfast_core::hold::Hold| wire::OpenHold {
        id: hold_id(run.facts.id, hold.key),
        kind: kind(hold.kind),
    };
    wire::RunBody {
        id: run.facts.id.to_string(),
        agent: run.facts.agent.to_string(),
        session: run.facts.session.to_string(),
        owner: run.facts.owner.to_string(),
        status: run_status(status),
        quarantined: false,
        waiting_for: waiting_for(status),
        retry_at: match status {
            Status::Retrying(at) => Some(rfc3339(at)),
            Status::Queued | Status::Claimed | Status::Working | Status::Held(_) | Status::Ended(_) => None,
        },
        started_at: rfc3339(run.facts.started_at),
        updated_at: rfc3339(run.state.at),
        seq: run.state.seq.0,
        turns: run.state.turn,
        usage: wire::UsageBody {
            input_tokens: usage.input,
            output_tokens: usage.output,
            cost_micros: usage.cost_micros,
        },
        holds: run.state.holds.iter().map(open).collect(),
        holds_below: Vec::new(),
        result: None,
        reason: None,
    }
}

/// A page of runs, newest first; those that cannot be read stand among the others.
pub(super) fn runs(page: &Page<RunRow>) -> Vec<wire::RunBody> {
    let mut runs: Vec<wire::RunBody> = page.items.iter().map(|row| run(&row.run)).collect();
    for found in &page.unreadable {
        let body = unreadable(found);
        let at = runs.partition_point(|run| run.started_at > body.started_at);
        runs.insert(at, body);
    }
    runs
}

/// A run whose rows cannot be read is shown as failed, with what its columns still say (C35).
pub(super) fn unreadable(found: &UnreadableRun) -> wire::RunBody {
    let facts = found.facts.as_ref();
    let started_at = rfc3339(facts.map_or(Timestamp(0), |facts| facts.started_at));
    let word = |word: Option<String>| word.unwrap_or_default();
    wire::RunBody {
        id: found.run.to_string(),
        agent: word(facts.map(|facts| facts.agent.to_string())),
        session: word(facts.map(|facts| facts.session.to_string())),
        owner: word(facts.map(|facts| facts.owner.to_string())),
        status: RunStatus::Failed,
        quarantined: true,
        waiting_for: None,
        retry_at: None,
        updated_at: started_at.clone(),
        started_at,
        seq: 0,
        turns: 0,
        usage: wire::UsageBody { input_tokens: 0, output_tokens: 0, cost_micros: 0 },
        holds: Vec::new(),
        holds_below: Vec::new(),
        result: None,
        reason: Some(format!("failed to load execution state: {}", found.why)),
    }
}

pub(super) fn recovery(found: &StartupReport) -> wire::RecoveryBody {
    wire::RecoveryBody {
        began_at: rfc3339(found.began_at),
        ended_at: found.ended_at.map(rfc3339),
        waiting_for_person: found.waiting_for_person,
        waiting_for_outside: found.waiting_for_outside,
        expired: found.expired,
        taken_over: found.taken_over,
        quarantined: found.quarantined,
    }
}

pub(super) fn run_status(status: Status) -> RunStatus {
    match status {
        Status::Queued => RunStatus::Queued,
        Status::Claimed => RunStatus::Claimed,
        Status::Working => RunStatus::Working,
        Status::Retrying(_) => RunStatus::Retrying,
        Status::Held(_) => RunStatus::Held,
        Status::Ended(Outcome::Completed) => RunStatus::Completed,
        Status::Ended(Outcome::Failed) => RunStatus::Failed,
        Status::Ended(Outcome::Canceled) => RunStatus::Canceled,
        Status::Ended(Outcome::Rejected) => RunStatus::Rejected,
    }
}

pub(super) fn waiting_for(status: Status) -> Option<WaitingWord> {
    match status {
        Status::Held(WaitKind::Person) => Some(WaitingWord::Person),
        Status::Held(WaitKind::Auth) => Some(WaitingWord::Auth),
        Status::Held(WaitKind::External) => Some(WaitingWord::External),
        Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_) | Status::Ended(_) => None,
    }
}

pub(super) fn kind(kind: HoldKind) -> HoldKindWord {
    match kind {
        HoldKind::Approval => HoldKindWord::Approval,
        HoldKind::Input => HoldKindWord::Input,
        HoldKind::External => HoldKindWord::External,
        HoldKind::Auth => HoldKindWord::Auth,
        HoldKind::Recovery => HoldKindWord::Recovery,
    }
}

pub(super) fn core_kind(kind: HoldKindWord) -> HoldKind {
    match kind {
        HoldKindWord::Approval => HoldKind::Approval,
        HoldKindWord::Input => HoldKind::Input,
        HoldKindWord::External => HoldKind::External,
        HoldKindWord::Auth => HoldKind::Auth,
        HoldKindWord::Recovery => HoldKind::Recovery,
    }
}

pub(super) fn how(how: ResolutionKind) -> HowWord {
    match how {
        ResolutionKind::Approved => HowWord::Approved,
        ResolutionKind::Edited => HowWord::Edited,
        ResolutionKind::Denied => HowWord::Denied,
        ResolutionKind::Answered => HowWord::Answered,
        ResolutionKind::Failed => HowWord::Failed,
        ResolutionKind::Expired => HowWord::Expired,
        ResolutionKind::Withdrawn => HowWord::Withdrawn,
        ResolutionKind::Superseded => HowWord::Superseded,
    }
}

pub(super) fn hold(row: &HoldRow) -> wire::HoldBody {
    let decided = |closed: &HoldClosure| wire::DecisionRecord {
        by: closed.by.to_string(),
        at: rfc3339(closed.at),
        how: how(closed.how),
    };
    wire::HoldBody {
        id: row.id.to_string(),
        run: row.id.run.to_string(),
        agent: row.agent.to_string(),
        session: row.session.to_string(),
        kind: kind(row.kind),
        state: match row.closed {
            None => wire::HoldState::Open,
            Some(_) => wire::HoldState::Decided,
        },
        tool: row.tool.as_ref().map(ToString::to_string),
        digest: row.digest.map(|digest| digest.to_string()),
        revision: row.revision,
        opened_at: rfc3339(row.opened_at),
        expires_at: row.expires_at.map(rfc3339),
        expired_at: row.expired_at.map(rfc3339),
        assignee: row.assignee.as_ref().map(ToString::to_string),
        muted: row.muted,
        decided: row.closed.as_ref().map(decided),
    }
}

pub(super) fn hold_view(view: HoldView) -> wire::HoldDetail {
    let question = view.ask.question.and_then(inline);
    let open = view.open.as_ref();
    wire::HoldDetail {
        hold: hold(&view.row),
        arguments_text: view.arguments.as_ref().map(|arguments| arguments.text().to_owned()),
        arguments: view.arguments.map(raw),
        reason: view.ask.reason,
        because: view.ask.stakes.because,
        risk: view.ask.stakes.risk.map(|risk| risk.as_str().to_owned()),
        reversible: view.reversible,
        findings: view.ask.stakes.findings.into_iter().map(finding).collect(),
        reconciled: view.reconciled.map(|says| says.as_str().to_owned()),
        deciders: view.deciders,
        may_decide: view.may_decide,
        why_not: view.why_not.map(|why| why.to_string()),
        needs_sign_in: view.needs_sign_in.map(seconds),
        demands: view.demands.iter().map(demand).collect(),
        drift: view.drift.into_iter().map(drift).collect(),
        question: question.or(view.prompt),
        options: view.ask.options,
        answer_schema: view.ask.answer_schema.map(raw),
        interim: view.ask.interim.and_then(inline),
        external_ref: view.ask.external_ref,
        expected_at: view.ask.expected_at.map(rfc3339),
        data: view.ask.data.and_then(body),
        path: view.path.into_iter().map(above).collect(),
        votes: open.map(people::votes),
        assigned_until: open.and_then(|hold| hold.assigned_until).map(rfc3339),
        remind_at: open.and_then(|hold| hold.remind_at).map(rfc3339),
        escalations: open.map(people::escalations).unwrap_or_default(),
        delegations: open.map(people::delegations).unwrap_or_default(),
        grace_ends_at: open.and_then(Hold::grace_ends_at).map(rfc3339),
        late: view.late,
    }
}

fn seconds(span: Millis) -> i64 {
    span.0 / 1000
}

fn demand(demand: &Demand) -> wire::DemandBody {
    let words = |approvers: &Vec<Approver>| approvers.iter().map(ToString::to_string).collect();
    wire::DemandBody {
        rule: demand.rule.to_string(),
        approvers: demand.approvers.as_ref().map(words),
        quorum: demand.quorum.max(1),
        sign_in_max_age: demand.sign_in_max_age.map(seconds),
        agreed: demand.agreed.iter().map(ToString::to_string).collect(),
    }
}

fn finding(found: Finding) -> wire::FindingBody {
    let Finding { tool, arguments, result, fails, digest } = found;
    wire::FindingBody { tool, arguments, result, failed: fails, digest: digest.to_string() }
}

fn drift(drift: Drift) -> wire::DriftBody {
    wire::DriftBody { what: drift.what.as_str().to_owned(), text: drift.text }
}

fn above((run, agent): (RunId, AgentName)) -> wire::ParentRun {
    wire::ParentRun { run: run.to_string(), agent: agent.to_string() }
}

pub(super) fn resolved(answer: &Answer, hold: wire::HoldDetail) -> wire::DecisionResult {
    let (outcome, votes) = match answer {
        Answer::Done => (OutcomeWord::Decided, None),
        Answer::Repeated => (OutcomeWord::Repeated, None),
        Answer::Voted { votes, needed } => (OutcomeWord::Voted, Some((*votes, *needed))),
        // The last three are answers to nodes; a decision that leaves its call open is an edit.
        Answer::Edited | Answer::Held | Answer::Refused | Answer::Contradicted => (OutcomeWord::Edited, None),
    };
    let (votes, votes_needed) = votes.unzip();
    wire::DecisionResult { outcome, votes, votes_needed, hold }
}

/// An event; its contents go out as they are stored.
pub(super) fn event(run: RunId, envelope: &Envelope) -> wire::EventBody {
    wire::EventBody {
        seq: envelope.seq.0,
        at: rfc3339(envelope.at),
        actor: envelope.actor.to_string(),
        kind: envelope.event.kind(),
        hold: hold_of(&envelope.event).map(|key| hold_id(run, key)),
        data: Box::new(wire::RawText(contents(&envelope.event))),
    }
}

/// The stored form is `{"kind": contents}`; this is the contents, untouched.
fn contents(event: &Event) -> Box<RawValue> {
    let stored = serde_json::to_string(event).unwrap_or_default();
    let parsed: Result<std::collections::BTreeMap<String, Box<RawValue>>, _> = serde_json::from_str(&stored);
    parsed.ok().and_then(|members| members.into_values().next()).unwrap_or_else(|| RawValue::NULL.to_owned())
}

pub(super) fn hold_id(run: RunId, key: HoldKey) -> String {
    HoldId { run, key }.to_string()
}

/// The text of a value that stands where it is shown.
fn inline(body: Body) -> Option<String> {
    match body {
        Body::Text(text) => Some(text),
        Body::Json(json) => Some(json.text().to_owned()),
        Body::Blob(_) => None,
    }
}

/// A text becomes a JSON string, JSON stays as it is.
fn body(body: Body) -> Option<Box<wire::RawText>> {
    match body {
        Body::Text(text) => Some(raw(RawJson::string(&text))),
        Body::Json(json) => Some(raw(json)),
        Body::Blob(_) => None,
    }
}

fn raw(json: RawJson) -> Box<wire::RawText> {
    Box::new(wire::RawText(json.into_raw()))
}
