//! The embedded demo: an agent that wants to delete something and must ask first, one that wants to change a file, and two
//! that ask questions. Needs no key and no network.
//!
//! Their models follow scripts, and take a no for a no. The tool of the first deletes nothing: each start is a line in
//! `demo-effects.log` of the data directory, so that anyone can see what ran, with which arguments, and how often.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::json::{BadJson, RawJson};
use standfast_core::message::ToolResult;
use standfast_core::name::{AgentName, BadName, ToolName};
use standfast_core::transcript::{Entry, ResultKind};
use standfast_engine::model::{Live, Model, ModelFuture, Prompt};
use standfast_engine::settings::{Agent, Settings, Tour};
use standfast_engine::tool::preview::Risk;
use standfast_engine::tool::suspend::{self, SuspendForInput};
use standfast_engine::tool::{Invocation, Outcome, Tool, ToolFuture};
use standfast_models::scripted::{Line, Script};
use standfast_tools::files::{FileKind, FileLimits, FileTool};
use standfast_tools::workspace::Workspace;

/// The file in the data directory that has a line for each start of the demo's tool.
pub const EFFECTS: &str = "demo-effects.log";

/// The demo's agent.
pub const AGENT: &str = "ops";

const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string","minLength":1}},"required":["path"],"additionalProperties":false}"#;

/// The agent that asks with options, then with a text box.
const TRAVEL: &str = "travel";
const WHICH_TRAIN: &str = r#"{"reason": "Two trains fit the calendar.", "question": "Which train should I book?", "options": ["08:12, direct, 89 EUR", "09:40, one change, 54 EUR"]}"#;
const HOTEL: &str = r#"{"reason": "The hotel asks for the time of arrival.", "question": "Is there anything I should tell the hotel?"}"#;

/// The agent that asks with a form.
const RECEIPTS: &str = "receipts";
const WHAT_IT_SAYS: &str = r#"{"reason": "The scan is too dark to read.", "question": "What does the receipt say?", "data": {"file": "scan-0412.jpg"}, "resumeSchema": {"type": "object", "properties": {"amount": {"type": "number", "title": "Amount", "exclusiveMinimum": 0}, "currency": {"enum": ["EUR", "CHF", "USD"], "title": "Currency", "default": "EUR"}, "date": {"type": "string", "format": "date", "title": "Date"}, "guests": {"type": "integer", "title": "Guests", "description": "How many people the bill is for.", "minimum": 1, "default": 1}, "business": {"type": "boolean", "title": "Was it for business?"}, "note": {"type": "string", "title": "Note"}}, "required": ["amount", "currency", "business"], "additionalProperties": false}}"#;

/// The agent that changes a file in a folder of its own.
const WEBSITE: &str = "website";
const FOLDER: &str = "demo";
const HOURS: &str = "opening-hours.txt";
const HOURS_NOW: &str = "Opening hours\n\nMonday to Friday  9:00 to 17:00\nSaturday          closed\n";
const NEW_HOURS: &str = r#"{"path": "opening-hours.txt", "old": "Saturday          closed", "new": "Saturday          10:00 to 14:00"}"#;

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum BadDemo {
    /// A name in it is none.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A schema in it is none.
    #[error("{0}")]
    Json(BadJson),
    /// The folder of the agent that changes a file cannot be made.
    #[error("the demo's folder {0} cannot be made: {1}; choose another data directory with --data")]
    Folder(PathBuf, String),
}

/// A server with the demo's agents, whose effects go to this data directory.
pub fn settings(data: &Path) -> Result<Settings, BadDemo> {
    let trip = [Line::calls(&[(suspend::NAME, WHICH_TRAIN)]), Line::calls(&[(suspend::NAME, HOTEL)])];
    let travel = trip.into_iter().chain([Line::says("The train is booked and the hotel is notified.")]);
    let receipts = vec![
        Line::calls(&[(suspend::NAME, WHAT_IT_SAYS)]),
        Line::says("The receipt is in the books, as you read it."),
    ];
    let mut agents = BTreeMap::from([
        (AgentName::new(AGENT)?, Arc::new(ops(data)?)),
        (AgentName::new(RECEIPTS)?, Arc::new(asks(RECEIPTS, "You keep the books.", receipts)?)),
        (AgentName::new(TRAVEL)?, Arc::new(asks(TRAVEL, "You book trips.", travel.collect())?)),
    ]);
    // Scenarios play the demo without a data directory, and make no folder wherever they are started.
    if !data.as_os_str().is_empty() {
        agents.insert(AgentName::new(WEBSITE)?, Arc::new(website(data)?));
    }
    let tour = Tour {
        agent: AgentName::new(AGENT)?,
        message: "Free some space".into(),
        effects: data.join(EFFECTS),
        change: (AgentName::new(WEBSITE)?, "We now open on Saturdays from 10 to 2".into()),
    };
    Ok(Settings {
        agents,
        default_agent: Some(AgentName::new(AGENT)?),
        tour: Some(tour),
        ..Settings::usual()
    })
}

/// A script that does not go on as if somebody had said yes who said no.
struct TakesANo {
    script: Script,
}

impl Model for TakesANo {
    fn ask<'a>(&'a self, prompt: Prompt, live: &'a Live) -> ModelFuture<'a> {
        if matches!(prompt.transcript.last(), Some(Entry::Tool(result)) if result.kind == ResultKind::Denied)
        {
            let says = Script { lines: vec![Line::streams("Then I leave it as it is.")] };
            return Box::pin(async move { says.ask(prompt, live).await });
        }
        self.script.ask(prompt, live)
    }

    fn provider(&self, model: &str) -> &'static str {
        self.script.provider(model)
    }

    fn is_in_process(&self) -> bool {
        self.script.is_in_process()
    }
}

/// The agent that wants to delete something.
fn ops(data: &Path) -> Result<Agent, BadDemo> {
    let (agent, tool) = (AgentName::new(AGENT)?, ToolName::new("delete_file")?);
    let schema = RawJson::parse(SCHEMA).map_err(BadDemo::Json)?;
    let definition = Definition {
        prompt: "You look after a server and keep its disks from filling up.".into(),
        model: "scripted".into(),
        tools: BTreeMap::from([(tool.clone(), ToolSpec::new("Deletes a file or a directory.", schema))]),
        ..Definition::new(agent)
    };
    let asks = Line::calls(&[("delete_file", r#"{"path": "/srv/cache/old"}"#)]);
    let script = Script { lines: vec![asks, Line::streams("I have dealt with the old cache.")] };
    let effects = WritesALine { effects: data.join(EFFECTS) };
    Ok(Agent {
        tools: BTreeMap::from([(tool.clone(), Arc::new(effects) as Arc<dyn Tool>)]),
        needs_approval: BTreeSet::from([tool]),
        ..Agent::new(definition, Arc::new(TakesANo { script }))
    })
}

/// The agent that wants to change a file, which is what the demo has a diff of.
fn website(data: &Path) -> Result<Agent, BadDemo> {
    let folder = data.join(FOLDER);
    let bad = |error: &dyn std::fmt::Display| BadDemo::Folder(folder.clone(), error.to_string());
    std::fs::create_dir_all(&folder).map_err(|error| bad(&error))?;
    let file = folder.join(HOURS);
    if !file.exists() {
        std::fs::write(&file, HOURS_NOW).map_err(|error| bad(&error))?;
    }
    let workspace = Workspace::open(&folder, &[]).map_err(|error| bad(&error))?;
    let tool = ToolName::new(FileKind::Edit.name())?;
    let definition = Definition {
        prompt: "You look after the website of a shop.".into(),
        model: "scripted".into(),
        tools: BTreeMap::from([(tool.clone(), FileKind::Edit.spec())]),
        ..Definition::new(AgentName::new(WEBSITE)?)
    };
    let asks = Line::calls(&[(FileKind::Edit.name(), NEW_HOURS)]);
    let script = Script { lines: vec![asks, Line::says("The opening hours are up to date.")] };
    let edits = FileTool::new(FileKind::Edit, Arc::new(workspace), FileLimits::default());
    Ok(Agent {
        tools: BTreeMap::from([(tool.clone(), Arc::new(edits) as Arc<dyn Tool>)]),
        needs_approval: BTreeSet::from([tool]),
        ..Agent::new(definition, Arc::new(TakesANo { script }))
    })
}

/// An agent that asks people and does nothing else.
fn asks(name: &str, prompt: &str, lines: Vec<Line>) -> Result<Agent, BadDemo> {
    let tool = ToolName::new(suspend::NAME)?;
    let definition = Definition {
        prompt: prompt.into(),
        model: "scripted".into(),
        tools: BTreeMap::from([(tool.clone(), SuspendForInput::spec())]),
        ..Definition::new(AgentName::new(name)?)
    };
    Ok(Agent {
        tools: BTreeMap::from([(tool, Arc::new(SuspendForInput) as Arc<dyn Tool>)]),
        ..Agent::new(definition, Arc::new(TakesANo { script: Script { lines } }))
    })
}

/// Writes down what it would have done: its token and the arguments.
struct WritesALine {
    effects: PathBuf,
}

impl Tool for WritesALine {
    fn risk(&self, _arguments: &str) -> Option<Risk> {
        Some(Risk::Destructive)
    }

    fn run(&self, invocation: Invocation) -> ToolFuture {
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
