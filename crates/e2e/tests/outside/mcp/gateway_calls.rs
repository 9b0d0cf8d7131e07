//! Calls through a gateway that a person decides about, and everything that dies meanwhile: the gateway, the client, the server.
//!
//! The client is plain HTTP, so that messages are compared as they are. Servers are made with the official SDKs: a program and one
//! over HTTP.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::http::{Answer, Http};
use standfast_testkit::{text, until};
use tempfile::TempDir;

use super::gateway::{RULES, folder, serve};
use super::over_http::{Program, listening};
use super::server::packages;

/// A gateway's client.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) http: Http,
    pub(crate) path: String,
    pub(crate) session: Option<String>,
    pub(crate) version: &'static str,
}

/// The messages of an answer, one body or a stream.
pub(crate) fn messages(answer: &Answer) -> Vec<Value> {
    if answer.text.trim_start().starts_with('{') {
        return vec![serde_json::from_str(&answer.text).unwrap()];
    }
    let data = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The result that an answer ends with.
pub(crate) fn result(answer: &Answer) -> Value {
    let last = messages(answer).pop().unwrap_or_else(|| panic!("{answer:?}"));
    assert!(last["result"].is_object(), "{last}");
    last["result"].clone()
}

pub(crate) fn words(result: &Value) -> String {
    text(&result["content"][0]["text"]).to_owned()
}

impl Client {
    /// A client with these capabilities, in a session.
    pub(crate) async fn hello(
        http: &Http,
        gateway: &str,
        version: &'static str,
        capabilities: Value,
    ) -> Client {
        let path = format!("/mcp/{gateway}");
        let mut client = Client { http: http.clone(), path, session: None, version };
        let params = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "plain", "version": "1"}});
        let hello = client.ask(json!("hello"), "initialize", params).await;
        assert!(result(&hello)["serverInfo"].is_object(), "{hello:?}");
        client.session = Some(hello.headers["mcp-session-id"].to_str().unwrap().to_owned());
        let ready =
            client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await;
        assert_eq!(ready.status, 202, "{ready:?}");
        client
    }

    pub(crate) async fn say(&self, body: &str) -> Answer {
        let mut headers = vec![
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", self.version),
        ];
        headers.extend(self.session.as_deref().map(|session| ("mcp-session-id", session)));
        // Clients without sessions say in headers too what they ask for.
        let said: Value = serde_json::from_str(body).unwrap_or_default();
        if self.session.is_none() {
            headers.extend(said["method"].as_str().map(|method| ("mcp-method", method)));
            headers.extend(said["params"]["name"].as_str().map(|name| ("mcp-name", name)));
        }
        self.http.send("POST", &self.path, &headers, body).await
    }

    pub(crate) async fn ask(&self, id: Value, method: &str, params: Value) -> Answer {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()).await
    }

    /// Calls a tool; its arguments are sent as they are written.
    pub(crate) async fn call(&self, id: u32, tool: &str, arguments: &str) -> Answer {
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":"t{id}"}}}}}}"#
        ))
        .await
    }

    /// The same without waiting for it.
    pub(crate) fn calls(&self, id: u32, tool: &str, arguments: &str) -> tokio::task::JoinHandle<Answer> {
        let (client, tool, arguments) = (self.clone(), tool.to_owned(), arguments.to_owned());
        tokio::spawn(async move { client.call(id, &tool, &arguments).await })
    }
}

pub(crate) fn ran(folder: &TempDir) -> Vec<String> {
    let file = folder.path().join("place/ran.txt");
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The one hold that is open.
pub(crate) async fn hold(http: &Http) -> Value {
    for _ in 0..600 {
        let open = http.get("/api/v1/holds").await.body["holds"].clone();
        if let Some([one]) = open.as_array().map(Vec::as_slice) {
            return one.clone();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nothing is held")
}

pub(crate) async fn resolve(http: &Http, hold: &Value, body: Value) {
    let answer = http.post(&format!("/api/v1/holds/{}/resolve", text(&hold["id"])), &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

pub(crate) fn upstream(folder: &TempDir, port: u16) -> Program {
    let mut command = Command::new("node");
    command.arg(packages().join("upstream.js")).arg(port.to_string()).arg(folder.path().join("place"));
    listening(command, port)
}

/// One gateway over HTTP and one with a program.
fn two_gateways(port: u16, more: &str) -> TempDir {
    let gateways = format!(
        "  web: {{url: 'http://127.0.0.1:{port}/mcp', headers: {{Authorization: 'Bearer of-the-gateway'}}{more}}}\n  \
         local: {{command: node, args: [UNRULY, PLACE]{more}}}\n"
    );
    folder(&gateways, RULES)
}

const OLD: &str = "2025-06-18";

/// A call waits for a person, who sees exactly its arguments; the client hears that it waits. Approved, it runs once, and the outcome
/// is on its receipt; edited, it runs as it was edited; denied, it does not run; taken back, it does not run afterwards.
#[tokio::test]
async fn a_held_call_is_decided_and_runs_once() {
    let port = standfast_testkit::free_port();
    let folder = two_gateways(port, "");
    let _upstream = upstream(&folder, port);
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    for gateway in ["web", "local"] {
        drop(std::fs::remove_file(folder.path().join("place/ran.txt")));
        let client = Client::hello(&http, gateway, OLD, json!({})).await;
        client.ask(json!(0), "tools/list", json!({})).await;
        let waits = client.calls(1, "write", r#"{"how": "one", "n": 9007199254740993}"#);
        let held = hold(&http).await;
        let shown = http.get(&format!("/api/v1/holds/{}", text(&held["id"]))).await;
        assert!(
            shown.text.contains("9007199254740993") && shown.text.contains(&format!("mcp__{gateway}__write")),
            "{shown:?}"
        );
        assert!(ran(&folder).is_empty());
        // Meanwhile everything else goes on.
        let read = client.call(2, "read", r#"{"n": 1.50}"#).await;
        assert_eq!(words(&result(&read)), "read undefined 1.5");
        resolve(&http, &held, json!({"resolution": "approve"})).await;
        let answer = waits.await.unwrap();
        let heard = messages(&answer);
        assert_eq!(heard[0]["params"]["progressToken"], "t1", "{heard:?}");
        assert!(text(&heard[0]["params"]["message"]).contains("/approve/"), "{heard:?}");
        assert!(words(&result(&answer)).starts_with("write one"), "{answer:?}");
        assert_eq!(ran(&folder), ["one"]);

        let waits = client.calls(3, "write", r#"{"how": "two"}"#);
        let held = hold(&http).await;
        resolve(&http, &held, json!({"resolution": "approve", "arguments": {"how": "changed"}})).await;
        assert!(words(&result(&waits.await.unwrap())).starts_with("write changed"));

        let waits = client.calls(4, "write", r#"{"how": "three"}"#);
        resolve(&http, &hold(&http).await, json!({"resolution": "deny", "reason": "not on a Friday"})).await;
        let denied = result(&waits.await.unwrap());
        assert!(denied["isError"] == true && words(&denied).contains("not on a Friday"), "{denied}");
        // The same again is not asked about again.
        assert!(words(&result(&client.call(5, "write", r#"{"how": "three"}"#).await)).contains("denied"));

        // Two at once are one wish, and run once; both get the result.
        let twice = [6, 7].map(|id| client.calls(id, "write", r#"{"how": "both"}"#));
        resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
        for waits in twice {
            assert!(words(&result(&waits.await.unwrap())).starts_with("write both"));
        }

        let waits = client.calls(8, "write", r#"{"how": "back"}"#);
        let held = hold(&http).await;
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}});
        assert_eq!(client.say(&cancel.to_string()).await.status, 202);
        let ended = waits.await.unwrap();
        assert!(messages(&ended).iter().all(|message| message.get("result").is_none()), "{ended:?}");
        resolve(&http, &held, json!({"resolution": "approve"})).await;
        let again = result(&client.call(9, "read", "{}").await);
        assert!(again["isError"] != true && ran(&folder) == ["one", "changed", "both"], "{:?}", ran(&folder));
        // The next repeat of it runs it.
        assert!(
            words(&result(&client.call(10, "write", r#"{"how": "back"}"#).await)).starts_with("write back")
        );
        let gates = http.get("/api/v1/runs").await.text;
        assert!(!gates.contains("outcome_unknown"), "{gates}");
    }
}

/// What two readers could read differently reaches nobody, and headers must say what the body says.
#[tokio::test]
async fn what_cannot_be_judged_is_not_passed_on() {
    let port = standfast_testkit::free_port();
    let folder = two_gateways(port, "");
    let _upstream = upstream(&folder, port);
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    for gateway in ["web", "local"] {
        let client = Client::hello(&http, gateway, OLD, json!({})).await;
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"how":"in"}}}"#;
        for (body, code) in [
            (format!("[{call}]"), -32600),
            (format!("{call}{call}"), -32700),
            (call.replace("\"id\":1,", "\"id\":1,\"method\":\"ping\","), -32700),
            (call.replace("\"id\":1,", ""), -32600),
            ("not JSON".to_owned(), -32700),
        ] {
            let refused = client.say(&body).await;
            assert_eq!(
                (refused.status, &refused.body["error"]["code"]),
                (400, &json!(code)),
                "{body} {refused:?}"
            );
        }
        let twice = result(&client.call(2, "write", r#"{"how":"a","how":"b"}"#).await);
        assert!(words(&twice).starts_with("Not executed"), "{twice}");
        let session = client.session.clone().unwrap();
        for (header, value) in [
            ("mcp-method", "ping"),
            ("mcp-name", "read"),
            // The same in base64, and behind the right one.
            ("mcp-name", "=?base64?cmVhZA==?="),
            ("mcp-name", "=?base64?!?="),
            ("mcp-param-how", "out"),
            ("mcp-param-how", "=?base64?b3V0?="),
        ] {
            let headers = [
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("mcp-session-id", session.as_str()),
                ("mcp-name", "write"),
                ("mcp-param-how", "in"),
                (header, value),
            ];
            let refused = http.send("POST", &client.path, &headers, call).await;
            assert_eq!(
                (refused.status, &refused.body["error"]["code"]),
                (400, &json!(-32020)),
                "{refused:?}"
            );
        }
        let stranger = Client { session: Some("somebody-elses".to_owned()), ..client.clone() };
        assert_eq!(stranger.ask(json!(1), "tools/list", json!({})).await.status, 404);
    }
    assert!(ran(&folder).is_empty());
    assert_eq!(
        http.send("POST", "/mcp/nothing", &[("content-type", "application/json")], "{}").await.status,
        404
    );
}

/// Nobody decides in time: the model is told to come back. The gateway is killed while the call waits once more; then somebody
/// approves. The client's session at the server goes on as it was, and the same call runs once, with one question asked in all.
#[tokio::test]
async fn a_repeat_finds_its_decision_after_the_gateway_was_killed() {
    let port = standfast_testkit::free_port();
    let folder = two_gateways(port, ", wait: 1s");
    let _upstream = upstream(&folder, port);
    let address = format!("127.0.0.1:{}", standfast_testkit::free_port());
    for gateway in ["web", "local"] {
        drop(std::fs::remove_file(folder.path().join("place/ran.txt")));
        let (server, http) = serve(&folder, &address);
        let client = Client::hello(&http, gateway, OLD, json!({})).await;
        let waits = result(&client.call(1, "write", r#"{"how":"later"}"#).await);
        assert!(words(&waits).starts_with("Not executed.") && words(&waits).contains("/approve/"), "{waits}");
        let gate = text(&waits["_meta"]["standfast/gate"]).to_owned();
        let held = hold(&http).await;
        drop(server);
        let (_server, http) = serve(&folder, &address);
        resolve(&http, &held, json!({"resolution": "approve"})).await;
        assert!(ran(&folder).is_empty(), "nothing runs that nobody waits for");
        let client = match gateway {
            // The server knows its session, and so does the gateway.
            "web" => Client { http: http.clone(), ..client },
            _ => {
                let gone = Client { http: http.clone(), ..client }.ask(json!(1), "ping", json!({})).await;
                assert_eq!(gone.status, 404, "a client that hears this begins a new session");
                Client::hello(&http, gateway, OLD, json!({})).await
            }
        };
        let answer = client.call(2, "write", r#"{"how":"later"}"#).await;
        assert!(words(&result(&answer)).starts_with("write later"), "{answer:?}");
        assert_eq!(ran(&folder), ["later"]);
        let shown = http.get(&format!("/api/v1/gates/{gate}")).await.body;
        assert_eq!((&shown["state"], &shown["attempt"]), (&json!("done"), &json!(1)), "{shown}");
        // Once more is a new wish, and a new question.
        client.call(3, "write", r#"{"how":"later"}"#).await;
        let other = hold(&http).await;
        assert_ne!(other["id"], held["id"]);
        resolve(&http, &other, json!({"resolution": "deny"})).await;
    }
}

/// A client dies while its call waits: the approval is there for the next who makes the same call. One dies while its call runs: the
/// call runs on, once, and its result answers the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dies_leaves_its_call() {
    let port = standfast_testkit::free_port();
    let folder = two_gateways(port, "");
    let _upstream = upstream(&folder, port);
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let client = Client::hello(&http, "web", OLD, json!({})).await;
    let waits = client.calls(1, "write", r#"{"how":"hang"}"#);
    let held = hold(&http).await;
    waits.abort();
    drop(waits.await);
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    assert!(ran(&folder).is_empty());
    let runs = client.calls(2, "write", r#"{"how":"hang"}"#);
    until("it runs", || ran(&folder) == ["hang"]);
    runs.abort();
    drop(runs.await);
    std::fs::write(folder.path().join("place/go.txt"), "").unwrap();
    let gate = text(&http.get("/api/v1/runs").await.body["runs"][0]["id"]).to_owned();
    for _ in 0..600 {
        if http.get(&format!("/api/v1/gates/{gate}")).await.body["state"] == "done" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let next = Client::hello(&http, "web", OLD, json!({})).await;
    let answer = next.call(3, "write", r#"{"how":"hang"}"#).await;
    assert!(words(&result(&answer)).starts_with("write hang"), "{answer:?}");
    assert_eq!(ran(&folder), ["hang"], "it ran once");
}

/// The server dies while it runs a call: nobody knows what it did, a person is asked, and the model is not told to repeat it. While it
/// is away the model is told that nothing ran.
#[tokio::test]
async fn a_server_that_dies_leaves_an_unknown_outcome() {
    let port = standfast_testkit::free_port();
    let folder = two_gateways(port, "");
    let first = upstream(&folder, port);
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    for gateway in ["web", "local"] {
        let client = Client::hello(&http, gateway, OLD, json!({})).await;
        let runs = client.calls(1, "write", r#"{"how":"die"}"#);
        resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
        let lost = result(&runs.await.unwrap());
        assert!(words(&lost).starts_with("Outcome unknown"), "{lost}");
        let asked = hold(&http).await;
        assert_eq!(asked["kind"], "recovery", "{asked}");
        resolve(&http, &asked, json!({"resolution": "deny"})).await;
    }
    assert_eq!(ran(&folder), ["die", "die"]);
    drop(first);
    let second = upstream(&folder, port);
    let client = Client::hello(&http, "web", OLD, json!({})).await;
    drop(second);
    let waits = client.calls(2, "write", r#"{"how":"away"}"#);
    resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
    let away = result(&waits.await.unwrap());
    assert!(words(&away).starts_with("Not executed"), "{away}");
    let gone = client.ask(json!(3), "tools/list", json!({})).await;
    assert_eq!(gone.status, 502, "{gone:?}");
    // Nothing ran, so what was approved still is, and runs once it is back.
    let _third = upstream(&folder, port);
    let client = Client::hello(&http, "web", OLD, json!({})).await;
    let back = result(&client.call(4, "write", r#"{"how":"away"}"#).await);
    assert!(words(&back).starts_with("write away"), "{back}");
    assert_eq!(ran(&folder), ["die", "die", "away"]);
}

/// T33: what a client shows to the gateway goes no further; the gateway's own credentials do. Nobody gets in without a key for gates, and
/// nobody has somebody else's session.
#[tokio::test]
async fn t33_credentials_stay_where_they_belong() {
    let port = standfast_testkit::free_port();
    let gateways = format!(
        "  web: {{url: 'http://127.0.0.1:{port}/mcp', headers: {{Authorization: 'Bearer of-the-gateway'}}}}\n  \
         local: {{command: node, args: [UNRULY, PLACE]}}\n"
    );
    let folder = folder(&gateways, &format!("server: {{auth: {{api_keys: true}}}}\n{RULES}"));
    let _upstream = upstream(&folder, port);
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let key = |user: &str, scope: &str| {
        let mut command = standfast_testkit::standfast();
        command.args(["keys", "create", "--user", user, "--scope", scope, "--config"]);
        let made = command.arg(folder.path().join("standfast.yaml")).output().unwrap();
        let said = String::from_utf8(made.stdout).unwrap();
        said.lines().find(|line| line.starts_with("sf_")).unwrap().to_owned()
    };
    let (ann, bob) = (key("ann", "gates:open"), key("bob", "gates:open"));
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let headers = [("content-type", "application/json")];
    assert_eq!(http.send("POST", "/mcp/web", &headers, body).await.status, 401);
    let reader = http.with_key(&key("ann", "runs:read"));
    assert_eq!(reader.send("POST", "/mcp/web", &headers, body).await.status, 403);
    for gateway in ["web", "local"] {
        let client = Client::hello(&http.with_key(&ann), gateway, OLD, json!({})).await;
        assert!(result(&client.call(1, "read", "{}").await)["content"].is_array());
        let thief = Client { http: http.with_key(&bob), ..client.clone() };
        assert_eq!(thief.ask(json!(1), "tools/list", json!({})).await.status, 404);
        assert_eq!(
            http.with_key(&bob)
                .send(
                    "GET",
                    &client.path,
                    &[
                        ("mcp-session-id", client.session.as_deref().unwrap()),
                        ("accept", "text/event-stream")
                    ],
                    ""
                )
                .await
                .status,
            404
        );
    }
    let heard = std::fs::read_to_string(folder.path().join("place/headers.txt")).unwrap();
    assert!(heard.contains("of-the-gateway") && !heard.contains(&ann) && !heard.contains("sf_"), "{heard}");
    assert!(!folder.path().join("place/leaked.txt").exists());
}
