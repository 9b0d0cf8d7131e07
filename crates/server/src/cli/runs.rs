//! `standfast runs`, `standfast show RUN` and `standfast cancel RUN`: what became of messages.
//!
//! The types are what these commands read of the native API; words stay words, so that a newer server's are shown.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::client::{Failure, Form, Patience, Server, ServerArgs, ask, joined, read, segment};
use super::colour::{Colour, Paint};
use super::plain::{Text, block, table};
use super::timeline::Timeline;

/// Which runs.
#[derive(Debug, Args)]
pub(super) struct Runs {
    /// Only runs of this agent.
    #[arg(long)]
    agent: Option<String>,
    /// Only runs of this session.
    #[arg(long)]
    session: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

/// Which run.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The id of the run.
    run: String,
    #[command(flatten)]
    asking: ServerArgs,
}

/// Which run, and why.
#[derive(Debug, Args)]
pub(super) struct Cancel {
    /// The id of the run.
    run: String,
    /// The reason; it is stored with the run.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

/// A run, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(super) struct RunBody {
    id: Text,
    agent: Text,
    session: Text,
    owner: Text,
    pub(super) status: Text,
    #[serde(default)]
    pub(super) seq: u64,
    waiting_for: Option<Text>,
    retry_at: Option<Text>,
    started_at: Text,
    updated_at: Text,
    #[serde(default)]
    holds: Vec<OpenHold>,
    result: Option<Box<RawValue>>,
    reason: Option<Text>,
}

#[derive(Debug, Deserialize)]
struct OpenHold {
    id: Text,
    kind: Text,
}

pub(super) fn list(runs: &Runs) -> ExitCode {
    ask(&runs.asking, |server| {
        let items = server.list("/runs", &[("agent", &runs.agent), ("session", &runs.session)])?;
        match server.form {
            Form::Json => Ok(joined("runs", &items)),
            Form::Text => rows(&items),
        }
    })
}

pub(super) fn show(show: &Show) -> ExitCode {
    ask(&show.asking, |server| shown(server, &show.run))
}

pub(super) fn cancel(cancel: &Cancel) -> ExitCode {
    ask(&cancel.asking, |server| {
        let path = format!("/runs/{}/cancel", segment(&cancel.run));
        let text = server.post(&path, &json!({ "reason": cancel.reason }).to_string(), Patience::Usual)?;
        match server.form {
            Form::Json => Ok(text),
            Form::Text => Ok(read::<RunBody>(&text)?.summary()),
        }
    })
}

impl RunBody {
    /// How it stands, and what can be done.
    pub(super) fn summary(&self) -> String {
        let colour = match self.status.raw() {
            "completed" => Colour::Green,
            "failed" | "rejected" => Colour::Red,
            _ => Colour::Yellow,
        };
        let state = Paint::for_stdout().with(colour, &self.state());
        let mut text = format!("{}  {state}\n", self.id);
        if let Some(reason) = &self.reason {
            text.push_str(&format!("reason: {reason}\n"));
        }
        for OpenHold { id, kind } in &self.holds {
            text.push_str(&format!("{kind}: {id}  (standfast holds show {id})\n"));
        }
        if let Some(result) = &self.result {
            text.push_str(&format!("result:\n{}", block(&words(result))));
        }
        text
    }

    fn state(&self) -> String {
        match (&self.waiting_for, &self.retry_at) {
            (Some(whom), _) => format!("{}, waits for: {whom}", self.status),
            (None, Some(at)) => format!("{} at {at}", self.status),
            (None, None) => self.status.to_string(),
        }
    }
}

/// JSON for people: a text as such, anything else as it is written.
pub(super) fn words(json: &RawValue) -> String {
    serde_json::from_str::<String>(json.get()).unwrap_or_else(|_| json.get().to_owned())
}

fn rows(items: &[Box<RawValue>]) -> Result<String, Failure> {
    if items.is_empty() {
        return Ok("no runs".into());
    }
    let row = |item: &RawValue| {
        let run: RunBody = read(item.get())?;
        let cells = [&run.id, &run.agent, &run.session, &run.updated_at].map(Text::to_string);
        Ok(cells.into_iter().chain([run.state()]).collect())
    };
    let rows: Vec<Vec<String>> = items.iter().map(|item| row(item)).collect::<Result<_, Failure>>()?;
    Ok(table(&["RUN", "AGENT", "SESSION", "UPDATED", "STATE"], &rows))
}

fn shown(server: &Server, run: &str) -> Result<String, Failure> {
    let path = format!("/runs/{}", segment(run));
    let run = server.get(&path)?;
    let log = server.get(&format!("{path}/events"))?;
    if server.form == Form::Json {
        let Raw { events } = read(&log)?;
        return Ok(format!(r#"{{"run":{run},"events":{}}}"#, events.get()));
    }
    let run: RunBody = read(&run)?;
    let Timeline { events } = read(&log)?;
    let mut text = run.summary();
    let RunBody { agent, session, owner, started_at, updated_at, .. } = &run;
    text.push_str(&format!("agent:   {agent}\nsession: {session}\nowner:   {owner}\n"));
    text.push_str(&format!("started: {started_at}\nupdated: {updated_at}\n\n"));
    for event in &events {
        text.push_str(&event.lines());
    }
    Ok(text)
}

/// The events as they came.
#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    events: &'a RawValue,
}
