//! What is special about a tool: how the engine treats it where running it is not all.
//!
//! Each nature is what the engine asks of such a tool, as a trait of its own. Which tools are of which nature is not known
//! here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::event::Envelope;
use standfast_core::id::HoldId;
use standfast_core::json::RawJson;
use standfast_core::message::{FileDigest, Message, ToolResult};
use standfast_core::name::AgentName;
use standfast_core::time::Millis;

use super::login::LoginDesk;
use super::secrets::Secrets;
use super::{Judgement, Tool};

/// What is special about a tool.
pub enum Nature<'a> {
    /// Nothing: it runs, and what came of it is its result.
    Plain,
    /// The log of the run has its results already; nothing is run.
    LogReader(&'a dyn LogReader),
    /// It starts jobs elsewhere that report back.
    OutsideJobs(&'a dyn OutsideJobs),
    /// It has work done elsewhere, and finds out by itself how that goes.
    RemoteWork(&'a dyn RemoteWork),
    /// Another agent of this server does the work.
    Delegation(&'a dyn Delegation),
    /// People log in for it.
    Login(Arc<dyn LoginDesk>),
    /// It runs commands.
    CommandLine(&'a dyn CommandLine),
    /// It changes a file.
    FileChange(&'a dyn FileChanger),
}

/// A tool whose arguments are a command: it names files, and can be written in several ways.
pub trait CommandLine: Send + Sync {
    /// What it says of arguments that a rule of the policy lists, where it asked only because nobody had.
    fn judge_listed(&self, arguments: &str) -> Judgement;

    /// The files that these arguments name, as they are now: shown with the call, part of what is approved, and compared
    /// again directly before it runs (T3).
    fn files(&self, arguments: &str) -> Vec<FileDigest>;

    /// What a person should know before they let these arguments run: that the sandbox will not let them do what they say.
    fn warning(&self, arguments: &str) -> Option<String>;

    /// What a call is remembered by when somebody denied it, where equal arguments can be written in several ways (T28).
    fn loose_key(&self, arguments: &str) -> Option<String>;
}

/// A tool whose arguments name the one file that it changes.
pub trait FileChanger: Send + Sync {
    /// The file that these arguments would change, as it is now, for whoever decides later: what they see may be another one by
    /// then. Asked only where somebody is asked.
    fn target(&self, arguments: &str) -> Option<FileDigest>;
}

/// A tool whose results the log of the run has already.
pub trait LogReader: Send + Sync {
    /// The result.
    fn in_log(&self, arguments: &str, log: &[Envelope]) -> ToolResult;
}

/// Jobs elsewhere that a tool starts: what their reports are checked with. The id of such a call is on record before the
/// outside gets it.
pub trait OutsideJobs: Send + Sync {
    /// What the answer of a call may be signed with, the newest first.
    fn secrets(&self, pending: HoldId) -> Vec<String>;

    /// How long a job may take.
    fn timeout(&self) -> Millis;

    /// What a result must keep to.
    fn result_schema(&self) -> Option<&RawJson>;

    /// What must not come back from the job.
    fn handed(&self, pending: HoldId) -> Secrets {
        Secrets::of(self.secrets(pending))
    }
}

/// Work elsewhere that does not report: calls that wait for it are looked after, and a start that goes on with something
/// may be made again whatever became of it, because the tool looks first.
pub trait RemoteWork: Send + Sync {
    /// Asks outside whether a call that waits with this state (see [`Ask::resume`](standfast_core::hold::Ask::resume)) can
    /// go on. A yes starts the call again, with [`look_again`](super::look_again); a no, also one that only means that
    /// nobody could be asked, is asked again later.
    fn watch(&self, state: &Body) -> Option<WatchFuture>;

    /// The result of what a call with this state began is no longer awaited: the outside is sent a cancel request, and again until it succeeds.
    fn abandon(&self, state: &Body) -> Option<AbandonFuture>;
}

/// Work for another agent of this server.
pub trait Delegation: Send + Sync {
    /// The run that these arguments ask for.
    fn sub_run(&self, arguments: &str) -> Option<SubRun>;
}

/// A run that another agent of this server is asked for.
#[derive(Debug, Clone)]
pub struct SubRun {
    /// Which agent.
    pub agent: AgentName,
    /// What it shall do.
    pub message: Message,
}

/// Telling the outside that the call was given up; what stands in the way, when it is to be retried.
pub type AbandonFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// A question to the outside: whether a call that waits can go on.
pub type WatchFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

/// What the engine asks of a tool by its nature.
impl dyn Tool + '_ {
    /// Where people log in for it; none for a tool that nobody logs in for.
    #[must_use]
    pub fn desk(&self) -> Option<Arc<dyn LoginDesk>> {
        if let Nature::Login(desk) = self.nature() { Some(desk) } else { None }
    }

    /// What it says of arguments that a rule of the policy lists; see [`CommandLine::judge_listed`].
    #[must_use]
    pub fn judge_listed(&self, arguments: &str) -> Judgement {
        self.command_line().map_or(Judgement::Allow, |command| command.judge_listed(arguments))
    }

    /// The file that these arguments would change; see [`FileChanger::target`].
    #[must_use]
    pub fn target(&self, arguments: &str) -> Option<FileDigest> {
        if let Nature::FileChange(changer) = self.nature() { changer.target(arguments) } else { None }
    }

    /// The files that these arguments name, as they are now; see [`CommandLine::files`].
    #[must_use]
    pub fn files(&self, arguments: &str) -> Vec<FileDigest> {
        self.command_line().map(|command| command.files(arguments)).unwrap_or_default()
    }

    /// What a person should know before they let these arguments run; see [`CommandLine::warning`].
    #[must_use]
    pub fn warning(&self, arguments: &str) -> Option<String> {
        self.command_line()?.warning(arguments)
    }

    /// What a denied call is remembered by; see [`CommandLine::loose_key`].
    #[must_use]
    pub fn loose_key(&self, arguments: &str) -> Option<String> {
        self.command_line()?.loose_key(arguments)
    }

    /// The result, where the log of the run has it already.
    #[must_use]
    pub fn in_log(&self, arguments: &str, log: &[Envelope]) -> Option<ToolResult> {
        if let Nature::LogReader(reader) = self.nature() { Some(reader.in_log(arguments, log)) } else { None }
    }

    /// The jobs that it starts elsewhere; none for every other tool.
    #[must_use]
    pub fn external(&self) -> Option<&dyn OutsideJobs> {
        if let Nature::OutsideJobs(jobs) = self.nature() { Some(jobs) } else { None }
    }

    /// Whether it finds out by itself how things are outside.
    #[must_use]
    pub fn finds_out(&self) -> bool {
        self.remote_work().is_some()
    }

    /// Asks outside whether a call that waits with this state can go on; see [`RemoteWork::watch`].
    #[must_use]
    pub fn watch(&self, state: &Body) -> Option<WatchFuture> {
        self.remote_work()?.watch(state)
    }

    /// Tells the outside that the call was given up; see [`RemoteWork::abandon`].
    #[must_use]
    pub fn abandon(&self, state: &Body) -> Option<AbandonFuture> {
        self.remote_work()?.abandon(state)
    }

    /// The run that these arguments ask another agent of this server for; none for every other tool.
    #[must_use]
    pub fn sub_run(&self, arguments: &str) -> Option<SubRun> {
        if let Nature::Delegation(delegation) = self.nature() { delegation.sub_run(arguments) } else { None }
    }

    fn command_line(&self) -> Option<&dyn CommandLine> {
        if let Nature::CommandLine(command) = self.nature() { Some(command) } else { None }
    }

    fn remote_work(&self) -> Option<&dyn RemoteWork> {
        if let Nature::RemoteWork(work) = self.nature() { Some(work) } else { None }
    }
}
