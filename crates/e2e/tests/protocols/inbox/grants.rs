//! Standing approvals of workers elsewhere: for a tool that a worker brings with its schema, and for one that the agent has here.
//!
//! A worker does not say when it starts what it runs, so each call that one answers takes its use with the append that allows it.
//! Gates are in `gates/grants.rs`, the rule of a standing approval, its pages and its end in `tests/program/grants.rs`.

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::text;

use crate::inbox::server::{Server, configure, serve_from};

const AGENTS: &str = "tools: {write_file: {requires_approval: false}}
agents: {ops: {llm: script, session_store: main, task: {}, tools: [write_file]}}
policy: {rules: [{id: refunds, hold: [send_refund, write_file]}]}
server: {webhooks: {key: a-key-for-tests-that-is-long-enough-0123}}
";

/// The configuration of a folder whose workers work for the agent `ops`, whose rules hold what they ask for.
fn configured(folder: &std::path::Path, postgres: &str) {
    configure(folder, "replies:\n- text: done\n", AGENTS, postgres);
    // `server` stands once in a file.
    let file = folder.join("standfast.yaml");
    let all = std::fs::read_to_string(&file).unwrap().replace("server: {nodes: {take_over_after: 3s}}\n", "");
    std::fs::write(file, all.replace("server: {webhooks", "server: {nodes: {take_over_after: 3s}, webhooks"))
        .unwrap();
}

/// A worker of `ops` with a task.
struct Worker<'a> {
    server: &'a Server,
    task: Value,
}

impl Worker<'_> {
    async fn of(server: &Server) -> Worker<'_> {
        server.add(&json!({"type": "ticket", "payload": {}, "targetAgentId": "ops"})).await;
        let task = server.claim(&json!({"agentId": "ops"})).await;
        assert!(task["id"].is_string(), "{task}");
        Worker { server, task }
    }

    /// Asks for a call; `schema` is what the worker says that its tool takes.
    async fn asks(&self, tool: &str, input: &Value, schema: &Value) -> Value {
        let mut call = json!({"claimId": self.task["claimId"], "tool": tool, "input": input});
        if !schema.is_null() {
            call["inputSchema"] = schema.clone();
        }
        let asked =
            self.server.post(&format!("/support/tasks/{}/calls", text(&self.task["id"])), &call).await;
        assert_eq!(asked.status, 201, "{asked:?}");
        asked.body
    }

    async fn denies(&self, call: &Value) {
        let denied = self.decides(call, &json!({"resolution": "deny"})).await;
        assert_eq!(denied.status, 200, "{denied:?}");
    }

    async fn decides(&self, call: &Value, decision: &Value) -> standfast_testkit::Answer {
        self.server.post_anywhere(&format!("/api/v1/holds/{}/resolve", text(&call["holdId"])), decision).await
    }

    /// Approves a held call and as many further ones as this.
    async fn grants(&self, call: &Value, uses: u32) {
        let path = format!("/api/v1/holds/{}/grant-rule", text(&call["holdId"]));
        let rule = self.server.post_anywhere(&path, &json!({"uses": uses})).await;
        assert_eq!(rule.status, 200, "{rule:?}");
        let grant = json!({"uses": uses, "until": rule.body["until"], "digest": rule.body["digest"]});
        let decided = self.decides(call, &json!({"resolution": "approve", "grant": grant})).await;
        assert_eq!(decided.status, 200, "{decided:?}");
    }
}

async fn kept(server: &Server) -> Value {
    server.look("/api/v1/grants").await["grants"][0].clone()
}

/// "This and the next two", of a tool that only the worker has: the next two calls are approved at once, with the use on their
/// receipts, also of another task and after `kill -9`; then it is used up. Without a schema, with another one or with other
/// arguments a person is asked, and without a schema nobody can approve further calls.
#[tokio::test]
async fn a_standing_approval_answers_a_workers_next_calls() {
    let folder = tempfile::tempdir().unwrap();
    configured(folder.path(), "");
    let server = serve_from(folder.path(), "data");
    let (input, schema) = (json!({"amount": 40}), json!({"type": "object", "required": ["amount"]}));
    let worker = Worker::of(&server).await;
    let bare = worker.asks("send_refund", &input, &Value::Null).await;
    let path = format!("/api/v1/holds/{}/grant-rule", text(&bare["holdId"]));
    let refused = server.post_anywhere(&path, &json!({"uses": 2})).await;
    assert!((400..500).contains(&refused.status), "{refused:?}");
    assert!(refused.body.to_string().contains("inputSchema"), "{refused:?}");
    worker.denies(&bare).await;
    let wrong =
        json!({"claimId": worker.task["claimId"], "tool": "send_refund", "input": input, "inputSchema": 7});
    let wrong = server.post(&format!("/support/tasks/{}/calls", text(&worker.task["id"])), &wrong).await;
    assert_eq!(wrong.status, 422, "{wrong:?}");

    let first = worker.asks("send_refund", &json!({"amount": 41}), &schema).await;
    assert_eq!(first["status"], "waiting_for_approval", "{first}");
    worker.grants(&first, 2).await;
    let id = kept(&server).await["id"].clone();
    assert_eq!(kept(&server).await["state"], "live");
    for (tool, input, schema) in [
        ("send_refund", json!({"amount": 41}), Value::Null),
        ("send_refund", json!({"amount": 41}), json!({"type": "object"})),
        ("send_refund", json!({"amount": 42}), schema.clone()),
    ] {
        let held = worker.asks(tool, &input, &schema).await;
        assert_eq!(held["status"], "waiting_for_approval", "{held}");
        worker.denies(&held).await;
    }
    drop(server);
    let server = serve_from(folder.path(), "data");
    for no in 1..=2 {
        let worker = Worker::of(&server).await;
        let call = worker.asks("send_refund", &json!({"amount": 41}), &schema).await;
        assert_eq!(call["status"], "approved", "{call}");
        let receipt =
            server.look(&format!("/api/v1/runs/{}/calls/1/receipt", text(&worker.task["id"]))).await;
        assert_eq!(receipt["asked"]["grant_use"], json!({"grant": id, "no": no}), "{receipt}");
    }
    assert_eq!(kept(&server).await["state"], "used_up");
    let worker = Worker::of(&server).await;
    let held = worker.asks("send_refund", &json!({"amount": 41}), &schema).await;
    assert_eq!(held["status"], "waiting_for_approval", "{held}");
}

/// For a tool that the agent has here, its own schema counts where the worker sends none; a revoked approval answers nothing more.
#[tokio::test]
async fn a_tool_of_the_agent_needs_no_schema_and_an_ended_approval_answers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    configured(folder.path(), "");
    let server = serve_from(folder.path(), "data");
    let worker = Worker::of(&server).await;
    let input = json!({"path": "a.txt", "content": "x"});
    let first = worker.asks("write_file", &input, &Value::Null).await;
    worker.grants(&first, 5).await;
    assert_eq!(worker.asks("write_file", &input, &Value::Null).await["status"], "approved");
    let id = kept(&server).await["id"].clone();
    let ended = server.post_anywhere(&format!("/api/v1/grants/{}/revoke", text(&id)), &json!({})).await;
    assert_eq!(ended.status, 200, "{ended:?}");
    assert_eq!(worker.asks("write_file", &input, &Value::Null).await["status"], "waiting_for_approval");
}

/// Workers on two nodes ask at once: no more calls are approved than it says, and no use is there twice.
#[tokio::test]
async fn two_nodes_never_approve_more_than_it_says() {
    let folder = tempfile::tempdir().unwrap();
    configured(folder.path(), &shared().database());
    let nodes = [serve_from(folder.path(), "one"), serve_from(folder.path(), "two")];
    let (input, schema) = (json!({"amount": 40}), json!({"type": "object"}));
    let worker = Worker::of(&nodes[0]).await;
    let first = worker.asks("send_refund", &input, &schema).await;
    worker.grants(&first, 3).await;
    let mut workers = Vec::new();
    for no in 0..8 {
        workers.push(Worker::of(&nodes[no % 2]).await);
    }
    let asked = workers.iter().map(|worker| worker.asks("send_refund", &input, &schema));
    let calls = futures_util::future::join_all(asked).await;
    let approved = calls.iter().filter(|call| call["status"] == "approved").count();
    assert_eq!(approved, 3, "{calls:?}");
    let mut uses = Vec::new();
    for (worker, call) in workers.iter().zip(&calls).filter(|(_, call)| call["status"] == "approved") {
        let path = format!("/api/v1/runs/{}/calls/1/receipt", text(&worker.task["id"]));
        let receipt = nodes[1].look(&path).await;
        uses.push(
            receipt["asked"]["grant_use"]["no"].as_u64().unwrap_or_else(|| panic!("{call}: {receipt}")),
        );
    }
    uses.sort_unstable();
    assert_eq!(uses, [1, 2, 3]);
}
