//! MCP servers of others under `/mcp/{name}`: everything passes through as it is, except calls of tools, which are judged first.
//!
//! A request is read once (`../message.rs`) and then goes one of two ways (`route.rs`): over HTTP to a server at an address, whose
//! sessions are the clients' sessions, sealed; or to a program (`program.rs`). Where one of them has no sessions and the other
//! one does, each hears the words of its own generation (`translate.rs`, `given_sessions.rs`). A call has a task of its own (`call.rs`). The client's
//! credentials are for this server and never go further.

mod call;
mod frame;
mod given_sessions;
mod headers;
mod keeper;
mod login;
mod memory;
mod program;
mod route;
mod session;
mod task;
mod translate;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use serde_json::{Value, json};
use standfast_engine::auth::{Principal, Scope};
use standfast_engine::clock::random_bytes;
use standfast_engine::upstream::{Gateway, Upstream, UpstreamAddress, UpstreamError, UpstreamProgram};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{oneshot, watch};

use self::call::{CallRun, Output};
use self::frame::Frame;
use self::keeper::Keeper;
use self::memory::{CancelPhase, Memory, request_key};
use self::program::Program;
use self::route::{AddressRoute, Frames, Reply, SESSION, UpstreamRoute, WholeReply, is_stream};
use self::session::SessionToken;
use self::translate::TranslatedSession;
use self::witness::Witness;
use super::ladder::OUR_ID;
use super::message::{ClientMessage, OtherRequest, ServerMessage, Unpassable};
use super::profile::{ClientProfile, is_sessionless};
use super::tasks;
use crate::http::{App, Pass, Problem, Segment, Stay, body_bytes, site};

/// How long a client waits for the head of an answer that takes long: then it is a stream.
const HEAD_WITHIN: Duration = Duration::from_secs(2);

/// How often a stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a program may take until it has said hello.
const HELLO: Duration = Duration::from_secs(60);

/// The code of an error that says that headers and body differ.
const HEADER_MISMATCH: i32 = -32020;

/// The routes.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/mcp/{gateway}", any(serve)).layer(Extension(Arc::<Memory>::default()))
}

/// A request of a client.
struct ClientRequest {
    app: App,
    memory: Arc<Memory>,
    gateway: Arc<Gateway>,
    who: Principal,
    pass: Pass,
    headers: HeaderMap,
}

async fn serve(
    State(app): State<App>,
    Extension(memory): Extension<Arc<Memory>>,
    Extension(who): Extension<Principal>,
    Extension(pass): Extension<Pass>,
    Segment(name): Segment,
    request: Request,
) -> Response {
    if let Some(lacked) = who.lacks(Scope::GatesOpen, &name) {
        return Problem::missing_scope(lacked).into_response();
    }
    let Some(gateway) = app.engine.settings().gateways.get(&name).cloned() else {
        return Problem::not_found().into_response();
    };
    let who = who.at_gateway();
    let asked = ClientRequest { app, memory, gateway, who, pass, headers: request.headers().clone() };
    let method = request.method().clone();
    match method {
        Method::POST => match body_bytes(request).await {
            Ok(body) => asked.post(body).await,
            Err(problem) => problem.into_response(),
        },
        Method::GET => asked.listen().await,
        Method::DELETE => asked.end().await,
        _ => {
            let allow = [(header::ALLOW, "GET, POST, DELETE")];
            (StatusCode::METHOD_NOT_ALLOWED, allow).into_response()
        }
    }
}

/// Seals a text for whoever carries it in between; none where this server keeps no secrets.
fn seal(app: &App, what: &str, text: &str) -> Option<String> {
    Some(app.engine.settings().vault.as_ref()?.seal(what, text))
}

/// Opens what was sealed so.
fn unseal(app: &App, what: &str, sealed: &str) -> Option<String> {
    app.engine.settings().vault.as_ref()?.open(what, sealed)
}

impl ClientRequest {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn keeper(&self) -> Keeper {
        let site = site(&self.app.engine, &self.headers);
        let (app, who, gateway) = (self.app.clone(), self.who.clone(), self.gateway.clone());
        Keeper { app, who, gateway, memory: self.memory.clone(), site }
    }

    fn stay(&self) -> Stay {
        Stay::for_lists(&self.app, self.pass.clone(), self.who.clone())
    }

    async fn post(&self, body: Vec<u8>) -> Response {
        let Ok(text) = String::from_utf8(body) else {
            return refused(StatusCode::BAD_REQUEST, -32700, "the body is not UTF-8");
        };
        let message = match ClientMessage::read(&text) {
            Ok(message) => message,
            Err(Unpassable::Ambiguous(why)) => {
                let why = format!("not passed on: this is not one message ({why})");
                return refused(StatusCode::BAD_REQUEST, -32700, &why);
            }
            Err(Unpassable::Batch) => {
                let why = "not passed on: tools are not called in batches; send each call by itself";
                return refused(StatusCode::BAD_REQUEST, -32600, why);
            }
            Err(Unpassable::Unanswerable) => {
                let why = "not passed on: a tool call without an id, so its result could not be returned; send an id";
                return refused(StatusCode::BAD_REQUEST, -32600, why);
            }
        };
        if let Err(why) = self.headers_fit(&message) {
            return refused(StatusCode::BAD_REQUEST, HEADER_MISMATCH, &why);
        }
        if let ClientMessage::Answer(Value::String(id)) = &message
            && id.starts_with(OUR_ID)
        {
            self.memory.answer(id, text);
            return StatusCode::ACCEPTED.into_response();
        }
        if self.gateway.gives_sessions && self.has_no_session(&message) {
            return self.post_given(&text, message).await;
        }
        match &self.gateway.upstream {
            Upstream::Address(address) => self.post_to_address(address, &text, message).await,
            Upstream::Program(program) => self.post_to_program(program.as_ref(), &text, message).await,
        }
    }

    /// Whether a client knows no sessions, by what its request says of it.
    fn has_no_session(&self, message: &ClientMessage) -> bool {
        let profile = match message {
            ClientMessage::Call(call) => call.profile.as_ref(),
            ClientMessage::Request(request) => request.profile.as_ref(),
            ClientMessage::Hello(_) => return false,
            ClientMessage::Cancel(_) | ClientMessage::Answer(_) | ClientMessage::Other => None,
        };
        let version = self.header("mcp-protocol-version").unwrap_or_default();
        let is_newest = profile.map_or_else(|| is_sessionless(version), ClientProfile::is_sessionless);
        is_newest && self.header(SESSION.as_str()).is_none()
    }

    // --- A server at an address ---

    async fn post_to_address(
        &self,
        address: &Arc<dyn UpstreamAddress>,
        text: &str,
        message: ClientMessage,
    ) -> Response {
        let route = AddressRoute::of(address.clone(), &self.who, &self.headers);
        if let ClientMessage::Hello(client) = &message {
            return self.hello_at_address(&route.in_session(None), text, client).await;
        }
        let key = self.header(SESSION.as_str()).unwrap_or_default().to_owned();
        let Some(session) = SessionToken::of(self, &key) else { return no_session() };
        if let Some(hello) = session.hello {
            let route = self.translated(UpstreamRoute::Address(route), hello, key.clone());
            let session = TranslatedSession { route, client: session.client, key };
            return self.post_translated(session, text, message).await;
        }
        let route = route.in_session(session.upstream.as_deref());
        match message {
            ClientMessage::Call(call) => {
                let client = call.profile.clone().unwrap_or(session.client);
                let route = UpstreamRoute::Address(route);
                let (keeper, memory) = (self.keeper(), self.memory.clone());
                self.answered(
                    CallRun { keeper, memory, call: *call, client, route, session: own(key) }.begin(),
                )
                .await
            }
            ClientMessage::Cancel(id)
                if self.memory.cancel(&request_key(&key, &id)) == CancelPhase::Waiting =>
            {
                StatusCode::ACCEPTED.into_response()
            }
            ClientMessage::Request(request) if tasks::is_ours(&request) => {
                let route = UpstreamRoute::Address(route.for_call(&self.tool_of(&request).await));
                whole_json(task::answer(&self.keeper(), &self.memory, &request, route).await)
            }
            ClientMessage::Request(_)
            | ClientMessage::Cancel(_)
            | ClientMessage::Hello(_)
            | ClientMessage::Answer(_)
            | ClientMessage::Other => {
                let profile = session.client;
                self.passed(&route, Method::POST, text.as_bytes().to_vec(), (key, &profile)).await
            }
        }
    }

    /// The tool of a task of ours, for the headers of its call.
    async fn tool_of(&self, request: &OtherRequest) -> String {
        let gate = tasks::gate_of(request).and_then(|gate| gate.parse().ok());
        let view = match gate {
            Some(gate) => self.keeper().look(gate).await.ok(),
            None => None,
        };
        let tool = view.map(|view| view.tool.as_str().to_owned()).unwrap_or_default();
        tool.strip_prefix(&format!("mcp__{}__", self.gateway.name)).unwrap_or_default().to_owned()
    }

    /// The beginning of a session at an address.
    async fn hello_at_address(&self, route: &AddressRoute, text: &str, client: &ClientProfile) -> Response {
        let response = match route.send(Method::POST, text.as_bytes().to_vec()).await {
            Ok(response) => response,
            Err(error) => return self.not_reached(&error, Some(text), client).await,
        };
        let (status, is_stream) = (response.status, is_stream(&response.headers));
        let mut headers = response.headers.clone();
        let upstream = headers.remove(SESSION).and_then(|id| id.to_str().map(str::to_owned).ok());
        if status.is_success() {
            let token = SessionToken { upstream, client: client.clone(), hello: None };
            match token.sealed(self).and_then(|sealed| HeaderValue::try_from(sealed).ok()) {
                Some(sealed) => drop(headers.insert(SESSION, sealed)),
                None => {
                    let why = "this server has no key to seal sessions with";
                    return refused(StatusCode::INTERNAL_SERVER_ERROR, -32603, why);
                }
            }
        }
        if is_stream {
            return with_headers(status, headers, self.streamed(bytes_of(response.body)));
        }
        match route::whole(response).await {
            Ok(reply) => {
                // Whoever has no sessions begins none; then its client is spoken for.
                if is_refused(status, &reply.text)
                    && let Some(welcome) =
                        self.welcomed(UpstreamRoute::Address(route.clone()), text, client).await
                {
                    return welcome;
                }
                with_headers(status, headers, Body::from(reply.text))
            }
            Err(error) => unreachable_upstream(&error),
        }
    }

    /// Anything that is none of our business: as it is, both ways.
    async fn passed(
        &self,
        route: &AddressRoute,
        method: Method,
        body: Vec<u8>,
        (session, client): (String, &ClientProfile),
    ) -> Response {
        let asked = String::from_utf8_lossy(&body).into_owned();
        let response = match route.send(method, body).await {
            Ok(response) => response,
            Err(error) => return self.not_reached(&error, Some(&asked), client).await,
        };
        let mut headers = response.headers.clone();
        // The client knows its session by another name.
        headers.remove(SESSION);
        let (memory, gateway) = (self.memory.clone(), self.gateway.name.clone());
        let mut seen =
            Witness::of(is_stream(&headers), move |text: &str| memory.see(&gateway, &session, text));
        let body = bytes_of(response.body).map(move |chunk| {
            if let Ok(bytes) = &chunk {
                seen.see(bytes);
            }
            chunk
        });
        let body = body.boxed();
        let body = if is_stream(&headers) { self.streamed(body) } else { Body::from_stream(body) };
        with_headers(response.status, headers, body)
    }

    // --- A program ---

    async fn post_to_program(
        &self,
        upstream: &dyn UpstreamProgram,
        text: &str,
        message: ClientMessage,
    ) -> Response {
        if let ClientMessage::Hello(client) = message {
            return self.hello_at_program(upstream, text, client).await;
        }
        let key = self.header(SESSION.as_str()).unwrap_or_default().to_owned();
        let version = self.header("mcp-protocol-version").unwrap_or_default();
        let program = if key.is_empty() && is_sessionless(version) {
            match self.memory.programs.shared(&self.gateway.name, &self.who, upstream) {
                Ok(program) => program,
                Err(error) => return unreachable_upstream(&error),
            }
        } else if key.is_empty() {
            let why = "send initialize first, then the header Mcp-Session-Id that comes back";
            return refused(StatusCode::BAD_REQUEST, -32600, why);
        } else {
            match self.memory.programs.find(&key, &self.gateway.name, &self.who) {
                Some(program) => program,
                None => match self.session_without(&key, upstream) {
                    Some(session) => return self.post_translated(session, text, message).await,
                    None => return no_session(),
                },
            }
        };
        match message {
            ClientMessage::Call(call) => {
                let of_session = || program.client.clone().unwrap_or_default();
                let client = call.profile.clone().unwrap_or_else(of_session);
                let (keeper, memory) = (self.keeper(), self.memory.clone());
                let route = UpstreamRoute::Program(program);
                self.answered(
                    CallRun { keeper, memory, call: *call, client, route, session: own(key) }.begin(),
                )
                .await
            }
            ClientMessage::Request(request) if tasks::is_ours(&request) => {
                let route = UpstreamRoute::Program(program);
                whole_json(task::answer(&self.keeper(), &self.memory, &request, route).await)
            }
            ClientMessage::Request(request) => self.asked_program(&program, text, &request, &key).await,
            ClientMessage::Cancel(id)
                if self.memory.cancel(&request_key(&key, &id)) == CancelPhase::Waiting =>
            {
                StatusCode::ACCEPTED.into_response()
            }
            ClientMessage::Other if text.trim_start().starts_with('[') => {
                refused(StatusCode::BAD_REQUEST, -32600, "send each message by itself")
            }
            ClientMessage::Cancel(_)
            | ClientMessage::Hello(_)
            | ClientMessage::Answer(_)
            | ClientMessage::Other => match program.tell(text).await {
                Ok(()) => StatusCode::ACCEPTED.into_response(),
                Err(error) => unreachable_upstream(&error),
            },
        }
    }

    /// The beginning of a session with a program of its own.
    async fn hello_at_program(
        &self,
        upstream: &dyn UpstreamProgram,
        text: &str,
        client: ClientProfile,
    ) -> Response {
        let begun = self.memory.programs.begin(&self.gateway.name, &self.who, client.clone(), upstream);
        let (session, program) = match begun {
            Ok(begun) => begun,
            Err(error) => return unreachable_upstream(&error),
        };
        let answer = match serde_json::from_str::<RequestId>(text) {
            Ok(RequestId { id }) => {
                let heard = async {
                    let mut replies = program.ask(text, &id, None).await?;
                    let mut last = None;
                    while let Some(frame) = replies.next().await {
                        last = Some(frame.text);
                    }
                    last.ok_or_else(|| {
                        UpstreamError::Lost("the program ended before it said hello".to_owned())
                    })
                };
                match tokio::time::timeout(HELLO, heard).await {
                    Ok(heard) => heard,
                    Err(_) => Err(UpstreamError::Lost("the program said nothing for too long".to_owned())),
                }
            }
            Err(error) => {
                self.memory.programs.end(&session);
                return refused(StatusCode::BAD_REQUEST, -32600, &format!("initialize needs an id: {error}"));
            }
        };
        match answer {
            Ok(answer) => {
                if is_refused(StatusCode::OK, &answer)
                    && let Ok(shared) = self.memory.programs.shared(&self.gateway.name, &self.who, upstream)
                    && let Some(welcome) = self.welcomed(UpstreamRoute::Program(shared), text, &client).await
                {
                    self.memory.programs.end(&session);
                    return welcome;
                }
                let mut response = whole_json(answer);
                if let Ok(session) = HeaderValue::try_from(session) {
                    response.headers_mut().insert(SESSION, session);
                }
                response
            }
            Err(error) => {
                self.memory.programs.end(&session);
                unreachable_upstream(&error)
            }
        }
    }

    async fn asked_program(
        &self,
        program: &Arc<Program>,
        text: &str,
        request: &OtherRequest,
        session: &str,
    ) -> Response {
        let route = UpstreamRoute::Program(program.clone());
        match route.ask(text, &request.id, request.progress.as_deref()).await {
            Ok(Reply::Frames(frames)) => self.frames(frames, session),
            Ok(Reply::Whole(reply)) => whole(reply),
            Err(error) => unreachable_upstream(&error),
        }
    }

    /// Messages one by one, as they come.
    fn frames(&self, frames: Frames, session: &str) -> Response {
        let (memory, gateway) = (self.memory.clone(), self.gateway.name.clone());
        let session = session.to_owned();
        let stream = stream::unfold(frames, |mut frames| async move {
            let frame = frames.next().await.ok()??;
            Some((frame, frames))
        });
        let stream = stream.map(move |frame| {
            memory.see(&gateway, &session, &frame.text);
            Ok(frame.encoded())
        });
        self.event_stream(stream.boxed())
    }

    /// A session with a program that has none.
    fn session_without(&self, key: &str, upstream: &dyn UpstreamProgram) -> Option<TranslatedSession> {
        let SessionToken { client, hello, .. } = SessionToken::of(self, key).filter(|_| !key.is_empty())?;
        let hello = hello?;
        let shared = self.memory.programs.shared(&self.gateway.name, &self.who, upstream).ok()?;
        let route = self.translated(UpstreamRoute::Program(shared), hello, key.to_owned());
        Some(TranslatedSession { route, client, key: key.to_owned() })
    }

    // --- Listening and leaving ---

    /// What belongs to no request.
    async fn listen(&self) -> Response {
        let key = self.header(SESSION.as_str()).unwrap_or_default().to_owned();
        match &self.gateway.upstream {
            Upstream::Address(address) => {
                let Some(session) = SessionToken::of(self, &key) else { return no_session() };
                let route = AddressRoute::of(address.clone(), &self.who, &self.headers);
                if let Some(hello) = session.hello {
                    let route = self.translated(UpstreamRoute::Address(route), hello, key.clone());
                    return self.listen_translated(route, &key).await;
                }
                let route = route.in_session(session.upstream.as_deref());
                self.passed(&route, Method::GET, Vec::new(), (key, &session.client)).await
            }
            Upstream::Program(_) if key.is_empty() => StatusCode::METHOD_NOT_ALLOWED.into_response(),
            Upstream::Program(upstream) => {
                match self.memory.programs.find(&key, &self.gateway.name, &self.who) {
                    Some(program) => {
                        let stream = stream::unfold(program.listener(), |mut replies| async move {
                            let frame = replies.next().await?;
                            Some((Ok(frame.encoded()), replies))
                        });
                        self.event_stream(stream.boxed())
                    }
                    None => match self.session_without(&key, upstream.as_ref()) {
                        Some(session) => self.listen_translated(session.route, &key).await,
                        None => no_session(),
                    },
                }
            }
        }
    }

    /// A client ends its session.
    async fn end(&self) -> Response {
        let key = self.header(SESSION.as_str()).unwrap_or_default().to_owned();
        match &self.gateway.upstream {
            Upstream::Address(address) => {
                let Some(session) = SessionToken::of(self, &key) else { return no_session() };
                if session.hello.is_some() {
                    self.memory.forget(&key);
                    return StatusCode::NO_CONTENT.into_response();
                }
                if session.upstream.is_none() {
                    return StatusCode::METHOD_NOT_ALLOWED.into_response();
                }
                let route = AddressRoute::of(address.clone(), &self.who, &self.headers);
                let route = route.in_session(session.upstream.as_deref());
                self.passed(&route, Method::DELETE, Vec::new(), (key, &session.client)).await
            }
            Upstream::Program(_) => match self.memory.programs.find(&key, &self.gateway.name, &self.who) {
                Some(_) => {
                    self.memory.programs.end(&key);
                    StatusCode::NO_CONTENT.into_response()
                }
                None if SessionToken::of(self, &key).is_some_and(|session| session.hello.is_some()) => {
                    self.memory.forget(&key);
                    StatusCode::NO_CONTENT.into_response()
                }
                None => no_session(),
            },
        }
    }

    // --- Answers ---

    /// What comes of a call: one body where that is quick, else a stream.
    async fn answered(&self, mut outputs: Receiver<Output>) -> Response {
        let first = match tokio::time::timeout(HEAD_WITHIN, outputs.recv()).await {
            Ok(Some(Output::Whole(reply, taken))) => {
                // The answer is handed over as soon as this returns.
                let _ = taken.send(());
                return whole(reply);
            }
            Ok(Some(Output::Frame(frame))) => Some(frame),
            Ok(None) => None,
            Err(_) => None,
        };
        let first = stream::iter(first.map(|frame| Ok(frame.encoded())));
        let rest = stream::unfold(outputs, |mut outputs| async move {
            let frame = match outputs.recv().await? {
                Output::Frame(frame) => frame,
                Output::Whole(reply, taken) => as_frame(reply, taken),
            };
            Some((Ok(frame.encoded()), outputs))
        });
        self.event_stream(first.chain(rest).boxed())
    }

    fn event_stream(&self, stream: BoxStream<'static, Result<Bytes, std::io::Error>>) -> Response {
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
        (StatusCode::OK, headers, self.streamed(stream)).into_response()
    }

    /// A stream that shows that it is alive, and ends when its reader would no longer be let in.
    fn streamed(&self, stream: BoxStream<'static, Result<Bytes, std::io::Error>>) -> Body {
        let reading = (stream, self.stay(), self.app.stopping.clone(), false);
        let kept = stream::unfold(reading, |(mut stream, mut stay, mut stopping, is_over)| async move {
            if is_over {
                return None;
            }
            let next = tokio::select! {
                biased;
                next = stream.next() => next?,
                () = stay.is_over() => return None,
                () = stops(&mut stopping) => {
                    // What is under way has its answer soon: calls stop waiting by themselves.
                    let last = tokio::time::timeout(HEAD_WITHIN, stream.next()).await.ok()??;
                    return Some((last, (stream, stay, stopping, false)));
                }
                () = tokio::time::sleep(KEEP_ALIVE) => Ok(Bytes::from_static(b": alive\n\n")),
            };
            let is_over = next.is_err();
            Some((next, (stream, stay, stopping, is_over)))
        });
        Body::from_stream(kept)
    }
}

/// Whether a server does not begin a session.
fn is_refused(status: StatusCode, text: &str) -> bool {
    let is_error = || ServerMessage::read(text).is_some_and(|answer| answer.error.is_some());
    status.is_client_error() || is_error()
}

/// The session of a request; one that has none shares it with no other.
fn own(session: String) -> String {
    if session.is_empty() { format!("none-{:032x}", u128::from_be_bytes(random_bytes())) } else { session }
}

/// Comes back when the server stops.
async fn stops(stopping: &mut watch::Receiver<bool>) {
    // Whoever could say so is gone: then it has stopped.
    drop(stopping.wait_for(|stopping| *stopping).await);
}

/// A message's own id.
#[derive(serde::Deserialize)]
struct RequestId {
    id: Box<serde_json::value::RawValue>,
}

fn bytes_of(
    body: BoxStream<'static, Result<Vec<u8>, UpstreamError>>,
) -> BoxStream<'static, Result<Bytes, std::io::Error>> {
    body.map(|chunk| chunk.map(Bytes::from).map_err(std::io::Error::other)).boxed()
}

fn with_headers(status: StatusCode, headers: HeaderMap, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().extend(headers);
    response
}

fn whole(reply: WholeReply) -> Response {
    let mut headers = reply.headers;
    headers.remove(SESSION);
    with_headers(reply.status, headers, Body::from(reply.text))
}

fn whole_json(text: String) -> Response {
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// A body as a message of a stream that has begun.
fn as_frame(reply: WholeReply, taken: oneshot::Sender<()>) -> Frame {
    let is_message = reply.text.trim_start().starts_with('{');
    let text = if is_message {
        reply.text
    } else {
        let why = format!("the MCP server answered with HTTP {}", reply.status);
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32603, "message": why}}).to_string()
    };
    Frame { taken: Some(taken), ..Frame::of(text) }
}

fn refused(status: StatusCode, code: i32, why: &str) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": why}}).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// A client that hears this begins a new session.
fn no_session() -> Response {
    refused(StatusCode::NOT_FOUND, -32001, "there is no such session; send initialize again")
}

fn unreachable_upstream(error: &UpstreamError) -> Response {
    tracing::warn!(%error, "mcp: the server behind a gateway did not answer");
    refused(StatusCode::BAD_GATEWAY, -32603, &error.to_string())
}
