//! The server's own MCP tools, asked by the official client over HTTP and through `standfast mcp serve`: approvals and answers of
//! people, over a server that is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::{text, until_found};
use tempfile::TempDir;

use super::gateway::serve;
use super::gateway_calls::{hold, resolve, words};
use super::server::packages;

const POLICY: &str = "policy:
  rules:
  - {id: reads, allow: look_up, agent: gate}
  - {id: tables, deny: drop_table, agent: gate, because: ask the owner of the data}
";

fn folder(more: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}\n\
         session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
         agents: {{helper: {{llm: script, session_store: main, task: {{}}}}}}\n{POLICY}{more}"
    );
    std::fs::write(folder.path().join("script.yaml"), "replies:\n- text: done\n").unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    folder
}

/// The official client. Dropping it is `kill -9`.
pub(crate) struct Desk {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Desk {
    fn start(arguments: &[&str], key: Option<&str>) -> Desk {
        match key {
            Some(key) => Desk::with(arguments, &[("DESK_KEY", key), ("STANDFAST_KEY", key)]),
            None => Desk::with(arguments, &[]),
        }
    }

    /// A client that is told where its server is, with these variables.
    pub(crate) fn with(arguments: &[&str], variables: &[(&str, &str)]) -> Desk {
        let mut command = Command::new("node");
        command.arg(packages().join("desk.js")).args(arguments).env_remove("STANDFAST_KEY");
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                drop(said.send(serde_json::from_str(&line).unwrap()));
            }
        });
        let input = child.stdin.take().unwrap();
        Desk { child, input, lines }
    }

    /// Over HTTP.
    fn http(base: &str, key: Option<&str>) -> Desk {
        Desk::start(&["http", &format!("{base}/mcp")], key)
    }

    /// Through the program that clients start.
    fn stdio(base: &str, key: Option<&str>) -> Desk {
        let program = standfast_testkit::standfast().get_program().to_owned();
        Desk::start(&["stdio", program.to_str().unwrap(), "mcp", "serve", "--server", base], key)
    }

    pub(crate) fn say(&mut self, line: &Value) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub(crate) fn calls(&mut self, id: u32, name: &str, arguments: &Value) {
        self.say(&json!({"id": id, "name": name, "arguments": arguments}));
    }

    pub(crate) fn line(&self, id: &Value) -> Value {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(90)).unwrap();
            if line["id"] == *id {
                return line;
            }
        }
    }

    /// The result of a call.
    pub(crate) fn result(&self, id: u32) -> Value {
        let line = self.line(&json!(id));
        assert!(line["result"].is_object(), "{line}");
        line["result"].clone()
    }

    pub(crate) fn call(&mut self, id: u32, name: &str, arguments: &Value) -> Value {
        self.calls(id, name, arguments);
        self.result(id)
    }
}

/// Everything that a client can do here, over HTTP and through the program: the same.
#[tokio::test]
async fn people_approve_and_answer_over_mcp() {
    let folder = folder("");
    let (server, http) = serve(&folder, "127.0.0.1:0");
    for (way, mut desk) in
        [Desk::http(&server.base, None), Desk::stdio(&server.base, None)].into_iter().enumerate()
    {
        let hello = desk.line(&json!("hello"));
        assert_eq!(hello["result"]["server"]["name"], "standfast", "{hello}");
        assert!(text(&hello["result"]["instructions"]).contains("request_approval"), "{hello}");
        desk.say(&json!({"id": 1, "list": true}));
        let tools = desk.result(1)["tools"].clone();
        let names: Vec<&str> = tools.as_array().unwrap().iter().map(|tool| text(&tool["name"])).collect();
        assert_eq!(names, ["request_approval", "ask_human", "check", "standfast_result"]);
        // Nobody is asked for what the rules say.
        for (tool, effect) in [("look_up", "allow"), ("drop_table", "deny"), ("send_refund", "hold")] {
            let checked = desk.call(2, "check", &json!({"tool": tool, "arguments": {"way": way}}));
            assert_eq!(checked["structuredContent"]["effect"], effect, "{checked}");
        }
        let allowed =
            desk.call(3, "request_approval", &json!({"tool": "look_up", "arguments": {"way": way}}));
        assert_eq!(allowed["structuredContent"]["state"], "approved", "{allowed}");
        let denied =
            desk.call(4, "request_approval", &json!({"tool": "drop_table", "arguments": {"way": way}}));
        assert_eq!(denied["structuredContent"]["state"], "denied", "{denied}");
        assert!(words(&denied).contains("ask the owner of the data"), "{denied}");
        // A person approves, with other arguments; the client hears that it waits, and can ask other things meanwhile.
        let refund = json!({"tool": "send_refund", "arguments": {"order": "A-7", "amount": 40, "way": way}, "reason": "it came back"});
        desk.calls(5, "request_approval", &refund);
        let held = hold(&http).await;
        let shown = http.get(&format!("/api/v1/holds/{}", text(&held["id"]))).await;
        assert!(shown.text.contains("send_refund") && shown.text.contains("A-7"), "{shown:?}");
        let meanwhile = desk.call(6, "check", &json!({"tool": "look_up", "arguments": {}}));
        assert_eq!(meanwhile["structuredContent"]["effect"], "allow");
        let edited = json!({"order": "A-7", "amount": 30, "way": way});
        resolve(&http, &held, json!({"resolution": "approve", "arguments": edited})).await;
        let line = desk.line(&json!(5));
        assert!(text(&line["told"][0]).contains("/approve/"), "{line}");
        let approved = line["result"].clone();
        assert_eq!(approved["structuredContent"]["state"], "approved", "{approved}");
        assert_eq!(approved["structuredContent"]["arguments"], edited);
        assert!(words(&approved).contains("with other arguments"), "{approved}");
        // It says what came of it, which is on record then.
        let gate = text(&approved["structuredContent"]["gate"]).to_owned();
        let report = json!({"gate": gate, "status": "succeeded", "result": {"paid": 30}});
        assert_eq!(desk.call(7, "standfast_result", &report)["structuredContent"]["state"], "done");
        let recorded = http.get(&format!("/api/v1/gates/{gate}")).await.body;
        assert_eq!((&recorded["state"], &recorded["attempt"]), (&json!("done"), &json!(1)), "{recorded}");
        assert_eq!(recorded["outcome"]["value"]["paid"], 30, "{recorded}");
        // An approval is handed out once: the same again is another question.
        desk.calls(8, "request_approval", &refund);
        let again = hold(&http).await;
        assert_ne!(again["id"], held["id"]);
        resolve(&http, &again, json!({"resolution": "deny", "reason": "once is enough"})).await;
        assert!(words(&desk.result(8)).contains("once is enough"));
        // A question is answered by a person; the same question has the same answer.
        let question = json!({"question": format!("Which colour {way}?"), "options": ["red", "blue"]});
        desk.calls(9, "ask_human", &question);
        let asked = hold(&http).await;
        assert_eq!(asked["kind"], "input", "{asked}");
        let wrong = http
            .post(&format!("/api/v1/holds/{}/resolve", text(&asked["id"])), &json!({"resolution": "approve"}))
            .await;
        assert!((400..500).contains(&wrong.status), "{wrong:?}");
        resolve(&http, &asked, json!({"resolution": "answer", "value": "blue"})).await;
        let answered = desk.result(9);
        assert_eq!(answered["structuredContent"]["answer"], "blue", "{answered}");
        assert_eq!(desk.call(10, "ask_human", &question)["structuredContent"]["answer"], "blue");
        // Mistakes are named.
        desk.calls(11, "request_approval", &json!({"arguments": {}}));
        let mistake = desk.line(&json!(11));
        assert!(text(&mistake["error"]).contains("missing field `tool`"), "{mistake}");
        let unknown = desk.call(12, "standfast_result", &json!({"gate": "run_06d3yrjm020e5aaf7tv1b4s1e8"}));
        assert_eq!(unknown["isError"], true, "{unknown}");
    }
}

/// C7, S0-49: an approval that comes after its deadline is taken where the rule keeps the hold, and the client hears that it was late.
#[tokio::test]
async fn a_late_approval_is_told_as_such() {
    let kept = "  - {id: kept, hold: pay_invoice, agent: gate, expire_after: 1s, on_timeout: keep}\n";
    let folder = folder(kept);
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let mut desk = Desk::http(&server.base, None);
    desk.calls(1, "request_approval", &json!({"tool": "pay_invoice", "arguments": {"no": 7}}));
    let held = hold(&http).await;
    let address = format!("/api/v1/holds/{}", text(&held["id"]));
    until_found("a hold whose time has passed", async || {
        http.get(&address).await.body["expired_at"].is_string().then_some(())
    })
    .await;
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    let approved = desk.result(1);
    assert_eq!(approved["structuredContent"]["state"], "approved", "{approved}");
    assert!(words(&approved).contains("came after its deadline, and counts"), "{approved}");
}

/// The server is killed while a call and a question wait: the client's repeat finds them, each with one question asked in all, and what
/// was decided meanwhile; the approval is handed out once.
#[tokio::test]
async fn what_waits_outlives_the_server() {
    let folder = folder("");
    let address = format!("127.0.0.1:{}", standfast_testkit::free_port());
    let (server, http) = serve(&folder, &address);
    let deploy = json!({"tool": "deploy", "arguments": {"to": "production"}});
    let mut desk = Desk::http(&server.base, None);
    desk.calls(1, "request_approval", &deploy);
    let held = hold(&http).await;
    drop(desk);
    drop(server);
    let (server, http) = serve(&folder, &address);
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    let mut desk = Desk::stdio(&server.base, None);
    let approved = desk.call(1, "request_approval", &deploy);
    assert_eq!(approved["structuredContent"]["state"], "approved", "{approved}");
    let gate = approved["structuredContent"]["gate"].clone();
    let looked = desk.call(2, "standfast_result", &json!({"gate": gate}));
    assert_eq!(looked["structuredContent"]["state"], "started", "handed out: {looked}");
    // Without a server the client gets the error.
    drop(server);
    desk.calls(3, "request_approval", &deploy);
    let refused = desk.line(&json!(3));
    assert!(text(&refused["error"]).contains("no server answers"), "{refused}");
    let (_server, http) = serve(&folder, &address);
    desk.calls(4, "request_approval", &deploy);
    assert_ne!(hold(&http).await["id"], held["id"], "another approval needs another decision");
}

/// A key for gates alone is enough, decides nothing, and a wrong one is let in nowhere.
#[tokio::test]
async fn a_key_for_gates_is_enough() {
    let folder = folder("server: {auth: {api_keys: true}}\n");
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let key = |user: &str, scope: &str| {
        let mut command = standfast_testkit::standfast();
        command.args(["keys", "create", "--user", user, "--scope", scope, "--config"]);
        let made = command.arg(folder.path().join("standfast.yaml")).output().unwrap();
        let said = String::from_utf8(made.stdout).unwrap();
        said.lines().find(|line| line.starts_with("sf_")).unwrap().to_owned()
    };
    let (agent, boss) = (key("ann", "gates:open"), http.with_key(&key("ann", "admin")));
    for wrong in [None, Some("sf_wrong_key")] {
        let desk = Desk::http(&server.base, wrong);
        assert!(desk.line(&json!("hello"))["error"].is_string());
    }
    let mut desk = Desk::stdio(&server.base, Some(&agent));
    desk.calls(1, "request_approval", &json!({"tool": "pay", "arguments": {}}));
    let held = hold(&boss).await;
    let path = format!("/api/v1/holds/{}/resolve", text(&held["id"]));
    let own = http.with_key(&agent).post(&path, &json!({"resolution": "approve"})).await;
    assert!([403, 404].contains(&own.status), "{own:?}");
    resolve(&boss, &held, json!({"resolution": "approve"})).await;
    assert_eq!(desk.result(1)["structuredContent"]["state"], "approved");
    let mut desk = Desk::http(&server.base, Some(&key("ann", "runs:read")));
    let refused = desk.call(1, "request_approval", &json!({"tool": "pay", "arguments": {}}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(words(&refused).contains("gates:open"), "{refused}");
}
