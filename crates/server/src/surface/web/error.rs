//! What a no becomes on a page: a status, a title, and words that say what to do.
//!
//! Whatever the caller may not see looks like something that does not exist.

use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdpoint_core::refusal::Refusal;
use serde::Serialize;

use super::{headers, render};
use crate::engine::{EngineError, StoreError};
use crate::http::Problem;

/// A no, as a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) title: String,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, title: &str, text: &str) -> Failure {
        Failure { status, title: title.into(), text: text.into() }
    }

    pub(super) fn not_found() -> Failure {
        Failure::new(
            StatusCode::NOT_FOUND,
            "Not found",
            "There is nothing here with this id that you may see.",
        )
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        match &error {
            EngineError::NotFound => Failure::not_found(),
            EngineError::NoSuchAgent { .. } => {
                Failure::new(StatusCode::NOT_FOUND, "No such agent", &error.to_string())
            }
            EngineError::BreaksSchema(broken) => {
                let place = match broken.pointer.as_str() {
                    "" => String::new(),
                    pointer => format!("At {pointer}: "),
                };
                let text = format!("{place}{}. Nothing was decided.", broken.why);
                Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "This does not fit", &text)
            }
            EngineError::KeyReused { .. } => {
                let text = "This form was sent before with something else in it. Open the page again.";
                Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Already sent", text)
            }
            EngineError::SessionClosed { .. } => {
                Failure::new(StatusCode::CONFLICT, "The session is closed", &error.to_string())
            }
            EngineError::MissingScope(_) => {
                Failure::new(StatusCode::FORBIDDEN, "Your key is not for this", &error.to_string())
            }
            EngineError::Store(failure) => failed(failure),
            EngineError::Refused(refusal) => refused(refusal),
        }
    }
}

fn refused(refusal: &Refusal) -> Failure {
    let (status, title) = match refusal {
        Refusal::NoSuchHold(_) | Refusal::NoSuchCall(_) => return Failure::not_found(),
        Refusal::NotAllowed(_) => (StatusCode::FORBIDDEN, "You may not decide this"),
        Refusal::Stale { .. } | Refusal::MustRepeatDigest { .. } => {
            let text =
                "Nothing was decided. Below is the call as it would run now; look again before you decide.";
            return Failure::new(StatusCode::CONFLICT, "Changed since you saw it", text);
        }
        Refusal::AlreadyDecided(_) => {
            let text = "Your decision was not taken, because this already has one. It is shown below.";
            return Failure::new(StatusCode::CONFLICT, "Already decided", text);
        }
        Refusal::Expired(_) => (StatusCode::CONFLICT, "Too late"),
        Refusal::Ended(_) => (StatusCode::CONFLICT, "The run is over"),
        Refusal::WrongKind { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "Not a decision for this"),
        Refusal::Forbidden { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "A rule forbids these arguments"),
        Refusal::Tampered { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "Stored data changed"),
        Refusal::Erased => (StatusCode::GONE, "Contents deleted"),
        Refusal::NotEnded
        | Refusal::Held { .. }
        | Refusal::NotExpired(_)
        | Refusal::CallNotReady(_)
        | Refusal::StaleAttempt { .. }
        | Refusal::TooLate(_)
        | Refusal::NotOrphanedYet { .. }
        | Refusal::NotThinking
        | Refusal::CallStarted(_)
        | Refusal::WrongDriver
        | Refusal::ClaimedByOther { .. }
        | Refusal::NotClaimable
        | Refusal::Cap { .. } => (StatusCode::CONFLICT, "Not possible now"),
    };
    Failure::new(status, title, &sentence(&refusal.to_string()))
}

fn failed(failure: &StoreError) -> Failure {
    let text = sentence(&failure.to_string());
    match failure {
        StoreError::NotFound { .. } => Failure::not_found(),
        StoreError::Conflict { .. } | StoreError::Guard { .. } | StoreError::Unavailable { .. } => {
            let text = format!("{text} Try again in a moment.");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Not available now", &text)
        }
        StoreError::Unknown { .. } => {
            let text = format!("{text} Look at the page again before you repeat it.");
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Nobody knows whether it was written", &text)
        }
        StoreError::Corrupt { .. } => {
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Stored data cannot be read", &text)
        }
        StoreError::Newer { .. } => {
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Written by a newer version", &text)
        }
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Message<'a> {
            title: &'a str,
            text: &'a str,
        }
        let message = Message { title: &self.title, text: &self.text };
        render::page(self.status, "message.html", &render::Site::anonymous(), &message)
    }
}

/// Shows browsers a page where programs get problem details: at the door, and where there is nothing.
pub async fn problems_as_pages(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_browser = accept.is_some_and(|accept| accept.contains("text/html"));
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::POST);
    let response = next.run(request).await;
    match response.extensions().get::<Problem>() {
        Some(problem) if is_browser && is_read && !is_api => {
            let status = response.status();
            let mut page = Failure::new(status, problem.title, &sentence(&problem.detail)).into_response();
            headers::set(page.headers_mut());
            for name in [header::WWW_AUTHENTICATE, header::RETRY_AFTER, header::ALLOW] {
                for value in response.headers().get_all(&name) {
                    page.headers_mut().append(name.clone(), value.clone());
                }
            }
            page
        }
        Some(_) | None => response,
    }
}
