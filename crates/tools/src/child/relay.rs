//! A program that is talked to over its standard input and output for as long as it is wanted, such as an MCP server.
//!
//! It runs below the same shim as a command (`exec-child --relay`): when the server lets go of it, or dies by any
//! signal, the shim's standard input closes and the shim ends everything below it. What the program says on standard
//! error is kept as far as it helps to explain an end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{FRUGAL, let_go, sandbox_word};
use crate::sandbox::Plan;

/// How many bytes of standard error are kept, the last ones.
const LAST_WORDS_BYTES: usize = 2 * 1024;

/// What is to run.
#[derive(Debug, Clone)]
pub struct RelayOrder {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where programs are looked for.
    pub path: OsString,
    /// Where it runs.
    pub directory: PathBuf,
    /// Its environment beside `PATH`, `HOME` and `LANG`. Nothing else of the server's own environment reaches it.
    pub env: BTreeMap<String, String>,
    /// How many processes it may have at a time; more end it.
    pub process_limit: u32,
    /// What it can reach; none is everything that the server's user can.
    pub plan: Option<Plan>,
}

/// A program that runs. Dropping this ends it and everything that it started.
pub struct Relay {
    child: Option<Child>,
    said: Arc<Mutex<Vec<u8>>>,
}

/// The ends of its standard input and output.
pub struct Pipes {
    /// What it reads. While this is open the program is wanted.
    pub stdin: ChildStdin,
    /// What it writes.
    pub stdout: ChildStdout,
}

impl Relay {
    /// Starts a program.
    pub fn start(shim: &Path, order: &RelayOrder) -> std::io::Result<(Relay, Pipes)> {
        let mut directory = OsString::from("--directory=");
        directory.push(&order.directory);
        let mut command = Command::new(shim);
        command.arg0("standfast").arg("exec-child").arg("--relay").arg(directory);
        command.arg(format!("--process-limit={}", order.process_limit));
        command.args(sandbox_word(order.plan.as_ref())).arg("--").args(&order.argv);
        command.env_clear().env("PATH", &order.path).env("LANG", "C.UTF-8").env(FRUGAL.0, FRUGAL.1);
        // Where it is confined, the home of the server's user is out of its reach.
        let home = std::env::var_os("HOME").filter(|_| order.plan.is_none());
        let home = home.unwrap_or_else(|| order.directory.clone().into());
        command.env("HOME", home).envs(&order.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("all three were asked for as pipes")
        };
        let said = Arc::default();
        tokio::spawn(keep_last_words(stderr, Arc::clone(&said)));
        Ok((Relay { child: Some(child), said }, Pipes { stdin, stdout }))
    }

    /// The last that it said on standard error.
    #[must_use]
    pub fn last_words(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).trim().to_owned()
    }
}

async fn keep_last_words(mut stderr: impl AsyncRead + Unpin, said: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(chunk.get(..read).unwrap_or_default());
        let surplus = said.len().saturating_sub(LAST_WORDS_BYTES);
        said.drain(..surplus);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        // Whoever has the pipes drops them too; the shim then ends by itself. One that does not is ended from here.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(let_go(child));
        }
    }
}
