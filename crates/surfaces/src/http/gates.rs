//! What every surface says of gates: where people decide, the sentence for a model, and what a no becomes. Pure.
//!
//! The sentence is true: it never says that something ran which nobody reported, nor that something was denied which nobody
//! decided.

use axum::http::StatusCode;
use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::id::RunId;
use standfast_core::json::RawJson;
use standfast_core::message::ToolResult;
use standfast_engine::{GateError, GateState, GateView};

use super::problem::{Problem, ProblemDetails};
use super::refusal;

/// A value as JSON: a text becomes one.
#[must_use]
pub fn gate_value(body: &Body) -> Box<RawValue> {
    let json = match body {
        Body::Json(json) => json.clone(),
        Body::Text(text) => RawJson::string(text),
        // Large values stand in their places in a log that was read.
        Body::Blob(_) => RawJson::string(""),
    };
    json.into_raw()
}

/// Where a person decides; none when nobody has to.
#[must_use]
pub fn gate_url(view: &GateView, site: &str) -> Option<String> {
    let waits = matches!(view.state, GateState::Held | GateState::OutcomeUnknown);
    view.hold.filter(|_| waits).map(|hold| format!("{site}/approve/{hold}"))
}

/// The truthful sentence to hand to a model; `site` is the address that people reach this server by.
#[must_use]
pub fn gate_text(view: &GateView, site: &str) -> String {
    let url = gate_url(view, site);
    let tool = &view.tool;
    let reason = view.decision.as_ref().and_then(|decision| decision.reason.as_deref());
    // A rule's own words begin as this sentence does.
    let reason = reason.map(|reason| reason.strip_prefix("not executed: ").unwrap_or(reason));
    let because = reason.map(|reason| format!(" Reason: {reason}")).unwrap_or_default();
    let at = url.map(|url| format!(" at {url}")).unwrap_or_default();
    let is_edited = view.decision.as_ref().is_some_and(|decision| decision.is_edited);
    let is_late = view.decision.as_ref().is_some_and(|decision| decision.is_late);
    let late = if is_late { " The decision came after its deadline, and counts." } else { "" };
    if view.is_question {
        return question_text(view, &at, &because);
    }
    match view.state {
        GateState::Allowed if is_edited => format!(
            "Approved with other arguments than you asked for.{late} Run {tool} with exactly these: {}",
            gate_value(&view.arguments).get()
        ),
        GateState::Allowed => format!("Approved: {tool} may run with exactly these arguments, once.{late}"),
        GateState::Held if view.expired_at.is_some() => format!(
            "Not executed. {tool} waits for approval{at}. The time for a decision has passed; one that comes late still counts. Do \
             something else, or repeat exactly this call later."
        ),
        GateState::Held => format!(
            "Not executed. {tool} waits for approval{at}. Nobody has decided yet; do something else, or repeat exactly this \
             call later."
        ),
        GateState::Denied => format!("Not executed: {tool} was denied.{because}"),
        GateState::Expired => format!("Not executed: nobody decided about {tool} in time."),
        GateState::Withdrawn => format!("Not executed: the request to run {tool} was withdrawn."),
        GateState::Started => format!("{tool} was started, and its outcome has not been reported yet."),
        GateState::Done => match &view.result {
            Some(ToolResult::Ok(_)) => format!("{tool} ran."),
            Some(ToolResult::Failed(_)) => format!("{tool} failed."),
            None => format!("Not executed: {tool} did not run."),
        },
        GateState::OutcomeUnknown => format!(
            "Outcome unknown: {tool} may have run, and nobody knows what it did{at}. Do not run it again; a person looks at it."
        ),
    }
}

/// The sentence for a model that asked a person something.
fn question_text(view: &GateView, at: &str, because: &str) -> String {
    match (view.state, &view.result) {
        (GateState::Done, Some(ToolResult::Ok(answer))) => format!("Answered: {}", gate_value(answer).get()),
        (GateState::Done, Some(ToolResult::Failed(_)) | None) | (GateState::Denied, _) => {
            format!("Nobody answers the question.{because}")
        }
        (GateState::Expired, _) => "Nobody answered the question in time.".to_owned(),
        (GateState::Withdrawn, _) => "The question was withdrawn.".to_owned(),
        (GateState::Held, _) if view.expired_at.is_some() => format!(
            "The question waits for an answer{at}. The time for one has passed; one that comes late still counts. Do something \
             else, or ask exactly this again later."
        ),
        (GateState::Held | GateState::Allowed | GateState::Started | GateState::OutcomeUnknown, _) => {
            format!(
                "The question waits for an answer{at}. Nobody has answered yet; do something else, or ask exactly this again later."
            )
        }
    }
}

/// What a no becomes.
#[must_use]
pub fn gate_problem(gate: RunId, error: &GateError) -> Problem {
    let conflict = |kind, title| Problem::new(StatusCode::CONFLICT, kind, title, error.to_string());
    match error {
        GateError::Engine(error) => refusal::problem(Some(gate), error),
        GateError::AlreadyStarted { .. } => conflict("already-started", "Already started"),
        GateError::WrongState { .. } => conflict("wrong-state", "The gate is in another state"),
        GateError::OtherDigest { digest } => {
            let digest = digest.map(|digest| digest.to_string());
            conflict("stale", "Changed since you saw it")
                .with(ProblemDetails { digest, ..ProblemDetails::default() })
        }
    }
}
