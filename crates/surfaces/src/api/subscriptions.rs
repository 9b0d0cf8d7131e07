//! The handlers of subscriptions: make, list, show, change the secret, test, delete; and failed deliveries.
//!
//! `wire.rs` has their bodies, `webhook.rs` what a receiver is sent.

mod webhook;
mod wire;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use standfast_core::name::AgentName;
use standfast_engine::{
    DeadLetter, NewSubscription, SubscriptionError, SubscriptionScope, SubscriptionView, hears,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::routes::{ApiResult, CallerOf, DefaultAnswers, PAGE, PAGE_MAX, bad_name};
use crate::http::{App, Args, Problem, Repeatable, Segment, refusal, rfc3339};

pub use webhook::Webhook;

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(subscriptions, subscribe))
        .routes(routes!(subscription, unsubscribe))
        .routes(routes!(rotate))
        .routes(routes!(test))
        .routes(routes!(enable))
        .routes(routes!(disable))
        .routes(routes!(dead_letters))
        .routes(routes!(resend))
}

/// Lists your subscriptions; administrators see everybody's.
#[utoipa::path(
    get, path = "/subscriptions", tag = "subscriptions", params(wire::SubscriptionsArgs),
    responses((status = 200, body = wire::Subscriptions), DefaultAnswers)
)]
async fn subscriptions(
    State(app): State<App>,
    Extension(who): CallerOf,
    Args(args): Args<wire::SubscriptionsArgs>,
) -> ApiResult<Json<wire::Subscriptions>> {
    let limit = args.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let (found, next) = app.engine.subscriptions().list(&who, args.cursor, limit).await.map_err(problem)?;
    let subscriptions = found.iter().map(body).collect();
    Ok(Json(wire::Subscriptions { subscriptions, next_cursor: next }))
}

/// Subscribes a receiver to a run, an agent, or with neither to everything. The secret is shown this once.
#[utoipa::path(
    post, path = "/subscriptions", tag = "subscriptions", request_body = wire::NewSubscriptionBody,
    params(("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")),
    responses((status = 201, body = wire::WithSecret), DefaultAnswers)
)]
async fn subscribe(
    State(app): State<App>,
    Extension(who): CallerOf,
    Repeatable { body: asked, once }: Repeatable<wire::NewSubscriptionBody>,
) -> ApiResult<Response> {
    let no_run = |_| Problem::invalid("run is not the id of a run");
    let run = asked.run.as_deref().map(str::parse).transpose().map_err(no_run)?;
    let agent = asked.agent.map(AgentName::new).transpose().map_err(bad_name)?;
    let hears = hears(run, agent).map_err(problem)?;
    let new = NewSubscription { kind: Webhook::NAME, hears, url: asked.url, events: asked.events, once };
    let (view, secret) = app.engine.subscriptions().subscribe(&who, new).await.map_err(problem)?;
    let location = [(header::LOCATION, format!("/api/v1/subscriptions/{}", view.id))];
    let shown = wire::WithSecret { subscription: body(&view), secret: secret.reveal() };
    Ok((StatusCode::CREATED, location, Json(shown)).into_response())
}

/// A subscription.
#[utoipa::path(
    get, path = "/subscriptions/{subscription}", tag = "subscriptions",
    params(("subscription" = String, Path, description = "The subscription's id")),
    responses((status = 200, body = wire::SubscriptionBody), DefaultAnswers)
)]
async fn subscription(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> ApiResult<Json<wire::SubscriptionBody>> {
    let view = app.engine.subscriptions().subscription(&who, &id).await.map_err(problem)?;
    Ok(Json(body(&view)))
}

/// Deletes a subscription, with its failed deliveries.
#[utoipa::path(
    delete, path = "/subscriptions/{subscription}", tag = "subscriptions",
    params(("subscription" = String, Path, description = "The subscription's id")),
    responses((status = 204, description = "Deleted"), DefaultAnswers)
)]
async fn unsubscribe(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> ApiResult<StatusCode> {
    app.engine.subscriptions().unsubscribe(&who, &id).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives it another secret, shown this once. For a day every delivery has the signatures of both.
#[utoipa::path(
    post, path = "/subscriptions/{subscription}/rotate", tag = "subscriptions",
    params(("subscription" = String, Path, description = "The subscription's id")),
    responses((status = 200, body = wire::WithSecret), DefaultAnswers)
)]
async fn rotate(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> ApiResult<Json<wire::WithSecret>> {
    let (view, secret) = app.engine.subscriptions().rotate(&who, &id).await.map_err(problem)?;
    Ok(Json(wire::WithSecret { subscription: body(&view), secret: secret.reveal() }))
}

/// Sends a signed `ping` now, and says what came back.
#[utoipa::path(
    post, path = "/subscriptions/{subscription}/test", tag = "subscriptions",
    params(("subscription" = String, Path, description = "The subscription's id")),
    responses((status = 200, body = wire::PingResult), DefaultAnswers)
)]
async fn test(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> ApiResult<Json<wire::PingResult>> {
    let answered = app.engine.subscriptions().ping(&who, &id).await.map_err(problem)?;
    Ok(Json(match answered {
        Ok(status) => wire::PingResult { delivered: true, status: Some(status), error: None },
        Err(why) => wire::PingResult { delivered: false, status: None, error: Some(why) },
    }))
}

/// Tells a disabled subscription again, from now on.
#[utoipa::path(
    post, path = "/subscriptions/{subscription}/enable", tag = "subscriptions",
    params(("subscription" = String, Path, description = "The subscription's id")),
    responses((status = 200, body = wire::SubscriptionBody), DefaultAnswers)
)]
async fn enable(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> ApiResult<Json<wire::SubscriptionBody>> {
    Ok(Json(body(&app.engine.subscriptions().enable(&who, &id).await.map_err(problem)?)))
}

/// Tells it nothing until it is enabled.
#[utoipa::path(
    post, path = "/subscriptions/{subscription}/disable", tag = "subscriptions",
    params(("subscription" = String, Path, description = "The subscription's id")),
    responses((status = 200, body = wire::SubscriptionBody), DefaultAnswers)
)]
async fn disable(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> ApiResult<Json<wire::SubscriptionBody>> {
    Ok(Json(body(&app.engine.subscriptions().disable(&who, &id).await.map_err(problem)?)))
}

/// Failed deliveries, oldest first.
#[utoipa::path(
    get, path = "/subscriptions/{subscription}/dead-letters", tag = "subscriptions",
    params(("subscription" = String, Path, description = "The subscription's id"), wire::DeadLettersArgs),
    responses((status = 200, body = wire::DeadLetters), DefaultAnswers)
)]
async fn dead_letters(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    Args(args): Args<wire::DeadLettersArgs>,
) -> ApiResult<Json<wire::DeadLetters>> {
    let limit = args.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let page =
        app.engine.subscriptions().dead_letters(&who, &id, args.cursor, limit).await.map_err(problem)?;
    let dead_letters = page.items.iter().map(letter).collect();
    Ok(Json(wire::DeadLetters { dead_letters, next_cursor: page.next.map(|next| next.to_string()) }))
}

/// Resends a failed delivery, from that event on.
#[utoipa::path(
    post, path = "/subscriptions/{subscription}/dead-letters/{letter}/resend", tag = "subscriptions",
    params(
        ("subscription" = String, Path, description = "The subscription's id"),
        ("letter" = String, Path, description = "The dead letter's id")
    ),
    responses((status = 202, description = "Queued for delivery"), DefaultAnswers)
)]
async fn resend(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path((id, letter)): Path<(String, String)>,
) -> ApiResult<StatusCode> {
    let letter = letter.parse().map_err(|_| Problem::not_found())?;
    app.engine.subscriptions().resend(&who, &id, letter).await.map_err(problem)?;
    Ok(StatusCode::ACCEPTED)
}

fn body(view: &SubscriptionView) -> wire::SubscriptionBody {
    let (run, agent) = match &view.hears {
        SubscriptionScope::Run(run) => (Some(run.to_string()), None),
        SubscriptionScope::Agent(agent) => (None, Some(agent.to_string())),
        SubscriptionScope::Tenant => (None, None),
    };
    let receiver = &view.receiver;
    let disabled = receiver.disabled.as_ref();
    wire::SubscriptionBody {
        id: view.id.clone(),
        kind: receiver.kind.clone(),
        run,
        agent,
        url: receiver.url.clone(),
        events: receiver.events.clone(),
        owner: receiver.owner.user.to_string(),
        state: if view.is_active {
            wire::SubscriptionState::Active
        } else {
            wire::SubscriptionState::Disabled
        },
        disabled_at: disabled.map(|disabled| rfc3339(disabled.at)),
        disabled_because: disabled.map(|disabled| disabled.why.clone()),
        created_at: rfc3339(receiver.created_at),
        old_secret_until: receiver.previous_until.map(rfc3339),
    }
}

fn letter(found: &DeadLetter) -> wire::DeadLetterBody {
    wire::DeadLetterBody {
        id: found.no.to_string(),
        run: found.run.to_string(),
        from_seq: found.from.0,
        tries: found.attempts,
        given_up_at: rfc3339(found.at),
        reason: found.why.clone(),
    }
}

/// What a no becomes.
pub(super) fn problem(error: SubscriptionError) -> Problem {
    let new = |status, kind: &str, title| Problem::new(status, kind, title, error.to_string());
    match &error {
        SubscriptionError::Engine(error) => refusal::problem(None, error),
        SubscriptionError::Invalid(why) => Problem::invalid(why.clone()),
        SubscriptionError::NotAllowed(_) => {
            new(StatusCode::FORBIDDEN, "not-allowed", "Not allowed to subscribe")
        }
        SubscriptionError::NoKey => {
            new(StatusCode::SERVICE_UNAVAILABLE, "no-webhook-key", "This server cannot sign")
        }
    }
}
