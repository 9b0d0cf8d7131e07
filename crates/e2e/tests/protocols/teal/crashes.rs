//! `kill -9` in the middle, and a store that is away: what was decided stays decided, and nothing runs twice unasked.

use serde_json::json;
use standfast_store::conformance::cluster::OwnServer;
use standfast_testkit::rounds;

use crate::teal::elsewhere::Elsewhere;
use crate::teal::server::{BASE, Folder, Line, Server, demo, text, trail};

/// S1-20, S1-28, S1-34, C31: killed while the approved call is under way, the decision is on record; nobody knows what the
/// call did, so the request asks once more, and only a plain word about it goes on.
#[tokio::test]
async fn killed_after_the_decision() {
    let elsewhere = Elsewhere::slow().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], "");
    let server = folder.serve();
    let paused = server.paused("ops").await;
    let path = format!("{}{BASE}/resume/{}", server.program.base, text(&paused["request_id"]));
    let client = server.http.client.clone();
    let asked = tokio::spawn(async move {
        let request = client.post(path).header("content-type", "application/json");
        request.body(r#"{"action": "approve"}"#).send().await.map(drop)
    });
    elsewhere.until(1).await;
    drop(server);
    assert!(asked.await.unwrap().is_err(), "nobody answered");
    let server = folder.serve();
    let task = server.until("ops", &paused["task_id"], "Paused").await;
    let trail_now = trail(&task);
    let decision = json!({"action": "approve", "request_id": paused["request_id"]}).to_string();
    assert!(trail_now.contains(&format!("user {decision}")), "{trail_now:?}");
    assert_eq!(elsewhere.got(), ["/a"], "it is not run again unasked");
    // Its request is the one that was decided: what is asked now is something else.
    let bare = server.approve(&paused["request_id"]).await;
    assert_eq!(bare.status, 422, "{bare:?}");
    assert!(text(&bare.body["detail"]).contains("did_not_happen"), "{bare:?}");
    for payload in [json!("yes"), json!({"decision": "happened"}), json!({"decision": "sure"})] {
        let vague =
            server.resume(&paused["request_id"], &json!({"action": "approve", "payload": payload})).await;
        assert_eq!(vague.status, 422, "{vague:?}");
    }
    elsewhere.answer();
    let again = json!({"action": "approve", "payload": {"decision": "run_again"}});
    let done = server.resume(&paused["request_id"], &again).await;
    assert_eq!(done.body["output"], "done", "{done:?}");
    assert_eq!(elsewhere.got(), ["/a", "/a"], "once more, because somebody said so");
}

/// S1-11, S1-34: killed while it waits, a request waits on, and is decided as if nothing had been.
#[tokio::test]
async fn killed_while_it_waits() {
    let elsewhere = Elsewhere::quick().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], "");
    let server = folder.serve();
    let paused = server.paused("ops").await;
    drop(server);
    let server = folder.serve();
    assert_eq!(server.task("ops", &paused["task_id"]).await["status"], "Paused");
    let done = server.approve(&paused["request_id"]).await;
    assert_eq!(done.body["output"], "done", "{done:?}");
    assert_eq!(elsewhere.got(), ["/a"]);
}

/// S1-34: a store that is away is a 5xx with words, and nothing is decided; once it is back, the same decision counts.
#[tokio::test]
async fn a_store_that_is_away_is_a_5xx() {
    let elsewhere = Elsewhere::quick().await;
    let postgres = OwnServer::new();
    let store = format!("backend: sql, sql: {{driver: postgres, url: \"{}\"}}", postgres.url());
    let folder =
        Folder::stored(&store, &elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], "");
    let server = folder.serve();
    let paused = server.paused("ops").await;
    postgres.crash();
    let answer = server.approve(&paused["request_id"]).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body["detail"].is_string() && answer.headers.contains_key("retry-after"), "{answer:?}");
    assert!(elsewhere.got().is_empty());
    postgres.start();
    let mut done = server.approve(&paused["request_id"]).await;
    for _ in 0..100 {
        if done.status != 503 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        done = server.approve(&paused["request_id"]).await;
    }
    assert_eq!(done.body["output"], "done", "{done:?}");
    assert_eq!(elsewhere.got(), ["/a"]);
}

/// S1-34, C35: a task whose stored state cannot be read is `Failed`, and deciding it is a 500 that says why; the others
/// go on.
#[tokio::test]
async fn corrupt_state_is_a_500_and_only_its_own() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let (broken, sound) = (server.paused("ops").await, server.paused("ops").await);
    drop(server);
    let database = rusqlite::Connection::open(data.path().join("standfast.db")).unwrap();
    database.execute_batch("UPDATE runs SET state = '{\"s\": 17' WHERE no = 1").unwrap();
    drop(database);
    let server = demo(data.path());
    let answer = server.approve(&broken["request_id"]).await;
    assert_eq!(answer.status, 500, "{answer:?}");
    assert!(text(&answer.body["detail"]).starts_with("failed to load execution state: "), "{answer:?}");
    assert_eq!(server.task("ops", &broken["task_id"]).await["status"], "Failed");
    let done = server.approve(&sound["request_id"]).await;
    assert_eq!(done.body["output"], "I have dealt with the old cache.", "{done:?}");
}

/// How a run stands, and the kinds of its events.
async fn logged(server: &Server, run: &str) -> (String, Vec<String>) {
    let shown = server.get(&format!("/api/v1/runs/{run}")).await.body;
    let log = server.get(&format!("/api/v1/runs/{run}/events")).await.body;
    let kinds = log["events"].as_array().unwrap().iter().map(|event| text(&event["type"]).to_owned());
    (text(&shown["status"]).to_owned(), kinds.collect())
}

fn count(kinds: &[String], kind: &str) -> usize {
    kinds.iter().filter(|one| *one == kind).count()
}

/// S1-19, S1-28, F2: `kill -9` while the request of a sub-run is rejected, which decides its hold and ends it and the task above it: all of
/// that is there afterwards, or nothing. The task's model is not asked again, and nothing runs.
#[tokio::test]
async fn a_kill_while_a_sub_run_is_rejected_ends_all_or_none() {
    let elsewhere = Elsewhere::quick().await;
    let folder = Folder::led(&elsewhere);
    let mut server = folder.serve();
    let reject = json!({"action": "reject"});
    for round in 0..rounds(12) {
        let paused = server.paused_below("lead").await;
        let holds = server.get("/api/v1/holds").await.body;
        let holds = holds["holds"].as_array().unwrap();
        // Beside it stands that of the task, which waits for the sub-run.
        let hold = holds.iter().find(|hold| hold["kind"] == "approval").unwrap();
        let (lead, helper) = (text(&paused["task_id"]), text(&hold["run"]));
        assert_ne!(lead, helper, "{hold}");
        let path = format!("{}{BASE}/resume/{}", server.program.base, text(&paused["request_id"]));
        let request = server.http.client.post(path).json(&reject);
        let cut =
            tokio::spawn(async move { request.send().await.is_ok_and(|answer| answer.status() == 200) });
        tokio::time::sleep(std::time::Duration::from_millis(round as u64 % 12)).await;
        drop(server);
        let was_acknowledged = cut.await.unwrap();
        server = folder.serve();
        let (above, of_lead) = logged(&server, lead).await;
        let (below, of_helper) = logged(&server, helper).await;
        let is_over = above == "canceled";
        assert_eq!(below == "canceled", is_over, "{round}: {of_lead:?} {of_helper:?}");
        let endings = usize::from(is_over);
        for (kinds, kind) in
            [(&of_helper, "hold.resolved"), (&of_helper, "run.ended"), (&of_lead, "run.ended")]
        {
            assert_eq!(count(kinds, kind), endings, "{round}: {kind}: {of_lead:?} {of_helper:?}");
        }
        assert!(is_over || (below == "held" && !was_acknowledged), "{round}: {above}, {below}");
        if !is_over {
            let again = server.resume(&paused["request_id"], &reject).await;
            assert_eq!(
                (again.status, &again.body["status"]),
                (200, &json!("Canceled")),
                "{round}: {again:?}"
            );
        }
        for run in [lead, helper] {
            let (status, kinds) = logged(&server, run).await;
            assert_eq!(status, "canceled", "{round}: {kinds:?}");
            assert_eq!(count(&kinds, "model.replied"), 1, "{round}: nobody went on: {kinds:?}");
        }
    }
    assert!(elsewhere.got().is_empty());
    drop(server);
    let mut verify = standfast_testkit::standfast();
    let verified = verify.args(["audit", "verify", "--config"]).arg(folder.config()).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}
