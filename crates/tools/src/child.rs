//! A command in a process group of its own, seen from the server: start it, wait for its report, or let go of it.
//!
//! The server never starts a command itself. It starts its own binary as a shim (`exec-child`) with a pipe as standard
//! input; the shim starts the command and ends everything below it when that pipe closes. A pipe closes also when the
//! server is killed with signal 9, so no list of children has to survive. What the shim does is `exec_child.rs`.

pub mod relay;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use standfast_core::time::Millis;
use standfast_engine::clock::duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::descendants::end_below;
use super::sandbox::Plan;

/// How much later than the shim the server gives up: the shim may have been stopped.
const GRACE: Millis = Millis::seconds(10);

/// How long the shim may take to end everything below it, once it is asked to.
const LETTING_GO: Duration = Duration::from_secs(3);

/// How the allocator of the shim takes its memory: as it is needed. It would map a gigabyte at once, which counts where the
/// shim limits its own memory before it starts its threads and the command; the command does not get this variable.
pub(crate) const FRUGAL: (&str, &str) = ("MIMALLOC_ARENA_EAGER_COMMIT", "0");

/// The variable with the token of this one start.
const TOKEN_VARIABLE: &str = "STANDFAST_CALL";

/// What is to run, and how far it may go.
#[derive(Debug, Clone)]
pub struct Order {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where programs are looked for.
    pub path: OsString,
    /// Where it runs; none is where the server runs.
    pub directory: Option<PathBuf>,
    /// How long it may take.
    pub time_limit: Millis,
    /// How many bytes of its output are kept, both streams together.
    pub output_limit: u64,
    /// How many processes it may have at a time.
    pub process_limit: u32,
    /// How many bytes of memory its processes may have together.
    pub memory_limit: u64,
    /// How many bytes a file may have that it writes.
    pub file_limit: u64,
    /// How many bytes it may write, all files together.
    pub disk_limit: u64,
    /// What it can reach; none is everything.
    pub plan: Option<Plan>,
    /// Its environment, beside what every command has.
    pub env: Vec<(&'static str, String)>,
    /// Names this start to the command.
    pub token: String,
}

/// What the shim says at the end: one JSON object on its standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The command ran.
    Ran(CommandResult),
    /// It could not be started: why, in words.
    NotStarted(String),
}

/// What a command left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandResult {
    /// How it ended.
    pub end: End,
    /// What it wrote to standard output, as far as it was kept.
    pub stdout: CapturedStream,
    /// What it wrote to standard error, as far as it was kept.
    pub stderr: CapturedStream,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself.
    Exit(i32),
    /// By a signal that was not the shim's.
    Signal(i32),
    /// Its time was up.
    TimedOut,
    /// It had more processes than it may have.
    TooManyProcesses,
    /// It had written more bytes than it may write.
    WroteTooMuch,
}

/// What was kept of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CapturedStream {
    /// The text; what is not UTF-8 is shown as U+FFFD.
    pub text: String,
    /// How many bytes came after it.
    pub dropped: u64,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum MissingReport {
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
pub async fn run(shim: &Path, order: &Order) -> Result<Report, MissingReport> {
    let no_shim = |error| MissingReport::NoShim { shim: shim.display().to_string(), error };
    let mut group = Group::start(shim, order).map_err(no_shim)?;
    let Some(stdout) = group.child.as_mut().and_then(|child| child.stdout.take()) else {
        unreachable!("standard output was asked for as a pipe");
    };
    // Text in JSON is at most six times as long as the bytes it came from.
    let longest = order.output_limit.saturating_mul(6).saturating_add(64 * 1024);
    let mut said = Vec::new();
    let mut stdout = stdout.take(longest);
    let patience = duration(Millis(order.time_limit.0.saturating_add(GRACE.0)));
    match timeout(patience, stdout.read_to_end(&mut said)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(MissingReport::Unknown(error.to_string())),
        Err(_) => return Err(MissingReport::Unknown("it exceeded its time limit and was killed".into())),
    }
    let report = serde_json::from_slice(&said);
    let ended = group.end().await;
    report.map_err(|_| match ended {
        Ok(status) => {
            MissingReport::Unknown(format!("its supervisor ended with {status} and left no report"))
        }
        Err(error) => MissingReport::Unknown(error.to_string()),
    })
}

/// The shim and everything it started. Letting go of it ends them.
struct Group {
    /// None once it is let go.
    child: Option<Child>,
    /// Never written to. That it is open says that the call is still wanted.
    wanted: Option<ChildStdin>,
}

impl Group {
    fn start(shim: &Path, order: &Order) -> std::io::Result<Group> {
        let mut command = Command::new(shim);
        command.arg0("standfast").args(arguments(order));
        // Nothing of the server's own environment: keys live there.
        command.env_clear().env("PATH", &order.path).env("LANG", "C.UTF-8").env("TERM", "dumb");
        command.env(FRUGAL.0, FRUGAL.1);
        let home = order.directory.clone().or_else(|| std::env::current_dir().ok());
        command.envs(home.map(|home| ("HOME", home))).env(TOKEN_VARIABLE, &order.token);
        command.envs(order.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let wanted = child.stdin.take();
        Ok(Group { child: Some(child), wanted })
    }

    /// The report is here: whatever is left of the group is not wanted any more.
    async fn end(mut self) -> std::io::Result<std::process::ExitStatus> {
        drop(self.wanted.take());
        match self.child.take() {
            Some(child) => let_go(child).await,
            None => Err(std::io::ErrorKind::NotFound.into()),
        }
    }
}

/// The shim finds its standard input closed and ends everything below it, also what has left its group; only then it
/// ends itself. One that does not (it may have been stopped) is ended from here.
async fn let_go(mut child: Child) -> std::io::Result<std::process::ExitStatus> {
    // Not reaped before, so the number cannot mean anybody else by now.
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Ok(ended) = timeout(LETTING_GO, child.wait()).await {
        kill_group(leader);
        return ended;
    }
    if let Some(leader) = leader {
        end_below(leader);
    }
    kill_group(leader);
    child.wait().await
}

/// An error means that nobody is left.
fn kill_group(leader: Option<Pid>) {
    if let Some(leader) = leader {
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.wanted.take());
        let Some(child) = self.child.take() else { return };
        // Without a runtime the server is at its end: the pipe is closed, and the shim does the rest.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(let_go(child));
        }
    }
}

/// How the shim gets what a program can reach.
fn sandbox_word(plan: Option<&Plan>) -> Option<String> {
    Some(format!("--sandbox={}", serde_json::to_string(plan?).ok()?))
}

/// What the shim is started with. The parser of these words is in `cli.rs`.
fn arguments(order: &Order) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["exec-child".into()];
    words.push(format!("--time-limit-ms={}", order.time_limit.0.max(0)).into());
    words.push(format!("--output-limit={}", order.output_limit).into());
    words.push(format!("--process-limit={}", order.process_limit).into());
    words.push(format!("--memory-limit={}", order.memory_limit).into());
    words.push(format!("--file-limit={}", order.file_limit).into());
    words.push(format!("--disk-limit={}", order.disk_limit).into());
    words.extend(sandbox_word(order.plan.as_ref()).map(OsString::from));
    if let Some(directory) = &order.directory {
        let mut word = OsString::from("--directory=");
        word.push(directory);
        words.push(word);
    }
    words.push("--".into());
    words.extend(order.argv.iter().map(OsString::from));
    words
}
