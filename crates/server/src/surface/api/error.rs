//! What a no becomes: refusals and failures as problem details.
//!
//! Whatever the caller may not see looks like something that does not exist. The status says who can help: 4xx the
//! caller, 409 somebody was faster, 5xx the operator.

use axum::http::StatusCode;
use holdpoint_core::digest::Digest;
use holdpoint_core::id::RunId;
use holdpoint_core::project::How;
use holdpoint_core::refusal::Refusal;
use serde::Serialize;

use super::map;
use crate::engine::{EngineError, SessionError, StoreError};
use crate::http::{More, Problem, RecordedDecision, rfc3339};

/// The engine's no to a request about this run; none when it is about no run.
pub(crate) fn problem(about: Option<RunId>, error: &EngineError) -> Problem {
    match error {
        EngineError::Refused(refusal) => refused(about, refusal),
        EngineError::Store(failure) => failed(failure),
        EngineError::NoSuchAgent { .. } => {
            Problem::new(StatusCode::NOT_FOUND, "no-such-agent", "No such agent", error.to_string())
        }
        EngineError::BreaksSchema(broken) => {
            let place = match broken.pointer.as_str() {
                "" => "the value".to_owned(),
                pointer => format!("the value at {pointer}"),
            };
            let detail = format!("{place} does not fit the schema: {}", broken.why);
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let problem = Problem::new(status, "schema", "Value breaks its schema", detail);
            problem.with(More { pointer: Some(broken.pointer.clone()), ..More::default() })
        }
        EngineError::KeyReused { .. } => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Problem::new(status, "key-reused", "Idempotency key used for something else", error.to_string())
        }
        EngineError::SessionClosed { .. } => {
            Problem::new(StatusCode::CONFLICT, "session-closed", "The session is closed", error.to_string())
        }
        EngineError::MissingScope(scope) => Problem::missing_scope(*scope),
        EngineError::NotFound => Problem::not_found(),
    }
}

/// The engine's no to a request about a conversation.
pub(super) fn session(error: &SessionError) -> Problem {
    let (conflict, invalid) = (StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY);
    let (status, kind, title) = match error {
        SessionError::Engine(error) => return problem(None, error),
        SessionError::Ambiguous { .. } => (conflict, "ambiguous-session", "Which agent's session?"),
        SessionError::Metadata(_) => (invalid, "invalid", "Invalid request"),
        SessionError::NotYours(_) => (StatusCode::FORBIDDEN, "not-allowed", "You may not delete this"),
        SessionError::CallStarted { .. } => (conflict, "call-started", "A call has started"),
        SessionError::NoState(_) => (StatusCode::NOT_FOUND, "no-execution-state", "No execution state"),
    };
    let problem = Problem::new(status, kind, title, error.to_string());
    match error {
        SessionError::Ambiguous { agents } => {
            let agents = agents.iter().map(ToString::to_string).collect();
            problem.with(More { agents, ..More::default() })
        }
        SessionError::Engine(_)
        | SessionError::Metadata(_)
        | SessionError::NotYours(_)
        | SessionError::CallStarted { .. }
        | SessionError::NoState(_) => problem,
    }
}

pub(super) fn refused(about: Option<RunId>, refusal: &Refusal) -> Problem {
    let (status, kind, title) = words(refusal);
    let problem = Problem::new(status, kind, title, refusal.to_string());
    match refusal {
        Refusal::NoSuchHold(_) | Refusal::NoSuchCall(_) => Problem::not_found(),
        Refusal::AlreadyDecided(recorded) => {
            let how = word(map::how(How::from(&recorded.resolution)));
            let (by, at) = (recorded.by.to_string(), rfc3339(recorded.at));
            let detail = format!("this hold was already decided: {how} by {by} at {at}");
            let recorded = Some(RecordedDecision { by, at, how });
            Problem { detail, ..problem }.with(More { recorded, ..More::default() })
        }
        Refusal::Stale { digest, revision, .. } | Refusal::MustRepeatDigest { digest, revision, .. } => {
            let (digest, revision) = (shown(*digest), Some(*revision));
            problem.with(More { digest, revision, ..More::default() })
        }
        Refusal::Held { open } => {
            let ids = about.map(|run| open.iter().map(|key| map::hold_id(run, *key)).collect());
            problem.with(More { holds: ids.unwrap_or_default(), ..More::default() })
        }
        Refusal::Ended(_)
        | Refusal::NotEnded
        | Refusal::Expired(_)
        | Refusal::NotAllowed(_)
        | Refusal::WrongKind { .. }
        | Refusal::Forbidden { .. }
        | Refusal::NotExpired(_)
        | Refusal::CallNotReady(_)
        | Refusal::StaleAttempt { .. }
        | Refusal::Tampered { .. }
        | Refusal::TooLate(_)
        | Refusal::NotOrphanedYet { .. }
        | Refusal::NotThinking
        | Refusal::CallStarted(_)
        | Refusal::WrongDriver
        | Refusal::ClaimedByOther { .. }
        | Refusal::NotClaimable
        | Refusal::Cap { .. }
        | Refusal::Erased => problem,
    }
}

/// Status, kind and title of every refusal.
fn words(refusal: &Refusal) -> (StatusCode, &'static str, &'static str) {
    let (conflict, invalid) = (StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY);
    match refusal {
        Refusal::Ended(_) => (conflict, "ended", "The run is over"),
        Refusal::NotEnded => (conflict, "not-ended", "The run is not over"),
        Refusal::Held { .. } => (conflict, "held", "The run waits"),
        Refusal::NoSuchHold(_) | Refusal::NoSuchCall(_) => (StatusCode::NOT_FOUND, "not-found", "Not found"),
        Refusal::AlreadyDecided(_) => (conflict, "already-decided", "Already decided"),
        Refusal::Expired(_) => (conflict, "expired", "Expired"),
        Refusal::NotAllowed(_) => (StatusCode::FORBIDDEN, "not-allowed", "You may not decide this"),
        Refusal::WrongKind { .. } => (invalid, "wrong-kind", "Not a decision for this hold"),
        Refusal::Stale { .. } => (conflict, "stale", "Changed since you saw it"),
        Refusal::MustRepeatDigest { .. } => (conflict, "must-repeat-digest", "Say what you saw"),
        Refusal::Forbidden { .. } => (invalid, "forbidden-arguments", "A rule forbids these arguments"),
        Refusal::NotExpired(_) => (conflict, "not-expired", "Not expired"),
        Refusal::CallNotReady(_) => (conflict, "call-not-ready", "The call has moved on"),
        Refusal::StaleAttempt { .. } => (conflict, "stale-attempt", "Another start counts"),
        Refusal::Tampered { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "tampered", "Stored data changed"),
        Refusal::TooLate(_) => (conflict, "too-late", "Too late"),
        Refusal::NotOrphanedYet { .. } => (conflict, "not-orphaned", "Somebody may still be at it"),
        Refusal::NotThinking => (conflict, "not-thinking", "The model is not due"),
        Refusal::CallStarted(_) => (conflict, "call-started", "A call has started"),
        Refusal::WrongDriver => (conflict, "wrong-driver", "Driven by someone else"),
        Refusal::ClaimedByOther { .. } => (conflict, "claimed", "Claimed by someone else"),
        Refusal::NotClaimable => (conflict, "not-claimable", "Cannot be claimed now"),
        Refusal::Cap { .. } => (conflict, "cap", "A limit is reached"),
        Refusal::Erased => (StatusCode::GONE, "erased", "Contents deleted"),
    }
}

pub(super) fn failed(failure: &StoreError) -> Problem {
    let unavailable = |detail: String| {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let problem = Problem::new(status, "unavailable", "Not available now", detail);
        problem.with(More { retry_after: Some(1), ..More::default() })
    };
    let broken = |kind: &str, title: &'static str| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, kind, title, failure.to_string())
    };
    match failure {
        StoreError::NotFound { .. } => Problem::not_found(),
        StoreError::Guard { why, .. } => {
            Problem::new(StatusCode::CONFLICT, "guard", "Not possible any more", why.clone())
        }
        StoreError::Conflict { .. } | StoreError::Unavailable { .. } => unavailable(failure.to_string()),
        // Trying again could do it twice, unless the request has a key: look first.
        StoreError::Unknown { .. } => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let title = "Nobody knows whether it was written";
            let problem = Problem::new(status, "outcome-unknown", title, failure.to_string());
            problem.with(More { retry_after: Some(1), ..More::default() })
        }
        StoreError::Corrupt { .. } => broken("corrupt", "Stored data cannot be read"),
        StoreError::Newer { .. } => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let problem = Problem::new(status, "newer", "Written by a newer version", failure.to_string());
            problem.with(More { retry_after: Some(30), ..More::default() })
        }
    }
}

fn shown(digest: Option<Digest>) -> Option<String> {
    digest.map(|digest| digest.to_string())
}

/// A wire word as text.
fn word(word: impl Serialize) -> String {
    let text = serde_json::to_string(&word).unwrap_or_default();
    text.trim_matches('"').to_owned()
}
