//! Who may report: signatures, keys, roles; and how often.
//!
//! The server asks for API keys here, as one on the internet does.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::async_tool::world::{Outside, Server, Setup, hmac_hex, result, serve, text};

/// A key for somebody, made with the command line.
fn key(folder: &Path, arguments: &[&str]) -> String {
    let output = standfast_testkit::standfast()
        .args(["keys", "create"])
        .args(arguments)
        .arg("--json")
        .arg("--config")
        .arg(folder.join("standfast.yaml"))
        .arg("--data")
        .arg(folder.join("data"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    text(&made["key"]).to_owned()
}

/// A server that asks for keys, with ann's run waiting for a job.
async fn held(tool: &str, server: &str) -> (tempfile::TempDir, Server, Outside, String, Value) {
    let outside = Outside::answering(json!({})).await;
    let tool = format!("requires_approval: false\n{tool}");
    let auth = format!(", auth: {{api_keys: true}}{server}");
    let folder = Setup { tool: &tool, server: &auth, ..Setup::default() }.folder(&outside);
    std::fs::create_dir_all(folder.path().join("data")).unwrap();
    let ann = key(folder.path(), &["--user", "ann"]);
    let mut server = serve(folder.path());
    server.key = Some(ann);
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    server.call_is(text(&job["pendingID"]), "waiting").await;
    (folder, server, outside, run, job)
}

pub(super) fn standard(secret: &str, id: &str, at: i64, body: &str) -> [(&'static str, String); 3] {
    let mut mac = Hmac::<Sha256>::new_from_slice(&BASE64_STANDARD.decode(secret).unwrap()).unwrap();
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    let signature = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
    [("webhook-id", id.to_owned()), ("webhook-timestamp", at.to_string()), ("webhook-signature", signature)]
}

pub(super) fn seconds_now() -> i64 {
    standfast_testkit::wait::now_ms() / 1000
}

/// S2-19 … S2-22, S2-39, C21, T10: `/webhook` takes what is signed with the secret of the call, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_needs_the_signature_of_its_call() {
    let (_folder, server, _outside, run, job) = held("", "").await;
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    let body = json!({"pendingID": id, "result": result()}).to_string();
    let path = "/async-tool/webhook";
    let signed = |value: String| vec![("x-webhook-signature", value)];
    for (headers, body) in [
        (vec![], body.clone()),
        (signed(String::new()), body.clone()),
        (signed(hmac_hex("another secret", &body)), body.clone()),
        (signed(hmac_hex(secret, &body)), body.replace("123", "124")),
        (signed(hmac_hex(secret, &body)), format!(" {body}")),
        (
            vec![
                ("x-webhook-signature", hmac_hex(secret, &body)),
                ("x-webhook-signature", hmac_hex(secret, &body)),
            ],
            body.clone(),
        ),
        (
            vec![("webhook-id", "m-1".to_owned()), ("x-webhook-signature", hmac_hex(secret, &body))],
            body.clone(),
        ),
        (standard(secret, "m-1", seconds_now() - 400, &body).to_vec(), body.clone()),
        (standard(secret, "m-1", seconds_now() + 400, &body).to_vec(), body.clone()),
    ] {
        let no = server.report(path, &headers, body).await;
        assert_eq!(no.status, 401, "{headers:?}: {no:?}");
        assert!(no.body["error"].is_string(), "{no:?}");
    }
    // Not even ann's own key is a signature.
    assert_eq!(server.post(path, &json!({"pendingID": id, "result": result()})).await.status, 401);
    server.call_is(id, "waiting").await;
    let both = json!({"pendingID": id, "result": result(), "error": "and failed"});
    assert_eq!(server.webhook(&both, secret).await.status, 422);
    assert_eq!(server.webhook(&json!({"pendingID": id}), secret).await.status, 422);
    assert_eq!(server.report(path, &signed(hmac_hex(secret, &body)), body).await.status, 200);
    server.run_is(&run, "completed").await;
}

/// T5, F22, S2-39: a Standard Webhook that is sent again is taken as what it is: done already, and done once.
#[tokio::test(flavor = "multi_thread")]
async fn a_standard_webhook_may_be_sent_again() {
    let (_folder, server, _outside, run, job) = held("", "").await;
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    let body = json!({"pendingID": id, "result": result()}).to_string();
    for _ in 0..3 {
        let headers = standard(secret, "msg-1", seconds_now(), &body);
        let done = server.report("/async-tool/webhook", &headers, body.clone()).await;
        assert_eq!((done.status, &done.body["status"]), (200, &"completed".into()), "{done:?}");
    }
    // Another message about the same call comes too late; the same id with another body is a mistake.
    let headers = standard(secret, "msg-2", seconds_now(), &body);
    assert_eq!(server.report("/async-tool/webhook", &headers, body.clone()).await.no(), (409, "Not waiting"));
    let other = json!({"pendingID": id, "error": "no, it broke"}).to_string();
    let headers = standard(secret, "msg-1", seconds_now(), &other);
    assert_eq!(server.report("/async-tool/webhook", &headers, other).await.status, 422);
    server.run_is(&run, "completed").await;
    assert_eq!(server.log(&run).await.matches("hold.resolved").count(), 1);
}

/// S2-39: while the shared secret of a tool is changed, the new one and the one before it are taken; so is the secret
/// that a call got before there was a shared one.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_can_be_changed_while_jobs_run() {
    let (folder, server, outside, _, job) = held("", "").await;
    let derived = text(&job["callbackSecret"]).to_owned();
    let first = text(&job["pendingID"]).to_owned();
    let ann = server.key.clone();
    drop(server);
    let file = folder.path().join("standfast.yaml");
    let text_of = std::fs::read_to_string(&file).unwrap();
    let secrets =
        "    webhook_secret: the new secret\n    previous_webhook_secret: the old secret\nsession_stores:";
    std::fs::write(&file, text_of.replace("session_stores:", secrets)).unwrap();
    let mut server = serve(folder.path());
    server.key = ann;
    assert_eq!(server.webhook(&json!({"pendingID": first, "result": result()}), &derived).await.status, 200);
    for (no, secret) in ["the new secret", "the old secret"].into_iter().enumerate() {
        server.begin(&format!("t-{no}")).await;
        let job = outside.jobs(no + 2).await[no + 1].clone();
        assert_eq!(job["callbackSecret"], "the new secret");
        let id = text(&job["pendingID"]);
        server.call_is(id, "waiting").await;
        let body = json!({"pendingID": id, "result": result()});
        assert_eq!(server.webhook(&body, "the secret of long ago").await.status, 401);
        assert_eq!(server.webhook(&body, secret).await.status, 200);
    }
}

/// S2-38, C12, T15: `/result` and `/error` take the owner, the role `service`, or the signature; for everybody else
/// there is no such call, and unsigned strangers are asked who they are.
#[tokio::test(flavor = "multi_thread")]
async fn results_are_taken_from_owner_service_and_signature() {
    let (folder, server, outside, _, job) = held("", "").await;
    let bob = key(folder.path(), &["--user", "bob"]);
    let ci = key(folder.path(), &["--user", "ci", "--role", "service"]);
    let body = |id: &str| json!({"pendingID": id, "result": result()}).to_string();
    let id = text(&job["pendingID"]).to_owned();
    let path = "/async-tool/result";
    assert_eq!(server.report(path, &[], body(&id)).await.status, 401);
    let as_bob = server.request_as(Some(&bob), Method::POST, path, &[], Some(body(&id))).await;
    assert_eq!(as_bob.no(), (404, "Unknown pending ID"));
    let shown =
        server.request_as(Some(&bob), Method::GET, &format!("/async-tool/pending/{id}"), &[], None).await;
    assert_eq!(shown.no(), (404, "Unknown pending ID"));
    let listed = server.request_as(Some(&bob), Method::GET, "/async-tool/pending", &[], None).await;
    assert_eq!(listed.body, json!([]));
    let deleted =
        server.request_as(Some(&bob), Method::DELETE, &format!("/async-tool/pending/{id}"), &[], None).await;
    assert_eq!(deleted.status, 404);
    // A signature that is wrong is not made up for by a key that is right.
    let forged = [("x-webhook-signature", hmac_hex("guessed", &body(&id)))];
    assert_eq!(server.request(Method::POST, path, &forged, Some(body(&id))).await.status, 401);
    let as_ci = server.request_as(Some(&ci), Method::POST, path, &[], Some(body(&id))).await;
    assert_eq!(as_ci.status, 200, "{as_ci:?}");
    assert!(server.log(&job_run(&server, &id).await).await.contains("callback:ci"));

    server.begin("s-2").await;
    let job = outside.jobs(2).await[1].clone();
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    server.call_is(id, "waiting").await;
    let signed = [("x-webhook-signature", hmac_hex(secret, &body(id)))];
    assert_eq!(server.report(path, &signed, body(id)).await.status, 200, "signed, and no key");

    server.begin("s-3").await;
    let id = text(&outside.jobs(3).await[2]["pendingID"]).to_owned();
    server.call_is(&id, "waiting").await;
    assert_eq!(
        server.post(path, &json!({"pendingID": id, "result": result()})).await.status,
        200,
        "ann herself"
    );
}

async fn job_run(server: &Server, id: &str) -> String {
    let record = server.get(&format!("/async-tool/pending/{id}")).await;
    let session = text(&record["sessionID"]).to_owned();
    let runs = server.get(&format!("/api/v1/runs?agent=ops&session={session}")).await;
    text(&runs["runs"][0]["id"]).to_owned()
}

/// S2-41, T37: so many reports of one caller, and about one call, within a minute; then `Retry-After`.
#[tokio::test(flavor = "multi_thread")]
async fn reports_are_limited() {
    let (_folder, server, outside, _, job) = held("", ", async_tools: {per_caller: 40, per_call: 5}").await;
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    let body = json!({"pendingID": id, "result": result()});
    let mut answers = Vec::new();
    for _ in 0..6 {
        answers.push(server.webhook(&body, "wrong").await);
    }
    assert!(answers[..5].iter().all(|no| no.status == 401), "{answers:?}");
    assert_eq!(answers[5].status, 429);
    let again: u32 = answers[5].retry_after.as_deref().unwrap().parse().unwrap();
    assert!((1..=60).contains(&again));
    assert_eq!(server.webhook(&body, secret).await.status, 429, "whoever it is");
    // Another call is not held up by that, until the caller itself has sent too many.
    server.begin("s-2").await;
    let job = outside.jobs(2).await[1].clone();
    server.call_is(text(&job["pendingID"]), "waiting").await;
    let body = json!({"pendingID": job["pendingID"], "result": result()});
    assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
    let mut last = 0;
    for _ in 0..40 {
        last = server.webhook(&json!({"pendingID": "nothing", "result": result()}), "x").await.status;
    }
    assert_eq!(last, 429);
}
