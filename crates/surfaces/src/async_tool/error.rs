//! What a no becomes in this protocol: `{"error": "…"}` with a status.
//!
//! The texts `Unknown pending ID` and `Not waiting` are the protocol's own (S2-29). What the caller may not see looks
//! like something that does not exist.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use standfast_engine::{EngineError, ReportError, SessionError, SubscriptionError};

use super::map;
use super::wire::{CallStatus, ErrorBody};
use crate::http::{Problem, ProblemWriter, keep_advice, status};

/// A no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobProblem {
    status: StatusCode,
    body: ErrorBody,
    retry_after: Option<u32>,
}

impl JobProblem {
    /// A no with a text.
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> JobProblem {
        JobProblem {
            status,
            body: ErrorBody { error: error.into(), status: None, pointer: None },
            retry_after: None,
        }
    }

    /// S2-29: there is no such call, or none that the caller may know of.
    pub(super) fn unknown() -> JobProblem {
        JobProblem::new(StatusCode::NOT_FOUND, "Unknown pending ID")
    }

    /// S2-29: the call is settled.
    pub(super) fn not_waiting(now: CallStatus) -> JobProblem {
        let mut refused = JobProblem::new(StatusCode::CONFLICT, "Not waiting");
        refused.body.status = Some(now);
        refused
    }

    /// The body makes no sense.
    pub(super) fn invalid(error: impl Into<String>) -> JobProblem {
        JobProblem::new(StatusCode::UNPROCESSABLE_ENTITY, error)
    }

    /// The same, to be tried again after so many seconds.
    pub(super) fn again_after(self, seconds: u32) -> JobProblem {
        JobProblem { retry_after: Some(seconds), ..self }
    }
}

impl IntoResponse for JobProblem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<Problem> for JobProblem {
    fn from(problem: Problem) -> JobProblem {
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let refused = JobProblem::new(status, problem.detail);
        JobProblem { retry_after: problem.more.retry_after, ..refused }
    }
}

impl From<ReportError> for JobProblem {
    fn from(error: ReportError) -> JobProblem {
        match error {
            ReportError::NoSuchJob => JobProblem::unknown(),
            ReportError::NotSigned(why) => JobProblem::new(StatusCode::UNAUTHORIZED, why),
            ReportError::Over(view) => JobProblem::not_waiting(map::status(&view.job.stands)),
            ReportError::TooEarly => JobProblem::new(StatusCode::TOO_EARLY, error.to_string()).again_after(1),
            ReportError::Engine(error) => error.into(),
        }
    }
}

impl From<EngineError> for JobProblem {
    fn from(error: EngineError) -> JobProblem {
        let text = error.to_string();
        match error {
            EngineError::NotFound => JobProblem::unknown(),
            EngineError::Refused(refusal) => JobProblem::new(status::of_refusal(&refusal), text),
            EngineError::BreaksSchema(broken) => {
                let place = match broken.pointer.as_str() {
                    "" => "the result".to_owned(),
                    pointer => format!("the result at {pointer}"),
                };
                let mut refused =
                    JobProblem::invalid(format!("{place} does not match the schema: {}", broken.why));
                refused.body.pointer = Some(broken.pointer);
                refused
            }
            EngineError::KeyReused { .. } => JobProblem::invalid(text),
            EngineError::NoSuchAgent { .. } => JobProblem::new(StatusCode::NOT_FOUND, text),
            EngineError::SessionClosed { .. } => JobProblem::new(StatusCode::CONFLICT, text),
            EngineError::MissingScope(_) | EngineError::StaleSignIn { .. } => {
                JobProblem::new(StatusCode::FORBIDDEN, text)
            }
            EngineError::Store(failure) => {
                let (status, again) = status::of_store(&failure);
                JobProblem { retry_after: again, ..JobProblem::new(status, text) }
            }
        }
    }
}

impl From<SubscriptionError> for JobProblem {
    fn from(error: SubscriptionError) -> JobProblem {
        let text = error.to_string();
        match error {
            SubscriptionError::Engine(error) => error.into(),
            SubscriptionError::Invalid(why) => JobProblem::invalid(why),
            SubscriptionError::NotAllowed(why) => JobProblem::new(StatusCode::FORBIDDEN, why),
            SubscriptionError::NoKey => JobProblem::new(StatusCode::SERVICE_UNAVAILABLE, text),
        }
    }
}

impl From<SessionError> for JobProblem {
    fn from(error: SessionError) -> JobProblem {
        let text = error.to_string();
        match error {
            SessionError::Engine(EngineError::NotFound) => {
                JobProblem::new(StatusCode::NOT_FOUND, "session not found, or you don't have access")
            }
            SessionError::Engine(error) => error.into(),
            SessionError::Ambiguous { .. } | SessionError::AmbiguousOwner { .. } => {
                JobProblem::new(StatusCode::CONFLICT, text)
            }
            SessionError::NotYours(_) => JobProblem::new(StatusCode::FORBIDDEN, text),
            SessionError::CallStarted { .. } => JobProblem::new(StatusCode::CONFLICT, text),
            SessionError::Metadata(_) | SessionError::NoState(_) => JobProblem::invalid(text),
            SessionError::BadMetadata(_) => JobProblem::new(StatusCode::INTERNAL_SERVER_ERROR, text),
        }
    }
}

/// Tells in this protocol's words what the door said in those of others.
#[must_use]
pub fn retells(request: &Request) -> Option<ProblemWriter> {
    let path = request.uri().path();
    let is_ours = path.starts_with("/async-tool/") || path.starts_with("/async-tools/");
    is_ours.then(|| Box::new(as_refusal) as ProblemWriter)
}

fn as_refusal(problem: &Problem, response: &Response) -> Response {
    let mut told = JobProblem::from(problem.clone()).into_response();
    keep_advice(response.headers(), told.headers_mut());
    told
}
