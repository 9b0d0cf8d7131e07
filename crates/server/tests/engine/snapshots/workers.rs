//! What those read who run calls elsewhere: gates over the API, by a hook and by the tools of MCP, workers of an inbox, and jobs that
//! say how far they are.

use std::sync::Arc;

use serde_json::{Value, json};
use standfast_core::id::{HoldId, RunId};
use standfast_engine::settings::{Settings, gate_agent};

use super::{Call, Server};
use crate::rules::rules;

/// The rules of gates: a person is asked about refunds.
pub(super) fn settings(settings: &mut Settings) {
    let money = json!({"id": "money", "hold": "send_refund", "because": "money leaves the company"});
    settings.gate = Arc::new(gate_agent(rules(&json!({"rules": [money]}))));
}

/// A hook of Claude Code.
fn hook(event: &str, call: &str) -> Value {
    json!({"session_id": "s-1", "cwd": "/w", "hook_event_name": event, "tool_name": "send_refund",
        "tool_input": {"amount": 40}, "tool_use_id": call, "permission_mode": "default"})
}

impl Server {
    /// A gate that waits for a person.
    pub(super) async fn gate(&self, call: &str) -> (RunId, Value) {
        let body = json!({"tool": "send_refund", "arguments": {"amount": 40}, "agent": "billing", "session": "case-7",
            "call": call});
        let opened = self.post("/api/v1/gates", &body).await;
        (opened["gate"].as_str().unwrap().parse().unwrap(), opened)
    }

    /// Approves the only pending hold, and says whose it was.
    async fn approve_the_only_hold(&self) -> RunId {
        let listed: Value = serde_json::from_str(&self.get("/api/v1/holds").await).unwrap();
        let hold = listed["holds"][0]["id"].as_str().unwrap();
        self.post(&format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "approve"})).await;
        hold.parse::<HoldId>().unwrap().run
    }

    async fn counted(&self, run: RunId, path: &str, body: &Value) -> Value {
        self.store.begin(run);
        let answer = self.post(path, body).await;
        self.assert_few_reads(path);
        answer
    }

    /// A tool of the server's own MCP server.
    async fn mcp(&self, name: &str, arguments: &Value) -> Value {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": name, "arguments": arguments}});
        let request =
            self.client.post(format!("{}/mcp", self.base)).header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.header("mcp-protocol-version", "2025-11-25").body(call.to_string());
        let (status, text) = self.send(request).await;
        assert_eq!(status, 200, "{name}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        answer["result"]["structuredContent"].clone()
    }
}

#[tokio::test]
async fn a_gate_is_read_once_whatever_happens_to_it() {
    let server = Server::new(Call::NeedsApproval).await;
    let (gate, opened) = server.gate("c-1").await;
    let hold = opened["hold"].as_str().unwrap();
    server.counted(gate, &format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "approve"})).await;
    let start = json!({"digest": opened["digest"]});
    server.counted(gate, &format!("/api/v1/gates/{gate}/start"), &start).await;
    let outcome = json!({"attempt": 1, "status": "succeeded", "result": {"paid": true}});
    server.counted(gate, &format!("/api/v1/gates/{gate}/outcome"), &outcome).await;
    let (gate, _) = server.gate("c-2").await;
    server.counted(gate, &format!("/api/v1/gates/{gate}/withdraw"), &json!({})).await;
}

#[tokio::test]
async fn a_hook_reads_its_gate_once() {
    let server = Server::new(Call::NeedsApproval).await;
    server.post("/hooks/claude-code?wait=0&then=ask", &hook("PreToolUse", "t-1")).await;
    let gate = server.approve_the_only_hold().await;
    let allowed = server.counted(gate, "/hooks/claude-code", &hook("PreToolUse", "t-1")).await;
    assert_eq!(allowed["hookSpecificOutput"]["permissionDecision"], "allow", "{allowed}");
    let mut after = hook("PostToolUse", "t-1");
    after["tool_response"] = json!({"stdout": "paid"});
    server.counted(gate, "/hooks/claude-code", &after).await;
}

#[tokio::test]
async fn the_tools_of_mcp_read_their_gate_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let (gate, _) = server.gate("c-1").await;
    server.approve_the_only_hold().await;
    server.store.begin(gate);
    let shown = server.mcp("standfast_result", &json!({"gate": gate.to_string()})).await;
    assert_eq!(shown["state"], "approved", "{shown}");
    server.assert_few_reads("MCP, what was approved is handed out");
    server.store.begin(gate);
    let done = json!({"gate": gate.to_string(), "status": "succeeded", "result": "paid"});
    server.mcp("standfast_result", &done).await;
    server.assert_few_reads("MCP, an outcome");
}

#[tokio::test]
async fn a_worker_of_an_inbox_reads_its_task_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let base = "/api/inboxes/support";
    let task = server.post(&format!("{base}/tasks"), &json!({"type": "ticket", "payload": {}})).await;
    let run: RunId = task["id"].as_str().unwrap().parse().unwrap();
    let claimed = server.counted(run, &format!("{base}/claim"), &json!({"agentId": "w"})).await;
    let own = json!({"claimId": claimed["task"]["claimId"]});
    let with = |more: Value| {
        let mut body = own.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    server.counted(run, &format!("{base}/tasks/{run}/start"), &own).await;
    server.counted(run, &format!("{base}/tasks/{run}/heartbeat"), &own).await;
    let call = with(json!({"tool": "look_up", "input": {}, "requiresApproval": false}));
    let call = server.counted(run, &format!("{base}/tasks/{run}/calls"), &call).await;
    let result = with(json!({"result": {"found": 1}}));
    let path = format!("{base}/tasks/{run}/calls/{}/result", call["id"].as_str().unwrap());
    server.counted(run, &path, &result).await;
    server.counted(run, &format!("{base}/tasks/{run}/complete"), &with(json!({"result": "done"}))).await;
}

#[tokio::test]
async fn how_far_a_job_is_reads_its_run_once() {
    let server = Server::new(Call::StartsAJob).await;
    let hold = server.held().await;
    let job = hold.to_string();
    server.counted(hold.run, "/async-tool/progress", &json!({"pendingID": job, "output": "half"})).await;
    server.counted(hold.run, "/async-tool/error", &json!({"pendingID": job, "error": "no"})).await;
}
