//! Anthropic's messages: blocks of text, thinking and tool use, streamed block by block.
//!
//! Thinking is signed. A reply with a block that is neither words nor a call goes back as it came, all of it and in its
//! order; without its signatures the provider refuses the conversation.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_engine::model::Live;

use super::conversation::{Assistant, Names, Piece, ToolAnswer, Turn};
use super::error::{Trouble, TroubleKind, of_stream_error};
use super::openai_chat::or_default;
use super::reply::{Flow, ProviderReply, ReplyReader, TokenUsage, garbled, stop_if_too_many};
use super::request::{Members, ModelQuery, arguments_object, list, raw};

/// The version of the protocol.
pub(super) const VERSION: &str = "2023-06-01";

/// How many tokens a reply may have; this provider wants to be told.
const MAX_TOKENS: u64 = 8192;

/// The body of a request.
pub(super) fn body(asking: &ModelQuery<'_>) -> String {
    let conversation = asking.conversation;
    let mut members = Members::default();
    members.put("model", asking.model);
    members.put("max_tokens", asking.parameters.max_tokens.unwrap_or(MAX_TOKENS));
    if !conversation.system.is_empty() {
        members.put("system", &conversation.system);
    }
    members.put("messages", list(&messages(&conversation.turns)));
    if !conversation.tools.is_empty() {
        let tools = conversation.tools.iter().map(|tool| {
            let mut offer = Members::default();
            offer.put("name", &tool.name);
            offer.put("description", &tool.description);
            offer.put("input_schema", &tool.schema);
            offer.object()
        });
        members.put("tools", list(&tools.collect::<Vec<_>>()));
    }
    members.put("stream", true);
    members.put_some("temperature", asking.parameters.temperature);
    members.join(&asking.parameters.more);
    members.object().get().to_owned()
}

/// Two messages of one side in a row are one: results and what was said after them are said together.
fn messages(turns: &[Turn]) -> Vec<Box<RawValue>> {
    let mut messages = Vec::new();
    let mut user: Vec<Box<RawValue>> = Vec::new();
    let say = |user: &mut Vec<Box<RawValue>>, messages: &mut Vec<Box<RawValue>>| {
        if !user.is_empty() {
            messages.push(message("user", &list(&std::mem::take(user))));
        }
    };
    for turn in turns {
        match turn {
            Turn::User(pieces) => user.extend(pieces.iter().map(piece)),
            Turn::Results(results) => user.extend(results.iter().map(result)),
            Turn::Assistant(said) => {
                // A message without a block is refused.
                if let Some(content) = assistant(said) {
                    say(&mut user, &mut messages);
                    messages.push(message("assistant", &content));
                }
            }
        }
    }
    say(&mut user, &mut messages);
    messages
}

fn message(role: &str, content: &RawValue) -> Box<RawValue> {
    let mut message = Members::default();
    message.put("role", role);
    message.put("content", content);
    message.object()
}

fn piece(piece: &Piece) -> Box<RawValue> {
    raw(&match piece {
        Piece::Text(text) => json!({"type": "text", "text": text}),
        Piece::Image { media_type, base64 } => {
            json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": base64}})
        }
        Piece::ImageAt(url) => json!({"type": "image", "source": {"type": "url", "url": url}}),
    })
}

fn result(result: &ToolAnswer) -> Box<RawValue> {
    let mut block = json!({"type": "tool_result", "tool_use_id": plain(&result.id), "content": result.text});
    if result.is_error {
        block["is_error"] = true.into();
    }
    raw(&block)
}

fn assistant(said: &Assistant) -> Option<Box<RawValue>> {
    if let Some(own) = &said.own {
        return Some(own.clone());
    }
    let text = said.text.iter().map(|text| raw(&json!({"type": "text", "text": text})));
    let calls = said
        .calls
        .iter()
        .map(|call| tool_use(&plain(&call.id), &call.name, &arguments_object(&call.arguments)));
    let blocks: Vec<Box<RawValue>> = text.chain(calls).collect();
    (!blocks.is_empty()).then(|| list(&blocks))
}

fn tool_use(id: &str, name: &str, input: &RawValue) -> Box<RawValue> {
    let mut block = Members::default();
    block.put("type", "tool_use");
    block.put("id", id);
    block.put("name", name);
    block.put("input", input);
    block.object()
}

/// Ids of other providers may have letters in them that this one does not take.
fn plain(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    index: u32,
    #[serde(default)]
    message: Option<Message>,
    #[serde(default)]
    content_block: Option<Box<RawValue>>,
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    stop_reason: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
struct Usage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    cache_creation_input_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    cache_read_input_tokens: u64,
}

/// A block as it begins.
#[derive(Deserialize)]
struct BlockStart {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    thinking: String,
    #[serde(default)]
    signature: String,
    #[serde(default)]
    input: Option<Box<RawValue>>,
}

/// A block on its way.
enum Block {
    Text(String),
    Call {
        id: String,
        name: String,
        input: Option<Box<RawValue>>,
        written: String,
    },
    Thinking {
        thinking: String,
        signature: String,
    },
    /// Whatever else there may be: kept as it came.
    Other(Box<RawValue>),
}

/// A reply on its way.
pub(super) struct MessagesReading {
    names: Names,
    blocks: BTreeMap<u32, Block>,
    stop: Option<String>,
    is_done: bool,
    spent: TokenUsage,
}

impl MessagesReading {
    pub(super) fn new(names: Names) -> MessagesReading {
        MessagesReading {
            names,
            blocks: BTreeMap::new(),
            stop: None,
            is_done: false,
            spent: TokenUsage::default(),
        }
    }

    fn begin(&mut self, index: u32, block: Box<RawValue>, live: &Live) -> Result<(), Trouble> {
        let begin: BlockStart = serde_json::from_str(block.get()).map_err(garbled)?;
        let block = match begin.kind.as_str() {
            "text" => {
                if !begin.text.is_empty() {
                    live.delta(&begin.text);
                }
                Block::Text(begin.text)
            }
            "tool_use" => {
                Block::Call { id: begin.id, name: begin.name, input: begin.input, written: String::new() }
            }
            "thinking" => Block::Thinking { thinking: begin.thinking, signature: begin.signature },
            _ => Block::Other(block),
        };
        self.blocks.insert(index, block);
        stop_if_too_many(self.blocks.values().filter(|block| matches!(block, Block::Call { .. })).count())
    }

    fn delta(&mut self, index: u32, delta: Delta, live: &Live) {
        match self.blocks.get_mut(&index) {
            Some(Block::Text(text)) => {
                let words = delta.text.unwrap_or_default();
                if !words.is_empty() {
                    live.delta(&words);
                }
                text.push_str(&words);
            }
            Some(Block::Call { written, .. }) => written.push_str(&delta.partial_json.unwrap_or_default()),
            Some(Block::Thinking { thinking, signature }) => {
                thinking.push_str(&delta.thinking.unwrap_or_default());
                signature.push_str(&delta.signature.unwrap_or_default());
            }
            Some(Block::Other(_)) | None => {}
        }
    }

    fn spend(&mut self, usage: Usage) {
        if let Some(input) = usage.input_tokens {
            let cached = usage.cache_read_input_tokens;
            self.spent.input = input + cached + usage.cache_creation_input_tokens;
            self.spent.cached = cached;
        }
        self.spent.output = usage.output_tokens.unwrap_or(self.spent.output);
    }
}

impl Block {
    /// The block as it goes back; none when there is nothing in it.
    fn back(&self) -> Option<Box<RawValue>> {
        match self {
            Block::Text(text) if text.is_empty() => None,
            Block::Text(text) => Some(raw(&json!({"type": "text", "text": text}))),
            Block::Call { id, name, .. } => Some(tool_use(id, name, &arguments_object(&self.arguments()))),
            Block::Thinking { thinking, signature } => {
                Some(raw(&json!({"type": "thinking", "thinking": thinking, "signature": signature})))
            }
            Block::Other(block) => Some(block.clone()),
        }
    }

    /// The arguments of a call, as they were written.
    fn arguments(&self) -> String {
        match self {
            Block::Call { written, input, .. } if written.is_empty() => {
                input.as_ref().map_or("{}", |input| input.get()).to_owned()
            }
            Block::Call { written, .. } => written.clone(),
            Block::Text(_) | Block::Thinking { .. } | Block::Other(_) => String::new(),
        }
    }
}

impl ReplyReader for MessagesReading {
    fn take(&mut self, frame: &str, live: &Live) -> Result<Flow, Trouble> {
        let event: Event = serde_json::from_str(frame).map_err(garbled)?;
        match event.kind.as_str() {
            "message_start" => {
                if let Some(usage) = event.message.and_then(|message| message.usage) {
                    self.spend(usage);
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.begin(event.index, block, live)?;
                }
            }
            "content_block_delta" => self.delta(event.index, event.delta.unwrap_or_default(), live),
            "message_delta" => {
                self.stop = event.delta.and_then(|delta| delta.stop_reason).or(self.stop.take());
                if let Some(usage) = event.usage {
                    self.spend(usage);
                }
            }
            "message_stop" => {
                self.is_done = true;
                return Ok(Flow::Done);
            }
            "error" => {
                let error = event.error.unwrap_or_default();
                return Err(of_stream_error(error["type"].as_str().unwrap_or_default(), &error));
            }
            // Pings, ends of blocks, and what there may be one day.
            _ => {}
        }
        Ok(Flow::GoOn)
    }

    fn finish(self: Box<Self>) -> Result<ProviderReply, Trouble> {
        let finish = self.stop.clone();
        let mut said = ProviderReply { spent: self.spent, finish, ..ProviderReply::default() };
        for block in self.blocks.values() {
            match block {
                Block::Text(text) => said.text.push_str(text),
                Block::Call { id, name, .. } => {
                    said.calls.push(self.names.call(id.clone(), name, block.arguments()));
                }
                Block::Thinking { .. } | Block::Other(_) => {}
            }
        }
        let is_empty = said.text.is_empty() && said.calls.is_empty();
        match self.stop.as_deref() {
            Some("refusal") => return Err(Trouble::new(TroubleKind::Filtered, "refusal")),
            Some("max_tokens") if is_empty => return Err(Trouble::new(TroubleKind::OutOfTokens, "")),
            Some("model_context_window_exceeded") if is_empty => {
                return Err(Trouble::new(TroubleKind::TooLong, "model_context_window_exceeded"));
            }
            None if !self.is_done => return Err(Trouble::new(TroubleKind::Cut, "")),
            Some(_) | None => {}
        }
        let is_special = |block: &Block| matches!(block, Block::Thinking { .. } | Block::Other(_));
        if self.blocks.values().any(is_special) {
            said.own = Some(list(&self.blocks.values().filter_map(Block::back).collect::<Vec<_>>()));
        }
        Ok(said)
    }
}
