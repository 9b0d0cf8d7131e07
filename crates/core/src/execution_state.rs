//! A run as Hector's session entry shows it: the flat `ExecutionState` (S0-15, S0-16, C27).
//!
//! A read view, made from the run and its events whenever somebody asks; a resume folds the events and needs none of
//! it. Fields that stand in it twice are written from one value. How its messages are spelled is
//! `execution_state/messages.rs`; a run can be made of it again where the events are not: `execution_state/restore.rs`.

mod messages;
mod restore;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::messages::{FileContent, LogPosition, Speaker, TurnCall, TurnMessage, TurnPart, TurnResult};
use self::messages::{json_of, spelled};
pub use self::restore::{RestoredRun, Setting};
use crate::body::Body;
use crate::definition::Definition;
use crate::event::{Envelope, Event, Outcome};
use crate::id::{CallId, RunId};
use crate::json::RawJson;
use crate::message::{Reply, ToolCall};
use crate::name::{AgentName, SessionId, ToolName};
use crate::run::{Call, CallState, Run};
use crate::transcript::{self, Entry};

/// A run that waits, as one flat value (S0-15).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionState {
    /// The run.
    pub task_id: RunId,
    /// The session.
    pub context_id: SessionId,
    /// The words of the first user message.
    pub query: String,
    /// The state of the loop.
    pub reasoning_state: ReasoningStateSnapshot,
    /// The first open call.
    pub pending_tool_call: Option<PendingCall>,
    /// All open calls.
    pub pending_tool_calls: Vec<PendingCall>,
    /// The conversation before the current turn.
    pub history: Vec<TurnMessage>,
    /// The last reply and what follows it.
    pub current_turn: Vec<TurnMessage>,
    /// Model replies so far.
    pub iteration: u32,
    /// Tokens read and written so far.
    pub total_tokens: u64,
    /// What the model has said so far, reply by reply.
    pub assistant_response: String,
}

/// The state of the loop (S0-16).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasoningStateSnapshot {
    /// Model replies so far.
    pub iteration: u32,
    /// Tokens read and written so far.
    pub total_tokens: u64,
    /// The conversation before the current turn.
    pub history: Vec<TurnMessage>,
    /// The last reply and what follows it.
    pub current_turn: Vec<TurnMessage>,
    /// What the model has said so far, reply by reply.
    pub assistant_response: String,
    /// The calls of the first reply, as it asked for them.
    pub first_iteration_tool_calls: Vec<PendingCall>,
    /// Whether the conversation has its last word.
    pub final_response_added: bool,
    /// The words of the first user message.
    pub query: String,
    /// The agent.
    pub agent_name: AgentName,
    /// Agents it may hand work to.
    pub sub_agents: Vec<AgentName>,
    /// Whether its thinking is shown.
    pub show_thinking: bool,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCall {
    /// Its id.
    pub id: CallId,
    /// The tool.
    pub name: ToolName,
    /// The arguments that will run; a string when they are not JSON, null while they are not filled in.
    pub arguments: RawJson,
}

/// Why bytes are no execution state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadState {
    /// They cannot be read; what the parser said.
    Unreadable(String),
    /// A field that stands in it twice has two values.
    Differs(&'static str),
    /// It is readable, and still no run can be made of it; why.
    CannotBeRestored(String),
}

impl fmt::Display for BadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadState::Unreadable(why) => write!(f, "the execution state cannot be read: {why}"),
            BadState::Differs(field) => {
                write!(f, "the execution state says two things: {field} and reasoning_state.{field} differ")
            }
            BadState::CannotBeRestored(why) => write!(f, "no run can be made of the execution state: {why}"),
        }
    }
}

impl std::error::Error for BadState {}

/// The run as one flat value. `events` are all of the run's, large values filled in.
#[must_use]
pub fn execution_state(run: &Run, definition: &Definition, events: &[Envelope]) -> ExecutionState {
    let id = run.facts.id;
    let mut history = transcript::transcript(events);
    let is_reply = |entry: &Entry| matches!(entry, Entry::Assistant(_));
    let current_turn = history.split_off(history.iter().rposition(is_reply).unwrap_or(history.len()));
    let session = &run.facts.session;
    let spell = |entries: Vec<Entry>| entries.into_iter().map(|entry| spelled(id, session, entry)).collect();
    let reasoning_state = ReasoningStateSnapshot {
        iteration: run.state.turn,
        total_tokens: run.state.usage.tokens(),
        history: spell(history),
        current_turn: spell(current_turn),
        assistant_response: said(events),
        first_iteration_tool_calls: first_calls(id, events),
        final_response_added: run.outcome() == Some(Outcome::Completed),
        query: query(events),
        agent_name: run.facts.agent.clone(),
        sub_agents: definition.sub_agents.clone(),
        show_thinking: definition.show_thinking,
    };
    let pending_tool_calls = open_calls(run, events);
    ExecutionState {
        task_id: id,
        context_id: run.facts.session.clone(),
        query: reasoning_state.query.clone(),
        pending_tool_call: pending_tool_calls.first().cloned(),
        pending_tool_calls,
        history: reasoning_state.history.clone(),
        current_turn: reasoning_state.current_turn.clone(),
        iteration: reasoning_state.iteration,
        total_tokens: reasoning_state.total_tokens,
        assistant_response: reasoning_state.assistant_response.clone(),
        reasoning_state,
    }
}

impl ExecutionState {
    /// The state as JSON bytes (S0-18).
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        match serde_json::to_vec(self) {
            Ok(bytes) => bytes,
            Err(_) => unreachable!("an execution state has only string keys"),
        }
    }

    /// The state behind JSON bytes (S0-18). Values that stand twice must agree.
    pub fn from_json(bytes: &[u8]) -> Result<ExecutionState, BadState> {
        let state: ExecutionState =
            serde_json::from_slice(bytes).map_err(|error| BadState::Unreadable(error.to_string()))?;
        let inner = &state.reasoning_state;
        let pairs = [
            ("query", state.query == inner.query),
            ("history", state.history == inner.history),
            ("current_turn", state.current_turn == inner.current_turn),
            ("iteration", state.iteration == inner.iteration),
            ("total_tokens", state.total_tokens == inner.total_tokens),
            ("assistant_response", state.assistant_response == inner.assistant_response),
        ];
        match pairs.into_iter().find(|(_, is_equal)| !is_equal) {
            Some((field, _)) => Err(BadState::Differs(field)),
            None => Ok(state),
        }
    }
}

fn query(events: &[Envelope]) -> String {
    let words = |envelope: &Envelope| {
        let (Event::MessageReceived(heard) | Event::MessageQueued(heard)) = &envelope.event else {
            return None;
        };
        Some(heard.message.words())
    };
    events.iter().find_map(words).unwrap_or_default()
}

fn said(events: &[Envelope]) -> String {
    let texts = replies(events).filter_map(|reply| reply.text.as_ref()?.inline());
    texts.collect::<Vec<_>>().join("\n")
}

fn first_calls(run: RunId, events: &[Envelope]) -> Vec<PendingCall> {
    let calls = replies(events).next().map(|reply| reply.calls.as_slice()).unwrap_or_default();
    calls.iter().map(|call| pending(run, call, &call.arguments)).collect()
}

fn open_calls(run: &Run, events: &[Envelope]) -> Vec<PendingCall> {
    let followed = transcript::results::follow(events);
    let is_open = |call: &&Call| match call.state {
        CallState::Ready | CallState::Started { .. } | CallState::Held => run.outcome().is_none(),
        CallState::Done(_) => false,
    };
    let tracks = run.state.calls.iter().filter(is_open).filter_map(|call| followed.calls.get(&call.no));
    tracks.map(|track| pending(run.facts.id, track.call, track.arguments())).collect()
}

fn pending(run: RunId, call: &ToolCall, arguments: &Body) -> PendingCall {
    PendingCall { id: CallId { run, no: call.no }, name: call.tool.clone(), arguments: json_of(arguments) }
}

fn replies(events: &[Envelope]) -> impl Iterator<Item = &Reply> {
    events.iter().filter_map(|envelope| {
        let Event::ModelReplied(replied) = &envelope.event else {
            return None;
        };
        Some(&replied.reply)
    })
}
