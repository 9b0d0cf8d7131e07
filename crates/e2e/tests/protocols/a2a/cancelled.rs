//! Cancelling what runs (S3-24): the command is ended with all of its children, the request of a tool is dropped, open holds are withdrawn.
//!
//! What is looked at is outside of the server: the processes of this machine, and the other end of the connection.

use std::path::Path;

use serde_json::{Value, json};
use standfast_testkit::until_found;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use crate::a2a::server::{Server, configured, decides, says, state};

/// Processes with this word among their arguments.
fn running(word: &str) -> usize {
    let is_it = |folder: &Path| {
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().filter(|entry| is_it(&entry.as_ref().unwrap().path())).count()
}

/// The answer to a cancel, in the dialect or in 1.0.
async fn cancels(server: &Server, task: &Value, version: &[(&str, &str)]) -> Value {
    let path = format!("/v1/agents/ops/tasks/{}:cancel", task["id"].as_str().unwrap());
    let answer = server.ask("POST", &path, version, b"").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

/// S3-24, C2: a task is cancelled while an approved command and a request run and another call waits for a person. The answer says
/// that it is cancelled, in the spelling of whoever asks; the command is gone with its child, the other end of the request is hung up on,
/// the hold cannot be decided any more, and it stays so after `kill -9`.
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_stopped_and_what_waits_is_withdrawn() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = elsewhere.local_addr().unwrap().port();
    for (no, (version, word)) in
        [(&[][..], "TASK_STATE_CANCELLED"), (&[("a2a-version", "1.0")][..], "TASK_STATE_CANCELED")]
            .into_iter()
            .enumerate()
    {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // No other process sleeps for exactly so long.
        let seconds = format!("3600.{}{no}", std::process::id());
        let command = json!({"argv": ["timeout", "7200", "sleep", seconds]}).to_string();
        let url = json!({"url": format!("http://127.0.0.1:{port}/never")}).to_string();
        let script = json!({"replies": [{"calls": [
            {"tool": "execute_command", "arguments": command},
            {"tool": "http_request", "arguments": url},
            {"tool": "write_file", "arguments": r#"{"path": "a.txt", "content": "x"}"#}
        ]}, {"text": "never said"}]});
        std::fs::write(folder.path().join("script.yaml"), script.to_string()).unwrap();
        let config = format!(
            "llms: {{s: {{type: scripted, script: script.yaml}}}}
tools:
  execute_command: {{allowed_commands: [timeout], requires_approval: true, max_execution_time: 2h}}
  http_request: {{allowed_hosts: ['127.0.0.1:{port}'], requires_approval: false, timeout: 1h}}
session_stores: {{db: {{backend: sql, sql: {{driver: sqlite, database: ./runs.db}}}}}}
agents: {{ops: {{llm: s, session_store: db, tools: [execute_command, http_request, write_file], task: {{}}}}}}
"
        );
        let server = configured(folder.path(), &config);
        let at_once = json!({"message": says("go"), "configuration": {"returnImmediately": true}});
        let task = server.post("/v1/agents/ops/message:send", &at_once).await.body["task"].clone();
        let (mut request, _) = elsewhere.accept().await.unwrap();
        let holds = until_found("two calls wait", async || {
            let holds = server.get("/api/v1/holds").await.body["holds"].clone();
            (holds.as_array()?.len() == 2).then_some(holds)
        })
        .await;
        let of = |tool: &str| {
            let hold = holds.as_array().unwrap().iter().find(|hold| hold["tool"] == tool);
            hold.unwrap_or_else(|| panic!("no hold for {tool}: {holds}"))["id"].clone()
        };
        let approve = decides(&task, json!({"decision": "approve", "hold_id": of("execute_command")}));
        let approve = json!({"message": approve, "configuration": {"returnImmediately": true}});
        assert_eq!(server.post("/v1/agents/ops/message:send", &approve).await.status, 200);
        // `timeout` and its child.
        until_found("the command runs", async || (running(&seconds) >= 2).then_some(())).await;

        let cancelled = cancels(&server, &task, version).await;
        assert_eq!(state(&cancelled), word, "{cancelled}");
        until_found("the command is gone", async || (running(&seconds) == 0).then_some(())).await;
        let mut heard = Vec::new();
        request.read_to_end(&mut heard).await.unwrap();
        assert!(heard.starts_with(b"GET /never"), "then it was hung up: {}", String::from_utf8_lossy(&heard));
        let late = format!("/api/v1/holds/{}/resolve", of("write_file").as_str().unwrap());
        let decided = server.post(&late, &json!({"resolution": "approve"})).await;
        assert_eq!(decided.status, 409, "{decided:?}");
        let server = crate::a2a::server::configured_again(server, folder.path());
        let path = format!("/v1/agents/ops/tasks/{}", task["id"].as_str().unwrap());
        assert_eq!(state(&server.ask("GET", &path, version, b"").await.body), word);
        assert_eq!(server.get("/api/v1/holds").await.body["holds"], json!([]));
        assert!(!folder.path().join("workspace/a.txt").exists(), "what waited never ran");
    }
}
