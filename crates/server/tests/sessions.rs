//! Sessions over HTTP: the real binary, a real data directory.
//!
//! `pending_executions` is a view of what waits, with the exact fields of Hector's execution state.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A running server; dropping it is `kill -9`.
struct Server {
    child: Child,
    base: String,
    client: reqwest::Client,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(data: &Path) -> Server {
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdpoint"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .env("RUST_LOG", "warn")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let base = line.trim().strip_prefix("Holdpoint listens on ").unwrap().to_owned();
    Server { child, base, client: reqwest::Client::builder().no_proxy().build().unwrap() }
}

impl Server {
    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.client.request(method, format!("{}{path}", self.base));
        let request = request.timeout(Duration::from_secs(30));
        let request = match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn held(&self, session: &str) -> (String, String) {
        let body = json!({"input": "Free some space", "session": session, "wait": "settled"});
        let (status, run) = self.ask("POST", "/api/v1/agents/ops/runs", Some(body)).await;
        assert_eq!((status, &run["status"]), (201, &json!("held")), "{run}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&run["id"]), text(&run["holds"][0]["id"]))
    }
}

/// S0-6, S0-8, S0-9, S0-15, S0-16, S0-26, C27: the map has an entry for each run that waits, flat, and is absent when
/// none does; it survives a restart because nothing is stored for it.
#[tokio::test]
async fn a_session_shows_the_runs_that_wait() {
    let data = tempfile::tempdir().unwrap();
    let first = serve(data.path());
    let (one, hold) = first.held("night shift").await;
    let (two, _) = first.held("night shift").await;
    drop(first);
    let server = serve(data.path());
    let path = "/api/v1/sessions/night%20shift";
    let session = server.get(path).await;
    assert_eq!((&session["id"], &session["agent"]), (&json!("night shift"), &json!("ops")));
    let pending = session["metadata"]["pending_executions"].as_object().unwrap();
    assert_eq!(pending.len(), 2);
    let entry = &pending[&one];
    assert_eq!((&entry["task_id"], &entry["context_id"]), (&json!(one), &json!("night shift")));
    assert_eq!((&entry["query"], &entry["iteration"]), (&json!("Free some space"), &json!(1)));
    assert_eq!(entry["pending_tool_call"]["name"], "delete_file");
    assert_eq!(entry["pending_tool_call"]["arguments"], json!({"path": "/srv/cache/old"}));
    assert_eq!(entry["reasoning_state"]["agent_name"], "ops");
    let names = ["history", "current_turn", "total_tokens", "assistant_response", "pending_tool_calls"];
    assert!(names.iter().all(|name| !entry[name].is_null()), "{entry}");
    assert_eq!(server.get(&format!("{path}/pending_executions/{two}")).await, pending[&two]);

    for id in [&hold, session["metadata"]["pending_executions"][&two]["task_id"].as_str().unwrap()] {
        let resolve = match id.starts_with("hold_") {
            true => format!("/api/v1/holds/{id}/resolve"),
            false => format!("/api/v1/runs/{id}/cancel"),
        };
        let body = match id.starts_with("hold_") {
            true => json!({"resolution": "deny"}),
            false => json!({}),
        };
        assert_eq!(server.ask("POST", &resolve, Some(body)).await.0, 200);
    }
    for _ in 0..400 {
        if server.get(path).await["metadata"] == json!({}) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.get(path).await["metadata"], json!({}), "the key is absent when nothing waits");
    let (status, problem) = server.ask("GET", &format!("{path}/pending_executions/{one}"), None).await;
    assert_eq!((status, &problem["detail"]), (404, &json!("no pending executions in session")));
}

/// S0-25: each way in which there is no state has its own text.
#[tokio::test]
async fn a_missing_entry_is_told_apart_from_an_empty_map() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    server.held("s").await;
    let (status, problem) = server.ask("GET", "/api/v1/sessions/s/pending_executions/run_x", None).await;
    assert_eq!((status, &problem["detail"]), (404, &json!("execution state not found for task run_x")));
    assert_eq!(server.ask("GET", "/api/v1/sessions/none/pending_executions/run_x", None).await.0, 404);
}

/// S0-27, S0-28, S0-29: metadata are merged, keep their bytes and their instant, and cannot write the view.
#[tokio::test]
async fn metadata_are_merged_and_the_view_cannot_be_written() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    server.held("s").await;
    let path = "/api/v1/sessions/s";
    let before = server.get(path).await;
    let patch = |metadata: Value| server.ask("PATCH", path, Some(json!({"metadata": metadata})));
    let (status, changed) = patch(json!({"team": "night", "ticket": 9_007_199_254_740_993u64})).await;
    assert_eq!((status, &changed["metadata"]["team"]), (200, &json!("night")));
    assert!(changed["updated_at"].as_str() >= before["updated_at"].as_str());
    let (_, changed) = patch(json!({"team": null, "floor": [1]})).await;
    assert_eq!(changed["metadata"]["ticket"], json!(9_007_199_254_740_993u64));
    assert_eq!((&changed["metadata"]["floor"], &changed["metadata"]["team"]), (&json!([1]), &Value::Null));
    assert!(changed["metadata"]["pending_executions"].is_object());
    let (status, problem) = patch(json!({"pending_executions": {}})).await;
    assert_eq!(status, 422, "{problem}");
    let (status, _) = patch(json!({"big": "x".repeat(70_000)})).await;
    assert_eq!(status, 422);
    let listed = server.get("/api/v1/sessions?agent=ops&limit=1").await;
    assert_eq!(listed["sessions"][0]["metadata"]["floor"], json!([1]));
    assert_eq!(server.get("/api/v1/sessions?agent=nobody").await["sessions"], json!([]));
}

/// S0-12: a deleted session stops its runs, erases what they said, and takes no more; its chains still verify.
#[tokio::test]
async fn a_deleted_session_loses_its_contents_and_takes_no_more_runs() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    let (run, hold) = server.held("s").await;
    let (other, _) = server.held("t").await;
    let (status, deleted) = server.ask("DELETE", "/api/v1/sessions/s", None).await;
    assert_eq!((status, &deleted["erased"]), (200, &json!([run])), "{deleted}");
    let session = server.get("/api/v1/sessions/s").await;
    assert_eq!((&session["closed"], &session["metadata"]), (&json!(true), &json!({})));
    let body = json!({"input": "more", "session": "s"});
    let (status, problem) = server.ask("POST", "/api/v1/agents/ops/runs", Some(body)).await;
    assert_eq!(
        (status, &problem["detail"]),
        (409, &json!("session s of agent ops is closed; begin another one"))
    );
    let approve = Some(json!({"resolution": "approve"}));
    assert_eq!(server.ask("POST", &format!("/api/v1/holds/{hold}/resolve"), approve).await.0, 404);
    assert_eq!(server.get(&format!("/api/v1/runs/{other}")).await["status"], "held");
    drop(server);
    let bytes = std::fs::read(data.path().join("holdpoint.db")).unwrap();
    assert!(bytes.windows(4).any(|window| window == b"/srv"), "the other session keeps its arguments");
    let verify = Command::new(env!("CARGO_BIN_EXE_holdpoint"))
        .args(["audit", "verify"])
        .arg(data.path().join("holdpoint.db"))
        .output()
        .unwrap();
    let said = String::from_utf8(verify.stdout).unwrap();
    assert!(verify.status.success() && said.contains("1 erased"), "{said}");
}
