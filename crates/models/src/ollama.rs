//! Ollama's own way: one JSON object on each line, calls whole, arguments as objects.
//!
//! Its compatible endpoint is `openai_chat.rs` with a `base_url`; this one takes Ollama's own options too.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use standfast_engine::model::Live;

use super::conversation::{Assistant, Names, Piece, Turn};
use super::error::{Trouble, TroubleKind, of_stream_error};
use super::openai_chat::{or_default, tools};
use super::reply::{Flow, ProviderReply, ReplyReader, TokenUsage, garbled, stop_if_too_many};
use super::request::{Members, ModelQuery, arguments_object, list, raw};

/// The body of a request.
pub(super) fn body(asking: &ModelQuery<'_>) -> String {
    let conversation = asking.conversation;
    let mut messages = Vec::new();
    if !conversation.system.is_empty() {
        messages.push(raw(&json!({"role": "system", "content": conversation.system})));
    }
    for turn in &conversation.turns {
        match turn {
            Turn::User(pieces) => messages.push(user(pieces)),
            Turn::Assistant(said) => messages.push(assistant(said)),
            Turn::Results(results) => messages.extend(results.iter().map(|result| {
                raw(&json!({"role": "tool", "tool_name": result.name, "content": result.text}))
            })),
        }
    }
    let mut members = Members::default();
    members.put("model", asking.model);
    members.put("messages", list(&messages));
    if !conversation.tools.is_empty() {
        members.put("tools", tools(asking));
    }
    members.put("stream", true);
    let mut options = Members::default();
    options.put_some("temperature", asking.parameters.temperature);
    options.put_some("num_predict", asking.parameters.max_tokens);
    members.put("options", options.object());
    members.join(&asking.parameters.more);
    members.object().get().to_owned()
}

fn user(pieces: &[Piece]) -> Box<RawValue> {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => texts.push(text.clone()),
            Piece::Image { base64, .. } => images.push(base64.clone()),
            Piece::ImageAt(url) => texts.push(format!("(a picture at {url})")),
        }
    }
    let mut message = json!({"role": "user", "content": texts.join("\n")});
    if !images.is_empty() {
        message["images"] = images.into();
    }
    raw(&message)
}

fn assistant(said: &Assistant) -> Box<RawValue> {
    let mut message = Members::default();
    message.put("role", "assistant");
    message.put("content", said.text.as_deref().unwrap_or_default());
    message.put_some("thinking", said.own.as_ref());
    let calls = said.calls.iter().map(|call| {
        let mut function = Members::default();
        function.put("name", &call.name);
        function.put("arguments", arguments_object(&call.arguments));
        let mut whole = Members::default();
        whole.put("function", function.object());
        whole.object()
    });
    let calls: Vec<Box<RawValue>> = calls.collect();
    if !calls.is_empty() {
        message.put("tool_calls", list(&calls));
    }
    message.object()
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    message: Option<Message>,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    done_reason: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    prompt_eval_count: u64,
    #[serde(default, deserialize_with = "or_default")]
    eval_count: u64,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default, deserialize_with = "or_default")]
    content: String,
    #[serde(default, deserialize_with = "or_default")]
    thinking: String,
    #[serde(default, deserialize_with = "or_default")]
    tool_calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default, deserialize_with = "or_default")]
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: Option<Box<RawValue>>,
}

/// A reply on its way.
pub(super) struct OllamaReading {
    names: Names,
    text: String,
    thinking: String,
    calls: Vec<Call>,
    done: Option<String>,
    spent: TokenUsage,
}

impl OllamaReading {
    pub(super) fn new(names: Names) -> OllamaReading {
        OllamaReading {
            names,
            text: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            done: None,
            spent: TokenUsage::default(),
        }
    }
}

impl ReplyReader for OllamaReading {
    fn take(&mut self, frame: &str, live: &Live) -> Result<Flow, Trouble> {
        let line: Line = serde_json::from_str(frame).map_err(garbled)?;
        if let Some(error) = line.error {
            return Err(of_stream_error("", &error));
        }
        if let Some(message) = line.message {
            if !message.content.is_empty() {
                live.delta(&message.content);
            }
            self.text.push_str(&message.content);
            self.thinking.push_str(&message.thinking);
            self.calls.extend(message.tool_calls);
            stop_if_too_many(self.calls.len())?;
        }
        if !line.done {
            return Ok(Flow::GoOn);
        }
        self.spent = TokenUsage { input: line.prompt_eval_count, cached: 0, output: line.eval_count };
        self.done = Some(line.done_reason.unwrap_or_default());
        Ok(Flow::Done)
    }

    fn finish(self: Box<Self>) -> Result<ProviderReply, Trouble> {
        let Some(reason) = self.done else { return Err(Trouble::new(TroubleKind::Cut, "")) };
        if reason == "length" && self.text.is_empty() && self.calls.is_empty() {
            return Err(Trouble::new(TroubleKind::OutOfTokens, ""));
        }
        let calls = self.calls.into_iter().map(|call| {
            let arguments = call.function.arguments.map_or("{}".to_owned(), |raw| raw.get().to_owned());
            self.names.call(call.id, &call.function.name, arguments)
        });
        let own = (!self.thinking.is_empty()).then(|| raw(&self.thinking));
        let (calls, finish) = (calls.collect(), Some(reason).filter(|reason| !reason.is_empty()));
        Ok(ProviderReply { text: self.text, calls, own, spent: self.spent, finish })
    }
}
