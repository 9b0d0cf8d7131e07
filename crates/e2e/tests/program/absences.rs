//! Whoever is away has somebody stand in, until they are back: on the real program, by the log and the receipt.
//!
//! What a delegation is, and that somebody can make one by hand, is `crates/server/tests/identity.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::json;
use standfast_testkit::{Http, text, until_found};

const SCRIPT: &str =
    "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: A}}]\n- text: done\n";

fn config(away: &str, self_approval: &str) -> String {
    format!(
        "session_stores: {{db: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
server: {{auth: {{api_keys: true}}}}
agents: {{ops: {{llm: s, tools: [write_file], session_store: db, approvers: ['group:ops', 'user:zoe'], self_approval: {self_approval}, task: {{}}}}}}
people:
  bob: {{groups: [ops]{away}}}
"
    )
}

fn write(folder: &Path, away: &str, self_approval: &str) {
    let path = folder.join("standfast.yaml");
    let file = std::fs::read_to_string(&path).unwrap();
    let (llms, _) = file.split_once("session_stores").unwrap();
    std::fs::write(&path, format!("{llms}{}", config(away, self_approval))).unwrap();
}

fn key(folder: &Path, user: &str) -> String {
    let mut command = standfast_testkit::standfast();
    command.args(["keys", "create", "--user", user, "--config"]).arg(folder.join("standfast.yaml"));
    let made = command.arg("--data").arg(folder.join("data")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

async fn held(http: &Http) -> (String, String) {
    let run = http.post("/api/v1/agents/ops/runs", &json!({"input": "go", "wait": "settled"})).await;
    (text(&run.body["id"]).to_owned(), text(&run.body["holds"][0]["id"]).to_owned())
}

async fn sees(http: &Http, hold: &str) -> bool {
    let listed = http.get("/api/v1/holds").await;
    listed.body["holds"].as_array().is_some_and(|holds| holds.iter().any(|one| one["id"] == hold))
}

/// C24, T12: while bob is away carol decides in his place what his group may decide, and nothing before or after; the receipt says so;
/// whoever started a run does not decide it by standing in.
#[tokio::test]
async fn whoever_stands_in_decides_until_the_other_is_back() {
    let folder = standfast_testkit::folder(&[("s", SCRIPT)], &config("", "allow"));
    let at = folder.path();
    let keys = ["olga", "bob", "carol"].map(|user| key(at, user));
    let server = standfast_testkit::serve(at);
    let [olga, _, carol] = keys.clone().map(|key| Http::new(&server.base).with_key(&key));
    let (_, before) = held(&olga).await;
    assert!(!sees(&carol, &before).await);
    drop(server);
    // Already away when the server starts: also what was pending before is handed on.
    write(at, ", away: {until: 2099-01-01T00:00:00Z, stand_in: carol}", "forbid");
    let server = standfast_testkit::serve(at);
    let [olga, _, carol] = keys.clone().map(|key| Http::new(&server.base).with_key(&key));
    let (run, hold) = held(&olga).await;
    for hold in [&before, &hold] {
        until_found("it is handed on", async || sees(&carol, hold).await.then_some(())).await;
    }
    let shown = carol.get(&format!("/api/v1/holds/{hold}")).await;
    assert_eq!(shown.body["may_decide"], true, "{shown:?}");
    let own = held(&carol).await.1;
    let approved = carol
        .post(&format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "approve", "wait": "settled"}))
        .await;
    assert_eq!(approved.status, 200, "{approved:?}");
    let receipt = olga.get(&format!("/api/v1/holds/{hold}/receipt")).await;
    assert_eq!(receipt.status, 200, "{receipt:?}");
    assert!(receipt.text.contains("bob") && receipt.text.contains("carol"), "{receipt:?}");
    let log = olga.get(&format!("/api/v1/runs/{run}/events")).await;
    assert!(log.text.contains("hold.delegated"), "{log:?}");
    // Her own run is not hers to approve, whoever she stands in for.
    until_found("her own is handed on as well", async || {
        carol.get(&format!("/api/v1/holds/{own}")).await.text.contains("2099-01-01").then_some(())
    })
    .await;
    let refused =
        carol.post(&format!("/api/v1/holds/{own}/resolve"), &json!({"resolution": "approve"})).await;
    assert!((400..500).contains(&refused.status), "{refused:?}");
    drop(server);
    // Back again: what is new is not hers.
    write(at, ", away: {until: 2020-01-01T00:00:00Z, stand_in: carol}", "allow");
    let server = standfast_testkit::serve(at);
    let [olga, bob, carol] = keys.map(|key| Http::new(&server.base).with_key(&key));
    let (_, after) = held(&olga).await;
    let refused =
        carol.post(&format!("/api/v1/holds/{after}/resolve"), &json!({"resolution": "approve"})).await;
    assert_eq!(refused.status, 404, "{refused:?}");
    // By key bob is in no group: only people of the configuration have theirs there.
    let shown = bob.get(&format!("/api/v1/holds/{after}")).await;
    assert_eq!(shown.status, 404, "{shown:?}");
}

/// What makes no sense is named when the file is checked.
#[test]
fn an_absence_ends_and_is_somebody_elses() {
    for (away, why) in [
        (", away: {stand_in: carol}", "until"),
        (", away: {until: tomorrow, stand_in: carol}", "it is no time"),
        (", away: {until: 2026-12-01T08:00:00Z, stand_in: bob}", "cannot stand in for themselves"),
        (
            ", away: {from: 2027-01-01T00:00:00Z, until: 2026-12-01T08:00:00Z, stand_in: carol}",
            "ends before it begins",
        ),
    ] {
        let folder = standfast_testkit::folder(&[("s", SCRIPT)], &config(away, "allow"));
        let mut command = standfast_testkit::standfast();
        let checked = command.arg("validate").arg(folder.path().join("standfast.yaml")).output().unwrap();
        let said =
            String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
        assert!(!checked.status.success() && said.contains(why), "{away}: {said}");
    }
}
