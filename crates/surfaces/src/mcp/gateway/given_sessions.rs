//! Clients without sessions in front of a server that needs them: this server has a session of its own for each such client, and says in
//! it what the client asks, in the older words.
//!
//! What the server asks while a request waits, the client is asked to bring back (`input_required`): until it does, the request waits
//! here. While somebody may be asked, a session serves one request at a time, so that nobody is asked what another one's request is
//! about. The words are `../generation.rs`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_core::name::{Tenant, UserId};
use standfast_engine::auth::Principal;
use standfast_engine::clock::random_bytes;
use standfast_engine::tool::secrets::Secrets;
use standfast_engine::upstream::{Gateway, Upstream, UpstreamError};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, oneshot};
use tokio::time::Instant;

use super::super::generation::{self, QUESTION, SpokenRequest};
use super::super::message::{ClientMessage, ServerMessage, spliced};
use super::super::profile::ClientProfile;
use super::call::CallRun;
use super::frame::Frame;
use super::memory::Memory;
use super::route::{
    AddressRoute, BrokenStream, Frames, Reply, SESSION, UpstreamRoute, WholeReply, frames_of,
};
use super::{ClientRequest, HELLO, own, refused, task, tasks, whole_json};

/// Messages on their way to a client, and those that belong to no request.
const FRAMES: usize = 16;
const EVENTS: usize = 256;

/// Sessions of one client at a time: as many of its requests can wait for answers.
const OF_CLIENT: usize = 8;

/// How long a session stays that nobody uses, and how long a request waits for what its client is asked to bring back.
const IDLE: Duration = Duration::from_secs(30 * 60);
const BACK_WITHIN: Duration = Duration::from_secs(10 * 60);

/// How long a server may take to let us listen to what belongs to no request.
const LISTENS_WITHIN: Duration = Duration::from_secs(2);

/// How often it is looked whether anybody still has a session.
const LOOKS: Duration = Duration::from_secs(60);

/// What states begin with by which a client finds back to a request that waits here.
const STATE: &str = "standfast-waits-";

type Answers = Sender<Result<Frame, BrokenStream>>;

/// The way to a server with sessions, for clients without.
#[derive(Clone)]
pub(super) struct SessionRoute {
    pub(super) gateway: Arc<Gateway>,
    pub(super) who: Principal,
    pub(super) memory: Arc<Memory>,
}

/// Whose sessions they are: one client of one user of one gateway.
type SessionOwner = (String, Tenant, UserId, String);

/// The sessions that there are, and the requests in them that wait for their clients.
#[derive(Default)]
pub(super) struct GivenSessions {
    open: Mutex<HashMap<SessionOwner, Vec<Arc<GivenSession>>>>,
    waiting: Mutex<HashMap<String, WaitingRequest>>,
}

/// A session of ours at a server.
struct GivenSession {
    route: UpstreamRoute,
    /// What the server said at its beginning.
    welcome: Box<RawValue>,
    /// One request at a time where its client may be asked something.
    turn: Arc<Semaphore>,
    /// Who has the turn hears what the server asks on no request's stream.
    current: Mutex<Option<Sender<String>>>,
    level: Mutex<Option<String>>,
    events: broadcast::Sender<String>,
    used_at: Mutex<Instant>,
}

/// A request under way.
struct RunningRequest {
    session: Arc<GivenSession>,
    method: String,
    /// What the server knows it by.
    name: String,
    frames: Frames,
    asked: Receiver<String>,
    hears_logs: bool,
    _turn: Option<OwnedSemaphorePermit>,
}

/// A request that waits for what its client brings back.
struct WaitingRequest {
    running: RunningRequest,
    who: SessionOwner,
    /// What the server calls its question.
    question: Box<RawValue>,
}

/// A request of a client as it is known to it.
struct Origin {
    id: Box<RawValue>,
    token: Option<Box<RawValue>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

fn new_name() -> String {
    format!("sf-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn raw(name: &str) -> Result<Box<RawValue>, UpstreamError> {
    serde_json::value::to_raw_value(name).map_err(|error| UpstreamError::NotSent(error.to_string()))
}

impl GivenSession {
    /// Tells the server something that nobody answers.
    async fn tell(&self, line: String) -> Result<(), UpstreamError> {
        match &self.route {
            UpstreamRoute::Program(program) => program.tell(&line).await,
            UpstreamRoute::Address(route) => route.send(Method::POST, line.into_bytes()).await.map(drop),
            UpstreamRoute::Translated(_) | UpstreamRoute::Given(_) => Ok(()),
        }
    }

    /// Asks the server for something of ours, and reads what it says.
    async fn ask(&self, method: &str, params: &Value) -> Result<(), UpstreamError> {
        let name = new_name();
        let line = json!({"jsonrpc": "2.0", "id": name, "method": method, "params": params}).to_string();
        let mut reply = self.route.ask(&line, &raw(&name)?, None).await?;
        while let Reply::Frames(frames) = &mut reply
            && let Ok(Some(frame)) = frames.next().await
        {
            if ServerMessage::read(&frame.text).is_some_and(|message| message.method.is_none()) {
                break;
            }
        }
        Ok(())
    }

    /// The server logs what this client wants to hear of.
    async fn logs(&self, level: &str) {
        let is_new = locked(&self.level).replace(level.to_owned()).as_deref() != Some(level);
        if is_new && let Err(error) = self.ask("logging/setLevel", &json!({"level": level})).await {
            tracing::debug!(%error, "mcp: a server was not told what to log");
        }
    }

    /// Hears what belongs to no request, for as long as somebody has the session.
    async fn listen(session: std::sync::Weak<GivenSession>, mut frames: Frames) {
        loop {
            let frame = tokio::select! {
                frame = frames.next() => frame,
                // Whoever has the session may have let go of it.
                () = tokio::time::sleep(LOOKS) => {
                    if session.strong_count() == 0 { return }
                    continue;
                }
            };
            let Ok(Some(frame)) = frame else { return };
            let Some(session) = session.upgrade() else { return };
            let Some(message) = ServerMessage::read(&frame.text) else { continue };
            let (id, is_question) = (message.id, message.method.is_some());
            if !is_question || id.is_null() {
                // Nobody may listen.
                drop(session.events.send(frame.text));
                continue;
            }
            let current = locked(&session.current).clone();
            let is_heard = match current {
                Some(current) => current.send(frame.text.clone()).await.is_ok(),
                None => false,
            };
            if !is_heard {
                let why = json!({"code": -32603, "message": "there is nobody to ask"});
                let no = json!({"jsonrpc": "2.0", "id": id, "error": why}).to_string();
                drop(session.tell(no).await);
            }
        }
    }
}

impl SessionRoute {
    /// What its server was given that must not be kept of what it says.
    pub(super) fn secrets(&self) -> BoxFuture<'_, Secrets> {
        Box::pin(async move {
            match &self.gateway.upstream {
                Upstream::Address(address) => self.address(address).known_secrets().await,
                Upstream::Program(program) => program.secrets(),
            }
        })
    }

    fn address(&self, address: &Arc<dyn standfast_engine::upstream::UpstreamAddress>) -> AddressRoute {
        AddressRoute::of(address.clone(), &self.who, &HeaderMap::new()).for_session(None)
    }

    fn whose(&self, request: &SpokenRequest) -> SessionOwner {
        let said = format!("{} {}", request.client, request.capabilities);
        (self.gateway.name.clone(), self.who.tenant.clone(), self.who.user.clone(), said)
    }

    /// Asks, and comes back when there is an answer to be read.
    pub(super) fn ask<'a>(
        &'a self,
        line: &'a str,
        id: &'a RawValue,
        token: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Reply, UpstreamError>> {
        Box::pin(async move {
            let name = new_name();
            let request = SpokenRequest::read(line, &name)
                .map_err(|error| UpstreamError::NotSent(format!("the message cannot be sent: {error}")))?;
            let origin = Origin { id: id.to_owned(), token: token.map(ToOwned::to_owned) };
            let state: Option<String> =
                request.back.state.as_ref().and_then(|state| serde_json::from_str(state.get()).ok());
            if let Some(state) = state.filter(|state| state.starts_with(STATE)) {
                return self.goes_on(&state, request, origin).await;
            }
            let (session, turn) = self.session(&request).await?;
            if request.method == "server/discover" {
                let text = generation::discovered(&session.welcome, id).ok_or_else(|| {
                    UpstreamError::Lost("the MCP server does not say what it can do".to_owned())
                })?;
                return Ok(whole(text));
            }
            if request.method == "subscriptions/listen" {
                return self.listens(session, request, &origin).await;
            }
            if let Some(level) = &request.level {
                session.logs(level).await;
            }
            let (current, asked) = channel(FRAMES);
            if turn.is_some() {
                *locked(&session.current) = Some(current);
            }
            let (reply, session, turn) = self.sent(&request, &name, (session, turn)).await?;
            let frames = match reply {
                Reply::Frames(frames) => frames,
                Reply::Whole(reply) if is_answer(&reply.text, &name) => {
                    let text = generation::newest_answer(&reply.text, &request.method, id);
                    return Ok(Reply::Whole(WholeReply { status: StatusCode::OK, text, ..reply }));
                }
                Reply::Whole(reply) => return Ok(Reply::Whole(reply)),
            };
            let (method, hears_logs) = (request.method.clone(), request.level.is_some());
            let running = RunningRequest { session, method, name, frames, asked, hears_logs, _turn: turn };
            Ok(self.carries(running, self.whose(&request), origin))
        })
    }

    /// Sends a request in a session; in another one where the server does not know this one any more, as nothing ran then.
    async fn sent(
        &self,
        request: &SpokenRequest,
        name: &str,
        (session, turn): (Arc<GivenSession>, Option<OwnedSemaphorePermit>),
    ) -> Result<(Reply, Arc<GivenSession>, Option<OwnedSemaphorePermit>), UpstreamError> {
        let said = name;
        let name = raw(name)?;
        let first = session.route.ask(&request.line, &name, Some(&name)).await;
        let is_lost = match &first {
            Ok(Reply::Whole(reply)) => reply.status.is_client_error() && !is_answer(&reply.text, said),
            Ok(Reply::Frames(_)) => false,
            Err(error) => {
                matches!((error, &session.route), (UpstreamError::NotSent(_), UpstreamRoute::Program(_)))
            }
        };
        if !is_lost {
            return first.map(|reply| (reply, session, turn));
        }
        let current = locked(&session.current).take();
        self.forget(&session);
        drop(turn);
        let (session, turn) = self.session(request).await?;
        *locked(&session.current) = current;
        let again = session.route.ask(&request.line, &name, Some(&name)).await?;
        Ok((again, session, turn))
    }

    fn forget(&self, session: &Arc<GivenSession>) {
        for open in locked(&self.memory.given.open).values_mut() {
            open.retain(|known| !Arc::ptr_eq(known, session));
        }
    }

    /// A session for a request, and the turn in it where its client may be asked something.
    async fn session(
        &self,
        request: &SpokenRequest,
    ) -> Result<(Arc<GivenSession>, Option<OwnedSemaphorePermit>), UpstreamError> {
        let whose = self.whose(request);
        let needs_turn = request.can_be_asked()
            && matches!(request.method.as_str(), "tools/call" | "prompts/get" | "resources/read");
        let known = {
            let mut open = locked(&self.memory.given.open);
            open.values_mut().for_each(|sessions| {
                sessions.retain(|session| {
                    Arc::strong_count(session) > 1 || locked(&session.used_at).elapsed() < IDLE
                });
            });
            open.retain(|_, sessions| !sessions.is_empty());
            open.get(&whose).cloned().unwrap_or_default()
        };
        for session in &known {
            *locked(&session.used_at) = Instant::now();
            if !needs_turn {
                return Ok((session.clone(), None));
            }
            if let Ok(turn) = session.turn.clone().try_acquire_owned() {
                return Ok((session.clone(), Some(turn)));
            }
        }
        if known.len() >= OF_CLIENT {
            let why =
                format!("{OF_CLIENT} requests of this client wait for answers; answer one of them first");
            return Err(UpstreamError::NotSent(why));
        }
        let session = self.opened(request).await?;
        let turn = if needs_turn { session.turn.clone().try_acquire_owned().ok() } else { None };
        locked(&self.memory.given.open).entry(whose).or_default().push(session.clone());
        Ok((session, turn))
    }

    /// Begins a session.
    async fn opened(&self, request: &SpokenRequest) -> Result<Arc<GivenSession>, UpstreamError> {
        let name = new_name();
        let hello = request.hello(&name);
        let (route, welcome) = match &self.gateway.upstream {
            Upstream::Address(address) => {
                let route = self.address(address);
                let begun = tokio::time::timeout(HELLO, begins(&route, &hello));
                let (text, session) = begun.await.map_err(|_| too_late())??;
                let welcome = welcome(&text)?;
                let version = version(&welcome);
                (
                    UpstreamRoute::Address(
                        route.in_session(session.as_deref()).for_session(version.as_deref()),
                    ),
                    welcome,
                )
            }
            Upstream::Program(program) => {
                let client = ClientProfile::default();
                let programs = &self.memory.programs;
                let (_, program) = programs.begin(&self.gateway.name, &self.who, client, program.as_ref())?;
                let asked = async {
                    let mut replies = program.ask(&hello, &raw(&name)?, None).await?;
                    replies.next().await.ok_or_else(too_late)
                };
                let said = tokio::time::timeout(HELLO, asked).await.map_err(|_| too_late())??;
                (UpstreamRoute::Program(program), welcome(&said.text)?)
            }
        };
        let session = Arc::new(GivenSession {
            route,
            welcome,
            turn: Arc::new(Semaphore::new(1)),
            current: Mutex::default(),
            level: Mutex::default(),
            events: broadcast::channel(EVENTS).0,
            used_at: Mutex::new(Instant::now()),
        });
        session.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await?;
        match session.route.clone() {
            UpstreamRoute::Program(program) => {
                let frames = Frames::Replies(program.listener());
                tokio::spawn(GivenSession::listen(Arc::downgrade(&session), frames));
            }
            UpstreamRoute::Address(route) => {
                let (ready, is_ready) = oneshot::channel();
                let weak = Arc::downgrade(&session);
                tokio::spawn(async move {
                    let response = route.send(Method::GET, Vec::new()).await;
                    // Whoever begins the session may not have waited for it.
                    let _ = ready.send(());
                    // Not every server has something to say by itself.
                    if let Some(response) = response.ok().filter(|response| response.status.is_success()) {
                        let frames = Frames::Stream(frames_of(response.body));
                        GivenSession::listen(weak, frames).await;
                    }
                });
                drop(tokio::time::timeout(LISTENS_WITHIN, is_ready).await);
            }
            UpstreamRoute::Translated(_) | UpstreamRoute::Given(_) => {}
        }
        Ok(session)
    }

    /// Hands on what comes of a request.
    fn carries(&self, running: RunningRequest, who: SessionOwner, origin: Origin) -> Reply {
        let (tell, frames) = channel(FRAMES);
        let memory = self.memory.clone();
        tokio::spawn(async move { carry(memory, running, who, origin, tell).await });
        Reply::Frames(Frames::Stream(frames))
    }

    /// A client brings back what it was asked for.
    async fn goes_on(
        &self,
        state: &str,
        request: SpokenRequest,
        origin: Origin,
    ) -> Result<Reply, UpstreamError> {
        let lost = || UpstreamError::Lost("the request that waited for this answer is gone".to_owned());
        let found = {
            let mut waiting = locked(&self.memory.given.waiting);
            let whose = self.whose(&request);
            match waiting.get(state) {
                // The same user, gateway and client: another one's answer is none.
                Some(found) if found.who == whose => waiting.remove(state),
                Some(_) | None => None,
            }
        };
        let WaitingRequest { running, who, question } = found.ok_or_else(lost)?;
        let line = match request.back.responses.get(QUESTION) {
            Some(answer) => format!(r#"{{"jsonrpc":"2.0","id":{question},"result":{answer}}}"#),
            None => {
                let why = json!({"code": -32603, "message": "the client gave no answer"});
                format!(r#"{{"jsonrpc":"2.0","id":{question},"error":{why}}}"#)
            }
        };
        running.session.tell(line).await?;
        Ok(self.carries(running, who, origin))
    }

    /// What belongs to no request, for whoever asks to hear of it.
    async fn listens(
        &self,
        session: Arc<GivenSession>,
        request: SpokenRequest,
        origin: &Origin,
    ) -> Result<Reply, UpstreamError> {
        let (tell, frames) = channel(FRAMES);
        let mut events = session.events.subscribe();
        for uri in &request.wanted.resource_subscriptions {
            session.ask("resources/subscribe", &json!({"uri": uri})).await?;
        }
        let (wanted, id) = (request.wanted, origin.id.clone());
        tokio::spawn(async move {
            let first = wanted.acknowledged(&id);
            let mut next = first;
            loop {
                if let Some(text) = next.take()
                    && tell.send(Ok(Frame::of(text))).await.is_err()
                {
                    return;
                }
                let event = tokio::select! {
                    event = events.recv() => event,
                    () = tell.closed() => return,
                };
                let text = match event {
                    Ok(text) => text,
                    Err(broadcast::error::RecvError::Lagged(_)) => continue,
                    Err(broadcast::error::RecvError::Closed) => return,
                };
                next = ServerMessage::read(&text)
                    .filter(|message| {
                        wanted.has(message.method.as_deref().unwrap_or_default(), message.params)
                    })
                    .and_then(|_| generation::subscribed(&text, &id));
                // Whoever listens keeps the session.
                *locked(&session.used_at) = Instant::now();
            }
        });
        Ok(Reply::Frames(Frames::Stream(frames)))
    }
}

/// Hands on what comes of a request, until it is answered, its client is asked something, or nobody reads it any more.
async fn carry(
    memory: Arc<Memory>,
    mut running: RunningRequest,
    who: SessionOwner,
    origin: Origin,
    tell: Answers,
) {
    let name = Value::from(running.name.as_str());
    loop {
        let text = tokio::select! {
            frame = running.frames.next() => match frame {
                Ok(Some(frame)) => frame.text,
                Ok(None) => return,
                Err(broken) => return drop(tell.send(Err(broken)).await),
            },
            Some(question) = running.asked.recv() => question,
            () = tell.closed() => return taken_back(&running).await,
        };
        let Some(message) = ServerMessage::read(&text) else { continue };
        let (is_answer, is_question) =
            (message.answers(&name), message.method.is_some() && !message.id.is_null());
        let is_log = message.method.as_deref() == Some("notifications/message");
        let is_event = matches!(message.method.as_deref(), Some(method) if method.ends_with("/list_changed") || method.ends_with("/updated"));
        if is_answer {
            let answer = generation::newest_answer(&text, &running.method, &origin.id);
            return drop(tell.send(Ok(Frame::of(answer))).await);
        }
        if is_question {
            let state = format!("{STATE}{:032x}", u128::from_be_bytes(random_bytes()));
            let Some(asks) = generation::asks_first(&text, &state, &origin.id) else { continue };
            let Some(question) = id_of(&text) else { continue };
            locked(&memory.given.waiting).insert(state.clone(), WaitingRequest { running, who, question });
            drop(tell.send(Ok(Frame::of(asks))).await);
            // That was all for this request.
            drop(tell);
            tokio::time::sleep(BACK_WITHIN).await;
            let late = locked(&memory.given.waiting).remove(&state);
            if let Some(late) = late {
                taken_back(&late.running).await;
            }
            return;
        }
        if is_event {
            // Those who listen hear it; there may be none.
            drop(running.session.events.send(text));
            continue;
        }
        if is_log && !running.hears_logs {
            continue;
        }
        let text = restored(&text, &running.name, origin.token.as_deref());
        if tell.send(Ok(Frame::of(text))).await.is_err() {
            return taken_back(&running).await;
        }
    }
}

/// Whether a server answers the request of this name.
fn is_answer(text: &str, name: &str) -> bool {
    ServerMessage::read(text).is_some_and(|message| message.answers(&Value::from(name)))
}

/// Nobody waits for a request any more.
async fn taken_back(running: &RunningRequest) {
    let params = json!({"requestId": running.name, "reason": "the client has gone"});
    let line = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).to_string();
    if let Err(error) = running.session.tell(line).await {
        tracing::debug!(%error, "mcp: a server did not hear that a request was taken back");
    }
}

/// Progress by the token that the client gave.
fn restored(text: &str, name: &str, token: Option<&RawValue>) -> String {
    #[derive(Deserialize)]
    struct Progress<'a> {
        #[serde(borrow)]
        params: Params<'a>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    match (serde_json::from_str::<Progress<'_>>(text), token) {
        (Ok(progress), Some(token))
            if serde_json::from_str::<String>(progress.params.token.get()).is_ok_and(|said| said == name) =>
        {
            spliced(text, progress.params.token, token.get())
        }
        (_, _) => text.to_owned(),
    }
}

fn id_of(text: &str) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Id {
        id: Box<RawValue>,
    }
    serde_json::from_str::<Id>(text).ok().map(|found| found.id)
}

/// What a server says at the beginning of a session, and what it calls it.
async fn begins(route: &AddressRoute, hello: &str) -> Result<(String, Option<String>), UpstreamError> {
    let response = route.send(Method::POST, hello.as_bytes().to_vec()).await?;
    let session = response.headers.get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
    if !super::route::is_stream(&response.headers) {
        return Ok((super::route::whole(response).await?.text, session));
    }
    let mut frames = Frames::Stream(frames_of(response.body));
    while let Ok(Some(frame)) = frames.next().await {
        if ServerMessage::read(&frame.text).is_some_and(|message| message.method.is_none()) {
            return Ok((frame.text, session));
        }
    }
    Err(too_late())
}

fn too_late() -> UpstreamError {
    UpstreamError::NotSent("the MCP server did not begin a session".to_owned())
}

/// What it said, or why it begins none.
fn welcome(text: &str) -> Result<Box<RawValue>, UpstreamError> {
    let message = ServerMessage::read(text);
    let result = message.as_ref().and_then(|message| message.result).map(ToOwned::to_owned);
    let why = message.and_then(|message| message.error).map_or("", RawValue::get);
    result.ok_or_else(|| UpstreamError::NotSent(format!("the MCP server begins no session: {why}")))
}

fn version(welcome: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Version {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    serde_json::from_str::<Version>(welcome.get()).ok().map(|said| said.version)
}

fn whole(text: String) -> Reply {
    let headers = HeaderMap::from_iter([(
        axum::http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    )]);
    Reply::Whole(WholeReply { status: StatusCode::OK, headers, text })
}

impl ClientRequest {
    /// A message of a client without sessions, whose server needs them.
    pub(super) async fn post_given(&self, text: &str, message: ClientMessage) -> Response {
        let given = SessionRoute {
            gateway: self.gateway.clone(),
            who: self.who.clone(),
            memory: self.memory.clone(),
        };
        let route = UpstreamRoute::Given(given);
        match message {
            ClientMessage::Call(call) => {
                let client = call.profile.clone().unwrap_or_default();
                let (keeper, memory, session) = (self.keeper(), self.memory.clone(), own(String::new()));
                self.answered(CallRun { keeper, memory, call: *call, client, route, session }.begin()).await
            }
            ClientMessage::Request(request) if tasks::is_ours(&request) => {
                whole_json(task::answer(&self.keeper(), &self.memory, &request, route).await)
            }
            ClientMessage::Request(request) => {
                match route.ask(text, &request.id, request.progress.as_deref()).await {
                    Ok(Reply::Frames(frames)) => self.frames(frames, ""),
                    Ok(Reply::Whole(reply)) => {
                        self.memory.see(&self.gateway.name, "", &reply.text);
                        super::whole(reply)
                    }
                    Err(error) => {
                        let client = request.profile.clone().unwrap_or_default();
                        self.not_reached(&error, Some(text), &client).await
                    }
                }
            }
            ClientMessage::Other if text.trim_start().starts_with('[') => {
                refused(StatusCode::BAD_REQUEST, -32600, "send each message by itself")
            }
            // Whoever has no session takes a request back by going away.
            ClientMessage::Cancel(_)
            | ClientMessage::Hello(_)
            | ClientMessage::Answer(_)
            | ClientMessage::Other => StatusCode::ACCEPTED.into_response(),
        }
    }
}
