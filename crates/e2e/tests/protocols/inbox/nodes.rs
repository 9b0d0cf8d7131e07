//! Two nodes on one Postgres: claims have one winner, any node goes on with any task, waiting workers learn of the other
//! node's tasks.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;

use crate::inbox::server::{Server, asking, configure, ids, serve_from, text};

fn two_nodes(script: &str, agents: &str) -> (tempfile::TempDir, [Server; 2]) {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), script, agents, &shared().database());
    let nodes = ["one", "two"].map(|data| serve_from(folder.path(), data));
    (folder, nodes)
}

/// S4-29: workers at two nodes never get the same task, and a worker that waits at one node gets what is added at the other.
#[tokio::test]
async fn claims_have_one_winner_over_nodes() {
    let (_folder, [one, two]) = two_nodes(
        "replies:\n- text: done\n",
        "agents: {ops: {llm: script, session_store: main, task: {}}}\n",
    );
    let wanted = json!({"agentId": "early", "waitMs": 50_000});
    let (early, added) = tokio::join!(two.claim(&wanted), one.add_ticket());
    assert_eq!(early["id"], added["id"]);
    let tasks: Vec<Value> = (0..30).map(|n| json!({"type": "t", "payload": n, "priority": n % 4})).collect();
    assert_eq!(one.post("/support/tasks/batch", &json!({"tasks": tasks})).await.status, 201);
    let drain = async |server: &Server, name: &str| {
        let mut got = Vec::new();
        loop {
            let task = server.claim(&json!({"agentId": name})).await;
            if task.is_null() {
                return got;
            }
            got.push(text(&task["id"]).to_owned());
        }
    };
    let (a, b, c, d) = tokio::join!(drain(&one, "a"), drain(&two, "b"), drain(&one, "c"), drain(&two, "d"));
    let all: Vec<String> = [a, b, c, d].concat();
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (30, 30));
    // What was claimed at one node is reported at the other.
    let claimed = one.task(&all[0]).await;
    assert_eq!(two.report(&claimed, "complete", json!({"result": 1})).await.body["status"], "completed");
}

/// S4-9, S4-30, F7: an agent at two nodes serves one inbox; each task is worked on once, is answered through either node, and
/// goes on when the node that took it is killed.
#[tokio::test]
async fn nodes_share_the_tasks_of_an_agent() {
    let agents = "agents: {triage: {llm: script, session_store: main, inboxes: [support], max_concurrent: 3, task: {}}}\n";
    let (_folder, [one, two]) = two_nodes(&asking(r#"{"reason": "r"}"#), agents);
    let mut added = Vec::new();
    for n in 0..12 {
        added.push(text(&one.add(&json!({"type": "t", "payload": n})).await["id"]).to_owned());
    }
    for id in &added {
        two.until(id, "waiting_for_input").await;
    }
    assert_eq!(ids(&two.get("/support/tasks/waiting").await).len(), 12);
    for id in added.iter().take(6) {
        assert_eq!(two.resume(id, json!("x")).await.status, 200);
    }
    drop(one);
    for id in added.iter().skip(6) {
        assert_eq!(two.resume(id, json!("x")).await.status, 200);
    }
    for id in &added {
        two.until(id, "completed").await;
        let events = two.look(&format!("/api/v1/runs/{id}/events")).await;
        let replies =
            events["events"].as_array().unwrap().iter().filter(|event| event["type"] == "model.replied");
        assert_eq!(replies.count(), 2, "{id}");
    }
    assert_eq!(two.get("/support/stats").await.body["completed"], 12);
}
