//! What a no becomes in 0.3: the codes that it knows, and how they travel.
//!
//! Over JSON-RPC as in 1.0; over HTTP+JSON the same object is the body, beside a status.

use axum::http::StatusCode;
use serde::Serialize;

use super::super::error::{A2aError, Kind};
use super::super::wire::Detail;

/// An error as 0.3 has it, in either binding.
#[derive(Debug, Serialize)]
pub(super) struct OlderError {
    pub(super) code: i32,
    pub(super) message: String,
    pub(super) data: Vec<Detail>,
}

impl OlderError {
    pub(super) fn of(error: &A2aError) -> OlderError {
        OlderError { code: code(error.kind), message: message(error), data: error.details() }
    }
}

/// What is said: clients of 0.3 know a task that is not there by the first words.
pub(super) fn message(error: &A2aError) -> String {
    if error.kind != Kind::TaskNotFound {
        return error.message.clone();
    }
    match error.message.strip_prefix("task not found, ") {
        Some(rest) => format!("Task not found: there is none with this id, {rest}"),
        None => format!("Task not found: {}", error.message),
    }
}

/// The code of an error; what 0.3 has no code for is an internal error to it.
pub(super) fn code(kind: Kind) -> i32 {
    match kind {
        Kind::VersionNotSupported | Kind::ExtensionSupportRequired => Kind::Internal.names().code,
        Kind::Parse
        | Kind::InvalidRequest
        | Kind::MethodNotFound
        | Kind::InvalidParams
        | Kind::Internal
        | Kind::TaskNotFound
        | Kind::TaskNotCancelable
        | Kind::PushNotificationNotSupported
        | Kind::UnsupportedOperation
        | Kind::ContentTypeNotSupported
        | Kind::ExtendedAgentCardNotConfigured
        | Kind::Unauthenticated
        | Kind::PermissionDenied
        | Kind::TooLarge
        | Kind::Unavailable => kind.names().code,
    }
}

/// The status of an error: that of 1.0, except where the libraries of 0.3 had others.
pub(super) fn http(kind: Kind) -> StatusCode {
    match kind {
        Kind::TaskNotCancelable => StatusCode::CONFLICT,
        Kind::ContentTypeNotSupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Kind::ExtendedAgentCardNotConfigured => StatusCode::NOT_FOUND,
        Kind::Parse
        | Kind::InvalidRequest
        | Kind::MethodNotFound
        | Kind::InvalidParams
        | Kind::Internal
        | Kind::TaskNotFound
        | Kind::PushNotificationNotSupported
        | Kind::UnsupportedOperation
        | Kind::VersionNotSupported
        | Kind::ExtensionSupportRequired
        | Kind::Unauthenticated
        | Kind::PermissionDenied
        | Kind::TooLarge
        | Kind::Unavailable => kind.names().http,
    }
}
