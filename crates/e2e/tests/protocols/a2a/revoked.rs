//! Streams of somebody whose key is revoked, or expires: they end soon, on every binding, and say why.

use std::path::Path;
use std::time::Duration;

use a2a_pb::proto;
use serde_json::{Value, json};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

use crate::a2a::bindings::grpc;
use crate::a2a::server::{Server, decides, demo_with, says};
use crate::a2a::streams::{Reader, kept, told};

/// How long a stream may outlive its key here: the server looks every ten seconds, and the machine may be busy.
const SOON: Duration = Duration::from_secs(60);

fn keys(data: &Path, arguments: &[&str]) -> String {
    let mut command = standfast_testkit::standfast();
    let done = command.arg("keys").args(arguments).arg("--data").arg(data).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
}

/// A key of alice, and the header that shows it.
fn alice(data: &Path) -> (String, String) {
    let key = keys(data, &["create", "--user", "alice"]);
    let header = format!("Bearer {key}");
    (key, header)
}

fn prefix(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

async fn waiting(server: &Server, authorization: &str) -> Value {
    let body = json!({"message": says("go")}).to_string();
    let headers = [("authorization", authorization)];
    let sent = server.ask("POST", "/v1/agents/ops/message:send", &headers, body.as_bytes()).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    sent.body["task"].clone()
}

/// Reads the last event of a stream that has shown its first.
async fn last(mut reader: Reader) -> Value {
    let whole = async {
        let mut last = Value::Null;
        while let Some(event) = reader.next().await {
            assert_eq!(event.id, None, "coming back with another key goes on in the same place");
            assert_eq!(event.name.as_deref(), Some("error"));
            last = event.data;
        }
        last
    };
    tokio::time::timeout(SOON, whole).await.unwrap()
}

async fn opened(
    server: &Server,
    method: &str,
    path: &str,
    authorization: &str,
    body: Option<Value>,
) -> Reader {
    let version = if path.ends_with("subscribe") { "1.0" } else { "" };
    let headers = [("authorization", authorization), ("a2a-version", version)];
    let mut reader = Reader::open(server, method, path, &headers, body.as_ref()).await;
    assert!(reader.next().await.is_some(), "the task comes first");
    reader
}

/// S1-14: over HTTP+JSON, JSON-RPC of both versions and gRPC. Somebody else's stream goes on.
#[tokio::test]
async fn streams_end_when_their_key_is_revoked() {
    let data = tempfile::tempdir().unwrap();
    let server = demo_with(data.path(), &["--auth", "keys"]);
    let ((lost, shown), (_, theirs)) = (alice(data.path()), alice(data.path()));
    let task = waiting(&server, &shown).await;
    let id = task["id"].as_str().unwrap();
    let path = format!("/v1/agents/ops/tasks/{id}:subscribe");
    let rpc = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": id}});
    let agent = "/v1/agents/ops";
    let over_http = opened(&server, "GET", &path, &shown, None).await;
    let over_rpc = opened(&server, "POST", agent, &shown, Some(rpc("SubscribeToTask"))).await;
    let older = opened(&server, "POST", agent, &shown, Some(rpc("tasks/resubscribe"))).await;
    let other = opened(&server, "GET", &path, &theirs, None).await;
    let mut client = grpc(&server).await;
    let mut subscribe = Request::new(proto::SubscribeToTaskRequest { tenant: "ops".into(), id: id.into() });
    subscribe.metadata_mut().insert("authorization", MetadataValue::try_from(&shown).unwrap());
    let mut over_grpc = client.subscribe_to_task(subscribe).await.unwrap().into_inner();
    assert!(over_grpc.message().await.unwrap().is_some(), "the task comes first");

    keys(data.path(), &["revoke", prefix(&lost)]);
    let why = "the key or token that this stream was opened with is no longer valid";
    let (over_http, over_rpc, older) = tokio::join!(last(over_http), last(over_rpc), last(older));
    assert_eq!(
        (&over_http["error"]["status"], &over_http["error"]["message"]),
        (&json!("UNAUTHENTICATED"), &json!(why))
    );
    for answer in [over_rpc, older] {
        assert_eq!((&answer["id"], &answer["error"]["message"]), (&json!(1), &json!(why)), "{answer}");
    }
    let ended = tokio::time::timeout(SOON, over_grpc.message()).await.unwrap().unwrap_err();
    assert_eq!((ended.code(), ended.message()), (Code::Unauthenticated, why));

    let body = json!({"message": decides(&task, json!({"decision": "approve"}))}).to_string();
    let headers = [("authorization", theirs.as_str())];
    let done = server.ask("POST", "/v1/agents/ops/message:send", &headers, body.as_bytes()).await;
    assert_eq!(done.status, 200, "{done:?}");
    let heard: Vec<String> = kept(other).await.iter().map(told).collect();
    assert_eq!(heard, ["WORKING", "artifact", "COMPLETED"]);
}

/// S1-14: a key that runs out is no better than one that was revoked.
#[tokio::test]
async fn a_stream_ends_when_its_key_expires() {
    let data = tempfile::tempdir().unwrap();
    let server = demo_with(data.path(), &["--auth", "keys"]);
    let (key, shown) = alice(data.path());
    let task = waiting(&server, &shown).await;
    let path = format!("/v1/agents/ops/tasks/{}:subscribe", task["id"].as_str().unwrap());
    let reader = opened(&server, "GET", &path, &shown, None).await;
    // The shortest time that can be asked for is longer than a test.
    let database = rusqlite::Connection::open(data.path().join("standfast.db")).unwrap();
    database.busy_timeout(SOON).unwrap();
    let expires = "UPDATE credentials SET expires_at = 5 WHERE prefix = ?1";
    assert_eq!(database.execute(expires, [prefix(&key)]).unwrap(), 1);
    assert_eq!(last(reader).await["error"]["status"], "UNAUTHENTICATED");
}
