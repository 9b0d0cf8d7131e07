//! `standfast export` and `standfast import` with the real binary: runs that wait in one database are decided in another.
//!
//! From SQLite to Postgres and back, with every chain verified, and nothing done twice.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use standfast_store::conformance::cluster::shared;
use standfast_testkit::{folder, serve, text};
use tempfile::TempDir;

const SCRIPT: &str = r#"{"replies": [
    {"calls": [{"tool": "execute_command", "arguments": "{\"command\": \"echo hello\"}"}]}, {"text": "done"}]}"#;

/// A folder with an agent that asks before it runs a command, on this database.
fn with(sql: &str) -> TempDir {
    let rest = format!(
        "tools: {{execute_command: {{allowed_commands: [echo]}}}}
session_stores: {{main: {{backend: sql, sql: {{{sql}}}}}}}
agents: {{ops: {{llm: s, session_store: main, tools: [execute_command], approvers: [owner, 'user:ann'], task: {{}}}}}}
"
    );
    folder(&[("s", SCRIPT)], &rest)
}

fn postgres() -> TempDir {
    with(&format!("driver: postgres, url: \"{}\"", shared().database()))
}

fn standfast(arguments: &[&str], folder: &Path) -> Output {
    let config = folder.join("standfast.yaml");
    let mut command = standfast_testkit::standfast();
    command.args(arguments).arg("--config").arg(config).output().unwrap()
}

fn moved(arguments: &[&str], folder: &Path) -> Value {
    let output = standfast(&[arguments, &["--json"]].concat(), folder);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_str(said.trim().lines().last().unwrap()).unwrap()
}

/// What was exported but the entries about exports themselves, each of which is in the audit that it takes along.
fn without_exports(lines: &str, exports: usize) -> Vec<&str> {
    let (about_exports, rest): (Vec<&str>, _) =
        lines.lines().partition(|line| line.contains("data.exported"));
    assert_eq!(about_exports.len(), exports, "{about_exports:#?}");
    rest
}

fn verifies(folder: &Path) {
    let output = standfast(&["audit", "verify"], folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// C9, F19: what is pending in SQLite is moved to Postgres and decided there; what is pending there comes back. Ids, logs
/// and chains are the same on both sides.
#[test]
fn runs_move_to_another_database_and_back() {
    let (lite, large, back) =
        (with("driver: sqlite, database: a.db"), postgres(), with("driver: sqlite, database: b.db"));
    let lines = lite.path().join("lines.jsonl");
    let lines = lines.to_str().unwrap();
    let first = serve(lite.path());
    let runs: Vec<Value> = (0..3).map(|_| first.send("ops")).collect();
    let hold = |run: &Value| text(&run["holds"][0]["id"]).to_owned();
    first.try_ask(&["holds", "approve", &hold(&runs[0])]).unwrap();
    first.run_once(text(&runs[0]["id"]), "completed");
    let story = first.try_ask(&["show", text(&runs[1]["id"])]).unwrap();
    // A server may have the file: what is exported is one instant of it.
    let live = moved(&["export", "--output", lines], lite.path());
    let beside = std::fs::read_to_string(lines).unwrap();
    drop(first);

    let exported = moved(&["export", "--output", lines], lite.path());
    assert_eq!((&exported["runs"], &exported["sessions"]), (&3.into(), &3.into()), "{exported}");
    let apart = std::fs::read_to_string(lines).unwrap();
    assert_eq!((live, without_exports(&beside, 1)), (exported.clone(), without_exports(&apart, 2)));
    assert_eq!(moved(&["import", lines], large.path()), exported);
    verifies(large.path());
    let again = standfast(&["import", lines], large.path());
    let why = String::from_utf8(again.stderr).unwrap();
    assert!(!again.status.success() && why.contains("--into-existing"), "{why}");

    let second = serve(large.path());
    assert_eq!(second.try_ask(&["show", text(&runs[1]["id"])]).unwrap(), story, "the same story");
    assert_eq!(second.try_ask(&["holds"]).unwrap()["holds"].as_array().unwrap().len(), 2);
    second.try_ask(&["holds", "approve", &hold(&runs[1])]).unwrap();
    second.run_once(text(&runs[1]["id"]), "completed");
    drop(second);

    let exported = moved(&["export", "--output", lines], large.path());
    assert_eq!(moved(&["import", lines], back.path()), exported);
    verifies(back.path());
    let third = serve(back.path());
    third.try_ask(&["holds", "approve", &hold(&runs[2])]).unwrap();
    third.run_once(text(&runs[2]["id"]), "completed");
    assert_eq!(third.run(text(&runs[1]["id"]))["status"], "completed");
}

/// C9: one conversation alone, into a database that has others; and lines that were changed or cut are refused.
#[test]
fn one_conversation_moves_and_changed_lines_are_refused() {
    let (from, to) = (with("driver: sqlite, database: a.db"), with("driver: sqlite, database: b.db"));
    let server = serve(from.path());
    let runs: Vec<Value> = (0..2).map(|_| server.send("ops")).collect();
    drop(server);
    let server = serve(to.path());
    let own = server.send("ops");
    drop(server);
    let lines = from.path().join("lines.jsonl");
    let path = lines.to_str().unwrap();
    let session = text(&runs[1]["session"]);
    let exported = moved(&["export", "--output", path, "--agent", "ops", "--session", session], from.path());
    assert_eq!(exported["runs"], 1);
    let good = std::fs::read_to_string(&lines).unwrap();
    let cut: String = good.lines().take(4).map(|line| format!("{line}\n")).collect();
    for (changed, why) in [
        (good.replace("echo hello", "echo other"), "line"),
        (cut, "the export is truncated"),
        (good.replacen("\"format\":1", "\"format\":9", 1), "format 9"),
        ("no line\n".to_owned(), "line 1"),
    ] {
        let other = with("driver: sqlite, database: c.db");
        std::fs::write(&lines, changed).unwrap();
        let refused = standfast(&["import", path], other.path());
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains(why), "{why}: {said}");
    }
    std::fs::write(&lines, good).unwrap();
    assert_eq!(moved(&["import", path, "--into-existing"], to.path()), exported);
    let server = serve(to.path());
    let listed = server.try_ask(&["holds"]).unwrap();
    assert_eq!(listed["holds"].as_array().unwrap().len(), 2, "{listed}");
    for run in [&own, &runs[1]] {
        server.try_ask(&["holds", "approve", text(&run["holds"][0]["id"])]).unwrap();
        server.run_once(text(&run["id"]), "completed");
    }
    drop(server);
    verifies(to.path());
}

/// F19: a server goes on writing while it is exported: what comes out is one instant, whole, and verifies elsewhere.
#[test]
fn a_server_is_exported_while_it_works() {
    let from = with("driver: sqlite, database: a.db");
    let server = serve(from.path());
    let lines = from.path().join("lines.jsonl");
    let path = lines.to_str().unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                let run = server.send("ops");
                server.try_ask(&["holds", "approve", text(&run["holds"][0]["id"])]).unwrap();
            }
        });
        let mut seen = Vec::new();
        for _ in 0..5 {
            let exported = moved(&["export", "--output", path], from.path());
            let to = with("driver: sqlite, database: b.db");
            assert_eq!(moved(&["import", path], to.path()), exported);
            verifies(to.path());
            seen.push(exported["runs"].as_u64().unwrap());
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        seen
    });
    assert!(seen.is_sorted() && seen.last() > seen.first(), "{seen:?}");
    drop(server);
    verifies(from.path());
}
