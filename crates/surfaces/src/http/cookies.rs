//! Cookies: how one is read from a request, and the one that a signed-in browser has.
//!
//! What the cookie of a session stands for is the engine's to say (`identity/browser_sessions.rs`). It is taken for pages
//! only: programs show a key or token with each request.

use axum::http::{HeaderMap, header};
use standfast_core::time::Millis;
use standfast_engine::{BrowserSession, Engine};

use super::guard::COMMAND_LINE;
use super::public_url::{is_https, mount};

/// The cookie of a signed-in browser.
const SESSION: &str = "standfast_session";

/// What programs ask for; a cookie says nothing there.
const NOT_PAGES: &[&str] = &["/api/", "/v1/", "/async-tool/", "/async-tools/", "/mcp"];

/// A cookie of a request.
pub fn cookie_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// The cookie of a signed-in browser, where it counts.
pub(super) fn session_for<'a>(headers: &'a HeaderMap, path: &str) -> Option<&'a str> {
    let is_page = !NOT_PAGES.iter().any(|below| path.starts_with(below));
    session_cookie(headers).filter(|_| is_page)
}

/// The cookie of a signed-in browser.
pub fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    cookie_of(headers, SESSION).filter(|value| !value.is_empty())
}

/// What a request shows of a session: the cookie of a browser, or what the command line has.
pub fn shown_session(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|text| text.split_once(' ')).map(|(_, text)| text.trim());
    match bearer {
        Some(text) => text.strip_prefix(COMMAND_LINE),
        None => session_cookie(headers),
    }
}

/// What the command line keeps of a session.
#[must_use]
pub fn command_line_token(session: &BrowserSession) -> String {
    format!("{COMMAND_LINE}{}", session.cookie)
}

/// What tells a browser to keep a session. `Lax` and not `Strict`, because links to holds come from mails and chats: a `Strict`
/// cookie is not sent with them, and whoever has signed in would be asked to do it again. What `Strict` would add is there
/// already: GET changes nothing, a browser sends a `Lax` cookie with no POST of another site, and such a POST is refused by
/// its `Origin` and for want of the token.
#[must_use]
pub fn keep_session(engine: &Engine, session: &BrowserSession) -> String {
    let BrowserSession { cookie, lasts } = session;
    format!(
        "{SESSION}={cookie}; HttpOnly; SameSite=Lax; Path=/; Max-Age={}{}",
        lasts.0 / 1000,
        secure(engine)
    )
}

/// What tells a browser to forget it.
#[must_use]
pub fn forget_session(engine: &Engine) -> String {
    format!("{SESSION}=; HttpOnly; SameSite=Lax; Path=/; Max-Age=0{}", secure(engine))
}

/// What tells a browser to keep what it comes back from the identity provider with. `Lax`, because it comes from another site.
#[must_use]
pub fn keep_sign_in(engine: &Engine, (name, value): (&str, &str), lasts: Millis) -> String {
    let path = format!("{}/sign-in", mount(&engine.settings()));
    format!(
        "{name}={value}; HttpOnly; SameSite=Lax; Path={path}; Max-Age={}{}",
        lasts.0 / 1000,
        secure(engine)
    )
}

/// Browsers send it over https only, where the server knows that it is reached so.
fn secure(engine: &Engine) -> &'static str {
    if is_https(engine) { "; Secure" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(cookies: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookies.parse().unwrap());
        headers
    }

    #[test]
    fn a_session_counts_for_pages_only() {
        let headers = sent("a=b; standfast_session=k.x.y; c=d");
        for path in ["/", "/runs/run_1", "/approve/hold_1", "/events", "/tealagents/v1alpha1/resume/x"] {
            assert_eq!(session_for(&headers, path), Some("k.x.y"), "{path}");
        }
        for path in
            ["/api/v1/runs", "/api/inboxes", "/v1/agents/a/message:send", "/async-tool/pending", "/mcp"]
        {
            assert_eq!(session_for(&headers, path), None, "{path}");
        }
        assert_eq!(session_for(&sent("standfast_session="), "/"), None);
    }
}
