//! Between 1.0 and 0.3, as tables: every state, every error, every kind of part, and which request is whose.
//!
//! The words are those of the 0.3 specification and of its protobuf.

use serde_json::{Value, json};

use super::super::error::{A2aError, Kind};
use super::super::wire::{self as newer, TaskState};
use super::error::{OlderError, code, http};
use super::map::{self, Form, Sender};
use super::wire::{ProtoPart, RpcPart, SendParams};
use super::*;

const STATES: [TaskState; 8] = [
    TaskState::Submitted,
    TaskState::Working,
    TaskState::Completed,
    TaskState::Failed,
    TaskState::Canceled,
    TaskState::InputRequired,
    TaskState::Rejected,
    TaskState::AuthRequired,
];

fn value(of: impl serde::Serialize) -> Value {
    serde_json::to_value(of).unwrap()
}

fn raw(json: &str) -> newer::Json {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn task(state: TaskState, parts: Vec<newer::Part>) -> newer::Task {
    let message = newer::Message {
        message_id: "m".into(),
        context_id: Some("c".into()),
        task_id: Some("t".into()),
        role: newer::Role::Agent,
        parts: parts.clone(),
        metadata: None,
        extensions: None,
        reference_task_ids: Some(vec!["other".into()]),
    };
    newer::Task {
        id: "t".into(),
        context_id: "c".into(),
        status: newer::TaskStatus { state, message: Some(message.clone()), timestamp: "now".into() },
        artifacts: vec![newer::Artifact { artifact_id: "a".into(), name: "result", parts }],
        history: vec![newer::Message { role: newer::Role::User, ..message }],
    }
}

/// C2: every state in both forms of 0.3.
#[test]
fn every_state_has_its_word_in_both_forms() {
    let words = |form| STATES.map(|state| map::state(form, state));
    assert_eq!(
        words(Form::Rpc),
        [
            "submitted",
            "working",
            "completed",
            "failed",
            "canceled",
            "input-required",
            "rejected",
            "auth-required"
        ]
    );
    assert_eq!(
        words(Form::Proto),
        [
            "TASK_STATE_SUBMITTED",
            "TASK_STATE_WORKING",
            "TASK_STATE_COMPLETED",
            "TASK_STATE_FAILED",
            "TASK_STATE_CANCELLED",
            "TASK_STATE_INPUT_REQUIRED",
            "TASK_STATE_REJECTED",
            "TASK_STATE_AUTH_REQUIRED"
        ]
    );
}

/// Every error in both bindings of 0.3: no code that it does not know, beside those that every server has of its own.
#[test]
fn every_error_has_a_code_that_0_3_knows() {
    let known = [
        (-32700, 400),
        (-32600, 400),
        (-32601, 404),
        (-32602, 400),
        (-32603, 500),
        (-32001, 404),
        (-32002, 409),
        (-32003, 400),
        (-32004, 400),
        (-32005, 415),
        (-32007, 404),
        (-32603, 400),
        (-32603, 400),
        (-31401, 401),
        (-31403, 403),
        (-31413, 413),
        (-31503, 503),
    ];
    assert_eq!(Kind::ALL.map(|kind| (code(kind), http(kind).as_u16())), known);
    for kind in Kind::ALL {
        let told = value(OlderError::of(&A2aError::new(kind, "why")));
        let why = if kind == Kind::TaskNotFound { "Task not found: why" } else { "why" };
        assert_eq!((&told["code"], &told["message"]), (&json!(code(kind)), &json!(why)));
        assert_eq!(told["data"][0]["reason"], kind.names().reason, "the newer name helps too");
    }
}

/// A whole task in both forms; what 0.3 over HTTP+JSON does not know is not there.
#[test]
fn a_task_in_both_forms() {
    let file = newer::Part {
        url: Some("https://example.com/a".into()),
        media_type: Some("text/plain".into()),
        filename: Some("a".into()),
        ..newer::Part::default()
    };
    let bytes = newer::Part { raw: Some("YQ==".into()), ..newer::Part::default() };
    let data = newer::Part { data: Some(raw(r#"{"n":9223372036854775808}"#)), ..newer::Part::default() };
    let number = newer::Part { data: Some(raw("7")), ..newer::Part::default() };
    let shown = task(TaskState::InputRequired, vec![newer::Part::text("hello"), file, bytes, data, number]);
    let rpc = serde_json::to_string(&map::task(Form::Rpc, &shown)).unwrap();
    assert!(rpc.contains(r#"{"kind":"data","data":{"n":9223372036854775808}}"#), "{rpc}");
    let rpc: Value = serde_json::from_str(&rpc).unwrap();
    assert_eq!((&rpc["kind"], &rpc["status"]["state"]), (&json!("task"), &json!("input-required")));
    let said = &rpc["status"]["message"];
    assert_eq!((&said["kind"], &said["role"]), (&json!("message"), &json!("agent")));
    assert_eq!(said["referenceTaskIds"], json!(["other"]));
    assert_eq!(said["parts"][0], json!({"kind": "text", "text": "hello"}));
    let named = json!({"uri": "https://example.com/a", "mimeType": "text/plain", "name": "a"});
    assert_eq!(said["parts"][1], json!({"kind": "file", "file": named}));
    assert_eq!(said["parts"][2], json!({"kind": "file", "file": {"bytes": "YQ=="}}));
    assert_eq!(
        said["parts"][4],
        json!({"kind": "data", "data": {"value": 7}, "metadata": {"data_part_compat": true}})
    );

    let proto = value(map::task(Form::Proto, &shown));
    assert!(proto.get("kind").is_none());
    let said = &proto["status"]["message"];
    assert_eq!(said["role"], "ROLE_AGENT");
    assert!(said.get("parts").is_none() && said.get("referenceTaskIds").is_none());
    assert_eq!(said["content"][0], json!({"text": "hello"}));
    let named = json!({"fileWithUri": "https://example.com/a", "mimeType": "text/plain", "name": "a"});
    assert_eq!(said["content"][1], json!({"file": named}));
    assert_eq!(said["content"][2], json!({"file": {"fileWithBytes": "YQ=="}}));
    assert_eq!(said["content"][4]["data"], json!({"data": {"value": 7}}));
    assert_eq!(proto["artifacts"][0]["parts"][0], json!({"text": "hello"}), "artifacts have parts");
    assert_eq!(proto["history"][0]["role"], "ROLE_USER");
}

/// An event is the last of its stream when the task has ended, or where the stream closes for a question.
#[test]
fn the_last_event_says_so() {
    for state in STATES {
        let shown = task(state, vec![newer::Part::text("x")]);
        let update = newer::TaskStatusUpdateEvent {
            task_id: shown.id,
            context_id: shown.context_id,
            status: shown.status,
        };
        let update = newer::StreamResponse::StatusUpdate(Box::new(update));
        let is_final = |closes| {
            let event = value(map::event(Form::Rpc, &update, closes));
            assert_eq!(event["statusUpdate"]["kind"], "status-update");
            event["statusUpdate"]["final"].as_bool().unwrap()
        };
        assert_eq!(is_final(false), state.is_terminal(), "{state:?}");
        assert_eq!(is_final(true), state.is_terminal() || state == TaskState::InputRequired, "{state:?}");
    }
}

fn read<P: map::OlderPart + serde::de::DeserializeOwned>(
    sender: Sender,
    body: &Value,
) -> Result<newer::SendMessageRequest, String> {
    let params: SendParams<P> = serde_json::from_value(body.clone()).map_err(|error| error.to_string())?;
    map::send(sender, params).map_err(|error| error.message)
}

/// What clients of 0.3 send means the same in 1.0.
#[test]
fn messages_of_both_forms_are_read() {
    let body = json!({"message": {"kind": "message", "messageId": "m", "role": "user", "taskId": "t", "parts": [
        {"kind": "text", "text": "approve"},
        {"kind": "data", "data": {"decision": "approve"}},
        {"kind": "data", "data": {"value": null}, "metadata": {"data_part_compat": true, "other": 1}},
        {"kind": "file", "file": {"bytes": "YQ==", "mimeType": "text/plain", "name": "a"}}]},
        "configuration": {"blocking": false, "historyLength": 0}});
    let request = read::<RpcPart>(Sender::Rpc, &body).unwrap();
    let parts = &request.message.parts;
    assert_eq!(parts[0].text.as_deref(), Some("approve"));
    assert_eq!(parts[1].data.as_ref().unwrap().get(), r#"{"decision":"approve"}"#);
    assert_eq!(parts[2].data.as_ref().unwrap().get(), "null", "it was no object");
    assert_eq!(parts[2].metadata.as_ref().unwrap().len(), 1);
    assert_eq!((parts[3].raw.as_deref(), parts[3].filename.as_deref()), (Some("YQ=="), Some("a")));
    let wanted = request.configuration.unwrap();
    assert_eq!((wanted.return_immediately, wanted.history_length), (Some(true), None));

    for name in ["message", "request"] {
        let body = json!({name: {"messageId": "m", "role": "ROLE_USER", "content": [
            {"text": "approve"}, {"data": {"data": {"decision": "approve"}}},
            {"file": {"fileWithUri": "https://example.com/a"}}]}});
        let request = read::<ProtoPart>(Sender::Proto, &body).unwrap();
        assert_eq!(request.message.parts[1].data.as_ref().unwrap().get(), r#"{"decision":"approve"}"#);
        assert_eq!(request.message.parts[2].url.as_deref(), Some("https://example.com/a"));
    }
    for (parts, why) in [
        (json!([{"kind": "text", "data": {}}]), "message.parts[0]"),
        (json!([{"kind": "video", "text": "x"}]), "message.parts[0]"),
        (json!([7]), "invalid type"),
    ] {
        let body = json!({"message": {"messageId": "m", "role": "user", "parts": parts}});
        let error = read::<RpcPart>(Sender::Rpc, &body).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

/// Who waits: absent means wait, except where protobuf leaves out what is false.
#[test]
fn who_waits_in_each_way_to_send() {
    let at_once = |sender, configuration: Value| {
        let body = json!({"message": {"role": "user", "parts": []}, "configuration": configuration});
        let read = read::<newer::Part>(sender, &body).unwrap();
        read.configuration.unwrap_or_default().return_immediately.unwrap_or(false)
    };
    for sender in [Sender::Rpc, Sender::Proto, Sender::Dialect] {
        assert!(!at_once(sender, Value::Null), "{sender:?}");
        assert!(!at_once(sender, json!({"blocking": true})), "{sender:?}");
        assert!(at_once(sender, json!({"blocking": false})), "{sender:?}");
    }
    assert!(!at_once(Sender::Rpc, json!({})));
    assert!(at_once(Sender::Proto, json!({})), "false is left out");
    assert!(!at_once(Sender::Dialect, json!({})));
}

/// C3, a2a.md 5.3: which request is spoken how, when no header says it.
#[test]
fn requests_are_known_by_address_method_and_body() {
    let rest = |path: &str, agent: Option<&str>, what| {
        let found = older_target(path).map(|target| (target.agent, target.what));
        assert_eq!(found, Some((agent.map(str::to_owned), PathTarget::Operation(what))), "{path}");
    };
    rest("/v1/agents/ops/v1/message:send", Some("ops"), Path::Send);
    rest("/v1/agents/ops/v1/message:stream", Some("ops"), Path::Stream);
    rest("/v1/agents/ops/v1/tasks/run_1", Some("ops"), Path::Task("run_1".into()));
    rest("/v1/agents/ops/v1/tasks/run_1:cancel", Some("ops"), Path::Cancel("run_1".into()));
    rest("/v1/agents/ops/v1/tasks/run_1:subscribe", Some("ops"), Path::Subscribe("run_1".into()));
    rest("/v1/agents/ops/v1/card", Some("ops"), Path::ExtendedCard);
    rest("/v1/message:send", None, Path::Send);
    rest("/v1/card", None, Path::ExtendedCard);
    for path in [
        "/",
        "/v1",
        "/v1/agents/ops",
        "/v1/agents/ops/message:send",
        "/v1/agents/ops/v1",
        "/v1/agents/ops/v1/extendedAgentCard",
        "/v1/agents/ops/v1/nothing",
        "/message:send",
        "/api/v1/message:send",
    ] {
        assert!(older_target(path).is_none(), "{path}");
    }
    for (path, body, says_older, expected) in [
        ("/v1/agents/ops", r#"{"method": "message/send"}"#, false, Some(Speaks::Rpc)),
        ("/", r#"{"method": "tasks/get"}"#, false, Some(Speaks::Rpc)),
        ("/v1/agents/ops", r#"{"method": "SendMessage"}"#, false, None),
        ("/v1/agents/ops", r#"{"method": "SendMessage"}"#, true, Some(Speaks::Rpc)),
        ("/v1/agents/ops", "nonsense", false, None),
        ("/v1/agents/ops/message:send", r#"{"request": {}}"#, false, Some(Speaks::Dialect)),
        ("/v1/agents/ops/message:send", r#"{"message": {}}"#, false, None),
        ("/v1/agents/ops/message:send", r#"{"message": {}}"#, true, Some(Speaks::Dialect)),
        ("/v1/agents/ops/message:send", "nonsense", false, None),
        ("/v1/agents/ops/tasks/run_1:subscribe", "", false, Some(Speaks::Dialect)),
        ("/v1/agents/ops/tasks/run_1:cancel", "", false, Some(Speaks::Dialect)),
        ("/v1/agents/ops/tasks/run_1:cancel", "{}", false, None),
        ("/v1/agents/ops/tasks", "", false, Some(Speaks::Dialect)),
        ("/v1/agents/ops/extendedAgentCard", "", false, None),
        ("/message:send", r#"{"request": {}}"#, false, None),
        ("/tasks/run_1:subscribe", "", false, None),
    ] {
        assert_eq!(speaks(&target(path), body.as_bytes(), says_older), expected, "{path} {body}");
    }
}

/// T31: whatever a client of 0.3 sends, it is an operation or a no, and the same one when it is read again.
#[test]
fn t31_any_request_of_0_3_is_read_or_refused() {
    let good = [
        r#"{"jsonrpc":"2.0","id":"a-1","method":"message/send","params":{"message":{"kind":"message","messageId":"m-1","taskId":"run_1","role":"user","parts":[{"kind":"text","text":"hello"},{"kind":"data","data":{"decision":"approve","hold_id":"hold_1"}},{"kind":"file","file":{"bytes":"aGVsbG8=","mimeType":"image/png","name":"a.png"}}]},"configuration":{"acceptedOutputModes":["text/plain"],"historyLength":3,"blocking":true}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"id":"run_1","historyLength":2}}"#,
        r#"{"jsonrpc":"2.0","id":8,"method":"tasks/cancel","params":{"id":"run_1"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"tasks/pushNotificationConfig/set","params":{"taskId":"run_1","pushNotificationConfig":{"id":"one","url":"https://example.com/hook","token":"t","authentication":{"schemes":["Bearer"],"credentials":"c"}}}}"#,
    ];
    let (mut taken, mut refused) = (0, 0);
    standfast_testkit::damage::each_text(&good, 60_000, |text| {
        let Ok(call) = super::super::jsonrpc::envelope(text.as_bytes()) else { return };
        let read = || rpc::operation(&call.method, &call.params).map(|operation| format!("{operation:?}"));
        match read() {
            Ok(operation) => {
                taken += 1;
                assert_eq!(read().ok(), Some(operation), "{text}");
            }
            Err(_) => refused += 1,
        }
    });
    assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused");
}
