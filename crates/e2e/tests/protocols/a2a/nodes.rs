//! Several servers on one Postgres: what one of them is asked, another one answers, and a third one tells on.
//!
//! That A2A is the same on either database is what the rest of this program shows on SQLite, once more here.

use std::path::Path;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use tempfile::TempDir;

use crate::a2a::push::{WHOLE, story, whole};
use crate::a2a::server::{Server, asked, decides, replies, says, serve_file, state};
use crate::a2a::streams::{Event, Reader, kept, told};
use standfast_testkit::receiver::{Mood, Receiver};

/// A folder with a configuration whose agent asks before it runs something, and lives in a database of its own.
fn folder() -> TempDir {
    let folder = crate::a2a::push::folder();
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
server:
  nodes: {{take_over_after: 3s}}
  webhooks: {{key: a-key-that-all-nodes-have-and-nobody-else, allowed_hosts: ['127.0.0.1'], retries: [{}]}}
tools: {{execute_command: {{allowed_commands: [echo]}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: postgres, url: \"{}\"}}}}}}
agents: {{ops: {{llm: script, session_store: main, tools: [execute_command], task: {{input_timeout: 2h}}, a2a: {{v03_card: true}}}}}}
",
        vec!["200ms"; 600].join(", "),
        shared().database()
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    folder
}

fn node(folder: &Path) -> Server {
    serve_file(folder, &[])
}

fn subscribe(task: &Value) -> String {
    format!("/v1/agents/ops/tasks/{}:subscribe", task["id"].as_str().unwrap())
}

fn words(events: &[Event]) -> Vec<String> {
    events.iter().map(told).collect()
}

/// C28: begun on one node, asked about on each, decided through the second, heard on the third, in every binding; a
/// message that decides nothing, a denial, a change and a cancel work there as on one server.
#[tokio::test]
async fn a_task_is_decided_through_any_node() {
    let folder = folder();
    let nodes = [node(folder.path()), node(folder.path()), node(folder.path())];
    let task = nodes[0].send("ops", &says("please")).await;
    assert_eq!((state(&task), asked(&task).len()), ("TASK_STATE_INPUT_REQUIRED", 1));
    let path = format!("/v1/agents/ops/tasks/{}", task["id"].as_str().unwrap());
    for node in &nodes {
        let waiting = node.get("/v1/agents/ops/tasks?status=TASK_STATE_INPUT_REQUIRED").await.body;
        assert_eq!(
            (&waiting["totalSize"], &waiting["tasks"][0]["id"]),
            (&json!(1), &task["id"]),
            "{waiting}"
        );
        let found = node.rpc("ops", "GetTask", json!({"id": task["id"]})).await.body["result"].clone();
        assert_eq!(asked(&found), asked(&task), "every node asks the same");
    }
    let mut reader = Reader::open(&nodes[2], "GET", &subscribe(&task), &[], None).await;
    assert_eq!(told(&reader.next().await.unwrap()), "task INPUT_REQUIRED");
    let still = nodes[1].send("ops", &replies(&task, json!([{"text": "what does it run?"}]))).await;
    assert_eq!(state(&still), "TASK_STATE_INPUT_REQUIRED");
    let message = decides(&task, json!({"decision": "approve"}));
    let done = nodes[1].rpc("ops", "SendMessage", json!({"message": message})).await.body;
    assert_eq!(state(&done["result"]["task"]), "TASK_STATE_COMPLETED", "{done}");
    assert_eq!(words(&kept(reader).await), ["WORKING", "artifact", "COMPLETED"]);
    assert_eq!(nodes[2].get(&path).await.body["artifacts"][0]["parts"][0]["text"], "done");

    let denied = nodes[1].send("ops", &says("please")).await;
    let denied = nodes[2].send("ops", &decides(&denied, json!({"decision": "deny", "reason": "no"}))).await;
    assert_eq!(state(&denied), "TASK_STATE_COMPLETED");
    let changed = nodes[2].send("ops", &says("please")).await;
    let wrong = json!({"decision": "modify", "modified_input": "{"});
    let refused =
        nodes[0].post("/v1/agents/ops/message:send", &json!({"message": decides(&changed, wrong)})).await;
    assert_eq!((refused.status, refused.reason()), (400, "INVALID_PARAMS"));
    let modify = json!({"decision": "modify", "modified_input": {"command": "echo else"}});
    assert_eq!(state(&nodes[0].send("ops", &decides(&changed, modify)).await), "TASK_STATE_COMPLETED");
    let canceled = nodes[0].send("ops", &says("please")).await;
    let path = format!("/v1/agents/ops/tasks/{}:cancel", canceled["id"].as_str().unwrap());
    for node in [&nodes[1], &nodes[2]] {
        let answer = node.ask("POST", &path, &[("a2a-version", "1.0")], b"").await;
        assert_eq!((answer.status, state(&answer.body)), (200, "TASK_STATE_CANCELED"));
    }
    // An older client on another node.
    let old = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task["id"]}});
    let shown = nodes[1].post("/v1/agents/ops", &old).await.body;
    assert_eq!(shown["result"]["status"]["state"], "completed", "{shown}");
}

/// A reader whose node is killed comes back to another one with the id of its last event, and gets exactly the rest. The
/// task was decided meanwhile, through the third.
#[tokio::test]
async fn a_subscription_goes_on_at_another_node() {
    let folder = folder();
    let (first, second, third) = (node(folder.path()), node(folder.path()), node(folder.path()));
    let task = first.send("ops", &says("please")).await;
    let mut whole = Reader::open(&second, "GET", &subscribe(&task), &[], None).await;
    let mut reader = Reader::open(&first, "GET", &subscribe(&task), &[], None).await;
    let seen = reader.next().await.unwrap();
    assert_eq!(whole.next().await.unwrap(), seen, "every node tells the same, with the same ids");
    drop(first);
    third.send("ops", &decides(&task, json!({"decision": "approve"}))).await;
    let whole = kept(whole).await;
    assert_eq!(words(&whole), ["WORKING", "artifact", "COMPLETED"]);
    for (at, last) in std::iter::once(&seen).chain(&whole[..whole.len() - 1]).enumerate() {
        let last = last.id.clone().unwrap();
        let back = Reader::open(&third, "POST", &subscribe(&task), &[("last-event-id", &last)], None).await;
        assert_eq!(kept(back).await[1..], whole[at..], "after {last}");
    }
}

/// F25: a receiver that was named at a node which dies is told by the others: everything, in order.
#[tokio::test]
async fn a_receiver_hears_everything_although_its_node_dies() {
    let folder = folder();
    let (first, second) = (node(folder.path()), node(folder.path()));
    let receiver = Receiver::new(Mood::Says("503 Service Unavailable".into())).await;
    let config = json!({"url": receiver.url(), "id": "mine", "token": "the-token"});
    let request = json!({"message": says("please"), "configuration": {"taskPushNotificationConfig": config}});
    let task = first.post("/v1/agents/ops/message:send", &request).await.body["task"].clone();
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED");
    receiver.until("a first try", |all| !all.is_empty()).await;
    drop(first);
    let path = format!("/v1/agents/ops/tasks/{}/pushNotificationConfigs/mine", task["id"].as_str().unwrap());
    assert_eq!(second.get(&path).await.body["token"], "the-token", "sealed under the key that both have");
    let hold = asked(&task)[0]["hold_id"].clone();
    second.send("ops", &decides(&task, json!({"decision": "approve", "hold_id": hold}))).await;
    receiver.becomes(Mood::Takes);
    let all = whole(&receiver).await;
    assert_eq!(story(&all), WHOLE);
    assert!(all.iter().all(|got| got.headers["x-a2a-notification-token"] == "the-token"));
}
