//! Receivers that are notified of tasks.

use serde_json::json;

use crate::inbox::server::{configure_with, serve, text};
use standfast_testkit::receiver::{Mood, Receiver};

/// S4-14, S4-30, C21: `task.suspended` is sent with its reason, signed; so is what becomes of the task. Other runs are not sent.
#[tokio::test]
async fn a_question_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let agents = "agents: {ops: {llm: script, session_store: main, task: {}}}\n";
    let hooks = ", webhooks: {allowed_hosts: ['127.0.0.1'], timeout: 5s}";
    configure_with(folder.path(), "replies:\n- text: done\n", agents, hooks);
    let server = serve(folder.path());
    let receiver = Receiver::new(Mood::Takes).await;
    let made = server.post("/subscriptions", &json!({"url": receiver.url()})).await;
    assert_eq!(made.status, 201, "{made:?}");
    server.add_ticket().await;
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    assert_eq!(server.report(&claimed, "start", json!({})).await.status, 200);
    server.report(&claimed, "suspend", json!({"reason": "which one?", "payload": {"options": ["A"]}})).await;
    server.resume(text(&claimed["id"]), json!("A")).await;
    let again = server.claim(&json!({"agentId": "w"})).await;
    server.report(&again, "complete", json!({"result": 1})).await;
    let is_over =
        |all: &[standfast_testkit::receiver::Got]| all.iter().any(|got| got.kind() == "task.completed");
    let told = receiver.until("the end of the task", is_over).await;
    let kinds: Vec<String> = told.iter().map(standfast_testkit::receiver::Got::kind).collect();
    assert_eq!(kinds, ["task.started", "task.suspended", "task.resumed", "task.completed"]);
    assert!(told.iter().all(|got| got.is_signed_with(text(&made.body["secret"]))));
    let first = told[1].body();
    assert_eq!(
        (&first["data"]["reason"], &first["data"]["task"]["id"]),
        (&json!("which one?"), &claimed["id"])
    );
    assert_eq!(first["data"]["suspendPayload"], json!({"reason": "which one?", "options": ["A"]}));
    let listed = server.look("/api/v1/subscriptions").await;
    assert_eq!(listed["subscriptions"][0]["kind"], "inbox");
}
