//! `read_result`: the model reads on in a result that it was shown in part.
//!
//! A long result is stored once, in the log, and the model is shown its beginning with a note that says how to read on.
//! The rest is read from the log of the same run; nothing runs again.

use serde::Deserialize;
use standfast_core::body::Body;
use standfast_core::definition::ToolSpec;
use standfast_core::event::Envelope;
use standfast_core::id::CallNo;
use standfast_core::json::RawJson;
use standfast_core::message::{Replay, ToolResult};
use standfast_core::transcript::{Entry, transcript};

use super::{Invocation, LogReader, Nature, Outcome, Tool, ToolFuture};

/// What models call it.
pub const NAME: &str = "read_result";

/// How many bytes of a result a model is shown at a time.
pub const SHOWN_BYTES: usize = 16 * 1024;

const DESCRIPTION: &str = "Read on in the result of an earlier call that was shown in part.";

const SCHEMA: &str = r#"{"type":"object","properties":{"call":{"type":"integer","minimum":1,"description":"The number of the call, as the note at the end of its result says"},"offset":{"type":"integer","minimum":0,"description":"The byte to read from"}},"required":["call","offset"],"additionalProperties":false}"#;

/// Reads on in results of the same run.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadResult;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    call: u32,
    offset: usize,
}

impl ReadResult {
    /// How it is described to a model.
    #[must_use]
    pub fn spec() -> ToolSpec {
        let Ok(schema) = RawJson::parse(SCHEMA) else { unreachable!("a constant that the tests read") };
        ToolSpec {
            description: DESCRIPTION.into(),
            schema,
            replay: Replay::Idempotent,
            reversible: true,
            approval_prompt: None,
            holds: None,
        }
    }
}

impl Tool for ReadResult {
    fn run(&self, _: Invocation) -> ToolFuture {
        let why = Body::text("not executed: the log of the run is not at hand");
        Box::pin(std::future::ready(Outcome::Done(ToolResult::Failed(why))))
    }

    fn nature(&self) -> Nature<'_> {
        Nature::LogReader(self)
    }
}

impl LogReader for ReadResult {
    fn in_log(&self, arguments: &str, log: &[Envelope]) -> ToolResult {
        match read(arguments, log) {
            Ok(part) => ToolResult::Ok(Body::text(part)),
            Err(why) => ToolResult::Failed(Body::text(why)),
        }
    }
}

fn read(arguments: &str, log: &[Envelope]) -> Result<String, String> {
    let asked: Arguments = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
    let no = CallNo(asked.call);
    let results = transcript(log).into_iter().filter_map(|entry| match entry {
        Entry::Tool(result) => Some(result),
        Entry::User(_) | Entry::Assistant(_) => None,
    });
    let result = results.into_iter().find(|result| result.call == no);
    let result = result.ok_or_else(|| format!("there is no result of a call {no}"))?;
    let text = result.content.inline().ok_or("the result is not at hand")?;
    if asked.offset > text.len() {
        return Err(format!("the result of call {no} has {} bytes", text.len()));
    }
    Ok(part(no, text, asked.offset))
}

/// The conversation with every long result shown in part.
pub fn shorten(entries: &mut [Entry]) {
    for entry in entries {
        let Entry::Tool(result) = entry else { continue };
        if result.tool.as_str() == NAME {
            continue;
        }
        let Some(text) = result.content.inline().filter(|text| text.len() > SHOWN_BYTES) else { continue };
        result.content = Body::Text(part(result.call, text, 0));
    }
}

/// A part of a result, and how to read on.
fn part(no: CallNo, text: &str, offset: usize) -> String {
    let start = at_border(text, offset);
    let end = at_border(text, start.saturating_add(SHOWN_BYTES).min(text.len()));
    let shown = text.get(start..end).unwrap_or_default();
    match text.len() - end {
        0 => shown.to_owned(),
        left => format!(
            "{shown}\n[{left} more bytes; to read on call {NAME} with {{\"call\": {}, \"offset\": {end}}}]",
            no.0
        ),
    }
}

/// The nearest border between characters at or before this byte.
fn at_border(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_read_in_parts_that_join_to_the_whole() {
        let text = "ä".repeat(20_000);
        let (mut joined, mut offset) = (String::new(), 0);
        while offset < text.len() {
            let part = part(CallNo(3), &text, offset);
            let (shown, note) = part.split_once("\n[").unwrap_or((&part, ""));
            joined.push_str(shown);
            offset = at_border(&text, offset) + shown.len();
            let is_last = offset == text.len();
            assert_eq!(note.is_empty(), is_last, "{note}");
            assert!(is_last || note.contains(&format!("{{\"call\": 3, \"offset\": {offset}}}")), "{note}");
        }
        assert_eq!(joined, text);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let why = |arguments: &str| read(arguments, &[]).unwrap_err();
        assert!(why("{}").contains("missing field `call`"));
        assert!(why(r#"{"call": 1, "offset": 0}"#).contains("no result of a call"));
        assert!(ReadResult::spec().schema.text().contains(r#""required":["call","offset"]"#));
    }
}
