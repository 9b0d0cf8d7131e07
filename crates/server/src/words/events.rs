//! What happened in a run, event by event, as a timeline tells it.
//!
//! Matches are exhaustive: a new event forces a visit here.

use standfast_core::body::Body;
use standfast_core::event::{AfterOrphan, Event, Released};
use standfast_core::hold::{HoldKind, Resolution};
use standfast_core::message::{Message, Part, Reply, ToolCall, ToolResult};
use standfast_core::project::How;

/// An event in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What happened.
    pub title: String,
    /// What was said with it.
    pub said: Vec<Said>,
}

/// Something that was said: text of people, models and tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// What it is; empty where the title says it.
    pub label: String,
    /// The text, as it is stored.
    pub text: String,
}

impl Told {
    fn plain(title: impl Into<String>) -> Told {
        Told { title: title.into(), said: Vec::new() }
    }

    fn with(title: impl Into<String>, said: impl IntoIterator<Item = Said>) -> Told {
        Told { title: title.into(), said: said.into_iter().collect() }
    }
}

/// Tells an event. A decision is told by the kind of its hold.
#[must_use]
pub fn tell(event: &Event, kind: Option<HoldKind>) -> Told {
    match event {
        Event::RunStarted(started) => Told::plain(format!("Run of {} started", started.agent)),
        Event::RunClaimed(claimed) => Told::plain(match &claimed.claim {
            Some(claim) => format!("Claimed by worker {}", claim.worker),
            None => "Taken from the queue".into(),
        }),
        Event::RunReleased(released) => match &released.why {
            Released::Returned => Told::plain("Released by the worker"),
            Released::Lapsed => Told::plain("The worker's claim expired"),
            Released::Suspended => Told::plain("The worker is waiting for an answer"),
            Released::Failed(error) => Told::with("The worker failed", [unlabelled(error)]),
        },
        Event::RunRepinned(_) => Told::plain("Moved to another version of the agent"),
        Event::RunErased(erased) => {
            Told::with("Contents erased", erased.reason.as_deref().map(|reason| said("reason", reason)))
        }
        Event::RunEnded(ended) => {
            let reason = ended.reason.as_deref().map(|reason| said("reason", reason));
            let result = ended.result.as_ref().map(|result| labelled("result", result));
            Told::with(super::outcome(ended.outcome), reason.into_iter().chain(result))
        }
        Event::MessageReceived(received) => Told::with("Message", message(&received.message)),
        Event::MessageQueued(queued) => {
            Told::with("Message, queued for the next turn", message(&queued.message))
        }
        Event::ModelReplied(replied) => Told::with("The agent replied", reply(&replied.reply)),
        Event::ModelFailed(failed) => {
            let title = format!("Model request failed (failure {})", failed.failures);
            Told::with(title, [unlabelled(&failed.error)])
        }
        Event::CallProposed(proposed) => {
            let context = proposed.context.as_ref().map(|context| labelled("why", context));
            let title = format!("Worker {} proposes a call", proposed.worker);
            Told::with(title, std::iter::once(call(&proposed.call)).chain(context))
        }
        Event::CallStarted(started) => Told::plain(match started.attempt {
            0 | 1 => format!("Call {} started", started.call),
            attempt => format!("Call {} started again (attempt {attempt})", started.call),
        }),
        Event::CallReturned(returned) => {
            Told::plain(format!("Call {} returned before it started", returned.call))
        }
        Event::CallProgressed(progressed) => {
            Told::with(format!("Progress of call {}", progressed.call), [unlabelled(&progressed.note)])
        }
        Event::CallFinished(finished) => {
            let what = match (&finished.refused, &finished.result) {
                (Some(_), _) => "was blocked by a rule",
                (None, ToolResult::Ok(_)) => "finished",
                (None, ToolResult::Failed(_)) => "failed",
            };
            Told::with(format!("Call {} {what}", finished.call), [result(&finished.result)])
        }
        Event::CallOrphaned(orphaned) => {
            let then = match orphaned.then {
                AfterOrphan::Retry => "retrying with the same idempotency key",
                AfterOrphan::Ask => "a person is asked",
                AfterOrphan::Unknown => "the outcome stays unknown",
            };
            Told::plain(format!("Outcome of call {} unknown: {then}", orphaned.call))
        }
        Event::CallContradicted(finished) => {
            let title =
                format!("Call {} reported a result that contradicts a person's decision", finished.call);
            Told::with(title, [result(&finished.result)])
        }
        Event::HoldOpened(opened) => {
            let reason = opened.ask.reason.as_deref().map(|reason| said("reason", reason));
            let question = opened.ask.question.as_ref().map(|question| labelled("question", question));
            let title = format!("Held: {}", super::kind(opened.kind).to_lowercase());
            Told::with(title, reason.into_iter().chain(question))
        }
        Event::HoldVoted(voted) => Told::plain(format!("{} approved", voted.by)),
        Event::HoldEdited(edited) => {
            Told::with("Arguments edited", [labelled("arguments", &edited.edited.arguments)])
        }
        Event::HoldAssigned(assigned) => Told::plain(match &assigned.to {
            Some(user) => format!("Assigned to {user}"),
            None => "Unassigned".into(),
        }),
        Event::HoldReminded(_) => Told::plain("Reminder sent"),
        Event::HoldExpired(expired) => Told::plain(match expired.kept {
            true => "Expired; still open for a late decision",
            false => "Expired",
        }),
        Event::HoldReopened(_) => Told::plain("Reopened with a new deadline"),
        Event::HoldResolved(resolved) => {
            let title = super::decision(kind, How::from(&resolved.resolution));
            Told::with(title, decided(&resolved.resolution))
        }
    }
}

/// What belongs to a decision beside its word.
pub fn decided(resolution: &Resolution) -> Option<Said> {
    match resolution {
        Resolution::Approve { edited } => {
            edited.as_ref().map(|edited| labelled("arguments", &edited.arguments))
        }
        Resolution::Deny { reason } => reason.as_deref().map(|reason| said("reason", reason)),
        Resolution::Answer { value } => Some(labelled("answer", value)),
        Resolution::Fail { error } => Some(labelled("error", error)),
        Resolution::Expire | Resolution::Withdraw | Resolution::Supersede => None,
    }
}

fn message(message: &Message) -> Vec<Said> {
    message.parts.iter().map(part).collect()
}

fn part(part: &Part) -> Said {
    match part {
        Part::Text(body) => unlabelled(body),
        Part::Data(body) => labelled("data", body),
        Part::File { name, content, .. } => {
            labelled(&format!("file {}", name.as_deref().unwrap_or("without a name")), content)
        }
    }
}

fn reply(reply: &Reply) -> Vec<Said> {
    let (words, made) = (reply.text.iter().map(unlabelled), reply.parts.iter().map(part));
    words.chain(made).chain(reply.calls.iter().map(call)).collect()
}

fn call(call: &ToolCall) -> Said {
    let refused = call.refused.as_deref().map(|why| format!(" (refused: {why})")).unwrap_or_default();
    labelled(&format!("call {}: {}{refused}", call.no, call.tool), &call.arguments)
}

fn result(result: &ToolResult) -> Said {
    match result {
        ToolResult::Ok(body) => labelled("result", body),
        ToolResult::Failed(body) => labelled("error", body),
    }
}

fn unlabelled(body: &Body) -> Said {
    labelled("", body)
}

fn labelled(label: &str, body: &Body) -> Said {
    said(label, body.inline().unwrap_or("(contents deleted)"))
}

fn said(label: &str, text: &str) -> Said {
    Said { label: label.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_core::event::{HoldResolved, MessageReceived};
    use standfast_core::id::{CallNo, HoldKey, Secret};

    fn resolved(resolution: Resolution) -> Event {
        Event::HoldResolved(Box::new(HoldResolved {
            hold: HoldKey { call: CallNo(1), secret: Secret([0; 16]) },
            resolution,
            role: None,
            idempotency_key: None,
            late: false,
            judged: None,
            digest: None,
        }))
    }

    #[test]
    fn a_decision_is_told_with_what_belongs_to_it() {
        let deny = resolved(Resolution::Deny { reason: Some("not today".into()) });
        let expected = Told::with("Denied", [said("reason", "not today")]);
        assert_eq!(tell(&deny, Some(HoldKind::Approval)), expected);
        let expected = Told::with("It did not happen", [said("reason", "not today")]);
        assert_eq!(tell(&deny, Some(HoldKind::Recovery)), expected);
    }

    #[test]
    fn a_message_is_told_part_by_part() {
        let parts = vec![
            Part::Text(Body::text("Look at this")),
            Part::File { name: Some("a.txt".into()), media_type: None, content: Body::text("https://x") },
        ];
        let received = Event::MessageReceived(MessageReceived { message: Message::of(parts) });
        let expected = Told::with("Message", [said("", "Look at this"), said("file a.txt", "https://x")]);
        assert_eq!(tell(&received, None), expected);
    }
}
