//! For whoever operates the server: is it up, and does it work?
//!
//! `/healthz` says that the process answers, `/readyz` that the store does too.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use crate::http::{App, More, Problem};

/// The routes.
pub fn routes() -> Router<App> {
    Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(readyz))
}

async fn readyz(State(app): State<App>) -> Result<&'static str, Problem> {
    match app.engine.is_ready().await {
        Ok(()) if !*app.stopping.borrow() => Ok("ready\n"),
        Ok(()) => Err(not_ready("the server is stopping".into())),
        Err(error) => Err(not_ready(error.to_string())),
    }
}

fn not_ready(detail: String) -> Problem {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "Not ready", detail);
    problem.with(More { retry_after: Some(1), ..More::default() })
}
