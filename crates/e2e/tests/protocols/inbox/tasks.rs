//! Tasks: what they have, how they are added, listed, counted and cancelled.

use serde_json::{Value, json};

use crate::inbox::server::{ids, plain, text};

/// S4-28, S4-31: a task has the fields of its sender, the defaults, and the run behind it.
#[tokio::test]
async fn a_task_has_its_fields() {
    let (_folder, server) = plain();
    let added = server
        .add(&json!({
            "type": "ticket", "payload": {"subject": "Refund", "total": 12.50}, "priority": "urgent",
            "title": "Refund for Ann", "sourceId": "T-1", "sourceUrl": "https://desk.example/T-1",
            "targetAgentId": "biller", "maxAttempts": 5, "metadata": {"team": "emea"}
        }))
        .await;
    let (id, created) = (text(&added["id"]).to_owned(), added["createdAt"].clone());
    assert_eq!(
        added,
        json!({
            "id": id, "runId": id, "inboxId": "support", "type": "ticket", "status": "pending", "priority": 3,
            "title": "Refund for Ann", "sourceId": "T-1", "sourceUrl": "https://desk.example/T-1",
            "payload": {"subject": "Refund", "total": 12.50}, "targetAgentId": "biller", "createdAt": created,
            "attempts": 0, "maxAttempts": 5, "metadata": {"team": "emea"}
        })
    );
    assert_eq!(server.task(&id).await, added);
    let run = server.look(&format!("/api/v1/runs/{id}")).await;
    assert_eq!((&run["id"], &run["status"]), (&json!(id), &json!("queued")));
    let plain = server.add_ticket().await;
    assert_eq!((&plain["priority"], &plain["maxAttempts"]), (&json!(1), &json!(3)));
}

/// What is not a task is refused, in words; an inbox or a task that is not there is not found.
#[tokio::test]
async fn bad_tasks_are_refused() {
    let (_folder, server) = plain();
    for (task, why) in [
        (json!({"payload": {}}), "missing field `type`"),
        (json!({"type": "t"}), "missing field `payload`"),
        (json!({"type": "", "payload": 1}), "type must have"),
        (json!({"type": "t", "payload": 1, "priority": 4}), "priority must be"),
        (json!({"type": "t", "payload": 1, "priority": "soon"}), "did not match"),
        (json!({"type": "t", "payload": 1, "maxAttempts": 0}), "maxAttempts must be"),
        (json!({"type": "t", "payload": 1, "due": "today"}), "unknown field `due`"),
    ] {
        let answer = server.post("/support/tasks", &task).await;
        assert_eq!(answer.status, 422, "{task}: {answer:?}");
        assert!(text(&answer.body["detail"]).contains(why), "{task}: {answer:?}");
    }
    let task = server.add_ticket().await;
    let id = text(&task["id"]);
    for path in [
        format!("/elsewhere/tasks/{id}"),
        "/support/tasks/nothing".to_owned(),
        format!("/support/tasks/{}", id.replace(&id[10..14], "0000")),
    ] {
        assert_eq!(server.get(&path).await.status, 404, "{path}");
    }
}

/// S4-29: several at once; with an idempotency key a repeat adds nothing.
#[tokio::test]
async fn tasks_are_added_in_batches_once() {
    let (_folder, server) = plain();
    let task = |n: u32| json!({"type": "ticket", "payload": n, "priority": n % 4});
    let batch = json!({"tasks": (0..20).map(task).collect::<Vec<Value>>()});
    let added = server.post_once("/support/tasks/batch", &batch, Some("k-1")).await;
    assert_eq!(added.status, 201, "{added:?}");
    let payloads: Vec<u64> = added.body["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["payload"].as_u64().unwrap())
        .collect();
    assert_eq!(payloads, (0..20).collect::<Vec<u64>>());
    let again = server.post_once("/support/tasks/batch", &batch, Some("k-1")).await;
    assert_eq!(ids(&again), ids(&added));
    assert_eq!(server.get("/support/stats").await.body["total"], 20);
    let bad = json!({"tasks": [task(1), {"type": "t"}]});
    assert_eq!(server.post("/support/tasks/batch", &bad).await.status, 422);
    let bad = json!({"tasks": [task(1), {"type": "", "payload": 1}]});
    let refused = server.post("/support/tasks/batch", &bad).await;
    assert!(text(&refused.body["detail"]).starts_with("tasks[1]: "), "{refused:?}");
    assert_eq!(server.post("/support/tasks/batch", &json!({"tasks": []})).await.status, 422);
    assert_eq!(server.get("/support/stats").await.body["total"], 20, "nothing of a bad batch is added");
}

/// S4-2, S4-23: lists by status, type, target, priority and claimer, in pages; counts by status.
#[tokio::test]
async fn tasks_are_listed_and_counted() {
    let (_folder, server) = plain();
    let first = server.add(&json!({"type": "a", "payload": 1, "priority": 0})).await;
    let second = server.add(&json!({"type": "b", "payload": 2, "targetAgentId": "x"})).await;
    let third = server.add(&json!({"type": "b", "payload": 3})).await;
    server.post("/mail/tasks", &json!({"type": "b", "payload": 4})).await;
    let claimed = server.claim(&json!({"agentId": "y", "types": ["b"]})).await;
    assert_eq!(claimed["id"], third["id"], "the other one is for x");
    let [first, second, third] = [&first, &second, &third].map(|task| text(&task["id"]));
    for (query, expected) in [
        ("", vec![third, second, first]),
        ("?type=b", vec![third, second]),
        ("?status=pending", vec![second, first]),
        ("?status=claimed", vec![third]),
        ("?status=cancelled", vec![]),
        ("?priority=0", vec![first]),
        ("?targetAgentId=x", vec![second]),
        ("?claimedBy=y", vec![third]),
    ] {
        assert_eq!(ids(&server.get(&format!("/support/tasks{query}")).await), expected, "{query}");
    }
    let page = server.get("/support/tasks?limit=2").await;
    assert_eq!(ids(&page), [third, second]);
    let next = text(&page.body["nextCursor"]).to_owned();
    assert_eq!(ids(&server.get(&format!("/support/tasks?limit=2&cursor={next}")).await), [first]);
    assert_eq!(server.get("/support/tasks?status=lost").await.status, 400);
    let stats = json!({
        "pending": 2, "claimed": 1, "in_progress": 0, "waiting_for_input": 0, "completed": 0, "failed": 0,
        "cancelled": 0, "total": 3
    });
    assert_eq!(server.get("/support/stats").await.body, stats);
    let all = server.get("").await.body["inboxes"].clone();
    let names: Vec<&str> = all.as_array().unwrap().iter().map(|inbox| text(&inbox["inboxId"])).collect();
    assert_eq!((names, &all[1]["stats"]), (vec!["mail", "support"], &stats));
}

/// S4-1, C2: a cancelled task has ended, whatever it was doing, and its worker is notified.
#[tokio::test]
async fn a_task_is_cancelled() {
    let (_folder, server) = plain();
    server.add_ticket().await;
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    let id = text(&claimed["id"]);
    let cancelled =
        server.post(&format!("/support/tasks/{id}/cancel"), &json!({"reason": "a duplicate"})).await;
    assert_eq!((cancelled.status, &cancelled.body["status"]), (200, &json!("cancelled")));
    for verb in ["heartbeat", "complete", "release"] {
        let late = server.report(&claimed, verb, json!({})).await;
        assert_eq!((late.status, text(&late.body["type"])), (409, "urn:standfast:problem:ended"), "{verb}");
    }
    assert_eq!(server.post(&format!("/support/tasks/{id}/cancel"), &json!({})).await.status, 409);
}
