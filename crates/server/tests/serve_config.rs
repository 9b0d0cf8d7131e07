//! The real binary with configuration files: what they say is what is served.
//!
//! Asked through the command line, as people would.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

/// A folder with a script and a configuration whose agents ask it.
fn folder(rest: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.yaml"), SCRIPT).unwrap();
    let text = format!("llms: {{script: {{type: scripted, script: script.yaml}}}}\n{rest}");
    std::fs::write(folder.path().join("holdpoint.yaml"), text).unwrap();
    folder
}

/// A running server; dropping it is `kill -9`.
struct Server {
    child: Child,
    base: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(folder.join("holdpoint.yaml"));
    command.arg("--data").arg(folder.join("data")).env("RUST_LOG", "warn");
    command
}

fn serve(folder: &Path) -> Server {
    let mut child = command(folder).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let base = line.trim().strip_prefix("Holdpoint listens on ").unwrap().to_owned();
    Server { child, base }
}

impl Server {
    /// A client command; its answer, or nothing when there is none.
    fn ask(&self, arguments: &[&str]) -> Option<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        let output = command.args(arguments).args(["--json", "--server", &self.base]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    fn send(&self, agent: &str) -> Value {
        self.ask(&["send", agent, "please", "--wait"]).unwrap()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

const TWO_AGENTS: &str = "
tools:
  execute_command: {approval_prompt: 'Run {input}?', allowed_commands: [echo]}
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept/sessions.db}}}
agents:
  durable: {llm: script, session_store: main-db, tools: [execute_command], task: {input_timeout: 2h}}
  quick: {llm: script, tools: [execute_command], task: {}}
";

/// S0-61, C10, C28: both modes are served side by side with the same answers; only the durable run is there after
/// `kill -9`.
#[test]
fn blocking_and_async_side_by_side() {
    let folder = folder(TWO_AGENTS);
    let first = serve(folder.path());
    let (durable, quick) = (first.send("durable"), first.send("quick"));
    assert_eq!((&durable["status"], &quick["status"]), (&"held".into(), &"held".into()));
    assert!(folder.path().join("kept/sessions.db").exists());
    let holds = first.ask(&["holds"]).unwrap();
    assert_eq!(holds["holds"].as_array().unwrap().len(), 2, "both are listed: {holds}");
    let hold = first.ask(&["holds", "show", text(&quick["holds"][0]["id"])]).unwrap();
    assert_eq!(hold["question"], "Run echo hello?", "{hold}");
    assert!(hold["expires_at"].is_string(), "S3-14: ten minutes for a blocking agent: {hold}");
    first.ask(&["holds", "approve", text(&quick["holds"][0]["id"])]).unwrap();
    drop(first);
    let second = serve(folder.path());
    assert!(second.ask(&["show", text(&quick["id"])]).is_none(), "a restart loses what lives in memory");
    second.ask(&["holds", "approve", text(&durable["holds"][0]["id"])]).unwrap();
    for _ in 0..200 {
        let run = second.ask(&["show", text(&durable["id"])]).unwrap();
        let run = run.get("run").unwrap_or(&run);
        if run["status"] == "completed" {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the durable run did not complete");
}

/// S0-62, S0-67: the way back to blocking loses nothing that is stored. A run of before is decided while its agent lives
/// in memory, as docs/moving.md says.
#[test]
fn back_to_blocking_keeps_what_waits() {
    let folder = folder(TWO_AGENTS);
    let first = serve(folder.path());
    let stored = first.send("durable");
    drop(first);
    let moved = TWO_AGENTS
        .replace("durable: {llm: script, session_store: main-db,", "durable: {llm: script,")
        .replace("quick: {llm: script,", "quick: {llm: script, session_store: main-db,");
    std::fs::write(
        folder.path().join("holdpoint.yaml"),
        format!("llms: {{script: {{type: scripted, script: script.yaml}}}}\n{moved}"),
    )
    .unwrap();
    let second = serve(folder.path());
    assert!(text(&second.send("durable")["id"]).starts_with("mrun_"), "new runs live in memory");
    assert!(text(&second.send("quick")["id"]).starts_with("run_"), "the other one is async now, by one line");
    second.ask(&["holds", "approve", text(&stored["holds"][0]["id"])]).unwrap();
    for _ in 0..200 {
        let run = second.ask(&["show", text(&stored["id"])]).unwrap();
        if run.get("run").unwrap_or(&run)["status"] == "completed" {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the stored run did not complete");
}

/// C29, S0-30, S3-27: without a `task` block the call is not held but denied, with the exact text, and the run goes on.
#[test]
fn without_a_task_block_the_call_is_denied() {
    let folder = folder("agents: {plain: {llm: script, tools: [execute_command]}}\n");
    let server = serve(folder.path());
    let run = server.send("plain");
    assert_eq!(run["status"], "completed", "{run}");
    let shown = server.ask(&["show", text(&run["id"])]).unwrap().to_string();
    assert!(shown.contains("Tool requires approval but task tracking not enabled"), "{shown}");
    assert!(!shown.contains("call.started"), "{shown}");
}

/// What this version cannot do is said as a list, and nothing is served.
#[test]
fn what_is_not_available_yet_is_listed() {
    let folder = folder(
        "agents:\n  a: {llm: gpt, tools: [read_file], task: {timeout: 1h}}\n\
         session_stores: {}\nserver: {public_url: 'https://holdpoint.example.org'}\n",
    );
    let path = folder.path().join("holdpoint.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("llms: {", "llms: {gpt: {type: openai, model: x, api_key: sk-canary}, "),
    )
    .unwrap();
    let output = command(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for part in ["llms.gpt: models of type `openai`", "agents.a.task.timeout", "server.public_url"] {
        assert!(said.contains(&format!("not yet available: {part}")), "{said}");
    }
    assert!(!said.contains("sk-canary"), "{said}");
    assert!(!folder.path().join("data/holdpoint.db").exists(), "nothing was opened");
}

/// A file with mistakes is not served: every one is shown.
#[test]
fn a_wrong_file_is_not_served() {
    let folder = folder("agents: {a: {llm: scirpt, task: {hitl: {mode: async}}}}\n");
    let output = command(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("there is no llm `scirpt`") && said.contains("did you mean `script`?"), "{said}");
    assert!(said.contains("async HITL requires session_store to be configured"), "{said}");
}

/// S0-57, F30: a changed file is taken while runs wait, a bad one is not; what waits keeps what it was started with.
#[test]
fn a_changed_file_is_taken_and_a_bad_one_is_not() {
    let folder = folder(TWO_AGENTS);
    let file = folder.path().join("holdpoint.yaml");
    let server = serve(folder.path());
    let held = server.send("durable");
    let before = std::fs::read_to_string(&file).unwrap();

    std::fs::write(&file, before.replace("llm: script", "llm: missing")).unwrap();
    let hangup = |server: &Server| {
        let pid = rustix::process::Pid::from_child(&server.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    };
    hangup(&server);
    assert_eq!(server.send("durable")["status"], "held", "the old one stays");

    let with_more = before.replace("  quick:", "  third: {llm: script, task: {}}\n  quick:");
    let with_more =
        with_more.replace("approval_prompt: 'Run {input}?'", "approval_prompt: 'Really {input}?'");
    std::fs::write(&file, with_more).unwrap();
    hangup(&server);
    let mut new = None;
    for _ in 0..200 {
        new = server.ask(&["send", "third", "please"]);
        if new.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(new.is_some(), "the new agent is there");
    let question = |run: &Value| {
        let hold = server.ask(&["holds", "show", text(&run["holds"][0]["id"])]).unwrap();
        text(&hold["question"]).to_owned()
    };
    assert_eq!(question(&held), "Run echo hello?", "what waits is as it was started");
    assert_eq!(question(&server.send("durable")), "Really echo hello?");
    server.ask(&["holds", "approve", text(&held["holds"][0]["id"])]).unwrap();
}
