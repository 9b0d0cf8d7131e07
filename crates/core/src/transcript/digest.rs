//! The results of the calls of a turn, as one digest: a reply of the model names the one that it was asked with.
//!
//! It starts over with each reply: a stored reply is never replaced, so what stands before it cannot change, and its
//! number says which one it is. Messages are counted (`run::PromptBasis`) and not part of it: one that comes while the model
//! thinks is heard in the next turn. Positions and instants are left out, because they move when somebody else's append
//! comes first. A large value counts by its own digest, wherever it is stored.

use crate::body::{Body, INLINE_MAX};
use crate::digest::{self, Digest};
use crate::event::{AfterOrphan, CallFinished, Envelope, Event, HoldResolved};
use crate::hold::Resolution;
use crate::id::CallNo;
use crate::message::ToolResult;

const LABEL: &str = "standfast.results.1";

/// The digest of the results of the calls of the last turn, from all events of a run in order; none while there are none.
#[must_use]
pub fn results_digest(events: &[Envelope]) -> Option<Digest> {
    // Each reply starts it over, and none follows the end of a run: what is before the last one is not looked at.
    let is_reply = |envelope: &Envelope| matches!(envelope.event, Event::ModelReplied(_));
    let turn = events.get(events.iter().rposition(is_reply).unwrap_or(0)..).unwrap_or_default();
    let is_end = |envelope: &Envelope| matches!(envelope.event, Event::RunEnded(_));
    if turn.iter().any(is_end) {
        // Nobody is asked any more.
        None
    } else {
        turn.iter().fold(None, |before, envelope| after(before, &envelope.event))
    }
}

/// The digest after one more event.
pub(crate) fn after(before: Option<Digest>, event: &Event) -> Option<Digest> {
    match event {
        Event::ModelReplied(_) | Event::RunEnded(_) => None,
        Event::CallFinished(finished) => Some(finish(before, finished)),
        Event::HoldResolved(resolved) => Some(resolve(before, resolved)),
        Event::CallOrphaned(orphaned) => {
            let then = match orphaned.then {
                AfterOrphan::Retry => "retry",
                AfterOrphan::Ask => "ask",
                AfterOrphan::Unknown => "unknown",
            };
            let attempt = orphaned.attempt.to_be_bytes();
            Some(more(before, "orphaned", orphaned.call, &[], &[then.as_bytes(), &attempt]))
        }
        Event::HoldEdited(edited) => {
            Some(more(before, "edited", edited.hold.call, &[], &[&edited.edited.digest.0]))
        }
        // The instructions and the tools that the model is asked with.
        Event::RunRepinned(repinned) => {
            Some(more(before, "repinned", CallNo::RUN, &[], &[&repinned.definition.0]))
        }
        Event::RunStarted(_)
        | Event::RunClaimed(_)
        | Event::RunReleased(_)
        | Event::RunErased(_)
        | Event::MessageReceived(_)
        | Event::MessageQueued(_)
        | Event::ModelFailed(_)
        | Event::CallProposed(_)
        | Event::CallStarted(_)
        | Event::CallReturned(_)
        | Event::CallProgressed(_)
        | Event::CallContradicted(_)
        | Event::HoldOpened(_)
        | Event::HoldVoted(_)
        | Event::HoldAssigned(_)
        | Event::HoldReminded(_)
        | Event::HoldExpired(_)
        | Event::HoldReopened(_)
        | Event::HoldEscalated(_)
        | Event::HoldDelegated(_) => before,
    }
}

fn finish(before: Option<Digest>, finished: &CallFinished) -> Digest {
    let (kind, body) = match (&finished.refused, &finished.result) {
        (Some(_), ToolResult::Ok(body) | ToolResult::Failed(body)) => ("refused", body),
        (None, ToolResult::Ok(body)) => ("ok", body),
        (None, ToolResult::Failed(body)) => ("failed", body),
    };
    let attempt = finished.attempt.to_be_bytes();
    let value = Value::of(body);
    let parts = [kind.as_bytes(), &attempt, value.form, value.bytes()];
    more(before, "finished", finished.call, &[], &parts)
}

fn resolve(before: Option<Digest>, resolved: &HoldResolved) -> Digest {
    let call = resolved.hold.call;
    let by = if resolved.role.is_some() { "decided" } else { "closed" };
    let and = |how: &str, parts: &[&[u8]]| {
        more(before, "resolved", call, &[how.as_bytes(), by.as_bytes(), &resolved.hold.secret.0], parts)
    };
    match &resolved.resolution {
        Resolution::Approve { edited: None } => and("approve", &[]),
        Resolution::Approve { edited: Some(edited) } => and("approve", &[&edited.digest.0]),
        Resolution::Deny { reason: None } => and("deny", &[]),
        Resolution::Deny { reason: Some(reason) } => and("deny", &[reason.as_bytes()]),
        Resolution::Answer { value } => {
            let value = Value::of(value);
            and("answer", &[value.form, value.bytes()])
        }
        Resolution::Fail { error } => {
            let value = Value::of(error);
            and("fail", &[value.form, value.bytes()])
        }
        Resolution::Expire => and("expire", &[]),
        Resolution::Withdraw => and("withdraw", &[]),
        Resolution::Supersede => and("supersede", &[]),
    }
}

fn more(before: Option<Digest>, what: &str, call: CallNo, first: &[&[u8]], parts: &[&[u8]]) -> Digest {
    let (before, call) = (before.unwrap_or_default(), call.0.to_be_bytes());
    let head: [&[u8]; 3] = [&before.0, what.as_bytes(), &call];
    digest::of_all(LABEL, head.into_iter().chain(first.iter().copied()).chain(parts.iter().copied()))
}

/// A value in the form in which it counts: the same whether it stands in the event or beside the log.
struct Value<'a> {
    form: &'static [u8],
    text: &'a str,
    digest: Option<Digest>,
}

impl<'a> Value<'a> {
    fn of(body: &'a Body) -> Value<'a> {
        match body {
            Body::Blob(name) => Value { form: b"large", text: "", digest: Some(name.digest) },
            Body::Text(text) => Value::inline(b"text", text),
            Body::Json(json) => Value::inline(b"json", json.text()),
        }
    }

    fn inline(form: &'static [u8], text: &'a str) -> Value<'a> {
        if text.len() > INLINE_MAX {
            Value { form: b"large", text: "", digest: Some(digest::of_bytes(text.as_bytes())) }
        } else {
            Value { form, text, digest: None }
        }
    }

    fn bytes(&self) -> &[u8] {
        self.digest.as_ref().map_or(self.text.as_bytes(), |digest| &digest.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Choice;
    use crate::testing::Story;

    /// A denied call, up to the model's next turn.
    fn denied(reason: &str) -> Story {
        let mut story = Story::new();
        story.replies("", &[("write", r#"{"n":1}"#)]);
        story.decides(1, Choice::Deny { reason: Some(reason.into()) });
        story
    }

    #[test]
    fn it_says_what_was_decided_and_begins_anew_with_each_reply() {
        let (one, same, other) = (denied("say-0."), denied("say-0."), denied("say-1."));
        let digest = results_digest(&one.events);
        assert!(digest.is_some());
        assert_eq!(digest, results_digest(&same.events));
        assert_ne!(digest, results_digest(&other.events));
        assert_eq!(digest, one.run.state.results, "the fold has the same");
        let mut story = one;
        story.replies("Well.", &[]);
        assert_eq!(results_digest(&story.events), None);
    }

    #[test]
    fn a_large_value_counts_the_same_wherever_it_is_stored() {
        let mut story = Story::new();
        story.replies("", &[("read", "{}")]);
        story.begins(1);
        story.finishes_attempt(1, 1, ToolResult::Ok(Body::text("x".repeat(INLINE_MAX + 1))));
        let filled = results_digest(&story.events);
        story.events.iter_mut().for_each(|envelope| drop(envelope.event.outsource()));
        assert_eq!(results_digest(&story.events), filled);
        assert_eq!(story.run.state.results, filled);
    }
}
