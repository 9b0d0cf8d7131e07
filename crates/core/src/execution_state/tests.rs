//! The flat state of a run that waits: its fields, their names and order, and its way through JSON.
//!
//! Runs come from `testing.rs`; the outcome of each call is tested in `transcript/tests.rs`.

use super::*;
use crate::apply;
use crate::body::Body;
use crate::command::{Choice, Entropy, OnHold, SuspendFor};
use crate::message::ToolResult;
use crate::name::Tenant;
use crate::run::{Status, WaitKind, status};
use crate::testing::{Story, body, json, tool, user};
use crate::time::Millis;

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
    assert_eq!(speakers(&history), [Speaker::User, Speaker::Agent, Speaker::Agent]);
    assert_eq!(speakers(&current_turn), [Speaker::Agent, Speaker::Agent]);
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
    story.decides(2, Choice::ApproveEdited { arguments: json(r#"{"a": null}"#) });
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
        "the execution state cannot be read: this is not the id of a run at line 1 column 14"
    );
    let mut state = state(&waiting());
    state.iteration = 7;
    assert_eq!(
        refused(&state.to_json()),
        "the execution state says two things: iteration and reasoning_state.iteration differ"
    );
}

/// S0-15, S0-16, S0-23: the conversation is readable JSON in A2A's spelling, calls and results in it as data parts.
#[test]
fn messages_are_spelled_as_a2a_spells_them() {
    let mut story = waiting();
    story.says("and hurry", OnHold::Supersede);
    let state = state(&story);
    let task = story.run.facts.id;
    let call_id = |no| CallId { run: task, no: crate::id::CallNo(no) };
    let message_id = |seq| crate::id::MessageId { run: task, seq: crate::id::Seq(seq) };
    let spelled = |message: &TurnMessage| serde_json::to_string(message).unwrap();
    let head = |id: String, role: &str| {
        format!(r#"{{"messageId":"{id}","contextId":"ctx-1","taskId":"{task}","role":"{role}","parts":["#)
    };
    let first = head(message_id(2).to_string(), "ROLE_USER") + r#"{"text":"tidy up"}],"metadata":{"seq":2}}"#;
    assert_eq!(spelled(&state.history[0]), first);
    let reply = head(message_id(3).to_string(), "ROLE_AGENT")
        + r#"{"text":"I look"},{"data":{"id":""#
        + &call_id(1).to_string()
        + r#"","name":"read","arguments":{ "n": 9007199254740993 }},"#
        + r#""metadata":{"type":"tool_call","provider_id":"p0"}}],"metadata":{"seq":3}}"#;
    assert_eq!(spelled(&state.history[1]), reply);
    let result = head(call_id(1).to_string(), "ROLE_AGENT")
        + r#"{"data":{"id":""#
        + &call_id(1).to_string()
        + r#"","name":"read","status":"ok","content":"found"},"#
        + r#""metadata":{"type":"tool_result","provider_id":"p0"}}]}"#;
    assert_eq!(spelled(&state.history[2]), result);
    let last = state.current_turn.last().unwrap();
    assert_eq!((last.role, &last.parts[..]), (Speaker::User, &[TurnPart::Text("and hurry".into())][..]));
    for message in state.history.iter().chain(&state.current_turn) {
        assert_eq!(serde_json::from_str::<TurnMessage>(&spelled(message)).unwrap(), *message);
    }
}

fn setting(story: &Story) -> Setting<'_> {
    Setting {
        tenant: Tenant::default_tenant(),
        owner: user("alice"),
        by: crate::actor::Actor::Client(user("root")),
        definition: &story.definition,
        at: story.now.plus(Millis::hours(1)),
        entropy: Entropy([9; 32]),
    }
}

/// Every way in which a call of a waiting run can have come to something.
fn stories() -> Vec<(&'static str, Story)> {
    let story = |change: &dyn Fn(&mut Story)| {
        let mut story = waiting();
        change(&mut story);
        story
    };
    let deny = |reason: Option<&str>| Choice::Deny { reason: reason.map(str::to_owned) };
    let lost = |story: &mut Story| {
        story.decides(2, Choice::Approve);
        story.begins(2);
        story.loses(2);
    };
    vec![
        ("before the first reply", Story::new()),
        ("waiting", waiting()),
        (
            "denied with a reason",
            story(&|story| {
                story.decides(2, deny(Some("not today")));
            }),
        ),
        (
            "denied without one",
            story(&|story| {
                story.decides(2, deny(None));
            }),
        ),
        (
            "edited, and failed",
            story(&|story| {
                story.decides(2, Choice::ApproveEdited { arguments: json(r#"{"a": null}"#) });
                story.begins(2);
                story.finishes(2, ToolResult::Failed(body("[1.0]")));
            }),
        ),
        (
            "edited, and not started yet",
            story(&|story| {
                story.decides(2, Choice::ApproveEdited { arguments: json(r#"{"a": "other"}"#) });
            }),
        ),
        ("superseded", story(&|story| story.says("and hurry", OnHold::Supersede))),
        (
            "did not happen",
            story(&|story| {
                lost(story);
                story.decides(2, deny(Some("the disk was away")));
            }),
        ),
        (
            "happened",
            story(&|story| {
                lost(story);
                story.decides(2, Choice::Answer { value: Body::text("it was written") });
            }),
        ),
        (
            "run again, and denied by a rule",
            story(&|story| {
                lost(story);
                story.decides(2, Choice::Approve);
                story.bans("write");
                story.begins(2);
            }),
        ),
        (
            "an outside job that timed out",
            story(&|story| {
                story.decides(2, Choice::Approve);
                story.begins(2);
                story.suspends(2, SuspendFor::External);
                story.waits(Millis::hours(25));
            }),
        ),
        ("over", {
            let mut story = Story::new();
            story.replies("done", &[]);
            story
        }),
    ]
}

/// S0-18, S0-19, S0-20, S0-22, S0-78: a run made of its exported state, and nothing else, has every field of it; it
/// carries no channel, stream or request, and what was open waits for a person.
#[test]
fn a_run_is_restored_from_its_exported_state() {
    for (name, story) in stories() {
        let exported = ExecutionState::from_json(&state(&story).to_json()).unwrap();
        let restored = exported.restore(&setting(&story));
        let RestoredRun { run, events } = restored.unwrap_or_else(|error| panic!("{name}: {error}"));
        let again = execution_state(&run, &story.definition, &events);
        assert_eq!(again, exported, "{name}");
        assert_eq!(again.to_json(), state(&story).to_json(), "{name}: byte for byte");
        assert_eq!(run.state.holds.len(), exported.pending_tool_calls.len(), "{name}");
        let places: Vec<u64> = events.iter().map(|envelope| envelope.seq.0).collect();
        assert_eq!(places, (1..=events.len() as u64).collect::<Vec<_>>(), "{name}: a log has no gaps");
        if !exported.pending_tool_calls.is_empty() {
            assert_eq!(status(&run), Status::Held(WaitKind::Person), "{name}");
        }
    }
}

/// S0-18: what cannot be restored whole is not restored.
#[test]
fn nothing_is_restored_by_half() {
    let story = waiting();
    let exported = state(&story);
    let refused =
        |state: &ExecutionState, setting: &Setting<'_>| state.restore(setting).unwrap_err().to_string();
    let mut other = story.definition.clone();
    other.sub_agents.clear();
    assert_eq!(
        refused(&exported, &Setting { definition: &other, ..setting(&story) }),
        "no run can be made of the execution state: the run would have another sub_agents"
    );
    let mut state = exported.clone();
    state.history[0].metadata = None;
    let text = refused(&state, &setting(&story));
    assert!(text.ends_with("does not say where it stood"), "{text}");
    let mut state = exported.clone();
    state.history[0].metadata = Some(LogPosition { seq: crate::id::Seq(u64::MAX), model: None });
    let text = refused(&state, &setting(&story));
    assert!(text.contains("cannot stand at"), "{text}");
    let mut state = exported;
    state.iteration = 9;
    let text = refused(&state, &setting(&story));
    assert_eq!(text, "no run can be made of the execution state: the run would have another iteration");
}

/// S0-7, S0-17, C27: an entry is the flat state, with its doubled fields; the nested shape is none.
#[test]
fn the_nested_shape_is_not_an_execution_state() {
    let flat = state(&waiting());
    let fields: std::collections::BTreeMap<String, RawJson> =
        serde_json::from_slice(&flat.to_json()).unwrap();
    for doubled in ["query", "history", "current_turn", "iteration", "total_tokens", "assistant_response"] {
        let inner: std::collections::BTreeMap<String, RawJson> =
            serde_json::from_str(fields["reasoning_state"].text()).unwrap();
        assert_eq!(fields[doubled], inner[doubled], "{doubled}");
    }
    assert!(!fields.contains_key("checkpoint_data") && !fields.contains_key("execution_state"));
    let nested = format!(
        r#"{{"execution_state":{},"pending_tool_call":null,"checkpoint_data":{{}}}}"#,
        String::from_utf8(flat.to_json()).unwrap()
    );
    let refused = ExecutionState::from_json(nested.as_bytes()).unwrap_err();
    assert!(refused.to_string().contains("missing field `task_id`"), "{refused}");
}
