//! What the log holds for a call: what will run when it starts now.
//!
//! Knows nothing of schemas: they belong to the definition that the run is pinned to, and `decide/calls.rs` compares
//! the two with the digest that was shown.

use crate::body::Body;
use crate::command::StoredCall;
use crate::event::{Envelope, Event};
use crate::hold::{HoldKind, Resolution};
use crate::id::{CallNo, HoldKey};
use crate::message::ToolCall;

/// The call as it would run now: its arguments as proposed or as last edited.
/// None when there is no such call, when it can never run, or while its arguments are not filled in.
#[must_use]
pub fn stored_call(events: &[Envelope], no: CallNo) -> Option<StoredCall> {
    let (mut call, mut edited): (Option<&ToolCall>, Option<&Body>) = (None, None);
    for envelope in events {
        let event = &envelope.event;
        if let Event::ModelReplied(replied) = event {
            call = replied.reply.calls.iter().find(|call| call.no == no).or(call);
        } else if let Event::CallProposed(proposed) = event
            && proposed.call.no == no
        {
            call = Some(&proposed.call);
        } else if let Event::HoldEdited(change) = event
            && change.hold.call == no
        {
            edited = Some(&change.edited.arguments);
        } else if let Event::HoldResolved(resolved) = event
            && resolved.hold.call == no
            && let Resolution::Approve { edited: Some(change) } = &resolved.resolution
        {
            edited = Some(&change.arguments);
        }
    }
    // What was refused at the door stays refused.
    let call = call.filter(|call| call.refused.is_none())?;
    let arguments = edited.unwrap_or(&call.arguments).inline()?.to_owned();
    Some(StoredCall { tool: call.tool.clone(), arguments })
}

/// What a call goes on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// What the tool left with its question.
    pub state: Body,
    /// What it was answered.
    pub answer: Body,
    /// Whether it went on with this before, nobody knows what came of that, and a person wants it made again.
    pub is_repeat: bool,
}

/// What a call goes on with when it starts now: the last answer that it asked for, if it did.
#[must_use]
pub fn continuation(events: &[Envelope], no: CallNo) -> Option<Continuation> {
    let mut asked: Option<(HoldKey, &Body)> = None;
    let mut unknown = None;
    let mut answered: Option<Continuation> = None;
    for envelope in events {
        if let Event::HoldOpened(opened) = &envelope.event
            && opened.hold.call == no
            && opened.kind == HoldKind::Recovery
        {
            unknown = Some(opened.hold);
        }
        if let Event::HoldOpened(opened) = &envelope.event
            && opened.hold.call == no
            && let Some(state) = &opened.ask.resume
        {
            asked = Some((opened.hold, state));
        }
        if let Event::HoldResolved(resolved) = &envelope.event
            && let Some((_, state)) = asked.filter(|(hold, _)| *hold == resolved.hold)
            && let Resolution::Answer { value } = &resolved.resolution
        {
            answered = Some(Continuation { state: state.clone(), answer: value.clone(), is_repeat: false });
        }
        if let Event::HoldResolved(resolved) = &envelope.event
            && unknown == Some(resolved.hold)
            && matches!(resolved.resolution, Resolution::Approve { .. })
            && let Some(answered) = &mut answered
        {
            answered.is_repeat = true;
        }
    }
    answered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::INLINE_MAX;
    use crate::command::{Choice, Command, Decide, Edit};
    use crate::testing::{Story, json, tool, user};

    fn stored(story: &Story, no: u32) -> Option<String> {
        let stored = stored_call(&story.events, CallNo(no))?;
        assert_eq!(stored.tool, tool("write"));
        let followed = crate::transcript::results::follow(&story.events);
        let shown = followed.calls.get(&CallNo(no)).and_then(|track| track.arguments().inline());
        assert_eq!(shown, Some(stored.arguments.as_str()), "receipts and transcripts say the same");
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

        story.decides(1, Choice::ApproveEdited { arguments: json(r#"{"n": 3}"#) });
        assert_eq!(stored(&story, 1), Some(r#"{"n": 3}"#.into()));
        assert_eq!(stored(&story, 2), Some(r#"{"m":1}"#.into()));
    }

    /// A tool that asks gets the answer and goes on; the model hears what came of that, and nothing of the answer.
    #[test]
    fn an_answer_that_a_tool_goes_on_with_is_not_its_result() {
        use crate::command::{Suspend, SuspendFor};
        use crate::hold::Ask;
        use crate::message::ToolResult;
        use crate::transcript::{Entry, transcript};
        let mut story = Story::new();
        story.replies("", &[("read", "{}")]);
        for (attempt, state) in [(1, "first"), (2, "second")] {
            story.begins(1);
            let ask = Ask { resume: Some(Box::new(Body::text(state))), ..Ask::default() };
            let kind = SuspendFor::Input;
            let (call, timeout, secret, worker) = (CallNo(1), None, None, None);
            let suspend = Suspend { call, attempt, kind, ask, timeout, secret, worker };
            story.by(crate::actor::Actor::Node(crate::testing::NODE), Command::Suspend(suspend));
            story.decides(1, Choice::Answer { value: Body::text(format!("to the {state}")) });
            let answer = Body::text(format!("to the {state}"));
            let expected = Continuation { state: Body::text(state), answer, is_repeat: false };
            assert_eq!(continuation(&story.events, CallNo(1)), Some(expected));
        }
        story.begins(1);
        story.finishes_attempt(1, 3, ToolResult::Ok(Body::text("paid")));
        let results: Vec<Body> = transcript(&story.events)
            .into_iter()
            .filter_map(|entry| match entry {
                Entry::Tool(result) => Some(result.content),
                Entry::User(_) | Entry::Assistant(_) => None,
            })
            .collect();
        assert_eq!(results, [Body::text("paid")]);
        assert_eq!(continuation(&story.events, CallNo(2)), None);
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
