//! The real program on a data directory of its own, and what senders, workers and people ask it.
//!
//! Dropping a server is `kill -9`.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use standfast_testkit::http::answer;
pub(crate) use standfast_testkit::{Answer, text};
use standfast_testkit::{Process, until_found};

/// How long anything may take: the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) program: Process,
    client: reqwest::Client,
}

/// A model that asks once, in these words, and then says what it heard.
pub(crate) fn asking(arguments: &str) -> String {
    format!("replies:\n- calls:\n  - tool: suspend\n    arguments: '{arguments}'\n- text: done\n")
}

/// A folder with a server whose agent `triage` serves the inbox `support` with a model that follows this script.
pub(crate) fn serving(script: &str, more: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let agent = format!("{{llm: script, session_store: main, inboxes: [support], task: {{}}{more}}}");
    configure(folder.path(), script, &format!("agents: {{triage: {agent}}}\n"), "");
    let server = serve(folder.path());
    (folder, server)
}

/// A server without agents that serve inboxes: work is for workers elsewhere.
pub(crate) fn plain() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let agents = "agents: {ops: {llm: script, session_store: main, task: {}}}\n";
    configure(folder.path(), "replies:\n- text: done\n", agents, "");
    let server = serve(folder.path());
    (folder, server)
}

/// Writes a configuration with more below `server:`.
pub(crate) fn configure_with(folder: &Path, script: &str, agents: &str, server: &str) {
    configure(folder, script, agents, "");
    let file = folder.join("standfast.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("take_over_after: 3s}", &format!("take_over_after: 3s}}{server}"));
    std::fs::write(file, text).unwrap();
}

/// Writes a configuration; without a database of its own it lives in a file.
pub(crate) fn configure(folder: &Path, script: &str, agents: &str, postgres: &str) {
    std::fs::write(folder.join("script.yaml"), script).unwrap();
    let sql = match postgres {
        "" => format!("driver: sqlite, database: \"{}\"", folder.join("runs.db").display()),
        url => format!("driver: postgres, url: \"{url}\""),
    };
    let text = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
session_stores: {{main: {{backend: sql, sql: {{{sql}}}}}}}
server: {{nodes: {{take_over_after: 3s}}}}
{agents}"
    );
    std::fs::write(folder.join("standfast.yaml"), text).unwrap();
}

pub(crate) fn serve(folder: &Path) -> Server {
    serve_from(folder, "data")
}

/// A server with this directory for its data: nodes that share a database have one each.
pub(crate) fn serve_from(folder: &Path, data: &str) -> Server {
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(folder.join("standfast.yaml"));
    command.arg("--data").arg(folder.join(data)).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    Server { program: standfast_testkit::start(&mut command), client }
}

/// A server that wants keys, for workers elsewhere; everything is asked with the key of somebody who adds tasks and answers.
pub(crate) fn keyed() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let agents = "agents: {ops: {llm: script, session_store: main, task: {}}}\n";
    configure_with(folder.path(), "replies:\n- text: done\n", agents, ", auth: {api_keys: true}");
    let scopes = ["--scope", "runs:read", "--scope", "runs:write", "--scope", "holds:decide"];
    let key = key(folder.path(), "ann", &scopes);
    let server = serve(folder.path()).with_key(&key);
    (folder, server)
}

/// A key of this user, made as an operator would.
pub(crate) fn key(folder: &Path, user: &str, more: &[&str]) -> String {
    let mut command = standfast_testkit::standfast();
    command.args(["keys", "create", "--user", user, "--config"]).arg(folder.join("standfast.yaml"));
    let made = command.arg("--data").arg(folder.join("data")).args(more).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

impl Server {
    /// Everything from now on is asked with this key.
    fn with_key(self, key: &str) -> Server {
        let mut headers = reqwest::header::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {key}").parse().unwrap());
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).default_headers(headers);
        Server { client: client.build().unwrap(), ..self }
    }

    /// Below `/api/inboxes`.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        answer(self.client.get(format!("{}/api/inboxes{path}", self.program.base))).await
    }

    /// Below `/api/inboxes`.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_once(path, body, None).await
    }

    pub(crate) async fn post_once(&self, path: &str, body: &Value, key: Option<&str>) -> Answer {
        let mut request = self.client.post(format!("{}/api/inboxes{path}", self.program.base)).json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        answer(request).await
    }

    /// Any path of the server, with a body.
    pub(crate) async fn post_anywhere(&self, path: &str, body: &Value) -> Answer {
        answer(self.client.post(format!("{}{path}", self.program.base)).json(body)).await
    }

    /// Any path of the server.
    pub(crate) async fn look(&self, path: &str) -> Value {
        let answer = answer(self.client.get(format!("{}{path}", self.program.base))).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    /// Adds a task to `support`.
    pub(crate) async fn add(&self, task: &Value) -> Value {
        let answer = self.post("/support/tasks", task).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.body
    }

    /// A task with nothing special about it.
    pub(crate) async fn add_ticket(&self) -> Value {
        self.add(&json!({"type": "ticket", "payload": {"subject": "Refund"}})).await
    }

    /// Claims from `support`; null when there is nothing.
    pub(crate) async fn claim(&self, claim: &Value) -> Value {
        let answer = self.post("/support/claim", claim).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["task"].clone()
    }

    /// A report of a worker about a task that it claimed: `verb` and what else it says.
    pub(crate) async fn report(&self, claimed: &Value, verb: &str, more: Value) -> Answer {
        let mut body = more;
        body["claimId"] = claimed["claimId"].clone();
        self.post(&format!("/support/tasks/{}/{verb}", text(&claimed["id"])), &body).await
    }

    pub(crate) async fn task(&self, id: &str) -> Value {
        let answer = self.get(&format!("/support/tasks/{id}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    pub(crate) async fn resume(&self, id: &str, payload: Value) -> Answer {
        self.post(&format!("/support/tasks/{id}/resume"), &json!({"payload": payload})).await
    }

    /// Waits until a task has this status.
    pub(crate) async fn until(&self, id: &str, status: &str) -> Value {
        until_found(&format!("{id} is {status}"), async || {
            let task = self.task(id).await;
            (task["status"] == status).then_some(task)
        })
        .await
    }
}

/// The ids of a list of tasks.
pub(crate) fn ids(answer: &Answer) -> Vec<&str> {
    answer.body["tasks"].as_array().unwrap().iter().map(|task| text(&task["id"])).collect()
}
