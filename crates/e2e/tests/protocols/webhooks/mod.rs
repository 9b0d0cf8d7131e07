//! Webhooks: the real binary, a real data directory, and receivers that fail in every way.
//!
//! What is told is compared with the log as the API shows it: nothing missing, in order, at least once (F25).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod example;
mod fair;
mod muted;
mod one_teller;
mod rights;
mod who;

use std::path::Path;

use serde_json::{Value, json};
use standfast_store::conformance::cluster;
use tempfile::TempDir;

use standfast_testkit::json::owned_text as text;
use standfast_testkit::receiver::{Got, Mood, Receiver};
use standfast_testkit::{Http, Process, rounds, until_found};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

/// A folder with a configuration; `retries` are those of webhooks.
fn folder(retries: &str) -> TempDir {
    folder_on("driver: sqlite, database: ./kept.db", retries)
}

/// The same on another database.
fn folder_on(sql: &str, retries: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.yaml"), SCRIPT).unwrap();
    let text = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
server:
  public_url: http://127.0.0.1:8080
  nodes: {{take_over_after: 3s}}
  webhooks: {{allowed_hosts: ['127.0.0.1'], timeout: 2s, retries: [{retries}]}}
tools: {{execute_command: {{approval_prompt: 'Run {{input}}?', allowed_commands: [echo]}}}}
session_stores: {{db: {{backend: sql, sql: {{{sql}}}}}}}
agents: {{ops: {{llm: script, session_store: db, tools: [execute_command], task: {{input_timeout: 2h}}}}}}
"
    );
    std::fs::write(folder.path().join("standfast.yaml"), text).unwrap();
    folder
}

/// Never given up while a test runs.
fn patient() -> TempDir {
    folder(&patience())
}

fn patience() -> String {
    vec!["300ms"; 400].join(", ")
}

/// A running server; dropping it is `kill -9`.
struct Server {
    program: Process,
    http: Http,
}

fn serve(folder: &Path) -> Server {
    let program = standfast_testkit::serve(folder);
    Server { http: Http::new(&format!("{}/api/v1", program.base)), program }
}

impl Server {
    async fn ask(&self, method: &str, path: &str, body: Option<Value>, key: Option<&str>) -> (u16, Value) {
        let key: Vec<(&str, &str)> = key.map(|key| ("idempotency-key", key)).into_iter().collect();
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let answer = self.http.send(method, path, &key, &body).await;
        (answer.status, answer.body)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, None, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, body) = self.ask("POST", path, Some(body), None).await;
        assert!((200..300).contains(&status), "{path}: {status} {body}");
        body
    }

    /// The id and the secret of a new subscription.
    async fn subscribed(&self, receiver: &Receiver, more: Value) -> (String, String) {
        let mut body = json!({ "url": receiver.url() });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = self.post("/subscriptions", body).await;
        (text(&made["id"]), text(&made["secret"]))
    }

    /// A run whose call waits, and its hold.
    async fn held(&self) -> (String, String) {
        let run = self.post("/agents/ops/runs", json!({"input": "please", "wait": "settled"})).await;
        assert_eq!(run["status"], "held", "{run}");
        (text(&run["id"]), text(&run["holds"][0]["id"]))
    }

    async fn approve(&self, hold: &str) {
        self.post(&format!("/holds/{hold}/resolve"), json!({"resolution": "approve", "wait": "settled"}))
            .await;
    }

    /// The sequence of everything that happened to a run.
    async fn log(&self, run: &str) -> Vec<u64> {
        let log = self.get(&format!("/runs/{run}/events")).await;
        log["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
    }

    /// Waits until a subscription has so many dead letters.
    async fn dead_letters(&self, subscription: &str, count: usize) -> Vec<Value> {
        let path = format!("/subscriptions/{subscription}/dead-letters");
        until_found(&format!("{count} dead letters"), async || {
            let found = self.get(&path).await["dead_letters"].as_array().unwrap().clone();
            (found.len() == count).then_some(found)
        })
        .await
    }
}

fn seqs(story: &[Got]) -> Vec<u64> {
    story.iter().map(Got::seq).collect()
}

/// C21: every event of a run, in order, signed; a hold with what a person needs to decide it and the link to its page.
#[tokio::test]
async fn a_run_is_told_in_order_and_signed() {
    let (folder, receiver) = (patient(), Receiver::new(Mood::Takes).await);
    let server = serve(folder.path());
    let (id, secret) = server.subscribed(&receiver, json!({"events": ["*"]})).await;
    let (run, hold) = server.held().await;
    server.approve(&hold).await;
    let story = receiver.whole_story(&run).await;
    assert_eq!(seqs(&story), server.log(&run).await);
    for got in &story {
        assert!(got.is_signed_with(&secret), "{got:?}");
        assert_eq!(got.headers["webhook-id"], format!("{id}-{run}-{}", got.seq()));
    }
    let opened = story.iter().find(|got| got.kind() == "hold.opened").unwrap().body();
    let told = &opened["data"]["hold"];
    assert_eq!((&told["id"], &told["tool"]), (&json!(hold), &json!("execute_command")));
    assert_eq!(told["arguments"], json!({"command": "echo hello"}));
    assert_eq!(told["url"], format!("http://127.0.0.1:8080/approve/{hold}"));
    assert_eq!(told["digest"], server.get(&format!("/holds/{hold}")).await["digest"]);
    assert!(text(&told["question"]).contains("echo hello"), "{told}");
    // Only the usual kinds, and only of this run.
    let other = Receiver::new(Mood::Takes).await;
    let (run, hold) = server.held().await;
    server.subscribed(&other, json!({"run": run})).await;
    server.held().await;
    server.approve(&hold).await;
    let story = other.whole_story(&run).await;
    let kinds: Vec<String> = story.iter().map(Got::kind).collect();
    assert_eq!(kinds, ["hold.resolved", "run.ended"]);
    assert_eq!(other.all().len(), story.len());
}

/// F25, T11: a receiver that fails in every way, and a server that is killed meanwhile: nothing is missed, the order is
/// kept, no redirect is followed; and another receiver does not wait for it.
#[tokio::test]
async fn f25_a_bad_receiver_and_a_killed_server_lose_nothing() {
    for _ in 0..rounds(1) {
        let (folder, receiver) = (patient(), Receiver::new(Mood::Says("503 Later".into())).await);
        let (other, good) = (Receiver::new(Mood::Takes).await, Receiver::new(Mood::Takes).await);
        let first = serve(folder.path());
        let (_, secret) = first.subscribed(&receiver, json!({"events": ["*"]})).await;
        first.subscribed(&good, json!({"agent": "ops"})).await;
        let mut runs = Vec::new();
        for _ in 0..6 {
            runs.push(first.held().await);
        }
        receiver.until("a try", |all| !all.is_empty()).await;
        drop(first);
        let moods = [
            Mood::Hangs,
            Mood::PointsTo(other.port),
            Mood::HangsUp,
            Mood::Says("429 Too Many Requests".into()),
            Mood::Says("500 Broken".into()),
        ];
        let server = serve(folder.path());
        for mood in moods {
            let before = receiver.all().len();
            receiver.becomes(mood);
            receiver.until("another try", |all| all.len() > before + 1).await;
            assert_eq!(server.http.get(&format!("{}/readyz", server.program.base)).await.status, 200);
        }
        good.until("what the other does not take", |all| {
            all.iter().filter(|got| got.kind() == "hold.opened").count() >= 6
        })
        .await;
        receiver.becomes(Mood::Takes);
        receiver.until("something taken", |all| all.iter().any(|got| got.was_taken)).await;
        drop(server);
        let server = serve(folder.path());
        for (_, hold) in &runs {
            server.approve(hold).await;
        }
        for (run, _) in &runs {
            let story = receiver.whole_story(run).await;
            assert_eq!(seqs(&story), server.log(run).await, "of run {run}");
            assert!(story.iter().all(|got| got.is_signed_with(&secret)));
        }
        assert_eq!(other.all().len(), 0, "a redirect was followed");
    }
}

/// F25: the node that tells is killed, again and again, and another one goes on telling: nothing is missed, and the order
/// of each run is kept.
#[tokio::test]
async fn f25_another_node_goes_on_telling() {
    for _ in 0..rounds(1) {
        let url = format!("driver: postgres, url: \"{}\"", cluster::shared().database());
        let folder = folder_on(&url, &patience());
        let receiver = Receiver::new(Mood::Says("503 Later".into())).await;
        let mut nodes = [serve(folder.path()), serve(folder.path())];
        let (_, secret) = nodes[0].subscribed(&receiver, json!({"events": ["*"]})).await;
        let mut runs = Vec::new();
        for n in 0..8 {
            runs.push(nodes[n % 2].held().await);
        }
        receiver.until("a try", |all| !all.is_empty()).await;
        for round in 0..4 {
            let (dead, alive) = (round % 2, (round + 1) % 2);
            receiver.becomes(if round % 2 == 0 { Mood::Takes } else { Mood::HangsUp });
            let before = receiver.all().len();
            for (_, hold) in runs.iter().skip(round * 2).take(2) {
                nodes[alive].approve(hold).await;
            }
            receiver.until("another try", |all| all.len() > before).await;
            // Dropping it is kill -9.
            nodes[dead] = serve(folder.path());
        }
        receiver.becomes(Mood::Takes);
        for (run, _) in &runs {
            let story = receiver.whole_story(run).await;
            assert_eq!(seqs(&story), nodes[0].log(run).await, "of run {run}");
            assert!(story.iter().all(|got| got.is_signed_with(&secret)));
        }
    }
}

/// F25: 410 disables a subscription and says so; what was not told can be sent again once it is enabled.
#[tokio::test]
async fn f25_a_receiver_that_is_gone_is_disabled() {
    for _ in 0..rounds(1) {
        let (folder, receiver) = (patient(), Receiver::new(Mood::Says("410 Gone".into())).await);
        let server = serve(folder.path());
        let (id, _) = server.subscribed(&receiver, json!({})).await;
        let (run, hold) = server.held().await;
        let letters = server.dead_letters(&id, 1).await;
        assert_eq!(letters[0]["run"], run.as_str());
        let path = format!("/subscriptions/{id}");
        let shown = server.get(&path).await;
        assert_eq!(shown["state"], "disabled", "{shown}");
        assert!(text(&shown["disabled_because"]).contains("410"), "{shown}");
        server.approve(&hold).await;
        receiver.becomes(Mood::Takes);
        assert_eq!(server.post(&format!("{path}/enable"), json!({})).await["state"], "active");
        server.post(&format!("{path}/dead-letters/{}/resend", text(&letters[0]["id"])), json!({})).await;
        let story = receiver.whole_story(&run).await;
        assert_eq!(
            story.iter().map(Got::kind).collect::<Vec<_>>(),
            ["hold.opened", "hold.resolved", "run.ended"]
        );
        assert_eq!(server.get(&format!("{path}/dead-letters")).await["dead_letters"], json!([]));
    }
}

/// F25: after the last try it is a dead letter, which the command line lists and sends again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_can_be_sent_again() {
    let (folder, receiver) = (folder("100ms, 100ms"), Receiver::new(Mood::Says("500 Broken".into())).await);
    let server = serve(folder.path());
    let (id, _) = server.subscribed(&receiver, json!({"events": ["hold.opened"]})).await;
    let (run, _) = server.held().await;
    let letters = server.dead_letters(&id, 1).await;
    assert_eq!((&letters[0]["tries"], receiver.all().len()), (&json!(3), 3));
    assert!(text(&letters[0]["reason"]).contains("500"));
    let command = |arguments: &[&str]| {
        let mut command = standfast_testkit::standfast();
        let output = command
            .arg("subscriptions")
            .args(arguments)
            .args(["--server", &server.program.base])
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, listed) = command(&["dead-letters", &id, "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((code, &listed["dead_letters"][0]["run"]), (0, &json!(run)));
    assert!(command(&["list"]).1.contains(&id));
    assert!(command(&["show", &id]).1.contains("everything"));
    assert_eq!(command(&["test", &id]).0, 1, "it still fails");
    receiver.becomes(Mood::Takes);
    assert_eq!(command(&["test", &id]).0, 0);
    assert_eq!(command(&["resend", &id, &text(&letters[0]["id"])]).0, 0);
    receiver
        .until("the letter", |all| all.iter().any(|got| got.was_taken && got.kind() == "hold.opened"))
        .await;
    assert_eq!(command(&["resend", &id, &text(&letters[0]["id"])]).0, 1, "it is no longer there");
    assert_eq!(command(&["delete", &id]).0, 0);
    assert_eq!(command(&["show", &id]).0, 1);
}

/// T11: what leads to this machine or a private network, is not encrypted, or is not an address, is refused with the reason.
#[tokio::test]
async fn bad_subscriptions_are_refused() {
    let folder = patient();
    let server = serve(folder.path());
    for (url, why) in [
        ("http://localhost:9/", "https"),
        ("https://localhost/", "not a public address"),
        ("https://10.0.0.1/", "not a public address"),
        ("https://169.254.169.254/latest", "not a public address"),
        ("https://[::1]/", "not a public address"),
        ("https://2852039166/latest", "not a public address"),
        ("https://[::ffff:10.0.0.1]/", "not a public address"),
        ("http://192.168.0.1/", "https"),
        ("ftp://example.com/", "http"),
        ("https://user:pw@example.com/", "password"),
        ("nonsense", "cannot be called"),
    ] {
        let (status, said) = server.ask("POST", "/subscriptions", Some(json!({"url": url})), None).await;
        assert_eq!(status, 422, "{url}: {said}");
        let detail = text(&said["detail"]);
        assert!(detail.contains(why) || detail.contains("public"), "{url}: {detail}");
    }
    let url = "http://127.0.0.1:9/";
    for (body, status) in [
        (json!({"url": url, "events": ["hold.open"]}), 422),
        (json!({"url": url, "events": []}), 422),
        (json!({"url": url, "agent": "nobody"}), 404),
        (json!({"url": url, "run": "run_x"}), 422),
        (json!({"url": url, "colour": "red"}), 422),
        (json!({"agent": "ops"}), 422),
    ] {
        let (got, said) = server.ask("POST", "/subscriptions", Some(body.clone()), None).await;
        assert_eq!(got, status, "{body}: {said}");
    }
    for path in ["/subscriptions/sub_none", "/subscriptions/sub_none/dead-letters"] {
        assert_eq!(server.ask("GET", path, None, None).await.0, 404);
    }
}

/// A request that is sent again makes one subscription; a secret is shown once, and a new one does not lock out the old.
#[tokio::test]
async fn a_subscription_is_made_once_and_its_secret_changes() {
    let (folder, receiver) = (patient(), Receiver::new(Mood::Takes).await);
    let server = serve(folder.path());
    let body = json!({"url": receiver.url(), "agent": "ops"});
    let (status, made) = server.ask("POST", "/subscriptions", Some(body.clone()), Some("k1")).await;
    let (again, same) = server.ask("POST", "/subscriptions", Some(body.clone()), Some("k1")).await;
    assert_eq!((status, again), (201, 201));
    assert_eq!(made, same);
    let other = json!({"url": receiver.url()});
    assert_eq!(server.ask("POST", "/subscriptions", Some(other), Some("k1")).await.0, 422);
    let listed = server.get("/subscriptions").await;
    assert_eq!(listed["subscriptions"].as_array().unwrap().len(), 1);
    let (id, old) = (text(&made["id"]), text(&made["secret"]));
    let path = format!("/subscriptions/{id}");
    for shown in [listed, server.get(&path).await] {
        assert!(!shown.to_string().contains("whsec_"), "{shown}");
    }
    let new = text(&server.post(&format!("{path}/rotate"), json!({})).await["secret"]);
    assert_ne!(new, old);
    let pinged = server.post(&format!("{path}/test"), json!({})).await;
    assert_eq!(pinged, json!({"delivered": true, "status": 204}));
    let ping = receiver.all().pop().unwrap();
    assert_eq!(ping.kind(), "ping");
    assert!(ping.is_signed_with(&old) && ping.is_signed_with(&new));
    for name in ["kept.db", "kept.db-wal"] {
        let stored = std::fs::read(folder.path().join(name)).unwrap();
        let secret = new.strip_prefix("whsec_").unwrap().as_bytes();
        assert!(!stored.windows(secret.len()).any(|window| window == secret), "a secret is in {name}");
    }
    assert_eq!(server.ask("DELETE", &path, None, None).await.0, 204);
    server.held().await;
    assert_eq!(receiver.all().len(), 1, "it hears nothing more");
}
