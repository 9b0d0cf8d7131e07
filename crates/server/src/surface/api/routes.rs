//! The handlers of the native API: take apart, one engine call, put together.
//!
//! Rules live in the core, authority in `auth`, words in `map.rs`.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use holdpoint_core::command::Say;
use holdpoint_core::id::{HoldId, RunId, Seq};
use holdpoint_core::name::{AgentName, BadName, SessionId, ToolName};

use super::{error, events, map, wire};
use crate::auth::Principal;
use crate::engine::{Decision, EngineError, HoldList, NewRun, RunList};
use crate::http::{App, Args, JsonBody, Problem, Segment};

/// Items of a page, unless the caller wants another number.
const PAGE: usize = 50;
/// Items of a page at most.
const PAGE_MAX: usize = 200;
/// Bytes of an idempotency key at most.
const KEY_MAX: usize = 256;

/// Who is calling.
type Who = Extension<Principal>;
type Answered<T> = Result<T, Problem>;

/// The routes.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/agents", get(agents))
        .route("/agents/{agent}/runs", post(start))
        .route("/runs", get(runs))
        .route("/runs/{run}", get(run))
        .route("/runs/{run}/events", get(run_events))
        .route("/runs/{run}/messages", post(say))
        .route("/runs/{run}/cancel", post(cancel))
        .route("/holds", get(holds))
        .route("/holds/{hold}", get(hold))
        .route("/holds/{hold}/resolve", post(resolve))
        .route("/holds/{hold}/receipt", get(receipt))
}

async fn agents(State(app): State<App>) -> Json<wire::Agents> {
    let agents = app.engine.settings().agents.iter();
    Json(wire::Agents { agents: agents.map(|(name, agent)| map::agent(name.to_string(), agent)).collect() })
}

async fn start(
    State(app): State<App>,
    Extension(who): Who,
    Segment(agent): Segment,
    JsonBody(body): JsonBody<wire::StartRun>,
) -> Answered<Response> {
    let agent = AgentName::new(agent).map_err(|_| Problem::not_found())?;
    let session = body.session.map(SessionId::new).transpose().map_err(bad_name)?;
    let new = NewRun { agent, session, message: map::message(body.input)? };
    let id = app.engine.start(&who, new).await.map_err(|error| error::problem(None, &error))?;
    let view = match body.wait {
        wire::Wait::Accepted => app.engine.run(&who, id).await,
        wire::Wait::Settled => app.engine.settled_run(&who, id, app.engine.settings().max_wait).await,
    };
    let view = view.map_err(about(id))?;
    let location = [(header::LOCATION, format!("/api/v1/runs/{id}"))];
    Ok((StatusCode::CREATED, location, Json(map::run_view(&view))).into_response())
}

async fn runs(
    State(app): State<App>,
    Extension(who): Who,
    Args(args): Args<wire::RunsArgs>,
) -> Answered<Json<wire::Runs>> {
    let list = RunList {
        agent: args.agent.map(AgentName::new).transpose().map_err(bad_name)?,
        session: args.session.map(SessionId::new).transpose().map_err(bad_name)?,
        cursor: args.cursor,
        limit: args.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX),
    };
    let page = app.engine.runs(&who, list).await.map_err(|error| error::problem(None, &error))?;
    let runs = page.items.iter().map(|row| map::run(&row.run)).collect();
    Ok(Json(wire::Runs { runs, next_cursor: page.next.map(|next| next.to_string()) }))
}

async fn run(
    State(app): State<App>,
    Extension(who): Who,
    Segment(run): Segment,
) -> Answered<Json<wire::RunBody>> {
    let run = run_id(&run)?;
    let view = app.engine.run(&who, run).await.map_err(about(run))?;
    Ok(Json(map::run_view(&view)))
}

async fn run_events(
    State(app): State<App>,
    Extension(who): Who,
    Segment(run): Segment,
    Args(args): Args<wire::EventsArgs>,
    headers: HeaderMap,
) -> Answered<Response> {
    let run = run_id(&run)?;
    let after = match text(&headers, "last-event-id")? {
        Some(id) => id.parse().map_err(|_| Problem::bad_request("Last-Event-ID must be a number"))?,
        None => args.after.unwrap_or(0),
    };
    let accept = text(&headers, header::ACCEPT.as_str())?.unwrap_or_default();
    if accept.contains("text/event-stream") {
        app.engine.see(&who, run).await.map_err(about(run))?;
        return Ok(events::stream(&app, run, Seq(after)));
    }
    let log = app.engine.log(&who, run, Seq(after)).await.map_err(about(run))?;
    let events = log.iter().map(|envelope| map::event(run, envelope)).collect();
    Ok(Json(wire::Events { events }).into_response())
}

async fn say(
    State(app): State<App>,
    Extension(who): Who,
    Segment(run): Segment,
    JsonBody(body): JsonBody<wire::SendMessage>,
) -> Answered<Json<wire::RunBody>> {
    let run = run_id(&run)?;
    let say = Say { message: map::message(body.input)?, on_hold: map::on_hold(body.on_hold) };
    app.engine.say(&who, run, say).await.map_err(about(run))?;
    let view = app.engine.run(&who, run).await.map_err(about(run))?;
    Ok(Json(map::run_view(&view)))
}

async fn cancel(
    State(app): State<App>,
    Extension(who): Who,
    Segment(run): Segment,
    JsonBody(body): JsonBody<wire::CancelRun>,
) -> Answered<Json<wire::RunBody>> {
    let run = run_id(&run)?;
    app.engine.cancel(&who, run, body.reason).await.map_err(about(run))?;
    let view = app.engine.run(&who, run).await.map_err(about(run))?;
    Ok(Json(map::run_view(&view)))
}

async fn holds(
    State(app): State<App>,
    Extension(who): Who,
    Args(args): Args<wire::HoldsArgs>,
) -> Answered<Json<wire::Holds>> {
    let list = HoldList {
        kind: args.kind.map(map::core_kind),
        agent: args.agent.map(AgentName::new).transpose().map_err(bad_name)?,
        tool: args.tool.map(ToolName::new).transpose().map_err(bad_name)?,
        session: args.session.map(SessionId::new).transpose().map_err(bad_name)?,
        cursor: args.cursor,
        limit: args.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX),
    };
    let page = app.engine.holds(&who, list).await.map_err(|error| error::problem(None, &error))?;
    let holds = page.items.iter().map(map::hold).collect();
    Ok(Json(wire::Holds { holds, next_cursor: page.next.map(|next| next.to_string()) }))
}

async fn hold(
    State(app): State<App>,
    Extension(who): Who,
    Segment(hold): Segment,
) -> Answered<Json<wire::HoldDetail>> {
    let hold = hold_id(&hold)?;
    let view = app.engine.hold(&who, hold).await.map_err(about(hold.run))?;
    Ok(Json(map::hold_view(view)))
}

async fn resolve(
    State(app): State<App>,
    Extension(who): Who,
    Segment(hold): Segment,
    headers: HeaderMap,
    JsonBody(body): JsonBody<wire::ResolveHold>,
) -> Answered<Json<wire::Resolved>> {
    let hold = hold_id(&hold)?;
    app.engine.see(&who, hold.run).await.map_err(about(hold.run))?;
    let no_digest = |_| Problem::invalid("digest is none: repeat the one that the hold was shown with");
    let decision = Decision {
        hold,
        wanted: map::wanted(&body)?,
        digest: body.digest.as_deref().map(str::parse).transpose().map_err(no_digest)?,
        revision: body.revision,
        idempotency_key: idempotency_key(&headers)?,
    };
    let answer = app.engine.decide(&who, decision).await.map_err(about(hold.run))?;
    if let wire::Wait::Settled = body.wait {
        let at_most = app.engine.settings().max_wait;
        app.engine.settled_run(&who, hold.run, at_most).await.map_err(about(hold.run))?;
    }
    let view = app.engine.hold(&who, hold).await.map_err(about(hold.run))?;
    Ok(Json(map::resolved(&answer, map::hold_view(view))))
}

async fn receipt(
    State(app): State<App>,
    Extension(who): Who,
    Segment(hold): Segment,
) -> Answered<Json<wire::ReceiptBody>> {
    let hold = hold_id(&hold)?;
    let receipt = app.engine.receipt(&who, hold).await.map_err(about(hold.run))?;
    Ok(Json(wire::ReceiptBody { id: hold.to_string(), run: hold.run.to_string(), receipt }))
}

/// What is no id at all is answered like the id of nothing.
fn run_id(text: &str) -> Answered<RunId> {
    text.parse().map_err(|_| Problem::not_found())
}

fn hold_id(text: &str) -> Answered<HoldId> {
    text.parse().map_err(|_| Problem::not_found())
}

fn about(run: RunId) -> impl Fn(EngineError) -> Problem {
    move |error| error::problem(Some(run), &error)
}

fn bad_name(bad: BadName) -> Problem {
    Problem::invalid(bad.to_string())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Answered<Option<&'a str>> {
    let unreadable = |_| Problem::bad_request(format!("the header {name} is not plain text"));
    headers.get(name).map(|value| value.to_str()).transpose().map_err(unreadable)
}

fn idempotency_key(headers: &HeaderMap) -> Answered<Option<String>> {
    match text(headers, "idempotency-key")? {
        Some("") => Err(Problem::bad_request("Idempotency-Key is empty")),
        Some(key) if key.len() > KEY_MAX => Err(Problem::bad_request("Idempotency-Key is too long")),
        other => Ok(other.map(str::to_owned)),
    }
}
