//! The shim between the server and a command: it makes a session and process group of its own, starts the command in
//! it, reports, and ends the whole group.
//!
//! The group ends when the command ends, when its time is over, or when standard input closes: then the server does
//! not want the command any more, or is dead. The shim belongs to the group and dies with it; what it has to say it
//! says before.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint::tool::child::{End, Kept, Ran, Report};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgrp, getpid, kill_current_process_group, setpgid, setsid, waitid,
};

/// How long output may still come after the command has ended: whoever else has the pipe is about to be killed.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What is to run, and how far it may go.
#[derive(Debug, clap::Args)]
pub(super) struct ExecChild {
    /// Milliseconds that the command may take.
    #[arg(long)]
    time_limit_ms: u64,
    /// Bytes of output that are kept, both streams together.
    #[arg(long)]
    output_limit: u64,
    /// Where it runs.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    argv: Vec<String>,
}

/// What happens to a running command.
enum News {
    /// It ended.
    Ended,
    /// Nobody wants it any more.
    Unwanted,
}

/// Runs a command until it ends, its time is over or standard input closes.
pub(super) fn run(order: &ExecChild) -> ExitCode {
    // A leader already has what it needs; everybody else gets a session, so that no command can ask on a terminal.
    if getpid() != getpgrp() && setsid().is_err() && setpgid(None, None).is_err() {
        report(&Report::NotStarted("a process group of its own could not be made".into()));
        return ExitCode::FAILURE;
    }
    match start(order) {
        Ok(child) => supervise(child, order),
        Err(why) => {
            report(&Report::NotStarted(why));
            ExitCode::FAILURE
        }
    }
}

fn start(order: &ExecChild) -> Result<Child, String> {
    let Some((program, rest)) = order.argv.split_first() else { return Err("no program is named".into()) };
    if let Some(directory) = &order.directory {
        std::env::set_current_dir(directory).map_err(|error| {
            format!("the working directory {} cannot be entered: {error}", directory.display())
        })?;
    }
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("the program {program:?} cannot be started: {error}"))
}

fn supervise(mut child: Child, order: &ExecChild) -> ExitCode {
    let budget = Arc::new(Mutex::new(order.output_limit));
    let (closed, all_closed) = channel();
    let stdout = Stream::keep(child.stdout.take(), &budget, &closed);
    let stderr = Stream::keep(child.stderr.take(), &budget, &closed);
    drop(closed);
    let news = listen(&child);
    let status = match news.recv_timeout(Duration::from_millis(order.time_limit_ms)) {
        Ok(News::Ended) => child.wait().ok(),
        Ok(News::Unwanted) | Err(RecvTimeoutError::Disconnected) => return end_group(),
        Err(RecvTimeoutError::Timeout) => {
            // At once, and not after the report, which may have to wait for its reader.
            let _ = child.kill();
            let _ = child.wait();
            None
        }
    };
    while all_closed.recv_timeout(LAST_WORDS).is_ok() {}
    report(&Report::Ran(Ran { end: end_of(status), stdout: stdout.take(), stderr: stderr.take() }));
    end_group()
}

/// Two threads that wait: for the end of the command, and for the end of standard input.
fn listen(child: &Child) -> Receiver<News> {
    let (tell, news) = channel();
    let command = Pid::from_child(child);
    let ended = tell.clone();
    std::thread::spawn(move || {
        // Not reaped here: as long as it is not, the main thread can kill it by its number.
        let _ = waitid(WaitId::Pid(command), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = ended.send(News::Ended);
    });
    std::thread::spawn(move || {
        let mut ignored = [0; 64];
        let mut stdin = std::io::stdin();
        while let Ok(1..) = stdin.read(&mut ignored) {}
        let _ = tell.send(News::Unwanted);
        // A report may be stuck on its way to a server that is gone.
        std::thread::sleep(LAST_WORDS);
        end_group();
    });
    news
}

fn end_of(status: Option<ExitStatus>) -> End {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => End::Exit(code),
        Some((None, signal)) => End::Signal(signal.unwrap_or_default()),
        None => End::TimedOut,
    }
}

fn report(report: &Report) {
    let Ok(text) = serde_json::to_vec(report) else { unreachable!("strings and numbers are JSON") };
    // Nobody reads it when the server is gone, and then nobody misses it.
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(&text);
    let _ = stdout.flush();
}

/// Ends everything in the group, this process with it.
fn end_group() -> ExitCode {
    let _ = kill_current_process_group(Signal::KILL);
    ExitCode::FAILURE
}

/// What has been kept of a stream so far.
struct Stream(Arc<Mutex<(Vec<u8>, u64)>>);

impl Stream {
    /// Reads until the stream ends, keeps what the budget allows and drops the rest, so that the command never waits.
    fn keep(
        source: Option<impl Read + Send + 'static>,
        budget: &Arc<Mutex<u64>>,
        closed: &Sender<()>,
    ) -> Stream {
        let kept = Arc::new(Mutex::new((Vec::new(), 0)));
        let (mine, budget, closed) = (kept.clone(), budget.clone(), closed.clone());
        std::thread::spawn(move || {
            let mut chunk = [0; 16 * 1024];
            let Some(mut source) = source else { return };
            while let Ok(read @ 1..) = source.read(&mut chunk) {
                let mut left = budget.lock().unwrap_or_else(PoisonError::into_inner);
                let room = usize::try_from(*left).unwrap_or(usize::MAX).min(read);
                *left -= room as u64;
                drop(left);
                let mut kept = mine.lock().unwrap_or_else(PoisonError::into_inner);
                kept.0.extend_from_slice(chunk.get(..room).unwrap_or_default());
                kept.1 += (read - room) as u64;
            }
            let _ = closed.send(());
        });
        Stream(kept)
    }

    fn take(&self) -> Kept {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, dropped) = std::mem::take(&mut *kept);
        Kept { text: String::from_utf8_lossy(&bytes).into_owned(), dropped }
    }
}
