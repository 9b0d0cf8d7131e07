//! The pages of a login at an MCP server: what it is for, the way there, and the way back.
//!
//! Looking begins nothing (T6): the way there is a form with this browser's token (T21). The way back is taken only from
//! the browser that was sent there, by a cookie that nobody else has, and only for the owner of the run.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use standfast_core::body::Body;
use standfast_core::hold::HoldKind;
use standfast_engine::auth::Principal;
use standfast_engine::tool::login::{AuthorizationResponse, client_document};
use standfast_engine::{LoginError, Snapshot};

use super::routes::{PAGES, SETTLE, hold_id, see_other};
use crate::html::{Failure, PostedForm, Site, Token};
use crate::http::{App, Args, Segment, cookie_of, is_https};

/// The routes.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/login/callback", get(callback))
        .route("/login/client.json", get(client))
        .route("/login/{hold}", get(show).post(begin))
}

/// What a login is for, as its hold says.
#[derive(Debug, Default, Deserialize, Serialize)]
struct LoginPage {
    #[serde(default)]
    hold: String,
    server_name: String,
    auth_server: String,
    scopes: Vec<String>,
    #[serde(default)]
    owner: String,
    /// The run that waits, and its agent.
    #[serde(default)]
    run: String,
    #[serde(default)]
    agent: String,
    /// Where to go, once it has begun.
    #[serde(default)]
    next: Option<String>,
}

/// The page of a login, and what was read of its run.
async fn page(app: &App, who: &Principal, text: &str) -> Result<(LoginPage, Snapshot), Failure> {
    let id = hold_id(text)?;
    let snapshot = app.engine.reads().snapshot(who, id.run).await?;
    let view = app.engine.reads().hold_view(who, &snapshot, id).await?;
    let data = view.ask.data.as_ref().and_then(Body::inline);
    let told = data.and_then(|data| serde_json::from_str::<LoginPage>(data).ok());
    let told = told.filter(|_| view.row.kind == HoldKind::Auth).ok_or_else(Failure::not_found)?;
    if view.row.closed.is_some() {
        let text = "This login is no longer needed.";
        return Err(Failure::new(StatusCode::CONFLICT, "Already decided", text));
    }
    let owner = snapshot.run().facts.owner.to_string();
    if !view.may_log_in {
        let text = format!(
            "Only {owner} can log in here: runs of {owner} act with the account. An approver of the hold can deny it."
        );
        return Err(Failure::new(StatusCode::FORBIDDEN, "Not your login", &text));
    }
    let (run, agent) = (id.run.to_string(), snapshot.run().facts.agent.to_string());
    Ok((LoginPage { hold: id.to_string(), owner, run, agent, ..told }, snapshot))
}

async fn show(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Extension(token): Extension<Token>,
    Segment(id): Segment,
) -> Result<Response, Failure> {
    let (page, _) = page(&app, &who, &id).await?;
    Ok(PAGES.page(StatusCode::OK, "login.html", &Site::of(&who, &token), &page))
}

async fn begin(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Extension(token): Extension<Token>,
    Segment(id): Segment,
    _posted: PostedForm,
) -> Result<Response, Failure> {
    let (page, snapshot) = page(&app, &who, &id).await?;
    let begun = app.engine.logins().begin_login(&who, &snapshot, hold_id(&id)?).await?;
    let secure = if is_https(&app.engine) { "; Secure" } else { "" };
    let (name, value) = &begun.cookie;
    // Lax, because the browser comes back from another site.
    let cookie = format!("{name}={value}; HttpOnly; SameSite=Lax; Path=/login; Max-Age=900{secure}");
    let page = LoginPage { next: Some(begun.url.clone()), ..page };
    // A page that leads on, and no redirect: a form of ours may only be sent to us.
    let mut response = PAGES.page(StatusCode::OK, "login.html", &Site::of(&who, &token), &page);
    let headers = response.headers_mut();
    if let (Ok(cookie), Ok(refresh)) =
        (HeaderValue::try_from(cookie), HeaderValue::try_from(format!("0; url={}", begun.url)))
    {
        headers.append(header::SET_COOKIE, cookie);
        headers.insert("refresh", refresh);
    }
    Ok(response)
}

async fn callback(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    headers: HeaderMap,
    Args(returned): Args<AuthorizationResponse>,
) -> Result<Response, Failure> {
    let unknown = || {
        let text = "This login was not started in this browser, or it has expired. Open the page of the hold and start again.";
        Failure::new(StatusCode::FORBIDDEN, "Login failed", text)
    };
    let name = returned.cookie().ok_or_else(unknown)?;
    let cookie = cookie_of(&headers, &name).ok_or_else(unknown)?;
    let hold = app.engine.logins().login_hold(cookie).ok_or_else(unknown)?;
    app.engine.logins().finish_login(&who, hold, cookie, &returned).await?;
    app.engine.reads().settled_run(&who, hold.run, SETTLE).await?;
    let mut response = see_other(&format!("/approve/{hold}"));
    let gone = format!("{name}=; HttpOnly; SameSite=Lax; Path=/login; Max-Age=0");
    if let Ok(gone) = HeaderValue::try_from(gone) {
        response.headers_mut().append(header::SET_COOKIE, gone);
    }
    Ok(response)
}

/// What authorization servers read about this client.
async fn client(State(app): State<App>) -> Result<Response, Failure> {
    let settings = app.engine.settings();
    let base = settings.public_url.as_deref().ok_or_else(Failure::not_found)?;
    Ok(Json(client_document(base)).into_response())
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Failure {
        match error {
            LoginError::Engine(error) => error.into(),
            LoginError::NoLogin(no) => {
                let text = format!("{no}. The hold stays open.");
                Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Login failed", &text)
            }
        }
    }
}
