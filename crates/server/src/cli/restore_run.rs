//! `standfast restore-run FILE`: makes runs of their exported execution states, at a server.
//!
//! Reads what servers show: one state, or a session with its states under `pending_executions`, as an answer of the API or
//! as a file of a file store. What a state must be is the server's to say.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{Failure, Form, Server, ServerArgs, ask, read, segment};
use super::plain::plain;
use super::runs::RunBody;

/// Which states.
#[derive(Debug, Args)]
pub(super) struct RestoreRun {
    /// A file with an execution state, or with a session and its `pending_executions`; `-` is standard input.
    file: PathBuf,
    /// The owner of the runs. Default: you.
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

/// What a file can have, each in its own place.
#[derive(Deserialize)]
struct ExportedFile {
    task_id: Option<String>,
    pending_executions: Option<BTreeMap<String, Box<RawValue>>>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    pending_executions: Option<BTreeMap<String, Box<RawValue>>>,
}

/// Where a state belongs.
#[derive(Deserialize)]
struct StateIds {
    task_id: String,
    context_id: String,
}

pub(super) fn run(restore: &RestoreRun) -> ExitCode {
    ask(&restore.asking, |server| {
        let text = contents(restore)?;
        let mut answers = Vec::new();
        for state in states(&text)? {
            answers.push(sent(server, state.get(), restore.owner.as_deref())?);
        }
        match server.form {
            Form::Json => Ok(format!("[{}]", answers.join(","))),
            Form::Text => {
                let summaries = answers.iter().map(|answer| Ok(read::<RunBody>(answer)?.summary()));
                Ok(summaries.collect::<Result<Vec<String>, Failure>>()?.concat())
            }
        }
    })
}

fn contents(restore: &RestoreRun) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if restore.file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(&restore.file).map(|contents| text = contents)
    };
    let unreadable = |error| Failure::CouldNotAsk(format!("cannot read {}: {error}", restore.file.display()));
    read.map_err(unreadable)?;
    Ok(text)
}

/// The states of a file.
fn states(text: &str) -> Result<Vec<Box<RawValue>>, Failure> {
    let unreadable = |error: serde_json::Error| {
        let why = plain(&error.to_string());
        Failure::CouldNotAsk(format!("the file is not an exported execution state or session: {why}"))
    };
    let exported: ExportedFile = serde_json::from_str(text).map_err(unreadable)?;
    let of_session =
        exported.pending_executions.or(exported.metadata.and_then(|data| data.pending_executions));
    match (exported.task_id, of_session) {
        (Some(_), _) => Ok(vec![serde_json::from_str(text).map_err(unreadable)?]),
        (None, Some(states)) => Ok(states.into_values().collect()),
        (None, None) => Err(Failure::CouldNotAsk(
            "the file has no execution state: neither task_id nor pending_executions is there".to_owned(),
        )),
    }
}

fn sent(server: &Server, state: &str, owner: Option<&str>) -> Result<String, Failure> {
    let StateIds { task_id, context_id } = serde_json::from_str(state).map_err(|error| {
        Failure::CouldNotAsk(format!("an execution state cannot be read: {}", plain(&error.to_string())))
    })?;
    let owner = owner.map(|owner| format!("?owner={}", segment(owner))).unwrap_or_default();
    let (session, run) = (segment(&context_id), segment(&task_id));
    server.put(&format!("/sessions/{session}/pending_executions/{run}{owner}"), state)
}
