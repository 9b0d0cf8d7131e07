//! Google's contents: parts of text, thoughts and function calls, each of which may carry a signature.
//!
//! Signatures belong to the part that they came with, so a reply that has one goes back part by part as it came.
//! Functions often have no ids here; then a result belongs to its call by name and order.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_engine::model::Live;

use super::conversation::{Assistant, Names, PastCall, Piece, ToolAnswer, Turn};
use super::error::{Trouble, TroubleKind, of_stream_error};
use super::reply::{Flow, ProviderReply, ReplyReader, TokenUsage, garbled, stop_if_too_many};
use super::request::{Members, ModelQuery, arguments_object, list, raw};

/// What Google takes in the place of a signature for a call that it did not make itself.
const NOT_SIGNED: &str = "skip_thought_signature_validator";

/// The body of a request.
pub(super) fn body(asking: &ModelQuery<'_>) -> String {
    let conversation = asking.conversation;
    let mut members = Members::default();
    if !conversation.system.is_empty() {
        members.put("systemInstruction", json!({"parts": [{"text": conversation.system}]}));
    }
    // Older models know nothing of signatures.
    let is_signing = !["gemini-1", "gemini-2"].iter().any(|start| asking.model.starts_with(start));
    members.put("contents", list(&contents(&conversation.turns, is_signing)));
    if !conversation.tools.is_empty() {
        let tools = conversation.tools.iter().map(|tool| {
            let mut offer = Members::default();
            offer.put("name", &tool.name);
            offer.put("description", &tool.description);
            offer.put("parametersJsonSchema", &tool.schema);
            offer.object()
        });
        let mut functions = Members::default();
        functions.put("functionDeclarations", list(&tools.collect::<Vec<_>>()));
        members.put("tools", list(&[functions.object()]));
    }
    let mut config = Members::default();
    config.put_some("temperature", asking.parameters.temperature);
    config.put_some("maxOutputTokens", asking.parameters.max_tokens);
    members.put("generationConfig", config.object());
    members.join(&asking.parameters.more);
    members.object().get().to_owned()
}

/// Two contents of one side in a row are one.
fn contents(turns: &[Turn], is_signing: bool) -> Vec<Box<RawValue>> {
    let mut sides: Vec<(&str, Vec<Box<RawValue>>)> = Vec::new();
    for turn in turns {
        let (role, parts) = match turn {
            Turn::User(pieces) => ("user", pieces.iter().map(piece).collect()),
            Turn::Results(results) => ("user", results.iter().map(response).collect()),
            Turn::Assistant(said) => ("model", assistant(said, is_signing)),
        };
        match sides.last_mut() {
            Some((last, before)) if *last == role => before.extend(parts),
            Some(_) | None => sides.push((role, parts)),
        }
    }
    let contents = sides.into_iter().filter(|(_, parts)| !parts.is_empty()).map(|(role, parts)| {
        let mut content = Members::default();
        content.put("role", role);
        content.put("parts", list(&parts));
        content.object()
    });
    contents.collect()
}

fn piece(piece: &Piece) -> Box<RawValue> {
    raw(&match piece {
        Piece::Text(text) => json!({"text": text}),
        Piece::Image { media_type, base64 } => {
            json!({"inlineData": {"mimeType": media_type, "data": base64}})
        }
        Piece::ImageAt(url) => json!({"text": format!("(a picture at {url})")}),
    })
}

fn response(result: &ToolAnswer) -> Box<RawValue> {
    let key = if result.is_error { "error" } else { "result" };
    let mut response = json!({"name": result.name, "response": {key: result.text}});
    if let Some(id) = their_id(&result.id) {
        response["id"] = id.into();
    }
    raw(&json!({"functionResponse": response}))
}

fn assistant(said: &Assistant, is_signing: bool) -> Vec<Box<RawValue>> {
    let own = said.own.as_ref().and_then(|own| serde_json::from_str(own.get()).ok());
    if let Some(parts) = own {
        return parts;
    }
    let text = said.text.iter().map(|text| raw(&json!({"text": text})));
    let calls = said.calls.iter().enumerate().map(|(at, asked)| call(asked, is_signing && at == 0));
    text.chain(calls).collect()
}

fn call(call: &PastCall, is_signed: bool) -> Box<RawValue> {
    let mut function = Members::default();
    function.put_some("id", their_id(&call.id));
    function.put("name", &call.name);
    function.put("args", arguments_object(&call.arguments));
    let mut part = Members::default();
    part.put("functionCall", function.object());
    part.put_some("thoughtSignature", is_signed.then_some(NOT_SIGNED));
    part.object()
}

/// Ids that this server, or another provider, gave to calls say nothing to Google.
fn their_id(id: &str) -> Option<&str> {
    (!id.starts_with("call_") && !id.starts_with("toolu_")).then_some(id)
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    candidates: Vec<Candidate>,
    #[serde(rename = "promptFeedback", default)]
    feedback: Option<Feedback>,
    #[serde(rename = "usageMetadata", default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Candidate {
    #[serde(default)]
    content: Option<Content>,
    #[serde(rename = "finishReason", default)]
    finish: Option<String>,
    #[serde(rename = "finishMessage", default)]
    message: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    parts: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Feedback {
    #[serde(rename = "blockReason", default)]
    block: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Usage {
    prompt_token_count: u64,
    candidates_token_count: u64,
    thoughts_token_count: u64,
    tool_use_prompt_token_count: u64,
    cached_content_token_count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Part {
    text: Option<String>,
    thought: bool,
    thought_signature: Option<String>,
    function_call: Option<FunctionCall>,
}

#[derive(Deserialize)]
struct FunctionCall {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    args: Option<Box<RawValue>>,
}

/// A reply on its way.
pub(super) struct GeminiReading {
    names: Names,
    parts: Vec<(Part, Box<RawValue>)>,
    finish: Option<(String, String)>,
    spent: TokenUsage,
}

impl GeminiReading {
    pub(super) fn new(names: Names) -> GeminiReading {
        GeminiReading { names, parts: Vec::new(), finish: None, spent: TokenUsage::default() }
    }
}

impl ReplyReader for GeminiReading {
    fn take(&mut self, frame: &str, live: &Live) -> Result<Flow, Trouble> {
        let chunk: Chunk = serde_json::from_str(frame).map_err(garbled)?;
        if let Some(error) = chunk.error {
            return Err(of_stream_error(error["status"].as_str().unwrap_or_default(), &error));
        }
        if let Some(why) = chunk.feedback.and_then(|feedback| feedback.block) {
            return Err(Trouble::new(TroubleKind::Filtered, why));
        }
        if let Some(usage) = chunk.usage {
            self.spent = TokenUsage {
                input: usage.prompt_token_count + usage.tool_use_prompt_token_count,
                cached: usage.cached_content_token_count,
                output: usage.candidates_token_count + usage.thoughts_token_count,
            };
        }
        // One reply is all that is asked for.
        let Some(candidate) = chunk.candidates.into_iter().next() else { return Ok(Flow::GoOn) };
        for part in candidate.content.into_iter().flat_map(|content| content.parts) {
            let read: Part = serde_json::from_str(part.get()).map_err(garbled)?;
            if let Some(words) = read.text.as_ref().filter(|words| !read.thought && !words.is_empty()) {
                live.delta(words);
            }
            self.parts.push((read, part));
            stop_if_too_many(self.parts.iter().filter(|(part, _)| part.function_call.is_some()).count())?;
        }
        if let Some(finish) = candidate.finish {
            self.finish = Some((finish, candidate.message.unwrap_or_default()));
        }
        Ok(Flow::GoOn)
    }

    fn finish(self: Box<Self>) -> Result<ProviderReply, Trouble> {
        let Some((finish, message)) = self.finish else { return Err(Trouble::new(TroubleKind::Cut, "")) };
        let stopped = Some(finish.clone());
        let mut said = ProviderReply { spent: self.spent, finish: stopped, ..ProviderReply::default() };
        for (part, _) in &self.parts {
            if let Some(words) = part.text.as_ref().filter(|_| !part.thought) {
                said.text.push_str(words);
            }
            if let Some(call) = &part.function_call {
                let arguments = call.args.as_ref().map_or("{}", |args| args.get()).to_owned();
                let id = call.id.clone().unwrap_or_default();
                said.calls.push(self.names.call(id, &call.name, arguments));
            }
        }
        let is_empty = said.text.is_empty() && said.calls.is_empty();
        match finish.as_str() {
            "STOP" => {}
            "MAX_TOKENS" if is_empty => return Err(Trouble::new(TroubleKind::OutOfTokens, "")),
            "MAX_TOKENS" => {}
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => {
                return Err(Trouble::new(TroubleKind::Garbled, format!("{finish} {message}")));
            }
            _ => return Err(Trouble::new(TroubleKind::Filtered, format!("{finish} {message}"))),
        }
        if self.parts.iter().any(|(part, _)| part.thought || part.thought_signature.is_some()) {
            let parts: Vec<Box<RawValue>> = self.parts.into_iter().map(|(_, part)| part).collect();
            said.own = Some(list(&parts));
        }
        Ok(said)
    }
}
