//! A session is one conversation, whatever it is spoken over: native API, A2A of both versions, the older dialect, Teal; on any
//! node, and never another user's.
//!
//! What a model is sent is what the provider on this machine was sent.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use a2a_pb::proto;
use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::provider::{Answer, Fake};
use standfast_testkit::{Http, Process, serve_command, start, text};
use tempfile::TempDir;

/// A stream of OpenAI that says one word.
const SAYS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Noted.\"},\"finish_reason\":null}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A folder whose agent lives in a Postgres, for several nodes.
fn folder(fake: &Fake) -> TempDir {
    folder_with(fake, &format!("backend: sql, sql: {{driver: postgres, url: \"{}\"}}", shared().database()))
}

/// A folder whose agent lives in this store.
fn folder_with(fake: &Fake, store: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "llms: {{m: {{type: openai, model: m-1, base_url: '{}'}}}}
server: {{webhooks: {{key: a-key-that-all-nodes-have-and-nobody-else}}}}
session_stores: {{main: {{{store}}}}}
agents: {{ops: {{llm: m, session_store: main, task: {{}}}}}}
",
        fake.url
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    folder
}

fn key(folder: &TempDir, user: &str) -> String {
    let mut command = standfast_testkit::standfast();
    command.args(["keys", "create", "--user", user, "--config"]).arg(folder.path().join("standfast.yaml"));
    let made = command.arg("--data").arg(folder.path().join("data")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// What people said in the next request to the model, in order.
fn said(fake: &Fake) -> Vec<String> {
    said_in(&fake.request().unwrap().body)
}

/// What people said in a request to the model, in order.
fn said_in(body: &str) -> Vec<String> {
    let body: Value = serde_json::from_str(body).unwrap();
    let is_user = |message: &&Value| message["role"] == "user";
    let words = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    body["messages"].as_array().unwrap().iter().filter(is_user).map(words).collect()
}

/// S0-8, S0-10, S1-33: seven ways to speak to an agent, at two nodes in turn, the first killed in between: each run in the session is sent
/// what all runs before it said. Another user who uses the same name is sent nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_over_every_surface_and_node() {
    let fake = Fake::answering(vec![Answer::stream(SAYS)]);
    let folder = folder(&fake);
    let node = || start(serve_command(folder.path()).args(["--auth", "keys"]));
    let mut nodes = [node(), node()];
    let (ann, eve) = (key(&folder, "ann"), key(&folder, "eve"));
    let at = |node: &Process, key: &str| Http::new(&node.base).with_key(key);
    let native = json!({"input": "one", "session": "talk", "wait": "settled"});
    let newer = json!({"message": {"messageId": "2", "role": "ROLE_USER", "contextId": "talk", "parts": [{"text": "two"}]}});
    let dialect = json!({"request": {"role": "user", "contextId": "talk", "parts": [{"text": "three"}]}});
    let older = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {"kind": "message",
        "messageId": "4", "role": "user", "contextId": "talk", "parts": [{"kind": "text", "text": "four"}]}, "configuration": {"blocking": true}}});
    let teal = json!({"session_id": "talk", "items": [{"content_type": "text", "content": "five"}]});
    let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"messageId": "6",
        "role": "ROLE_USER", "contextId": "talk", "parts": [{"text": "six"}]}}});
    let ways = [
        ("/api/v1/agents/ops/runs", native.clone(), "one"),
        ("/v1/agents/ops/message:send", newer, "two"),
        ("/v1/agents/ops/message:send", dialect, "three"),
        ("/v1/agents/ops", older, "four"),
        ("/tealagents/v1alpha1/ops", teal, "five"),
        ("/v1/agents/ops", rpc, "six"),
    ];
    let mut expected = Vec::new();
    for (no, (path, body, words)) in ways.iter().enumerate() {
        let answer = at(&nodes[no % 2], &ann).post(path, body).await;
        assert!([200, 201].contains(&answer.status), "{path}: {answer:?}");
        assert!(answer.text.contains("Noted."), "{path}: {answer:?}");
        expected.push((*words).to_owned());
        assert_eq!(said(&fake), expected, "{path}");
        if no == 2 {
            nodes[0] = node();
        }
    }
    let answer = over_grpc(&nodes[0], &ann).await;
    assert!(answer.contains("Noted."), "{answer}");
    expected.push("seven".to_owned());
    assert_eq!(said(&fake), expected, "over gRPC");
    let theirs = at(&nodes[1], &eve).post("/api/v1/agents/ops/runs", &native).await;
    assert_eq!((theirs.status, text(&theirs.body["session"])), (201, "talk"), "{theirs:?}");
    assert_eq!(said(&fake), ["one"], "nothing of another user");
}

/// Says something in the session by A2A over gRPC; what is answered.
async fn over_grpc(node: &Process, key: &str) -> String {
    let words =
        proto::Part { content: Some(proto::part::Content::Text("seven".into())), ..Default::default() };
    let message = proto::Message {
        message_id: "7".into(),
        context_id: "talk".into(),
        role: proto::Role::User.into(),
        parts: vec![words],
        ..Default::default()
    };
    let message =
        proto::SendMessageRequest { message: Some(message), tenant: "ops".into(), ..Default::default() };
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    let mut client = A2aServiceClient::connect(node.base.clone()).await.unwrap();
    format!("{:?}", client.send_message(request).await.unwrap())
}

/// S0-8, S0-10: runs that are kept in memory are a conversation as well, for as long as the server lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_in_memory() {
    let fake = Fake::answering(vec![Answer::stream(SAYS)]);
    let folder = folder_with(&fake, "backend: memory");
    let server = start(&mut serve_command(folder.path()));
    let http = Http::new(&server.base);
    for (session, words, expected) in
        [("talk", "one", vec!["one"]), ("talk", "two", vec!["one", "two"]), ("other", "three", vec!["three"])]
    {
        let body = json!({"input": words, "session": session, "wait": "settled"});
        let answer = http.post("/api/v1/agents/ops/runs", &body).await;
        assert_eq!((answer.status, &answer.body["status"]), (201, &json!("completed")), "{answer:?}");
        assert_eq!(said(&fake), expected, "{session}");
    }
}

/// S0-8, S0-10, F2: `kill -9` in the middle of beginning a run in a session, in a database and in files; then another run of the session ends
/// before the first is sent again with its key. There is one run of it. If it was there after the kill, its start names what had
/// ended by then, and the other one is no part of it; if it was not, its start names both. Each request to its model has exactly
/// that, also where the first was cut off, and the logs verify.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_run_begins_leaves_it_whole_with_what_came_before() {
    for store in
        ["backend: sql, sql: {driver: sqlite, database: runs.db}", "backend: file, file: {directory: ./runs}"]
    {
        let fake = Fake::answering(vec![Answer::stream(SAYS)]);
        let folder = folder_with(&fake, store);
        let node = || start(&mut serve_command(folder.path()));
        let mut server = node();
        for round in 0..standfast_testkit::rounds(5) {
            let session = format!("talk-{round}");
            let path = "/api/v1/agents/ops/runs";
            let says = |words: &str| json!({"input": words, "session": session, "wait": "settled"});
            let first = Http::new(&server.base).post(path, &says("one")).await;
            assert_eq!((first.status, &first.body["status"]), (201, &json!("completed")), "{first:?}");
            let key = format!("second-{round}");
            let (url, body) = (format!("{}{path}", server.base), says("two").to_string());
            let headers = [("content-type", "application/json"), ("idempotency-key", key.as_str())];
            let request = standfast_testkit::http::client().post(url).body(body);
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            // Nobody knows what became of it.
            let cut = tokio::spawn(async move { drop(request.send().await) });
            tokio::time::sleep(std::time::Duration::from_millis(round as u64 % 10)).await;
            drop(server);
            cut.await.unwrap();
            server = node();
            let http = Http::new(&server.base);
            let list = format!("/api/v1/runs?agent=ops&session={session}");
            let is_there = http.get(&list).await.body["runs"].as_array().unwrap().len() == 2;
            let other = http.post(path, &says("three")).await;
            assert_eq!((other.status, &other.body["status"]), (201, &json!("completed")), "{other:?}");
            let again = http.send("POST", path, &headers, &says("two").to_string()).await;
            assert!([200, 201].contains(&again.status), "{round}: {again:?}");
            let id = text(&again.body["id"]).to_owned();
            standfast_testkit::until_found("the second has ended", async || {
                let run = http.get(&format!("/api/v1/runs/{id}")).await.body;
                (run["status"] == "completed").then_some(())
            })
            .await;
            let listed = http.get(&list).await.body;
            assert_eq!(listed["runs"].as_array().unwrap().len(), 3, "{round}: one run of each: {listed}");
            let events = http.get(&format!("/api/v1/runs/{id}/events")).await.body;
            let named = &events["events"][0]["data"]["history"]["runs"];
            let named: Vec<&str> = named.as_array().unwrap().iter().map(|one| text(&one["run"])).collect();
            let (before, words) = if is_there {
                (vec![text(&first.body["id"])], vec!["one", "two"])
            } else {
                (vec![text(&first.body["id"]), text(&other.body["id"])], vec!["one", "three", "two"])
            };
            assert_eq!(named, before, "{round}: {events}");
            let asked: Vec<Vec<String>> = fake.requests().iter().map(|one| said_in(&one.body)).collect();
            let of_second: Vec<_> = asked.iter().filter(|said| said.last().unwrap() == "two").collect();
            assert!(!of_second.is_empty(), "{round}: {asked:?}");
            assert!(of_second.iter().all(|said| **said == words), "{round}: {asked:?}");
        }
        drop(server);
        let mut verify = standfast_testkit::standfast();
        verify.args(["audit", "verify", "--config"]).arg(folder.path().join("standfast.yaml"));
        let verified = verify.output().unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }
}
