//! What bodies of gates mean, and what gates look like. Pure.
//!
//! The sentence for a model and what a no becomes are `http/gates.rs`: hooks say the same.

use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::hold::{Ask, OnTimeout};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Part, ToolResult};
use standfast_core::name::{AgentName, SessionId, ToolName};
use standfast_core::policy::Effect;
use standfast_core::time::Millis;
use standfast_engine::{Callback, GateDecision, GateOutcome, GateState, GateView, NewGate, Withdrawal};

use super::{callback, wire};
use crate::http::{Problem, gate_text, gate_url, gate_value as raw, parse_rfc3339, rfc3339};

/// What the client of a call is asked to do next, at the earliest after so long.
const POLL_AFTER_MS: u32 = 1_000;

/// Characters of names that only the agent gives meaning to.
const NAME_MAX: usize = 512;

/// How long an outcome is awaited unless the client says.
const USUAL_LEASE: Millis = Millis::seconds(10 * 60);

/// The gate that a body asks for.
pub(crate) fn new_gate(mut body: wire::OpenGate) -> Result<(NewGate, Option<Callback>), Problem> {
    let bad = |field: &str, why: &dyn std::fmt::Display| Problem::invalid(format!("{field}: {why}"));
    let tool = ToolName::new(&body.tool).map_err(|why| bad("tool", &why))?;
    let agent = AgentName::new(&body.agent).map_err(|why| bad("agent", &why))?;
    let session = SessionId::new(&body.session).map_err(|why| bad("session", &why))?;
    for (field, text) in [("call", Some(&body.call)), ("turn", body.turn.as_ref())]
        .into_iter()
        .chain([("parent", body.parent.as_ref())])
    {
        if text.is_some_and(|text| text.is_empty() || text.chars().count() > NAME_MAX) {
            return Err(bad(field, &format!("must have 1 to {NAME_MAX} characters")));
        }
    }
    let arguments = RawJson::parse(body.arguments.get()).map_err(|why| bad("arguments", &why))?;
    let schema = body.arguments_schema.as_deref().map(|schema| RawJson::parse(schema.get()));
    let schema = schema.transpose().map_err(|why| bad("arguments_schema", &why))?;
    if schema.as_ref().is_some_and(|schema| !schema.text().trim_start().starts_with(['{', 't', 'f'])) {
        return Err(bad("arguments_schema", &"must be a JSON Schema: an object"));
    }
    let instant = |text: &String| {
        parse_rfc3339(text).ok_or_else(|| bad("deadline", &"must be an instant such as 2026-11-18T12:00:00Z"))
    };
    let deadline = body.deadline.as_ref().map(instant).transpose()?;
    let on_deadline = match body.on_deadline {
        wire::OnDeadline::Deny => OnTimeout::Deny,
        wire::OnDeadline::Keep => OnTimeout::Keep,
    };
    let question = match body.ask {
        wire::GateAsk::Approval => None,
        wire::GateAsk::Answer => Some(question(&arguments)?),
    };
    let callback = body.callback.take().map(callback::read).transpose()?;
    let message = message(&agent, &body);
    let is_destructive = body.hints.as_ref().is_some_and(|hints| hints.destructive == Some(true));
    // Rules look at members. What has none (a framework hands on what was not JSON as a text) is not let through by one.
    let asks = if question.is_some() || is_object(&arguments) { Effect::Allow } else { Effect::Hold };
    let call = body.call;
    let gate = NewGate {
        tool,
        arguments,
        schema,
        session,
        call,
        message,
        deadline,
        on_deadline,
        asks,
        question,
        is_destructive,
    };
    Ok((gate, callback))
}

fn is_object(arguments: &RawJson) -> bool {
    arguments.text().trim_start().starts_with('{')
}

/// The question that arguments are.
fn question(arguments: &RawJson) -> Result<Ask, Problem> {
    let bad = |why: &dyn std::fmt::Display| {
        Problem::invalid(format!(
            "arguments: with \"ask\": \"answer\" they are {{\"question\": text, \"options\"?: [text], \
             \"answer_schema\"?: JSON Schema}}: {why}"
        ))
    };
    let asked: wire::Question = serde_json::from_str(arguments.text()).map_err(|why| bad(&why))?;
    if asked.question.trim().is_empty() {
        return Err(bad(&"the question is empty"));
    }
    let schema = asked.answer_schema.map(|schema| RawJson::parse(schema.get())).transpose();
    let answer_schema = schema.map_err(|why| bad(&why))?;
    if answer_schema.as_ref().is_some_and(|schema| !schema.text().trim_start().starts_with('{')) {
        return Err(bad(&"answer_schema must be a JSON Schema: an object"));
    }
    let question = Some(Body::text(asked.question));
    Ok(Ask { question, options: asked.options, answer_schema, ..Ask::default() })
}

/// What approvers see beside the call: who asks, and why, as *its* words.
fn message(agent: &AgentName, body: &wire::OpenGate) -> Message {
    let mut text = match body.ask {
        wire::GateAsk::Approval => {
            format!("The agent {agent} asks before it runs {} (its call {}", body.tool, body.call)
        }
        wire::GateAsk::Answer => format!("The agent {agent} asks a question (its call {}", body.call),
    };
    if let Some(turn) = &body.turn {
        text.push_str(&format!(", turn {turn}"));
    }
    if let Some(parent) = &body.parent {
        text.push_str(&format!(", below {parent}"));
    }
    text.push_str(").");
    if let Some(words) = body.words.as_ref().filter(|words| !words.is_empty()) {
        text.push_str(&format!("\n\nWhy, in its own words: {words}"));
    }
    if let Some(hints) = &body.hints {
        let said = [
            ("read-only", hints.read_only),
            ("destructive", hints.destructive),
            ("idempotent", hints.idempotent),
            ("reaching outside", hints.open_world),
        ];
        let said: Vec<String> = said
            .into_iter()
            .filter_map(|(word, said)| {
                said.map(|yes| if yes { word.to_owned() } else { format!("not {word}") })
            })
            .collect();
        if !said.is_empty() {
            text.push_str(&format!("\n\nThe tool says of itself: {}.", said.join(", ")));
        }
    }
    if matches!(body.ask, wire::GateAsk::Approval) && !body.arguments.get().trim_start().starts_with('{') {
        text.push_str("\n\nIts arguments are not a JSON object, so no rule could look at them.");
    }
    let mut parts = vec![Part::Text(Body::text(text))];
    for context in &body.context {
        let diff = context.diff.as_ref().map(|diff| format!("```diff\n{diff}\n```"));
        let texts = [context.text.clone(), diff, context.link.clone()].into_iter().flatten();
        parts.extend(texts.map(|text| Part::Text(Body::text(text))));
        parts.extend(context.json.as_ref().map(|json| match RawJson::parse(json.get()) {
            Ok(json) => Part::Data(Body::Json(json)),
            Err(_) => Part::Text(Body::text(json.get())),
        }));
    }
    Message::of(parts)
}

/// How long the outcome of a start is awaited.
pub(crate) fn lease(ms: Option<u64>) -> Millis {
    ms.map_or(USUAL_LEASE, |ms| Millis(i64::try_from(ms).unwrap_or(i64::MAX)))
}

/// What a report says.
pub(crate) fn outcome(body: wire::ReportOutcome) -> Result<GateOutcome, Problem> {
    let said = |json: Option<Box<RawValue>>, field: &str| match json {
        None => Ok(None),
        Some(json) => RawJson::parse(json.get())
            .map(|json| Some(as_body(json)))
            .map_err(|why| Problem::invalid(format!("{field}: {why}"))),
    };
    let (result, error) = (said(body.result, "result")?, said(body.error, "error")?);
    let nothing = || Body::text("");
    Ok(match body.status {
        wire::OutcomeStatus::Succeeded if error.is_some() => {
            return Err(Problem::invalid("error: a call that succeeded has none; send status failed"));
        }
        wire::OutcomeStatus::Succeeded => GateOutcome::Succeeded(result.unwrap_or_else(nothing)),
        wire::OutcomeStatus::Failed => GateOutcome::Failed(error.or(result).unwrap_or_else(nothing)),
        wire::OutcomeStatus::NotExecuted => GateOutcome::NotExecuted,
        wire::OutcomeStatus::Unknown => {
            let why = error.or(result).and_then(|why| why.inline().map(str::to_owned));
            let why = why.filter(|why| !why.is_empty());
            GateOutcome::Unknown(why.unwrap_or_else(|| "whoever ran it does not know how it ended".into()))
        }
    })
}

/// A text is a text; anything else stays JSON.
fn as_body(json: RawJson) -> Body {
    match serde_json::from_str::<String>(json.text()) {
        Ok(text) => Body::text(text),
        Err(_) => Body::Json(json),
    }
}

/// Why a gate is no longer wanted.
pub(crate) fn withdrawal(reason: wire::WithdrawReason) -> Withdrawal {
    match reason {
        wire::WithdrawReason::Cancelled => Withdrawal::Cancelled,
        wire::WithdrawReason::DecidedElsewhere => Withdrawal::DecidedElsewhere,
        wire::WithdrawReason::Superseded => Withdrawal::Superseded,
    }
}

/// A gate as its client sees it; `site` is the address that people reach this server by.
pub(crate) fn gate(view: &GateView, site: &str) -> wire::Gate {
    let waits = matches!(view.state, GateState::Held | GateState::OutcomeUnknown);
    let url = gate_url(view, site);
    let may_change = matches!(view.state, GateState::Held | GateState::Allowed | GateState::Started) || waits;
    wire::Gate {
        gate: view.gate.to_string(),
        state: state(view.state),
        hold: view.hold.map(|hold| hold.to_string()),
        session: view.session.to_string(),
        call: view.call.clone(),
        tool: view.tool.to_string(),
        arguments: raw(&view.arguments),
        digest: view.digest.map(|digest| digest.to_string()),
        revision: view.revision,
        expired_at: view.expired_at.map(rfc3339),
        grace_ends_at: view.grace_ends_at.map(rfc3339),
        decision: view.decision.as_ref().map(decision),
        attempt: view.attempt,
        start_by: view.start_by.map(rfc3339),
        outcome: view.result.as_ref().map(|result| match result {
            ToolResult::Ok(value) => wire::Outcome { ok: true, value: raw(value) },
            ToolResult::Failed(error) => wire::Outcome { ok: false, value: raw(error) },
        }),
        model_text: gate_text(view, site),
        url,
        poll_after_ms: may_change.then_some(POLL_AFTER_MS),
    }
}

fn decision(decision: &GateDecision) -> wire::Decision {
    wire::Decision {
        allowed: decision.is_allowed,
        by: decision.by.as_ref().map_or_else(|| "policy".to_owned(), ToString::to_string),
        at: rfc3339(decision.at),
        reason: decision.reason.clone(),
        rules: decision.rules.iter().map(ToString::to_string).collect(),
        grant: decision.grant.as_ref().map(ToString::to_string),
        edited: decision.is_edited,
        late: decision.is_late,
    }
}

fn state(state: GateState) -> wire::State {
    match state {
        GateState::Allowed => wire::State::Allowed,
        GateState::Held => wire::State::Held,
        GateState::Denied => wire::State::Denied,
        GateState::Expired => wire::State::Expired,
        GateState::Withdrawn => wire::State::Withdrawn,
        GateState::Started => wire::State::Started,
        GateState::Done => wire::State::Done,
        GateState::OutcomeUnknown => wire::State::OutcomeUnknown,
    }
}
