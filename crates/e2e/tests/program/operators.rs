//! Whoever keeps the server going: cancels runs of others, sends dead letters again, reads figures, and decides nothing (T12).

use serde_json::{Value, json};
use standfast_testkit::{Http, folder, serve_command, standfast, start, text};

const SCRIPT: &str =
    "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: once}}]\n- text: done\n";

const CONFIG: &str = "server:
  auth: {api_keys: true}
  links: {key: 'a key of links that is long enough'}
people: {alice: {}}
session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: db, tools: [write_file], approvers: [owner, 'user:otto', 'role:operator'], task: {}}}
";

/// T12: the role `operator`, with every scope that a key can have and as an approver by name.
#[tokio::test]
async fn t12_an_operator_cancels_and_looks_and_decides_nothing() {
    let directory = folder(&[("script", SCRIPT)], CONFIG);
    std::fs::create_dir(directory.path().join("workspace")).unwrap();
    let key = |arguments: &[&str]| {
        let mut command = standfast();
        command.args(["keys", "create"]).args(arguments).arg("--config");
        let made = command.arg(directory.path().join("standfast.yaml")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    // Whoever lists them as approvers is told.
    let checked = standfast().arg("validate").arg(directory.path().join("standfast.yaml")).output().unwrap();
    let told = [checked.stdout, checked.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(checked.status.success() && told.contains("whoever has this role decides nothing"), "{told}");
    let ann = key(&["--user", "ann"]);
    let operator = key(&["--user", "otto", "--role", "operator", "--role", "admin", "--scope", "admin"]);
    let server = start(&mut serve_command(directory.path()));
    let [owner, operator] = [&ann, &operator].map(|key| Http::new(&server.base).with_key(key));
    let held = async || -> Value {
        let body = json!({"input": "please", "wait": "settled"});
        let run = owner.post("/api/v1/agents/ops/runs", &body).await.body;
        assert_eq!(run["status"], "held", "{run}");
        run
    };
    let run = held().await;
    let (id, hold) = (text(&run["id"]), text(&run["holds"][0]["id"]));
    for path in [
        format!("/api/v1/runs/{id}"),
        "/metrics".to_owned(),
        "/api/v1/subscriptions".to_owned(),
        "/api/v1/nodes".to_owned(),
        format!("/api/v1/holds/{hold}"),
    ] {
        assert_eq!(operator.get(&path).await.status, 200, "{path}");
    }
    let (resolve, link) = (format!("/api/v1/holds/{hold}/resolve"), format!("/api/v1/holds/{hold}/link"));
    for resolution in ["approve", "deny"] {
        assert_eq!(operator.post(&resolve, &json!({"resolution": resolution})).await.status, 403);
    }
    assert_eq!(operator.post(&link, &json!({"for": "alice"})).await.status, 403);
    assert_eq!(owner.get(&format!("/api/v1/runs/{id}")).await.body["status"], "held");
    let canceled = operator.post(&format!("/api/v1/runs/{id}/cancel"), &json!({})).await;
    assert!((200..300).contains(&canceled.status), "{}", canceled.text);
    let after = owner.get(&format!("/api/v1/runs/{id}")).await.body;
    assert_eq!(after["status"], "canceled", "{after}");
    let run = held().await;
    let approved = owner
        .post(
            &format!("/api/v1/holds/{}/resolve", text(&run["holds"][0]["id"])),
            &json!({"resolution": "approve"}),
        )
        .await;
    assert!((200..300).contains(&approved.status), "what the operator cannot do, the owner can");
}
