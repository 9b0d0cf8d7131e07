//! The style sheet and the icon, embedded in the program.
//!
//! Addresses carry a digest of the contents, so that browsers keep them until they change.

use std::sync::LazyLock;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, routing::MethodRouter};
use standfast_core::digest;

use crate::http::App;

const STYLE: &str = concat!(include_str!("templates/style.css"), include_str!("templates/pages.css"));
const ICON: &str = include_str!("templates/icon.svg");

/// Names the contents of all assets.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let digest = digest::of_parts("standfast.assets.1", &[STYLE.as_bytes(), ICON.as_bytes()]);
    digest.to_string().chars().take(12).collect()
});

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/assets/style.css", asset("text/css; charset=utf-8", STYLE))
        .route("/assets/icon.svg", asset("image/svg+xml", ICON))
}

fn asset(media_type: &'static str, contents: &'static str) -> MethodRouter<App> {
    get(async move |State(_): State<App>, headers: HeaderMap| serve(&headers, media_type, contents))
}

fn serve(asked: &HeaderMap, media_type: &'static str, contents: &'static str) -> Response {
    let tag = format!("\"{}\"", *VERSION);
    let known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let headers = [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (header::CACHE_CONTROL, "private, max-age=86400".to_owned()),
        (header::ETAG, tag),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    if known {
        (StatusCode::NOT_MODIFIED, headers).into_response()
    } else {
        (headers, contents).into_response()
    }
}
