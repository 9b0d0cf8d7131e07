//! Signing in and out, who one is, and one's sessions.
//!
//! A key or token becomes a session: a cookie that scripts cannot read, and a row that ends with the key (the engine's
//! `identity/browser_sessions.rs`). What is tried here counts like what is tried at the door. The way over an identity provider
//! is `provider_sign_in.rs`.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::{Deserialize, Serialize};
use standfast_engine::auth::{Identification, Principal, SessionClient};
use standfast_engine::{SessionSource, SignInView};

use super::pages::ShownInstant;
use super::routes::{PAGES, see_other};
use crate::html::{Failure, PostedForm, SignInPage, Site, Token, sign_in_page};
use crate::http::{App, Args, Door, Peer, Segment, forget_session, keep_session, mount, session_cookie};

/// The routes.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/sign-in", get(show).post(sign_in))
        .route("/sign-out", post(sign_out))
        .route("/me", get(me))
        .route("/me/sessions/end-others", post(end_others))
        .route("/me/sessions/{session}/end", post(end_session))
}

#[derive(Debug, Deserialize)]
struct SignInArgs {
    next: Option<String>,
    /// Somebody has just signed out.
    signed_out: Option<String>,
}

async fn show(
    State(app): State<App>,
    Extension(token): Extension<Token>,
    Args(to): Args<SignInArgs>,
) -> Response {
    let next = local(to.next);
    if !app.engine.identity().has_sign_in() {
        return see_other(&after(&app, &next));
    }
    let sign_out_url = match to.signed_out {
        Some(_) => app.engine.identity().sign_out_url().await,
        None => None,
    };
    let page = SignInPage { sign_out_url, ..page_of(&app, next, None) };
    sign_in_page(StatusCode::OK, &token, &page)
}

/// The page where one signs in here.
pub(super) fn page_of(app: &App, next: String, notice: Option<String>) -> SignInPage {
    SignInPage { next, notice, provider: app.engine.identity().sign_in_label(), sign_out_url: None }
}

/// What a browser says of itself, for its user to tell sessions apart.
pub(super) fn user_agent(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok())
}

/// The name of a browser and of its system, of what it says of itself; where that is not known, what it says.
fn browser_name(said: &str) -> String {
    // Each says that it is several others as well: the one that no other says comes first.
    const BROWSERS: [(&str, &str); 7] = [
        ("Edg", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("FxiOS/", "Firefox"),
        ("CriOS/", "Chrome"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
    ];
    const SYSTEMS: [(&str, &str); 7] = [
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("Mac OS X", "macOS"),
        ("CrOS", "ChromeOS"),
        ("Linux", "Linux"),
    ];
    match (named(said, &BROWSERS), named(said, &SYSTEMS)) {
        (Some(browser), Some(system)) if said.starts_with("Mozilla/") => format!("{browser} on {system}"),
        _ => said.to_owned(),
    }
}

/// The name of the first part that a text has.
fn named(said: &str, known: &[(&str, &'static str)]) -> Option<&'static str> {
    known.iter().find(|(part, _)| said.contains(part)).map(|(_, name)| *name)
}

async fn sign_in(
    State(app): State<App>,
    Extension(token): Extension<Token>,
    Extension(door): Extension<Door>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let next = local(posted.get("next"));
    let typed = posted.get("key").unwrap_or_default();
    let (who, shown) = match door.identify_typed(peer.map(|Extension(peer)| peer), &typed).await {
        Ok(found) => found,
        Err(problem) => {
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNAUTHORIZED);
            let notice = match status {
                StatusCode::UNAUTHORIZED => {
                    "This key is not valid: it is mistyped, unknown, expired or revoked.".to_owned()
                }
                _ => problem.detail,
            };
            return Ok(sign_in_page(status, &token, &page_of(&app, next, Some(notice))));
        }
    };
    // Whoever signs in again leaves nothing behind.
    if let Some(before) = session_cookie(&headers) {
        app.engine.identity().close_browser_session(before).await?;
    }
    let session =
        app.engine.identity().open_browser_session(&who, shown.as_deref(), user_agent(&headers)).await?;
    let mut response = see_other(&after(&app, &next));
    set_cookie(&mut response, keep_session(&app.engine, &session));
    Ok(response)
}

async fn sign_out(
    State(app): State<App>,
    headers: HeaderMap,
    _posted: PostedForm,
) -> Result<Response, Failure> {
    if let Some(cookie) = session_cookie(&headers) {
        app.engine.identity().close_browser_session(cookie).await?;
    }
    let settings = app.engine.settings();
    let mut response = see_other(&format!("{}/sign-in?signed_out=1", mount(&settings)));
    set_cookie(&mut response, forget_session(&app.engine));
    Ok(response)
}

/// Who looks.
#[derive(Debug, Serialize)]
struct MePage {
    user: String,
    tenant: String,
    groups: Vec<String>,
    roles: Vec<String>,
    scopes: Vec<&'static str>,
    by: String,
    sessions: Vec<SessionItem>,
    has_others: bool,
}

/// One of their sessions.
#[derive(Debug, Serialize)]
struct SessionItem {
    id: String,
    client: &'static str,
    by: String,
    label: Option<String>,
    began: Option<ShownInstant>,
    seen: Option<ShownInstant>,
    ends: ShownInstant,
    is_current: bool,
}

async fn me(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Extension(token): Extension<Token>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let now = app.engine.clock().now();
    let found = app.engine.identity().my_sessions(&who, session_cookie(&headers)).await?;
    let item = |view: SignInView| SessionItem {
        id: view.id,
        client: match view.client {
            SessionClient::Browser => "Browser",
            SessionClient::CommandLine => "Command line",
        },
        by: match view.by {
            SessionSource::Key { prefix } => format!("API key sf_{prefix}_…"),
            SessionSource::Token => "a token".into(),
            SessionSource::SignIn => "your identity provider".into(),
        },
        label: view.label.as_deref().map(browser_name),
        began: view.began_at.map(|at| ShownInstant::new(at, now)),
        seen: view.seen_at.map(|at| ShownInstant::new(at, now)),
        ends: ShownInstant::new(view.expires_at, now),
        is_current: view.is_current,
    };
    let sessions: Vec<SessionItem> = found.into_iter().map(item).collect();
    let page = MePage {
        user: who.user.to_string(),
        tenant: who.tenant.to_string(),
        groups: who.groups.iter().map(ToString::to_string).collect(),
        roles: who.roles.iter().map(ToString::to_string).collect(),
        scopes: who.scopes.iter().map(|scope| scope.as_str()).collect(),
        by: match &who.by {
            Identification::Local => "nothing: only this machine can call".into(),
            Identification::ApiKey { prefix } => format!("API key sf_{prefix}_…"),
            Identification::Token { .. } => "your identity provider".into(),
            Identification::Link => "an approval link".into(),
            Identification::Configured => "the configuration".into(),
        },
        has_others: sessions.iter().any(|session| !session.is_current),
        sessions,
    };
    Ok(PAGES.page(StatusCode::OK, "me.html", &Site::of(&who, &token), &page))
}

async fn end_session(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Segment(session): Segment,
    _posted: PostedForm,
) -> Result<Response, Failure> {
    app.engine.identity().end_my_session(&who, &session).await?;
    Ok(see_other(&format!("{}/me", mount(&app.engine.settings()))))
}

async fn end_others(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    headers: HeaderMap,
    _posted: PostedForm,
) -> Result<Response, Failure> {
    app.engine.identity().end_my_other_sessions(&who, session_cookie(&headers)).await?;
    Ok(see_other(&format!("{}/me", mount(&app.engine.settings()))))
}

/// A path of this server, or nothing: nobody is sent elsewhere by a link.
pub(super) fn local(next: Option<String>) -> String {
    let is_path = |next: &String| {
        let mut letters = next.chars();
        letters.next() == Some('/')
            && !matches!(letters.next(), Some('/' | '\\'))
            && !next.contains(char::is_control)
            && next.is_ascii()
            && next.len() <= 2_000
    };
    next.filter(is_path).unwrap_or_default()
}

pub(super) fn after(app: &App, next: &str) -> String {
    let settings = app.engine.settings();
    match next {
        "" => format!("{}/", mount(&settings)),
        next => format!("{}{next}", mount(&settings)),
    }
}

pub(super) fn set_cookie(response: &mut Response, cookie: String) {
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_named_by_what_it_says_of_itself() {
        let webkit = "AppleWebKit/537.36 (KHTML, like Gecko)";
        for (said, name) in [
            (format!("Mozilla/5.0 (X11; Linux x86_64) {webkit} HeadlessChrome/156.0.0.0 Safari/537.36"), "Chrome on Linux"),
            (format!("Mozilla/5.0 (Windows NT 10.0; Win64; x64) {webkit} Chrome/156.0 Safari/537.36 Edg/156.0"), "Edge on Windows"),
            (format!("Mozilla/5.0 (Linux; Android 14; Pixel 8) {webkit} Chrome/156.0 Mobile Safari/537.36"), "Chrome on Android"),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605 Version/19 Mobile Safari/604.1".into(), "Safari on iPhone"),
            ("Mozilla/5.0 (Macintosh; Intel Mac OS X 14.4; rv:150.0) Gecko/20100101 Firefox/150.0".into(), "Firefox on macOS"),
            ("curl/8.7 (Linux) Chrome/1".into(), "curl/8.7 (Linux) Chrome/1"),
            ("ann@laptop".into(), "ann@laptop"),
        ] {
            assert_eq!(browser_name(&said), name, "{said}");
        }
    }

    #[test]
    fn nobody_is_sent_to_another_server() {
        for next in ["/", "/approve/hold_1?x=y", "/runs"] {
            assert_eq!(local(Some(next.into())), next);
        }
        for next in ["//evil.example", "/\\evil.example", "https://evil.example", "", "x", "/a\r\nb", "/ü"] {
            assert_eq!(local(Some(next.into())), "", "{next}");
        }
    }
}
