//! What is shown: the status of a conversation, tool parts, the stream, what is told outside.
//!
//! The shapes themselves are tested in the surface's own tables; here they come from the real program.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::async_tool::world::{Outside, Server, Setup, hmac_hex, result, serve, text, until};

async fn session_is(server: &Server, session: &str, kind: &str) -> Value {
    until(&format!("{session} is {kind}"), async || {
        let now = server.get(&format!("/async-tool/session/{session}/status")).await;
        (now["type"] == kind).then_some(now)
    })
    .await
}

/// S2-28, S2-29, S2-30, S2-31, C37: a conversation waits for the oldest of its calls, with `since` and `timeout`, and is
/// idle in the end; its parts say how each call stands.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_says_what_it_waits_for() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { branches: &["one", "two"], ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(2).await;
    server.run_is(&run, "held").await;
    let now = session_is(&server, "s-1", "waiting_async").await;
    let parts = server.get("/async-tool/session/s-1/parts").await;
    assert_eq!(parts.as_array().unwrap().len(), 2);
    let oldest = text(&now["pendingID"]).to_owned();
    assert!(jobs.iter().any(|job| job["pendingID"] == oldest.as_str()), "{now}");
    assert_eq!(now["tool"], "deploy");
    assert!(now["since"].is_i64() && now["timeout"].as_i64() > now["since"].as_i64(), "{now}");
    assert_eq!(parts[0]["type"], "tool");
    assert_eq!(parts[0]["state"]["status"], "waiting_async");
    assert!(parts[0]["state"]["time"]["start"].is_i64() && parts[0]["state"]["pendingID"].is_string());
    for job in &jobs {
        let id = text(&job["pendingID"]);
        let secret = text(&job["callbackSecret"]);
        let body = if job["input"]["branch"] == "one" {
            json!({"pendingID": id, "result": result()})
        } else {
            json!({"pendingID": id, "error": "no such branch"})
        };
        assert_eq!(server.webhook(&body, secret).await.status, 200);
    }
    server.run_is(&run, "completed").await;
    assert_eq!(session_is(&server, "s-1", "idle").await, json!({"type": "idle"}));
    let parts = server.get("/async-tool/session/s-1/parts").await;
    let of = |branch: &str| {
        let found = parts.as_array().unwrap().iter().find(|part| part["state"]["input"]["branch"] == branch);
        found.unwrap()["state"].clone()
    };
    let done = of("one");
    assert_eq!((&done["status"], &done["output"]), (&"completed".into(), &result()["output"]));
    assert_eq!((&done["title"], &done["metadata"]), (&result()["title"], &result()["metadata"]));
    assert!(done["time"]["end"].as_i64() >= done["time"]["start"].as_i64());
    let failed = of("two");
    assert_eq!((&failed["status"], &failed["error"]), (&"error".into(), &"no such branch".into()));
    let unknown = server.request(reqwest::Method::GET, "/async-tool/session/none/status", &[], None).await;
    assert_eq!(unknown.status, 404);
}

/// S2-30, C25: while a person is asked the conversation is busy and says why; no id is shown that is none of a pending call.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_waits_for_a_person_shows_no_pending_id() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { tool: "requires_approval: true", ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let held = server.run_is(&run, "held").await;
    let now = server.get("/async-tool/session/s-1/status").await;
    assert_eq!(now, json!({"type": "busy", "waitingFor": "approval"}));
    assert_eq!(server.get("/async-tool/session/s-1/parts").await, json!([]));
    assert_eq!(server.get("/async-tool/sessions/waiting").await, json!([]), "it waits for no job");
    let hold = text(&held["holds"][0]["id"]);
    let decided =
        server.post(&format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "approve"})).await;
    assert_eq!(decided.status, 200, "{decided:?}");
    let job = outside.job().await;
    let now = session_is(&server, "s-1", "waiting_async").await;
    assert_eq!(now["pendingID"], job["pendingID"], "the id of the call, not that of the approval");
    assert_ne!(now["pendingID"], json!(hold));
}

/// S2-28, S2-29: the stream tells each call as a part when it begins to wait, moves and ends; it begins with what is pending.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_streamed_as_they_change() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup::default().folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    server.run_is(&run, "held").await;
    let response = reqwest::get(format!("{}/async-tool/events?sessionID=s-1", server.base())).await.unwrap();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let mut chunks = response.bytes_stream();
    let mut heard = String::new();
    let mut settled = false;
    let listening = async {
        while !heard.contains(r#""status":"completed""#) {
            heard.push_str(&String::from_utf8_lossy(&chunks.next().await.unwrap().unwrap()));
            if heard.contains("waiting_async") && !settled {
                settled = true;
                let body = json!({"pendingID": job["pendingID"], "result": result()});
                assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), listening).await.unwrap();
    let events: Vec<&str> = heard.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert!(events.iter().all(|event| *event == "message.part.updated"), "{heard}");
    let parts: Vec<Value> =
        heard.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert_eq!(parts.first().unwrap()["state"]["status"], "waiting_async");
    assert_eq!(parts.last().unwrap()["state"]["output"], result()["output"]);
}

/// S2-10, S2-20, S2-22, S2-23, C21: `webhookURL` of the job, or of the tool, is notified when the call is settled: signed both
/// ways with the secret of the call, and told again when it could not be.
#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_url_of_a_call_is_told_how_it_ended() {
    let outside = Outside::answering(json!({})).await;
    let own = format!("requires_approval: false\nwebhook_url: http://127.0.0.1:{}/told", outside.port);
    let folder = Setup { tool: &own, ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    let record = server.call_is(id, "waiting").await;
    let held = server.run_is(&run, "held").await;
    assert_eq!(held["holds"][0]["id"], id);
    assert!(
        text(&server.get(&format!("/async-tool/pending/{id}")).await["webhookURL"]).ends_with("/told"),
        "{record}"
    );
    // It is not there at first; what it could not be told it is told later, also by another process.
    outside.refuses(true);
    assert_eq!(server.webhook(&json!({"pendingID": id, "result": result()}), secret).await.status, 200);
    server.run_is(&run, "completed").await;
    until("it was tried", async || (outside.refused() > 0).then_some(())).await;
    drop(server);
    outside.refuses(false);
    let server = serve(folder.path());
    let (headers, body) = until("it was told", async || outside.told.lock().unwrap().first().cloned()).await;
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({"pendingID": id, "status": "completed", "result": result()})
    );
    assert_eq!(headers["x-webhook-signature"], format!("sha256={}", hmac_hex(secret, &body)).as_str());
    assert!(
        headers.contains_key("webhook-id")
            && headers["webhook-signature"].to_str().unwrap().starts_with("v1,")
    );
    until("nothing is kept of it", async || {
        let kept = server.get("/api/v1/subscriptions").await;
        (!kept.to_string().contains("/told")).then_some(())
    })
    .await;
}
