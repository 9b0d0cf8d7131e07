//! The whole application: every surface in one router, and the kinds of receivers that they bring along.
//!
//! The one place that knows every surface. What they share is `http`; listening is `http/listen.rs`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use standfast_engine::ReceiverKind;
use standfast_engine::request_context::Channel;
use standfast_surfaces::http::{self, App, Problem};
use standfast_surfaces::{a2a, api, async_tool, chat, hooks, html, inbox, mail, mcp, operations, teal, web};
use utoipa_axum::router::OpenApiRouter;

/// The kinds of receivers that surfaces know how to tell something.
#[must_use]
pub fn receivers() -> Vec<Arc<dyn ReceiverKind>> {
    vec![
        Arc::new(api::Webhook),
        Arc::new(api::GateCallback),
        Arc::new(a2a::Push),
        Arc::new(async_tool::JobReceiver),
        Arc::new(inbox::TaskWebhook),
        Arc::new(mail::Mail),
        Arc::new(chat::Slack),
        Arc::new(chat::Discord),
        Arc::new(chat::Teams),
        Arc::new(chat::Ntfy),
        Arc::new(chat::Webhook),
    ]
}

/// Who tells problems in words of their own, those of the API apart; a browser is shown a page wherever it looks.
const RETELLERS: &[http::Reteller] = &[html::retells, a2a::retells, async_tool::retells, teal::retells];

/// Every surface behind the door.
pub fn router(app: App) -> Router {
    let max_body = app.engine.fixed().max_body;
    let described = OpenApiRouter::new()
        .nest("/api/v1", api::routes())
        .nest("/async-tool", async_tool::routes())
        .nest("/api/inboxes", inbox::routes())
        .merge(teal::routes())
        .merge(operations::routes());
    let surfaces = http::described(described)
        .merge(web::routes(&app))
        .merge(chat::routes(&app))
        .merge(hooks::routes())
        .merge(mcp::routes())
        .merge(a2a::routes(&app))
        .nest("/async-tools", async_tool::alias())
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(max_body));
    http::surrounded(surfaces, &app, RETELLERS, channel).with_state(app)
}

/// By which way a request comes, for what is measured of it.
fn channel(request: &Request) -> Channel {
    let path = request.uri().path();
    let is_below = |prefix: &str| path.starts_with(prefix);
    match path {
        "/healthz" | "/readyz" | "/metrics" | "/openapi.json" => Channel::Operations,
        _ if is_below("/api/inboxes") => Channel::Inbox,
        _ if is_below("/api/") => Channel::Api,
        _ if is_below("/async-tool/") || is_below("/async-tools/") => Channel::AsyncTool,
        _ if is_below("/link/") => Channel::Link,
        "/mcp" => Channel::Mcp,
        _ if is_below("/hooks/") => Channel::Hooks,
        _ if is_below(teal::PREFIX) => Channel::Teal,
        _ if a2a::is_addressed(request) => Channel::A2a,
        _ => Channel::Web,
    }
}

async fn no_such_path(request: Request) -> Problem {
    let detail = format!("there is no {}; /openapi.json lists the paths of the API", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, "no-such-path", "No such path", detail)
}

async fn wrong_method(request: Request) -> Problem {
    let detail = format!("{} does not support {}", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", "Method not allowed", detail)
}
