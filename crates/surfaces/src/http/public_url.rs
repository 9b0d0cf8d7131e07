//! The address that others reach this server by: for links in answers and on pages.
//!
//! Something in front of the server may put a path before its own; `server.public_url` says so.

use axum::http::{HeaderMap, header};
use standfast_engine::settings::Settings;

/// As configured, else as it was called. The door has let the host in.
#[must_use]
pub fn site(settings: &Settings, headers: &HeaderMap) -> String {
    if let Some(url) = &settings.public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    format!("http://{host}")
}

/// The path that stands before every path of this server, without a slash at its end; empty where there is none.
#[must_use]
pub fn mount(settings: &Settings) -> &str {
    let url = settings.public_url.as_deref().unwrap_or_default();
    let behind_scheme = url.split_once("://").map_or("", |(_, rest)| rest);
    behind_scheme.find('/').map_or("", |at| &behind_scheme[at..]).trim_end_matches('/')
}
