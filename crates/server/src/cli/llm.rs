//! `standfast llm check NAME`: asks a configured provider for real, and says what is wrong.
//!
//! Two requests: one that wants a tool called, one that tells its result. Nothing is stored. Exit codes: 0 it works, 1 it
//! does not, 2 the question could not be asked.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use standfast::config::{self, Config, Unset};
use standfast_core::body::Body;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::HoldPolicy;
use standfast_core::id::{CallNo, Seq};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay};
use standfast_core::name::{AgentName, ToolName};
use standfast_core::transcript::{AssistantReply, CallResult, Entry, ReplyCall, ResultKind, UserMessage};
use standfast_engine::clock::{Clock, Stopwatch};
use standfast_engine::model::{Live, ModelReply, Prompt};
use standfast_models::error::Trouble;
use standfast_models::provider::Provider;

/// What can be asked about models.
#[derive(Debug, Subcommand)]
pub(crate) enum Llm {
    /// Send a real request to the provider, with the key and URL of the configuration, and report what fails.
    Check(Check),
}

/// What `llm check` can be told.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The name of the model below `llms`.
    name: String,
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = "standfast.yaml")]
    config: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// The tool that the model is asked to call.
const TOOL: &str = "ping";
const SCHEMA: &str = r#"{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}"#;

pub(crate) fn run(llm: &Llm) -> ExitCode {
    let Llm::Check(check) = llm;
    match asked(check) {
        Ok(found) => {
            let text = if check.json { format!("{:#}\n", found.as_json(check)) } else { found.as_text() };
            let code = if found.failed.is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) };
            match std::io::stdout().lock().write_all(text.as_bytes()) {
                Ok(()) => code,
                Err(_) => ExitCode::from(2),
            }
        }
        Err(why) => {
            eprintln!("standfast: {why}");
            ExitCode::from(2)
        }
    }
}

fn asked(check: &Check) -> Result<TrialResult, String> {
    let config = config::load(&check.config, Unset::Refuse).map_err(|error| error.to_string())?;
    let provider = named(&config, &check.name)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(try_out(provider))
}

fn named(config: &Config, name: &str) -> Result<Provider, String> {
    let built = config.provider(name).map_err(|error| error.to_string())?;
    built.ok_or_else(|| {
        if config.file.llms.contains_key(name) {
            format!("llm `{name}` is scripted: there is no provider to test")
        } else {
            let known = config.file.llms.keys().map(String::as_str);
            let advice = config::advice(name, known.collect::<Vec<_>>());
            format!("there is no llm `{name}`; {}", advice.unwrap_or_else(|| "add it below `llms:`".into()))
        }
    })
}

/// Whether a provider answers, in a sentence: what it does, or what is wrong and what to do.
pub(super) async fn answers(provider: Provider) -> Result<String, String> {
    let found = try_out(provider).await?;
    match &found.failed {
        None if found.calls_tools => {
            Ok(format!("{} answers in {} ms and calls tools", found.who, found.millis))
        }
        None => {
            Ok(format!("{} answers in {} ms, but did not call the requested tool", found.who, found.millis))
        }
        Some(trouble) => Err(format!("{}: {trouble}\n{}", found.who, trouble.advice())),
    }
}

/// What was found out.
struct TrialResult {
    who: String,
    /// What the model was heard to do before it failed, or before all was well.
    calls_tools: bool,
    pieces: u32,
    replies: Vec<ModelReply>,
    millis: u64,
    failed: Option<Trouble>,
}

async fn try_out(provider: Provider) -> Result<TrialResult, String> {
    let pieces = Arc::new(AtomicU32::new(0));
    let counted = pieces.clone();
    let live = Live::new(Clock::system(), move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let stopwatch = Stopwatch::start();
    let mut prompt = prompt(&provider).map_err(|bad| format!("a mistake of this program: {bad}"))?;
    let (mut replies, mut failed) = (Vec::new(), None);
    for _ in 0..2 {
        match provider.ask(&prompt, &live).await {
            Ok(reply) => {
                prompt.transcript.extend(what_follows(&reply));
                replies.push(reply);
            }
            Err(trouble) => {
                failed = Some(trouble);
                break;
            }
        }
        if replies.last().is_some_and(|reply| reply.calls.is_empty()) {
            break;
        }
    }
    let calls_tools = replies.iter().flat_map(|reply| &reply.calls).any(|call| call.tool == TOOL);
    let millis = stopwatch.micros() / 1000;
    let pieces = pieces.load(Ordering::SeqCst);
    Ok(TrialResult { who: provider.describe(), calls_tools, pieces, replies, millis, failed })
}

fn prompt(provider: &Provider) -> Result<Prompt, String> {
    let spec = ToolSpec {
        description: "Says a word. Call it with the word ready.".into(),
        schema: RawJson::parse(SCHEMA).map_err(|bad| bad.to_string())?,
        replay: Replay::Idempotent,
        reversible: true,
        approval_prompt: None,
        holds: None,
    };
    let settings = provider.settings();
    let parameters = settings.parameters.as_deref().map(RawJson::parse).transpose();
    let definition = Definition {
        agent: AgentName::new("check").map_err(|bad| bad.to_string())?,
        prompt: "You are being tried out. Call the tool once, then answer with one word.".into(),
        model: settings.model.clone(),
        model_parameters: parameters.map_err(|bad| bad.to_string())?,
        tools: BTreeMap::from([(ToolName::new(TOOL).map_err(|bad| bad.to_string())?, spec)]),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    };
    let message = Message::text("Call the tool ping with the word ready.");
    let transcript = vec![Entry::User(UserMessage { seq: Seq(1), message })];
    Ok(Prompt { definition: Arc::new(definition), transcript, turn: 0, failures: 0 })
}

/// The reply, and the results of its calls.
fn what_follows(reply: &ModelReply) -> Vec<Entry> {
    let mut calls = Vec::new();
    for (asked, no) in reply.calls.iter().zip(1..) {
        let Ok(tool) = ToolName::new(&asked.tool) else { continue };
        let arguments = Body::text(&asked.arguments);
        calls.push(ReplyCall { no: CallNo(no), id: asked.id.clone(), tool, arguments });
    }
    let results = calls.iter().map(|call| {
        Entry::Tool(CallResult {
            call: call.no,
            id: call.id.clone(),
            tool: call.tool.clone(),
            kind: ResultKind::Ok,
            content: Body::text("pong"),
            ran_with: None,
        })
    });
    let results: Vec<Entry> = results.collect();
    let reply = AssistantReply {
        seq: Seq(2),
        text: reply.text.as_ref().map(Body::text),
        calls,
        opaque: reply.opaque.clone().map(Body::Json),
        model: reply.model.clone(),
    };
    std::iter::once(Entry::Assistant(reply)).chain(results).collect()
}

impl TrialResult {
    fn as_text(&self) -> String {
        let mut out = format!("{}\n", self.who);
        let mut line = |what: &str| out.push_str(&format!("  {what}\n"));
        if !self.replies.is_empty() {
            line(&format!("answers, in {} ms", self.millis));
            line(if self.calls_tools {
                "calls tools"
            } else {
                "did not call the requested tool: agents with tools may not work with it"
            });
            let (mut read, mut written) = (0, 0);
            for reply in &self.replies {
                read += reply.usage.input;
                written += reply.usage.output;
            }
            line(&match read + written {
                0 => "reports no token usage: token budgets will not count it".to_owned(),
                _ => format!("used {read} input tokens, {written} output tokens"),
            });
        }
        if let Some(trouble) = &self.failed {
            line(&format!("failed: {trouble}"));
            line(&format!("what to do: {}", trouble.advice()));
        }
        out
    }

    fn as_json(&self, check: &Check) -> Value {
        let usage = |figure: &dyn Fn(&ModelReply) -> u64| self.replies.iter().map(figure).sum::<u64>();
        json!({
            "llm": check.name,
            "provider": self.who,
            "ok": self.failed.is_none(),
            "replies": self.replies.len(),
            "calls_tools": self.calls_tools,
            "pieces": self.pieces,
            "milliseconds": self.millis,
            "input_tokens": usage(&|reply| reply.usage.input),
            "output_tokens": usage(&|reply| reply.usage.output),
            "problem": self.failed.as_ref().map(Trouble::word),
            "message": self.failed.as_ref().map(Trouble::to_string),
            "advice": self.failed.as_ref().map(Trouble::advice),
        })
    }
}
