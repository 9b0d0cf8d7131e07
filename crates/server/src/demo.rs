//! The embedded demo: an agent that wants to delete something and must ask first. Needs no key and no network.
//!
//! Its model follows a script. Its tool deletes nothing: each start is a line in `demo-effects.log` of the data
//! directory, so that anyone can see what ran, with which arguments, and how often.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdpoint_core::body::Body;
use holdpoint_core::definition::{Definition, ToolSpec};
use holdpoint_core::hold::HoldPolicy;
use holdpoint_core::id::Place;
use holdpoint_core::json::{BadJson, RawJson};
use holdpoint_core::message::{Replay, ToolResult};
use holdpoint_core::name::{AgentName, BadName, ToolName};

use crate::model::scripted::{Line, Script};
use crate::settings::{Agent, Approvers, Settings, Tracking};
use crate::tool::{Invocation, Outcome, Running, Tool};

/// The file in the data directory that has a line for each start of the demo's tool.
pub const EFFECTS: &str = "demo-effects.log";

/// The demo's agent.
pub const AGENT: &str = "ops";

const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string","minLength":1}},"required":["path"],"additionalProperties":false}"#;

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum BadDemo {
    /// A name in it is none.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A schema in it is none.
    #[error("{0}")]
    Json(BadJson),
}

/// A server with the demo's agent, whose effects go to this data directory.
pub fn settings(data: &Path) -> Result<Settings, BadDemo> {
    let (agent, tool) = (AgentName::new(AGENT)?, ToolName::new("delete_file")?);
    let spec = ToolSpec {
        description: "Deletes a file or a directory.".into(),
        schema: RawJson::parse(SCHEMA).map_err(BadDemo::Json)?,
        replay: Replay::Never,
        reversible: false,
        approval_prompt: None,
        holds: None,
    };
    let definition = Definition {
        agent: agent.clone(),
        prompt: "You look after a server and keep its disks from filling up.".into(),
        model: "scripted".into(),
        model_parameters: None,
        tools: BTreeMap::from([(tool.clone(), spec)]),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    };
    let asks = Line::calls(&[("delete_file", r#"{"path": "/srv/cache/old"}"#)]);
    let script = Script { lines: vec![asks, Line::says("I have dealt with the old cache.")] };
    let effects = WritesALine { effects: data.join(EFFECTS) };
    let ops = Agent {
        digest: definition.digest(),
        definition: Arc::new(definition),
        model: Arc::new(script),
        tools: BTreeMap::from([(tool.clone(), Arc::new(effects) as Arc<dyn Tool>)]),
        needs_approval: BTreeSet::from([tool]),
        approvers: Approvers::default(),
        worker_pool: 64,
        tracking: Tracking::On,
        lives: Place::Durable,
    };
    Ok(Settings { agents: BTreeMap::from([(agent, ops)]), ..Settings::usual() })
}

/// Writes down what it would have done: its token and the arguments.
struct WritesALine {
    effects: PathBuf,
}

impl Tool for WritesALine {
    fn run(&self, invocation: Invocation) -> Running {
        let effects = self.effects.clone();
        Box::pin(async move {
            let line = format!("{} {}\n", invocation.token(), invocation.arguments);
            let written = tokio::task::spawn_blocking(move || append(&effects, &line)).await;
            Outcome::Done(match written {
                Ok(Ok(())) => ToolResult::Ok(Body::text("deleted")),
                Ok(Err(error)) => ToolResult::Failed(Body::text(error.to_string())),
                Err(error) => ToolResult::Failed(Body::text(error.to_string())),
            })
        })
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()
}
