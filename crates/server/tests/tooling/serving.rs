//! The real binary with a configuration file, asked through the command line, as people would.
//!
//! Shared by several test programs; each uses all of it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::started::Started as Server;
use crate::started::started;

/// A folder with a configuration whose agents can ask these scripts, each by its name.
pub(crate) fn folder(scripts: &[(&str, &str)], rest: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut llms = String::new();
    for (name, script) in scripts {
        std::fs::write(folder.path().join(format!("{name}.script.yaml")), script).unwrap();
        llms.push_str(&format!("  {name}: {{type: scripted, script: {name}.script.yaml}}\n"));
    }
    std::fs::write(folder.path().join("standfast.yaml"), format!("llms:\n{llms}{rest}")).unwrap();
    folder
}

pub(crate) fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standfast"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(folder.join("standfast.yaml"));
    command.arg("--data").arg(folder.join("data")).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    command
}

pub(crate) fn serve(folder: &Path) -> Server {
    started(&mut command(folder))
}

impl Server {
    /// A client command; its answer, or nothing when there is none.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Option<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standfast"));
        let output = command.args(arguments).args(["--json", "--server", &self.base]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(crate) fn send(&self, agent: &str) -> Value {
        self.ask(&["send", agent, "please", "--wait"]).unwrap()
    }

    /// A run as it is shown.
    pub(crate) fn run(&self, id: &str) -> Value {
        let shown = self.ask(&["show", id]).unwrap();
        shown.get("run").unwrap_or(&shown).clone()
    }

    /// Waits until a run has this status.
    pub(crate) fn until(&self, id: &str, status: &str) -> Value {
        let mut run = Value::Null;
        for _ in 0..600 {
            run = self.run(id);
            if run["status"] == status {
                return run;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{id} is not {status}: {run}");
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
