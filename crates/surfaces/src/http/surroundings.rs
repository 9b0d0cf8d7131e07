//! What is around every request, in one layer: its id and its spans, of the log and of its trace, what is measured of it, the
//! door, a no in the words of its surface, and the header that every answer has.
//!
//! Knows no surface: each says by itself which requests are its own ([`Reteller`]), and only for a request that is refused is
//! anything made of it. Who may come in is `guard.rs`, the id `request_id.rs`; the order of surfaces is the program's.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use standfast_core::trace::TraceContext;
use standfast_engine::request_context::{self, Channel, RequestContext};
use standfast_engine::traces::{Span, SpanKind, Traces};
use tracing::Instrument as _;

use super::app::App;
use super::guard::{Door, SignInOffer};
use super::problem::Problem;
use super::rates::RateNote;
use super::request_id;
use super::route;

/// Tells a problem in the words of a surface, as the answer to a request that was its own.
pub type ProblemWriter = Box<dyn FnOnce(&Problem, &Response) -> Response + Send>;

/// How a surface tells problems, if the request is its own.
pub type Reteller = fn(&Request) -> Option<ProblemWriter>;

/// By which way a request comes.
pub type ChannelOf = fn(&Request) -> Channel;

/// What is around every request.
#[derive(Clone)]
struct Surroundings {
    app: App,
    door: Door,
    /// The first whose request it is tells.
    retellers: Arc<[Reteller]>,
    channel: ChannelOf,
}

/// Lets nobody to these routes whom the door does not let in, and tells every no in the words of its surface.
pub fn surrounded(routes: Router<App>, app: &App, retellers: &[Reteller], channel: ChannelOf) -> Router<App> {
    let (app, door) = (app.clone(), Door::new(app));
    let surroundings = Surroundings { app, door, retellers: retellers.into(), channel };
    routes.layer(axum::middleware::from_fn_with_state(surroundings, handle))
}

async fn handle(State(around): State<Surroundings>, mut request: Request, next: Next) -> Response {
    let (fixed, channel) = (around.app.engine.fixed(), (around.channel)(&request));
    let telemetry = &fixed.telemetry;
    let (begun, under_way) = (telemetry.begin(), telemetry.request());
    let traced = fixed.traces.as_ref().filter(|_| channel != Channel::Operations);
    let traced = traced.map(|traces| (traces, begin_span(traces, channel, &request)));
    let span = traced.as_ref().map(|(_, span)| span.context);
    if let Some(span) = span {
        // For what a library answers in tasks of its own.
        request.extensions_mut().insert(span);
    }
    let context = RequestContext { channel, span };
    let response = request_context::within(context, answer(&around, request, next)).await;
    drop(under_way);
    telemetry.answered(channel, begun, response.status().as_u16());
    if let Some((traces, span)) = traced {
        end_span(traces, span, &response);
    }
    response
}

/// The span of a request, in the trace that its sender names. Its route and never its path: that may be a secret.
fn begin_span(traces: &Traces, channel: Channel, request: &Request) -> Span {
    let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
    let parent = parent.and_then(|text| text.trim().parse::<TraceContext>().ok());
    let route = route::of(request.uri().path());
    // Methods that nobody knows are a client's own words.
    let method = match request.method().as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => known,
        _ => "_OTHER",
    };
    let mut span = traces.begin(SpanKind::Server, format!("{method} {route}"), parent);
    span.set("http.request.method", method.to_owned());
    span.set("http.route", route);
    span.set("standfast.channel", channel.as_str());
    span
}

fn end_span(traces: &Traces, mut span: Span, response: &Response) {
    let status = response.status();
    span.set("http.response.status_code", status.as_u16());
    if let Some(id) = response.headers().get(request_id::HEADER).and_then(|id| id.to_str().ok()) {
        span.set("standfast.request.id", id.to_owned());
    }
    if status.is_server_error() {
        span.fail(status.as_u16().to_string());
    }
    traces.end(span);
}

async fn answer(around: &Surroundings, mut request: Request, next: Next) -> Response {
    let id = request_id::of(request.headers());
    // What programs ask of the API is answered with problems as they are: nothing has to be kept of it.
    let is_api = request.uri().path().starts_with("/api/");
    let retelling = if is_api { None } else { around.retellers.iter().find_map(|tells| tells(&request)) };
    let mut rates = RateNote::default();
    let answering = async {
        match around.door.let_in(&mut request).await {
            Ok(()) => {
                rates = request.extensions_mut().remove::<RateNote>().unwrap_or_default();
                next.run(request).await
            }
            Err(problem) => {
                rates = RateNote::of_refusal(&problem);
                let mut refused = problem.into_response();
                if let Some(label) = around.app.engine.identity().sign_in_label() {
                    refused.extensions_mut().insert(SignInOffer(label));
                }
                refused
            }
        }
    };
    let mut response = answering.instrument(request_id::span(&id)).await;
    if let Some(retelling) = retelling
        && let Some(problem) = response.extensions().get::<Problem>()
    {
        response = retelling(problem, &response);
    }
    // Every answer is what its content type says: what a model or a stranger wrote is never taken for a page (T20).
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response.headers_mut().insert(request_id::HEADER, id);
    rates.write(response.headers_mut());
    response
}
