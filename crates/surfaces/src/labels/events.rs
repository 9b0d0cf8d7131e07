//! Labels of the events of a run, for its timeline.
//!
//! Matches are exhaustive: a new event forces a visit here.

use standfast_core::body::Body;
use standfast_core::event::{AfterOrphan, Event, ReleaseReason};
use standfast_core::hold::{Delegation, HoldKind, Resolution};
use standfast_core::message::{Message, Part, Reply, ToolCall, ToolResult};
use standfast_core::project::ResolutionKind;
use standfast_core::reconcile::EffectAnswer;

/// The label of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLabel {
    /// What happened.
    pub title: String,
    /// What was said with it.
    pub said: Vec<LabelledText>,
}

/// Text of people, models and tools, with its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledText {
    /// What it is; empty where the title says it.
    pub label: String,
    /// The text, as it is stored.
    pub text: String,
}

impl EventLabel {
    fn plain(title: impl Into<String>) -> EventLabel {
        EventLabel { title: title.into(), said: Vec::new() }
    }

    fn with(title: impl Into<String>, said: impl IntoIterator<Item = LabelledText>) -> EventLabel {
        EventLabel { title: title.into(), said: said.into_iter().collect() }
    }
}

/// Describes an event. A decision is described by the kind of its hold.
#[must_use]
pub fn describe(event: &Event, kind: Option<HoldKind>) -> EventLabel {
    match event {
        Event::RunStarted(started) => EventLabel::plain(format!("Run of {} started", started.agent)),
        Event::RunClaimed(claimed) => EventLabel::plain(match &claimed.claim {
            Some(claim) => format!("Claimed by worker {}", claim.worker),
            None => "Taken from the queue".into(),
        }),
        Event::RunReleased(released) => match &released.why {
            ReleaseReason::Returned => EventLabel::plain("Released by the worker"),
            ReleaseReason::Lapsed => EventLabel::plain("The worker's claim expired"),
            ReleaseReason::Suspended => EventLabel::plain("The worker is waiting for an answer"),
            ReleaseReason::Failed(error) => EventLabel::with("The worker failed", [unlabelled(error)]),
        },
        Event::RunRepinned(_) => EventLabel::plain("Moved to another version of the agent"),
        Event::RunErased(erased) => {
            EventLabel::with("Contents erased", erased.reason.as_deref().map(|reason| said("reason", reason)))
        }
        Event::RunEnded(ended) => {
            let reason = ended.reason.as_deref().map(|reason| said("reason", reason));
            let result = ended.result.as_ref().map(|result| labelled("result", result));
            EventLabel::with(super::outcome(ended.outcome), reason.into_iter().chain(result))
        }
        Event::MessageReceived(received) => EventLabel::with("Message", message(&received.message)),
        Event::MessageQueued(queued) => {
            EventLabel::with("Message, queued for the next turn", message(&queued.message))
        }
        Event::ModelReplied(replied) => EventLabel::with("The agent replied", reply(&replied.reply)),
        Event::ModelFailed(failed) => {
            let title = format!("Model request failed (failure {})", failed.failures);
            EventLabel::with(title, [unlabelled(&failed.error)])
        }
        Event::CallProposed(proposed) => {
            let context = proposed.context.as_ref().map(|context| labelled("why", context));
            let title = format!("Worker {} proposes a call", proposed.worker);
            EventLabel::with(title, std::iter::once(call(&proposed.call)).chain(context))
        }
        Event::CallStarted(started) => {
            let by = match (&started.grant_use, &started.judged.grant) {
                (Some(taken), _) => format!(" by standing approval {} (use {})", taken.grant, taken.no),
                (None, Some(grant)) => format!(" by standing approval {grant}"),
                (None, None) => String::new(),
            };
            EventLabel::plain(match started.attempt {
                0 | 1 => format!("Call {} started{by}", started.call),
                attempt => format!("Call {} started again (attempt {attempt}){by}", started.call),
            })
        }
        Event::CallReturned(returned) => {
            EventLabel::plain(format!("Call {} returned before it started", returned.call))
        }
        Event::CallProgressed(progressed) => {
            EventLabel::with(format!("Progress of call {}", progressed.call), [unlabelled(&progressed.note)])
        }
        Event::CallFinished(finished) => {
            let what = match (&finished.refused, &finished.result) {
                (Some(_), _) => "was blocked by a rule",
                (None, ToolResult::Ok(_)) => "finished",
                (None, ToolResult::Failed(_)) => "failed",
            };
            EventLabel::with(format!("Call {} {what}", finished.call), [result(&finished.result)])
        }
        Event::CallOrphaned(orphaned) => {
            let then = match orphaned.then {
                AfterOrphan::Retry => "retrying with the same idempotency key",
                AfterOrphan::Ask => "a person is asked",
                AfterOrphan::Unknown => "the outcome stays unknown",
            };
            let because = orphaned.why.as_ref().map(|why| said("why", &super::unknown_because(Some(why))));
            let found = orphaned.reconciled.as_deref();
            let happened = found.is_some_and(|found| found.says == EffectAnswer::Happened);
            let title = if happened {
                format!("Outcome of call {} was lost and looked up: it happened", orphaned.call)
            } else {
                format!("Outcome of call {} unknown: {then}", orphaned.call)
            };
            let looked_up = found.map(|found| said("looked up", &found.sentence()));
            EventLabel::with(title, because.into_iter().chain(looked_up))
        }
        Event::CallContradicted(finished) => {
            let title =
                format!("Call {} reported a result that contradicts a person's decision", finished.call);
            EventLabel::with(title, [result(&finished.result)])
        }
        Event::HoldOpened(opened) => {
            let reason = opened.ask.reason.as_deref().map(|reason| said("reason", reason));
            let question = opened.ask.question.as_ref().map(|question| labelled("question", question));
            let kind = match opened.ask.child {
                Some(_) => "sub-run".to_owned(),
                None => super::kind(opened.kind).to_lowercase(),
            };
            let title = format!("Held: {kind}");
            EventLabel::with(title, reason.into_iter().chain(question))
        }
        Event::HoldVoted(voted) => EventLabel::plain(match &voted.in_place_of {
            Some(place) => format!("{} approved in the place of {place}", voted.by),
            None => format!("{} approved", voted.by),
        }),
        Event::HoldEdited(edited) if edited.asked_again => {
            EventLabel::plain("Asked again, by what is there now; approvals so far are void")
        }
        Event::HoldEdited(edited) => {
            EventLabel::with("Arguments edited", [labelled("arguments", &edited.edited.arguments)])
        }
        Event::HoldAssigned(assigned) => EventLabel::plain(match &assigned.to {
            Some(user) if assigned.until.is_some() => format!("Assigned to {user} for a while"),
            Some(user) => format!("Assigned to {user}"),
            None => "Unassigned".into(),
        }),
        Event::HoldReminded(_) => EventLabel::plain("Reminder"),
        Event::HoldExpired(expired) => EventLabel::plain(if expired.kept {
            "Expired; still open for a late decision"
        } else {
            "Expired"
        }),
        Event::HoldReopened(_) => EventLabel::plain("Reopened with a new deadline"),
        Event::HoldEscalated(escalated) => {
            let to: Vec<String> = escalated.to.iter().map(ToString::to_string).collect();
            EventLabel::plain(format!("Escalated to {}", to.join(", ")))
        }
        Event::HoldDelegated(delegated) => {
            let Delegation { by, to, .. } = &delegated.delegation;
            EventLabel::plain(format!("{by} lets {to} decide in their place for a while"))
        }
        Event::HoldResolved(resolved) => {
            let title = super::decision(kind, ResolutionKind::from(&resolved.resolution));
            EventLabel::with(title, decided(&resolved.resolution))
        }
    }
}

/// What belongs to a decision beside its word.
pub fn decided(resolution: &Resolution) -> Option<LabelledText> {
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

fn message(message: &Message) -> Vec<LabelledText> {
    message.parts.iter().map(part).collect()
}

fn part(part: &Part) -> LabelledText {
    match part {
        Part::Text(body) => unlabelled(body),
        Part::Data(body) => labelled("data", body),
        Part::File { name, content, .. } => {
            labelled(&format!("file {}", name.as_deref().unwrap_or("without a name")), content)
        }
    }
}

fn reply(reply: &Reply) -> Vec<LabelledText> {
    let (words, made) = (reply.text.iter().map(unlabelled), reply.parts.iter().map(part));
    words.chain(made).chain(reply.calls.iter().map(call)).collect()
}

fn call(call: &ToolCall) -> LabelledText {
    let refused = call.refused.as_deref().map(|why| format!(" (refused: {why})")).unwrap_or_default();
    labelled(&format!("call {}: {}{refused}", call.no, call.tool), &call.arguments)
}

fn result(result: &ToolResult) -> LabelledText {
    match result {
        ToolResult::Ok(body) => labelled("result", body),
        ToolResult::Failed(body) => labelled("error", body),
    }
}

fn unlabelled(body: &Body) -> LabelledText {
    labelled("", body)
}

fn labelled(label: &str, body: &Body) -> LabelledText {
    said(label, body.inline().unwrap_or("(contents deleted)"))
}

fn said(label: &str, text: &str) -> LabelledText {
    LabelledText { label: label.to_owned(), text: text.to_owned() }
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
            in_place_of: None,
            idempotency_key: None,
            late: false,
            judged: None,
            digest: None,
            message: None,
            grant: None,
            origin: None,
        }))
    }

    #[test]
    fn a_decision_is_told_with_what_belongs_to_it() {
        let deny = resolved(Resolution::Deny { reason: Some("not today".into()) });
        let expected = EventLabel::with("Denied", [said("reason", "not today")]);
        assert_eq!(describe(&deny, Some(HoldKind::Approval)), expected);
        let expected = EventLabel::with("It did not happen", [said("reason", "not today")]);
        assert_eq!(describe(&deny, Some(HoldKind::Recovery)), expected);
    }

    #[test]
    fn a_message_is_told_part_by_part() {
        let parts = vec![
            Part::Text(Body::text("Look at this")),
            Part::File { name: Some("a.txt".into()), media_type: None, content: Body::text("https://x") },
        ];
        let received = Event::MessageReceived(MessageReceived { message: Message::of(parts) });
        let expected =
            EventLabel::with("Message", [said("", "Look at this"), said("file a.txt", "https://x")]);
        assert_eq!(describe(&received, None), expected);
    }
}
