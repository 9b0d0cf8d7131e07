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
use standfast_core::digest;
use standfast_core::json::MAX_DEPTH;
use standfast_engine::IdempotencyKey;
use tokio::time::timeout;

use super::problem::Problem;

/// Bytes of an idempotency key at most.
const KEY_MAX: usize = 256;

/// How deep a body may be nested: the values in it, and what stands around them.
const DEPTH: usize = MAX_DEPTH + 8;

/// Bytes of a body that room is made for before they are here.
const ROOM_AT_ONCE: usize = 16 * 1024;

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
        read(&json_bytes(request).await?).map(JsonBody)
    }
}

/// A JSON body that its sender may send again under the same `Idempotency-Key`.
#[derive(Debug)]
pub struct Repeatable<T> {
    /// The body.
    pub body: T,
    /// What makes a repeat safe, if the sender gave a key.
    pub once: Option<IdempotencyKey>,
}

impl<S, T> FromRequest<S> for Repeatable<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let key = idempotency_key(request.headers())?;
        let key = key.map(|key| (format!("{} {}", request.method(), request.uri().path()), key));
        let bytes = json_bytes(request).await?;
        let once = key.map(|(route, key)| IdempotencyKey::new(route, key, digest::of_bytes(&bytes)));
        Ok(Repeatable { body: read(&bytes)?, once })
    }
}

/// A JSON body that came in and is not judged yet: for routes that have other things to say first.
#[derive(Debug)]
pub struct UnparsedJson {
    headers: HeaderMap,
    route: String,
    bytes: Vec<u8>,
}

impl<S: Send + Sync> FromRequest<S> for UnparsedJson {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let headers = request.headers().clone();
        let route = format!("{} {}", request.method(), request.uri().path());
        Ok(UnparsedJson { headers, route, bytes: body_bytes(request).await? })
    }
}

impl UnparsedJson {
    /// Reads it after all. A repeat must also have the same `arguments` after the `?`.
    pub fn judge<T: DeserializeOwned>(&self, arguments: &str) -> Result<Repeatable<T>, Problem> {
        let key = idempotency_key(&self.headers)?;
        let bytes = json_or_nothing(is_json(&self.headers), self.bytes.clone())?;
        let request = digest::of_parts("standfast.body.1", &[&bytes, arguments.as_bytes()]);
        let once = key.map(|key| IdempotencyKey::new(self.route.clone(), key, request));
        Ok(Repeatable { body: read(&bytes)?, once })
    }
}

/// The body as it came, within the limits of size and time.
pub async fn body_bytes(request: Request) -> Result<Vec<u8>, Problem> {
    timeout(BODY_WITHIN, whole(request)).await.map_err(|_| too_slow())?
}

async fn json_bytes(request: Request) -> Result<Vec<u8>, Problem> {
    let is_json = is_json(request.headers());
    json_or_nothing(is_json, body_bytes(request).await?)
}

fn json_or_nothing(is_json: bool, bytes: Vec<u8>) -> Result<Vec<u8>, Problem> {
    if bytes.is_empty() {
        return Ok(b"{}".to_vec());
    }
    // A browser sends other types across origins without asking first.
    if is_json {
        Ok(bytes)
    } else {
        let detail = "send content-type: application/json";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Err(Problem::new(status, "not-json", "Unsupported media type", detail))
    }
}

/// The sender's `Idempotency-Key`, if there is one.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
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
        let Query(args) = Query::try_from_uri(&parts.uri).map_err(|bad| wrong_query(&bad.body_text()))?;
        Ok(Args(args))
    }
}

/// What is wrong with the parameters of an address, and which there are.
fn wrong_query(said: &str) -> Problem {
    let said = said.strip_prefix("Failed to deserialize query string: ").unwrap_or(said);
    Problem::bad_request(match said.split_once(": unknown field `") {
        Some((name, rest)) => {
            let known = rest.split_once("expected ").map_or("none", |(_, known)| known);
            let known = known.trim_start_matches("one of ");
            format!("There is no parameter `{name}` at this address. Parameters that it has: {known}.")
        }
        None => format!("A parameter of this address is wrong: {said}."),
    })
}

/// The one variable segment of a path. What is not text is answered like the id of nothing.
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

pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if is_too_deep(bytes) {
        return Err(Problem::bad_request(format!("the body is nested deeper than {DEPTH} levels")));
    }
    let malformed = |error: serde_json::Error| Problem::bad_request(format!("the body is not JSON: {error}"));
    let raw: &RawValue = serde_json::from_slice(bytes).map_err(malformed)?;
    // A derived reader would also take an array of the members in their order.
    if !raw.get().starts_with('{') {
        return Err(Problem::invalid("the body must be a JSON object"));
    }
    let misfit = |error: serde_json::Error| Problem::invalid(format!("invalid body: {error}"));
    serde_json::from_str(raw.get()).map_err(misfit)
}

/// Whether arrays and objects are nested too deep. Looked at before anything is read, because a text that is only
/// passed on would be skipped at any depth and stop somebody else's reader later.
#[must_use]
pub fn is_too_deep(bytes: &[u8]) -> bool {
    let (mut depth, mut in_string, mut is_escaped) = (0usize, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH {
            return true;
        }
    }
    false
}

fn too_slow() -> Problem {
    let detail = "the body did not arrive in time; send the request again";
    Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "Request timeout", detail)
}

/// The body in one piece. Its parts are copied as they come: kept as they are, each would keep the whole buffer that it
/// arrived in, and a client that sends drop by drop would fill the memory.
async fn whole(request: Request) -> Result<Vec<u8>, Problem> {
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    // Nobody makes the server set aside more than a little before they send it.
    let room = announced.and_then(|length| length.parse().ok()).unwrap_or(0usize).min(ROOM_AT_ONCE);
    let mut parts = request.into_limited_body().into_data_stream();
    let mut bytes = Vec::with_capacity(room);
    while let Some(part) = parts.next().await {
        bytes.extend_from_slice(&part.map_err(unread)?);
    }
    Ok(bytes)
}

fn unread(error: axum::Error) -> Problem {
    let why = error.to_string();
    if why.contains("length limit exceeded") {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "Body too large",
            "the body is larger than this server accepts; send large content by reference",
        )
    } else {
        Problem::bad_request(format!("the body cannot be read: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn a_parameter_that_is_none_is_named_with_those_that_there_are() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Known {
            q: Option<String>,
            limit: Option<u32>,
        }
        let detail = |query: &str| {
            let uri = format!("/?{query}").parse().unwrap();
            let known = Query::<Known>::try_from_uri(&uri)
                .map(|Query(known)| known.q.or(known.limit.map(|n| n.to_string())));
            wrong_query(&known.unwrap_err().body_text()).detail
        };
        let text = detail("tol=x");
        assert!(
            text.contains("There is no parameter `tol` at this address. Parameters that it has: `q`"),
            "{text}"
        );
        let text = detail("limit=x");
        assert!(text.contains("A parameter of this address is wrong: limit: invalid digit"), "{text}");
    }

    /// F24: told before anything is read, and brackets in strings do not count.
    #[test]
    fn depth_is_counted_outside_strings() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        for (text, expected) in [
            (nested(DEPTH), false),
            (nested(DEPTH + 1), true),
            ("[".repeat(500_000), true),
            (format!(r#"{{"a": "{}"}}"#, "[".repeat(1000)), false),
            (format!(r#"{{"a": "\"{}"}}"#, "[".repeat(1000)), false),
            (format!(r#"{{"a": "\\", "b": {}}}"#, nested(DEPTH)), true),
            (format!("[{}]", vec!["[]"; 1000].join(",")), false),
        ] {
            assert_eq!(is_too_deep(text.as_bytes()), expected, "{text:.60}");
        }
        assert_eq!(read::<serde_json::Value>(nested(DEPTH + 1).as_bytes()).unwrap_err().status, 400);
    }

    /// F23: whoever begins a body and never ends it is answered all the same. Time is the test's.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_not_waited_for() {
        let endless =
            Body::from_stream(futures_util::stream::pending::<Result<&'static str, std::io::Error>>());
        let request = Request::builder().header("content-type", "application/json").body(endless).unwrap();
        let read = JsonBody::<serde_json::Value>::from_request(request, &()).await;
        assert_eq!(read.unwrap_err().status, 408);
    }
}
