//! What was said before a hold opened: what was asked of the agent, and what it, or the worker that wants the call, said just before.
//!
//! Read from the log; nothing is guessed. What follows from a decision is `stakes.rs`.

use serde::Serialize;
use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::event::{Driver, Envelope, Event};
use standfast_core::run::Run;
use standfast_engine::{HoldView, claimed_by};

use super::message::{self, MessagePart};
use super::run::task_title;
use crate::labels::hidden_characters::count_hidden;

/// Characters of a message that a page shows before it says that there is more.
const WORDS_MAX: usize = 1_500;

/// What was said before.
#[derive(Debug, Default, Serialize)]
pub(in crate::web) struct Conversation {
    /// What was asked: by the person, and of a sub-run by the agent above it.
    asked: Vec<AskedMessage>,
    /// What the model said in the reply that led here, or the worker why it wants the call.
    said: Option<Excerpt>,
    /// The worker that said it.
    worker: Option<String>,
}

impl Conversation {
    /// How many hidden characters it shows as marks.
    pub(in crate::web) fn hidden(&self) -> usize {
        let words = self.asked.iter().filter_map(|asked| asked.words.as_ref()).chain(&self.said);
        let parts = self.asked.iter().flat_map(|asked| &asked.parts);
        words.map(|words| count_hidden(&words.text)).sum::<usize>()
            + parts.map(MessagePart::hidden).sum::<usize>()
    }
}

/// A message, and who asked whom.
#[derive(Debug, Serialize)]
struct AskedMessage {
    who: String,
    words: Option<Excerpt>,
    /// Another agent wrote them, as a model does.
    is_markdown: bool,
    /// What was said beside the words.
    parts: Vec<MessagePart>,
}

impl AskedMessage {
    /// Of a task that has a name, which stands before what is to be done.
    fn called(mut self, title: Option<String>) -> AskedMessage {
        if let Some(title) = title.filter(|_| self.words.is_none()) {
            self.words = Excerpt::of(&title);
        }
        self
    }
}

/// A text, with how much of it is missing.
#[derive(Debug, Serialize)]
pub(in crate::web) struct Excerpt {
    pub(in crate::web) text: String,
    pub(in crate::web) left_out: usize,
}

impl Excerpt {
    pub(in crate::web) fn of(text: &str) -> Option<Excerpt> {
        if text.trim().is_empty() {
            return None;
        }
        let left_out = text.chars().count().saturating_sub(WORDS_MAX);
        Some(Excerpt { text: text.chars().take(WORDS_MAX).collect(), left_out })
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
    let (above, mut said, mut worker) = (asked.len(), None, None);
    for envelope in log.iter().filter(|envelope| envelope.seq <= view.row.at) {
        if let Event::MessageReceived(_) = &envelope.event {
            said = None;
            if let Some(latest) = self::asked(run, view, envelope) {
                asked.truncate(above);
                asked.push(latest.called(task_title(log)));
            }
        } else if let Event::ModelReplied(replied) = &envelope.event {
            said = replied.reply.text.as_ref().and_then(Body::inline).and_then(Excerpt::of);
        } else if let Event::CallProposed(proposed) = &envelope.event
            && proposed.call.no == view.row.id.key.call
        {
            said = proposed.context.as_ref().and_then(Body::inline).and_then(Excerpt::of);
            worker = Some(claimed_by(&proposed.worker).to_owned());
        }
    }
    Conversation { asked, said, worker }
}

/// A message, with who asked: a message that this server passed on is the parent agent's, where there is one.
fn asked(run: &Run, view: &HoldView, envelope: &Envelope) -> Option<AskedMessage> {
    let Event::MessageReceived(received) = &envelope.event else { return None };
    let is_gate = run.facts.driver == Driver::Gate;
    let who = match (&envelope.actor, view.path.last()) {
        (Actor::Node(_), Some((_, parent))) => format!("{parent} asked {}", view.row.agent),
        (Actor::Person(user) | Actor::Link(user) | Actor::Client(user) | Actor::Callback(user), _) => {
            if is_gate {
                format!("An agent of {user} asks")
            } else {
                format!("{user} asked")
            }
        }
        (Actor::Node(_) | Actor::Outside(_) | Actor::Clock, _) => format!("{} asked", run.facts.owner),
    };
    let words = received.message.words();
    let tree = message::tree(&words);
    let words = if tree.is_some() { None } else { Excerpt::of(&words) };
    let parts: Vec<MessagePart> = tree.into_iter().chain(message::parts(&received.message)).collect();
    let says_something = words.is_some() || !parts.is_empty();
    says_something.then_some(AskedMessage { who, words, is_markdown: is_gate, parts })
}
