//! Gates under `/api/v1/gates`: other people's agents ask before they run a call, say that they begin, and report.
//!
//! The handlers take apart, make one engine call, and put together; `wire.rs` has the bodies, `map.rs` what they mean, `callback.rs`
//! and `template.rs` what somebody is told who waits elsewhere. Hooks of coding agents go the same way.

mod callback;
mod map;
mod template;
mod wire;

pub use callback::GateCallback;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use standfast_core::id::{RunId, Seq};
use standfast_core::time::Millis;
use standfast_engine::auth::Principal;
use standfast_engine::{GateState, GateView, LookedUpGate, SubscriptionError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::events;
use super::routes::{ApiResult, CallerOf, DefaultAnswers, about, run_id, text};
use super::subscriptions::problem as subscription_problem;
use crate::http::{App, Args, Pass, Problem, Repeatable, Segment, gate_problem, site};

/// The longest that a request waits for a decision.
const LONGEST_WAIT: u64 = 55_000;

/// Calls of one turn at most.
const BATCH_MAX: usize = 64;

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(open))
        .routes(routes!(open_batch))
        .routes(routes!(gate))
        .routes(routes!(gate_events))
        .routes(routes!(start))
        .routes(routes!(outcome))
        .routes(routes!(withdraw))
}

/// Opens a gate, or attaches to the one that is there for the same caller, session, call and digest. 200 when it is decided,
/// 202 while somebody has to decide.
#[utoipa::path(
    post, path = "/gates", tag = "gates",
    params(("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")),
    request_body = wire::OpenGate,
    responses((status = 200, body = wire::Gate), (status = 202, body = wire::Gate), DefaultAnswers)
)]
async fn open(
    State(app): State<App>,
    Extension(who): CallerOf,
    headers: HeaderMap,
    Repeatable { body, once }: Repeatable<wire::OpenGate>,
) -> ApiResult<Response> {
    let wait = body.wait_ms.unwrap_or(0);
    let new = map::new_gate(body)?;
    let opened = app.engine.gates().open_with_callbacks(&who, vec![new], once).await;
    let opened = opened.map_err(not_opened)?;
    let gate = opened.first().ok_or_else(Problem::not_found)?.gate;
    let view = decided(&app, &who, gate, wait).await?;
    let status = if view.state == GateState::Held { StatusCode::ACCEPTED } else { StatusCode::OK };
    let place = [(header::LOCATION, format!("/api/v1/gates/{gate}"))];
    Ok((status, place, Json(shown(&app, &headers, &view))).into_response())
}

/// Opens gates for the calls of one turn: all of them are there afterwards, or none. The answers come in the same order.
#[utoipa::path(
    post, path = "/gates/batch", tag = "gates",
    params(("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")),
    request_body = wire::OpenGates,
    responses((status = 200, body = wire::Gates), (status = 202, body = wire::Gates), DefaultAnswers)
)]
async fn open_batch(
    State(app): State<App>,
    Extension(who): CallerOf,
    headers: HeaderMap,
    Repeatable { body, once }: Repeatable<wire::OpenGates>,
) -> ApiResult<Response> {
    if body.gates.is_empty() || body.gates.len() > BATCH_MAX {
        return Err(Problem::invalid(format!("gates must have 1 to {BATCH_MAX} entries")));
    }
    let mut new = Vec::new();
    for (no, gate) in body.gates.into_iter().enumerate() {
        new.push(map::new_gate(gate).map_err(|problem| at_entry(no, problem))?);
    }
    let opened = app.engine.gates().open_with_callbacks(&who, new, once).await.map_err(not_opened)?;
    let mut gates = Vec::new();
    for gate in opened.into_iter().map(|opened| opened.gate) {
        let view = app.engine.gates().look(&who, gate).await.map_err(about(gate))?;
        gates.push(shown(&app, &headers, &view));
    }
    let is_held = gates.iter().any(|gate| gate.state == wire::State::Held);
    let status = if is_held { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(wire::Gates { gates })).into_response())
}

/// Why there is no gate, where a callback may be why.
fn not_opened(error: SubscriptionError) -> Problem {
    match error {
        SubscriptionError::Invalid(why) => Problem::invalid(format!("callback: {why}")),
        other => subscription_problem(other),
    }
}

fn at_entry(no: usize, problem: Problem) -> Problem {
    Problem { detail: format!("gates[{no}]: {}; no gate was opened", problem.detail), ..problem }
}

/// A gate; with `wait_ms` as soon as it is decided. Giving up changes nothing: the gate stays open.
#[utoipa::path(
    get, path = "/gates/{gate}", tag = "gates",
    params(("gate" = String, Path, description = "The gate's id"), wire::WaitArgs),
    responses((status = 200, body = wire::Gate), DefaultAnswers)
)]
async fn gate(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(gate): Segment,
    Args(args): Args<wire::WaitArgs>,
    headers: HeaderMap,
) -> ApiResult<Json<wire::Gate>> {
    let view = decided(&app, &who, run_id(&gate)?, args.wait_ms.unwrap_or(0)).await?;
    Ok(Json(shown(&app, &headers, &view)))
}

/// The events of a gate, as a stream that resumes after `Last-Event-ID`.
#[utoipa::path(
    get, path = "/gates/{gate}/events", tag = "gates",
    params(
        ("gate" = String, Path, description = "The gate's id"),
        ("last-event-id" = Option<String>, Header, description = "Only events after this one; a number")
    ),
    responses((status = 200, description = "Server-sent events", content_type = "text/event-stream", body = String), DefaultAnswers)
)]
async fn gate_events(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(pass): Extension<Pass>,
    Segment(gate): Segment,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let gate = run_id(&gate)?;
    let after = match text(&headers, "last-event-id")? {
        Some(id) => id.parse().map_err(|_| Problem::bad_request("Last-Event-ID must be a number"))?,
        None => 0,
    };
    app.engine.gates().look(&who, gate).await.map_err(about(gate))?;
    Ok(events::stream(&app, (pass, who), gate, Seq(after)))
}

/// Whoever opened a gate is about to run its call: 200 once, then 409.
#[utoipa::path(
    post, path = "/gates/{gate}/start", tag = "gates", params(("gate" = String, Path, description = "The gate's id")),
    request_body = wire::StartGate,
    responses((status = 200, body = wire::StartedCall), DefaultAnswers)
)]
async fn start(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(gate): Segment,
    Repeatable { body, .. }: Repeatable<wire::StartGate>,
) -> ApiResult<Json<wire::StartedCall>> {
    let gate = run_id(&gate)?;
    let digest = body.digest.parse().map_err(|_| Problem::invalid("digest: send the digest of the gate"))?;
    let lease = map::lease(body.lease_ms);
    let started = app.engine.gates().start(&who, gate, Some(digest), lease).await;
    let started = started.map_err(|error| gate_problem(gate, &error))?;
    Ok(Json(wire::StartedCall {
        gate: gate.to_string(),
        attempt: started.attempt,
        start_by: crate::http::rfc3339(started.start_by),
    }))
}

/// Reports the outcome of a call that the caller ran.
#[utoipa::path(
    post, path = "/gates/{gate}/outcome", tag = "gates",
    params(
        ("gate" = String, Path, description = "The gate's id"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = wire::ReportOutcome,
    responses((status = 200, body = wire::Gate), DefaultAnswers)
)]
async fn outcome(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(gate): Segment,
    headers: HeaderMap,
    Repeatable { body, once }: Repeatable<wire::ReportOutcome>,
) -> ApiResult<Json<wire::Gate>> {
    let (gate, attempt) = (run_id(&gate)?, body.attempt);
    let reported = app.engine.gates().report(&who, gate, attempt, map::outcome(body)?, once).await;
    reported.map_err(|error| gate_problem(gate, &error))?;
    let view = decided(&app, &who, gate, 0).await?;
    Ok(Json(shown(&app, &headers, &view)))
}

/// A gate is no longer wanted: its hold closes, and nothing may run.
#[utoipa::path(
    post, path = "/gates/{gate}/withdraw", tag = "gates",
    params(("gate" = String, Path, description = "The gate's id")),
    request_body = Option<wire::Withdraw>,
    responses((status = 200, body = wire::Gate), DefaultAnswers)
)]
async fn withdraw(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(gate): Segment,
    headers: HeaderMap,
    Repeatable { body, once }: Repeatable<wire::Withdraw>,
) -> ApiResult<Json<wire::Gate>> {
    let gate = run_id(&gate)?;
    let withdrawn = app.engine.gates().withdraw(&who, gate, map::withdrawal(body.reason), once).await;
    withdrawn.map_err(|error| gate_problem(gate, &error))?;
    let view = decided(&app, &who, gate, 0).await?;
    Ok(Json(shown(&app, &headers, &view)))
}

/// A gate as soon as it is decided, or as it is when that takes too long.
async fn decided(app: &App, who: &Principal, gate: RunId, wait_ms: u64) -> ApiResult<LookedUpGate> {
    let wait = Millis(i64::try_from(wait_ms.min(LONGEST_WAIT)).unwrap_or_default());
    app.engine.gates().decided(who, gate, wait).await.map_err(about(gate))
}

fn shown(app: &App, headers: &HeaderMap, view: &GateView) -> wire::Gate {
    map::gate(view, &site(&app.engine, headers))
}
