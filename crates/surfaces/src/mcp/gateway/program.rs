//! Programs behind a gateway: which runs for whom, and to which request of a client what it says belongs.
//!
//! A client with a session has a program of its own, as if it had started it. Clients without sessions share one for each user, under
//! ids of our own; they hear nothing of each other. Pipes and processes are below (`standfast_engine::upstream`).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_core::name::{Tenant, UserId};
use standfast_engine::auth::Principal;
use standfast_engine::clock::random_bytes;
use standfast_engine::tool::secrets::Secrets;
use standfast_engine::upstream::{ProgramLines, UpstreamError, UpstreamProgram};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::super::message::{self, ServerMessage};
use super::super::profile::ClientProfile;
use super::frame::Frame;

/// How long a program stays that nobody uses.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// Programs of one user at a time, and of all users.
const OF_USER: usize = 32;
const OF_ALL: usize = 512;

/// Messages of a program that wait for a client to read them, and those that belong to no request.
const FRAMES: usize = 256;
const BACKLOG: usize = 256;

/// How long a client may take to read what a program says.
const SLOW: Duration = Duration::from_secs(10);

/// The programs that run.
#[derive(Default)]
pub(super) struct Programs {
    running: Mutex<HashMap<String, Arc<Program>>>,
}

/// One program, and the requests that it works on.
pub(super) struct Program {
    gateway: String,
    owner: (Tenant, UserId),
    /// What its client can do; none where each request says it.
    pub(super) client: Option<ClientProfile>,
    /// What it was given that must not be kept of what it says.
    pub(super) secrets: Secrets,
    to: Sender<String>,
    state: Mutex<State>,
    number: AtomicU64,
}

struct State {
    requests: Vec<OpenRequest>,
    /// What belongs to no request, for a client that listens.
    listener: Option<Sender<Frame>>,
    backlog: VecDeque<String>,
    used_at: Instant,
    is_over: bool,
}

/// A request that the program works on.
struct OpenRequest {
    id: Value,
    token: Option<Value>,
    /// The id as the client wrote it, and its token, where the program was told others.
    original: Option<(Box<RawValue>, Option<Box<RawValue>>)>,
    frames: Sender<Frame>,
}

/// What a program says to a request. Letting go of it before the answer tells a program that is shared.
pub(super) struct Replies {
    frames: Receiver<Frame>,
    /// Under which id a shared program knows it, until it has answered.
    guard: Option<(Arc<Program>, Value)>,
}

impl Replies {
    pub(super) async fn next(&mut self) -> Option<Frame> {
        let next = self.frames.recv().await;
        if next.is_none() {
            self.guard = None;
        }
        next
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let Some((program, id)) = self.guard.take() else { return };
        let was_open = {
            let mut state = program.state();
            let count = state.requests.len();
            state.requests.retain(|request| request.id != id);
            state.requests.len() < count
        };
        if was_open {
            let params = json!({"requestId": id, "reason": "the client has gone"});
            let cancel =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).to_string();
            // A program that does not read is ended by others.
            drop(program.to.try_send(cancel));
        }
    }
}

impl Programs {
    fn running(&self) -> MutexGuard<'_, HashMap<String, Arc<Program>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program for the session of a client; its id comes back with it.
    pub(super) fn begin(
        &self,
        gateway: &str,
        who: &Principal,
        client: ClientProfile,
        program: &dyn UpstreamProgram,
    ) -> Result<(String, Arc<Program>), UpstreamError> {
        let id = format!("sfp-{:032x}", u128::from_be_bytes(random_bytes()));
        let started = self.start(id.clone(), gateway, who, Some(client), program)?;
        Ok((id, started))
    }

    /// The program of a session; none where there is none of this caller.
    pub(super) fn find(&self, id: &str, gateway: &str, who: &Principal) -> Option<Arc<Program>> {
        let found = self.running().get(id).cloned();
        found.filter(|program| {
            program.gateway == gateway
                && program.owner == (who.tenant.clone(), who.user.clone())
                && !program.state().is_over
        })
    }

    /// The program that a user's clients without sessions share.
    pub(super) fn shared(
        &self,
        gateway: &str,
        who: &Principal,
        program: &dyn UpstreamProgram,
    ) -> Result<Arc<Program>, UpstreamError> {
        let id = format!("shared {} {} {gateway}", who.tenant, who.user);
        match self.find(&id, gateway, who) {
            Some(running) => Ok(running),
            None => self.start(id, gateway, who, None, program),
        }
    }

    fn start(
        &self,
        id: String,
        gateway: &str,
        who: &Principal,
        client: Option<ClientProfile>,
        program: &dyn UpstreamProgram,
    ) -> Result<Arc<Program>, UpstreamError> {
        let owner = (who.tenant.clone(), who.user.clone());
        let mut running = self.running();
        running.retain(|_, program| {
            let state = program.state();
            !state.is_over && (!state.requests.is_empty() || state.used_at.elapsed() < IDLE)
        });
        let own = running.values().filter(|program| program.owner == owner).count();
        if own >= OF_USER || running.len() >= OF_ALL {
            // The one that nobody has used for longest and that nobody waits for makes room.
            let of_whom = |program: &Program| own < OF_USER || program.owner == owner;
            let idle = running.iter().filter(|(_, program)| of_whom(program));
            let idle = idle.filter(|(_, program)| program.state().requests.is_empty());
            let oldest = idle.min_by_key(|(_, program)| program.state().used_at).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else {
                let why =
                    format!("too many programs of the MCP server `{gateway}` are busy; try again later");
                return Err(UpstreamError::NotSent(why));
            };
            running.remove(&oldest);
        }
        let lines = program.start()?;
        let started = Arc::new(Program {
            gateway: gateway.to_owned(),
            owner,
            client,
            secrets: program.secrets(),
            to: lines.to.clone(),
            state: Mutex::new(State {
                requests: Vec::new(),
                listener: None,
                backlog: VecDeque::new(),
                used_at: Instant::now(),
                is_over: false,
            }),
            number: AtomicU64::new(0),
        });
        // Ends with the program's output, which ends when nobody has the program any more.
        tokio::spawn(listen(Arc::downgrade(&started), lines));
        running.insert(id, started.clone());
        Ok(started)
    }

    /// A client ends its session.
    pub(super) fn end(&self, id: &str) {
        if let Some(program) = self.running().remove(id) {
            program.end();
        }
    }
}

/// Hears a program until it ends, or until nobody has it any more.
async fn listen(program: std::sync::Weak<Program>, mut lines: ProgramLines) {
    drop(lines.to);
    loop {
        let line = tokio::select! {
            line = lines.from.recv() => line,
            () = tokio::time::sleep(SLOW) => {
                // Whoever was removed from the list is ended here.
                if program.strong_count() == 0 { return }
                continue;
            }
        };
        let Some(program) = program.upgrade() else { return };
        match line {
            Some(line) if line.trim().is_empty() => {}
            Some(line) => program.hear(line).await,
            None => return program.end(),
        }
    }
}

impl Program {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.requests.clear();
        state.listener = None;
    }

    /// Hands it a message that nobody answers.
    pub(super) async fn tell(&self, line: &str) -> Result<(), UpstreamError> {
        self.state().used_at = Instant::now();
        let line = message::unbroken(line).into_owned();
        // A line feed within a message is a blank between values.
        let line = line.replace('\n', " ");
        self.to.send(line).await.map_err(|_| UpstreamError::NotSent(self.gone()))
    }

    fn gone(&self) -> String {
        format!("the program of the MCP server `{}` has ended", self.gateway)
    }

    /// Hands it a request.
    pub(super) async fn ask(
        self: &Arc<Program>,
        line: &str,
        id: &RawValue,
        token: Option<&RawValue>,
    ) -> Result<Replies, UpstreamError> {
        let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).unwrap_or_default();
        let (frames, replies) = channel(FRAMES);
        let mut replies = Replies { frames: replies, guard: None };
        let sent = if self.client.is_none() {
            let name = format!("sf-{}", self.number.fetch_add(1, Ordering::Relaxed));
            let line = message::renamed(line, &name)
                .map_err(|error| UpstreamError::NotSent(format!("the message cannot be sent: {error}")))?;
            let original = Some((id.to_owned(), token.map(ToOwned::to_owned)));
            let (id, token) = (Value::from(name.as_str()), token.map(|_| Value::from(name.as_str())));
            replies.guard = Some((self.clone(), id.clone()));
            self.opens(OpenRequest { id, token, original, frames })?;
            self.tell(&line).await
        } else {
            self.opens(OpenRequest { id: value(id), token: token.map(value), original: None, frames })?;
            self.tell(line).await
        };
        sent.map(|()| replies)
    }

    fn opens(&self, request: OpenRequest) -> Result<(), UpstreamError> {
        let mut state = self.state();
        if state.is_over {
            return Err(UpstreamError::NotSent(self.gone()));
        }
        if state.requests.iter().any(|open| open.id == request.id) {
            let why = format!("the request {} is under way already", request.id);
            return Err(UpstreamError::NotSent(why));
        }
        state.requests.push(request);
        Ok(())
    }

    /// A client listens for what belongs to no request. Whoever listened before hears nothing more.
    pub(super) fn listener(self: &Arc<Program>) -> Replies {
        let (frames, replies) = channel(FRAMES);
        let mut state = self.state();
        state.used_at = Instant::now();
        for text in std::mem::take(&mut state.backlog) {
            // There is room for all of them.
            drop(frames.try_send(Frame::of(text)));
        }
        state.listener = (!state.is_over).then_some(frames);
        Replies { frames: replies, guard: None }
    }

    /// A line of the program.
    async fn hear(&self, line: String) {
        let Some((to, line)) = self.route(line) else { return };
        let sending = to.send(Frame::of(line));
        if tokio::time::timeout(SLOW, sending).await.is_err() {
            tracing::warn!(gateway = self.gateway, "mcp: a client does not read what a program says");
        }
    }

    /// Whose a line is, as that client is to read it.
    fn route(&self, line: String) -> Option<(Sender<Frame>, String)> {
        let message = ServerMessage::read(&line)?;
        let mut state = self.state();
        state.used_at = Instant::now();
        if message.method.is_none() {
            let at = state.requests.iter().position(|request| request.id == message.id)?;
            let request = state.requests.swap_remove(at);
            let line = match &request.original {
                Some((id, _)) => with_id(&line, id),
                None => line.clone(),
            };
            return Some((request.frames, line));
        }
        let about = message.params.and_then(Subject::of).unwrap_or_default();
        let named = state.requests.iter().find(|request| {
            (about.token.is_some() && about.token == request.token)
                || (about.subscription.is_some() && about.subscription.as_ref() == Some(&request.id))
        });
        if let Some(request) = named {
            let line = match (&request.original, message.params) {
                (Some((id, token)), Some(params)) => about.restored(&line, params, id, token.as_deref()),
                (_, _) => line.clone(),
            };
            return Some((request.frames.clone(), line));
        }
        if about.token.is_some() && message.id.is_null() {
            // Progress of a request that nobody waits for any more.
            return None;
        }
        // It does not say to which request it belongs. Where there is one, it is that.
        match (state.requests.as_slice(), &state.listener) {
            ([one], _) => Some((one.frames.clone(), line.clone())),
            (_, Some(listener)) if !listener.is_closed() => Some((listener.clone(), line.clone())),
            ([.., newest], _) => Some((newest.frames.clone(), line.clone())),
            ([], _) => {
                if self.client.is_some() && state.backlog.len() < BACKLOG {
                    state.backlog.push_back(line.clone());
                }
                None
            }
        }
    }
}

fn with_id(line: &str, id: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Id<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    match serde_json::from_str::<Id<'_>>(line) {
        Ok(found) => message::spliced(line, found.id, id.get()),
        Err(_) => line.to_owned(),
    }
}

/// What a notification says that it belongs to.
#[derive(Default)]
struct Subject {
    token: Option<Value>,
    subscription: Option<Value>,
}

#[derive(Deserialize)]
struct SubjectParams<'a> {
    #[serde(default, borrow, rename = "progressToken")]
    token: Option<&'a RawValue>,
    #[serde(default, borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SubjectMeta<'a> {
    #[serde(default, borrow, rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<&'a RawValue>,
}

impl Subject {
    fn of(params: &RawValue) -> Option<Subject> {
        let params: SubjectParams<'_> = serde_json::from_str(params.get()).ok()?;
        let meta: Option<SubjectMeta<'_>> =
            params.meta.and_then(|meta| serde_json::from_str(meta.get()).ok());
        let value = |raw: &RawValue| serde_json::from_str(raw.get()).ok();
        let subscription = meta.and_then(|meta| meta.subscription).and_then(value);
        Some(Subject { token: params.token.and_then(value), subscription })
    }

    /// The line with the names that the client gave.
    fn restored(&self, line: &str, params: &RawValue, id: &RawValue, token: Option<&RawValue>) -> String {
        let Ok(found) = serde_json::from_str::<SubjectParams<'_>>(params.get()) else {
            return line.to_owned();
        };
        let meta = found.meta.and_then(|meta| serde_json::from_str::<SubjectMeta<'_>>(meta.get()).ok());
        match (found.token, token, meta.and_then(|meta| meta.subscription)) {
            (Some(ours), Some(theirs), _) if self.token.is_some() => {
                message::spliced(line, ours, theirs.get())
            }
            (_, _, Some(ours)) => message::spliced(line, ours, id.get()),
            (_, _, None) => line.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    /// A program that is these two ends.
    fn program(client: Option<ClientProfile>) -> (Arc<Program>, Receiver<String>) {
        let (to, said) = channel(8);
        let state = State {
            requests: Vec::new(),
            listener: None,
            backlog: VecDeque::new(),
            used_at: Instant::now(),
            is_over: false,
        };
        let owner = (Tenant::new("t").unwrap(), UserId::new("u").unwrap());
        let (state, number) = (Mutex::new(state), AtomicU64::new(0));
        let secrets = Secrets::default();
        (Arc::new(Program { gateway: "g".into(), owner, client, secrets, to, state, number }), said)
    }

    #[tokio::test]
    async fn what_a_program_says_reaches_the_request_it_belongs_to() {
        let (program, mut said) = program(Some(ClientProfile::default()));
        let mut one = program.ask(r#"{"id":1,"method":"a"}"#, &raw("1"), Some(&raw("\"t\""))).await.unwrap();
        let mut two = program.ask(r#"{"id":"1","method":"b"}"#, &raw("\"1\""), None).await.unwrap();
        assert_eq!(said.recv().await.as_deref(), Some(r#"{"id":1,"method":"a"}"#));
        program.hear(r#"{"method":"notifications/progress","params":{"progressToken":"t"}}"#.into()).await;
        assert!(one.next().await.unwrap().text.contains("progress"));
        let mut listener = program.listener();
        program.hear(r#"{"method":"notifications/message","params":{}}"#.into()).await;
        assert!(listener.next().await.unwrap().text.contains("notifications/message"));
        program.hear(r#"{"id":"1","result":{"n":1e400}}"#.into()).await;
        assert_eq!(two.next().await.unwrap().text, r#"{"id":"1","result":{"n":1e400}}"#);
        assert!(two.next().await.is_none());
        // One is left: what does not say where it belongs can only be its.
        program.hear(r#"{"id":9,"method":"roots/list"}"#.into()).await;
        assert!(one.next().await.unwrap().text.contains("roots/list"));
        program.end();
        assert!(one.next().await.is_none() && listener.next().await.is_none());
        assert!(program.ask("{}", &raw("3"), None).await.is_err());
    }

    #[tokio::test]
    async fn clients_that_share_a_program_hear_their_own_names() {
        let (program, mut said) = program(None);
        let line = r#"{"id":1,"method":"a","params":{"_meta":{"progressToken":1}}}"#;
        let mut one = program.ask(line, &raw("1"), Some(&raw("1"))).await.unwrap();
        let two = program.ask(line, &raw("1"), Some(&raw("1"))).await.unwrap();
        let first = said.recv().await.unwrap();
        assert_eq!(first, r#"{"id":"sf-0","method":"a","params":{"_meta":{"progressToken":"sf-0"}}}"#);
        assert!(said.recv().await.unwrap().contains("sf-1"));
        program
            .hear(
                r#"{"method":"notifications/progress","params":{"progressToken":"sf-0","progress":1.0}}"#
                    .into(),
            )
            .await;
        assert_eq!(
            one.next().await.unwrap().text,
            r#"{"method":"notifications/progress","params":{"progressToken":1,"progress":1.0}}"#
        );
        program
            .hear(
                r#"{"method":"x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"sf-0"}}}"#
                    .into(),
            )
            .await;
        assert!(one.next().await.unwrap().text.contains(r#"subscriptionId":1"#));
        program.hear(r#"{"id":"sf-0","result":{}}"#.into()).await;
        assert_eq!(one.next().await.unwrap().text, r#"{"id":1,"result":{}}"#);
        // Whoever goes before the answer takes the request back; whoever has it does not.
        drop(two);
        assert!(said.recv().await.unwrap().contains(r#""requestId":"sf-1""#));
        drop(one);
        assert!(said.try_recv().is_err());
    }
}
