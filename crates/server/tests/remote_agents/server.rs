//! The server whose agent hands work to another one, its folder, and what people ask it.
//!
//! Dropping a server is `kill -9`.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::started::Started as Server;
use crate::started::started;

/// A folder of a server whose agent `boss` hands one piece of work to the remote agent at this address, with more
/// members of the tool's entry.
pub(crate) fn boss(url: &str, more: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "replies:\n- calls: [{tool: remote, arguments: {message: pay the bill}}]\n- text: all done\n";
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    write_boss(&folder, url, more);
    folder
}

/// The same with another entry.
pub(crate) fn write_boss(folder: &TempDir, url: &str, more: &str) {
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}\n\
         session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
         agents: {{boss: {{llm: script, session_store: main, tools: [remote], task: {{}}}}}}\n\
         tools:\n  remote: {{type: a2a, url: \"{url}\", allowed_hosts: [127.0.0.1], requires_approval: false{more}}}\n"
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
}

/// A folder of a server whose agent `worker` writes a line into a file, after somebody has agreed.
pub(crate) fn worker() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = "llms: {script: {type: scripted, script: script.yaml}}\n\
                  session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}\n\
                  agents: {worker: {llm: script, session_store: main, tools: [write_file], task: {}}}\n";
    let script = "replies:\n- calls: [{tool: write_file, arguments: {path: paid.txt, content: once}}]\n- text: written down\n";
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    folder
}

/// A port that nobody has.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn command(folder: &Path, port: u16) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standfast"));
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"]);
    command.arg(folder.join("standfast.yaml")).arg("--data").arg(folder.join("data"));
    command.env("RUST_LOG", "warn");
    command
}

/// What a server that does not start says.
pub(crate) fn refused(folder: &Path) -> String {
    let Output { status, stderr, .. } = command(folder, 0).stdout(Stdio::null()).output().unwrap();
    assert_eq!(status.code(), Some(2), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stderr).unwrap()
}

pub(crate) fn serve(folder: &Path) -> Server {
    serve_at(folder, 0)
}

pub(crate) fn serve_at(folder: &Path, port: u16) -> Server {
    started(&mut command(folder, port))
}

impl Server {
    /// A client command and its answer.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standfast"));
        let output = command.args(arguments).args(["--json", "--server", &self.base]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Begins a run of `boss`; its id.
    pub(crate) fn begin(&self) -> String {
        text(&self.ask(&["send", "boss", "please"])["id"]).to_owned()
    }

    /// The run, once this is true of it.
    pub(crate) fn until(&self, run: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..1200 {
            last = self.ask(&["show", run]);
            if is_so(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("not {what}: {last:#}")
    }

    pub(crate) fn until_status(&self, run: &str, status: &str) -> Value {
        self.until(run, status, |shown| of_run(shown)["status"] == status)
    }

    /// The hold of this kind that a run has once it has one, in full.
    pub(crate) fn hold(&self, run: &str, kind: &str) -> Value {
        let is_it = |hold: &Value| hold["kind"] == kind;
        let holds = |shown: &Value| of_run(shown)["holds"].as_array().cloned().unwrap_or_default();
        let shown = self.until(run, &format!("held for {kind}"), |shown| holds(shown).iter().any(is_it));
        let found = holds(&shown).into_iter().find(is_it).unwrap();
        self.ask(&["holds", "show", text(&found["id"])])
    }

    /// The only hold that anybody has to decide here, once there is one.
    pub(crate) fn asked(&self) -> Value {
        for _ in 0..1200 {
            let listed = self.ask(&["holds"]);
            let holds = listed["holds"].as_array().or(listed.as_array()).cloned().unwrap_or_default();
            if let [one] = holds.as_slice() {
                return self.ask(&["holds", "show", text(&one["id"])]);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("nobody is asked anything")
    }
}

/// The run itself in what `show` says.
pub(crate) fn of_run(shown: &Value) -> &Value {
    shown.get("run").unwrap_or(shown)
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}
