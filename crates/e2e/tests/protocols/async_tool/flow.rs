//! What a call goes through: started, waited for, reported about, gone on with.
//!
//! One test for each part of the protocol; the requirement numbers stand with them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::async_tool::world::{Outside, Setup, result, serve, text, until};

/// S2-1, S2-2, S2-7, S2-8, S2-9, S2-14, S2-28, S2-36, S2-43: a deployment is started with an id that is on record before,
/// the server is killed while it runs, another one takes the result, and the model gets the result alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_survives_the_server_and_its_result_goes_to_the_model() {
    let outside = Outside::answering(
        json!({"externalRef": "deploy-123", "output": "building", "estimatedDuration": 5000}),
    )
    .await;
    let folder = Setup::default().folder(&outside);
    let first = serve(folder.path());
    let run = first.begin("s-1").await;
    let job = outside.job().await;
    let id = text(&job["pendingID"]).to_owned();
    assert_eq!(job["tool"], "deploy");
    assert_eq!(job["input"], json!({"branch": "main"}));
    assert_eq!((&job["sessionID"], &job["callbackID"]), (&"s-1".into(), &job["pendingID"]));
    first.call_is(&id, "waiting").await;
    let held = first.run_is(&run, "held").await;
    assert_eq!(held["holds"][0]["id"], id.as_str(), "the id that was told is the one that is waited for");
    let hold = first.get(&format!("/api/v1/holds/{id}")).await;
    assert!(hold.to_string().contains("building"), "people see the words of the job: {hold}");
    let events = first.get(&format!("/api/v1/runs/{run}/events")).await;
    let data = |kind: &str| {
        let mut of_kind = events["events"].as_array().unwrap().iter().filter(|event| event["type"] == kind);
        of_kind.next().unwrap()["data"].clone()
    };
    assert_eq!(data("call.started")["pending"], data("hold.opened")["hold"], "on record before it was told");
    drop(first);

    let second = serve(folder.path());
    let record = second.call_is(&id, "waiting").await;
    assert_eq!(record["externalRef"], "deploy-123");
    assert_eq!((&record["messageID"], &record["callID"]), (&job["messageID"], &job["callID"]));
    let done =
        second.webhook(&json!({"pendingID": id, "result": result()}), text(&job["callbackSecret"])).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(done.body, json!({"success": true, "pendingID": id, "status": "completed"}));
    second.run_is(&run, "completed").await;
    let record = second.call_is(&id, "completed").await;
    assert_eq!(record["result"], result());
    assert!(record["time"]["completed"].as_i64() >= record["time"]["created"].as_i64(), "{record}");
    let log = second.log(&run).await;
    assert!(log.contains("preview-123") && log.contains("callback:deploy"), "{log}");
    assert!(!log.contains(text(&job["callbackSecret"])) && !record.to_string().contains("ecret"), "{record}");
}

/// S2-14, S2-15, S2-29, C14, C25: results and errors by hand, the texts of every no, and the other name of the routes.
#[tokio::test(flavor = "multi_thread")]
async fn results_and_errors_are_taken_once() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup::default().folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let id = text(&outside.job().await["pendingID"]).to_owned();
    server.call_is(&id, "waiting").await;
    let unknown = id.replace(&id[id.len() - 6..], "000000");
    for bad in [unknown.as_str(), "hold_1", "", "run_06d3yrjm020030qa6qkvg0r40m"] {
        let no = server.post("/async-tool/result", &json!({"pendingID": bad, "result": result()})).await;
        assert_eq!(no.no(), (404, "Unknown pending ID"), "{bad}");
    }
    for (body, status) in [
        (json!({"pendingID": id}), 422),
        (json!({"pendingID": id, "result": "done"}), 422),
        (json!({"pendingID": id, "result": {"title": "no output"}}), 422),
        (json!({"pendingID": id, "result": {"output": 7}}), 422),
        (json!({"result": result()}), 422),
        (json!([1]), 422),
    ] {
        assert_eq!(server.post("/async-tool/result", &body).await.status, status, "{body}");
    }
    let broken = server.request(Method::POST, "/async-tool/error", &[], Some("{".into())).await;
    assert_eq!(broken.status, 400);
    server.call_is(&id, "waiting").await;
    let done = server.post("/async-tools/result", &json!({"pendingID": id, "result": result()})).await;
    assert_eq!(done.body, json!({"success": true, "pendingID": id, "status": "completed"}));
    for path in ["/async-tool/result", "/async-tools/result"] {
        let again = server.post(path, &json!({"pendingID": id, "result": result()})).await;
        assert_eq!(again.no(), (409, "Not waiting"));
        assert_eq!(again.body["status"], "completed");
    }
    server.run_is(&run, "completed").await;

    let run = server.begin("s-2").await;
    let id = text(&outside.jobs(2).await[1]["pendingID"]).to_owned();
    server.call_is(&id, "waiting").await;
    let done = server.post("/async-tool/error", &json!({"pendingID": id, "error": "no such branch"})).await;
    assert_eq!((done.status, &done.body["status"]), (200, &"failed".into()));
    server.run_is(&run, "completed").await;
    assert_eq!(server.call_is(&id, "failed").await["error"], "no such branch");
    assert!(server.log(&run).await.contains("no such branch"), "the model is told");
}

/// C25: an approval, a question and the hold of a sub-run are no async calls, whoever asks.
#[tokio::test(flavor = "multi_thread")]
async fn other_holds_are_unknown_here() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { tool: "requires_approval: true", ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let approval = text(&server.run_is(&run, "held").await["holds"][0]["id"]).to_owned();
    let no = server.post("/async-tool/result", &json!({"pendingID": approval, "result": result()})).await;
    assert_eq!(no.no(), (404, "Unknown pending ID"));
    assert_eq!(server.delete(&format!("/async-tool/pending/{approval}")).await.status, 404);
    assert_eq!(server.get("/async-tool/pending").await, json!([]));
    assert_eq!(server.run_is(&run, "held").await["holds"][0]["id"], approval.as_str());
}

/// S2-32, C37, S2-12, S2-13: two jobs of one turn; the run goes on when the last one is settled, in whatever order.
#[tokio::test(flavor = "multi_thread")]
async fn the_run_goes_on_with_the_last_of_several_calls() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { branches: &["one", "two", "three"], ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(3).await;
    let ids: Vec<&str> = jobs.iter().map(|job| text(&job["pendingID"])).collect();
    for id in &ids {
        server.call_is(id, "waiting").await;
    }
    server.run_is(&run, "held").await;
    assert_eq!(server.get("/async-tool/pending?sessionID=s-1").await.as_array().unwrap().len(), 3);
    let secret = |no: usize| text(&jobs[no]["callbackSecret"]);
    let done = server.webhook(&json!({"pendingID": ids[2], "result": result()}), secret(2)).await;
    assert_eq!(done.status, 200);
    let done = server.webhook(&json!({"pendingID": ids[0], "error": "broke"}), secret(0)).await;
    assert_eq!(done.status, 200);
    assert_eq!(server.get(&format!("/api/v1/runs/{run}")).await["status"], "held", "one is outstanding");
    // One call's secret does not settle another call.
    let wrong = server.webhook(&json!({"pendingID": ids[1], "result": result()}), secret(0)).await;
    assert_eq!(wrong.status, 401, "{wrong:?}");
    let done = server.delete(&format!("/async-tool/pending/{}", ids[1])).await;
    assert_eq!(done.status, 200, "{done:?}");
    server.run_is(&run, "completed").await;
}

/// S2-18, S2-5, C37: a call that is cancelled has failed with `Cancelled`; the model gets that as the result, and the run goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_cancelled() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup::default().folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let id = text(&outside.job().await["pendingID"]).to_owned();
    server.call_is(&id, "waiting").await;
    let done = server.delete(&format!("/async-tool/pending/{id}")).await;
    assert_eq!(done.body, json!({"success": true, "pendingID": id, "status": "failed"}));
    assert_eq!(server.call_is(&id, "failed").await["error"], "Cancelled");
    assert_eq!(server.delete(&format!("/async-tool/pending/{id}")).await.no(), (409, "Not waiting"));
    server.run_is(&run, "completed").await;
    assert!(server.log(&run).await.contains("withdraw"));
}

/// S2-7: `validateResult` as a JSON Schema: what breaks it is refused with the place, and the call goes on waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_breaks_its_schema_is_refused() {
    let outside = Outside::answering(json!({})).await;
    let schema = "validate_result: {type: object, properties: {metadata: {type: object, required: [url]}}, required: [metadata]}";
    let tool = format!("requires_approval: false\n{schema}");
    let folder = Setup { tool: &tool, ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    server.call_is(id, "waiting").await;
    let refused =
        server.webhook(&json!({"pendingID": id, "result": {"output": "x", "metadata": {}}}), secret).await;
    assert_eq!((refused.status, &refused.body["pointer"]), (422, &"/metadata".into()), "{refused:?}");
    server.call_is(id, "waiting").await;
    assert_eq!(server.webhook(&json!({"pendingID": id, "result": result()}), secret).await.status, 200);
    server.run_is(&run, "completed").await;
    let tools = server.get("/async-tool/tools").await;
    assert_eq!(tools[0]["id"], "deploy");
    assert_eq!((&tools[0]["async"], &tools[0]["timeout"]), (&true.into(), &86_400_000.into()));
    assert_eq!(tools[0]["parameters"]["required"], json!(["branch"]));
    assert_eq!(tools[0]["validateResult"]["required"], json!(["metadata"]));
    assert_eq!(tools[0]["agents"], json!(["ops"]));
}

/// S2-2, S2-8: a job that finishes at once needs no waiting, and its call has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_finishes_at_once_does_not_wait() {
    let outside = Outside::answering(json!({"async": false, "result": result()})).await;
    let folder = Setup::default().folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    server.run_is(&run, "completed").await;
    let id = text(&outside.job().await["pendingID"]).to_owned();
    assert_eq!(server.call_is(&id, "completed").await["result"], result());
    let late = server.post("/async-tool/result", &json!({"pendingID": id, "result": result()})).await;
    assert_eq!(late.no(), (409, "Not waiting"));
}

/// S2-11, S2-34: 24 hours unless the tool says otherwise, and longer when the job expects to take longer.
#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_is_the_tools_or_the_jobs() {
    const DAY: i64 = 86_400_000;
    for (answer, tool, expected) in [
        (json!({}), "requires_approval: false", DAY),
        (json!({"estimatedDuration": 2 * DAY}), "requires_approval: false", 2 * DAY),
        (json!({"estimatedDuration": 1000}), "requires_approval: false\ntimeout: 2h", 7_200_000),
    ] {
        let outside = Outside::answering(answer).await;
        let folder = Setup { tool, ..Setup::default() }.folder(&outside);
        let server = serve(folder.path());
        server.begin("s-1").await;
        let id = text(&outside.job().await["pendingID"]).to_owned();
        let record = server.call_is(&id, "waiting").await;
        let expires = until("it has a deadline", async || {
            server.get(&format!("/async-tool/pending/{id}")).await["timeout"].as_i64()
        })
        .await;
        let after = expires - record["time"]["created"].as_i64().unwrap();
        assert!((expected..expected + 60_000).contains(&after), "{tool}: {after}");
    }
}

/// S2-3, S2-6, S2-16, S2-17: the record as the protocol has it, and the list by status and session.
#[tokio::test(flavor = "multi_thread")]
async fn records_are_listed_by_status_and_session() {
    let outside =
        Outside::answering(json!({"externalRef": "x-1", "webhookURL": "https://ci.example.com/done"})).await;
    let folder = Setup::default().folder(&outside);
    let server = serve(folder.path());
    let mut runs = Vec::new();
    for session in ["s-1", "s-2"] {
        runs.push(server.begin(session).await);
    }
    let jobs = outside.jobs(2).await;
    for job in &jobs {
        server.call_is(text(&job["pendingID"]), "waiting").await;
    }
    for run in &runs {
        server.run_is(run, "held").await;
    }
    let ids = |listed: &Value| -> Vec<String> {
        listed.as_array().unwrap().iter().map(|one| text(&one["id"]).to_owned()).collect()
    };
    assert_eq!(ids(&server.get("/async-tool/pending").await).len(), 2);
    let of_one = server.get("/async-tool/pending?sessionID=s-2").await;
    assert_eq!((of_one.as_array().unwrap().len(), &of_one[0]["sessionID"]), (1, &"s-2".into()));
    let record = of_one[0].as_object().unwrap();
    let mut fields: Vec<&str> = record.keys().map(String::as_str).collect();
    fields.sort_unstable();
    let mut expected = [
        "id",
        "sessionID",
        "messageID",
        "callID",
        "tool",
        "input",
        "status",
        "webhookURL",
        "externalRef",
        "timeout",
        "time",
    ];
    expected.sort_unstable();
    assert_eq!(fields, expected, "{record:?}");
    let id = text(&of_one[0]["id"]).to_owned();
    assert_eq!(server.get(&format!("/async-tool/pending/{id}")).await, of_one[0]);
    server.post("/async-tool/error", &json!({"pendingID": id, "error": "no"})).await;
    assert_eq!(ids(&server.get("/async-tool/pending?status=failed").await), [id.as_str()]);
    assert_eq!(ids(&server.get("/async-tool/pending?status=failed&sessionID=s-1").await), [""; 0]);
    assert_eq!(ids(&server.get("/async-tool/pending?status=waiting").await).len(), 1);
    assert_eq!(server.get("/async-tool/pending?status=completed").await, json!([]));
    let no = server.request(Method::GET, "/async-tool/pending?status=lost", &[], None).await;
    assert_eq!(no.status, 400, "{no:?}");
    assert!(no.body["error"].is_string(), "{no:?}");
}
