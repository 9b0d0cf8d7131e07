//! The id of a request: in every log line that the request causes, and in its response as `x-request-id`.
//!
//! A client or a proxy may choose it; otherwise it is random. Nothing else goes by it: what makes a repeat safe is the
//! idempotency key.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument as _;

use standfast_engine::clock::random_bytes;

/// The header, in requests and in responses.
const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that a client may choose.
const LONGEST: usize = 64;

/// Puts the request into a span with its id, and the id into the response.
pub async fn attach(request: Request, next: Next) -> Response {
    let id = chosen(request.headers()).unwrap_or_else(random);
    // A span of the highest level is there whatever lines the operator wants to see.
    let span = tracing::error_span!("request", id = id.to_str().unwrap_or_default());
    let mut response = next.run(request).instrument(span).await;
    response.headers_mut().insert(HEADER, id);
    response
}

/// The id that the client chose, if it is one that can stand in a log line.
fn chosen(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(HEADER)?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_short = !id.is_empty() && id.len() <= LONGEST;
    (is_short && id.as_bytes().iter().all(is_plain)).then(|| id.clone())
}

fn random() -> HeaderValue {
    let bytes: [u8; 32] = random_bytes();
    let text: String = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_choose_an_id_that_fits_into_a_line() {
        let taken = |id: &str| {
            let value = HeaderValue::from_str(id).unwrap();
            chosen(&HeaderMap::from_iter([(HEADER, value)])).is_some()
        };
        assert!(taken("4f2a-9.b_1") && taken(&"x".repeat(LONGEST)));
        assert!(!taken("") && !taken(&"x".repeat(LONGEST + 1)) && !taken("a b") && !taken("a=\"b\""));
        assert_eq!(chosen(&HeaderMap::new()), None);
        assert_ne!(random(), random());
    }
}
