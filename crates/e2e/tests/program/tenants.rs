//! Two tenants on one server: what is one's does not exist for the other, on every route of every surface (T15, T16).
//!
//! The routes are those of the server's own OpenAPI document, so that a new one is looked at too; those of A2A in its versions, with
//! gRPC, the pages, their forms, MCP and the hooks are listed in `asked.rs`. Teal's tell a foreign id apart within a tenant (C12), and not
//! between two. `auditor.rs` asks the same of somebody who may look and nothing else, `scopes.rs` of owners with a key for something else.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod asked;
mod auditor;
mod scopes;

use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::json::owned_text as text;
use standfast_testkit::{Process, until_found};
use tempfile::TempDir;
use tonic::{Code, Status};

use asked::{HOOK, LISTS, MCP, over_grpc, requests, version_of};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

const CONFIG: &str = "llms: {script: {type: scripted, script: script.yaml}}
server: {auth: {api_keys: true}, webhooks: {allowed_hosts: ['127.0.0.1']}}
tools: {execute_command: {requires_approval: false, allowed_commands: [echo]}}
policy: {rules: [{id: commands, hold: execute_command, because: it runs something}]}
session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: db, tools: [execute_command], task: {input_timeout: 2h}}}
";

/// The token that forms carry, as a browser has it in its cookie.
const TOKEN: &str = "0000000000000000000000000000000000000000000000000000";

struct Site {
    folder: TempDir,
    server: Process,
    client: reqwest::Client,
}

/// The result of a request: status, body, and every header but the date and the token of forms, which is drawn each time.
type Answered = (u16, String, Vec<(String, String)>);

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("script.yaml"), SCRIPT).unwrap();
        std::fs::write(folder.path().join("standfast.yaml"), CONFIG).unwrap();
        let server = standfast_testkit::serve(folder.path());
        Site { folder, server, client: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    fn keys(&self, arguments: &[&str]) -> String {
        let mut command = standfast_testkit::standfast();
        command.arg("keys").args(arguments).arg("--config").arg(self.folder.path().join("standfast.yaml"));
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// A text is sent as the form of a page, anything else as JSON.
    async fn ask(&self, key: &str, method: &str, path: &str, body: Option<&Value>) -> Answered {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.client.request(method, format!("{}{path}", self.server.base)).bearer_auth(key);
        let request = request.timeout(Duration::from_secs(30));
        let request = match version_of(path, body) {
            Some(version) => request.header("a2a-version", version),
            None => request,
        };
        let request = request.header("cookie", format!("standfast_csrf={TOKEN}"));
        let request = match path {
            MCP => request.header("accept", "application/json, text/event-stream"),
            _ => request,
        };
        let request = match body {
            Some(Value::String(form)) => request
                .header("content-type", "application/x-www-form-urlencoded")
                .body(format!("csrf={TOKEN}&{form}")),
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().iter().filter(|(name, _)| {
            !["date", "content-length", "set-cookie", "x-request-id"].contains(&name.as_str())
        });
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        let headers = headers.collect();
        (status, response.text().await.unwrap(), headers)
    }

    async fn json(&self, key: &str, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, text, _) = self.ask(key, method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    async fn held(&self, key: &str, session: &str) -> (String, String) {
        let body = json!({"input": "please", "session": session, "wait": "settled"});
        let run = self.json(key, "POST", "/api/v1/agents/ops/runs", Some(&body)).await;
        (text(&run["id"]), text(&run["holds"][0]["id"]))
    }
}

/// What somebody has, by the name that routes have for it.
struct Things {
    run: String,
    hold: String,
    session: String,
    subscription: String,
    inbox: String,
    task: String,
    /// A request of Teal Agents, with its task.
    request: String,
    asking: String,
    gate: String,
    grant: String,
    /// A session of a browser.
    sign_in: String,
}

impl Things {
    /// One of each, made by an administrator.
    async fn of(site: &Site, key: &str) -> Things {
        let (run, hold) = site.held(key, "night shift").await;
        let made = json!({"url": "http://127.0.0.1:9/hook", "run": run});
        let made = site.json(key, "POST", "/api/v1/subscriptions", Some(&made)).await;
        let said = json!({"items": [{"content_type": "text", "content": "please"}]});
        let asked = site.json(key, "POST", "/tealagents/v1alpha1/ops", Some(&said)).await;
        let task = json!({"type": "ticket", "payload": {"n": 1}});
        let task = site.json(key, "POST", "/api/inboxes/tickets/tasks", Some(&task)).await;
        let task =
            ["id", "taskId"].iter().find_map(|name| task[name].as_str()).unwrap_or_else(|| panic!("{task}"));
        let call = json!({"tool": "pay", "arguments": {"amount": 1}, "agent": "billing", "session": "case",
            "call": "call_1"});
        let gate = site.json(key, "POST", "/api/v1/gates", Some(&call)).await;
        Things {
            run,
            hold,
            session: "night shift".into(),
            subscription: text(&made["id"]),
            inbox: "tickets".into(),
            task: task.to_owned(),
            request: text(&asked["request_id"]),
            asking: text(&asked["task_id"]),
            gate: ["gate", "id"].iter().find_map(|name| gate[name].as_str()).unwrap().to_owned(),
            grant: Things::granted(site, key).await,
            sign_in: Things::signed_in(site, key).await,
        }
    }

    /// A browser in which somebody signed in with their key.
    async fn signed_in(site: &Site, key: &str) -> String {
        site.ask(key, "POST", "/sign-in", Some(&json!(format!("key={key}&next=")))).await;
        text(&site.json(key, "GET", "/api/v1/sign-ins", None).await["sign_ins"][0]["id"])
    }

    /// A standing approval for calls of a conversation of its own.
    async fn granted(site: &Site, key: &str) -> String {
        let (_, hold) = site.held(key, "granted").await;
        let mut wish = json!({"uses": 2, "same_session": true});
        let path = format!("/api/v1/holds/{hold}");
        let rule = site.json(key, "POST", &format!("{path}/grant-rule"), Some(&wish)).await;
        (wish["until"], wish["digest"]) = (rule["until"].clone(), rule["digest"].clone());
        let approve = json!({"resolution": "approve", "grant": wish});
        site.json(key, "POST", &format!("{path}/resolve"), Some(&approve)).await;
        text(&site.json(key, "GET", "/api/v1/grants", None).await["grants"][0]["id"])
    }

    /// As many of the same form, and nobody's.
    fn unknown(&self) -> Things {
        let other = |id: &str| format!("{}{}", &id[..id.len() - 6], "000000");
        Things {
            run: other(&self.run),
            hold: other(&self.hold),
            session: "unheard of".into(),
            subscription: other(&self.subscription),
            inbox: self.inbox.clone(),
            task: other(&self.task),
            request: other(&self.request),
            asking: other(&self.asking),
            gate: other(&self.gate),
            grant: other(&self.grant),
            sign_in: other(&self.sign_in),
        }
    }

    fn names(&self) -> [&str; 10] {
        let Things { run, hold, session, subscription, task, request, asking, gate, grant, sign_in, .. } =
            self;
        // The longer first: the id of a request has that of its task in it.
        [request, asking, hold, run, session, subscription, task, gate, grant, sign_in]
    }

    /// A path with its parts filled in; none when it names no single thing.
    fn path(&self, template: &str) -> Option<String> {
        let is_session = template.contains("/session/");
        let mut names_something = false;
        let parts = template.split('/').map(|part| {
            let value = match part {
                "{run}" => &self.run,
                "{hold}" => &self.hold,
                "{session}" => &self.session,
                "{subscription}" => &self.subscription,
                "{gate}" => &self.gate,
                "{grant}" => &self.grant,
                "{sign_in}" => &self.sign_in,
                "{taskId}" => &self.task,
                "{task_id}" => &self.asking,
                "{request_id}" => &self.request,
                "{id}" if is_session => &self.session,
                "{id}" => &self.hold,
                "{letter}" | "{call}" | "{callId}" => return "1".to_owned(),
                "{inboxId}" => return self.inbox.clone(),
                "{agent}" => return "ops".to_owned(),
                other => {
                    assert!(
                        !other.starts_with('{'),
                        "{template}: nobody has a {other} here; add one to `Things`"
                    );
                    return other.to_owned();
                }
            };
            names_something = true;
            value.replace(' ', "%20")
        });
        let path = parts.collect::<Vec<_>>().join("/");
        names_something.then_some(path)
    }

    /// An answer in which the ids that were asked for are not told apart.
    fn anonymous(&self, (status, body, headers): Answered) -> Answered {
        let blank = |text: String| self.names().iter().fold(text, |text, name| text.replace(name, "ID"));
        (status, blank(body), headers.into_iter().map(|(name, value)| (name, blank(value))).collect())
    }
}

/// T15, T16: over gRPC a task of another tenant is as unknown as one that never was, by code, text and details.
#[tokio::test]
async fn over_grpc_a_task_of_another_tenant_does_not_exist() {
    let site = Site::new();
    let ann = site.keys(&["create", "--user", "ann"]);
    let (run, _) = site.held(&ann, "night shift").await;
    let unknown = format!("{}000000", &run[..run.len() - 6]);
    for arguments in [&["--user", "ann"][..], &["--user", "root", "--scope", "admin"]] {
        let key = site.keys(&[&["create", "--tenant", "acme"], arguments].concat());
        let told = |answers: Vec<(&'static str, Result<(), Status>)>, id: &str| {
            let blank = |text: &str| text.replace(id, "ID");
            let tell = |(name, answer): (&'static str, Result<(), Status>)| {
                let status = answer.expect_err(name);
                let is_hidden = [Code::NotFound, Code::PermissionDenied].contains(&status.code());
                assert!(is_hidden, "{name}: {status:?}");
                (
                    name,
                    status.code(),
                    blank(status.message()),
                    blank(&String::from_utf8_lossy(status.details())),
                )
            };
            answers.into_iter().map(tell).collect::<Vec<_>>()
        };
        let theirs = told(over_grpc(&site, &key, &run).await, &run);
        assert_eq!(theirs, told(over_grpc(&site, &key, &unknown).await, &unknown));
    }
    let shown = site.json(&ann, "GET", &format!("/api/v1/runs/{run}"), None).await;
    assert_eq!(shown["status"], "held", "{shown}");
    let own = over_grpc(&site, &ann, &run).await;
    assert!(own[0].1.is_ok(), "the same request finds it for its owner: {own:?}");
}

/// T15, T16: for another tenant, also for its administrator and for a user of the same name, everything of this one is as if
/// it never was: each request about one of its things gets the answer, byte for byte, that an unknown id gets; lists and
/// counts have nothing of it; and nothing changed. The same requests of its own administrator find it.
#[tokio::test]
async fn t15_t16_what_is_of_another_tenant_does_not_exist() {
    let site = Site::new();
    let ann = site.keys(&["create", "--user", "ann", "--scope", "admin"]);
    let strangers = [
        site.keys(&["create", "--user", "ann", "--tenant", "acme"]),
        site.keys(&["create", "--user", "root", "--tenant", "acme", "--scope", "admin"]),
    ];
    let things = Things::of(&site, &ann).await;
    let unknown = things.unknown();
    let document = site.json(&ann, "GET", "/openapi.json", None).await;
    let (theirs, nobodys) = (requests(&document, &things), requests(&document, &unknown));
    assert!(theirs.len() > 100, "{}", theirs.len());
    let (mut found, mut told_apart) = (0, Vec::new());
    for ((method, path, body), (_, missing, other_body)) in theirs.iter().zip(&nobodys) {
        for key in &strangers {
            let answered = things.anonymous(site.ask(key, method, path, body.as_ref()).await);
            let nothing = unknown.anonymous(site.ask(key, method, missing, other_body.as_ref()).await);
            let is_rpc = ["/v1/agents/ops", MCP, HOOK].contains(&path.as_str());
            if answered != nothing || (!is_rpc && answered.0 < 400) {
                told_apart.push(format!("{method} {path}: {answered:?} and {nothing:?}"));
            }
        }
        let is_followed = auditor::follows(path, None);
        let is_found = !path.contains("pushNotificationConfigs/") && !path.contains("/login/");
        if method == "GET" && is_found && !is_followed {
            let own = site.ask(&ann, method, path, None).await;
            found += usize::from(own.0 == 200);
        }
    }
    assert!(told_apart.is_empty(), "tells that there is something:\n{}", told_apart.join("\n"));
    assert!(found >= 20, "the same requests find it for whoever may see it: {found}");
    // Lists: nothing of the other tenant is in any of them.
    for (template, methods) in document["paths"].as_object().unwrap() {
        let is_list = methods.get("get").is_some() && things.path(template).is_none();
        if !is_list || template.ends_with("/events") {
            continue;
        }
        let path = template.replace("{agent}", "ops").replace("{inboxId}", "tickets");
        for key in &strangers {
            let (_, listed, _) = site.ask(key, "GET", &path, None).await;
            for name in things.names() {
                assert!(!listed.contains(name), "{path} has {name}: {listed}");
            }
            assert!(!listed.contains("standfast_runs{phase=\"held_for_person\"} 1"), "{path}: {listed}");
        }
    }
    for path in LISTS {
        let (status, own, _) = site.ask(&ann, "GET", path, None).await;
        assert_eq!(status, 200, "{path}: {own}");
        for key in &strangers {
            let (_, listed, _) = site.ask(key, "GET", path, None).await;
            assert!(things.names().iter().all(|name| !listed.contains(name)), "{path}: {listed}");
        }
    }
    // Nothing changed for its owner.
    for run in [&things.run, &things.asking] {
        let run = site.json(&ann, "GET", &format!("/api/v1/runs/{run}"), None).await;
        assert_eq!(run["status"], "held", "{run}");
    }
    assert_eq!(site.json(&ann, "GET", "/api/v1/sessions/night%20shift", None).await["closed"], false);
    for (path, state) in [("gates", "held"), ("grants", "live")] {
        let id = if path == "gates" { &things.gate } else { &things.grant };
        let shown = site.json(&ann, "GET", &format!("/api/v1/{path}/{id}"), None).await;
        assert_eq!(shown["state"], state, "{shown}");
    }
    let still = site.json(&ann, "GET", "/api/v1/sign-ins", None).await;
    assert_eq!(text(&still["sign_ins"][0]["id"]), things.sign_in, "{still}");
    // A key belongs to its tenant: `keys` of another does not see it.
    let listed = |tenant: &str| site.keys(&["list", "--json", "--tenant", tenant]);
    let prefix = ann.split('_').nth(1).unwrap();
    assert!(listed("default").contains(prefix) && !listed("acme").contains(prefix));
}

/// T16: a page of another tenant that follows its lists hears of its own tenant's changes and of no others.
#[tokio::test]
async fn pages_hear_nothing_of_another_tenant() {
    let site = Site::new();
    let ann = site.keys(&["create", "--user", "ann", "--scope", "admin"]);
    let other = site.keys(&["create", "--user", "ann", "--tenant", "acme", "--scope", "admin"]);
    let url = format!("{}/events?lists=true", site.server.base);
    let mut stream = site.client.get(url).bearer_auth(&other).send().await.unwrap();
    let hears = async |stream: &mut reqwest::Response, known: &str, changes: usize| {
        let mut heard = known.to_owned();
        while heard.matches("event: changed").count() + heard.matches("event:changed").count() < changes {
            let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
            heard.push_str(&String::from_utf8_lossy(&chunk));
        }
        heard
    };
    let first = hears(&mut stream, "", 1).await;
    let (theirs, _) = site.held(&ann, "night shift").await;
    let (own, _) = site.held(&other, "s").await;
    let heard = hears(&mut stream, &first, 2).await;
    assert!(!heard.contains(&theirs), "{heard}");
    let listed = site.json(&other, "GET", "/api/v1/runs", None).await.to_string();
    assert!(listed.contains(&own) && !listed.contains(&theirs), "{listed}");
}

/// T16: a tenant is there with its first key, works like the first one, and both go on side by side after `kill -9`. What a
/// start found each gets its own runs; the log has the sum.
#[tokio::test]
async fn a_second_tenant_works_like_the_first() {
    let mut site = Site::new();
    let (ann, other) = (
        site.keys(&["create", "--user", "ann"]),
        site.keys(&["create", "--user", "ann", "--tenant", "acme"]),
    );
    let (ours, theirs) = (site.held(&ann, "s").await, site.held(&other, "s").await);
    site.server.child.kill().unwrap();
    site.server.child.wait().unwrap();
    let mut command = standfast_testkit::serve_command(site.folder.path());
    let log = site.folder.path().join("log");
    command.env("RUST_LOG", "info").stderr(std::fs::File::create(&log).unwrap());
    site.server = standfast_testkit::start(&mut command);
    for key in [&ann, &other] {
        let found = until_found("the start has looked at everything", async || {
            let found = site.json(key, "GET", "/api/v1/recovery", None).await;
            (!found["ended_at"].is_null()).then_some(found)
        })
        .await;
        assert_eq!(found["waiting_for_person"], 1, "{found}");
        let found = site.json(key, "GET", "/async-tool/recovery/status", None).await;
        assert_eq!((&found["waiting"], &found["staleProcessing"]), (&json!(0), &json!(0)), "{found}");
    }
    until_found("the log says it", async || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.contains("Found 2 tasks waiting for input").then_some(())
    })
    .await;
    for (key, (run, hold)) in [(&ann, &ours), (&other, &theirs)] {
        let listed = site.json(key, "GET", "/api/v1/runs", None).await;
        assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
        let body = json!({"resolution": "approve"});
        site.json(key, "POST", &format!("/api/v1/holds/{hold}/resolve"), Some(&body)).await;
        let mut status = Value::Null;
        for _ in 0..600 {
            status = site.json(key, "GET", &format!("/api/v1/runs/{run}"), None).await["status"].clone();
            if status == "completed" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(status, "completed");
    }
}

/// A key that is for reading changes no session, also not its owner's own: neither its metadata nor that it is there.
#[tokio::test]
async fn a_key_for_reading_changes_no_session() {
    let site = Site::new();
    let ann = site.keys(&["create", "--user", "ann"]);
    let reads = site.keys(&["create", "--user", "ann", "--scope", "runs:read"]);
    let (run, _) = site.held(&ann, "s").await;
    site.json(&ann, "POST", &format!("/api/v1/runs/{run}/cancel"), Some(&json!({}))).await;
    let path = "/api/v1/sessions/s";
    let before = site.json(&ann, "GET", path, None).await;
    let metadata = json!({"metadata": {"a": 1}});
    for (method, body) in [("PATCH", Some(&metadata)), ("DELETE", None)] {
        let (status, said, _) = site.ask(&reads, method, path, body).await;
        assert_eq!(status, 403, "{method}: {said}");
        assert!(said.contains("runs:write"), "{said}");
    }
    assert_eq!(site.json(&ann, "GET", path, None).await, before);
    assert_eq!(site.json(&ann, "PATCH", path, Some(&metadata)).await["metadata"]["a"], 1);
}
