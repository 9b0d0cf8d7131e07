//! The dialect of S3 at the addresses of 1.0: the printed requests, as they stand, by curl.
//!
//! C3 says how it differs from 1.0, and how a request is known to be in it.

use std::process::Command;

use serde_json::{Value, json};

use crate::a2a::server::{Server, configured, demo, says, state};
use crate::a2a::streams::{Event, Reader};

/// The agent of the printed examples: it asks before it runs a command.
fn assistant(folder: &std::path::Path) -> Server {
    let script =
        "replies:\n- calls: [{tool: execute_command, arguments: {command: ls}}]\n- text: All done.\n";
    std::fs::write(folder.join("script.yaml"), script).unwrap();
    let config = "llms: {s: {type: scripted, script: script.yaml}}\n\
                  tools: {execute_command: {type: command, requires_approval: true, allowed_commands: [ls]}}\n\
                  agents: {assistant: {llm: s, tools: [execute_command], task: {}}}\n";
    configured(folder, config)
}

/// What curl gets for a body.
fn curl(server: &Server, body: &str) -> Value {
    let url = format!("{}/v1/agents/assistant/message:send", server.program.base);
    let mut curl = Command::new("curl");
    curl.args([
        "-s",
        "--noproxy",
        "*",
        "-X",
        "POST",
        &url,
        "-H",
        "Content-Type: application/json",
        "-d",
        body,
    ]);
    let output = curl.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The decision of the printed examples, in the words for this task.
fn decision(task: &Value, word: &str, more: &str) -> String {
    let id = task["id"].as_str().unwrap();
    format!(
        r#"{{"request": {{"role": "user", "taskId": "{id}", "parts": [{{"text": "{word}"}}, {{"data": {{"decision": "{word}"{more}}}}}]}}}}"#
    )
}

const BEGIN: &str = r#"{"request": {"role": "user", "parts": [{"text": "Delete all temporary files"}]}, "configuration": {"blocking": false}}"#;

/// S3-1, S3-17 … S3-19, S3-21 … S3-23, C3, C33: the printed requests, as they stand. The first does not want to wait and is
/// answered with the question all the same; the second waits to the end.
#[test]
fn the_printed_requests_work() {
    let folder = tempfile::tempdir().unwrap();
    let server = assistant(folder.path());
    let modified = r#", "modified_input": "{\"command\": \"ls -la /tmp\"}""#;
    for (word, more) in [("approve", ""), ("deny", ""), ("modify", modified)] {
        let began = curl(&server, BEGIN);
        let task = &began["task"];
        assert_eq!(state(task), "TASK_STATE_INPUT_REQUIRED", "{began}");
        let parts = &task["status"]["message"]["parts"];
        assert_eq!(
            parts[0]["text"],
            "🔐 Tool Approval Required\n\nTool: execute_command\nInput: ls\n\nPlease respond with one of: approve, deny, modify"
        );
        assert_eq!(parts[1]["data"]["interaction_type"], "tool_approval");
        assert_eq!(parts[1]["data"]["tool_input"], "ls");
        let done = curl(&server, &decision(task, word, more));
        assert_eq!(state(&done["task"]), "TASK_STATE_COMPLETED", "{word}: {done}");
        assert_eq!(done["task"]["status"]["message"]["parts"][0]["text"], "All done.");
        let said = &done["task"]["history"];
        assert_eq!(said[0]["role"], "ROLE_USER");
        assert!(!said[0]["messageId"].as_str().unwrap().is_empty(), "it has an id now");
    }
}

/// C33: with a model that takes its time, `blocking: false` is answered before it has said anything.
#[tokio::test]
async fn a_slow_model_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("slow.yaml"), "replies:\n- text: done\n  delay: 8s\n").unwrap();
    let config = "llms: {slow: {type: scripted, script: slow.yaml}}\nagents: {one: {llm: slow, task: {}}}\n";
    let server = configured(folder.path(), config);
    let answer = server.ask("POST", "/v1/agents/one/message:send", &[], BEGIN.as_bytes()).await;
    assert_eq!(state(&answer.body["task"]), "TASK_STATE_WORKING", "{answer:?}");
    let id = answer.body["task"]["id"].as_str().unwrap();
    server.until("one", id, "TASK_STATE_COMPLETED").await;
    let waits = r#"{"request": {"role": "user", "parts": [{"text": "go"}]}}"#;
    let answer = server.ask("POST", "/v1/agents/one/message:send", &[], waits.as_bytes()).await;
    assert_eq!(state(&answer.body["task"]), "TASK_STATE_COMPLETED", "absent means that it waits");
}

/// C2, C3, S3-24: a stopped task in either spelling, by who asks; what names neither version is read by its body.
#[tokio::test]
async fn one_state_has_two_spellings() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let task = server.send("ops", &says("go")).await;
    let path = format!("/v1/agents/ops/tasks/{}", task["id"].as_str().unwrap());
    let cancelled = server.ask("POST", &format!("{path}:cancel"), &[], b"").await;
    assert_eq!(state(&cancelled.body), "TASK_STATE_CANCELLED");
    assert_eq!(state(&server.get(&path).await.body), "TASK_STATE_CANCELLED");
    let newer = server.ask("GET", &path, &[("a2a-version", "1.0")], b"").await;
    assert_eq!(state(&newer.body), "TASK_STATE_CANCELED");
    assert_eq!(
        state(&server.ask("POST", &format!("{path}:cancel"), &[], b"{}").await.body),
        "TASK_STATE_CANCELED"
    );
    let list = server.get("/v1/agents/ops/tasks?status=TASK_STATE_CANCELED").await;
    assert_eq!(
        (list.body["totalSize"].as_u64(), state(&list.body["tasks"][0])),
        (Some(1), "TASK_STATE_CANCELLED")
    );
    assert_eq!(list.body["nextPageToken"], "", "the four members are always there");
    let header =
        server.ask("POST", "/v1/agents/ops/message:send", &[("a2a-version", "1.0")], BEGIN.as_bytes()).await;
    assert_eq!((header.status, header.reason()), (400, "INVALID_PARAMS"), "the header wins");
    let at_root = server.ask("POST", "/message:send", &[], BEGIN.as_bytes()).await;
    assert_eq!((at_root.status, at_root.reason()), (400, "INVALID_PARAMS"), "the dialect is at the agents");
}

fn told(event: &Event) -> (Option<&str>, &str) {
    (event.name.as_deref(), event.data["status"]["state"].as_str().unwrap())
}

/// S3-25, C3: a subscription, word for word; whoever comes back gets the rest.
#[tokio::test]
async fn a_subscription_has_events_with_names() {
    let folder = tempfile::tempdir().unwrap();
    let server = assistant(folder.path());
    let began = server.ask("POST", "/v1/agents/assistant/message:send", &[], BEGIN.as_bytes()).await;
    let task = &began.body["task"];
    let path = format!("/v1/agents/assistant/tasks/{}:subscribe", task["id"].as_str().unwrap());
    let none = ("a2a-version", "");
    let mut reader = Reader::open(&server, "GET", &path, &[none], None).await;
    let first = reader.next().await.unwrap();
    assert_eq!(told(&first), (Some("status_update"), "TASK_STATE_INPUT_REQUIRED"));
    let members: Vec<&String> = first.data.as_object().unwrap().keys().collect();
    assert_eq!(members, ["contextId", "status", "taskId"]);
    assert_eq!((&first.data["taskId"], &first.data["status"]), (&task["id"], &task["status"]));
    let body = decision(task, "approve", "");
    server.ask("POST", "/v1/agents/assistant/message:send", &[], body.as_bytes()).await;
    let rest = reader.rest().await;
    let expected =
        [(Some("status_update"), "TASK_STATE_WORKING"), (Some("status_update"), "TASK_STATE_COMPLETED")];
    assert_eq!(rest.iter().map(told).collect::<Vec<_>>(), expected);
    let last = first.id.unwrap();
    let again =
        Reader::open(&server, "GET", &path, &[none, ("last-event-id", &last)], None).await.rest().await;
    assert_eq!(again.iter().skip(1).map(told).collect::<Vec<_>>(), expected);
    let body = json!({"request": {"role": "user", "parts": [{"text": "go"}]}});
    let stream =
        Reader::open(&server, "POST", "/v1/agents/assistant/message:stream", &[none], Some(&body)).await;
    let events = stream.rest().await;
    let expected =
        [(Some("status_update"), "TASK_STATE_WORKING"), (Some("status_update"), "TASK_STATE_INPUT_REQUIRED")];
    assert_eq!(events.iter().map(told).collect::<Vec<_>>(), expected);
}

/// C34, S0-36, S3-29: unknown tasks, finished ones and other conversations are refused with the words of 1.0, so that a
/// client finds out whether its `taskId` is right, whether the task waits, and whether it has ended.
#[tokio::test]
async fn mistakes_are_told() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let task = server.send("ops", &says("go")).await;
    let id = task["id"].as_str().unwrap();
    let asks = async |request: Value| {
        let body = json!({"request": request});
        let answer = server.post("/v1/agents/ops/message:send", &body).await;
        (
            answer.status,
            answer.reason().to_owned(),
            answer.body["error"]["message"].as_str().unwrap().to_owned(),
        )
    };
    let request = |id: &str, context: &Value| json!({"role": "user", "taskId": id, "contextId": context, "parts": [{"text": "deny"}]});
    let (status, reason, _) = asks(request("run_x", &task["contextId"])).await;
    assert_eq!((status, reason.as_str()), (404, "TASK_NOT_FOUND"));
    let (status, reason, message) = asks(request(id, &json!("other"))).await;
    assert_eq!((status, reason.as_str(), message.as_str()), (400, "INVALID_PARAMS", "context ID mismatch"));
    let (status, reason, _) = asks(json!({"role": "somebody", "parts": [{"text": "x"}]})).await;
    assert_eq!((status, reason.as_str()), (400, "INVALID_PARAMS"));
    let denied = server
        .post("/v1/agents/ops/message:send", &json!({"request": request(id, &task["contextId"])}))
        .await;
    assert_eq!(state(&denied.body["task"]), "TASK_STATE_COMPLETED", "S3-22: the run goes on");
    let (status, reason, message) = asks(request(id, &task["contextId"])).await;
    assert_eq!((status, reason.as_str()), (400, "UNSUPPORTED_OPERATION"));
    assert!(message.contains(id), "{message}");
    assert_eq!(state(&server.get(&format!("/v1/agents/ops/tasks/{id}")).await.body), "TASK_STATE_COMPLETED");
}
