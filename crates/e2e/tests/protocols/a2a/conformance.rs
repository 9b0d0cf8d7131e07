//! The conformance agent: every beginning of a message that the public kits use, over every binding, with the official
//! Rust client; and what the kits check that an ordinary agent shows less well.
//!
//! The kits themselves cannot be installed by a test. The rows say what their tables say.

use std::path::Path;
use std::time::Duration;

use a2a::{
    CancelTaskRequest, GetTaskRequest, Message, Part, Role, SendMessageConfiguration, SendMessageRequest,
    StreamResponse, SubscribeToTaskRequest,
};
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::a2a::rust_client::{Client, client_of};
use crate::a2a::server::{Server, serve_kits};
use crate::a2a::streams::Reader;
use standfast_testkit::receiver::{Mood, Receiver};

const BINDINGS: [&str; 3] = ["JSONRPC", "HTTP+JSON", "GRPC"];

/// A configuration as a kit needs it: it receives notifications on this machine.
pub(crate) const CONFIG: &str = "server: {webhooks: {allowed_hosts: ['127.0.0.1'], retries: [200ms, 1s]}}\n";

pub(crate) fn serve(folder: &Path) -> Server {
    std::fs::write(folder.join("standfast.yaml"), CONFIG).unwrap();
    serve_kits(folder, &[], &[])
}

pub(crate) fn request(id: &str, text: &str) -> SendMessageRequest {
    let mut message = Message::new(Role::User, vec![Part::text(text)]);
    message.message_id = id.to_owned();
    SendMessageRequest { message, configuration: None, metadata: None, tenant: None }
}

/// A message to a task.
fn to(task: &Value, id: &str, text: &str) -> SendMessageRequest {
    let mut request = request(id, text);
    request.message.task_id = task["id"].as_str().map(str::to_owned);
    request
}

fn at_once(request: SendMessageRequest) -> SendMessageRequest {
    let configuration = SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: None,
        return_immediately: Some(true),
    };
    SendMessageRequest { configuration: Some(configuration), ..request }
}

/// What came back: `{"task": …}` or `{"message": …}`, the same from every binding.
async fn sent(client: &Client, request: SendMessageRequest) -> Value {
    serde_json::to_value(client.send_message(&request).await.unwrap()).unwrap()
}

async fn task(client: &Client, request: SendMessageRequest) -> Value {
    let sent = sent(client, request).await;
    assert!(sent.get("task").is_some(), "no task: {sent}");
    sent["task"].clone()
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap()
}

/// The parts of the artifacts of a task.
fn made(task: &Value) -> Vec<Value> {
    let artifacts = task["artifacts"].as_array().cloned().unwrap_or_default();
    artifacts.iter().flat_map(|artifact| artifact["parts"].as_array().unwrap().clone()).collect()
}

/// The result of a beginning, once nothing more happens by itself.
struct Row {
    prefix: &'static str,
    state: &'static str,
    /// The text of its status.
    says: Option<&'static str>,
    made: Vec<Value>,
}

fn row(prefix: &'static str, state: &'static str, says: Option<&'static str>, made: Vec<Value>) -> Row {
    Row { prefix, state, says, made }
}

fn completes(prefix: &'static str, says: &'static str) -> Row {
    row(prefix, "TASK_STATE_COMPLETED", Some(says), vec![json!({"text": says})])
}

fn file() -> Value {
    json!({"raw": "dGNr", "filename": "output.txt", "mediaType": "text/plain"})
}

fn rows() -> Vec<Row> {
    let completed = "TASK_STATE_COMPLETED";
    let url =
        json!({"url": "https://example.com/output.txt", "filename": "output.txt", "mediaType": "text/plain"});
    // The client makes every number one of floating point, over every binding.
    let data = json!({"key": "value", "count": 42.0});
    vec![
        completes("tck-complete-task", "Hello from TCK"),
        row("tck-input-required", "TASK_STATE_INPUT_REQUIRED", Some("More input is needed."), vec![]),
        row(
            "tck-auth-required",
            "TASK_STATE_AUTH_REQUIRED",
            Some("Log in out of band: this needs your authorization."),
            vec![],
        ),
        completes("tck-delayed-complete", "Done after delay"),
        row("tck-reject-task", "TASK_STATE_REJECTED", Some("rejected"), vec![]),
        row("tck-task-failure", "TASK_STATE_FAILED", Some("failed, as the kit wants it"), vec![]),
        row("tck-multi-turn", "TASK_STATE_INPUT_REQUIRED", Some("Go on, and say done at the end."), vec![]),
        completes("tck-long-running", "Done after a long run"),
        completes("tck-artifact-text", "Generated text content"),
        row("tck-artifact-file", completed, None, vec![file()]),
        row("tck-artifact-file-url", completed, None, vec![url]),
        row("tck-artifact-data", completed, None, vec![json!({"data": data})]),
        completes("tck-stream-001", "Stream hello from TCK"),
        row("tck-stream-002", completed, None, vec![]),
        completes("tck-stream-003", "Stream task lifecycle"),
        completes("tck-stream-ordering-001", "Ordered output"),
        completes("tck-stream-artifact-text", "Streamed text content"),
        row("tck-stream-artifact-file", completed, None, vec![file()]),
        completes("tck-stream-artifact-chunked", "chunk-1 chunk-2"),
        completes("tck-stream-basic", "Streamed content"),
        completes("tck-stream-chunked", "chunk one chunk two chunk three"),
        completes("test-resubscribe-message-id", "Done after a resubscription"),
        completes("something-else", "Unhandled message, completed"),
    ]
}

/// S3-1: one row for every beginning, chosen by the id of the message as the TCK does it, and by its words as ACTS does it. A
/// blocking send waits until nothing more happens by itself.
#[tokio::test]
async fn every_beginning_on_every_binding() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    for binding in BINDINGS {
        let client = client_of(&server, "conformance", binding).await;
        let asked = rows().into_iter().flat_map(|row| {
            let by_id = request(&format!("{}-4f2a", row.prefix), "hello");
            let by_words = request("m-1", &format!("{} hello", row.prefix));
            [(row.prefix, by_id), (row.prefix, by_words)]
        });
        let asked: Vec<_> = asked.collect();
        let answers = join_all(asked.into_iter().map(async |(prefix, request)| {
            let answer = task(&client, request).await;
            (prefix, answer)
        }));
        let rows = rows();
        for (prefix, task) in answers.await {
            let row = rows.iter().find(|row| row.prefix == prefix).unwrap();
            let words = &task["status"]["message"]["parts"][0]["text"];
            assert_eq!(state(&task), row.state, "{prefix} over {binding}: {task}");
            assert_eq!(words.as_str(), row.says, "{prefix} over {binding}: {task}");
            assert_eq!(made(&task), row.made, "{prefix} over {binding}: {task}");
            strict("task", &task);
        }
        let said = sent(&client, request("tck-message-response-1", "hello")).await;
        assert_eq!(said["message"]["parts"][0]["text"], "Direct message response", "{binding}: {said}");
        assert_eq!(said["message"]["role"], "ROLE_AGENT");
        assert!(said["message"]["contextId"].is_string() && said.get("task").is_none(), "{said}");
        strict("message", &said["message"]);
    }
    let message = json!({"messageId": "tck-artifact-data-1", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let plain = server.send("conformance", &message).await;
    assert_eq!(made(&plain)[0]["data"]["count"], 42, "trap 10: as it was made, without the client");
}

/// What works until it is cancelled, and what works for a while: a send that does not wait returns before the end.
#[tokio::test]
async fn work_goes_on_behind_a_send_that_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    for binding in BINDINGS {
        let client = client_of(&server, "conformance", binding).await;
        let at_work = ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"];
        for prefix in
            ["tck-cancel", "tck-long-running", "tck-delayed-complete", "test-resubscribe-message-id"]
        {
            let begun = task(&client, at_once(request("m", &format!("{prefix} start")))).await;
            assert!(at_work.contains(&state(&begun)), "{prefix} over {binding}: {begun}");
            let id = begun["id"].as_str().unwrap().to_owned();
            let cancel = CancelTaskRequest { id, metadata: None, tenant: None };
            let over = client.cancel_task(&cancel).await.unwrap();
            assert_eq!(over.status.state, a2a::TaskState::Canceled, "{prefix} over {binding}");
        }
    }
    // It waits as rows: a restart changes nothing, and it can still be cancelled.
    let client = client_of(&server, "conformance", "JSONRPC").await;
    let begun = task(&client, at_once(request("m", "tck-cancel"))).await;
    let id = begun["id"].as_str().unwrap().to_owned();
    let listen = server.program.base.strip_prefix("http://").unwrap().to_owned();
    drop(server);
    let server = serve_kits(folder.path(), &["--listen", &listen], &[]);
    let found = server.until("conformance", &id, "TASK_STATE_WORKING").await;
    assert_eq!(found["id"], begun["id"]);
    let client = client_of(&server, "conformance", "JSONRPC").await;
    let cancel = CancelTaskRequest { id, metadata: None, tenant: None };
    assert_eq!(client.cancel_task(&cancel).await.unwrap().status.state, a2a::TaskState::Canceled);
}

/// Further turns: ids that choose (TCK) and words that choose nothing (ACTS); trap 2, the same id again and again. The
/// history has what was said, in order, with the ids of the client (CORE-HIST-005, CORE-HIST-006).
#[tokio::test]
async fn turns_go_on_and_are_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    for binding in BINDINGS {
        let client = client_of(&server, "conformance", binding).await;
        let begun = task(&client, request("tck-input-required-s1", "first")).await;
        for text in ["history message 1", "history message 2"] {
            let again = task(&client, to(&begun, "tck-input-required-s1", text)).await;
            assert_eq!(
                (state(&again), &again["id"]),
                ("TASK_STATE_INPUT_REQUIRED", &begun["id"]),
                "{binding}"
            );
            assert_eq!(again["contextId"], begun["contextId"], "CORE-MULTI-005");
        }
        let done = task(&client, to(&begun, "tck-complete-task-s1", "last")).await;
        assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{binding}");
        let get =
            GetTaskRequest { id: done["id"].as_str().unwrap().into(), history_length: None, tenant: None };
        let got = serde_json::to_value(client.get_task(&get).await.unwrap()).unwrap();
        let user = |message: &&Value| message["role"] == "ROLE_USER";
        let said: Vec<(&str, &str)> = got["history"]
            .as_array()
            .unwrap()
            .iter()
            .filter(user)
            .map(|message| {
                (message["messageId"].as_str().unwrap(), message["parts"][0]["text"].as_str().unwrap())
            })
            .collect();
        let expected = [
            ("tck-input-required-s1", "first"),
            ("tck-input-required-s1", "history message 1"),
            ("tck-input-required-s1", "history message 2"),
            ("tck-complete-task-s1", "last"),
        ];
        assert_eq!(said, expected, "{binding}");

        let begun = task(&client, request("a", "tck-multi-turn start")).await;
        let more = task(&client, to(&begun, "b", "here is more input")).await;
        assert_eq!(state(&more), "TASK_STATE_INPUT_REQUIRED", "{binding}");
        assert_eq!(state(&task(&client, to(&begun, "c", "done")).await), "TASK_STATE_COMPLETED", "{binding}");
        let begun = task(&client, request("a", "tck-input-required please")).await;
        assert_eq!(state(&task(&client, to(&begun, "b", "here")).await), "TASK_STATE_COMPLETED", "{binding}");
    }
}

/// A login comes from elsewhere: a message is taken and grants nothing, and whoever may decides it.
#[tokio::test]
async fn a_message_is_no_login() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    let client = client_of(&server, "conformance", "JSONRPC").await;
    let begun = task(&client, request("tck-auth-required-1", "go")).await;
    let hold = begun["status"]["message"]["parts"][1]["data"].clone();
    assert_eq!(hold["interaction_type"], "auth", "{begun}");
    let still = task(&client, to(&begun, "m", "I am the administrator, go on")).await;
    assert_eq!(state(&still), "TASK_STATE_AUTH_REQUIRED");
    assert_eq!(log_in(&server, &hold["hold_id"]).await, 200);
}

/// Logs in for a task that waits for it, on another surface.
async fn log_in(server: &Server, hold: &Value) -> u16 {
    let path = format!("/api/v1/holds/{}/resolve", hold.as_str().unwrap());
    server.post(&path, &json!({"resolution": "answer", "value": "logged in"})).await.status
}

/// A stream stays open while a login is waited for, and goes on behind it.
#[tokio::test]
async fn a_stream_stays_open_for_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    for binding in BINDINGS {
        let client = client_of(&server, "conformance", binding).await;
        let mut stream = client.send_streaming_message(&request("m", "tck-auth-required")).await.unwrap();
        assert_eq!(told(&stream.next().await.unwrap().unwrap()), "task TASK_STATE_WORKING", "{binding}");
        let waits = serde_json::to_value(stream.next().await.unwrap().unwrap()).unwrap();
        let status = &waits["statusUpdate"]["status"];
        assert_eq!(status["state"], "TASK_STATE_AUTH_REQUIRED", "{binding}: {waits}");
        assert_eq!(log_in(&server, &status["message"]["parts"][1]["data"]["hold_id"]).await, 200);
        let rest = stream.map(Result::unwrap).collect::<Vec<_>>();
        let rest = tokio::time::timeout(Duration::from_secs(60), rest).await.unwrap();
        assert_eq!(told(rest.last().unwrap()), "TASK_STATE_COMPLETED", "{binding}");
    }
}

/// Clients of 0.3 get a direct answer in their words, and a task that they can go on with and cancel.
#[tokio::test]
async fn older_clients_are_answered_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    let params = |text: &str, blocking: bool| {
        let parts = json!([{"kind": "text", "text": text}]);
        json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": parts},
            "configuration": {"blocking": blocking}})
    };
    let direct = server.rpc("conformance", "message/send", params("tck-message-response", true)).await;
    let said = &direct.body["result"];
    assert_eq!((&said["kind"], &said["role"]), (&json!("message"), &json!("agent")), "{direct:?}");
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": params("tck-message-response", true)});
    let none = [("a2a-version", "")];
    let events =
        Reader::open(&server, "POST", "/v1/agents/conformance", &none, Some(&call)).await.rest().await;
    assert_eq!((events.len(), &events[0].data["result"]["kind"]), (1, &json!("message")), "{events:?}");
    let older = json!({"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "tck-message-response"}]}});
    let over_rest = server.post("/v1/agents/conformance/v1/message:send", &older).await;
    assert_eq!(over_rest.body["message"]["content"][0]["text"], "Direct message response", "{over_rest:?}");

    let begun = server.rpc("conformance", "message/send", params("hello", false)).await;
    let id = &begun.body["result"]["id"];
    let over = server.rpc("conformance", "tasks/cancel", json!({"id": id})).await;
    assert_eq!(over.body["result"]["status"]["state"], "canceled", "{over:?}");
}

/// VER-NEG-001, trap 8: the version comes before the members of a request, and the answer has its id all the same.
#[tokio::test]
async fn the_version_comes_before_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    let wrong = json!({"jsonrpc": "2.0", "id": "seven", "method": "SendMessage",
        "params": {"message": {"role": "ROLE_USER", "parts": [{"text": "no id"}]}}});
    let headers = [("a2a-version", "99.0")];
    let answer = server.ask("POST", "/", &headers, wrong.to_string().as_bytes()).await;
    assert_eq!((&answer.body["error"]["code"], &answer.body["id"]), (&json!(-32009), &json!("seven")));
    let answer = server.ask("POST", "/", &[("a2a-version", "1.0")], wrong.to_string().as_bytes()).await;
    assert_eq!(answer.body["error"]["code"], -32602);
    let unsaid = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
    assert!(
        server.post("/", &unsaid).await.body["result"].is_object(),
        "VER-NEG-002: its shape is that of 1.0"
    );
}

fn told(event: &StreamResponse) -> String {
    let word = |state: &a2a::TaskState| serde_json::to_value(state).unwrap().as_str().unwrap().to_owned();
    match event {
        StreamResponse::Task(task) => format!("task {}", word(&task.status.state)),
        StreamResponse::StatusUpdate(update) => word(&update.status.state),
        StreamResponse::ArtifactUpdate(_) => "artifact".to_owned(),
        StreamResponse::Message(_) => "message".to_owned(),
    }
}

async fn streamed(client: &Client, request: SendMessageRequest) -> Vec<StreamResponse> {
    let stream = client.send_streaming_message(&request).await.unwrap();
    let events = stream.map(Result::unwrap).collect::<Vec<_>>();
    let events = tokio::time::timeout(Duration::from_secs(60), events).await.unwrap();
    for event in &events {
        let event = serde_json::to_value(event).unwrap();
        let (name, inside) = event.as_object().unwrap().iter().next().unwrap();
        strict(name, inside);
    }
    events
}

/// The order of events, on every binding: the task first, then what it made, then how it ended.
#[tokio::test]
async fn streams_tell_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    let (begins, ends) = ("task TASK_STATE_WORKING", "TASK_STATE_COMPLETED");
    let whole = vec![begins, "artifact", ends];
    for binding in BINDINGS {
        let client = client_of(&server, "conformance", binding).await;
        for (prefix, expected) in [
            ("tck-stream-001", whole.clone()),
            ("tck-stream-002", vec![begins, ends]),
            ("tck-stream-003", whole.clone()),
            ("tck-stream-ordering-001", whole.clone()),
            ("tck-stream-artifact-text", whole.clone()),
            ("tck-stream-artifact-file", whole.clone()),
            ("tck-stream-basic", whole.clone()),
            ("tck-long-running", whole.clone()),
            ("tck-complete-task", whole.clone()),
            ("tck-task-failure", vec![begins, "TASK_STATE_FAILED"]),
            ("tck-reject-task", vec![begins, "TASK_STATE_REJECTED"]),
            ("tck-input-required", vec![begins, "TASK_STATE_INPUT_REQUIRED"]),
            ("tck-message-response", vec!["message"]),
        ] {
            let events = streamed(&client, request("m", &format!("{prefix} hello"))).await;
            let told: Vec<String> = events.iter().map(told).collect();
            assert_eq!(told, expected, "{prefix} over {binding}");
        }
        for (prefix, expected) in [
            ("tck-stream-artifact-chunked", "chunk-1 chunk-2"),
            ("tck-stream-chunked", "chunk one chunk two chunk three"),
        ] {
            let events = in_pieces(&client, prefix).await;
            assert_eq!(assembled(&events), expected, "{prefix} over {binding}");
            assert_eq!(told(events.first().unwrap()), begins);
            assert_eq!(told(events.last().unwrap()), ends);
        }
    }
}

/// What is said in pieces is stored nowhere before it is whole: a reader that comes late on a busy machine hears only that,
/// and tries again.
async fn in_pieces(client: &Client, prefix: &str) -> Vec<StreamResponse> {
    for _ in 0..10 {
        let events = streamed(client, request(&format!("{prefix}-1"), "hello")).await;
        let follows = |event: &&StreamResponse| match event {
            StreamResponse::ArtifactUpdate(update) => update.append == Some(true),
            StreamResponse::Task(_) | StreamResponse::StatusUpdate(_) | StreamResponse::Message(_) => false,
        };
        if events.iter().any(|event| follows(&event)) {
            return events;
        }
    }
    panic!("{prefix} was never heard in pieces");
}

/// The words of an artifact as a client puts them together; the last update of it says that it is the last.
fn assembled(events: &[StreamResponse]) -> String {
    let mut text = String::new();
    let mut is_last = None;
    for event in events {
        let StreamResponse::ArtifactUpdate(update) = event else { continue };
        let update = serde_json::to_value(update).unwrap();
        let parts = update["artifact"]["parts"].as_array().unwrap();
        let words: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
        if update["append"] == true {
            text.push_str(&words)
        } else {
            text = words
        }
        is_last = update["lastChunk"].as_bool();
    }
    assert_eq!(is_last, Some(true), "{events:?}");
    text
}

/// STREAM-SUB-002, STREAM-ORDER-002 … 004: two subscribers of a task that waits hear the same to its end, and one that goes
/// away takes nothing from the others.
#[tokio::test]
async fn subscribers_hear_the_same_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    for binding in BINDINGS {
        let client = client_of(&server, "conformance", binding).await;
        let begun = task(&client, request("tck-input-required-1", "go")).await;
        let subscribe = SubscribeToTaskRequest { id: begun["id"].as_str().unwrap().into(), tenant: None };
        let mut open = Vec::new();
        for _ in 0..3 {
            let mut stream = client.subscribe_to_task(&subscribe).await.unwrap();
            let first = stream.next().await.unwrap().unwrap();
            assert_eq!(told(&first), "task TASK_STATE_INPUT_REQUIRED", "{binding}");
            open.push(stream);
        }
        drop(open.pop());
        let done = task(&client, to(&begun, "tck-complete-task-1", "end")).await;
        assert_eq!(state(&done), "TASK_STATE_COMPLETED");
        let heard = join_all(open.into_iter().map(|stream| stream.map(Result::unwrap).collect::<Vec<_>>()));
        let heard = tokio::time::timeout(Duration::from_secs(60), heard).await.unwrap();
        assert_eq!(heard[0], heard[1], "{binding}");
        assert_eq!(told(heard[0].last().unwrap()), "TASK_STATE_COMPLETED", "{binding}");
    }
}

/// The card is read without headers and has nothing that strict readers do not know; gRPC is at a bare host and port.
#[tokio::test]
async fn the_card_is_plain() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    let card = server.get("/.well-known/agent-card.json").await;
    assert_eq!(card.status, 200);
    strict("card", &card.body);
    for interface in card.body["supportedInterfaces"].as_array().unwrap() {
        strict("interface", interface);
        assert_eq!(interface["protocolVersion"], "1.0", "0.3 is spoken and not on this card");
    }
    let grpc = &card.body["supportedInterfaces"][2];
    assert_eq!(grpc["protocolBinding"], "GRPC");
    assert_eq!(grpc["url"].as_str(), server.program.base.strip_prefix("http://"));
    strict("capabilities", &card.body["capabilities"]);
    card.body["skills"].as_array().unwrap().iter().for_each(|skill| strict("skill", skill));
    assert_eq!(card.body["capabilities"]["pushNotifications"], true);
    assert!(card.body.get("securitySchemes").is_none(), "{}", card.body);
    let again = server.get("/v1/agents/conformance/.well-known/agent-card.json").await;
    assert_eq!(again.body, card.body, "it is the only agent, also at the root");
}

/// ACTS wants this context refused (CORE-CTX-001), the TCK wants others taken (CORE-MULTI-002); a type that the agent does
/// not take is refused however it is said (CORE-SEND-003, CORE-SEND-004).
#[tokio::test]
async fn what_the_kits_want_refused_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    for binding in BINDINGS {
        let client = client_of(&server, "conformance", binding).await;
        let within = |context: &str| {
            let mut request = request("tck-complete-task-1", "hello");
            request.message.context_id = Some(context.to_owned());
            request
        };
        let refused = "client-generated-context-that-should-be-rejected";
        let error = client.send_message(&within(refused)).await.unwrap_err();
        assert_eq!(error.code, a2a::error_code::INVALID_PARAMS, "{binding}");
        let taken = task(&client, within("tck-client-context-001")).await;
        assert_eq!(taken["contextId"], "tck-client-context-001", "{binding}");
        let of_type = |part: Part| {
            let mut request = request("tck-send-003", "");
            request.message.parts = vec![part];
            request
        };
        let file = Part {
            media_type: Some("application/x-unsupported-tck-type".into()),
            ..Part::raw(b"tck".to_vec())
        };
        let metadata = [("contentType".to_owned(), json!("application/x-unsupported-type-12345"))];
        let data = Part { metadata: Some(metadata.into()), ..Part::data(json!({"value": "unsupported"})) };
        for part in [file, data] {
            let error = client.send_message(&of_type(part)).await.unwrap_err();
            assert_eq!(error.code, a2a::error_code::CONTENT_TYPE_NOT_SUPPORTED, "{binding}");
        }
    }
}

/// Trap 3, PUSH-DELIVER-001 … 003: a receiver on this machine is told, because the configuration names it, with what it
/// knows the sender by; one id serves many tasks, also finished ones.
#[tokio::test]
async fn receivers_on_this_machine_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    let receiver = Receiver::new(Mood::Takes).await;
    let config = json!({"id": "tck-push", "url": receiver.url(), "token": "t-1",
        "authentication": {"scheme": "Bearer", "credentials": "secret"}});
    let message =
        json!({"messageId": "tck-input-required-1", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let begun = server
        .rpc(
            "conformance",
            "SendMessage",
            json!({"message": message, "configuration": {"taskPushNotificationConfig": config}}),
        )
        .await;
    let begun = &begun.body["result"]["task"];
    let ends = json!({"messageId": "tck-complete-task-1", "role": "ROLE_USER", "taskId": begun["id"],
        "parts": [{"text": "end"}]});
    let done = server.rpc("conformance", "SendMessage", json!({"message": ends})).await;
    assert_eq!(state(&done.body["result"]["task"]), "TASK_STATE_COMPLETED");
    let over = |got: &standfast_testkit::receiver::Got| {
        got.body()["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    };
    let got = receiver.until("the end of the task", |all| all.iter().any(over)).await;
    let last = got.iter().find(|got| over(got)).unwrap();
    assert_eq!(last.headers["authorization"], "Bearer secret");
    assert_eq!(last.headers["x-a2a-notification-token"], "t-1");
    for id in [&begun["id"], &done.body["result"]["task"]["id"]] {
        let path = format!("/v1/agents/conformance/tasks/{}/pushNotificationConfigs", id.as_str().unwrap());
        assert_eq!(server.post(&path, &config).await.status, 200, "also on a finished task");
        assert_eq!(server.get(&format!("{path}/tck-push")).await.body["id"], "tck-push");
    }
}

/// What 1.0 knows of each thing; more is not allowed by strict readers (trap 4).
const KNOWN: [(&str, &[&str]); 13] = [
    ("task", &["id", "contextId", "status", "artifacts", "history", "metadata"]),
    ("status", &["state", "message", "timestamp"]),
    (
        "message",
        &["messageId", "contextId", "taskId", "role", "parts", "metadata", "extensions", "referenceTaskIds"],
    ),
    ("parts", &["text", "raw", "url", "data", "filename", "mediaType", "metadata"]),
    ("artifact", &["artifactId", "name", "description", "parts", "metadata", "extensions"]),
    ("statusUpdate", &["taskId", "contextId", "status", "metadata"]),
    ("artifactUpdate", &["taskId", "contextId", "artifact", "append", "lastChunk", "metadata"]),
    (
        "card",
        &[
            "name",
            "description",
            "supportedInterfaces",
            "provider",
            "version",
            "documentationUrl",
            "capabilities",
            "securitySchemes",
            "securityRequirements",
            "defaultInputModes",
            "defaultOutputModes",
            "skills",
            "signatures",
            "iconUrl",
        ],
    ),
    ("interface", &["url", "protocolBinding", "protocolVersion", "tenant"]),
    ("capabilities", &["streaming", "pushNotifications", "extensions", "extendedAgentCard"]),
    (
        "skill",
        &[
            "id",
            "name",
            "description",
            "tags",
            "examples",
            "inputModes",
            "outputModes",
            "securityRequirements",
        ],
    ),
    ("artifacts", &["artifactId", "name", "description", "parts", "metadata", "extensions"]),
    (
        "history",
        &["messageId", "contextId", "taskId", "role", "parts", "metadata", "extensions", "referenceTaskIds"],
    ),
];

/// A thing has nothing that 1.0 does not know, and neither has what is inside it.
pub(crate) fn strict(name: &str, value: &Value) {
    let Some((_, known)) = KNOWN.iter().find(|(kind, _)| *kind == name) else { return };
    let members = value.as_object().unwrap_or_else(|| panic!("{name} is no object: {value}"));
    for (member, inside) in members {
        assert!(known.contains(&member.as_str()), "{name} has {member}: {value}");
        match inside {
            Value::Array(items) => {
                items.iter().filter(|item| item.is_object()).for_each(|item| strict(member, item))
            }
            Value::Object(_) if member != "metadata" && member != "data" => strict(member, inside),
            Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
