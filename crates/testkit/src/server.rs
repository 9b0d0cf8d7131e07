//! A running server and somebody who asks it over HTTP: what most tests of the program begin with.
//!
//! Knows the native API as far as every test needs it: a run that is held, its decision, how it stands. What clients of a protocol ask
//! stands with the tests of that protocol; the process itself is `process.rs`.

use std::path::Path;

use serde_json::{Value, json};

use crate::binary::standfast;
use crate::http::{Answer, Http};
use crate::json::owned_text;
use crate::process::{Process, start};
use crate::wait::until_found;

/// A running server, and who asks it; dropping it is `kill -9`.
#[derive(Debug)]
pub struct Server {
    /// The process.
    pub program: Process,
    /// Who asks it.
    pub http: Http,
}

impl Server {
    /// One that was started, asked without a key.
    #[must_use]
    pub fn of(program: Process) -> Server {
        Server { http: Http::new(&program.base), program }
    }

    /// The embedded demo with its data in this folder.
    #[must_use]
    pub fn demo(data: &Path) -> Server {
        let mut command = standfast();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).env("RUST_LOG", "warn");
        Server::of(start(command.env_remove("STANDFAST_KEY")))
    }

    /// Any request; its status and body.
    pub async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let answer = self.http.ask(method, path, body.as_ref()).await;
        (answer.status, answer.body)
    }

    /// What there is to read.
    ///
    /// # Panics
    ///
    /// When there is nothing.
    pub async fn get(&self, path: &str) -> Value {
        self.found(path).await.body
    }

    /// The same as it was written.
    ///
    /// # Panics
    ///
    /// When there is nothing.
    pub async fn text(&self, path: &str) -> String {
        self.found(path).await.text
    }

    async fn found(&self, path: &str) -> Answer {
        let answer = self.http.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer
    }

    /// A run of the demo's agent that is held; its id and that of its hold.
    pub async fn held(&self) -> (String, String) {
        self.began(&json!({"input": "Free some space", "wait": "settled"})).await
    }

    /// The same in a session.
    pub async fn held_in(&self, session: &str) -> (String, String) {
        self.began(&json!({"input": "Free some space", "session": session, "wait": "settled"})).await
    }

    async fn began(&self, body: &Value) -> (String, String) {
        let began = self.http.post("/api/v1/agents/ops/runs", body).await;
        assert_eq!((began.status, &began.body["status"]), (201, &json!("held")), "{began:?}");
        (owned_text(&began.body["id"]), owned_text(&began.body["holds"][0]["id"]))
    }

    /// Decides a hold.
    pub async fn resolve(&self, hold: &str, body: &Value) -> Answer {
        self.http.post(&format!("/api/v1/holds/{hold}/resolve"), body).await
    }

    /// Says yes to a hold.
    ///
    /// # Panics
    ///
    /// When it does not count.
    pub async fn approve(&self, hold: &str) {
        let decided = self.resolve(hold, &json!({"resolution": "approve"})).await;
        assert_eq!(decided.status, 200, "{decided:?}");
    }

    /// A run once it has this status.
    pub async fn until(&self, run: &str, status: &str) -> Value {
        until_found(&format!("{run} is {status}"), async || {
            let shown = self.get(&format!("/api/v1/runs/{run}")).await;
            (shown["status"] == status).then_some(shown)
        })
        .await
    }
}
