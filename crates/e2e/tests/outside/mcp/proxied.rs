//! MCP servers behind `standfast mcp proxy`: what clients see of them, and what does not reach them before somebody says so.
//!
//! The client is a pipe, so that lines are compared as they are; the servers are real ones.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::{text, until};
use tempfile::TempDir;

use super::gateway::serve;
use super::gateway_calls::{hold, resolve, words};
use super::server::{package, packages};

const POLICY: &str = "policy:
  rules:
  - {id: reads, allow: [mcp__it__echo, mcp__it__read, mcp__it__get-sum], agent: gate}
  - {id: unknown, deny: mcp__it__mystery, agent: gate, because: nobody knows what it does}
";

/// A folder with a configuration; the state of proxies is in it too.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}\n\
         session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
         agents: {{helper: {{llm: script, session_store: main, task: {{}}}}}}\n{POLICY}"
    );
    std::fs::write(folder.path().join("script.yaml"), "replies:\n- text: done\n").unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    std::fs::create_dir(folder.path().join("place")).unwrap();
    folder
}

/// The other end of a server's pipes. Dropping it is `kill -9`.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Client {
    fn of(mut command: Command) -> Client {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                drop(said.send(line));
            }
        });
        let input = child.stdin.take();
        Client { child, input, lines }
    }

    /// The server itself.
    fn direct(program: &[String]) -> Client {
        let mut command = Command::new("node");
        command.args(program);
        Client::of(command)
    }

    /// The server behind the proxy of a product.
    fn proxied(folder: &TempDir, base: &str, wait: &str, program: &[String]) -> Client {
        let mut command = standfast_testkit::standfast();
        command.args(["mcp", "proxy", "--name", "it", "--server", base, "--wait", wait, "--", "node"]);
        command
            .args(program)
            .env("XDG_STATE_HOME", folder.path().join("state"))
            .env("STANDFAST_KEY", "sf_of_the_proxy");
        let mut client = Client::of(command);
        client.hello("2025-06-18", json!({}));
        client
    }

    /// The same for a client that asks its user.
    fn asking(folder: &TempDir, base: &str, version: &str, capabilities: Value) -> Client {
        let mut command = standfast_testkit::standfast();
        command.args(["mcp", "proxy", "--name", "it", "--server", base, "--", "node"]);
        command
            .args(unruly(folder))
            .env("XDG_STATE_HOME", folder.path().join("state"))
            .env_remove("STANDFAST_KEY");
        let mut client = Client::of(command);
        client.hello(version, capabilities);
        client
    }

    /// The next line with this method.
    fn until(&self, method: &str) -> Value {
        loop {
            let message: Value = serde_json::from_str(&self.line()).unwrap();
            if message["method"] == method {
                return message;
            }
        }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// The line that answers this request, and what came before it.
    fn answer(&self, id: &Value) -> (String, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let line = self.line();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == *id && message.get("method").is_none() {
                return (line, before);
            }
            before.push(message);
        }
    }

    fn ask(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        serde_json::from_str(&self.answer(&json!(id)).0).unwrap()
    }

    fn hello(&mut self, version: &str, capabilities: Value) {
        let params = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "pipe", "version": "1"}});
        let hello = self.ask(0, "initialize", &params);
        assert!(hello["result"]["serverInfo"].is_object(), "{hello}");
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// Asks to run a tool of the unruly server, without waiting.
    fn calls(&mut self, id: u32, tool: &str, arguments: &str) {
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":{id}}}}}}}"#
        ));
    }

    fn result(&self, id: u32) -> Value {
        serde_json::from_str::<Value>(&self.answer(&json!(id)).0).unwrap()["result"].clone()
    }
}

fn unruly(folder: &TempDir) -> [String; 2] {
    [packages().join("unruly.js").display().to_string(), folder.path().join("place").display().to_string()]
}

fn ran(folder: &TempDir) -> Vec<String> {
    let file = folder.path().join("place/ran.txt");
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The official server that has everything, asked the same with and without a proxy: every answer is the same line, as it is; and
/// so is the answer of a tool that a rule allows.
#[tokio::test]
async fn what_is_not_held_goes_through_unchanged() {
    let folder = folder();
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let program = [package("server-everything"), "stdio".to_owned()];
    let asked = [
        ("ping", json!({})),
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "simple-prompt"})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "completable-prompt"}, "argument": {"name": "department", "value": "E"}}),
        ),
        ("tools/call", json!({"name": "echo", "arguments": {"message": "9007199254740993 \u{2028} é"}})),
        ("tools/call", json!({"name": "get-sum", "arguments": {"a": 1, "b": 2}})),
        ("no/such/method", json!({})),
    ];
    let mut answers = Vec::new();
    for mut client in [Client::direct(&program), Client::proxied(&folder, &_server.base, "1", &program)] {
        if answers.is_empty() {
            client.hello("2025-06-18", json!({}));
        }
        let mut said = Vec::new();
        for (no, (method, params)) in asked.iter().enumerate() {
            client.say(
                &json!({"jsonrpc": "2.0", "id": format!("q-{no}"), "method": method, "params": params})
                    .to_string(),
            );
            said.push(client.answer(&json!(format!("q-{no}"))).0);
        }
        answers.push(said);
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0][1].contains("annotations"), "{}", answers[0][1]);
    let runs = http.get("/api/v1/runs").await.body;
    let ended: Vec<_> =
        runs["runs"].as_array().unwrap().iter().map(|run| text(&run["status"]).to_owned()).collect();
    assert_eq!(ended, ["completed", "completed"], "{runs}");
}

/// A call waits for a person, who sees exactly its arguments; the client hears that it waits. Approved, it runs once, and the
/// outcome is on its receipt; edited, it runs as it was edited; denied, it does not run, and the model gets the reason.
#[tokio::test]
async fn a_held_call_is_decided_and_runs_once() {
    let folder = folder();
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let mut client = Client::proxied(&folder, &server.base, "120", &unruly(&folder));
    client.ask(1, "tools/list", &json!({}));

    client.calls(2, "write", r#"{"how": "one", "n": 9007199254740993}"#);
    let held = hold(&http).await;
    let shown = http.get(&format!("/api/v1/holds/{}", text(&held["id"]))).await;
    assert_eq!(
        shown.body["call"]["tool"].as_str().or(shown.body["tool"].as_str()),
        Some("mcp__it__write"),
        "{shown:?}"
    );
    assert!(shown.text.contains("9007199254740993"), "{shown:?}");
    assert!(ran(&folder).is_empty());
    // Meanwhile everything else goes on.
    client.say(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    let (_, before) = client.answer(&json!(3));
    let heard = before.iter().find(|message| message["method"] == "notifications/progress").unwrap();
    assert_eq!(heard["params"]["progressToken"], 2);
    assert!(text(&heard["params"]["message"]).contains("/approve/"), "{heard}");
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    let said = client.result(2);
    assert!(said["content"].is_array() && said["isError"] != true, "{said}");
    assert_eq!(ran(&folder), ["one"]);
    assert!(!folder.path().join("place/leaked.txt").exists(), "the key is the proxy's alone");

    client.calls(4, "write", r#"{"how": "two"}"#);
    let held = hold(&http).await;
    resolve(&http, &held, json!({"resolution": "approve", "arguments": {"how": "changed"}})).await;
    client.result(4);
    assert_eq!(ran(&folder), ["one", "changed"]);

    client.calls(5, "write", r#"{"how": "three"}"#);
    let held = hold(&http).await;
    resolve(&http, &held, json!({"resolution": "deny", "reason": "not on a Friday"})).await;
    let denied = client.result(5);
    assert_eq!(denied["isError"], true);
    assert!(words(&denied).contains("not on a Friday"), "{denied}");
    // The same again is not asked about again.
    client.calls(6, "write", r#"{"how": "three"}"#);
    assert!(words(&client.result(6)).contains("denied"));
    client.calls(7, "mystery", "{}");
    let denied = client.result(7);
    assert!(
        words(&denied).contains("nobody knows what it does") || words(&denied).contains("denied"),
        "{denied}"
    );
    assert_eq!(ran(&folder), ["one", "changed"]);
}

/// Nobody decides in time: the model gets a receipt to come back with. Client, proxy and server die; then somebody approves; the same call, over
/// a new proxy, runs once, with one question asked in all.
#[tokio::test]
async fn a_repeat_finds_its_decision_after_everything_died() {
    let folder = folder();
    let address = format!("127.0.0.1:{}", standfast_testkit::free_port());
    let (server, http) = serve(&folder, &address);
    let mut client = Client::proxied(&folder, &server.base, "1", &unruly(&folder));
    client.calls(1, "write", r#"{"how":"later"}"#);
    let waits = client.result(1);
    assert!(words(&waits).starts_with("Not executed.") && words(&waits).contains("/approve/"), "{waits}");
    let gate = text(&waits["_meta"]["standfast/gate"]).to_owned();
    let held = hold(&http).await;
    drop(client);
    drop(server);
    let (server, http) = serve(&folder, &address);
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    let mut client = Client::proxied(&folder, &server.base, "30", &unruly(&folder));
    client.calls(9, "write", r#"{"how":"later"}"#);
    assert_ne!(client.result(9)["isError"], true);
    assert_eq!(ran(&folder), ["later"]);
    let shown = http.get(&format!("/api/v1/gates/{gate}")).await.body;
    assert_eq!((&shown["state"], &shown["attempt"]), (&json!("done"), &json!(1)), "{shown}");
    // Once more is a new wish, and a new question.
    client.calls(10, "write", r#"{"how":"later"}"#);
    let other = hold(&http).await;
    assert_ne!(other["id"], held["id"]);
}

/// The server dies while it runs a call: nobody knows what it did, a person is asked, and the model is not told to repeat it.
#[tokio::test]
async fn a_server_that_dies_leaves_an_unknown_outcome() {
    let folder = folder();
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let mut client = Client::proxied(&folder, &server.base, "30", &unruly(&folder));
    client.calls(1, "write", r#"{"how":"die"}"#);
    resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
    let lost = client.result(1);
    assert!(words(&lost).starts_with("Outcome unknown"), "{lost}");
    assert_eq!(ran(&folder), ["die"]);
    let asked = hold(&http).await;
    assert_eq!(asked["kind"], "recovery", "{asked}");
    until("the proxy ends with its server", || client.child.try_wait().unwrap().is_some());
}

/// What two readers could read differently reaches nobody; without a server to ask nothing runs; a request that is taken back before
/// somebody decided does not run afterwards.
#[tokio::test]
async fn what_cannot_be_judged_does_not_run() {
    let folder = folder();
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let mut client = Client::proxied(&folder, &server.base, "1", &unruly(&folder));
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"how":"in"}}}"#;
    client.say(&format!("[{call}]"));
    assert!(client.line().contains("-32600"));
    client.say(&format!("{call}{call}"));
    assert!(client.line().contains("-32700"));
    client.say(&call.replace("\"id\":1,", "\"id\":1,\"method\":\"ping\","));
    assert!(client.line().contains("-32700"));
    client.say(&call.replace("\"id\":1,", ""));
    // A reader that takes a carriage return for the end of a line would see a call in it.
    client.say(&format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\",\"params\":{{\"x\":\r{call}\r}}}}"
    ));
    assert!(client.answer(&json!(2)).0.contains("result"));
    client.calls(3, "write", r#"{"how":"a","how":"b"}"#);
    let refused = client.result(3);
    assert!(words(&refused).starts_with("Not executed"), "{refused}");
    client.calls(4, "write", r#"{"how":"taken back"}"#);
    let held = hold(&http).await;
    client.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#);
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    assert!(client.ask(5, "ping", &json!({}))["result"].is_object());
    drop(server);
    client.calls(6, "read", "{}");
    let unasked = client.result(6);
    assert!(words(&unasked).starts_with("Not executed: Standfast could not be asked"), "{unasked}");
    assert_eq!(unasked["isError"], true);
    assert!(ran(&folder).is_empty(), "{:?}", ran(&folder));
    assert!(!Path::new(&folder.path().join("place/read.txt")).exists());
}

/// A client that brings its user to addresses, or shows them texts, is asked to while a call waits: accepting decides nothing, declining
/// ends the waiting and leaves the call.
#[tokio::test]
async fn a_client_s_user_is_brought_to_the_page() {
    let folder = folder();
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let mut client = Client::asking(&folder, &server.base, "2025-11-25", json!({"elicitation": {"url": {}}}));
    client.calls(1, "write", r#"{"how":"one"}"#);
    let asked = client.until("elicitation/create");
    let held = hold(&http).await;
    assert_eq!(asked["params"]["mode"], "url", "{asked}");
    assert!(text(&asked["params"]["url"]).ends_with(text(&held["id"])), "{asked}");
    client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}}).to_string());
    assert!(ran(&folder).is_empty());
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    assert_eq!(client.until("notifications/elicitation/complete")["params"]["elicitationId"], asked["id"]);
    assert_ne!(client.result(1)["isError"], true);
    let mut client = Client::asking(&folder, &server.base, "2025-06-18", json!({"elicitation": {}}));
    client.calls(2, "write", r#"{"how":"two"}"#);
    let asked = client.until("elicitation/create");
    assert!(text(&asked["params"]["message"]).contains("/approve/"), "{asked}");
    client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}).to_string());
    assert!(words(&client.result(2)).starts_with("Not executed."));
    resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
    client.calls(3, "write", r#"{"how":"two"}"#);
    assert_ne!(client.result(3)["isError"], true);
    assert_eq!(ran(&folder), ["one", "two"]);
}

/// The newest protocol: the client is asked to come back with the same call; what the server itself asks for belongs to the call that
/// was approved, and needs no second approval.
#[tokio::test]
async fn the_newest_clients_come_back_with_the_same_call() {
    let folder = folder();
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let program = [
        packages().join("asking.js").display().to_string(),
        folder.path().join("place").display().to_string(),
    ];
    let mut command = standfast_testkit::standfast();
    command.args(["mcp", "proxy", "--name", "it", "--server", &server.base, "--", "node"]).args(program);
    command.env("XDG_STATE_HOME", folder.path().join("state")).env_remove("STANDFAST_KEY");
    let mut client = Client::of(command);
    let mut pay = json!({"name": "pay", "arguments": {"to": "Ann"}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "pipe", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}, "form": {}}},
    }});
    let asked = client.ask(1, "tools/call", &pay)["result"].clone();
    let page = &asked["inputRequests"]["standfast"]["params"];
    let held = hold(&http).await;
    assert!(text(&page["url"]).ends_with(text(&held["id"])), "{asked}");
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    pay["requestState"] = asked["requestState"].clone();
    pay["inputResponses"] = json!({"standfast": {"action": "accept"}});
    let asked = client.ask(2, "tools/call", &pay)["result"].clone();
    assert_eq!(asked["inputRequests"]["amount"]["params"]["message"], "How much does Ann get?", "{asked}");
    pay["requestState"] = asked["requestState"].clone();
    pay["inputResponses"] = json!({"amount": {"action": "accept", "content": {"cents": 300}}});
    let paid = client.ask(3, "tools/call", &pay)["result"].clone();
    assert!(words(&paid).starts_with("paid 300 cents to Ann"), "{paid}");
    let gates = http.get("/api/v1/runs").await.body;
    let ended: Vec<&str> = gates["runs"].as_array().unwrap().iter().map(|run| text(&run["status"])).collect();
    assert_eq!(ended, ["completed"], "{gates}");
}

/// A client that follows tasks gets one: client and proxy are killed, somebody approves, and a later proxy runs the call once for whoever
/// asks for the same task; its result stays with it. One that is taken back never runs.
#[tokio::test]
async fn a_call_that_waits_is_a_task_of_any_proxy() {
    let folder = folder();
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "pipe", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let started = || {
        let mut command = standfast_testkit::standfast();
        command
            .args(["mcp", "proxy", "--name", "it", "--server", &server.base, "--"])
            .args(["node"])
            .args(unruly(&folder));
        command.env("XDG_STATE_HOME", folder.path().join("state")).env_remove("STANDFAST_KEY");
        Client::of(command)
    };
    let write = |how: &str| json!({"name": "write", "arguments": {"how": how}, "_meta": meta});
    let mut client = started();
    let created = client.ask(1, "tools/call", &write("one"))["result"].clone();
    assert_eq!(
        (&created["resultType"], &created["status"]),
        (&json!("task"), &json!("working")),
        "{created}"
    );
    assert!(text(&created["statusMessage"]).contains("/approve/"), "{created}");
    let task = |created: &Value| json!({"taskId": created["taskId"], "_meta": meta});
    assert_eq!(client.ask(2, "tasks/get", &task(&created))["result"]["status"], "working");
    drop(client);
    resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
    assert!(ran(&folder).is_empty(), "nothing runs that nobody waits for");
    let mut client = started();
    let mut done = Value::Null;
    for no in 0..600 {
        done = client.ask(100 + no, "tasks/get", &task(&created))["result"].clone();
        if done["status"] != "working" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(done["status"], "completed", "{done}");
    assert!(words(&done["result"]).starts_with("write one"), "{done}");
    assert_eq!(ran(&folder), ["one"], "once, however often it was asked for");
    assert_eq!(client.ask(3, "tasks/get", &task(&created))["result"]["status"], "completed");
    let other = client.ask(4, "tools/call", &write("two"))["result"].clone();
    client.ask(5, "tasks/cancel", &task(&other));
    assert_eq!(client.ask(6, "tasks/get", &task(&other))["result"]["status"], "cancelled");
    let foreign = json!({"taskId": "standfast-run_06d3yrjm020e5aaf7tv1b4s1e8", "_meta": meta});
    assert!(client.ask(7, "tasks/get", &foreign)["error"].is_object());
    assert_eq!(ran(&folder), ["one"]);
}

/// A command that cannot be started says what to do.
#[test]
fn a_command_that_is_not_there_is_named_with_what_to_do() {
    let folder = folder();
    let (server, _) = serve(&folder, "127.0.0.1:0");
    let plain = folder.path().join("plain.txt");
    std::fs::write(&plain, "").unwrap();
    for (program, next) in
        [("no-such-mcp-server", "install it"), (plain.to_str().unwrap(), "make it executable")]
    {
        let mut command = standfast_testkit::standfast();
        command.args(["mcp", "proxy", "--server", &server.base, "--", program]).env_remove("STANDFAST_KEY");
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("`{program}`")) && said.contains(next), "{said}");
    }
}
