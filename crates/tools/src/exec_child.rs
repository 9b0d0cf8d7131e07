//! The shim between the server and a command: it makes a session and process group of its own, starts the command in
//! it, confined as it was told, reports, and ends everything that the command started.
//!
//! Everything ends when the command ends, when its time is up, when it has too many processes or has written too much
//! (`watch.rs`), or when standard input closes: then the server does not want the command any more, or is dead. The shim
//! is a subreaper: what leaves the group stays below it and is found. What it has to say it says last, and then it ends
//! itself with the group.
//!
//! A confined command is started in three stages (`stages.rs`); what is described here is the last one.
//!
//! With `--relay` it reports nothing: standard input is handed on to the program, whose output goes straight to the
//! server. Then closing standard input is the only way to let go of it.

mod stages;
mod watch;

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cgroup::ControlGroups;
use crate::child::{CapturedStream, CommandResult, End, FRUGAL, Report};
use crate::descendants::end_below;
use crate::sandbox::{self, Plan};
use watch::{Excess, Limits};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_current_process_group, set_child_subreaper, setsid,
    waitid,
};

/// How long output may still come after everything has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What is to run, and how far it may go.
#[derive(Debug, clap::Args)]
pub struct ExecChild {
    /// Hand standard input and output on instead of reporting.
    #[arg(long)]
    relay: bool,
    /// Milliseconds that the command may take.
    #[arg(long, default_value_t = 0)]
    time_limit_ms: u64,
    /// Bytes of output that are kept, both streams together.
    #[arg(long, default_value_t = 0)]
    output_limit: u64,
    /// How many processes it may have at a time.
    #[arg(long, default_value_t = 64)]
    process_limit: u32,
    /// Bytes of memory that its processes may have together; 0 means no limit.
    #[arg(long, default_value_t = 0)]
    memory_limit: u64,
    /// Bytes of memory that each of its processes may have; 0 means no limit.
    #[arg(long, default_value_t = 0)]
    data_limit: u64,
    /// Bytes that a file may have that it writes; 0 means no limit.
    #[arg(long, default_value_t = 0)]
    file_limit: u64,
    /// Bytes that it may write, all files together; 0 means no limit.
    #[arg(long, default_value_t = 0)]
    disk_limit: u64,
    /// Make it a user of its own where that can be had: nobody else counts its tasks.
    #[arg(long)]
    own_user: bool,
    /// What it can reach, as JSON; without this, everything.
    #[arg(long)]
    sandbox: Option<String>,
    /// How far a confined command is on its way.
    #[arg(long, value_enum, default_value_t = Stage::Outside)]
    stage: Stage,
    /// The directory for temporary files of a confined command.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Where it runs.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    argv: Vec<String>,
}

/// How far a confined command is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Stage {
    /// Beside the server.
    Outside,
    /// About to leave the server's namespaces.
    Between,
    /// In its own.
    Inside,
    /// Beside the second one, for as long as that needs a user namespace to name.
    Namespace,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Outside => "outside",
            Stage::Between => "between",
            Stage::Inside => "inside",
            Stage::Namespace => "namespace",
        }
    }
}

/// What happens to a running command.
enum News {
    /// It ended.
    Ended,
    /// Nobody wants it any more.
    Unwanted,
    /// It has more of something than it may have.
    Excess(Excess),
}

/// Runs a command until it ends, its time is up or standard input closes.
pub fn run(order: &ExecChild) -> ExitCode {
    match staged(order) {
        Ok(code) => code,
        Err(why) if order.relay => {
            eprintln!("{why}");
            ExitCode::from(127)
        }
        Err(why) => {
            report(&Report::NotStarted(why));
            ExitCode::FAILURE
        }
    }
}

fn staged(order: &ExecChild) -> Result<ExitCode, String> {
    let plan = order.sandbox.as_deref().map(serde_json::from_str::<Plan>).transpose();
    let plan = plan.map_err(|error| format!("what it can reach cannot be read: {error}"))?;
    // Where there is no such thing, the group has to do.
    let _ = set_child_subreaper(Some(getpid()));
    match (order.stage, plan, &order.scratch) {
        (Stage::Outside, plan, _) => {
            // A session of its own, so that no command can ask on a terminal. Only the leader of a group is refused one,
            // and it has a group already. Who leads is not asked: a group may be 0 in a container, which rustix does not
            // expect.
            if setsid().is_err_and(|error| error != Errno::PERM) {
                return Err("a process group of its own could not be made".into());
            }
            match plan {
                Some(plan) => stages::outside(order, plan),
                None => attend(order, None),
            }
        }
        (Stage::Between, Some(plan), Some(scratch)) => stages::between(order, plan, scratch),
        (Stage::Inside, Some(mut plan), Some(scratch)) => {
            stages::inside(&mut plan);
            plan.writable.push(scratch.clone());
            attend(order, Some(plan))
        }
        (Stage::Namespace, _, _) => {
            let held = sandbox::hold_namespace();
            Ok(if held.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        (Stage::Between | Stage::Inside, _, _) => Err("it was given no list of what can be reached".into()),
    }
}

/// Starts the command and stays with it.
fn attend(order: &ExecChild, plan: Option<Plan>) -> Result<ExitCode, String> {
    stages::limit(order, plan.as_ref());
    if order.relay { relay(order, plan) } else { supervise(order, plan) }
}

/// A thread that waits for what it is to work on. All of them are made before the command, which may use up every task
/// that there is for it, and this process is counted with it.
fn awaiting<T: Send + 'static>(work: impl FnOnce(T) + Send + 'static) -> Sender<T> {
    let (hand, handed) = channel();
    std::thread::spawn(move || {
        if let Ok(what) = handed.recv() {
            work(what);
        }
    });
    hand
}

/// Hands standard input on to a program until the program ends or nobody is at the other end of standard input.
fn relay(order: &ExecChild, plan: Option<Plan>) -> Result<ExitCode, String> {
    let (tell, news) = channel();
    let (ended, excess) = (tell.clone(), tell.clone());
    let (limit, limits) = (order.process_limit, Limits::of(order));
    std::thread::spawn(move || excess.send(News::Excess(limits.wait_for_excess())));
    let end_of_program = awaiting(move |program| {
        let _ = waitid(WaitId::Pid(program), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = ended.send(News::Ended);
    });
    let hand_on = awaiting(|mut input: ChildStdin| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut input);
    });
    std::thread::spawn(move || {
        // A program that does not read keeps the copying thread waiting, so the end is looked for by itself.
        let stdin = std::io::stdin();
        let mut hung_up = [PollFd::new(&stdin, PollFlags::empty())];
        while poll(&mut hung_up, None).is_err_and(|error| error == Errno::INTR) {}
        let _ = tell.send(News::Unwanted);
    });
    let StartedCommand { mut child, groups } = start(order, plan, |command| {
        command.stdin(Stdio::piped());
    })?;
    let _ = end_of_program.send(Pid::from_child(&child));
    child.stdin.take().into_iter().for_each(|input| drop(hand_on.send(input)));
    match news.recv() {
        Ok(News::Ended) => {}
        Ok(News::Excess(Excess::Processes)) => eprintln!("it had more than {limit} processes and was ended"),
        Ok(News::Excess(Excess::Written)) => eprintln!("it wrote too much and was ended"),
        // Its own standard input is closed by now: a program that ends by that gets the time to do so.
        Ok(News::Unwanted) | Err(_) => {
            let _ = news.recv_timeout(LAST_WORDS);
        }
    }
    end_below(getpid());
    drop(groups);
    Ok(end(order.stage))
}

/// A command that runs, and what counts its memory and tasks, where the first stage has not seen to that.
struct StartedCommand {
    child: Child,
    groups: ControlGroups,
}

/// The program in its directory, and the words for when it cannot be started.
fn command_of(order: &ExecChild) -> Result<(Command, String), String> {
    let Some((program, rest)) = order.argv.split_first() else { return Err("no program is named".into()) };
    let directory = order.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    // By its whole path: the directory may have been mounted again since this process was started in it.
    let directory = std::path::absolute(&directory).unwrap_or(directory);
    std::env::set_current_dir(&directory).map_err(|error| {
        format!("the working directory {} cannot be entered: {error}", directory.display())
    })?;
    let mut command = Command::new(program);
    command.args(rest).env_remove(FRUGAL.0);
    Ok((command, format!("the program {program:?} cannot be started")))
}

/// Starts the program, confined if it is to be, with these ends of its standard streams.
fn start(
    order: &ExecChild,
    plan: Option<Plan>,
    streams: impl FnOnce(&mut Command),
) -> Result<StartedCommand, String> {
    let (mut command, cannot) = command_of(order)?;
    streams(&mut command);
    let spawn = move |command: &mut Command| command.spawn().map_err(|error| format!("{cannot}: {error}"));
    let Some(plan) = plan else {
        let groups = ControlGroups::join(&stages::bounds(order));
        let child = spawn(&mut command);
        groups.leave();
        return Ok(StartedCommand { child: child?, groups });
    };
    command.envs(order.scratch.as_ref().map(|scratch| ("TMPDIR", scratch)));
    if plan.spaces.processes {
        // A signal to its whole group reaches nobody but itself. It ends with this process, whatever group it is in.
        command.process_group(0);
    }
    // Only this thread is confined, and the command inherits it. The others have to end what the command started.
    let confined = std::thread::spawn(move || {
        plan.apply().map_err(|error| error.to_string())?;
        spawn(&mut command)
    });
    let child = confined.join().map_err(|_| "starting it ended in a panic".to_owned())??;
    Ok(StartedCommand { child, groups: ControlGroups::default() })
}

fn supervise(order: &ExecChild, plan: Option<Plan>) -> Result<ExitCode, String> {
    let budget = Arc::new(Mutex::new(order.output_limit));
    let (closed, all_closed) = channel();
    let (stdout, read_stdout) = Stream::keep(&budget, &closed);
    let (stderr, read_stderr) = Stream::keep(&budget, &closed);
    drop(closed);
    let (news, end_of_command) = listen(Limits::of(order), order.stage);
    let StartedCommand { mut child, groups } = start(order, plan, |command| {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    })?;
    let _ = end_of_command.send(Pid::from_child(&child));
    child.stdout.take().into_iter().for_each(|stdout| drop(read_stdout.send(stdout)));
    child.stderr.take().into_iter().for_each(|stderr| drop(read_stderr.send(stderr)));
    drop((read_stdout, read_stderr));
    let how = match news.recv_timeout(Duration::from_millis(order.time_limit_ms)) {
        Ok(News::Ended) => child.wait().map_or(End::TimedOut, end_of),
        Ok(News::Excess(Excess::Processes)) => End::TooManyProcesses,
        Ok(News::Excess(Excess::Written)) => End::WroteTooMuch,
        Err(RecvTimeoutError::Timeout) => End::TimedOut,
        Ok(News::Unwanted) | Err(RecvTimeoutError::Disconnected) => {
            end_below(getpid());
            drop(groups);
            return Ok(end(order.stage));
        }
    };
    // Before the report, which may have to wait for its reader. With them the pipes close.
    end_below(getpid());
    while all_closed.recv_timeout(LAST_WORDS).is_ok() {}
    drop(groups);
    report(&Report::Ran(CommandResult { end: how, stdout: stdout.take(), stderr: stderr.take() }));
    Ok(end(order.stage))
}

/// Three threads that wait: for the end of the command, once it is known, for the end of standard input, for too much of
/// something.
fn listen(limits: Limits, stage: Stage) -> (Receiver<News>, Sender<Pid>) {
    let (tell, news) = channel();
    let (ended, excess) = (tell.clone(), tell.clone());
    let end_of_command = awaiting(move |command| {
        // Not reaped here: as long as it is not, the main thread can kill it by its number.
        let _ = waitid(WaitId::Pid(command), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = ended.send(News::Ended);
    });
    std::thread::spawn(move || excess.send(News::Excess(limits.wait_for_excess())));
    std::thread::spawn(move || {
        let mut ignored = [0; 64];
        let mut stdin = std::io::stdin();
        while let Ok(1..) = stdin.read(&mut ignored) {}
        let _ = tell.send(News::Unwanted);
        // The main thread may be stuck with a report on its way to a server that is gone.
        std::thread::sleep(LAST_WORDS);
        end_below(getpid());
        end(stage);
    });
    (news, end_of_command)
}

fn end_of(status: ExitStatus) -> End {
    match status.code() {
        Some(code) => End::Exit(code),
        None => End::Signal(status.signal().unwrap_or_default()),
    }
}

fn report(report: &Report) {
    let Ok(text) = serde_json::to_vec(report) else { unreachable!("strings and numbers are JSON") };
    // Nobody reads it when the server is gone, and then nobody misses it.
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(&text);
    let _ = stdout.flush();
}

/// Ends this process, and with it everything in its group; of a confined command the stages before see to that, and
/// have something to remove.
fn end(stage: Stage) -> ExitCode {
    match stage {
        Stage::Outside => {
            let _ = kill_current_process_group(Signal::KILL);
            ExitCode::FAILURE
        }
        Stage::Between | Stage::Inside | Stage::Namespace => std::process::exit(1),
    }
}

/// What has been kept of a stream so far.
struct Stream(Arc<Mutex<(Vec<u8>, u64)>>);

impl Stream {
    /// Reads until the stream ends, keeps what the budget allows and drops the rest, so that the command never waits.
    fn keep<S: Read + Send + 'static>(budget: &Arc<Mutex<u64>>, closed: &Sender<()>) -> (Stream, Sender<S>) {
        let kept = Arc::new(Mutex::new((Vec::new(), 0)));
        let (mine, budget, closed) = (kept.clone(), budget.clone(), closed.clone());
        let source = awaiting(move |mut source: S| {
            let mut chunk = [0; 16 * 1024];
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
        (Stream(kept), source)
    }

    fn take(&self) -> CapturedStream {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, dropped) = std::mem::take(&mut *kept);
        CapturedStream { text: String::from_utf8_lossy(&bytes).into_owned(), dropped }
    }
}
