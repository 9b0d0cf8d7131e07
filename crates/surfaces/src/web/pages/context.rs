//! What stands around a hold: what was asked of the agent, what it said just before, what each decision leads to, who may
//! decide.
//!
//! Read from the log and from the hold's own policy; nothing is guessed.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{AfterGrace, HoldKind, OnDeny, OnTimeout};
use standfast_core::run::Run;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;

use crate::labels;

/// Characters of a message that a page shows before it says that there is more.
const WORDS_MAX: usize = 1_500;

/// What was said before.
#[derive(Debug, Default, Serialize)]
pub(in crate::web) struct Conversation {
    /// The latest message of the person.
    asked: Option<Words>,
    /// What the model said in the reply that led here.
    said: Option<Words>,
}

/// A text, with how much of it is missing.
#[derive(Debug, Serialize)]
pub(in crate::web) struct Words {
    pub(in crate::web) text: String,
    pub(in crate::web) left_out: usize,
}

impl Words {
    pub(in crate::web) fn of(text: &str) -> Option<Words> {
        if text.trim().is_empty() {
            return None;
        }
        let left_out = text.chars().count().saturating_sub(WORDS_MAX);
        Some(Words { text: text.chars().take(WORDS_MAX).collect(), left_out })
    }
}

pub(in crate::web) fn conversation(view: &HoldView, log: &[Envelope]) -> Conversation {
    let mut conversation = Conversation::default();
    for envelope in log.iter().filter(|envelope| envelope.seq <= view.row.at) {
        if let Event::MessageReceived(received) = &envelope.event {
            conversation.asked = Words::of(&received.message.words()).or(conversation.asked);
            conversation.said = None;
        } else if let Event::ModelReplied(replied) = &envelope.event {
            conversation.said = replied.reply.text.as_ref().and_then(Body::inline).and_then(Words::of);
        }
    }
    conversation
}

/// What follows from each decision.
#[derive(Debug, Serialize)]
pub(in crate::web) struct Consequences {
    approve: Option<String>,
    deny: Option<String>,
    silence: String,
}

pub(in crate::web) fn consequences(run: &Run, view: &HoldView, now: Timestamp) -> Option<Consequences> {
    let hold = run.hold(view.row.id.key)?;
    let tool = view.row.tool.as_ref().map_or_else(|| "the run".to_owned(), ToString::to_string);
    let approve = match hold.kind {
        HoldKind::Approval => {
            let votes = u32::try_from(hold.votes.len()).unwrap_or(u32::MAX);
            Some(match hold.votes_needed.saturating_sub(votes) {
                0 | 1 => format!("{tool} runs once, with exactly these arguments."),
                left => format!("Your approval counts. {tool} runs when {left} people have approved."),
            })
        }
        HoldKind::Input => Some("The agent gets your answer and continues.".to_owned()),
        HoldKind::External | HoldKind::Auth | HoldKind::Recovery => None,
    };
    let deny = match (hold.kind, hold.policy.on_deny) {
        (HoldKind::Approval, OnDeny::Continue) => {
            Some(format!("{tool} does not run. The agent is told, with your reason, and continues."))
        }
        (HoldKind::Approval, OnDeny::Cancel) => {
            Some(format!("{tool} does not run, and the whole run is canceled."))
        }
        (HoldKind::Input | HoldKind::External | HoldKind::Auth | HoldKind::Recovery, _) => None,
    };
    let silence = match (hold.expires_at, hold.expired_at) {
        _ if !hold.kind.can_expire() => "It stays open until somebody decides.".to_owned(),
        (None, _) => "It waits until somebody decides: there is no deadline.".to_owned(),
        (Some(_), Some(_)) => match (hold.policy.grace, hold.policy.after_grace) {
            (None, _) => "The deadline has passed; a late decision still counts.".to_owned(),
            (Some(_), AfterGrace::Fail) => {
                "The deadline has passed; a late decision still counts for a while, then the run fails."
                    .to_owned()
            }
            (Some(_), AfterGrace::Cancel) => {
                "The deadline has passed; a late decision still counts for a while, then the run is canceled."
                    .to_owned()
            }
        },
        (Some(at), None) => {
            let then = match hold.policy.on_timeout {
                OnTimeout::Fail => "the run fails",
                OnTimeout::Deny => "it counts as denied",
                OnTimeout::ResumeWithError => "the agent gets an error and continues",
                OnTimeout::Cancel => "the run is canceled",
                OnTimeout::Keep => "it is marked as late and stays open",
            };
            let left =
                if at > now { format!("In {}", labels::span(at.since(now))) } else { "Now".to_owned() };
            format!("{left}, {then}.")
        }
    };
    Some(Consequences { approve, deny, silence })
}

/// Where the text about why it is held comes from.
pub(in crate::web) fn reason_label(kind: HoldKind) -> &'static str {
    match kind {
        HoldKind::Approval => "Why it is held, by the rules of this server",
        HoldKind::Input => "The agent says why",
        HoldKind::External | HoldKind::Auth => "The tool says why",
        HoldKind::Recovery => "Why it is held",
    }
}
