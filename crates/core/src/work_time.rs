//! How long a run has worked, from its log: asking the model and running tools.
//!
//! Waiting for a person, for a job elsewhere, for a retry or for a slot is not work, and neither is the time in which no
//! node was there. The log has no limit in it: what a run may is the business of whoever drives it.

use crate::actor::Actor;
use crate::apply::{apply, begin};
use crate::event::{Envelope, Event};
use crate::id::{Incarnation, RunId};
use crate::next::{NextStep, next};
use crate::run::Run;
use crate::time::Millis;

/// Who has the run, as far as the log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// The node that took it when it was started; the log does not say which.
    Taker,
    Node(Incarnation),
}

/// What the log of a run tells of work: spans that end with an event of the node that had the run, while there was
/// something to do. The time until a node takes a run does not count, and neither does what a node did that never told
/// of it: nobody knows when it ended.
#[must_use]
pub fn worked(id: RunId, log: &[Envelope]) -> Millis {
    let Some((first, rest)) = log.split_first() else { return Millis(0) };
    let Some(mut run) = begin(id, first) else { return Millis(0) };
    let is_taken = if let Event::RunStarted(started) = &first.event { started.taken } else { false };
    let mut holder = if is_taken { Holder::Taker } else { Holder::Nobody };
    let (mut total, mut since) = (0, first.at);
    for envelope in rest {
        let was_busy = is_busy(&run);
        apply(&mut run, envelope);
        let Some(node) = node_of(envelope) else {
            // Said to a run that is worked on, it changes nothing; otherwise somebody has to take the run first.
            if !was_busy {
                (holder, since) = (Holder::Nobody, envelope.at);
            }
            continue;
        };
        if was_busy && has_it(holder, node, &envelope.event) {
            total += envelope.at.since(since).0.max(0);
        }
        (holder, since) = (Holder::Node(node), envelope.at);
    }
    Millis(total)
}

fn is_busy(run: &Run) -> bool {
    match next(run, run.state.at) {
        NextStep::Think | NextStep::Act { .. } => true,
        NextStep::Tick | NextStep::Wait(_) | NextStep::Nothing => false,
    }
}

/// The node that wrote an event, or for whom it was written: a decision starts its call in the same append.
fn node_of(envelope: &Envelope) -> Option<Incarnation> {
    if let Event::CallStarted(started) = &envelope.event {
        return Some(started.node);
    }
    match &envelope.actor {
        Actor::Node(node) => Some(*node),
        Actor::Person(_)
        | Actor::Link(_)
        | Actor::Client(_)
        | Actor::Callback(_)
        | Actor::Outside(_)
        | Actor::Clock => None,
    }
}

/// Whether a node that tells of something had the run all the time. Of what was lost or failed it may only have heard.
fn has_it(holder: Holder, node: Incarnation, event: &Event) -> bool {
    match holder {
        Holder::Nobody => false,
        Holder::Taker => !matches!(event, Event::CallOrphaned(_) | Event::ModelFailed(_)),
        Holder::Node(holder) => holder == node && !matches!(event, Event::CallOrphaned(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Body;
    use crate::command::Choice;
    use crate::message::ToolResult;
    use crate::testing::Story;

    fn seconds(story: &Story) -> i64 {
        worked(story.run.facts.id, &story.events).0 / 1000
    }

    /// S0-54: `task.timeout` counts the model's and the tools' time; what a person takes does not count.
    #[test]
    fn waiting_is_no_work() {
        let mut story = Story::new();
        story.replies("", &[("write", "{}")]);
        assert_eq!(seconds(&story), 1, "the model's time");
        story.waits(Millis::seconds(40));
        story.decides(1, Choice::Approve);
        story.begins(1);
        assert_eq!(seconds(&story), 1, "nobody had it until the call began");
        story.finishes(1, ToolResult::Ok(Body::text("done")));
        assert_eq!(seconds(&story), 2, "the tool's time");
        story.replies("That is all.", &[]);
        assert_eq!(seconds(&story), 3);
    }

    /// Between a start that nobody told the end of and its discovery nobody may have been there.
    #[test]
    fn what_was_lost_does_not_count() {
        let mut story = Story::new();
        story.replies("", &[("read", "{}")]);
        story.begins(1);
        let before = seconds(&story);
        story.now = story.now.plus(Millis::hours(100));
        story.loses(1);
        assert_eq!(seconds(&story), before);
    }
}
