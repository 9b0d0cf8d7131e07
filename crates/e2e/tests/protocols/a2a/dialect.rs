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
pub(crate) fn curl(server: &Server, body: &str) -> Value {
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
pub(crate) fn decision(task: &Value, word: &str, more: &str) -> String {
    let id = task["id"].as_str().unwrap();
    format!(
        r#"{{"request": {{"role": "user", "taskId": "{id}", "parts": [{{"text": "{word}"}}, {{"data": {{"decision": "{word}"{more}}}}}]}}}}"#
    )
}

pub(crate) const BEGIN: &str = r#"{"request": {"role": "user", "parts": [{"text": "Delete all temporary files"}]}, "configuration": {"blocking": false}}"#;

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

/// S3-18, S3-23: `modify` without `modified_input`, and with one that does not fit, is answered with the task still waiting and
/// a text; nothing runs.
#[tokio::test]
async fn a_decision_with_a_mistake_leaves_the_task_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let server = assistant(folder.path());
    let began = curl(&server, BEGIN);
    let task = &began["task"];
    for (more, why) in [
        ("", "modified_input"),
        (r#", "modified_input": "{not json""#, "modified_input"),
        (r#", "modified_input": "{\"command\": 7}""#, "modified_input/command"),
        (r#", "hold_id": "hold_of_nobody""#, "hold_of_nobody"),
    ] {
        let answer = curl(&server, &decision(task, "modify", more));
        assert_eq!(state(&answer["task"]), "TASK_STATE_INPUT_REQUIRED", "{more}: {answer}");
        let parts = answer["task"]["status"]["message"]["parts"].as_array().unwrap();
        assert_eq!(parts[1]["data"], task["status"]["message"]["parts"][1]["data"], "the question stays");
        let said = parts.last().unwrap()["text"].as_str().unwrap();
        assert!(said.starts_with("Nothing was decided: ") && said.contains(why), "{more}: {said}");
        assert!(!said.contains("Open holds"), "this client knows no ids: {said}");
    }
    assert_eq!(state(&curl(&server, &decision(task, "deny", ""))["task"]), "TASK_STATE_COMPLETED");
}

/// S3-20, C26, C34: whoever decides what somebody else has decided, or what has timed out, is shown the task as it is now, also
/// when it has ended; whoever was told that it has ended is refused from then on.
#[tokio::test]
async fn a_late_decision_is_answered_with_the_task_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = assistant(folder.path());
    let began = curl(&server, BEGIN);
    let task = &began["task"];
    let hold = task["status"]["message"]["parts"][1]["data"]["hold_id"].as_str().unwrap();
    let elsewhere = json!({"resolution": "deny"});
    assert_eq!(server.post(&format!("/api/v1/holds/{hold}/resolve"), &elsewhere).await.status, 200);
    let native = format!("/api/v1/runs/{}", task["id"].as_str().unwrap());
    standfast_testkit::until_found("the end of the run", async || {
        (server.get(&native).await.body["status"] == "completed").then_some(())
    })
    .await;
    let send = async |body: String| {
        server.ask("POST", "/v1/agents/assistant/message:send", &[], body.as_bytes()).await
    };
    let late = send(decision(task, "approve", "")).await;
    assert_eq!((late.status, state(&late.body["task"])), (200, "TASK_STATE_COMPLETED"), "{late:?}");
    let parts = late.body["task"]["status"]["message"]["parts"].as_array().unwrap();
    assert_eq!(parts[0]["text"], "All done.");
    assert!(parts[1]["text"].as_str().unwrap().starts_with("Nothing was decided: "), "{late:?}");
    let told = send(decision(task, "deny", "")).await;
    assert_eq!((told.status, told.reason()), (400, "UNSUPPORTED_OPERATION"), "{told:?}");
    let words = send(decision(task, "hello", "").replace("decision", "note")).await;
    assert_eq!((words.status, words.reason()), (400, "UNSUPPORTED_OPERATION"), "no decision: {words:?}");
}

/// S3-25: the name of an event stands before its data, byte for byte, on streams of the dialect.
#[tokio::test]
async fn the_name_of_an_event_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let server = assistant(folder.path());
    let url = format!("{}/v1/agents/assistant/message:stream", server.program.base);
    let sent = server.client.post(url).header("content-type", "application/json").body(BEGIN);
    let text = sent.send().await.unwrap().text().await.unwrap();
    let frames: Vec<&str> = text.split("\n\n").filter(|frame| frame.contains("data:")).collect();
    assert!(frames.len() >= 2, "{text}");
    for frame in frames {
        let names: Vec<&str> = frame.lines().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(names, ["event", "data", "id"], "{frame}");
        assert!(frame.starts_with("event: status_update\ndata: {\"taskId\":"), "{frame}");
    }
}

/// S0-30, S3-27, C29: without a `task` block the call is denied, and clients read it: on the stream as it happens, and in the
/// task's history, in the dialect and in 1.0.
#[tokio::test]
async fn a_denial_without_a_task_block_is_told_as_text() {
    const DENIED: &str = "⚠️  Tool requires approval but task tracking not enabled, denying\n";
    let folder = tempfile::tempdir().unwrap();
    let script = "replies:\n- text: Let me see.\n  calls: [{tool: execute_command, arguments: {command: ls}}]\n\
                  - calls: [{tool: execute_command, arguments: {command: pwd}}]\n- text: All done.\n";
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    let config = "llms: {s: {type: scripted, script: script.yaml}}\n\
                  tools: {execute_command: {type: command, requires_approval: true, allowed_commands: [ls, pwd]}}\n\
                  agents: {plain: {llm: s, tools: [execute_command]}}\n";
    let server = configured(folder.path(), config);
    let dialect = json!({"request": {"role": "user", "parts": [{"text": "go"}]}});
    let newer = json!({"message": says("go")});
    for (body, version) in [(&dialect, ("a2a-version", "")), (&newer, ("a2a-version", "1.0"))] {
        let sent = server.post("/v1/agents/plain/message:send", body).await;
        let task = &sent.body["task"];
        assert_eq!(state(task), "TASK_STATE_COMPLETED", "{sent:?}");
        assert_eq!(task["status"]["message"]["parts"][0]["text"], "All done.");
        let said: Vec<&Value> = task["history"].as_array().unwrap().iter().collect();
        let denials = said
            .iter()
            .filter(|message| message["role"] == "ROLE_AGENT" && message["parts"][0]["text"] == DENIED);
        assert_eq!(denials.count(), 2, "{task}");
        let path = "/v1/agents/plain/message:stream";
        let events = Reader::open(&server, "POST", path, &[version], Some(body)).await.rest().await;
        let texts: Vec<String> = events
            .iter()
            .map(|event| {
                event.data.get("statusUpdate").unwrap_or(&event.data)["status"]["message"]["parts"].clone()
            })
            .filter_map(|parts| parts.as_array().cloned())
            .map(|parts| parts.iter().filter_map(|part| part["text"].as_str()).collect())
            .collect();
        assert!(texts.contains(&format!("Let me see.{DENIED}")), "{texts:?}");
        assert!(texts.contains(&DENIED.to_owned()), "{texts:?}");
    }
}

/// S3-20, S0-38a, C26, F5: a decision of the dialect and one of somebody else at the same moment: one of them counts, and the loop
/// gets a task in any case, never an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_race_with_somebody_else_never_breaks_a_loop() {
    let folder = tempfile::tempdir().unwrap();
    let server = assistant(folder.path());
    let (mut won, mut lost) = (0, 0);
    let rounds = standfast_testkit::rounds(200);
    for round in 0..rounds {
        let began = server.ask("POST", "/v1/agents/assistant/message:send", &[], BEGIN.as_bytes()).await;
        let task = &began.body["task"];
        let hold = task["status"]["message"]["parts"][1]["data"]["hold_id"].as_str().unwrap();
        let (body, deny) = (decision(task, "approve", ""), json!({"resolution": "deny"}));
        let path = format!("/api/v1/holds/{hold}/resolve");
        let (ours, theirs) = tokio::join!(
            server.ask("POST", "/v1/agents/assistant/message:send", &[], body.as_bytes()),
            server.post(&path, &deny)
        );
        assert_eq!(
            (ours.status, state(&ours.body["task"])),
            (200, "TASK_STATE_COMPLETED"),
            "{round}: {ours:?}"
        );
        let was_ours = theirs.status != 200;
        let said = ours.body["task"]["status"]["message"].to_string();
        assert_eq!(said.contains("Nothing was decided"), !was_ours, "{round}: {said}, {theirs:?}");
        let log = server.get(&format!("/api/v1/runs/{}/events", task["id"].as_str().unwrap())).await.body;
        let decided: Vec<&Value> = log["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["type"] == "hold.resolved")
            .collect();
        assert_eq!(decided.len(), 1, "{round}: {log}");
        assert_eq!(decided[0].to_string().contains("approve"), was_ours, "{round}: {log}");
        if was_ours { won += 1 } else { lost += 1 }
    }
    // Of a few rounds one side may win all.
    let is_raced = won > 0 && lost > 0;
    assert!(is_raced || rounds < 20, "one side was always first: {won} won, {lost} lost");
}
