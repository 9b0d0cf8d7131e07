//! The flat state of a run that waits: its fields, their names and order, and its way through JSON.
//!
//! Runs come from `testing.rs`; what each call came to is tested in `transcript/tests.rs`.

use super::*;
use crate::apply;
use crate::command::Wanted;
use crate::message::ToolResult;
use crate::testing::{Story, body, json, tool};

fn state(story: &Story) -> ExecutionState {
    execution_state(&story.run, &story.definition, &story.events)
}

/// One turn that ran, and one that waits for two people.
fn waiting() -> Story {
    let mut story = Story::new();
    story.replies("I look", &[("read", r#"{ "n": 9007199254740993 }"#)]);
    story.begins(1);
    story.finishes(1, ToolResult::Ok(Body::text("found")));
    story.replies("I write", &[("write", r#"{"a":1}"#), ("write", r#"{"b":2}"#), ("banned", "{}")]);
    story
}

fn call(story: &Story, no: u32, name: &str, arguments: &str) -> PendingCall {
    let id = CallId { run: story.run.facts.id, no: crate::id::CallNo(no) };
    PendingCall { id, name: tool(name), arguments: json(arguments) }
}

/// S0-15, S0-16, S0-21: what a waiting run is.
#[test]
fn a_waiting_run_is_shown_with_its_open_calls_and_its_conversation() {
    let story = waiting();
    let ExecutionState { reasoning_state, history, current_turn, .. } = state(&story);
    let open = vec![call(&story, 2, "write", r#"{"a":1}"#), call(&story, 3, "write", r#"{"b":2}"#)];
    let speakers = |messages: &[TurnMessage]| messages.iter().map(|m| m.role).collect::<Vec<_>>();
    assert_eq!(speakers(&history), [Speaker::User, Speaker::Assistant, Speaker::Tool]);
    assert_eq!(speakers(&current_turn), [Speaker::Assistant, Speaker::Tool]);
    let inner = ReasoningStateSnapshot {
        iteration: 2,
        total_tokens: 30,
        history: history.clone(),
        current_turn: current_turn.clone(),
        assistant_response: "I look\nI write".into(),
        first_iteration_tool_calls: vec![call(&story, 1, "read", r#"{ "n": 9007199254740993 }"#)],
        final_response_added: false,
        query: "tidy up".into(),
        agent_name: story.run.facts.agent.clone(),
        sub_agents: vec![AgentName::new("helper").unwrap()],
        show_thinking: true,
    };
    assert_eq!(reasoning_state, inner);
    let whole = ExecutionState {
        task_id: story.run.facts.id,
        context_id: SessionId::new("ctx-1").unwrap(),
        query: "tidy up".into(),
        reasoning_state,
        pending_tool_call: open.first().cloned(),
        pending_tool_calls: open,
        history,
        current_turn,
        iteration: 2,
        total_tokens: 30,
        assistant_response: "I look\nI write".into(),
    };
    assert_eq!(state(&story), whole);
}

/// S0-15, S0-16: names and order of the fields.
#[test]
fn the_fields_have_their_names_and_order() {
    let text = String::from_utf8(state(&waiting()).to_json()).unwrap();
    let order = |names: &[&str], from: &str| {
        let places = names.iter().map(|name| from.find(&format!("\"{name}\":")).unwrap());
        assert!(places.is_sorted(), "{names:?}");
    };
    let inner = &text[text.find("\"reasoning_state\":").unwrap()..];
    let inside = ["iteration", "total_tokens", "history", "current_turn", "assistant_response"];
    order(&inside, inner);
    let more = ["first_iteration_tool_calls", "final_response_added", "query", "agent_name", "sub_agents"];
    order(&more, inner);
    let after = &text[text.find("\"show_thinking\":").unwrap()..];
    order(&["pending_tool_call", "pending_tool_calls"], after);
    order(&inside[2..4], after);
    order(&["current_turn", "iteration", "total_tokens", "assistant_response"], after);
    order(&["task_id", "context_id", "query", "reasoning_state"], &text);
}

/// S0-77: a state that is serialized and deserialized equals the original.
#[test]
fn a_state_survives_its_json() {
    let mut story = waiting();
    story.decides(2, Wanted::ApproveEdited { arguments: json(r#"{"a": null}"#) });
    story.begins(2);
    story.finishes(2, ToolResult::Failed(body("[1.0]")));
    let state = state(&story);
    assert_eq!(ExecutionState::from_json(&state.to_json()), Ok(state));
}

/// S0-78, S0-20: a run restored from its events has every value of the captured one, tokens and first calls too.
#[test]
fn a_restored_run_has_the_values_of_the_captured_one() {
    let story = waiting();
    let captured = ExecutionState::from_json(&state(&story).to_json()).unwrap();
    let restored = apply::fold(story.run.facts.id, &story.events).unwrap();
    assert_eq!(restored, story.run);
    assert_eq!(execution_state(&restored, &story.definition, &story.events), captured);
    assert_eq!((captured.iteration, captured.total_tokens), (2, 30));
    assert_eq!(captured.reasoning_state.first_iteration_tool_calls.len(), 1);
}

#[test]
fn a_run_that_is_over_has_nothing_pending_and_its_last_word() {
    let mut story = Story::new();
    let before = state(&story);
    assert_eq!((before.history.len(), before.current_turn.len()), (1, 0));
    story.replies("done", &[]);
    let state = state(&story);
    assert_eq!((state.pending_tool_call, state.pending_tool_calls), (None, vec![]));
    assert!(state.reasoning_state.final_response_added);
    assert_eq!(state.assistant_response, "done");
}

/// S0-18: bad input is an error that says what is wrong.
#[test]
fn bad_input_is_refused_in_words() {
    let refused = |bytes: &[u8]| ExecutionState::from_json(bytes).unwrap_err().to_string();
    let unreadable = "the execution state cannot be read: EOF while parsing a value at line 1 column 0";
    assert_eq!(refused(b""), unreadable);
    assert_eq!(
        refused(br#"{"task_id":"x"}"#),
        "the execution state cannot be read: this is not the id of a run at line 1 column 15"
    );
    let mut state = state(&waiting());
    state.iteration = 7;
    assert_eq!(
        refused(&state.to_json()),
        "the execution state says two things: iteration and reasoning_state.iteration differ"
    );
}
