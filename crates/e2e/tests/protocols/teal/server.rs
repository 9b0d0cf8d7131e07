//! The real program with agents whose models follow scripts, and what clients ask it.
//!
//! Dropping a server is `kill -9`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::teal::elsewhere::Elsewhere;
pub(crate) use standfast_testkit::{Answer, text};
use standfast_testkit::{Http, Process, until_found};

pub(crate) const BASE: &str = "/tealagents/v1alpha1";

/// A folder with a configuration.
pub(crate) struct Folder {
    pub(crate) folder: TempDir,
}

pub(crate) struct Server {
    pub(crate) program: Process,
    pub(crate) http: Http,
}

/// How an agent's model speaks: each reply has calls, or words.
pub(crate) enum Line<'a> {
    /// Requests to these paths elsewhere.
    Asks(&'a [&'a str]),
    /// A call of another tool.
    Calls(&'a str, Value),
    Says(&'a str),
}

impl Folder {
    /// Agents by their scripts; `more` goes to the configuration as it is. `http_request` asks first.
    pub(crate) fn new(elsewhere: &Elsewhere, agents: &[(&str, &[Line<'_>])], more: &str) -> Folder {
        Folder::stored("backend: sql, sql: {driver: sqlite, database: kept.db}", elsewhere, agents, more)
    }

    /// The same in another store.
    pub(crate) fn stored(
        store: &str,
        elsewhere: &Elsewhere,
        agents: &[(&str, &[Line<'_>])],
        more: &str,
    ) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let (mut llms, mut own) = (String::new(), String::new());
        for (name, lines) in agents {
            let replies: Vec<Value> = lines.iter().map(|line| line.reply(elsewhere.port)).collect();
            let script = json!({"replies": replies}).to_string();
            std::fs::write(folder.path().join(format!("{name}.script.yaml")), script).unwrap();
            llms.push_str(&format!("  {name}: {{type: scripted, script: {name}.script.yaml}}\n"));
            own.push_str(&format!(
                "  {name}: {{llm: {name}, session_store: main, tools: [http_request, suspend-for-input, ShellCommand, read_file], task: {{hitl: {{hold_batch: {}}}}}}}\n",
                *name == "batch"
            ));
        }
        let text = format!(
            "llms:\n{llms}session_stores: {{main: {{{store}}}}}
tools:
  http_request: {{allowed_hosts: ['127.0.0.1:{}'], timeout: 100s}}
  ShellCommand: {{type: command, allowed_commands: [echo], requires_approval: false}}
agents:\n{own}{more}",
            elsewhere.port
        );
        std::fs::write(folder.path().join("standfast.yaml"), text).unwrap();
        std::fs::create_dir_all(folder.path().join("workspace")).unwrap();
        std::fs::write(folder.path().join("workspace/a.txt"), "hello").unwrap();
        Folder { folder }
    }

    /// An agent `lead` that hands out work to `helper`, whose request is asked about.
    pub(crate) fn led(elsewhere: &Elsewhere) -> Folder {
        let help = [Line::Asks(&["/a"]), Line::Says("helped")];
        let more = "  lead: {llm: lead, session_store: main, sub_agents: [helper], task: {}}\n";
        let folder = Folder::new(elsewhere, &[("helper", &help)], more);
        let script = json!({"replies": [
            {"calls": [{"tool": "ask_helper", "arguments": r#"{"message": "look"}"#}]},
            {"text": "all done"}
        ]});
        std::fs::write(folder.folder.path().join("lead.script.yaml"), script.to_string()).unwrap();
        let config = std::fs::read_to_string(folder.config()).unwrap();
        let config = config.replace("llms:\n", "llms:\n  lead: {type: scripted, script: lead.script.yaml}\n");
        std::fs::write(folder.config(), config).unwrap();
        folder
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("standfast.yaml")
    }

    pub(crate) fn serve(&self) -> Server {
        let mut command = standfast_testkit::standfast();
        command.args(["serve", "--config"]).arg(self.config());
        command.arg("--data").arg(self.folder.path().join("data"));
        start(&mut command)
    }

    /// A key of this user, made as an operator would.
    pub(crate) fn key(&self, user: &str) -> String {
        let mut command = standfast_testkit::standfast();
        command.args(["keys", "create", "--user", user, "--config"]).arg(self.config());
        let made = command.arg("--data").arg(self.folder.path().join("data")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }
}

impl Line<'_> {
    fn reply(&self, port: u16) -> Value {
        let call = |tool: &str, arguments: &Value| json!({"tool": tool, "arguments": arguments.to_string()});
        match self {
            Line::Asks(paths) => {
                let url = |path: &&str| json!({"url": format!("http://127.0.0.1:{port}{path}")});
                let calls: Vec<Value> = paths.iter().map(|path| call("http_request", &url(path))).collect();
                json!({"calls": calls})
            }
            Line::Calls(tool, arguments) => json!({"calls": [call(tool, arguments)]}),
            Line::Says(text) => json!({"text": text}),
        }
    }
}

/// The demo, with its agents `ops` (asks before it deletes), `travel` (asks with options, then freely) and `receipts`.
pub(crate) fn demo(data: &Path) -> Server {
    start(standfast_testkit::standfast().arg("serve").arg("--data").arg(data))
}

/// The same where keys are wanted; with the key of a user.
pub(crate) fn keyed_demo(data: &Path) -> (Server, String) {
    let mut command = standfast_testkit::standfast();
    let made = command.args(["keys", "create", "--user", "ann", "--data"]).arg(data).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let mut command = standfast_testkit::standfast();
    (start(command.args(["serve", "--demo", "--auth", "keys", "--data"]).arg(data)), key)
}

fn start(command: &mut Command) -> Server {
    command.args(["--listen", "127.0.0.1:0"]).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    let program = standfast_testkit::start(command);
    let http = Http::new(&program.base);
    Server { program, http }
}

impl Server {
    /// The same for somebody with a key; the program stays with the first.
    pub(crate) async fn by(&self, key: &str, method: &str, path: &str, body: &str) -> Answer {
        self.send(method, path, &[("authorization", &format!("Bearer {key}"))], body).await
    }

    /// Everything from now on is asked with this key.
    pub(crate) fn with(self, key: String) -> Server {
        Server { http: self.http.with_key(&key), ..self }
    }

    /// Any request; a body is sent as JSON unless the headers say otherwise. A whole address is taken as it is.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.http.send(method, path, headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], &body.to_string()).await
    }

    /// Says something to an agent.
    pub(crate) async fn chat(&self, agent: &str) -> Answer {
        self.post(&format!("{BASE}/{agent}"), &says("please")).await
    }

    /// Says something to an agent, which then waits for somebody.
    pub(crate) async fn paused(&self, agent: &str) -> Value {
        let answer = self.chat(agent).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.body["message"], "Human intervention required.", "{answer:?}");
        answer.body
    }

    /// The same for an agent whose sub-run waits: handing out work may be asked about first.
    pub(crate) async fn paused_below(&self, agent: &str) -> Value {
        let mut paused = self.paused(agent).await;
        while paused["tool_calls"][0]["name"] == "ask_helper" {
            paused = self.approve(&paused["request_id"]).await.body;
        }
        paused
    }

    /// Decides a request.
    pub(crate) async fn resume(&self, request: &Value, body: &Value) -> Answer {
        self.post(&format!("{BASE}/resume/{}", text(request)), body).await
    }

    pub(crate) async fn approve(&self, request: &Value) -> Answer {
        self.resume(request, &json!({"action": "approve"})).await
    }

    pub(crate) async fn task(&self, agent: &str, task: &Value) -> Value {
        let answer = self.get(&format!("{BASE}/{agent}/tasks/{}", text(task))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Waits until a task has this status.
    pub(crate) async fn until(&self, agent: &str, task: &Value, status: &str) -> Value {
        until_found(&format!("{task} is {status}"), async || {
            let shown = self.task(agent, task).await;
            (shown["status"] == status).then_some(shown)
        })
        .await
    }
}

/// A message of one text.
pub(crate) fn says(text: &str) -> Value {
    json!({"items": [{"content_type": "text", "content": text}]})
}

/// What stands in a task's trail, each as `role content`, with the pending calls by name.
pub(crate) fn trail(task: &Value) -> Vec<String> {
    let line = |item: &Value| {
        let names = item["pending_tool_calls"].as_array().map(|calls| {
            let names: Vec<&str> = calls.iter().map(|call| text(&call["name"])).collect();
            format!(" pending {}", names.join(","))
        });
        format!("{} {}{}", text(&item["role"]), text(&item["item"]["content"]), names.unwrap_or_default())
    };
    task["items"].as_array().unwrap().iter().map(line).collect()
}
