//! Options of callers: who else is notified, and with which secret, when a call is settled (S2-10, S2-20).
//!
//! For one call, or for all calls of a run from then on. The job elsewhere hears nothing of it: its own address and secret
//! are its tool's (`notice.rs` sends both).

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use standfast_core::id::RunId;
use standfast_engine::clock::random_bytes;
use standfast_engine::{Callback, JOB_RECEIVER};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::JobProblem;
use super::notice::OF_EVERY_CALL;
use super::routes::{CallerOf, JobResult, hold_id};
use super::wire;
use crate::http::{App, Repeatable, Segment};

/// Bytes of a secret, at most.
const SECRET_MAX: usize = 512;

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(call_webhook)).routes(routes!(run_webhook))
}

/// Sets a webhook that is called when a call ends, signed with the caller's own secret. The same address again replaces the secret.
#[utoipa::path(
    post, path = "/pending/{id}/webhook", tag = "async tools",
    params(("id" = String, Path, description = "The call's pending id")), request_body = wire::WebhookOptions,
    responses((status = 200, body = wire::WebhookSet), (status = "default", body = wire::ErrorBody))
)]
async fn call_webhook(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    Repeatable { body, .. }: Repeatable<wire::WebhookOptions>,
) -> JobResult<Json<wire::WebhookSet>> {
    let hold = hold_id(&id)?;
    let jobs = app.engine.jobs();
    let settled = |view: &standfast_engine::JobView| !view.job.is_open();
    if settled(&jobs.job(&who, hold).await?) {
        return Err(JobProblem::new(StatusCode::CONFLICT, "Not waiting"));
    }
    let (secret, shown) = secret(body.webhook_secret)?;
    let callback = Callback {
        kind: JOB_RECEIVER,
        name: format!("{hold} {}", body.webhook_url),
        url: body.webhook_url,
        details: hold.key.to_string(),
        secrets: Some(secret),
    };
    app.engine.callbacks().call_back(&who, hold.run, callback).await?;
    // What ended in between was told to nobody here.
    if settled(&jobs.job(&who, hold).await?) {
        return Err(JobProblem::new(StatusCode::CONFLICT, "Not waiting"));
    }
    Ok(Json(wire::WebhookSet { success: true, webhook_secret: shown }))
}

/// Sets a webhook that is called when a call of a run ends, for every call from now on.
#[utoipa::path(
    post, path = "/run/{id}/webhook", tag = "async tools",
    params(("id" = String, Path, description = "The run")), request_body = wire::WebhookOptions,
    responses((status = 200, body = wire::WebhookSet), (status = "default", body = wire::ErrorBody))
)]
async fn run_webhook(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    Repeatable { body, .. }: Repeatable<wire::WebhookOptions>,
) -> JobResult<Json<wire::WebhookSet>> {
    let nothing = |_| JobProblem::new(StatusCode::NOT_FOUND, "run not found, or you don't have access");
    let run: RunId = id.parse().map_err(nothing)?;
    let (secret, shown) = secret(body.webhook_secret)?;
    let callback = Callback {
        kind: JOB_RECEIVER,
        name: format!("{run} {}", body.webhook_url),
        url: body.webhook_url,
        details: OF_EVERY_CALL.to_owned(),
        secrets: Some(secret),
    };
    app.engine.callbacks().call_back(&who, run, callback).await?;
    Ok(Json(wire::WebhookSet { success: true, webhook_secret: shown }))
}

/// The secret to sign with, and the one to show: only what the server made.
fn secret(given: Option<String>) -> JobResult<(String, Option<String>)> {
    match given {
        Some(given) if given.is_empty() || given.len() > SECRET_MAX => {
            Err(JobProblem::invalid(format!("webhookSecret must have 1 to {SECRET_MAX} bytes")))
        }
        Some(given) => Ok((given, None)),
        None => {
            let made = BASE64_STANDARD.encode(random_bytes::<32>());
            Ok((made.clone(), Some(made)))
        }
    }
}
