//! What a no becomes: `{"detail": "<text>"}`, with the recorded decision where there is one already (C30).
//!
//! Handlers answer with problems, as the door does; one layer tells them all in this protocol's words.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use standfast_core::project::ResolutionKind;
use standfast_core::refusal::Refusal;
use standfast_engine::{EngineError, StoreError};

use super::wire::ErrorBody;
use crate::http::{Problem, ProblemDetails, ProblemWriter, RecordedDecision, keep_advice, rfc3339, status};

/// What every path of this protocol begins with.
pub const PREFIX: &str = "/tealagents/v1alpha1";

/// The engine's no.
pub(super) fn problem(error: &EngineError) -> Problem {
    let (status, retry_after) = match error {
        EngineError::Refused(refusal) => (status::of_refusal(refusal), None),
        EngineError::Store(failure) => status::of_store(failure),
        EngineError::NotFound | EngineError::NoSuchAgent { .. } => (StatusCode::NOT_FOUND, None),
        EngineError::BreaksSchema(_) | EngineError::KeyReused { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, None)
        }
        EngineError::SessionClosed { .. } => (StatusCode::CONFLICT, None),
        EngineError::MissingScope(scope) => return Problem::missing_scope(scope.clone()),
        EngineError::StaleSignIn { max_age } => return Problem::stale_sign_in(*max_age, error.to_string()),
    };
    let detail = match error {
        EngineError::NotFound => return Problem::not_found(),
        EngineError::Refused(Refusal::NotAllowed(_)) => "you are not an approver of this request".to_owned(),
        EngineError::Refused(Refusal::AlreadyDecided(recorded)) => {
            let how = how((&recorded.resolution).into()).to_owned();
            let (by, at) = (recorded.by.to_string(), rfc3339(recorded.at));
            let detail = format!("this request was already decided: {how} by {by} at {at}");
            let recorded = Some(RecordedDecision { by, at, how });
            let problem = Problem::new(status, "already-decided", "Already decided", detail);
            return problem.with(ProblemDetails { recorded, ..ProblemDetails::default() });
        }
        EngineError::BreaksSchema(broken) => {
            format!("the payload{} does not fit: {}", broken.pointer, broken.why)
        }
        EngineError::Store(StoreError::Corrupt { why, .. }) => {
            format!("failed to load execution state: {why}")
        }
        EngineError::Refused(_)
        | EngineError::Store(_)
        | EngineError::NoSuchAgent { .. }
        | EngineError::KeyReused { .. }
        | EngineError::SessionClosed { .. }
        | EngineError::MissingScope(_)
        | EngineError::StaleSignIn { .. } => error.to_string(),
    };
    let problem = Problem::new(status, "refused", "Request refused", detail);
    problem.with(ProblemDetails { retry_after, ..ProblemDetails::default() })
}

/// A decision as one word.
fn how(how: ResolutionKind) -> &'static str {
    match how {
        ResolutionKind::Approved => "approved",
        ResolutionKind::Edited => "approved with other arguments",
        ResolutionKind::Denied => "rejected",
        ResolutionKind::Answered => "answered",
        ResolutionKind::Failed => "failed",
        ResolutionKind::Expired => "expired",
        ResolutionKind::Withdrawn => "withdrawn with the end of the task",
        ResolutionKind::Superseded => "superseded by a newer message",
    }
}

/// The body of a no.
pub(super) fn body(problem: &Problem) -> ErrorBody {
    ErrorBody { detail: problem.detail.clone(), recorded: problem.more.recorded.clone() }
}

/// Tells in this protocol's words what handlers and the door said in those of others.
#[must_use]
pub fn retells(request: &Request) -> Option<ProblemWriter> {
    request.uri().path().starts_with(PREFIX).then(|| Box::new(as_error) as ProblemWriter)
}

fn as_error(problem: &Problem, response: &Response) -> Response {
    let mut told = (response.status(), Json(body(problem))).into_response();
    keep_advice(response.headers(), told.headers_mut());
    told
}
