//! The order of a pause (S0-32), seen from outside: what is told has been stored, and what cannot be stored is not told.
//!
//! The model is a provider on this machine that waits in the middle of its reply, so that the store can be taken away
//! between the start of a task and its pause.

use std::path::Path;

use serde_json::{Value, json};

use crate::a2a::live::{asks, stops, words};
use crate::a2a::server::{Server, asked, configured, configured_again, decides, says, state};
use crate::a2a::streams::{Reader, told};
use standfast_testkit::provider::{Answer, Fake, Pieces, Signal};

/// An agent whose model says a word, and asks for a call that needs approval when `go_on` is given.
fn served(folder: &Path, go_on: &Signal) -> (Fake, Server) {
    let first = words(&["Moment. "]);
    let reply = format!("{first}{}{}", asks(), stops("tool_calls"));
    let fake =
        Fake::answering(vec![Answer::stream(reply).in_pieces(Pieces::Halts(first.len(), go_on.clone()))]);
    let config = format!(
        "llms: {{m: {{type: openai, model: m, base_url: '{}'}}}}\n\
         session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
         agents: {{ops: {{llm: m, tools: [write_file], session_store: main, task: {{}}}}}}\n",
        fake.url
    );
    let server = configured(folder, &config);
    (fake, server)
}

/// The next status that a stream tells.
async fn next_status(reader: &mut Reader) -> Value {
    loop {
        let event = reader.next().await.unwrap_or_else(|| panic!("the stream ended"));
        let data = event.data.get("statusUpdate").or_else(|| event.data.get("task"));
        if let Some(data) = data {
            return data["status"].clone();
        }
        assert_eq!(told(&event), "artifact");
    }
}

/// S0-32: state, status and question are one write, and the stream gets it afterwards. While that write fails the task
/// stays at work for everybody, no stream says otherwise, and whoever needs a write gets the error; once it succeeds
/// the stream has the question. Killed at that moment the server has lost nothing: task, question and saved state are
/// there, and a decision goes on with them.
#[tokio::test(flavor = "multi_thread")]
async fn s0_32_a_pause_is_stored_before_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let go_on = Signal::default();
    let (fake, server) = served(folder.path(), &go_on);
    let body = json!({"message": says("write it")});
    let mut stream = Reader::open(&server, "POST", "/v1/agents/ops/message:stream", &[], Some(&body)).await;
    let begun = stream.next().await.unwrap().data["task"].clone();
    let id = begun["id"].as_str().unwrap();
    let path = format!("/v1/agents/ops/tasks/{id}");
    fake.request().unwrap();

    // Somebody else has the database: nothing can be written, everything can be read.
    let other = rusqlite::Connection::open(folder.path().join("sessions.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    go_on.give();
    let refused =
        server.post("/v1/agents/ops/message:send", &json!({"message": says("and another one")})).await;
    assert_eq!(refused.status, 503, "a write that fails is told: {refused:?}");
    let shown = server.get(&path).await.body;
    assert_eq!(state(&shown), "TASK_STATE_WORKING", "a failed save leaves the status: {shown}");
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);

    let mut status = next_status(&mut stream).await;
    while status["state"] == "TASK_STATE_WORKING" || status["state"] == "TASK_STATE_SUBMITTED" {
        status = next_status(&mut stream).await;
    }
    assert_eq!(status["state"], "TASK_STATE_INPUT_REQUIRED", "{status}");
    assert!(status["message"]["parts"][1]["data"]["hold_id"].is_string(), "{status}");
    let server = configured_again(server, folder.path());
    let task = server.get(&path).await.body;
    assert_eq!(task["status"], status, "what was told is what is stored");
    let session = begun["contextId"].as_str().unwrap();
    let saved = server.get(&format!("/api/v1/sessions/{session}")).await.body;
    let entry = &saved["metadata"]["pending_executions"][id];
    assert_eq!(entry["pending_tool_call"]["name"], "write_file", "{saved}");
    let hold = asked(&task)[0]["hold_id"].clone();
    let decided = server.send("ops", &decides(&task, json!({"decision": "approve", "hold_id": hold}))).await;
    assert_ne!(asked(&decided)[0]["hold_id"], hold, "the model asks for the next call: {decided}");
    assert!(folder.path().join("workspace/a.txt").exists(), "what was approved has run: {decided}");
    let tasks = server.get("/v1/agents/ops/tasks").await.body;
    assert_eq!(
        tasks["tasks"].as_array().map(Vec::len),
        Some(1),
        "what was refused has begun nothing: {tasks}"
    );
}
