//! `standfast nodes`: the servers that share a database, as one of them sees them.
//!
//! The types are what this command reads of the native API.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;

use super::client::{Form, ServerArgs, ask, read};
use super::plain::{Text, table};

/// Which server to ask.
#[derive(Debug, Args)]
pub(super) struct Nodes {
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Deserialize)]
struct Answer {
    nodes: Vec<Node>,
    feature_level: u32,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: Text,
    name: Option<Text>,
    #[serde(default)]
    this: bool,
    version: Option<Text>,
    feature_level: Option<u32>,
    started_at: Option<Text>,
    seen_until: Option<Text>,
    shards: usize,
    runs_at_work: Option<usize>,
    behind_ms: Option<i64>,
}

pub(super) fn run(nodes: &Nodes) -> ExitCode {
    ask(&nodes.asking, |server| {
        let text = server.get("/nodes")?;
        match server.form {
            Form::Json => Ok(text),
            Form::Text => Ok(shown(&read(&text)?)),
        }
    })
}

fn shown(answer: &Answer) -> String {
    let rows: Vec<Vec<String>> = answer.nodes.iter().map(row).collect();
    let table = table(
        &["NODE", "ID", "VERSION", "LEVEL", "SHARDS", "RUNS AT WORK", "BEHIND", "STARTED", "SEEN UNTIL"],
        &rows,
    );
    format!("{table}feature level in use: {}\n", answer.feature_level)
}

fn row(node: &Node) -> Vec<String> {
    let text = |text: &Option<Text>| text.as_ref().map_or("?".to_owned(), |text| text.raw().to_owned());
    let number = |number: Option<usize>| number.map_or("?".to_owned(), |number| number.to_string());
    let mark = if node.this { " (asked)" } else { "" };
    vec![
        format!("{}{mark}", text(&node.name)),
        node.id.raw().to_owned(),
        text(&node.version),
        node.feature_level.map_or("?".to_owned(), |level| level.to_string()),
        node.shards.to_string(),
        number(node.runs_at_work),
        node.behind_ms.map_or("?".to_owned(), |behind| format!("{behind} ms")),
        text(&node.started_at),
        node.seen_until.as_ref().map_or("-".to_owned(), |until| until.raw().to_owned()),
    ]
}
