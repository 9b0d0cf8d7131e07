//! The first minute: a newcomer starts a run, kills the server, starts it again and approves; the page says where they are.
//!
//! Only the embedded demo has it. What is done is read from the stored run, so the page knows it after every restart.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use serde::Serialize;
use standfast_core::id::HoldId;
use standfast_core::message::Message;
use standfast_core::run::Run;
use standfast_engine::auth::Principal;
use standfast_engine::settings::Tour;
use standfast_engine::{NewRun, RunList};

use super::conversation::once;
use super::routes::{PAGES, SETTLE, see_other};
use crate::html::{Failure, PostedForm, Site, Token};
use crate::http::App;

/// The routes.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/first-minute", get(show).post(begin))
}

#[derive(Debug, Serialize)]
struct TourPage {
    agent: String,
    message: String,
    effects: String,
    /// Whom to ask for a change of a file, and for what.
    change: (String, String),
    /// The number of the process, to kill it.
    process: u32,
    /// `begin`, `kill`, `approve` or `done`.
    step: &'static str,
    run: Option<String>,
    hold: Option<String>,
    /// Whether the server was another one since it was asked.
    is_restarted: bool,
    /// What ran, as seen from outside.
    lines: Vec<String>,
}

async fn show(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Extension(token): Extension<Token>,
) -> Result<Response, Failure> {
    let tour = tour(&app)?;
    let list = RunList { agent: Some(tour.agent.clone()), session: None, cursor: None, limit: 1 };
    let found = app.engine.reads().runs(&who, list).await?.items;
    let run = found.first().map(|row| &row.run);
    let hold = run.and_then(|run| run.state.holds.first().map(|hold| (run, hold)));
    // A server that began to look after the question was asked is another one than the one that was asked.
    let asked_at = hold.map(|(_, hold)| hold.opened_at).or(run.map(|run| run.facts.started_at));
    let is_restarted =
        asked_at.is_some_and(|asked_at| app.engine.node_work().startup_report(None).began_at > asked_at);
    let step = match (run, hold) {
        (None, _) => "begin",
        (Some(_), Some(_)) if is_restarted => "approve",
        (Some(_), Some(_)) => "kill",
        (Some(_), None) => "done",
    };
    let lines = run.map(|run| effects(&tour, run)).unwrap_or_default();
    let page = TourPage {
        agent: tour.agent.to_string(),
        message: tour.message.clone(),
        effects: tour.effects.display().to_string(),
        change: (tour.change.0.to_string(), tour.change.1.clone()),
        process: std::process::id(),
        step,
        run: run.map(|run| run.facts.id.to_string()),
        hold: hold.map(|(run, hold)| HoldId { run: run.facts.id, key: hold.key }.to_string()),
        is_restarted,
        lines,
    };
    Ok(PAGES.page(StatusCode::OK, "tour.html", &Site::of(&who, &token), &page))
}

async fn begin(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let Tour { agent, message, .. } = tour(&app)?;
    let once = once(&posted, "/first-minute");
    let new = NewRun { agent, session: None, message: Message::text(message), once };
    let id = app.engine.submit().start(&who, new).await?;
    app.engine.reads().settled_run(&who, id, SETTLE).await?;
    Ok(see_other("/first-minute"))
}

fn tour(app: &App) -> Result<Tour, Failure> {
    app.engine.settings().tour.clone().ok_or_else(Failure::not_found)
}

/// The lines that the demo's tool wrote for a run; each begins with the token of its call, which begins with the run.
fn effects(tour: &Tour, run: &Run) -> Vec<String> {
    let written = std::fs::read_to_string(&tour.effects).unwrap_or_default();
    let of_run = format!("{}/", run.facts.id);
    written.lines().filter(|line| line.starts_with(&of_run)).map(str::to_owned).collect()
}
