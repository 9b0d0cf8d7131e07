//! The handlers of the inbox: take apart, one engine call, put together.
//!
//! Rules live in the core, claims in the engine, words in `map.rs`.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use standfast_core::id::RunId;
use standfast_core::name::{AgentName, InboxName, WorkerName};
use standfast_engine::auth::{Principal, Scope};
use standfast_engine::{
    Decision, EngineError, IdempotencyKey, ImpliedHold, LookedUpTask, NewSubscription, ShownHold, TaskReport,
    hears,
};
use utoipa::IntoResponses;
use utoipa::openapi::{Content, Ref, RefOr, Response as OpenApiResponse, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::notices::TaskWebhook;
use super::shown_tasks::ShownBody;
use super::{calls, error, map, wire};
use crate::http::{App, Args, Problem, Repeatable, Segment};

/// Tasks of a page, unless the caller wants another number.
const PAGE: usize = 50;
/// Tasks of a page at most.
const PAGE_MAX: usize = 200;
/// Tasks that can be added at once.
const BATCH_MAX: usize = 100;

pub(super) type CallerOf = Extension<Principal>;
pub(super) type InboxResult<T> = Result<T, Problem>;
/// Tasks that are answered with, and what they show.
type ShownTasks<T> = InboxResult<ShownBody<T>>;
/// Inbox and task of a path.
pub(super) type Names = Path<(String, String)>;

/// What every route may answer instead.
pub(super) struct Problems;

impl IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<OpenApiResponse>> {
        let problem = Content::new(Some(Ref::from_schema_name("Problem")));
        let response = ResponseBuilder::new()
            .description("A problem (RFC 9457)")
            .content("application/problem+json", problem)
            .build();
        BTreeMap::from([("default".to_owned(), RefOr::T(response))])
    }
}

/// The routes, each with its description.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(inboxes))
        .routes(routes!(tasks_of_inbox, add_task))
        .routes(routes!(add_tasks))
        .routes(routes!(waiting_tasks_of_inbox))
        .routes(routes!(waiting_tasks))
        .routes(routes!(inbox_stats))
        .routes(routes!(inbox_task))
        .routes(routes!(claim_task))
        .routes(routes!(resume_task))
        .routes(routes!(cancel_task))
        .routes(routes!(release_task))
        .routes(routes!(suspend_task))
        .routes(routes!(complete_task))
        .routes(routes!(fail_task))
        .routes(routes!(start_task))
        .routes(routes!(heartbeat_task))
        .merge(calls::routes())
        .routes(routes!(subscribe_to_tasks))
}

/// Lists inboxes.
#[utoipa::path(get, path = "", tag = "inbox", responses((status = 200, body = wire::Inboxes), Problems))]
async fn inboxes(State(app): State<App>, Extension(who): CallerOf) -> InboxResult<Json<wire::Inboxes>> {
    let found = app.engine.inboxes().list(&who).await.map_err(no)?;
    Ok(Json(wire::Inboxes { inboxes: found.iter().map(map::inbox).collect() }))
}

/// How many tasks an inbox has in which status.
#[utoipa::path(
    get, path = "/{inboxId}/stats", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox")),
    responses((status = 200, body = wire::InboxStats), Problems)
)]
async fn inbox_stats(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(inbox): Segment,
) -> InboxResult<Json<wire::InboxStats>> {
    let name = inbox_name(inbox)?;
    let found = app.engine.inboxes().list(&who).await.map_err(no)?;
    let stats = found.iter().find(|view| view.counts.inbox == name).map(map::stats);
    Ok(Json(stats.unwrap_or_default()))
}

/// Lists tasks of an inbox, newest first.
#[utoipa::path(
    get, path = "/{inboxId}/tasks", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), wire::TasksArgs),
    responses((status = 200, body = wire::Tasks), Problems)
)]
async fn tasks_of_inbox(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(inbox): Segment,
    Args(args): Args<wire::TasksArgs>,
) -> ShownTasks<wire::Tasks> {
    let list = map::list(inbox_name(inbox)?, &args, args.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX));
    let page = app.engine.inboxes().tasks(&who, list, |run, below| map::is_listed(run, below, &args)).await;
    let mut page = page.map_err(no)?;
    page.unreadable.retain(|found| map::is_listed_unreadable(found, &args));
    Ok(ShownBody::tasks(&app, &who, &page))
}

/// Adds a task.
#[utoipa::path(
    post, path = "/{inboxId}/tasks", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox")), request_body = wire::NewTask,
    responses((status = 201, body = wire::Task), Problems)
)]
async fn add_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(inbox): Segment,
    Repeatable { body, once }: Repeatable<wire::NewTask>,
) -> InboxResult<(StatusCode, ShownBody<wire::Task>)> {
    let name = inbox_name(inbox)?;
    let new = map::new_task(name.clone(), body, once)?;
    let run = app.engine.tasks().add(&who, new).await.map_err(no)?;
    Ok((StatusCode::CREATED, view(&app, &who, &name, run).await?))
}

/// Adds several tasks. With an `Idempotency-Key` a repeat adds those that are missing.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/batch", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox")), request_body = wire::NewTasks,
    responses((status = 201, body = wire::Tasks), Problems)
)]
async fn add_tasks(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(inbox): Segment,
    Repeatable { body, once }: Repeatable<wire::NewTasks>,
) -> InboxResult<(StatusCode, Json<wire::Tasks>)> {
    let name = inbox_name(inbox)?;
    if body.tasks.is_empty() || body.tasks.len() > BATCH_MAX {
        return Err(Problem::invalid(format!("tasks must have 1 to {BATCH_MAX} tasks")));
    }
    // All are looked at before one is added.
    let mut all = Vec::new();
    for (at, task) in body.tasks.into_iter().enumerate() {
        let once = once.as_ref().map(|once| once.part(&at.to_string()));
        let wrong = |problem: Problem| Problem::invalid(format!("tasks[{at}]: {}", problem.detail));
        all.push(map::new_task(name.clone(), task, once).map_err(wrong)?);
    }
    let added =
        futures_util::future::join_all(all.into_iter().map(|new| app.engine.tasks().add(&who, new))).await;
    let mut tasks = Vec::new();
    for run in added {
        tasks.push(view(&app, &who, &name, run.map_err(no)?).await?.body);
    }
    Ok((StatusCode::CREATED, Json(wire::Tasks { tasks, next_cursor: None })))
}

/// Lists tasks of an inbox that wait for somebody, the longest waiting first.
#[utoipa::path(
    get, path = "/{inboxId}/tasks/waiting", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), wire::PageArgs),
    responses((status = 200, body = wire::Tasks), Problems)
)]
async fn waiting_tasks_of_inbox(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(inbox): Segment,
    Args(args): Args<wire::PageArgs>,
) -> ShownTasks<wire::Tasks> {
    waiting(&app, &who, Some(inbox_name(inbox)?), &args).await
}

/// Lists tasks of all inboxes that wait for somebody, the longest waiting first.
#[utoipa::path(
    get, path = "/tasks/waiting", tag = "inbox", params(wire::PageArgs),
    responses((status = 200, body = wire::Tasks), Problems)
)]
async fn waiting_tasks(
    State(app): State<App>,
    Extension(who): CallerOf,
    Args(args): Args<wire::PageArgs>,
) -> ShownTasks<wire::Tasks> {
    waiting(&app, &who, None, &args).await
}

async fn waiting(
    app: &App,
    who: &Principal,
    inbox: Option<InboxName>,
    args: &wire::PageArgs,
) -> ShownTasks<wire::Tasks> {
    let page = (args.cursor, args.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX));
    let found = app.engine.inboxes().waiting_tasks(who, inbox, page, map::is_waiting).await.map_err(no)?;
    Ok(ShownBody::tasks(app, who, &found))
}

/// A task.
#[utoipa::path(
    get, path = "/{inboxId}/tasks/{taskId}", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    responses((status = 200, body = wire::Task), Problems)
)]
async fn inbox_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
) -> ShownTasks<wire::Task> {
    let (inbox, run) = task_names(names)?;
    view(&app, &who, &inbox, run).await
}

/// Claims the most urgent task that suits, for a while.
#[utoipa::path(
    post, path = "/{inboxId}/claim", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox")), request_body = wire::Claim,
    responses((status = 200, body = wire::ClaimedTask), Problems)
)]
async fn claim_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(inbox): Segment,
    Repeatable { body, .. }: Repeatable<wire::Claim>,
) -> InboxResult<Json<wire::ClaimedTask>> {
    let name = inbox_name(inbox)?;
    let claim = map::claim(name.clone(), body, app.engine.settings().max_wait)?;
    let task = match app.engine.tasks().claim(&who, claim).await.map_err(no)? {
        Some(run) => Some(Box::new(view(&app, &who, &name, run).await?.body)),
        None => None,
    };
    Ok(Json(wire::ClaimedTask { task }))
}

/// Answers what a task waits for; it goes on where it stood. Without `holdId` it answers the question that the caller was
/// last shown, with the task or in a list, and no other.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/resume", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    request_body = wire::Resume,
    responses((status = 200, body = wire::ResumedTask), Problems)
)]
async fn resume_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
    Repeatable { body, once }: Repeatable<wire::Resume>,
) -> InboxResult<Json<wire::ResumedTask>> {
    let (inbox, run) = task_names(names)?;
    let snapshot = app.engine.inboxes().snapshot(&who, &inbox, run).await.map_err(no)?;
    // Whoever decides nothing hears nothing of what is open.
    if !who.has(Scope::HoldsDecide) {
        return Err(no(EngineError::MissingScope(Scope::HoldsDecide.into())));
    }
    // Who names a hold may answer it while other calls of the task still run (C36).
    let inboxes = app.engine.inboxes();
    let task = match body.hold_id {
        Some(_) => inboxes.task_view_with_open_holds(&who, &snapshot).await,
        None => inboxes.task_view(&who, &snapshot).await,
    };
    let task = task.map_err(no)?;
    let answered = Ok(Json(wire::ResumedTask { success: true }));
    if app.engine.submit().was_done(&who, once.as_ref()).await.map_err(no)? {
        return answered;
    }
    let hold = map::hold_to_resume(&task, body.hold_id.as_deref())?;
    let wanted = map::wanted(hold, &body.payload)?;
    let (digest, revision) = match body.hold_id {
        Some(_) => (None, None),
        // Whoever names no hold means the one that they were shown, and no other (C26).
        None => match app
            .engine
            .shown()
            .implied_hold(&who, run, &[], &[ShownHold::from(hold)])
            .await
            .map_err(no)?
        {
            ImpliedHold::Hold(shown) => (shown.digest, Some(shown.revision)),
            ImpliedHold::NotShown | ImpliedHold::Outdated | ImpliedHold::Several | ImpliedHold::Answered => {
                return Err(error::not_shown(&run.to_string(), hold.row.id));
            }
        },
    };
    let decision = Decision { hold: hold.row.id, wanted, digest, revision, once };
    let submit = app.engine.submit();
    let decided = if decision.hold.run == run && app.engine.reads().may_see(&who, &task.run.facts) {
        submit.decide_on(&who, decision.into(), &snapshot).await.map(|accepted| accepted.answer)
    } else {
        submit.decide(&who, decision).await
    };
    decided.map_err(no)?;
    answered
}

/// Stops a task.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/cancel", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    request_body = Option<wire::Cancel>,
    responses((status = 200, body = wire::Task), Problems)
)]
async fn cancel_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
    Repeatable { body, once }: Repeatable<wire::Cancel>,
) -> ShownTasks<wire::Task> {
    let (inbox, run) = task_names(names)?;
    let found = app.engine.inboxes().snapshot(&who, &inbox, run).await.map_err(no)?;
    app.engine.submit().cancel_on(&who, &found, body.reason, once).await.map_err(no)?;
    view(&app, &who, &inbox, run).await
}

/// A worker gives its task back.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/release", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    request_body = wire::OwnClaim,
    responses((status = 200, body = wire::Task), Problems)
)]
async fn release_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
    Repeatable { body, once }: Repeatable<wire::OwnClaim>,
) -> ShownTasks<wire::Task> {
    report(&app, &who, names, &body.claim_id, TaskReport::Release, once).await
}

/// Suspends a task for a question to a person: it waits for the answer, then it can be claimed again.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/suspend", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    request_body = wire::Suspend,
    responses((status = 200, body = wire::Task), Problems)
)]
async fn suspend_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
    Repeatable { body, once }: Repeatable<wire::Suspend>,
) -> ShownTasks<wire::Task> {
    let asked = TaskReport::Suspend(Box::new(map::ask(&body)?));
    report(&app, &who, names, &body.claim_id, asked, once).await
}

/// A worker delivers the result.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/complete", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    request_body = wire::Complete,
    responses((status = 200, body = wire::Task), Problems)
)]
async fn complete_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
    Repeatable { body, once }: Repeatable<wire::Complete>,
) -> ShownTasks<wire::Task> {
    let done = TaskReport::Complete(map::value("result", &body.result)?);
    report(&app, &who, names, &body.claim_id, done, once).await
}

/// A worker says that it failed; what may pass is tried again later.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/fail", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    request_body = wire::Fail,
    responses((status = 200, body = wire::Task), Problems)
)]
async fn fail_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
    Repeatable { body, once }: Repeatable<wire::Fail>,
) -> ShownTasks<wire::Task> {
    report(&app, &who, names, &body.claim_id, map::failure(&body.error)?, once).await
}

/// A worker begins to work on what it has claimed: the task is in progress, and `task.started` is sent.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/start", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    request_body = wire::OwnClaim,
    responses((status = 200, body = wire::Task), Problems)
)]
async fn start_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
    Repeatable { body, once }: Repeatable<wire::OwnClaim>,
) -> ShownTasks<wire::Task> {
    report(&app, &who, names, &body.claim_id, TaskReport::Start, once).await
}

/// A worker says that it still works: its claim lasts for another while.
#[utoipa::path(
    post, path = "/{inboxId}/tasks/{taskId}/heartbeat", tag = "inbox",
    params(("inboxId" = String, Path, description = "The inbox"), ("taskId" = String, Path, description = "The task")),
    request_body = wire::OwnClaim,
    responses((status = 200, body = wire::Task), Problems)
)]
async fn heartbeat_task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path(names): Names,
    Repeatable { body, once }: Repeatable<wire::OwnClaim>,
) -> ShownTasks<wire::Task> {
    report(&app, &who, names, &body.claim_id, TaskReport::Heartbeat, once).await
}

/// Subscribes a receiver to tasks: `task.suspended` when somebody is asked, and what becomes of them. The secret is shown this
/// once; everything else is done under `/api/v1/subscriptions`.
#[utoipa::path(
    post, path = "/subscriptions", tag = "inbox", request_body = wire::Subscribe,
    responses((status = 201, body = wire::SubscriptionWithSecret), Problems)
)]
async fn subscribe_to_tasks(
    State(app): State<App>,
    Extension(who): CallerOf,
    Repeatable { body, once }: Repeatable<wire::Subscribe>,
) -> InboxResult<(StatusCode, Json<wire::SubscriptionWithSecret>)> {
    let agent = body.agent_id.map(AgentName::new).transpose();
    let agent = agent.map_err(|bad| Problem::invalid(format!("agentId: {bad}")))?;
    let new = NewSubscription {
        kind: TaskWebhook::NAME,
        hears: hears(None, agent).map_err(|error| error::subscription(&error))?,
        url: body.url,
        events: Some(TaskWebhook::EVENTS.map(str::to_owned).to_vec()),
        once,
    };
    let (view, secret) =
        app.engine.subscriptions().subscribe(&who, new).await.map_err(|error| error::subscription(&error))?;
    Ok((StatusCode::CREATED, Json(wire::SubscriptionWithSecret { id: view.id, secret: secret.reveal() })))
}

async fn report(
    app: &App,
    who: &Principal,
    names: (String, String),
    claim: &str,
    report: TaskReport,
    once: Option<IdempotencyKey>,
) -> ShownTasks<wire::Task> {
    let (inbox, run) = task_names(names)?;
    let worker = WorkerName::new(claim).map_err(|bad| Problem::invalid(format!("claimId: {bad}")))?;
    app.engine.tasks().report(who, (&inbox, run), worker, report, once).await.map_err(no)?;
    view(app, who, &inbox, run).await
}

async fn view(app: &App, who: &Principal, inbox: &InboxName, run: RunId) -> ShownTasks<wire::Task> {
    match app.engine.inboxes().look_up(who, inbox, run).await.map_err(no)? {
        LookedUpTask::Task(task) => Ok(ShownBody::task(app, who, &task)),
        LookedUpTask::Unreadable(found) => {
            let failed = map::unreadable(&found).ok_or_else(Problem::not_found)?;
            Ok(ShownBody::failed(app, who, failed))
        }
    }
}

pub(super) fn no(error: standfast_engine::EngineError) -> Problem {
    error::problem(&error)
}

/// What is not a name at all is answered like the name of nothing.
fn inbox_name(text: String) -> InboxResult<InboxName> {
    InboxName::new(text).map_err(|_| Problem::not_found())
}

pub(super) fn task_names((inbox, task): (String, String)) -> InboxResult<(InboxName, RunId)> {
    Ok((inbox_name(inbox)?, task.parse().map_err(|_| Problem::not_found())?))
}
