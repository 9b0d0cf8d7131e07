//! Two tenants on one server: what is one's does not exist for the other, on every route of every surface (T15, T16).
//!
//! The routes are those of the server's own OpenAPI document, so that a new one is looked at too; those of A2A, with gRPC,
//! the pages, their forms, MCP and the hooks are listed here. Teal's tell a foreign id apart within a tenant (C12), and not between two. `auditor.rs` asks
//! the same of somebody who may look and nothing else.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod auditor;
mod scopes;

use std::time::Duration;

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{self, part};
use serde_json::{Value, json};
use standfast_testkit::json::owned_text as text;
use standfast_testkit::{Process, until_found};
use tempfile::TempDir;
use tonic::{Code, Request, Status};

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
        let request = request.timeout(Duration::from_secs(30)).header("a2a-version", "1.0");
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
        }
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
        }
    }

    fn names(&self) -> [&str; 9] {
        let Things { run, hold, session, subscription, task, request, asking, gate, grant, .. } = self;
        // The longer first: the id of a request has that of its task in it.
        [request, asking, hold, run, session, subscription, task, gate, grant]
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
                "{taskId}" => &self.task,
                "{task_id}" => &self.asking,
                "{request_id}" => &self.request,
                "{id}" if is_session => &self.session,
                "{id}" => &self.hold,
                "{letter}" | "{call}" | "{callId}" => return "1".to_owned(),
                "{inboxId}" => return self.inbox.clone(),
                "{agent}" => return "ops".to_owned(),
                other => return other.to_owned(),
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

/// A body that a route takes.
fn body_of(method: &str, path: &str) -> Option<Value> {
    let last = path.rsplit('/').next().unwrap();
    Some(match (method, last) {
        ("POST", "resolve") => json!({"resolution": "approve"}),
        ("POST", "link") => json!({"for": "alice"}),
        ("POST", "messages") => json!({"input": "hello"}),
        ("POST", "outcome") => json!({"attempt": 1, "status": "succeeded", "result": {}}),
        ("POST", "withdraw") => json!({"reason": "cancelled"}),
        ("POST", "assign") => json!({"to": "eve"}),
        ("POST", "delegate") => json!({"to": "eve", "until": "2036-01-01T00:00:00Z"}),
        ("POST", "edit") => json!({"arguments": {"command": "echo other"}}),
        ("PATCH", _) => json!({"metadata": {"a": 1}}),
        ("POST", _) if path.contains("/resume/") => json!({"action": "approve"}),
        ("POST", "resume") => json!({"payload": true}),
        ("POST", "release" | "heartbeat") => json!({"claimId": "claim_1"}),
        ("POST", "suspend") => json!({"claimId": "claim_1", "reason": "why"}),
        ("POST", "complete") => json!({"claimId": "claim_1", "result": {}}),
        ("POST", "fail") => json!({"claimId": "claim_1", "error": {"message": "no"}}),
        ("POST", _) => json!({}),
        (_, _) => return None,
    })
}

/// Every request about a single thing: those of the OpenAPI document, of A2A in its bindings and versions, of the pages, and
/// reports of jobs, whose ids stand in their bodies.
fn requests(document: &Value, things: &Things) -> Vec<(String, String, Option<Value>)> {
    let mut all = Vec::new();
    for (template, methods) in document["paths"].as_object().unwrap() {
        let Some(path) = things.path(template) else { continue };
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            all.push((method.clone(), path.clone(), body_of(&method, &path)));
        }
    }
    let (run, hold) = (&things.run, &things.hold);
    for report in ["result", "error", "progress"] {
        let body =
            json!({"pendingID": hold, "result": {"title": "t", "output": "o"}, "error": "e", "message": "m"});
        all.push(("POST".into(), format!("/async-tool/{report}"), Some(body)));
    }
    for base in ["/v1/agents/ops", ""] {
        all.push(("GET".into(), format!("{base}/tasks/{run}"), None));
        all.push(("POST".into(), format!("{base}/tasks/{run}:cancel"), Some(json!({}))));
        all.push(("POST".into(), format!("{base}/tasks/{run}:subscribe"), Some(json!({}))));
        all.push(("GET".into(), format!("{base}/tasks/{run}/pushNotificationConfigs"), None));
        all.push(("GET".into(), format!("{base}/tasks/{run}/pushNotificationConfigs/one"), None));
        all.push(("DELETE".into(), format!("{base}/tasks/{run}/pushNotificationConfigs/one"), None));
        let config = json!({"taskId": run, "url": "http://127.0.0.1:9/hook"});
        all.push(("POST".into(), format!("{base}/tasks/{run}/pushNotificationConfigs"), Some(config)));
        for stream in ["send", "stream"] {
            let parts = json!([{"text": "approve"}]);
            let message = json!({"messageId": "m-1", "role": "ROLE_USER", "taskId": run, "parts": parts});
            all.push(("POST".into(), format!("{base}/message:{stream}"), Some(json!({"message": message}))));
        }
    }
    for method in
        ["GetTask", "CancelTask", "SubscribeToTask", "tasks/get", "tasks/cancel", "tasks/resubscribe"]
    {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": run}});
        all.push(("POST".into(), "/v1/agents/ops".into(), Some(body)));
    }
    all.extend(pages(things));
    for arguments in [json!({"gate": things.gate}), json!({"gate": things.gate, "status": "succeeded"})] {
        let params = json!({"name": "standfast_result", "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        all.push(("POST".into(), MCP.into(), Some(body)));
    }
    let mut event = json!({"hook_event_name": "PostToolUse", "tool_name": "pay", "tool_input": {"amount": 1},
        "tool_response": "paid", "session_id": "case", "tool_use_id": "call_1"});
    all.push(("POST".into(), HOOK.into(), Some(event.clone())));
    event["tool_use_id"] = json!(things.gate);
    all.push(("POST".into(), HOOK.into(), Some(event)));
    all
}

/// Where agents ask by MCP: the answer is in the body.
const MCP: &str = "/mcp";

/// Where a coding agent says what became of a call. One that was not asked about is no mistake.
const HOOK: &str = "/hooks/claude-code";

/// Every page about a single thing, and every form that is sent from one.
fn pages(things: &Things) -> Vec<(String, String, Option<Value>)> {
    let Things { run, hold, inbox, task, grant, .. } = things;
    let session = things.session.replace(' ', "%20");
    let looks = [
        format!("/runs/{run}"),
        format!("/runs/{run}/timeline.svg"),
        format!("/runs/{run}/events.json"),
        format!("/runs/{run}/calls/1/receipt"),
        format!("/approve/{hold}"),
        format!("/approve/{hold}/raw"),
        format!("/approve/{hold}/media"),
        format!("/approve/{hold}/receipt"),
        format!("/approve/{hold}/grant"),
        format!("/review?hold={hold}"),
        format!("/sessions/{session}?agent=ops"),
        format!("/login/{hold}"),
    ];
    let forms = [
        (format!("/approve/{hold}"), "decision=approve"),
        (format!("/approve/{hold}"), "decision=deny"),
        (format!("/approve/{hold}/people"), "action=assign&to=eve"),
        (format!("/approve/{hold}/people"), "action=take"),
        (format!("/approve/{hold}/grant"), "decision=approve&uses=1&hours=1"),
        (format!("/runs/{run}/cancel"), ""),
        (format!("/review/{hold}"), "decision=approve"),
        (format!("/sessions/{session}?agent=ops"), "message=hello"),
        (format!("/sessions/{session}/holds/{hold}?agent=ops"), "decision=approve"),
        (format!("/inboxes/{inbox}/tasks/{task}/cancel"), ""),
        (format!("/inboxes/{inbox}/holds/{hold}"), "decision=approve"),
        (format!("/jobs/{hold}/cancel"), ""),
        (format!("/grants/{grant}/revoke"), ""),
        (format!("/login/{hold}"), ""),
    ];
    let look = |path| ("GET".to_owned(), path, None);
    let form = |(path, text): (String, &str)| ("POST".to_owned(), path, Some(json!(text)));
    looks.map(look).into_iter().chain(forms.map(form)).collect()
}

/// Every operation about a task over gRPC, and how it ends.
async fn over_grpc(site: &Site, key: &str, task: &str) -> Vec<(&'static str, Result<(), Status>)> {
    fn with<T>(key: &str, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        request.metadata_mut().insert("a2a-version", "1.0".parse().unwrap());
        request
    }
    let mut client = A2aServiceClient::connect(site.server.base.clone()).await.unwrap();
    let (tenant, id) = (|| "ops".to_owned(), || task.to_owned());
    let get = proto::GetTaskRequest { tenant: tenant(), id: id(), history_length: None };
    let cancel = proto::CancelTaskRequest { tenant: tenant(), id: id(), ..Default::default() };
    let subscribe = proto::SubscribeToTaskRequest { tenant: tenant(), id: id() };
    let approve = || proto::SendMessageRequest {
        tenant: tenant(),
        message: Some(proto::Message {
            message_id: "m-1".into(),
            task_id: id(),
            role: proto::Role::User.into(),
            parts: vec![proto::Part {
                content: Some(part::Content::Text("approve".into())),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let config = proto::TaskPushNotificationConfig {
        tenant: tenant(),
        task_id: id(),
        url: "http://127.0.0.1:9/hook".into(),
        ..Default::default()
    };
    let one =
        proto::GetTaskPushNotificationConfigRequest { tenant: tenant(), task_id: id(), id: "one".into() };
    let every = proto::ListTaskPushNotificationConfigsRequest {
        tenant: tenant(),
        task_id: id(),
        ..Default::default()
    };
    let delete =
        proto::DeleteTaskPushNotificationConfigRequest { tenant: tenant(), task_id: id(), id: "one".into() };
    vec![
        ("GetTask", client.get_task(with(key, get)).await.map(drop)),
        ("SubscribeToTask", client.subscribe_to_task(with(key, subscribe)).await.map(drop)),
        ("SendMessage", client.send_message(with(key, approve())).await.map(drop)),
        ("SendStreamingMessage", client.send_streaming_message(with(key, approve())).await.map(drop)),
        ("CreatePush", client.create_task_push_notification_config(with(key, config)).await.map(drop)),
        ("GetPush", client.get_task_push_notification_config(with(key, one)).await.map(drop)),
        ("ListPush", client.list_task_push_notification_configs(with(key, every)).await.map(drop)),
        ("DeletePush", client.delete_task_push_notification_config(with(key, delete)).await.map(drop)),
        ("CancelTask", client.cancel_task(with(key, cancel)).await.map(drop)),
    ]
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
        let is_followed = path.contains("/gates/") && path.ends_with("/events");
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
    for path in ["/v1/agents/ops/tasks", "/", "/runs"] {
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
    // A key belongs to its tenant: `keys` of another does not see it.
    let listed = |tenant: &str| site.keys(&["list", "--json", "--tenant", tenant]);
    let prefix = ann.split('_').nth(1).unwrap();
    assert!(listed("default").contains(prefix) && !listed("acme").contains(prefix));
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
