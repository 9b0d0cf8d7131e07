//! The id of a request: in every log line that the request causes, and in its response as `x-request-id`.
//!
//! A client or a proxy may choose it; otherwise it is random. Nothing else goes by it: what makes a repeat safe is the
//! idempotency key.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use standfast_engine::clock::random_bytes;

/// The header, in requests and in responses.
pub(super) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that a client may choose.
const LONGEST: usize = 64;

/// The id of a request with these headers.
pub(super) fn of(headers: &HeaderMap) -> HeaderValue {
    chosen(headers).unwrap_or_else(random)
}

/// A span with the id. One of the highest level is there whatever lines the operator wants to see.
pub(super) fn span(id: &HeaderValue) -> tracing::Span {
    // Who asks is filled in at the door, which knows whom a proxy speaks for.
    tracing::error_span!("request", id = id.to_str().unwrap_or_default(), from = tracing::field::Empty)
}

/// The id that the client chose, if it is one that can stand in a log line.
fn chosen(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(HEADER)?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_short = !id.is_empty() && id.len() <= LONGEST;
    (is_short && id.as_bytes().iter().all(is_plain)).then(|| id.clone())
}

fn random() -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes: [u8; 8] = random_bytes();
    let mut text = [b'0'; 16];
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| DIGITS[usize::from(half)]);
    text.iter_mut().zip(digits).for_each(|(to, digit)| *to = digit);
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("none"))
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
