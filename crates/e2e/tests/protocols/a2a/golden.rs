//! What every operation says, word for word, in each version and binding: golden payloads, so that no member comes, goes
//! or changes its name unseen.
//!
//! Cards are in `cards.rs` and `v03.rs`. Ids, times, digests and addresses differ each time; they are put as what they are.
//! A change that is meant is taken with `INSTA_UPDATE=always`.

use serde_json::{Map, Value, json};

use crate::a2a::server::{Server, demo, says};
use crate::a2a::streams::{Reader, kept};

/// What was asked and what was answered, with whatever differs each time taken out.
#[derive(Default)]
struct Conversation {
    said: Vec<Value>,
    ids: Vec<String>,
}

/// Ids begin with one of these.
const PREFIXES: [&str; 5] = ["run_", "ses_", "hold_", "call_", "msg_"];

/// The first id with this prefix in a text; words such as `hold_id` are none.
fn id_in(text: &str, prefix: &str) -> Option<String> {
    text.match_indices(prefix).find_map(|(at, _)| {
        let behind = &text[at + prefix.len()..];
        let length = behind.bytes().take_while(u8::is_ascii_alphanumeric).count();
        (length > 20).then(|| text[at..at + prefix.len() + length].to_owned())
    })
}

impl Conversation {
    /// Keeps an answer under a name.
    fn keeps(&mut self, server: &Server, what: &str, answer: &Value) {
        let answer = self.steady(server, answer);
        self.said.push(json!({"asked": what, "answered": answer}));
    }

    fn steady(&mut self, server: &Server, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.steady_text(server, text)),
            Value::Array(all) => all.iter().map(|one| self.steady(server, one)).collect(),
            Value::Object(members) => {
                let members = members.iter().map(|(name, one)| (name.clone(), self.steady(server, one)));
                Value::Object(members.collect::<Map<_, _>>())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn steady_text(&mut self, server: &Server, text: &str) -> String {
        let is_time = text.len() == 24 && text.starts_with("20") && text.ends_with('Z');
        let is_digest = text.len() == 52 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match text {
            _ if is_time => return "(time)".to_owned(),
            _ if is_digest => return "(digest)".to_owned(),
            // Those of messages that brought none.
            _ if text.len() == 22 && !text.contains(' ') => return "(random)".to_owned(),
            _ => {}
        }
        let mut text = text.replace(&server.program.base, "http://server");
        for prefix in PREFIXES {
            while let Some(id) = id_in(&text, prefix) {
                let known = self.ids.iter().position(|known| *known == id).unwrap_or_else(|| {
                    self.ids.push(id.clone());
                    self.ids.len() - 1
                });
                text = text.replace(&id, &format!("<{}{known}>", prefix.to_uppercase()));
            }
        }
        text
    }

    async fn asks(&mut self, server: &Server, method: &str, path: &str, version: &str, body: Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("a2a-version", version)];
        let headers = if version.is_empty() { &headers[..0] } else { &headers[..] };
        let answer = server.ask(method, path, headers, body.as_bytes()).await;
        let what = self.steady_text(server, &format!("{method} {path} {body}"));
        let told = json!({"status": answer.status, "body": answer.body});
        self.keeps(server, what.trim_end(), &told);
        answer.body
    }

    async fn hears(
        &mut self,
        server: &Server,
        method: &str,
        path: &str,
        version: &str,
        body: Option<Value>,
    ) -> Value {
        let events =
            Reader::open(server, method, path, &[("a2a-version", version)], body.as_ref()).await.rest().await;
        let heard: Vec<Value> =
            events.iter().map(|event| json!({"event": event.name, "data": event.data})).collect();
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let what = self.steady_text(server, &format!("{method} {path} {body}"));
        self.keeps(server, what.trim_end(), &json!(heard));
        events.last().unwrap().data.clone()
    }
}

fn rpc(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// A message to a task, with an id of its own.
fn to(task: &Value, id: &str, mut message: Value) -> Value {
    message["taskId"] = task["id"].clone();
    message["messageId"] = json!(id);
    message
}

/// Every operation of 1.0 over HTTP+JSON.
#[tokio::test]
async fn version_1_0_over_http_json() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let (mut golden, at) = (Conversation::default(), "/v1/agents/ops");
    let sent = golden
        .asks(&server, "POST", &format!("{at}/message:send"), "1.0", json!({"message": says("go")}))
        .await;
    let task = &sent["task"];
    let path = format!("{at}/tasks/{}", task["id"].as_str().unwrap());
    let deny = |id| json!({"message": to(task, id, says("deny"))});
    golden
        .hears(
            &server,
            "POST",
            &format!("{at}/message:stream"),
            "1.0",
            Some(json!({"message": to(task, "m-2", says("hm"))})),
        )
        .await;
    golden.asks(&server, "POST", &format!("{at}/message:send"), "1.0", deny("m-3")).await;
    golden.asks(&server, "GET", &path, "1.0", Value::Null).await;
    golden.asks(&server, "GET", &format!("{at}/tasks?includeArtifacts=true"), "1.0", Value::Null).await;
    golden.asks(&server, "POST", &format!("{path}:cancel"), "1.0", Value::Null).await;
    golden.asks(&server, "POST", &format!("{at}/message:send"), "1.0", deny("m-4")).await;
    golden.asks(&server, "GET", &format!("{at}/tasks"), "9.9", Value::Null).await;
    insta::assert_json_snapshot!(golden.said);
}

/// Every operation of 1.0 over JSON-RPC, those of push notifications too.
#[tokio::test]
async fn version_1_0_over_json_rpc() {
    let folder = crate::a2a::push::folder();
    let server = crate::a2a::push::serve(folder.path(), "");
    let (mut golden, at) = (Conversation::default(), "/v1/agents/ops");
    let sent =
        golden.asks(&server, "POST", at, "1.0", rpc("SendMessage", json!({"message": says("go")}))).await;
    let task = &sent["result"]["task"];
    let id = json!({"id": task["id"]});
    let hm = rpc("SendStreamingMessage", json!({"message": to(task, "m-2", says("hm"))}));
    golden.hears(&server, "POST", at, "1.0", Some(hm)).await;
    let config = json!({"taskId": task["id"], "id": "mine", "url": "http://127.0.0.1:9/hook", "token": "t",
        "authentication": {"scheme": "Bearer", "credentials": "c"}});
    let named = json!({"taskId": task["id"], "id": "mine"});
    for (method, params) in [
        ("CreateTaskPushNotificationConfig", config),
        ("GetTaskPushNotificationConfig", named.clone()),
        ("ListTaskPushNotificationConfigs", json!({"taskId": task["id"]})),
        ("DeleteTaskPushNotificationConfig", named.clone()),
        ("GetTaskPushNotificationConfig", named),
    ] {
        golden.asks(&server, "POST", at, "1.0", rpc(method, params)).await;
    }
    let mut reader = Reader::open(&server, "POST", at, &[], Some(&rpc("SubscribeToTask", id.clone()))).await;
    let first = reader.next().await.unwrap();
    golden.keeps(&server, "SubscribeToTask, the first event", &first.data);
    let deny = |id| rpc("SendMessage", json!({"message": to(task, id, says("deny"))}));
    golden.asks(&server, "POST", at, "1.0", deny("m-3")).await;
    let rest: Vec<Value> = kept(reader).await.into_iter().map(|event| event.data).collect();
    golden.keeps(&server, "SubscribeToTask, the rest", &json!(rest));
    golden.asks(&server, "POST", at, "1.0", rpc("GetTask", id.clone())).await;
    golden.asks(&server, "POST", at, "1.0", rpc("ListTasks", json!({"includeArtifacts": true}))).await;
    golden.asks(&server, "POST", at, "1.0", rpc("CancelTask", id.clone())).await;
    golden.asks(&server, "POST", at, "1.0", rpc("SubscribeToTask", id)).await;
    golden.asks(&server, "POST", at, "1.0", deny("m-4")).await;
    golden.asks(&server, "POST", at, "9.9", rpc("ListTasks", json!({}))).await;
    golden.asks(&server, "POST", at, "1.0", rpc("NoSuchMethod", json!({}))).await;
    insta::assert_json_snapshot!(golden.said);
}

/// Every operation of 0.3 over JSON-RPC.
#[tokio::test]
async fn version_0_3_over_json_rpc() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let (mut golden, at) = (Conversation::default(), "/v1/agents/ops");
    let says = |text: &str| json!({"kind": "message", "messageId": "m-1", "role": "user", "parts": [{"kind": "text", "text": text}]});
    let sent =
        golden.asks(&server, "POST", at, "", rpc("message/send", json!({"message": says("go")}))).await;
    let task = &sent["result"];
    let id = json!({"id": task["id"]});
    let hm = rpc("message/stream", json!({"message": to(task, "m-2", says("hm"))}));
    golden.hears(&server, "POST", at, "", Some(hm)).await;
    let deny = |id| rpc("message/send", json!({"message": to(task, id, says("deny"))}));
    golden.asks(&server, "POST", at, "", deny("m-3")).await;
    golden.asks(&server, "POST", at, "", rpc("tasks/get", id.clone())).await;
    golden.hears(&server, "POST", at, "", Some(rpc("tasks/resubscribe", id.clone()))).await;
    golden.asks(&server, "POST", at, "", rpc("tasks/cancel", id.clone())).await;
    golden.asks(&server, "POST", at, "", deny("m-4")).await;
    golden.asks(&server, "POST", at, "", rpc("tasks/pushNotificationConfig/list", id)).await;
    golden.asks(&server, "POST", at, "", rpc("no/method", json!({}))).await;
    insta::assert_json_snapshot!(golden.said);
}

/// Every operation of 0.3 over HTTP+JSON.
#[tokio::test]
async fn version_0_3_over_http_json() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let (mut golden, at) = (Conversation::default(), "/v1/agents/ops/v1");
    let says = |text: &str| json!({"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": text}]});
    let waits = json!({"blocking": true});
    let send = |message: Value| json!({"message": message, "configuration": waits});
    let sent = golden.asks(&server, "POST", &format!("{at}/message:send"), "", send(says("go"))).await;
    let task = &sent["task"];
    let path = format!("{at}/tasks/{}", task["id"].as_str().unwrap());
    golden
        .hears(&server, "POST", &format!("{at}/message:stream"), "", Some(send(to(task, "m-2", says("hm")))))
        .await;
    golden
        .asks(&server, "POST", &format!("{at}/message:send"), "", send(to(task, "m-3", says("deny"))))
        .await;
    golden.asks(&server, "GET", &path, "", Value::Null).await;
    golden.hears(&server, "GET", &format!("{path}:subscribe"), "", None).await;
    golden.asks(&server, "POST", &format!("{path}:cancel"), "", Value::Null).await;
    golden.asks(&server, "GET", &format!("{path}/pushNotificationConfigs"), "", Value::Null).await;
    insta::assert_json_snapshot!(golden.said);
}

/// C3: every request of the dialect.
#[tokio::test]
async fn the_dialect() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let (mut golden, at) = (Conversation::default(), "/v1/agents/ops");
    let send = |task: &Value, text: &str| {
        let mut request = json!({"role": "user", "parts": [{"text": text}]});
        if !task.is_null() {
            request["taskId"] = task["id"].clone();
        }
        json!({"request": request})
    };
    let sent =
        golden.asks(&server, "POST", &format!("{at}/message:send"), "", send(&Value::Null, "go")).await;
    let task = &sent["task"];
    let path = format!("{at}/tasks/{}", task["id"].as_str().unwrap());
    golden.hears(&server, "POST", &format!("{at}/message:stream"), "", Some(send(task, "hm"))).await;
    golden.asks(&server, "GET", &path, "", Value::Null).await;
    golden.asks(&server, "POST", &format!("{path}:cancel"), "", Value::Null).await;
    golden.asks(&server, "GET", &format!("{at}/tasks"), "", Value::Null).await;
    golden.asks(&server, "POST", &format!("{at}/message:send"), "", send(task, "approve")).await;
    insta::assert_json_snapshot!(golden.said);
}
