//! Scenarios: tests that people write for their own agents, and what runs them (docs/testing-agents.md).
//!
//! The engine and the SQLite store are the real ones; model, people, tools and time are scripted. `file.rs` and
//! `step_file.rs` read a scenario, `agent.rs` makes the agent, `tools.rs` its tools, `world.rs` the server and its time,
//! `play.rs` plays the steps and `expect.rs` compares.

mod agent;
mod expect;
mod file;
mod play;
mod quiescence;
mod step_file;
mod tools;
mod world;

use std::path::{Path, PathBuf};

use standfast_core::event::Envelope;
use standfast_core::id::RunId;

/// What became of a scenario.
#[derive(Debug)]
pub struct Report {
    /// Its file.
    pub path: PathBuf,
    /// What it calls itself; none when it does not say, or could not be read.
    pub name: Option<String>,
    /// What came out.
    pub outcome: Outcome,
}

/// What came out of a scenario.
#[derive(Debug)]
pub enum Outcome {
    /// Everything was as expected.
    Passed {
        /// How many steps were played.
        steps: usize,
    },
    /// Something was not as expected.
    Failed(FailedStep),
    /// It could not be played.
    Broken(ScenarioError),
}

/// A step whose outcome was not the expected one.
#[derive(Debug)]
pub struct FailedStep {
    /// Where it stands, counted from 1.
    pub line: u64,
    /// Which step, counted from 1.
    pub step: usize,
    /// What the step does.
    pub verb: &'static str,
    /// What was expected and what was there.
    pub problems: Vec<String>,
    /// What had happened until then.
    pub logs: Vec<RunLog>,
}

/// A run with its events.
#[derive(Debug)]
pub struct RunLog {
    /// The run.
    pub run: RunId,
    /// How the scenario calls it, if it does.
    pub label: Option<String>,
    /// Its events.
    pub events: Vec<Envelope>,
}

/// Why a scenario could not be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScenarioError {
    /// Where, if it is about a line.
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl ScenarioError {
    fn at(line: u64, message: impl Into<String>) -> ScenarioError {
        ScenarioError { line: Some(line), message: message.into() }
    }

    fn here(message: impl Into<String>) -> ScenarioError {
        ScenarioError { line: None, message: message.into() }
    }
}

/// Plays the scenario in a file.
///
/// On the caller's thread and a runtime of its own, which has no other thread: only so can be told when nothing is left
/// to do at an instant.
#[must_use]
pub fn run(path: &Path) -> Report {
    let read = std::fs::read_to_string(path).map_err(|error| ScenarioError::here(error.to_string()));
    let folder = path.parent().unwrap_or(Path::new("."));
    match read.and_then(|text| file::parse(&text, folder)) {
        Ok(scenario) => {
            let name = scenario.name.clone();
            let outcome = on_one_thread(play::play(scenario));
            Report { path: path.to_owned(), name, outcome }
        }
        Err(broken) => Report { path: path.to_owned(), name: None, outcome: Outcome::Broken(broken) },
    }
}

fn on_one_thread(play: impl Future<Output = Result<Outcome, ScenarioError>>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let played = match runtime {
        Ok(runtime) => runtime.block_on(play),
        Err(error) => Err(ScenarioError::here(format!("no runtime: {error}"))),
    };
    played.unwrap_or_else(Outcome::Broken)
}
