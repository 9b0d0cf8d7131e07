//! Between the words of the core and those of A2A: pure functions.
//!
//! Matches are exhaustive, so that a new status, kind or event forces a visit here. What an open hold asks is
//! `map/prompt.rs`; what a message decides is `decisions.rs`.

#![warn(clippy::wildcard_enum_match_arm)]

mod prompt;
#[cfg(test)]
mod tests;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine as _};
use serde::Serialize;
use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::event::{CallProgressed, Envelope, Event, HoldEdited, HoldResolved, HoldVoted, Outcome};
use standfast_core::hold::{HoldKind, Resolution};
use standfast_core::id::{HoldId, MessageId, RunId, Seq};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Part};
use standfast_core::name::SessionId;
use standfast_core::project::Phase;
use standfast_core::run::{Run, Status, WaitKind};
use standfast_engine::UnreadableRun;

use super::error::A2aError;
use super::wire::{self, Role, TaskState};
use crate::http::rfc3339;
use crate::labels::closure;

pub(super) use prompt::{listed, prompt};

/// The id of the one artifact of a task: its result.
const RESULT: &str = "result";

/// Where a run stands, in A2A's words. `below` are the open holds of its sub-runs: what it really waits for.
pub(super) fn state(status: Status, below: &[HoldKind]) -> TaskState {
    match status {
        Status::Queued => TaskState::Submitted,
        Status::Claimed | Status::Working | Status::Retrying(_) => TaskState::Working,
        Status::Held(WaitKind::Person) => TaskState::InputRequired,
        Status::Held(WaitKind::Auth) if below.iter().any(|kind| is_for_a_person(*kind)) => {
            TaskState::InputRequired
        }
        Status::Held(WaitKind::Auth) => TaskState::AuthRequired,
        Status::Held(WaitKind::External) if below.iter().any(|kind| is_for_a_person(*kind)) => {
            TaskState::InputRequired
        }
        Status::Held(WaitKind::External) if below.contains(&HoldKind::Auth) => TaskState::AuthRequired,
        Status::Held(WaitKind::External) => TaskState::Working,
        Status::Ended(Outcome::Completed) => TaskState::Completed,
        Status::Ended(Outcome::Failed) => TaskState::Failed,
        Status::Ended(Outcome::Canceled) => TaskState::Canceled,
        Status::Ended(Outcome::Rejected) => TaskState::Rejected,
    }
}

fn is_for_a_person(kind: HoldKind) -> bool {
    match kind {
        HoldKind::Approval | HoldKind::Input | HoldKind::Recovery => true,
        HoldKind::External | HoldKind::Auth => false,
    }
}

/// The phases that runs in this state can be in; with a sub-run below them they may be in another state all the same.
pub(super) fn phases(state: TaskState) -> Vec<Phase> {
    match state {
        TaskState::Submitted => vec![Phase::Queued],
        TaskState::Working => vec![Phase::Claimed, Phase::Working, Phase::Retrying, Phase::HeldForExternal],
        TaskState::InputRequired => vec![Phase::HeldForPerson, Phase::HeldForAuth, Phase::HeldForExternal],
        TaskState::AuthRequired => vec![Phase::HeldForAuth, Phase::HeldForExternal],
        TaskState::Completed => vec![Phase::Completed],
        TaskState::Failed => vec![Phase::Failed],
        TaskState::Canceled => vec![Phase::Canceled],
        TaskState::Rejected => vec![Phase::Rejected],
    }
}

/// What a client says, as the run keeps it.
pub(super) fn message(said: &wire::Message) -> Result<Message, A2aError> {
    let parts: Result<Vec<Part>, A2aError> =
        said.parts.iter().enumerate().map(|(at, part)| part_in(at, part)).collect();
    let metadata = said.metadata.as_ref().map(|metadata| {
        let invalid = |why: String| A2aError::invalid("message.metadata", why);
        let text = serde_json::to_string(metadata).map_err(|bad| invalid(bad.to_string()))?;
        RawJson::parse(&text).map(Body::Json).map_err(|bad| invalid(bad.to_string()))
    });
    let (parts, metadata) = (parts?, metadata.transpose()?);
    Ok(Message {
        parts,
        client_id: Some(said.message_id.clone()),
        metadata,
        references: said.reference_task_ids.clone().unwrap_or_default(),
        extensions: said.extensions.clone().unwrap_or_default(),
    })
}

fn part_in(at: usize, part: &wire::Part) -> Result<Part, A2aError> {
    let invalid = |what: &str, why: &str| A2aError::invalid(format!("message.parts[{at}]{what}"), why);
    let file = |content: &str| Part::File {
        name: part.filename.clone(),
        media_type: part.media_type.clone(),
        content: Body::text(content),
    };
    match (&part.text, &part.raw, &part.url, &part.data) {
        (Some(text), None, None, None) => Ok(Part::Text(Body::text(text))),
        (None, Some(raw), None, None) => {
            let is_base64 = BASE64_STANDARD.decode(raw).is_ok() || BASE64_URL_SAFE.decode(raw).is_ok();
            if is_base64 { Ok(file(raw)) } else { Err(invalid(".raw", "must be bytes in base 64")) }
        }
        // Base 64 has no colon, so the two can be told apart when they are shown again.
        (None, None, Some(url), None) if url.contains(':') => Ok(file(url)),
        (None, None, Some(_), None) => Err(invalid(".url", "must be a whole address, with its scheme")),
        (None, None, None, Some(data)) => {
            let json = RawJson::parse(data.get());
            json.map(|json| Part::Data(Body::Json(json))).map_err(|bad| invalid(".data", &bad.to_string()))
        }
        (_, _, _, _) => Err(invalid("", "must have exactly one of text, raw, url and data")),
    }
}

fn part_out(part: &Part) -> wire::Part {
    match part {
        Part::Text(body) => wire::Part::text(body.inline().unwrap_or_default()),
        Part::Data(body) => body_part(body, PartKind::Data),
        Part::File { name, media_type, content } => {
            let content = content.inline().unwrap_or_default().to_owned();
            let is_url = content.contains(':');
            wire::Part {
                url: is_url.then(|| content.clone()),
                raw: (!is_url).then_some(content),
                filename: name.clone(),
                media_type: media_type.clone(),
                ..wire::Part::default()
            }
        }
    }
}

/// What a text becomes: it may have been data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Text,
    Data,
}

fn body_part(body: &Body, wanted: PartKind) -> wire::Part {
    let data = |json: &RawJson| wire::Part { data: raw(json), ..wire::Part::default() };
    match body {
        Body::Text(text) if wanted == PartKind::Text => wire::Part::text(text),
        Body::Text(text) => data(&RawJson::string(text)),
        Body::Json(json) => data(json),
        Body::Blob(_) => wire::Part::text(""),
    }
}

/// JSON as it goes out: its text, untouched.
pub(super) fn raw(json: &RawJson) -> Option<wire::Json> {
    RawValue::from_string(json.text().to_owned()).ok()
}

/// Says who speaks where.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskIds<'a> {
    pub(super) run: RunId,
    pub(super) session: &'a SessionId,
}

impl TaskIds<'_> {
    pub(super) fn of(run: &Run) -> TaskIds<'_> {
        TaskIds { run: run.facts.id, session: &run.facts.session }
    }

    /// A message of the agent.
    pub(super) fn agent(self, id: MessageId, parts: Vec<wire::Part>) -> wire::Message {
        self.message(id.to_string(), Role::Agent, parts)
    }

    fn message(self, message_id: String, role: Role, parts: Vec<wire::Part>) -> wire::Message {
        wire::Message {
            message_id,
            context_id: Some(self.session.to_string()),
            task_id: Some(self.run.to_string()),
            role,
            parts,
            metadata: None,
            extensions: None,
            reference_task_ids: None,
        }
    }
}

/// Everything that was said, in order: by the client, by the agent, and what people decided, wherever they did.
pub(super) fn history(place: TaskIds<'_>, events: &[Envelope]) -> Vec<wire::Message> {
    events.iter().filter_map(|envelope| said(place, envelope, events)).collect()
}

/// What an event says, among these of its run.
fn said(place: TaskIds<'_>, envelope: &Envelope, events: &[Envelope]) -> Option<wire::Message> {
    let id = MessageId { run: place.run, seq: envelope.seq };
    match &envelope.event {
        Event::MessageReceived(received) | Event::MessageQueued(received) => {
            Some(written(place, id, &received.message))
        }
        Event::CallProgressed(progressed) => {
            denial(progressed, events).map(|part| place.agent(id, vec![part]))
        }
        Event::HoldVoted(HoldVoted { message: Some(message), .. })
        | Event::HoldEdited(HoldEdited { message: Some(message), .. }) => Some(written(place, id, message)),
        Event::ModelReplied(replied) => {
            let words = replied.reply.text.iter().map(|text| body_part(text, PartKind::Text));
            let parts: Vec<wire::Part> = words.chain(replied.reply.parts.iter().map(part_out)).collect();
            (!parts.is_empty()).then(|| place.agent(id, parts))
        }
        Event::HoldResolved(resolved) => {
            let hold = HoldId { run: place.run, key: resolved.hold };
            if let Some(word) = undecided(&resolved.resolution) {
                // Nobody decided: it is shown as what it is.
                let data = wire::Part::data(&ClosureData { decision: word, hold_id: hold.to_string() });
                let text = closure(resolved, events.iter()).map(wire::Part::text);
                return Some(place.agent(id, text.into_iter().chain([data]).collect()));
            }
            let by = envelope.actor.user()?;
            let part = decided(resolved, hold.to_string(), by.to_string())?;
            // What was decided, and behind it the message that decided, as it was sent.
            if let Some(message) = &resolved.message {
                let message = written(place, id, message);
                let parts = std::iter::once(part).chain(message.parts).collect();
                return Some(wire::Message { parts, ..message });
            }
            // An answer in words is also shown as the words that were said.
            let words = match &resolved.resolution {
                Resolution::Answer { value: Body::Text(text) } => Some(wire::Part::text(text)),
                Resolution::Answer { .. }
                | Resolution::Approve { .. }
                | Resolution::Deny { .. }
                | Resolution::Fail { .. }
                | Resolution::Expire
                | Resolution::Withdraw
                | Resolution::Supersede => None,
            };
            let parts = std::iter::once(part).chain(words).collect();
            Some(place.message(id.to_string(), Role::User, parts))
        }
        Event::RunStarted(_)
        | Event::RunClaimed(_)
        | Event::RunReleased(_)
        | Event::RunRepinned(_)
        | Event::RunErased(_)
        | Event::RunEnded(_)
        | Event::ModelFailed(_)
        | Event::CallProposed(_)
        | Event::CallStarted(_)
        | Event::CallReturned(_)
        | Event::CallFinished(_)
        | Event::CallOrphaned(_)
        | Event::CallContradicted(_)
        | Event::HoldOpened(_)
        | Event::HoldVoted(HoldVoted { message: None, .. })
        | Event::HoldEdited(HoldEdited { message: None, .. })
        | Event::HoldAssigned(_)
        | Event::HoldReminded(_)
        | Event::HoldExpired(_)
        | Event::HoldReopened(_)
        | Event::HoldEscalated(_)
        | Event::HoldDelegated(_) => None,
    }
}

/// What readers of a stream get of a call that was denied without anybody being asked (S0-30). What jobs report on their
/// way is for those who look at them.
fn denial(progressed: &CallProgressed, events: &[Envelope]) -> Option<wire::Part> {
    let is_refused = |envelope: &Envelope| {
        let Event::ModelReplied(replied) = &envelope.event else { return false };
        replied.reply.calls.iter().any(|call| call.no == progressed.call && call.refused.is_some())
    };
    events.iter().any(is_refused).then(|| body_part(&progressed.note, PartKind::Text))
}

/// What did not go on with one append: calls that were denied at once, and holds that were denied, expired or were
/// withdrawn. `before` are the events before it.
pub(super) fn denials(before: &[Envelope], append: &[Envelope]) -> Vec<wire::Part> {
    let of_event = |envelope: &Envelope| {
        if let Event::HoldResolved(resolved) = &envelope.event {
            closure(resolved, before.iter().chain(append)).map(wire::Part::text)
        } else if let Event::CallProgressed(progressed) = &envelope.event {
            denial(progressed, append)
        } else {
            None
        }
    };
    append.iter().filter_map(of_event).collect()
}

/// A message as its sender wrote it.
fn written(place: TaskIds<'_>, id: MessageId, said: &Message) -> wire::Message {
    let parts = said.parts.iter().map(part_out).collect();
    let metadata = said.metadata.as_ref().and_then(Body::inline);
    let metadata = metadata.and_then(|text| serde_json::from_str(text).ok());
    let own = said.client_id.clone().unwrap_or_else(|| id.to_string());
    let message = place.message(own, Role::User, parts);
    let listed = |texts: &[String]| (!texts.is_empty()).then(|| texts.to_vec());
    let (extensions, reference_task_ids) = (listed(&said.extensions), listed(&said.references));
    wire::Message { metadata, extensions, reference_task_ids, ..message }
}

/// What a person decided, in the form in which clients send it.
fn decided(resolved: &HoldResolved, hold_id: String, decided_by: String) -> Option<wire::Part> {
    #[derive(Serialize)]
    struct DecisionData<'a> {
        decision: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        modified_input: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<wire::Json>,
        hold_id: String,
        decided_by: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        in_place_of: Option<String>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    }
    let plain = |decision| DecisionData {
        decision,
        modified_input: None,
        reason: None,
        answer: None,
        hold_id: hold_id.clone(),
        decided_by: decided_by.clone(),
        in_place_of: resolved.in_place_of.as_ref().map(ToString::to_string),
        late: resolved.late,
    };
    let decided = match &resolved.resolution {
        Resolution::Approve { edited: None } => plain("approve"),
        Resolution::Approve { edited: Some(edited) } => {
            DecisionData { modified_input: edited.arguments.inline(), ..plain("modify") }
        }
        Resolution::Deny { reason } => DecisionData { reason: reason.as_deref(), ..plain("deny") },
        Resolution::Answer { value } => {
            DecisionData { answer: body_part(value, PartKind::Data).data, ..plain("answer") }
        }
        Resolution::Fail { error } => DecisionData { reason: error.inline(), ..plain("fail") },
        Resolution::Expire | Resolution::Withdraw | Resolution::Supersede => return None,
    };
    Some(wire::Part::data(&decided))
}

/// A hold that ended without a decision, for programs.
#[derive(Serialize)]
struct ClosureData {
    decision: &'static str,
    hold_id: String,
}

/// The word for a hold that ended without a decision of anybody.
fn undecided(resolution: &Resolution) -> Option<&'static str> {
    match resolution {
        Resolution::Expire => Some("expired"),
        Resolution::Withdraw => Some("withdrawn"),
        Resolution::Supersede => Some("superseded"),
        Resolution::Approve { .. }
        | Resolution::Deny { .. }
        | Resolution::Answer { .. }
        | Resolution::Fail { .. } => None,
    }
}

/// What a run that has ended says at last: its result, or why there is none.
pub(super) fn last_words(place: TaskIds<'_>, events: &[Envelope]) -> Option<wire::Message> {
    let ended = |envelope: &Envelope| {
        let Event::RunEnded(ended) = &envelope.event else { return None };
        Some((envelope.seq, ended.clone()))
    };
    let (at, ended) = events.iter().rev().find_map(ended)?;
    match (ended.outcome, &ended.result, &ended.reason) {
        (Outcome::Completed, Some(result), _) => {
            let id = MessageId { run: place.run, seq: at };
            Some(place.agent(id, vec![body_part(result, PartKind::Text)]))
        }
        (Outcome::Completed, None, _) => last_reply(place, events),
        (Outcome::Failed | Outcome::Canceled | Outcome::Rejected, _, Some(reason)) => {
            let id = MessageId { run: place.run, seq: at };
            Some(place.agent(id, vec![wire::Part::text(reason)]))
        }
        (Outcome::Failed | Outcome::Canceled | Outcome::Rejected, _, None) => None,
    }
}

/// What the model said last.
pub(super) fn last_reply(place: TaskIds<'_>, events: &[Envelope]) -> Option<wire::Message> {
    let replied = |envelope: &&Envelope| matches!(envelope.event, Event::ModelReplied(_));
    events.iter().rev().filter(replied).find_map(|envelope| said(place, envelope, events))
}

/// What a status says of a message: its words and data. Files are in the artifact alone, where they are not twice.
pub(super) fn spoken(mut message: wire::Message) -> Option<wire::Message> {
    message.parts.retain(|part| part.raw.is_none() && part.url.is_none());
    (!message.parts.is_empty()).then_some(message)
}

/// The result of a task that completed, as an artifact.
pub(super) fn artifact(words: &wire::Message) -> wire::Artifact {
    wire::Artifact { artifact_id: RESULT.to_owned(), name: RESULT, parts: words.parts.clone() }
}

/// The same artifact while it is made: words that may be the result.
pub(super) fn words(text: &str) -> wire::Artifact {
    wire::Artifact { artifact_id: RESULT.to_owned(), name: RESULT, parts: vec![wire::Part::text(text)] }
}

/// A task as it is shown: `waiting` is what it asks, `None` where it waits for nobody.
pub(super) fn task(
    run: &Run,
    below: &[HoldKind],
    events: &[Envelope],
    waiting: Option<wire::Message>,
) -> wire::Task {
    let place = TaskIds::of(run);
    let state = state(standfast_core::run::status(run), below);
    let message = if state.is_terminal() { last_words(place, events) } else { waiting };
    let artifacts = match (state, &message) {
        (TaskState::Completed, Some(words)) => vec![artifact(words)],
        (_, _) => Vec::new(),
    };
    wire::Task {
        id: run.facts.id.to_string(),
        context_id: run.facts.session.to_string(),
        status: wire::TaskStatus {
            state,
            message: message.and_then(spoken),
            timestamp: rfc3339(run.state.at),
        },
        artifacts,
        history: history(place, events),
    }
}

/// A run whose rows cannot be read is a task that failed, with what its columns still say (C35).
pub(super) fn unreadable(found: &UnreadableRun) -> Option<wire::Task> {
    let facts = found.facts.as_ref()?;
    let place = TaskIds { run: found.run, session: &facts.session };
    let text = format!("failed to load execution state: {}", found.why);
    let message = place.agent(MessageId { run: found.run, seq: Seq(0) }, vec![wire::Part::text(text)]);
    let (state, timestamp) = (TaskState::Failed, rfc3339(facts.started_at));
    Some(wire::Task {
        id: found.run.to_string(),
        context_id: facts.session.to_string(),
        status: wire::TaskStatus { state, message: Some(message), timestamp },
        artifacts: Vec::new(),
        history: Vec::new(),
    })
}

/// Says one thing more about where a task stands.
pub(super) fn add_notice(task: &mut wire::Task, notice: &str) {
    let part = wire::Part::text(notice);
    match &mut task.status.message {
        Some(message) => message.parts.push(part),
        None => {
            task.status.message = Some(wire::Message {
                message_id: format!("{}-notice", task.id),
                context_id: Some(task.context_id.clone()),
                task_id: Some(task.id.clone()),
                role: Role::Agent,
                parts: vec![part],
                metadata: None,
                extensions: None,
                reference_task_ids: None,
            });
        }
    }
}

/// Only the last so many messages; none means as many as this server shows.
pub(super) fn shorten(task: &mut wire::Task, history_length: usize) {
    let surplus = task.history.len().saturating_sub(history_length);
    task.history.drain(..surplus);
}
