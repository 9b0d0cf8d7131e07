//! Standfast inside a program of your own: a model and a tool in Rust, a call that waits for a person, runs in a SQLite file.
//!
//! `cargo run -p standfast-engine --example embedded`; the guide explains it in `docs/embedding.md`.

use std::{error::Error, sync::Arc};

use standfast_core::command::{AskedCall, Choice};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::message::{Message, ToolResult};
use standfast_core::{body::Body, id::HoldId, json::RawJson, name::AgentName, name::ToolName, time::Millis};
use standfast_engine::model::{Live, Model, ModelFuture, ModelReply, Prompt};
use standfast_engine::settings::{Agent, FixedSettings, Settings};
use standfast_engine::tool::{Invocation, Outcome, Tool, ToolFuture};
use standfast_engine::{Decision, Engine, NewRun, auth::Principal, clock::Clock};
use standfast_store::{Store, sqlite::SqliteOptions, sqlite::SqliteStore};

struct Cashier;

impl Model for Cashier {
    fn ask<'a>(&'a self, prompt: Prompt, _live: &'a Live) -> ModelFuture<'a> {
        let (id, tool, arguments) = ("1".to_owned(), "refund".to_owned(), r#"{"payment": "p-7"}"#.to_owned());
        let calls = vec![AskedCall { id, tool, arguments, problem: None }];
        let asks = ModelReply { calls, ..ModelReply::default() };
        let says = ModelReply { text: Some("p-7 is paid back.".into()), ..ModelReply::default() };
        Box::pin(async move { Ok(if prompt.turn == 0 { asks } else { says }) })
    }
}

struct Refund;

impl Tool for Refund {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        println!("paying back {} as {}", invocation.arguments, invocation.token());
        Box::pin(async { Outcome::Done(ToolResult::Ok(Body::text("paid back"))) })
    }
}

/// Runs the agent in this store, approves its call, and returns what it says in the end.
pub(crate) async fn refund(store: Arc<dyn Store>) -> Result<Option<Body>, Box<dyn Error>> {
    let (agent, tool) = (AgentName::new("cashier")?, ToolName::new("refund")?);
    let mut definition = Definition::new(agent.clone());
    let spec = ToolSpec::new("Pays a payment back", RawJson::parse(r#"{"type": "object"}"#)?);
    definition.tools.insert(tool.clone(), spec);
    let tools = [(tool.clone(), Arc::new(Refund) as Arc<dyn Tool>)].into();
    let cashier = Agent { tools, needs_approval: [tool].into(), ..Agent::new(definition, Arc::new(Cashier)) };
    let settings = Settings { agents: [(agent.clone(), Arc::new(cashier))].into(), ..Settings::usual() };

    let engine = Engine::new(store, Clock::system(), FixedSettings::default(), settings);
    engine.work();
    let (me, patience, message) = (Principal::local(), Millis::seconds(60), Message::text("Refund p-7"));
    let run = engine.submit().start(&me, NewRun { agent, session: None, message, once: None }).await?;
    engine.reads().needs_somebody(&me, run, None, patience).await?;
    let key = engine.reads().run(&me, run).await?.run.state.holds.first().ok_or("nothing is held")?.key;
    let (hold, wanted) = (HoldId { run, key }, Choice::Approve);
    let approval = Decision { hold, wanted, digest: None, revision: None, once: None };
    engine.submit().decide(&me, approval).await?;
    engine.reads().needs_somebody(&me, run, None, patience).await?;
    let result = engine.reads().run(&me, run).await?.result;
    engine.drain(Millis::seconds(5)).await;
    Ok(result)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = SqliteStore::open(&SqliteOptions::at("embedded.db"))?;
    println!("{:?}", refund(Arc::new(store)).await?);
    Ok(())
}
