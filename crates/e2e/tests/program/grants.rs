//! Standing approvals with the real binary: the rule by the command line, the approval that saves it, its uses over `kill -9` and
//! over two nodes, its end, and the pages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::{folder, serve, text};

use crate::form_pages::{Browser, field};

/// A folder whose agent wants to pay, every time the same.
fn paying() -> tempfile::TempDir {
    paying_on("{driver: sqlite, database: kept.db}", "")
}

fn paying_on(store: &str, server: &str) -> tempfile::TempDir {
    let call =
        json!({"tool": "write_file", "arguments": json!({"path": "paid/a.txt", "content": "x"}).to_string()});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    let folder = folder(
        &[("s", &script)],
        &format!(
            "tools: {{write_file: {{requires_approval: false}}}}
agents: {{a: {{llm: s, tools: [write_file], task: {{}}, session_store: main}}}}
session_stores: {{main: {{backend: sql, sql: {store}}}}}
policy: {{rules: [{{id: pay, hold: write_file, because: it costs money}}]}}
{server}"
        ),
    );
    std::fs::create_dir_all(folder.path().join("workspace/paid")).unwrap();
    folder
}

/// The rule is shown, saved as shown, used, counted and revoked; what is used survives a server that is killed.
#[test]
fn a_standing_approval_from_the_rule_to_its_end() {
    let folder = paying();
    let server = serve(folder.path());
    let held = server.send("a");
    assert_eq!(held["status"], "held", "{held}");
    let id = text(&held["holds"][0]["id"]).to_owned();
    let like = ["--uses", "2", "--like", "path=same_folder"];
    let rule = server.ask(&[&["holds", "grant-rule", &id], &like[..]].concat());
    let lines = rule["rule"].to_string();
    for line in [
        "calls of write_file by agent a",
        r#"content = \"x\""#,
        "as they are now: rule:pay",
        "at most 2 further calls",
    ] {
        assert!(lines.contains(line), "{line}: {lines}");
    }
    let (until, digest) = (text(&rule["until"]), text(&rule["digest"]));
    // Another count is another rule: nothing is decided.
    let wider = ["--uses", "3", "--like", "path=same_folder", "--until", until, "--rule", digest];
    let refused = server.output(&[&["holds", "approve", &id], &wider[..]].concat());
    assert_eq!(refused.status.code(), Some(1));
    // Nor without the rule: whoever asks for more than one call does not get one by mistake.
    let refused = server.output(&["holds", "approve", &id, "--uses", "2"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && told.contains("needs --rule"), "{told}");
    assert_eq!(server.ask(&["grants", "list"])["grants"], json!([]));
    let exact = ["--until", until, "--rule", digest];
    let approved = server.ask(&[&["holds", "approve", &id], &like[..], &exact[..]].concat());
    assert_eq!(approved["outcome"], "decided", "{approved}");

    let first = server.send("a");
    assert_eq!(first["status"], "completed", "the grant answers it: {first}");
    drop(server);
    let server = serve(folder.path());
    let listed = server.ask(&["grants", "list"]);
    let grant = &listed["grants"][0];
    assert_eq!(
        (&grant["state"], &grant["used"], &grant["uses"]),
        (&json!("live"), &json!(1), &json!(2)),
        "{listed}"
    );
    assert_eq!(grant["used_by"], json!([first["id"]]));
    let log = server.ask(&["show", text(&first["id"])]).to_string();
    assert!(log.contains(r#""grant_use":{"grant":"grant_"#), "{log}");
    let receipt = Browser::of(&server).get(&format!("/api/v1/runs/{}/calls/1/receipt", text(&first["id"]))).1;
    let receipt: Value = serde_json::from_str(&receipt).unwrap();
    assert_eq!(receipt["outcome"]["effect"], "executed", "{receipt}");
    assert_eq!(
        receipt["outcome"]["attempts"][0]["grant_use"],
        json!({"grant": grant["id"], "no": 1}),
        "{receipt}"
    );
    let saved = server.ask(&["holds", "show", &id]);
    assert_eq!(saved["state"], "decided", "{saved}");

    let revoked = server.ask(&["grants", "revoke", text(&grant["id"])]);
    assert_eq!(revoked["state"], "revoked", "{revoked}");
    assert_eq!(server.send("a")["status"], "held", "asked about again");
}

/// Two nodes of one database race for the uses of one approval: as many runs start as it says, each with a use of its own, and every
/// other one is held.
#[test]
fn two_nodes_never_start_more_than_it_says() {
    // Both seal with the same key.
    let server =
        "server: {nodes: {take_over_after: 3s}, webhooks: {key: a-key-for-tests-that-is-long-enough-0123}}\n";
    let folder = paying_on(&format!("{{driver: postgres, url: \"{}\"}}", shared().database()), server);
    let nodes = [serve(folder.path()), serve(folder.path())];
    let id = text(&nodes[0].send("a")["holds"][0]["id"]).to_owned();
    let rule = nodes[1].ask(&["holds", "grant-rule", &id, "--uses", "3"]);
    let exact = ["--uses", "3", "--until", text(&rule["until"]), "--rule", text(&rule["digest"])];
    let approved = nodes[1].ask(&[&["holds", "approve", &id], &exact[..]].concat());
    assert_eq!(approved["outcome"], "decided", "{approved}");
    let runs: Vec<Value> = thread::scope(|scope| {
        let nodes = &nodes;
        let starts: Vec<_> = (0..10).map(|no| scope.spawn(move || nodes[no % 2].send("a"))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let with = |status: &str| -> Vec<&Value> { runs.iter().filter(|run| run["status"] == status).collect() };
    assert_eq!((with("completed").len(), with("held").len()), (3, 7), "{runs:#?}");
    let browser = Browser::of(&nodes[0]);
    let number = |run: &&Value| {
        let receipt = browser.get(&format!("/api/v1/runs/{}/calls/1/receipt", text(&run["id"]))).1;
        let receipt: Value = serde_json::from_str(&receipt).unwrap();
        receipt["outcome"]["attempts"][0]["grant_use"]["no"].as_u64().unwrap()
    };
    let mut numbers: Vec<u64> = with("completed").iter().map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
    let listed = nodes[0].ask(&["grants", "list"]);
    assert_eq!((&listed["grants"][0]["state"], &listed["grants"][0]["used"]), (&json!("used_up"), &json!(3)));
}

/// The same on pages, without script: the offer, the rule, the approval, the list, the end.
#[test]
fn a_standing_approval_on_pages() {
    let folder = paying();
    let server = serve(folder.path());
    let browser = Browser::of(&server);
    let held = server.send("a");
    let id = text(&held["holds"][0]["id"]).to_owned();
    let page = browser.page(&format!("/approve/{id}"));
    assert!(page.contains(&format!("href=\"/approve/{id}/grant\"")), "{page}");
    let offer = browser.page(&format!("/approve/{id}/grant"));
    assert!(offer.contains("Show the rule") && !offer.contains("data-rule"), "{offer}");
    let shown = browser.page(&format!("/approve/{id}/grant?uses=1&hours=24&like-1=same_folder"));
    assert!(shown.contains("data-rule") && shown.contains("at most 1 further call"), "{shown}");
    let names = ["csrf", "once", "digest", "revision", "until", "grant_digest"];
    let mut form: Vec<(String, String)> = names.map(|name| (name.to_owned(), field(&shown, name))).into();
    form.extend([
        ("uses".into(), "1".into()),
        ("like-1".into(), "same_folder".into()),
        ("decision".into(), "approve".into()),
    ]);
    let (status, _) = browser.post(&format!("/approve/{id}/grant"), &form);
    assert_eq!(status, 303);
    let list = browser.page("/grants");
    assert!(list.contains("write_file: 0 of 1 used") && list.contains("Live"), "{list}");
    assert_eq!(server.send("a")["status"], "completed");
    assert!(browser.page("/grants").contains("write_file: 1 of 1 used"));
}
