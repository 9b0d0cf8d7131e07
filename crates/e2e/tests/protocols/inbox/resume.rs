//! Questions of workers elsewhere: suspend, the waiting list, answers and their schema, going on.

use std::time::Duration;

use serde_json::json;

use crate::inbox::server::{Server, ids, plain, serve, serving, text};

/// S4-1, S4-3, S4-4, S4-6 … S4-10, S4-16, S4-19 … S4-23, C19, C36: a worker asks, the task waits, a person answers, and it
/// can be claimed again with question and answer, shown as in progress.
#[tokio::test]
async fn a_worker_asks_and_goes_on_with_the_answer() {
    let (folder, server) = plain();
    server.add_ticket().await;
    let other = server.add_ticket().await;
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    let id = text(&claimed["id"]).to_owned();
    let asked = json!({"reason": "which account?", "payload": {"question": "Which?", "options": ["A", "B"], "total": 3}});
    let suspended = server.report(&claimed, "suspend", asked).await;
    assert_eq!(
        (suspended.status, &suspended.body["status"]),
        (200, &json!("waiting_for_input")),
        "{suspended:?}"
    );
    let shown = json!({"reason": "which account?", "question": "Which?", "options": ["A", "B"], "total": 3});
    assert_eq!(suspended.body["suspendPayload"], shown);
    assert_eq!(suspended.body["attempts"], 1);
    assert!(suspended.body["suspendedAt"].is_string() && suspended.body.get("resumePayload").is_none());
    for path in ["/support/tasks/waiting", "/tasks/waiting", "/support/tasks?status=waiting_for_input"] {
        assert_eq!(ids(&server.get(path).await), [id.as_str()], "{path}");
    }
    assert_eq!(ids(&server.get("/mail/tasks/waiting").await), Vec::<&str>::new());
    assert_eq!(server.get("/support/stats").await.body["waiting_for_input"], 1);
    // It is nobody's while it waits, also after a crash; other work goes on.
    drop(server);
    let server = serve(folder.path());
    assert_eq!(server.report(&claimed, "complete", json!({"result": 1})).await.status, 409);
    assert_eq!(server.claim(&json!({"agentId": "w"})).await["id"], other["id"]);
    assert!(server.claim(&json!({"agentId": "w"})).await.is_null());
    // What was shown just before a crash may be forgotten: then it is shown once more (C26).
    assert_eq!(server.task(&id).await["suspendPayload"], shown);
    assert_eq!(server.resume(&id, json!("C")).await.status, 422, "it is not one of the options");
    let resumed = server.resume(&id, json!("B")).await;
    assert_eq!((resumed.status, resumed.body), (200, json!({"success": true})));
    let task = server.task(&id).await;
    assert_eq!((&task["status"], &task["resumePayload"]), (&json!("in_progress"), &json!("B")));
    assert_eq!(ids(&server.get("/support/tasks/waiting").await), Vec::<&str>::new());
    let again = server.claim(&json!({"agentId": "w"})).await;
    assert_eq!((&again["id"], &again["status"]), (&json!(id), &json!("claimed")));
    assert_eq!((&again["suspendPayload"], &again["resumePayload"]), (&shown, &json!("B")));
    assert_eq!(again["attempts"], 1, "asking is no failed try");
    assert_eq!(
        server.report(&again, "complete", json!({"result": "paid to B"})).await.body["status"],
        "completed"
    );
}

/// S4-5, C36: the schema of the answer is kept and checked; the problem points to the place.
#[tokio::test]
async fn an_answer_keeps_to_its_schema() {
    let (_folder, server) = plain();
    server.add_ticket().await;
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    let id = text(&claimed["id"]).to_owned();
    let schema = json!({
        "type": "object", "required": ["people"],
        "properties": {"people": {"type": "integer", "minimum": 1}, "notes": {"type": "array", "items": {"type": "string"}}}
    });
    let unusable =
        server.report(&claimed, "suspend", json!({"reason": "r", "resumeSchema": {"type": "nothing"}})).await;
    assert_eq!(unusable.status, 422, "{unusable:?}");
    let suspended =
        server.report(&claimed, "suspend", json!({"reason": "a table", "resumeSchema": schema})).await;
    assert_eq!(suspended.body["resumeSchema"], schema);
    for (payload, pointer) in [
        (json!({}), ""),
        (json!("four"), ""),
        (json!({"people": 0}), "/people"),
        (json!({"people": 4, "notes": ["window", 1]}), "/notes/1"),
    ] {
        let refused = server.resume(&id, payload.clone()).await;
        assert_eq!(
            (refused.status, &refused.body["pointer"]),
            (422, &json!(pointer)),
            "{payload}: {refused:?}"
        );
        assert_eq!(server.task(&id).await["status"], "waiting_for_input");
    }
    let body = json!({"payload": {"people": 4}});
    let path = format!("/support/tasks/{id}/resume");
    assert_eq!(server.post_once(&path, &body, Some("k")).await.status, 200);
    assert_eq!(server.post_once(&path, &body, Some("k")).await.status, 200, "a repeat is told the same");
    assert_eq!(server.task(&id).await["resumePayload"], json!({"people": 4}));
}

/// C36: a task that waits for nobody cannot be resumed, one that is not there is not found.
#[tokio::test]
async fn only_a_waiting_task_is_resumed() {
    let (_folder, server) = plain();
    let task = server.add_ticket().await;
    let id = text(&task["id"]);
    let refused = server.resume(id, json!("x")).await;
    assert_eq!((refused.status, text(&refused.body["type"])), (409, "urn:standfast:problem:not-waiting"));
    assert!(text(&refused.body["detail"]).contains("it is pending"), "{refused:?}");
    assert_eq!(server.post("/mail/tasks/run_x/resume", &json!({"payload": 1})).await.status, 404);
    assert_eq!(server.post(&format!("/mail/tasks/{id}/resume"), &json!({"payload": 1})).await.status, 404);
    assert_eq!(server.post(&format!("/support/tasks/{id}/resume"), &json!({})).await.status, 422);
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    server.report(&claimed, "suspend", json!({"reason": "r"})).await;
    assert_eq!(server.resume(id, json!("first")).await.status, 200);
    assert_eq!(server.resume(id, json!("second")).await.status, 409);
    assert_eq!(server.task(id).await["resumePayload"], "first");
}

/// S4-14: asking is not a failure: the task is asked about again and again, and its tries are not used up.
#[tokio::test]
async fn asking_is_no_failure() {
    let (_folder, server) = plain();
    server.add(&json!({"type": "t", "payload": 1, "maxAttempts": 1})).await;
    for round in 0..4 {
        let claimed = server.claim(&json!({"agentId": "w"})).await;
        assert_eq!(claimed["attempts"], 1);
        let suspended = server.report(&claimed, "suspend", json!({"reason": format!("round {round}")})).await;
        assert_eq!(suspended.body["status"], "waiting_for_input");
        assert!(suspended.body.get("error").is_none());
        assert_eq!(server.resume(text(&claimed["id"]), json!({"round": round})).await.status, 200);
    }
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    assert_eq!(claimed["resumePayload"], json!({"round": 3}));
    let failed = server.report(&claimed, "fail", json!({"error": {"message": "timed out"}})).await;
    assert_eq!(failed.body["status"], "failed", "the one try is used up now");
}

/// A model that asks four times.
fn asks_four_times() -> String {
    let ask = |reason: &str| {
        format!("- calls:\n  - tool: suspend\n    arguments: '{{\"reason\": \"{reason}\"}}'\n")
    };
    format!("replies:\n{}- text: done\n", ["first?", "second?", "third?", "fourth?"].map(ask).concat())
}

/// Waits until a task asks this, where nothing is shown to whoever asks the inbox; answers with the id of the hold.
async fn until_asks(server: &Server, task: &str, reason: &str) -> String {
    for _ in 0..1200 {
        for hold in server.look("/api/v1/holds").await["holds"].as_array().unwrap() {
            let id = text(&hold["id"]);
            let is_it = hold["run"] == task
                && server.look(&format!("/api/v1/holds/{id}")).await.to_string().contains(reason);
            if is_it {
                return id.to_owned();
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{task} does not ask {reason}");
}

/// T5, C26, C36, S4-16: without `holdId` an answer counts for the question that its sender was shown. The same call again,
/// late, or after a crash leaves the next question alone; whoever was shown that one, with the task or in a list, answers it.
#[tokio::test]
async fn a_repeated_or_late_answer_leaves_the_next_question_alone() {
    let (folder, mut server) = serving(&asks_four_times(), "");
    let id = text(&server.add_ticket().await["id"]).to_owned();
    let path = format!("/support/tasks/{id}/resume");
    until_asks(&server, &id, "first?").await;
    assert_eq!(server.resume(&id, json!("one")).await.status, 409, "nobody was shown it");
    server.task(&id).await;
    assert_eq!(server.resume(&id, json!("one")).await.status, 200, "S4-16 as printed");
    let second = until_asks(&server, &id, "second?").await;
    for is_restarted in [false, true] {
        if is_restarted {
            drop(server);
            server = serve(folder.path());
        }
        let repeated = server.resume(&id, json!("one")).await;
        let problem = (repeated.status, text(&repeated.body["type"]));
        assert_eq!(problem, (409, "urn:standfast:problem:not-shown"), "{repeated:?}");
        assert_eq!(repeated.body["holds"], json!([second]), "it says which is open");
    }
    let waiting = server.get("/support/tasks/waiting").await;
    assert_eq!(waiting.body["tasks"][0]["suspendPayload"]["reason"], "second?");
    assert_eq!(server.resume(&id, json!("two")).await.status, 200, "the list showed it");
    // Late: shown, then answered by somebody else; the next question is another.
    let third = until_asks(&server, &id, "third?").await;
    server.task(&id).await;
    let elsewhere = json!({"resolution": "answer", "value": "three"});
    let answered = server.post_anywhere(&format!("/api/v1/holds/{third}/resolve"), &elsewhere).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    let fourth = until_asks(&server, &id, "fourth?").await;
    let late = server.resume(&id, json!("three")).await;
    assert_eq!((late.status, &late.body["holds"]), (409, &json!([fourth])), "{late:?}");
    let keyed = server.post_once(&path, &json!({"payload": "three"}), Some("k")).await;
    assert_eq!(keyed.status, 409, "a key alone names no question: {keyed:?}");
    let named = json!({"payload": "four", "holdId": fourth});
    assert_eq!(server.post(&path, &named).await.status, 200, "by its id");
    assert_eq!(server.until(&id, "completed").await["resumePayload"], "four");
}
