//! Rooms of chats with the real program, against Slack's, Discord's and Microsoft's own packages (T5, T8, T10, T13, T19, T20, T29).
//!
//! `slack.py` and `discord.py` stand in for the two services, `sign.py` and `judge.js` ask their makers' packages. `slack.rs` is the path
//! from a message to a decision, `socket.rs` the same over a socket, `direct.rs` messages to people, `life.rs` a hold from its opening to its
//! end, `quiet.rs` hours, `outbox.rs` what happens when Slack is away, `vectors.rs` signatures, `discord.rs` and `rooms.rs` the others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod direct;
mod discord;
mod late;
mod life;
mod outbox;
mod page;
mod quiet;
mod rooms;
mod slack;
mod socket;
mod vectors;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use standfast_testkit::binary::{repository_root, target_folder};
use standfast_testkit::wait::now_ms;
use standfast_testkit::{Answer, Http, Process, folder, free_port, standfast, start, text, until_found};
use tempfile::TempDir;

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo <!channel> canary-argument\"}'\n- text: done\n";

const SECRET: &str = "canary-signing-secret-of-slack";
const TEAM: &str = "T0WORKSPACE";

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn here(file: &str) -> PathBuf {
    repository_root().join("crates/e2e/tests/outside/chats").join(file)
}

fn python(script: &str) -> Command {
    let mut command = Command::new(target_folder().join("chat-clients/bin/python"));
    command.arg(here(script));
    command
}

/// What a program answers to this.
fn asked(mut command: Command, input: &Value) -> Value {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{input}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// What the packages for JavaScript say.
fn judged(input: &Value) -> Value {
    let mut command = Command::new("node");
    command.arg(here("judge.js"));
    asked(command, input)
}

/// What Slack's package for Python says of requests.
fn slack_says(requests: &Value, now: i64) -> Value {
    let mut command = python("sign.py");
    command.arg(now.to_string());
    asked(command, requests)
}

fn now() -> i64 {
    now_ms() / 1000
}

/// A service that is stood in for; dropping it ends it.
struct Service {
    child: Child,
    port: u16,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    fn start(script: &str, folder: &Path) -> Service {
        let mut child = python(script).arg(folder).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("{script} did not start: {line:?}"));
        Service { child, port }
    }

    fn api(&self) -> String {
        format!("http://127.0.0.1:{}/api", self.port)
    }

    async fn state(&self) -> Value {
        Http::new(&format!("http://127.0.0.1:{}", self.port)).get("/state").await.body
    }

    /// What is there once this is found in it.
    async fn until<T>(&self, what: &str, find: impl Fn(&Value) -> Option<T>) -> T {
        until_found(what, async || find(&self.state().await)).await
    }

    /// The message with this number, once it is as wanted.
    async fn message(&self, no: usize, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let find = |state: &Value| state["messages"].get(no).filter(|one| is_wanted(one)).cloned();
        self.until(&format!("message {no} is there"), find).await
    }
}

/// A server with one channel, and people who sign in with keys.
struct Site {
    folder: TempDir,
    server: Option<Process>,
    base: String,
    root: Http,
}

/// What the agent says of its holds.
const TASK: &str = "{input_timeout: 2h}";

impl Site {
    /// The folder of a server that is not started yet, so that its services can be in it.
    fn folder(script: &str) -> TempDir {
        let folder = folder(&[("script", script)], "");
        std::fs::create_dir(folder.path().join("workspace")).unwrap();
        folder
    }

    fn new(folder: TempDir, channels: &str, task: &str) -> Site {
        let port = free_port();
        let rest = format!(
            "server:
  public_url: http://127.0.0.1:{port}
  auth: {{api_keys: true}}
  webhooks: {{retries: [1s, 1s, 1s]}}
people:
  alice: {{groups: [ops]}}
  bob: {{}}
channels: {channels}
tools: {{execute_command: {{sandbox: off}}}}
session_stores: {{db: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents: {{ops: {{llm: script, session_store: db, approvers: ['group:ops'], tools: [execute_command], task: {task}}}}}
"
        );
        Site::configured(folder, port, &rest)
    }

    /// With all that its file says beside its scripts.
    fn configured(folder: TempDir, port: u16, rest: &str) -> Site {
        let config = folder.path().join("standfast.yaml");
        let llms = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{llms}{rest}")).unwrap();
        let root = key(folder.path(), &["--user", "root", "--scope", "admin"]);
        let server = serve(folder.path(), port);
        let base = server.base.clone();
        let root = Http::new(&base).with_key(&root);
        Site { folder, server: Some(server), base, root }
    }

    /// A key of somebody.
    fn http(&self, arguments: &[&str]) -> Http {
        Http::new(&self.base).with_key(&key(self.folder.path(), arguments))
    }

    /// A run that waits, and its hold.
    async fn held(&self) -> (String, String) {
        let started = json!({"input": "please", "wait": "settled"});
        let run = self.root.post("/api/v1/agents/ops/runs", &started).await.body;
        assert_eq!(run["status"], "held", "{run}");
        (text(&run["id"]).to_owned(), text(&run["holds"][0]["id"]).to_owned())
    }

    async fn status(&self, run: &str) -> String {
        let run = self.root.get(&format!("/api/v1/runs/{run}")).await.body;
        text(&run["status"]).to_owned()
    }

    async fn until_status(&self, run: &str, wanted: &str) {
        let is_so = async || (self.status(run).await == wanted).then_some(());
        until_found(&format!("the run is {wanted}"), is_so).await;
    }

    async fn starts(&self, run: &str) -> usize {
        let events = self.root.get(&format!("/api/v1/runs/{run}/events")).await.text;
        events.matches("call.started").count()
    }

    /// Dies as by `kill -9`, and comes again.
    fn again(&mut self) {
        drop(self.server.take());
        let port = self.base.rsplit(':').next().unwrap().parse().unwrap();
        self.server = Some(serve(self.folder.path(), port));
        // The connections of before ended with it.
        self.root = Http { key: self.root.key.clone(), ..Http::new(&self.base) };
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn has_stored(&self, text: &str) -> bool {
        ["kept.db", "kept.db-wal"].iter().any(|file| {
            let stored = std::fs::read(self.folder.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&stored).contains(text)
        })
    }
}

fn key(folder: &Path, arguments: &[&str]) -> String {
    let mut command = standfast();
    command.args(["keys", "create"]).args(arguments).arg("--config").arg(folder.join("standfast.yaml"));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn serve(folder: &Path, port: u16) -> Process {
    let mut command = standfast();
    command
        .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"])
        .arg(folder.join("standfast.yaml"));
    command.arg("--data").arg(folder.join("data")).env_remove("STANDFAST_KEY").env("RUST_LOG", "trace");
    let log = File::options().append(true).create(true).open(folder.join("log")).unwrap();
    start(command.stderr(log))
}

/// Signs in on our page that a link leads to, and says that the account is theirs.
async fn link(http: &Http, address: &str) -> Answer {
    let page = http.send("GET", address, &[HTML], "").await;
    assert_eq!(page.status, 200, "{}", page.text);
    let cookie = page.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let body = format!("csrf={}", page.field("csrf"));
    http.send("POST", address, &[FORM, HTML, ("cookie", &cookie)], &body).await
}

/// The address of a page in a sentence.
fn address_in(sentence: &str) -> String {
    let at = sentence.find("http://").unwrap_or_else(|| panic!("{sentence}"));
    sentence[at..].split_whitespace().next().unwrap().to_owned()
}

/// The channel of Slack that most tests have.
fn slack_channel(slack: &Service, rest: &str) -> String {
    format!(
        "[{{type: slack, room: C0APPROVALS, token: xoxb-canary-token, signing_secret: {SECRET}, team: {TEAM}, api_url: '{}'{rest}}}]",
        slack.api()
    )
}

/// A click as Slack sends it to an address.
fn click(team: &str, user: &str, button: &Value, at: &str) -> String {
    let payload = click_payload(team, user, button, at);
    let encoded: String = payload.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("payload={encoded}")
}

/// What it says of a click.
fn click_payload(team: &str, user: &str, button: &Value, at: &str) -> Value {
    json!({
        "type": "block_actions",
        "team": {"id": TEAM, "domain": "standfast"},
        "user": {"id": user, "username": "alice", "name": "alice", "team_id": team},
        "api_app_id": "A0APP",
        "token": "none",
        "container": {"type": "message", "message_ts": "1900000000.000100", "channel_id": "C0APPROVALS"},
        "trigger_id": "1.2.abc",
        "channel": {"id": "C0APPROVALS", "name": "approvals"},
        "response_url": "http://127.0.0.1:9/never",
        "actions": [{
            "type": "button",
            "block_id": "standfast",
            "action_id": button["action_id"],
            "value": button["value"],
            "action_ts": at,
        }],
    })
}

/// The signature that Slack's own package makes.
fn signed(secret: &str, at: &str, body: &str) -> String {
    let said = slack_says(&json!([{"secret": secret, "at": at, "body": body}]), now());
    text(&said[0]["signature"]).to_owned()
}

/// Sends a click with this time and signature.
async fn send_click(base: &str, body: &str, at: &str, signature: &str) -> Answer {
    let headers = [FORM, ("x-slack-request-timestamp", at), ("x-slack-signature", signature)];
    Http::new(base).send("POST", "/chat/slack/slack", &headers, body).await
}

/// Sends a click that Slack's package signed now.
async fn send_signed(base: &str, body: &str) -> Answer {
    let at = now().to_string();
    send_click(base, body, &at, &signed(SECRET, &at, body)).await
}

/// The buttons of a message of Slack.
fn buttons(message: &Value) -> Vec<Value> {
    let blocks = message["blocks"].as_array().unwrap();
    let all = blocks.iter().filter(|block| block["type"] == "actions");
    all.flat_map(|block| block["elements"].as_array().unwrap().clone()).collect()
}

fn button(message: &Value, id: &str) -> Value {
    let all = buttons(message);
    let found = all.iter().find(|one| one["action_id"] == id);
    found.unwrap_or_else(|| panic!("no {id}: {message}")).clone()
}
