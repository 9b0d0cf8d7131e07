//! The conversation that a model is asked with, made from a run's events.
//!
//! Every call has at most one result, directly behind the reply that asked for it, and exactly one once the turn is
//! over or the run has ended: providers refuse anything else. The outcome of each call is `transcript/results.rs`, what
//! will run is `transcript/stored_call.rs`, what people are asked with is `transcript/prompt.rs`, what a reply names as what it
//! was asked with is `transcript/digest.rs`, what came before the run in its conversation is `transcript/history.rs`. How a provider spells a conversation is not known here.

pub(crate) mod digest;
mod history;
mod prompt;
pub(crate) mod results;
mod stored_call;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::digest::results_digest;
pub use self::history::history;
pub use self::prompt::{approval_text, warned_approval_text};
use self::results::{CallTracks, Execution};
pub use self::stored_call::{Continuation, continuation, stored_call};
use crate::body::{BlobForm, Body};
use crate::event::{Driver, Envelope, Event};
use crate::hold::{HoldKind, Resolution};
use crate::id::{CallNo, Seq};
use crate::json::RawJson;
use crate::message::{Message, Part, ToolCall};
use crate::name::ToolName;

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// What a client said.
    User(UserMessage),
    /// What the model, or an outside worker, replied.
    Assistant(AssistantReply),
    /// The result of a call of the reply before it.
    Tool(CallResult),
}

/// What a client said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMessage {
    /// The event that brought it.
    pub seq: Seq,
    /// The message.
    pub message: Message,
}

/// What the model replied. A call that an outside worker proposed is a reply of one call without words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssistantReply {
    /// The event that brought it.
    pub seq: Seq,
    /// Its words.
    pub text: Option<Body>,
    /// The calls it asked for, as it asked for them, whatever ran in the end.
    pub calls: Vec<ReplyCall>,
    /// The provider's own blocks, byte for byte.
    pub opaque: Option<Body>,
    /// The model that answered, when it is not the pinned one: opaque blocks are understood by their maker only.
    pub model: Option<String>,
}

/// A call as the model asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyCall {
    /// Its number in the run.
    pub no: CallNo,
    /// The provider's id for it; may repeat, may be empty.
    pub id: String,
    /// The tool.
    pub tool: ToolName,
    /// The argument text.
    pub arguments: Body,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// Which call.
    pub call: CallNo,
    /// The provider's id for it.
    pub id: String,
    /// The tool.
    pub tool: ToolName,
    /// What it is, as one word.
    pub kind: ResultKind,
    /// What the tool, a person or an outside system said; for a call that has no such word, a JSON object of
    /// `status` (the kind) and `reason`.
    pub content: Body,
    /// The arguments that ran, when a person put them in the place of the model's.
    pub ran_with: Option<Body>,
}

/// The outcome of a call, as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultKind {
    /// The tool, a person or an outside system gave the result.
    Ok,
    /// The tool or the outside system failed.
    Failed,
    /// It never ran: unknown tool, bad arguments, a rule, a cap.
    Refused,
    /// A person denied it.
    Denied,
    /// Nobody decided, or reported, in time.
    Expired,
    /// It never ran: a newer message took its place.
    Superseded,
    /// The outside job is no longer waited for (C37).
    Withdrawn,
    /// It never ran: the run ended first.
    Canceled,
    /// A person says that a started call did not happen.
    DidNotHappen,
    /// It may have run; nobody knows.
    Unknown,
}

/// The conversation of a run, from all its events in order. Large values may have been filled in; others pass as they
/// are. While the run goes on, calls that have no result yet have no entry.
#[must_use]
pub fn transcript(events: &[Envelope]) -> Vec<Entry> {
    let followed = results::follow(events);
    let mut heard = events.iter().filter_map(|envelope| heard(&followed, envelope)).peekable();
    let mut entries = Vec::new();
    let mut told = 0;
    for (known, reply) in events.iter().filter_map(replied) {
        // What came while the model was thinking it has not heard: that follows its turn.
        while let Some(message) = heard.next_if(|message| known.covers(message, told)) {
            entries.push(Entry::User(message));
            told += 1;
        }
        let results: Vec<_> = reply.calls.iter().filter_map(|call| result(&followed, call)).collect();
        entries.push(Entry::Assistant(reply));
        entries.extend(results.into_iter().map(Entry::Tool));
    }
    entries.extend(heard.map(Entry::User));
    entries
}

impl CallResult {
    /// The text for the model. None while a part of it is stored beside the log and not filled in.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        #[derive(Serialize)]
        struct EditedResult {
            note: &'static str,
            arguments_that_ran: RawJson,
            result: RawJson,
        }
        let Some(arguments) = &self.ran_with else {
            return self.content.inline().map(str::to_owned);
        };
        let note = "a person changed the arguments of this call; it ran with these";
        let told =
            EditedResult { note, arguments_that_ran: as_json(arguments)?, result: as_json(&self.content)? };
        serde_json::to_string(&told).ok()
    }

    /// Why the call has no result of its own, in words, when it has none and there is a reason.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Reason {
            reason: Option<String>,
        }
        match self.kind {
            ResultKind::Ok | ResultKind::Failed => None,
            ResultKind::Refused
            | ResultKind::Denied
            | ResultKind::Expired
            | ResultKind::Superseded
            | ResultKind::Withdrawn
            | ResultKind::Canceled
            | ResultKind::DidNotHappen
            | ResultKind::Unknown => serde_json::from_str::<Reason>(self.content.inline()?).ok()?.reason,
        }
    }
}

/// A value as JSON: a text becomes a string.
pub(crate) fn as_json(body: &Body) -> Option<RawJson> {
    match body {
        Body::Text(text) => Some(RawJson::string(text)),
        Body::Json(json) => Some(json.clone()),
        Body::Blob(_) => None,
    }
}

/// What an event says to the model in the name of the user.
fn heard(followed: &CallTracks<'_>, envelope: &Envelope) -> Option<UserMessage> {
    let seq = envelope.seq;
    match &envelope.event {
        Event::MessageReceived(received) | Event::MessageQueued(received) => {
            Some(UserMessage { seq, message: received.message.clone() })
        }
        // An outside worker that asked a question has no call whose result the answer could be (S4-13).
        Event::HoldResolved(resolved) if resolved.hold.call == CallNo::RUN => {
            let Resolution::Answer { value } = &resolved.resolution else {
                return None;
            };
            let is_question = followed.kind_of(resolved.hold) == Some(HoldKind::Input);
            let is_for_worker = is_question && followed.driver == Driver::Outside;
            is_for_worker.then(|| UserMessage { seq, message: answer(value) })
        }
        Event::HoldResolved(_)
        | Event::RunStarted(_)
        | Event::RunClaimed(_)
        | Event::RunReleased(_)
        | Event::RunRepinned(_)
        | Event::RunErased(_)
        | Event::RunEnded(_)
        | Event::ModelReplied(_)
        | Event::ModelFailed(_)
        | Event::CallProposed(_)
        | Event::CallStarted(_)
        | Event::CallReturned(_)
        | Event::CallProgressed(_)
        | Event::CallFinished(_)
        | Event::CallOrphaned(_)
        | Event::CallContradicted(_)
        | Event::HoldOpened(_)
        | Event::HoldVoted(_)
        | Event::HoldEdited(_)
        | Event::HoldAssigned(_)
        | Event::HoldReminded(_)
        | Event::HoldExpired(_)
        | Event::HoldReopened(_)
        | Event::HoldEscalated(_)
        | Event::HoldDelegated(_) => None,
    }
}

fn answer(value: &Body) -> Message {
    let is_text = match value {
        Body::Text(_) => true,
        Body::Json(_) => false,
        Body::Blob(name) => name.form == BlobForm::Text,
    };
    let part = if is_text { Part::Text(value.clone()) } else { Part::Data(value.clone()) };
    Message::of(vec![part])
}

/// What was known when a reply was made.
enum ReplyBasis {
    /// This many messages.
    Messages(u32),
    /// Everything before this event.
    Before(Seq),
}

impl ReplyBasis {
    fn covers(&self, message: &UserMessage, told: u32) -> bool {
        match self {
            ReplyBasis::Messages(heard) => told < *heard,
            ReplyBasis::Before(seq) => message.seq < *seq,
        }
    }
}

/// A reply, and what was known when it was made.
fn replied(envelope: &Envelope) -> Option<(ReplyBasis, AssistantReply)> {
    let seq = envelope.seq;
    if let Event::ModelReplied(replied) = &envelope.event {
        let reply = &replied.reply;
        let (text, opaque, model) = (reply.text.clone(), reply.opaque.clone(), reply.model.clone());
        let calls = reply.calls.iter().map(asked).collect();
        return Some((
            ReplyBasis::Messages(replied.heard),
            AssistantReply { seq, text, calls, opaque, model },
        ));
    }
    let Event::CallProposed(proposed) = &envelope.event else {
        return None;
    };
    let calls = vec![asked(&proposed.call)];
    Some((ReplyBasis::Before(seq), AssistantReply { seq, text: None, calls, opaque: None, model: None }))
}

fn asked(call: &ToolCall) -> ReplyCall {
    ReplyCall { no: call.no, id: call.id.clone(), tool: call.tool.clone(), arguments: call.arguments.clone() }
}

fn result(followed: &CallTracks<'_>, asked: &ReplyCall) -> Option<CallResult> {
    let track = followed.calls.get(&asked.no)?;
    let came_to = followed.result(track)?;
    let edited = track.sent.filter(|_| came_to.ran != Execution::No);
    Some(CallResult {
        call: asked.no,
        id: asked.id.clone(),
        tool: asked.tool.clone(),
        kind: came_to.kind,
        content: came_to.content,
        ran_with: edited.map(|edited| edited.arguments.clone()),
    })
}
