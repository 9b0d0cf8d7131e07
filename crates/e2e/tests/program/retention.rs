//! Runs that have been over for long enough lose their contents; their chain, and whatever waits, stays.
//!
//! Real servers: one on a SQLite file, two on one Postgres.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use standfast_store::conformance::cluster::{query_count, shared};
use tempfile::TempDir;

use standfast_testkit::json::owned_text as text;
use standfast_testkit::{Process, serve, until};

/// What must be gone in the end.
const SECRET: &str = "the-secret-of-the-house";

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo the-secret-of-the-house\"}'\n- text: done\n";

fn folder(sql: &str, retention: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.yaml"), SCRIPT).unwrap();
    let text = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
tools: {{execute_command: {{allowed_commands: [echo]}}}}
session_stores: {{main: {{backend: sql, sql: {{{sql}}}}}}}
server: {{nodes: {{take_over_after: 3s}}{retention}}}
agents: {{ops: {{llm: script, session_store: main, tools: [execute_command], task: {{input_timeout: 2h}}}}}}
"
    );
    std::fs::write(folder.path().join("standfast.yaml"), text).unwrap();
    folder
}

fn standfast(arguments: &[&str]) -> Output {
    standfast_testkit::standfast().args(arguments).output().unwrap()
}

/// A run whose call waits, and its hold.
fn held(server: &Process) -> (String, String) {
    let held = server.ask(&["send", "ops", "please", "--wait"]);
    (text(&held["id"]), text(&held["holds"][0]["id"]))
}

fn status(server: &Process, run: &str) -> String {
    let shown = server.ask(&["show", run]);
    text(&shown.get("run").unwrap_or(&shown)["status"])
}

/// Which kinds of events of a run can still be read.
fn kinds(server: &Process, run: &str) -> Vec<String> {
    let output = Command::new("curl")
        .args(["-sS", "-m", "30", &format!("{}/api/v1/runs/{run}/events", server.base)])
        .output()
        .unwrap();
    let log: Value = serde_json::from_slice(&output.stdout).unwrap();
    log["events"].as_array().unwrap().iter().map(|event| text(&event["type"])).collect()
}

/// What the audit says about runs that were erased by age: how often each.
fn proven(config: &str) -> BTreeMap<String, usize> {
    let exported = standfast(&["audit", "export", "--config", config]);
    let mut proven = BTreeMap::new();
    for line in String::from_utf8(exported.stdout).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["data"]["kind"] == "runs.erased" {
            for erased in line["data"]["erased"].as_array().unwrap() {
                *proven.entry(text(&erased["run"])).or_default() += 1;
            }
        }
    }
    proven
}

/// F31, S0-53: the contents of what has ended go after their time, by one node, once; what is pending stays and can be decided; the
/// audit verifies and says which runs those were.
fn contents_go_after_their_time(sql: &str, nodes: usize, is_secret_stored: impl Fn(&Path) -> bool) {
    let folder = folder(sql, ", retention: {ended_runs: 3s}");
    let config = folder.path().join("standfast.yaml").display().to_string();
    let nodes: Vec<Process> = (0..nodes).map(|_| serve(folder.path())).collect();
    let mut over = Vec::new();
    for n in 0..6 {
        let (run, hold) = held(&nodes[n % nodes.len()]);
        nodes[0].ask(&["holds", "approve", &hold]);
        over.push(run);
    }
    let (waiting, hold) = held(&nodes[0]);
    for run in &over {
        until("its contents are gone", || kinds(&nodes[0], run) == ["run.erased"]);
        assert_eq!(status(&nodes[0], run), "completed", "that it was, and how it ended, stays");
    }
    until("the audit says so", || proven(&config).len() == over.len());
    let proven = proven(&config);
    assert!(
        over.iter().all(|run| proven.get(run) == Some(&1)),
        "each was erased once, by one node: {proven:?}"
    );

    assert_eq!(status(&nodes[0], &waiting), "held", "a pending run is not old, however long it waits");
    nodes[0].ask(&["holds", "approve", &hold]);
    until("it goes on", || status(&nodes[0], &waiting) == "completed");
    until("and goes in its turn", || kinds(&nodes[0], &waiting) == ["run.erased"]);
    assert!(!is_secret_stored(folder.path()), "the secret is nowhere");
    let verified = standfast(&["audit", "verify", "--config", &config]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn contents_go_after_their_time_on_sqlite() {
    contents_go_after_their_time("driver: sqlite, database: ./kept.db", 1, |folder| {
        // A copy as an operator makes it: what no row has any more is not in it.
        let copy = folder.join("copy.db");
        let kept = rusqlite::Connection::open(folder.join("kept.db")).unwrap();
        kept.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        let bytes = std::fs::read(copy).unwrap();
        bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
    });
}

#[test]
fn contents_go_after_their_time_on_postgres() {
    let url = shared().database();
    let sql = format!("driver: postgres, url: \"{url}\"");
    contents_go_after_their_time(&sql, 2, |_| {
        query_count(&url, &format!("SELECT FROM links WHERE payload LIKE '%{SECRET}%'")) > 0
    });
}

/// F31, S0-53: an agent says how long its own runs are kept, where the others are kept for ever; the proof says for how long it was.
#[test]
fn an_agent_can_keep_its_runs_for_another_time() {
    let folder = folder("driver: sqlite, database: ./kept.db", "");
    let path = folder.path().join("standfast.yaml");
    let more = "  brief: {llm: script, session_store: main, tools: [execute_command], retention: 1s, task: {input_timeout: 2h}}\n";
    let file = std::fs::read_to_string(&path).unwrap();
    let file = file
        .replace("agents: {ops: {", "agents:\n  ops: {")
        .replace("input_timeout: 2h}}}\n", "input_timeout: 2h}}\n");
    std::fs::write(&path, format!("{file}{more}")).unwrap();
    let server = serve(folder.path());
    let over = |server: &Process, agent: &str| {
        let held = server.ask(&["send", agent, "please", "--wait"]);
        let (run, hold) = (text(&held["id"]), text(&held["holds"][0]["id"]));
        server.ask(&["holds", "approve", &hold]);
        until("the run has ended", || status(server, &run) == "completed");
        run
    };
    let (kept, brief) = (over(&server, "ops"), over(&server, "brief"));
    until("its contents are gone", || kinds(&server, &brief) == ["run.erased"]);
    let config = path.display().to_string();
    until("the audit says so", || proven(&config).contains_key(&brief));
    assert_eq!(proven(&config), BTreeMap::from([(brief, 1)]));
    assert!(kinds(&server, &kept).contains(&"call.finished".to_owned()), "the other agent's are kept");
    let verified = standfast(&["audit", "verify", "--config", &config]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    // Another time for the others, from now on.
    let file = std::fs::read_to_string(&path).unwrap();
    let file = file
        .replace("server: {", "server: {retention: {ended_runs: 1s}, ")
        .replace("retention: 1s, task", "retention: 30d, task");
    std::fs::write(&path, file).unwrap();
    drop(server);
    let server = serve(folder.path());
    until("its contents are gone too", || kinds(&server, &kept) == ["run.erased"]);
    // One of the agent without a time of its own ends later, and goes first.
    let (run, later) = (over(&server, "brief"), over(&server, "ops"));
    until("the later one is gone", || kinds(&server, &later) == ["run.erased"]);
    assert!(kinds(&server, &run).contains(&"call.finished".to_owned()), "30 days are not over");
}

/// Without a word about it nothing is ever erased.
#[test]
fn without_a_word_everything_is_kept() {
    let folder = folder("driver: sqlite, database: ./kept.db", "");
    let server = serve(folder.path());
    let (run, hold) = held(&server);
    server.ask(&["holds", "approve", &hold]);
    until("the run has ended", || status(&server, &run) == "completed");
    std::thread::sleep(Duration::from_secs(4));
    assert!(kinds(&server, &run).contains(&"call.finished".to_owned()));
    assert_eq!(proven(&folder.path().join("standfast.yaml").display().to_string()), BTreeMap::new());
}
