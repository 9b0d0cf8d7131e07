//! What the log holds for a call: what will run when it starts now.
//!
//! Knows nothing of schemas: they belong to the definition that the run is pinned to, and `decide/calls.rs` compares
//! the two with the digest that was shown.

use super::results;
use crate::command::StoredCall;
use crate::event::Envelope;
use crate::id::CallNo;

/// The call as it would run now: its arguments as proposed or as last edited.
/// None when there is no such call, when it can never run, or while its arguments are not filled in.
#[must_use]
pub fn stored_call(events: &[Envelope], no: CallNo) -> Option<StoredCall> {
    let followed = results::follow(events);
    let track = followed.calls.get(&no)?;
    // What was refused at the door stays refused.
    if track.call.refused.is_some() {
        return None;
    }
    let arguments = track.arguments().inline()?.to_owned();
    Some(StoredCall { tool: track.call.tool.clone(), arguments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::INLINE_MAX;
    use crate::command::{Command, Decide, Edit, Wanted};
    use crate::testing::{Story, json, tool, user};

    fn stored(story: &Story, no: u32) -> Option<String> {
        let stored = stored_call(&story.events, CallNo(no))?;
        assert_eq!(stored.tool, tool("write"));
        Some(stored.arguments)
    }

    #[test]
    fn a_call_runs_as_proposed_or_as_last_edited() {
        let mut story = Story::new();
        story.replies("", &[("write", r#"{ "n": 1 }"#), ("write", r#"{"m":1}"#)]);
        assert_eq!(stored(&story, 1), Some(r#"{ "n": 1 }"#.into()));

        let decide = Decide { hold: story.hold(1), digest: None, revision: None };
        let edit = Edit { decide, arguments: json(r#"{"n": 2}"#) };
        story.by(crate::actor::Actor::Person(user("bob")), Command::Edit(edit));
        assert_eq!(stored(&story, 1), Some(r#"{"n": 2}"#.into()));

        story.decides(1, Wanted::ApproveEdited { arguments: json(r#"{"n": 3}"#) });
        assert_eq!(stored(&story, 1), Some(r#"{"n": 3}"#.into()));
        assert_eq!(stored(&story, 2), Some(r#"{"m":1}"#.into()));
    }

    #[test]
    fn what_cannot_run_is_not_there() {
        let mut story = Story::new();
        let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(INLINE_MAX));
        story.replies("", &[("no-such-tool", "{}"), ("write", &long), ("banned", "{}"), ("write", "{")]);
        assert_eq!(stored(&story, 1), None);
        assert_eq!(stored(&story, 2), Some(long));
        assert_eq!(stored(&story, 3), None, "a rule forbids it");
        assert_eq!(stored(&story, 4), None, "its arguments are not JSON");
        assert_eq!(stored(&story, 5), None);

        story.events.iter_mut().for_each(|envelope| drop(envelope.event.outsource()));
        assert_eq!(stored(&story, 2), None);
    }
}
