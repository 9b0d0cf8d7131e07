//! Signing in at an identity provider, as browsers see it: the way there, the way back, and the provider's own word that
//! somebody has signed out.
//!
//! Looking begins nothing but a redirect. The way back counts only in the browser that was sent there, by a sealed cookie, and
//! leads to pages of this server alone. What a sign-in is, is the engine's (`identity/sign_ins.rs`).

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::json;
use standfast_core::time::Millis;
use standfast_engine::auth::{AuthorizationCode, SignInError};
use standfast_engine::{Identity, SignInFailure};

use super::routes::see_other;
use super::sign_in::{after, local, page_of, set_cookie, user_agent};
use crate::html::{Failure, Token, sign_in_page};
use crate::http::{App, Args, cookie_of, keep_session, keep_sign_in, session_cookie};

/// The routes.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/sign-in/start", get(start))
        .route("/sign-in/callback", get(callback))
        .route("/sign-in/backchannel-logout", post(backchannel_logout))
}

#[derive(Debug, Deserialize)]
struct StartArgs {
    next: Option<String>,
    /// Seconds: how long ago they may have signed in at the provider.
    max_age: Option<u32>,
}

async fn start(
    State(app): State<App>,
    Extension(token): Extension<Token>,
    Args(args): Args<StartArgs>,
) -> Result<Response, Failure> {
    let next = local(args.next);
    let max_age = args.max_age.map(|seconds| Millis::seconds(seconds.into()));
    match app.engine.identity().begin_sign_in(&next, max_age).await {
        Ok(begun) => {
            let mut response = see_other(&begun.url);
            let (name, value) = &begun.cookie;
            set_cookie(&mut response, keep_sign_in(&app.engine, (name, value), begun.lasts));
            Ok(response)
        }
        Err(failure) => refused(&app, &token, next, failure),
    }
}

/// What a browser comes back with.
#[derive(Deserialize)]
struct CallbackArgs {
    state: Option<String>,
    code: Option<String>,
    iss: Option<String>,
    error: Option<String>,
}

async fn callback(
    State(app): State<App>,
    Extension(token): Extension<Token>,
    headers: HeaderMap,
    Args(args): Args<CallbackArgs>,
) -> Result<Response, Failure> {
    let state = args.state.unwrap_or_default();
    let name = Identity::sign_in_cookie(&state);
    let forget = keep_sign_in(&app.engine, (&name, ""), Millis(0));
    let mut response = match (cookie_of(&headers, &name).filter(|cookie| !cookie.is_empty()), args.code) {
        (Some(cookie), Some(code)) => {
            let code = AuthorizationCode { code, issuer: args.iss };
            finish(&app, &token, &headers, (cookie, &state, &code)).await?
        }
        (Some(cookie), None) => {
            let error: String =
                args.error.unwrap_or_default().chars().filter(char::is_ascii_graphic).take(60).collect();
            let failure = app.engine.identity().refused_by_provider(cookie, &state, &error).await;
            refused(&app, &token, String::new(), failure)?
        }
        (None, _) => refused(&app, &token, String::new(), SignInFailure::Stale)?,
    };
    set_cookie(&mut response, forget);
    Ok(response)
}

async fn finish(
    app: &App,
    token: &Token,
    headers: &HeaderMap,
    (cookie, state, code): (&str, &str, &AuthorizationCode),
) -> Result<Response, Failure> {
    let identity = app.engine.identity();
    let done = match identity.finish_sign_in(cookie, state, code, user_agent(headers)).await {
        Ok(done) => done,
        Err(failure) => return refused(app, token, String::new(), failure),
    };
    // Whoever signs in again leaves nothing behind.
    if let Some(before) = session_cookie(headers) {
        identity.close_browser_session(before).await?;
    }
    let mut response = see_other(&after(app, &local(Some(done.next))));
    set_cookie(&mut response, keep_session(&app.engine, &done.session));
    Ok(response)
}

/// The page where one signs in, with what went wrong.
fn refused(app: &App, token: &Token, next: String, failure: SignInFailure) -> Result<Response, Failure> {
    let (status, notice) = match failure {
        SignInFailure::Off => return Err(Failure::not_found()),
        SignInFailure::Engine(error) => return Err(error.into()),
        SignInFailure::Stale | SignInFailure::Used => (StatusCode::FORBIDDEN, failure.to_string()),
        SignInFailure::Provider(SignInError::Refused(why)) => (StatusCode::FORBIDDEN, why),
        SignInFailure::Provider(SignInError::Unavailable(_)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "your identity provider cannot be reached right now; retry, or sign in with a key".to_owned(),
        ),
    };
    let mut letters = notice.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase().to_string()).unwrap_or_default();
    let notice = format!("Nobody was signed in. {first}{}.", letters.as_str());
    Ok(sign_in_page(status, token, &page_of(app, next, Some(notice))))
}

#[derive(Deserialize)]
struct LogoutForm {
    logout_token: String,
}

/// OpenID Connect Back-Channel Logout: the provider says that somebody has signed out.
async fn backchannel_logout(
    State(app): State<App>,
    form: Result<Form<LogoutForm>, FormRejection>,
) -> Response {
    let invalid = |why: &str| {
        let body = json!({"error": "invalid_request", "error_description": why});
        (StatusCode::BAD_REQUEST, Json(body)).into_response()
    };
    let mut response = match form {
        Err(_) => invalid("logout_token is missing"),
        Ok(Form(form)) => match app.engine.identity().end_by_provider(&form.logout_token).await {
            Ok(_) => StatusCode::OK.into_response(),
            Err(SignInFailure::Provider(SignInError::Refused(_))) => invalid("the logout token is not valid"),
            Err(SignInFailure::Off) => StatusCode::NOT_FOUND.into_response(),
            Err(
                failure @ (SignInFailure::Engine(_)
                | SignInFailure::Provider(SignInError::Unavailable(_))
                | SignInFailure::Stale
                | SignInFailure::Used),
            ) => {
                tracing::error!(%failure, "auth: sessions could not be ended for the identity provider");
                StatusCode::SERVICE_UNAVAILABLE.into_response()
            }
        },
    };
    let no_store = header::HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}
