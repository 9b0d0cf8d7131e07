//! The handlers of the native API: take apart, one engine call, put together.
//!
//! Rules live in the core, authority in `auth`, words in `map.rs`.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use standfast_core::command::{Choice, Say};
use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::name::{AgentName, BadName, SessionId};
use standfast_engine::auth::Principal;
use standfast_engine::{
    Acceptance, Decision, EngineError, GrantRequest, LookedUpRun, NewRun, RunList, RunView, StartedRun,
};
use utoipa::IntoResponses;
use utoipa::openapi::{Content, Ref, RefOr, Response as OpenApiResponse, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::hold_lists::{self, AskedHolds};
use super::{events, gates, grants, links, map, nodes, people, sessions, sign_ins, subscriptions, wire};
use crate::http::{App, Args, Pass, Problem, Repeatable, Segment, refusal};

/// Items of a page, unless the caller wants another number.
pub(super) const PAGE: usize = 50;
/// Items of a page at most.
pub(super) const PAGE_MAX: usize = 200;
/// Events of a page at most.
const EVENTS_MAX: usize = 1000;

/// Who is calling.
pub(super) type CallerOf = Extension<Principal>;
pub(super) type ApiResult<T> = Result<T, Problem>;

/// What every route may answer instead.
pub(super) struct DefaultAnswers;

impl IntoResponses for DefaultAnswers {
    fn responses() -> BTreeMap<String, RefOr<OpenApiResponse>> {
        let problem = Content::new(Some(Ref::from_schema_name("Problem")));
        let response = ResponseBuilder::new()
            .description("A problem (RFC 9457): its type says which, its detail what to do")
            .content("application/problem+json", problem)
            .build();
        BTreeMap::from([("default".to_owned(), RefOr::T(response))])
    }
}

/// The routes, each with its description.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(agents))
        .routes(routes!(agent))
        .routes(routes!(start))
        .routes(routes!(runs))
        .routes(routes!(run))
        .routes(routes!(run_events))
        .routes(routes!(say))
        .routes(routes!(cancel))
        .routes(routes!(recovery))
        .routes(routes!(holds))
        .routes(routes!(hold))
        .routes(routes!(resolve))
        .routes(routes!(receipt))
        .merge(people::routes())
        .merge(links::routes())
        .merge(gates::routes())
        .merge(grants::routes())
        .routes(routes!(sessions::sessions))
        .routes(routes!(sessions::session, sessions::change_session, sessions::delete_session))
        .routes(routes!(sessions::pending, sessions::restore))
        .merge(subscriptions::routes())
        .merge(sign_ins::routes())
        .routes(routes!(nodes::nodes))
}

/// The agents.
#[utoipa::path(
    get, path = "/agents", tag = "agents", responses((status = 200, body = wire::Agents), DefaultAnswers)
)]
async fn agents(State(app): State<App>, Extension(who): CallerOf) -> Json<wire::Agents> {
    let settings = app.engine.settings();
    let agents = settings.agents.iter().filter(|(name, _)| who.reads(name));
    Json(wire::Agents { agents: agents.map(|(name, agent)| map::agent(name.to_string(), agent)).collect() })
}

/// One agent.
#[utoipa::path(
    get, path = "/agents/{agent}", tag = "agents", params(("agent" = String, Path, description = "The agent's name")),
    responses((status = 200, body = wire::AgentBody), DefaultAnswers)
)]
async fn agent(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(agent): Segment,
) -> ApiResult<Json<wire::AgentBody>> {
    let name = AgentName::new(agent).map_err(|_| Problem::not_found())?;
    let settings = app.engine.settings();
    let found = settings.agents.get(&name).filter(|_| who.reads(&name)).ok_or_else(Problem::not_found)?;
    Ok(Json(map::agent(name.to_string(), found)))
}

/// Starts a run. With `wait: settled` the response comes when the run is held or has ended.
#[utoipa::path(
    post, path = "/agents/{agent}/runs", tag = "runs", params(("agent" = String, Path, description = "The agent's name")),
    request_body = wire::StartRun,
    responses((status = 201, body = wire::RunBody), DefaultAnswers)
)]
async fn start(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(agent): Segment,
    Repeatable { body, once }: Repeatable<wire::StartRun>,
) -> ApiResult<Response> {
    let agent = AgentName::new(agent).map_err(|_| Problem::not_found())?;
    if body.session.as_deref() == Some("") {
        return Err(Problem::invalid(SESSION_REQUIRED));
    }
    let session = body.session.map(SessionId::new).transpose().map_err(bad_name)?;
    let new = NewRun { agent, session, message: map::message(body.input)?, once };
    let started = app.engine.submit().start_run(&who, new).await;
    let StartedRun { id, rest } = started.map_err(|error| refusal::problem(None, &error))?;
    let reads = app.engine.reads();
    let snapshot = match body.wait {
        wire::Wait::Accepted => reads.snapshot(&who, id).await,
        wire::Wait::Settled => reads.settled(&who, id, rest, app.engine.settings().max_wait).await,
    };
    let view = match snapshot {
        Ok(snapshot) => reads.run_view(&snapshot).await,
        Err(error) => Err(error),
    };
    let view = view.map_err(about(id))?;
    Ok(placed(StatusCode::CREATED, id, view))
}

/// A run, with the address where it is from now on.
pub(super) fn placed(status: StatusCode, id: RunId, view: RunView) -> Response {
    let location = [(header::LOCATION, format!("/api/v1/runs/{id}"))];
    (status, location, Json(map::run_view(view))).into_response()
}

/// Lists runs, newest first.
#[utoipa::path(
    get, path = "/runs", tag = "runs", params(wire::RunsArgs),
    responses((status = 200, body = wire::Runs), DefaultAnswers)
)]
async fn runs(
    State(app): State<App>,
    Extension(who): CallerOf,
    Args(args): Args<wire::RunsArgs>,
) -> ApiResult<Json<wire::Runs>> {
    let list = RunList {
        agent: args.agent.map(AgentName::new).transpose().map_err(bad_name)?,
        session: args.session.map(SessionId::new).transpose().map_err(bad_name)?,
        cursor: args.cursor,
        limit: args.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX),
    };
    let page = app.engine.reads().runs(&who, list).await.map_err(|error| refusal::problem(None, &error))?;
    let runs = map::runs(&page);
    Ok(Json(wire::Runs { runs, next_cursor: page.next.map(|next| next.to_string()) }))
}

/// A run.
#[utoipa::path(
    get, path = "/runs/{run}", tag = "runs", params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = wire::RunBody), DefaultAnswers)
)]
async fn run(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(run): Segment,
) -> ApiResult<Json<wire::RunBody>> {
    let run = run_id(&run)?;
    let seen = app.engine.reads().look_up(&who, run).await.map_err(about(run))?;
    Ok(Json(match seen {
        LookedUpRun::Run(snapshot) => {
            map::run_view(app.engine.reads().run_view(&snapshot).await.map_err(about(run))?)
        }
        LookedUpRun::Quarantined(found) => map::unreadable(&found),
    }))
}

/// The startup report: what the server found of the caller's tenant when it started.
#[utoipa::path(
    get, path = "/recovery", tag = "operations",
    responses((status = 200, body = wire::RecoveryBody), DefaultAnswers)
)]
async fn recovery(State(app): State<App>, Extension(who): CallerOf) -> ApiResult<Json<wire::RecoveryBody>> {
    Ok(Json(map::recovery(&app.engine.node_work().startup_report(Some(&who.tenant)))))
}

/// The events of a run: a page of JSON or, with `Accept: text/event-stream`, a stream that resumes after
/// `Last-Event-ID`.
#[utoipa::path(
    get, path = "/runs/{run}/events", tag = "runs",
    params(
        ("run" = String, Path, description = "The run's id"),
        wire::EventsArgs,
        ("last-event-id" = Option<String>, Header, description = "Only events after this one; a number")
    ),
    responses((status = 200, body = wire::Events), DefaultAnswers)
)]
async fn run_events(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(pass): Extension<Pass>,
    Segment(run): Segment,
    Args(args): Args<wire::EventsArgs>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let run = run_id(&run)?;
    let after = match text(&headers, "last-event-id")? {
        Some(id) => id.parse().map_err(|_| Problem::bad_request("Last-Event-ID must be a number"))?,
        None => args.after.unwrap_or(0),
    };
    let accept = text(&headers, header::ACCEPT.as_str())?.unwrap_or_default();
    if accept.contains("text/event-stream") {
        app.engine.reads().see(&who, run).await.map_err(about(run))?;
        return Ok(events::stream(&app, (pass, who), run, Seq(after)));
    }
    let log = app.engine.reads().log(&who, run, Seq(after)).await.map_err(about(run))?;
    let limit = args.limit.map_or(usize::MAX, |limit| limit.clamp(1, EVENTS_MAX));
    let events: Vec<wire::EventBody> =
        log.iter().take(limit).map(|envelope| map::event(run, envelope)).collect();
    let next = events.last().filter(|_| log.len() > limit).map(|last| last.seq);
    Ok(Json(wire::Events { events, next }).into_response())
}

/// Sends a further message to a run.
#[utoipa::path(
    post, path = "/runs/{run}/messages", tag = "runs", params(("run" = String, Path, description = "The run's id")),
    request_body = wire::SendMessage,
    responses((status = 200, body = wire::RunBody), DefaultAnswers)
)]
async fn say(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(run): Segment,
    Repeatable { body, once }: Repeatable<wire::SendMessage>,
) -> ApiResult<Json<wire::RunBody>> {
    let run = run_id(&run)?;
    let say = Say { message: map::message(body.input)?, on_hold: map::on_hold(body.on_hold) };
    app.engine.submit().say(&who, run, say, once).await.map_err(about(run))?;
    let view = app.engine.reads().run(&who, run).await.map_err(about(run))?;
    Ok(Json(map::run_view(view)))
}

/// Cancels a run.
#[utoipa::path(
    post, path = "/runs/{run}/cancel", tag = "runs", params(("run" = String, Path, description = "The run's id")),
    request_body = Option<wire::CancelRun>,
    responses((status = 200, body = wire::RunBody), DefaultAnswers)
)]
async fn cancel(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(run): Segment,
    Repeatable { body, once }: Repeatable<wire::CancelRun>,
) -> ApiResult<Json<wire::RunBody>> {
    let run = run_id(&run)?;
    app.engine.submit().cancel(&who, run, body.reason, once).await.map_err(about(run))?;
    let view = app.engine.reads().run(&who, run).await.map_err(about(run))?;
    Ok(Json(map::run_view(view)))
}

/// Lists holds: open ones oldest first, decided ones by when they were decided, the latest first.
#[utoipa::path(
    get, path = "/holds", tag = "holds", params(wire::HoldsArgs),
    responses((status = 200, body = wire::Holds), DefaultAnswers)
)]
async fn holds(
    State(app): State<App>,
    Extension(who): CallerOf,
    Args(args): Args<wire::HoldsArgs>,
) -> ApiResult<Json<wire::Holds>> {
    let refused = |error: EngineError| refusal::problem(None, &error);
    let (reads, limit) = (app.engine.reads(), args.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX));
    let (rows, next) = match hold_lists::asked(args, app.engine.clock().now(), limit)? {
        AskedHolds::Open(list) => {
            let page = reads.holds(&who, list).await.map_err(refused)?;
            (page.items, page.next)
        }
        AskedHolds::Found(search) => {
            let found = reads.find_holds(&who, &search).await.map_err(refused)?;
            (found.items.into_iter().map(|view| view.row).collect(), found.next)
        }
        AskedHolds::Decided(list) => {
            let page = reads.history(&who, &list).await.map_err(refused)?;
            (page.items, page.next)
        }
    };
    let holds = rows.iter().map(map::hold).collect();
    Ok(Json(wire::Holds { holds, next_cursor: next.map(|next| next.to_string()) }))
}

/// A hold with everything needed to decide it.
#[utoipa::path(
    get, path = "/holds/{hold}", tag = "holds", params(("hold" = String, Path, description = "The hold's id")),
    responses((status = 200, body = wire::HoldDetail), DefaultAnswers)
)]
async fn hold(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
) -> ApiResult<Json<wire::HoldDetail>> {
    let hold = hold_id(&hold)?;
    let view = app.engine.reads().hold(&who, hold).await.map_err(about(hold.run))?;
    Ok(Json(map::hold_view(view)))
}

/// Decides a hold.
#[utoipa::path(
    post, path = "/holds/{hold}/resolve", tag = "holds",
    params(
        ("hold" = String, Path, description = "The hold's id"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = wire::ResolveHold,
    responses((status = 200, body = wire::DecisionResult), DefaultAnswers)
)]
async fn resolve(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    Repeatable { body, once }: Repeatable<wire::ResolveHold>,
) -> ApiResult<Json<wire::DecisionResult>> {
    let hold = hold_id(&hold)?;
    let (wanted, digest, grant) = match asked(&body) {
        Ok(asked) => asked,
        Err(problem) => {
            // Whoever may not see the hold hears nothing but that.
            app.engine.reads().see(&who, hold.run).await.map_err(about(hold.run))?;
            return Err(problem);
        }
    };
    let decision = Decision { hold, wanted, digest, revision: body.revision, once };
    let accepted = match grant {
        None => app.engine.submit().decide_all(&who, decision.into()).await.map_err(about(hold.run)),
        Some((request, shown)) => {
            let approved = app.engine.grants().approve(&who, decision, &request, shown).await;
            approved.map_err(|error| grants::no_grant(hold.run, error))
        }
    };
    let Acceptance { answer, rest } = accepted?;
    let view = match body.wait {
        wire::Wait::Accepted => app.engine.reads().hold(&who, hold).await,
        wire::Wait::Settled => {
            app.engine.reads().settled_hold(&who, hold, rest, app.engine.settings().max_wait).await
        }
    };
    let view = view.map_err(about(hold.run))?;
    Ok(Json(map::resolved(&answer, map::hold_view(view))))
}

/// What a decision says, and of which arguments.
fn asked(body: &wire::ResolveHold) -> ApiResult<AskedDecision> {
    let no_digest = |_| Problem::invalid("invalid digest; send the digest shown with the hold");
    let digest = body.digest.as_deref().map(str::parse).transpose().map_err(no_digest)?;
    let wanted = map::wanted(body)?;
    let grant = match &body.grant {
        None => None,
        Some(_) if wanted != Choice::Approve => {
            return Err(Problem::invalid("only an approval of the call as it is takes grant"));
        }
        Some(saved) => {
            let bad = |_| Problem::invalid("grant: invalid digest; send the one that came with the rule");
            Some((grants::request_of(saved)?, saved.digest.parse().map_err(bad)?))
        }
    };
    Ok((wanted, digest, grant))
}

/// A decision, the digest that it repeats, and the standing approval that it saves.
type AskedDecision = (Choice, Option<Digest>, Option<(GrantRequest, Digest)>);

/// The receipt of a hold: what was shown, who decided, and what ran.
#[utoipa::path(
    get, path = "/holds/{hold}/receipt", tag = "holds", params(("hold" = String, Path, description = "The hold's id")),
    responses((status = 200, body = wire::ReceiptBody), DefaultAnswers)
)]
async fn receipt(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
) -> ApiResult<Json<wire::ReceiptBody>> {
    let hold = hold_id(&hold)?;
    let receipt = app.engine.reads().receipt(&who, hold).await.map_err(about(hold.run))?;
    Ok(Json(map::receipt(hold, &receipt)))
}

/// What is not an id at all is answered like the id of nothing.
pub(super) fn run_id(text: &str) -> ApiResult<RunId> {
    text.parse().map_err(|_| Problem::not_found())
}

pub(super) fn hold_id(text: &str) -> ApiResult<HoldId> {
    text.parse().map_err(|_| Problem::not_found())
}

pub(super) fn about(run: RunId) -> impl Fn(EngineError) -> Problem {
    move |error| refusal::problem(Some(run), &error)
}

/// S0-31: a run without a session gets a new one, so only a session that is given and empty hears this.
const SESSION_REQUIRED: &str = "session ID required for async HITL";

pub(super) fn bad_name(bad: BadName) -> Problem {
    Problem::invalid(bad.to_string())
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> ApiResult<Option<&'a str>> {
    let unreadable = |_| Problem::bad_request(format!("the header {name} is not plain text"));
    headers.get(name).map(|value| value.to_str()).transpose().map_err(unreadable)
}
