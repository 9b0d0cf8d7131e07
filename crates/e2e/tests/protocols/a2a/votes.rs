//! Several people on one task: votes, edits and what rules say and found, over A2A alone.
//!
//! Votes on pages are in `tests/program/form_pages.rs`; what a vote means in `crates/core/tests`.

use serde_json::{Value, json};

use crate::a2a::server::{Server, asked, configured, decides, says};

const SCRIPT: &str = r#"
replies:
- calls:
  - {tool: write_file, arguments: {path: a.txt, content: first}}
- text: done
"#;

fn config() -> String {
    "server: {auth: {api_keys: true}}
llms: {s: {type: scripted, script: s.yaml}}
tools: {write_file: {requires_approval: false}}
agents: {a: {llm: s, tools: [write_file, list_dir], task: {}, session_store: main}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: kept.db}}}
policy:
  rules:
  - id: two
    hold: write_file
    because: others read this
    risk: high
    reversible: true
    approvers: ['group:ops']
    quorum: 2
    precondition: {tool: list_dir, arguments: {}}
"
    .to_owned()
}

fn key(folder: &std::path::Path, user: &str, group: &str) -> String {
    let mut command = standfast_testkit::standfast();
    command.args(["keys", "create", "--user", user, "--group", group, "--config"]);
    command.arg(folder.join("standfast.yaml")).arg("--data").arg(folder.join("data"));
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    format!("Bearer {}", String::from_utf8(made.stdout).unwrap().trim())
}

/// Sends a message as somebody; the task that comes back.
async fn sent(server: &Server, by: &str, message: &Value) -> Value {
    let body = json!({"message": message}).to_string();
    let headers = [("authorization", by)];
    let answer = server.ask("POST", "/v1/agents/a/message:send", &headers, body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["task"].clone()
}

/// C4, C16, C24: the task says who has agreed and how many are missing, why it is held, how bad it can get and what was looked up;
/// one person counts once; an edit voids the votes and says so; then two agree on what it is now, and that runs.
#[tokio::test]
async fn two_people_agree_by_messages() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    std::fs::write(folder.path().join("workspace/there.txt"), "x").unwrap();
    std::fs::write(folder.path().join("s.yaml"), SCRIPT).unwrap();
    let server = configured(folder.path(), &config());
    let at = folder.path();
    let (ann, bob, cy) = (key(at, "ann", "dev"), key(at, "bob", "ops"), key(at, "cy", "ops"));
    let task = sent(&server, &ann, &says("go")).await;
    let data = asked(&task)[0].clone();
    assert_eq!(data["votes"], json!({"agreed": [], "missing": 2}), "{data}");
    assert_eq!((&data["because"], &data["risk"]), (&json!(["others read this"]), &json!("high")), "{data}");
    assert_eq!(data["reversible"], true, "{data}");
    assert_eq!(data["findings"][0]["tool"], "list_dir", "{data}");
    assert!(data["findings"][0]["result"].to_string().contains("there.txt"), "{data}");
    let words = |task: &Value| task["status"]["message"]["parts"][0]["text"].as_str().unwrap().to_owned();
    assert!(words(&task).contains("Agreed so far: nobody; 2 more must agree."), "{task}");
    assert!(words(&task).contains("list_dir was asked, and said: "), "{task}");

    let hold = &data["hold_id"];
    let approve = |task: &Value| decides(task, json!({"decision": "approve", "hold_id": hold}));
    let one = sent(&server, &bob, &approve(&task)).await;
    assert_eq!(asked(&one)[0]["votes"], json!({"agreed": ["bob"], "missing": 1}), "{one}");
    let again = sent(&server, &bob, &approve(&task)).await;
    assert_eq!(asked(&again)[0]["votes"], json!({"agreed": ["bob"], "missing": 1}), "{again}");
    let modify = json!({"decision": "modify", "hold_id": hold, "modified_input": {"path": "a.txt", "content": "second"}});
    let edited = sent(&server, &cy, &decides(&task, modify)).await;
    assert!(edited.to_string().contains("Votes so far are void"), "{edited}");
    let now = asked(&edited)[0].clone();
    assert_eq!(now["votes"], json!({"agreed": [], "missing": 2}), "{now}");
    let agrees = |task: &Value| {
        decides(task, json!({"decision": "approve", "hold_id": hold, "digest": now["digest"]}))
    };
    let one = sent(&server, &bob, &agrees(&task)).await;
    assert_eq!(one["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{one}");
    assert!(!at.join("workspace/a.txt").exists());
    let done = sent(&server, &cy, &agrees(&task)).await;
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    assert_eq!(std::fs::read_to_string(at.join("workspace/a.txt")).unwrap(), "second");
}
