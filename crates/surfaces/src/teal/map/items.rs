//! The trail of a task: what was said, asked, decided and done, as items in the order of the log (S1-21 to S1-24).
//!
//! A decision stands before what follows from it, because its event does. Pending calls stand with the reply that asked
//! for them, or where the question came up.

use standfast_core::event::{Envelope, Event, Outcome};
use standfast_core::hold::{HoldKind, Resolution};
use standfast_core::id::{CallId, CallNo, HoldKey, MessageId, RequestId};
use standfast_core::message::ToolResult;
use standfast_core::request::{Request, requests};
use standfast_core::run::status;
use standfast_core::time::Timestamp;

use super::{TaskLog, function_call, is_asked, shown, task_status};
use crate::http::rfc3339;
use crate::labels::closure;
use crate::teal::wire::{
    AgentTask, AgentTaskItem, ContentType, Decision, FunctionResult, MultiModalItem, Role,
};

/// A task as it is shown: `below` are the open holds of its sub-runs.
pub(in crate::teal) fn task(told: TaskLog<'_>, below: &[HoldKind]) -> AgentTask {
    let facts = &told.run.facts;
    AgentTask {
        session_id: facts.session.to_string(),
        task_id: facts.id.to_string(),
        user_id: facts.owner.to_string(),
        items: Trail::of(told),
        created_at: rfc3339(facts.started_at),
        last_updated: rfc3339(told.run.state.at),
        status: task_status(status(told.run), below),
    }
}

/// The items so far.
struct Trail<'a> {
    told: TaskLog<'a>,
    requests: Vec<Request>,
    items: Vec<AgentTaskItem>,
    /// The invocation that items belong to now.
    invocation: String,
    /// The item of the last reply, and when that came.
    replied: Option<(usize, Timestamp)>,
    /// The decision that was noted last: one for each request, however many holds it had.
    decided: Option<(String, Timestamp)>,
}

impl Trail<'_> {
    fn of(told: TaskLog<'_>) -> Vec<AgentTaskItem> {
        let mut trail = Trail {
            told,
            requests: requests(told.log),
            items: Vec::new(),
            invocation: String::new(),
            replied: None,
            decided: None,
        };
        for envelope in told.log {
            trail.take(envelope);
        }
        // A reply of calls alone, none of which waited, says nothing.
        let says = |item: &AgentTaskItem| item.pending_tool_calls.is_some() || !item.item.content.is_empty();
        trail.items.into_iter().filter(says).collect()
    }

    fn take(&mut self, envelope: &Envelope) {
        let run = self.told.run.facts.id;
        match &envelope.event {
            Event::MessageReceived(received) | Event::MessageQueued(received) => {
                self.invocation = MessageId { run, seq: envelope.seq }.to_string();
                for part in &received.message.parts {
                    self.add(envelope, Role::User, shown(part));
                }
            }
            Event::ModelReplied(replied) => {
                let words = replied.reply.text.as_ref().and_then(|text| text.inline()).unwrap_or_default();
                self.replied = Some((self.items.len(), envelope.at));
                self.add(envelope, Role::Assistant, text(words.to_owned()));
                for part in &replied.reply.parts {
                    self.add(envelope, Role::Assistant, shown(part));
                }
            }
            Event::HoldOpened(opened) if is_asked(opened.kind) => self.wait(envelope, opened.hold),
            Event::HoldResolved(resolved) => {
                if let Some(action) = self.action(envelope, &resolved.resolution) {
                    self.decide(envelope, resolved.hold, (action, resolved.late));
                } else if let Some(closed) = closure(resolved, self.told.log.iter()) {
                    self.add(envelope, Role::Assistant, text(closed));
                }
            }
            Event::CallFinished(finished) => {
                let (ToolResult::Ok(body) | ToolResult::Failed(body)) = &finished.result;
                self.finish(envelope, finished.call, body.inline().unwrap_or_default());
            }
            Event::HoldOpened(_)
            | Event::RunStarted(_)
            | Event::RunClaimed(_)
            | Event::RunReleased(_)
            | Event::RunRepinned(_)
            | Event::RunErased(_)
            | Event::RunEnded(_)
            | Event::ModelFailed(_)
            | Event::CallProposed(_)
            | Event::CallStarted(_)
            | Event::CallReturned(_)
            | Event::CallProgressed(_)
            | Event::CallOrphaned(_)
            | Event::CallContradicted(_)
            | Event::HoldVoted(_)
            | Event::HoldEdited(_)
            | Event::HoldAssigned(_)
            | Event::HoldReminded(_)
            | Event::HoldExpired(_)
            | Event::HoldReopened(_)
            | Event::HoldEscalated(_)
            | Event::HoldDelegated(_) => {}
        }
    }

    fn add(&mut self, envelope: &Envelope, role: Role, item: MultiModalItem) {
        self.items.push(AgentTaskItem {
            request_id: self.invocation.clone(),
            task_id: self.told.run.facts.id.to_string(),
            role,
            item,
            updated: rfc3339(envelope.at),
            pending_tool_calls: None,
        });
    }

    fn request_of(&self, hold: HoldKey) -> Option<String> {
        let has = |request: &&Request| request.holds.iter().any(|(known, _)| *known == hold);
        let found = self.requests.iter().find(has)?;
        Some(RequestId { run: self.told.run.facts.id, key: found.key }.to_string())
    }

    /// A call waits: it stands with the reply, if it came with it.
    fn wait(&mut self, envelope: &Envelope, hold: HoldKey) {
        self.invocation = self.request_of(hold).unwrap_or_default();
        let call = function_call(self.told, hold.call);
        let with_reply = self.replied.filter(|(_, at)| *at == envelope.at);
        let at = with_reply.map_or_else(
            || {
                self.add(envelope, Role::Assistant, text(String::new()));
                self.items.len() - 1
            },
            |(at, _)| at,
        );
        if let Some(item) = self.items.get_mut(at) {
            item.request_id.clone_from(&self.invocation);
            item.pending_tool_calls.get_or_insert_default().push(call);
        }
    }

    /// What somebody decided, as this protocol says it; nothing where nobody did.
    fn action(&self, envelope: &Envelope, resolution: &Resolution) -> Option<&'static str> {
        envelope.actor.user()?;
        let ends_the_task = self.told.log.iter().any(|other| {
            let Event::RunEnded(ended) = &other.event else { return false };
            ended.outcome == Outcome::Canceled && other.at == envelope.at && other.seq > envelope.seq
        });
        match resolution {
            Resolution::Approve { .. } | Resolution::Answer { .. } => Some("approve"),
            Resolution::Deny { .. } | Resolution::Withdraw if ends_the_task => Some("reject"),
            // The agent was told no, and went on.
            Resolution::Deny { .. } => Some("deny"),
            Resolution::Fail { .. } => Some("fail"),
            Resolution::Withdraw | Resolution::Expire | Resolution::Supersede => None,
        }
    }

    fn decide(&mut self, envelope: &Envelope, hold: HoldKey, (action, late): (&'static str, bool)) {
        let Some(request_id) = self.request_of(hold) else { return };
        let this = (request_id.clone(), envelope.at);
        if self.decided.as_ref() == Some(&this) {
            return;
        }
        self.decided = Some(this);
        let content = serde_json::to_string(&Decision { action, request_id: &request_id, late });
        self.invocation = request_id;
        self.add(envelope, Role::User, text(content.unwrap_or_default()));
    }

    fn finish(&mut self, envelope: &Envelope, no: CallNo, result: &str) {
        let call = function_call(self.told, no);
        let id = CallId { run: self.told.run.facts.id, no }.to_string();
        let result = FunctionResult { content_type: "function_result", id, name: &call.name, result };
        self.add(envelope, Role::Assistant, text(serde_json::to_string(&result).unwrap_or_default()));
    }
}

fn text(content: String) -> MultiModalItem {
    MultiModalItem { content_type: ContentType::Text, content }
}
