//! The address that others reach this server by: for links in answers and on pages.
//!
//! Something in front of the server may put a path before its own; `server.public_url` says so.

use axum::http::{HeaderMap, header};
use standfast_engine::Engine;
use standfast_engine::settings::Settings;

/// As configured, else as it was called. The door has let the host in.
#[must_use]
pub fn site(engine: &Engine, headers: &HeaderMap) -> String {
    if let Some(url) = &engine.settings().public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let scheme = if engine.fixed().speaks_https { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// Whether browsers reach this server over https, as far as it knows: it ends TLS itself, or something in front of it does.
#[must_use]
pub fn is_https(engine: &Engine) -> bool {
    let is_public =
        |settings: &Settings| settings.public_url.as_deref().is_some_and(|url| url.starts_with("https:"));
    engine.fixed().speaks_https || is_public(&engine.settings())
}

/// The path that stands before every path of this server, without a slash at its end; empty where there is none.
#[must_use]
pub fn mount(settings: &Settings) -> &str {
    let url = settings.public_url.as_deref().unwrap_or_default();
    let behind_scheme = url.split_once("://").map_or("", |(_, rest)| rest);
    behind_scheme.find('/').map_or("", |at| &behind_scheme[at..]).trim_end_matches('/')
}
