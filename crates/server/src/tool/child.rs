//! A command in a process group of its own, seen from the server: start it, wait for its report, or let go of it.
//!
//! The server never starts a command itself. It starts its own binary as a shim (`exec-child`) with a pipe as standard
//! input; the shim starts the command and ends the whole group when that pipe closes. A pipe closes also when the
//! server is killed with signal 9, so no list of children has to survive. What the shim does is `cli/exec_child.rs`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use holdpoint_core::time::Millis;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::clock::duration;

/// How much later than the shim the server gives up: the shim may have been stopped.
const GRACE: Millis = Millis::seconds(10);

/// The variables that a command keeps; everything else, keys above all, stays in the server.
const KEPT_VARIABLES: [&str; 3] = ["PATH", "HOME", "LANG"];

/// The variable with the token of this one start.
const TOKEN_VARIABLE: &str = "HOLDPOINT_CALL";

/// What is to run, and how far it may go.
#[derive(Debug, Clone)]
pub struct Order {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where it runs; none is where the server runs.
    pub directory: Option<PathBuf>,
    /// How long it may take.
    pub time_limit: Millis,
    /// How many bytes of its output are kept, both streams together.
    pub output_limit: u64,
    /// Names this start to the command.
    pub token: String,
}

/// What the shim says at the end: one JSON object on its standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The command ran.
    Ran(Ran),
    /// It could not be started: why, in words.
    NotStarted(String),
}

/// What a command left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// How it ended.
    pub end: End,
    /// What it wrote to standard output, as far as it was kept.
    pub stdout: Kept,
    /// What it wrote to standard error, as far as it was kept.
    pub stderr: Kept,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself.
    Exit(i32),
    /// By a signal that was not the shim's.
    Signal(i32),
    /// Its time was over.
    TimedOut,
}

/// What was kept of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kept {
    /// The text; what is not UTF-8 is shown as U+FFFD.
    pub text: String,
    /// How many bytes came after it.
    pub dropped: u64,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The shim itself did not start, so nothing ran.
    #[error("not executed: the server's own program {shim} did not start: {error}")]
    NoShim {
        /// Its path.
        shim: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// The shim is gone, or silent; the command may have done anything.
    #[error("the command was started, but nothing is known of what it did: {0}")]
    Unknown(String),
}

/// The server's own program, also when its file was replaced by a newer one.
pub fn own_program() -> std::io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

/// Runs a command through the shim. Dropping the future ends the command and everything in its group.
pub async fn run(shim: &Path, order: &Order) -> Result<Report, Lost> {
    let no_shim = |error| Lost::NoShim { shim: shim.display().to_string(), error };
    let mut group = Group::start(shim, order).map_err(no_shim)?;
    let Some(stdout) = group.child.stdout.take() else {
        unreachable!("standard output was asked for as a pipe");
    };
    // Text in JSON is at most six times as long as the bytes it came from.
    let longest = order.output_limit.saturating_mul(6).saturating_add(64 * 1024);
    let mut said = Vec::new();
    let mut stdout = stdout.take(longest);
    let patience = duration(Millis(order.time_limit.0.saturating_add(GRACE.0)));
    match timeout(patience, stdout.read_to_end(&mut said)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(Lost::Unknown(error.to_string())),
        Err(_) => return Err(Lost::Unknown("it did not end in time and was killed".into())),
    }
    let report = serde_json::from_slice(&said);
    let ended = group.end().await;
    report.map_err(|_| match ended {
        Ok(status) => Lost::Unknown(format!("its supervisor ended with {status} and left no report")),
        Err(error) => Lost::Unknown(error.to_string()),
    })
}

/// The shim and everything it started. Letting go of it ends them.
struct Group {
    child: Child,
    /// Never written to. That it is open says that the call is still wanted.
    wanted: Option<ChildStdin>,
}

impl Group {
    fn start(shim: &Path, order: &Order) -> std::io::Result<Group> {
        let mut command = Command::new(shim);
        command.arg0("holdpoint").args(arguments(order));
        command
            .env_clear()
            .envs(KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env(TOKEN_VARIABLE, &order.token);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let wanted = child.stdin.take();
        Ok(Group { child, wanted })
    }

    /// The report is here: whatever is left of the group is not wanted any more.
    async fn end(mut self) -> std::io::Result<std::process::ExitStatus> {
        self.kill();
        self.child.wait().await
    }

    /// Ends the group. The shim is its leader and not reaped before, so the number cannot mean another group by now.
    /// Directly after the start there may be no group yet: then the shim itself ends it when it finds the pipe closed.
    fn kill(&mut self) {
        drop(self.wanted.take());
        let leader = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(leader) = leader {
            // An error means that nobody is left.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the shim is started with. The parser of these words is in `cli.rs`.
fn arguments(order: &Order) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["exec-child".into()];
    words.push(format!("--time-limit-ms={}", order.time_limit.0.max(0)).into());
    words.push(format!("--output-limit={}", order.output_limit).into());
    if let Some(directory) = &order.directory {
        let mut word = OsString::from("--directory=");
        word.push(directory);
        words.push(word);
    }
    words.push("--".into());
    words.extend(order.argv.iter().map(OsString::from));
    words
}
