//! Workers elsewhere: claim, work, report; retries, leases, heartbeats.

use std::time::Duration;

use serde_json::{Value, json};

use crate::inbox::server::{plain, serve, text};

fn worker(name: &str) -> Value {
    json!({"agentId": name})
}

/// S4-1, S4-29: the most urgent first, then the oldest; a worker gets what is of its type and not for another agent.
#[tokio::test]
async fn the_most_urgent_task_is_claimed_first() {
    let (_folder, server) = plain();
    let add = async |payload: u32, priority: u32| {
        server.add(&json!({"type": "t", "payload": payload, "priority": priority})).await
    };
    for (payload, priority) in [(1, 1), (2, 3), (3, 0), (4, 1), (5, 3)] {
        add(payload, priority).await;
    }
    server.add(&json!({"type": "t", "payload": 6, "priority": 3, "targetAgentId": "other"})).await;
    server.add(&json!({"type": "else", "payload": 7, "priority": 3})).await;
    let mut order = Vec::new();
    loop {
        let claimed = server.claim(&json!({"agentId": "w", "types": ["t"]})).await;
        if claimed.is_null() {
            break;
        }
        assert_eq!((&claimed["status"], &claimed["claimedBy"]), (&json!("claimed"), &json!("w")));
        order.push(claimed["payload"].as_u64().unwrap());
    }
    assert_eq!(order, [2, 5, 1, 4, 3]);
    assert_eq!(server.claim(&worker("other")).await["payload"], 6);
    assert_eq!(server.claim(&worker("other")).await["payload"], 7);
}

/// S4-1, S4-28: pending, claimed, completed; the result is kept and the times are shown.
#[tokio::test]
async fn a_worker_completes_a_task() {
    let (_folder, server) = plain();
    server.add_ticket().await;
    let claimed = server.claim(&json!({"agentId": "triage", "workerId": "w-1", "leaseMs": 60_000})).await;
    assert_eq!((&claimed["claimedBy"], &claimed["attempts"]), (&json!("w-1"), &json!(1)));
    assert!(claimed["claimedAt"].is_string() && claimed["claimExpiresAt"].is_string());
    assert!(claimed.get("startedAt").is_none(), "a claim alone is no start: {claimed}");
    let foreign = json!({"claimId": "w-2#1@local", "result": "mine"});
    let path = format!("/support/tasks/{}/complete", text(&claimed["id"]));
    assert_eq!(server.post(&path, &foreign).await.status, 409, "only who has it reports on it");
    let foreign = json!({"claimId": text(&claimed["claimId"]).replace("@local", "@ann"), "result": "mine"});
    assert_eq!(server.post(&path, &foreign).await.status, 409, "and only under the key that claimed it");
    let result = json!({"refunded": true, "cents": 1250});
    let done = server.report(&claimed, "complete", json!({"result": result})).await;
    assert_eq!(
        (done.status, &done.body["status"], &done.body["result"]),
        (200, &json!("completed"), &result)
    );
    assert!(done.body["completedAt"].is_string() && done.body.get("claimId").is_none());
    assert_eq!(server.report(&claimed, "complete", json!({})).await.status, 409, "it has ended");
    let body = json!({"claimId": claimed["claimId"], "result": 1});
    server.add_ticket().await;
    let claimed = server.claim(&worker("w")).await;
    let path = format!("/support/tasks/{}/complete", text(&claimed["id"]));
    let body = json!({"claimId": claimed["claimId"], "result": body["result"]});
    for _ in 0..2 {
        assert_eq!(server.post_once(&path, &body, Some("k")).await.status, 200, "a repeat is told the same");
    }
}

/// S4-28, S4-29: what may pass is tried again after a pause that doubles; then, or for anything else, it is final.
#[tokio::test]
async fn a_failed_task_is_tried_again() {
    let (_folder, server) = plain();
    let task = server.add(&json!({"type": "t", "payload": 1, "maxAttempts": 2})).await;
    let claimed = server.claim(&worker("w")).await;
    let error = json!({"message": "HTTP 503 from the desk", "stack": "at refund()"});
    let failed = server.report(&claimed, "fail", json!({"error": error})).await;
    assert_eq!((failed.status, &failed.body["status"]), (200, &json!("pending")), "{failed:?}");
    assert_eq!((&failed.body["error"], &failed.body["attempts"]), (&error, &json!(1)));
    assert!(failed.body["nextRetryAt"].is_string() && failed.body.get("claimedBy").is_none());
    // There is nothing to claim before that; who waits gets it then.
    let again = server.claim(&json!({"agentId": "w", "waitMs": 30_000})).await;
    assert_eq!((&again["id"], &again["attempts"]), (&task["id"], &json!(2)));
    assert!(again["claimedAt"].as_str() >= failed.body["nextRetryAt"].as_str(), "{again}");
    let failed = server.report(&again, "fail", json!({"error": {"message": "timed out"}})).await;
    assert_eq!((&failed.body["status"], &failed.body["attempts"]), (&json!("failed"), &json!(2)));
    assert_eq!(failed.body["error"], json!({"message": "timed out"}));
    for (error, expected) in [
        (json!({"message": "no such customer"}), "failed"),
        (json!({"message": "no such customer", "retryable": true}), "pending"),
        (json!({"message": "timed out", "retryable": false}), "failed"),
    ] {
        server.add_ticket().await;
        let claimed = server.claim(&json!({"agentId": "w", "waitMs": 30_000})).await;
        let failed = server.report(&claimed, "fail", json!({"error": error})).await;
        assert_eq!(failed.body["status"], expected, "{error}");
        server.post(&format!("/support/tasks/{}/cancel", text(&claimed["id"])), &json!({})).await;
    }
}

/// S4-29: a claim that nobody renews runs out, and the task can be claimed again with its attempt counted; signs of life
/// keep it. What the old worker says then does not count.
#[tokio::test]
async fn a_lease_runs_out_and_heartbeats_keep_it() {
    let (_folder, server) = plain();
    server.add_ticket().await;
    // Many times the pause between two heartbeats, so that a busy machine does not lose the claim.
    let claimed = server.claim(&json!({"agentId": "w", "leaseMs": 6_000})).await;
    let mut until = claimed["claimExpiresAt"].clone();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let alive = server.report(&claimed, "heartbeat", json!({})).await;
        assert_eq!(alive.status, 200, "{alive:?}");
        assert!(alive.body["claimExpiresAt"].as_str() > until.as_str());
        assert_eq!(alive.body["claimedAt"], claimed["claimedAt"], "it is the same claim");
        until = alive.body["claimExpiresAt"].clone();
    }
    assert!(server.claim(&worker("thief")).await.is_null());
    let taken = server.claim(&json!({"agentId": "w", "waitMs": 50_000})).await;
    assert_eq!((&taken["id"], &taken["attempts"]), (&claimed["id"], &json!(2)));
    for verb in ["heartbeat", "complete", "suspend", "release"] {
        let more = if verb == "suspend" { json!({"reason": "r"}) } else { json!({}) };
        let late = server.report(&claimed, verb, more).await;
        assert_eq!(
            late.status, 409,
            "{verb}: the old claim has the same worker and does not count: {late:?}"
        );
    }
    assert_eq!(server.report(&taken, "complete", json!({"result": "ok"})).await.body["status"], "completed");
}

/// S4-29: a worker gives its task back; it is pending again.
#[tokio::test]
async fn a_task_is_given_back() {
    let (_folder, server) = plain();
    server.add_ticket().await;
    let claimed = server.claim(&worker("w")).await;
    let released = server.report(&claimed, "release", json!({})).await;
    assert_eq!((released.status, &released.body["status"]), (200, &json!("pending")));
    assert_eq!(server.claim(&worker("v")).await["attempts"], 2);
}

/// S4-30: a worker that finds nothing waits, without asking again, until there is something.
#[tokio::test]
async fn a_worker_waits_for_work() {
    let (_folder, server) = plain();
    let wanted = json!({"agentId": "w", "waitMs": 50_000});
    let waiting = server.claim(&wanted);
    let adding = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.add_ticket().await
    };
    let (claimed, added) = tokio::join!(waiting, adding);
    assert_eq!(claimed["id"], added["id"]);
    assert!(server.claim(&json!({"agentId": "w", "waitMs": 200})).await.is_null());
}

/// S4-29, I1: a claim and a task survive `kill -9`; so does the end of a lease.
#[tokio::test]
async fn claims_survive_a_crash() {
    let (folder, server) = plain();
    server.add_ticket().await;
    let claimed = server.claim(&json!({"agentId": "w", "leaseMs": 2000})).await;
    let kept = server.add_ticket().await;
    let kept = { server.claim(&json!({"agentId": "v"})).await["id"] == kept["id"] };
    assert!(kept);
    drop(server);
    let server = serve(folder.path());
    let task = server.task(text(&claimed["id"])).await;
    assert_eq!(task["attempts"], 1, "{task}");
    let again = server.claim(&json!({"agentId": "w", "waitMs": 50_000})).await;
    assert_eq!((&again["id"], &again["attempts"]), (&claimed["id"], &json!(2)));
    assert_eq!(server.report(&again, "complete", json!({"result": 1})).await.status, 200);
}

/// What is not a claim is refused, in words.
#[tokio::test]
async fn bad_claims_are_refused() {
    let (_folder, server) = plain();
    for (claim, why) in [
        (json!({}), "missing field `agentId`"),
        (json!({"agentId": ""}), "agentId: "),
        (json!({"agentId": "a", "workerId": "a#1"}), "no #"),
        (json!({"agentId": "a", "leaseMs": 1}), "leaseMs must be"),
    ] {
        let answer = server.post("/support/claim", &claim).await;
        assert_eq!(answer.status, 422, "{claim}: {answer:?}");
        assert!(text(&answer.body["detail"]).contains(why), "{claim}: {answer:?}");
    }
}
