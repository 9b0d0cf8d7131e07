//! T5, I3: what a client of a gateway sends once runs once: the same call, and the same answer to what the server asked first, again, at
//! another node, after the gateway was killed.
//!
//! The server is one of the newest protocol, which asks back before it pays; two gateways share one Postgres.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::http::{Answer, Http};
use standfast_testkit::{Process, text, until};
use tempfile::TempDir;

use super::gateway_calls::{Client, hold, resolve, result, words};
use super::over_http::{Program, listening};
use super::server::packages;

/// A folder with a gateway `web` to a server of its own, and that server.
fn folder() -> (TempDir, Program) {
    let folder = tempfile::tempdir().unwrap();
    let (at, port) = (folder.path(), standfast_testkit::free_port());
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: postgres, url: \"{}\"}}}}}}
agents: {{helper: {{llm: script, session_store: main, task: {{}}}}}}
gateways: {{web: {{url: 'http://127.0.0.1:{port}/mcp', wait: 2s}}}}
",
        shared().database()
    );
    std::fs::write(at.join("script.yaml"), "replies:\n- text: done\n").unwrap();
    std::fs::write(at.join("standfast.yaml"), config).unwrap();
    std::fs::create_dir(at.join("place")).unwrap();
    let mut command = Command::new("node");
    command.arg(packages().join("asking.js")).arg(at.join("place")).arg(port.to_string());
    (folder, listening(command, port))
}

/// A node; those of one folder have the same keys.
fn node(folder: &Path) -> (Process, Http) {
    let program = standfast_testkit::serve(folder);
    let http = Http::new(&program.base);
    (program, http)
}

fn paid(folder: &TempDir) -> Vec<String> {
    let file = folder.path().join("place/paid.txt");
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A client without sessions that shows its user forms.
fn client(http: &Http) -> Client {
    Client { http: http.clone(), path: "/mcp/web".to_owned(), session: None, version: "2026-07-28" }
}

/// A call of `pay`, with what the client was asked to bring back.
async fn pay(http: &Http, to: &str, back: Option<(&Value, Value)>) -> Answer {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "plain", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let mut params = json!({"name": "pay", "arguments": {"to": to}, "_meta": meta});
    if let Some((state, answers)) = back {
        (params["requestState"], params["inputResponses"]) = (state.clone(), answers);
    }
    client(http).ask(json!(1), "tools/call", params).await
}

/// A call that somebody approved and that the server has asked something about: the state to bring back.
async fn asked_first(http: &Http, to: &str) -> Value {
    let waits = result(&pay(http, to, None).await);
    assert_eq!(waits["resultType"], "input_required", "{waits}");
    resolve(http, &hold(http).await, json!({"resolution": "approve"})).await;
    let accepted = json!({"standfast": {"action": "accept", "content": {}}});
    let asks = result(&pay(http, to, Some((&waits["requestState"], accepted))).await);
    assert!(asks["inputRequests"]["amount"].is_object(), "{asks}");
    asks["requestState"].clone()
}

fn amount() -> Value {
    json!({"amount": {"action": "accept", "content": {"cents": 300}}})
}

/// T5, I3: what the server asked first is answered once: the same answer again is refused at another node while the call runs, after a
/// crash in the middle of it, and when it is over; so a call that was approved once is paid once.
#[tokio::test(flavor = "multi_thread")]
async fn t5_the_answer_to_a_servers_question_is_handed_on_once() {
    let (folder, _upstream) = folder();
    let (first, here) = node(folder.path());
    let (_second, there) = node(folder.path());
    let state = asked_first(&here, "Slow").await;
    let (http, brought) = (here.clone(), state.clone());
    let paying = tokio::spawn(async move { pay(&http, "Slow", Some((&brought, amount()))).await });
    until("it pays", || paid(&folder) == ["Slow 300"]);
    let refused = async |http: &Http, when: &str| {
        let again = result(&pay(http, "Slow", Some((&state, amount()))).await);
        assert!(again["isError"] == true && words(&again).starts_with("Not executed"), "{when}: {again}");
        assert_eq!(paid(&folder), ["Slow 300"], "{when}");
    };
    refused(&there, "at another node").await;
    refused(&here, "once more here").await;
    drop(first);
    paying.abort();
    let (_first, here) = node(folder.path());
    refused(&here, "after a crash in the middle").await;
    std::fs::write(folder.path().join("place/go.txt"), "").unwrap();
    // The same where nothing goes wrong: what was begun at one node is answered at the other, and only once.
    let state = asked_first(&here, "Ann").await;
    let done = result(&pay(&there, "Ann", Some((&state, amount()))).await);
    assert!(words(&done).starts_with("paid 300 cents to Ann"), "{done}");
    for http in [&here, &there] {
        let again = result(&pay(http, "Ann", Some((&state, amount()))).await);
        assert!(words(&again).starts_with("Not executed"), "{again}");
    }
    assert_eq!(paid(&folder), ["Slow 300", "Ann 300"]);
}

/// T5: two clients that make the same call at two nodes have one question and one start: it is approved once and paid once, and after a
/// crash the same call is a new question.
#[tokio::test(flavor = "multi_thread")]
async fn t5_the_same_call_at_two_nodes_is_approved_and_started_once() {
    let (folder, _upstream) = folder();
    let (first, here) = node(folder.path());
    let (_second, there) = node(folder.path());
    let waits = [result(&pay(&here, "Bob", None).await), result(&pay(&there, "Bob", None).await)];
    let held = hold(&here).await;
    resolve(&there, &held, json!({"resolution": "approve"})).await;
    let accepted = || json!({"standfast": {"action": "accept", "content": {}}});
    let (one, other) = tokio::join!(
        pay(&here, "Bob", Some((&waits[0]["requestState"], accepted()))),
        pay(&there, "Bob", Some((&waits[1]["requestState"], accepted()))),
    );
    // One of them is asked by the server; the other hears how it stands, or is told to come back.
    let asks = [result(&one), result(&other)];
    let mut asked = asks.iter().filter(|asks| asks["inputRequests"]["amount"].is_object());
    let state = asked.next().unwrap_or_else(|| panic!("{asks:?}"))["requestState"].clone();
    assert!(asked.next().is_none(), "{asks:?}");
    drop(first);
    let (_first, here) = node(folder.path());
    let done = result(&pay(&here, "Bob", Some((&state, amount()))).await);
    assert!(words(&done).starts_with("paid 300"), "{done}");
    assert_eq!(paid(&folder), ["Bob 300"]);
    // That a result was handed out is stored once its client has it: until then the same call is told it once more, and runs nothing.
    let mut again = result(&pay(&there, "Bob", None).await);
    for _ in 0..100 {
        if again["resultType"] == "input_required" {
            break;
        }
        assert_eq!(words(&again), words(&done));
        again = result(&pay(&there, "Bob", None).await);
    }
    assert_eq!(again["resultType"], "input_required", "{again}");
    let other = hold(&there).await;
    assert_ne!(text(&other["id"]), text(&held["id"]));
    assert_eq!(paid(&folder), ["Bob 300"]);
}

/// T5: late. What was denied, or taken back, before its client comes back with the answer runs at no node and after no crash, and an
/// approval that comes later still is refused.
#[tokio::test(flavor = "multi_thread")]
async fn t5_a_client_that_comes_back_late_runs_nothing() {
    let (folder, _upstream) = folder();
    let (mut first, mut here) = node(folder.path());
    let (_second, there) = node(folder.path());
    for (to, ends) in [("Ann", "denied"), ("Bob", "withdrawn")] {
        let waits = result(&pay(&here, to, None).await);
        let held = hold(&here).await;
        let resolution = format!("/api/v1/holds/{}/resolve", text(&held["id"]));
        if ends == "denied" {
            resolve(&there, &held, json!({"resolution": "deny"})).await;
        } else {
            let back =
                there.post(&format!("/api/v1/gates/{}/withdraw", text(&held["run"])), &json!({})).await;
            assert_eq!(back.status, 200, "{back:?}");
        }
        let comes_back = async |http: &Http, when: &str| {
            let accepted = json!({"standfast": {"action": "accept", "content": {}}});
            let said = result(&pay(http, to, Some((&waits["requestState"], accepted))).await);
            assert!(
                !said["inputRequests"]["amount"].is_object(),
                "{ends} {when}: the server was asked: {said}"
            );
            let late = http.post(&resolution, &json!({"resolution": "approve"})).await;
            assert_eq!(late.status, 409, "{ends} {when}: {late:?}");
        };
        comes_back(&here, "here").await;
        comes_back(&there, "at another node").await;
        drop(first);
        (first, here) = node(folder.path());
        comes_back(&here, "after a crash").await;
        // It may have been asked about as a new wish; that is nobody's any more.
        for open in here.get("/api/v1/holds").await.body["holds"].as_array().unwrap() {
            here.post(&format!("/api/v1/gates/{}/withdraw", text(&open["run"])), &json!({})).await;
        }
    }
    assert_eq!(paid(&folder), [""; 0]);
    drop(first);
}
