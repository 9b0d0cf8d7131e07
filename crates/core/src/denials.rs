//! Calls that people have denied: a view of the log, so that a model does not wear people down by asking again (T28).
//!
//! A call is remembered by its tool and its arguments, loosely: spaces and the order of members do not make another call
//! of it. How long, and which runs' logs are looked at, is the engine's business.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::actor::Actor;
use crate::event::{Envelope, Event};
use crate::hold::{HoldKind, Resolution};
use crate::id::{CallNo, HoldKey};
use crate::name::ToolName;
use crate::time::Timestamp;

/// A call that a person denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The tool.
    pub tool: ToolName,
    /// The argument text.
    pub arguments: String,
    /// When.
    pub at: Timestamp,
}

/// The calls of a run that people denied.
#[must_use]
pub fn denials(events: &[Envelope]) -> Vec<Denial> {
    let mut calls: BTreeMap<CallNo, (&ToolName, Option<&str>)> = BTreeMap::new();
    let mut approvals: Vec<HoldKey> = Vec::new();
    let mut found = Vec::new();
    for envelope in events {
        if let Event::ModelReplied(replied) = &envelope.event {
            calls.extend(
                replied.reply.calls.iter().map(|call| (call.no, (&call.tool, call.arguments.inline()))),
            );
        }
        if let Event::CallProposed(proposed) = &envelope.event {
            calls.insert(proposed.call.no, (&proposed.call.tool, proposed.call.arguments.inline()));
        }
        if let Event::HoldEdited(edited) = &envelope.event
            && let Some(call) = calls.get_mut(&edited.hold.call)
        {
            call.1 = edited.edited.arguments.inline();
        }
        if let Event::HoldOpened(opened) = &envelope.event
            && opened.kind == HoldKind::Approval
        {
            approvals.push(opened.hold);
        }
        if let Event::HoldResolved(resolved) = &envelope.event
            && matches!(resolved.resolution, Resolution::Deny { .. })
            && matches!(envelope.actor, Actor::Person(_) | Actor::Link(_))
            && approvals.contains(&resolved.hold)
            && let Some((tool, Some(arguments))) = calls.get(&resolved.hold.call)
        {
            let denial =
                Denial { tool: (*tool).clone(), arguments: (*arguments).to_owned(), at: envelope.at };
            found.push(denial);
        }
    }
    found
}

/// When a person last said something in a run: what was denied before that may be asked for again.
#[must_use]
pub fn last_asked_at(events: &[Envelope]) -> Option<Timestamp> {
    let is_message = |event: &Event| {
        matches!(event, Event::RunStarted(_) | Event::MessageReceived(_) | Event::MessageQueued(_))
    };
    let by_person = |actor: &Actor| matches!(actor, Actor::Person(_) | Actor::Client(_));
    let asked = events.iter().filter(|envelope| is_message(&envelope.event) && by_person(&envelope.actor));
    asked.map(|envelope| envelope.at).max()
}

/// Arguments without what makes no other call of them. What is not JSON is itself.
#[must_use]
pub fn loose(arguments: &str) -> String {
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) => sorted(&value),
        Err(_) => one_spaced(arguments),
    }
}

fn sorted(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut members: Vec<String> =
                members.iter().map(|(name, value)| format!("{name:?}:{}", sorted(value))).collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(","))
        }
        Value::String(text) => format!("{:?}", one_spaced(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn one_spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Choice;
    use crate::testing::Story;

    /// T28: a denial is remembered with what was denied, and an approval or the model's own words are none.
    #[test]
    fn what_a_person_denied_is_remembered() {
        let mut story = Story::new();
        story.replies("", &[("write", r#"{ "n": 1 }"#), ("write", r#"{"n":2}"#)]);
        assert_eq!(denials(&story.events), []);
        story.decides(1, Choice::Deny { reason: Some("no".into()) });
        story.decides(2, Choice::Approve);
        let found = denials(&story.events);
        assert_eq!(
            found.iter().map(|denial| denial.arguments.as_str()).collect::<Vec<_>>(),
            [r#"{ "n": 1 }"#]
        );
        assert!(last_asked_at(&story.events).is_some_and(|asked| asked <= found[0].at));
    }

    #[test]
    fn spaces_and_the_order_of_members_make_no_other_call() {
        assert_eq!(loose(r#"{"a": 1, "b": " x  y "}"#), loose(r#"{"b":"x y","a":1}"#));
        assert_ne!(loose(r#"{"a":1}"#), loose(r#"{"a":2}"#));
        assert_ne!(loose(r#"{"a":"1"}"#), loose(r#"{"a":1}"#));
        assert_eq!(loose("not  json"), "not json");
    }
}
