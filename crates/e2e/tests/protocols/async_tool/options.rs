//! Who else is told: the caller's own webhook for a call or a run, and the job whose call was given up.

use reqwest::Method;
use serde_json::{Value, json};

use crate::async_tool::world::{Outside, Server, Setup, hmac_hex, result, serve, text, until};

/// What was told, once there is this much of it; each checked against one of these secrets.
async fn told(outside: &Outside, many: usize, secrets: &[&str]) -> Vec<Value> {
    until(&format!("{many} were told"), async || {
        let all = outside.told.lock().unwrap().clone();
        (all.len() >= many).then_some(all)
    })
    .await
    .iter()
    .map(|(headers, body)| {
        let signed = |secret: &&str| {
            headers["x-webhook-signature"] == format!("sha256={}", hmac_hex(secret, body)).as_str()
        };
        assert!(secrets.iter().any(signed), "signed with none of the secrets: {body}");
        assert!(headers["webhook-signature"].to_str().unwrap().starts_with("v1,"));
        serde_json::from_str(body).unwrap()
    })
    .collect()
}

async fn started(tool: &str, branches: &[&str]) -> (Outside, tempfile::TempDir, Server, String, Vec<Value>) {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { branches, tool, ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(branches.len()).await;
    server.run_is(&run, "held").await;
    (outside, folder, server, run, jobs)
}

/// S2-10, S2-20, S2-21, S2-22: a caller names a webhook and a secret for one call; it is notified how the call ends, signed with
/// that secret, also after `kill -9`; without a secret the server makes one.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_names_a_webhook_for_one_call() {
    let (outside, folder, server, run, jobs) = started("requires_approval: false", &["one", "two"]).await;
    let url = format!("http://127.0.0.1:{}/told", outside.port);
    let (first, second) = (text(&jobs[0]["pendingID"]), text(&jobs[1]["pendingID"]));
    let path = |id: &str| format!("/async-tool/pending/{id}/webhook");
    let options = json!({"webhookURL": url, "webhookSecret": "my-secret"});
    let set = server.post(&path(first), &options).await;
    assert_eq!((set.status, &set.body), (200, &json!({"success": true})));
    let made = server.post(&path(second), &json!({"webhookURL": url})).await;
    let secret = text(&made.body["webhookSecret"]).to_owned();
    drop(server);
    let server = serve(folder.path());
    for job in &jobs {
        let body = json!({"pendingID": job["pendingID"], "result": result()});
        assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
    }
    let mut all = told(&outside, 2, &["my-secret", &secret]).await;
    all.sort_by_key(|body| body["pendingID"] != first);
    assert_eq!(all[0], json!({"pendingID": first, "status": "completed", "result": result()}));
    assert_eq!(all[1]["pendingID"], second);
    server.run_is(&run, "completed").await;
    let late = server.post(&path(first), &options).await;
    assert_eq!(late.no(), (409, "Not waiting"));
    assert_eq!(server.post(&path("hold_x"), &options).await.no(), (404, "Unknown pending ID"));
    let log = server.log(&run).await;
    assert!(!log.contains("my-secret") && !log.contains(&secret), "no secret is in the log");
    let refused = server.post(&path(first), &json!({"webhookURL": url, "webhookSecret": ""})).await;
    assert!(refused.status == 409 || refused.status == 422);
}

/// S2-10: the same for all calls of a run.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_names_a_webhook_for_a_run() {
    let (outside, _folder, server, run, jobs) = started("requires_approval: false", &["one", "two"]).await;
    let url = format!("http://127.0.0.1:{}/told", outside.port);
    let options = json!({"webhookURL": url, "webhookSecret": "my-secret"});
    let set = server.post(&format!("/async-tool/run/{run}/webhook"), &options).await;
    assert_eq!(set.status, 200, "{set:?}");
    for job in &jobs {
        let body = json!({"pendingID": job["pendingID"], "error": "broke"});
        assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
    }
    let all = told(&outside, 2, &["my-secret"]).await;
    assert!(all.iter().all(|body| body["error"] == "broke" && body.get("action").is_none()), "{all:?}");
    let nobody = server.post("/async-tool/run/run_x/webhook", &options).await;
    assert_eq!(nobody.status, 404);
}

/// S2-18, S2-21, S2-23, C37: the `webhookURL` of a job whose call somebody cancels, or whose run is cancelled, gets a stop request,
/// signed with the secret of the call; also when the server was killed before it could say so.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_is_told_to_stop() {
    for cancels_the_run in [false, true] {
        let outside = Outside::answering(json!({})).await;
        let own = format!("requires_approval: false\nwebhook_url: http://127.0.0.1:{}/told", outside.port);
        let folder = Setup { tool: &own, ..Setup::default() }.folder(&outside);
        let server = serve(folder.path());
        let run = server.begin("s-1").await;
        let job = outside.job().await;
        server.run_is(&run, "held").await;
        let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
        outside.refuses(true);
        let cancelled = if cancels_the_run {
            server.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})).await
        } else {
            server.request(Method::DELETE, &format!("/async-tool/pending/{id}"), &[], None).await
        };
        assert_eq!(cancelled.status, 200, "{cancelled:?}");
        until("it was tried", async || (outside.refused() > 0).then_some(())).await;
        drop(server);
        outside.refuses(false);
        let server = serve(folder.path());
        let all = told(&outside, 1, &[secret]).await;
        let stop = &all[0];
        assert_eq!((&stop["pendingID"], &stop["action"]), (&json!(id), &json!("stop")), "{stop}");
        assert_eq!(stop["status"], "failed");
        assert!(text(&stop["error"]).starts_with("Cancelled"), "{stop}");
        let late = server.webhook(&json!({"pendingID": id, "result": result()}), secret).await;
        assert_eq!(late.status, 409, "{late:?}");
    }
}

/// S2-10, S2-20, S2-21, F2: `kill -9` while a caller names a webhook for a call. Named again with another secret it is one receiver: it is
/// notified once, signed with the secret that was acknowledged, and nothing is kept of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_webhook_is_named_leaves_one_receiver() {
    killed_while_a_webhook_is_named(|_, call| format!("/async-tool/pending/{call}/webhook")).await;
}

/// S2-10, S2-20, S2-21, F2: the same for a webhook of all calls of a run.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_webhook_of_a_run_is_named_leaves_one_receiver() {
    killed_while_a_webhook_is_named(|run, _| format!("/async-tool/run/{run}/webhook")).await;
}

/// The path is that at which a caller names a webhook, for a run and its call.
async fn killed_while_a_webhook_is_named(path_of: impl Fn(&str, &str) -> String) {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup::default().folder(&outside);
    let mut server = serve(folder.path());
    let url = format!("http://127.0.0.1:{}/told", outside.port);
    let named = |secret: &str| json!({"webhookURL": url, "webhookSecret": secret});
    for round in 0..standfast_testkit::rounds(6) {
        let run = server.begin(&format!("s-{round}")).await;
        let job = outside.jobs(round + 1).await.remove(round);
        server.run_is(&run, "held").await;
        let id = text(&job["pendingID"]);
        let path = path_of(&run, id);
        let request = reqwest::Client::new().post(format!("{}{path}", server.base())).json(&named("first"));
        // Nobody knows what became of it.
        let cut = tokio::spawn(async move { drop(request.send().await) });
        tokio::time::sleep(std::time::Duration::from_millis(round as u64 % 10)).await;
        drop(server);
        cut.await.unwrap();
        server = serve(folder.path());
        let set = server.post(&path, &named("second")).await;
        assert_eq!(set.status, 200, "{round}: {set:?}");
        let report = json!({"pendingID": id, "result": result()});
        assert_eq!(server.webhook(&report, text(&job["callbackSecret"])).await.status, 200, "{round}");
        server.run_is(&run, "completed").await;
        until("nothing is kept of it", async || {
            let kept = server.get("/api/v1/subscriptions").await;
            (!kept.to_string().contains("/told")).then_some(())
        })
        .await;
        let all = told(&outside, round + 1, &["second"]).await;
        let of_call: Vec<&Value> = all.iter().filter(|body| body["pendingID"] == id).collect();
        assert_eq!(of_call.len(), 1, "{round}: {all:?}");
        assert_eq!(of_call[0]["status"], "completed", "{round}");
    }
}
