//! What a no becomes: one table of errors, and what each is called in each binding.
//!
//! Whatever the caller may not see looks like a task that does not exist. Every error says by `ErrorInfo` which one it
//! is; those about a request's members also say which.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde::Serialize;
use standfast_core::id::RunId;
use standfast_core::refusal::{Refusal, resolution_word};
use standfast_engine::{EngineError, StoreError};

use super::wire::{Detail, FieldViolation};
use crate::http::{Problem, rfc3339};

/// Who says what the reasons mean.
const DOMAIN: &str = "a2a-protocol.org";

/// Every error there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The body is no JSON.
    Parse,
    /// It is JSON and no request.
    InvalidRequest,
    /// There is no such operation.
    MethodNotFound,
    /// The operation's members are wrong.
    InvalidParams,
    /// The server cannot, and it is not the caller's fault.
    Internal,
    /// There is no such task that the caller may see.
    TaskNotFound,
    /// The task has ended.
    TaskNotCancelable,
    /// Nobody is called back.
    PushNotificationNotSupported,
    /// Not possible, or not now.
    UnsupportedOperation,
    /// The body is of another type.
    ContentTypeNotSupported,
    /// There is no more to say to those who are known.
    ExtendedAgentCardNotConfigured,
    /// The client must know an extension and does not say so.
    ExtensionSupportRequired,
    /// The client speaks another version.
    VersionNotSupported,
    /// Nobody knows who is calling.
    Unauthenticated,
    /// The caller is known and may not.
    PermissionDenied,
    /// The request is larger than the server takes.
    TooLarge,
    /// Not now; try again.
    Unavailable,
}

/// What an error is called in each binding.
pub(super) struct Names {
    /// In JSON-RPC. Those that the protocol leaves to servers are outside the range that JSON-RPC keeps for itself.
    pub(super) code: i32,
    /// In HTTP.
    pub(super) http: StatusCode,
    /// In gRPC, and as `status` of an HTTP answer.
    pub(super) status: &'static str,
    /// As `reason` of its `ErrorInfo`.
    pub(super) reason: &'static str,
}

impl Kind {
    /// All of them.
    #[cfg(test)]
    pub(super) const ALL: [Kind; 17] = [
        Kind::Parse,
        Kind::InvalidRequest,
        Kind::MethodNotFound,
        Kind::InvalidParams,
        Kind::Internal,
        Kind::TaskNotFound,
        Kind::TaskNotCancelable,
        Kind::PushNotificationNotSupported,
        Kind::UnsupportedOperation,
        Kind::ContentTypeNotSupported,
        Kind::ExtendedAgentCardNotConfigured,
        Kind::ExtensionSupportRequired,
        Kind::VersionNotSupported,
        Kind::Unauthenticated,
        Kind::PermissionDenied,
        Kind::TooLarge,
        Kind::Unavailable,
    ];

    /// The table of the protocol's version 1.0.1.
    pub(super) fn names(self) -> Names {
        let row = |code, http, status, reason| Names { code, http, status, reason };
        let bad = StatusCode::BAD_REQUEST;
        let (invalid, failed) = ("INVALID_ARGUMENT", "FAILED_PRECONDITION");
        match self {
            Kind::Parse => row(-32700, bad, invalid, "PARSE_ERROR"),
            Kind::InvalidRequest => row(-32600, bad, invalid, "INVALID_REQUEST"),
            Kind::MethodNotFound => row(-32601, StatusCode::NOT_FOUND, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
            Kind::InvalidParams => row(-32602, bad, invalid, "INVALID_PARAMS"),
            Kind::Internal => row(-32603, StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "INTERNAL_ERROR"),
            Kind::TaskNotFound => row(-32001, StatusCode::NOT_FOUND, "NOT_FOUND", "TASK_NOT_FOUND"),
            Kind::TaskNotCancelable => row(-32002, bad, failed, "TASK_NOT_CANCELABLE"),
            Kind::PushNotificationNotSupported => row(-32003, bad, failed, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
            Kind::UnsupportedOperation => row(-32004, bad, failed, "UNSUPPORTED_OPERATION"),
            Kind::ContentTypeNotSupported => row(-32005, bad, invalid, "CONTENT_TYPE_NOT_SUPPORTED"),
            Kind::ExtendedAgentCardNotConfigured => {
                row(-32007, bad, failed, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
            }
            Kind::ExtensionSupportRequired => row(-32008, bad, failed, "EXTENSION_SUPPORT_REQUIRED"),
            Kind::VersionNotSupported => row(-32009, bad, failed, "VERSION_NOT_SUPPORTED"),
            Kind::Unauthenticated => {
                row(-31401, StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", "UNAUTHENTICATED")
            }
            Kind::PermissionDenied => {
                row(-31403, StatusCode::FORBIDDEN, "PERMISSION_DENIED", "PERMISSION_DENIED")
            }
            Kind::TooLarge => {
                row(-31413, StatusCode::PAYLOAD_TOO_LARGE, "RESOURCE_EXHAUSTED", "REQUEST_TOO_LARGE")
            }
            Kind::Unavailable => row(-31503, StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "UNAVAILABLE"),
        }
    }
}

/// An error, before any binding has put it into words of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct A2aError {
    /// Which.
    pub(super) kind: Kind,
    /// What happened, to which id, and what can be done.
    pub(super) message: String,
    /// What is wrong with which member.
    pub(super) violations: Vec<FieldViolation>,
    /// What programs may want to know.
    pub(super) metadata: BTreeMap<&'static str, String>,
    /// Seconds after which to try again.
    pub(super) retry_after: Option<u32>,
}

/// An error as HTTP+JSON has it.
#[derive(Debug, Serialize)]
pub(super) struct RestError {
    error: RestStatus,
}

#[derive(Debug, Serialize)]
struct RestStatus {
    code: u16,
    status: &'static str,
    message: String,
    details: Vec<Detail>,
}

/// An error as JSON-RPC has it.
#[derive(Debug, Serialize)]
pub(super) struct RpcError {
    code: i32,
    message: String,
    data: Vec<Detail>,
}

impl A2aError {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> A2aError {
        A2aError {
            kind,
            message: message.into(),
            violations: Vec::new(),
            metadata: BTreeMap::new(),
            retry_after: None,
        }
    }

    /// A member of the request is wrong.
    pub(super) fn invalid(field: impl Into<String>, why: impl Into<String>) -> A2aError {
        let (field, description) = (field.into(), why.into());
        let message = match field.as_str() {
            "" => description.clone(),
            field => format!("{field}: {description}"),
        };
        let violations = vec![FieldViolation { field, description }];
        A2aError { violations, ..A2aError::new(Kind::InvalidParams, message) }
    }

    /// The members of a request could not be read.
    pub(super) fn unreadable(error: &serde_json::Error) -> A2aError {
        let why = error.to_string();
        // The reader names the member between backticks where it knows one.
        let field = why.split('`').nth(1).filter(|_| why.contains("field")).unwrap_or_default().to_owned();
        let violations = vec![FieldViolation { field, description: why.clone() }];
        A2aError { violations, ..A2aError::new(Kind::InvalidParams, format!("invalid request: {why}")) }
    }

    pub(super) fn task_not_found() -> A2aError {
        A2aError::new(Kind::TaskNotFound, "task not found, or you don't have access")
    }

    fn with(mut self, name: &'static str, value: impl ToString) -> A2aError {
        self.metadata.insert(name, value.to_string());
        self
    }

    /// What it is about, for programs.
    pub(super) fn details(&self) -> Vec<Detail> {
        let info = Detail::ErrorInfo {
            reason: self.kind.names().reason,
            domain: DOMAIN,
            metadata: self.metadata.clone(),
        };
        let field_violations = self.violations.clone();
        let wrong = (!field_violations.is_empty()).then_some(Detail::BadRequest { field_violations });
        std::iter::once(info).chain(wrong).collect()
    }

    pub(super) fn rest(&self) -> RestError {
        let Names { http, status, .. } = self.kind.names();
        let (message, details) = (self.message.clone(), self.details());
        RestError { error: RestStatus { code: http.as_u16(), status, message, details } }
    }

    pub(super) fn rpc(&self) -> RpcError {
        RpcError { code: self.kind.names().code, message: self.message.clone(), data: self.details() }
    }

    /// The engine's no to a request about this run; none when it is about no run.
    pub(super) fn of(about: Option<RunId>, error: &EngineError) -> A2aError {
        let text = error.to_string();
        match error {
            EngineError::Refused(refusal) => refused(about, refusal),
            EngineError::Store(failure) => failed(failure),
            EngineError::NotFound => A2aError::task_not_found(),
            EngineError::NoSuchAgent { .. } => A2aError::new(Kind::MethodNotFound, text),
            EngineError::BreaksSchema(broken) => {
                A2aError::invalid(broken.pointer.clone(), broken.why.clone())
            }
            EngineError::KeyReused { .. } => A2aError::invalid("Idempotency-Key", text),
            EngineError::SessionClosed { .. } => A2aError::new(Kind::UnsupportedOperation, text),
            EngineError::MissingScope(scope) => {
                A2aError::new(Kind::PermissionDenied, text).with("scope", scope)
            }
            EngineError::StaleSignIn { max_age } => {
                A2aError::new(Kind::PermissionDenied, text).with("max_age", max_age.0 / 1000)
            }
        }
    }
}

fn refused(about: Option<RunId>, refusal: &Refusal) -> A2aError {
    let text = refusal.to_string();
    let error = A2aError::new(refusal_kind(refusal), text.clone());
    match refusal {
        Refusal::Stale { digest, revision, .. } | Refusal::MustRepeatDigest { digest, revision, .. } => {
            let digest = digest.map(|digest| digest.to_string()).unwrap_or_default();
            A2aError::invalid("digest", text).with("digest", digest).with("revision", revision)
        }
        Refusal::Forbidden { .. } => A2aError::invalid("modified_input", text),
        Refusal::WrongKind { .. } => A2aError::invalid("decision", text),
        Refusal::AlreadyDecided(recorded) => {
            let (how, by) = (resolution_word(&recorded.resolution), &recorded.by);
            let at = rfc3339(recorded.at);
            let message = format!("this hold was already decided: {how} by {by} at {at}");
            let error = A2aError::new(Kind::UnsupportedOperation, message);
            error.with("decision", how).with("decided_by", by).with("decided_at", at)
        }
        Refusal::Held { open } => {
            let of_the_run = open.iter().filter(|hold| about == Some(hold.run));
            let ids: Vec<String> = of_the_run.map(ToString::to_string).collect();
            error.with("hold_ids", ids.join(","))
        }
        // Everything else is said by its text.
        _ => error,
    }
}

/// Which error a refusal is.
fn refusal_kind(refusal: &Refusal) -> Kind {
    match refusal {
        Refusal::NoSuchHold(_)
        | Refusal::NoSuchCall(_)
        | Refusal::WrongKind { .. }
        | Refusal::Stale { .. }
        | Refusal::MustRepeatDigest { .. }
        | Refusal::Forbidden { .. } => Kind::InvalidParams,
        Refusal::NotAllowed(_) => Kind::PermissionDenied,
        Refusal::Tampered { .. } => Kind::Internal,
        Refusal::Ended(_)
        | Refusal::NotEnded
        | Refusal::Held { .. }
        | Refusal::AlreadyDecided(_)
        | Refusal::Expired(_)
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
        | Refusal::Cap { .. }
        | Refusal::Erased => Kind::UnsupportedOperation,
    }
}

fn failed(failure: &StoreError) -> A2aError {
    let later = |seconds| A2aError {
        retry_after: Some(seconds),
        ..A2aError::new(Kind::Unavailable, failure.to_string())
    };
    match failure {
        StoreError::NotFound { .. } => A2aError::task_not_found(),
        StoreError::Guard { why, .. } => A2aError::new(Kind::UnsupportedOperation, why.clone()),
        StoreError::Conflict { .. } | StoreError::Unavailable { .. } | StoreError::Unknown { .. } => later(1),
        StoreError::Newer { .. } => later(30),
        StoreError::Corrupt { why, .. } => {
            A2aError::new(Kind::Internal, format!("failed to load execution state: {why}"))
        }
    }
}

/// What the door, or whoever reads bodies, said in the words of other surfaces.
impl From<&Problem> for A2aError {
    fn from(problem: &Problem) -> A2aError {
        let kind = match problem.status {
            401 => Kind::Unauthenticated,
            403 | 421 => Kind::PermissionDenied,
            404 | 405 => Kind::MethodNotFound,
            413 => Kind::TooLarge,
            503 => Kind::Unavailable,
            status if status < 500 => Kind::InvalidRequest,
            _ => Kind::Internal,
        };
        let retry_after = problem.more.retry_after;
        A2aError { retry_after, ..A2aError::new(kind, problem.detail.clone()) }
    }
}
