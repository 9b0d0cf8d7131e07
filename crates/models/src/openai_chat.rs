//! Chat completions: OpenAI's older way, which vLLM, llama.cpp, OpenRouter, Ollama and many others speak too.
//!
//! Others speak it with an accent: calls without an index, names that come late, ids that repeat, arguments that are no
//! text. Each of these becomes calls here that can be told apart; what they ask for is judged elsewhere.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use standfast_engine::model::Live;

use super::conversation::{Assistant, Names, Piece, Turn};
use super::error::{Trouble, TroubleKind, of_stream_error};
use super::reply::{Flow, ProviderReply, ReplyReader, TokenUsage, garbled, stop_if_too_many};
use super::request::{Members, ModelQuery, list, raw};

/// The body of a request.
pub(super) fn body(asking: &ModelQuery<'_>) -> String {
    let mut members = Members::default();
    members.put("model", asking.model);
    members.put("messages", list(&messages(asking)));
    if !asking.conversation.tools.is_empty() {
        members.put("tools", tools(asking));
    }
    members.put("stream", true);
    members.put("stream_options", json!({"include_usage": true}));
    members.put_some("temperature", asking.parameters.temperature);
    // OpenAI's newer models take the newer name only, most others know the older one only.
    let limit = if asking.is_official { "max_completion_tokens" } else { "max_tokens" };
    members.put_some(limit, asking.parameters.max_tokens);
    members.join(&asking.parameters.more);
    members.object().get().to_owned()
}

/// Tools as they are described to OpenAI and Ollama.
pub(super) fn tools(asking: &ModelQuery<'_>) -> Box<RawValue> {
    let tools = asking.conversation.tools.iter().map(|tool| {
        let mut function = Members::default();
        function.put("name", &tool.name);
        function.put("description", &tool.description);
        function.put("parameters", &tool.schema);
        let mut offer = Members::default();
        offer.put("type", "function");
        offer.put("function", function.object());
        offer.object()
    });
    list(&tools.collect::<Vec<_>>())
}

fn messages(asking: &ModelQuery<'_>) -> Vec<Box<RawValue>> {
    let conversation = asking.conversation;
    let mut messages = Vec::new();
    if !conversation.system.is_empty() {
        messages.push(raw(&json!({"role": "system", "content": conversation.system})));
    }
    for turn in &conversation.turns {
        match turn {
            Turn::User(pieces) => messages.push(raw(&json!({"role": "user", "content": content(pieces)}))),
            Turn::Assistant(said) => messages.push(assistant(said)),
            Turn::Results(results) => messages.extend(results.iter().map(|result| {
                raw(&json!({"role": "tool", "tool_call_id": result.id, "content": result.text}))
            })),
        }
    }
    messages
}

/// One text stays a text: not every server takes a list of parts.
fn content(pieces: &[Piece]) -> Value {
    if let [Piece::Text(text)] = pieces {
        return json!(text);
    }
    let parts = pieces.iter().map(|piece| match piece {
        Piece::Text(text) => json!({"type": "text", "text": text}),
        Piece::Image { media_type, base64 } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{base64}")}})
        }
        Piece::ImageAt(url) => json!({"type": "image_url", "image_url": {"url": url}}),
    });
    parts.collect()
}

/// What a server said beside words and calls, and wants to be sent back.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ServerExtras {
    /// Members of the message.
    message: Vec<(String, Box<RawValue>)>,
    /// Members of its calls, one for each call.
    calls: Vec<Option<Box<RawValue>>>,
}

fn assistant(said: &Assistant) -> Box<RawValue> {
    let own: ServerExtras =
        said.own.as_ref().and_then(|own| serde_json::from_str(own.get()).ok()).unwrap_or_default();
    let mut message = Members::default();
    message.put("role", "assistant");
    message.put("content", &said.text);
    for (name, value) in &own.message {
        message.put(name, value);
    }
    let calls: Vec<Box<RawValue>> = said
        .calls
        .iter()
        .enumerate()
        .map(|(at, call)| {
            let mut members = Members::default();
            members.put("id", &call.id);
            members.put("type", "function");
            members.put("function", json!({"name": call.name, "arguments": call.arguments}));
            members.put_some(EXTRA, own.calls.get(at).cloned().flatten());
            members.object()
        })
        .collect();
    if !calls.is_empty() {
        message.put("tool_calls", list(&calls));
    }
    message.object()
}

/// Where Google keeps its signatures when it speaks this dialect.
const EXTRA: &str = "extra_content";

#[derive(Deserialize)]
struct Chunk {
    #[serde(default, deserialize_with = "or_default")]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
    /// `error` where vLLM tells an error without a member of that name.
    #[serde(default)]
    object: Option<String>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u32,
    #[serde(default, deserialize_with = "or_default")]
    delta: Delta,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    reasoning_details: Option<Vec<Box<RawValue>>>,
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize)]
struct CallDelta {
    #[serde(default)]
    index: Option<u32>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionDelta>,
    #[serde(default)]
    extra_content: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default, deserialize_with = "or_default")]
    prompt_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<UsageDetails>,
}

#[derive(Deserialize)]
struct UsageDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

/// `null` is as good as nothing.
pub(super) fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A call on its way.
#[derive(Default)]
struct Call {
    index: Option<u32>,
    id: String,
    name: String,
    arguments: String,
    extra: Option<Box<RawValue>>,
}

/// A reply on its way.
pub(super) struct ChatReading {
    names: Names,
    text: String,
    calls: Vec<Call>,
    reasoning: [(&'static str, String); 2],
    details: Vec<Box<RawValue>>,
    finish: Option<String>,
    is_done: bool,
    spent: TokenUsage,
}

impl ChatReading {
    pub(super) fn new(names: Names) -> ChatReading {
        ChatReading {
            names,
            text: String::new(),
            calls: Vec::new(),
            reasoning: [("reasoning_content", String::new()), ("reasoning", String::new())],
            details: Vec::new(),
            finish: None,
            is_done: false,
            spent: TokenUsage::default(),
        }
    }

    fn delta(&mut self, delta: Delta, live: &Live) -> Result<(), Trouble> {
        for words in [delta.content, delta.refusal].into_iter().flatten().filter(|words| !words.is_empty()) {
            live.delta(&words);
            self.text.push_str(&words);
        }
        let thoughts = [delta.reasoning_content, delta.reasoning];
        for ((_, so_far), more) in self.reasoning.iter_mut().zip(thoughts) {
            so_far.push_str(&more.unwrap_or_default());
        }
        for detail in delta.reasoning_details.into_iter().flatten() {
            add_detail(&mut self.details, detail);
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.call(call)?;
        }
        Ok(())
    }

    fn call(&mut self, delta: CallDelta) -> Result<(), Trouble> {
        let at = self.place(&delta);
        stop_if_too_many(self.calls.len())?;
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        call.id = delta.id.filter(|id| !id.is_empty()).unwrap_or(std::mem::take(&mut call.id));
        call.extra = delta.extra_content.or(call.extra.take());
        let Some(function) = delta.function else { return Ok(()) };
        // Some say the whole name again with every piece.
        if let Some(name) = function.name.filter(|name| *name != call.name) {
            call.name.push_str(&name);
        }
        if let Some(arguments) = function.arguments.as_ref().map(|raw| raw.get()).filter(|raw| *raw != "null")
        {
            match serde_json::from_str::<String>(arguments) {
                Ok(text) => call.arguments.push_str(&text),
                // An object where a text should be: its text, as it came.
                Err(_) => call.arguments.push_str(arguments),
            }
        }
        Ok(())
    }

    /// Which call a piece belongs to; a new one where it belongs to none.
    fn place(&mut self, delta: &CallDelta) -> usize {
        let id = delta.id.as_deref().filter(|id| !id.is_empty());
        let has_name =
            delta.function.as_ref().is_some_and(|f| f.name.as_ref().is_some_and(|n| !n.is_empty()));
        let is_whole = |call: &Call| serde_json::from_str::<&RawValue>(&call.arguments).is_ok();
        let found = match (delta.index, id) {
            (Some(index), id) => self
                .calls
                .iter()
                .rposition(|call| call.index == Some(index))
                // Some give every call the same index.
                .filter(|at| id.is_none_or(|id| self.calls[*at].id.is_empty() || self.calls[*at].id == id)),
            (None, Some(id)) => self
                .calls
                .iter()
                .rposition(|call| call.id == id)
                // The same id again with a name, when the arguments are whole, is another call.
                .filter(|at| !(has_name && is_whole(&self.calls[*at]))),
            (None, None) => {
                let last = self.calls.len().checked_sub(1);
                last.filter(|at| {
                    !has_name || (self.calls[*at].name.is_empty() && !is_whole(&self.calls[*at]))
                })
            }
        };
        found.unwrap_or_else(|| {
            self.calls.push(Call { index: delta.index, ..Call::default() });
            self.calls.len() - 1
        })
    }

    /// What is to be sent back beside words and calls; none when there is nothing of the kind.
    fn own(&self) -> Option<Box<RawValue>> {
        let mut message: Vec<(&str, Box<RawValue>)> = Vec::new();
        for (name, text) in self.reasoning.iter().filter(|(_, text)| !text.is_empty()) {
            message.push((name, raw(text)));
        }
        if !self.details.is_empty() {
            message.push(("reasoning_details", raw(&self.details)));
        }
        let calls: Vec<Option<&RawValue>> = self.calls.iter().map(|call| call.extra.as_deref()).collect();
        if message.is_empty() && calls.iter().all(Option::is_none) {
            return None;
        }
        let mut own = Members::default();
        own.put("message", message);
        own.put("calls", calls);
        Some(own.object())
    }
}

/// Pieces of one thought are put together, as whoever gets them back wants them whole; anything else stays as it came.
fn add_detail(details: &mut Vec<Box<RawValue>>, detail: Box<RawValue>) {
    let read = |raw: &RawValue| serde_json::from_str::<Map<String, Value>>(raw.get()).unwrap_or_default();
    let piece = read(&detail);
    let is_piece =
        matches!(piece.get("type").and_then(Value::as_str), Some("reasoning.text" | "reasoning.summary"))
            && piece.get("index").is_some_and(Value::is_number);
    let before = details
        .last()
        .map(|last| read(last))
        .filter(|last| is_piece && ["type", "index"].iter().all(|name| last.get(*name) == piece.get(*name)));
    let Some(mut whole) = before else { return details.push(detail) };
    for (name, value) in piece {
        match (whole.get_mut(&name), value) {
            (Some(Value::String(before)), Value::String(more)) if name == "text" || name == "summary" => {
                before.push_str(&more);
            }
            (_, Value::Null) => {}
            (_, value) => {
                whole.insert(name, value);
            }
        }
    }
    details.pop();
    details.push(raw(&whole));
}

impl ReplyReader for ChatReading {
    fn take(&mut self, frame: &str, live: &Live) -> Result<Flow, Trouble> {
        if frame.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(Flow::Done);
        }
        let chunk: Chunk = serde_json::from_str(frame).map_err(garbled)?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(of_stream_error(error["type"].as_str().unwrap_or_default(), &error));
        }
        if chunk.object.as_deref() == Some("error") {
            let error: Value = serde_json::from_str(frame).map_err(garbled)?;
            return Err(of_stream_error(error["type"].as_str().unwrap_or_default(), &error));
        }
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            self.delta(choice.delta, live)?;
            self.finish = choice.finish_reason.or(self.finish.take());
        }
        if let Some(usage) = chunk.usage {
            self.spent = TokenUsage {
                input: usage.prompt_tokens,
                cached: usage.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
                output: usage.completion_tokens,
            };
        }
        Ok(Flow::GoOn)
    }

    fn finish(self: Box<Self>) -> Result<ProviderReply, Trouble> {
        let is_empty = self.text.is_empty() && self.calls.is_empty();
        match self.finish.as_deref() {
            Some("content_filter") => return Err(Trouble::new(TroubleKind::Filtered, "content_filter")),
            Some("length") if is_empty => return Err(Trouble::new(TroubleKind::OutOfTokens, "")),
            None if is_empty || !self.is_done => return Err(Trouble::new(TroubleKind::Cut, "")),
            Some(_) | None => {}
        }
        let own = self.own();
        let calls = self.calls.into_iter().map(|call| self.names.call(call.id, &call.name, call.arguments));
        let (calls, finish) = (calls.collect(), self.finish);
        Ok(ProviderReply { text: self.text, calls, own, spent: self.spent, finish })
    }
}
