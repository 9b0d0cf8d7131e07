//! The real binary with a configuration file that names the provider.
//!
//! Its log goes to a file, so that a test can read what it says, and that it never says a token.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use standfast_engine::clock::Clock;
use tempfile::TempDir;

use crate::provider::{AUDIENCE, ISSUER, Provider, SigningKey, published};
use standfast_testkit::Process;
use standfast_testkit::receiver::{Got, Mood, Receiver};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

/// A running server; dropping it is `kill -9`.
struct Server {
    program: Process,
    folder: TempDir,
    client: Client,
}

fn standfast() -> Command {
    let mut command = standfast_testkit::standfast();
    command.env("RUST_LOG", "debug,hyper=info,reqwest=info").env_remove("STANDFAST_KEY");
    command
}

/// A folder with a configuration that takes the provider's tokens, and whatever else it says of `auth`.
fn folder(provider: &Provider, more: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.yaml"), SCRIPT).unwrap();
    let url = provider.jwks_url();
    let text = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
tools: {{execute_command: {{allowed_commands: [echo]}}}}
agents: {{ops: {{llm: script, tools: [execute_command], task: {{}}, approvers: ['group:finance']}}}}
server: {{auth: {{jwt: {{jwks_url: '{url}', issuer: '{ISSUER}', audience: {AUDIENCE}, skew: 5s}}{more}}}}}
"
    );
    std::fs::write(folder.path().join("standfast.yaml"), text).unwrap();
    folder
}

fn serve(folder: TempDir, arguments: &[&str]) -> Server {
    let log = File::create(folder.path().join("log")).unwrap();
    let mut command = standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(folder.path().join("standfast.yaml"));
    command.args(arguments).arg("--data").arg(folder.path().join("data"));
    let program = standfast_testkit::start(command.stderr(log));
    Server { program, folder, client: Client::builder().no_proxy().build().unwrap() }
}

impl Server {
    fn get(&self, token: &str, path: &str) -> RequestBuilder {
        let request =
            self.client.get(format!("{}{path}", self.program.base)).timeout(Duration::from_secs(30));
        if token.is_empty() { request } else { request.bearer_auth(token) }
    }

    async fn status(&self, token: &str) -> u16 {
        self.get(token, "/api/v1/holds").send().await.unwrap().status().as_u16()
    }

    /// Waits until it does.
    async fn lets_in(&self, token: &str) {
        for _ in 0..300 {
            if self.status(token).await == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("a token that is right is never let in; the log: {}", self.log());
    }

    async fn post(&self, token: &str, path: &str, body: Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.program.base)).bearer_auth(token).json(&body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    fn key(&self, user: &str) -> String {
        let mut command = standfast();
        command.args(["keys", "create", "--user", user, "--data"]).arg(self.folder.path().join("data"));
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
    }

    /// Waits until its log has this text so many times.
    async fn says(&self, text: &str, times: usize) {
        for _ in 0..300 {
            if self.log().matches(text).count() >= times {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("{text:?} is not there {times} times: {}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

/// Claims of somebody, valid for five minutes from now.
fn claims(user: &str, more: Value) -> Value {
    let now = Clock::system().now().0 / 1000;
    let mut claims = json!({"iss": ISSUER, "aud": [AUDIENCE, "other"], "sub": user, "exp": now + 300});
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims
}

/// C24: who may decide is a matter of the groups that the token says; what for, of its scopes. API keys work beside it,
/// and a user is the same by either.
#[tokio::test]
async fn a_token_starts_a_run_and_another_decides_it() {
    let key = SigningKey::p256("one");
    let provider = Provider::with(published(&[&key])).await;
    let server = serve(folder(&provider, ", api_keys: true"), &[]);
    let ann = key.token(&claims("ann", json!({})));
    let bob = key.token(&claims("bob", json!({"groups": ["finance"]})));
    let reader = key.token(&claims("bob", json!({"groups": ["finance"], "scope": "openid runs:read"})));
    let nothing = key.token(&claims("bob", json!({"groups": ["finance"], "scope": "openid email"})));

    let body = json!({"input": "please", "wait": "settled"});
    let (status, run) = server.post(&ann, "/api/v1/agents/ops/runs", body.clone()).await;
    assert_eq!((status, &run["status"]), (201, &json!("held")), "{run}");
    let run_path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    let hold = format!("/api/v1/holds/{}/resolve", run["holds"][0]["id"].as_str().unwrap());
    let approve = json!({"resolution": "approve"});

    assert_eq!(server.post(&nothing, &hold, approve.clone()).await.0, 403);
    assert_eq!(server.status(&nothing).await, 403, "scopes of other servers give nothing");
    assert_eq!(server.status(&reader).await, 200);
    let (status, problem) = server.post(&reader, &hold, approve.clone()).await;
    assert_eq!((status, &problem["scope"]), (403, &json!("holds:decide")), "{problem}");
    let stranger = key.token(&claims("eve", json!({"groups": "sales"})));
    assert_eq!(server.get(&stranger, &run_path).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(server.post(&bob, &hold, approve).await.0, 200);

    let anns_key = server.key("ann");
    assert_eq!(server.get(&anns_key, &run_path).send().await.unwrap().status(), StatusCode::OK);
    let by_password = server.client.get(format!("{}/", server.program.base)).basic_auth("anyone", Some(&ann));
    assert_eq!(by_password.send().await.unwrap().status(), StatusCode::OK, "a browser can ask for a token");
    let mut command = standfast();
    command.args(["runs", "--json", "--server", &server.program.base]).env("STANDFAST_KEY", &ann);
    assert!(command.output().unwrap().status.success(), "the client commands take a token too");
    assert_eq!(provider.asked(), 1);
}

/// T9: whatever is wrong with a credential, the answer is the same byte for byte; the log says why, and never the token.
#[tokio::test]
async fn every_refusal_looks_the_same() {
    let (key, evil) = (SigningKey::rsa("one"), SigningKey::rsa("one"));
    let provider = Provider::with(published(&[&key])).await;
    let server = serve(folder(&provider, ", api_keys: true"), &[]);
    assert_eq!(server.status(&key.token(&claims("ann", json!({})))).await, 200);
    let unsigned = format!("{}.AAAA", key.token(&claims("ann", json!({}))).rsplit_once('.').unwrap().0);
    let another = SigningKey::rsa("../one").token(&claims("ann", json!({})));
    let wrong = [
        "sf_00000000_0".to_owned(),
        "garbage".to_owned(),
        unsigned,
        another,
        evil.token(&claims("ann", json!({}))),
        key.token(&claims("ann", json!({"iss": "https://evil.example/"}))),
        key.token(&claims("ann", json!({"aud": "other"}))),
        key.token(&claims("ann", json!({"exp": 1_000_000_000}))),
        key.token(&claims("ann", json!({"nbf": 4_000_000_000_u64}))),
        key.token(&claims("ann", json!({"more": "x".repeat(17_000)}))),
    ];
    let mut answers = Vec::new();
    for token in [&[String::new()], &wrong[..]].concat() {
        let response = server.get(&token, "/api/v1/holds").send().await.unwrap();
        let mut headers = response.headers().clone();
        headers.remove("date");
        headers.remove("x-request-id");
        answers.push((response.status(), headers, response.text().await.unwrap()));
    }
    assert_eq!(answers[0].0, StatusCode::UNAUTHORIZED);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    let log = server.log();
    for why in ["another issuer made it", "it has expired", "its signature is wrong"] {
        assert!(log.contains(why), "{log}");
    }
    let warnings = log.lines().filter(|line| line.contains("WARN") && line.contains("token refused")).count();
    assert!(
        (1..wrong.len() / 2).contains(&warnings),
        "one warning in ten seconds, the others at debug: {log}"
    );
    for part in wrong.iter().flat_map(|token| token.split('.')).filter(|part| part.len() > 20) {
        assert!(!log.contains(part), "{part} is in the log");
    }
}

/// The server starts, says so, lets in whoever has a key, and nobody with a token until it can tell.
#[tokio::test]
async fn the_provider_is_away_at_the_start() {
    let key = SigningKey::ed("one");
    let mut provider = Provider::with(published(&[&key])).await;
    provider.go_away();
    let server = serve(folder(&provider, ", api_keys: true"), &[]);
    let token = key.token(&claims("ann", json!({})));
    let response = server.get(&token, "/api/v1/holds").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let seconds: u32 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=10).contains(&seconds), "{seconds}");
    let problem: Value = response.json().await.unwrap();
    assert!(problem["detail"].as_str().unwrap().contains("identity provider"), "{problem}");
    let log = server.log();
    assert!(log.contains("could not fetch the keys of the identity provider; tokens get 503"), "{log}");
    assert_eq!(server.status(&server.key("ann")).await, 200, "keys need no provider");
    assert_eq!(server.status("").await, 401);
    let ready = server.get("", "/readyz").send().await.unwrap();
    assert_eq!(ready.status(), StatusCode::OK);

    provider.come_back().await;
    server.lets_in(&token).await;
    assert!(server.log().contains("fetched the keys of the identity provider again"), "{}", server.log());
}

/// A key is rotated while the server runs: the new one is found, the old one is refused.
#[tokio::test]
async fn the_provider_changes_its_key() {
    let (old, new) = (SigningKey::ed("old"), SigningKey::ed("new"));
    let provider = Provider::with(published(&[&old])).await;
    let server = serve(folder(&provider, ""), &[]);
    let (before, after) = (old.token(&claims("ann", json!({}))), new.token(&claims("ann", json!({}))));
    assert_eq!(server.status(&before).await, 200);
    provider.answers(published(&[&new]));
    server.lets_in(&after).await;
    assert_eq!(server.status(&before).await, 401);
    assert_eq!(server.status(&server.key("ann")).await, 401, "keys are not taken here");
}

/// What the command line says wins: with `--auth keys` tokens open nothing, and the provider is never asked.
#[tokio::test]
async fn keys_alone_by_argument() {
    let key = SigningKey::ed("one");
    let provider = Provider::with(published(&[&key])).await;
    let server = serve(folder(&provider, ""), &["--auth", "keys"]);
    assert_eq!(server.status(&key.token(&claims("ann", json!({})))).await, 401);
    assert_eq!(server.status(&server.key("ann")).await, 200);
    assert_eq!(provider.asked(), 0);
}

/// An address that others could answer for is refused before anything is served.
#[tokio::test]
async fn keys_do_not_come_over_plain_http() {
    let key = SigningKey::ed("one");
    let folder = folder(&Provider::with(published(&[&key])).await, "");
    let path = folder.path().join("standfast.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, what) in [
        ("http://127.0.0.1:", "http://login.example:", "must begin with https://"),
        ("http://", "https://me:sk-canary@", "must not have a user or a password in it"),
        ("skew: 5s", "max_age: 5m", "`max_age` is shorter than `refresh`"),
        ("skew: 5s", "refresh: 0s", "must be a second or more"),
    ] {
        std::fs::write(&path, text.replace(from, to)).unwrap();
        let output = standfast().arg("validate").arg(&path).output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(what), "{said}");
    }
}

/// F30: a changed file that names the same provider goes on with the keys that are there, also while the provider is
/// away; one that names another fetches that one's.
#[tokio::test]
async fn a_reload_keeps_the_keys_of_the_same_provider() {
    let (key, other_key) = (SigningKey::ed("one"), SigningKey::ed("two"));
    let mut provider = Provider::with(published(&[&key])).await;
    let server = serve(folder(&provider, ""), &[]);
    let token = key.token(&claims("ann", json!({})));
    server.lets_in(&token).await;
    let file = server.folder.path().join("standfast.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    let asked = provider.asked();
    provider.go_away();

    std::fs::write(&file, before.replace("agents: {ops", "agents: {more: {llm: script}, ops")).unwrap();
    hangup(&server);
    server.says("configuration reloaded", 1).await;
    assert_eq!(server.status(&token).await, 200, "the keys are there still");
    assert_eq!(provider.asked(), asked);

    let other = Provider::with(published(&[&other_key])).await;
    let changed = before.replace(&provider.jwks_url(), &other.jwks_url());
    std::fs::write(&file, changed).unwrap();
    hangup(&server);
    server.says("configuration reloaded", 2).await;
    other.is_asked(1).await;
    server.lets_in(&other_key.token(&claims("ann", json!({})))).await;
    assert_eq!(server.status(&token).await, 401);
}

fn hangup(server: &Server) {
    let pid = rustix::process::Pid::from_child(&server.program.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
}

/// T16: with `tenant_claim` a token is of the tenant that it names, and sees nothing of another; one that names none is
/// refused.
#[tokio::test]
async fn a_token_names_its_tenant() {
    let key = SigningKey::p256("a");
    let provider = Provider::with(published(&[&key])).await;
    let folder = folder(&provider, "");
    let config = folder.path().join("standfast.yaml");
    let text =
        std::fs::read_to_string(&config).unwrap().replace("skew: 5s", "skew: 5s, tenant_claim: /org/id");
    std::fs::write(&config, text).unwrap();
    let server = serve(folder, &[]);
    let of = |tenant: Value| key.token(&claims("ann", json!({"org": {"id": tenant}})));
    let (acme, other) = (of(json!("acme")), of(json!("other")));
    server.lets_in(&acme).await;
    let (status, run) = server.post(&acme, "/api/v1/agents/ops/runs", json!({"input": "go"})).await;
    assert_eq!(status, 201, "{run}");
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    assert_eq!(server.get(&acme, &path).send().await.unwrap().status(), 200);
    assert_eq!(
        server.get(&other, &path).send().await.unwrap().status(),
        404,
        "the same user of another tenant"
    );
    for token in [of(json!(null)), of(json!("")), key.token(&claims("ann", json!({})))] {
        assert_eq!(server.status(&token).await, 401);
    }
}

/// Whoever leaves a group hears no more as soon as a newer token says so, and a subscription ends with the latest token of
/// its owner; the reason is there to be seen. A newer token makes it good again.
#[tokio::test]
async fn a_subscription_goes_by_the_latest_token() {
    let key = SigningKey::p256("a");
    let provider = Provider::with(published(&[&key])).await;
    let folder = folder(&provider, "");
    let config = folder.path().join("standfast.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text
        .replace("server: {auth:", "server: {webhooks: {allowed_hosts: ['127.0.0.1'], timeout: 2s}, auth:");
    std::fs::write(&config, text).unwrap();
    let server = serve(folder, &[]);
    let receiver = Receiver::new(Mood::Takes).await;
    let now = Clock::system().now().0 / 1000;
    let ann = key.token(&claims("ann", json!({})));
    let bob = |groups: Value, more: Value| {
        let mut all = claims("bob", json!({"groups": groups}));
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        key.token(&all)
    };
    let first = bob(json!(["finance"]), json!({"iat": now - 20}));
    server.lets_in(&first).await;
    let body = json!({"url": receiver.url(), "agent": "ops", "events": ["*"]});
    let (status, made) = server.post(&first, "/api/v1/subscriptions", body).await;
    assert_eq!(status, 201, "{made}");
    let subscription = format!("/api/v1/subscriptions/{}", made["id"].as_str().unwrap());
    let run = async || {
        let body = json!({"input": "go", "wait": "settled"});
        let (status, run) = server.post(&ann, "/api/v1/agents/ops/runs", body).await;
        assert_eq!(status, 201, "{run}");
        run["id"].as_str().unwrap().to_owned()
    };
    let about = |got: &Got, run: &str| got.body()["data"]["run"]["id"] == run;
    let disabled = async |token: &str, why: &str| {
        for _ in 0..600 {
            let shown = server.get(token, &subscription).send().await.unwrap().text().await.unwrap();
            if shown.contains("\"disabled\"") {
                assert!(shown.contains(why), "{shown}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("never disabled; the log: {}", server.log());
    };
    let known = run().await;
    receiver.until("the first run", |got| got.iter().any(|one| about(one, &known))).await;
    // The older token is still good at the door, and no longer what counts for what was subscribed.
    let later = bob(json!([]), json!({"iat": now - 10}));
    server.lets_in(&later).await;
    server.lets_in(&first).await;
    let unheard = run().await;
    disabled(&later, "no longer an approver of agent ops").await;
    assert!(!receiver.all().iter().any(|one| about(one, &unheard)));
    let short = bob(json!(["finance"]), json!({"iat": now - 5, "exp": Clock::system().now().0 / 1000 + 3}));
    let (status, shown) = server.post(&short, &format!("{}/enable", &subscription), json!({})).await;
    assert_eq!(status, 200, "{shown}");
    let heard = run().await;
    receiver.until("a run after it was enabled", |got| got.iter().any(|one| about(one, &heard))).await;
    for _ in 0..300 {
        if server.status(&short).await == 401 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let unheard = run().await;
    disabled(&later, "has expired").await;
    assert!(!receiver.all().iter().any(|one| about(one, &unheard)));
}
