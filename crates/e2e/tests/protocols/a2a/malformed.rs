//! Whatever is sent, the server answers with an error of the protocol: no 5xx, no panic, and it goes on working.
//!
//! Real requests to the real program, so that what stands before the parsers is tested with them.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::a2a::server::{Server, demo, says, state};

/// Is it a good answer to something that may be anything?
fn check(status: u16, body: &Value, sent: &[u8]) {
    assert!(status < 500, "{status} {body} for {}", String::from_utf8_lossy(sent));
    let code = body.get("code").or_else(|| body["error"].get("code")).and_then(Value::as_i64);
    assert_ne!(code, Some(-32603), "internal error {body} for {}", String::from_utf8_lossy(sent));
}

async fn both(server: &Server, body: &[u8]) {
    for path in [
        "/v1/agents/ops",
        "/v1/agents/ops/message:send",
        "/v1/agents/ops/tasks/run_x:cancel",
        "/v1/agents/ops/v1/message:send",
        "/v1/agents/ops/v1/tasks/run_x:cancel",
    ] {
        let answer = server.ask("POST", path, &[], body).await;
        check(answer.status, &answer.body, body);
    }
}

/// The cases that have broken others: F24, and what JSON readers disagree about.
#[tokio::test]
async fn known_troublemakers_are_answered() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let rpc =
        |params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{params}}}"#);
    let message =
        |part: &str| format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{part}]}}}}"#);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for (body, code) in [
        ("".to_owned(), -32005),
        ("{".to_owned(), -32700),
        ("nonsense".to_owned(), -32700),
        ("[]".to_owned(), -32600),
        ("[{}]".to_owned(), -32600),
        ("1".to_owned(), -32600),
        ("null".to_owned(), -32600),
        (r#""text""#.to_owned(), -32600),
        ("{}".to_owned(), -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#.to_owned(), -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#.to_owned(), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"GetTask"}"#.to_owned(), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#.to_owned(), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}"#.to_owned(), -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":null}"#.to_owned(), -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":1}}"#.to_owned(), -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"a","id":"b"}}"#.to_owned(), -32602),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":9223372036854775808}}"#
                .to_owned(),
            -32602,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":1e99}}"#.to_owned(), -32602),
        (rpc(&deep), -32600),
        (rpc(&message(&format!(r#"{{"data":{deep}}}"#))), -32600),
        (rpc(&message(r#"{"data":{"a":1,"a":2}}"#)), -32602),
        (rpc(&message(r#"{"text":"\ud800"}"#)), -32602),
    ] {
        let answer = server.ask("POST", "/v1/agents/ops", &[], body.as_bytes()).await;
        assert_eq!((answer.status, answer.body["error"]["code"].as_i64()), (200, Some(code)), "{body:.120}");
        both(&server, body.as_bytes()).await;
    }
    let bad_utf8 =
        [&b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\",\"params\":{\"id\":\""[..], b"\xff\xfe\"}}"]
            .concat();
    let answer = server.ask("POST", "/v1/agents/ops", &[], &bad_utf8).await;
    assert_eq!(answer.body["error"]["code"], -32700);
    both(&server, &bad_utf8).await;
}

/// Integers of any size, `null` and how numbers are written survive the way in and out.
#[tokio::test]
async fn data_comes_back_as_it_was_sent() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    for sent in
        ["null", "9223372036854775808", r#"{"n":-9223372036854775809,"f":1.0}"#, r#"[1e400,{"a":null}]"#]
    {
        let body = format!(
            r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"go"}},{{"data":{sent}}}]}}}}"#
        );
        let request = server.client.post(format!("{}/v1/agents/ops/message:send", server.program.base));
        let request = request.header("content-type", "application/json").body(body);
        let text = request.send().await.unwrap().text().await.unwrap();
        assert!(text.contains(&format!(r#"{{"data":{sent}}}"#)), "{sent}: {text}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        ".{0,12}".prop_map(Value::from),
        Just(json!("ROLE_USER")),
        Just(json!("user")),
        Just(json!("approve")),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        let names = prop_oneof![
            Just("message".to_owned()),
            Just("messageId".to_owned()),
            Just("role".to_owned()),
            Just("parts".to_owned()),
            Just("content".to_owned()),
            Just("request".to_owned()),
            Just("kind".to_owned()),
            Just("file".to_owned()),
            Just("blocking".to_owned()),
            Just("text".to_owned()),
            Just("data".to_owned()),
            Just("taskId".to_owned()),
            Just("configuration".to_owned()),
            Just("historyLength".to_owned()),
            Just("metadata".to_owned()),
            ".{0,6}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let methods = prop_oneof![
        Just("SendMessage"),
        Just("GetTask"),
        Just("ListTasks"),
        Just("CancelTask"),
        Just("SubscribeToTask"),
        Just("GetExtendedAgentCard"),
        Just("CreateTaskPushNotificationConfig"),
        Just("message/send"),
        Just("tasks/get"),
        Just("tasks/cancel"),
        Just("tasks/pushNotificationConfig/set"),
        Just("agent/getAuthenticatedExtendedCard"),
    ];
    let rpc = (methods, any_json()).prop_map(|(method, params)| {
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string().into_bytes()
    });
    // Nearly right, in any of the versions and bindings.
    let names = prop_oneof![Just("message"), Just("request")];
    let parts = prop_oneof![Just("parts"), Just("content")];
    let roles = prop_oneof![Just("ROLE_USER"), Just("user")];
    let near = (any_json(), names, parts, roles).prop_map(|(part, name, parts, role)| {
        json!({name: {"messageId": "m", "role": role, "taskId": "run_x", parts: [part]}})
            .to_string()
            .into_bytes()
    });
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        any_json().prop_map(|value| value.to_string().into_bytes()),
        rpc,
        near
    ]
}

/// Random bodies, random JSON, and JSON that is nearly right; then the server still does its work.
#[test]
fn random_bodies_are_answered() {
    let data = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(async { demo(data.path()) });
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let tried = runner.run(&(any_body(), any::<prop::sample::Index>()), |(body, cut)| {
        runtime.block_on(both(&server, &body));
        // Broken off somewhere.
        runtime.block_on(both(&server, &body[..cut.index(body.len() + 1)]));
        Ok(())
    });
    tried.unwrap();
    let paths = runner.run(&"[/a-z:%?=&.0-9]{0,40}", |path| {
        let answer = runtime.block_on(server.get(&format!("/v1/agents/ops/{path}")));
        check(answer.status, &answer.body, path.as_bytes());
        let answer = runtime.block_on(server.get(&format!("/v1/agents/ops/v1/{path}")));
        check(answer.status, &answer.body, path.as_bytes());
        Ok(())
    });
    paths.unwrap();
    let task = runtime.block_on(server.send("ops", &says("go")));
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED");
}
