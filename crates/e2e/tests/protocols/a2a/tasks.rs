//! Tasks over both bindings: sent, got, cancelled, and every error that a client can cause.

use serde_json::json;

use crate::a2a::server::{asked, decides, demo, replies, says, state};

/// S3-2 … S3-9, S3-17, S3-18, S0-41, S0-44: the whole way of the printed example, over HTTP+JSON.
#[tokio::test]
async fn a_task_waits_is_approved_and_completes() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let task = server.send("ops", &says("Delete all temporary files")).await;
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED");
    let message = &task["status"]["message"];
    assert_eq!(message["role"], "ROLE_AGENT");
    assert_eq!(
        message["parts"][0]["text"],
        "🔐 Tool Approval Required\n\nTool: delete_file\nInput: /srv/cache/old\n\nPlease respond with one of: approve, deny, modify"
    );
    let data_part = &asked(&task)[0];
    assert_eq!(data_part["interaction_type"], "tool_approval");
    assert_eq!(data_part["tool_name"], "delete_file");
    assert_eq!(data_part["tool_input"], "/srv/cache/old");
    assert_eq!(data_part["options"], json!(["approve", "deny", "modify"]));
    for name in ["hold_id", "tool_call_id", "digest"] {
        assert!(data_part[name].is_string(), "C26: {data_part}");
    }
    let timestamp = task["status"]["timestamp"].as_str().unwrap();
    assert!(timestamp.ends_with('Z') && timestamp.len() == 24, "{timestamp}");

    let parts = json!([{"text": "approve"}, {"data": {"decision": "approve"}}]);
    let done = server.send("ops", &replies(&task, parts)).await;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED");
    let words = "I have dealt with the old cache.";
    assert_eq!(done["status"]["message"]["parts"][0]["text"], words);
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], words);
    let history = done["history"].as_array().unwrap();
    let roles: Vec<&str> = history.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["ROLE_USER", "ROLE_USER", "ROLE_AGENT"]);
    assert_eq!(history[0]["messageId"], "m-1");
    assert_eq!(history[1]["parts"][0]["data"]["decision"], "approve");
    assert_eq!(history[2]["parts"][0]["text"], words);
}

/// The same over JSON-RPC, at the agent's address and at the root.
#[tokio::test]
async fn json_rpc_does_the_same() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let sent = server.rpc("ops", "SendMessage", json!({"message": says("go")})).await;
    let task = &sent.body["result"]["task"];
    assert_eq!(state(task), "TASK_STATE_INPUT_REQUIRED");
    let got = server.rpc("ops", "GetTask", json!({"id": task["id"], "historyLength": 0})).await;
    assert_eq!(got.body["result"]["id"], task["id"]);
    assert!(got.body["result"].get("history").is_none(), "0 means none: {got:?}");
    let at_root = json!({"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": task["id"]}});
    let at_root = server.post("/", &at_root).await;
    assert_eq!((at_root.body["id"].as_u64(), &at_root.body["result"]["id"]), (Some(7), &task["id"]));
    let denied = decides(task, json!({"decision": "deny", "reason": "not today"}));
    let denied = server.rpc("ops", "SendMessage", json!({"message": denied})).await;
    assert_eq!(state(&denied.body["result"]["task"]), "TASK_STATE_COMPLETED", "S3-22: the run goes on");
    assert!(!data.path().join("demo-effects.log").exists(), "nothing ran");
}

/// S3-24, C2: cancelling withdraws what is pending; once more changes nothing; what has ended cannot be cancelled.
#[tokio::test]
async fn a_task_is_cancelled_once_and_for_all() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let task = server.send("ops", &says("go")).await;
    let id = task["id"].as_str().unwrap();
    let path = format!("/v1/agents/ops/tasks/{id}:cancel");
    for body in ["", "{}", r#"{"metadata": {"reason": "changed my mind"}}"#] {
        let answer = server.ask("POST", &path, &[("a2a-version", "1.0")], body.as_bytes()).await;
        assert_eq!((answer.status, state(&answer.body)), (200, "TASK_STATE_CANCELED"));
    }
    let late = decides(&task, json!({"decision": "approve", "hold_id": asked(&task)[0]["hold_id"]}));
    let late = server.post("/v1/agents/ops/message:send", &json!({"message": late})).await;
    assert_eq!((late.status, late.reason()), (400, "UNSUPPORTED_OPERATION"));
    assert!(!data.path().join("demo-effects.log").exists());

    let other = server.send("ops", &says("go")).await;
    let done = server.send("ops", &decides(&other, json!({"decision": "approve"}))).await;
    let answer = server.rpc("ops", "CancelTask", json!({"id": done["id"]})).await;
    assert_eq!(
        (answer.body["error"]["code"].as_i64(), answer.reason()),
        (Some(-32002), "TASK_NOT_CANCELABLE")
    );
}

/// C34, S0-35, S0-36 and the order of checks, in both bindings.
#[tokio::test]
async fn every_mistake_has_its_answer() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let waiting = server.send("ops", &says("go")).await;
    let done = server.send("ops", &decides(&waiting, json!({"decision": "deny"}))).await;
    let waiting = server.send("ops", &says("go")).await;
    let unknown = "run_00000000000000000000000000";
    let elsewhere = json!({"messageId": "m", "role": "ROLE_USER", "taskId": waiting["id"], "contextId": "other",
        "parts": [{"text": "approve"}]});
    let push =
        json!({"message": says("go"), "configuration": {"taskPushNotificationConfig": {"url": "http://x"}}});
    let id = waiting["id"].clone();
    for (method, params, code, reason) in [
        ("GetTask", json!({"id": unknown}), -32001, "TASK_NOT_FOUND"),
        ("GetTask", json!({"id": "no id at all"}), -32001, "TASK_NOT_FOUND"),
        ("GetTask", json!({"id": ""}), -32602, "INVALID_PARAMS"),
        ("GetTask", json!({}), -32602, "INVALID_PARAMS"),
        ("GetTask", json!({"id": id, "historyLength": -1}), -32602, "INVALID_PARAMS"),
        ("CancelTask", json!({"id": unknown}), -32001, "TASK_NOT_FOUND"),
        ("SubscribeToTask", json!({"id": unknown}), -32001, "TASK_NOT_FOUND"),
        ("SubscribeToTask", json!({"id": done["id"]}), -32004, "UNSUPPORTED_OPERATION"),
        ("SendMessage", json!({}), -32602, "INVALID_PARAMS"),
        (
            "SendMessage",
            json!({"message": {"role": "ROLE_USER", "parts": [{"text": "x"}]}}),
            -32602,
            "INVALID_PARAMS",
        ),
        (
            "SendMessage",
            json!({"message": {"messageId": "m", "role": "user", "parts": [{"text": "x"}]}}),
            -32602,
            "INVALID_PARAMS",
        ),
        (
            "SendMessage",
            json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}}),
            -32602,
            "INVALID_PARAMS",
        ),
        (
            "SendMessage",
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}}),
            -32602,
            "INVALID_PARAMS",
        ),
        (
            "SendMessage",
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{}]}}),
            -32602,
            "INVALID_PARAMS",
        ),
        (
            "SendMessage",
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "taskId": unknown, "parts": [{"text": "x"}]}}),
            -32001,
            "TASK_NOT_FOUND",
        ),
        (
            "SendMessage",
            json!({"message": replies(&done, json!([{"text": "more"}]))}),
            -32004,
            "UNSUPPORTED_OPERATION",
        ),
        ("SendMessage", json!({"message": elsewhere}), -32602, "INVALID_PARAMS"),
        ("SendMessage", push, -32602, "INVALID_PARAMS"),
        (
            "CreateTaskPushNotificationConfig",
            json!({"taskId": id, "url": "http://x"}),
            -32602,
            "INVALID_PARAMS",
        ),
        ("GetTaskPushNotificationConfig", json!({"taskId": id, "id": "c"}), -32001, "TASK_NOT_FOUND"),
        ("ListTaskPushNotificationConfigs", json!({"taskId": unknown}), -32001, "TASK_NOT_FOUND"),
        ("DeleteTaskPushNotificationConfig", json!({"taskId": unknown, "id": "c"}), -32001, "TASK_NOT_FOUND"),
        ("GetTask", json!({"id": id, "tenant": "travel"}), -32602, "INVALID_PARAMS"),
        ("NoSuchMethod", json!({}), -32601, "METHOD_NOT_FOUND"),
    ] {
        let answer = server.rpc("ops", method, params.clone()).await;
        let found = (answer.body["error"]["code"].as_i64(), answer.reason());
        assert_eq!(found, (Some(code), reason), "{method} {params}: {answer:?}");
        assert!(answer.body.get("result").is_none());
    }
    let mismatch = server.rpc("ops", "SendMessage", json!({"message": elsewhere})).await;
    assert_eq!(mismatch.body["error"]["message"], "context ID mismatch");
    let foreign = server.rpc("travel", "GetTask", json!({"id": id})).await;
    assert_eq!(foreign.reason(), "TASK_NOT_FOUND", "a task of another agent is not there");
}

/// The same mistakes have an HTTP status of their own, and a body with details.
#[tokio::test]
async fn errors_over_http_have_their_status() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let (json_type, text) = (("content-type", "application/json"), ("content-type", "text/plain"));
    let version = |version| ("a2a-version", version);
    for (method, path, headers, body, status, reason) in [
        ("GET", "/v1/agents/ops/tasks/run_x", vec![], "", 404, "TASK_NOT_FOUND"),
        ("GET", "/v1/agents/ops/tasks?pageSize=0", vec![], "", 400, "INVALID_PARAMS"),
        ("GET", "/v1/agents/ops/tasks?pageSize=101", vec![], "", 400, "INVALID_PARAMS"),
        ("GET", "/v1/agents/ops/tasks?pageSize=9223372036854775808", vec![], "", 400, "INVALID_PARAMS"),
        ("GET", "/v1/agents/ops/tasks?status=working", vec![], "", 400, "INVALID_PARAMS"),
        ("GET", "/v1/agents/ops/tasks?pageToken=xyz", vec![], "", 400, "INVALID_PARAMS"),
        ("GET", "/v1/agents/ops/tasks?statusTimestampAfter=now", vec![], "", 400, "INVALID_PARAMS"),
        ("GET", "/v1/agents/ops/tasks?pageSize=1&pageSize=2", vec![], "", 400, "INVALID_PARAMS"),
        ("GET", "/v1/agents/nobody/tasks", vec![], "", 404, "METHOD_NOT_FOUND"),
        ("GET", "/v1/agents/ops/nothing", vec![], "", 404, "METHOD_NOT_FOUND"),
        ("GET", "/v1/agents/ops/message:send", vec![], "", 404, "METHOD_NOT_FOUND"),
        ("GET", "/v1/agents/ops/tasks", vec![version("0.2")], "", 400, "VERSION_NOT_SUPPORTED"),
        (
            "POST",
            "/v1/agents/ops/message:send",
            vec![version("2.0"), text],
            "x",
            400,
            "VERSION_NOT_SUPPORTED",
        ),
        ("POST", "/v1/agents/ops/message:send", vec![text], "{}", 400, "CONTENT_TYPE_NOT_SUPPORTED"),
        ("POST", "/v1/agents/ops/message:send", vec![json_type], "{", 400, "PARSE_ERROR"),
        ("POST", "/v1/agents/ops/message:send", vec![json_type], "[]", 400, "INVALID_PARAMS"),
        (
            "POST",
            "/v1/agents/ops/tasks/run_x/pushNotificationConfigs",
            vec![json_type],
            "{}",
            400,
            "INVALID_PARAMS",
        ),
        ("DELETE", "/v1/agents/ops/tasks/run_x/pushNotificationConfigs/c", vec![], "", 404, "TASK_NOT_FOUND"),
    ] {
        let answer = server.ask(method, path, &headers, body.as_bytes()).await;
        assert_eq!((answer.status, answer.reason()), (status, reason), "{method} {path}: {answer:?}");
        assert_eq!(answer.body["error"]["code"], status);
    }
    let large = format!(r#"{{"message": "{}"}}"#, "x".repeat(2 * 1024 * 1024));
    let answer = server.ask("POST", "/v1/agents/ops/message:send", &[json_type], large.as_bytes()).await;
    assert_eq!((answer.status, answer.reason()), (413, "REQUEST_TOO_LARGE"));
}

/// S0-39, C11: a client that does not want to wait is answered at once; the default is to wait.
#[tokio::test]
async fn who_does_not_want_to_wait_is_answered_at_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("slow.yaml"), "replies:\n- text: done\n  delay: 2s\n").unwrap();
    let config = "llms: {slow: {type: scripted, script: slow.yaml}}\nagents: {one: {llm: slow, task: {}}}\n";
    let server = crate::a2a::server::configured(folder.path(), config);
    let at_once = json!({"message": says("go"), "configuration": {"returnImmediately": true}});
    let answer = server.post("/message:send", &at_once).await;
    assert_eq!(state(&answer.body["task"]), "TASK_STATE_WORKING", "the only agent is at the root");
    let id = answer.body["task"]["id"].as_str().unwrap();
    assert_eq!(state(&server.send("one", &says("go")).await), "TASK_STATE_COMPLETED");
    server.until("one", id, "TASK_STATE_COMPLETED").await;
    let queued = server.post("/message:send", &at_once).await;
    let task = &queued.body["task"];
    let more = server.send("one", &replies(task, json!([{"text": "and this"}]))).await;
    assert_eq!(state(&more), "TASK_STATE_COMPLETED", "C34: what is said to a task at work is queued");
    let said: Vec<_> =
        more["history"].as_array().unwrap().iter().map(|one| one["parts"][0]["text"].clone()).collect();
    assert!(said.contains(&json!("and this")), "{said:?}");
}

/// Trap 2: the same message twice is two tasks, unless the client asks for one; then another body is refused.
#[tokio::test]
async fn only_a_key_makes_a_repeat_safe() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let body = json!({"message": says("go")}).to_string();
    let send = |key: Option<&'static str>, body: String| {
        let server = &server;
        async move {
            let headers: Vec<(&str, &str)> = key.into_iter().map(|key| ("idempotency-key", key)).collect();
            server.ask("POST", "/v1/agents/ops/message:send", &headers, body.as_bytes()).await
        }
    };
    let id = |answer: &crate::a2a::server::Answer| answer.body["task"]["id"].as_str().unwrap().to_owned();
    let (first, second) = (send(None, body.clone()).await, send(None, body.clone()).await);
    assert_ne!(id(&first), id(&second));
    let (first, second) = (send(Some("k"), body.clone()).await, send(Some("k"), body.clone()).await);
    assert_eq!(id(&first), id(&second));
    let other = send(Some("k"), json!({"message": says("something else")}).to_string()).await;
    assert_eq!((other.status, other.reason()), (400, "INVALID_PARAMS"));

    let mut message = says("go");
    message["metadata"] = json!({"a2a-rust.com/idempotency-key": "in the message"});
    let body = json!({"message": message}).to_string();
    let uri = "https://a2a-rust.com/extensions/idempotency/v1";
    let headers = [("a2a-extensions", uri)];
    let first = server.ask("POST", "/v1/agents/ops/message:send", &headers, body.as_bytes()).await;
    assert_eq!(first.headers["a2a-extensions"], uri, "what is spoken is said back");
    assert_eq!(id(&first), id(&send(None, body).await));
}

/// S0-39, S0-41, C11, C33: a decision that does not wait is answered at once with the task at work, in 1.0 (`returnImmediately`), in 0.3 and
/// in the older dialect (`blocking: false`); the run goes on in the background to its end.
#[tokio::test]
async fn a_resume_that_does_not_wait_is_answered_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let script = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"sleep 5\"}'\n- text: done\n";
    std::fs::write(folder.path().join("slow.yaml"), script).unwrap();
    let config = "llms: {slow: {type: scripted, script: slow.yaml}}
tools: {execute_command: {allowed_commands: [sleep], requires_approval: true}}
agents: {one: {llm: slow, tools: [execute_command], task: {}}}\n";
    let server = crate::a2a::server::configured(folder.path(), config);
    let task = server.send("one", &says("go")).await;
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED");
    let decision = decides(&task, json!({"decision": "approve"}));
    let body = json!({"message": decision, "configuration": {"returnImmediately": true}});
    let answer = server.post("/message:send", &body).await;
    assert_eq!(state(&answer.body["task"]), "TASK_STATE_WORKING", "{answer:?}");
    // In the dialect `blocking: false` waits two seconds at most (C33), in 0.3 not at all.
    let dialect = server.send("one", &says("go")).await;
    let request = json!({"role": "user", "taskId": dialect["id"],
        "parts": [{"text": "approve"}, {"data": {"decision": "approve", "hold_id": dialect["status"]["message"]["parts"][1]["data"]["hold_id"]}}]});
    let body = json!({"request": request, "configuration": {"blocking": false}});
    let answer = server.ask("POST", "/v1/agents/one/message:send", &[], body.to_string().as_bytes()).await;
    assert_eq!(state(&answer.body["task"]), "TASK_STATE_WORKING", "{answer:?}");
    let older = server.send("one", &says("go")).await;
    let message = json!({"kind": "message", "messageId": "older", "role": "user", "taskId": older["id"],
        "parts": [{"kind": "data", "data": {"decision": "approve", "hold_id": older["status"]["message"]["parts"][1]["data"]["hold_id"]}}]});
    let params = json!({"message": message, "configuration": {"blocking": false}});
    let answer = server.rpc("one", "message/send", params).await;
    assert_eq!(answer.body["result"]["status"]["state"], "working", "{answer:?}");
    for task in [&task, &dialect, &older] {
        let done = server.until("one", task["id"].as_str().unwrap(), "TASK_STATE_COMPLETED").await;
        assert_eq!(done["status"]["message"]["parts"][0]["text"], "done");
    }
}

/// S0-44, C26: what a message that decides says, and its parts, ids and metadata, stand in the history beside the decision, for
/// whoever reads the task later, also after `kill -9`; its model is not told them.
#[tokio::test]
async fn what_a_deciding_message_says_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = crate::a2a::v03::older(folder.path());
    let decision = json!({"decision": "approve"});
    let parts = json!([{"text": "Yes, but only this once"}, {"data": decision},
        {"raw": "dGNr", "filename": "why.txt", "mediaType": "text/plain"}]);
    let task = server.send("ops", &says("go")).await;
    let mut message = replies(&task, parts.clone());
    message["metadata"] = json!({"ticket": "T-7"});
    let done = server.send("ops", &message).await;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED");
    let kept = |task: &serde_json::Value| {
        let history = task["history"].as_array().unwrap().clone();
        let decided: Vec<_> = history
            .into_iter()
            .filter(|message| message["parts"][0]["data"]["decision"] == "approve")
            .collect();
        assert_eq!(decided.len(), 1, "{task}");
        decided[0].clone()
    };
    let said = kept(&done);
    assert_eq!(said["messageId"], message["messageId"]);
    assert_eq!(said["role"], "ROLE_USER");
    assert_eq!(said["metadata"], json!({"ticket": "T-7"}));
    assert_eq!(said["parts"][0]["data"]["decided_by"], "local", "what was decided comes first");
    assert_eq!(said["parts"].as_array().unwrap()[1..], parts.as_array().unwrap()[..], "then what was sent");
    let server = crate::a2a::server::configured_again(server, folder.path());
    let path = format!("/v1/agents/ops/tasks/{}", task["id"].as_str().unwrap());
    let version = [("a2a-version", "1.0")];
    assert_eq!(kept(&server.ask("GET", &path, &version, b"").await.body), said, "after kill -9");

    // In the older dialect and in 0.3 the same; a decision on another surface has nothing beside it.
    let begun = json!({"request": {"role": "user", "parts": [{"text": "go"}]}});
    let task = server.post("/v1/agents/ops/message:send", &begun).await.body["task"].clone();
    let decide = json!({"request": {"role": "user", "taskId": task["id"],
        "parts": [{"text": "approve"}, {"data": {"decision": "approve"}}]}});
    let done = server.post("/v1/agents/ops/message:send", &decide).await.body["task"].clone();
    assert_eq!(kept(&done)["parts"][1], json!({"text": "approve"}), "{done}");
    let task = server.send("ops", &says("go")).await;
    let hold = asked(&task)[0]["hold_id"].as_str().unwrap().to_owned();
    let native = json!({"resolution": "approve"});
    assert_eq!(server.post(&format!("/api/v1/holds/{hold}/resolve"), &native).await.status, 200);
    let done = server.until("ops", task["id"].as_str().unwrap(), "TASK_STATE_COMPLETED").await;
    assert_eq!(kept(&done)["parts"].as_array().unwrap().len(), 1, "{done}");
}

/// S0-44: a message that decides several holds stands in the history once, beside the last of its decisions.
#[tokio::test]
async fn a_message_that_decides_several_is_kept_once() {
    let folder = tempfile::tempdir().unwrap();
    let write =
        |name: &str| format!(r#"{{tool: write_file, arguments: '{{"path": "{name}", "content": "x"}}'}}"#);
    let script = format!("replies:\n- calls: [{}, {}]\n- text: done\n", write("a.txt"), write("b.txt"));
    std::fs::write(folder.path().join("two.yaml"), script).unwrap();
    let config = "llms: {s: {type: scripted, script: two.yaml}}\nagents: {ops: {llm: s, tools: [write_file], task: {}}}\n";
    let server = crate::a2a::server::configured(folder.path(), config);
    let task = server.send("ops", &says("go")).await;
    let decided: Vec<_> = asked(&task)
        .iter()
        .map(|one| json!({"data": {"decision": "approve", "hold_id": one["hold_id"]}}))
        .chain([json!({"text": "Both, please"})])
        .collect();
    let done = server.send("ops", &replies(&task, json!(decided))).await;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{done}");
    let history = done["history"].to_string();
    assert_eq!(history.matches("Both, please").count(), 1, "{history}");
    assert_eq!(history.matches("decided_by").count(), 2, "{history}");
}

/// S0-44, F1: killed at any moment while a message decides, a task has both, the decision and the words, or neither.
#[tokio::test]
async fn a_kill_leaves_a_decision_together_with_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = crate::a2a::v03::older(folder.path());
    let mut decided = 0;
    for round in 0..u64::try_from(standfast_testkit::rounds(12)).unwrap() {
        let task = server.send("ops", &says("go")).await;
        let body = json!({"message": replies(&task, json!([{"text": "Only this once"}, {"data": {"decision": "approve"}}]))});
        let url = format!("{}/v1/agents/ops/message:send", server.program.base);
        let sending =
            server.client.post(url).header("content-type", "application/json").body(body.to_string());
        let sending = tokio::spawn(async move { sending.send().await.is_ok() });
        tokio::time::sleep(std::time::Duration::from_millis(round % 12)).await;
        server = crate::a2a::server::configured_again(server, folder.path());
        let was_answered = sending.await.unwrap();
        let path = format!("/v1/agents/ops/tasks/{}", task["id"].as_str().unwrap());
        let now = server.ask("GET", &path, &[("a2a-version", "1.0")], b"").await.body;
        let history = now["history"].to_string();
        let (has_decision, has_words) = (history.contains("decided_by"), history.contains("Only this once"));
        assert_eq!(has_decision, has_words, "{round}: {now}");
        assert!(has_decision || !was_answered, "{round}: what was answered is durable: {now}");
        decided += usize::from(has_decision);
    }
    assert!(decided > 0, "some were in time");
}
