//! The HTTP status of every no, once for all surfaces: 4xx the caller can help, 409 somebody was faster, 5xx the operator.
//!
//! How a no is worded is each surface's own business.

use axum::http::StatusCode;
use standfast_core::refusal::Refusal;
use standfast_engine::StoreError;

/// The status of a rule's no.
#[must_use]
pub fn of_refusal(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::NoSuchHold(_) | Refusal::NoSuchCall(_) => StatusCode::NOT_FOUND,
        Refusal::NotAllowed(_) => StatusCode::FORBIDDEN,
        Refusal::WrongKind { .. } | Refusal::Forbidden { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::Tampered { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        Refusal::Erased => StatusCode::GONE,
        Refusal::Ended(_)
        | Refusal::NotEnded
        | Refusal::Held { .. }
        | Refusal::AlreadyDecided(_)
        | Refusal::Expired(_)
        | Refusal::Stale { .. }
        | Refusal::MustRepeatDigest { .. }
        | Refusal::NotExpired(_)
        | Refusal::PastEnd(_)
        | Refusal::CallNotReady(_)
        | Refusal::StaleAttempt { .. }
        | Refusal::TooLate(_)
        | Refusal::NotOrphanedYet { .. }
        | Refusal::NotThinking
        | Refusal::CallStarted(_)
        | Refusal::WrongDriver
        | Refusal::ClaimedByOther { .. }
        | Refusal::NotClaimable
        | Refusal::Cap { .. } => StatusCode::CONFLICT,
    }
}

/// The status of a store's no, and after how many seconds to try again.
#[must_use]
pub fn of_store(failure: &StoreError) -> (StatusCode, Option<u32>) {
    match failure {
        StoreError::NotFound { .. } => (StatusCode::NOT_FOUND, None),
        StoreError::Guard { .. } => (StatusCode::CONFLICT, None),
        StoreError::Conflict { .. } | StoreError::Unavailable { .. } | StoreError::Unknown { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, Some(1))
        }
        StoreError::Newer { .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(30)),
        StoreError::Corrupt { .. } => (StatusCode::INTERNAL_SERVER_ERROR, None),
    }
}
