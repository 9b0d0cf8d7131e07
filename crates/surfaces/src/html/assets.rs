//! Styles, the icon and the script, embedded in the program.
//!
//! Addresses carry a digest of the contents, so that browsers keep them until they change. The script is one module: a
//! vendored library that morphs one tree into another (`script/idiomorph.js`, with its licence) and `script/live.js`.

use std::sync::LazyLock;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, routing::MethodRouter};
use standfast_core::digest;

use crate::http::{App, Problem};

/// What pages look like: the frame and everything that pages share.
const STYLE: &str = concat!(include_str!("templates/style.css"), include_str!("templates/pages.css"));
const ICON: &str = include_str!("templates/icon.svg");
/// One module: what `live.js` calls stands before it.
const MODULE: &str = concat!(include_str!("script/idiomorph.js"), "\n", include_str!("script/live.js"));

/// Names the contents of styles and icons.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| short_digest(&[STYLE, ICON]));

/// The name of the script, with its digest.
static SCRIPT_NAME: LazyLock<String> = LazyLock::new(|| format!("live-{}.js", short_digest(&[MODULE])));

/// The address of the script.
pub(crate) static SCRIPT: LazyLock<String> = LazyLock::new(|| format!("/assets/{}", *SCRIPT_NAME));

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/assets/style.css", asset("text/css; charset=utf-8", STYLE))
        .route("/assets/icon.svg", asset("image/svg+xml", ICON))
        .route("/assets/{name}", get(script))
}

fn short_digest(parts: &[&str]) -> String {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    digest::of_parts("standfast.assets.1", &parts).to_string().chars().take(12).collect()
}

fn asset(media_type: &'static str, contents: &'static str) -> MethodRouter<App> {
    get(async move |State(_): State<App>, headers: HeaderMap| {
        serve(&headers, media_type, contents, "private, max-age=86400")
    })
}

/// The script of this version. A page of another version, from before an upgrade, asks for another name: it goes on without.
async fn script(State(_): State<App>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    if name != *SCRIPT_NAME {
        return Problem::not_found().into_response();
    }
    serve(&headers, "text/javascript; charset=utf-8", MODULE, "public, max-age=31536000, immutable")
}

fn serve(
    asked: &HeaderMap,
    media_type: &'static str,
    contents: &'static str,
    kept: &'static str,
) -> Response {
    let tag = format!("\"{}\"", short_digest(&[contents]));
    let known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let headers = [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (header::CACHE_CONTROL, kept.to_owned()),
        (header::ETAG, tag),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    if known {
        (StatusCode::NOT_MODIFIED, headers).into_response()
    } else {
        (headers, contents).into_response()
    }
}
