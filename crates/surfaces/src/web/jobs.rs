//! Outside jobs: asynchronous calls that have not ended, each with its reference, expected time and deadline, and a way to
//! give one up.
//!
//! What a job is, and what cancelling one means, is the engine's; programs do the same under `/async-tool`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::{Deserialize, Serialize};
use standfast_core::body::Body;
use standfast_core::job::{JobEnd, JobProgress};
use standfast_core::time::Timestamp;
use standfast_engine::auth::Principal;
use standfast_engine::{JobList, JobView, Report, ReportBody, ReportError};

use super::pages::ShownInstant;
use super::routes::{PAGES, hold_id, see_other};
use crate::html::{Failure, PostedForm, Site, Token};
use crate::http::{App, Args, Segment};

/// Jobs of a page.
const JOBS: usize = 50;

/// The routes.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/jobs", get(jobs)).route("/jobs/{job}/cancel", post(cancel))
}

#[derive(Debug, Serialize)]
struct JobsPage {
    jobs: Vec<JobItem>,
    /// How many are outstanding, where the page shows the first of them.
    count: Option<String>,
    is_over: bool,
    next: Option<String>,
}

/// A job in the list.
#[derive(Debug, Serialize)]
struct JobItem {
    id: String,
    run: String,
    tool: String,
    agent: String,
    owner: String,
    arguments: Option<String>,
    reference: Option<String>,
    status: &'static str,
    tone: &'static str,
    note: Option<String>,
    began: ShownInstant,
    expected: Option<ShownInstant>,
    is_overdue: bool,
    deadline: Option<ShownInstant>,
    heard: Option<ShownInstant>,
    can_cancel: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobArgs {
    cursor: Option<u64>,
    #[serde(default)]
    over: bool,
}

async fn jobs(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Extension(token): Extension<Token>,
    Args(args): Args<JobArgs>,
) -> Result<Response, Failure> {
    let list = JobList { over: args.over, cursor: args.cursor, limit: JOBS, ..JobList::default() };
    let found = app.engine.jobs().list(&who, list).await?;
    let now = app.engine.clock().now();
    let over = if args.over { "over=true&" } else { "" };
    let is_first = !args.over && args.cursor.is_none() && !found.items.is_empty();
    let more = if found.next.is_some() { "+" } else { "" };
    let page = JobsPage {
        count: is_first.then(|| format!("{}{more}", found.items.len())),
        jobs: found.items.iter().map(|view| item(view, now)).collect(),
        is_over: args.over,
        next: found.next.map(|next| format!("/jobs?{over}cursor={next}")),
    };
    Ok(PAGES.page(StatusCode::OK, "jobs.html", &Site::of(&who, &token), &page))
}

fn item(view: &JobView, now: Timestamp) -> JobItem {
    let (job, run) = (&view.job, &view.run);
    let (status, tone, can_cancel) = match &job.stands {
        JobProgress::Starting => ("Starting", "works", true),
        JobProgress::Waiting { processing: false } => ("Waiting", "works", true),
        JobProgress::Waiting { processing: true } => ("Processing", "works", true),
        JobProgress::Unknown { .. } => ("Not known whether it started", "bad", false),
        JobProgress::Over { end, .. } => match end {
            JobEnd::Result(_) => ("Completed", "good", false),
            JobEnd::Failed(_) => ("Failed", "bad", false),
            JobEnd::Withdrawn => ("Canceled", "over", false),
            JobEnd::Expired => ("Expired: no report in time", "bad", false),
            JobEnd::RunEnded => ("The run ended first", "over", false),
            JobEnd::Abandoned(_) => ("The call went on without it", "over", false),
        },
    };
    let shown = |at: Timestamp| ShownInstant::new(at, now);
    JobItem {
        id: view.id().to_string(),
        run: run.id.to_string(),
        tool: job.tool.to_string(),
        agent: run.agent.to_string(),
        owner: run.owner.to_string(),
        arguments: job.arguments.clone(),
        reference: job.ask.external_ref.clone(),
        status,
        tone,
        note: job.note.as_ref().or(job.ask.interim.as_ref()).and_then(Body::inline).map(str::to_owned),
        began: shown(job.created_at),
        expected: job.ask.expected_at.map(shown),
        is_overdue: job.ask.expected_at.is_some_and(|at| at < now),
        deadline: job.expires_at.map(shown),
        heard: job.heard_at.map(shown),
        can_cancel,
    }
}

async fn cancel(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Segment(id): Segment,
    _posted: PostedForm,
) -> Result<Response, Failure> {
    let report = Report {
        job: hold_id(&id)?,
        said: ReportBody::Withdrawn,
        sender: Some(who),
        signature: None,
        body: Vec::new(),
        once: None,
    };
    match app.engine.reports().take(report).await {
        Ok(_) => Ok(see_other("/jobs")),
        Err(ReportError::Engine(error)) => Err(error.into()),
        Err(ReportError::NoSuchJob) => Err(Failure::not_found()),
        Err(other @ (ReportError::NotSigned(_) | ReportError::Over(_) | ReportError::TooEarly)) => {
            let text = format!("{other}. Nothing was changed.");
            Err(Failure::new(StatusCode::CONFLICT, "Not canceled", &text))
        }
    }
}
