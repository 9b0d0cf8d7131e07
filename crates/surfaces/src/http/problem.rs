//! Errors as RFC 9457 problem details: `application/problem+json`.
//!
//! One type for every surface that speaks it. What an engine's no becomes is each surface's own `error.rs`.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use standfast_core::time::Millis;
use standfast_engine::auth::NamedScope;
use utoipa::ToSchema;

/// An error as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// Names the kind of problem; programs go by it.
    #[serde(rename = "type")]
    #[schema(example = "urn:standfast:problem:not-found")]
    pub kind: String,
    /// The kind in words, the same every time.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What happened here, and what can be done.
    pub detail: String,
    /// What else there is to say.
    #[serde(flatten)]
    pub more: Box<ProblemDetails>,
}

/// What some problems say beside the usual.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct ProblemDetails {
    /// The decision that a hold already has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedDecision>,
    /// Digest of the call as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// How often its arguments were edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// JSON pointer to what is wrong in the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Holds that wait for a decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// The scope that the caller's key lacks, with the agent, inbox or gateway where it has it for others only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub scope: Option<NamedScope>,
    /// How many seconds ago the caller may have signed in at the identity provider, where that was longer ago; sent as a
    /// header as well (RFC 9470).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<i64>,
    /// How the caller could say who they are; sent as headers.
    #[serde(skip)]
    pub challenges: &'static [&'static str],
    /// Agents that have a session of the name that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Seconds after which to try again; sent as a header.
    #[serde(skip)]
    pub retry_after: Option<u32>,
    /// The limit that was reached, and how much it allows in a minute; sent as headers.
    #[serde(skip)]
    pub rate: Option<(&'static str, u32)>,
}

/// The decision that a hold already has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RecordedDecision {
    /// Who decided.
    pub by: String,
    /// When.
    pub at: String,
    /// What.
    pub how: String,
}

impl Problem {
    /// A problem of a kind: a short name with hyphens.
    #[must_use]
    pub fn new(status: StatusCode, kind: &str, title: &'static str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("urn:standfast:problem:{kind}"),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            more: Box::default(),
        }
    }

    /// The same with more to say.
    #[must_use]
    pub fn with(self, more: ProblemDetails) -> Problem {
        Problem { more: Box::new(more), ..self }
    }

    /// Nothing is there, or nothing that the caller may see: both look the same.
    #[must_use]
    pub fn not_found() -> Problem {
        let detail = "not found, or you don't have access";
        Problem::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    /// The caller is known, and their key is not for this.
    #[must_use]
    pub fn missing_scope(scope: impl Into<NamedScope>) -> Problem {
        let scope = scope.into();
        let detail = format!("this request needs a key with the scope {scope}");
        let problem = Problem::new(StatusCode::FORBIDDEN, "missing-scope", "Missing scope", detail);
        problem.with(ProblemDetails { scope: Some(scope), ..ProblemDetails::default() })
    }

    /// The caller is known, and must have signed in more lately for this.
    #[must_use]
    pub fn stale_sign_in(max_age: Millis, detail: String) -> Problem {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "stale-sign-in", "Sign in again", detail);
        problem.with(ProblemDetails { max_age: Some(max_age.0 / 1000), ..ProblemDetails::default() })
    }

    /// The request itself cannot be understood.
    #[must_use]
    pub fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "bad-request", "Bad request", detail)
    }

    /// The request is well formed and still makes no sense.
    #[must_use]
    pub fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Invalid request", detail)
    }
}

/// Copies the headers that say what to do about an error to another form of it. They replace those of that form, so that
/// none is sent twice.
pub(crate) fn keep_advice(from: &HeaderMap, to: &mut HeaderMap) {
    for name in [header::WWW_AUTHENTICATE, header::RETRY_AFTER, header::ALLOW] {
        if from.contains_key(&name) {
            to.remove(&name);
        }
        for value in from.get_all(&name) {
            to.append(name.clone(), value.clone());
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let media_type = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        for challenge in self.more.challenges {
            response.headers_mut().append(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(max_age) = self.more.max_age {
            let challenge = format!(
                "Bearer realm=\"standfast\", error=\"insufficient_user_authentication\", \
                 error_description=\"a more recent sign-in is needed\", max_age=\"{max_age}\""
            );
            let challenge = HeaderValue::from_str(&challenge);
            response
                .headers_mut()
                .extend(challenge.ok().map(|challenge| (header::WWW_AUTHENTICATE, challenge)));
        }
        if let Some(seconds) = self.more.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // For whoever shows it in another form.
        response.extensions_mut().insert(self);
        response
    }
}
