//! T5: what was decided, started or reported once is not again, whichever way it comes again: the same bytes and the same id, at the
//! same node, at another one, after `kill -9`, and late. A2A has its own table (`a2a/repeats.rs`); here are Teal Agents, inboxes,
//! approval links, gates and the server's own MCP tools, in `replays/native.rs` the native API, the pages and the hooks. Reports of jobs are in
//! `async_tool/nodes.rs`, clicks in `crates/e2e/tests/outside/chats/slack.rs`.
//!
//! Two nodes share one Postgres. An agent asks for A, then for B, then for C: nothing that approved A, or comes too late for it, may
//! approve B. A call through an MCP gateway is in `crates/e2e/tests/outside/mcp/gateway_replays.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod native;

use std::path::Path;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::http::{Answer, Http};
use standfast_testkit::{Process, text, until_found};
use tempfile::TempDir;

const WRITES: &str = "replies:
- calls: [{tool: write_file, arguments: {path: a.txt, content: A}}]
- calls: [{tool: write_file, arguments: {path: b.txt, content: B}}]
- calls: [{tool: write_file, arguments: {path: c.txt, content: C}}]
- text: done
";

const ASKS: &str = "replies:
- calls: [{tool: suspend, arguments: {reason: first?}}]
- calls: [{tool: suspend, arguments: {reason: second?}}]
- calls: [{tool: suspend, arguments: {reason: third?}}]
- text: done
";

/// Two nodes on one database, each with its address; a crash and a new start gives it another one.
struct Pair {
    folder: TempDir,
    nodes: [(Process, Http); 2],
}

/// Where a request comes again.
#[derive(Debug, Clone, Copy)]
enum Again {
    /// Where it came first.
    Here,
    /// At the other node.
    There,
    /// Where it came first, after that node was killed and started again.
    AfterACrash,
}

const AGAIN: [Again; 3] = [Again::Here, Again::There, Again::AfterACrash];

fn serve(folder: &Path) -> (Process, Http) {
    let program = standfast_testkit::serve(folder);
    let http = Http::new(&program.base);
    (program, http)
}

impl Pair {
    fn new() -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let config = format!(
            "llms:
  writes: {{type: scripted, script: writes.yaml}}
  asks: {{type: scripted, script: asks.yaml}}
session_stores: {{main: {{backend: sql, sql: {{driver: postgres, url: \"{}\"}}}}}}
server: {{nodes: {{take_over_after: 3s}}, links: {{key: 'a key of links that is long enough', sign_in: none, issue_by_admin: true}}}}
people: {{alice: {{}}}}
agents:
  ops: {{llm: writes, session_store: main, tools: [write_file], approvers: ['user:alice', 'user:local'], task: {{}}}}
  clerk: {{llm: writes, session_store: main, tools: [write_file], inboxes: [files], task: {{}}}}
  triage: {{llm: asks, session_store: main, inboxes: [support], task: {{}}}}
policy: {{rules: [{{id: money, hold: send_refund, because: money leaves}}]}}
",
            shared().database()
        );
        std::fs::write(at.join("writes.yaml"), WRITES).unwrap();
        std::fs::write(at.join("asks.yaml"), ASKS).unwrap();
        std::fs::write(at.join("standfast.yaml"), config).unwrap();
        let nodes = [serve(at), serve(at)];
        Pair { folder, nodes }
    }

    fn http(&self, node: usize) -> Http {
        self.nodes[node].1.clone()
    }

    fn crash(&mut self, node: usize) {
        self.nodes[node].0.child.kill().unwrap();
        self.nodes[node].0.child.wait().unwrap();
        self.nodes[node] = serve(self.folder.path());
    }

    /// The node at which something comes again that came first at node 0.
    fn again(&mut self, again: Again) -> Http {
        match again {
            Again::Here => self.http(0),
            Again::There => self.http(1),
            Again::AfterACrash => {
                self.crash(0);
                self.http(0)
            }
        }
    }

    /// Which of the three files were written.
    fn written(&self) -> String {
        let workspace = self.folder.path().join("workspace");
        ["a", "b", "c"].into_iter().filter(|name| workspace.join(format!("{name}.txt")).exists()).collect()
    }

    /// The open hold whose detail says this.
    async fn hold(&self, says: &str) -> String {
        let http = self.http(1);
        until_found(&format!("{says} is asked"), async || {
            for hold in open_holds(&http).await {
                let detail = http.get(&format!("/api/v1/holds/{hold}")).await;
                if detail.text.contains(says) {
                    return Some(hold);
                }
            }
            None
        })
        .await
    }
}

async fn open_holds(http: &Http) -> Vec<String> {
    let listed = http.get("/api/v1/holds?limit=200").await;
    let holds = listed.body["holds"].as_array().cloned().unwrap_or_else(|| panic!("{listed:?}"));
    holds.iter().map(|hold| text(&hold["id"]).to_owned()).collect()
}

/// Decides by the id, over the native API.
async fn decides(http: &Http, hold: &str, body: &Value) {
    let decided = http.post(&format!("/api/v1/holds/{hold}/resolve"), body).await;
    assert_eq!(decided.status, 200, "{decided:?}");
}

fn with_key(key: Option<&str>) -> Vec<(&str, &str)> {
    key.map(|key| ("idempotency-key", key)).into_iter().collect()
}

/// T5: Teal Agents. The address of a request decides that request and no other: again, elsewhere, after a crash, late; with the same
/// key it is answered as before.
#[tokio::test]
async fn t5_teal_an_approval_that_comes_again_approves_nothing_more() {
    let mut pair = Pair::new();
    let base = "/tealagents/v1alpha1";
    let said = json!({"items": [{"content_type": "text", "content": "please"}]});
    let paused = pair.http(0).post(&format!("{base}/ops"), &said).await;
    let approve = r#"{"action":"approve"}"#;
    let first = format!("{base}/resume/{}", text(&paused.body["request_id"]));
    let next = pair.http(0).send("POST", &first, &[], approve).await;
    let second = format!("{base}/resume/{}", text(&next.body["request_id"]));
    assert_eq!(pair.written(), "a", "{next:?}");
    for again in AGAIN {
        let repeated = pair.again(again).send("POST", &first, &[], approve).await;
        assert_eq!(repeated.status, 409, "{again:?}: {repeated:?}");
        assert_eq!(pair.written(), "a", "{again:?}");
    }
    // With a key of its own: what it did is the answer, wherever it comes again.
    let node = pair.http(0);
    let keyed = node.send("POST", &second, &with_key(Some("k-2")), approve).await;
    let third = format!("{base}/resume/{}", text(&keyed.body["request_id"]));
    for again in AGAIN {
        let asked = pair.again(again);
        let repeated = asked.send("POST", &second, &with_key(Some("k-2")), approve).await;
        let as_first = repeated.text.replace(&asked.base, &node.base);
        assert_eq!((repeated.status, &as_first), (200, &keyed.text), "{again:?}");
        assert_eq!(pair.written(), "ab", "{again:?}");
    }
    // Late: somebody else said no meanwhile.
    let hold = pair.hold("c.txt").await;
    decides(&pair.http(1), &hold, &json!({"resolution": "deny", "wait": "settled"})).await;
    for again in AGAIN {
        let late = pair.again(again).send("POST", &third, &[], approve).await;
        assert_eq!(late.status, 409, "{again:?}: {late:?}");
        assert_eq!(pair.written(), "ab", "{again:?}");
    }
}

/// T5: inboxes. An answer counts for the question that its sender was shown: again, elsewhere, after a crash, late; by the id of a
/// decided question too, and with the same key it is answered as before.
#[tokio::test]
async fn t5_inbox_an_answer_that_comes_again_answers_nothing_more() {
    let mut pair = Pair::new();
    let added = pair.http(0).post("/api/inboxes/support/tasks", &json!({"type": "t", "payload": 1})).await;
    assert_eq!(added.status, 201, "{added:?}");
    let task = format!("/api/inboxes/support/tasks/{}", text(&added.body["id"]));
    let resume = format!("{task}/resume");
    let first = pair.hold("first?").await;
    pair.http(0).get(&task).await;
    let one = json!({"payload": "one"}).to_string();
    let answered = pair.http(0).send("POST", &resume, &[], &one).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    let second = pair.hold("second?").await;
    let by_id = json!({"payload": "one", "holdId": first}).to_string();
    for again in AGAIN {
        let http = pair.again(again);
        for body in [&one, &by_id] {
            let repeated = http.send("POST", &resume, &[], body).await;
            assert_eq!(repeated.status, 409, "{again:?} {body}: {repeated:?}");
            assert_eq!(open_holds(&http).await, std::slice::from_ref(&second), "{again:?} {body}");
        }
    }
    let two = json!({"payload": "two", "holdId": second}).to_string();
    let keyed = pair.http(0).send("POST", &resume, &with_key(Some("k")), &two).await;
    assert_eq!(keyed.status, 200, "{keyed:?}");
    let third = pair.hold("third?").await;
    for again in AGAIN {
        let http = pair.again(again);
        let repeated = http.send("POST", &resume, &with_key(Some("k")), &two).await;
        assert_eq!((repeated.status, &repeated.body), (200, &keyed.body), "{again:?}");
        assert_eq!(open_holds(&http).await, std::slice::from_ref(&third), "{again:?}");
    }
    // Late: shown here, answered there.
    pair.http(0).get(&task).await;
    decides(&pair.http(1), &third, &json!({"resolution": "answer", "value": "three", "wait": "settled"}))
        .await;
    for again in AGAIN {
        let late = pair.again(again).send("POST", &resume, &[], &one).await;
        assert_eq!(late.status, 409, "{again:?}: {late:?}");
    }
    let done = pair.http(1).get(&task).await;
    assert_eq!((&done.body["status"], &done.body["resumePayload"]), (&json!("completed"), &json!("three")));
}

/// A browser that opens a page.
const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A link to a hold for alice, and the form of its page that says yes.
async fn link(http: &Http, hold: &str) -> (String, String) {
    let issued = http.post(&format!("/api/v1/holds/{hold}/link"), &json!({"for": "alice"})).await;
    assert_eq!(issued.status, 201, "{issued:?}");
    let path = text(&issued.body["url"]).strip_prefix(&http.base).unwrap().to_owned();
    let page = http.send("GET", &path, &[HTML], "").await;
    let form = format!("nonce={}&form={}&decision=approve", page.field("nonce"), page.field("form"));
    (path, form)
}

/// T5: approval links. The form of a page decides its hold once: sent again, to another node, after a crash, late. What is asked next
/// has a link of its own.
#[tokio::test]
async fn t5_links_a_form_that_is_sent_again_approves_nothing_more() {
    let mut pair = Pair::new();
    let started = json!({"input": "please", "wait": "settled"});
    assert_eq!(pair.http(0).post("/api/v1/agents/ops/runs", &started).await.status, 201);
    let hold = pair.hold("a.txt").await;
    let (path, form) = link(&pair.http(0), &hold).await;
    // Links that were issued in the same millisecond of two clocks are the same link.
    let (mut elsewhere, mut other) = link(&pair.http(1), &hold).await;
    while elsewhere == path {
        (elsewhere, other) = link(&pair.http(1), &hold).await;
    }
    let post = async |http: &Http, path: &str, form: &str| -> Answer {
        http.send("POST", path, &[FORM, HTML], form).await
    };
    assert_eq!(post(&pair.http(0), &path, &form).await.status, 303);
    assert_eq!(pair.written(), "a");
    let next = pair.hold("b.txt").await;
    for again in AGAIN {
        let http = pair.again(again);
        assert_eq!(
            post(&http, &path, &form).await.status,
            303,
            "{again:?}: the same click is the same click"
        );
        let no = post(&http, &path, &form.replace("=approve", "=deny")).await;
        assert_eq!(no.status, 409, "{again:?}: {}", no.text);
        // The form of one link is none of another's address.
        assert_eq!(post(&http, &path, &other).await.status, 403, "{again:?}");
        assert_eq!(
            (pair.written().as_str(), open_holds(&http).await),
            ("a", vec![next.clone()]),
            "{again:?}"
        );
    }
    // Late: decided elsewhere after the page was opened.
    let (path, form) = link(&pair.http(0), &next).await;
    decides(&pair.http(1), &next, &json!({"resolution": "deny", "wait": "settled"})).await;
    pair.hold("c.txt").await;
    for again in AGAIN {
        let late = post(&pair.again(again), &path, &form).await;
        assert!(late.status == 409 && late.text.contains("Already decided"), "{again:?}: {}", late.text);
        assert_eq!(pair.written(), "a", "{again:?}");
    }
}

/// T5: gates. One gate for a call however often it is asked about, one start for an approval, one outcome for a start; wherever and
/// whenever any of it comes again.
#[tokio::test]
async fn t5_gates_an_approved_call_starts_and_ends_once() {
    let mut pair = Pair::new();
    let call = json!({"tool": "send_refund", "arguments": {"amount": 1}, "agent": "billing", "session": "s", "call": "c-1"});
    let asked = call.to_string();
    let opened = pair.http(0).send("POST", "/api/v1/gates", &[], &asked).await;
    assert_eq!(opened.status, 202, "{opened:?}");
    let gate = format!("/api/v1/gates/{}", text(&opened.body["gate"]));
    for again in AGAIN {
        let http = pair.again(again);
        let same = http.send("POST", "/api/v1/gates", &[], &asked).await;
        assert_eq!((same.status, &same.body["gate"]), (202, &opened.body["gate"]), "{again:?}");
        assert_eq!(open_holds(&http).await.len(), 1, "{again:?}");
    }
    let resolve = format!("/api/v1/holds/{}/resolve", text(&opened.body["hold"]));
    let approve = json!({"resolution": "approve"}).to_string();
    assert_eq!(pair.http(0).send("POST", &resolve, &with_key(Some("yes")), &approve).await.status, 200);
    for again in AGAIN {
        let http = pair.again(again);
        assert_eq!(
            http.send("POST", &resolve, &with_key(Some("yes")), &approve).await.status,
            200,
            "{again:?}"
        );
        assert_eq!(http.send("POST", &resolve, &[], &approve).await.status, 409, "{again:?}");
    }
    let start = json!({"digest": opened.body["digest"]}).to_string();
    let started = pair.http(0).send("POST", &format!("{gate}/start"), &[], &start).await;
    assert_eq!((started.status, &started.body["attempt"]), (200, &json!(1)), "{started:?}");
    for again in AGAIN {
        let twice = pair.again(again).send("POST", &format!("{gate}/start"), &[], &start).await;
        let problem = (twice.status, &twice.body["type"]);
        assert_eq!(problem, (409, &json!("urn:standfast:problem:already-started")), "{again:?}");
    }
    let report = json!({"attempt": 1, "status": "succeeded", "result": "paid"}).to_string();
    let path = format!("{gate}/outcome");
    assert_eq!(pair.http(0).send("POST", &path, &with_key(Some("done")), &report).await.status, 200);
    for again in AGAIN {
        let http = pair.again(again);
        assert_eq!(http.send("POST", &path, &with_key(Some("done")), &report).await.status, 200, "{again:?}");
        assert_eq!(http.send("POST", &path, &[], &report).await.status, 409, "{again:?}");
        let repeated = http.send("POST", "/api/v1/gates", &[], &asked).await;
        let stands = (&repeated.body["gate"], &repeated.body["state"], &repeated.body["attempt"]);
        assert_eq!(stands, (&opened.body["gate"], &json!("done"), &json!(1)), "{again:?}");
    }
    // Late: withdrawn before anybody decided.
    let late = pair.http(0).post("/api/v1/gates", &json!({"call": "c-2", "tool": "send_refund", "arguments": {"amount": 2}, "agent": "billing", "session": "s"})).await;
    let gate = format!("/api/v1/gates/{}", text(&late.body["gate"]));
    let resolve = format!("/api/v1/holds/{}/resolve", text(&late.body["hold"]));
    assert_eq!(pair.http(1).post(&format!("{gate}/withdraw"), &json!({})).await.status, 200);
    let start = json!({"digest": late.body["digest"]}).to_string();
    for again in AGAIN {
        let http = pair.again(again);
        assert_eq!(http.send("POST", &resolve, &[], &approve).await.status, 409, "{again:?}");
        assert_eq!(http.send("POST", &format!("{gate}/start"), &[], &start).await.status, 409, "{again:?}");
    }
}

/// A call of one of the server's own MCP tools; what it answers.
async fn tool(http: &Http, name: &str, arguments: &Value) -> Value {
    let params = json!({"name": name, "arguments": arguments});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let headers = [("accept", "application/json, text/event-stream")];
    let answer = http.send("POST", "/mcp", &headers, &body).await;
    assert!(answer.body["result"].is_object(), "{answer:?}");
    answer.body["result"].clone()
}

/// T5: the server's own MCP tools. An approval is handed out once: of two clients that ask for the same at two nodes one gets it, and
/// who asks once more, there or after a crash, is asked about anew. What came of it is taken down once.
#[tokio::test]
async fn t5_mcp_an_approval_is_handed_out_once() {
    let mut pair = Pair::new();
    let wish = json!({"tool": "pay", "arguments": {"eur": 1}, "session": "s"});
    let asks = |http: Http| {
        let wish = wish.clone();
        tokio::spawn(async move { tool(&http, "request_approval", &wish).await })
    };
    let both = [asks(pair.http(0)), asks(pair.http(1))];
    let hold = pair.hold("pay").await;
    decides(&pair.http(1), &hold, &json!({"resolution": "approve"})).await;
    let mut states = Vec::new();
    let mut gate = Value::Null;
    for asking in both {
        let answer = asking.await.unwrap();
        let facts = &answer["structuredContent"];
        if facts["state"] == "approved" {
            gate = facts["gate"].clone();
        }
        states.push(text(&facts["state"]).to_owned());
    }
    assert_eq!(states.iter().filter(|state| *state == "approved").count(), 1, "{states:?}");
    for again in AGAIN {
        let http = pair.again(again);
        let asking = asks(http.clone());
        let other = pair.hold("pay").await;
        assert_ne!(other, hold, "{again:?}");
        // Somebody else decides before it is asked for again: taken back, so that the next one is a new wish.
        let listed = http.get(&format!("/api/v1/holds/{other}")).await;
        let run = text(&listed.body["run"]).to_owned();
        let back = http.post(&format!("/api/v1/gates/{run}/withdraw"), &json!({})).await;
        assert_eq!(back.status, 200, "{again:?}: {back:?}");
        let answer = asking.await.unwrap();
        assert_eq!(answer["structuredContent"]["state"], "withdrawn", "{again:?}: {answer}");
    }
    let report = json!({"gate": gate, "status": "succeeded", "result": "paid"});
    let told = tool(&pair.http(1), "standfast_result", &report).await;
    assert_ne!(told["isError"], true, "{told}");
    for again in AGAIN {
        let http = pair.again(again);
        let twice = tool(&http, "standfast_result", &report).await;
        assert_eq!(twice["isError"], true, "{again:?}: {twice}");
        let shown = http.get(&format!("/api/v1/gates/{}", text(&gate))).await;
        assert_eq!((&shown.body["state"], &shown.body["attempt"]), (&json!("done"), &json!(1)), "{again:?}");
    }
}
