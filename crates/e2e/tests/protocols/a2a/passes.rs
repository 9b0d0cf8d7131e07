//! The further passes of the kits: less capabilities, tokens, an extension that clients must know. By an argument and by
//! the variables that the kits set.

use serde_json::{Value, json};

use crate::a2a::conformance::{self, CONFIG, request, strict};
use crate::a2a::rust_client::client_of;
use crate::a2a::server::{Answer, Server, serve_kits};

const BASE: &str = "/v1/agents/conformance";

fn message(text: &str) -> Value {
    json!({"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

async fn card(server: &Server) -> Value {
    let card = server.get("/.well-known/agent-card.json").await;
    assert_eq!(card.status, 200, "the card is always open");
    strict("card", &card.body);
    card.body
}

async fn rest(server: &Server, token: Option<&str>, method: &str, path: &str, body: &Value) -> Answer {
    let authorization = token.map(|token| format!("Bearer {token}")).unwrap_or_default();
    let headers = [("a2a-version", "1.0"), ("authorization", authorization.as_str())];
    let headers = if token.is_some() { &headers[..] } else { &headers[..1] };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.ask(method, &format!("{BASE}{path}"), headers, body.as_bytes()).await
}

/// CORE-CAP-001 … 003, SEC-EXTCARD-003: what a card does not offer is refused, before any task is looked for.
#[tokio::test]
async fn less_is_offered_and_the_rest_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), CONFIG).unwrap();
    let server = serve_kits(folder.path(), &[], &[("ITK_ACTS_REDUCED_CAPABILITIES", "1")]);
    let offered = card(&server).await["capabilities"].clone();
    for name in ["streaming", "pushNotifications", "extendedAgentCard"] {
        assert_eq!(offered[name], false, "{name}");
    }
    let none = Value::Null;
    let (nobody, push) = ("/tasks/t", json!({"url": "https://example.com/hook"}));
    for (method, path, body, reason) in [
        ("POST", "/message:stream".to_owned(), &message("tck-complete-task"), "UNSUPPORTED_OPERATION"),
        ("GET", format!("{nobody}:subscribe"), &none, "UNSUPPORTED_OPERATION"),
        ("POST", format!("{nobody}/pushNotificationConfigs"), &push, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("GET", format!("{nobody}/pushNotificationConfigs"), &none, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("GET", "/extendedAgentCard".to_owned(), &none, "UNSUPPORTED_OPERATION"),
    ] {
        let answer = rest(&server, None, method, &path, body).await;
        assert_eq!((answer.status, answer.reason()), (400, reason), "{method} {path}");
    }
    for (method, params, code) in [
        ("SendStreamingMessage", message("tck-complete-task"), -32004),
        ("SubscribeToTask", json!({"id": "t"}), -32004),
        ("CreateTaskPushNotificationConfig", json!({"taskId": "t", "url": "https://example.com"}), -32003),
        ("GetExtendedAgentCard", json!({}), -32004),
    ] {
        let answer = server.rpc("conformance", method, params).await;
        assert_eq!(answer.body["error"]["code"], code, "{method}: {answer:?}");
    }
    let inline = json!({"message": message("tck-complete-task")["message"],
        "configuration": {"taskPushNotificationConfig": {"url": "https://example.com"}}});
    let inline = server.rpc("conformance", "SendMessage", inline).await;
    assert_eq!(inline.body["error"]["code"], -32003, "{inline:?}");
    let client = client_of(&server, "conformance", "GRPC").await;
    let refused = client.send_streaming_message(&request("m", "tck-complete-task")).await;
    assert_eq!(refused.err().unwrap().code, a2a::error_code::UNSUPPORTED_OPERATION);
    assert_eq!(rest(&server, None, "POST", "/message:send", &message("tck-complete-task")).await.status, 200);
}

/// SEC-AUTH-001 … 006: every request needs the token, on every binding, before anything else is looked at; the card says how.
#[tokio::test]
async fn every_request_needs_the_token() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), CONFIG).unwrap();
    let server = serve_kits(folder.path(), &[], &[("ITK_ACTS_AUTH", "1")]);
    let says = card(&server).await;
    assert_eq!(says["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
    assert_eq!(says["securityRequirements"], json!([{"schemes": {"bearer": {"list": []}}}]));
    let (valid, insufficient) = (Some("itk-valid-token"), Some("itk-insufficient-token"));
    let go = message("tck-complete-task");
    for (token, status) in [(None, 401), (Some("other"), 401), (insufficient, 403), (valid, 200)] {
        let answer = rest(&server, token, "POST", "/message:send", &go).await;
        assert_eq!(answer.status, status, "{token:?}");
        assert_eq!(answer.headers.contains_key("www-authenticate"), status == 401, "{token:?}");
        let malformed = rest(&server, token, "POST", "/message:send", &json!({})).await;
        assert_eq!(malformed.status, if status == 200 { 400 } else { status }, "{token:?}: who comes first");
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "run_x"}});
        let authorization = format!("Bearer {}", token.unwrap_or_default());
        let headers = [("authorization", authorization.as_str())];
        let over_rpc = server.ask("POST", "/", &headers, call.to_string().as_bytes()).await;
        assert_eq!(over_rpc.status, status, "{token:?}");
        assert!(over_rpc.body["error"]["code"].is_i64(), "{over_rpc:?}");
    }
    let client = client_of(&server, "conformance", "GRPC").await;
    let refused = client.send_message(&request("m", "tck-complete-task")).await.unwrap_err();
    assert!(refused.to_string().contains("itk-valid-token"), "{refused}");
}

/// SEC-EXTCARD-001, 002, 004: the extended card is only for those who are known, in the first pass too; the token is taken
/// everywhere else and not needed.
#[tokio::test]
async fn the_extended_card_is_guarded_in_any_pass() {
    let folder = tempfile::tempdir().unwrap();
    let server = conformance::serve(folder.path());
    let none = Value::Null;
    for (token, status) in
        [(None, 401), (Some("itk-insufficient-token"), 403), (Some("itk-valid-token"), 200)]
    {
        let answer = rest(&server, token, "GET", "/extendedAgentCard", &none).await;
        assert_eq!(answer.status, status, "{token:?}: {answer:?}");
        assert_eq!(answer.headers.contains_key("www-authenticate"), status == 401, "{token:?}");
        let sent = rest(&server, token, "POST", "/message:send", &message("tck-complete-task")).await;
        assert_eq!(sent.status, 200, "{token:?}");
    }
    let over_rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"});
    let over_rpc = server.post(BASE, &over_rpc).await;
    assert_eq!((over_rpc.status, over_rpc.reason()), (401, "UNAUTHENTICATED"), "{over_rpc:?}");
}

/// CORE-CAP-004: whoever does not name the required extension may not send; the card says so.
#[tokio::test]
async fn an_extension_may_be_required() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), CONFIG).unwrap();
    let server = serve_kits(folder.path(), &["--pass", "required_extension"], &[]);
    let uri = "urn:a2a:tck:required-extension";
    let listed = card(&server).await["capabilities"]["extensions"].clone();
    let required = listed.as_array().unwrap().iter().find(|extension| extension["uri"] == uri).unwrap();
    assert_eq!(required["required"], true);
    let go = message("tck-complete-task");
    let answer = rest(&server, None, "POST", "/message:send", &go).await;
    assert_eq!((answer.status, answer.reason()), (400, "EXTENSION_SUPPORT_REQUIRED"));
    let over_rpc = server.rpc("conformance", "SendMessage", go.clone()).await;
    assert_eq!(over_rpc.body["error"]["code"], -32008);
    let client = client_of(&server, "conformance", "GRPC").await;
    let refused = client.send_message(&request("m", "tck-complete-task")).await.unwrap_err();
    assert!(refused.to_string().contains(uri), "{refused}");
    let named = [("a2a-version", "1.0"), ("a2a-extensions", uri)];
    let sent = server.ask("POST", &format!("{BASE}/message:send"), &named, go.to_string().as_bytes()).await;
    assert_eq!(sent.status, 200, "{sent:?}");
}

/// The product has no such agent, and nothing of it has any effect there.
#[tokio::test]
async fn the_product_has_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = crate::a2a::server::demo_with(folder.path(), &[]);
    assert_eq!(server.get(&format!("{BASE}/.well-known/agent-card.json")).await.status, 404);
    let direct = server.post("/v1/agents/travel/message:send", &message("tck-message-response")).await;
    assert!(direct.body.get("task").is_some(), "{direct:?}");
    let extended = server.get("/v1/agents/ops/extendedAgentCard").await;
    assert_eq!(
        (extended.status, extended.reason()),
        (400, "UNSUPPORTED_OPERATION"),
        "nobody is authenticated"
    );
}

/// S3-1: the pass of 0.3: the card is one that both versions read, and whatever chooses nothing asks, so that the kit finds tasks that it
/// can continue and cancel.
#[tokio::test]
async fn the_pass_of_0_3_has_the_hybrid_card_and_asks() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), CONFIG).unwrap();
    let server = serve_kits(folder.path(), &["--pass", "v03"], &[]);
    let card = server.get("/.well-known/agent-card.json").await.body;
    assert_eq!((&card["protocolVersion"], &card["preferredTransport"]), (&json!("0.3.0"), &json!("JSONRPC")));
    assert!(card["url"].as_str().unwrap().ends_with("/v1/agents/conformance"), "{card}");
    let say = async |task: Option<&Value>, text: &str| {
        let mut message = json!({"messageId": format!("m-{text}"), "role": "user", "kind": "message",
            "parts": [{"kind": "text", "text": text}]});
        if let Some(task) = task {
            (message["taskId"], message["contextId"]) = (task["id"].clone(), task["contextId"].clone());
        }
        let params = json!({"message": message, "configuration": {"blocking": true}});
        server.rpc("conformance", "message/send", params).await.body["result"].clone()
    };
    let task = say(None, "hello").await;
    assert_eq!(task["status"]["state"], "input-required", "{task}");
    assert_eq!(say(Some(&task), "more").await["status"]["state"], "completed");
    let task = say(None, "again").await;
    let canceled = server.rpc("conformance", "tasks/cancel", json!({"id": task["id"]})).await;
    assert_eq!(canceled.body["result"]["status"]["state"], "canceled", "{canceled:?}");
    let again = server.rpc("conformance", "tasks/cancel", json!({"id": task["id"]})).await;
    assert_eq!(again.body["error"]["code"], -32002, "{again:?}");
    let card = json!({"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"});
    let unknown = server.post("/v1/agents/conformance", &card).await;
    assert_eq!(unknown.status, 401, "{unknown:?}");
    assert_eq!(unknown.headers["www-authenticate"], "Bearer");
}

/// S3-1: ACTS, section 10: `tck-client-parse` feeds a payload to this server's own client over a canned transport, and the one data
/// artifact is what the client made of it; the shipped settings let the kits be called back by either name of this machine.
#[tokio::test]
async fn payloads_are_parsed_by_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/conformance/kits.yaml");
    std::fs::copy(shipped, folder.path().join("standfast.yaml")).unwrap();
    let server = serve_kits(folder.path(), &[], &[]);
    let task = json!({"id": "task-1", "contextId": "ctx-1",
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00Z",
            "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}},
        "artifacts": [{"artifactId": "a-1", "parts": [
            {"text": "hello"}, {"data": {"n": 1}},
            {"raw": "dGNr", "filename": "f.txt", "mediaType": "text/plain"},
            {"url": "https://example.com/f", "filename": "f", "mediaType": "text/plain"}]}]});
    let reply = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]});
    let card = json!({"name": "A", "description": "d", "version": "1", "supportedInterfaces":
            [{"url": "https://a.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": true},
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "", "tags": ["t"]}]});
    let result = |value: &Value| json!({"jsonrpc": "2.0", "id": "req-1", "result": value});
    let gone =
        json!({"jsonrpc": "2.0", "id": "req-1", "error": {"code": -32001, "message": "Task not found"}});
    for (operation, payload, expected) in [
        ("send_message", result(&json!({"task": task})), json!({"task": task})),
        ("send_message", result(&json!({"message": reply})), json!({"message": reply})),
        ("get_task", result(&task), task.clone()),
        ("get_task", gone, json!({"error": {"code": -32001, "message": "Task not found"}})),
        ("get_agent_card", card.clone(), card.clone()),
        ("get_extended_agent_card", result(&card), card.clone()),
    ] {
        let body = json!({"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [
            {"text": "tck-client-parse"}, {"data": {"operation": operation, "wire_payload": payload}}]}});
        let sent = rest(&server, None, "POST", "/message:send", &body).await;
        let done = &sent.body["task"];
        assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{operation}: {sent:?}");
        assert_eq!(done["artifacts"].as_array().unwrap().len(), 1);
        assert_eq!(done["artifacts"][0]["parts"], json!([{"data": expected}]), "{operation}");
    }
    let nothing = rest(&server, None, "POST", "/message:send", &message("tck-client-parse")).await;
    assert_eq!(nothing.body["task"]["status"]["state"], "TASK_STATE_FAILED", "{nothing:?}");
    let sent = rest(&server, None, "POST", "/message:send", &message("tck-complete-task")).await;
    let path = format!("/tasks/{}/pushNotificationConfigs", sent.body["task"]["id"].as_str().unwrap());
    for host in ["127.0.0.1", "localhost"] {
        let config = json!({"url": format!("http://{host}:9/hook")});
        let made = rest(&server, None, "POST", &path, &config).await;
        assert_eq!(made.status, 200, "{host}: {made:?}");
    }
}
