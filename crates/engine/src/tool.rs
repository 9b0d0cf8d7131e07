//! What the engine asks of a tool: what a call that may run does, and what is asked about it before.
//!
//! A tool gets the argument text that was decided on, byte for byte, and a fencing token that names this one start. It
//! says what came of it, or that something outside must happen first. The tools that need nothing but the engine stand
//! beside it: `read_result` reads the log, `suspend` asks a person. All others are not known here.

pub mod login;
mod nature;
pub mod preview;
pub mod read_result;
pub mod secrets;
pub mod suspend;

use std::future::Future;
use std::pin::Pin;

use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::ToolSpec;
use standfast_core::hold::Ask;
use standfast_core::id::{CallId, HoldId, MessageId, Secret};
use standfast_core::json::RawJson;
use standfast_core::message::ToolResult;
use standfast_core::name::{SessionId, ToolName, UserId};
use standfast_core::time::Millis;
use standfast_core::transcript::Continuation;

use self::preview::{CallPreview, Risk};
use self::secrets::Secrets;

pub use nature::{
    AbandonFuture, CommandLine, Delegation, FileChanger, LogReader, Nature, OutsideJobs, RemoteWork, SubRun,
    WatchFuture,
};

/// One start of a call.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Which call.
    pub call: CallId,
    /// Which start of it. With the call it is the token that a tool can fence by.
    pub attempt: u32,
    /// The argument text.
    pub arguments: String,
    /// What the agent calls the tool.
    pub tool: ToolName,
    /// The session of the run.
    pub session: SessionId,
    /// The assistant's message that asked for it.
    pub message: MessageId,
    /// The model's own id of the call; may be empty.
    pub asked_as: String,
    /// Whose logins it uses: the user whose run it is, told apart from users of other tenants.
    pub owner: UserId,
    /// What it goes on with, when it has asked for something before: see [`Ask::resume`].
    pub resumed: Option<CallContinuation>,
    /// The hold that the call would wait in: known before, so that the outside can be given its id. A
    /// tool that told it returns its secret with [`Suspension`].
    pub pending: HoldId,
}

/// What a call goes on with: what it left with its question, and the answer.
pub type CallContinuation = Continuation;

impl Invocation {
    /// What names this start to the outside: `run/call/attempt`.
    #[must_use]
    pub fn token(&self) -> String {
        format!("{}/{}/{}", self.call.run, self.call.no, self.attempt)
    }
}

/// The result of a start.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It has ended.
    Done(ToolResult),
    /// It was started and nobody knows what it did: a person is asked, unless it may simply be started again.
    Unknown(String),
    /// Something outside must happen first; nothing has been done yet that would need to be repeated.
    Pending(Box<Suspension>),
}

/// What a call waits for.
#[derive(Debug, Clone)]
pub struct Suspension {
    /// A person, an outside system or a login.
    pub kind: SuspendFor,
    /// What is asked.
    pub ask: Ask,
    /// How long it may take, when that is not the agent's policy.
    pub timeout: Option<Millis>,
    /// The secret of [`Invocation::pending`], when somebody outside was told that id.
    pub secret: Option<Secret>,
}

/// What a tool says of arguments before it is asked to run them. Later ones are stricter, and the strictest of this and
/// what the agent's settings say wins: a tool can ask for a person, never do without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing against them.
    Allow,
    /// A person has to look at them.
    Ask(HoldReason),
    /// They must not run; the model gets the reason.
    Forbid(HoldReason),
}

/// Why a tool does not simply run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldReason {
    /// The rule, as the log names it.
    pub rule: &'static str,
    /// In words, for people or for the model.
    pub reason: String,
}

/// What is different about a tool from how it was described to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChange {
    /// The rule, as the log names it. An approval satisfies exactly this change: its name says which.
    pub rule: String,
    /// What is different, for the person who is asked.
    pub reason: String,
}

/// A look at something outside.
pub type LookupFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a call goes on with when nobody answered: it finds out by itself how things are outside.
#[must_use]
pub fn look_again() -> Body {
    let Ok(json) = RawJson::parse(r#"{"standfast":"look again"}"#) else {
        unreachable!("a constant that the tests read")
    };
    Body::Json(json)
}

/// Who is to be told when a job is settled, as it stands in what is asked.
#[must_use]
pub fn webhook_url(ask: &Ask) -> Option<String> {
    let said: serde_json::Value = serde_json::from_str(ask.data.as_ref()?.inline()?).ok()?;
    said.get("webhookURL")?.as_str().map(str::to_owned)
}

/// The result of running.
pub type ToolFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What the outside was given for a call, as of when it is asked.
pub type SecretsFuture = Pin<Box<dyn Future<Output = Secrets> + Send>>;

/// Something that a model can call. What it is called, takes and promises stands in the agent's definition.
pub trait Tool: Send + Sync {
    /// Runs it. Dropping the future stops it as far as that is possible.
    fn run(&self, invocation: Invocation) -> ToolFuture;

    /// The secrets that the outside gets with this call. They are cut from whatever comes of it before that is stored
    /// (T29); asked for after the call, so that one that was renewed meanwhile is among them. None: it gets none.
    fn secrets(&self, _invocation: &Invocation) -> Option<SecretsFuture> {
        None
    }

    /// What it says of arguments, before people are asked and again directly before it runs. Arguments that cannot be
    /// read are never allowed by a tool that judges at all.
    fn judge(&self, _arguments: &str) -> Judgement {
        Judgement::Allow
    }

    /// Finds out how things are outside for a user, for [`Tool::changed`]; none for a tool that cannot change by itself.
    /// Done directly before a call starts.
    fn look(&self, _owner: &UserId) -> Option<LookupFuture> {
        None
    }

    /// What is different for a user, since the last look, from its definition in this run (T3).
    fn changed(&self, _shown: &ToolSpec, _owner: &UserId) -> Option<ToolChange> {
        None
    }

    /// What is known of the harm that these arguments can do; none where that is not known.
    fn risk(&self, _arguments: &str) -> Option<Risk> {
        None
    }

    /// What these arguments would do, for the person who decides. Reads at most; may block for as long as that takes.
    fn preview(&self, _arguments: &str) -> Option<CallPreview> {
        None
    }

    /// Where the engine has to treat it in a way of its own.
    fn nature(&self) -> Nature<'_> {
        Nature::Plain
    }
}
