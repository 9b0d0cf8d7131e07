//! Whose gate it is, who decides, and what bad input gets.

use serde_json::{Value, json};
use standfast_testkit::http::Http;
use standfast_testkit::{Process, text};

use super::{Gates, plain, refund};

struct Guarded {
    program: Process,
    data: tempfile::TempDir,
}

impl Guarded {
    fn key(&self, arguments: &[&str]) -> Http {
        let mut command = standfast_testkit::standfast();
        let made =
            command.args(["keys", "create"]).args(arguments).arg("--data").arg(self.data.path()).output();
        let key = String::from_utf8(made.unwrap().stdout).unwrap().trim().to_owned();
        Http::new(&self.program.base).with_key(&key)
    }
}

fn guarded() -> Guarded {
    let data = tempfile::tempdir().unwrap();
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--auth", "keys", "--data"]).arg(data.path());
    Guarded { program: standfast_testkit::start(command.env("RUST_LOG", "warn")), data }
}

/// The key of an agent opens gates and never decides, whatever else it has; its owner decides with their own key; for strangers
/// a gate does not exist, and the same call of another caller is another gate.
#[tokio::test]
async fn an_agents_key_never_decides() {
    let server = guarded();
    let ann = server.key(&["--user", "ann"]);
    let agent = server.key(&["--user", "ann", "--scope", "gates:open"]);
    let greedy = server.key(&[
        "--user",
        "ann",
        "--scope",
        "gates:open",
        "--scope",
        "holds:decide",
        "--scope",
        "admin",
    ]);
    let other = server.key(&["--user", "eve", "--scope", "gates:open"]);
    let refused = ann.post("/api/v1/gates", &refund("c")).await;
    assert_eq!((refused.status, &refused.body["scope"]), (403, &json!("gates:open")), "{refused:?}");
    let gate = agent.post("/api/v1/gates", &refund("c")).await;
    assert_eq!(gate.status, 202, "{gate:?}");
    let gate = gate.body;
    let resolve = format!("/api/v1/holds/{}/resolve", text(&gate["hold"]));
    for key in [&agent, &greedy] {
        let refused = key.post(&resolve, &json!({"resolution": "approve"})).await;
        assert_eq!((refused.status, &refused.body["scope"]), (403, &json!("holds:decide")), "{refused:?}");
    }
    let own = format!("/api/v1/gates/{}", text(&gate["gate"]));
    assert_eq!(other.get(&own).await.status, 404);
    for verb in ["start", "outcome", "withdraw"] {
        let body = json!({"digest": gate["digest"], "status": "succeeded"});
        let body = match verb {
            "start" => json!({"digest": body["digest"]}),
            "outcome" => json!({"status": "succeeded"}),
            _ => json!({}),
        };
        assert_eq!(other.post(&format!("{own}/{verb}"), &body).await.status, 404, "{verb}");
    }
    let others = other.post("/api/v1/gates", &refund("c")).await.body;
    assert_ne!(others["gate"], gate["gate"], "another caller");
    assert_eq!(agent.get(&own).await.body["state"], "held");
    assert_eq!(ann.post(&resolve, &json!({"resolution": "approve"})).await.status, 200);
    assert_eq!(agent.get(&own).await.body["decision"]["by"], "person:ann");
    let start = json!({"digest": gate["digest"]});
    assert_eq!(ann.post(&format!("{own}/start"), &start).await.status, 403, "a person's key runs nothing");
    assert_eq!(agent.post(&format!("{own}/start"), &start).await.status, 200);
}

/// Every mistake is named, with what would be right; nothing is stored.
#[tokio::test]
async fn mistakes_are_named() {
    let (_folder, server) = plain();
    let with = |field: &str, value: Value| {
        let mut body = refund("c");
        body[field] = value;
        body
    };
    for (body, status, says) in [
        (json!({}), 422, "missing field `tool`"),
        (with("tool", json!("")), 422, "tool:"),
        (with("tool", json!(7)), 422, "invalid type"),
        (with("session", json!("")), 422, "session:"),
        (with("call", json!("")), 422, "call: must have 1 to 512 characters"),
        (with("call", json!("x".repeat(513))), 422, "call: must have 1 to 512 characters"),
        (with("agent", json!("")), 422, "agent:"),
        (with("arguments_schema", json!("x")), 422, "arguments_schema:"),
        (with("deadline", json!("tomorrow")), 422, "deadline: must be an instant such as"),
        (with("on_deadline", json!("approve")), 422, "unknown variant `approve`"),
        (with("context", json!([{"picture": "x"}])), 422, "unknown field `picture`"),
        (with("callback", json!({"url": "http://x"})), 422, "callback: \"http://x\" is not https"),
        (with("call_back", json!({"url": "https://x"})), 422, "unknown field `call_back`"),
    ] {
        let refused = server.http.post("/api/v1/gates", &body).await;
        assert_eq!(refused.status, status, "{body}: {refused:?}");
        assert!(text(&refused.body["detail"]).contains(says), "{body}: {refused:?}");
    }
    let broken = server.http.send("POST", "/api/v1/gates", &[], "{\"tool\": ").await;
    assert_eq!(broken.status, 400, "{broken:?}");
    let deep = format!(
        r#"{{"tool": "t", "agent": "a", "session": "s", "call": "c", "arguments": {}1{}}}"#,
        "[".repeat(500),
        "]".repeat(500)
    );
    assert_eq!(server.http.send("POST", "/api/v1/gates", &[], &deep).await.status, 400);
    assert!(server.open_holds().await.is_empty());
    let schema = with("arguments_schema", json!({"type": "object", "required": ["iban"]}));
    let misfit = server.open(&schema).await;
    assert_eq!(misfit["state"], "denied", "{misfit}");
    assert!(text(&misfit["model_text"]).contains("do not match the tool's schema"), "{misfit}");
    let gate = server.open(&refund("c")).await;
    for (verb, body, status) in [
        ("start", json!({}), 422),
        ("start", json!({"digest": "x"}), 422),
        ("outcome", json!({"status": "fine"}), 422),
        ("outcome", json!({"status": "succeeded", "error": "x"}), 422),
        ("outcome", json!({"status": "succeeded"}), 409),
        ("outcome", json!({"attempt": 7, "status": "failed"}), 409),
        ("withdraw", json!({"reason": "bored"}), 422),
    ] {
        let refused = server.verb(&gate, verb, &body).await;
        assert_eq!(refused.status, status, "{verb} {body}: {refused:?}");
    }
    for path in ["/api/v1/gates/x", "/api/v1/gates/run_06d3yrjm020030qa6qkvg0r40m"] {
        assert_eq!(server.http.get(path).await.status, 404, "{path}");
    }
    let run = server.http.post("/api/v1/agents/gate/runs", &json!({"input": "hello"})).await;
    assert_eq!(
        (run.status, &run.body["type"]),
        (404, &json!("urn:standfast:problem:no-such-agent")),
        "{run:?}"
    );
}
