//! Every error through every binding, with the codes and the details that each has for it; and what is special about gRPC.
//!
//! Over gRPC the generated client of the official Rust package asks.

use std::collections::BTreeMap;

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{self, part};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::a2a::server::{Server, decides, demo, demo_with, says, unique};

/// What an error says in all bindings.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    reason: String,
    fields: Vec<String>,
}

pub(crate) async fn grpc(server: &Server) -> A2aServiceClient<Channel> {
    A2aServiceClient::connect(server.program.base.clone()).await.unwrap()
}

#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BadRequest {
    #[prost(message, repeated, tag = "1")]
    violations: Vec<Violation>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Violation {
    #[prost(string, tag = "1")]
    field: String,
    #[prost(string, tag = "2")]
    description: String,
}

fn said(status: &Status) -> Said {
    let all = RpcStatus::decode(status.details()).unwrap();
    assert_eq!(all.code, i32::from(status.code()));
    let info = ErrorInfo::decode(all.details[0].value.as_slice()).unwrap();
    assert_eq!(all.details[0].type_url, "type.googleapis.com/google.rpc.ErrorInfo");
    assert_eq!(info.domain, "a2a-protocol.org");
    let fields = all.details.get(1).map(|more| BadRequest::decode(more.value.as_slice()).unwrap());
    let fields = fields.unwrap_or_default().violations.into_iter().map(|wrong| wrong.field).collect();
    Said { reason: info.reason, fields }
}

fn said_in_json(details: &Value) -> Said {
    let reason = details[0]["reason"].as_str().unwrap().to_owned();
    let violations = details[1]["fieldViolations"].as_array().cloned().unwrap_or_default();
    let fields = violations.iter().map(|wrong| wrong["field"].as_str().unwrap().to_owned()).collect();
    Said { reason, fields }
}

fn message(task: Option<&Value>, text: &str) -> proto::Message {
    let id = |name: &str| task.map(|task| task[name].as_str().unwrap().to_owned()).unwrap_or_default();
    proto::Message {
        message_id: unique(),
        task_id: id("id"),
        context_id: id("contextId"),
        role: proto::Role::User.into(),
        parts: vec![proto::Part { content: Some(part::Content::Text(text.into())), ..Default::default() }],
        ..Default::default()
    }
}

fn send(message: proto::Message) -> proto::SendMessageRequest {
    proto::SendMessageRequest { message: Some(message), tenant: "ops".into(), ..Default::default() }
}

fn get(id: &str) -> proto::GetTaskRequest {
    proto::GetTaskRequest { id: id.into(), tenant: "ops".into(), history_length: None }
}

/// A request with one more line of metadata.
fn with<T>(message: T, name: &'static str, value: &'static str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(name, MetadataValue::from_static(value));
    request
}

/// The same mistake, made over each binding: the same reason and the same fields, with the code that the binding has.
#[tokio::test]
async fn every_error_is_the_same_in_every_binding() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let over = server.send("ops", &says("go")).await;
    let over = server.send("ops", &decides(&over, json!({"decision": "deny"}))).await;
    let waiting = server.send("ops", &says("go")).await;
    let (done, open) = (over["id"].as_str().unwrap(), waiting["id"].as_str().unwrap());
    let nobody = "run_00000000000000000000000000";
    let mut client = grpc(&server).await;
    let list = |size: i32, token: &str| proto::ListTasksRequest {
        tenant: "ops".into(),
        page_size: Some(size),
        page_token: token.into(),
        ..Default::default()
    };
    let push = |task: &str, url: &str| proto::TaskPushNotificationConfig {
        tenant: "ops".into(),
        task_id: task.into(),
        url: url.into(),
        ..Default::default()
    };
    let of_config = proto::GetTaskPushNotificationConfigRequest {
        tenant: "ops".into(),
        task_id: open.into(),
        id: "none".into(),
    };
    let no_parts = proto::Message { parts: Vec::new(), ..message(None, "") };
    let as_agent = proto::Message { role: proto::Role::Agent.into(), ..message(None, "x") };
    let elsewhere = proto::Message { context_id: "other".into(), ..message(Some(&waiting), "approve") };
    let cancel = proto::CancelTaskRequest { tenant: "ops".into(), id: done.into(), metadata: None };
    let subscribe = proto::SubscribeToTaskRequest { tenant: "ops".into(), id: done.into() };
    let history = proto::GetTaskRequest { history_length: Some(-1), ..get(open) };
    let user = |more: Value| {
        let mut said = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]});
        said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "message": said })
    };
    let base = "/v1/agents/ops";
    let configs = format!("{base}/tasks/{open}/pushNotificationConfigs");
    let send_path = format!("{base}/message:send");
    #[rustfmt::skip]
    let rows = [
        (client.get_task(get(nobody)).await.map(drop), Code::NotFound, "GetTask", json!({"id": nobody}), -32001, "GET", format!("{base}/tasks/{nobody}"), Value::Null, 404),
        (client.get_task(history).await.map(drop), Code::InvalidArgument, "GetTask", json!({"id": open, "historyLength": -1}), -32602, "GET", format!("{base}/tasks/{open}?historyLength=-1"), Value::Null, 400),
        (client.cancel_task(cancel).await.map(drop), Code::FailedPrecondition, "CancelTask", json!({"id": done}), -32002, "POST", format!("{base}/tasks/{done}:cancel"), Value::Null, 400),
        (client.subscribe_to_task(subscribe).await.map(drop), Code::FailedPrecondition, "SubscribeToTask", json!({"id": done}), -32004, "GET", format!("{base}/tasks/{done}:subscribe"), Value::Null, 400),
        (client.list_tasks(list(0, "")).await.map(drop), Code::InvalidArgument, "ListTasks", json!({"pageSize": 0}), -32602, "GET", format!("{base}/tasks?pageSize=0"), Value::Null, 400),
        (client.list_tasks(list(1, "x")).await.map(drop), Code::InvalidArgument, "ListTasks", json!({"pageToken": "x"}), -32602, "GET", format!("{base}/tasks?pageToken=x"), Value::Null, 400),
        (client.send_message(send(no_parts)).await.map(drop), Code::InvalidArgument, "SendMessage", user(json!({"parts": []})), -32602, "POST", send_path.clone(), user(json!({"parts": []})), 400),
        (client.send_message(send(as_agent)).await.map(drop), Code::InvalidArgument, "SendMessage", user(json!({"role": "ROLE_AGENT"})), -32602, "POST", send_path.clone(), user(json!({"role": "ROLE_AGENT"})), 400),
        (client.send_message(send(elsewhere)).await.map(drop), Code::InvalidArgument, "SendMessage", user(json!({"taskId": open, "contextId": "other"})), -32602, "POST", send_path.clone(), user(json!({"taskId": open, "contextId": "other"})), 400),
        (client.send_message(send(message(Some(&over), "x"))).await.map(drop), Code::FailedPrecondition, "SendMessage", user(json!({"taskId": done})), -32004, "POST", send_path.clone(), user(json!({"taskId": done})), 400),
        (client.create_task_push_notification_config(push(open, "http://10.0.0.1/")).await.map(drop), Code::InvalidArgument, "CreateTaskPushNotificationConfig", json!({"taskId": open, "url": "http://10.0.0.1/"}), -32602, "POST", configs.clone(), json!({"url": "http://10.0.0.1/"}), 400),
        (client.get_task_push_notification_config(of_config).await.map(drop), Code::NotFound, "GetTaskPushNotificationConfig", json!({"taskId": open, "id": "none"}), -32001, "GET", format!("{configs}/none"), Value::Null, 404),
        (client.get_task(with(get(open), "a2a-version", "99.0")).await.map(drop), Code::FailedPrecondition, "version", json!({"id": open}), -32009, "version", format!("{base}/tasks/{open}"), Value::Null, 400),
    ];
    for (over_grpc, code, method, params, number, verb, path, body, http) in rows {
        let status = over_grpc.unwrap_err();
        let expected = said(&status);
        assert_eq!(status.code(), code, "{method} {params}: {status:?}");
        assert!(!status.message().is_empty());
        let version = if method == "version" { "99.0" } else { "1.0" };
        let version: &[(&str, &str)] = &[("a2a-version", version)];
        let method = if method == "version" { "GetTask" } else { method };
        let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let over_rpc = server.ask("POST", base, version, rpc.as_bytes()).await;
        assert_eq!(over_rpc.body["error"]["code"], number, "{method} {params}: {over_rpc:?}");
        assert_eq!(said_in_json(&over_rpc.body["error"]["data"]), expected, "{method} {params}");
        assert_eq!(over_rpc.body["error"]["message"], status.message());
        let verb = if verb == "version" { "GET" } else { verb };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let over_http = server.ask(verb, &path, version, body.as_bytes()).await;
        assert_eq!(over_http.status, http, "{path}: {over_http:?}");
        assert_eq!(said_in_json(&over_http.body["error"]["details"]), expected, "{path}");
    }
}

/// Trap 10: a number that a double cannot carry is refused, in both directions, and everything else comes through.
#[tokio::test]
async fn numbers_are_refused_rather_than_bent() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let mut client = grpc(&server).await;
    let number =
        |number: f64| prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(number)) };
    let data_part = |data: prost_types::Value| {
        let part = proto::Part { content: Some(part::Content::Data(data)), ..Default::default() };
        send(proto::Message { parts: vec![part], ..message(None, "") })
    };
    for wrong in [9_007_199_254_740_992.0, -1e300, f64::NAN, f64::INFINITY] {
        let status = client.send_message(data_part(number(wrong))).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{wrong}");
        assert_eq!(said(&status).fields, ["message.parts[0].data"]);
    }
    for right in [9_007_199_254_740_991.0, -3.0, 0.5] {
        let task = client.send_message(data_part(number(right))).await.unwrap().into_inner();
        let Some(proto::send_message_response::Payload::Task(task)) = task.payload else { panic!("no task") };
        assert_eq!(task.history[0].parts[0].content, Some(part::Content::Data(number(right))));
        let over_http = server.get(&format!("/v1/agents/ops/tasks/{}", task.id)).await;
        assert_eq!(over_http.body["history"][0]["parts"][0]["data"].as_f64(), Some(right));
    }
    let null = prost_types::Value { kind: Some(prost_types::value::Kind::NullValue(0)) };
    let task = client.send_message(data_part(null)).await.unwrap().into_inner();
    let Some(proto::send_message_response::Payload::Task(task)) = task.payload else { panic!("no task") };
    let over_http = server.get(&format!("/v1/agents/ops/tasks/{}", task.id)).await;
    assert_eq!(over_http.body["history"][0]["parts"][0].get("data"), Some(&Value::Null));

    let large =
        json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"n": 9223372036854775807i64}}]});
    let task = server.send("ops", &large).await;
    let status = client.get_task(get(task["id"].as_str().unwrap())).await.unwrap_err();
    assert_eq!(
        (status.code(), said(&status).reason.as_str()),
        (Code::FailedPrecondition, "UNSUPPORTED_OPERATION")
    );
    assert!(status.message().contains("9223372036854775807"), "{status:?}");
}

/// The routing value names the agent, the default agent needs none, and an unknown one is not there.
#[tokio::test]
async fn the_tenant_names_the_agent() {
    let data = tempfile::tempdir().unwrap();
    let made = standfast_testkit::standfast()
        .args(["keys", "create", "--user", "somebody", "--scope", "runs:read", "--json", "--data"])
        .arg(data.path())
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let key = made["key"].as_str().unwrap();
    let server = demo_with(data.path(), &["--auth", "keys"]);
    let mut client = grpc(&server).await;
    let card = |tenant: &str| {
        let mut request = Request::new(proto::GetExtendedAgentCardRequest { tenant: tenant.into() });
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        request
    };
    for (tenant, name) in [("", "ops"), ("ops", "ops"), ("travel", "travel")] {
        assert_eq!(client.get_extended_agent_card(card(tenant)).await.unwrap().into_inner().name, name);
    }
    let status = client.get_extended_agent_card(card("nobody")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let public = server.get("/v1/agents/travel/.well-known/agent-card.json").await.body;
    let interface = &public["supportedInterfaces"][2];
    let address = server.program.base.strip_prefix("http://").unwrap();
    assert_eq!(
        interface,
        &json!({"url": address, "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "travel"})
    );
}

/// A key comes as metadata, as it comes as a header elsewhere; without one nothing is answered.
#[tokio::test]
async fn a_key_comes_as_metadata() {
    let data = tempfile::tempdir().unwrap();
    let made = standfast_testkit::standfast()
        .args(["keys", "create", "--user", "somebody", "--scope", "runs:read", "--json", "--data"])
        .arg(data.path())
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let key = made["key"].as_str().unwrap();
    let server = demo_with(data.path(), &["--auth", "keys"]);
    let mut client = grpc(&server).await;
    let status = client.get_task(get("run_x")).await.unwrap_err();
    assert_eq!((status.code(), said(&status).reason.as_str()), (Code::Unauthenticated, "UNAUTHENTICATED"));
    let mut request = Request::new(get("run_x"));
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    assert_eq!(client.get_task(request).await.unwrap_err().code(), Code::NotFound);
    let mut request = Request::new(send(message(None, "go")));
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    let status = client.send_message(request).await.unwrap_err();
    assert_eq!((status.code(), said(&status).reason.as_str()), (Code::PermissionDenied, "PERMISSION_DENIED"));
}

/// F24: what is too large, of another type, or no message at all is answered, and the server goes on.
#[tokio::test]
async fn what_is_no_request_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let mut client = grpc(&server).await;
    let status = client.send_message(send(message(None, &"x".repeat(2 * 1024 * 1024)))).await.unwrap_err();
    assert_eq!(
        (status.code(), said(&status).reason.as_str()),
        (Code::ResourceExhausted, "REQUEST_TOO_LARGE")
    );
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = format!("{}/lf.a2a.v1.A2AService/SendMessage", server.program.base);
    let plain = http2.post(&url).header("content-type", "text/plain").body("x").send().await.unwrap();
    assert_eq!(plain.status(), 415);
    for body in [&b"\0\0\0\0\x04\xff\xff\xff\xff"[..], b"", b"\0\0\0\0\x10abc"] {
        let request = http2.post(&url).header("content-type", "application/grpc").body(body.to_vec());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.headers().get("grpc-status").is_none_or(|status| status != "0"), "{answer:?}");
    }
    let health = http2.get(format!("{}/healthz", server.program.base)).send().await.unwrap();
    assert_eq!(
        (health.status().as_u16(), health.version()),
        (200, reqwest::Version::HTTP_2),
        "for everything else too"
    );
    let unknown = http2.post(format!("{}/lf.a2a.v1.A2AService/Nothing", server.program.base));
    let unknown = unknown.header("content-type", "application/grpc").body(Vec::new()).send().await.unwrap();
    assert_eq!(unknown.headers()["grpc-status"], "12");
}
