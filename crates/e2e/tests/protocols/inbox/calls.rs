//! Workers elsewhere ask before they run tools of their own (core's `Propose`): approvals, edits, denials, and what came of it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::inbox::server::{Server, plain, serve, text};

/// A claimed task, and the path of its calls.
async fn claimed(server: &Server) -> (Value, String) {
    server.add_ticket().await;
    let task = server.claim(&json!({"agentId": "w"})).await;
    let path = format!("/support/tasks/{}/calls", text(&task["id"]));
    (task, path)
}

fn refund(task: &Value) -> Value {
    json!({"claimId": task["claimId"], "tool": "send_refund", "input": {"amount": 40}, "callId": "c-1", "context": "asked for it"})
}

/// S4-1, S4-16, C36: a call of a worker waits for an approval, survives `kill -9`, is approved over the inbox, run and reported
/// once; the receipt says whose word it is.
#[tokio::test]
async fn a_worker_asks_before_it_runs_its_own_tool() {
    let (folder, mut server) = plain();
    let (task, path) = claimed(&server).await;
    let id = text(&task["id"]).to_owned();
    let asked = server.post(&path, &refund(&task)).await;
    assert_eq!(asked.status, 201, "{asked:?}");
    let call = asked.body;
    assert_eq!((&call["status"], &call["tool"]), (&json!("waiting_for_approval"), &json!("send_refund")));
    assert_eq!((&call["input"], &call["callId"]), (&json!({"amount": 40}), &json!("c-1")));
    let of = format!("{path}/{}", text(&call["id"]));
    drop(server);
    server = serve(folder.path());
    assert_eq!(server.get(&of).await.body, call, "after a crash");
    let waiting = server.task(&id).await;
    assert_eq!(waiting["status"], "waiting_for_input");
    let data = &waiting["suspendPayload"]["data"];
    assert_eq!((&data["hold_id"], &data["tool_name"]), (&call["holdId"], &json!("send_refund")));
    assert_eq!(data["tool_input"], r#"{"amount":40}"#, "what is approved, byte for byte");
    let early = json!({"claimId": task["claimId"], "result": "paid"});
    let refused = server.post(&format!("{of}/result"), &early).await;
    assert_eq!(refused.status, 409, "nobody has approved it: {refused:?}");
    let long = format!("{of}?waitMs=30000");
    let (decided, resumed) = tokio::join!(server.get(&long), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.resume(&id, json!({"approved": true})).await
    });
    assert_eq!((resumed.status, &decided.body["status"]), (200, &json!("approved")), "{decided:?}");
    assert_eq!(server.task(&id).await["status"], "in_progress");
    drop(server);
    server = serve(folder.path());
    let reported = server
        .post(&format!("{of}/result"), &json!({"claimId": task["claimId"], "result": {"paid": 40}}))
        .await;
    assert_eq!((reported.status, &reported.body["status"]), (200, &json!("completed")), "{reported:?}");
    assert_eq!(reported.body["result"], json!({"paid": 40}));
    let twice =
        server.post(&format!("{of}/result"), &json!({"claimId": task["claimId"], "result": "again"})).await;
    assert_eq!(twice.status, 409, "once: {twice:?}");
    let receipt = server.look(&format!("/api/v1/holds/{}/receipt", text(&call["holdId"]))).await.to_string();
    assert!(receipt.contains("send_refund") && receipt.contains("w#1@"), "{receipt}");
    let done = server.report(&task, "complete", json!({"result": "refunded"})).await;
    assert_eq!(done.body["status"], "completed");
}

/// S4-16, C36: approve, deny with a reason, and modify: the worker hears what to run, or why it must not.
#[tokio::test]
async fn a_decision_on_a_workers_call_reaches_the_worker() {
    let (_folder, server) = plain();
    for (payload, status, input) in [
        (json!("approve"), "approved", json!({"amount": 40})),
        (json!({"decision": "deny", "reason": "too much"}), "denied", json!({"amount": 40})),
        (json!({"decision": "modify", "modified_input": {"amount": 4}}), "approved", json!({"amount": 4})),
    ] {
        let (task, path) = claimed(&server).await;
        let id = text(&task["id"]).to_owned();
        let call = server.post(&path, &refund(&task)).await.body;
        server.task(&id).await;
        let resumed = server.resume(&id, payload.clone()).await;
        assert_eq!(resumed.status, 200, "{payload}: {resumed:?}");
        let now = server.get(&format!("{path}/{}", text(&call["id"]))).await.body;
        assert_eq!((&now["status"], &now["input"]), (&json!(status), &input), "{payload}: {now}");
        let denied = (status == "denied").then_some("too much");
        assert_eq!(now["reason"].as_str(), denied);
        let result = json!({"claimId": task["claimId"], "result": 1});
        let reported = server.post(&format!("{path}/{}/result", text(&call["id"])), &result).await;
        assert_eq!(reported.status, if denied.is_some() { 409 } else { 200 }, "{payload}: {reported:?}");
        server.report(&task, "complete", json!({})).await;
    }
}

/// S4-1: a worker that only tells of a call need not wait; what fails is told; what was allowed and never reported is unknown;
/// strangers, late claims and bad bodies are refused; a repeat with its key asks once.
#[tokio::test]
async fn calls_are_told_reported_and_repeated() {
    let (_folder, server) = plain();
    let (task, path) = claimed(&server).await;
    let told =
        json!({"claimId": task["claimId"], "tool": "look_up", "input": {"q": 1}, "requiresApproval": false});
    let call = server.post(&path, &told).await.body;
    assert_eq!(call["status"], "approved");
    let failed = json!({"claimId": task["claimId"], "error": "no such customer"});
    let now = server.post(&format!("{path}/{}/result", text(&call["id"])), &failed).await.body;
    assert_eq!((&now["status"], &now["error"]), (&json!("failed"), &json!("no such customer")));
    let first = server.post_once(&path, &refund(&task), Some("k")).await;
    let again = server.post_once(&path, &refund(&task), Some("k")).await;
    assert_eq!((again.status, &again.body), (201, &first.body), "once");
    let calls = server.get(&path).await.body;
    assert_eq!(calls["calls"].as_array().unwrap().len(), 2);
    for (body, status) in [
        (json!({"claimId": "x#1@local", "tool": "t", "input": 1}), 409),
        (json!({"claimId": task["claimId"], "tool": "", "input": 1}), 422),
        (json!({"claimId": task["claimId"], "tool": "t"}), 422),
    ] {
        let refused = server.post(&path, &body).await;
        assert_eq!(refused.status, status, "{body}: {refused:?}");
    }
    assert_eq!(server.get(&format!("{path}/call_x")).await.status, 404);
    server.report(&task, "release", json!({})).await;
    let calls = server.get(&path).await.body;
    assert_eq!(calls["calls"][1]["status"], "cancelled", "what it asked for was for itself: {calls}");
    let late = server.post(&path, &refund(&task)).await;
    assert_eq!(late.status, 409, "{late:?}");
    let (task, path) = claimed(&server).await;
    let call = server
        .post(&path, &json!({"claimId": task["claimId"], "tool": "t", "input": 1, "requiresApproval": false}))
        .await;
    assert_eq!(call.status, 201, "{call:?}");
    server.report(&task, "release", json!({})).await;
    let calls = server.get(&path).await.body;
    let last = calls["calls"].as_array().unwrap().last().unwrap();
    assert_eq!(last["status"], "unknown", "it may have run: {calls}");
}

/// S4-1, C36, I2: many decide a worker's call at once, and it has exactly one decision; many report, and one counts.
#[tokio::test]
async fn a_race_for_a_workers_call_has_one_decision_and_one_result() {
    let (_folder, server) = plain();
    for round in 0..standfast_testkit::rounds(40) {
        let (task, path) = claimed(&server).await;
        let id = text(&task["id"]).to_owned();
        let call = server.post(&path, &refund(&task)).await.body;
        let (hold, of) = (call["holdId"].clone(), format!("{path}/{}", text(&call["id"])));
        let decide = async |n: usize| {
            let payload = if n.is_multiple_of(2) { "approve" } else { "deny" };
            let body = json!({"payload": payload, "holdId": hold});
            server.post(&format!("/support/tasks/{id}/resume"), &body).await.status == 200
        };
        let decided = futures_util::future::join_all((0..8).map(decide)).await;
        assert_eq!(decided.iter().filter(|is_ours| **is_ours).count(), 1, "round {round}");
        let approved = decided.iter().position(|is_ours| *is_ours).unwrap().is_multiple_of(2);
        let now = server.get(&of).await.body;
        assert_eq!(now["status"], if approved { "approved" } else { "denied" });
        let report = async |n: usize| {
            let body = json!({"claimId": task["claimId"], "result": n});
            server.post(&format!("{of}/result"), &body).await.status == 200
        };
        let reported = futures_util::future::join_all((0..8).map(report)).await;
        let counted = reported.iter().filter(|is_ours| **is_ours).count();
        assert_eq!(counted, usize::from(approved), "round {round}");
        if approved {
            let winner = reported.iter().position(|is_ours| *is_ours).unwrap();
            assert_eq!(server.get(&of).await.body["result"], winner);
        }
        server.report(&task, "complete", json!({})).await;
    }
}

/// I1, S4-1: `kill -9` in the middle of a proposal and of a start: sent again, with its key, there is one call, one question and
/// one start, whatever was written before.
#[tokio::test]
async fn a_kill_in_the_middle_leaves_one_call_and_one_start() {
    let (folder, mut server) = plain();
    for round in 0..u64::try_from(standfast_testkit::rounds(8)).unwrap() {
        let (task, path) = claimed(&server).await;
        let id = text(&task["id"]).to_owned();
        let start = format!("/support/tasks/{id}/start");
        let (call, own) = (refund(&task), json!({"claimId": task["claimId"]}));
        let key = format!("round-{round}");
        let base = format!("{}/api/inboxes", server.program.base);
        let sent = [(start.clone(), own.clone(), None), (path.clone(), call.clone(), Some(key.clone()))];
        let sending = tokio::spawn(async move {
            for (path, body, key) in sent {
                let mut request = reqwest::Client::new().post(format!("{base}{path}")).json(&body);
                if let Some(key) = key {
                    request = request.header("idempotency-key", key);
                }
                // Nobody knows what became of it.
                let _ = request.send().await;
            }
        });
        tokio::time::sleep(Duration::from_millis(2 * (round % 8))).await;
        drop(server);
        sending.await.unwrap();
        server = serve(folder.path());
        assert_eq!(server.post(&start, &own).await.status, 200, "round {round}");
        let again = server.post_once(&path, &call, Some(&key)).await;
        assert_eq!(again.status, 201, "round {round}: {again:?}");
        let calls = server.get(&path).await.body;
        assert_eq!(calls["calls"], json!([again.body]), "round {round}");
        let events = server.look(&format!("/api/v1/runs/{id}/events")).await.to_string();
        let count = |text: &str| events.matches(text).count();
        let once = (
            count(r#""started":true"#),
            count(r#""type":"call.proposed""#),
            count(r#""type":"hold.opened""#),
        );
        assert_eq!(once, (1, 1, 1), "round {round}: {events}");
        server.resume(&id, json!("deny")).await;
        server.report(&task, "complete", json!({})).await;
    }
}
