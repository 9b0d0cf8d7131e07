//! What the log holds for a call: what will run when it starts now.

use super::results;
use crate::command::StoredCall;
use crate::event::Envelope;
use crate::id::CallNo;

/// The call as it would run now: its arguments as proposed or as last edited, and the schema it was last shown with.
/// None when there is no such call, when it can never run, or while its arguments are not filled in.
#[must_use]
pub fn stored_call(events: &[Envelope], no: CallNo) -> Option<StoredCall> {
    let followed = results::follow(events);
    let track = followed.calls.get(&no)?;
    let arguments = track.arguments().inline()?.to_owned();
    Some(StoredCall {
        tool: track.call.tool.clone(),
        arguments,
        schema: track.schema?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::INLINE_MAX;
    use crate::command::{Command, Decide, Edit, Wanted};
    use crate::decide::Answer;
    use crate::testing::{Story, json, tool, user};

    fn stored(story: &Story, no: u32) -> Option<(String, bool)> {
        let stored = stored_call(&story.events, CallNo(no))?;
        assert_eq!(stored.tool, tool("write"));
        Some((
            stored.arguments,
            stored.schema == story.definition.tools[&tool("write")].schema_digest(),
        ))
    }

    #[test]
    fn a_call_runs_as_proposed_or_as_last_edited() {
        let mut story = Story::new();
        story.replies("", &[("write", r#"{ "n": 1 }"#), ("write", r#"{"m":1}"#)]);
        assert_eq!(stored(&story, 1), Some((r#"{ "n": 1 }"#.into(), true)));

        let decide = Decide {
            hold: story.hold(1),
            digest: None,
            revision: None,
        };
        let edit = Edit {
            decide,
            arguments: json(r#"{"n": 2}"#),
        };
        story.by(crate::actor::Actor::Person(user("bob")), Command::Edit(edit));
        assert_eq!(stored(&story, 1), Some((r#"{"n": 2}"#.into(), true)));

        story.decides(
            1,
            Wanted::ApproveEdited {
                arguments: json(r#"{"n": 3}"#),
            },
        );
        assert_eq!(stored(&story, 1), Some((r#"{"n": 3}"#.into(), true)));
        assert_eq!(stored(&story, 2), Some((r#"{"m":1}"#.into(), true)));
    }

    #[test]
    fn a_tool_that_changed_is_shown_again_and_runs_with_its_new_schema() {
        let mut story = Story::new();
        story.replies("", &[("write", "{}")]);
        story.decides(1, Wanted::Approve);
        story
            .definition
            .tools
            .get_mut(&tool("write"))
            .unwrap()
            .description = "writes elsewhere".into();
        assert_eq!(stored(&story, 1), Some(("{}".into(), false)));

        assert_eq!(story.begins(1), Answer::Held);
        assert_eq!(stored(&story, 1), Some(("{}".into(), true)));
        story.decides(1, Wanted::Approve);
        assert_eq!(story.begins(1), Answer::Done);
    }

    #[test]
    fn what_cannot_run_is_not_there() {
        let mut story = Story::new();
        let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(INLINE_MAX));
        story.replies("", &[("no-such-tool", "{}"), ("write", &long)]);
        assert_eq!(stored(&story, 1), None);
        assert_eq!(stored(&story, 3), None);
        assert_eq!(stored(&story, 2), Some((long, true)));

        story
            .events
            .iter_mut()
            .for_each(|envelope| drop(envelope.event.outsource()));
        assert_eq!(stored(&story, 2), None);
    }
}
