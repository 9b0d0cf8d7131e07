//! Signing in and out, and who one is.
//!
//! A key or token becomes a session: a cookie that scripts cannot read, and a row that ends with the key (the engine's
//! `identity/browser_sessions.rs`). What is tried here counts like what is tried at the door.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::{Deserialize, Serialize};
use standfast_engine::auth::{Identification, Principal};

use super::routes::{PAGES, see_other};
use crate::html::{Failure, PostedForm, SignInPage, Site, Token, sign_in_page};
use crate::http::{App, Args, Door, Peer, forget_session, keep_session, mount, session_cookie};

/// The routes.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/sign-in", get(show).post(sign_in))
        .route("/sign-out", post(sign_out))
        .route("/me", get(me))
}

#[derive(Debug, Deserialize)]
struct SignInArgs {
    next: Option<String>,
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
    sign_in_page(StatusCode::OK, &token, &SignInPage { next, notice: None })
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
            return Ok(sign_in_page(status, &token, &SignInPage { next, notice: Some(notice) }));
        }
    };
    // Whoever signs in again leaves nothing behind.
    if let Some(before) = session_cookie(&headers) {
        app.engine.identity().close_browser_session(before).await?;
    }
    let session = app.engine.identity().open_browser_session(&who, shown.as_deref()).await?;
    let mut response = see_other(&after(&app, &next));
    set_cookie(&mut response, keep_session(&app.engine.settings(), &session));
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
    let mut response = see_other(&format!("{}/sign-in", mount(&settings)));
    set_cookie(&mut response, forget_session(&settings));
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
}

async fn me(Extension(who): Extension<Principal>, Extension(token): Extension<Token>) -> Response {
    let page = MePage {
        user: who.user.to_string(),
        tenant: who.tenant.to_string(),
        groups: who.groups.iter().map(ToString::to_string).collect(),
        roles: who.roles.iter().map(ToString::to_string).collect(),
        scopes: who.scopes.iter().map(|scope| scope.as_str()).collect(),
        by: match &who.by {
            Identification::Local => "nothing: only this machine can call".into(),
            Identification::ApiKey { prefix } => format!("API key sf_{prefix}_…"),
            Identification::Token { .. } => "a token of your identity provider".into(),
        },
    };
    PAGES.page(StatusCode::OK, "me.html", &Site::of(&who, &token), &page)
}

/// A path of this server, or nothing: nobody is sent elsewhere by a link.
fn local(next: Option<String>) -> String {
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

fn after(app: &App, next: &str) -> String {
    let settings = app.engine.settings();
    match next {
        "" => format!("{}/", mount(&settings)),
        next => format!("{}{next}", mount(&settings)),
    }
}

fn set_cookie(response: &mut Response, cookie: String) {
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
