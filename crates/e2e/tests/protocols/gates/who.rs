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

/// Arguments that are no object (a framework hands on what its model wrote, which may be no JSON) are held although a rule allows the
/// tool, and denied where one denies it.
#[tokio::test]
async fn arguments_that_no_rule_can_look_at_are_held() {
    let (_folder, server) = plain();
    let opened = async |tool: &str, arguments: Value| {
        let call = format!("{tool} {arguments}");
        let gate = json!({"tool": tool, "arguments": arguments, "agent": "a", "session": "s", "call": call});
        text(&server.open(&gate).await["state"]).to_owned()
    };
    assert_eq!(opened("look_up", json!({"id": 1})).await, "allowed");
    for arguments in [json!("{\"id\": 1"), json!([1]), json!(1), Value::Null] {
        assert_eq!(opened("look_up", arguments.clone()).await, "held", "{arguments}");
        assert_eq!(opened("drop_table", arguments).await, "denied");
    }
    let hold = server.open_holds().await[0].clone();
    let asked = server.http.get(&format!("/api/v1/runs/{}/events", text(&hold["run"]))).await.text;
    assert!(asked.contains("are not a JSON object"), "approvers are told: {asked}");
}

/// A rule that two people must agree to: one vote changes nothing, the second one lets the call run, and the receipt names both. The
/// key of the agent has no vote.
#[tokio::test]
async fn two_people_agree_about_a_gate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("standfast.yaml");
    let rules =
        "policy: {rules: [{id: two, hold: send_refund, agent: gate, approvers: ['group:ops'], quorum: 2}]}\n";
    std::fs::write(&file, rules).unwrap();
    let data = tempfile::tempdir().unwrap();
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--auth", "keys", "--config"]).arg(&file);
    command.arg("--data").arg(data.path());
    let server = Guarded { program: standfast_testkit::start(command.env("RUST_LOG", "warn")), data };
    let agent = server.key(&["--user", "ann", "--scope", "gates:open"]);
    let [bob, cy] = ["bob", "cy"].map(|user| server.key(&["--user", user, "--group", "ops"]));
    let gate = agent.post("/api/v1/gates", &refund("c")).await;
    assert_eq!(gate.status, 202, "{gate:?}");
    let gate = gate.body;
    let own = format!("/api/v1/gates/{}", text(&gate["gate"]));
    let resolve = format!("/api/v1/holds/{}/resolve", text(&gate["hold"]));
    let yes = json!({"resolution": "approve", "digest": gate["digest"]});
    for _ in 0..2 {
        let vote = bob.post(&resolve, &yes).await;
        assert!([200, 202, 409].contains(&vote.status), "{vote:?}");
        assert_eq!(agent.get(&own).await.body["state"], "held", "one person counts once");
    }
    let early = agent.post(&format!("{own}/start"), &json!({"digest": gate["digest"]})).await;
    assert_eq!(early.status, 409, "{early:?}");
    let vote = cy.post(&resolve, &yes).await;
    assert_eq!(vote.status, 200, "{vote:?}");
    assert_eq!(agent.get(&own).await.body["state"], "allowed");
    let started = agent.post(&format!("{own}/start"), &json!({"digest": gate["digest"]})).await;
    assert_eq!(started.status, 200, "{started:?}");
    let done = agent.post(&format!("{own}/outcome"), &json!({"status": "succeeded", "result": "paid"})).await;
    assert_eq!(done.status, 200, "{done:?}");
    let receipts = bob.get(&format!("/api/v1/holds/{}/receipt", text(&gate["hold"]))).await;
    assert_eq!(receipts.status, 200, "{receipts:?}");
    assert!(receipts.text.contains("bob") && receipts.text.contains("cy"), "{receipts:?}");
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

/// Numbers that no double holds come back as they were sent: where a gate is opened, with a schema too, where somebody edits, and in a
/// hook. A digest is of the text.
#[tokio::test]
async fn numbers_keep_their_digits() {
    let (_folder, server) = plain();
    let headers = [("content-type", "application/json")];
    let send = async |path: &str, body: &str| server.http.send("POST", path, &headers, body).await;
    let numbers = r#"{"big":9007199254740993,"huge":1e400,"least":-2.5E-400,"long":0.1000000000000000055511151231257827,"i":123456789012345678901234567890}"#;
    let body = format!(
        r#"{{"tool":"send_refund","agent":"billing","session":"s","call":"c","arguments":{numbers},
           "arguments_schema":{{"type":"object","properties":{{"huge":{{"type":"number"}},"i":{{"type":"integer"}}}}}}}}"#
    );
    let opened = send("/api/v1/gates", &body).await;
    assert_eq!(opened.status, 202, "{opened:?}");
    assert!(opened.text.contains(numbers), "{}", opened.text);
    let again = send("/api/v1/gates", &body.replace("1e400", "1e401")).await;
    let (first, second) =
        opened.text.split_once("\"digest\":").zip(again.text.split_once("\"digest\":")).unwrap();
    assert_ne!(first.1.split_once(',').unwrap().0, second.1.split_once(',').unwrap().0);
    let hold = opened.text.split_once("\"hold\":\"").unwrap().1.split_once('"').unwrap().0.to_owned();
    let page = server.http.get(&format!("/approve/{hold}")).await;
    assert!(page.status == 200 && page.text.contains("1e400"), "{}", page.text);
    let edited = numbers.replace("1e400", "-7e500");
    let resolve = format!("/api/v1/holds/{hold}/resolve");
    let wrong = send(&resolve, r#"{"resolution":"approve","arguments":{"huge":"1e400"}}"#).await;
    assert_eq!(wrong.status, 422, "{wrong:?}");
    let resolved = send(&resolve, &format!(r#"{{"resolution":"approve","arguments":{edited}}}"#)).await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
    let gate = opened.text.split_once("\"gate\":\"").unwrap().1.split_once('"').unwrap().0;
    let allowed = server.http.get(&format!("/api/v1/gates/{gate}")).await;
    assert!(allowed.text.contains(&edited) && allowed.text.contains("\"allowed\""), "{}", allowed.text);
    let event = format!(
        r#"{{"session_id":"n","hook_event_name":"PreToolUse","tool_name":"look_up","tool_use_id":"t","tool_input":{numbers}}}"#
    );
    let hooked = send("/hooks/claude-code?wait=0", &event).await;
    assert!(hooked.status == 200 && hooked.text.contains("\"allow\""), "{hooked:?}");
}
