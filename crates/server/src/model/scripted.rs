//! A model that says what its script says: for demos without a key, and for tests of one's own agents.
//!
//! Replies are chosen by the number of the turn, so that a restart continues in the same place. After the last one the
//! script starts over, which lets one demo serve many runs in a session.

use holdpoint_core::command::AskedCall;
use holdpoint_core::message::Usage;
use holdpoint_core::time::Millis;
use tokio::time::sleep;

use super::{Asked, Model, ModelFailure, ModelReply, Prompt};
use crate::clock::duration;

/// A script: one line for each turn.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// What the model does, turn by turn.
    pub lines: Vec<Line>,
}

/// What the model does in one turn.
#[derive(Debug, Clone)]
pub struct Line {
    /// How long it thinks.
    pub delay: Option<Millis>,
    /// What it says.
    pub says: Says,
}

/// What a scripted model says.
#[derive(Debug, Clone)]
pub enum Says {
    /// Words and calls.
    Reply {
        /// Its words.
        text: Option<String>,
        /// Tool and argument text of each call.
        calls: Vec<(String, String)>,
    },
    /// Nothing: the provider fails.
    Error {
        /// What it says.
        error: String,
        /// How long to wait before asking again; none means that asking again cannot help.
        retry_after: Option<Millis>,
    },
}

impl Line {
    /// Words alone.
    #[must_use]
    pub fn says(text: &str) -> Line {
        Line { delay: None, says: Says::Reply { text: Some(text.to_owned()), calls: Vec::new() } }
    }

    /// Calls alone.
    #[must_use]
    pub fn calls(calls: &[(&str, &str)]) -> Line {
        let calls =
            calls.iter().map(|(tool, arguments)| ((*tool).to_owned(), (*arguments).to_owned())).collect();
        Line { delay: None, says: Says::Reply { text: None, calls } }
    }
}

impl Model for Script {
    fn ask(&self, prompt: Prompt) -> Asked<'_> {
        Box::pin(async move {
            let at = usize::try_from(prompt.turn).unwrap_or(0) % self.lines.len().max(1);
            let Some(line) = self.lines.get(at) else {
                return Err(ModelFailure { error: "the script is empty".into(), retry_after: None });
            };
            if let Some(delay) = line.delay {
                sleep(duration(delay)).await;
            }
            match &line.says {
                Says::Reply { text, calls } => Ok(ModelReply {
                    text: text.clone(),
                    calls: calls.iter().enumerate().map(asked).collect(),
                    usage: Usage { input: 100, output: 20, cost_micros: 0 },
                    ..ModelReply::default()
                }),
                Says::Error { error, retry_after } => {
                    Err(ModelFailure { error: error.clone(), retry_after: *retry_after })
                }
            }
        })
    }
}

fn asked((at, (tool, arguments)): (usize, &(String, String))) -> AskedCall {
    AskedCall {
        id: format!("call_{}", at + 1),
        tool: tool.clone(),
        arguments: arguments.clone(),
        problem: None,
    }
}
