//! OpenAI's responses: items of reasoning, words and calls.
//!
//! Nothing is kept at the provider (`store: false`): the conversation lives here, for weeks if need be. Reasoning comes
//! encrypted and goes back as it came, together with the items around it.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_engine::model::Live;

use super::conversation::{Assistant, Names, Piece, Turn};
use super::error::{Trouble, TroubleKind, of_stream_error};
use super::reply::{Flow, ProviderReply, ReplyReader, TokenUsage, garbled, stop_if_too_many};
use super::request::{Members, ModelQuery, list, raw};

/// The body of a request.
pub(super) fn body(asking: &ModelQuery<'_>) -> String {
    let conversation = asking.conversation;
    let mut members = Members::default();
    members.put("model", asking.model);
    if !conversation.system.is_empty() {
        members.put("instructions", &conversation.system);
    }
    members.put("input", list(&input(&conversation.turns)));
    if !conversation.tools.is_empty() {
        let tools = conversation.tools.iter().map(|tool| {
            let mut offer = Members::default();
            offer.put("type", "function");
            offer.put("name", &tool.name);
            offer.put("description", &tool.description);
            offer.put("parameters", &tool.schema);
            offer.put("strict", false);
            offer.object()
        });
        members.put("tools", list(&tools.collect::<Vec<_>>()));
    }
    members.put("stream", true);
    members.put("store", false);
    // Models that do not reason refuse to be asked for their reasoning.
    if !["gpt-3", "gpt-4", "chatgpt"].iter().any(|start| asking.model.starts_with(start)) {
        members.put("include", ["reasoning.encrypted_content"]);
    }
    members.put_some("temperature", asking.parameters.temperature);
    members.put_some("max_output_tokens", asking.parameters.max_tokens);
    members.join(&asking.parameters.more);
    members.object().get().to_owned()
}

fn input(turns: &[Turn]) -> Vec<Box<RawValue>> {
    let mut items = Vec::new();
    for turn in turns {
        match turn {
            Turn::User(pieces) => {
                let content: Vec<Value> = pieces.iter().map(piece).collect();
                items.push(raw(&json!({"type": "message", "role": "user", "content": content})));
            }
            Turn::Assistant(said) => items.extend(assistant(said)),
            Turn::Results(results) => items.extend(results.iter().map(|result| {
                raw(&json!({"type": "function_call_output", "call_id": result.id, "output": result.text}))
            })),
        }
    }
    items
}

fn piece(piece: &Piece) -> Value {
    match piece {
        Piece::Text(text) => json!({"type": "input_text", "text": text}),
        Piece::Image { media_type, base64 } => {
            json!({"type": "input_image", "image_url": format!("data:{media_type};base64,{base64}")})
        }
        Piece::ImageAt(url) => json!({"type": "input_image", "image_url": url}),
    }
}

fn assistant(said: &Assistant) -> Vec<Box<RawValue>> {
    let own = said.own.as_ref().and_then(|own| serde_json::from_str(own.get()).ok());
    if let Some(items) = own {
        return items;
    }
    let text = said.text.iter().map(|text| {
        raw(&json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}))
    });
    let calls = said.calls.iter().map(|call| {
        let (id, name, arguments) = (&call.id, &call.name, &call.arguments);
        raw(&json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}))
    });
    text.chain(calls).collect()
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    delta: Option<Value>,
    #[serde(default)]
    item: Option<Box<RawValue>>,
    #[serde(default)]
    response: Option<Response>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    code: Option<Value>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    incomplete_details: Option<Incomplete>,
}

#[derive(Deserialize)]
struct Incomplete {
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    input_tokens_details: Option<UsageDetails>,
}

#[derive(Deserialize)]
struct UsageDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
    #[serde(default)]
    content: Option<Vec<Content>>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
}

/// A reply on its way.
pub(super) struct ResponsesReading {
    names: Names,
    streamed: String,
    items: Vec<(Item, Box<RawValue>)>,
    /// Why it ended, if it did: nothing special, or why it is not whole.
    ended: Option<Option<String>>,
    spent: TokenUsage,
}

impl ResponsesReading {
    pub(super) fn new(names: Names) -> ResponsesReading {
        ResponsesReading {
            names,
            streamed: String::new(),
            items: Vec::new(),
            ended: None,
            spent: TokenUsage::default(),
        }
    }

    fn end(&mut self, response: Option<Response>) {
        let Some(response) = response else { return };
        if let Some(usage) = response.usage {
            self.spent = TokenUsage {
                input: usage.input_tokens,
                cached: usage.input_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
                output: usage.output_tokens,
            };
        }
        self.ended = Some(response.incomplete_details.and_then(|details| details.reason));
    }
}

impl ReplyReader for ResponsesReading {
    fn take(&mut self, frame: &str, live: &Live) -> Result<Flow, Trouble> {
        if frame.trim() == "[DONE]" {
            return Ok(Flow::Done);
        }
        let event: Event = serde_json::from_str(frame).map_err(garbled)?;
        match event.kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                if let Some(words) = event.delta.as_ref().and_then(Value::as_str) {
                    live.delta(words);
                    self.streamed.push_str(words);
                }
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.items.push((serde_json::from_str(item.get()).map_err(garbled)?, item));
                    stop_if_too_many(self.items.len())?;
                }
            }
            "response.completed" | "response.incomplete" => {
                self.end(event.response);
                return Ok(Flow::Done);
            }
            "response.failed" => {
                let error = event.response.and_then(|response| response.error).unwrap_or_default();
                return Err(of_stream_error(error["code"].as_str().unwrap_or_default(), &error));
            }
            "error" => {
                let error =
                    event.error.unwrap_or_else(|| json!({"code": event.code, "message": event.message}));
                return Err(of_stream_error(error["code"].as_str().unwrap_or_default(), &error));
            }
            // Everything else repeats what the items say when they are done.
            _ => {}
        }
        Ok(Flow::GoOn)
    }

    fn finish(self: Box<Self>) -> Result<ProviderReply, Trouble> {
        let Some(reason) = self.ended else { return Err(Trouble::new(TroubleKind::Cut, "")) };
        let finish = reason.clone();
        let mut said = ProviderReply { spent: self.spent, finish, ..ProviderReply::default() };
        for (item, _) in &self.items {
            match item.kind.as_str() {
                "message" => {
                    let content = item.content.iter().flatten();
                    let words = content.filter_map(|part| part.text.as_ref().or(part.refusal.as_ref()));
                    words.for_each(|words| said.text.push_str(words));
                }
                "function_call" => said.calls.push(self.names.call(
                    item.call_id.clone().unwrap_or_default(),
                    item.name.as_deref().unwrap_or_default(),
                    item.arguments.clone().unwrap_or_default(),
                )),
                _ => {}
            }
        }
        if said.text.is_empty() {
            said.text = self.streamed;
        }
        let is_empty = said.text.is_empty() && said.calls.is_empty();
        match reason.as_deref() {
            Some("content_filter") => return Err(Trouble::new(TroubleKind::Filtered, "content_filter")),
            Some(_) if is_empty => return Err(Trouble::new(TroubleKind::OutOfTokens, "")),
            Some(_) | None => {}
        }
        if self.items.iter().any(|(item, _)| !matches!(item.kind.as_str(), "message" | "function_call")) {
            let items: Vec<Box<RawValue>> = self.items.into_iter().map(|(_, item)| item).collect();
            said.own = Some(list(&items));
        }
        Ok(said)
    }
}
