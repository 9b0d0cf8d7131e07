//! A model that says what its script says: for demos without a key, and for tests of one's own agents.
//!
//! Replies are chosen by the number of the turn, so that a restart continues in the same place; errors before a reply
//! are said first, one for each try. After the last reply the script starts over.

use standfast_core::command::AskedCall;
use standfast_core::message::{Part, Usage};
use standfast_core::time::Millis;
use standfast_engine::model::{Live, Model, ModelFailure, ModelFuture, ModelReply, Prompt};

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
    pub says: ScriptedReply,
}

/// What a scripted model says.
#[derive(Debug, Clone)]
pub enum ScriptedReply {
    /// Words and calls.
    Reply {
        /// Its words.
        text: Option<String>,
        /// Data and files beside them.
        parts: Vec<Part>,
        /// The same in the pieces in which they are heard; none when nobody hears them before the reply.
        deltas: Vec<String>,
        /// How long each further piece takes.
        pace: Millis,
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
        Line { delay: None, says: reply(Some(text.to_owned()), Vec::new()) }
    }

    /// Words alone, heard word by word.
    #[must_use]
    pub fn streams(text: &str) -> Line {
        let deltas = text.split_inclusive(' ').map(str::to_owned).collect();
        let says = ScriptedReply::Reply {
            text: Some(text.to_owned()),
            parts: Vec::new(),
            deltas,
            pace: Millis(0),
            calls: Vec::new(),
        };
        Line { delay: None, says }
    }

    /// Calls alone.
    #[must_use]
    pub fn calls(calls: &[(&str, &str)]) -> Line {
        let calls =
            calls.iter().map(|(tool, arguments)| ((*tool).to_owned(), (*arguments).to_owned())).collect();
        Line { delay: None, says: reply(None, calls) }
    }
}

fn reply(text: Option<String>, calls: Vec<(String, String)>) -> ScriptedReply {
    ScriptedReply::Reply { text, parts: Vec::new(), deltas: Vec::new(), pace: Millis(0), calls }
}

impl Script {
    /// What is said at this try of this turn. A turn is a reply and the errors in front of it.
    fn line(&self, turn: u32, failures: u32) -> Option<&Line> {
        let is_reply = |line: &Line| matches!(line.says, ScriptedReply::Reply { .. });
        let turns: Vec<&[Line]> = self.lines.split_inclusive(is_reply).collect();
        let lines = turns.get(usize::try_from(turn).ok()?.checked_rem(turns.len())?)?;
        // Errors that no reply follows are said again and again.
        lines.get(usize::try_from(failures).ok()?).or(lines.last())
    }
}

impl Model for Script {
    fn ask<'a>(&'a self, prompt: Prompt, live: &'a Live) -> ModelFuture<'a> {
        Box::pin(async move {
            let Some(line) = self.line(prompt.turn, prompt.failures) else {
                return Err(ModelFailure { error: "the script is empty".into(), retry_after: None });
            };
            if let Some(delay) = line.delay {
                live.sleep(delay).await;
            }
            match &line.says {
                ScriptedReply::Reply { text, parts, deltas, pace, calls } => {
                    for (at, piece) in deltas.iter().enumerate() {
                        if at > 0 && pace.0 > 0 {
                            live.sleep(*pace).await;
                        }
                        live.delta(piece);
                    }
                    Ok(ModelReply {
                        text: text.clone(),
                        parts: parts.clone(),
                        calls: calls.iter().enumerate().map(asked).collect(),
                        usage: Usage { input: 100, output: 20, cost_micros: 0 },
                        ..ModelReply::default()
                    })
                }
                ScriptedReply::Error { error, retry_after } => {
                    Err(ModelFailure { error: error.clone(), retry_after: *retry_after })
                }
            }
        })
    }

    fn provider(&self, _model: &str) -> &'static str {
        "scripted"
    }

    fn is_in_process(&self) -> bool {
        true
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Line {
        Line { delay: None, says: ScriptedReply::Error { error: text.into(), retry_after: Some(Millis(1)) } }
    }

    fn said(script: &Script, turn: u32, failures: u32) -> String {
        match &script.line(turn, failures).unwrap().says {
            ScriptedReply::Reply { text, .. } => text.clone().unwrap(),
            ScriptedReply::Error { error, .. } => error.clone(),
        }
    }

    #[test]
    fn errors_delay_the_reply_they_stand_before() {
        let lines =
            vec![Line::says("one"), error("busy"), error("down"), Line::says("two"), error("for good")];
        let script = Script { lines };
        assert_eq!(said(&script, 0, 0), "one");
        assert_eq!([said(&script, 1, 0), said(&script, 1, 1), said(&script, 1, 2)], ["busy", "down", "two"]);
        assert_eq!([said(&script, 2, 0), said(&script, 2, 7)], ["for good", "for good"]);
        assert_eq!(said(&script, 3, 0), "one", "it starts over");
        assert!(Script::default().line(0, 0).is_none());
    }
}
