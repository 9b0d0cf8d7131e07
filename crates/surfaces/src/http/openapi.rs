//! The OpenAPI document: what every surface registered with its routes, under one title.
//!
//! A route and its description are registered together, so that neither is without the other.

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::app::App;
use super::problem::Problem;

/// The frame of the document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Standfast",
        description = "AI agents with human approval: runs, holds, decisions, receipts. Errors are problem details (RFC 9457)."
    ),
    components(schemas(Problem))
)]
struct Frame;

/// The routes, and the document at `/openapi.json`, written once: it is three megabytes as a tree.
pub fn described(routes: OpenApiRouter<App>) -> Router<App> {
    let (router, document) = OpenApiRouter::with_openapi(Frame::openapi()).merge(routes).split_for_parts();
    let text = serde_json::to_vec(&document).map(Bytes::from).map_err(|error| error.to_string());
    router.route(
        "/openapi.json",
        get(async move || text.map(|text| ([(CONTENT_TYPE, "application/json")], text))),
    )
}
