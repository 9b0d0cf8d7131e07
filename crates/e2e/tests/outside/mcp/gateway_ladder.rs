//! How a call that waits is shown to clients through a gateway: by the best rung that each supports, in both generations of the
//! protocol. None of the rungs decides anything.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::http::{Http, client};
use standfast_testkit::text;

use super::gateway::{RULES, folder, serve};
use super::gateway_calls::{Client, hold, messages, ran, resolve, result, words};
use super::over_http::listening;
use super::server::packages;

/// An answer that is read while it comes.
pub(crate) struct Reading {
    response: reqwest::Response,
    read: String,
}

impl Reading {
    pub(crate) async fn of(asking: &Client, body: &Value) -> Reading {
        let mut request = client().post(format!("{}{}", asking.http.base, asking.path));
        request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        request = request.header("mcp-protocol-version", asking.version).body(body.to_string());
        if let Some(session) = &asking.session {
            request = request.header("mcp-session-id", session);
        }
        Reading { response: request.send().await.unwrap(), read: String::new() }
    }

    /// What belongs to no request, in the session of this client.
    pub(crate) async fn listening(asking: &Client) -> Reading {
        let request = client()
            .get(format!("{}{}", asking.http.base, asking.path))
            .header("accept", "text/event-stream");
        let request = request.header("mcp-protocol-version", asking.version);
        let request = request.header("mcp-session-id", asking.session.as_deref().unwrap());
        Reading { response: request.send().await.unwrap(), read: String::new() }
    }

    /// The answer, where it is one body and no stream.
    pub(crate) async fn whole(&mut self) -> Value {
        let is_stream =
            self.response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream");
        if is_stream {
            return self.next().await.unwrap();
        }
        while let Some(chunk) = self.response.chunk().await.unwrap() {
            self.read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        serde_json::from_str(&self.read).unwrap()
    }

    /// Reads to the end, however it ends.
    pub(crate) async fn rest(&mut self) {
        while let Ok(Some(_)) = self.response.chunk().await {}
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
                self.read = rest.to_owned();
                match data {
                    Some(data) => return Some(serde_json::from_str(&data).unwrap()),
                    None => continue,
                }
            }
            let chunk = tokio::time::timeout(Duration::from_secs(60), self.response.chunk())
                .await
                .unwrap()
                .unwrap()?;
            self.read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The next message with this method.
    pub(crate) async fn until(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("no {method}"));
            if message["method"] == method {
                return message;
            }
        }
    }
}

fn call(id: u32, how: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "write", "arguments": {"how": how}}})
}

async fn answers(client: &Client, question: &Value, action: &str) {
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action, "content": {}}});
    assert_eq!(client.say(&answer.to_string()).await.status, 202);
}

/// A client that shows its user addresses is asked to, one that shows texts shows them; accepting decides nothing and goes on waiting,
/// declining ends the waiting, and the call stays.
#[tokio::test]
async fn a_client_s_user_is_brought_to_the_page() {
    let folder = folder("  local: {command: node, args: [UNRULY, PLACE]}\n", RULES);
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let address = Client::hello(&http, "local", "2025-11-25", json!({"elicitation": {"url": {}}})).await;
    let mut reading = Reading::of(&address, &call(1, "one")).await;
    let asked = reading.until("elicitation/create").await;
    assert_eq!(asked["params"]["mode"], "url", "{asked}");
    let held = hold(&http).await;
    assert_eq!(text(&asked["params"]["url"]), format!("{}/approve/{}", server.base, text(&held["id"])));
    answers(&address, &asked, "accept").await;
    assert_eq!(hold(&http).await["id"], held["id"], "accepting decides nothing");
    assert!(ran(&folder).is_empty());
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    let over = reading.until("notifications/elicitation/complete").await;
    assert_eq!(over["params"]["elicitationId"], asked["id"]);
    let answer = reading.next().await.unwrap();
    assert!(text(&answer["result"]["content"][0]["text"]).starts_with("write one"), "{answer}");
    assert_eq!(ran(&folder), ["one"]);

    let form = Client::hello(&http, "local", "2025-06-18", json!({"elicitation": {}})).await;
    let mut reading = Reading::of(&form, &call(2, "two")).await;
    let asked = reading.until("elicitation/create").await;
    assert!(text(&asked["params"]["message"]).contains("/approve/"), "{asked}");
    let held = hold(&http).await;
    answers(&form, &asked, "decline").await;
    let answer = reading.next().await.unwrap();
    assert!(text(&answer["result"]["content"][0]["text"]).starts_with("Not executed."), "{answer}");
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    let again = form.say(&call(3, "two").to_string()).await;
    assert!(words(&result(&again)).starts_with("write two"), "{again:?}");
    assert_eq!(ran(&folder), ["one", "two"]);
}

/// A client without sessions.
pub(crate) fn modern(http: &Http, gateway: &str) -> Client {
    Client { http: http.clone(), path: format!("/mcp/{gateway}"), session: None, version: "2026-07-28" }
}

pub(crate) fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "plain", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// A client that follows tasks gets one: it says where somebody decides, runs the call once it is approved and somebody asks, and has
/// its result; a task that is taken back never runs.
#[tokio::test]
async fn a_call_that_waits_is_a_task() {
    let asking = packages().join("asking.js").display().to_string();
    let folder = folder(&format!("  ask: {{command: node, args: ['{asking}', PLACE]}}\n"), "");
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let client = modern(&http, "ask");
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let call = |to: &str| json!({"name": "pay", "arguments": {"to": to}, "_meta": meta(&capabilities)});
    let created = result(&client.ask(json!(1), "tools/call", call("Ann")).await);
    assert_eq!(
        (&created["resultType"], &created["status"]),
        (&json!("task"), &json!("working")),
        "{created}"
    );
    assert!(text(&created["statusMessage"]).contains("/approve/"), "{created}");
    let task = text(&created["taskId"]).to_owned();
    let get = |task: &str| json!({"taskId": task, "_meta": meta(&capabilities)});
    let asked = result(&client.ask(json!(2), "tasks/get", get(&task)).await);
    assert_eq!(asked["status"], "working", "{asked}");
    resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
    let mut done = Value::Null;
    for _ in 0..600 {
        done = result(&client.ask(json!(3), "tasks/get", get(&task)).await);
        if done["status"] != "working" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The server wants to know how much, and nobody is there to be asked: that is its answer.
    assert!(matches!(text(&done["status"]), "completed" | "failed"), "{done}");
    // The same task after a restart.
    let address = server.base.trim_start_matches("http://").to_owned();
    drop(server);
    let (_server, http) = serve(&folder, &address);
    let client = modern(&http, "ask");
    assert_eq!(result(&client.ask(json!(4), "tasks/get", get(&task)).await)["status"], done["status"]);
    let other = result(&client.ask(json!(5), "tools/call", call("Bob")).await);
    let task = text(&other["taskId"]).to_owned();
    client.ask(json!(6), "tasks/cancel", get(&task)).await;
    let cancelled = result(&client.ask(json!(7), "tasks/get", get(&task)).await);
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    let unknown = client.ask(json!(8), "tasks/get", get("standfast-run_06d3yrjm020e5aaf7tv1b4s1e8")).await;
    assert!(messages(&unknown)[0]["error"].is_object(), "{unknown:?}");
}

/// An official client that says what it gets. Dropping it is `kill -9`.
pub(crate) struct OfficialClient {
    child: Child,
    lines: Receiver<Value>,
}

impl Drop for OfficialClient {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl OfficialClient {
    pub(crate) fn start(script: &str, arguments: &[&str]) -> OfficialClient {
        let mut command = Command::new("node");
        command.arg(packages().join(script)).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                drop(said.send(serde_json::from_str(&line).unwrap()));
            }
        });
        OfficialClient { child, lines }
    }

    pub(crate) fn next(&self) -> Value {
        self.lines.recv_timeout(Duration::from_secs(90)).unwrap()
    }
}

/// The official client of the newest protocol, in front of a server of it, over HTTP and as a program: it is brought to the page, comes
/// back with the same call, and what the server itself asks for reaches it; the call is approved once and runs once.
#[tokio::test]
async fn the_newest_clients_come_back_with_the_same_call() {
    let port = standfast_testkit::free_port();
    let asking = packages().join("asking.js").display().to_string();
    let gateways = format!(
        "  web: {{url: 'http://127.0.0.1:{port}/mcp'}}\n  local: {{command: node, args: ['{asking}', PLACE]}}\n"
    );
    let folder = folder(&gateways, "");
    let mut command = Command::new("node");
    command.arg(&asking).arg(folder.path().join("place")).arg(port.to_string());
    let _upstream = listening(command, port);
    let (server, http) = serve(&folder, "127.0.0.1:0");
    for (gateway, mode) in [("web", "url"), ("local", "form")] {
        let client = OfficialClient::start("modern.js", &[&format!("{}/mcp/{gateway}", server.base), mode]);
        let hello = client.next();
        assert_eq!((&hello["version"], &hello["tools"]), (&json!("2026-07-28"), &json!(["pay"])), "{hello}");
        let asked = client.next();
        assert_eq!(asked["asked"]["mode"], mode, "{asked}");
        let held = hold(&http).await;
        assert!(asked.to_string().contains(text(&held["id"])), "{asked}");
        resolve(&http, &held, json!({"resolution": "approve"})).await;
        let mut next = client.next();
        while next["asked"]["message"].as_str().is_some_and(|message| message.contains("waits for approval"))
        {
            next = client.next();
        }
        assert_eq!(next["asked"]["message"], "How much does Ann get?", "{next}");
        let done = client.next();
        assert!(words(&done["result"]).starts_with("paid 300 cents to Ann; pays Ann"), "{done}");
        let gates = http.get("/api/v1/runs").await.body;
        assert_eq!(text(&gates["runs"][0]["status"]), "completed", "{gates}");
    }
    let paid = std::fs::read_to_string(folder.path().join("place/paid.txt")).unwrap();
    assert_eq!(paid, "Ann 300\nAnn 300\n");
    // A state that nobody gave is none.
    let client = modern(&http, "local");
    let forged = json!({"name": "pay", "arguments": {"to": "Eve"}, "requestState": "pays Eve", "inputResponses": {}, "_meta": meta(&json!({}))});
    let refused = result(&client.ask(json!(1), "tools/call", forged).await);
    assert!(words(&refused).starts_with("Not executed") && refused["isError"] == true, "{refused}");
}
