//! The OpenAPI document against the server: every route is in it and answers, and real answers fit their schemas.
//!
//! With the real binary, so that what is described is what users get.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use standfast_testkit::Server;

async fn ask(server: &Server, method: &str, path: &str, body: Option<&Value>) -> (u16, String, String) {
    let answer = server.http.ask(&method.to_uppercase(), path, body).await;
    let media_type = answer.headers["content-type"].to_str().unwrap().to_owned();
    (answer.status, media_type, answer.text)
}

/// The routes by hand: whoever adds one adds it here, and the document must have it.
const ROUTES: &[&str] = &[
    "get /api/v1/agents",
    "get /api/v1/agents/{agent}",
    "post /api/v1/agents/{agent}/runs",
    "get /api/v1/runs",
    "get /api/v1/runs/{run}",
    "get /api/v1/runs/{run}/events",
    "get /api/v1/runs/{run}/calls/{call}/receipt",
    "post /api/v1/runs/{run}/messages",
    "post /api/v1/runs/{run}/cancel",
    "get /api/v1/nodes",
    "get /api/v1/recovery",
    "get /api/v1/holds",
    "get /api/v1/holds/{hold}",
    "post /api/v1/holds/{hold}/resolve",
    "get /api/v1/holds/{hold}/receipt",
    "post /api/v1/holds/{hold}/assign",
    "post /api/v1/holds/{hold}/take",
    "post /api/v1/holds/{hold}/release",
    "post /api/v1/holds/{hold}/delegate",
    "post /api/v1/holds/{hold}/link",
    "post /api/v1/holds/{hold}/reopen",
    "post /api/v1/holds/{hold}/ask-again",
    "post /api/v1/holds/{hold}/edit",
    "post /api/v1/holds/{hold}/grant-rule",
    "get /api/v1/grants",
    "get /api/v1/grants/{grant}",
    "post /api/v1/grants/{grant}/revoke",
    "get /api/v1/sign-ins",
    "post /api/v1/sign-ins",
    "get /api/v1/sign-ins/offer",
    "delete /api/v1/sign-ins/{sign_in}",
    "post /api/v1/gates",
    "post /api/v1/gates/batch",
    "get /api/v1/gates/{gate}",
    "get /api/v1/gates/{gate}/events",
    "post /api/v1/gates/{gate}/start",
    "post /api/v1/gates/{gate}/outcome",
    "post /api/v1/gates/{gate}/withdraw",
    "get /api/v1/sessions",
    "get /api/v1/sessions/{session}",
    "patch /api/v1/sessions/{session}",
    "delete /api/v1/sessions/{session}",
    "get /api/v1/sessions/{session}/pending_executions/{run}",
    "put /api/v1/sessions/{session}/pending_executions/{run}",
    "get /api/v1/subscriptions",
    "post /api/v1/subscriptions",
    "get /api/v1/subscriptions/{subscription}",
    "delete /api/v1/subscriptions/{subscription}",
    "post /api/v1/subscriptions/{subscription}/rotate",
    "post /api/v1/subscriptions/{subscription}/test",
    "post /api/v1/subscriptions/{subscription}/enable",
    "post /api/v1/subscriptions/{subscription}/disable",
    "get /api/v1/subscriptions/{subscription}/dead-letters",
    "post /api/v1/subscriptions/{subscription}/dead-letters/{letter}/resend",
    "get /api/inboxes",
    "get /api/inboxes/{inboxId}/stats",
    "get /api/inboxes/{inboxId}/tasks",
    "post /api/inboxes/{inboxId}/tasks",
    "post /api/inboxes/{inboxId}/tasks/batch",
    "get /api/inboxes/{inboxId}/tasks/waiting",
    "get /api/inboxes/tasks/waiting",
    "get /api/inboxes/{inboxId}/tasks/{taskId}",
    "post /api/inboxes/subscriptions",
    "post /api/inboxes/{inboxId}/claim",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/resume",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/cancel",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/release",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/suspend",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/complete",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/fail",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/heartbeat",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/start",
    "get /api/inboxes/{inboxId}/tasks/{taskId}/calls",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/calls",
    "get /api/inboxes/{inboxId}/tasks/{taskId}/calls/{callId}",
    "post /api/inboxes/{inboxId}/tasks/{taskId}/calls/{callId}/result",
    "get /healthz",
    "get /readyz",
    "get /metrics",
    "get /openapi.json",
    "post /tealagents/v1alpha1/{agent}",
    "post /tealagents/v1alpha1/{agent}/sse",
    "get /tealagents/v1alpha1/{agent}/tasks/{task_id}",
    "get /tealagents/v1alpha1/{agent}/tasks/{task_id}/response",
    "get /tealagents/v1alpha1/{agent}/tasks/{task_id}/response/sse",
    "get /tealagents/v1alpha1/resume/{request_id}",
    "post /tealagents/v1alpha1/resume/{request_id}",
    "post /tealagents/v1alpha1/resume/{request_id}/sse",
];

/// The routes of async tools, whose errors have a form of their own.
const ASYNC_TOOL: [&str; 15] = [
    "delete /async-tool/pending/{id}",
    "get /async-tool/events",
    "get /async-tool/pending",
    "get /async-tool/pending/{id}",
    "get /async-tool/recovery/status",
    "get /async-tool/session/{id}/parts",
    "get /async-tool/session/{id}/status",
    "get /async-tool/sessions/waiting",
    "get /async-tool/tools",
    "post /async-tool/error",
    "post /async-tool/pending/{id}/webhook",
    "post /async-tool/progress",
    "post /async-tool/result",
    "post /async-tool/run/{id}/webhook",
    "post /async-tool/webhook",
];

#[tokio::test]
async fn every_route_is_described_and_every_described_route_answers() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    let document = server.get("/openapi.json").await;
    let mut described = BTreeSet::from(["get /openapi.json".to_owned()]);
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            described.insert(format!("{method} {path}"));
            assert!(operation["operationId"].is_string(), "{method} {path}");
            assert!(operation["summary"].is_string(), "{method} {path}");
        }
    }
    assert_eq!(described, ROUTES.iter().copied().chain(ASYNC_TOOL).map(str::to_owned).collect());
    // A stream does not end by itself.
    for route in ASYNC_TOOL.into_iter().filter(|route| !route.ends_with("/events")) {
        let (method, path) = route.split_once(' ').unwrap();
        let (status, media_type, text) = ask(&server, method, &path.replace(['{', '}'], ""), None).await;
        assert!(status != 405 && !text.contains("there is nothing at"), "{route}: {status} {text}");
        if status >= 400 {
            assert_eq!(media_type, "application/json", "{route}");
            fits(&document, &json!({"$ref": "#/components/schemas/ErrorBody"}), &text, route);
        }
    }
    for route in ROUTES {
        let (method, path) = route.split_once(' ').unwrap();
        let real = path.replace(['{', '}'], "");
        let (status, media_type, text) = ask(&server, method, &real, None).await;
        assert!(status != 405 && !text.contains("no-such-path"), "{route}: {status} {text}");
        if status >= 400 {
            let (expected, schema) = if path.starts_with("/tealagents/") {
                ("application/json", "TealError")
            } else {
                ("application/problem+json", "Problem")
            };
            assert_eq!(media_type, expected, "{route}");
            fits(&document, &json!({"$ref": format!("#/components/schemas/{schema}")}), &text, route);
        }
    }
}

/// Real answers, from a run that waits to its receipt, validate against what is described.
#[tokio::test]
async fn real_answers_fit_their_schemas() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    let document = server.get("/openapi.json").await;
    let start = json!({"input": "Free some space", "session": "s", "wait": "settled"});
    let run = check(&server, &document, "post", "/api/v1/agents/{agent}/runs", &["ops"], Some(&start)).await;
    let (id, hold) = (run["id"].as_str().unwrap(), run["holds"][0]["id"].as_str().unwrap());
    let get = async |path: &str, with: &[&str]| check(&server, &document, "get", path, with, None).await;
    get("/api/v1/agents", &[]).await;
    get("/api/v1/agents/{agent}", &["ops"]).await;
    get("/api/v1/runs", &[]).await;
    get("/api/v1/runs/{run}", &[id]).await;
    get("/api/v1/holds", &[]).await;
    get("/api/v1/holds/{hold}", &[hold]).await;
    get("/api/v1/sessions", &[]).await;
    let session = get("/api/v1/sessions/{session}", &["s"]).await;
    assert!(session["metadata"]["pending_executions"][id].is_object());
    let pending = "/api/v1/sessions/{session}/pending_executions/{run}";
    let state = get(pending, &["s", id]).await;
    let again = check(&server, &document, "put", pending, &["s", id], Some(&state)).await;
    assert_eq!(again["id"], run["id"], "whatever writes the same JSON says the same");
    get("/api/v1/recovery", &[]).await;
    get("/api/v1/subscriptions", &[]).await;
    get("/api/v1/nodes", &[]).await;
    let patch = json!({"metadata": {"a": 1}});
    check(&server, &document, "patch", "/api/v1/sessions/{session}", &["s"], Some(&patch)).await;
    let post = async |verb: &str, body: Value| {
        let path = format!("/api/v1/holds/{{hold}}/{verb}");
        check(&server, &document, "post", &path, &[hold], Some(&body)).await
    };
    let taken = post("take", json!({})).await;
    assert_eq!((&taken["outcome"], &taken["hold"]["assignee"]), (&json!("changed"), &json!("local")));
    post("release", json!({})).await;
    post("assign", json!({"to": "bob", "until": "2100-01-01T00:00:00Z"})).await;
    let delegated = post("delegate", json!({"to": "bob", "until": "2100-01-01T00:00:00Z"})).await;
    assert_eq!(delegated["hold"]["delegations"][0]["to"], json!("bob"));
    let edited = post("edit", json!({"arguments": {"path": "/srv/cache/old"}, "revision": 0})).await;
    assert_eq!((&edited["outcome"], &edited["hold"]["revision"]), (&json!("edited"), &json!(1)));
    post("resolve", json!({"resolution": "approve", "revision": 1})).await;
    for _ in 0..400 {
        if get("/api/v1/runs/{run}", &[id]).await["status"] == "completed" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let receipt = get("/api/v1/holds/{hold}/receipt", &[hold]).await;
    assert_eq!((&receipt["id"], &receipt["receipt"]["hold"]), (&json!(hold), &json!(hold)));
    for at in [&receipt["receipt"]["decision"]["at"], &receipt["receipt"]["call"]["attempts"][0]["at"]] {
        assert!(at.as_str().unwrap().ends_with('Z'), "{receipt}");
    }
    assert_eq!(receipt["receipt"]["shown"][0]["arguments_text"], r#"{"path": "/srv/cache/old"}"#);
    assert_eq!(receipt["receipt"]["shown"].as_array().map(Vec::len), Some(2), "asked, and edited");
    check(&server, &document, "delete", "/api/v1/sessions/{session}", &["s"], None).await;
}

/// The same for the inbox, through the life of a task.
#[tokio::test]
async fn real_answers_of_the_inbox_fit_their_schemas() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    let document = server.get("/openapi.json").await;
    let post = async |path: &str, with: &[&str], body: Value| {
        let path = format!("/api/inboxes/{{inboxId}}{path}");
        check(&server, &document, "post", &path, with, Some(&body)).await
    };
    let new = json!({"type": "t", "payload": {"n": 1}, "priority": "high", "metadata": {"a": [1]}});
    post("/tasks", &["box"], new.clone()).await;
    post("/tasks/batch", &["box"], json!({"tasks": [new]})).await;
    let claimed = post("/claim", &["box"], json!({"agentId": "w", "types": ["t"], "leaseMs": 60_000})).await;
    let (id, claim) = (claimed["task"]["id"].as_str().unwrap(), &claimed["task"]["claimId"]);
    let of_task = |verb: &str| format!("/tasks/{{taskId}}/{verb}");
    post(&of_task("heartbeat"), &["box", id], json!({"claimId": claim})).await;
    let ask =
        json!({"claimId": claim, "reason": "r", "payload": {"x": 1}, "resumeSchema": {"type": "string"}});
    post(&of_task("suspend"), &["box", id], ask).await;
    for path in [
        "/api/inboxes/{inboxId}/tasks/waiting",
        "/api/inboxes/{inboxId}/tasks",
        "/api/inboxes/{inboxId}/stats",
    ] {
        check(&server, &document, "get", path, &["box"], None).await;
    }
    for path in ["/api/inboxes/tasks/waiting", "/api/inboxes"] {
        check(&server, &document, "get", path, &[], None).await;
    }
    post(&of_task("resume"), &["box", id], json!({"payload": "yes"})).await;
    let claimed = post("/claim", &["box"], json!({"agentId": "w"})).await;
    let claim = &claimed["task"]["claimId"];
    let id = claimed["task"]["id"].as_str().unwrap();
    post(&of_task("release"), &["box", id], json!({"claimId": claim})).await;
    let claimed = post("/claim", &["box"], json!({"agentId": "w"})).await;
    let (id, claim) = (claimed["task"]["id"].as_str().unwrap(), &claimed["task"]["claimId"]);
    post(&of_task("complete"), &["box", id], json!({"claimId": claim, "result": {"ok": true}})).await;
    check(&server, &document, "get", "/api/inboxes/{inboxId}/tasks/{taskId}", &["box", id], None).await;
    let claimed = post("/claim", &["box"], json!({"agentId": "w"})).await;
    let (id, claim) = (claimed["task"]["id"].as_str().unwrap(), &claimed["task"]["claimId"]);
    let error = json!({"message": "no", "stack": "s", "retryable": true});
    post(&of_task("fail"), &["box", id], json!({"claimId": claim, "error": error})).await;
    post(&of_task("cancel"), &["box", id], json!({"reason": "enough"})).await;
}

/// The same over Teal Agents: a pause, the task, a decision, the output, a rejection.
#[tokio::test]
async fn real_answers_of_teal_agents_fit_their_schemas() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    let document = server.get("/openapi.json").await;
    let said = json!({"items": [{"content_type": "text", "content": "Free some space"}]});
    let chat = "/tealagents/v1alpha1/{agent}";
    let resume = "/tealagents/v1alpha1/resume/{request_id}";
    for action in ["approve", "reject"] {
        let paused = check(&server, &document, "post", chat, &["ops"], Some(&said)).await;
        let request = paused["request_id"].as_str().unwrap();
        check(&server, &document, "get", resume, &[request], None).await;
        let decision = json!({"action": action});
        check(&server, &document, "post", resume, &[request], Some(&decision)).await;
        let path = "/tealagents/v1alpha1/{agent}/tasks/{task_id}";
        let task =
            check(&server, &document, "get", path, &["ops", paused["task_id"].as_str().unwrap()], None).await;
        let expected = if action == "approve" { "Completed" } else { "Canceled" };
        assert_eq!(task["status"], expected);
    }
}

/// Events come in pages that meet exactly.
#[tokio::test]
async fn events_are_paged() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    let document = server.get("/openapi.json").await;
    let start = json!({"input": "Free some space", "wait": "settled"});
    let run = check(&server, &document, "post", "/api/v1/agents/{agent}/runs", &["ops"], Some(&start)).await;
    let path = format!("/api/v1/runs/{}/events", run["id"].as_str().unwrap());
    let read = async |query: &str| -> Value {
        let (status, _, text) = ask(&server, "get", &format!("{path}{query}"), None).await;
        assert_eq!(status, 200);
        serde_json::from_str(&text).unwrap()
    };
    let all = read("").await;
    assert_eq!(all["next"], Value::Null);
    let (mut paged, mut after) = (Vec::new(), 0);
    loop {
        let page = read(&format!("?after={after}&limit=2")).await;
        paged.extend(page["events"].as_array().unwrap().clone());
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(&paged, all["events"].as_array().unwrap());
    assert!(paged.len() > 2);
}

/// Asks, and checks the answer against the schema of its status.
async fn check(
    server: &Server,
    document: &Value,
    method: &str,
    path: &str,
    with: &[&str],
    body: Option<&Value>,
) -> Value {
    let operation = &document["paths"][path][method];
    let mut real = path.to_owned();
    for value in with {
        let (start, end) = (real.find('{').unwrap(), real.find('}').unwrap());
        real.replace_range(start..=end, value);
    }
    if let Some(body) = body {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        fits(document, schema, &body.to_string(), path);
    }
    let (status, _, text) = ask(server, method, &real, body).await;
    assert!(status < 300, "{real}: {status} {text}");
    let schema = &operation["responses"][status.to_string()]["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{method} {path} does not describe {status}");
    fits(document, schema, &text, path)
}

/// The value, after it was found to fit.
fn fits(document: &Value, schema: &Value, text: &str, of: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap();
    let mut whole = schema.clone();
    whole["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&whole).unwrap();
    let wrong: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{of}: {wrong:?}\n{value:#}");
    value
}
