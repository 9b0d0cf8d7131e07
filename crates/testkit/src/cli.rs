//! A server asked through the command line, as people would.
//!
//! Every question is a process of its own with `--json`; over HTTP: `http.rs`.

use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use crate::binary::standfast;
use crate::json::{of_run, text};
use crate::process::Process;

/// How often a run is looked at, for at least a minute.
const LOOKS: u32 = 1200;
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Process {
    /// What a client command does, with its exit code.
    pub fn output(&self, arguments: &[&str]) -> Output {
        standfast().args(arguments).args(["--server", &self.base]).output().unwrap()
    }

    /// A client command and its answer.
    ///
    /// # Panics
    ///
    /// When it is refused.
    pub fn ask(&self, arguments: &[&str]) -> Value {
        let output = self.output(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A client command and its answer, whatever its exit code: that of `send --wait` says how the run ended.
    ///
    /// # Panics
    ///
    /// When it prints no JSON.
    pub fn ask_anyway(&self, arguments: &[&str]) -> Value {
        let output = self.output(&[arguments, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {said}"))
    }

    /// A client command; its answer, or nothing when it is refused.
    pub fn try_ask(&self, arguments: &[&str]) -> Option<Value> {
        let output = self.output(&[arguments, &["--json"]].concat());
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// A client command that is refused, and why.
    ///
    /// # Panics
    ///
    /// When it is not refused.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "{arguments:?} was not refused");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Says something to an agent, and waits until it has come as far as it can.
    pub fn send(&self, agent: &str) -> Value {
        self.ask(&["send", agent, "please", "--wait"])
    }

    /// Begins a run of an agent, without waiting; its id.
    pub fn begin(&self, agent: &str) -> String {
        text(&self.ask(&["send", agent, "please"])["id"]).to_owned()
    }

    /// A run as it is shown.
    pub fn run(&self, id: &str) -> Value {
        of_run(&self.ask(&["show", id])).clone()
    }

    /// A run as it is shown, once it has this status.
    pub fn run_once(&self, id: &str, status: &str) -> Value {
        of_run(&self.until_status(id, status)).clone()
    }

    /// What is shown of a run, once this is true of it.
    ///
    /// # Panics
    ///
    /// When it never is.
    pub fn until(&self, run: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..LOOKS {
            last = self.ask(&["show", run]);
            if is_so(&last) {
                return last;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        panic!("{run} is not {what}: {last:#}")
    }

    /// What is shown of a run, once it has this status.
    pub fn until_status(&self, run: &str, status: &str) -> Value {
        self.until(run, status, |shown| of_run(shown)["status"] == status)
    }

    /// The only hold of a run, in full.
    ///
    /// # Panics
    ///
    /// When it has more.
    pub fn hold(&self, run: &str) -> Value {
        let held = self.run_once(run, "held");
        let holds = held["holds"].as_array().unwrap();
        assert_eq!(holds.len(), 1, "{held:#}");
        self.ask(&["holds", "show", text(&holds[0]["id"])])
    }

    /// The hold of this kind that a run has once it has one, in full.
    pub fn hold_of_kind(&self, run: &str, kind: &str) -> Value {
        let is_it = |hold: &Value| hold["kind"] == kind;
        let holds = |shown: &Value| of_run(shown)["holds"].as_array().cloned().unwrap_or_default();
        let shown = self.until(run, &format!("held for {kind}"), |shown| holds(shown).iter().any(is_it));
        let found = holds(&shown).into_iter().find(is_it).unwrap();
        self.ask(&["holds", "show", text(&found["id"])])
    }

    /// The only hold that anybody has to decide here, once there is one, in full.
    ///
    /// # Panics
    ///
    /// When there never is exactly one.
    pub fn only_hold(&self) -> Value {
        for _ in 0..LOOKS {
            let listed = self.ask(&["holds"]);
            let holds = listed["holds"].as_array().or(listed.as_array()).cloned().unwrap_or_default();
            if let [one] = holds.as_slice() {
                return self.ask(&["holds", "show", text(&one["id"])]);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        panic!("there is not one hold to decide")
    }
}
