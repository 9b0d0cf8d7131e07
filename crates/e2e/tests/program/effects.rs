//! Effect keys with the real binary: of many runs that would do the same, on one file and over two nodes of a Postgres, one starts,
//! and every other one is held with the first and what came of it.
//!
//! What an effect key is made of is tested in `crates/policy`, turns and unknown outcomes in `crates/server/tests/engine/effects.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::{Process, folder, serve, text};

/// What names the effect: a rule that allows the call, or the tool itself.
const NAMED_BY: [&str; 2] = [
    "tools: {execute_command: {allowed_commands: [echo]}}
policy: {rules: [{id: paid, allow: execute_command, effect_key: \"pay:{command}\"}]}
",
    "tools: {execute_command: {allowed_commands: [echo], effect_key: \"pay:{command}\"}}
policy: {rules: [{id: paid, allow: execute_command}]}
",
];

/// A folder with two agents whose runs would write the same line to the same file, and who names that effect.
fn same_effect(store: &str, named_by: &str) -> tempfile::TempDir {
    let arguments = json!({"command": "echo paid pay-7"}).to_string();
    let call = json!({"tool": "execute_command", "arguments": arguments});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    folder(
        &[("s", &script), ("t", &script)],
        &format!(
            "{named_by}agents:
  a: {{llm: s, tools: [execute_command], task: {{}}, session_store: main}}
  b: {{llm: t, tools: [execute_command], task: {{}}, session_store: main}}
session_stores: {{main: {{backend: sql, sql: {store}}}}}
server: {{nodes: {{take_over_after: 3s}}}}
"
        ),
    )
}

/// Starts runs of both agents at once, turn by turn on these servers.
fn all_at_once(servers: &[&Process], count: usize) -> Vec<Value> {
    thread::scope(|scope| {
        let runs: Vec<_> = (0..count)
            .map(|no| {
                let server = servers[no % servers.len()];
                let agent = if no % 4 < 2 { "a" } else { "b" };
                scope.spawn(move || server.send(agent))
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    })
}

/// One has run, and each of the others waits for somebody who is shown it.
fn expect_one_start(server: &Process, runs: &[Value]) {
    let with = |status: &str| -> Vec<&Value> { runs.iter().filter(|run| run["status"] == status).collect() };
    let (ran, held) = (with("completed"), with("held"));
    assert_eq!((ran.len(), held.len()), (1, runs.len() - 1), "{runs:#?}");
    let first = text(&ran[0]["id"]);
    for run in held {
        let hold = server.ask(&["holds", "show", text(&run["holds"][0]["id"])]);
        let reason = text(&hold["reason"]);
        assert!(reason.contains("was started before") && reason.contains(first), "{hold}");
        let log = server.ask(&["show", text(&run["id"])]).to_string();
        assert!(!log.contains("call.started"), "{log}");
    }
}

/// Whether a rule names the effect or the tool does.
#[test]
fn one_of_many_runs_at_once_has_the_effect() {
    for named_by in NAMED_BY {
        let folder = same_effect("{driver: sqlite, database: kept.db}", named_by);
        let server = serve(folder.path());
        expect_one_start(&server, &all_at_once(&[&server], 6));
    }
}

/// The same over two nodes; and somebody who has seen the first lets a second one happen.
#[test]
fn two_nodes_have_one_effect() {
    let folder = same_effect(&format!("{{driver: postgres, url: \"{}\"}}", shared().database()), NAMED_BY[0]);
    let nodes = [serve(folder.path()), serve(folder.path())];
    let runs = all_at_once(&[&nodes[0], &nodes[1]], 8);
    expect_one_start(&nodes[1], &runs);
    let held = runs.iter().find(|run| run["status"] == "held").unwrap();
    nodes[0].ask(&["holds", "approve", text(&held["holds"][0]["id"])]);
    nodes[1].run_once(text(&held["id"]), "completed");
}
