//! A run's log as A2A tells it: what each append changes for whoever follows the task.
//!
//! Pure, and the same for every reader and on every node: a reader who comes back with the position of what it got last
//! gets exactly the rest. Between the events of one append the run was never seen, so only whole appends count.

use standfast_core::apply;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{Hold, HoldKind};
use standfast_core::id::{HoldKey, MessageId, RunId, Seq};
use standfast_core::run::{Run, status};
use standfast_core::time::Timestamp;

use super::map::{self, TaskIds};
use super::wire::{self, TaskState};

/// A run as far as its log was read.
#[derive(Debug)]
pub(super) struct Progress {
    id: RunId,
    run: Option<Run>,
    events: Vec<Envelope>,
    shown: Option<ReportedState>,
}

/// What a reader was told last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReportedState {
    state: TaskState,
    asked: Vec<AskedHold>,
}

/// What a reader was shown of an open hold: it is asked again when one of these is another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AskedHold {
    key: HoldKey,
    revision: u32,
    votes: usize,
    expired_at: Option<Timestamp>,
}

/// What was said in an append.
#[derive(Debug, Default)]
struct AppendWords {
    /// Whether the model said something.
    spoke: bool,
    /// What was denied, expired or was withdrawn.
    denials: Vec<wire::Part>,
}

/// What an append changes for a reader.
#[derive(Debug)]
pub(super) struct Change {
    /// The last event of the append.
    pub(super) seq: Seq,
    /// Where the task stands now.
    pub(super) state: TaskState,
    /// What it says; a question is asked by whoever can look at the holds.
    pub(super) says: StatusText,
    /// What did not go on, where it is said beside a question or beside the last words.
    pub(super) denials: Vec<wire::Part>,
}

/// What a task says about where it stands.
#[derive(Debug)]
pub(super) enum StatusText {
    Nothing,
    /// What its open holds ask.
    Question,
    Message(Box<wire::Message>),
}

impl Progress {
    pub(super) fn of(id: RunId) -> Progress {
        Progress { id, run: None, events: Vec::new(), shown: None }
    }

    /// The run so far.
    pub(super) fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// Its log so far.
    pub(super) fn events(&self) -> &[Envelope] {
        &self.events
    }

    /// Takes an append; says what it changes for a reader. `below` are the open holds of its sub-runs, as far as they
    /// are known.
    pub(super) fn take(&mut self, append: Vec<Envelope>, below: &[HoldKind]) -> Option<Change> {
        let spoke = append.iter().any(
            |envelope| matches!(&envelope.event, Event::ModelReplied(replied) if replied.reply.text.is_some()),
        );
        let words = AppendWords { spoke, denials: map::denials(&self.events, &append) };
        for envelope in append {
            match &mut self.run {
                Some(run) => apply::apply(run, &envelope),
                None => self.run = apply::begin(self.id, &envelope),
            }
            self.events.push(envelope);
        }
        self.tell(below, words)
    }

    /// Looks again, because a sub-run may have changed.
    pub(super) fn look(&mut self, below: &[HoldKind]) -> Option<Change> {
        self.tell(below, AppendWords::default())
    }

    fn tell(&mut self, below: &[HoldKind], words: AppendWords) -> Option<Change> {
        let AppendWords { spoke, denials } = words;
        let run = self.run.as_ref()?;
        let seq = run.state.seq;
        let state = map::state(status(run), below);
        let asked: Vec<AskedHold> = if state.is_terminal() {
            Vec::new()
        } else {
            let listed = run.state.holds.iter().filter(|hold| map::listed(hold.kind));
            let asked = |hold: &Hold| AskedHold {
                key: hold.key,
                revision: hold.revision,
                votes: hold.votes.len(),
                expired_at: hold.expired_at,
            };
            listed.map(asked).collect()
        };
        let asks = !asked.is_empty() || matches!(state, TaskState::InputRequired | TaskState::AuthRequired);
        let now = ReportedState { state, asked };
        let is_news = !denials.is_empty() || (spoke && state == TaskState::Working);
        if self.shown.as_ref() == Some(&now) && !is_news {
            return None;
        }
        let was_over = self.shown.as_ref().is_some_and(|shown| shown.state.is_terminal());
        self.shown = Some(now);
        // After its end only what became of calls that had started is added.
        if was_over {
            return None;
        }
        let place = TaskIds::of(run);
        let mut beside = Vec::new();
        let message = if state.is_terminal() {
            beside = denials;
            map::last_words(place, &self.events)
        } else if asks {
            beside = denials;
            None
        } else if spoke || !denials.is_empty() {
            let reply = if spoke { map::last_reply(place, &self.events) } else { None };
            let id = MessageId { run: self.id, seq };
            let message = reply.unwrap_or_else(|| place.agent(id, Vec::new()));
            Some(wire::Message { parts: message.parts.into_iter().chain(denials).collect(), ..message })
        } else {
            None
        };
        let says = match message {
            Some(message) => StatusText::Message(Box::new(message)),
            None if asks => StatusText::Question,
            None => StatusText::Nothing,
        };
        Some(Change { seq, state, says, denials: beside })
    }
}
