//! The dialogs that coding agents show beside the pages: a dialog that is gone takes its request along, and a request without one stays.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use standfast_testkit::{Server, text, until, until_found};

use super::{Gates, plain, serve};

/// An event of Claude Code about a call of a refund.
fn call(event: &str, id: &str) -> Value {
    json!({"session_id": "s-1", "hook_event_name": event, "tool_name": "send_refund", "tool_input": {"amount": 40},
        "tool_use_id": id})
}

/// Where Claude Code shows its dialog, it has no name for the call.
fn dialog() -> Value {
    json!({"session_id": "s-1", "hook_event_name": "PermissionRequest", "tool_name": "send_refund", "tool_input": {"amount": 40}})
}

fn news(event: &str) -> Value {
    json!({"session_id": "s-1", "hook_event_name": event, "prompt": "something else"})
}

async fn tell(server: &Server, event: &Value) -> Value {
    let told = server.http.post("/hooks/claude-code?wait=0&then=ask", event).await;
    assert_eq!(told.status, 200, "{told:?}");
    told.body
}

async fn state(server: &Server, hold: &Value) -> String {
    text(&server.gate(&json!({"gate": hold["run"]})).await["state"]).to_owned()
}

/// The request of a call that Claude Code asks its own user about.
async fn asked_there(server: &Server, id: &str) -> Value {
    let answer = tell(server, &call("PreToolUse", id)).await;
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "ask", "{answer}");
    server.open_holds().await.pop().unwrap()
}

/// T5: somebody says no in the client's own dialog, of which no hook tells. The next thing that the client does shows that the dialog is gone,
/// also when the server was killed in between; what may happen beside an open dialog shows nothing.
#[tokio::test]
async fn t5_a_dialog_that_is_gone_takes_its_request_along() {
    let (folder, server) = plain();
    let hold = asked_there(&server, "t1").await;
    let mut other = call("PreToolUse", "t2");
    other["tool_name"] = json!("Read");
    let mut elsewhere = news("UserPromptSubmit");
    elsewhere["session_id"] = json!("s-2");
    let mut of_another_agent = news("SubagentStop");
    of_another_agent["agent_id"] = json!("a-1");
    let mut ran_beside = call("PostToolUse", "t2");
    ran_beside["tool_name"] = json!("Read");
    for beside in [other, ran_beside, news("Notification"), elsewhere, of_another_agent] {
        tell(&server, &beside).await;
        assert_eq!(state(&server, &hold).await, "held", "{beside}");
    }
    drop(server);
    let server = serve(folder.path(), "data");
    tell(&server, &news("UserPromptSubmit")).await;
    assert_eq!(state(&server, &hold).await, "withdrawn");
    assert!(server.open_holds().await.is_empty(), "no page shows a button");
    let late = server.resolve(text(&hold["id"]), &json!({"resolution": "approve"})).await;
    assert_eq!(late.status, 409, "{late:?}");
    for (no, gone) in ["Stop", "StopFailure", "PostToolBatch", "SessionEnd"].into_iter().enumerate() {
        let hold = asked_there(&server, &format!("t{}", no + 10)).await;
        tell(&server, &news(gone)).await;
        assert_eq!(state(&server, &hold).await, "withdrawn", "{gone}");
    }
    // Approved on a page while the dialog was open, and refused there: it may not be started later.
    let hold = asked_there(&server, "t20").await;
    server.resolve(text(&hold["id"]), &json!({"resolution": "approve"})).await;
    tell(&server, &news("Stop")).await;
    assert_eq!(state(&server, &hold).await, "withdrawn");
}

/// Giving up is never a denial: a request that no dialog was shown for stays open, whatever its client does next.
#[tokio::test]
async fn t5_what_waits_without_a_dialog_stays_open() {
    let (_folder, server) = plain();
    for (id, then) in [("t1", "deny"), ("t2", "defer"), ("t3", "wait")] {
        server.http.post(&format!("/hooks/claude-code?wait=0&then={then}"), &call("PreToolUse", id)).await;
    }
    for event in ["PostToolBatch", "Stop", "SessionEnd", "UserPromptSubmit"] {
        tell(&server, &news(event)).await;
    }
    assert_eq!(server.open_holds().await.len(), 3);
    // What runs is reported, not withdrawn.
    let hold = asked_there(&server, "t4").await;
    server.resolve(text(&hold["id"]), &json!({"resolution": "approve"})).await;
    tell(&server, &call("PreToolUse", "t4")).await;
    tell(&server, &news("Stop")).await;
    assert_eq!(state(&server, &hold).await, "started");
}

/// An agent that the conversation's own one started has dialogs of its own: its end is not that of the other, and a prompt of the user ends
/// both.
#[tokio::test]
async fn dialogs_of_one_agent_are_not_those_of_another() {
    let (_folder, server) = plain();
    let of_agent = |mut event: Value| {
        event["agent_id"] = json!("a-1");
        event
    };
    let own = asked_there(&server, "t1").await;
    tell(&server, &of_agent(call("PreToolUse", "t2"))).await;
    let holds = server.open_holds().await;
    let its = holds.iter().find(|hold| hold["id"] != own["id"]).unwrap();
    tell(&server, &of_agent(news("SubagentStop"))).await;
    assert_eq!((state(&server, its).await, state(&server, &own).await), ("withdrawn".into(), "held".into()));
    tell(&server, &of_agent(call("PreToolUse", "t3"))).await;
    tell(&server, &news("Stop")).await;
    assert_eq!(state(&server, &own).await, "withdrawn");
    assert_eq!(server.open_holds().await.len(), 1);
    tell(&server, &news("UserPromptSubmit")).await;
    assert!(server.open_holds().await.is_empty());
}

/// T5: a dialog and the hook before it are one question. Whoever approves on a page answers the dialog; the twin of a call has its own
/// request, and the approval of one never lets both run.
#[tokio::test]
async fn t5_a_dialog_is_answered_from_a_page() {
    let (_folder, server) = plain();
    asked_there(&server, "t1").await;
    tell(&server, &call("PreToolUse", "t2")).await;
    assert_eq!(server.open_holds().await.len(), 2);
    let path = "/hooks/claude-code?wait=50&then=ask";
    let approve = async {
        // The dialog found one of them; which one is shown when that is decided.
        for hold in server.open_holds().await {
            let resolved = server.resolve(text(&hold["id"]), &json!({"resolution": "approve"})).await;
            assert_eq!(resolved.status, 200, "{resolved:?}");
        }
    };
    let shown = dialog();
    let (answer, ()) = tokio::join!(server.http.post(path, &shown), approve);
    assert_eq!(answer.body["hookSpecificOutput"]["decision"], json!({"behavior": "allow"}), "{answer:?}");
    assert!(server.open_holds().await.is_empty(), "the dialog asked nothing of its own");
    let states = async || {
        let gates = server.http.get("/api/v1/runs?agent=gate").await.body;
        let mut states = Vec::new();
        for run in gates["runs"].as_array().unwrap() {
            states.push(state(&server, &json!({"run": run["id"]})).await);
        }
        states.sort();
        states
    };
    assert_eq!(states().await, ["allowed", "started"]);
    let twin = server.http.post(path, &dialog()).await;
    assert_eq!(twin.body["hookSpecificOutput"]["decision"]["behavior"], "allow", "{twin:?}");
    assert_eq!(states().await, ["started", "started"]);
    // A dialog that no hook came before is a question of its own.
    assert_eq!(tell(&server, &dialog()).await, json!({}));
    let hold = until_found("its request", async || server.open_holds().await.pop()).await;
    tell(&server, &news("UserPromptSubmit")).await;
    assert_eq!(state(&server, &hold).await, "withdrawn");
}

/// Claude Code ends the hook of its dialog when its user has decided there: the server is told at once, and the other answer that comes then is
/// not handed on.
#[tokio::test]
async fn a_hook_that_is_ended_beside_its_dialog_tells_so() {
    let (_folder, server) = plain();
    let hold = asked_there(&server, "t1").await;
    let mut command = standfast_testkit::standfast();
    command.args(["hook", "--client", "claude-code", "--wait", "600", "--then", "ask", "--server"]);
    command.arg(&server.program.base).env_remove("STANDFAST_KEY");
    let mut hook = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut hook.stdin.take().unwrap(), dialog().to_string().as_bytes()).unwrap();
    // It listens for its end before it asks.
    let status = format!("/proc/{}/status", hook.id());
    until("it catches the signal", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&caught, 16).unwrap() & (1 << 14) != 0
    });
    let ended = Command::new("kill").arg(hook.id().to_string()).status().unwrap();
    assert!(ended.success());
    let done = tokio::task::spawn_blocking(move || hook.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(done.status.code(), Some(143));
    assert!(done.stdout.is_empty(), "{done:?}");
    assert_eq!(state(&server, &hold).await, "withdrawn");
}

/// The other clients that ask their own user when nobody has decided.
#[tokio::test]
async fn dialogs_of_other_clients() {
    let (_folder, server) = plain();
    let cases = [
        (
            "cursor",
            json!({"conversation_id": "c", "hook_event_name": "beforeMCPExecution", "tool_name": "send_refund", "tool_input": "{}"}),
            json!({"conversation_id": "c", "hook_event_name": "beforeSubmitPrompt", "prompt": "p"}),
            r#"{"continue":true}"#,
        ),
        (
            "cursor",
            json!({"conversation_id": "c", "hook_event_name": "beforeMCPExecution", "tool_name": "send_refund", "tool_input": "{}"}),
            json!({"conversation_id": "c", "hook_event_name": "stop", "status": "aborted"}),
            "{}",
        ),
        (
            "codex",
            json!({"session_id": "x", "hook_event_name": "PermissionRequest", "tool_name": "send_refund", "tool_input": {}}),
            json!({"session_id": "x", "hook_event_name": "Stop"}),
            "",
        ),
        (
            "copilot",
            json!({"sessionId": "p", "hookEventName": "permissionRequest", "toolName": "send_refund", "toolArgs": "{}"}),
            json!({"sessionId": "p", "hookEventName": "userPromptSubmitted"}),
            "",
        ),
    ];
    for (client, asks, gone, answer) in cases {
        server.http.post(&format!("/hooks/{client}?wait=0"), &asks).await;
        assert_eq!(server.open_holds().await.len(), 1, "{client}");
        assert_eq!(
            server.http.post(&format!("/hooks/{client}?wait=0"), &gone).await.text,
            answer,
            "{client}"
        );
        assert!(server.open_holds().await.is_empty(), "{client}: {gone}");
    }
}

/// No prompt and no end of a turn is blocked because a server is away: a client would take that as a no to it.
#[test]
fn news_block_nothing_without_a_server() {
    let event = news("Stop").to_string();
    let mut command = standfast_testkit::standfast();
    command.args(["hook", "--client", "claude-code", "--wait", "0", "--server", "http://127.0.0.1:9"]);
    command.env_remove("STANDFAST_KEY").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), event.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(done.stdout.is_empty() && said.contains("Standfast could not be told"), "{said}");
}
