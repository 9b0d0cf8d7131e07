//! The handlers of the pages: read, one engine call, render; or decide and redirect.
//!
//! Rules live in the core, authority in `auth`. A form that was taken answers 303, so that loading a page again never
//! sends it again.

use std::sync::LazyLock;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Deserialize;
use standfast_core::id::{HoldId, RunId};
use standfast_core::message::Message;
use standfast_core::name::AgentName;
use standfast_core::time::Millis;
use standfast_engine::auth::Principal;
use standfast_engine::{EngineError, HoldList, NewRun, RunList};

use super::forms;
use super::pages::hold::{self, FailedDecision, HoldPageParts};
use super::pages::run::{self, RunsPage};
use super::pages::waiting::{self, KINDS, WaitingPage};
use super::{conversation, events, inboxes, jobs, login, sign_in, tour};
use crate::html::{self, Failure, PostedForm, Site, Templates, Token};
use crate::http::{App, Args, Segment};

/// Items of a page of holds, each read with what it asks.
const HOLDS: usize = 25;
/// Items of a page of runs.
const RUNS: usize = 50;
/// How long a form waits for what follows from it, so that the next page shows it.
pub(super) const SETTLE: Millis = Millis(1_500);

/// The pages within their frame.
pub(super) static PAGES: LazyLock<Templates> = LazyLock::new(|| {
    Templates::new(&[
        ("waiting.html", include_str!("templates/waiting.html")),
        ("login.html", include_str!("templates/login.html")),
        ("hold.html", include_str!("templates/hold.html")),
        ("runs.html", include_str!("templates/runs.html")),
        ("run.html", include_str!("templates/run.html")),
        ("me.html", include_str!("templates/me.html")),
        ("sessions.html", include_str!("templates/sessions.html")),
        ("session.html", include_str!("templates/session.html")),
        ("remembered.html", include_str!("templates/remembered.html")),
        ("widget.html", include_str!("templates/widget.html")),
        ("inboxes.html", include_str!("templates/inboxes.html")),
        ("inbox.html", include_str!("templates/inbox.html")),
        ("jobs.html", include_str!("templates/jobs.html")),
        ("tour.html", include_str!("templates/tour.html")),
    ])
});

/// Who is calling, and with which token.
type CallerOf = Extension<Principal>;
type Browser = Extension<Token>;

/// The routes.
pub fn routes(app: &App) -> Router<App> {
    let pages = Router::new()
        .route("/", get(waiting))
        .route("/runs", get(runs).post(start))
        .route("/runs/{run}", get(run))
        .route("/runs/{run}/cancel", post(cancel))
        .route("/approve/{hold}", get(hold).post(decide))
        .merge(login::routes())
        .merge(sign_in::routes())
        .merge(conversation::routes())
        .merge(inboxes::routes())
        .merge(jobs::routes())
        .merge(tour::routes())
        .route("/events", get(events::events))
        .layer(from_fn_with_state(app.clone(), html::keep_token))
        .layer(from_fn(html::add_headers));
    pages.merge(html::asset_routes())
}

/// Which part of a list is wanted.
#[derive(Debug, Deserialize)]
struct Part {
    kind: Option<String>,
    cursor: Option<u64>,
}

async fn waiting(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Args(part): Args<Part>,
) -> Result<Response, Failure> {
    let engine = &app.engine;
    let wanted = part.kind.as_deref().and_then(|word| KINDS.iter().find(|(known, ..)| *known == word));
    let list = HoldList {
        kind: wanted.map(|(_, _, kind)| *kind),
        agent: None,
        tool: None,
        session: None,
        cursor: part.cursor,
        limit: HOLDS,
    };
    let found = engine.reads().holds(&who, list).await?;
    let mut items = Vec::with_capacity(found.items.len());
    for row in &found.items {
        match engine.hold(&who, row.id).await {
            Ok(view) => items.push(waiting::item(&view, engine.clock().now())),
            Err(EngineError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let kind = wanted.map(|(word, ..)| format!("kind={word}&")).unwrap_or_default();
    let page = WaitingPage {
        filters: waiting::filters(wanted.map(|(_, _, kind)| *kind)),
        items,
        next: found.next.map(|next| format!("/?{kind}cursor={next}")),
        agents: waiting::agents(&engine.settings()),
    };
    Ok(PAGES.page(StatusCode::OK, "waiting.html", &Site::of(&who, &token), &page))
}

async fn runs(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Args(part): Args<Part>,
) -> Result<Response, Failure> {
    let list = RunList { agent: None, session: None, cursor: part.cursor, limit: RUNS };
    let found = app.engine.reads().runs(&who, list).await?;
    let now = app.engine.clock().now();
    let page = RunsPage {
        runs: found.items.iter().map(|row| run::item(row, now)).collect(),
        next: found.next.map(|next| format!("/runs?cursor={next}")),
    };
    Ok(PAGES.page(StatusCode::OK, "runs.html", &Site::of(&who, &token), &page))
}

async fn start(
    State(app): State<App>,
    Extension(who): CallerOf,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let invalid = |text: &str| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "No run was started", text);
    let agent = AgentName::new(posted.get("agent").unwrap_or_default());
    let agent = agent.map_err(|_| invalid("Choose an agent."))?;
    let input = posted.get("input").filter(|input| !input.trim().is_empty());
    let input = input.ok_or_else(|| invalid("Enter what the agent should do."))?;
    let new = NewRun { agent, session: None, message: Message::text(input), once: None };
    let id = app.engine.start(&who, new).await?;
    app.engine.reads().settled_run(&who, id, SETTLE).await?;
    Ok(see_other(&format!("/runs/{id}")))
}

async fn run(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
) -> Result<Response, Failure> {
    let id = run_id(&id)?;
    let snapshot = app.engine.reads().snapshot(&who, id).await?;
    let view = app.engine.reads().run_view(&snapshot).await?;
    let log = snapshot.log().await.map_err(EngineError::from)?;
    let page = run::page(&view, log, app.engine.clock().now());
    Ok(PAGES.page(StatusCode::OK, "run.html", &Site::of(&who, &token), &page))
}

async fn cancel(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let id = run_id(&id)?;
    let reason = posted.get("reason").filter(|reason| !reason.trim().is_empty());
    app.engine.cancel(&who, id, reason, None).await?;
    Ok(see_other(&format!("/runs/{id}")))
}

async fn hold(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
) -> Result<Response, Failure> {
    let visitor = Visitor { app: &app, who: &who, token: &token };
    visitor.hold_page(hold_id(&id)?, None).await
}

async fn decide(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let id = hold_id(&id)?;
    let visitor = Visitor { app: &app, who: &who, token: &token };
    let snapshot = app.engine.reads().snapshot(&who, id.run).await?;
    let view = app.engine.reads().hold_view(&who, &snapshot, id).await?;
    let decision = match forms::decision(&view, &posted) {
        Ok(decision) => decision,
        Err(forms::Mistake(text)) => {
            let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", &text);
            return visitor
                .hold_page(id, Some(FailedDecision { posted: &posted, failure, pointer: None }))
                .await;
        }
    };
    match app.engine.submit().decide_on(&who, decision.into(), &snapshot).await {
        Ok(accepted) => {
            app.engine.reads().settled(&who, id.run, accepted.rest, SETTLE).await?;
            Ok(see_other(&format!("/approve/{id}")))
        }
        Err(EngineError::NotFound) => Err(Failure::not_found()),
        Err(error) => {
            let pointer = match &error {
                EngineError::BreaksSchema(broken) => Some(broken.pointer.clone()),
                EngineError::Refused(_)
                | EngineError::Store(_)
                | EngineError::NoSuchAgent { .. }
                | EngineError::KeyReused { .. }
                | EngineError::SessionClosed { .. }
                | EngineError::MissingScope(_)
                | EngineError::NotFound => None,
            };
            let tried =
                FailedDecision { posted: &posted, failure: error.into(), pointer: pointer.as_deref() };
            visitor.hold_page(id, Some(tried)).await
        }
    }
}

/// Somebody who looks at pages.
struct Visitor<'a> {
    app: &'a App,
    who: &'a Principal,
    token: &'a Token,
}

impl Visitor<'_> {
    /// The page of a hold as it is now; after a decision that did not count, with what was wrong.
    async fn hold_page(&self, id: HoldId, tried: Option<FailedDecision<'_>>) -> Result<Response, Failure> {
        let Visitor { app, who, token } = self;
        let snapshot = app.engine.reads().snapshot(who, id.run).await?;
        let view = app.engine.reads().hold_view(who, &snapshot, id).await?;
        let receipt = match view.row.closed {
            Some(_) => Some(app.engine.reads().receipt_in(&snapshot, id).await?),
            None => None,
        };
        let now = app.engine.clock().now();
        let shown = HoldPageParts { run: snapshot.run(), view: &view, receipt: receipt.as_ref(), now };
        let status = tried.as_ref().map_or(StatusCode::OK, |tried| tried.failure.status);
        let page = hold::page(&shown, tried.as_ref());
        Ok(PAGES.page(status, "hold.html", &Site::of(who, token), &page))
    }
}

/// Post, redirect, get.
pub(super) fn see_other(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response()
}

/// What is no id at all is answered like the id of nothing.
fn run_id(text: &str) -> Result<RunId, Failure> {
    text.parse().map_err(|_| Failure::not_found())
}

pub(super) fn hold_id(text: &str) -> Result<HoldId, Failure> {
    text.parse().map_err(|_| Failure::not_found())
}
