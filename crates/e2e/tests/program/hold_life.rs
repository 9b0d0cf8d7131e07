//! What time does to holds over two nodes of one database: each step is one event, whichever node finds it due, also when one of them
//! is killed in between.
//!
//! Business hours and changes of clocks are in `crates/server/tests/engine/hours.rs`, late answers in `tests/protocols/late.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::{Process, folder, serve, text, until};

/// A folder whose agent is held by a rule with times of seconds.
fn waiting(store: &str) -> tempfile::TempDir {
    let call =
        json!({"tool": "write_file", "arguments": json!({"path": "a.txt", "content": "x"}).to_string()});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    let folder = folder(
        &[("s", &script)],
        &format!(
            "agents: {{a: {{llm: s, tools: [write_file], task: {{}}, session_store: main}}}}
session_stores: {{main: {{backend: sql, sql: {store}}}}}
server: {{nodes: {{take_over_after: 3s}}}}
policy:
  rules:
  - {{id: slow, hold: write_file, approvers: [owner], remind_after: 2s, escalate_after: 1s, escalate_to: ['user:cy'], expire_after: 5s, on_timeout: keep}}
"
        ),
    );
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    folder
}

/// When each event of this kind was written.
fn instants(server: &Process, run: &Value, kind: &str) -> Vec<String> {
    let shown = server.ask(&["show", text(&run["id"])]);
    let mut found = Vec::new();
    collect(&shown, kind, &mut found);
    found
}

fn collect(value: &Value, kind: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, kind, found)),
        Value::Object(members) if members.get("type") == Some(&json!(kind)) => {
            found.push(members.get("at").map(ToString::to_string).unwrap_or_default());
        }
        Value::Object(members) => members.values().for_each(|member| collect(member, kind, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// S0-52, C7: people are reminded, others are asked as well, and the hold expires: once for each instant, on either node; what one of
/// them left behind when it was killed the other one does.
#[test]
fn two_nodes_do_each_step_once() {
    let folder = waiting(&format!("{{driver: postgres, url: \"{}\"}}", shared().database()));
    let (one, two) = (serve(folder.path()), serve(folder.path()));
    let runs: Vec<Value> = (0..6).map(|no| if no % 2 == 0 { one.send("a") } else { two.send("a") }).collect();
    assert!(runs.iter().all(|run| run["status"] == "held"), "{runs:#?}");
    drop(one);
    for run in &runs {
        until("the hold has expired", || !instants(&two, run, "hold.expired").is_empty());
    }
    let again = serve(folder.path());
    for run in &runs {
        for kind in ["hold.escalated", "hold.expired"] {
            assert_eq!(instants(&again, run, kind).len(), 1, "{kind} of {run}");
        }
        let reminded = instants(&again, run, "hold.reminded");
        let distinct: BTreeSet<&String> = reminded.iter().collect();
        assert!(!reminded.is_empty() && distinct.len() == reminded.len(), "{reminded:?}");
    }
}
