//! Messages, tool calls and tool results: what a conversation is made of.
//!
//! A provider's own blocks (signed thinking, encrypted reasoning) are opaque here and kept byte for byte. How the
//! pieces line up into a conversation is `transcript.rs`.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::body::Body;
use crate::digest::Digest;
pub use crate::digest::FileDigest;
use crate::id::CallNo;
use crate::json::RawJson;
use crate::name::{RuleId, ToolName};
use crate::verdict::Effect;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Text, data and files in order.
    pub parts: Vec<Part>,
    /// The client's own id for it, for clients that ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The client's own notes to it, a JSON object. Models do not read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Body>,
    /// Ids of other work that it is about, as the client wrote them. Nothing here follows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// Extensions of the client's protocol that it makes use of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Words, or a large value by reference.
    Text(Body),
    /// Structured content.
    Data(Body),
    /// A file by name and address; its bytes stay where they are.
    File {
        /// Its name, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Its media type, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
        /// Where it is: a URL, or the bytes in base 64.
        content: Body,
    },
}

impl Part {
    /// What it consists of.
    pub(crate) fn body(&self) -> &Body {
        match self {
            Part::Text(body) | Part::Data(body) | Part::File { content: body, .. } => body,
        }
    }

    /// The same, to change it.
    pub(crate) fn body_mut(&mut self) -> &mut Body {
        match self {
            Part::Text(body) | Part::Data(body) | Part::File { content: body, .. } => body,
        }
    }
}

impl Message {
    /// A message of one text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Message {
        Message::of(vec![Part::Text(Body::text(text))])
    }

    /// A message of these parts, and nothing else.
    #[must_use]
    pub fn of(parts: Vec<Part>) -> Message {
        Message { parts, client_id: None, metadata: None, references: Vec::new(), extensions: Vec::new() }
    }

    /// Its words, joined.
    #[must_use]
    pub fn words(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(body) => body.inline(),
            Part::Data(_) | Part::File { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// A tool call as the model or an outside worker asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its number in the run.
    pub no: CallNo,
    /// The provider's id for it; may repeat, may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The tool.
    pub tool: ToolName,
    /// The argument text: JSON, or plain text when what the model wrote is not JSON.
    pub arguments: Body,
    /// Digest of tool, argument text and schema; absent when the call can never run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Whether the tool may be started again with the same key after a crash.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replay: Replay,
    /// What policy said of it, unless it is held: then its hold says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<PolicyVerdict>,
    /// Why it was answered without running: unknown tool, bad arguments, a rule that forbids it, a cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The files that it names, as they were; part of its digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileDigest>,
}

/// Whether a started call with an unknown outcome may be started again by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// It changes the world: a person decides.
    #[default]
    Never,
    /// Declared idempotent: started again with the same key.
    Idempotent,
}

/// What policy said of a call, and why: the log explains itself with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVerdict {
    /// Allow, hold or deny.
    pub effect: Effect,
    /// The rules that said so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleId>,
    /// Digest of the policy they belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Digest>,
    /// The grant that allowed it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<crate::name::GrantId>,
    /// What rules that only observe would have done, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Box<ObservedVerdict>>,
}

/// What rules would have done that only observe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedVerdict {
    /// Allow, hold or deny.
    pub effect: Effect,
    /// The rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleId>,
}

/// The outcome of a call, as the model and the receipt see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResult {
    /// The tool ran and reported this.
    Ok(Body),
    /// The tool ran, or tried to, and failed.
    Failed(Body),
}

/// The model's reply of one turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Its words; empty when it only calls tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Body>,
    /// Data and files that it made, beside its words. For clients: the model itself does not get them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// The calls it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// The provider's own blocks, sent back as they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Body>,
    /// What it cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// The model that answered, when it is not the pinned one (fallback).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// What model replies cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub input: u64,
    /// Tokens written.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output: u64,
    /// Millionths of a currency unit, by the price table.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost_micros: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cost_micros: self.cost_micros.saturating_add(other.cost_micros),
        }
    }

    /// Tokens read and written.
    #[must_use]
    pub fn tokens(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// Fields at their default are not written: a row that waits for years should be short.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How arguments are shown and put into prompts: the one string of an object that has nothing else, otherwise the
/// JSON text.
#[must_use]
pub fn shown_input(arguments: &RawJson) -> String {
    match serde_json::from_str(arguments.text()) {
        Ok(OnlyString(Some(text))) => text,
        Ok(OnlyString(None)) | Err(_) => arguments.text().to_owned(),
    }
}

/// The one string of an object that has nothing else.
struct OnlyString(Option<String>);

impl<'de> Deserialize<'de> for OnlyString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OnlyString, D::Error> {
        deserializer.deserialize_map(OnlyString(None))
    }
}

impl<'de> Visitor<'de> for OnlyString {
    type Value = OnlyString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<OnlyString, A::Error> {
        let Some(IgnoredAny) = members.next_key()? else { return Ok(self) };
        let only = members.next_value()?;
        let mut is_alone = true;
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            is_alone = false;
        }
        Ok(OnlyString(is_alone.then_some(only)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S3-8, S3-11: what `{input}` and `tool_input` say.
    #[test]
    fn an_object_of_one_string_is_shown_as_that_string() {
        let shown = |text: &str| shown_input(&RawJson::parse(text).unwrap());
        assert_eq!(shown(r#"{"command": "rm -rf /tmp/old-files"}"#), "rm -rf /tmp/old-files");
        assert_eq!(shown(r#"{"a": "x", "b": "y"}"#), r#"{"a": "x", "b": "y"}"#);
        assert_eq!(shown(r#"{"n": 9007199254740993}"#), r#"{"n": 9007199254740993}"#);
        assert_eq!(shown("[]"), "[]");
    }
}
