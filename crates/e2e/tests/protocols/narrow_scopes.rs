//! Scopes with a name: what a key is for one agent, one inbox or one gateway, on every surface, and what it hears about the others.
//!
//! The one rule: what a credential does not show is not there, and what it shows and is not for is refused with the scope that is
//! missing. Who may decide with which key is `who_decides.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use standfast_testkit::{Http, Process, folder, serve, standfast, text};
use tempfile::TempDir;

const SCRIPT: &str =
    "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: A}}]\n- text: done\n";

const CONFIG: &str = "session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
server: {auth: {api_keys: true}}
tools: {write_file: {requires_approval: true}}
agents:
  one: {llm: s, tools: [write_file], session_store: db, inboxes: [one], task: {}}
  two: {llm: s, tools: [write_file], session_store: db, inboxes: [two], task: {}}
";

struct Site {
    folder: TempDir,
    server: Process,
}

impl Site {
    fn new() -> Site {
        let folder = folder(&[("s", SCRIPT)], CONFIG);
        let server = serve(folder.path());
        Site { folder, server }
    }

    /// Ann with a key for this.
    fn ann(&self, scopes: &[&str]) -> Http {
        let mut command = standfast();
        command.args(["keys", "create", "--user", "ann"]);
        command.args(scopes.iter().flat_map(|scope| ["--scope", scope]));
        command.arg("--config").arg(self.folder.path().join("standfast.yaml"));
        let made = command.arg("--data").arg(self.folder.path().join("data")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Http::new(&self.server.base).with_key(String::from_utf8(made.stdout).unwrap().trim())
    }
}

/// A run of hers that waits, and its hold.
async fn held(ann: &Http, agent: &str) -> (String, String) {
    let body = json!({"input": "please", "wait": "settled", "session": format!("s-{agent}")});
    let run = ann.post(&format!("/api/v1/agents/{agent}/runs"), &body).await;
    assert_eq!(run.body["status"], "held", "{run:?}");
    (text(&run.body["id"]).to_owned(), text(&run.body["holds"][0]["id"]).to_owned())
}

/// What reads, writes and decides of one agent on every surface: the name, the method, the address, the body.
fn requests(agent: &str, run: &str, hold: &str) -> Vec<(&'static str, &'static str, String, Value)> {
    let message =
        |data: Value| json!({"messageId": "m-1", "role": "ROLE_USER", "taskId": run, "parts": [data]});
    let decision = || message(json!({"data": {"decision": "deny", "hold_id": hold}}));
    let older = json!({"messageId": "m-2", "role": "user", "kind": "message", "taskId": run,
        "parts": [{"kind": "data", "data": {"decision": "deny", "hold_id": hold}}]});
    let rpc =
        |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let agents = format!("/v1/agents/{agent}");
    vec![
        ("reads", "GET", format!("/api/v1/agents/{agent}"), Value::Null),
        ("reads", "GET", format!("/api/v1/runs/{run}"), Value::Null),
        ("reads", "GET", format!("/api/v1/holds/{hold}"), Value::Null),
        ("reads", "GET", format!("/api/v1/sessions/s-{agent}"), Value::Null),
        ("reads", "GET", format!("{agents}/tasks/{run}"), Value::Null),
        ("reads", "POST", agents.clone(), rpc("GetTask", json!({"id": run}))),
        ("reads", "GET", format!("/runs/{run}"), Value::Null),
        ("reads", "GET", format!("/approve/{hold}"), Value::Null),
        ("starts", "POST", format!("/api/v1/agents/{agent}/runs"), json!({"input": "more"})),
        ("writes", "POST", format!("/api/v1/runs/{run}/messages"), json!({"input": "more"})),
        ("starts", "POST", format!("/api/inboxes/{agent}/tasks"), json!({"type": "t", "payload": 1})),
        (
            "starts",
            "POST",
            format!("/tealagents/v1alpha1/{agent}"),
            json!({"items": [{"content_type": "text", "content": "please"}]}),
        ),
        (
            "starts",
            "POST",
            format!("{agents}/message:send"),
            json!({"message": {"messageId": "m-3", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}),
        ),
        ("decides", "POST", format!("{agents}/message:send"), json!({"message": decision()})),
        ("decides", "POST", agents.clone(), rpc("SendMessage", json!({"message": decision()}))),
        ("decides", "POST", agents, rpc("message/send", json!({"message": older}))),
        ("decides", "POST", format!("/api/v1/holds/{hold}/assign"), json!({"to": "bob"})),
        ("decides", "POST", format!("/api/v1/holds/{hold}/resolve"), json!({"resolution": "deny"})),
        ("writes", "POST", format!("/api/v1/runs/{run}/cancel"), json!({})),
    ]
}

/// Lets somebody ask; whether it was refused, and what they heard.
async fn ask(who: &Http, method: &str, path: &str, body: &Value) -> (bool, u16, String) {
    let version = if body["method"] == "message/send" { "0.3" } else { "1.0" };
    let headers = [("a2a-version", version), ("accept", "application/json, text/event-stream")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = who.send(method, path, &headers, &body).await;
    let is_refused =
        answer.status >= 400 || answer.text.contains("\"error\"") || answer.text.contains("\"isError\":true");
    (is_refused, answer.status, answer.text)
}

/// T13, T15: of nineteen requests on all surfaces, a key for one agent is refused each one about the other agent, though both runs are
/// its owner's, and nothing changes there; with the same key for the other agent the requests work. What the lists show is what it is for.
#[tokio::test]
async fn t13_a_key_for_one_agent_does_nothing_with_another_on_any_surface() {
    let site = Site::new();
    let ann = site.ann(&[]);
    let (run, hold) = held(&ann, "two").await;
    let path = format!("/api/v1/runs/{run}");
    let before = ann.get(&path).await.body;
    let of = |agent: &str| {
        ["runs:read", "runs:write", "holds:decide"].map(|scope| format!("{scope}:{agent}")).to_vec()
    };
    let (one, two) = (of("one"), of("two"));
    let key = |scopes: &[String]| site.ann(&scopes.iter().map(String::as_str).collect::<Vec<_>>());
    let (one, two) = (key(&one), key(&two));
    held(&one, "one").await;
    let mut wrong = Vec::new();
    for (what, method, path, body) in requests("two", &run, &hold) {
        let (is_refused, status, said) = ask(&one, method, &path, &body).await;
        if !is_refused || said.contains("a.txt") {
            wrong.push(format!("{what}: {method} {path} {}: {status} {said}", body["method"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(ann.get(&path).await.body, before);
    for (list, of) in [("runs", "runs"), ("holds", "holds"), ("sessions", "sessions")] {
        let listed = one.get(&format!("/api/v1/{list}")).await.body;
        let agents: Vec<&str> =
            listed[of].as_array().unwrap().iter().map(|item| text(&item["agent"])).collect();
        assert!(!agents.is_empty() && agents.iter().all(|agent| *agent == "one"), "{list}: {agents:?}");
    }
    let named = |listed: &Value| {
        listed["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| text(&one["name"]).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(named(&one.get("/api/v1/agents").await.body), ["one"]);
    // The other way round: what the key is for works.
    for (what, method, path, body) in requests("two", &run, &hold) {
        if matches!(what, "reads" | "starts") {
            let (is_refused, status, said) = ask(&two, method, &path, &body).await;
            assert!(!is_refused, "{what}: {method} {path} {}: {status} {said}", body["method"]);
        }
    }
    let decided = two.post(&format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "deny"})).await;
    assert!(decided.status < 300, "{decided:?}");
}

/// T13: whoever may look at an agent and is not to change it hears which scope is missing, on every surface that has a word for it.
#[tokio::test]
async fn t13_the_scope_that_is_missing_is_named_with_its_agent() {
    let site = Site::new();
    let ann = site.ann(&[]);
    let (run, hold) = held(&ann, "two").await;
    let key = site.ann(&["runs:read", "runs:write:one", "holds:decide:one"]);
    let mut named = 0;
    for (what, method, path, body) in requests("two", &run, &hold) {
        let missing = match what {
            "writes" | "starts" => "runs:write:two",
            "decides" => "holds:decide:two",
            _ => continue,
        };
        let (is_refused, status, said) = ask(&key, method, &path, &body).await;
        assert!(
            is_refused && said.contains(missing),
            "{what}: {method} {path} {}: {status} {said}",
            body["method"]
        );
        named += 1;
    }
    assert_eq!(named, 11);
    let refused = key.post(&format!("/api/v1/holds/{hold}/resolve"), &json!({"resolution": "deny"})).await;
    assert_eq!((refused.status, &refused.body["scope"]), (403, &json!("holds:decide:two")), "{refused:?}");
    let shown = key.get(&format!("/api/v1/holds/{hold}")).await.body;
    assert_eq!(shown["may_decide"], false, "{shown}");
    assert_eq!(ann.get(&format!("/api/v1/runs/{run}")).await.body["status"], "held");
}

/// T13: a key that opens gates at one gateway opens them nowhere else: not at another gateway, not by the API, a hook or the desk.
#[tokio::test]
async fn t13_a_key_for_one_gateway_opens_no_other_gates() {
    let site = Site::new();
    let key = site.ann(&["gates:open:jira"]);
    let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    let (_, status, said) = ask(&key, "POST", "/mcp/github", &rpc).await;
    assert!(status == 403 && said.contains("gates:open:github"), "{status} {said}");
    assert_eq!(ask(&key, "POST", "/mcp/jira", &rpc).await.1, 404, "it may, and there is none of this name");
    let gate = json!({"tool": "deploy", "arguments": {}, "agent": "a", "session": "s", "call": "c"});
    let event = json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}, "session_id": "s", "tool_use_id": "c"});
    for (path, body) in [("/api/v1/gates", gate), ("/hooks/claude-code", event)] {
        let (_, status, said) = ask(&key, "POST", path, &body).await;
        assert!(status == 403 && said.contains("gates:open"), "{path}: {status} {said}");
    }
}
