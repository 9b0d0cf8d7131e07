//! For whoever operates the server: is it up, and does it work?
//!
//! `/healthz` says that the process answers, `/readyz` that the store does too, `/metrics` what there is to measure, in
//! the text format of Prometheus.

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use standfast_engine::auth::Principal;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::{App, Problem, ProblemDetails};

/// The routes.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

/// Whether the process answers.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = String)))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// What there is to measure, in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses((status = 200, body = String)))]
async fn metrics(State(app): State<App>, Extension(who): Extension<Principal>) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        app.engine.reads().metrics(&who).await,
    )
}

/// Whether the server can work: its store answers and it is not stopping.
#[utoipa::path(
    get, path = "/readyz", tag = "operations",
    responses(
        (status = 200, body = String),
        (status = 503, body = Problem, content_type = "application/problem+json")
    )
)]
async fn readyz(State(app): State<App>) -> Result<&'static str, Problem> {
    match app.engine.reads().is_ready().await {
        Ok(()) if !*app.stopping.borrow() => Ok("ready\n"),
        Ok(()) => Err(not_ready("the server is stopping".into())),
        Err(error) => Err(not_ready(error.to_string())),
    }
}

fn not_ready(detail: String) -> Problem {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "Not ready", detail);
    problem.with(ProblemDetails { retry_after: Some(1), ..ProblemDetails::default() })
}
