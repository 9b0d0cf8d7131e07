//! What a no becomes on a page: a status, a title, and words that say what to do.
//!
//! Whatever the caller may not see looks like something that does not exist.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use standfast_core::refusal::Refusal;
use standfast_engine::{EngineError, StoreError};

use super::csrf::{Token, set_cookie, token_of};
use super::headers;
use super::render::{MESSAGES, SignInPage, Site, sign_in_page};
use crate::http::{Problem, ProblemWriter, SignInOffer, keep_advice, status};
use crate::labels::span;

/// A no, as a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) title: String,
    pub(crate) text: String,
    /// Seconds after which to try again; sent as a header.
    pub(crate) retry_after: Option<u32>,
    /// Where to go on from here: an address, and what its button says.
    pub(crate) way_on: Option<(String, &'static str)>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, title: &str, text: &str) -> Failure {
        Failure { status, title: title.into(), text: text.into(), retry_after: None, way_on: None }
    }

    pub(crate) fn not_found() -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "Not found", "It does not exist, or you have no access to it.")
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
                Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", &text)
            }
            EngineError::KeyReused { .. } => {
                let text = "This form was already submitted with other values. Reload the page.";
                Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Already submitted", text)
            }
            EngineError::SessionClosed { .. } => {
                Failure::new(StatusCode::CONFLICT, "The session is closed", &error.to_string())
            }
            EngineError::MissingScope(_) => {
                Failure::new(StatusCode::FORBIDDEN, "Missing scope", &error.to_string())
            }
            EngineError::StaleSignIn { max_age } => {
                let text = format!(
                    "Approving this needs a sign-in at the identity provider within the last {}. Nothing was decided: sign in \
                     again, then decide.",
                    span(*max_age)
                );
                Failure::new(StatusCode::FORBIDDEN, "Sign in again", &text)
            }
            EngineError::Store(failure) => failed(failure),
            EngineError::Refused(refusal) => refused(refusal),
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Failure::new(status, problem.title, &sentence(&problem.detail))
    }
}

fn refused(refusal: &Refusal) -> Failure {
    let title = match refusal {
        Refusal::NoSuchHold(_) | Refusal::NoSuchCall(_) => return Failure::not_found(),
        Refusal::Stale { .. } | Refusal::MustRepeatDigest { .. } => {
            let text = "Nothing was decided. The call as it would run now is shown below; review it before you decide.";
            return Failure::new(status::of_refusal(refusal), "Changed since you saw it", text);
        }
        Refusal::AlreadyDecided(_) => {
            let text = "Your decision was not taken, because this already has one. It is shown below.";
            return Failure::new(status::of_refusal(refusal), "Already decided", text);
        }
        Refusal::NotAllowed(_) => "You may not decide this",
        Refusal::Expired(_) => "Too late",
        Refusal::Ended(_) => "The run has ended",
        Refusal::WrongKind { .. } => "Wrong decision for this kind of hold",
        Refusal::Forbidden { .. } => "A rule forbids these arguments",
        Refusal::Tampered { .. } => "Stored data changed",
        Refusal::Erased => "Contents erased",
        Refusal::NotEnded
        | Refusal::Held { .. }
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
        | Refusal::Cap { .. } => "Not possible now",
    };
    Failure::new(status::of_refusal(refusal), title, &sentence(&refusal.to_string()))
}

fn failed(failure: &StoreError) -> Failure {
    let text = sentence(&failure.to_string());
    let (title, then) = match failure {
        StoreError::NotFound { .. } => return Failure::not_found(),
        StoreError::Guard { .. } => ("Precondition failed", ""),
        StoreError::Conflict { .. } | StoreError::Unavailable { .. } => {
            ("Temporarily unavailable", " Try again in a moment.")
        }
        StoreError::Unknown { .. } => ("Outcome unknown", " Reload the page before you repeat it."),
        StoreError::Corrupt { .. } => ("Stored data cannot be read", ""),
        StoreError::Newer { .. } => ("Written by a newer version", " Retry when this server is upgraded."),
    };
    let (status, retry_after) = status::of_store(failure);
    Failure { retry_after, ..Failure::new(status, title, &format!("{text}{then}")) }
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
            way_on: Option<(&'a str, &'static str)>,
        }
        let way_on = self.way_on.as_ref().map(|(address, says)| (address.as_str(), *says));
        let message = Message { title: &self.title, text: &self.text, way_on };
        let mut page = MESSAGES.page(self.status, "message.html", &Site::anonymous(), &message);
        if let Some(seconds) = self.retry_after {
            page.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        page
    }
}

/// Shows browsers a page where programs get problem details: at the door, and where there is nothing.
#[must_use]
pub fn retells(request: &Request) -> Option<ProblemWriter> {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_browser = accept.is_some_and(|accept| accept.contains("text/html"));
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::POST);
    if !is_browser || !is_read {
        return None;
    }
    let token = token_of(request.headers());
    // A form that was sent by somebody who is not signed in (any more) is lost; they come back to the page that had it.
    let next = match *request.method() {
        Method::POST => String::new(),
        _ => request.uri().path_and_query().map(ToString::to_string).unwrap_or_default(),
    };
    Some(Box::new(move |problem: &Problem, response: &Response| as_page(problem, response, &token, next)))
}

fn as_page(problem: &Problem, response: &Response, token: &Token, next: String) -> Response {
    let mut page = if response.status() == StatusCode::UNAUTHORIZED {
        let was_form = next.is_empty();
        let notice =
            was_form.then(|| "Your session has ended, so nothing was changed. Sign in and repeat it.".into());
        let provider = response.extensions().get::<SignInOffer>().map(|offer| offer.0.clone());
        let page = SignInPage { next, notice, provider, sign_out_url: None };
        let mut page = sign_in_page(StatusCode::UNAUTHORIZED, token, &page);
        set_cookie(token, &mut page);
        page
    } else {
        // Who reads a page looks for another page, not for the paths of the API.
        let path = next.split('?').next().filter(|path| !path.is_empty());
        let text = match path.filter(|_| problem.kind.ends_with(":no-such-path")) {
            Some(path) => format!("There is no page {path}."),
            None => sentence(&problem.detail),
        };
        Failure::new(response.status(), problem.title, &text).into_response()
    };
    headers::set(page.headers_mut());
    keep_advice(response.headers(), page.headers_mut());
    page
}

#[cfg(test)]
mod tests {
    use standfast_core::id::{RunId, StorageKind};
    use standfast_core::name::Tenant;
    use standfast_core::time::Timestamp;

    use super::*;

    /// A page refuses with the status that the API has for it; who should come back later gets the time.
    #[test]
    fn a_page_has_the_status_of_the_api() {
        let run = RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(0), [1; 5]);
        let why = || "the disk is full".to_owned();
        for (failure, status, retry_after) in [
            (StoreError::NotFound { run }, 404, None),
            (StoreError::Guard { which: 0, why: why() }, 409, None),
            (StoreError::Conflict { run }, 503, Some(1)),
            (StoreError::Unavailable { why: why() }, 503, Some(1)),
            (StoreError::Unknown { why: why() }, 503, Some(1)),
            (StoreError::Newer { run, found: 9 }, 503, Some(30)),
            (StoreError::Corrupt { run, why: why() }, 500, None),
        ] {
            let page = Failure::from(EngineError::Store(failure.clone()));
            assert_eq!((page.status.as_u16(), page.retry_after), (status, retry_after), "{failure}");
            let response = page.into_response();
            let header = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            assert_eq!(header.map(str::to_owned), retry_after.map(|seconds| seconds.to_string()));
            assert_eq!(response.status().as_u16(), status);
        }
    }
}
