//! The stored state of a run that waits, seen from outside: its shape, how it is saved anew at each pause, what each decision
//! does to it, and that no end leaves anything of it behind.
//!
//! What is read is what the API says and what the tools did to the disk. Moving a state to another server: `states.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::{Value, json};
use standfast_testkit::{Http, Process, folder, serve, text, until_found};
use tempfile::TempDir;

/// The members of an execution state, and of the state of the loop in it (docs/requirements.md, `ExecutionState`).
const STATE: [&str; 11] = [
    "assistant_response",
    "context_id",
    "current_turn",
    "history",
    "iteration",
    "pending_tool_call",
    "pending_tool_calls",
    "query",
    "reasoning_state",
    "task_id",
    "total_tokens",
];
const DOUBLED: [&str; 6] =
    ["assistant_response", "current_turn", "history", "iteration", "query", "total_tokens"];

const SQLITE: &str = "backend: sql, sql: {driver: sqlite, database: runs.db}";
const FILES: &str = "backend: file, file: {directory: ./runs}";

fn write(name: &str) -> Value {
    let arguments = json!({"path": format!("{name}.txt"), "content": name}).to_string();
    json!({"calls": [{"tool": "write_file", "arguments": arguments}]})
}

fn written(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder.join("workspace")) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The map `pending_executions` of a session; null where the key is absent.
async fn pending(server: &Process, session: &str) -> Value {
    let shown = Http::new(&server.base).get(&format!("/api/v1/sessions/{session}")).await;
    assert_eq!(shown.status, 200, "{shown:?}");
    shown.body["metadata"]["pending_executions"].clone()
}

/// Begins a run of an agent in a session of its name.
async fn begin(server: &Process, agent: &str) -> Value {
    let start = json!({"input": "go", "session": agent, "wait": "settled"});
    let begun = Http::new(&server.base).post(&format!("/api/v1/agents/{agent}/runs"), &start).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    begun.body
}

/// Decides over A2A by a message to the task, and waits for what comes of it.
async fn says(server: &Process, run: &str, id: &str, decision: Value) -> Value {
    let message = json!({"messageId": id, "role": "ROLE_USER", "taskId": run, "parts": [{"data": decision}]});
    let answer =
        Http::new(&server.base).post("/v1/agents/ops/message:send", &json!({"message": message})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["task"].clone()
}

/// S0-3, S0-7, S0-38, S0-43, C27: a run pauses four times, and the server is killed at each pause. Each time the session has one
/// entry for it, flat, with what stands in it twice written alike, and saved anew: another iteration, another call, and what the
/// decision before did. Each decision is read from the message and acts on the one call that it was about: what was approved ran,
/// what was denied did not and the model has the reason, what was changed ran as it was changed. In the end there is no entry.
#[tokio::test]
async fn every_pause_saves_a_new_flat_state_and_every_decision_acts_once() {
    let replies: Vec<Value> =
        ["one", "two", "three", "four"].map(write).into_iter().chain([json!({"text": "all done"})]).collect();
    let script = json!({"replies": replies}).to_string();
    for store in [SQLITE, FILES] {
        let rest = format!(
            "session_stores: {{main: {{{store}}}}}
agents: {{ops: {{llm: s, session_store: main, tools: [write_file], task: {{}}}}}}
"
        );
        let folder = folder(&[("s", &script)], &rest);
        let mut server = serve(folder.path());
        let run = text(&begin(&server, "ops").await["id"]).to_owned();
        let changed = json!({"path": "other.txt", "content": "changed"});
        let rounds = [
            ("one", json!({"decision": "approve"}), "one.txt"),
            ("two", json!({"decision": "deny", "reason": "the second is not wanted"}), "is not wanted"),
            ("three", json!({"decision": "modify", "modified_input": changed}), "other.txt"),
            ("four", json!({"decision": "approve"}), "four.txt"),
        ];
        let mut before: Vec<(&str, Value)> = Vec::new();
        for (no, (name, decision, trace)) in rounds.iter().enumerate() {
            drop(server);
            server = serve(folder.path());
            let entries = pending(&server, "ops").await;
            assert_eq!(entries.as_object().map(serde_json::Map::len), Some(1), "{store}: {entries}");
            let state = entries[&run].clone();
            let mut members: Vec<&str> = state.as_object().unwrap().keys().map(String::as_str).collect();
            members.sort_unstable();
            assert_eq!(members, STATE, "{store}: flat, and nothing else");
            for member in DOUBLED {
                assert_eq!(state[member], state["reasoning_state"][member], "{store}: {member}");
            }
            assert_eq!((&state["task_id"], &state["context_id"]), (&json!(run), &json!("ops")));
            assert_eq!(state["iteration"], json!(no + 1), "{store}: saved at this pause");
            let call = &state["pending_tool_call"];
            assert_eq!(call["arguments"]["path"], json!(format!("{name}.txt")), "{store}");
            assert_eq!(state["pending_tool_calls"], json!([call]), "{store}: earlier calls are not pending");
            let history = state["history"].to_string();
            for (trace, earlier) in &before {
                assert!(history.contains(trace), "{store}: {trace} is not in {history}");
                assert_ne!(&state, earlier, "{store}: the state of an earlier pause");
            }
            // What was shown before the server was killed may be forgotten, so the hold is named (C26).
            let mut decision = decision.clone();
            decision["hold_id"] = server.hold(&run)["id"].clone();
            let task = says(&server, &run, &format!("m-{no}"), decision).await;
            let expected = if no == 3 { "TASK_STATE_COMPLETED" } else { "TASK_STATE_INPUT_REQUIRED" };
            assert_eq!(task["status"]["state"], expected, "{store}: {task}");
            before.push((*trace, state));
        }
        assert_eq!(written(folder.path()), ["four.txt", "one.txt", "other.txt"], "{store}");
        let other = std::fs::read_to_string(folder.path().join("workspace/other.txt")).unwrap();
        assert_eq!(other, "changed", "{store}");
        assert_eq!(pending(&server, "ops").await, Value::Null, "{store}: the key is absent");
    }
}

/// An agent for each way in which a run may end.
fn with_every_end(store: &str) -> TempDir {
    let asks = json!({"replies": [write("a"), {"text": "done"}]}).to_string();
    let breaks = json!({"replies": [write("a"), {"error": "the provider is gone"}]}).to_string();
    let agent = |name: &str, llm: &str, task: &str| {
        format!("  {name}: {{llm: {llm}, session_store: main, tools: [write_file], task: {{{task}}}}}\n")
    };
    let agents = [
        agent("approved", "asks", ""),
        agent("denied", "asks", ""),
        agent("stopped", "asks", "hitl: {on_deny: cancel}"),
        agent("cancelled", "asks", ""),
        agent("rejected", "asks", ""),
        agent("broken", "breaks", ""),
        agent("late", "asks", "input_timeout: 2"),
    ]
    .concat();
    folder(
        &[("asks", &asks), ("breaks", &breaks)],
        &format!("session_stores: {{main: {{{store}}}}}\nagents:\n{agents}"),
    )
}

/// S0-44, S0-45, S0-53: however a run ends that waited (approved, denied, denied with `on_deny: cancel`, cancelled, rejected over
/// Teal Agents, failed because its model broke or because nobody answered in time), nothing of its state stays: no entry in its
/// session, no open hold, and the entry's address says so, also after `kill -9`. In files the session has none either.
#[tokio::test]
async fn no_end_leaves_a_state_behind() {
    let ends = [
        ("approved", "completed"),
        ("denied", "completed"),
        ("stopped", "canceled"),
        ("cancelled", "canceled"),
        ("rejected", "canceled"),
        ("broken", "failed"),
        ("late", "failed"),
    ];
    for store in [SQLITE, FILES] {
        let folder = with_every_end(store);
        let server = serve(folder.path());
        let http = Http::new(&server.base);
        let mut runs = Vec::new();
        for (agent, status) in ends {
            let run = begin(&server, agent).await;
            let id = text(&run["id"]).to_owned();
            // Whoever is late may have ended already.
            if agent != "late" {
                assert_eq!(pending(&server, agent).await[&id]["task_id"], json!(id), "{store}: {agent}");
                let hold = text(&run["holds"][0]["id"]);
                let resolve = format!("/api/v1/holds/{hold}/resolve");
                let (path, body) = match agent {
                    "denied" | "stopped" => (resolve, json!({"resolution": "deny"})),
                    "cancelled" => (format!("/api/v1/runs/{id}/cancel"), json!({})),
                    "rejected" => {
                        let task = http.get(&format!("/tealagents/v1alpha1/{agent}/tasks/{id}")).await.body;
                        let items = task["items"].as_array().unwrap();
                        let asks = items.iter().find(|item| item["pending_tool_calls"].is_array()).unwrap();
                        let request = text(&asks["request_id"]);
                        (format!("/tealagents/v1alpha1/resume/{request}"), json!({"action": "reject"}))
                    }
                    _ => (resolve, json!({"resolution": "approve"})),
                };
                let answer = http.post(&path, &body).await;
                assert_eq!(answer.status, 200, "{store}: {agent}: {answer:?}");
            }
            until_found(&format!("{agent} is {status}"), async || {
                let shown = http.get(&format!("/api/v1/runs/{id}")).await.body;
                (shown["status"] == status).then_some(())
            })
            .await;
            runs.push((agent, id));
        }
        drop(server);
        let server = serve(folder.path());
        let http = Http::new(&server.base);
        for (agent, id) in &runs {
            assert_eq!(pending(&server, agent).await, Value::Null, "{store}: {agent}");
            let entry = http.get(&format!("/api/v1/sessions/{agent}/pending_executions/{id}")).await;
            let said = text(&entry.body["detail"]).to_owned();
            assert_eq!((entry.status, said.as_str()), (404, "no pending executions in session"), "{agent}");
            let file = folder.path().join(format!("runs/session/{agent}/{agent}.json"));
            assert_eq!(file.exists(), store == FILES, "{}", file.display());
            if store == FILES {
                let session: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
                assert_eq!(session["pending_executions"], json!({}), "{agent}: {session}");
            }
        }
        assert_eq!(http.get("/api/v1/holds").await.body["holds"], json!([]), "{store}");
        assert_eq!(written(folder.path()), ["a.txt"], "{store}");
    }
}
