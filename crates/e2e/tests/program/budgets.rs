//! Rolling budgets with the real binary: many runs at once on SQLite and over two nodes on Postgres, `kill -9` inside the tool, and
//! what people are shown.
//!
//! The arithmetic is tested in `crates/policy`, sums and turns in `crates/server/tests/engine/budgets.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::{Process, folder, serve, text, until};

use crate::form_pages::Browser;

/// How many calls the budget has.
const LIMIT: usize = 3;

/// A folder whose agent runs this command, within a budget of so many calls a day.
fn spending(command: &str, limit: usize, store: &str) -> tempfile::TempDir {
    let call = json!({"tool": "execute_command", "arguments": json!({"command": command}).to_string()});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    let program = command.split(' ').next().unwrap();
    folder(
        &[("s", &script)],
        &format!(
            "tools: {{execute_command: {{allowed_commands: [{program}]}}}}
agents: {{a: {{llm: s, tools: [execute_command], task: {{}}, session_store: main}}}}
session_stores: {{main: {{backend: sql, sql: {store}}}}}
server: {{nodes: {{take_over_after: 3s}}}}
policy:
  rules:
  - id: spend
    allow: execute_command
    budgets: [{{name: few, limit: {limit}, window: 1d, per: [agent]}}]
"
        ),
    )
}

const SQLITE: &str = "{driver: sqlite, database: kept.db}";

/// Starts many runs at once, turn by turn on these servers, and says how each ended.
fn all_at_once(servers: &[&Process], count: usize) -> Vec<Value> {
    thread::scope(|scope| {
        let runs: Vec<_> = (0..count)
            .map(|no| {
                let server = servers[no % servers.len()];
                scope.spawn(move || server.send("a"))
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    })
}

fn with_status<'a>(runs: &'a [Value], status: &str) -> Vec<&'a Value> {
    runs.iter().filter(|run| run["status"] == status).collect()
}

/// What the starts of a run took.
fn takes(server: &Process, run: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    collect(&server.ask(&["show", text(&run["id"])]), &mut found);
    found
}

fn collect(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("takes").and_then(Value::as_array).into_iter().flatten().cloned());
            members.values().for_each(|below| collect(below, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// Exactly as many as there is run, and the rest is asked about; the numbers of the takes are there once.
fn expect_no_more_than_the_limit(server: &Process, runs: &[Value]) {
    let (ran, held) = (with_status(runs, "completed"), with_status(runs, "held"));
    assert_eq!((ran.len(), held.len()), (LIMIT, runs.len() - LIMIT), "{runs:#?}");
    let mut numbers: Vec<u64> =
        ran.iter().flat_map(|run| takes(server, run)).map(|take| take["no"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, [1, 2, 3]);
    for run in held {
        assert!(takes(server, run).is_empty(), "{run}");
        let hold = server.ask(&["holds", "show", text(&run["holds"][0]["id"])]).to_string();
        assert!(hold.contains("budget few of rule spend: 3 of 3 in 1d are taken"), "{hold}");
    }
}

/// Runs that race for the last of a budget never get more than there is, on a file; whoever approves goes beyond it, and the
/// receipt says what was taken.
#[test]
fn runs_at_once_never_take_more_than_there_is() {
    let folder = spending("echo paid", LIMIT, SQLITE);
    let server = serve(folder.path());
    let runs = all_at_once(&[&server], 8);
    expect_no_more_than_the_limit(&server, &runs);
    let held = with_status(&runs, "held")[0];
    let id = text(&held["holds"][0]["id"]);
    server.ask(&["holds", "approve", id]);
    let run = server.run_once(text(&held["id"]), "completed");
    assert_eq!(takes(&server, &run)[0]["no"], 4, "{run}");
    let receipt = Browser::of(&server).get(&format!("/api/v1/runs/{}/calls/1/receipt", text(&run["id"]))).1;
    let receipt: Value = serde_json::from_str(&receipt).unwrap();
    let taken = &receipt["outcome"]["attempts"][0]["takes"][0];
    assert_eq!((&taken["account"], &taken["amount"]), (&json!(r#"["rule:spend","few","a"]"#), &json!("1")));
    // What was taken is kept over `kill -9`.
    drop(server);
    let server = serve(folder.path());
    assert_eq!(server.send("a")["status"], "held");
}

/// The same over two nodes of one database.
#[test]
fn two_nodes_never_take_more_than_there_is() {
    let store = format!("{{driver: postgres, url: \"{}\"}}", shared().database());
    let folder = spending("echo paid", LIMIT, &store);
    let nodes = [serve(folder.path()), serve(folder.path())];
    let runs = all_at_once(&[&nodes[0], &nodes[1]], 8);
    expect_no_more_than_the_limit(&nodes[1], &runs);
    assert_eq!(nodes[0].send("a")["status"], "held");
}

/// A server that is killed inside the tool keeps what the call took, as long as nobody knows what it did; once a person has said
/// that it did not happen, there is enough again.
#[test]
fn a_server_killed_inside_the_tool_keeps_what_was_taken() {
    let folder = spending("sleep 600", 1, SQLITE);
    let server = serve(folder.path());
    let first = server.begin("a");
    let is_started = |server: &Process, run: &str| !takes(server, &json!({"id": run})).is_empty();
    until("the tool runs", || is_started(&server, &first));
    drop(server);
    let server = serve(folder.path());
    let second = server.send("a");
    assert_eq!(second["status"], "held", "{second}");
    let recovery = server.hold_of_kind(&first, "recovery");
    server.ask(&["holds", "deny", text(&recovery["id"])]);
    server.until_status(&first, "completed");
    let third = server.begin("a");
    until("there is enough again", || is_started(&server, &third));
}
