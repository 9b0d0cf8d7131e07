//! The handlers of calls that workers elsewhere ask for: propose, look, report.
//!
//! A worker asks before it runs a tool of its own; who is asked, and what may follow, is the core's business.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use standfast_core::id::{CallId, CallNo, RunId};
use standfast_core::name::{InboxName, WorkerName};
use standfast_engine::CallReport;
use standfast_engine::auth::Principal;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::routes::{CallerOf, InboxResult, Names, Problems, no, task_names};
use super::{map, wire};
use crate::http::{App, Args, Problem, Repeatable};

/// How often is looked for what other nodes did.
const LOOK: Duration = Duration::from_secs(1);

/// Inbox, task and call of a path.
type CallNames = Path<(String, String, String)>;

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(calls_of_task, propose_call))
        .routes(routes!(call_of_task))
        .routes(routes!(report_call))
}

/// Requests a call of the worker's own tool; it needs approval unless the request says otherwise.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/calls", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    request_body = wire::NewCall,
    responses((status = 201, body = wire::Call), Problems)
)]
async fn propose_call(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
    Repeatable { body, once }: Repeatable<wire::NewCall>,
) -> InboxResult<(StatusCode, Json<wire::Call>)> {
    let (inbox, run) = task_names(names)?;
    let (worker, proposed) = (worker(&body.claim_id)?, map::proposal(&body)?);
    let call = app.engine.tasks().propose(&who, (&inbox, run), worker, proposed, once).await.map_err(no)?;
    Ok((StatusCode::CREATED, Json(view(&app, &who, &inbox, CallId { run, no: call }).await?)))
}

/// The calls that workers asked for, oldest first.
#[utoipa::path(
    get, path = "/{inboxId}/tasks/{taskId}/calls", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    responses((status = 200, body = wire::Calls), Problems)
)]
async fn calls_of_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
) -> InboxResult<Json<wire::Calls>> {
    let (inbox, run) = task_names(names)?;
    let task = app.engine.inboxes().task(&who, &inbox, run).await.map_err(no)?;
    Ok(Json(wire::Calls { calls: map::calls(&task) }))
}

/// A call that a worker asked for; with `waitMs` as soon as it is decided.
#[utoipa::path(
    get, path = "/{inboxId}/tasks/{taskId}/calls/{callId}", tag = "inbox",
    params(
        ("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task"),
        ("callId" = String, Path, description = "The call's id"), wire::WaitArgs
    ),
    responses((status = 200, body = wire::Call), Problems)
)]
async fn call_of_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): CallNames,
    Args(args): Args<wire::WaitArgs>,
) -> InboxResult<Json<wire::Call>> {
    let (inbox, call) = call_names(names)?;
    let longest = u64::try_from(app.engine.settings().max_wait.0).unwrap_or_default();
    let until = Instant::now() + Duration::from_millis(args.wait_ms.unwrap_or_default().min(longest));
    // Listens before it looks, so that nothing falls between.
    let (mut changes, mut stopping) = (app.engine.reads().changes(), app.stopping.clone());
    loop {
        let found = view(&app, &who, &inbox, call).await?;
        let is_open = found.status == wire::CallStatus::WaitingForApproval;
        if !is_open || Instant::now() >= until || *stopping.borrow() {
            return Ok(Json(found));
        }
        let look = tokio::time::sleep_until(until.min(Instant::now() + LOOK));
        tokio::pin!(look);
        loop {
            tokio::select! {
                () = &mut look => break,
                _ = stopping.changed() => break,
                heard = changes.recv() => match heard {
                    Ok(run) if run != call.run => {}
                    Ok(_) | Err(RecvError::Lagged(_) | RecvError::Closed) => break,
                },
            }
        }
    }
}

/// A worker tells what came of a call that it was allowed to run: once, a result or an error.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/calls/{callId}/result", tag = "inbox",
    params(
        ("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task"),
        ("callId" = String, Path, description = "The call's id")
    ),
    request_body = wire::CallResult,
    responses((status = 200, body = wire::Call), Problems)
)]
async fn report_call(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): CallNames,
    Repeatable { body, once }: Repeatable<wire::CallResult>,
) -> InboxResult<Json<wire::Call>> {
    let (inbox, call) = call_names(names)?;
    let report = CallReport { call: call.no, result: map::call_result(&body)? };
    let worker = worker(&body.claim_id)?;
    app.engine.tasks().report_call(&who, (&inbox, call.run), worker, report, once).await.map_err(no)?;
    Ok(Json(view(&app, &who, &inbox, call).await?))
}

async fn view(app: &App, who: &Principal, inbox: &InboxName, call: CallId) -> InboxResult<wire::Call> {
    let task = app.engine.inboxes().task(who, inbox, call.run).await.map_err(no)?;
    let id = call.to_string();
    map::calls(&task).into_iter().find(|call| call.id == id).ok_or_else(Problem::not_found)
}

fn worker(claim: &str) -> InboxResult<WorkerName> {
    WorkerName::new(claim).map_err(|bad| Problem::invalid(format!("claimId: {bad}")))
}

/// The call is named by its id, or by its number.
fn call_names((inbox, task, call): (String, String, String)) -> InboxResult<(InboxName, CallId)> {
    let (inbox, run): (InboxName, RunId) = task_names((inbox, task))?;
    let by_number = || call.parse().ok().map(|no| CallId { run, no: CallNo(no) });
    let named = call.parse::<CallId>().ok().or_else(by_number).filter(|id| id.run == run);
    Ok((inbox, named.ok_or_else(Problem::not_found)?))
}
