//! MCP servers behind `standfast mcp proxy`: what clients see of them, and what does not reach them before somebody says so.
//!
//! The client is a pipe, so that lines are compared as they are; the servers are real ones.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::http::Http;
use standfast_testkit::{Process, text, until};
use tempfile::TempDir;

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

fn serve(folder: &TempDir, address: &str) -> (Process, Http) {
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", address, "--config"]).arg(folder.path().join("standfast.yaml"));
    command.arg("--data").arg(folder.path().join("data")).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    let program = standfast_testkit::start(&mut command);
    let http = Http::new(&program.base);
    (program, http)
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
        client.hello();
        client
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

    fn hello(&mut self) {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}});
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

fn words(result: &Value) -> String {
    text(&result["content"][0]["text"]).to_owned()
}

/// The one hold that is open.
async fn hold(http: &Http) -> Value {
    for _ in 0..600 {
        let open = http.get("/api/v1/holds").await.body["holds"].clone();
        if let Some([one]) = open.as_array().map(Vec::as_slice) {
            return one.clone();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nothing is held")
}

async fn resolve(http: &Http, hold: &Value, body: Value) {
    let answer = http.post(&format!("/api/v1/holds/{}/resolve", text(&hold["id"])), &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
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
            client.hello();
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
/// outcome is on its receipt; edited, it runs as it was edited; denied, it does not run, and the model is told.
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

/// Nobody decides in time: the model is told to come back. Client, proxy and server die; then somebody approves; the same call, over
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
