//! Rules and workers elsewhere: the policy is about the tools that they bring as about any other; what nobody can count or claim, because
//! a worker does not say when it starts, is asked about.
//!
//! Whether somebody is to be asked where no rule is about a tool is the worker's word: `calls.rs`. Standing approvals are `grants.rs`.

use serde_json::{Value, json};
use standfast_testkit::text;

use crate::inbox::server::{Server, configure, serve_from};

const AGENTS: &str = r#"tools: {execute_command: {allowed_commands: [echo]}}
agents: {ops: {llm: script, session_store: main, task: {}, tools: [execute_command]}}
policy:
  rules:
  - {id: no-drops, deny: drop_table, because: ask the owner of the data}
  - {id: letters, hold: send_letter, because: somebody reads it before, risk: high}
  - {id: spending, allow: buy, budgets: [{name: daily, sum: amount, limit: 100, window: 1d, over: deny}]}
  - {id: paid, allow: [pay, execute_command], effect_key: "pay:{command}"}
"#;

/// A script whose run pays once.
const PAYS: &str = r#"replies:
- calls:
  - tool: execute_command
    arguments: '{"command": "echo pay-7"}'
- text: done
"#;

fn served(folder: &std::path::Path) -> Server {
    configure(folder, PAYS, AGENTS, "");
    serve_from(folder, "data")
}

/// A call of a worker of `ops` that says that nobody need be asked.
async fn tells(server: &Server, task: &Value, tool: &str, input: &Value) -> Value {
    let call = json!({"claimId": task["claimId"], "tool": tool, "input": input, "requiresApproval": false});
    let told = server.post(&format!("/support/tasks/{}/calls", text(&task["id"])), &call).await;
    assert_eq!(told.status, 201, "{told:?}");
    told.body
}

async fn task(server: &Server) -> Value {
    server.add(&json!({"type": "ticket", "payload": {}, "targetAgentId": "ops"})).await;
    server.claim(&json!({"agentId": "ops"})).await
}

async fn hold(server: &Server, call: &Value) -> Value {
    server.look(&format!("/api/v1/holds/{}", text(&call["holdId"]))).await
}

async fn approve(server: &Server, call: &Value) {
    let path = format!("/api/v1/holds/{}/resolve", text(&call["holdId"]));
    let decided = server.post_anywhere(&path, &json!({"resolution": "approve"})).await;
    assert_eq!(decided.status, 200, "{decided:?}");
}

/// Of a tool that only the worker has, a rule denies or holds calls whatever the worker says; edited arguments are judged by it too; a tool
/// that no rule is about is the worker's own matter.
#[tokio::test]
async fn rules_are_about_tools_that_a_worker_brings() {
    let folder = tempfile::tempdir().unwrap();
    let server = served(folder.path());
    let task = task(&server).await;
    let refused = tells(&server, &task, "drop_table", &json!({"name": "t"})).await;
    assert_eq!(refused["status"], "refused", "{refused}");
    assert!(text(&refused["reason"]).contains("ask the owner of the data"), "{refused}");
    let free = tells(&server, &task, "look_up", &json!({"q": 1})).await;
    assert_eq!(free["status"], "approved", "{free}");
    let held = tells(&server, &task, "send_letter", &json!({"to": "ann"})).await;
    assert_eq!(held["status"], "waiting_for_approval", "{held}");
    let shown = hold(&server, &held).await;
    assert_eq!(shown["because"], json!(["somebody reads it before"]), "{shown}");
    assert_eq!(shown["risk"], "high", "{shown}");
}

/// What a call takes from a budget, or does once in the world, is not written down when a worker runs it: so it is asked about, with the
/// first start of its effect and what came of it; what is over a budget that denies is refused.
#[tokio::test]
async fn what_a_worker_runs_uncounted_is_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let server = served(folder.path());
    let task = task(&server).await;
    let within = tells(&server, &task, "buy", &json!({"amount": 40})).await;
    assert_eq!(within["status"], "waiting_for_approval", "{within}");
    let shown = hold(&server, &within).await;
    assert!(text(&shown["reason"]).contains("cannot be counted"), "{shown}");
    approve(&server, &within).await;
    let over = tells(&server, &task, "buy", &json!({"amount": 400})).await;
    assert_eq!(over["status"], "refused", "{over}");
    // Nobody has started it before: asked about all the same.
    let first = tells(&server, &task, "pay", &json!({"command": "echo pay-7"})).await;
    assert_eq!(first["status"], "waiting_for_approval", "{first}");
    let shown = hold(&server, &first).await;
    assert!(text(&shown["reason"]).contains("claims nothing"), "{shown}");
    approve(&server, &first).await;
    // A run of the agent has the effect; the worker's approver is shown that.
    let paid = server.program.send("ops");
    assert_eq!(paid["status"], "completed", "{paid}");
    let second = tells(&server, &task, "pay", &json!({"command": "echo pay-7"})).await;
    let shown = hold(&server, &second).await.to_string();
    assert!(shown.contains("was started before") && shown.contains(text(&paid["id"])), "{shown}");
    assert!(shown.contains("it was executed"), "{shown}");
}
