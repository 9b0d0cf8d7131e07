//! Requests: the holds that one turn opened, found by the id that stands for all of them (Teal's `request_id`).
//!
//! A view of the log, like the receipt. The id is derived from the first hold of its turn (ADR 0003, 0007), so nothing
//! stores it: the run in front of it is the indexed lookup, and its log says whether there is such a request.

use crate::event::{Envelope, Event};
use crate::id::{HoldKey, RequestKey, Seq};

/// The holds that one turn opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What names it within its run.
    pub key: RequestKey,
    /// Its holds with the events that opened them, in their order.
    pub holds: Vec<(HoldKey, Seq)>,
}

/// The requests of a log, in their order. A run of an outside worker has no turns: there a request ends when nothing of
/// it is open and something new is asked for.
#[must_use]
pub fn requests(events: &[Envelope]) -> Vec<Request> {
    let (mut found, mut turn, mut open): (Vec<Request>, u32, Vec<HoldKey>) = (Vec::new(), 0, Vec::new());
    let mut is_new = true;
    for envelope in events {
        match &envelope.event {
            Event::ModelReplied(_) => {
                turn += 1;
                is_new = true;
            }
            Event::CallProposed(_) => is_new |= open.is_empty(),
            Event::HoldOpened(opened) => {
                open.push(opened.hold);
                match found.last_mut().filter(|_| !is_new) {
                    Some(request) => request.holds.push((opened.hold, envelope.seq)),
                    None => found.push(Request {
                        key: RequestKey::of_first_hold(turn, opened.hold.secret),
                        holds: vec![(opened.hold, envelope.seq)],
                    }),
                }
                is_new = false;
            }
            Event::HoldResolved(resolved) => open.retain(|key| *key != resolved.hold),
            Event::RunStarted(_)
            | Event::RunClaimed(_)
            | Event::RunReleased(_)
            | Event::RunRepinned(_)
            | Event::RunErased(_)
            | Event::RunEnded(_)
            | Event::MessageReceived(_)
            | Event::MessageQueued(_)
            | Event::ModelFailed(_)
            | Event::CallStarted(_)
            | Event::CallReturned(_)
            | Event::CallProgressed(_)
            | Event::CallFinished(_)
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
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Choice, SuspendFor};
    use crate::message::ToolResult;
    use crate::testing::{Story, body};

    fn keys(story: &Story) -> Vec<RequestKey> {
        requests(&story.events).into_iter().map(|request| request.key).collect()
    }

    /// S1-4, S1-29: each turn that asks something has its request, and it is the one that the run names while it waits.
    #[test]
    fn each_turn_that_asks_has_one_request() {
        let mut story = Story::new();
        story.replies("", &[("write", r#"{"n":1}"#), ("deploy", r#"{"n":2}"#)]);
        let first = story.run.request().unwrap();
        assert_eq!(keys(&story), [first]);
        assert_eq!(requests(&story.events)[0].holds.len(), 2);
        story.decides(1, Choice::Approve);
        assert_eq!(story.run.request(), Some(first), "also when its first hold is decided");
        story.decides(2, Choice::Deny { reason: None });
        story.begins(1);
        // What the same turn asks later belongs to the same request.
        story.suspends(1, SuspendFor::Input);
        assert_eq!(story.run.request(), Some(first));
        assert_eq!(keys(&story), [first]);
        assert_eq!(requests(&story.events)[0].holds.len(), 3);
        story.decides(1, Choice::Answer { value: body("\"x\"") });
        story.replies("", &[("read", "{}")]);
        story.begins(3);
        story.finishes(3, ToolResult::Ok(body("1")));
        assert_eq!(keys(&story), [first], "a turn that asks nothing has none");
        story.replies("", &[("write", r#"{"n":3}"#)]);
        assert_eq!(keys(&story), [first, story.run.request().unwrap()]);
    }

    /// A worker elsewhere has no turns: what it asks while something is open belongs together.
    #[test]
    fn an_outside_run_has_a_request_for_what_is_open_together() {
        let mut story = Story::outside();
        story.proposes("write", r#"{"n":1}"#);
        let first = story.run.request().unwrap();
        story.proposes("deploy", r#"{"n":2}"#);
        assert_eq!((story.run.request(), keys(&story)), (Some(first), vec![first]));
        story.decides(1, Choice::Deny { reason: None });
        story.decides(2, Choice::Deny { reason: None });
        story.proposes("write", r#"{"n":3}"#);
        assert_eq!(keys(&story), [first, story.run.request().unwrap()]);
    }
}
