//! The agents of the servers under test: one for each way to wait, with a tool that leaves a synced line for each start.
//!
//! The lines are the oracle: they are outside the store, and written by the tool itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use standfast_core::body::Body;
use standfast_core::command::{Limits, SuspendFor};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::{Ask, HoldPolicy, OnTimeout};
use standfast_core::json::RawJson;
use standfast_core::message::{Replay, ToolResult};
use standfast_core::name::{AgentName, ToolName};
use standfast_core::time::Millis;
use standfast_engine::settings::{Agent, FixedSettings, Settings};
use standfast_engine::tool::suspend::{self, SuspendForInput};
use standfast_engine::tool::{Invocation, Outcome, Suspension, Tool, ToolFuture};
use standfast_models::scripted::{Line, Script};
use standfast_tools::command::{CommandOptions, CommandTool};
use standfast_tools::sandbox::Confinement;

use crate::points::{Points, Watched};

/// The file of the data directory with a line for each start of a tool.
pub(crate) const EFFECTS: &str = "effects.log";

/// What the agents' model asks for.
pub(crate) const ARGUMENTS: &str = r#"{"path": "/srv/cache/old", "size": 9007199254740993}"#;
/// The other call of the agent `pair`.
pub(crate) const OTHER_ARGUMENTS: &str = r#"{"path": "/srv/cache/older"}"#;
/// What a person puts in their place.
pub(crate) const EDITED: &str = r#"{"path":  "/srv/cache/edited"}"#;

/// A lease for those who wait for its end. Two seconds of it are the margin before which an effect must have begun.
pub(crate) const SHORT_LEASE: Millis = Millis(2_600);

/// How the agents behave.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// How long a tool takes after its line is written.
    pub(crate) tool: Duration,
    /// How long the model thinks.
    pub(crate) model: Duration,
    /// How long the holds of the agent `expires` wait.
    pub(crate) expiry: Millis,
    /// How long a run is a server's own.
    pub(crate) lease: Millis,
}

/// A server with all agents. Short times, so that taking over does not make a test wait.
pub(crate) fn settings(data: &Path, behaviour: &Behaviour, points: &Arc<Points>) -> Settings {
    let effects = data.join(EFFECTS);
    let deletes: Arc<dyn Tool> = Arc::new(Deletes { effects: effects.clone(), takes: behaviour.tool });
    let job: Arc<dyn Tool> = Arc::new(Job { effects });
    let options = CommandOptions {
        confinement: Confinement::Off,
        // The command finds its place by HOME, which is where it runs.
        working_directory: Some(data.to_owned()),
        ..CommandOptions::default()
    };
    let shell = CommandTool::through(options, crate::standfast()).unwrap();
    let expiry = HoldPolicy { timeout: Some(behaviour.expiry), ..HoldPolicy::default() };
    let resumed = HoldPolicy { on_timeout: OnTimeout::ResumeWithError, ..expiry.clone() };
    let asks = r#"{"reason": "two invoices", "question": "Which one?"}"#;
    let delete = |arguments: &'static str| ("delete_file", arguments);
    let usual = HoldPolicy::default();
    let agents = [
        ("ops", vec![delete(ARGUMENTS)], usual.clone()),
        ("pair", vec![delete(ARGUMENTS), delete(OTHER_ARGUMENTS)], usual.clone()),
        ("asks", vec![(suspend::NAME, asks)], usual.clone()),
        ("outside", vec![("job", "{}")], usual.clone()),
        ("expires", vec![delete(ARGUMENTS)], expiry),
        ("resumes", vec![delete(ARGUMENTS)], resumed),
        ("shell", vec![("run", crate::commands::ARGUMENTS)], usual),
    ];
    let tools: BTreeMap<ToolName, (ToolSpec, Arc<dyn Tool>)> = BTreeMap::from([
        (name("delete_file"), (spec(), deletes)),
        (name("job"), (spec(), job)),
        (name(suspend::NAME), (SuspendForInput::spec(), Arc::new(SuspendForInput) as Arc<dyn Tool>)),
        (name("run"), (CommandTool::spec(), Arc::new(shell) as Arc<dyn Tool>)),
    ]);
    let agents = agents.into_iter().map(|(agent_name, calls, holds)| {
        let agent_name = AgentName::new(agent_name).unwrap();
        let definition = Definition {
            agent: agent_name.clone(),
            prompt: "You look after a server.".into(),
            model: "scripted".into(),
            model_parameters: None,
            tools: tools.iter().map(|(name, (spec, _))| (name.clone(), spec.clone())).collect(),
            policy: None,
            sub_agents: Vec::new(),
            show_thinking: false,
            hold_batch: false,
            holds,
        };
        let mut lines = vec![Line::calls(&calls), Line::says("Done.")];
        let thinks = i64::try_from(behaviour.model.as_millis()).unwrap();
        lines.iter_mut().for_each(|line| line.delay = (thinks > 0).then_some(Millis(thinks)));
        let watched = |tool: &Arc<dyn Tool>| Arc::new(Watched::new(tool.clone(), points.clone()));
        let agent = Agent {
            tools: tools
                .iter()
                .map(|(name, (_, tool))| (name.clone(), watched(tool) as Arc<dyn Tool>))
                .collect(),
            needs_approval: BTreeSet::from([name("delete_file"), name("run")]),
            worker_pool: 256,
            ..Agent::new(definition, Arc::new(Script { lines }))
        };
        (agent_name, Arc::new(agent))
    });
    Settings {
        agents: agents.collect(),
        limits: Arc::new(Limits { orphan_margin: Millis(100), ..Limits::default() }),
        ..Settings::usual()
    }
}

/// What the process of a server under test has only once.
pub(crate) fn fixed(behaviour: &Behaviour) -> FixedSettings {
    FixedSettings { lease: behaviour.lease, poll: Millis(50), ..FixedSettings::default() }
}

fn name(text: &str) -> ToolName {
    ToolName::new(text).unwrap()
}

fn spec() -> ToolSpec {
    ToolSpec {
        description: "Does something that must not happen twice".into(),
        schema: RawJson::parse(r#"{"type":"object","properties":{"path":{"type":"string"}}}"#).unwrap(),
        replay: Replay::Never,
        reversible: false,
        approval_prompt: None,
        holds: None,
    }
}

/// Leaves its line, then takes its time.
struct Deletes {
    effects: PathBuf,
    takes: Duration,
}

impl Tool for Deletes {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let (effects, takes) = (self.effects.clone(), self.takes);
        Box::pin(async move {
            leave_a_line(effects, &invocation).await;
            tokio::time::sleep(takes).await;
            Outcome::Done(ToolResult::Ok(Body::text("deleted")))
        })
    }
}

/// A job that runs elsewhere: its start leaves a line, its result comes from outside.
struct Job {
    effects: PathBuf,
}

impl Tool for Job {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let effects = self.effects.clone();
        Box::pin(async move {
            leave_a_line(effects, &invocation).await;
            let pending =
                Suspension { kind: SuspendFor::External, ask: Ask::default(), timeout: None, secret: None };
            Outcome::Pending(Box::new(pending))
        })
    }
}

async fn leave_a_line(effects: PathBuf, invocation: &Invocation) {
    let line = format!("{} {}\n", invocation.token(), invocation.arguments);
    let written = tokio::task::spawn_blocking(move || {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(effects)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()
    });
    written.await.unwrap().unwrap();
}
