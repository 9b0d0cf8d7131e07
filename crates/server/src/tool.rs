//! Tools: what a call that may run does.
//!
//! A tool gets the argument text that was decided on, byte for byte, and a fencing token that names this one start. It
//! says what came of it, or that something outside must happen first.

pub mod agent;
pub mod child;
pub mod command;
pub mod suspend;

use std::future::Future;
use std::pin::Pin;

use holdpoint_core::command::SuspendFor;
use holdpoint_core::hold::Ask;
use holdpoint_core::id::CallId;
use holdpoint_core::message::{Message, ToolResult};
use holdpoint_core::name::AgentName;
use holdpoint_core::time::Millis;

/// One start of a call.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Which call.
    pub call: CallId,
    /// Which start of it. With the call it is the token that a tool can fence by.
    pub attempt: u32,
    /// The argument text.
    pub arguments: String,
}

impl Invocation {
    /// What names this start to the outside: `run/call/attempt`.
    #[must_use]
    pub fn token(&self) -> String {
        format!("{}/{}/{}", self.call.run, self.call.no, self.attempt)
    }
}

/// What a start came to.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It is over.
    Done(ToolResult),
    /// It was started and nobody knows what it did: a person is asked, unless it may simply be started again.
    Unknown(String),
    /// Something outside must happen first; nothing has been done yet that would need to be repeated.
    Pending(Box<Pending>),
}

/// What a call waits for.
#[derive(Debug, Clone)]
pub struct Pending {
    /// A person, an outside system or a login.
    pub kind: SuspendFor,
    /// What is asked.
    pub ask: Ask,
    /// How long it may take, when that is not the agent's policy.
    pub timeout: Option<Millis>,
}

/// Work for another agent of this server.
#[derive(Debug, Clone)]
pub struct SubRun {
    /// Which agent.
    pub agent: AgentName,
    /// What it shall do.
    pub message: Message,
}

/// What running comes to.
pub type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Something that a model can call. What it is called, takes and promises stands in the agent's definition.
pub trait Tool: Send + Sync {
    /// Runs it. Dropping the future stops it as far as that is possible.
    fn run(&self, invocation: Invocation) -> Running;

    /// The run that these arguments ask another agent of this server for; none for every other tool.
    fn sub_run(&self, _arguments: &str) -> Option<SubRun> {
        None
    }
}
