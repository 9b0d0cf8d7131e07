//! Issuing approval links: one hold, one person.
//!
//! Bodies and the handler. Who may have one issued, and what is recorded of it, is the engine's business; the page that a link
//! opens is `web/links.rs`.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use standfast_core::name::UserId;
use standfast_engine::LinkError;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::routes::{ApiResult, CallerOf, DefaultAnswers, about, bad_name, hold_id};
use crate::http::{App, JsonBody, Problem, Segment, rfc3339, site};

/// Whom a link is for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"for": "alice"}))]
pub(super) struct NewLink {
    /// One of the `people` of the configuration.
    #[serde(rename = "for")]
    audience: String,
}

/// An approval link. Shown this once: it is not stored.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LinkBody {
    /// Opens a page on which this person, and nobody else, decides this hold. A secret.
    url: String,
    /// The person.
    #[serde(rename = "for")]
    audience: String,
    expires_at: String,
}

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(issue))
}

/// Issues an approval link to a hold for one person. For admins; an entry of the audit says for whom, without the link.
#[utoipa::path(
    post, path = "/holds/{hold}/link", tag = "holds",
    params(("hold" = String, Path, description = "The hold's id")),
    request_body = NewLink,
    responses((status = 201, body = LinkBody), DefaultAnswers)
)]
async fn issue(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    headers: HeaderMap,
    JsonBody(body): JsonBody<NewLink>,
) -> ApiResult<Response> {
    let hold = hold_id(&hold)?;
    let audience = UserId::new(&body.audience).map_err(bad_name)?;
    let issued =
        app.engine.submit().links().issue(&who, hold, audience).await.map_err(|error| match error {
            LinkError::Engine(error) => about(hold.run)(error),
            LinkError::NoSuchPerson(_) => Problem::invalid(error.to_string()),
            LinkError::NotForAdmins(_) => {
                Problem::new(StatusCode::FORBIDDEN, "not-allowed", "No link was issued", error.to_string())
            }
            LinkError::Off | LinkError::OlderNode | LinkError::Decided | LinkError::NotTheirs { .. } => {
                Problem::new(StatusCode::CONFLICT, "no-link", "No link was issued", error.to_string())
            }
        })?;
    let url = format!("{}/link/{}", site(&app.engine, &headers), issued.token);
    let body = LinkBody { url, audience: body.audience, expires_at: rfc3339(issued.expires_at) };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(body)).into_response())
}
