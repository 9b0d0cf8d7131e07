//! Clients with sessions in front of servers that have none: what they say is said in the words of the newest generation, and what
//! such a server asks first, before it answers, reaches the client while its request waits.
//!
//! A session is what its client said at the beginning, sealed like any other (`session.rs`), so any node goes on with it, also after a
//! restart. The words themselves are `../generation.rs`; how the server is reached is `route.rs`'s business.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_engine::clock::random_bytes;
use standfast_engine::tool::secrets::Secrets;
use standfast_engine::upstream::UpstreamError;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::watch;

use super::super::generation::{self, Hello, Questions, Return, ServerAnswer};
use super::super::ladder::OUR_ID;
use super::super::message::{CallRequest, ClientMessage, OtherRequest, ServerMessage};
use super::super::profile::ClientProfile;
use super::call::CallRun;
use super::frame::Frame;
use super::memory::{Memory, request_key};
use super::route::{AddressRoute, BrokenStream, Frames, Reply, SESSION, UpstreamRoute, WholeReply};
use super::session::SessionToken;
use super::{ClientRequest, HELLO, RequestId, refused, whole, whole_json};

/// Messages on their way to the client.
const FRAMES: usize = 16;

/// How often a server may ask something before it answers.
const ROUNDS: usize = 16;

/// How many pages of tools are read to find one.
const PAGES: usize = 50;

/// What was said to whoever reads a request's answer.
type Answers = Sender<Result<Frame, BrokenStream>>;

/// The way to a server without sessions, for a client that has one.
#[derive(Clone)]
pub(super) struct TranslatedRoute {
    to: Arc<UpstreamRoute>,
    hello: Hello,
    gateway: String,
    memory: Arc<Memory>,
    /// The client's session.
    session: String,
}

/// A session whose server has none.
pub(super) struct TranslatedSession {
    pub(super) route: TranslatedRoute,
    pub(super) client: ClientProfile,
    pub(super) key: String,
}

impl TranslatedRoute {
    /// Asks, and comes back when there is an answer to be read.
    pub(super) fn ask<'a>(
        &'a self,
        line: &'a str,
        id: &'a RawValue,
    ) -> BoxFuture<'a, Result<Reply, UpstreamError>> {
        Box::pin(async move {
            let reply = match self.sent(line, None).await? {
                Reply::Frames(frames) => Reply::Frames(frames),
                Reply::Whole(whole) => match generation::said(&whole.text) {
                    Some(ServerAnswer::Answer(text)) => {
                        return Ok(Reply::Whole(WholeReply { status: StatusCode::OK, text, ..whole }));
                    }
                    Some(ServerAnswer::AsksFirst(_)) => Reply::Whole(whole),
                    None => return Ok(Reply::Whole(whole)),
                },
            };
            let (tell, frames) = channel(FRAMES);
            tokio::spawn(self.clone().carry(reply, line.to_owned(), id.to_owned(), tell));
            Ok(Reply::Frames(Frames::Stream(frames)))
        })
    }

    /// What its server was given that must not be kept of what it says.
    pub(super) fn secrets(&self) -> BoxFuture<'_, Secrets> {
        Box::pin(self.to.secrets())
    }

    /// Sends a request in the words of its server.
    async fn sent(&self, line: &str, back: Option<&Return>) -> Result<Reply, UpstreamError> {
        let level = self.memory.spoken(&self.session).level;
        let line = self
            .hello
            .asks(line, level.as_deref(), back)
            .map_err(|error| UpstreamError::NotSent(format!("the message cannot be sent: {error}")))?;
        match ClientMessage::read(&line) {
            Ok(ClientMessage::Call(call)) => {
                let route = match &*self.to {
                    UpstreamRoute::Address(route) => {
                        let headers = self.argument_headers(route, &call).await;
                        UpstreamRoute::Address(route.clone().for_newest(
                            "tools/call",
                            Some(&call.tool),
                            &headers,
                        ))
                    }
                    UpstreamRoute::Program(program) => UpstreamRoute::Program(program.clone()),
                    UpstreamRoute::Translated(_) | UpstreamRoute::Given(_) => return Err(twice()),
                };
                route.ask(&line, &call.id, call.progress.as_deref()).await
            }
            Ok(ClientMessage::Request(request)) => {
                let route = match &*self.to {
                    UpstreamRoute::Address(route) => UpstreamRoute::Address(named(route.clone(), &request)),
                    UpstreamRoute::Program(program) => UpstreamRoute::Program(program.clone()),
                    UpstreamRoute::Translated(_) | UpstreamRoute::Given(_) => return Err(twice()),
                };
                route.ask(&line, &request.id, request.progress.as_deref()).await
            }
            Ok(_) | Err(_) => Err(UpstreamError::NotSent("the message is no request".to_owned())),
        }
    }

    /// Hands on what comes of a request, until it is answered or nobody reads it any more.
    async fn carry(self, mut reply: Reply, line: String, id: Box<RawValue>, tell: Answers) {
        for _ in 0..ROUNDS {
            let questions = match self.heard(reply, &id, &tell).await {
                Some(ServerAnswer::Answer(text)) => return drop(tell.send(Ok(Frame::of(text))).await),
                Some(ServerAnswer::AsksFirst(questions)) => questions,
                None => return,
            };
            let asked = tokio::select! {
                asked = self.asks(questions, &tell) => asked,
                () = tell.closed() => return,
            };
            let back = match asked {
                Ok(back) => back,
                Err(error) => {
                    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
                    return drop(tell.send(Ok(Frame::of(text))).await);
                }
            };
            let again = tokio::select! {
                again = self.sent(&line, Some(&back)) => again,
                () = tell.closed() => return,
            };
            reply = match again {
                Ok(reply) => reply,
                Err(error) => return tell_error(&tell, &id, &error.to_string()).await,
            };
        }
        tell_error(&tell, &id, "the MCP server asks again and again before it answers").await;
    }

    /// The answer among what comes; none where there is none, or nobody reads it any more.
    async fn heard(&self, reply: Reply, id: &RawValue, tell: &Answers) -> Option<ServerAnswer> {
        let id: Value = serde_json::from_str(id.get()).unwrap_or_default();
        let mut frames = match reply {
            Reply::Whole(whole) => return generation::said(&whole.text),
            Reply::Frames(frames) => frames,
        };
        loop {
            let next = tokio::select! {
                next = frames.next() => next,
                () = tell.closed() => return None,
            };
            match next {
                Ok(Some(frame)) => {
                    let is_answer =
                        ServerMessage::read(&frame.text).is_some_and(|message| message.answers(&id));
                    if is_answer {
                        return generation::said(&frame.text);
                    }
                    tell.send(Ok(Frame::of(frame.text))).await.ok()?;
                }
                Ok(None) => return None,
                Err(broken) => {
                    drop(tell.send(Err(broken)).await);
                    return None;
                }
            }
        }
    }

    /// Asks the client what its server wants to know first; in JSON-RPC's words why it does not say.
    async fn asks(&self, questions: Questions, tell: &Answers) -> Result<Return, Box<RawValue>> {
        let mut waiting = Vec::new();
        for (name, question) in questions.asked {
            let id = format!("{OUR_ID}{:032x}", u128::from_be_bytes(random_bytes()));
            let asked = OpenQuestion { memory: self.memory.clone(), id };
            let answer = self.memory.ask(&asked.id);
            // Whoever has gone is noticed by whoever waits for this.
            drop(tell.send(Ok(Frame::of(question.request(&asked.id)))).await);
            waiting.push((name, question, answer, asked));
        }
        let mut back = Return { state: questions.state, ..Return::default() };
        for (name, question, answer, _asked) in waiting {
            let answer = answer.await.unwrap_or_default();
            back.responses.insert(name, question.answer(&answer)?);
        }
        Ok(back)
    }

    /// The arguments of a call that stand in headers as well.
    async fn argument_headers(&self, route: &AddressRoute, call: &CallRequest) -> Vec<(String, String)> {
        if self.memory.tool(&self.gateway, &call.tool).is_none() {
            self.list_tools(route).await;
        }
        let listed = self.memory.tool(&self.gateway, &call.tool).unwrap_or_default();
        let headers = listed.argument_headers.of(&call.arguments);
        headers.into_iter().map(|(header, value)| (header.to_owned(), value)).collect()
    }

    /// Has the server list its tools, for what they say of themselves.
    async fn list_tools(&self, route: &AddressRoute) {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default, rename = "nextCursor")]
            next: Option<String>,
        }
        let mut params = json!({});
        for no in 0..PAGES {
            let id = format!("standfast-tools-{no}");
            let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params});
            let Ok(line) = self.hello.asks(&line.to_string(), None, None) else { return };
            let route = UpstreamRoute::Address(route.clone().for_newest("tools/list", None, &[]));
            let Ok(id) = serde_json::value::to_raw_value(&id) else { return };
            let Ok(reply) = route.ask(&line, &id, None).await else { return };
            let Some(text) = last(reply).await else { return };
            self.memory.see(&self.gateway, &self.session, &text);
            let result = ServerMessage::read(&text).and_then(|message| message.result);
            let page: Option<Page> = result.and_then(|result| serde_json::from_str(result.get()).ok());
            match page.and_then(|page| page.next) {
                Some(next) => params = json!({"cursor": next}),
                None => return,
            }
        }
    }

    /// What the server says that belongs to no request; none where it says nothing of the kind.
    async fn listens(&self) -> Option<Frames> {
        let resources = self.memory.spoken(&self.session).resources;
        let wanted = json!({
            "toolsListChanged": true,
            "promptsListChanged": true,
            "resourcesListChanged": true,
            "resourceSubscriptions": resources,
        });
        let params = json!({"notifications": wanted});
        let line = json!({"jsonrpc": "2.0", "id": "standfast-listen", "method": "subscriptions/listen", "params": params});
        match self.sent(&line.to_string(), None).await {
            Ok(Reply::Frames(frames)) => Some(frames),
            Ok(Reply::Whole(_)) => None,
            Err(error) => {
                tracing::debug!(gateway = self.gateway, %error, "mcp: nothing is heard of a server");
                None
            }
        }
    }
}

/// There are two generations, so nothing is said in other words twice.
fn twice() -> UpstreamError {
    UpstreamError::NotSent("the message is in the server's words already".to_owned())
}

/// A question that the client has not answered.
struct OpenQuestion {
    memory: Arc<Memory>,
    id: String,
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.memory.ask_no_more(&self.id);
    }
}

/// The headers of a request that calls no tool.
fn named(route: AddressRoute, request: &OtherRequest) -> AddressRoute {
    let is_named = matches!(request.method.as_str(), "prompts/get" | "resources/read");
    route.for_newest(&request.method, request.name.as_deref().filter(|_| is_named), &[])
}

/// The answer among what comes, as it was written.
async fn last(reply: Reply) -> Option<String> {
    let mut frames = match reply {
        Reply::Whole(whole) => return Some(whole.text),
        Reply::Frames(frames) => frames,
    };
    let mut last = None;
    while let Ok(Some(frame)) = frames.next().await {
        let is_answer = ServerMessage::read(&frame.text).is_some_and(|message| message.method.is_none());
        last = Some(frame.text);
        if is_answer {
            break;
        }
    }
    last
}

async fn tell_error(tell: &Answers, id: &RawValue, why: &str) {
    let error = json!({"code": -32603, "message": why});
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
    // Nobody reads it any more: then nobody misses it.
    drop(tell.send(Ok(Frame::of(text))).await);
}

/// What a server says that belongs to no request of a client.
struct NotificationStream {
    route: TranslatedRoute,
    frames: Frames,
    changed: watch::Receiver<()>,
}

impl NotificationStream {
    async fn next(&mut self) -> Option<Frame> {
        loop {
            let frame = tokio::select! {
                frame = self.frames.next() => frame.ok()??,
                changed = self.changed.changed() => {
                    // The session is over where nobody can say so any more.
                    changed.ok()?;
                    self.frames = self.route.listens().await?;
                    continue;
                }
            };
            let method = ServerMessage::read(&frame.text)?.method;
            match method.as_deref() {
                // That it listens is nothing that its client knows of.
                Some("notifications/subscriptions/acknowledged") => {}
                Some(_) => return Some(Frame::of(frame.text)),
                None => return None,
            }
        }
    }
}

impl ClientRequest {
    /// The beginning of a session at a server that has refused one because it has none; none where it refused for another reason.
    pub(super) async fn welcomed(
        &self,
        to: UpstreamRoute,
        text: &str,
        client: &ClientProfile,
    ) -> Option<Response> {
        let hello = Hello::read(text)?;
        let RequestId { id } = serde_json::from_str(text).ok()?;
        let route = self.translated(to, hello.clone(), String::new());
        let asked = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"server/discover","params":{{}}}}"#);
        let reply = tokio::time::timeout(HELLO, async { last(route.sent(&asked, None).await.ok()?).await });
        let reply = reply.await.ok()??;
        let result = ServerMessage::read(&reply)?.result?;
        let welcome = hello.welcome(&id, result, &self.gateway.name)?;
        let token = SessionToken { upstream: None, client: client.clone(), hello: Some(hello) };
        let mut response = whole_json(welcome);
        response.headers_mut().insert(SESSION, HeaderValue::try_from(token.sealed(self)?).ok()?);
        tracing::debug!(
            gateway = self.gateway.name,
            client = client.name,
            "mcp: a session with a server that has none"
        );
        Some(response)
    }

    /// The way of a client with a session to a server that has none.
    pub(super) fn translated(&self, to: UpstreamRoute, hello: Hello, session: String) -> TranslatedRoute {
        let (gateway, memory) = (self.gateway.name.clone(), self.memory.clone());
        TranslatedRoute { to: Arc::new(to), hello, gateway, memory, session }
    }

    /// A message of such a client.
    pub(super) async fn post_translated(
        &self,
        session: TranslatedSession,
        text: &str,
        message: ClientMessage,
    ) -> Response {
        let TranslatedSession { route, client, key } = session;
        match message {
            ClientMessage::Call(call) => {
                let (keeper, memory, route) =
                    (self.keeper(), self.memory.clone(), UpstreamRoute::Translated(route));
                self.answered(CallRun { keeper, memory, call: *call, client, route, session: key }.begin())
                    .await
            }
            ClientMessage::Request(request) => match self.said_here(&request, text, &key) {
                Some(answer) => whole_json(answer),
                None => match route.ask(text, &request.id).await {
                    Ok(Reply::Frames(frames)) => self.frames(frames, &key),
                    Ok(Reply::Whole(reply)) => {
                        self.memory.see(&self.gateway.name, &key, &reply.text);
                        whole(reply)
                    }
                    Err(error) => self.not_reached(&error, Some(text), &client).await,
                },
            },
            ClientMessage::Cancel(id) => {
                // Whatever works on it hears it when its answer is not read any more.
                self.memory.cancel(&request_key(&key, &id));
                StatusCode::ACCEPTED.into_response()
            }
            ClientMessage::Other if text.trim_start().starts_with('[') => {
                refused(StatusCode::BAD_REQUEST, -32600, "send each message by itself")
            }
            ClientMessage::Hello(_) | ClientMessage::Answer(_) | ClientMessage::Other => {
                StatusCode::ACCEPTED.into_response()
            }
        }
    }

    /// The answer to what such a server has no word for.
    fn said_here(&self, request: &OtherRequest, text: &str, key: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Level {
            params: LevelParams,
        }
        #[derive(Deserialize)]
        struct LevelParams {
            level: String,
        }
        match (request.method.as_str(), &request.name) {
            ("ping", _) => {}
            ("logging/setLevel", _) => {
                let level = serde_json::from_str::<Level>(text).ok()?.params.level;
                self.memory.speaks(key, |spoken| spoken.level = Some(level));
            }
            ("resources/subscribe", Some(uri)) => self.memory.speaks(key, |spoken| {
                if spoken.resources.insert(uri.clone()) {
                    spoken.changed.send_replace(());
                }
            }),
            ("resources/unsubscribe", Some(uri)) => self.memory.speaks(key, |spoken| {
                if spoken.resources.remove(uri) {
                    spoken.changed.send_replace(());
                }
            }),
            _ => return None,
        }
        Some(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, request.id))
    }

    /// What belongs to no request of such a client.
    pub(super) async fn listen_translated(&self, route: TranslatedRoute, key: &str) -> Response {
        self.memory.speaks(key, |_| {});
        let changed = self.memory.spoken(key).changed.subscribe();
        let Some(frames) = route.listens().await else {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        };
        let stream =
            stream::unfold(NotificationStream { route, frames, changed }, |mut listening| async move {
                let frame = listening.next().await?;
                Some((Ok(frame.encoded()), listening))
            });
        self.event_stream(stream.boxed())
    }
}
