//! Models over the wire: recorded streams of every dialect, providers that misbehave, and the real binary with both.
//!
//! `fake.rs` is the provider, `streams/` what real ones send, `streams.rs` what is made of it, `misbehaves.rs` what
//! happens when they fail, `binary.rs` whole runs, `sessions.rs` conversations of several. No test needs a key or a network.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod binary;
mod misbehaves;
mod proxies;
mod sessions;
mod streams;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use standfast_core::body::Body;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::HoldPolicy;
use standfast_core::id::{CallNo, Seq};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay};
use standfast_core::name::{AgentName, ToolName};
use standfast_core::time::Millis;
use standfast_core::transcript::{AssistantReply, CallResult, Entry, ReplyCall, ResultKind, UserMessage};
use standfast_engine::clock::Clock;
use standfast_engine::model::{Live, ModelReply, Prompt};
use standfast_models::provider::{Dialect, Price, Provider, ProviderSettings};

/// What the recorded streams ask for, byte for byte.
const ARGUMENTS: &str = r#"{"command": "ls -la é", "n":9007199254740993}"#;

const KEY: &str = "sk-canary-0123456789";

fn settings(dialect: Dialect, base_url: &str) -> ProviderSettings {
    ProviderSettings {
        name: "the-llm".into(),
        dialect,
        model: "the-model".into(),
        parameters: None,
        base_url: Some(base_url.to_owned()),
        api_key: Some(KEY.into()),
        headers: vec![("x-team".into(), "blue-secret".into())],
        timeout: Millis::seconds(60),
        price: Price { input: 2.0, cached_input: 1.0, output: 10.0 },
        max_retries: 2,
        backoff: Millis(5),
        max_concurrent: 4,
    }
}

fn provider(dialect: Dialect, base_url: &str) -> Provider {
    Provider::new(settings(dialect, base_url)).unwrap()
}

/// An agent with two tools whose user has said something.
fn prompt() -> Prompt {
    let spec = |text: &str| ToolSpec {
        description: "Runs a command.".into(),
        schema: RawJson::parse(text).unwrap(),
        replay: Replay::Never,
        reversible: false,
        approval_prompt: None,
        holds: None,
    };
    let schema = r#"{"type": "object", "properties": {"command": {"type": "string"}}}"#;
    let tools = ["execute_command", "read_file"].map(|name| (ToolName::new(name).unwrap(), spec(schema)));
    let definition = Definition {
        agent: AgentName::new("assistant").unwrap(),
        prompt: "Be brief.".into(),
        model: "the-model".into(),
        model_parameters: RawJson::parse(r#"{"temperature":0.5,"max_tokens":300,"seed":7}"#).ok(),
        tools: BTreeMap::from(tools),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    };
    let said = UserMessage { seq: Seq(1), message: Message::text("List the files") };
    Prompt { definition: Arc::new(definition), transcript: vec![Entry::User(said)], turn: 0, failures: 0 }
}

/// The prompt after a reply whose calls have run.
fn after(prompt: &Prompt, reply: &ModelReply) -> Prompt {
    let mut prompt = prompt.clone();
    let numbered: Vec<_> = reply.calls.iter().zip(1..).collect();
    let tool = |name: &str| ToolName::new(name).unwrap();
    let calls = numbered.iter().map(|(call, no)| ReplyCall {
        no: CallNo(*no),
        id: call.id.clone(),
        tool: tool(&call.tool),
        arguments: Body::text(&call.arguments),
    });
    prompt.transcript.push(Entry::Assistant(AssistantReply {
        seq: Seq(2),
        text: reply.text.as_ref().map(Body::text),
        calls: calls.collect(),
        opaque: reply.opaque.clone().map(Body::Json),
        model: reply.model.clone(),
    }));
    prompt.transcript.extend(numbered.iter().map(|(call, no)| {
        Entry::Tool(CallResult {
            call: CallNo(*no),
            id: call.id.clone(),
            tool: tool(&call.tool),
            kind: ResultKind::Ok,
            content: Body::text(format!("result {no}")),
            ran_with: None,
        })
    }));
    prompt
}

/// Somebody who listens, and what they heard.
fn listener() -> (Live, Arc<Mutex<String>>) {
    let heard = Arc::new(Mutex::new(String::new()));
    let ear = heard.clone();
    (Live::new(Clock::system(), move |words| ear.lock().unwrap().push_str(words)), heard)
}
