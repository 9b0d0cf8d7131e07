//! T29: a secret in each place that can have one, and everything that the server leaves behind searched for all of them: database
//! with its journals, or a dump of Postgres, data directory, a log that says everything, events, audit, webhooks, answers, traces, and
//! what a crash leaves behind.
//!
//! Those whom it trusts with a secret say it back: a provider in its refusal, a server behind a gateway in its result. What a job is
//! given is in `crates/e2e/tests/protocols/async_tool/secrets.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::{Value, json};
use standfast_store::conformance::cluster::OwnServer;
use standfast_testkit::other_server::{self, OtherServer};
use standfast_testkit::provider::{Answer, Fake};
use standfast_testkit::receiver::{Mood, Receiver};
use standfast_testkit::{Http, Process, free_port, start, text, until_found};
use tempfile::TempDir;

/// Secrets of the configuration, which names them by variables: the file itself has none.
const CONFIGURED: [(&str, &str); 10] = [
    ("CANARY_MODEL", "canary-of-the-model-6f1d"),
    ("CANARY_GATEWAY", "canary-of-the-gateway-2b7c"),
    ("CANARY_WEBHOOKS", "canary-of-the-webhooks-9e04-that-is-long-enough"),
    ("CANARY_LINKS", "canary-of-the-links-51aa-that-is-long-enough"),
    ("CANARY_MAIL", "canary-of-the-mail-c3d8"),
    ("CANARY_TRACES", "canary-of-the-traces-77e2"),
    ("CANARY_OIDC", "canary-of-the-identity-provider-08fb"),
    ("CANARY_SLACK", "xoxb-canary-of-slack-41d9"),
    ("CANARY_CLICKS", "canary-of-the-clicks-d2a6"),
    ("CANARY_NTFY", "tk_canary-of-ntfy-5ce0"),
];

const SCRIPT: &str = "replies:
- calls: [{tool: execute_command, arguments: {command: echo hello}}]
- text: done
";

/// A server whose secrets are looked for.
struct Site {
    folder: TempDir,
    server: Process,
    /// Whoever administers it.
    http: Http,
    receiver: Receiver,
    /// What traces are sent to.
    collector: Receiver,
    /// What stands where chats are.
    chats: Receiver,
    key: String,
    _provider: Fake,
    _upstream: OtherServer,
}

/// A command of the program with the variables that its configuration names.
fn standfast(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = standfast_testkit::standfast();
    command.args(arguments).arg("--config").arg(folder.join("standfast.yaml"));
    command.envs(CONFIGURED).env_remove("STANDFAST_KEY");
    command
}

fn said_by(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

impl Site {
    async fn new(sql: &str) -> Site {
        let secret = |name: &str| CONFIGURED.into_iter().find(|(known, _)| *known == name).unwrap().1;
        let refusal =
            json!({"error": {"message": format!("Incorrect API key provided: {}", secret("CANARY_MODEL"))}});
        let provider = Fake::answering(vec![Answer::error("401 Unauthorized", "", &refusal.to_string())]);
        let echo = format!("you sent Bearer {}", secret("CANARY_GATEWAY"));
        let result =
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": echo}]}});
        let upstream =
            OtherServer::answering(vec![other_server::answer("200 OK", &result.to_string())]).await;
        let receiver = Receiver::new(Mood::Takes).await;
        let collector = Receiver::new(Mood::Takes).await;
        let chats = Receiver::new(Mood::Takes).await;
        let folder = tempfile::tempdir().unwrap();
        let (mail, traces, issuer) = (free_port(), collector.port, free_port());
        let api = format!("api_url: 'http://127.0.0.1:{}'", chats.port);
        let config = format!(
            "llms:
  script: {{type: scripted, script: script.yaml}}
  refuses: {{type: openai, model: m, api_key: '${{CANARY_MODEL}}', base_url: '{}'}}
server:
  auth:
    api_keys: true
    jwt: {{issuer: 'http://127.0.0.1:{issuer}', audience: standfast, sign_in: {{client_id: standfast, client_secret: '${{CANARY_OIDC}}'}}}}
  public_url: http://127.0.0.1:1
  webhooks: {{key: '${{CANARY_WEBHOOKS}}', allowed_hosts: ['127.0.0.1:{}']}}
  links: {{key: '${{CANARY_LINKS}}', sign_in: none, issue_by_admin: true}}
  traces: {{endpoint: 'http://127.0.0.1:{traces}', headers: {{authorization: 'Bearer ${{CANARY_TRACES}}'}}}}
people: {{alice: {{mail: alice@example.com}}}}
channels:
- {{type: mail, from: approvals@example.com, host: 127.0.0.1, port: {mail}, tls: off, user: standfast, password: '${{CANARY_MAIL}}'}}
- {{type: slack, room: C0CANARY, token: '${{CANARY_SLACK}}', signing_secret: '${{CANARY_CLICKS}}', team: T1, {api}}}
- {{type: ntfy, room: canary-topic, token: '${{CANARY_NTFY}}', {api}}}
gateways:
  web: {{url: 'http://127.0.0.1:{}/mcp', headers: {{Authorization: 'Bearer ${{CANARY_GATEWAY}}'}}}}
policy: {{rules: [{{id: gateway, allow: 'mcp__web__*', agent: gate}}]}}
tools: {{execute_command: {{sandbox: off}}}}
session_stores: {{main: {{backend: sql, sql: {{{sql}}}}}}}
agents:
  ops: {{llm: script, session_store: main, approvers: ['user:alice', 'user:root'], tools: [execute_command], task: {{}}}}
  talker: {{llm: refuses, session_store: main, task: {{}}}}
",
            provider.url, receiver.port, upstream.port
        );
        std::fs::write(folder.path().join("script.yaml"), SCRIPT).unwrap();
        std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
        std::fs::create_dir(folder.path().join("workspace")).unwrap();
        let mut command = standfast(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
        command.arg("--data").arg(folder.path().join("data")).env("RUST_LOG", "trace");
        // Where a core dump would be written, and as large as it wants to be.
        let most = getrlimit(Resource::Core).maximum;
        setrlimit(Resource::Core, Rlimit { current: most, maximum: most }).unwrap();
        command.current_dir(folder.path());
        let server = start(command.stderr(File::create(folder.path().join("log")).unwrap()));
        let key = ["keys", "create", "--user", "root", "--scope", "gates:open"];
        let key = said_by(&mut standfast(folder.path(), &key)).trim().to_owned();
        let decides = ["keys", "create", "--user", "root", "--scope", "admin"];
        let decides = said_by(&mut standfast(folder.path(), &decides)).trim().to_owned();
        let http = Http::new(&server.base).with_key(&decides);
        let (_provider, _upstream) = (provider, upstream);
        Site { folder, server, http, receiver, collector, chats, key, _provider, _upstream }
    }

    async fn json(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.http.ask(method, path, body).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
        answer.body
    }

    /// A run as soon as it has ended.
    async fn ended(&self, run: &str) -> Value {
        until_found(&format!("{run} ends"), async || {
            let shown = self.json("GET", &format!("/api/v1/runs/{run}"), None).await;
            ["completed", "failed"].contains(&text(&shown["status"])).then_some(shown)
        })
        .await
    }

    /// Everything that a server does with its secrets; those that it made itself.
    async fn lives(&self) -> Vec<String> {
        let subscribed = json!({"url": self.receiver.url(), "events": ["*"]});
        let subscribed = self.json("POST", "/api/v1/subscriptions", Some(&subscribed)).await;
        let secret = text(&subscribed["secret"]).strip_prefix("whsec_").unwrap().to_owned();
        // A provider that says the key in its refusal.
        let body = json!({"input": "hello", "wait": "settled"});
        let refused = self.json("POST", "/api/v1/agents/talker/runs", Some(&body)).await;
        let refused = self.ended(text(&refused["id"])).await;
        assert_eq!(refused["status"], "failed", "{refused}");
        // An approval by a link, of which mail and webhooks tell.
        let run = self.json("POST", "/api/v1/agents/ops/runs", Some(&body)).await;
        let hold = text(&run["holds"][0]["id"]);
        // Chats are told with tokens; nothing is posted of what was decided before its message went out.
        for chat in ["C0CANARY", "canary-topic"] {
            self.chats.until("a chat is told", |all| all.iter().any(|got| got.text.contains(chat))).await;
        }
        let link =
            self.json("POST", &format!("/api/v1/holds/{hold}/link"), Some(&json!({"for": "alice"}))).await;
        let (_, token) = text(&link["url"]).split_once("/link/").unwrap();
        let (path, html) = (format!("/link/{token}"), [("accept", "text/html")]);
        let anybody = Http::new(&self.server.base);
        let page = anybody.send("GET", &path, &html, "").await;
        let form = format!("nonce={}&form={}&decision=approve", page.field("nonce"), page.field("form"));
        let headers = [("content-type", "application/x-www-form-urlencoded"), ("accept", "text/html")];
        assert_eq!(anybody.send("POST", &path, &headers, &form).await.status, 303);
        assert_eq!(self.ended(text(&run["id"])).await["status"], "completed");
        // A click that nobody signed, and a sign-in at a provider that is not there.
        let clicked = [("x-slack-request-timestamp", "1"), ("x-slack-signature", "v0=00")];
        assert_ne!(anybody.send("POST", "/chat/slack/slack", &clicked, "payload=%7B%7D").await.status, 200);
        assert_ne!(anybody.send("GET", "/sign-in/start?next=%2F", &html, "").await.status, 200);
        // A session of a browser.
        let page = anybody.send("GET", "/sign-in", &html, "").await;
        let cookie = page.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let csrf = cookie.split_once('=').unwrap().1.to_owned();
        let form = format!("csrf={csrf}&key={}&next=", self.http.key.as_ref().unwrap());
        let headers = [headers[0], headers[1], ("cookie", cookie.as_str())];
        let signed_in = anybody.send("POST", "/sign-in", &headers, &form).await;
        assert_eq!(signed_in.status, 303, "{signed_in:?}");
        let cookies = signed_in.headers.get_all("set-cookie").iter().map(|cookie| cookie.to_str().unwrap());
        let session = cookies.filter_map(|cookie| cookie.split(';').next()?.split_once('='));
        let session = session.map(|(_, value)| value).find(|value| value.contains('.')).unwrap().to_owned();
        // A call through the gateway, whose server says what it was sent.
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {}}});
        let agent = Http::new(&self.server.base).with_key(&self.key);
        let accept = [("accept", "application/json, text/event-stream")];
        let echoed = agent.send("POST", "/mcp/web", &accept, &call.to_string()).await;
        assert!(echoed.text.contains("you sent [secret]"), "{echoed:?}");
        // Wrong guesses are logged.
        let wrong = "sf_canarykey_0123456789012345678901234567890123456789";
        assert_eq!(anybody.with_key(wrong).get("/api/v1/runs").await.status, 401);
        self.receiver
            .until("the end of the approved run", |all| {
                all.iter().any(|got| got.kind() == "run.ended" && got.text.contains(text(&run["id"])))
            })
            .await;
        let signature = token.rsplit('.').next().unwrap().to_owned();
        let keys = [self.key.clone(), self.http.key.clone().unwrap(), wrong.to_owned()];
        keys.into_iter().chain([secret, signature, session.rsplit('.').next().unwrap().to_owned()]).collect()
    }

    /// What the server says of itself, to whoever may ask for everything, and what it said to others.
    async fn tells(&self) -> Vec<(String, String)> {
        let mut told =
            vec![("webhooks".to_owned(), self.receiver.all().iter().map(|got| got.text.clone()).collect())];
        let runs = self.json("GET", "/api/v1/runs", None).await;
        let mut paths = vec![
            "/api/v1/runs".to_owned(),
            "/metrics".into(),
            "/openapi.json".into(),
            "/api/v1/subscriptions".into(),
        ];
        for run in runs["runs"].as_array().unwrap() {
            paths.push(format!("/api/v1/runs/{}/events", text(&run["id"])));
            paths.push(format!("/runs/{}", text(&run["id"])));
        }
        for path in paths {
            told.push((path.clone(), self.http.get(&path).await.text));
        }
        let spans = self
            .collector
            .until("the spans of a drive", |all| all.iter().any(|got| got.text.contains("invoke_agent")))
            .await;
        told.push(("traces".to_owned(), spans.iter().map(|got| got.text.clone()).collect()));
        told.push(("audit".to_owned(), said_by(&mut standfast(self.folder.path(), &["audit", "export"]))));
        told
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    found
}

fn assert_nothing_says(secrets: &[String], places: &[(String, Vec<u8>)]) {
    for (place, bytes) in places {
        for secret in secrets {
            let at = bytes.windows(secret.len()).position(|window| window == secret.as_bytes());
            let around =
                at.map(|at| String::from_utf8_lossy(&bytes[at.saturating_sub(200)..at]).into_owned());
            assert_eq!(around, None, "{place} has {secret}");
        }
    }
}

/// Lets the server live, and searches everything; `dump` is what its database has besides files.
async fn no_secret_is_left_behind(sql: &str, dump: impl FnOnce() -> Vec<u8>) {
    let site = Site::new(sql).await;
    let made = site.lives().await;
    let configured = CONFIGURED.map(|(_, secret)| secret.to_owned());
    let secrets: Vec<String> = configured.into_iter().chain(made).collect();
    let told = site.tells().await;
    assert!(told.iter().any(|(_, text)| text.contains("[secret]")), "what was said back is cut, not lost");
    let mut places: Vec<_> = told.into_iter().map(|(place, text)| (place, text.into_bytes())).collect();
    places.push(("the dump".to_owned(), dump()));
    // With its journal as it is while the server works, and once it has ended.
    places.extend(files(site.folder.path()));
    assert_nothing_says(&secrets, &places);
    let (folder, mut server) = (site.folder, site.server);
    // A crash, of all its memory: the secrets are in that.
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.child.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    kill_process(Pid::from_child(&server.child), Signal::ABORT).unwrap();
    let ended = server.child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(6), "{ended}");
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("TRACE"), "the log says everything");
    assert_nothing_says(&secrets, &files(folder.path()));
}

/// T29, on SQLite: database, write-ahead log and data directory.
#[tokio::test(flavor = "multi_thread")]
async fn t29_no_secret_is_left_behind() {
    no_secret_is_left_behind("driver: sqlite, database: ./kept.db", Vec::new).await;
}

/// T29, on Postgres: what a dump of it has.
#[tokio::test(flavor = "multi_thread")]
async fn t29_no_secret_is_in_a_dump_of_postgres() {
    let postgres = OwnServer::new();
    let dump = || {
        let dumped = Command::new("pg_dump").arg(postgres.url()).output().unwrap();
        assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        assert!(dumped.stdout.windows(4).any(|window| window == b"runs"), "the dump has the tables");
        dumped.stdout
    };
    no_secret_is_left_behind(&format!("driver: postgres, url: \"{}\"", postgres.url()), dump).await;
}
