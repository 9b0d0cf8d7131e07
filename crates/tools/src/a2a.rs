//! `a2a`: an agent elsewhere does the work, spoken to by A2A 1.0. A call begins a task there and waits for it.
//!
//! The task is begun once: its id is stored, in the hold that the call waits in, before anything waits, and every later
//! start goes on with it. While the call waits it is rows; the engine asks now and then how the task is (`watch`). What
//! the remote agent asks becomes a hold of this server, and the answer travels back. `card.rs` is who the remote agent
//! is, `wire.rs` how it is spoken to, `asks.rs` what people are asked, `task.rs` the result of a task; `canned_client.rs` is the
//! client without a connection, for conformance kits.

mod asks;
pub mod canned_client;
pub mod card;
mod task;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::ToolSpec;
use standfast_core::hold::Ask;
use standfast_core::json::RawJson;
use standfast_core::message::{Replay, ToolResult};
use standfast_core::name::UserId;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_engine::outbound::guard::Guard;
use standfast_engine::tool::secrets::Secrets;
use standfast_engine::tool::{
    AbandonFuture, CallContinuation, Invocation, LookupFuture, Nature, Outcome, RemoteWork, SecretsFuture,
    Suspension, Tool, ToolChange, ToolFuture, WatchFuture, look_again,
};

use self::asks::RemoteQuestion;
use self::card::Card;
use self::task::{Stage, Task};
use self::wire::{Line, SendError, SendResult, Transport};
use super::agent::{Arguments, SCHEMA};

/// The rule of remote agents whose card is not the one that the model was given; the card's digest follows it.
pub const CARD_RULE: &str = "a2a:card_changed";

/// How long after an answer was taken a remote agent may still show the question that it was the answer to.
const SETTLES: Millis = Millis::seconds(15);

/// Messages of a task that are looked at for an answer that may have arrived.
const HISTORY: u32 = 50;

/// Bytes of a description that the remote agent gives of itself.
const DESCRIPTION_BYTES: usize = 1_000;

/// Where a remote agent is, and how it is spoken to.
#[derive(Clone)]
pub struct RemoteOptions {
    /// The name of its entry.
    pub name: String,
    /// Its address: what its card is below, or the card itself.
    pub url: String,
    /// Headers of every request, such as `Authorization`. Sent to the hosts of `url` and of the guard only.
    pub headers: Vec<(String, String)>,
    /// Where requests may go.
    pub guard: Guard,
    /// Bytes of an answer that are read.
    pub answer_bytes: usize,
    /// How long the remote agent may work before it says something.
    pub timeout: Millis,
    /// Whether sending the first message twice is sending it once; what the card says where nobody else does.
    pub idempotent: Option<bool>,
    /// The description for the model, instead of what the card says.
    pub description: Option<String>,
}

impl RemoteOptions {
    /// What must not come back from there.
    fn secrets(&self) -> Secrets {
        Secrets::of_headers(self.headers.iter().map(|(name, value)| (name, value)))
    }
}

/// An agent elsewhere.
pub struct RemoteAgent {
    options: RemoteOptions,
    clock: Clock,
    /// Its card, as last seen.
    seen: Mutex<Option<Card>>,
}

/// Hands work to an agent elsewhere.
pub struct AsksRemote(pub Arc<RemoteAgent>);

/// What a call that waits goes on with; stored with its hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    /// The remote task.
    task: String,
    /// Its conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// How many answers people gave.
    #[serde(default)]
    answers: u32,
    /// What people are asked now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<RemoteQuestion>,
    /// An answer that the remote agent may not have taken yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_its_way: Option<OnItsWay>,
    /// Whether a login is waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    login: bool,
}

/// An answer on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OnItsWay {
    /// The question that it answers.
    key: String,
    /// The id of the message, the same however often it is sent.
    id: String,
    parts: Value,
    /// When the remote agent took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taken_at: Option<i64>,
}

impl RemoteAgent {
    /// An agent there; nothing is asked yet.
    #[must_use]
    pub fn new(options: RemoteOptions, clock: Clock) -> RemoteAgent {
        RemoteAgent { options, clock, seen: Mutex::default() }
    }

    /// Fetches its card.
    pub async fn look(&self) -> Result<(), card::Trouble> {
        let card = card::fetch(&self.options).await?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(card);
        Ok(())
    }

    fn card(&self) -> Option<Card> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The card, fetched if it was never seen: after a start without the remote agent.
    async fn known(&self) -> Option<Card> {
        if self.card().is_none() {
            let _ = self.look().await;
        }
        self.card()
    }

    /// How it is described to a model: with its card, so that another card shows (T3).
    #[must_use]
    pub fn spec(&self) -> ToolSpec {
        let card = self.card();
        let Ok(schema) = RawJson::parse(SCHEMA) else { unreachable!("a constant that the tests read") };
        let RemoteOptions { name, description, idempotent, .. } = &self.options;
        let usual = || match &card {
            Some(card) => format!(
                "Hands work to the remote agent {} and waits for its answer. It says of itself: {}",
                card.name,
                asks::shortened(&card.description, DESCRIPTION_BYTES)
            ),
            None => format!("Hands work to the remote agent {name} and waits for its answer."),
        };
        let description = description.clone().unwrap_or_else(usual);
        let is_promised = card.as_ref().is_some_and(|card| card.is_idempotent);
        ToolSpec {
            description: format!("{description} {}", card::pin(card.as_ref())),
            schema,
            replay: if idempotent.unwrap_or(is_promised) { Replay::Idempotent } else { Replay::Never },
            reversible: false,
            approval_prompt: None,
            holds: None,
        }
    }

    fn line<'a>(&'a self, card: &'a Card) -> Line<'a> {
        Line { options: &self.options, card, transport: Transport::Http }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The first start: begins a task, or finds the one that a lost start had begun.
    async fn begin(&self, invocation: &Invocation) -> Outcome {
        let Ok(Arguments { message }) = serde_json::from_str(&invocation.arguments) else {
            return failed("give a message: what the remote agent shall do".into());
        };
        let Some(card) = self.known().await else {
            return failed(format!(
                "nothing was sent: the card of the remote agent `{}` cannot be fetched from {}",
                self.options.name, self.options.url
            ));
        };
        let line = self.line(&card);
        let call = format!("{}-{}", invocation.call.run, invocation.call.no);
        if invocation.attempt > 1
            && let Ok(Some(task)) = line.find(&call).await
        {
            tracing::info!(call = %invocation.call, task = task.id, "a2a: resuming a remote task of an earlier attempt");
            return self.after(task, None, None);
        }
        let id = format!("{call}-0");
        let message =
            json!({"messageId": id, "contextId": call, "role": "ROLE_USER", "parts": [{"text": message}]});
        match line.send(&id, message).await {
            Ok(SendResult::Task(task)) => self.after(*task, None, None),
            Ok(SendResult::Message(message)) => Outcome::Done(ToolResult::Ok(task::said(&message))),
            Err(SendError::NotSent(why)) => failed(format!("nothing was sent: {why}")),
            Err(SendError::Refused(why) | SendError::UnknownTask(why)) => {
                failed(format!("the remote agent {} did not take the work: {why}", card.name))
            }
            Err(SendError::Login(challenge)) => self.login(&challenge, None),
            // Whether there is a task there now, nobody knows.
            Err(SendError::Lost(why)) => Outcome::Unknown(why),
        }
    }

    /// A later start: looks how the task is, and brings an answer that there is.
    async fn go_on(&self, invocation: &Invocation, resumed: &CallContinuation) -> Outcome {
        let mut state = match read(&resumed.state) {
            Ok(state) => state,
            Err(why) => {
                return Outcome::Unknown(format!("what the call goes on with cannot be read: {why}"));
            }
        };
        state.login = false;
        if resumed.answer != look_again()
            && let Some(asked) = state.asked.take()
        {
            match asks::parts(&asked, &resumed.answer) {
                Ok(parts) => {
                    state.answers += 1;
                    let id = format!("{}-{}-{}", invocation.call.run, invocation.call.no, state.answers);
                    state.on_its_way = Some(OnItsWay { key: asked.key, id, parts, taken_at: None });
                }
                Err(why) => {
                    return self.keeps_waiting(state, Some(format!("the answer cannot be sent: {why}")));
                }
            }
        }
        state.asked = None;
        let Some(card) = self.known().await else {
            return self.keeps_waiting(state, Some("its card cannot be fetched now".into()));
        };
        let line = self.line(&card);
        let task = match line.get(&state.task, HISTORY).await {
            Ok(task) => task,
            Err(SendError::UnknownTask(why)) => {
                return failed(format!(
                    "the remote agent {} no longer knows the task {}, so what became of it is not known: {why}",
                    card.name, state.task
                ));
            }
            Err(SendError::Login(challenge)) => return self.login(&challenge, Some(state)),
            Err(SendError::NotSent(why) | SendError::Lost(why) | SendError::Refused(why)) => {
                return self.keeps_waiting(state, Some(why));
            }
        };
        match state.on_its_way.take() {
            Some(answer) => self.bring(&line, task, state, answer).await,
            None => self.after(task, Some(state), None),
        }
    }

    /// Brings an answer to the question that it belongs to, once.
    async fn bring(&self, line: &Line<'_>, task: Task, mut state: State, mut answer: OnItsWay) -> Outcome {
        let is_asked = task.stage().asks() && task.key() == answer.key;
        let has_arrived = answer.taken_at.is_some() || task.has_message(&answer.id);
        if has_arrived {
            answer.taken_at.get_or_insert(self.now().0);
            state.on_its_way = Some(answer);
            return self.after(task, Some(state), None);
        }
        if !is_asked {
            let note =
                "The question before was settled elsewhere, so the answer to it was not sent.".to_owned();
            return self.after(task, Some(state), Some(note));
        }
        let message = json!({
            "messageId": answer.id, "taskId": task.id, "contextId": task.context_id, "role": "ROLE_USER",
            "parts": answer.parts,
        });
        let sent = line.send(&answer.id, message).await;
        match sent {
            Ok(sent) => {
                answer.taken_at = Some(self.now().0);
                state.on_its_way = Some(answer);
                match sent {
                    SendResult::Task(task) => self.after(*task, Some(state), None),
                    SendResult::Message(_) => self.keeps_waiting(state, None),
                }
            }
            Err(SendError::Refused(why) | SendError::UnknownTask(why)) => {
                let note = format!("The remote agent did not take the answer before: {why}");
                self.after(task, Some(state), Some(note))
            }
            Err(SendError::Login(challenge)) => {
                state.on_its_way = Some(answer);
                self.login(&challenge, Some(state))
            }
            // Whether it arrived shows when the task is looked at again.
            Err(SendError::NotSent(why) | SendError::Lost(why)) => {
                state.on_its_way = Some(answer);
                self.keeps_waiting(state, Some(why))
            }
        }
    }

    /// What a task that was just seen means for the call.
    fn after(&self, task: Task, before: Option<State>, note: Option<String>) -> Outcome {
        let usual = State {
            task: task.id.clone(),
            context: task.context_id.clone(),
            answers: 0,
            asked: None,
            on_its_way: None,
            login: false,
        };
        let mut state = before.unwrap_or(usual);
        match task.stage() {
            Stage::Working => {
                let said = task.words().filter(|words| !words.is_empty());
                self.keeps_waiting(State { on_its_way: None, ..state }, said)
            }
            Stage::Asks(kind) => {
                let mut note = note;
                if let Some(answer) = state.on_its_way.take().filter(|answer| answer.key == task.key()) {
                    if !self.has_settled(&answer) {
                        state.on_its_way = Some(answer);
                        return self.keeps_waiting(state, None);
                    }
                    note =
                        Some("The remote agent took the answer before, and still asks the same.".to_owned());
                }
                let (asked, ask) = asks::ask(&self.shown_name(), kind, &task, note.as_deref());
                state.asked = Some(asked);
                let ask = Ask { resume: resume(&state), ..ask };
                Outcome::Pending(Box::new(Suspension { kind, ask, timeout: None, secret: None }))
            }
            Stage::Done => Outcome::Done(ToolResult::Ok(task.result())),
            Stage::Not(how) => {
                let because = task.words().filter(|words| !words.is_empty());
                let because = because.map(|words| format!(": {words}")).unwrap_or_default();
                failed(format!("the remote agent {} {how}{because}", self.shown_name()))
            }
            Stage::Other(state) => Outcome::Unknown(format!(
                "the remote task {} is in the state {state:?}, which this version does not know",
                task.id
            )),
        }
    }

    fn has_settled(&self, answer: &OnItsWay) -> bool {
        answer.taken_at.is_none_or(|at| self.now().since(Timestamp(at)) > SETTLES)
    }

    /// The call waits for the remote agent.
    fn keeps_waiting(&self, state: State, note: Option<String>) -> Outcome {
        let name = self.shown_name();
        let interim = match note {
            Some(note) => format!("the remote agent {name} works on it: {}", asks::shortened(&note, 1_000)),
            None => format!("the remote agent {name} works on it"),
        };
        let ask = Ask {
            interim: Some(Body::text(interim)),
            external_ref: Some(state.task.clone()),
            resume: resume(&state),
            ..Ask::default()
        };
        let (kind, timeout) = (SuspendFor::External, Some(self.options.timeout));
        Outcome::Pending(Box::new(Suspension { kind, ask, timeout, secret: None }))
    }

    /// The remote agent does not know us. Before there is a task nothing has happened there, and the call simply starts
    /// once somebody has seen to it.
    fn login(&self, challenge: &str, state: Option<State>) -> Outcome {
        let name = &self.options.name;
        let reason = match challenge {
            "" => format!("the remote agent `{name}` requires a login"),
            challenge => format!("the remote agent `{name}` requires a login: {challenge}"),
        };
        let question = "Give the entry of the remote agent below `tools` a header that it takes (or renew the one it \
                        has), then answer: the call goes on.";
        let state = state.map(|state| State { login: true, ..state });
        let ask = Ask {
            reason: Some(reason),
            question: Some(Body::text(question)),
            resume: state.as_ref().and_then(resume),
            ..Ask::default()
        };
        Outcome::Pending(Box::new(Suspension { kind: SuspendFor::Auth, ask, timeout: None, secret: None }))
    }

    /// Whether the task is no longer as it was when the call began to wait.
    async fn has_news(&self, state: State) -> bool {
        let Some(card) = self.known().await else { return false };
        let task = match self.line(&card).get(&state.task, 0).await {
            Ok(task) => task,
            Err(SendError::UnknownTask(_)) => return true,
            Err(SendError::Login(_)) => return !state.login,
            Err(SendError::NotSent(_) | SendError::Lost(_) | SendError::Refused(_)) => return false,
        };
        if state.login || state.on_its_way.as_ref().is_some_and(|answer| answer.taken_at.is_none()) {
            return true;
        }
        match task.stage() {
            Stage::Working => state.asked.is_some(),
            Stage::Asks(_) => match (&state.asked, &state.on_its_way) {
                (Some(asked), _) => asked.key != task.key(),
                (None, Some(answer)) => answer.key != task.key() || self.has_settled(answer),
                (None, None) => true,
            },
            Stage::Done | Stage::Not(_) | Stage::Other(_) => true,
        }
    }

    /// Cancels a remote task whose call was given up; what stands in the way, as long as the task goes on.
    async fn cancel(&self, task: &str) -> Result<(), String> {
        let agent = &self.options.name;
        let Some(card) = self.known().await else {
            return Err(format!("the card of the remote agent `{agent}` cannot be fetched"));
        };
        let line = self.line(&card);
        let why = match line.cancel(task).await {
            Ok(()) => {
                tracing::info!(agent, task, "a2a: canceled a remote task whose call was given up");
                return Ok(());
            }
            Err(SendError::UnknownTask(_)) => return Ok(()),
            Err(why) => why.to_string(),
        };
        // One that has ended cannot be canceled, and need not be.
        match line.get(task, 0).await.map(|task| task.stage()) {
            Ok(Stage::Done | Stage::Not(_)) | Err(SendError::UnknownTask(_)) => Ok(()),
            Ok(Stage::Working | Stage::Asks(_) | Stage::Other(_)) | Err(_) => {
                Err(format!("the remote task {task} could not be canceled: {why}"))
            }
        }
    }

    fn shown_name(&self) -> String {
        self.card().map_or_else(|| self.options.name.clone(), |card| card.name)
    }
}

impl Tool for AsksRemote {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let remote = self.0.clone();
        Box::pin(async move {
            match &invocation.resumed {
                Some(resumed) => remote.go_on(&invocation, resumed).await,
                None => remote.begin(&invocation).await,
            }
        })
    }

    fn secrets(&self, _invocation: &Invocation) -> Option<SecretsFuture> {
        Some(Box::pin(std::future::ready(self.0.options.secrets())))
    }

    fn look(&self, _owner: &UserId) -> Option<LookupFuture> {
        let remote = self.0.clone();
        Some(Box::pin(async move {
            if let Err(trouble) = remote.look().await {
                let name = &remote.options.name;
                tracing::warn!(agent = name, %trouble, "a2a: could not fetch the card of a remote agent");
            }
        }))
    }

    fn changed(&self, shown: &ToolSpec, _owner: &UserId) -> Option<ToolChange> {
        let card = self.0.card()?;
        if shown.description.contains(&card::pin(Some(&card))) {
            return None;
        }
        let name = &self.0.options.name;
        let since = if shown.description.contains(&card::pin(None)) {
            "could not be fetched before, so nobody has seen it"
        } else {
            "has changed since the run started"
        };
        let reason = format!("the card of the remote agent `{name}` {since}; it is now: {}", card.told());
        Some(ToolChange { rule: format!("{CARD_RULE}:{}", card.digest), reason })
    }

    fn nature(&self) -> Nature<'_> {
        Nature::RemoteWork(self)
    }
}

impl RemoteWork for AsksRemote {
    fn watch(&self, state: &Body) -> Option<WatchFuture> {
        let (remote, state) = (self.0.clone(), read(state).ok()?);
        Some(Box::pin(async move { remote.has_news(state).await }))
    }

    fn abandon(&self, state: &Body) -> Option<AbandonFuture> {
        let (remote, state) = (self.0.clone(), read(state).ok()?);
        Some(Box::pin(async move { remote.cancel(&state.task).await }))
    }
}

fn read(state: &Body) -> Result<State, String> {
    serde_json::from_str(state.inline().unwrap_or_default()).map_err(|error| error.to_string())
}

fn resume(state: &State) -> Option<Box<Body>> {
    let text = serde_json::to_string(state).ok()?;
    Some(Box::new(Body::Json(RawJson::parse(&text).ok()?)))
}

fn failed(why: String) -> Outcome {
    Outcome::Done(ToolResult::Failed(Body::text(why)))
}
