//! The real program on a data directory of its own, and what clients ask it.
//!
//! Dropping a server is `kill -9`.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use standfast_testkit::http::answer;
use standfast_testkit::{Process, until_found};

/// How long anything may take: the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) program: Process,
    pub(crate) client: reqwest::Client,
}

/// The demo, with its agents `ops` (asks before it deletes), `travel` (asks with options, then freely) and `receipts`
/// (asks with a schema).
pub(crate) fn demo(data: &Path) -> Server {
    demo_with(data, &[])
}

/// The demo with more arguments.
pub(crate) fn demo_with(data: &Path, more: &[&str]) -> Server {
    start(standfast_testkit::standfast().arg("serve").args(more).arg("--data").arg(data))
}

/// A server with this configuration, whose models follow scripts beside it.
pub(crate) fn configured(folder: &Path, config: &str) -> Server {
    std::fs::write(folder.join("standfast.yaml"), config).unwrap();
    serve_file(folder, &[])
}

/// A server with the configuration that is in a folder.
pub(crate) fn serve_file(folder: &Path, more: &[&str]) -> Server {
    serve_in(folder, more, &[])
}

/// The same with variables in its environment.
pub(crate) fn serve_in(folder: &Path, more: &[&str], variables: &[(&str, &str)]) -> Server {
    let mut command = standfast_testkit::standfast();
    command.arg("serve").args(more).arg("--config").arg(folder.join("standfast.yaml"));
    command.envs(variables.iter().copied());
    start(command.arg("--data").arg(folder.join("data")))
}

/// The server for conformance kits, with the configuration that is in a folder.
pub(crate) fn serve_kits(folder: &Path, more: &[&str], variables: &[(&str, &str)]) -> Server {
    let mut command = standfast_testkit::binary::conformance();
    command.args(more).arg("--config").arg(folder.join("standfast.yaml"));
    command.envs(variables.iter().copied());
    start(command.arg("--data").arg(folder.join("data")))
}

/// The same server, killed and started again at its address.
pub(crate) fn configured_again(server: Server, folder: &Path) -> Server {
    let listen = server.program.base.strip_prefix("http://").unwrap().to_owned();
    drop(server);
    serve_file(folder, &["--listen", &listen])
}

fn start(command: &mut Command) -> Server {
    // A port that is still free when the server is killed and started again at its address.
    if !command.get_args().any(|argument| argument == "--listen") {
        command.args(["--listen", &format!("127.0.0.1:{}", standfast_testkit::free_port())]);
    }
    command.env("RUST_LOG", "warn");
    Server {
        program: standfast_testkit::start(command),
        client: reqwest::Client::builder().no_proxy().build().unwrap(),
    }
}

/// A key of the user `ann` for the server whose configuration and data are in a folder, as the header that brings it.
pub(crate) fn authorization(folder: &Path) -> String {
    let mut command = standfast_testkit::standfast();
    command.args(["keys", "create", "--user", "ann", "--config"]).arg(folder.join("standfast.yaml"));
    let made = command.arg("--data").arg(folder.join("data")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    format!("Bearer {}", String::from_utf8(made.stdout).unwrap().trim())
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The reason of its error, for tables.
    pub(crate) fn reason(&self) -> &str {
        let details = self.body["error"].get("details").unwrap_or(&self.body["error"]["data"]);
        details[0]["reason"].as_str().unwrap_or("none")
    }
}

impl Server {
    /// Any request; a body is sent as JSON unless the headers say otherwise.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let url = format!("{}{path}", self.program.base);
        let mut request = self.client.request(method.parse().unwrap(), url).timeout(PATIENCE);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_empty() {
            if !headers.iter().any(|(name, _)| *name == "content-type") {
                request = request.header("content-type", "application/json");
            }
            request = request.body(body.to_vec());
        }
        let standfast_testkit::Answer { status, headers, body, .. } = answer(request).await;
        Answer { status, headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[], body.to_string().as_bytes()).await
    }

    /// Over JSON-RPC to an agent.
    pub(crate) async fn rpc(&self, agent: &str, method: &str, params: Value) -> Answer {
        let body = json!({"jsonrpc": "2.0", "id": "one", "method": method, "params": params});
        let answer = self.post(&format!("/v1/agents/{agent}"), &body).await;
        assert_eq!((answer.status, &answer.body["id"]), (200, &json!("one")), "{answer:?}");
        answer
    }

    /// Sends a message over HTTP+JSON and expects a task.
    pub(crate) async fn send(&self, agent: &str, message: &Value) -> Value {
        let answer =
            self.post(&format!("/v1/agents/{agent}/message:send"), &json!({"message": message})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["task"].clone()
    }

    /// Waits until a task is in a state.
    pub(crate) async fn until(&self, agent: &str, task: &str, state: &str) -> Value {
        until_found(&format!("task {task} is {state}"), async || {
            let answer = self.get(&format!("/v1/agents/{agent}/tasks/{task}")).await;
            (answer.body["status"]["state"] == state).then_some(answer.body)
        })
        .await
    }
}

/// A message of one text.
pub(crate) fn says(text: &str) -> Value {
    json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// An id that no other message has: a message to a task is carried out once by it (C26).
pub(crate) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(2);
    format!("m-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A message to a task.
pub(crate) fn replies(task: &Value, parts: Value) -> Value {
    json!({"messageId": unique(), "role": "ROLE_USER", "taskId": task["id"], "contextId": task["contextId"], "parts": parts})
}

/// A decision on a task.
pub(crate) fn decides(task: &Value, data: Value) -> Value {
    replies(task, json!([{"data": data}]))
}

pub(crate) fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap()
}

/// The data parts of what a task asks.
pub(crate) fn asked(task: &Value) -> Vec<Value> {
    let parts = task["status"]["message"]["parts"].as_array().unwrap();
    parts.iter().filter_map(|part| part.get("data")).cloned().collect()
}
