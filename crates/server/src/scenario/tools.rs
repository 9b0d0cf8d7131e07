//! Tools that do what the scenario says, and write down each start: the oracle of what ran.
//!
//! What is written down survives the server's crashes, as a tool's effects would.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use standfast_core::body::Body;
use standfast_core::id::RunId;
use standfast_core::message::ToolResult;
use standfast_core::name::ToolName;
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use standfast_engine::tool::{Invocation, Outcome, Suspension, Tool, ToolFuture};

/// What one start of a tool does.
#[derive(Debug, Clone)]
pub(super) struct Behaviour {
    /// How long it takes.
    pub(super) takes: Millis,
    /// What comes of it.
    pub(super) comes_to: ComesTo,
}

/// What comes of a start.
#[derive(Debug, Clone)]
pub(super) enum ComesTo {
    Returns(Body),
    Fails(String),
    Pending(Box<Suspension>),
    Unknown(String),
    /// The server dies while the tool is at it.
    Crash,
}

impl Default for Behaviour {
    fn default() -> Behaviour {
        Behaviour { takes: Millis(0), comes_to: ComesTo::Returns(Body::text("ok")) }
    }
}

/// A start, as the tool saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolStart {
    pub(super) run: RunId,
    pub(super) tool: ToolName,
    pub(super) arguments: String,
    pub(super) attempt: u32,
}

/// Everything that tools did.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    starts: Mutex<Vec<ToolStart>>,
    crash: AtomicBool,
}

impl Oracle {
    /// The starts of a run's calls, in their order.
    pub(super) fn starts(&self, run: RunId) -> Vec<ToolStart> {
        self.all().iter().filter(|started| started.run == run).cloned().collect()
    }

    /// Whether a tool made the server crash since the last time.
    pub(super) fn take_crash(&self) -> bool {
        self.crash.swap(false, Ordering::SeqCst)
    }

    /// Writes a start down; says how many this tool had before.
    fn record(&self, started: ToolStart) -> usize {
        let mut all = self.all();
        let before = all.iter().filter(|other| other.tool == started.tool).count();
        all.push(started);
        before
    }

    fn all(&self) -> MutexGuard<'_, Vec<ToolStart>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tool that does what the scenario says.
pub(super) struct ScriptedTool {
    pub(super) name: ToolName,
    /// One for each start; the last one is also for all further ones.
    pub(super) behaviours: Vec<Behaviour>,
    pub(super) oracle: Arc<Oracle>,
    pub(super) clock: Clock,
}

impl Tool for ScriptedTool {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let started = ToolStart {
            run: invocation.call.run,
            tool: self.name.clone(),
            arguments: invocation.arguments,
            attempt: invocation.attempt,
        };
        let before = self.oracle.record(started);
        let behaviour = self.behaviours.get(before).or(self.behaviours.last()).cloned().unwrap_or_default();
        let (oracle, clock) = (self.oracle.clone(), self.clock.clone());
        Box::pin(async move {
            if behaviour.takes.0 > 0 {
                clock.sleep(behaviour.takes).await;
            }
            match behaviour.comes_to {
                ComesTo::Returns(body) => Outcome::Done(ToolResult::Ok(body)),
                ComesTo::Fails(error) => Outcome::Done(ToolResult::Failed(Body::text(error))),
                ComesTo::Pending(pending) => Outcome::Pending(pending),
                ComesTo::Unknown(why) => Outcome::Unknown(why),
                ComesTo::Crash => {
                    oracle.crash.store(true, Ordering::SeqCst);
                    std::future::pending().await
                }
            }
        })
    }
}

/// The built-in tool that asks a person, with its starts written down.
pub(super) struct RecordedTool<T> {
    pub(super) name: ToolName,
    pub(super) tool: T,
    pub(super) oracle: Arc<Oracle>,
}

impl<T: Tool> Tool for RecordedTool<T> {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        self.oracle.record(ToolStart {
            run: invocation.call.run,
            tool: self.name.clone(),
            arguments: invocation.arguments.clone(),
            attempt: invocation.attempt,
        });
        self.tool.run(invocation)
    }
}
