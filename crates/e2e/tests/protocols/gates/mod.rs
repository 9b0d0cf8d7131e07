//! Gates of the real program, as somebody else's agent uses them: open, wait, start, report; and people decide.
//!
//! `life.rs` is one gate from beginning to end, `attach.rs` repeats and many at once, `who.rs` keys and bad input,
//! `hooks.rs` coding agents, `dialogs.rs` what they ask their own users, `grants.rs` standing approvals, `callbacks.rs` who else is told.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attach;
mod callbacks;
mod dialogs;
mod grants;
mod hooks;
mod life;
mod who;

use std::path::Path;

use serde_json::{Value, json};
use standfast_testkit::http::{Answer, Http};
use standfast_testkit::{Server, text};

const POLICY: &str = "policy:
  rules:
  - {id: reads, allow: look_up}
  - {id: tables, deny: drop_table, because: ask the owner of the data}
  - {id: money, hold: send_refund, because: money leaves the company}
";

pub(crate) fn configure(folder: &Path, postgres: &str) {
    let sql = match postgres {
        "" => format!("driver: sqlite, database: \"{}\"", folder.join("runs.db").display()),
        url => format!("driver: postgres, url: \"{url}\""),
    };
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
session_stores: {{main: {{backend: sql, sql: {{{sql}}}}}}}
server: {{nodes: {{take_over_after: 3s}}}}
agents: {{ops: {{llm: script, session_store: main, task: {{}}}}}}
{POLICY}"
    );
    std::fs::write(folder.join("script.yaml"), "replies:\n- text: done\n").unwrap();
    std::fs::write(folder.join("standfast.yaml"), config).unwrap();
}

pub(crate) fn serve(folder: &Path, data: &str) -> Server {
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(folder.join("standfast.yaml"));
    command.arg("--data").arg(folder.join(data)).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    Server::of(standfast_testkit::start(&mut command))
}

pub(crate) fn plain() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let server = serve(folder.path(), "data");
    (folder, server)
}

/// A refund that somebody has to approve.
pub(crate) fn refund(call: &str) -> Value {
    json!({"tool": "send_refund", "arguments": {"order": "A-7", "amount": 40.10}, "agent": "billing",
        "session": "case-7", "call": call, "words": "the customer sent it back"})
}

/// What somebody else's agent asks.
pub(crate) trait Gates {
    fn asks(&self) -> &Http;

    async fn open(&self, body: &Value) -> Value {
        let opened = self.asks().post("/api/v1/gates", body).await;
        assert!([200, 202].contains(&opened.status), "{opened:?}");
        opened.body
    }

    async fn gate(&self, gate: &Value) -> Value {
        let shown = self.asks().get(&format!("/api/v1/gates/{}", text(&gate["gate"]))).await;
        assert_eq!(shown.status, 200, "{shown:?}");
        shown.body
    }

    async fn verb(&self, gate: &Value, verb: &str, body: &Value) -> Answer {
        self.asks().post(&format!("/api/v1/gates/{}/{verb}", text(&gate["gate"])), body).await
    }

    /// Starts the call of a gate with the digest that it shows.
    async fn start(&self, gate: &Value) -> Answer {
        self.verb(gate, "start", &json!({"digest": gate["digest"]})).await
    }

    async fn open_holds(&self) -> Vec<Value> {
        self.asks().get("/api/v1/holds?limit=200").await.body["holds"].as_array().unwrap().clone()
    }
}

impl Gates for Server {
    fn asks(&self) -> &Http {
        &self.http
    }
}
