//! What stands around a hold: what was asked of the agent, what it said just before, what each decision leads to, who may
//! decide.
//!
//! Read from the log and from the hold's own policy; nothing is guessed.

use serde::Serialize;
use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{AfterGrace, HoldKind, OnDeny, OnTimeout};
use standfast_core::name::UserId;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;

use crate::labels;

/// Characters of a message that a page shows before it says that there is more.
const WORDS_MAX: usize = 1_500;

/// What was said before.
#[derive(Debug, Default, Serialize)]
pub(in crate::web) struct Conversation {
    /// What was asked: by the person, and of a sub-run by the agent above it.
    asked: Vec<AskedMessage>,
    /// What the model said in the reply that led here.
    said: Option<Words>,
}

/// A message, and who asked whom.
#[derive(Debug, Serialize)]
struct AskedMessage {
    who: String,
    words: Words,
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

/// What was said before a hold opened. `root` is how the run at the top of a sub-run began: people talk to that one.
pub(in crate::web) fn conversation(
    run: &Run,
    view: &HoldView,
    log: &[Envelope],
    root: &[Envelope],
) -> Conversation {
    let mut asked =
        root.iter().find_map(|envelope| asked(run, view, envelope)).into_iter().collect::<Vec<_>>();
    let (above, mut said) = (asked.len(), None);
    for envelope in log.iter().filter(|envelope| envelope.seq <= view.row.at) {
        if let Event::MessageReceived(_) = &envelope.event {
            said = None;
            if let Some(latest) = self::asked(run, view, envelope) {
                asked.truncate(above);
                asked.push(latest);
            }
        } else if let Event::ModelReplied(replied) = &envelope.event {
            said = replied.reply.text.as_ref().and_then(Body::inline).and_then(Words::of);
        }
    }
    Conversation { asked, said }
}

/// A message, with who asked: a message that this server passed on is the parent agent's, where there is one.
fn asked(run: &Run, view: &HoldView, envelope: &Envelope) -> Option<AskedMessage> {
    let Event::MessageReceived(received) = &envelope.event else { return None };
    let who = match (&envelope.actor, view.path.last()) {
        (Actor::Node(_), Some((_, parent))) => format!("{parent} asked {}", view.row.agent),
        (Actor::Person(user) | Actor::Link(user) | Actor::Client(user) | Actor::Callback(user), _) => {
            format!("{user} asked")
        }
        (Actor::Node(_) | Actor::Outside(_) | Actor::Clock, _) => format!("{} asked", run.facts.owner),
    };
    Some(AskedMessage { who, words: Words::of(&received.message.words())? })
}

/// What follows from each decision.
#[derive(Debug, Serialize)]
pub(in crate::web) struct Consequences {
    approve: Option<String>,
    deny: Option<String>,
    silence: String,
}

pub(in crate::web) fn consequences(
    run: &Run,
    view: &HoldView,
    who: &UserId,
    now: Timestamp,
) -> Option<Consequences> {
    let hold = run.hold(view.row.id.key)?;
    let tool = view.row.tool.as_ref().map_or_else(|| "the run".to_owned(), ToString::to_string);
    let approve = match hold.kind {
        HoldKind::Approval if hold.votes.contains(who) => {
            Some(format!("You have approved already. {tool} runs when others have approved as well."))
        }
        HoldKind::Approval => {
            let unmet = hold.demands.iter().filter(|demand| demand.missing() > 0).count();
            Some(match (hold.votes_missing(), unmet) {
                (0 | 1, 0 | 1) => format!("{tool} runs once, with exactly these arguments."),
                (missing, 0 | 1) => {
                    let others = missing - 1;
                    let (people, have) =
                        if others == 1 { ("other person", "has") } else { ("other people", "have") };
                    format!(
                        "Your approval counts. {tool} runs when {others} {people} {have} approved as well."
                    )
                }
                (_, rules) => format!(
                    "Your approval counts. {tool} runs when the approvers of each of {rules} rules have approved."
                ),
            })
        }
        HoldKind::Input if view.is_asked_by_server => {
            Some("The server tries again to continue the run.".to_owned())
        }
        HoldKind::Input => Some("The agent gets your answer and continues.".to_owned()),
        HoldKind::External | HoldKind::Auth | HoldKind::Recovery => None,
    };
    let deny = match (hold.kind, hold.policy.on_deny) {
        (HoldKind::Approval, OnDeny::Continue) => {
            Some(format!("{tool} does not run. The agent gets your reason and continues."))
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
pub(in crate::web) fn reason_label(view: &HoldView) -> &'static str {
    match view.row.kind {
        HoldKind::Approval => "Why it is held, by the rules of this server",
        HoldKind::Input if view.is_asked_by_server => "The server says why",
        HoldKind::Input => "The agent says why",
        HoldKind::External | HoldKind::Auth => "The tool says why",
        HoldKind::Recovery => "Why it is held",
    }
}
