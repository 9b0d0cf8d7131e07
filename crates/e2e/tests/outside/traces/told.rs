//! What belongs to the trace of a run beside its drives: mail and messages to rooms about it, and the holds of runs that are
//! changed together.
//!
//! The mail server is that of `mail`, the room a receiver of HTTP.

use serde_json::{Value, json};
use standfast_testkit::receiver::{Mood, Receiver};
use standfast_testkit::{Http, folder, serve_command, start, text, until_found};

use super::collector::Collector;
use super::{CALLER, SCRIPT, approve, held, stop};
use crate::mail::MailServer;

/// A mail and a message to a room are spans of the run that they are about, with the kind of the channel and without anybody's address
/// or the address of the room, which may be a secret. The room is told the span.
#[tokio::test(flavor = "multi_thread")]
async fn a_mail_and_a_message_to_a_room_are_spans_of_their_run() {
    let collector = Collector::start("http");
    let room = Receiver::new(Mood::Takes).await;
    let folder = folder(&[("script", SCRIPT)], "");
    let mails = MailServer::start("plain", folder.path());
    let rest = format!(
        "people: {{alice: {{mail: canary-alice@example.com, groups: [ops]}}}}
channels:
- {{type: mail, from: 'Standfast <approvals@example.com>', host: localhost, port: {}, tls: off}}
- {{type: webhook, name: facts, url: 'http://127.0.0.1:{}/canary-secret', format: json}}
tools: {{execute_command: {{allowed_commands: [echo]}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents: {{ops: {{llm: script, session_store: main, approvers: ['group:ops', owner], tools: [execute_command], task: {{}}}}}}
server: {{public_url: 'http://127.0.0.1:8080', traces: {{endpoint: 'http://127.0.0.1:{}'}}}}
",
        mails.port, room.port, collector.port
    );
    let file = folder.path().join("standfast.yaml");
    std::fs::write(&file, format!("{}{rest}", std::fs::read_to_string(&file).unwrap())).unwrap();
    let server = start(&mut serve_command(folder.path()));
    let (run, hold) = held(&server, CALLER).await;
    let told = room.until("the room is told", |all| !all.is_empty()).await[0].clone();
    collector.until("the mail is traced", |spans| spans.has("deliver mail") && spans.has("deliver message"));
    approve(&server, &hold, CALLER).await;
    server.run_once(&run, "completed");
    stop(server);
    let spans = collector.spans();
    let request = spans.one(|span| span["name"] == "POST /api/v1/agents/{id}/runs");
    for (name, kind, channel) in
        [("deliver mail", "mail", "mail"), ("deliver message", "chat-webhook", "facts")]
    {
        let sent = spans.all(|span| span["name"] == name);
        let first = sent.first().unwrap_or_else(|| panic!("{name}: {:#?}", spans.0));
        assert_eq!(
            (&first["trace"], &first["parent"]),
            (&CALLER[3..35].into(), &request["span"]),
            "{first:#}"
        );
        assert_eq!(first["kind"], "SPAN_KIND_CLIENT");
        assert_eq!(first["attributes"]["standfast.notified.kind"], kind);
        assert_eq!(first["attributes"]["standfast.notified.channel"], channel);
        assert_eq!(first["attributes"]["standfast.run.id"], run.as_str());
        assert_eq!(first["status"], "STATUS_CODE_UNSET");
    }
    let message = spans.all(|span| span["name"] == "deliver message")[0];
    let named = format!("00-{}-{}-01", text(&message["trace"]), text(&message["span"]));
    assert_eq!(told.headers.get("traceparent"), Some(&named));
    assert!(!collector.text().contains("canary"), "an address, or what was said: {}", collector.text());
}

/// A no to what a sub-run asks ends it and the run above it in one append: the hold that was denied and the one with which the run above
/// waited are both spans of its trace, with the decision.
#[tokio::test]
async fn runs_that_end_together_are_traced() {
    let collector = Collector::start("http");
    let lead =
        "replies:\n- calls:\n  - tool: ask_helper\n    arguments: '{\"message\": \"look\"}'\n- text: done\n";
    let rest = format!(
        "tools: {{execute_command: {{allowed_commands: [echo]}}, ask_helper: {{type: agent, agent: helper, requires_approval: false}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents:
  lead: {{llm: lead, session_store: main, tools: [ask_helper], task: {{}}}}
  helper: {{llm: script, session_store: main, tools: [execute_command], task: {{}}}}
server: {{traces: {{endpoint: 'http://127.0.0.1:{}'}}}}
",
        collector.port
    );
    let folder = folder(&[("lead", lead), ("script", SCRIPT)], &rest);
    let server = start(&mut serve_command(folder.path()));
    let http = Http::new(&server.base);
    let body = json!({"items": [{"content_type": "text", "content": "canary-prompt"}]}).to_string();
    let headers = [("traceparent", CALLER)];
    let paused = http.send("POST", "/tealagents/v1alpha1/lead", &headers, &body).await;
    assert_eq!(paused.body["tool_calls"][0]["name"], "execute_command", "{}", paused.text);
    let decide = format!("/tealagents/v1alpha1/resume/{}", text(&paused.body["request_id"]));
    let stopped = http.post(&decide, &json!({"action": "reject"})).await;
    assert_eq!(stopped.body["status"], "Canceled", "{}", stopped.text);
    let spans = until_found("the holds are traced", async || {
        let spans = collector.spans();
        (spans.has("hold approval") && spans.has("hold external")).then_some(spans)
    })
    .await;
    stop(server);
    let task = &paused.body["task_id"];
    let denied = spans.one(|span| span["name"] == "hold approval");
    let waited = spans.one(|span| span["name"] == "hold external");
    for (span, outcome, is_of_task) in [(denied, "denied", false), (waited, "withdrawn", true)] {
        assert_eq!(span["trace"], CALLER[3..35], "{span:#}");
        assert_eq!(span["attributes"]["standfast.decision.outcome"], outcome, "{span:#}");
        assert_eq!(span["attributes"]["standfast.run.id"] == *task, is_of_task, "{span:#}");
        assert_eq!(span["attributes"]["standfast.decision.channel"], Value::from("teal"), "{span:#}");
    }
    assert!(!collector.text().contains("canary"), "{}", collector.text());
}
