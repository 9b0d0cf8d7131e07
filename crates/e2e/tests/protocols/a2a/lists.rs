//! Lists of tasks: filters, pages, and the four members that are always there.

use std::collections::BTreeSet;

use serde_json::json;

use crate::a2a::server::{decides, demo, says};

#[tokio::test]
async fn tasks_are_listed_by_page_and_filter() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let empty = server.get("/v1/agents/ops/tasks").await;
    assert_eq!(empty.body, json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}));
    let mut ids = BTreeSet::new();
    for no in 0..5 {
        let mut message = says("go");
        message["contextId"] = json!(format!("context-{}", no % 2));
        let task = server.send("ops", &message).await;
        assert_eq!(task["contextId"], format!("context-{}", no % 2), "a client's context is kept");
        ids.insert(task["id"].as_str().unwrap().to_owned());
    }
    let all = server.get("/v1/agents/ops/tasks").await;
    let first = all.body["tasks"][0].clone();
    let done = server.send("ops", &decides(&first, json!({"decision": "approve"}))).await;

    let (mut seen, mut token, mut stamps) = (BTreeSet::new(), String::new(), Vec::new());
    loop {
        let page = server.get(&format!("/v1/agents/ops/tasks?pageSize=2&pageToken={token}")).await;
        assert_eq!((page.body["totalSize"].as_u64(), page.body["pageSize"].as_u64()), (Some(5), Some(2)));
        for task in page.body["tasks"].as_array().unwrap() {
            assert!(seen.insert(task["id"].as_str().unwrap().to_owned()), "no task twice");
            assert!(task.get("artifacts").is_none(), "trap 7");
            stamps.push(task["status"]["timestamp"].as_str().unwrap().to_owned());
        }
        token = page.body["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, ids);
    assert!(stamps.is_sorted_by(|one, other| one >= other), "those that changed last first: {stamps:?}");

    let count = async |query: &str| {
        let answer = server.rpc("ops", "ListTasks", serde_json::from_str(query).unwrap()).await;
        answer.body["result"]["tasks"].as_array().unwrap().len()
    };
    assert_eq!(count(r#"{"status": "TASK_STATE_INPUT_REQUIRED"}"#).await, 4, "the inbox");
    assert_eq!(count(r#"{"status": "TASK_STATE_COMPLETED"}"#).await, 1);
    assert_eq!(count(r#"{"status": "TASK_STATE_CANCELLED"}"#).await, 0, "C2: either spelling");
    assert_eq!(count(r#"{"contextId": "context-1"}"#).await, 2);
    assert_eq!(count(r#"{"contextId": "context-1", "status": "TASK_STATE_INPUT_REQUIRED"}"#).await, 2);
    let since = done["status"]["timestamp"].as_str().unwrap();
    assert_eq!(count(&format!(r#"{{"statusTimestampAfter": "{since}"}}"#)).await, 1);
    let with = server
        .get("/v1/agents/ops/tasks?status=TASK_STATE_COMPLETED&includeArtifacts=true&historyLength=1")
        .await;
    let task = &with.body["tasks"][0];
    assert_eq!(task["artifacts"].as_array().unwrap().len(), 1);
    assert_eq!(task["history"].as_array().unwrap().len(), 1);
    assert_eq!(server.get("/v1/agents/travel/tasks").await.body["totalSize"], 0, "each agent has its own");
}
