//! Cards: public and extended, at the agent and at the root, with what caches need; and who may call.

use serde_json::json;

use crate::a2a::server::{demo, demo_with, says};

#[tokio::test]
async fn every_agent_has_a_card() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let card = server.get("/v1/agents/travel/.well-known/agent-card.json").await;
    assert_eq!(card.status, 200);
    let url = format!("{}/v1/agents/travel", server.program.base);
    let address = server.program.base.strip_prefix("http://").unwrap();
    assert_eq!(
        card.body["supportedInterfaces"],
        json!([
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            {"url": address, "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "travel"}
        ])
    );
    assert_eq!(card.body["name"], "travel");
    assert_eq!(card.body["capabilities"]["streaming"], true);
    assert_eq!(card.body["capabilities"]["pushNotifications"], true);
    assert!(card.body.get("securitySchemes").is_none(), "this machine only");
    for name in ["etag", "last-modified", "cache-control"] {
        assert!(card.headers.contains_key(name), "{name}");
    }
    let etag = card.headers["etag"].to_str().unwrap();
    let again = server
        .ask("GET", "/v1/agents/travel/.well-known/agent-card.json", &[("if-none-match", etag)], b"")
        .await;
    assert_eq!(again.status, 304);
    assert_eq!(server.get("/.well-known/agent-card.json").await.body["name"], "ops", "the default agent");
    assert_eq!(server.get("/v1/agents/nobody/.well-known/agent-card.json").await.status, 404);

    // Nobody is authenticated here, so there is nobody to whom more could be said (1.0.1, section 13.3).
    assert_eq!(card.body["capabilities"]["extendedAgentCard"], false);
    let extended = server.get("/v1/agents/ops/extendedAgentCard").await;
    assert_eq!((extended.status, extended.reason()), (400, "UNSUPPORTED_OPERATION"), "{extended:?}");
    let over_rpc = server.rpc("ops", "GetExtendedAgentCard", json!({})).await;
    assert_eq!(over_rpc.body["error"]["code"], -32004, "{over_rpc:?}");
    let public = server.get("/.well-known/agent-card.json").await.body.to_string();
    assert!(!public.contains("delete_file"), "which tools there are is not for everyone");
}

/// The routing value, in the path and in the body, at the root.
#[tokio::test]
async fn at_the_root_the_tenant_names_the_agent() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let in_path =
        server.post("/travel/message:send", &json!({"message": says("go"), "tenant": "travel"})).await;
    let id = in_path.body["task"]["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/travel/tasks/{id}")).await.status, 200);
    assert_eq!(server.get(&format!("/v1/agents/travel/tasks/{id}")).await.status, 200);
    assert_eq!(
        server.get(&format!("/tasks/{id}")).await.reason(),
        "TASK_NOT_FOUND",
        "the default agent's are others"
    );
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": id, "tenant": "travel"}});
    assert_eq!(server.post("/", &body).await.body["result"]["id"], id);
    let two = server.post("/travel/message:send", &json!({"message": says("go"), "tenant": "ops"})).await;
    assert_eq!(two.reason(), "INVALID_PARAMS");
}

/// With identities only cards can be read without one; the answer says how to say who you are, in each binding's words.
#[tokio::test]
async fn whoever_is_not_known_gets_the_card_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let server = demo_with(data.path(), &["--auth", "keys"]);
    let card = server.get("/.well-known/agent-card.json").await;
    assert_eq!(card.status, 200);
    assert_eq!(card.body["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
    assert_eq!(card.body["securityRequirements"], json!([{"schemes": {"bearer": {"list": []}}}]));
    let unknown = server.get("/v1/agents/ops/tasks").await;
    assert_eq!((unknown.status, unknown.reason()), (401, "UNAUTHENTICATED"));
    assert_eq!(unknown.headers["www-authenticate"], "Bearer");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"});
    let over_rpc = server.post("/v1/agents/ops", &body).await;
    assert_eq!((over_rpc.status, over_rpc.body["error"]["code"].as_i64()), (401, Some(-31401)));

    let key = |user: &str, scopes: &[&str]| {
        let mut command = standfast_testkit::standfast();
        command.args(["keys", "create", "--user", user, "--json", "--data"]).arg(data.path());
        for scope in scopes {
            command.args(["--scope", scope]);
        }
        let output = command.output().unwrap();
        let made: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        format!("Bearer {}", made["key"].as_str().unwrap())
    };
    let (ann, bob) = (key("ann", &[]), key("bob", &[]));
    assert_eq!(card.body["capabilities"]["extendedAgentCard"], true);
    let known = [("authorization", ann.as_str())];
    let extended = server.ask("GET", "/v1/agents/ops/extendedAgentCard", &known, b"").await;
    let skills = extended.body["skills"].as_array().unwrap();
    assert!(skills.iter().any(|skill| skill["name"] == "delete_file"), "{skills:?}");
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}).to_string();
    let over_rpc = server.ask("POST", "/v1/agents/ops", &known, ask.as_bytes()).await;
    assert_eq!(over_rpc.body["result"], extended.body);
    assert_eq!(server.get("/v1/agents/ops/extendedAgentCard").await.status, 401);
    let message = json!({"message": says("go")}).to_string();
    let sent = server.ask("POST", "/message:send", &[("authorization", &ann)], message.as_bytes()).await;
    let id = sent.body["task"]["id"].as_str().unwrap();
    let got = async |key: &str| {
        server.ask("GET", &format!("/tasks/{id}"), &[("authorization", key)], b"").await.status
    };
    assert_eq!((got(&ann).await, got(&bob).await), (200, 404), "T15: a foreign task is not there");
    let list = server.ask("GET", "/tasks", &[("authorization", &bob)], b"").await;
    assert_eq!(list.body["totalSize"], 0);
    let reader = key("ann", &["runs:read"]);
    let refused =
        server.ask("POST", "/message:send", &[("authorization", &reader)], message.as_bytes()).await;
    assert_eq!((refused.status, refused.reason()), (403, "PERMISSION_DENIED"));
}
