//! T5, C26: a decision counts once, and only for what its sender was shown, whichever way it comes and comes again.
//!
//! An agent asks for A, then for B, then for C: every replay of what approved A, or comes too late for it, must leave B
//! alone. Asked of the real program: every surface × the same bytes, the same id, late, through another node, after a
//! restart; and random orders of all of it against a model of who was shown what.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use a2a_pb::proto::{self, part};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::a2a::bindings::grpc;
use crate::a2a::live;
use crate::a2a::server::{Server, configured_again, serve_file, unique};
use crate::a2a::streams::Reader;
use standfast_testkit::provider::Answer;

const SCRIPT: &str = "
replies:
- calls: [{tool: write_file, arguments: {path: a.txt, content: A}}]
- calls: [{tool: write_file, arguments: {path: b.txt, content: B}}]
- calls: [{tool: write_file, arguments: {path: c.txt, content: C}}]
- text: done
";

/// A folder with an agent that asks three times; `database` is SQLite's or Postgres's.
fn folder(script: &str, database: &str, more: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
session_stores: {{main: {{backend: sql, sql: {{{database}}}}}}}
server: {{nodes: {{take_over_after: 3s}}{more}}}
agents: {{ops: {{llm: script, session_store: main, tools: [write_file], task: {{}}, a2a: {{v03_card: true}}}}}}
"
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    folder
}

fn sqlite(script: &str) -> TempDir {
    folder(script, "driver: sqlite, database: ./runs.db", "")
}

/// Which of the three files were written for a task: each run writes into a workspace of its own agent, so tests that
/// look have a server to themselves.
fn written(folder: &Path) -> String {
    let is_there = |name: &&str| folder.join("workspace").join(format!("{name}.txt")).exists();
    ["a", "b", "c"].into_iter().filter(is_there).collect()
}

fn forget(folder: &Path) {
    for name in ["a", "b", "c"] {
        let _ = std::fs::remove_file(folder.join("workspace").join(format!("{name}.txt")));
    }
}

/// A way to send a decision that names no hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Surface {
    RestText,
    RestData,
    RestStream,
    RpcText,
    RpcData,
    RpcStream,
    GrpcText,
    GrpcStream,
    OlderRpcText,
    OlderRpcData,
    OlderRest,
    /// With an id of its own.
    DialectNamed,
}

const SURFACES: [Surface; 12] = [
    Surface::RestText,
    Surface::RestData,
    Surface::RestStream,
    Surface::RpcText,
    Surface::RpcData,
    Surface::RpcStream,
    Surface::GrpcText,
    Surface::GrpcStream,
    Surface::OlderRpcText,
    Surface::OlderRpcData,
    Surface::OlderRest,
    Surface::DialectNamed,
];

const MESSAGE: &str = "/v1/agents/ops/message:send";

impl Surface {
    /// Approves on a task under this message id. Answers with everything that was said.
    async fn approve(self, server: &Server, task: &Value, id: &str) -> String {
        let (text, data) = (json!([{"text": "approve"}]), json!([{"data": {"decision": "approve"}}]));
        let message = |parts: &Value| json!({"messageId": id, "role": "ROLE_USER", "taskId": task["id"], "contextId": task["contextId"], "parts": parts});
        let older = |parts: Value| json!({"messageId": id, "role": "user", "taskId": task["id"], "contextId": task["contextId"], "parts": parts});
        match self {
            Surface::RestText => {
                server.post(MESSAGE, &json!({"message": message(&text)})).await.body.to_string()
            }
            Surface::RestData => {
                server.post(MESSAGE, &json!({"message": message(&data)})).await.body.to_string()
            }
            Surface::RpcText => {
                server.rpc("ops", "SendMessage", json!({"message": message(&text)})).await.body.to_string()
            }
            Surface::RpcData => {
                server.rpc("ops", "SendMessage", json!({"message": message(&data)})).await.body.to_string()
            }
            Surface::RestStream => {
                let body = json!({"message": message(&text)});
                let path = "/v1/agents/ops/message:stream";
                said(Reader::open(server, "POST", path, &[], Some(&body)).await).await
            }
            Surface::RpcStream => {
                let params = json!({"message": message(&data)});
                let body =
                    json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params});
                said(Reader::open(server, "POST", "/v1/agents/ops", &[], Some(&body)).await).await
            }
            Surface::GrpcText => {
                let sent = grpc(server).await.send_message(proto_request(task, id)).await;
                format!("{:?}", sent.map(tonic::Response::into_inner))
            }
            Surface::GrpcStream => {
                let sent = grpc(server).await.send_streaming_message(proto_request(task, id)).await;
                match sent {
                    Ok(stream) => {
                        let (mut stream, mut all) = (stream.into_inner(), String::new());
                        while let Ok(Some(frame)) = stream.message().await {
                            all.push_str(&format!("{frame:?}\n"));
                        }
                        all
                    }
                    Err(error) => format!("{error:?}"),
                }
            }
            Surface::OlderRpcText => {
                let message = older(json!([{"kind": "text", "text": "approve"}]));
                server.rpc("ops", "message/send", json!({"message": message})).await.body.to_string()
            }
            Surface::OlderRpcData => {
                let message = older(json!([{"kind": "data", "data": {"decision": "approve"}}]));
                server.rpc("ops", "message/send", json!({"message": message})).await.body.to_string()
            }
            Surface::OlderRest => {
                let mut message = older(Value::Null);
                message["role"] = json!("ROLE_USER");
                message["content"] = json!([{"text": "approve"}]);
                message.as_object_mut().unwrap().remove("parts");
                let body = json!({"message": message, "configuration": {"blocking": true}});
                server.post("/v1/agents/ops/v1/message:send", &body).await.body.to_string()
            }
            Surface::DialectNamed => {
                let mut message = older(text);
                message["messageId"] = json!(id);
                server.post(MESSAGE, &json!({"request": message})).await.body.to_string()
            }
        }
    }
}

fn proto_request(task: &Value, id: &str) -> proto::SendMessageRequest {
    let text = |name: &str| task[name].as_str().unwrap().to_owned();
    let message = proto::Message {
        message_id: id.into(),
        task_id: text("id"),
        context_id: text("contextId"),
        role: proto::Role::User.into(),
        parts: vec![proto::Part {
            content: Some(part::Content::Text("approve".into())),
            ..Default::default()
        }],
        ..Default::default()
    };
    proto::SendMessageRequest { message: Some(message), tenant: "ops".into(), ..Default::default() }
}

async fn said(reader: Reader) -> String {
    reader.rest().await.iter().map(|event| event.data.to_string()).collect()
}

/// A task that waits for A, which its sender was shown.
async fn begun(server: &Server) -> Value {
    let message = json!({"messageId": unique(), "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let task = server.send("ops", &message).await;
    assert_eq!(asks(&task), Some('a'), "{task}");
    task
}

/// Which file a task asks for.
fn asks(task: &Value) -> Option<char> {
    let parts = task["status"]["message"]["parts"].as_array()?;
    let input = parts.iter().find_map(|part| part["data"]["tool_input"].as_str())?;
    ["a", "b", "c"]
        .iter()
        .find(|name| input.contains(&format!("{name}.txt")))
        .and_then(|name| name.chars().next())
}

/// The open hold of a task that says this, over the native API, which shows nothing to A2A's callers.
async fn open_hold(server: &Server, task: &Value, says: &str) -> String {
    for _ in 0..1200 {
        let holds = server.get("/api/v1/holds").await.body;
        for hold in holds["holds"].as_array().into_iter().flatten().filter(|hold| hold["run"] == task["id"]) {
            let id = hold["id"].as_str().unwrap();
            let whole = server.get(&format!("/api/v1/holds/{id}")).await.body;
            if whole.to_string().contains(says) {
                return id.to_owned();
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{says} is not asked for by {task}: {}", server.get("/api/v1/holds").await.body);
}

/// Approves by the hold's id, elsewhere.
async fn approve_elsewhere(server: &Server, hold: &str) {
    let resolved =
        server.post(&format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "approve"})).await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
}

/// T5, C26, S0-38a: the same message again approves nothing more, by its bytes, by its id on another surface, and as often
/// as it comes; a new one of whoever was shown the next question does.
#[tokio::test]
async fn t5_a_repeat_decides_nothing_on_any_surface() {
    let folder = sqlite(SCRIPT);
    let server = serve_file(folder.path(), &[]);
    for (at, surface) in SURFACES.into_iter().enumerate() {
        forget(folder.path());
        let (task, id) = (begun(&server).await, unique());
        let first = surface.approve(&server, &task, &id).await;
        assert!(first.contains("b.txt"), "{surface:?}: the answer asks the next question: {first}");
        assert_eq!(written(folder.path()), "a", "{surface:?}");
        for _ in 0..2 {
            let again = surface.approve(&server, &task, &id).await;
            assert_eq!(written(folder.path()), "a", "{surface:?}, sent again: {again}");
            assert!(again.contains("b.txt") && again.contains("Nothing was decided"), "{surface:?}: {again}");
        }
        let other = SURFACES[(at + 3) % SURFACES.len()];
        other.approve(&server, &task, &id).await;
        assert_eq!(written(folder.path()), "a", "{surface:?}, then the same id by {other:?}");
        surface.approve(&server, &task, &unique()).await;
        assert_eq!(written(folder.path()), "ab", "{surface:?}: somebody who was shown it decides");
        other.approve(&server, &task, &id).await;
        assert_eq!(written(folder.path()), "ab", "{surface:?}, then the first id once more by {other:?}");
        let last = surface.approve(&server, &task, &unique()).await;
        assert_eq!(written(folder.path()), "abc", "{surface:?}: {last}");
        let over = surface.approve(&server, &task, &id).await;
        assert!(over.contains("done"), "{surface:?}: what was carried out is answered with the task: {over}");
    }
}

/// T5, C26: what was meant for A and comes when A was decided elsewhere approves nothing; not even when it comes once more
/// after its own answer showed B.
#[tokio::test]
async fn a_late_decision_decides_nothing_on_any_surface() {
    let folder = sqlite(SCRIPT);
    let server = serve_file(folder.path(), &[]);
    for surface in SURFACES {
        forget(folder.path());
        let (task, id) = (begun(&server).await, unique());
        approve_elsewhere(&server, &open_hold(&server, &task, "a.txt").await).await;
        open_hold(&server, &task, "b.txt").await;
        for _ in 0..2 {
            let late = surface.approve(&server, &task, &id).await;
            assert_eq!(written(folder.path()), "a", "{surface:?}: {late}");
            assert!(late.contains("b.txt") && late.contains("Nothing was decided"), "{surface:?}: {late}");
        }
        surface.approve(&server, &task, &unique()).await;
        assert_eq!(written(folder.path()), "ab", "{surface:?}: it was shown by then");
    }
}

/// T5, F1: neither a restart nor a crash makes a message that was carried out new.
#[tokio::test]
async fn a_repeat_after_a_restart_decides_nothing_on_any_surface() {
    let folder = sqlite(SCRIPT);
    let mut server = serve_file(folder.path(), &[]);
    for surface in SURFACES {
        forget(folder.path());
        let (task, id) = (begun(&server).await, unique());
        surface.approve(&server, &task, &id).await;
        assert_eq!(written(folder.path()), "a", "{surface:?}");
        server = configured_again(server, folder.path());
        let again = surface.approve(&server, &task, &id).await;
        assert_eq!(written(folder.path()), "a", "{surface:?}: {again}");
        assert!(again.contains("b.txt"), "{surface:?}: {again}");
        surface.approve(&server, &task, &unique()).await;
        assert_eq!(written(folder.path()), "ab", "{surface:?}");
    }
}

/// T5, C28: another node knows what was carried out, and what was shown.
#[tokio::test]
async fn a_repeat_at_another_node_decides_nothing_on_any_surface() {
    let folder = folder(SCRIPT, &format!("driver: postgres, url: \"{}\"", shared().database()), "");
    let nodes = [serve_file(folder.path(), &[]), serve_file(folder.path(), &[])];
    for (at, surface) in SURFACES.into_iter().enumerate() {
        forget(folder.path());
        let (here, there) = (&nodes[at % 2], &nodes[(at + 1) % 2]);
        let (task, id) = (begun(here).await, unique());
        let first = surface.approve(there, &task, &id).await;
        assert_eq!(
            written(folder.path()),
            "a",
            "{surface:?}: what one node showed counts at the other: {first}"
        );
        let again = surface.approve(here, &task, &id).await;
        assert_eq!(written(folder.path()), "a", "{surface:?}: {again}");
        approve_elsewhere(there, &open_hold(there, &task, "b.txt").await).await;
        open_hold(here, &task, "c.txt").await;
        let late = surface.approve(here, &task, &unique()).await;
        assert_eq!(written(folder.path()), "ab", "{surface:?}: late: {late}");
        surface.approve(there, &task, &unique()).await;
        assert_eq!(written(folder.path()), "abc", "{surface:?}");
    }
}

/// C26: with an idempotency key a repeat decides nothing more either, and `strict` asks for ids always.
#[tokio::test]
async fn keys_are_kept_and_strict_servers_ask_for_ids() {
    let folder = sqlite(SCRIPT);
    let server = serve_file(folder.path(), &[]);
    let task = begun(&server).await;
    let message = |id: &str, data: Value| {
        json!({"message": {"messageId": id, "role": "ROLE_USER", "taskId": task["id"], "parts": [{"data": data}]}}).to_string()
    };
    let body = message(&unique(), json!({"decision": "approve"}));
    for _ in 0..3 {
        let answer = server.ask("POST", MESSAGE, &[("idempotency-key", "k")], body.as_bytes()).await;
        assert_eq!((answer.status, written(folder.path()).as_str()), (200, "a"), "{answer:?}");
    }
    let other = message(&unique(), json!({"decision": "deny"}));
    let reused = server.ask("POST", MESSAGE, &[("idempotency-key", "k")], other.as_bytes()).await;
    assert_ne!(reused.status, 200, "another request under the key: {reused:?}");
    drop(server);

    let strict = self::folder(SCRIPT, "driver: sqlite, database: ./runs.db", ", a2a: {decisions: strict}");
    let server = serve_file(strict.path(), &[]);
    let task = begun(&server).await;
    for surface in SURFACES {
        let answer = surface.approve(&server, &task, &unique()).await;
        assert!(answer.contains("hold_id"), "{surface:?}: {answer}");
        assert_eq!(written(strict.path()), "", "{surface:?}: {answer}");
    }
    let hold = open_hold(&server, &task, "a.txt").await;
    let named = json!({"messageId": unique(), "role": "ROLE_USER", "taskId": task["id"],
        "parts": [{"data": {"decision": "approve", "hold_id": hold}}]});
    server.send("ops", &named).await;
    assert_eq!(written(strict.path()), "a");
}

/// Somebody who says the same each time, without an id: the loop that S3 prints.
fn unnamed(task: &Value) -> String {
    json!({"request": {"role": "user", "taskId": task["id"], "contextId": task["contextId"], "parts": [{"text": "approve"}]}})
        .to_string()
}

/// S3-18, S3-20, C26: the printed loop ends: the same bytes each time, one hold at a time, also when several are open.
#[tokio::test]
async fn the_loop_of_the_older_dialect_ends() {
    let both = "
replies:
- calls:
  - {tool: write_file, arguments: {path: a.txt, content: A}}
  - {tool: write_file, arguments: {path: b.txt, content: B}}
- calls: [{tool: write_file, arguments: {path: c.txt, content: C}}]
- text: done
";
    for script in [SCRIPT, both] {
        let folder = sqlite(script);
        let server = serve_file(folder.path(), &[]);
        let go = json!({"request": {"role": "user", "parts": [{"text": "go"}]}});
        let mut task = server.post(MESSAGE, &go).await.body["task"].clone();
        for expected in ["a", "ab", "abc"] {
            let shown = task["status"]["message"]["parts"].as_array().unwrap().len();
            assert_eq!((&task["status"]["state"], shown), (&json!("TASK_STATE_INPUT_REQUIRED"), 2), "{task}");
            task = server.ask("POST", MESSAGE, &[], unnamed(&task).as_bytes()).await.body["task"].clone();
            assert_eq!(written(folder.path()), expected, "{task}");
        }
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    }
}

const SLOW: &str = "
replies:
- calls: [{tool: write_file, arguments: {path: a.txt, content: A}}]
- calls: [{tool: write_file, arguments: {path: b.txt, content: B}}]
  delay: 4s
- calls: [{tool: write_file, arguments: {path: c.txt, content: C}}]
- text: done
";

/// T5, C26: without an id the same bytes are a repeat until they were answered: beside the first, after a client that hung
/// up, although somebody looked in between, after a crash; then they are something new.
#[tokio::test]
async fn the_same_bytes_are_a_repeat_until_they_are_answered() {
    let folder = sqlite(SLOW);
    let server = serve_file(folder.path(), &[]);
    let task = begun(&server).await;
    let body = unnamed(&task);
    let first = server.ask("POST", MESSAGE, &[], body.as_bytes());
    let second = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.ask("POST", MESSAGE, &[], body.as_bytes()).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(written(folder.path()), "a", "{first:?} {second:?}");
    assert!(asks(&first.body["task"]) == Some('b') && asks(&second.body["task"]) == Some('b'));
    server.ask("POST", MESSAGE, &[], body.as_bytes()).await;
    assert_eq!(written(folder.path()), "ab", "both were answered: this is something new");

    forget(folder.path());
    let task = begun(&server).await;
    let body = unnamed(&task);
    hang_up_after(&server, &task, &body).await;
    open_hold(&server, &task, "b.txt").await;
    let path = format!("/v1/agents/ops/tasks/{}", task["id"].as_str().unwrap());
    assert_eq!(asks(&server.get(&path).await.body), Some('b'), "somebody looks meanwhile");
    let server = configured_again(server, folder.path());
    let again = server.ask("POST", MESSAGE, &[], body.as_bytes()).await;
    assert_eq!(written(folder.path()), "a", "its first answer never came: {again:?}");
    assert_eq!(asks(&again.body["task"]), Some('b'));
    server.ask("POST", MESSAGE, &[], body.as_bytes()).await;
    assert_eq!(written(folder.path()), "ab", "now it was answered");
}

/// Sends a request and hangs up once it was carried out, before it is answered.
async fn hang_up_after(server: &Server, task: &Value, body: &str) {
    let address = server.program.base.strip_prefix("http://").unwrap();
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST {MESSAGE} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    for _ in 0..1200 {
        let holds = server.get("/api/v1/holds").await.body;
        if holds["holds"].as_array().unwrap().iter().all(|hold| hold["run"] != task["id"]) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it was never carried out");
}

/// One thing that happens to a task.
#[derive(Debug, Clone, Copy)]
enum Happens {
    /// A message that nobody sent before.
    New(Surface),
    /// One that was sent before, through this surface.
    Again(Surface, usize),
    /// Its caller is shown the task.
    Looks,
    /// Somebody decides by the id, on another surface.
    Elsewhere,
    /// `kill -9`, and a new start.
    Crash,
}

fn happens() -> impl Strategy<Value = Happens> {
    let surface = || (0..SURFACES.len()).prop_map(|at| SURFACES[at]);
    prop_oneof![
        4 => surface().prop_map(Happens::New),
        5 => (surface(), any::<usize>()).prop_map(|(surface, which)| Happens::Again(surface, which)),
        2 => Just(Happens::Looks),
        3 => Just(Happens::Elsewhere),
        1 => Just(Happens::Crash),
    ]
}

/// What a caller was shown last, as far as the model knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saw {
    /// This question.
    Certainly(usize),
    /// This one, unless the crash lost it.
    Perhaps(usize),
}

/// T5, C26: random orders of deciding, repeating, being late, other surfaces and crashes: a question is decided only by a
/// new message of somebody who was shown it, or by its id.
#[test]
fn no_order_of_repeats_decides_what_was_not_shown() {
    let folder = sqlite(SCRIPT);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let start = || runtime.block_on(async { serve_file(folder.path(), &[]) });
    let server = std::cell::RefCell::new(None);
    let config = Config { cases: 24, failure_persistence: None, max_shrink_iters: 64, ..Config::default() };
    let orders = proptest::collection::vec(happens(), 3..12);
    let result = TestRunner::new(config).run(&orders, |order| {
        // A case that failed took its server along.
        let serving = server.borrow_mut().take().unwrap_or_else(start);
        let serving = runtime.block_on(plays(&folder, serving, &order));
        *server.borrow_mut() = Some(serving);
        Ok(())
    });
    result.unwrap();
}

async fn plays(folder: &TempDir, mut server: Server, order: &[Happens]) -> Server {
    let names = ['a', 'b', 'c'];
    forget(folder.path());
    let task = begun(&server).await;
    let (mut open, mut saw) = (0, Saw::Certainly(0));
    let (mut sent, mut story): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    // What a message that decided nothing meant: sent again it means nothing else.
    let mut fates: BTreeMap<String, &str> = BTreeMap::new();
    for happens in order {
        if open == names.len() {
            break;
        }
        let before = open;
        match *happens {
            Happens::New(surface) | Happens::Again(surface, _) => {
                let id = match *happens {
                    Happens::Again(_, which) if !sent.is_empty() => sent[which % sent.len()].clone(),
                    Happens::New(_)
                    | Happens::Again(..)
                    | Happens::Looks
                    | Happens::Elsewhere
                    | Happens::Crash => unique(),
                };
                let is_new = !fates.contains_key(&id);
                let answer = surface.approve(&server, &task, &id).await;
                let decided = written(folder.path()).len() == before + 1;
                story.push(format!("{happens:?} as {id}: {decided}"));
                match (is_new, saw) {
                    (true, Saw::Certainly(shown)) => {
                        assert_eq!(decided, shown == open, "{story:?}: {answer}")
                    }
                    (true, Saw::Perhaps(shown)) => assert!(!decided || shown == open, "{story:?}: {answer}"),
                    (false, _) => assert!(!decided, "{story:?}: {answer}"),
                }
                open += usize::from(decided);
                fates.entry(id.clone()).or_insert(if decided { "carried out" } else { "nothing" });
                sent.push(id);
                saw = Saw::Certainly(open);
            }
            Happens::Looks => {
                let path = format!("/v1/agents/ops/tasks/{}", task["id"].as_str().unwrap());
                let shown = asks(&server.get(&path).await.body);
                assert_eq!(shown, Some(names[open]), "{story:?}");
                saw = Saw::Certainly(open);
            }
            Happens::Elsewhere => {
                approve_elsewhere(&server, &open_hold(&server, &task, &format!("{}.txt", names[open])).await)
                    .await;
                open += 1;
                if let Some(next) = names.get(open) {
                    open_hold(&server, &task, &format!("{next}.txt")).await;
                }
            }
            Happens::Crash => {
                server = configured_again(server, folder.path());
                if let Saw::Certainly(shown) = saw {
                    saw = Saw::Perhaps(shown);
                }
            }
        }
        story.push(format!("{happens:?}: open {open}, {saw:?}"));
        let expected: String = names[..open].iter().collect();
        for _ in 0..200 {
            if written(folder.path()) == expected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(written(folder.path()), expected, "{story:?}");
    }
    server
}

/// C26, C12: what one caller was shown says nothing of another: each decides what was shown to them.
#[tokio::test]
async fn what_one_caller_was_shown_is_not_what_another_was() {
    let folder = folder(SCRIPT, "driver: sqlite, database: ./runs.db", ", auth: {api_keys: true}");
    let config = folder.path().join("standfast.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("task: {}", "task: {}, approvers: [owner, bob]")).unwrap();
    let key = |user: &str| {
        let mut command = standfast_testkit::standfast();
        command.args(["keys", "create", "--user", user, "--config"]).arg(&config);
        let made = command.arg("--data").arg(folder.path().join("data")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        format!("Bearer {}", String::from_utf8(made.stdout).unwrap().trim())
    };
    let (alice, bob) = (key("alice"), key("bob"));
    let server = serve_file(folder.path(), &[]);
    let go = json!({"message": {"messageId": unique(), "role": "ROLE_USER", "parts": [{"text": "go"}]}})
        .to_string();
    let began = server.ask("POST", MESSAGE, &[("authorization", &alice)], go.as_bytes()).await;
    let task = began.body["task"].clone();
    assert_eq!(asks(&task), Some('a'), "{began:?}");
    let says = async |who: &str| {
        let message = json!({"messageId": unique(), "role": "ROLE_USER", "taskId": task["id"], "parts": [{"text": "approve"}]});
        let body = json!({"message": message}).to_string();
        let answer = server.ask("POST", MESSAGE, &[("authorization", who)], body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["task"].clone()
    };
    let unseen = says(&bob).await;
    assert_eq!(
        (written(folder.path()).as_str(), asks(&unseen)),
        ("", Some('a')),
        "bob was not shown it: {unseen}"
    );
    says(&bob).await;
    assert_eq!(written(folder.path()), "a", "now he was");
    let late = says(&alice).await;
    assert_eq!(
        (written(folder.path()).as_str(), asks(&late)),
        ("a", Some('b')),
        "alice was shown A only: {late}"
    );
    says(&alice).await;
    assert_eq!(written(folder.path()), "ab");
    let late = says(&bob).await;
    assert_eq!((written(folder.path()).as_str(), asks(&late)), ("ab", Some('c')), "{late}");
}

/// T5: the model's own id of a call may be the same in two runs: a decision in one says nothing in the other.
#[tokio::test]
async fn the_same_call_id_in_two_runs_is_decided_in_each() {
    let again = Answer::stream(live::asks() + &live::stops("tool_calls"));
    let done = || Answer::stream(live::words(&["done"]) + &live::stops("stop"));
    let (_folder, _fake, server) = live::served(vec![again, done(), done()]);
    let go = || json!({"messageId": unique(), "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let (first, second) = (server.send("ops", &go()).await, server.send("ops", &go()).await);
    assert_eq!((asks(&first), asks(&second)), (Some('a'), Some('a')));
    let holds = async || server.get("/api/v1/holds").await.body["holds"].as_array().unwrap().len();
    let answer = Surface::RestText.approve(&server, &first, &unique()).await;
    assert!(answer.contains("TASK_STATE_COMPLETED"), "{answer}");
    assert_eq!(holds().await, 1, "the other run still waits");
    let call = first["status"]["message"]["parts"][1]["data"]["tool_call_id"].clone();
    let foreign = json!({"messageId": unique(), "role": "ROLE_USER", "taskId": second["id"],
        "parts": [{"data": {"decision": "approve", "tool_call_id": call}}]});
    let refused = server.send("ops", &foreign).await;
    assert_eq!((asks(&refused), holds().await), (Some('a'), 1), "{refused}");
    let answer = Surface::RestText.approve(&server, &second, &unique()).await;
    assert!(answer.contains("TASK_STATE_COMPLETED"), "{answer}");
}

/// T5: a call that is approved and then asks something itself is not a name for its question: a late no to the approval does
/// not decline that.
#[tokio::test]
async fn a_late_decision_on_a_call_does_not_meet_its_next_question() {
    let script = "
replies:
- calls: [{tool: suspend-for-input, arguments: {reason: which?}}]
- text: done
";
    let folder = sqlite(script);
    let config = folder.path().join("standfast.yaml");
    let text = std::fs::read_to_string(&config).unwrap().replace("[write_file]", "[suspend-for-input]");
    std::fs::write(&config, text + "tools: {suspend-for-input: {requires_approval: true}}\n").unwrap();
    let server = serve_file(folder.path(), &[]);
    let go = json!({"messageId": unique(), "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let task = server.send("ops", &go).await;
    let call = task["status"]["message"]["parts"][1]["data"]["tool_call_id"].clone();
    assert!(call.is_string(), "{task}");
    let says = |data: Value| json!({"messageId": unique(), "role": "ROLE_USER", "taskId": task["id"], "parts": [{"data": data}]});
    approve_elsewhere(&server, &open_hold(&server, &task, "suspend-for-input").await).await;
    open_hold(&server, &task, r#""kind":"input""#).await;
    let late = server.send("ops", &says(json!({"decision": "deny", "tool_call_id": call}))).await;
    assert_eq!(late["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{late}");
    assert!(late.to_string().contains("Nothing was decided"), "{late}");
    let done = server.send("ops", &says(json!({"answer": "blue", "tool_call_id": call}))).await;
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "it was shown by then: {done}");
}
