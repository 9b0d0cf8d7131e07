//! The whole application: every surface in one router, and the kinds of receivers that they bring along.
//!
//! The one place that knows every surface. What they share is `http`; listening is `http/listen.rs`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use standfast_engine::ReceiverKind;
use standfast_surfaces::http::{self, App, Problem};
use standfast_surfaces::{a2a, api, async_tool, html, inbox, operations, teal, web};
use utoipa_axum::router::OpenApiRouter;

/// The kinds of receivers that surfaces know how to tell something.
#[must_use]
pub fn receivers() -> Vec<Arc<dyn ReceiverKind>> {
    vec![
        Arc::new(api::Webhook),
        Arc::new(a2a::Push),
        Arc::new(async_tool::JobReceiver),
        Arc::new(inbox::TaskWebhook),
    ]
}

/// Every surface behind the door.
pub fn router(app: App) -> Router {
    let max_body = app.engine.settings().fixed.max_body;
    let described = OpenApiRouter::new()
        .nest("/api/v1", api::routes())
        .nest("/async-tool", async_tool::routes())
        .nest("/api/inboxes", inbox::routes())
        .merge(teal::routes())
        .merge(operations::routes());
    let surfaces = http::described(described)
        .merge(web::routes())
        .merge(a2a::routes(&app))
        .nest("/async-tools", async_tool::alias())
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(max_body));
    http::behind_the_door(surfaces, &app)
        .layer(axum::middleware::from_fn(html::problems_as_pages))
        .layer(axum::middleware::from_fn(a2a::problems_as_errors))
        .layer(axum::middleware::from_fn(async_tool::problems_as_errors))
        .layer(axum::middleware::from_fn(teal::problems_as_errors))
        .layer(axum::middleware::map_response(unsniffed))
        .layer(axum::middleware::from_fn(http::request_id::attach))
        .with_state(app)
}

/// Every answer is what its content type says: what a model or a stranger wrote is never taken for a page (T20).
async fn unsniffed(mut response: Response) -> Response {
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn no_such_path(request: Request) -> Problem {
    let detail = format!("there is no {}; /openapi.json lists the paths of the API", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, "no-such-path", "No such path", detail)
}

async fn wrong_method(request: Request) -> Problem {
    let detail = format!("{} does not support {}", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", "Method not allowed", detail)
}
