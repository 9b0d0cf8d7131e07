//! What other gateways and proxies get wrong, one test for each fault, as their users report them; docs/mcp-gateway.md has the list.
//!
//! The client is plain HTTP, so that nothing is repaired on the way; the server is made with the official SDK. That time over is no denial
//! and that a session survives a restart is in `gateway_calls.rs`, that nothing is lost with whatever dies in `gateway_killed.rs`.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_testkit::http::Http;
use standfast_testkit::{Process, text, until};
use tempfile::TempDir;

use super::gateway::{folder, serve};
use super::gateway_calls::{Client, hold, messages, ran, resolve, result, words};
use super::gateway_ladder::{Reading, meta, modern};
use super::over_http::{Program, listening};
use super::server::packages;

const VERSION: &str = "2025-06-18";

const RULES: &str = "policy:
  rules:
  - {id: talk, allow: [mcp__web__stream, mcp__web__ask, mcp__web__hang, mcp__web__change, mcp__web__answer], agent: gate}
";

struct World {
    folder: TempDir,
    /// The server, as a client reaches it without a gateway.
    direct: Http,
    port: u16,
    upstream: Option<Program>,
    _server: Process,
    http: Http,
}

fn talkative(folder: &TempDir, port: u16) -> Program {
    let mut command = Command::new("node");
    command.arg(packages().join("talkative.js")).arg(port.to_string()).arg(folder.path().join("place"));
    listening(command, port)
}

fn world() -> World {
    let port = standfast_testkit::free_port();
    let folder = folder(&format!("  web: {{url: 'http://127.0.0.1:{port}/mcp'}}\n"), RULES);
    let upstream = Some(talkative(&folder, port));
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let direct = Http::new(&format!("http://127.0.0.1:{port}"));
    World { folder, direct, port, upstream, _server: server, http }
}

/// The same client in front of the gateway, and in front of the server.
async fn both(world: &World, capabilities: &Value) -> [Client; 2] {
    let through = Client::hello(&world.http, "web", VERSION, capabilities.clone()).await;
    let mut direct =
        Client { http: world.direct.clone(), path: "/mcp".to_owned(), session: None, version: VERSION };
    let params = json!({"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": {"name": "plain", "version": "1"}});
    let hello = direct.ask(json!("hello"), "initialize", params).await;
    direct.session = Some(hello.headers["mcp-session-id"].to_str().unwrap().to_owned());
    direct.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    [through, direct]
}

fn call(id: &str, tool: &str, who: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": tool, "arguments": {"who": who}, "_meta": {"progressToken": format!("token of {who}"), "example/own": [1, {"a": null}]},
    }})
}

/// Annotations, icons, `_meta`, order and pages of lists are dropped or changed (context-forge#176, mcpjungle#149,
/// mcp-gateway-registry#237).
#[tokio::test]
async fn lists_keep_everything_that_is_said_of_a_tool() {
    let world = world();
    let [through, direct] = both(&world, &json!({})).await;
    for params in [json!({}), json!({"cursor": "two"})] {
        let expected = result(&direct.ask(json!(1), "tools/list", params.clone()).await);
        assert!(
            expected["tools"][0]["annotations"]["x-own"] == 1 && expected["tools"][0]["icons"].is_array(),
            "{expected}"
        );
        let seen = through.ask(json!(1), "tools/list", params).await;
        assert_eq!(result(&seen), expected);
        let names: Vec<&str> =
            expected["tools"].as_array().unwrap().iter().map(|tool| text(&tool["name"])).collect();
        assert!(!names.is_sorted(), "the test would see nothing: {names:?}");
    }
}

/// `_meta` and the token of progress do not arrive (mcp-proxy#189).
#[tokio::test]
async fn meta_of_a_call_and_of_its_result_pass() {
    let world = world();
    let [through, direct] = both(&world, &json!({})).await;
    let asked = call("a", "answer", "ann").to_string();
    let (seen, expected) = tokio::join!(through.say(&asked), direct.say(&asked));
    assert_eq!(result(&seen), result(&expected));
    let saw = &result(&seen)["_meta"]["saw"];
    assert_eq!(
        (&saw["progressToken"], &saw["example/own"]),
        (&json!("token of ann"), &json!([1, {"a": null}])),
        "{saw}"
    );
}

/// Answers are buffered to their end, so nothing streams (mcp-gateway-registry#1460).
#[tokio::test]
async fn what_comes_first_is_there_first() {
    let world = world();
    let [through, _] = both(&world, &json!({})).await;
    let mut reading = Reading::of(&through, &call("a", "stream", "ann")).await;
    let first = reading.until("notifications/progress").await;
    assert_eq!(
        (&first["params"]["message"], &first["params"]["progressToken"]),
        (&json!("first ann"), &json!("token of ann"))
    );
    assert_eq!(reading.until("notifications/message").await["params"]["data"], "ann");
    // Only now may it end.
    std::fs::write(world.folder.path().join("place/go.txt"), "").unwrap();
    let last = reading.next().await.unwrap();
    assert_eq!(last["result"]["content"][0]["text"], "stream ann", "{last}");
}

/// What a server asks back reaches nobody, or another client (litellm#23761, higress#3685, fastmcp#3172, #3408): two clients call at the
/// same time under the same ids, and each is asked its own.
#[tokio::test]
async fn a_server_asks_the_client_that_called() {
    let world = world();
    let able = json!({"sampling": {}});
    let ([one, _], [two, _]) = (both(&world, &able).await, both(&world, &able).await);
    let mut of_one = Reading::of(&one, &call("same", "ask", "one")).await;
    let mut of_two = Reading::of(&two, &call("same", "ask", "two")).await;
    let (first, second) =
        (of_one.until("sampling/createMessage").await, of_two.until("sampling/createMessage").await);
    let asked = |question: &Value| question["params"]["messages"][0]["content"]["text"].clone();
    assert_eq!((asked(&first), asked(&second)), (json!("one"), json!("two")));
    for (client, question, says) in [(&two, &second, "2"), (&one, &first, "1")] {
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {
            "model": "m", "role": "assistant", "content": {"type": "text", "text": says}}});
        assert_eq!(client.say(&answer.to_string()).await.status, 202);
    }
    for (reading, says) in [(&mut of_one, "1"), (&mut of_two, "2")] {
        let last = reading.next().await.unwrap();
        assert_eq!(
            (&last["id"], &last["result"]["content"][0]["text"]),
            (&json!("same"), &json!(says)),
            "{last}"
        );
    }
}

/// Notifications and cancellations are not forwarded (fastmcp#4161, ai-gateway#1619, Kuadrant#600), or to everybody.
#[tokio::test]
async fn notifications_reach_their_session_and_cancellations_the_server() {
    let world = world();
    let ([one, _], [two, _]) = (both(&world, &json!({})).await, both(&world, &json!({})).await);
    let (mut hears_one, mut hears_two) = (Reading::listening(&one).await, Reading::listening(&two).await);
    assert_eq!(words(&result(&one.say(&call("a", "change", "one").to_string()).await)), "change one");
    hears_one.until("notifications/tools/list_changed").await;
    assert_eq!(words(&result(&two.say(&call("b", "change", "two").to_string()).await)), "change two");
    let heard = hears_two.next().await.unwrap();
    assert_eq!(heard["method"], "notifications/tools/list_changed", "the first it hears is its own: {heard}");
    let mut hangs = Reading::of(&one, &call("c", "hang", "taken back")).await;
    hangs.until("notifications/progress").await;
    // Another client's cancellation of the same id is about nothing.
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c","reason":"enough"}}"#;
    assert_eq!(two.say(cancel).await.status, 202);
    assert_eq!(words(&result(&two.say(&call("d", "answer", "x").to_string()).await)), "answer x");
    let cancelled = world.folder.path().join("place/cancelled.txt");
    assert!(!cancelled.exists(), "it was somebody else's");
    assert_eq!(one.say(cancel).await.status, 202);
    until("the server hears it", || {
        std::fs::read_to_string(&cancelled).is_ok_and(|text| text == "taken back\n")
    });
}

/// After a restart of the server a client keeps a session that nobody knows, and hangs (mcp-proxy#149, neotoma#1750).
#[tokio::test]
async fn a_session_that_the_server_lost_is_said_to_be_lost() {
    let mut world = world();
    let [through, _] = both(&world, &json!({})).await;
    world.upstream = None;
    world.upstream = Some(talkative(&world.folder, world.port));
    for asked in [json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}), call("a", "answer", "ann")] {
        let lost = through.say(&asked.to_string()).await;
        assert_eq!(lost.status, 404, "a client that hears this begins a new session: {lost:?}");
    }
    let [again, _] = both(&world, &json!({})).await;
    assert_eq!(words(&result(&again.say(&call("a", "answer", "ann").to_string()).await)), "answer ann");
}

/// Prompts, resources and instructions are lost (agentgateway#1850, #692).
#[tokio::test]
async fn prompts_resources_and_instructions_are_there() {
    let world = world();
    let [through, direct] = both(&world, &json!({})).await;
    for (method, params) in [
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "p"})),
        ("resources/list", json!({})),
        ("resources/read", json!({"uri": "x://r"})),
    ] {
        let expected = result(&direct.ask(json!(1), method, params.clone()).await);
        assert_eq!(result(&through.ask(json!(1), method, params).await), expected, "{method}");
    }
    let params = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}});
    let fresh = Client { session: None, ..through };
    assert_eq!(result(&fresh.ask(json!(1), "initialize", params).await)["instructions"], "Be kind.");
}

/// Whoever routes by headers is told something else than whoever reads the body (agentgateway#3439): such a request is passed to nobody, a
/// `server/discover` too.
#[tokio::test]
async fn headers_and_body_say_the_same() {
    let asking = packages().join("asking.js").display().to_string();
    let folder = folder(&format!("  ask: {{command: node, args: ['{asking}', PLACE]}}\n"), "");
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let client = modern(&http, "ask");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta(&json!({}))}}).to_string();
    for (method, version, is_taken) in [
        ("server/discover", "2026-07-28", true),
        ("tools/list", "2026-07-28", false),
        ("server/discover", "2025-06-18", false),
    ] {
        let headers = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", version),
            ("mcp-method", method),
        ];
        let answer = http.send("POST", &client.path, &headers, &body).await;
        let said = messages(&answer).pop().unwrap();
        if is_taken {
            assert!(said["result"].is_object(), "{answer:?}");
        } else {
            assert_eq!((answer.status, &said["error"]["code"]), (400, &json!(-32020)), "{answer:?}");
        }
    }
}

/// A version of the protocol that nobody knows: whoever begins with it is answered with one that is known, by our own server and through a
/// gateway as directly; whoever goes on with it is refused, and told which one that was.
#[tokio::test]
async fn an_unknown_version_is_answered_with_a_known_one() {
    const UNKNOWN: &str = "1999-01-01";
    let world = world();
    let [through, direct] = both(&world, &json!({})).await;
    let own = Client { path: "/mcp".to_owned(), session: None, ..through.clone() };
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": UNKNOWN, "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}});
    let headers = [("accept", "application/json, text/event-stream"), ("content-type", "application/json")];
    for client in [&own, &direct, &through] {
        let answer = client.http.send("POST", &client.path, &headers, &hello.to_string()).await;
        let spoken = text(&result(&answer)["protocolVersion"]).to_owned();
        assert!(
            ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"].contains(&spoken.as_str()),
            "{answer:?}"
        );
        let odd = Client { version: UNKNOWN, ..client.clone() };
        let refused = odd.ask(json!(2), "tools/list", json!({})).await;
        assert!(refused.status == 400 && refused.text.contains(UNKNOWN), "{}: {refused:?}", client.path);
    }
}

/// What a server of its own heard, as it came, and what it answers to a call, byte for byte.
#[derive(Clone, Default)]
struct RawServer {
    heard: Arc<Mutex<Vec<String>>>,
}

/// What calls come to: numbers that no double is, and spaces of its own.
const RAW_RESULT: &str = r#"{"content":[{"type":"text","text":"ok"}],"structuredContent":{"big" : 9007199254740993.10,"huge":1.0e400,"zero":-0.0}}"#;

impl RawServer {
    /// Its address.
    async fn listen(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = |State(server): State<RawServer>, body: String| async move { server.answer(&body) };
        let routes = axum::Router::new().route("/mcp", axum::routing::post(answer)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        format!("http://127.0.0.1:{port}/mcp")
    }

    fn answer(&self, body: &str) -> (axum::http::StatusCode, [(&'static str, &'static str); 1], String) {
        let asked: BTreeMap<String, Box<RawValue>> = serde_json::from_str(body).unwrap();
        let method: String = serde_json::from_str(asked["method"].get()).unwrap();
        let result = match method.as_str() {
            "initialize" => {
                r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}"#
            }
            "tools/list" => {
                r#"{"tools":[{"name":"read","inputSchema":{"type":"object"}},{"name":"pay","inputSchema":{"type":"object"}}]}"#
            }
            "tools/call" => {
                self.heard.lock().unwrap().push(body.to_owned());
                RAW_RESULT
            }
            _ => "{}",
        };
        let json = [("content-type", "application/json")];
        match asked.get("id") {
            None => (axum::http::StatusCode::ACCEPTED, json, String::new()),
            Some(id) => {
                let said = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.get());
                (axum::http::StatusCode::OK, json, said)
            }
        }
    }
}

/// Numbers are read and written again, and lose digits (what the gateway's page promises, against a server that sees bytes): arguments of
/// a call that runs at once, and of one that a person approved, and results. Numbers that no double can hold keep theirs too.
#[tokio::test]
async fn numbers_keep_their_bytes() {
    let upstream = RawServer::default();
    let url = upstream.listen().await;
    let rules = "policy: {rules: [{id: reads, allow: mcp__raw__read, agent: gate}]}\n";
    let folder = folder(&format!("  raw: {{url: '{url}'}}\n"), rules);
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let client = Client::hello(&http, "raw", VERSION, json!({})).await;
    let arguments =
        r#"{"amount": 9007199254740993.10,"rate":1.0e400,"n":[-0,1E+2, 1e2,-7E999,12345678901234567890123]}"#;
    let at_once = client.call(1, "read", arguments).await;
    let waits = client.calls(2, "pay", arguments);
    let held = standfast_testkit::until_found("a hold", async || {
        let open = http.get("/api/v1/holds").await.text;
        let (_, id) = open.split_once("\"hold_")?;
        Some(json!({"id": format!("hold_{}", id.split_once('"')?.0)}))
    })
    .await;
    assert_eq!(upstream.heard.lock().unwrap().len(), 1, "the second one waits");
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    for answer in [at_once, waits.await.unwrap()] {
        assert!(answer.text.contains(RAW_RESULT.trim_start_matches('{').trim_end_matches('}')), "{answer:?}");
    }
    let heard = upstream.heard.lock().unwrap().clone();
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(heard.iter().all(|body| body.contains(arguments)), "{heard:?}");
}

/// An approval counts for a tool, or for a while, and not for these arguments (TrueFoundry; what ai-gateway#2073 asks for): every other
/// byte that means something else is another question.
#[tokio::test]
async fn an_approval_is_for_these_arguments() {
    let world = world();
    let [through, _] = both(&world, &json!({})).await;
    let approved = through.calls(1, "pay", r#"{"who":"ann","n":1.0}"#);
    resolve(&world.http, &hold(&world.http).await, json!({"resolution": "approve"})).await;
    assert!(words(&result(&approved.await.unwrap())).starts_with("pay ann"));
    for (id, arguments) in [
        (2, r#"{"who":"ann","n":1.00}"#),
        (3, r#"{"who":"ann","n":2}"#),
        (4, r#"{"who":"ann "}"#),
        (5, r#"{"who":"ann","n":1.0}"#),
    ] {
        let waits = through.calls(id, "pay", arguments);
        let asked = hold(&world.http).await;
        resolve(&world.http, &asked, json!({"resolution": "deny"})).await;
        let denied = tokio::time::timeout(Duration::from_secs(60), waits).await.unwrap().unwrap();
        assert!(words(&result(&denied)).contains("denied"), "{arguments}: {denied:?}");
    }
    assert_eq!(ran(&world.folder).len(), 1, "{:?}", ran(&world.folder));
}
