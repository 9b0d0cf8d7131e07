//! The handlers of Teal Agents: take apart, ask the engine, put together.
//!
//! The resume route is one address for three: programs POST JSON, a browser that opens it gets a page, and that page's
//! form is posted back to it. GET never decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Extension, Json};
use standfast_core::command::{OnHold, Say};
use standfast_core::decide::Answer;
use standfast_core::id::{RunId, Seq};
use standfast_core::name::{AgentName, SessionId};
use standfast_core::refusal::Refusal;
use standfast_core::time::Millis;
use standfast_engine::auth::Principal;
use standfast_engine::{EngineError, IdempotencyKey, LookedUpRun, NewRun};
use utoipa::IntoResponses;
use utoipa::openapi::{Content, Ref, RefOr, Response as OpenApiResponse, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::problem;
use super::reply::{Asker, Reply};
use super::resume::{LogPoint, ResumeRequest, ResumedTask};
use super::{map, page, stream, wire};
use crate::html;
use crate::http::{App, Args, Pass, Problem, Repeatable, Segment, UnparsedJson, site};

/// Who is calling.
type CallerOf = Extension<Principal>;

/// What every route may answer instead.
struct Errors;

impl IntoResponses for Errors {
    fn responses() -> BTreeMap<String, RefOr<OpenApiResponse>> {
        let body = Content::new(Some(Ref::from_schema_name("TealError")));
        let response = ResponseBuilder::new()
            .description(
                "What happened, and what can be done; with the decision that the request already has",
            )
            .content("application/json", body)
            .build();
        BTreeMap::from([("default".to_owned(), RefOr::T(response))])
    }
}

/// The routes, each with its description.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(chat))
        .routes(routes!(chat_sse))
        .routes(routes!(task))
        .routes(routes!(response))
        .routes(routes!(response_sse))
        .routes(routes!(look, resume))
        .routes(routes!(resume_sse))
        .layer(from_fn(for_browsers))
}

/// A browser gets a token for its forms, and a policy to load nothing from elsewhere; programs get neither.
async fn for_browsers(request: Request, next: Next) -> Response {
    if !is_page(request.method(), request.headers()) {
        return next.run(request).await;
    }
    html::with_headers(html::keep_token_alone(request, next).await)
}

/// Sends a message to an agent; answers when the task has ended or waits for a person.
#[utoipa::path(
    post, path = "/tealagents/v1alpha1/{agent}", tag = "teal agents",
    params(
        ("agent" = String, Path, description = "The agent's name"),
        wire::WaitArgs,
        ("prefer" = Option<String>, Header, description = "`wait=SECONDS`: the same as the argument"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = wire::UserMessage,
    responses(
        (status = 200, body = wire::TaskAnswer, description = "The output, or the request to decide first"),
        (status = 202, body = wire::StateResponse, description = "Still executing after the longest wait"),
        Errors
    )
)]
async fn chat(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(agent): Segment,
    Args(args): Args<wire::WaitArgs>,
    headers: HeaderMap,
    Repeatable { body, once }: Repeatable<wire::UserMessage>,
) -> Result<Response, Problem> {
    let asker = asker(app, who, &headers);
    let wait = wait(args.wait, &headers)?;
    let begun = begin(&asker, agent, &body, once).await?;
    asker.answer(begun.task, begun.since, wait).await.map(|reply| answered(&asker, reply))
}

/// The same as a stream: pieces of the output as they come (`partial-response`), then the answer (`final-response`,
/// `hitl-response`, `auth-response`, `state-response` or `error`).
#[utoipa::path(
    post, path = "/tealagents/v1alpha1/{agent}/sse", tag = "teal agents",
    params(
        ("agent" = String, Path, description = "The agent's name"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = wire::UserMessage,
    responses(
        (status = 200, body = wire::StreamedEvent, content_type = "text/event-stream"),
        Errors
    )
)]
async fn chat_sse(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(pass): Extension<Pass>,
    Segment(agent): Segment,
    headers: HeaderMap,
    Repeatable { body, once }: Repeatable<wire::UserMessage>,
) -> Result<Response, Problem> {
    let asker = asker(app, who, &headers);
    let begun = begin(&asker, agent, &body, once).await?;
    stream::stream(asker, pass, begun).await
}

/// Reads a task with its audit trail: messages, requests, decisions and results.
#[utoipa::path(
    get, path = "/tealagents/v1alpha1/{agent}/tasks/{task_id}", tag = "teal agents",
    params(
        ("agent" = String, Path, description = "The agent's name"),
        ("task_id" = String, Path, description = "The task's id")
    ),
    responses((status = 200, body = wire::AgentTask), Errors)
)]
async fn task(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path((agent, task)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asker = asker(app, who, &headers);
    let run: RunId = task.parse().map_err(|_| Problem::not_found())?;
    let found = asker.look_up(run).await?;
    if found.facts().is_none_or(|facts| facts.agent.as_str() != agent) {
        return Err(Problem::not_found());
    }
    let (task, showing) = asker.task(found).await?;
    Ok(asker.shows(Json(task), showing))
}

/// Reads the response to the last message or decision, after a 202 or a lost response: waits as chat does, and begins nothing.
#[utoipa::path(
    get, path = "/tealagents/v1alpha1/{agent}/tasks/{task_id}/response", tag = "teal agents",
    params(
        ("agent" = String, Path, description = "The agent's name"),
        ("task_id" = String, Path, description = "The task's id"),
        wire::WaitArgs,
        ("prefer" = Option<String>, Header, description = "`wait=SECONDS`: the same as the argument")
    ),
    responses(
        (status = 200, body = wire::TaskAnswer, description = "The output, or the request to decide first"),
        (status = 202, body = wire::StateResponse, description = "Still executing after the longest wait"),
        Errors
    )
)]
async fn response(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path((agent, task)): Path<(String, String)>,
    Args(args): Args<wire::WaitArgs>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asker = asker(app, who, &headers);
    let wait = wait(args.wait, &headers)?;
    let task = of_agent(&asker, &agent, &task).await?;
    asker.answer(task, LogPoint::Invoked, wait).await.map(|reply| answered(&asker, reply))
}

/// The same as a stream.
#[utoipa::path(
    get, path = "/tealagents/v1alpha1/{agent}/tasks/{task_id}/response/sse", tag = "teal agents",
    params(
        ("agent" = String, Path, description = "The agent's name"),
        ("task_id" = String, Path, description = "The task's id")
    ),
    responses(
        (status = 200, body = wire::StreamedEvent, content_type = "text/event-stream"),
        Errors
    )
)]
async fn response_sse(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(pass): Extension<Pass>,
    Path((agent, task)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asker = asker(app, who, &headers);
    let task = of_agent(&asker, &agent, &task).await?;
    stream::stream(asker, pass, ResumedTask { task, since: LogPoint::Invoked }).await
}

/// A task of this agent, if the caller may see it.
async fn of_agent(asker: &Asker, agent: &str, task: &str) -> Result<RunId, Problem> {
    let run: RunId = task.parse().map_err(|_| Problem::not_found())?;
    let facts = asker.app.engine.reads().see(&asker.who, run).await.map_err(|error| problem(&error))?.facts;
    if facts.agent.as_str() == agent { Ok(run) } else { Err(Problem::not_found()) }
}

/// How long a client wants to wait: as the argument says, or as `Prefer` does (RFC 7240).
fn wait(argument: Option<u32>, headers: &HeaderMap) -> Result<Option<Millis>, Problem> {
    let prefers = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let named = prefers.flat_map(|value| value.split(',')).find_map(|one| one.trim().strip_prefix("wait="));
    let preferred = match (argument, named) {
        (Some(seconds), _) => Some(seconds),
        (None, Some(seconds)) => {
            let wrong =
                |_| Problem::bad_request(format!("Prefer: wait={seconds} is not a number of seconds"));
            Some(seconds.trim().parse().map_err(wrong)?)
        }
        (None, None) => None,
    };
    if preferred.is_some_and(|seconds| i32::try_from(seconds).is_err()) {
        return Err(Problem::bad_request(format!("wait: at most {} seconds", i32::MAX)));
    }
    Ok(preferred.map(|seconds| Millis::seconds(i64::from(seconds))))
}

/// The task that a request belongs to; for a browser the page that asks whether to approve or to reject. Decides
/// nothing.
#[utoipa::path(
    get, path = "/tealagents/v1alpha1/resume/{request_id}", tag = "teal agents",
    params(("request_id" = String, Path, description = "The request's id"), wire::ResumeArgs),
    responses((status = 200, body = wire::AgentTask), Errors)
)]
async fn look(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    Args(args): Args<wire::ResumeArgs>,
    request: Request,
) -> Result<Response, Problem> {
    // Nothing is waited for here, but what cannot be an argument is refused all the same.
    wait(args.wait, request.headers())?;
    let asker = asker(app, who, request.headers());
    if is_page(request.method(), request.headers()) {
        return page::show(&asker, &id, &args, page::token(&request)).await;
    }
    let view = asker.request(&id).await?;
    let task = asker.root(view.snapshot.run()).await;
    let found = if task == view.snapshot.id() {
        LookedUpRun::Run(Arc::new(view.snapshot))
    } else {
        asker.look_up(task).await?
    };
    let (task, showing) = asker.task(found).await?;
    Ok(asker.shows(Json(task), showing))
}

/// Approves or rejects everything that a request asks; answers as chat does.
#[utoipa::path(
    post, path = "/tealagents/v1alpha1/resume/{request_id}", tag = "teal agents",
    params(
        ("request_id" = String, Path, description = "The request's id"),
        wire::ResumeArgs,
        ("prefer" = Option<String>, Header, description = "`wait=SECONDS`: the same as the argument"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = wire::ResumeBody,
    responses(
        (status = 200, body = wire::TaskAnswer, description = "The output, the next request, or the cancellation"),
        (status = 409, body = wire::ErrorBody, description = "Already decided, expired, or ended"),
        (status = 202, body = wire::StateResponse, description = "Still executing after the longest wait"),
        Errors
    )
)]
async fn resume(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    Args(args): Args<wire::ResumeArgs>,
    request: Request,
) -> Result<Response, Problem> {
    let asker = asker(app, who, request.headers());
    if is_page(request.method(), request.headers()) {
        return page::decide(&asker, &id, &args, request).await;
    }
    let wait = wait(args.wait, request.headers())?;
    let body = UnparsedJson::from_request(request, &()).await?;
    let resumed = decide(&asker, &id, &args, &body).await?;
    asker.answer(resumed.task, resumed.since, wait).await.map(|reply| answered(&asker, reply))
}

/// The same as a stream.
#[utoipa::path(
    post, path = "/tealagents/v1alpha1/resume/{request_id}/sse", tag = "teal agents",
    params(
        ("request_id" = String, Path, description = "The request's id"),
        wire::ResumeArgs,
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = wire::ResumeBody,
    responses(
        (status = 200, body = wire::StreamedEvent, content_type = "text/event-stream"),
        Errors
    )
)]
async fn resume_sse(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(pass): Extension<Pass>,
    Segment(id): Segment,
    Args(args): Args<wire::ResumeArgs>,
    headers: HeaderMap,
    body: UnparsedJson,
) -> Result<Response, Problem> {
    let asker = asker(app, who, &headers);
    let resumed = decide(&asker, &id, &args, &body).await?;
    stream::stream(asker, pass, resumed).await
}

async fn decide(
    asker: &Asker,
    id: &str,
    args: &wire::ResumeArgs,
    body: &UnparsedJson,
) -> Result<ResumedTask, Problem> {
    let wish = || {
        let Repeatable { body, once } = body.judge(args.action.as_deref().unwrap_or_default())?;
        ResumeRequest::of(body, args, once)
    };
    asker.resume(id, wish).await
}

/// Begins a task, or says something more to one.
async fn begin(
    asker: &Asker,
    agent: String,
    said: &wire::UserMessage,
    once: Option<IdempotencyKey>,
) -> Result<ResumedTask, Problem> {
    let (engine, who) = (&asker.app.engine, &asker.who);
    let agent = AgentName::new(agent).map_err(|_| Problem::not_found())?;
    let message = map::message(said).map_err(Problem::invalid)?;
    let Some(task) = &said.task_id else {
        let named = said.session_id.clone().map(SessionId::new).transpose();
        let session = named.map_err(|bad| Problem::invalid(format!("session_id: {bad}")))?;
        let new = NewRun { agent, session, message, once };
        let task = engine.submit().start_batched(who, new).await.map_err(|error| problem(&error))?;
        return Ok(ResumedTask { task, since: LogPoint::Event(Seq(0)) });
    };
    let task: RunId = task.parse().map_err(|_| Problem::not_found())?;
    let found = engine.reads().snapshot(who, task).await.map_err(|error| problem(&error))?;
    let run = found.run();
    if run.facts.agent != agent {
        return Err(Problem::not_found());
    }
    if said.session_id.as_ref().is_some_and(|session| session != run.facts.session.as_str()) {
        return Err(Problem::invalid(format!("task {task} belongs to the session {}", run.facts.session)));
    }
    let say = Say { message, on_hold: OnHold::Refuse };
    match engine.submit().say_on(who, &found, say, once).await {
        Ok(Answer::Repeated) => Ok(ResumedTask { task, since: LogPoint::Now }),
        Ok(_) => Ok(ResumedTask { task, since: LogPoint::Event(run.state.seq) }),
        Err(error @ EngineError::Refused(Refusal::Ended(_))) => {
            let detail =
                format!("task {task}: {error}. Leave out task_id to start a new task in the session");
            Err(Problem::new(StatusCode::CONFLICT, "ended", "The task has ended", detail))
        }
        Err(error) => Err(problem(&error)),
    }
}

fn asker(app: App, who: Principal, headers: &HeaderMap) -> Asker {
    let site = site(&app.engine, headers);
    Asker { app, who, site }
}

fn answered(asker: &Asker, Reply { answer, showing }: Reply) -> Response {
    let status = match &answer {
        wire::TaskAnswer::State(state) if state.status == wire::TaskStatus::Running => StatusCode::ACCEPTED,
        wire::TaskAnswer::State(_)
        | wire::TaskAnswer::Output(_)
        | wire::TaskAnswer::Hitl(_)
        | wire::TaskAnswer::Auth(_) => StatusCode::OK,
    };
    let goes_on = match &answer {
        wire::TaskAnswer::State(wire::StateResponse { response_url: Some(url), .. }) => url.parse().ok(),
        wire::TaskAnswer::State(_)
        | wire::TaskAnswer::Output(_)
        | wire::TaskAnswer::Hitl(_)
        | wire::TaskAnswer::Auth(_) => None,
    };
    let mut response = asker.shows((status, Json(answer)), showing);
    if let Some(location) = goes_on {
        response.headers_mut().insert(header::LOCATION, location);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Whether a page is wanted: somebody opens the address in a browser, or sends the form that they found there.
fn is_page(method: &Method, headers: &HeaderMap) -> bool {
    let has = |name, what: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.contains(what))
    };
    match *method {
        Method::GET | Method::HEAD => has(header::ACCEPT, "text/html"),
        _ => has(header::CONTENT_TYPE, "application/x-www-form-urlencoded"),
    }
}
