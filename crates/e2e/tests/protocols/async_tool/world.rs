//! The outside system and the server: jobs that are started and report back, and how tests talk to both.
//!
//! The server is the real binary; the outside system lives in the test, so it survives when the server is killed.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;
use tokio::net::TcpListener;

use standfast_testkit::Process;
pub(crate) use standfast_testkit::text;
pub(crate) use standfast_testkit::until_found as until;

/// The outside system: starts jobs, and keeps what it was told.
#[derive(Clone)]
pub(crate) struct Outside {
    pub(crate) port: u16,
    started: Arc<Mutex<Vec<Value>>>,
    answer: Arc<Mutex<Value>>,
    /// How long it takes to answer.
    slow: Arc<Mutex<Duration>>,
    /// Whether it refuses webhooks, and how often it did.
    refuses: Arc<Mutex<(bool, u32)>>,
    /// What webhooks came, with their headers.
    pub(crate) told: Arc<Mutex<Vec<(axum::http::HeaderMap, String)>>>,
}

impl Outside {
    /// An outside system that answers every start with this.
    pub(crate) async fn answering(answer: Value) -> Outside {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let outside = Outside {
            port: listener.local_addr().unwrap().port(),
            started: Arc::default(),
            answer: Arc::new(Mutex::new(answer)),
            slow: Arc::default(),
            refuses: Arc::default(),
            told: Arc::default(),
        };
        let routes = Router::new()
            .route("/jobs", post(start_job))
            .route("/told", post(hear))
            .with_state(outside.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        outside
    }

    /// Answers starts after this long.
    pub(crate) fn takes(&self, time: Duration) {
        *self.slow.lock().unwrap() = time;
    }

    /// Refuses webhooks from now on, or takes them.
    pub(crate) fn refuses(&self, refuses: bool) {
        self.refuses.lock().unwrap().0 = refuses;
    }

    /// How many webhooks it has refused.
    pub(crate) fn refused(&self) -> u32 {
        self.refuses.lock().unwrap().1
    }

    /// The start requests so far, once there are this many.
    pub(crate) async fn jobs(&self, many: usize) -> Vec<Value> {
        until("the jobs were started", async || {
            let started = self.started.lock().unwrap().clone();
            (started.len() >= many).then_some(started)
        })
        .await
    }

    /// The start requests of a session so far.
    pub(crate) fn of_session(&self, session: &str) -> Vec<Value> {
        self.started.lock().unwrap().iter().filter(|job| job["sessionID"] == session).cloned().collect()
    }

    /// The first start request.
    pub(crate) async fn job(&self) -> Value {
        self.jobs(1).await.remove(0)
    }
}

/// Answers as it was told; where the answer has `$REQUEST`, stands the whole request, as a careless job echoes it.
async fn start_job(State(outside): State<Outside>, Json(body): Json<Value>) -> Json<Value> {
    let echo = Value::String(body.to_string()).to_string();
    outside.started.lock().unwrap().push(body);
    let (answer, slow) = (outside.answer.lock().unwrap().clone(), *outside.slow.lock().unwrap());
    tokio::time::sleep(slow).await;
    Json(serde_json::from_str(&answer.to_string().replace("$REQUEST", echo.trim_matches('"'))).unwrap())
}

async fn hear(
    State(outside): State<Outside>,
    headers: axum::http::HeaderMap,
    body: String,
) -> axum::http::StatusCode {
    let mut refuses = outside.refuses.lock().unwrap();
    if refuses.0 {
        refuses.1 += 1;
        return axum::http::StatusCode::SERVICE_UNAVAILABLE;
    }
    outside.told.lock().unwrap().push((headers, body));
    axum::http::StatusCode::OK
}

/// A script whose first reply calls the tool `deploy` for each of these branches at once.
pub(crate) fn script(branches: &[&str]) -> String {
    let call = |branch: &&str| {
        let arguments = json!({"branch": branch}).to_string();
        json!({"tool": "deploy", "arguments": arguments})
    };
    let calls: Vec<Value> = branches.iter().map(call).collect();
    json!({"replies": [{"calls": calls}, {"text": "all done"}]}).to_string()
}

/// A configuration with one agent, `ops`, that has the tool `deploy`.
pub(crate) struct Setup<'a> {
    /// What the model calls.
    pub(crate) branches: &'a [&'a str],
    /// More keys of the tool, one in each line, without indentation.
    pub(crate) tool: &'a str,
    /// The store, in one line.
    pub(crate) sql: &'a str,
    /// What stands below `server:`, in one line.
    pub(crate) server: &'a str,
    /// More keys of the agent, in one line.
    pub(crate) agent: &'a str,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup {
            branches: &["main"],
            tool: "requires_approval: false",
            sql: "driver: sqlite, database: a.db",
            server: "",
            agent: "",
        }
    }
}

impl Setup<'_> {
    /// The configuration in a folder of its own.
    pub(crate) fn folder(&self, outside: &Outside) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("script.yaml"), script(self.branches)).unwrap();
        let tool: String = self.tool.lines().map(|line| format!("    {line}\n")).collect();
        let text = format!(
            "llms: {{s: {{type: scripted, script: script.yaml}}}}
tools:
  deploy:
    async: true
    description: Deploys a branch.
    url: http://127.0.0.1:{port}/jobs
    allowed_hosts: ['127.0.0.1']
    parameters: {{type: object, properties: {{branch: {{type: string}}}}, required: [branch]}}
{tool}session_stores: {{main: {{backend: sql, sql: {{{sql}}}}}}}
agents: {{ops: {{llm: s, session_store: main, tools: [deploy], task: {{}}{agent}}}}}
server: {{webhooks: {{key: 'a key that is long enough for tests', allowed_hosts: ['127.0.0.1'], retries: [200ms, 500ms, 1s, 1s, 1s]}}{server}}}
",
            port = outside.port,
            sql = self.sql,
            agent = self.agent,
            server = self.server,
        );
        std::fs::write(folder.path().join("standfast.yaml"), text).unwrap();
        folder
    }
}

/// The server, and how it is asked.
pub(crate) struct Server {
    pub(crate) started: Process,
    pub(crate) key: Option<String>,
    client: reqwest::Client,
}

/// Starts the real binary with the configuration in a folder.
pub(crate) fn serve(folder: &Path) -> Server {
    let mut command = standfast_testkit::serve_command(folder);
    command.stderr(std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap());
    Server::of(standfast_testkit::start(&mut command))
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) retry_after: Option<String>,
}

impl Answered {
    /// Status and error text.
    pub(crate) fn no(&self) -> (u16, &str) {
        (self.status, self.body["error"].as_str().unwrap_or_default())
    }
}

impl Server {
    /// A server that was started.
    pub(crate) fn of(started: Process) -> Server {
        Server { started, key: None, client: reqwest::Client::new() }
    }

    pub(crate) fn base(&self) -> &str {
        &self.started.base
    }

    /// Sends a request with these headers.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        body: Option<String>,
    ) -> Answered {
        self.request_as(self.key.as_deref(), method, path, headers, body).await
    }

    /// The same with another key, or none.
    pub(crate) async fn request_as(
        &self,
        key: Option<&str>,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        body: Option<String>,
    ) -> Answered {
        let mut request = self.client.request(method, format!("{}{path}", self.base()));
        request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.timeout(Duration::from_secs(60)).send().await.unwrap();
        let retry_after =
            response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answered { status, body, retry_after }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answered = self.request(Method::GET, path, &[], None).await;
        assert_eq!(answered.status, StatusCode::OK.as_u16(), "{path}: {answered:?}");
        answered.body
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answered {
        self.request(Method::POST, path, &[], Some(body.to_string())).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answered {
        self.request(Method::DELETE, path, &[], None).await
    }

    /// A report that is signed as the protocol says, without any other credential.
    pub(crate) async fn webhook(&self, body: &Value, secret: &str) -> Answered {
        let body = body.to_string();
        let signature = hmac_hex(secret, &body);
        let headers = [("x-webhook-signature", format!("sha256={signature}"))];
        self.report("/async-tool/webhook", &headers, body).await
    }

    /// A report with these headers and without a key.
    pub(crate) async fn report(&self, path: &str, headers: &[(&str, String)], body: String) -> Answered {
        self.request_as(None, Method::POST, path, headers, Some(body)).await
    }

    /// Begins a run of `ops` in a session.
    pub(crate) async fn begin(&self, session: &str) -> String {
        let body = json!({"input": "please", "session": session});
        let begun = self.post("/api/v1/agents/ops/runs", &body).await;
        assert_eq!(begun.status, 201, "{begun:?}");
        begun.body["id"].as_str().unwrap().to_owned()
    }

    /// A run once it has this status.
    pub(crate) async fn run_is(&self, run: &str, status: &str) -> Value {
        let path = format!("/api/v1/runs/{run}");
        until(&format!("{run} is {status}"), async || {
            let run = self.get(&path).await;
            (run["status"] == status).then_some(run)
        })
        .await
    }

    /// The record of a call once it has this status.
    pub(crate) async fn call_is(&self, id: &str, status: &str) -> Value {
        let path = format!("/async-tool/pending/{id}");
        until(&format!("{id} is {status}"), async || {
            let answered = self.request(Method::GET, &path, &[], None).await;
            (answered.body["status"] == status).then_some(answered.body)
        })
        .await
    }

    /// Everything that the log of a run says, as text.
    pub(crate) async fn log(&self, run: &str) -> String {
        self.get(&format!("/api/v1/runs/{run}/events")).await.to_string()
    }
}

/// HMAC-SHA256 in hex, written here once more.
pub(crate) fn hmac_hex(secret: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The result of the worked example.
pub(crate) fn result() -> Value {
    json!({
        "title": "Deployment Complete",
        "output": "Preview deployed to https://preview-123.example.com",
        "metadata": {"url": "https://preview-123.example.com", "deploymentID": "deploy-123"},
    })
}
