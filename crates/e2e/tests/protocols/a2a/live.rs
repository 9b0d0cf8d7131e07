//! Words while the model says them, on every stream: pieces of the task's artifact, without an id, stored nowhere, and
//! replaced by the answer in the log.
//!
//! The model is a provider on this machine that stops in the middle of what it says until a test lets it go on.

use std::process::Command;
use std::time::Duration;

use a2a_pb::proto;
use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::stream_response::Payload;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_stream::StreamExt as _;

use crate::a2a::clients::{folder as clients, python, talk};
use crate::a2a::server::{Server, configured, decides, says};
use crate::a2a::streams::{Event, Reader, told};
use standfast_testkit::provider::{Answer, Fake, Pieces, Signal};

/// What the model says at last.
const WHOLE: &str = "Es ist getan: ä.";

/// The pieces that it says it in; it stops behind the second.
const PIECES: [&str; 4] = ["Es ", "ist ", "getan: ", "ä."];

/// What has been said by then.
const HALF: &str = "Es ist ";

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    format!("data: {}\n\n", json!({"choices": [choice]}))
}

pub(crate) fn words(pieces: &[&str]) -> String {
    pieces.iter().map(|piece| chunk(&json!({"content": piece}), None)).collect()
}

pub(crate) fn stops(finish: &str) -> String {
    format!("{}data: [DONE]\n\n", chunk(&json!({}), Some(finish)))
}

/// A call that a person has to approve.
pub(crate) fn asks() -> String {
    let function = json!({"name": "write_file", "arguments": r#"{"path": "a.txt", "content": "x"}"#});
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
    chunk(&json!({"tool_calls": [call]}), None)
}

/// The answer, halfway; the rest of it when somebody says so.
fn halting(before: &Signal) -> Answer {
    let stream = words(&PIECES) + &stops("stop");
    Answer::stream(stream).in_pieces(Pieces::Halts(words(&PIECES[..2]).len(), before.clone()))
}

/// An agent that asks first, whose model gives these answers then.
pub(crate) fn served(answers: Vec<Answer>) -> (TempDir, Fake, Server) {
    let first = Answer::stream(asks() + &stops("tool_calls"));
    let fake = Fake::answering(std::iter::once(first).chain(answers).collect());
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "llms: {{m: {{type: openai, model: m, base_url: '{}'}}}}\n\
         session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
         agents: {{ops: {{llm: m, tools: [write_file], session_store: main, task: {{}}, a2a: {{v03_card: true}}}}}}\n",
        fake.url
    );
    let server = configured(folder.path(), &config);
    (folder, fake, server)
}

/// Approves and does not wait for what comes of it.
async fn approve(server: &Server, task: &Value) {
    let message = decides(task, json!({"decision": "approve"}));
    let body = json!({"message": message, "configuration": {"returnImmediately": true}});
    let answer = server.post("/v1/agents/ops/message:send", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// What a reader that follows the protocol makes of the updates of the artifact.
#[derive(Debug, Default)]
struct Artifact {
    text: String,
    is_whole: bool,
    updates: usize,
}

impl Artifact {
    fn update(&mut self, text: &str, append: bool, last_chunk: bool) {
        assert!(!(append && self.updates == 0), "there is nothing yet to append to");
        assert!(!self.is_whole, "the whole came already");
        if !append {
            self.text.clear();
        }
        self.text.push_str(text);
        self.is_whole = last_chunk;
        self.updates += 1;
    }

    /// Takes an event of any JSON binding.
    fn take(&mut self, event: &Event) -> bool {
        let data = event.data.get("result").unwrap_or(&event.data);
        let update = match data.get("artifactUpdate") {
            Some(update) => update,
            None if data["kind"] == "artifact-update" => data,
            None => return false,
        };
        let part = &update["artifact"]["parts"][0];
        assert_eq!(update["artifact"]["artifactId"], "result");
        let is_last = update["lastChunk"] == true;
        assert_eq!(event.id.is_some(), is_last, "only what is in the log has an id");
        self.update(part["text"].as_str().unwrap(), update["append"] == true, is_last);
        true
    }
}

/// A JSON binding: how a task is subscribed to.
async fn subscribe(server: &Server, binding: &str, id: &str) -> Reader {
    let rpc = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": id}});
    let (path, none) = (format!("/v1/agents/ops/tasks/{id}:subscribe"), [("a2a-version", "")]);
    let older = format!("/v1/agents/ops/v1/tasks/{id}:subscribe");
    match binding {
        "HTTP+JSON" => Reader::open(server, "GET", &path, &[], None).await,
        "JSON-RPC" => {
            Reader::open(server, "POST", "/v1/agents/ops", &[], Some(&rpc("SubscribeToTask"))).await
        }
        "JSON-RPC of 0.3" => {
            Reader::open(server, "POST", "/v1/agents/ops", &none, Some(&rpc("tasks/resubscribe"))).await
        }
        "HTTP+JSON of 0.3" => Reader::open(server, "GET", &older, &none, None).await,
        other => panic!("{other}"),
    }
}

/// Half of the answer is there while the model has not said the rest; then comes the whole, the same as in the task.
#[tokio::test(flavor = "multi_thread")]
async fn words_are_heard_while_they_are_said() {
    for binding in ["HTTP+JSON", "JSON-RPC", "JSON-RPC of 0.3", "HTTP+JSON of 0.3"] {
        let before = Signal::default();
        let (_folder, _fake, server) = served(vec![halting(&before)]);
        let task = server.send("ops", &says("go")).await;
        let mut reader = subscribe(&server, binding, task["id"].as_str().unwrap()).await;
        reader.next().await.unwrap();
        approve(&server, &task).await;
        let mut artifact = Artifact::default();
        while artifact.text != HALF {
            let event = reader.next().await.unwrap();
            let is_words = artifact.take(&event);
            assert!(is_words || artifact.updates == 0, "{binding}: {event:?}");
            assert!(HALF.starts_with(&artifact.text), "{binding}: {artifact:?}");
        }
        before.give();
        let rest = reader.rest().await;
        for event in &rest {
            artifact.take(event);
            assert!(WHOLE.starts_with(&artifact.text), "{binding}: {artifact:?}");
        }
        assert_eq!((artifact.text.as_str(), artifact.is_whole), (WHOLE, true), "{binding}");
        let done = server.until("ops", task["id"].as_str().unwrap(), "TASK_STATE_COMPLETED").await;
        assert_eq!(done["artifacts"].as_array().unwrap().len(), 1, "{done}");
        assert_eq!(done["artifacts"][0]["parts"], json!([{"text": WHOLE}]), "{done}");
    }
}

/// The same over gRPC.
#[tokio::test(flavor = "multi_thread")]
async fn words_are_heard_over_grpc() {
    let before = Signal::default();
    let (_folder, _fake, server) = served(vec![halting(&before)]);
    let task = server.send("ops", &says("go")).await;
    let mut client = A2aServiceClient::connect(server.program.base.clone()).await.unwrap();
    let id = task["id"].as_str().unwrap().to_owned();
    let mut request = tonic::Request::new(proto::SubscribeToTaskRequest { tenant: "ops".into(), id });
    request.metadata_mut().insert("a2a-version", tonic::metadata::MetadataValue::from_static("1.0"));
    let mut stream = client.subscribe_to_task(request).await.unwrap().into_inner();
    let mut next = async || {
        let next = tokio::time::timeout(Duration::from_secs(60), stream.next()).await.unwrap()?;
        Some(next.unwrap().payload.unwrap())
    };
    assert!(matches!(next().await, Some(Payload::Task(_))));
    approve(&server, &task).await;
    let mut artifact = Artifact::default();
    let take = |artifact: &mut Artifact, payload: Payload| {
        let Payload::ArtifactUpdate(update) = payload else { return };
        let made = update.artifact.unwrap();
        let Some(proto::part::Content::Text(text)) = made.parts[0].content.clone() else {
            panic!("{made:?}")
        };
        artifact.update(&text, update.append, update.last_chunk);
    };
    while artifact.text != HALF {
        take(&mut artifact, next().await.unwrap());
        assert!(HALF.starts_with(&artifact.text), "{artifact:?}");
    }
    before.give();
    while let Some(payload) = next().await {
        take(&mut artifact, payload);
    }
    assert_eq!((artifact.text.as_str(), artifact.is_whole), (WHOLE, true));
}

/// Words in front of a call, of a try that broke off, and of a task that was cancelled are no answer: they are taken back
/// before the task says where it stands. What the log has is the same for a reader who heard no word of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_answer_is_taken_back() {
    let broken = words(&["Ich ", "glaube "]);
    let length = broken.len();
    let (before, last) = (Signal::default(), Signal::default());
    let thinks = words(&["Erst ", "die Datei."]);
    let half = thinks.len();
    let calls = Answer::stream(thinks + &asks() + &stops("tool_calls"));
    let (_folder, _fake, server) = served(vec![
        calls.in_pieces(Pieces::Halts(half, before.clone())),
        Answer::stream(broken).in_pieces(Pieces::Cut(length)),
        halting(&last),
    ]);
    let task = server.send("ops", &says("go")).await;
    let id = task["id"].as_str().unwrap();
    let mut reader = subscribe(&server, "HTTP+JSON", id).await;
    let first = reader.next().await.unwrap();
    let mut heard = Vec::new();
    let mut artifact = Artifact::default();
    let mut until = async |wanted: &dyn Fn(&Artifact, &Event) -> bool, artifact: &mut Artifact| loop {
        let event = reader.next().await.unwrap();
        if !artifact.take(&event) || artifact.is_whole {
            heard.push(event.clone());
        }
        if wanted(artifact, &event) {
            return event;
        }
    };
    approve(&server, &task).await;
    until(&|artifact, _| artifact.text == "Erst die Datei.", &mut artifact).await;
    before.give();
    let asked = until(&|_, event| told(event) == "INPUT_REQUIRED", &mut artifact).await;
    assert_eq!(artifact.text, "", "what came before the call was taken back");
    let update = &asked.data["statusUpdate"];
    let again = json!({"id": id, "contextId": task["contextId"], "status": update["status"]});
    approve(&server, &again).await;
    until(&|artifact, _| artifact.text.starts_with("Ich "), &mut artifact).await;
    until(&|artifact, _| artifact.text.is_empty(), &mut artifact).await;
    until(&|artifact, _| artifact.text == HALF, &mut artifact).await;
    let history = server.get(&format!("/v1/agents/ops/tasks/{id}")).await.body["history"].to_string();
    assert!(history.contains("Erst die Datei.") && !history.contains("Ich glaube"), "{history}");
    last.give();
    until(&|_, event| told(event) == "COMPLETED", &mut artifact).await;
    assert_eq!((artifact.text.as_str(), artifact.is_whole), (WHOLE, true));
    // Whoever comes back gets what stands in the log, and not one word of what does not.
    let cursor = [("last-event-id", first.id.as_deref().unwrap())];
    let path = format!("/v1/agents/ops/tasks/{id}:subscribe");
    let replayed = Reader::open(&server, "GET", &path, &cursor, None).await.rest().await;
    assert_eq!(replayed[1..], heard);
}

/// A task that is cancelled while its model speaks made nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_takes_its_words_back() {
    let never = Signal::default();
    let (_folder, _fake, server) = served(vec![halting(&never)]);
    let task = server.send("ops", &says("go")).await;
    let id = task["id"].as_str().unwrap();
    let mut reader = subscribe(&server, "HTTP+JSON", id).await;
    reader.next().await.unwrap();
    approve(&server, &task).await;
    let mut artifact = Artifact::default();
    while artifact.text != HALF {
        artifact.take(&reader.next().await.unwrap());
    }
    let cancelled = server.post(&format!("/v1/agents/ops/tasks/{id}:cancel"), &json!({})).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    let rest = reader.rest().await;
    for event in &rest {
        artifact.take(event);
    }
    assert_eq!((artifact.text.as_str(), artifact.is_whole), ("", false));
    assert_eq!(told(rest.last().unwrap()), "CANCELED");
    never.give();
}

/// A reader that reads nothing holds up neither the model nor the store: the task ends without it, and what it reads in
/// the end is the whole answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_delays_nobody() {
    let piece = "x".repeat(2_000);
    let pieces = vec![piece.as_str(); 2_500];
    let whole = pieces.concat();
    let (_folder, _fake, server) = served(vec![Answer::stream(words(&pieces) + &stops("stop"))]);
    let task = server.send("ops", &says("go")).await;
    let id = task["id"].as_str().unwrap();
    let mut reader = subscribe(&server, "HTTP+JSON", id).await;
    reader.next().await.unwrap();
    approve(&server, &task).await;
    let done = server.until("ops", id, "TASK_STATE_COMPLETED").await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"].as_str().map(str::len), Some(whole.len()));
    let mut artifact = Artifact::default();
    for event in &reader.rest().await {
        artifact.take(event);
    }
    assert!(artifact.is_whole && artifact.text == whole, "{} of {}", artifact.text.len(), whole.len());
}

/// A client that gathers the artifact as its maker means it to be gathered has half of it while the model speaks, nothing
/// of it when a reply was none, and the whole at the end.
fn gathers(client: Command, script: &str, binding: &str) {
    let before = Signal::default();
    let call = words(&["Erst ", "die Datei."]) + &asks() + &stops("tool_calls");
    let (_folder, _fake, server) = served(vec![Answer::stream(call), halting(&before)]);
    let mut client = client;
    client.arg(clients().join(script)).args([&server.program.base, binding, HALF, WHOLE]);
    talk(client, script, |line| {
        if line == "half" {
            before.give();
        }
    });
}

#[test]
fn the_python_client_gathers_words_over_json_rpc() {
    gathers(python("a2a-clients"), "live.py", "JSONRPC");
}

#[test]
fn the_python_client_gathers_words_over_http_json() {
    gathers(python("a2a-clients"), "live.py", "HTTP+JSON");
}

#[test]
fn the_python_client_gathers_words_over_grpc() {
    gathers(python("a2a-clients"), "live.py", "GRPC");
}

#[test]
fn the_javascript_client_gathers_words_over_json_rpc() {
    gathers(Command::new("node"), "live.mjs", "JSONRPC");
}

#[test]
fn the_javascript_client_gathers_words_over_http_json() {
    gathers(Command::new("node"), "live.mjs", "HTTP+JSON");
}

#[test]
fn the_javascript_client_gathers_words_over_grpc() {
    gathers(Command::new("node"), "live.mjs", "GRPC");
}

#[test]
fn the_python_client_of_0_3_gathers_words() {
    gathers(python("a2a-clients-v03"), "v03/live.py", "JSONRPC");
    gathers(python("a2a-clients-v03"), "v03/live.py", "HTTP+JSON");
}

/// S3-14, S3-25: the older dialect has the model's words while they come, as events of their own beside `status_update`; the last
/// status has the whole. With `enable_streaming: false` there are none.
#[tokio::test(flavor = "multi_thread")]
async fn words_are_heard_in_the_older_dialect() {
    for streaming in [true, false] {
        let before = Signal::default();
        let (folder, _fake, server) = served(vec![halting(&before)]);
        let server = if streaming {
            server
        } else {
            let path = folder.path().join("standfast.yaml");
            let config = std::fs::read_to_string(&path).unwrap();
            let off = config.replace("task: {}", "task: {}, reasoning: {enable_streaming: false}");
            std::fs::write(&path, off).unwrap();
            crate::a2a::server::configured_again(server, folder.path())
        };
        let task = server.send("ops", &says("go")).await;
        let path = format!("/v1/agents/ops/tasks/{}:subscribe", task["id"].as_str().unwrap());
        let mut reader = Reader::open(&server, "GET", &path, &[("a2a-version", "")], None).await;
        assert_eq!(reader.next().await.unwrap().name.as_deref(), Some("status_update"));
        approve(&server, &task).await;
        let (mut heard, mut states) = (String::new(), Vec::new());
        while streaming && heard != HALF {
            let event = reader.next().await.unwrap();
            if event.name.as_deref() == Some("artifact_update") {
                assert_eq!((&event.data["taskId"], event.id), (&task["id"], None));
                if event.data["append"] != true {
                    heard.clear();
                }
                heard.push_str(event.data["artifact"]["parts"][0]["text"].as_str().unwrap());
            }
        }
        before.give();
        let mut last = Value::Null;
        while let Some(event) = reader.next().await {
            if event.name.as_deref() == Some("artifact_update") {
                assert!(streaming, "{event:?}");
                continue;
            }
            states.push(event.data["status"]["state"].as_str().unwrap().to_owned());
            last = event.data["status"]["message"]["parts"][0]["text"].clone();
        }
        assert_eq!(states.last().map(String::as_str), Some("TASK_STATE_COMPLETED"), "{states:?}");
        assert_eq!(last, WHOLE);
    }
}
