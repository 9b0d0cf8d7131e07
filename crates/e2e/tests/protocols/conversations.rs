//! A session is one conversation, whatever it is spoken over: native API, A2A of both versions, the older dialect, Teal; on any
//! node, and never another user's.
//!
//! What a model is sent is what the provider on this machine was sent.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::provider::{Answer, Fake};
use standfast_testkit::{Http, Process, serve_command, start, text};
use tempfile::TempDir;

/// A stream of OpenAI that says one word.
const SAYS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Noted.\"},\"finish_reason\":null}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A folder whose agent lives in a Postgres, for several nodes.
fn folder(fake: &Fake) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "llms: {{m: {{type: openai, model: m-1, base_url: '{}'}}}}
server: {{webhooks: {{key: a-key-that-all-nodes-have-and-nobody-else}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: postgres, url: \"{}\"}}}}}}
agents: {{ops: {{llm: m, session_store: main, task: {{}}}}}}
",
        fake.url,
        shared().database()
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    folder
}

fn key(folder: &TempDir, user: &str) -> String {
    let mut command = standfast_testkit::standfast();
    command.args(["keys", "create", "--user", user, "--config"]).arg(folder.path().join("standfast.yaml"));
    let made = command.arg("--data").arg(folder.path().join("data")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// What people said in the last request to the model, in order.
fn said(fake: &Fake) -> Vec<String> {
    let body: Value = serde_json::from_str(&fake.request().unwrap().body).unwrap();
    let is_user = |message: &&Value| message["role"] == "user";
    let words = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    body["messages"].as_array().unwrap().iter().filter(is_user).map(words).collect()
}

/// S0-8, S0-10, S1-33: five ways to speak to an agent, at two nodes in turn, the first killed in between: each run in the session is sent
/// what all runs before it said. Another user who uses the same name is sent nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_over_every_surface_and_node() {
    let fake = Fake::answering(vec![Answer::stream(SAYS)]);
    let folder = folder(&fake);
    let node = || start(serve_command(folder.path()).args(["--auth", "keys"]));
    let mut nodes = [node(), node()];
    let (ann, eve) = (key(&folder, "ann"), key(&folder, "eve"));
    let at = |node: &Process, key: &str| Http::new(&node.base).with_key(key);
    let native = json!({"input": "one", "session": "talk", "wait": "settled"});
    let newer = json!({"message": {"messageId": "2", "role": "ROLE_USER", "contextId": "talk", "parts": [{"text": "two"}]}});
    let dialect = json!({"request": {"role": "user", "contextId": "talk", "parts": [{"text": "three"}]}});
    let older = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {"kind": "message",
        "messageId": "4", "role": "user", "contextId": "talk", "parts": [{"kind": "text", "text": "four"}]}, "configuration": {"blocking": true}}});
    let teal = json!({"session_id": "talk", "items": [{"content_type": "text", "content": "five"}]});
    let ways = [
        ("/api/v1/agents/ops/runs", native.clone(), "one"),
        ("/v1/agents/ops/message:send", newer, "two"),
        ("/v1/agents/ops/message:send", dialect, "three"),
        ("/v1/agents/ops", older, "four"),
        ("/tealagents/v1alpha1/ops", teal, "five"),
    ];
    let mut expected = Vec::new();
    for (no, (path, body, words)) in ways.iter().enumerate() {
        let answer = at(&nodes[no % 2], &ann).post(path, body).await;
        assert!([200, 201].contains(&answer.status), "{path}: {answer:?}");
        assert!(answer.text.contains("Noted."), "{path}: {answer:?}");
        expected.push((*words).to_owned());
        assert_eq!(said(&fake), expected, "{path}");
        if no == 2 {
            nodes[0] = node();
        }
    }
    let theirs = at(&nodes[1], &eve).post("/api/v1/agents/ops/runs", &native).await;
    assert_eq!((theirs.status, text(&theirs.body["session"])), (201, "talk"), "{theirs:?}");
    assert_eq!(said(&fake), ["one"], "nothing of another user");
}
