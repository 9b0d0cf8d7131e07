//! What a no of the engine becomes: refusals and failures as problem details.
//!
//! Below every surface, for whoever says them in these words: the native API, and people's own tests (`scenario`).
//! Whatever the caller may not see looks like something that does not exist. The status says who can help: 4xx the
//! caller, 409 somebody was faster, 5xx the operator.

use axum::http::StatusCode;
use standfast_core::digest::Digest;
use standfast_core::id::RunId;
use standfast_core::project::ResolutionKind;
use standfast_core::refusal::Refusal;
use standfast_engine::{EngineError, StoreError};

use super::problem::{Problem, ProblemDetails, RecordedDecision};
use super::{rfc3339, status};

/// The engine's no to a request about this run; none when it is about no run.
pub fn problem(about: Option<RunId>, error: &EngineError) -> Problem {
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
            let detail = format!("{place} does not match the schema: {}", broken.why);
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let problem = Problem::new(status, "schema", "Schema validation failed", detail);
            problem
                .with(ProblemDetails { pointer: Some(broken.pointer.clone()), ..ProblemDetails::default() })
        }
        EngineError::KeyReused { .. } => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Problem::new(status, "key-reused", "Idempotency key reused", error.to_string())
        }
        EngineError::SessionClosed { .. } => {
            Problem::new(StatusCode::CONFLICT, "session-closed", "The session is closed", error.to_string())
        }
        EngineError::MissingScope(scope) => Problem::missing_scope(scope.clone()),
        EngineError::StaleSignIn { max_age } => Problem::stale_sign_in(*max_age, error.to_string()),
        EngineError::NotFound => Problem::not_found(),
    }
}

pub(crate) fn refused(about: Option<RunId>, refusal: &Refusal) -> Problem {
    let (status, kind, title) = words(refusal);
    let problem = Problem::new(status, kind, title, refusal.to_string());
    match refusal {
        Refusal::NoSuchHold(_) | Refusal::NoSuchCall(_) => Problem::not_found(),
        Refusal::AlreadyDecided(recorded) => {
            let how = ResolutionKind::from(&recorded.resolution).as_str().to_owned();
            let (by, at) = (recorded.by.to_string(), rfc3339(recorded.at));
            let detail = format!("this hold was already decided: {how} by {by} at {at}");
            let recorded = Some(RecordedDecision { by, at, how });
            Problem { detail, ..problem }.with(ProblemDetails { recorded, ..ProblemDetails::default() })
        }
        Refusal::Stale { digest, revision, .. } | Refusal::MustRepeatDigest { digest, revision, .. } => {
            let (digest, revision) = (shown(*digest), Some(*revision));
            problem.with(ProblemDetails { digest, revision, ..ProblemDetails::default() })
        }
        Refusal::Held { open } => {
            let holds = open.iter().filter(|hold| about == Some(hold.run)).map(ToString::to_string).collect();
            problem.with(ProblemDetails { holds, ..ProblemDetails::default() })
        }
        // Everything else is said by its text.
        _ => problem,
    }
}

/// Kind and title of every refusal; its status is that of every surface.
fn words(refusal: &Refusal) -> (StatusCode, &'static str, &'static str) {
    let (kind, title) = match refusal {
        Refusal::Ended(_) => ("ended", "The run has ended"),
        Refusal::NotEnded => ("not-ended", "The run has not ended"),
        Refusal::Held { .. } => ("held", "The run is on hold"),
        Refusal::NoSuchHold(_) | Refusal::NoSuchCall(_) => ("not-found", "Not found"),
        Refusal::AlreadyDecided(_) => ("already-decided", "Already decided"),
        Refusal::Expired(_) => ("expired", "Expired"),
        Refusal::NotAllowed(_) => ("not-allowed", "You may not decide this"),
        Refusal::WrongKind { .. } => ("wrong-kind", "Wrong decision for this kind of hold"),
        Refusal::Stale { .. } => ("stale", "Changed since you saw it"),
        Refusal::MustRepeatDigest { .. } => ("must-repeat-digest", "Digest required"),
        Refusal::Forbidden { .. } => ("forbidden-arguments", "A rule forbids these arguments"),
        Refusal::NotExpired(_) => ("not-expired", "Not expired"),
        Refusal::PastEnd(_) => ("past-end", "The end has passed"),
        Refusal::CallNotReady(_) => ("call-not-ready", "The call is in another state"),
        Refusal::StaleAttempt { .. } => ("stale-attempt", "Stale attempt"),
        Refusal::Tampered { .. } => ("tampered", "Stored data changed"),
        Refusal::TooLate(_) => ("too-late", "Too late"),
        Refusal::NotOrphanedYet { .. } => ("not-orphaned", "The call may still be running"),
        Refusal::NotThinking => ("not-thinking", "Not waiting for the model"),
        Refusal::CallStarted(_) => ("call-started", "A call has started"),
        Refusal::WrongDriver => ("wrong-driver", "Driven by someone else"),
        Refusal::ClaimedByOther { .. } => ("claimed", "Claimed by someone else"),
        Refusal::NotClaimable => ("not-claimable", "Not claimable"),
        Refusal::Cap { .. } => ("cap", "Limit reached"),
        Refusal::Erased => ("erased", "Contents erased"),
    };
    (status::of_refusal(refusal), kind, title)
}

pub(crate) fn failed(failure: &StoreError) -> Problem {
    let (kind, title, detail) = match failure {
        StoreError::NotFound { .. } => return Problem::not_found(),
        StoreError::Guard { why, .. } => ("guard", "Precondition failed", why.clone()),
        StoreError::Conflict { .. } | StoreError::Unavailable { .. } => {
            ("unavailable", "Temporarily unavailable", failure.to_string())
        }
        // Trying again could do it twice, unless the request has a key: look first.
        StoreError::Unknown { .. } => ("outcome-unknown", "Outcome unknown", failure.to_string()),
        StoreError::Corrupt { .. } => ("corrupt", "Stored data cannot be read", failure.to_string()),
        StoreError::Newer { .. } => ("newer", "Written by a newer version", failure.to_string()),
    };
    let (status, retry_after) = status::of_store(failure);
    Problem::new(status, kind, title, detail)
        .with(ProblemDetails { retry_after, ..ProblemDetails::default() })
}

fn shown(digest: Option<Digest>) -> Option<String> {
    digest.map(|digest| digest.to_string())
}
