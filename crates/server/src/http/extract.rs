//! Reading requests: JSON bodies and query arguments, with errors as problem details.
//!
//! A body is read from its bytes in one pass, so that raw JSON inside it keeps its text.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use holdpoint_core::digest;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::problem::Problem;
use crate::engine::Once;

/// Bytes of an idempotency key at most.
const KEY_MAX: usize = 256;

/// A JSON body. An absent one counts as `{}`.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<S, T> FromRequest<S> for JsonBody<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        read(&json_bytes(request, state).await?).map(JsonBody)
    }
}

/// A JSON body that its sender may send again under the same `Idempotency-Key`.
#[derive(Debug)]
pub struct Repeatable<T> {
    /// The body.
    pub body: T,
    /// What makes a repeat safe, if the sender gave a key.
    pub once: Option<Once>,
}

impl<S, T> FromRequest<S> for Repeatable<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let key = idempotency_key(request.headers())?;
        let route = format!("{} {}", request.method(), request.uri().path());
        let bytes = json_bytes(request, state).await?;
        let once = key.map(|key| Once { route, key, request: digest::of_bytes(&bytes) });
        Ok(Repeatable { body: read(&bytes)?, once })
    }
}

async fn json_bytes<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    let is_json = is_json(request.headers());
    let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
    if bytes.is_empty() {
        return Ok(Bytes::from_static(b"{}"));
    }
    // A browser sends other types across origins without asking first.
    match is_json {
        true => Ok(bytes),
        false => {
            let detail = "send content-type: application/json";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            Err(Problem::new(status, "not-json", "Unsupported media type", detail))
        }
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let unreadable = |_| Problem::bad_request("Idempotency-Key is not plain text");
    match headers.get("idempotency-key").map(|value| value.to_str()).transpose().map_err(unreadable)? {
        Some("") => Err(Problem::bad_request("Idempotency-Key is empty")),
        Some(key) if key.len() > KEY_MAX => {
            Err(Problem::bad_request(format!("Idempotency-Key has more than {KEY_MAX} bytes")))
        }
        other => Ok(other.map(str::to_owned)),
    }
}

/// The arguments after the `?`.
#[derive(Debug)]
pub struct Args<T>(pub T);

impl<S, T> FromRequestParts<S> for Args<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let Query(args) =
            Query::try_from_uri(&parts.uri).map_err(|bad| Problem::bad_request(bad.body_text()))?;
        Ok(Args(args))
    }
}

/// The one variable segment of a path. What is no text is answered like the id of nothing.
#[derive(Debug)]
pub struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::from_request_parts(parts, state).await.map_err(|_| Problem::not_found())?;
        Ok(Segment(text))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let malformed = |error: serde_json::Error| Problem::bad_request(format!("the body is not JSON: {error}"));
    let raw: &RawValue = serde_json::from_slice(bytes).map_err(malformed)?;
    // A derived reader would also take an array of the members in their order.
    if !raw.get().starts_with('{') {
        return Err(Problem::invalid("the body must be a JSON object"));
    }
    let misfit = |error: serde_json::Error| Problem::invalid(format!("the body does not fit: {error}"));
    serde_json::from_str(raw.get()).map_err(misfit)
}

fn unread(rejection: BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "Body too large",
            "the body has more bytes than this server takes; send large things by reference",
        ),
        _ => Problem::bad_request(rejection.body_text()),
    }
}
