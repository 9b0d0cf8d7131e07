//! Every request about a single thing, as somebody asks it who has no right to: the OpenAPI document's, A2A's in its bindings and
//! versions, the pages', MCP's and the hooks'; and the lists beside those of the document.
//!
//! `tenants.rs` makes them as a stranger, `auditor.rs` and `scopes.rs` with a credential that is not for it.

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{self, part};
use serde_json::{Value, json};
use tonic::{Code, Request, Status};

use super::{Site, Things};

/// Lists that are no part of the OpenAPI document.
pub(super) const LISTS: [&str; 16] = [
    "/v1/agents/ops/tasks",
    "/tasks",
    "/ops/tasks",
    "/",
    "/runs",
    "/history",
    "/history.csv",
    "/history.json",
    "/charts",
    "/charts.json",
    "/jobs",
    "/grants",
    "/inboxes",
    "/inboxes/tickets",
    "/sessions",
    "/me",
];

/// The version of A2A that a request says it speaks; that of the older dialect says none.
pub(super) fn version_of(path: &str, body: Option<&Value>) -> Option<&'static str> {
    let part_of = |name: &str| body.map(|body| body[name].clone()).unwrap_or_default();
    let is_older_path =
        ["/v1/agents/ops/v1/", "/v1/tasks/", "/v1/message:"].iter().any(|at| path.starts_with(at));
    // Methods of 0.3 have a slash, as those of MCP do.
    let is_older_method =
        path == RPC && part_of("method").as_str().is_some_and(|method| method.contains('/'));
    let is_dialect = part_of("request").is_object() || (path.ends_with(":cancel") && body.is_none());
    match (is_older_path || is_older_method, is_dialect) {
        (true, _) => Some("0.3"),
        (false, true) => None,
        (false, false) => Some("1.0"),
    }
}

/// A request: its method, its path and its body.
type Asked = (String, String, Option<Value>);

/// A body that a route takes.
fn body_of(method: &str, path: &str) -> Option<Value> {
    let last = path.rsplit('/').next().unwrap();
    Some(match (method, last) {
        ("POST", "resolve") => json!({"resolution": "approve"}),
        ("POST", "link") => json!({"for": "alice"}),
        ("POST", "messages") => json!({"input": "hello"}),
        ("POST", "outcome") => json!({"attempt": 1, "status": "succeeded", "result": {}}),
        ("POST", "withdraw") => json!({"reason": "cancelled"}),
        ("POST", "assign") => json!({"to": "eve"}),
        ("POST", "delegate") => json!({"to": "eve", "until": "2036-01-01T00:00:00Z"}),
        ("POST", "edit") => json!({"arguments": {"command": "echo other"}}),
        ("PATCH", _) => json!({"metadata": {"a": 1}}),
        ("POST", _) if path.contains("/resume/") => json!({"action": "approve"}),
        ("POST", "resume") => json!({"payload": true}),
        ("POST", "release" | "heartbeat") => json!({"claimId": "claim_1"}),
        ("POST", "suspend") => json!({"claimId": "claim_1", "reason": "why"}),
        ("POST", "complete") => json!({"claimId": "claim_1", "result": {}}),
        ("POST", "fail") => json!({"claimId": "claim_1", "error": {"message": "no"}}),
        ("POST", _) => json!({}),
        (_, _) => return None,
    })
}

/// Every request about a single thing: those of the OpenAPI document, of A2A in its bindings and versions, of the pages, and
/// reports of jobs, whose ids stand in their bodies.
pub(super) fn requests(document: &Value, things: &Things) -> Vec<Asked> {
    let mut all = Vec::new();
    for (template, methods) in document["paths"].as_object().unwrap() {
        let Some(path) = things.path(template) else { continue };
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            all.push((method.clone(), path.clone(), body_of(&method, &path)));
        }
    }
    let hold = &things.hold;
    for report in ["result", "error", "progress"] {
        let body =
            json!({"pendingID": hold, "result": {"title": "t", "output": "o"}, "error": "e", "message": "m"});
        all.push(("POST".into(), format!("/async-tool/{report}"), Some(body)));
    }
    all.extend(over_a2a(&things.run));
    all.extend(pages(things));
    for arguments in [json!({"gate": things.gate}), json!({"gate": things.gate, "status": "succeeded"})] {
        let params = json!({"name": "standfast_result", "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        all.push(("POST".into(), MCP.into(), Some(body)));
    }
    let mut event = json!({"hook_event_name": "PostToolUse", "tool_name": "pay", "tool_input": {"amount": 1},
        "tool_response": "paid", "session_id": "case", "tool_use_id": "call_1"});
    all.push(("POST".into(), HOOK.into(), Some(event.clone())));
    event["tool_use_id"] = json!(things.gate);
    all.push(("POST".into(), HOOK.into(), Some(event)));
    all
}

/// Every operation of A2A about a task, at each address.
fn over_a2a(run: &str) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    for base in ["/v1/agents/ops", "", "/ops"] {
        all.push(("GET".into(), format!("{base}/tasks/{run}"), None));
        all.push(("POST".into(), format!("{base}/tasks/{run}:cancel"), Some(json!({}))));
        all.push(("POST".into(), format!("{base}/tasks/{run}:subscribe"), Some(json!({}))));
        all.push(("GET".into(), format!("{base}/tasks/{run}/pushNotificationConfigs"), None));
        all.push(("GET".into(), format!("{base}/tasks/{run}/pushNotificationConfigs/one"), None));
        all.push(("DELETE".into(), format!("{base}/tasks/{run}/pushNotificationConfigs/one"), None));
        let config = json!({"taskId": run, "url": "http://127.0.0.1:9/hook"});
        all.push(("POST".into(), format!("{base}/tasks/{run}/pushNotificationConfigs"), Some(config)));
        for stream in ["send", "stream"] {
            let parts = json!([{"text": "approve"}]);
            let message = json!({"messageId": "m-1", "role": "ROLE_USER", "taskId": run, "parts": parts});
            all.push(("POST".into(), format!("{base}/message:{stream}"), Some(json!({"message": message}))));
        }
    }
    for method in
        ["GetTask", "CancelTask", "SubscribeToTask", "tasks/get", "tasks/cancel", "tasks/resubscribe"]
    {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": run}});
        all.push(("POST".into(), RPC.into(), Some(body)));
    }
    all.extend(over_older_a2a(run));
    all
}

/// The same in version 0.3 and in the dialect before it.
fn over_older_a2a(run: &str) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    for base in ["/v1/agents/ops/v1", "/v1"] {
        all.push(("GET".into(), format!("{base}/tasks/{run}"), None));
        all.push(("POST".into(), format!("{base}/tasks/{run}:cancel"), Some(json!({}))));
        all.push(("GET".into(), format!("{base}/tasks/{run}:subscribe"), None));
        all.push(("GET".into(), format!("{base}/tasks/{run}/pushNotificationConfigs"), None));
        let content = json!([{"text": "approve"}]);
        let message = json!({"messageId": "m-3", "role": "ROLE_USER", "taskId": run, "content": content});
        for stream in ["send", "stream"] {
            all.push(("POST".into(), format!("{base}/message:{stream}"), Some(json!({"message": message}))));
        }
    }
    let parts = json!([{"kind": "text", "text": "approve"}]);
    let message = json!({"messageId": "m-4", "role": "user", "taskId": run, "parts": parts});
    for stream in ["message/send", "message/stream"] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": stream, "params": {"message": message}});
        all.push(("POST".into(), RPC.into(), Some(body)));
    }
    let request = json!({"role": "user", "taskId": run, "parts": [{"text": "approve"}]});
    for base in ["/v1/agents/ops", "/ops"] {
        for stream in ["send", "stream"] {
            all.push(("POST".into(), format!("{base}/message:{stream}"), Some(json!({"request": request}))));
        }
        all.push(("POST".into(), format!("{base}/tasks/{run}:cancel"), None));
    }
    all
}

/// Where an agent is asked by JSON-RPC.
const RPC: &str = "/v1/agents/ops";

/// Where agents ask by MCP: the answer is in the body.
pub(super) const MCP: &str = "/mcp";

/// Where a coding agent says what became of a call. One that was not asked about is no mistake.
pub(super) const HOOK: &str = "/hooks/claude-code";

/// Every page about a single thing, and every form that is sent from one.
fn pages(things: &Things) -> Vec<Asked> {
    let Things { run, hold, inbox, task, grant, sign_in, .. } = things;
    let session = things.session.replace(' ', "%20");
    let looks = [
        format!("/runs/{run}"),
        format!("/runs/{run}/timeline.svg"),
        format!("/runs/{run}/events.json"),
        format!("/runs/{run}/calls/1/receipt"),
        format!("/approve/{hold}"),
        format!("/approve/{hold}/raw"),
        format!("/approve/{hold}/media"),
        format!("/approve/{hold}/receipt"),
        format!("/approve/{hold}/grant"),
        format!("/review?hold={hold}"),
        format!("/sessions/{session}?agent=ops"),
        format!("/login/{hold}"),
        format!("/events?run={run}"),
    ];
    let forms = [
        (format!("/approve/{hold}"), "decision=approve"),
        (format!("/approve/{hold}"), "decision=deny"),
        (format!("/approve/{hold}/people"), "action=assign&to=eve"),
        (format!("/approve/{hold}/people"), "action=take"),
        (format!("/approve/{hold}/grant"), "decision=approve&uses=1&hours=1"),
        (format!("/runs/{run}/cancel"), ""),
        (format!("/review/{hold}"), "decision=approve"),
        (format!("/sessions/{session}?agent=ops"), "message=hello"),
        (format!("/sessions/{session}/holds/{hold}?agent=ops"), "decision=approve"),
        (format!("/inboxes/{inbox}/tasks/{task}/cancel"), ""),
        (format!("/inboxes/{inbox}/holds/{hold}"), "decision=approve"),
        (format!("/jobs/{hold}/cancel"), ""),
        (format!("/grants/{grant}/revoke"), ""),
        (format!("/login/{hold}"), ""),
        (format!("/me/sessions/{sign_in}/end"), ""),
    ];
    let look = |path| ("GET".to_owned(), path, None);
    let form = |(path, text): (String, &str)| ("POST".to_owned(), path, Some(json!(text)));
    looks.map(look).into_iter().chain(forms.map(form)).collect()
}

/// Every operation about a task over gRPC, and how it ends.
pub(super) async fn over_grpc(site: &Site, key: &str, task: &str) -> Vec<(&'static str, Result<(), Status>)> {
    fn with<T>(key: &str, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        request.metadata_mut().insert("a2a-version", "1.0".parse().unwrap());
        request
    }
    let mut client = A2aServiceClient::connect(site.server.base.clone()).await.unwrap();
    let (tenant, id) = (|| "ops".to_owned(), || task.to_owned());
    let get = proto::GetTaskRequest { tenant: tenant(), id: id(), history_length: None };
    let cancel = proto::CancelTaskRequest { tenant: tenant(), id: id(), ..Default::default() };
    let subscribe = proto::SubscribeToTaskRequest { tenant: tenant(), id: id() };
    let approve = || proto::SendMessageRequest {
        tenant: tenant(),
        message: Some(proto::Message {
            message_id: "m-1".into(),
            task_id: id(),
            role: proto::Role::User.into(),
            parts: vec![proto::Part {
                content: Some(part::Content::Text("approve".into())),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let config = proto::TaskPushNotificationConfig {
        tenant: tenant(),
        task_id: id(),
        url: "http://127.0.0.1:9/hook".into(),
        ..Default::default()
    };
    let one =
        proto::GetTaskPushNotificationConfigRequest { tenant: tenant(), task_id: id(), id: "one".into() };
    let every = proto::ListTaskPushNotificationConfigsRequest {
        tenant: tenant(),
        task_id: id(),
        ..Default::default()
    };
    let delete =
        proto::DeleteTaskPushNotificationConfigRequest { tenant: tenant(), task_id: id(), id: "one".into() };
    let mut all = vec![
        ("GetTask", client.get_task(with(key, get)).await.map(drop)),
        ("SubscribeToTask", client.subscribe_to_task(with(key, subscribe)).await.map(drop)),
        ("SendMessage", client.send_message(with(key, approve())).await.map(drop)),
        ("SendStreamingMessage", client.send_streaming_message(with(key, approve())).await.map(drop)),
        ("CreatePush", client.create_task_push_notification_config(with(key, config)).await.map(drop)),
        ("GetPush", client.get_task_push_notification_config(with(key, one)).await.map(drop)),
        ("ListPush", client.list_task_push_notification_configs(with(key, every)).await.map(drop)),
        ("DeletePush", client.delete_task_push_notification_config(with(key, delete)).await.map(drop)),
    ];
    all.extend(over_older_grpc(site, key, task).await);
    all.push(("CancelTask", client.cancel_task(with(key, cancel)).await.map(drop)));
    all
}

/// A member of a message of gRPC: its number, how long it is, and what it is.
fn member(number: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![(number << 3) | 2, u8::try_from(value.len()).unwrap()];
    bytes.extend(value);
    bytes
}

/// The same in version 0.3, for which nobody made a client: frames by hand.
async fn over_older_grpc(site: &Site, key: &str, task: &str) -> Vec<(&'static str, Result<(), Status>)> {
    let named = |more: &str| member(1, format!("tasks/{task}{more}").as_bytes());
    let part = member(5, &member(1, b"approve"));
    let message = [member(1, b"m-5"), member(3, task.as_bytes()), vec![0x20, 1], part].concat();
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let mut all = Vec::new();
    for (name, method, bytes) in [
        ("0.3 GetTask", "GetTask", named("")),
        ("0.3 SubscribeToTask", "TaskSubscription", named("")),
        ("0.3 SendMessage", "SendMessage", member(1, &message)),
        ("0.3 SendStreamingMessage", "SendStreamingMessage", member(1, &message)),
        ("0.3 GetPush", "GetTaskPushNotificationConfig", named("/pushNotificationConfigs/one")),
        ("0.3 ListPush", "ListTaskPushNotificationConfig", named("")),
        ("0.3 DeletePush", "DeleteTaskPushNotificationConfig", named("/pushNotificationConfigs/one")),
        ("0.3 CancelTask", "CancelTask", named("")),
    ] {
        let mut frame = vec![0];
        frame.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        frame.extend(bytes);
        let url = format!("{}/a2a.v1.A2AService/{method}", site.server.base);
        let request = client.post(url).bearer_auth(key).header("content-type", "application/grpc");
        let answer = request.body(frame).send().await.unwrap();
        // A no has no body: its status is among the headers.
        let said = |name: &str| answer.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
        let code = said("grpc-status").map(|code| Code::from_i32(code.parse().unwrap()));
        let refused = |code| Status::new(code, said("grpc-message").unwrap_or_default());
        all.push((name, code.filter(|code| *code != Code::Ok).map_or(Ok(()), |code| Err(refused(code)))));
    }
    all
}
