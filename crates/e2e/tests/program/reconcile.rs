//! Reconcile with the real binary: a server is killed inside a tool, and the read-only call that the tool names says what became of
//! it before a person is asked. The tools are those of a real MCP server, `ledger.py`.
//!
//! How an answer is read is tested in `crates/policy`, what follows from it in `crates/core`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::{Process, folder, serve, text, until};

use crate::form_pages::Browser;

const SQLITE: &str = "{driver: sqlite, database: kept.db}";

/// A folder whose agent pays a refund, and whose ledger can be asked about it.
fn paying(store: &str, timeout: &str) -> tempfile::TempDir {
    let call = json!({"tool": "pay__refund", "arguments": json!({"payment": "p-1"}).to_string()});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    let ledger = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/ledger.py");
    folder(
        &[("s", &script)],
        &format!(
            "tools:
  pay:
    type: mcp
    command: python3
    args: [{ledger:?}]
    overrides:
      refund:
        requires_approval: false
        reconcile:
          tool: find_refund
          arguments: {{payment: \"{{payment}}\"}}
          happened: {{/refund/state: [paid, settled]}}
          did_not_happen: {{known: true, /refund: {{present: false}}}}
          timeout: {timeout}
agents: {{a: {{llm: s, tools: [pay], task: {{}}, session_store: main}}}}
session_stores: {{main: {{backend: sql, sql: {store}}}}}
server: {{nodes: {{take_over_after: 3s}}}}
"
        ),
    )
}

fn put(folder: &Path, name: &str) {
    std::fs::write(folder.join(name), "").unwrap();
}

/// How often the ledger was told to pay, or asked.
fn count(folder: &Path, name: &str) -> usize {
    std::fs::read_to_string(folder.join(name)).unwrap_or_default().lines().count()
}

/// Begins a run and waits until its tool is at work.
fn inside_the_tool(server: &Process, folder: &Path) -> String {
    let run = server.begin("a");
    until("the tool runs", || count(folder, "started") == 1);
    run
}

fn receipt(server: &Process, run: &str) -> Value {
    let (status, body) = Browser::of(server).get(&format!("/api/v1/runs/{run}/calls/1/receipt"));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn is_sound(folder: &Path) {
    let audit = standfast_testkit::standfast()
        .args(["audit", "verify", "--json", "--config"])
        .arg(folder.join("standfast.yaml"))
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&audit.stdout).unwrap();
    assert_eq!(report["ok"], true, "{report}");
}

/// What happened is settled without a person and without a second start; log, receipt, its page and the timeline say who was asked.
#[test]
fn what_happened_is_settled_without_a_second_start() {
    let folder = paying(SQLITE, "30s");
    put(folder.path(), "pays");
    let server = serve(folder.path());
    let run = inside_the_tool(&server, folder.path());
    drop(server);
    let server = serve(folder.path());
    let done = server.until_status(&run, "completed");
    assert_eq!((count(folder.path(), "started"), count(folder.path(), "asked")), (1, 1), "{done}");
    let log = server.ask(&["show", &run]).to_string();
    assert!(
        log.contains(r#""executed":true"#) && log.contains(r#""checked_with":"pay__find_refund""#),
        "{log}"
    );
    assert!(!log.contains("hold.opened"), "nobody was asked: {log}");
    let receipt = receipt(&server, &run);
    assert_eq!(receipt["outcome"]["effect"], "executed", "{receipt}");
    let found = &receipt["outcome"]["attempts"][0]["reconciled"];
    assert_eq!(
        (&found["says"], &found["finding"]["arguments"]),
        (&json!("happened"), &json!(r#"{"payment":"p-1"}"#)),
        "{receipt}"
    );
    let browser = Browser::of(&server);
    assert!(browser.page(&format!("/runs/{run}/calls/1/receipt")).contains("it did"));
    assert!(browser.page(&format!("/runs/{run}")).contains("was lost and looked up: it happened"));
    drop(server);
    is_sound(folder.path());
}

/// A server that is killed in the middle of asking asks again after its restart. What did not happen is for a person to decide, who
/// is shown the answer on the API, the page and the command line; only their "run it again" starts the call a second time.
#[test]
fn what_did_not_happen_is_decided_by_a_person_who_sees_the_answer() {
    let folder = paying(SQLITE, "60s");
    put(folder.path(), "slow");
    let server = serve(folder.path());
    let run = inside_the_tool(&server, folder.path());
    drop(server);
    let server = serve(folder.path());
    until("the ledger is asked", || count(folder.path(), "asked") == 1);
    assert!(server.ask(&["holds"])["holds"].as_array().unwrap().is_empty(), "it is asked before a person is");
    drop(server);
    std::fs::remove_file(folder.path().join("slow")).unwrap();
    let server = serve(folder.path());
    let hold = server.hold_of_kind(&run, "recovery");
    assert_eq!((count(folder.path(), "started"), count(folder.path(), "asked")), (1, 2));
    let id = text(&hold["id"]);
    let shown = server.ask(&["holds", "show", id]);
    assert_eq!(shown["reconciled"], "did_not_happen", "{shown}");
    assert_eq!(
        (&shown["findings"][0]["tool"], &shown["findings"][0]["result"]),
        (&json!("pay__find_refund"), &json!(r#"{"known": true}"#))
    );
    assert!(text(&shown["reason"]).contains("had not happened by then"), "{shown}");
    let page = Browser::of(&server).page(&format!("/approve/{id}"));
    assert!(page.contains("pay__find_refund") && page.contains("was asked, and said"), "{page}");
    let printed = server.output(&["holds", "show", id]);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains("looked up with pay__find_refund"), "{printed}");
    // Nothing starts by itself, however long it waits; whoever decides starts it once more.
    assert_eq!(count(folder.path(), "started"), 1);
    server.ask(&["holds", "approve", id]);
    until("it runs again, as a person said", || count(folder.path(), "started") == 2);
    let receipt = receipt(&server, &run);
    assert_eq!(receipt["outcome"]["attempts"][0]["reconciled"]["says"], "did_not_happen", "{receipt}");
    drop(server);
    is_sound(folder.path());
}

/// An answer that does not say, and one that does not come in time: the person is asked as without any of it.
#[test]
fn who_cannot_tell_leaves_it_to_a_person() {
    for (steering, result) in [("unsure", r#"{"known": false}"#), ("slow", "did not answer within 1s")] {
        let folder = paying(SQLITE, "1s");
        put(folder.path(), steering);
        let server = serve(folder.path());
        let run = inside_the_tool(&server, folder.path());
        drop(server);
        let server = serve(folder.path());
        let hold = server.hold_of_kind(&run, "recovery");
        let shown = server.ask(&["holds", "show", text(&hold["id"])]);
        assert_eq!(shown["reconciled"], "cannot_tell", "{shown}");
        assert!(text(&shown["findings"][0]["result"]).contains(result), "{shown}");
        server.ask(&["holds", "deny", text(&hold["id"])]);
        server.until_status(&run, "completed");
        assert_eq!(count(folder.path(), "started"), 1, "{steering}");
    }
}

/// Of several nodes one asks, once, and settles it.
#[test]
fn one_of_several_nodes_asks() {
    let folder = paying(&format!("{{driver: postgres, url: \"{}\"}}", shared().database()), "30s");
    put(folder.path(), "pays");
    let first = serve(folder.path());
    let run = inside_the_tool(&first, folder.path());
    let others = [serve(folder.path()), serve(folder.path())];
    drop(first);
    others[0].until_status(&run, "completed");
    assert_eq!((count(folder.path(), "started"), count(folder.path(), "asked")), (1, 1));
    let receipt = receipt(&others[1], &run);
    assert_eq!(receipt["outcome"]["attempts"][0]["reconciled"]["says"], "happened", "{receipt}");
}
