//! One state, five sets of names: the same run is looked at over every protocol while it stands somewhere, and each says what the
//! table in docs/requirements.md says.
//!
//! The table is read from the page, so a word that changes in either place is found. Every run here is a task of an inbox, which
//! A2A, Teal Agents, the async tools and the sessions see as well.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use standfast_testkit::{Http, folder, serve, text, until_found};
use tokio::net::TcpListener;

/// The row of the table for a state of the core, by the names of its columns.
struct Row {
    core: &'static str,
    a2a: String,
    teal: String,
    inbox: String,
    session: String,
    entry: String,
}

fn row(core: &'static str) -> Row {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/requirements.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split("### State names (C1)").nth(1).unwrap();
    let begin = format!("| {core} | ");
    let line = table.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("no row {core}"));
    let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let [_, a2a, teal, inbox, session, entry] = cells.as_slice() else { panic!("{line}") };
    let [a2a, teal, inbox, session, entry] = [a2a, teal, inbox, session, entry].map(String::clone);
    Row { core, a2a, teal, inbox, session, entry }
}

/// A state of A2A in the words of its three versions here: 1.0, the older dialect, 0.3.
fn spellings(a2a: &str) -> [String; 3] {
    let older = if a2a == "CANCELED" { "CANCELLED" } else { a2a };
    [format!("TASK_STATE_{a2a}"), format!("TASK_STATE_{older}"), a2a.to_lowercase().replace('_', "-")]
}

/// What a protocol says of a run, or what it answered instead.
async fn seen(http: &Http, agent: &str, run: &str) -> [String; 3] {
    let path = format!("/v1/agents/{agent}/tasks/{run}");
    let newer = http.send("GET", &path, &[("a2a-version", "1.0")], "").await;
    let dialect = http.send("GET", &path, &[], "").await;
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": run}});
    let older = http.post(&format!("/v1/agents/{agent}"), &get).await;
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    [
        word(&newer.body["status"]["state"]),
        word(&dialect.body["status"]["state"]),
        word(&older.body["result"]["status"]["state"]),
    ]
}

/// Waits until the inbox and the conversation say what the row says, then compares every other protocol with it.
async fn stands(http: &Http, agent: &str, run: &str, core: &'static str) {
    let row = row(core);
    let task = format!("/api/inboxes/support/tasks/{run}");
    let session = text(&http.get(&format!("/api/v1/runs/{run}")).await.body["session"]).to_owned();
    let conversation = format!("/async-tool/session/{session}/status");
    until_found(&format!("{agent} is {core}"), async || {
        let (task, conversation) = (http.get(&task).await.body, http.get(&conversation).await.body);
        (task["status"] == row.inbox.as_str() && conversation["type"] == row.session.as_str()).then_some(())
    })
    .await;
    assert_eq!(seen(http, agent, run).await, spellings(&row.a2a), "{}", row.core);
    let teal = http.get(&format!("/tealagents/v1alpha1/{agent}/tasks/{run}")).await;
    assert_eq!(teal.body["status"], row.teal.as_str(), "{}: {teal:?}", row.core);
    let kept = http.get(&format!("/api/v1/sessions/{session}")).await.body;
    let entry = &kept["metadata"]["pending_executions"][run];
    assert_eq!(entry.is_object(), row.entry == "in `pending_executions`", "{}: {kept}", row.core);
}

/// A job begins, and never reports.
async fn started() -> Json<Value> {
    Json(json!({}))
}

/// C1: one core, and a fixed table maps it to each dialect: a run that is queued, works, waits to ask its model again, is held by an
/// approval, a question, a job or an unknown outcome, and has ended in each way, as A2A 1.0, the older dialect, A2A 0.3, Teal Agents, the inbox, the
/// async tools and the session's metadata say it, word for word as the table on the page of requirements.
#[tokio::test(flavor = "multi_thread")]
async fn each_protocol_has_the_word_of_the_table() {
    let jobs = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = jobs.local_addr().unwrap().port();
    let routes = Router::new().route("/jobs", post(started));
    tokio::spawn(async move { axum::serve(jobs, routes).await });
    let calls = |tool: &str, arguments: &Value| {
        let call = json!({"tool": tool, "arguments": arguments.to_string()});
        json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string()
    };
    let write = calls("write_file", &json!({"path": "a.txt", "content": "x"}));
    let scripts = [
        ("thinks", json!({"replies": [{"text": "done", "delay": "1h"}]}).to_string()),
        (
            "retries",
            json!({"replies": [{"error": "overloaded", "retry_after": "1h"}, {"text": "done"}]}).to_string(),
        ),
        ("approves", write),
        ("asks", calls("suspend", &json!({"reason": "two invoices"}))),
        ("deploys", calls("deploy", &json!({}))),
        ("says", json!({"replies": [{"text": "done"}]}).to_string()),
        ("works", calls("execute_command", &json!({"command": "sleep 3600"}))),
        ("breaks", json!({"replies": [{"error": "the provider is gone"}]}).to_string()),
    ];
    let agents: String = scripts
        .iter()
        .map(|(name, _)| {
            format!(
                "  {name}: {{llm: {name}, session_store: main, tools: [write_file, deploy, execute_command], inboxes: [support], inbox_types: [{name}], task: {{}}}}\n"
            )
        })
        .collect();
    let rest = format!(
        "tools:
  execute_command: {{allowed_commands: [sleep], requires_approval: false, max_execution_time: 2h}}
  deploy: {{async: true, description: Deploys., url: 'http://127.0.0.1:{port}/jobs', allowed_hosts: ['127.0.0.1'], requires_approval: false,
    parameters: {{type: object}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: runs.db}}}}}}
agents:\n{agents}"
    );
    let scripts: Vec<(&str, &str)> = scripts.iter().map(|(name, script)| (*name, script.as_str())).collect();
    let folder = folder(&scripts, &rest);
    let server = serve(folder.path());
    let http = Http::new(&server.base);
    let add = async |kind: &str| {
        let added = http.post("/api/inboxes/support/tasks", &json!({"type": kind, "payload": 1})).await;
        assert_eq!(added.status, 201, "{added:?}");
        text(&added.body["id"]).to_owned()
    };
    let thinking = add("thinks").await;
    stands(&http, "thinks", &thinking, "thinking or acting").await;
    // There is room for one on a node.
    let behind = add("thinks").await;
    stands(&http, "thinks", &behind, "queued, never claimed").await;
    let retrying = add("retries").await;
    stands(&http, "retries", &retrying, "waiting to retry the model").await;
    let approval = add("approves").await;
    stands(&http, "approves", &approval, "held: approval, input, recovery").await;
    let question = add("asks").await;
    stands(&http, "asks", &question, "held: approval, input, recovery").await;
    let job = add("deploys").await;
    stands(&http, "deploys", &job, "held: external only").await;
    let done = add("says").await;
    stands(&http, "says", &done, "ended completed").await;
    let failed = add("breaks").await;
    stands(&http, "breaks", &failed, "ended failed").await;
    let cancelled = http.post(&format!("/api/inboxes/support/tasks/{approval}/cancel"), &json!({})).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    stands(&http, "approves", &approval, "ended canceled").await;

    // A worker elsewhere has no agent here that A2A or Teal Agents could name; its session is one of the inbox.
    let outside = add("mail").await;
    let claim = json!({"agentId": "biller", "types": ["mail"]});
    let claimed = http.post("/api/inboxes/support/claim", &claim).await.body["task"].clone();
    let row = row("claimed by an outside worker");
    assert_eq!((&claimed["id"], &claimed["status"]), (&json!(outside), &json!(row.inbox)));
    let session = text(&http.get(&format!("/api/v1/runs/{outside}")).await.body["session"]).to_owned();
    let now = http.get(&format!("/async-tool/session/{session}/status?agent=support")).await.body;
    assert_eq!(now["type"], row.session.as_str(), "{now}");

    // Killed in the middle of a command: what became of it is for a person to say, in every protocol.
    let working = add("works").await;
    stands(&http, "works", &working, "thinking or acting").await;
    until_found("the command runs", async || {
        let events = http.get(&format!("/api/v1/runs/{working}/events")).await.text;
        events.contains("call.started").then_some(())
    })
    .await;
    drop(server);
    let server = serve(folder.path());
    let http = Http::new(&server.base);
    let holds = until_found("somebody is asked about it", async || {
        let holds = http.get(&format!("/api/v1/runs/{working}")).await.body["holds"].clone();
        holds.as_array().is_some_and(|holds| !holds.is_empty()).then_some(holds)
    })
    .await;
    assert_eq!(holds[0]["kind"], "recovery", "{holds}");
    stands(&http, "works", &working, "held: approval, input, recovery").await;
}

/// C13, C25: a reply asks for an approval and starts a job. Each of the two holds has one id, and every door leads to it: A2A by the task, the
/// inbox by its task, Teal Agents by the request, the async tools by the pending id, the native API by the id itself. The async tools know
/// nothing of the approval, the inbox asks about nothing else, and what one door decides all the others know.
#[tokio::test(flavor = "multi_thread")]
async fn every_door_leads_to_the_same_hold() {
    let jobs = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = jobs.local_addr().unwrap().port();
    let routes = Router::new().route("/jobs", post(started));
    tokio::spawn(async move { axum::serve(jobs, routes).await });
    let calls = json!([
        {"tool": "write_file", "arguments": r#"{"path": "a.txt", "content": "x"}"#},
        {"tool": "deploy", "arguments": "{}"}
    ]);
    let script = json!({"replies": [{"calls": calls}, {"text": "done"}]}).to_string();
    let rest = format!(
        "tools:
  deploy: {{async: true, description: Deploys., url: 'http://127.0.0.1:{port}/jobs', allowed_hosts: ['127.0.0.1'], requires_approval: false,
    parameters: {{type: object}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: runs.db}}}}}}
agents: {{ops: {{llm: s, session_store: main, tools: [write_file, deploy], inboxes: [support], task: {{}}}}}}
"
    );
    let folder = folder(&[("s", script.as_str())], &rest);
    let server = serve(folder.path());
    let http = Http::new(&server.base);
    let added = http.post("/api/inboxes/support/tasks", &json!({"type": "t", "payload": 1})).await;
    let run = text(&added.body["id"]).to_owned();
    let holds = until_found("both holds are open", async || {
        let holds = http.get(&format!("/api/v1/runs/{run}")).await.body["holds"].clone();
        (holds.as_array()?.len() == 2).then_some(holds)
    })
    .await;
    let of = |kind: &str| {
        let hold = holds.as_array().unwrap().iter().find(|hold| hold["kind"] == kind);
        text(&hold.unwrap_or_else(|| panic!("no {kind}: {holds}"))["id"]).to_owned()
    };
    let (approval, external) = (of("approval"), of("external"));
    for id in [&approval, &external] {
        assert_eq!(http.get(&format!("/api/v1/holds/{id}")).await.body["id"], id.as_str());
    }
    let path = format!("/v1/agents/ops/tasks/{run}");
    let task = http.send("GET", &path, &[("a2a-version", "1.0")], "").await.body;
    let shown = task["status"]["message"]["parts"].as_array().unwrap();
    let shown: Vec<&Value> = shown.iter().filter_map(|part| part["data"].get("hold_id")).collect();
    assert!(shown.contains(&&json!(approval)), "{task}");
    let waiting = http.get(&format!("/api/inboxes/support/tasks/{run}")).await.body;
    assert_eq!(waiting["suspendPayload"]["data"]["hold_id"], approval.as_str(), "{waiting}");
    let pending = http.get("/async-tool/pending").await.body;
    assert_eq!((pending.as_array().unwrap().len(), &pending[0]["id"]), (1, &json!(external)), "{pending}");
    assert_eq!(http.get(&format!("/async-tool/pending/{approval}")).await.status, 404);
    let trail = http.get(&format!("/tealagents/v1alpha1/ops/tasks/{run}")).await.body;
    let item = trail["items"].as_array().unwrap().iter().find(|item| item["pending_tool_calls"].is_array());
    let request = text(&item.unwrap_or_else(|| panic!("{trail}"))["request_id"]).to_owned();
    let resume = format!("/tealagents/v1alpha1/resume/{request}");
    assert_eq!(http.get(&resume).await.body["task_id"], run.as_str());
    let decided = http.post(&format!("{resume}?wait=1"), &json!({"action": "approve"})).await;
    assert!([200, 202].contains(&decided.status), "{decided:?}");
    let receipt = http.get(&format!("/api/v1/holds/{approval}")).await.body;
    assert_eq!(receipt["state"], "decided", "{receipt}");
    let late = http
        .post(
            &format!("/api/inboxes/support/tasks/{run}/resume"),
            &json!({"payload": "deny", "holdId": approval}),
        )
        .await;
    assert_eq!(late.status, 409, "{late:?}");
    assert_eq!(http.get(&format!("/async-tool/pending/{external}")).await.body["status"], "waiting");
    let done = http
        .post("/async-tool/result", &json!({"pendingID": external, "result": {"output": "deployed"}}))
        .await;
    assert_eq!(done.status, 200, "{done:?}");
    until_found("the task has ended", async || {
        let task = http.get(&format!("/api/inboxes/support/tasks/{run}")).await.body;
        (task["status"] == "completed").then_some(())
    })
    .await;
}
