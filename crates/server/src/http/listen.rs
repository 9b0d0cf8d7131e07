//! All surfaces on one listener, and how it stops.
//!
//! The one place that knows every surface. Stopping: no new connections, streams end, requests in progress finish.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

use super::app::App;
use super::guard;
use super::problem::Problem;
use crate::auth::Principal;
use crate::surface::{api, operations};

/// How long the head of a request may take, from the first moment that one could come.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// How long to wait after a connection could not be taken.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Every surface behind the door. Every caller is `local`.
pub fn router(app: App, local: Principal) -> Router {
    let max_body = app.engine.settings().max_body;
    Router::new()
        .nest("/api/v1", api::routes())
        .merge(operations::routes())
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(max_body))
        .layer(axum::middleware::from_fn_with_state(local, guard::check))
        .with_state(app)
}

/// Serves until `stopping` becomes true and what was in progress is done. A client that takes too long for the head of
/// a request is cut off; bodies have their own limit, see `extract.rs`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    mut stopping: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let (mut http, open) = (Builder::new(TokioExecutor::new()).http1_only(), GracefulShutdown::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let mut stopped = pin!(async move {
        // An error means that whoever could stop us is gone: stop as well.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    });
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Mostly too many open files: those who are served now make room.
                    tracing::warn!(%error, "a connection could not be taken");
                    sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            },
            () = &mut stopped => break,
        };
        // Small answers leave at once.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let connection = open.watch(connection.into_owned());
        tokio::spawn(async move {
            // Clients come and go; that one broke off is nobody's error here.
            let _ = connection.await;
        });
    }
    drop(listener);
    open.shutdown().await;
    Ok(())
}

async fn no_such_path(request: Request) -> Problem {
    let detail = format!("there is nothing at {}", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, "no-such-path", "No such path", detail)
}

async fn wrong_method(request: Request) -> Problem {
    let detail = format!("{} does not take {}", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", "Method not allowed", detail)
}
