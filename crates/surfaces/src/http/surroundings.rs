//! What is around every request, in one layer: its id and its span, what is measured of it, the door, a no in the words of its surface, and the header
//! that every answer has.
//!
//! Knows no surface: each says by itself which requests are its own ([`Reteller`]), and only for a request that is refused is
//! anything made of it. Who may come in is `guard.rs`, the id `request_id.rs`; the order of surfaces is the program's.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use standfast_engine::request_context::{self, Channel, RequestContext};
use tracing::Instrument as _;

use super::app::App;
use super::guard::Door;
use super::problem::Problem;
use super::request_id;

/// Tells a problem in the words of a surface, as the answer to a request that was its own.
pub type Retelling = Box<dyn FnOnce(&Problem, &Response) -> Response + Send>;

/// How a surface tells problems, if the request is its own.
pub type Reteller = fn(&Request) -> Option<Retelling>;

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

async fn handle(State(around): State<Surroundings>, request: Request, next: Next) -> Response {
    let (settings, channel) = (around.app.engine.settings(), (around.channel)(&request));
    let telemetry = &settings.fixed.telemetry;
    let (begun, under_way) = (telemetry.begin(), telemetry.request());
    let context = RequestContext { channel };
    let response = request_context::within(context, answer(&around, request, next)).await;
    drop(under_way);
    telemetry.answered(channel, begun, response.status().as_u16());
    response
}

async fn answer(around: &Surroundings, mut request: Request, next: Next) -> Response {
    let id = request_id::of(request.headers());
    // What programs ask of the API is answered with problems as they are: nothing has to be kept of it.
    let is_api = request.uri().path().starts_with("/api/");
    let retelling = if is_api { None } else { around.retellers.iter().find_map(|tells| tells(&request)) };
    let answering = async {
        match around.door.let_in(&mut request).await {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
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
    response
}
