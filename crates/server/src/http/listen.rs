//! All surfaces on one listener, and how it stops.
//!
//! The one place that knows every surface. Stopping: no new connections, streams end, requests in progress finish.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;

use super::app::App;
use super::problem::Problem;
use super::{guard, openapi};
use crate::auth::Principal;
use crate::surface::{api, operations};

/// Every surface behind the door. Every caller is `local`.
pub fn router(app: App, local: Principal) -> Router {
    let max_body = app.engine.settings().max_body;
    let described = OpenApiRouter::new().nest("/api/v1", api::routes()).merge(operations::routes());
    openapi::described(described)
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(max_body))
        .layer(axum::middleware::from_fn_with_state(local, guard::check))
        .with_state(app)
}

/// Serves until `stopping` becomes true and what was in progress is done.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    mut stopping: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let stopped = async move {
        // An error means that whoever could stop us is gone: stop as well.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await
}

async fn no_such_path(request: Request) -> Problem {
    let detail = format!("there is nothing at {}", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, "no-such-path", "No such path", detail)
}

async fn wrong_method(request: Request) -> Problem {
    let detail = format!("{} does not take {}", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", "Method not allowed", detail)
}
