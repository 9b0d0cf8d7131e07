//! A tool that says of calls what the real one says, and does nothing but write down that it was started.
//!
//! What a tool is called, takes and promises stands in the agent's definition and is the file's own; here is what the
//! engine asks of it. The lines outlive the server, as effects would.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use standfast_core::body::Body;
use standfast_core::message::ToolResult;
use standfast_engine::tool::preview::{CallPreview, Risk};
use standfast_engine::tool::{Invocation, Judgement, Nature, Outcome, Tool, ToolFuture};

use super::rehearsal::ToolConduct;

/// A start of a tool, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) run: String,
    pub(super) tool: String,
    pub(super) attempt: u32,
    pub(super) arguments: String,
}

/// A tool in the place of another one.
pub(super) struct StandIn {
    instead_of: Arc<dyn Tool>,
    starts: PathBuf,
    conduct: ToolConduct,
}

impl StandIn {
    pub(super) fn new(instead_of: Arc<dyn Tool>, starts: PathBuf, conduct: ToolConduct) -> StandIn {
        StandIn { instead_of, starts, conduct }
    }
}

impl Tool for StandIn {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let start = Start {
            run: invocation.call.run.to_string(),
            tool: invocation.tool.to_string(),
            attempt: invocation.attempt,
            arguments: invocation.arguments,
        };
        let (starts, conduct) = (self.starts.clone(), self.conduct);
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || write_down(&starts, &start)).await;
            match (written, conduct) {
                (Ok(Ok(())), ToolConduct::Returns) => Outcome::Done(ToolResult::Ok(Body::text("done"))),
                (Ok(Ok(())), ToolConduct::GoesOn) => std::future::pending().await,
                (Ok(Err(error)), _) => Outcome::Done(ToolResult::Failed(Body::text(error.to_string()))),
                (Err(error), _) => Outcome::Done(ToolResult::Failed(Body::text(error.to_string()))),
            }
        })
    }

    fn judge(&self, arguments: &str) -> Judgement {
        self.instead_of.judge(arguments)
    }

    fn risk(&self, arguments: &str) -> Option<Risk> {
        self.instead_of.risk(arguments)
    }

    fn preview(&self, arguments: &str) -> Option<CallPreview> {
        self.instead_of.preview(arguments)
    }

    /// What is done elsewhere, by others or by other agents, is done here instead: by a line in a file.
    fn nature(&self) -> Nature<'_> {
        match self.instead_of.nature() {
            Nature::CommandLine(command) => Nature::CommandLine(command),
            Nature::FileChange(changer) => Nature::FileChange(changer),
            Nature::Plain
            | Nature::LogReader(_)
            | Nature::OutsideJobs(_)
            | Nature::RemoteWork(_)
            | Nature::Delegation(_)
            | Nature::Login(_) => Nature::Plain,
        }
    }
}

fn write_down(path: &Path, start: &Start) -> std::io::Result<()> {
    let line = format!("{}\n", serde_json::to_string(start)?);
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()
}

/// The starts of a run's calls, in their order.
pub(super) fn starts_of(path: &Path, run: &str) -> Result<Vec<Start>, String> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let lines = text.lines().map(serde_json::from_str::<Start>);
    let starts: Vec<Start> = lines.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    Ok(starts.into_iter().filter(|start| start.run == run).collect())
}
