//! An agent made with the official Python SDK does the work, over both bindings.
//!
//! `cargo xtask test` installs the SDK; the agent is `crates/e2e/clients/agent.py`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::remote_agents::server::{boss, free_port, serve, text};

struct Agent {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    fn start(binding: &str) -> Agent {
        let target = standfast_testkit::binary::target_folder();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/agent.py");
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new(target.join("a2a-clients/bin/python"));
        command.arg(script).args([&port.to_string(), binding]).arg(folder.path().join("paid.txt"));
        let missing = |error| panic!("there is no SDK, {error}: `cargo xtask test` installs it");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap_or_else(missing);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("listens on"), "the agent did not start: {line:?}");
        Agent { child, port, folder }
    }

    fn paid(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("paid.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// It asks, a person here answers after this server was killed, and what it says is the result of the call.
fn asks_and_pays(binding: &str) {
    let agent = Agent::start(binding);
    let folder = boss(&format!("http://127.0.0.1:{}", agent.port), "");
    let here = serve(folder.path());
    let run = here.begin("boss");
    let hold = here.hold_of_kind(&run, "input");
    assert_eq!(hold["question"], "The remote agent Paying agent asks:\n\nWhich account shall pay?");
    drop(here);
    let here = serve(folder.path());
    here.ask(&["holds", "answer", text(&hold["id"]), "4711"]);
    let ended = here.until_status(&run, "completed").to_string();
    assert!(ended.contains("paid from 4711"), "{ended}");
    assert_eq!(agent.paid(), ["4711"]);
}

#[test]
fn python_agent_over_json_rpc() {
    asks_and_pays("JSONRPC");
}

#[test]
fn python_agent_over_http_json() {
    asks_and_pays("HTTP+JSON");
}

/// Work that it does not take is an error that the model hears; a run that is canceled cancels what it began.
#[test]
fn python_agent_rejects_and_is_canceled() {
    let agent = Agent::start("JSONRPC");
    let folder = boss(&format!("http://127.0.0.1:{}", agent.port), "");
    let script = folder.path().join("script.yaml");
    let plain = std::fs::read_to_string(&script).unwrap();
    std::fs::write(&script, plain.replace("pay the bill", "refuse it")).unwrap();
    let here = serve(folder.path());
    let run = here.begin("boss");
    let ended = here.until_status(&run, "completed").to_string();
    assert!(ended.contains("would not take the work: not my work"), "{ended}");
    drop(here);

    std::fs::write(&script, plain).unwrap();
    let here = serve(folder.path());
    let run = here.begin("boss");
    here.hold_of_kind(&run, "input");
    here.ask(&["cancel", &run]);
    for _ in 0..600 {
        if agent.paid() == ["canceled"] {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("the task was not canceled: {:?}", agent.paid());
}
