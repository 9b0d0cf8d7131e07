//! Time, crashes and restarts: what expires, what a dead server leaves, reports that come before their hold.
//!
//! Dropping a server is `kill -9`.

use std::time::Duration;

use serde_json::json;

use crate::async_tool::world::{Outside, Setup, result, serve, text, until};

/// S2-33, S2-35, S2-42, C7: a call that is not reported in time has expired, the model gets that as the result, and the run goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_expires_and_the_run_goes_on() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { tool: "requires_approval: false\ntimeout: 2s", ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    let id = text(&job["pendingID"]);
    let record = server.call_is(id, "expired").await;
    assert_eq!(record["error"], "Tool execution timed out");
    server.run_is(&run, "completed").await;
    assert!(server.log(&run).await.contains("hold.expired"), "on record");
    let late =
        server.webhook(&json!({"pendingID": id, "result": result()}), text(&job["callbackSecret"])).await;
    assert_eq!((late.no(), &late.body["status"]), ((409, "Not waiting"), &"expired".into()));
}

/// S2-33, S2-22: what expired while no server ran is found at the next start, and `/recovery/status` says so; what has
/// not expired goes on waiting.
#[tokio::test(flavor = "multi_thread")]
async fn what_expired_while_nobody_looked_is_found_at_the_start() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { tool: "requires_approval: false\ntimeout: 4s", ..Setup::default() }.folder(&outside);
    let first = serve(folder.path());
    let run = first.begin("s-1").await;
    let id = text(&outside.job().await["pendingID"]).to_owned();
    first.run_is(&run, "held").await;
    drop(first);
    let file = folder.path().join("standfast.yaml");
    let longer = std::fs::read_to_string(&file).unwrap().replace("timeout: 4s", "timeout: 4h");
    std::fs::write(&file, longer).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let second = serve(folder.path());
    second.run_is(&run, "completed").await;
    assert_eq!(second.call_is(&id, "expired").await["error"], "Tool execution timed out");
    let found = until("recovery has ended", async || {
        let found = second.get("/async-tool/recovery/status").await;
        found["completed"].is_i64().then_some(found)
    })
    .await;
    assert_eq!((&found["expired"], &found["waiting"]), (&1.into(), &0.into()), "{found}");

    second.begin("s-2").await;
    let id = text(&outside.jobs(2).await[1]["pendingID"]).to_owned();
    second.call_is(&id, "waiting").await;
    until("it is held", async || {
        let now = second.get("/async-tool/session/s-2/status").await;
        (now["type"] == "waiting_async").then_some(())
    })
    .await;
    drop(second);
    let third = serve(folder.path());
    let now = third.get("/async-tool/session/s-2/status").await;
    assert_eq!((&now["type"], &now["pendingID"]), (&"waiting_async".into(), &id.as_str().into()), "S2-33");
    let found = until("pending calls are counted", async || {
        let found = third.get("/async-tool/recovery/status").await;
        (found["waiting"] == 1).then_some(found)
    })
    .await;
    assert_eq!(found["expired"], 0, "{found}");
}

/// S2-4, S2-37: a job says that it works on it; silent for too long, also over a restart, it waits again.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_went_silent_waits_again() {
    let outside = Outside::answering(json!({})).await;
    let server_keys = ", async_tools: {processing_lasts: 3s}";
    let folder = Setup { server: server_keys, ..Setup::default() }.folder(&outside);
    let first = serve(folder.path());
    let run = first.begin("s-1").await;
    let job = outside.job().await;
    let id = text(&job["pendingID"]);
    first.run_is(&run, "held").await;
    let said = first
        .post("/async-tool/progress", &json!({"pendingID": id, "output": "half way", "progress": 0.5}))
        .await;
    assert_eq!(said.body, json!({"success": true, "pendingID": id, "status": "processing"}));
    assert!(first.get(&format!("/async-tool/pending/{id}")).await["time"]["started"].is_i64());
    assert!(first.log(&run).await.contains("half way"));
    for bad in [json!({"progress": 2}), json!({"status": "completed"}), json!({"progress": "half"})] {
        let mut body = bad.clone();
        body["pendingID"] = id.into();
        assert_eq!(first.post("/async-tool/progress", &body).await.status, 422, "{bad}");
    }
    drop(first);
    let second = serve(folder.path());
    second.call_is(id, "waiting").await;
    // Also on record, for whoever reads the database.
    until("it is on record", async || second.log(&run).await.contains("no word for a while").then_some(()))
        .await;
    until("it is counted", async || {
        (second.get("/async-tool/recovery/status").await["staleProcessing"] == 1).then_some(())
    })
    .await;
    let said = second.post("/async-tool/progress", &json!({"pendingID": id, "status": "waiting"})).await;
    assert_eq!(said.body["status"], "waiting");
    let done =
        second.webhook(&json!({"pendingID": id, "result": result()}), text(&job["callbackSecret"])).await;
    assert_eq!(done.status, 200, "a result is welcome either way");
    second.run_is(&run, "completed").await;
}

/// F8, S2-9: a job that reports before it has answered the start request is not refused for good: it waits a moment, is
/// told to come again, and then taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_before_the_hold_is_not_lost() {
    let outside = Outside::answering(json!({})).await;
    outside.takes(Duration::from_secs(6));
    let folder = Setup::default().folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    let record = server.get(&format!("/async-tool/pending/{id}")).await;
    assert_eq!(record["status"], "waiting", "it is on record already: {record}");
    let body = json!({"pendingID": id, "result": result()});
    let early = server.webhook(&body, secret).await;
    assert_eq!((early.status, early.retry_after.as_deref()), (425, Some("1")), "{early:?}");
    until("it is taken", async || (server.webhook(&body, secret).await.status == 200).then_some(())).await;
    server.run_is(&run, "completed").await;
    assert_eq!(server.log(&run).await.matches("hold.resolved").count(), 1);
}

/// F8, F1: the server dies while the start request is under way, so nobody knows whether the job began. The job itself
/// does: its report settles the question, and the call is not started again.
#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_a_job_whose_start_was_cut_off_settles_what_became_of_it() {
    let outside = Outside::answering(json!({})).await;
    outside.takes(Duration::from_secs(3600));
    let folder = Setup::default().folder(&outside);
    let first = serve(folder.path());
    let run = first.begin("s-1").await;
    let job = outside.job().await;
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    drop(first);
    let second = serve(folder.path());
    let held = second.run_is(&run, "held").await;
    assert_eq!(held["holds"][0]["kind"], "recovery", "{held}");
    assert_eq!(second.call_is(id, "waiting").await["status"], "waiting");
    let wrong = second.webhook(&json!({"pendingID": id, "result": result()}), "guessed").await;
    assert_eq!(wrong.status, 401);
    let done = second.webhook(&json!({"pendingID": id, "result": result()}), secret).await;
    assert_eq!((done.status, &done.body["status"]), (200, &"completed".into()), "{done:?}");
    second.run_is(&run, "completed").await;
    assert_eq!(outside.jobs(1).await.len(), 1, "it was not started again");
    let again = second.webhook(&json!({"pendingID": id, "error": "no"}), secret).await;
    assert_eq!(again.no(), (409, "Not waiting"));
}

/// S2-40, C8: when its session is deleted, nothing about a call is known any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_takes_its_calls_along() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup::default().folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    let id = text(&job["pendingID"]);
    server.run_is(&run, "held").await;
    let deleted = server.delete("/api/v1/sessions/s-1?agent=ops").await;
    assert!((200..300).contains(&deleted.status), "{deleted:?}");
    let late =
        server.webhook(&json!({"pendingID": id, "result": result()}), text(&job["callbackSecret"])).await;
    assert_eq!(late.no(), (404, "Unknown pending ID"));
    let gone = server.request(reqwest::Method::GET, &format!("/async-tool/pending/{id}"), &[], None).await;
    assert_eq!(gone.no(), (404, "Unknown pending ID"));
    assert_eq!(server.get("/async-tool/pending?status=failed").await, json!([]));
}

/// S2-42: what has been settled for long enough is no longer shown; the log of the run keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn settled_calls_are_shown_for_a_while() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { server: ", async_tools: {keep_settled: 2s}", ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    server.run_is(&run, "held").await;
    assert_eq!(server.webhook(&json!({"pendingID": id, "error": "broke"}), secret).await.status, 200);
    let path = format!("/async-tool/pending/{id}");
    until("it is forgotten", async || {
        let shown = server.request(reqwest::Method::GET, &path, &[], None).await;
        (shown.no() == (404, "Unknown pending ID")).then_some(())
    })
    .await;
    assert_eq!(server.get("/async-tool/pending?status=failed").await, json!([]));
    assert!(server.log(&run).await.contains("broke"));
}
