//! Reading requests: JSON bodies and query arguments, with errors as problem details.
//!
//! A body is read from its bytes in one pass, so that raw JSON inside it keeps its text.

use std::time::Duration;

use axum::RequestExt;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::problem::Problem;

/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// A JSON body. An absent one counts as `{}`.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<S, T> FromRequest<S> for JsonBody<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let is_json = is_json(request.headers());
        let bytes = timeout(BODY_WITHIN, whole(request)).await.map_err(|_| too_slow())??;
        if bytes.is_empty() {
            return read(b"{}").map(JsonBody);
        }
        // A browser sends other types across origins without asking first.
        if !is_json {
            let (status, detail) =
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send content-type: application/json");
            return Err(Problem::new(status, "not-json", "Unsupported media type", detail));
        }
        read(&bytes).map(JsonBody)
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

fn too_slow() -> Problem {
    let (status, detail) = (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time; send it at once");
    Problem::new(status, "too-slow", "Body too slow", detail)
}

/// The body in one piece. Its parts are copied as they come: kept as they are, each would keep the whole buffer that it
/// arrived in, and a client that sends drop by drop would fill the memory.
async fn whole(request: Request) -> Result<Vec<u8>, Problem> {
    let mut parts = request.into_limited_body().into_data_stream();
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        bytes.extend_from_slice(&part.map_err(unread)?);
    }
    Ok(bytes)
}

fn unread(error: axum::Error) -> Problem {
    let why = error.to_string();
    match why.contains("length limit exceeded") {
        true => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "Body too large",
            "the body has more bytes than this server takes; send large things by reference",
        ),
        false => Problem::bad_request(format!("the body cannot be read: {why}")),
    }
}
