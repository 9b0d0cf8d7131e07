//! The headers of every page: run the server's own module and nothing else, load nothing from elsewhere, keep
//! nothing, tell nobody.
//!
//! Pages show text of models and tools, and their addresses are secrets (T7, T20, T21).

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds them to every answer that does not say otherwise.
pub(crate) async fn add(request: Request, next: Next) -> Response {
    with(next.run(request).await)
}

/// The same answer with them.
pub(crate) fn with(mut response: Response) -> Response {
    set(response.headers_mut());
    response
}

pub(crate) fn set(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Not `no-referrer`: with it browsers send forms with `Origin: null`, which the door refuses. No other origin
        // learns anything either way.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
