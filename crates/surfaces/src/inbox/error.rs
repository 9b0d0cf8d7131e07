//! What a no becomes on the inbox routes: problem details, with the words of tasks.
//!
//! 404 for what the caller may not see, 409 for a task that is not where the request needs it, 422 for a payload that
//! breaks its schema, with a pointer to the place.

use axum::http::StatusCode;
use standfast_core::id::HoldId;
use standfast_core::project::ResolutionKind;
use standfast_core::refusal::{Refusal, resolution_word};
use standfast_engine::{EngineError, StoreError, SubscriptionError};

use super::wire::TaskStatus;
use crate::http::{Problem, ProblemDetails, RecordedDecision, rfc3339, status};

/// The engine's no.
pub(super) fn problem(error: &EngineError) -> Problem {
    let (conflict, invalid) = (StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY);
    match error {
        EngineError::Refused(refusal) => refused(refusal),
        EngineError::Store(failure) => failed(failure),
        EngineError::BreaksSchema(broken) => {
            let place = if broken.pointer.is_empty() { "the payload" } else { &broken.pointer };
            let detail = format!("{place} does not match the schema: {}", broken.why);
            let problem = Problem::new(invalid, "schema", "Schema validation failed", detail);
            problem
                .with(ProblemDetails { pointer: Some(broken.pointer.clone()), ..ProblemDetails::default() })
        }
        EngineError::NoSuchAgent { .. } => {
            Problem::new(StatusCode::NOT_FOUND, "no-such-agent", "No such agent", error.to_string())
        }
        EngineError::KeyReused { .. } => {
            Problem::new(invalid, "key-reused", "Idempotency key reused", error.to_string())
        }
        EngineError::SessionClosed { .. } => {
            Problem::new(conflict, "session-closed", "The session is closed", error.to_string())
        }
        EngineError::MissingScope(scope) => Problem::missing_scope(scope.clone()),
        EngineError::StaleSignIn { max_age } => Problem::stale_sign_in(*max_age, error.to_string()),
        EngineError::NotFound => Problem::not_found(),
    }
}

/// The engine's no to a subscription.
pub(super) fn subscription(error: &SubscriptionError) -> Problem {
    match error {
        SubscriptionError::Engine(error) => problem(error),
        SubscriptionError::Invalid(why) => Problem::invalid(why.clone()),
        SubscriptionError::NotAllowed(why) => {
            Problem::new(StatusCode::FORBIDDEN, "not-allowed", "Not allowed to subscribe", *why)
        }
        SubscriptionError::NoKey => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no-signing-key",
            "No signing key",
            error.to_string(),
        ),
    }
}

/// A task that waits for nobody cannot be resumed.
pub(super) fn not_waiting(task: &str, status: TaskStatus) -> Problem {
    let word = serde_json::to_string(&status).unwrap_or_default();
    let detail = format!("task {task} is not waiting for input: it is {}", word.trim_matches('"'));
    Problem::new(StatusCode::CONFLICT, "not-waiting", "The task is not waiting for input", detail)
}

/// A worker that sees a task need not be one who may answer it.
pub(super) fn not_yours(task: &str) -> Problem {
    let detail =
        format!("you may not answer task {task}; ask the user who added it, or one of its approvers");
    Problem::new(StatusCode::FORBIDDEN, "not-allowed", "You may not answer this", detail)
}

/// Several questions are open, and the payload could be meant for each.
pub(super) fn which_hold(task: &str, open: &[HoldId]) -> Problem {
    let holds: Vec<String> = open.iter().map(ToString::to_string).collect();
    let detail =
        format!("task {task} has {} open holds; name one as holdId: {}", holds.len(), holds.join(", "));
    let problem = Problem::new(StatusCode::CONFLICT, "which-hold", "Several holds are open", detail);
    problem.with(ProblemDetails { holds, ..ProblemDetails::default() })
}

/// Who answers names no question, and was not shown the one that is open.
pub(super) fn not_shown(task: &str, open: HoldId) -> Problem {
    let detail = format!(
        "the answer names no hold, and task {task} has changed since you last read it; nothing was decided. Read the \
         task and answer again, or name the hold as holdId: {open}"
    );
    let problem = Problem::new(StatusCode::CONFLICT, "not-shown", "Not shown to you", detail);
    problem.with(ProblemDetails { holds: vec![open.to_string()], ..ProblemDetails::default() })
}

fn refused(refusal: &Refusal) -> Problem {
    let status = status::of_refusal(refusal);
    match refusal {
        Refusal::NoSuchHold(_) | Refusal::NoSuchCall(_) => Problem::not_found(),
        Refusal::AlreadyDecided(recorded) => {
            let (by, at) = (recorded.by.to_string(), rfc3339(recorded.at));
            let how = resolution_word(&recorded.resolution).to_owned();
            let detail = format!("this was already answered: {how} by {by} at {at}");
            let how = match ResolutionKind::from(&recorded.resolution) {
                ResolutionKind::Edited => "edited".to_owned(),
                ResolutionKind::Approved
                | ResolutionKind::Denied
                | ResolutionKind::Answered
                | ResolutionKind::Failed
                | ResolutionKind::Expired
                | ResolutionKind::Withdrawn
                | ResolutionKind::Superseded => how,
            };
            let recorded = Some(RecordedDecision { by, at, how });
            Problem::new(status, "already-decided", "Already answered", detail)
                .with(ProblemDetails { recorded, ..ProblemDetails::default() })
        }
        Refusal::ClaimedByOther { holder: Some(_) } => {
            let detail = "another worker has claimed this task; your claim expired or never existed";
            Problem::new(status, "claimed", "Claimed by someone else", detail)
        }
        Refusal::ClaimedByOther { holder: None } => {
            let detail = "the claim on this task has ended; claim it again";
            Problem::new(status, "not-claimed", "Not claimed", detail)
        }
        Refusal::WrongDriver => {
            let detail = "an agent of this server drives this task; external workers cannot report on it";
            Problem::new(status, "wrong-driver", "Driven by someone else", detail)
        }
        Refusal::Ended(_) => Problem::new(status, "ended", "The task has ended", "the task has ended"),
        Refusal::NotEnded
        | Refusal::Held { .. }
        | Refusal::Expired(_)
        | Refusal::NotAllowed(_)
        | Refusal::WrongKind { .. }
        | Refusal::Stale { .. }
        | Refusal::MustRepeatDigest { .. }
        | Refusal::Forbidden { .. }
        | Refusal::NotExpired(_)
        | Refusal::PastEnd(_)
        | Refusal::CallNotReady(_)
        | Refusal::StaleAttempt { .. }
        | Refusal::Tampered { .. }
        | Refusal::TooLate(_)
        | Refusal::NotOrphanedYet { .. }
        | Refusal::NotThinking
        | Refusal::CallStarted(_)
        | Refusal::NotClaimable
        | Refusal::Cap { .. }
        | Refusal::Erased => Problem::new(status, "refused", "Not possible", refusal.to_string()),
    }
}

fn failed(failure: &StoreError) -> Problem {
    let (status, retry_after) = status::of_store(failure);
    match failure {
        StoreError::NotFound { .. } => Problem::not_found(),
        StoreError::Guard { .. }
        | StoreError::Conflict { .. }
        | StoreError::Unavailable { .. }
        | StoreError::Unknown { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Newer { .. } => Problem::new(status, "store", "Storage error", failure.to_string())
            .with(ProblemDetails { retry_after, ..ProblemDetails::default() }),
    }
}
