//! Who may call the real binary, with real keys, while it runs.
//!
//! Keys are made and revoked beside the running server, as its operator would. The oracle of what ran is outside the
//! store: the demo's tool writes a line for each start.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use standfast_testkit::Process;
use tempfile::TempDir;

/// A running server; dropping it is `kill -9`.
struct Server {
    program: Process,
    data: TempDir,
    client: Client,
}

fn standfast(arguments: &[&str]) -> Command {
    let mut command = standfast_testkit::standfast();
    command.args(arguments).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    command
}

fn serve(more: &[&str]) -> Server {
    let data = tempfile::tempdir().unwrap();
    let program = spawn(data.path(), more);
    Server { program, data, client: Client::builder().no_proxy().build().unwrap() }
}

fn spawn(data: &Path, more: &[&str]) -> Process {
    let listen = if more.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] };
    let mut command = standfast(&["serve"]);
    standfast_testkit::start(command.args(listen).args(more).arg("--data").arg(data))
}

fn keys(data: &Path, arguments: &[&str]) -> Output {
    standfast(&["keys"]).args(arguments).arg("--data").arg(data).output().unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// The result of a request: status, the headers that matter, the body.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

async fn answer(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let headers = response.headers().iter().filter(|(name, _)| *name != "date" && *name != "x-request-id");
    let headers =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    Answer { status: response.status().as_u16(), headers, body: response.text().await.unwrap() }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Server {
    /// Kills it and starts it again with other arguments.
    fn restart(&mut self, more: &[&str]) {
        self.program.child.kill().unwrap();
        self.program.child.wait().unwrap();
        self.program = spawn(self.data.path(), more);
    }

    /// Makes a key while the server runs.
    fn key(&self, arguments: &[&str]) -> String {
        let made = keys(self.data.path(), &[&["create"], arguments].concat());
        let key = text(made.stdout).trim_end().to_owned();
        assert!(made.status.success() && key.starts_with("sf_") && !key.contains('\n'), "{key}");
        assert!(!text(made.stderr).contains(&key), "the key is shown in one place only");
        key
    }

    fn get(&self, key: &str, path: &str) -> RequestBuilder {
        let request =
            self.client.get(format!("{}{path}", self.program.base)).timeout(Duration::from_secs(30));
        if key.is_empty() { request } else { request.bearer_auth(key) }
    }

    fn post(&self, key: &str, path: &str, body: &str) -> RequestBuilder {
        let request =
            self.client.post(format!("{}{path}", self.program.base)).timeout(Duration::from_secs(30));
        let request = request.header("content-type", "application/json").body(body.to_owned());
        if key.is_empty() { request } else { request.bearer_auth(key) }
    }

    async fn status(&self, key: &str, path: &str) -> u16 {
        answer(self.get(key, path)).await.status
    }

    /// Starts a run and waits until it is held; its id and that of its hold.
    async fn held(&self, key: &str) -> (String, String) {
        let body = r#"{"input": "Free some space", "wait": "settled"}"#;
        let started = answer(self.post(key, "/api/v1/agents/ops/runs", body)).await;
        assert_eq!(started.status, 201, "{started:?}");
        let run = started.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&run["id"]), text(&run["holds"][0]["id"]))
    }

    async fn decide(&self, key: &str, hold: &str) -> Answer {
        answer(self.post(key, &format!("/api/v1/holds/{hold}/resolve"), r#"{"resolution": "approve"}"#)).await
    }

    async fn listed(&self, key: &str) -> Vec<String> {
        let list = answer(self.get(key, "/api/v1/holds")).await.json();
        list["holds"].as_array().unwrap().iter().map(|hold| hold["id"].as_str().unwrap().to_owned()).collect()
    }

    async fn completes(&self, key: &str, run: &str) {
        for _ in 0..400 {
            if answer(self.get(key, &format!("/api/v1/runs/{run}"))).await.json()["status"] == "completed" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{run} did not complete");
    }

    fn effects(&self) -> usize {
        let log = std::fs::read_to_string(self.data.path().join("demo-effects.log"));
        log.unwrap_or_default().lines().count()
    }
}

/// S1-14: without a valid key there is nothing but the health of the server, and one answer.
#[tokio::test]
async fn every_request_needs_a_valid_key() {
    let server = serve(&["--auth", "keys"]);
    let key = server.key(&["--user", "ann", "--expires", "30d"]);
    let other = serve(&["--auth", "keys"]);
    let foreign = other.key(&["--user", "ann"]);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.status("", path).await, 200, "{path}");
    }
    assert_eq!(server.status(&key, "/api/v1/agents").await, 200);
    let nobody = answer(server.get("", "/api/v1/holds")).await;
    assert_eq!((nobody.status, &nobody.json()["type"]), (401, &json!("urn:standfast:problem:unauthorized")));
    assert!(nobody.headers.contains(&("www-authenticate".into(), "Bearer".into())), "{nobody:?}");
    let expired = server.key(&["--user", "ann", "--expires", "1m"]);
    let at = server.data.path().join("standfast.db");
    let database = rusqlite::Connection::open(at).unwrap();
    let prefix = expired.split('_').nth(1).unwrap();
    let changed =
        database.execute("UPDATE credentials SET expires_at = 5 WHERE prefix = ?1", [prefix]).unwrap();
    assert_eq!(changed, 1);
    let revoked = server.key(&["--user", "ann"]);
    assert!(keys(server.data.path(), &["revoke", &revoked]).status.success());
    for bad in [&foreign, &expired, &revoked, "sf_0_0", "x", &key[1..], &key.to_uppercase()] {
        assert_eq!(answer(server.get(bad, "/api/v1/holds")).await, nobody, "{bad}");
    }
    // Also where there is nothing, and also for what would change something.
    assert_eq!(answer(server.get("", "/api/v1/nothing")).await, nobody);
    assert_eq!(answer(server.post("", "/api/v1/agents/ops/runs", r#"{"input": "x"}"#)).await, nobody);
    let twice = server.get(&key, "/api/v1/holds").bearer_auth(&key);
    assert_eq!(answer(twice).await, nobody);
    assert_eq!(server.effects(), 0);
}

/// A key works as soon as it is made and stops as soon as it is revoked, while the server runs and writes.
#[tokio::test]
async fn keys_come_and_go_while_the_server_runs() {
    let server = serve(&["--auth", "keys"]);
    let first = server.key(&["--user", "ann", "--name", "laptop", "--group", "finance"]);
    for _ in 0..5 {
        let (run, hold) = server.held(&first).await;
        let second = server.key(&["--user", "ann", "--scope", "holds:decide", "--scope", "runs:read"]);
        assert_eq!(server.decide(&second, &hold).await.status, 200);
        let prefix = second.split('_').nth(1).unwrap();
        assert!(keys(server.data.path(), &["revoke", prefix]).status.success());
        assert_eq!(server.status(&second, "/api/v1/holds").await, 401);
        server.completes(&first, &run).await;
    }
    let list: Value = serde_json::from_slice(&keys(server.data.path(), &["list", "--json"]).stdout).unwrap();
    let states: Vec<&str> =
        list["keys"].as_array().unwrap().iter().map(|key| key["state"].as_str().unwrap()).collect();
    assert_eq!((states.len(), states.iter().filter(|state| **state == "revoked").count()), (6, 5));
    let shown = text(keys(server.data.path(), &["list"]).stdout);
    assert!(shown.contains("laptop") && shown.contains("finance"), "{shown}");
    let unknown = keys(server.data.path(), &["revoke", "00000000"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", text(unknown.stderr));

    // The secret is nowhere: not in the lists, not in the files of the data directory.
    let secret = first.rsplit('_').next().unwrap();
    assert!(!shown.contains(secret) && !list.to_string().contains(secret));
    let mut entries: Vec<_> = std::fs::read_dir(server.data.path()).unwrap().collect();
    while let Some(entry) = entries.pop() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            entries.extend(std::fs::read_dir(path).unwrap());
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
}

/// T9: a key is followed by one for the same things, and both are valid for a while.
#[tokio::test]
async fn a_key_is_rotated_with_an_overlap() {
    let server = serve(&["--auth", "keys"]);
    let made = |arguments: &[&str]| {
        let done = keys(server.data.path(), arguments);
        assert!(done.status.success(), "{}", text(done.stderr));
        text(done.stdout).trim().to_owned()
    };
    let old = made(&["create", "--user", "ann", "--group", "finance", "--scope", "runs:read"]);
    let new = made(&["rotate", &old, "--overlap", "1h"]);
    for key in [&old, &new] {
        assert_eq!(server.status(key, "/api/v1/runs").await, 200);
        assert_eq!(server.status(key, "/api/v1/sessions").await, 200);
    }
    let listed: Value = serde_json::from_str(&made(&["list", "--json"])).unwrap();
    let prefix = |key: &str| key.split('_').nth(1).unwrap().to_owned();
    let find = |key: &str| {
        let all = listed["keys"].as_array().unwrap();
        all.iter().find(|one| one["prefix"] == prefix(key).as_str()).unwrap().clone()
    };
    let (before, after) = (find(&old), find(&new));
    assert_eq!((&before["state"], &after["state"]), (&json!("valid"), &json!("valid")));
    assert!(before["expires_at"].is_string() && after["expires_at"].is_null(), "{listed}");
    for same in ["user", "groups", "roles", "scopes", "inboxes"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    // A longer overlap does not lengthen what has an end; a key that has ended is followed by none.
    made(&["rotate", &old, "--overlap", "30d"]);
    let again: Value = serde_json::from_str(&made(&["list", "--json"])).unwrap();
    let found = again["keys"].as_array().unwrap().iter().find(|one| one["prefix"] == prefix(&old).as_str());
    assert_eq!(found.unwrap()["expires_at"], before["expires_at"]);
    made(&["revoke", &old]);
    let refused = keys(server.data.path(), &["rotate", &old]);
    assert!(!refused.status.success() && text(refused.stderr).contains("is revoked"));
    assert_eq!(server.status(&old, "/api/v1/runs").await, 401);
    assert_eq!(server.status(&new, "/api/v1/runs").await, 200);
}

/// A key is for what its scopes say; a no names the scope.
#[tokio::test]
async fn a_key_is_for_what_its_scopes_say() {
    let server = serve(&["--auth", "keys"]);
    let all = server.key(&["--user", "ann"]);
    let (run, hold) = server.held(&all).await;
    let start = || ("/api/v1/agents/ops/runs".to_owned(), r#"{"input": "x"}"#);
    let cancel = || (format!("/api/v1/runs/{run}/cancel"), "{}");
    let say = || (format!("/api/v1/runs/{run}/messages"), r#"{"input": "x"}"#);
    let resolve = || (format!("/api/v1/holds/{hold}/resolve"), r#"{"resolution": "approve"}"#);
    let refused = |missing: &'static str| {
        move |answered: Answer| {
            let body = answered.json();
            assert_eq!((answered.status, &body["scope"]), (403, &json!(missing)), "{body}");
            assert!(body["detail"].as_str().unwrap().contains(missing));
        }
    };
    let only = |scope: &str| server.key(&["--user", "ann", "--scope", scope]);
    let (reads, writes, decides) = (only("runs:read"), only("runs:write"), only("holds:decide"));
    for (path, body) in [start(), cancel(), say()] {
        refused("runs:write")(answer(server.post(&reads, &path, body)).await);
        refused("runs:write")(answer(server.post(&decides, &path, body)).await);
    }
    let (path, body) = resolve();
    refused("holds:decide")(answer(server.post(&reads, &path, body)).await);
    refused("holds:decide")(answer(server.post(&writes, &path, body)).await);
    for path in
        ["/api/v1/agents", "/api/v1/runs", "/api/v1/holds", "/api/v1/nothing", &format!("/api/v1/runs/{run}")]
    {
        refused("runs:read")(answer(server.get(&writes, path)).await);
        refused("runs:read")(answer(server.get(&decides, path)).await);
    }
    assert_eq!(server.effects(), 0);
    assert_eq!(server.status(&reads, &format!("/api/v1/runs/{run}")).await, 200);
    assert_eq!(server.decide(&decides, &hold).await.status, 200);
    server.completes(&all, &run).await;
    assert_eq!(server.effects(), 1);
}

/// C24, T12, T15, S1-17 (as C12 decided it): those named decide, by name, group or role; with four eyes the owner does not; for everyone else the
/// run does not exist, byte for byte like one that never did.
#[tokio::test]
async fn approvers_decide_and_others_see_nothing() {
    let server = serve(&[
        "--auth",
        "keys",
        "--approver",
        "group:finance",
        "--approver",
        "role:lead",
        "--approver",
        "user:zoe",
        "--forbid-self-approval",
    ]);
    let owner = server.key(&["--user", "ann", "--group", "finance"]);
    let stranger = server.key(&["--user", "eve", "--group", "sales", "--role", "finance"]);
    let admin = server.key(&["--user", "root", "--scope", "admin"]);
    for approver in [
        ["--user", "bob", "--group", "finance"],
        ["--user", "cy", "--role", "lead"],
        ["--user", "zoe", "--name", "z"],
    ] {
        let key = server.key(&approver);
        let (run, hold) = server.held(&owner).await;
        assert_eq!(server.listed(&owner).await, std::slice::from_ref(&hold));
        assert_eq!(server.listed(&admin).await, std::slice::from_ref(&hold));
        for may_not in [&owner, &admin] {
            let refused = server.decide(may_not, &hold).await;
            assert_eq!(
                (refused.status, &refused.json()["type"]),
                (403, &json!("urn:standfast:problem:not-allowed"))
            );
        }
        assert_eq!(server.listed(&stranger).await, Vec::<String>::new());
        assert_eq!(answer(server.get(&stranger, "/api/v1/runs")).await.json()["runs"], json!([]));
        let unknown_run = run.replace(&run[run.len() - 6..], "000000");
        let unknown_hold = hold.replace(&run, &unknown_run);
        assert_ne!((&unknown_run, &unknown_hold), (&run, &hold));
        for (path, nothing) in [
            (format!("/api/v1/runs/{run}"), format!("/api/v1/runs/{unknown_run}")),
            (format!("/api/v1/runs/{run}/events"), format!("/api/v1/runs/{unknown_run}/events")),
            (format!("/api/v1/holds/{hold}"), format!("/api/v1/holds/{unknown_hold}")),
            (format!("/api/v1/holds/{hold}/receipt"), format!("/api/v1/holds/{unknown_hold}/receipt")),
        ] {
            let foreign = answer(server.get(&stranger, &path)).await;
            assert_eq!(foreign.status, 404);
            assert_eq!(foreign, answer(server.get(&stranger, &nothing)).await, "{path}");
        }
        for (path, body) in [("cancel", "{}"), ("messages", r#"{"input": "x"}"#)] {
            let [foreign, nothing] = [&run, &unknown_run].map(|id| format!("/api/v1/runs/{id}/{path}"));
            let foreign = answer(server.post(&stranger, &foreign, body)).await;
            assert_eq!(foreign.status, 404);
            assert_eq!(foreign, answer(server.post(&stranger, &nothing, body)).await, "{path}");
        }
        assert_eq!(server.decide(&stranger, &hold).await, server.decide(&stranger, &unknown_hold).await);

        assert_eq!(server.listed(&key).await, std::slice::from_ref(&hold));
        assert_eq!(server.status(&key, &format!("/api/v1/holds/{hold}")).await, 200);
        let decided = server.decide(&key, &hold).await;
        assert_eq!(decided.status, 200, "{decided:?}");
        let by = format!("person:{}", approver[1]);
        assert_eq!(decided.json()["hold"]["decided"]["by"], json!(by));
        server.completes(&owner, &run).await;
    }
    assert_eq!(server.effects(), 3);
}

/// C24: who may decide a hold says who is asked, and lets somebody stand in for a while; that one sees the run, decides it, and
/// the receipt says in whose place.
#[tokio::test]
async fn a_hold_is_taken_assigned_and_delegated() {
    let server = serve(&["--auth", "keys", "--approver", "user:bob"]);
    let [owner, bob, dora] = ["ann", "bob", "dora"].map(|name| server.key(&["--user", name]));
    let (run, hold) = server.held(&owner).await;
    let send = async |key: &str, what: &str, body: &str| {
        answer(server.post(key, &format!("/api/v1/holds/{hold}/{what}"), body)).await
    };
    let taken = send(&bob, "take", "").await;
    assert_eq!((taken.status, &taken.json()["outcome"]), (200, &json!("changed")), "{taken:?}");
    assert_eq!(taken.json()["hold"]["assignee"], json!("bob"));
    assert_eq!(send(&bob, "release", "{}").await.json()["hold"]["assignee"], Value::Null);
    let late = send(&bob, "assign", r#"{"to": "cy", "until": "2020-01-01T00:00:00Z"}"#).await;
    assert_eq!((late.status, &late.json()["type"]), (409, &json!("urn:standfast:problem:past-end")));
    assert_eq!(send(&bob, "assign", r#"{"to": "cy", "until": "soon"}"#).await.status, 422);
    assert_eq!(send(&bob, "reopen", "{}").await.json()["type"], json!("urn:standfast:problem:not-expired"));

    let path = format!("/api/v1/holds/{hold}");
    let until = r#"{"to": "dora", "until": "2100-01-01T00:00:00Z"}"#;
    assert_eq!(server.status(&dora, &path).await, 404);
    assert_eq!(
        (send(&dora, "delegate", until).await.status, send(&owner, "delegate", until).await.status),
        (404, 403)
    );
    assert_eq!(send(&bob, "delegate", until).await.status, 200);
    assert_eq!(server.listed(&dora).await, std::slice::from_ref(&hold));
    let shown = answer(server.get(&dora, &path)).await.json();
    assert_eq!((&shown["may_decide"], &shown["delegations"][0]["by"]), (&json!(true), &json!("bob")));
    assert_eq!(server.decide(&dora, &hold).await.status, 200);
    server.completes(&owner, &run).await;
    let receipt = answer(server.get(&dora, &format!("{path}/receipt"))).await.json();
    let decision = &receipt["receipt"]["decision"];
    assert_eq!(
        (&decision["role"], &decision["in_place_of"]),
        (&json!("delegate"), &json!("bob")),
        "{receipt}"
    );
    assert_eq!(server.effects(), 1);
}

/// F30, T13: who may see and decide is always a matter of now, also for what was opened before.
#[tokio::test]
async fn an_approver_who_is_taken_off_the_list_sees_nothing_any_more() {
    let mut server = serve(&["--auth", "keys", "--approver", "user:bob"]);
    let (owner, bob, cy) =
        (server.key(&["--user", "ann"]), server.key(&["--user", "bob"]), server.key(&["--user", "cy"]));
    let (_, hold) = server.held(&owner).await;
    let path = format!("/api/v1/holds/{hold}");
    assert_eq!(server.listed(&bob).await, std::slice::from_ref(&hold));
    assert_eq!((server.status(&bob, &path).await, server.status(&cy, &path).await), (200, 404));

    server.restart(&["--auth", "keys", "--approver", "user:cy"]);
    assert_eq!(server.listed(&bob).await, Vec::<String>::new());
    assert_eq!((server.status(&bob, &path).await, server.status(&cy, &path).await), (404, 200));
    assert_eq!(server.decide(&bob, &hold).await.status, 404);
    assert_eq!(server.listed(&owner).await, std::slice::from_ref(&hold));
    assert_eq!(server.decide(&cy, &hold).await.status, 200);
}

/// RFC 9110, 11.6.1: every surface names the scheme once, whatever the form of its errors.
#[tokio::test]
async fn every_surface_sends_one_challenge() {
    let server = serve(&["--auth", "keys"]);
    let rpc = r#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "run_x"}}"#;
    for request in [
        server.get("", "/api/v1/holds"),
        server.get("", "/v1/agents/ops/tasks/run_x"),
        server.post("", "/", rpc),
        server.post("", "/v1/agents/ops", rpc),
        server.get("", "/async-tool/calls"),
        server.get("", "/no-such-path"),
    ] {
        let refused = answer(request).await;
        let challenges = refused.headers.iter().filter(|(name, _)| name == "www-authenticate").count();
        assert_eq!((refused.status, challenges), (401, 1), "{refused:?}");
    }
}

/// The help names every scope, and the default that the server goes by.
#[test]
fn the_help_names_every_scope() {
    let help = text(standfast(&["keys", "create", "--help"]).output().unwrap().stdout);
    let about = help.split_once("--scope").unwrap().1;
    let about = about.split_once("--expires").unwrap().0.split_whitespace().collect::<Vec<_>>().join(" ");
    for scope in ["runs:read", "runs:write", "holds:decide", "inbox:work", "metrics:read", "admin"] {
        assert!(about.contains(scope), "{scope} is missing: {about}");
    }
    assert!(about.contains("Default: runs:read, runs:write, holds:decide"), "{about}");
}

/// A browser is shown where to sign in, and no password box of its own; whoever sends the key as a password is let in.
#[tokio::test]
async fn a_key_can_be_sent_as_a_password() {
    let server = serve(&["--auth", "keys"]);
    let key = server.key(&["--user", "ann"]);
    let url = format!("{}/api/v1/holds", server.program.base);
    let page =
        answer(server.client.get(format!("{}/runs", server.program.base)).header("accept", "text/html,*/*"))
            .await;
    let challenges: Vec<&str> = page
        .headers
        .iter()
        .filter(|(name, _)| name == "www-authenticate")
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!((page.status, challenges), (401, vec!["Bearer"]));
    for user in ["ann", "", "whoever"] {
        assert_eq!(answer(server.client.get(&url).basic_auth(user, Some(&key))).await.status, 200, "{user}");
    }
    assert_eq!(answer(server.client.get(&url).basic_auth(&key, Some(""))).await.status, 401);
    // A page elsewhere cannot use what the browser remembers (T21).
    let path = "/api/v1/agents/ops/runs";
    let forged = server.post(&key, path, r#"{"input": "x"}"#).header("origin", "https://evil.example");
    assert_eq!(answer(forged).await.status, 403);
}

/// The commands take the key from the environment or from an argument.
#[tokio::test]
async fn the_commands_send_the_key() {
    let server = serve(&["--auth", "keys"]);
    let key = server.key(&["--user", "ann"]);
    let runs = || standfast(&["runs", "--server", &server.program.base]);
    let without = runs().output().unwrap();
    let said = text(without.stderr);
    assert_eq!((without.status.code(), said.contains("STANDFAST_KEY")), (Some(1), true), "{said}");
    let (mut by_environment, mut by_argument) = (runs(), runs());
    by_environment.env("STANDFAST_KEY", &key);
    by_argument.args(["--key", &key]);
    for mut command in [by_environment, by_argument] {
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), text(output.stdout)), (Some(0), "no runs\n".into()));
    }
    let help = standfast(&["runs", "--help"]).env("STANDFAST_KEY", &key).output().unwrap();
    assert!(!text(help.stdout).contains(&key));
}

/// Beyond this machine nobody is let in without a key, unless a flag insists.
#[tokio::test]
async fn listening_elsewhere_needs_keys_or_a_flag() {
    let data = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["--listen", "0.0.0.0:0"][..], "refusing to listen on 0.0.0.0:0"),
        (&["--listen", "[::]:0", "--auth", "local"], "refusing to listen on [::]:0"),
        (&["--host", "approve.example"], "--auth keys"),
        (&["--auth", "keys", "--host", "https://approve.example"], "the name alone"),
        (&["--approver", "bob"], "user:NAME"),
    ] {
        let mut command = standfast(&["serve"]);
        let output = command.args(arguments).arg("--data").arg(data.path()).output().unwrap();
        let said = text(output.stderr);
        assert_eq!((output.status.code(), said.contains(expected)), (Some(2), true), "{said}");
    }

    let here = |server: &Server| server.program.base.replace("0.0.0.0", "127.0.0.1") + "/api/v1/holds";
    let keyed = serve(&["--listen", "0.0.0.0:0", "--auth", "keys", "--host", "approve.example"]);
    let key = keyed.key(&["--user", "ann"]);
    for (host, status) in
        [("approve.example", 200), ("APPROVE.example:443", 200), ("192.0.2.7", 200), ("evil.example", 421)]
    {
        let request = keyed.client.get(here(&keyed)).bearer_auth(&key).header("host", host);
        assert_eq!(answer(request).await.status, status, "{host}");
    }

    let open = serve(&["--listen", "0.0.0.0:0", "--allow-unauthenticated"]);
    assert_eq!(answer(open.client.get(here(&open))).await.status, 200);
}

/// T37: wrong keys from one address are answered with 429 after a while, on pages and on the API. A valid key is never
/// concerned, also one that was not shown before, and whoever shows nothing is only asked who they are.
#[tokio::test]
async fn t37_wrong_keys_are_throttled_and_valid_ones_never() {
    let server = serve(&["--auth", "keys"]);
    let (known, unused) = (server.key(&["--user", "alice"]), server.key(&["--user", "bob"]));
    let page = |password: &str| {
        let request = server.client.get(format!("{}/", server.program.base)).header("accept", "text/html");
        request.basic_auth("anyone", Some(password)).send()
    };
    let wrong = format!("sf_{}", "x".repeat(60));
    assert_eq!(page(&wrong).await.unwrap().status(), 401);
    assert_eq!(page(&known).await.unwrap().status(), 200);
    let mut refused = None;
    for _ in 0..60 {
        let response = page(&wrong).await.unwrap();
        if response.status() == 429 {
            refused = Some(response);
            break;
        }
        assert_eq!(response.status(), 401);
    }
    let refused = refused.unwrap();
    let seconds: u32 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert!(refused.text().await.unwrap().contains("Too many failed attempts"));
    let api =
        |key: &str| server.client.get(format!("{}/api/v1/runs", server.program.base)).bearer_auth(key).send();
    assert_eq!(api(&wrong).await.unwrap().status(), 429);
    for key in [&known, &unused, &server.key(&["--user", "carol"])] {
        assert_eq!(page(key).await.unwrap().status(), 200, "a valid key is let in");
        assert_eq!(api(key).await.unwrap().status(), 200);
    }
    assert_eq!(
        api(&wrong).await.unwrap().status(),
        429,
        "a valid key of others changes nothing for a wrong one"
    );
    let nothing = server.client.get(format!("{}/api/v1/runs", server.program.base));
    assert_eq!(nothing.send().await.unwrap().status(), 401);
    let up = server.client.get(format!("{}/healthz", server.program.base));
    assert_eq!(up.send().await.unwrap().status(), 200);
}

/// T37: behind a proxy that the configuration trusts failures count for the client that the proxy names, and a client that
/// names others itself is counted all the same. Guesses at one key count together wherever they come from; the key itself
/// still opens.
#[tokio::test]
async fn failures_count_for_the_client_behind_a_trusted_proxy() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("standfast.yaml");
    let script = data.path().join("script.yaml");
    std::fs::write(&script, "replies: [{text: done}]\n").unwrap();
    let text = "llms: {script: {type: scripted, script: script.yaml}}\nagents: {ops: {llm: script, task: {}}}\n\
                server: {auth: {api_keys: true}, trusted_proxies: [127.0.0.0/8]}\n";
    std::fs::write(&config, text).unwrap();
    let program = spawn(data.path(), &["--config", config.to_str().unwrap()]);
    let server = Server { program, data, client: Client::builder().no_proxy().build().unwrap() };
    let ask = async |forwarded: &str, key: &str| {
        let request = server.client.get(format!("{}/api/v1/runs", server.program.base)).bearer_auth(key);
        request.header("x-forwarded-for", forwarded).send().await.unwrap().status().as_u16()
    };
    let wrong = format!("sf_{}", "x".repeat(60));
    for n in 0..20 {
        assert_eq!(ask(&format!("203.0.113.{n}, 198.51.100.1"), &wrong).await, 401);
    }
    assert_eq!(
        ask("198.51.100.7, 198.51.100.1", &wrong).await,
        429,
        "what stands further left is the client's word"
    );
    assert_eq!(ask("198.51.100.2", &wrong).await, 401, "another client");
    let key = server.key(&["--user", "alice"]);
    // The same prefix with another secret, and the check that fits it, from many clients.
    let prefix = key.split('_').nth(1).unwrap();
    let forged = |n: u8| standfast_engine::auth::ApiKey::new([n; standfast_engine::auth::KEY_BYTES]).reveal();
    let mut seen = Vec::new();
    for n in 0..25 {
        let other = server.client.get(format!("{}/api/v1/runs", server.program.base)).bearer_auth(forged(1));
        let client = format!("192.0.2.{n}");
        seen.push(other.header("x-forwarded-for", client).send().await.unwrap().status().as_u16());
    }
    assert_eq!((&seen[..20], &seen[20..]), (&[401; 20][..], &[429; 5][..]));
    assert!(!forged(1).contains(prefix));
    assert_eq!(ask("192.0.2.1", &key).await, 200);
}

/// Somebody who is taken off the list of approvers while they listen hears no more of a run from the next news on.
#[tokio::test]
async fn a_stream_ends_when_its_reader_may_not_see_the_run_any_more() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("standfast.yaml");
    std::fs::write(
        data.path().join("script.yaml"),
        "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n",
    )
    .unwrap();
    let text = |approver: &str| {
        format!(
            "llms: {{script: {{type: scripted, script: script.yaml}}}}\n\
             tools: {{execute_command: {{approval_prompt: 'Run {{input}}?', allowed_commands: [echo]}}}}\n\
             agents: {{ops: {{llm: script, tools: [execute_command], task: {{}}, approvers: [owner, 'user:{approver}']}}}}\n\
             server: {{auth: {{api_keys: true}}}}\n"
        )
    };
    std::fs::write(&config, text("bob")).unwrap();
    let program = spawn(data.path(), &["--config", config.to_str().unwrap()]);
    let server = Server { program, data, client: Client::builder().no_proxy().build().unwrap() };
    let (ann, bob) = (server.key(&["--user", "ann"]), server.key(&["--user", "bob"]));
    let (run, hold) = server.held(&ann).await;
    let stream = server.client.get(format!("{}/api/v1/runs/{run}/events", server.program.base));
    let stream = stream.header("accept", "text/event-stream").bearer_auth(&bob).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    std::fs::write(&config, text("carol")).unwrap();
    let reloaded =
        Command::new("kill").args(["-HUP", &server.program.child.id().to_string()]).status().unwrap();
    assert!(reloaded.success());
    for _ in 0..600 {
        if server.status(&bob, &format!("/api/v1/runs/{run}")).await == 404 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.decide(&ann, &hold).await.status, 200);
    let whole = tokio::time::timeout(Duration::from_secs(60), stream.text()).await.unwrap().unwrap();
    assert!(whole.contains("hold.opened") && whole.contains("event: problem"), "{whole}");
    assert!(!whole.contains("hold.resolved") && !whole.contains("run.ended"), "{whole}");
}

/// A stream that was opened with a key ends soon after the key is revoked, and says why; others stay open.
#[tokio::test]
async fn a_stream_ends_when_its_key_is_revoked() {
    let server = serve(&["--auth", "keys"]);
    let (lost, kept) = (server.key(&["--user", "alice"]), server.key(&["--user", "alice"]));
    let (run, _) = server.held(&lost).await;
    let open = |key: &str| {
        let request = server.client.get(format!("{}/api/v1/runs/{run}/events", server.program.base));
        request.header("accept", "text/event-stream").bearer_auth(key).send()
    };
    let (lost_stream, mut kept_stream) = (open(&lost).await.unwrap(), open(&kept).await.unwrap());
    assert_eq!((lost_stream.status().as_u16(), kept_stream.status().as_u16()), (200, 200));
    let revoked = keys(server.data.path(), &["revoke", lost.split('_').nth(1).unwrap()]);
    assert!(revoked.status.success(), "{}", text(revoked.stderr));
    let whole = tokio::time::timeout(Duration::from_secs(60), lost_stream.text()).await.unwrap().unwrap();
    assert!(whole.contains("event: problem") && whole.contains("no longer valid"), "{whole}");
    // The other one has heard what there was, and goes on.
    assert!(kept_stream.chunk().await.unwrap().is_some());
    let canceled =
        server.client.post(format!("{}/api/v1/runs/{run}/cancel", server.program.base)).bearer_auth(&kept);
    let canceled = canceled.header("content-type", "application/json").body("{}").send().await.unwrap();
    assert_eq!(canceled.status(), 200);
    let hears = async {
        let mut heard = String::new();
        while !heard.contains("run.ended") {
            heard.push_str(&String::from_utf8_lossy(&kept_stream.chunk().await.unwrap().unwrap()));
        }
    };
    tokio::time::timeout(Duration::from_secs(60), hears).await.unwrap();
}
