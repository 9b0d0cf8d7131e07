//! What one decision reads: on every surface at most one row and one log of its run before it is written, and one of each
//! after the run rests; over the API none after it. Counted by the store that answers; `snapshots/others.rs` has messages,
//! cancels, streams, gRPC and logins, `snapshots/pages.rs` pages of holds, approval links and standing approvals,
//! `snapshots/forms.rs` the forms of all other pages, `snapshots/workers.rs` gates, hooks, MCP, workers and jobs.

mod forms;
mod others;
mod pages;
mod workers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use standfast::app;
use standfast_core::command::SuspendFor;
use standfast_core::hold::Ask;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::message::Message;
use standfast_core::name::ToolName;
use standfast_core::time::Millis;
use standfast_engine::auth::Principal;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Connections, FixedSettings};
use standfast_engine::tool::{Invocation, Outcome, Suspension, Tool, ToolFuture};
use standfast_engine::{Engine, NewRun};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{
    Answer, AuditLayer, Batch, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, RunStore, SecretLayer,
    SessionLayer, Store, StoredRun, WorkLayer,
};
use standfast_surfaces::http;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::{Site, agent};

/// How often a row was read, a log from its beginning, and what was appended to one since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Reads {
    rows: usize,
    logs: usize,
    tails: usize,
}

#[derive(Default)]
struct Counted {
    run: Option<RunId>,
    before: Reads,
    after: Reads,
    is_written: bool,
}

/// A store that counts what is read of one run, before its next append and after it.
struct Counting {
    inner: Arc<SqliteStore>,
    counted: Mutex<Counted>,
}

impl Counting {
    fn count(&self, run: RunId, reads: Reads) {
        let mut counted = self.counted.lock().unwrap();
        if counted.run == Some(run) {
            let part = if counted.is_written { &mut counted.after } else { &mut counted.before };
            part.rows += reads.rows;
            part.logs += reads.logs;
            part.tails += reads.tails;
        }
    }

    /// Counts from now on what is read of this run.
    fn begin(&self, run: RunId) {
        *self.counted.lock().unwrap() = Counted { run: Some(run), ..Counted::default() };
    }
}

impl Layer for Counting {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Counting {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let mut counted = self.counted.lock().unwrap();
        counted.is_written |= batches.iter().any(|batch| Some(batch.run()) == counted.run);
        drop(counted);
        self.inner.append(batches)
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.count(run, Reads { rows: 1, ..Reads::default() });
        self.inner.load(run)
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        let is_whole = usize::from(after == Seq(0));
        self.count(run, Reads { logs: is_whole, tails: 1 - is_whole, ..Reads::default() });
        self.inner.links(run, after, limit)
    }
}

impl WorkLayer for Counting {}
impl DeliveryLayer for Counting {}
impl SessionLayer for Counting {}
impl IdempotencyLayer for Counting {}
impl SecretLayer for Counting {}
impl AuditLayer for Counting {}

/// A job elsewhere.
struct Job;

impl Tool for Job {
    fn run(&self, _: Invocation) -> ToolFuture {
        let pending =
            Suspension { kind: SuspendFor::External, ask: Ask::default(), timeout: None, secret: None };
        Box::pin(std::future::ready(Outcome::Pending(Box::new(pending))))
    }
}

/// A server in this process, on a store that counts.
struct Server {
    _site: Site,
    store: Arc<Counting>,
    engine: Engine,
    client: reqwest::Client,
    base: String,
    _stop: watch::Sender<bool>,
}

/// What the agent's call does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    NeedsApproval,
    /// The same, by a rule that takes standing approvals.
    HeldByARule,
    StartsAJob,
    NeedsALogin,
}

impl Server {
    async fn new(call: Call) -> Server {
        let site = Site::new();
        let inner = Arc::new(SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap());
        let store = Arc::new(Counting { inner, counted: Mutex::default() });
        let mut settings = site.settings();
        // Nobody looks by itself.
        let fixed = FixedSettings { poll: Millis::hours(1), ..crate::fixed() };
        pages::settings(&mut settings, call);
        workers::settings(&mut settings);
        let tool: Option<Arc<dyn Tool>> = match call {
            Call::NeedsApproval | Call::HeldByARule => None,
            Call::StartsAJob => Some(Arc::new(Job)),
            Call::NeedsALogin => Some(Arc::new(others::NeedsLogin::default())),
        };
        if let Some(tool) = tool {
            let mut ops = (*settings.agents[&agent()]).clone();
            ops.needs_approval.clear();
            ops.tools = BTreeMap::from([(ToolName::new("delete_file").unwrap(), tool)]);
            settings.agents.insert(agent(), Arc::new(ops));
        }
        let engine = Engine::new(store.clone(), Clock::system(), fixed, settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopping) = watch::channel(false);
        let router = app::router(http::App { engine: engine.clone(), stopping: stopping.clone() });
        tokio::spawn(async move { http::serve(listener, router, &Connections::default(), stopping).await });
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(60))
            .build()
            .unwrap();
        Server { _site: site, store, engine, client, base, _stop: stop }
    }

    /// A run that waits, and what it waits for.
    async fn held(&self) -> HoldId {
        let message = Message::text("Free some space");
        let new = NewRun { agent: agent(), session: None, message, once: None };
        let who = Principal::local();
        let run = self.engine.submit().start(&who, new).await.unwrap();
        let view = self.engine.reads().settled_run(&who, run, Millis::seconds(30)).await.unwrap();
        HoldId { run, key: view.run.state.holds[0].key }
    }

    /// A task of an inbox whose worker asks somebody.
    async fn task_that_asks(&self, reason: &str) -> HoldId {
        let task = self.post("/api/inboxes/support/tasks", &json!({"type": "ticket", "payload": {}})).await;
        let claimed = self.post("/api/inboxes/support/claim", &json!({"agentId": "w"})).await;
        let id = task["id"].as_str().unwrap();
        let ask = json!({"claimId": claimed["task"]["claimId"], "reason": reason});
        self.post(&format!("/api/inboxes/support/tasks/{id}/suspend"), &ask).await;
        let shown = self.engine.reads().load(id.parse().unwrap()).await.unwrap().row.run;
        HoldId { run: shown.facts.id, key: shown.state.holds[0].key }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> (u16, String) {
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.base));
        let request = request.header("content-type", "application/json").body(body.to_string());
        let (status, text) = self.send(request).await;
        assert!(status < 300, "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn get(&self, path: &str) -> String {
        let request = self.client.get(format!("{}{path}", self.base)).header("accept", "text/html, */*");
        let (status, text) = self.send(request).await;
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    /// What was read of the run since it was counted, and how it stands. At most one of each before and after.
    #[track_caller]
    fn assert_few_reads(&self, surface: &str) {
        let counted = self.store.counted.lock().unwrap();
        assert!(counted.is_written, "{surface}: nothing was decided");
        for (when, reads) in [("before", counted.before), ("after", counted.after)] {
            let logs = reads.logs + reads.tails;
            assert!(reads.rows <= 1 && logs <= 1, "{surface}: {reads:?} {when} the decision");
        }
    }
}

fn data(hold: HoldId) -> Value {
    json!({"decision": "approve", "hold_id": hold.to_string()})
}

#[tokio::test]
async fn a_decision_over_the_api_reads_its_run_once() {
    let server = Server::new(Call::NeedsApproval).await;
    for wait in ["accepted", "settled"] {
        let hold = server.held().await;
        server.store.begin(hold.run);
        let body = json!({"resolution": "approve", "wait": wait});
        server.post(&format!("/api/v1/holds/{hold}/resolve"), &body).await;
        server.assert_few_reads(&format!("api, {wait}"));
        if wait == "settled" {
            // Whoever drove the run has left its outcome.
            assert_eq!(server.store.counted.lock().unwrap().after, Reads::default());
        }
    }
}

#[tokio::test]
async fn a_decision_over_a2a_reads_its_task_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let said = json!({"messageId": "m-1", "role": "ROLE_USER", "taskId": hold.run.to_string(), "parts": [{"data": data(hold)}]});
    server.store.begin(hold.run);
    let done = server.post("/v1/agents/ops/message:send", &json!({"message": said})).await;
    assert_eq!(done["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    server.assert_few_reads("A2A 1.0, HTTP+JSON");

    let hold = server.held().await;
    let said = json!({"messageId": "m-2", "role": "ROLE_USER", "taskId": hold.run.to_string(), "parts": [{"data": data(hold)}]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}});
    server.store.begin(hold.run);
    let done = server.post("/v1/agents/ops", &call).await;
    assert_eq!(done["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    server.assert_few_reads("A2A 1.0, JSON-RPC");
}

#[tokio::test]
async fn a_decision_over_older_versions_of_a2a_reads_its_task_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let said = json!({"kind": "message", "messageId": "m-1", "role": "user", "taskId": hold.run.to_string(),
        "parts": [{"kind": "data", "data": data(hold)}]});
    let params = json!({"message": said, "configuration": {"blocking": true}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params});
    server.store.begin(hold.run);
    let done = server.post("/v1/agents/ops", &call).await;
    assert_eq!(done["result"]["status"]["state"], "completed", "{done}");
    server.assert_few_reads("A2A 0.3");

    let hold = server.held().await;
    let task = hold.run;
    // It names no hold, so it means the one that its sender was shown.
    server.get(&format!("/v1/agents/ops/tasks/{task}")).await;
    let parts = json!([{"text": "approve"}, {"data": {"decision": "approve"}}]);
    let body = json!({"request": {"role": "user", "taskId": task.to_string(), "parts": parts}});
    server.store.begin(task);
    server.post("/v1/agents/ops/message:send", &body).await;
    server.assert_few_reads("the older dialect");
}

#[tokio::test]
async fn a_decision_over_teal_reads_its_task_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let view = server.engine.reads().hold(&Principal::local(), hold).await.unwrap();
    let request = view.row.request.unwrap();
    server.store.begin(hold.run);
    let body = json!({"action": "approve"});
    let done = server.post(&format!("/tealagents/v1alpha1/resume/{request}"), &body).await;
    assert_eq!(done["output"], "Done.", "{done}");
    server.assert_few_reads("Teal Agents");
}

#[tokio::test]
async fn an_answer_to_a_task_of_an_inbox_reads_it_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.task_that_asks("which?").await;
    server.store.begin(hold.run);
    let body = json!({"payload": "B", "holdId": hold.to_string()});
    server.post(&format!("/api/inboxes/support/tasks/{}/resume", hold.run), &body).await;
    server.assert_few_reads("inbox");
}

#[tokio::test]
async fn a_report_of_a_job_reads_its_run_once() {
    let server = Server::new(Call::StartsAJob).await;
    let hold = server.held().await;
    server.store.begin(hold.run);
    let result = json!({"title": "t", "output": "o", "metadata": {}});
    let body = json!({"pendingID": hold.to_string(), "result": result});
    server.post("/async-tool/result", &body).await;
    server.assert_few_reads("async tools");
}

#[tokio::test]
async fn a_decision_on_the_page_reads_its_run_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let path = format!("{}/approve/{hold}", server.base);
    let page = server.client.get(&path).header("accept", "text/html").send().await.unwrap();
    let cookie = page.headers()["set-cookie"].to_str().unwrap().to_owned();
    let token = cookie.split(['=', ';']).nth(1).unwrap().to_owned();
    let text = page.text().await.unwrap();
    let hidden = |name: &str| {
        let rest = text.split_once(&format!("name=\"{name}\" value=\"")).unwrap().1;
        rest.split_once('"').unwrap().0.to_owned()
    };
    let fields = [
        ("csrf", token.clone()),
        ("decision", "approve".into()),
        ("digest", hidden("digest")),
        ("revision", hidden("revision")),
        ("once", hidden("once")),
    ];
    let form: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    server.store.begin(hold.run);
    let request = server.client.post(&path).header("accept", "text/html").header("origin", &server.base);
    let request = request.header("cookie", format!("standfast_csrf={token}"));
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(form.join("&"));
    let (status, text) = server.send(request).await;
    assert_eq!(status, 303, "{text}");
    server.assert_few_reads("the page of a hold");
}
