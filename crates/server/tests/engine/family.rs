//! Sub-runs: a call that another agent works on, across deaths of the server.
//!
//! The helper's holds are ordinary holds; the run above waits for its end and goes on with its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::command::Choice;
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::event::Outcome;
use standfast_core::hold::{HoldKind, HoldPolicy};
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::message::Message;
use standfast_core::name::{AgentName, ToolName};
use standfast_core::run::{Status, WaitKind};
use standfast_core::time::Millis;
use standfast_core::transcript::{Entry, transcript};
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Agent, Settings};
use standfast_engine::tool::Tool;
use standfast_engine::{Engine, NewRun};
use standfast_models::scripted::{Line, Script};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_tools::agent::AsksAgent;

use crate::{COMPLETED, HELD, Site, agent, decision, until, who};

pub(crate) fn lead() -> AgentName {
    AgentName::new("lead").unwrap()
}

/// The usual agent `ops`, and `lead`, who hands its work to it.
pub(crate) fn settings(site: &Site) -> Settings {
    asking(site, 1)
}

/// The same, with a lead who asks so many times, one after the other.
fn asking(site: &Site, times: usize) -> Settings {
    let mut settings = site.settings();
    let (name, tool) = (ToolName::new("ask_ops").unwrap(), AsksAgent::new(agent()));
    let definition = Definition {
        agent: lead(),
        prompt: "You lead.".into(),
        model: "scripted".into(),
        model_parameters: None,
        tools: BTreeMap::from([(name.clone(), tool.spec(None))]),
        policy: None,
        sub_agents: vec![agent()],
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    };
    let asks = Line::calls(&[("ask_ops", r#"{"message": "Free some space"}"#)]);
    let mut lines = vec![asks; times];
    lines.push(Line::says("It is seen to."));
    let script = Script { lines };
    let lead_settings = Agent {
        tools: BTreeMap::from([(name, Arc::new(tool) as Arc<dyn Tool>)]),
        worker_pool: 5,
        ..Agent::new(definition, Arc::new(script))
    };
    settings.agents.insert(lead(), Arc::new(lead_settings));
    settings
}

fn server(site: &Site) -> Engine {
    server_with(site, settings(site))
}

fn server_with(site: &Site, settings: Settings) -> Engine {
    let store = SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap();
    let engine = Engine::new(Arc::new(store), Clock::system(), crate::fixed(), settings);
    engine.work();
    engine
}

async fn start(engine: &Engine) -> RunId {
    let message = Message::text("See to the disks");
    let new = NewRun { agent: lead(), session: None, message, once: None };
    engine.submit().start(&who("alice"), new).await.unwrap()
}

/// The hold of the sub-run that the run waits for, as soon as there is one.
async fn hold_below(engine: &Engine, run: RunId) -> HoldId {
    until(engine, run, Status::Held(WaitKind::External)).await;
    loop {
        let view = engine.reads().run(&who("alice"), run).await.unwrap();
        match view.holds_below.as_slice() {
            [(hold, HoldKind::Approval)] => return *hold,
            _ => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

/// Rule 7: the sub-run's hold shows the path from the root; approved on another server, both runs complete, and the
/// call of the run above has the answer of the one below.
#[tokio::test]
async fn a_sub_run_is_decided_after_a_restart_and_answers_the_run_above() {
    let site = Site::new();
    let first = server(&site);
    let run = start(&first).await;
    let hold = hold_below(&first, run).await;
    first.die().await;
    drop(first);

    let second = server(&site);
    let view = second.reads().hold(&who("alice"), hold).await.unwrap();
    assert_eq!(view.path, [(run, lead())]);
    assert_eq!(
        second.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await,
        Ok(Answer::Done)
    );
    until(&second, run, COMPLETED).await;
    until(&second, hold.run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
    let results: Vec<String> = transcript(&second.reads().events(run, Seq(0)).await.unwrap())
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Tool(call) => call.content.inline().map(str::to_owned),
            Entry::User(_) | Entry::Assistant(_) => None,
        })
        .collect();
    assert_eq!(results, ["Done."]);
}

/// A run that is canceled takes its sub-runs with it, also when the server dies in between.
#[tokio::test]
async fn canceling_a_run_cancels_what_works_for_it() {
    let site = Site::new();
    let first = server(&site);
    let run = start(&first).await;
    let hold = hold_below(&first, run).await;
    assert_eq!(first.submit().cancel(&who("alice"), run, None, None).await, Ok(Answer::Done));
    first.die().await;
    drop(first);
    let second = server(&site);
    until(&second, hold.run, Status::Ended(Outcome::Canceled)).await;
    assert_eq!(site.effects(), Vec::<String>::new());
}

/// A sub-run that is denied and canceled by its owner is told to the run above as what it is.
#[tokio::test]
async fn a_canceled_sub_run_is_a_failure_for_the_run_above() {
    let site = Site::new();
    let engine = server(&site);
    let run = start(&engine).await;
    let hold = hold_below(&engine, run).await;
    until(&engine, hold.run, HELD).await;
    engine.submit().cancel(&who("alice"), hold.run, Some("not today".into()), None).await.unwrap();
    until(&engine, run, COMPLETED).await;
    let told = format!("{:?}", transcript(&engine.reads().events(run, Seq(0)).await.unwrap()));
    assert!(told.contains("agent ops was canceled: not today"), "{told}");
}

/// Retention: a sub-run keeps its contents for as long as the run that asked for it goes on, however old it gets; after
/// that they go with those of the run.
#[tokio::test]
async fn what_worked_for_a_run_is_kept_until_that_is_over() {
    let site = Site::new();
    let settings = Settings { keep_ended: Some(Millis::seconds(1)), ..asking(&site, 2) };
    let engine = server_with(&site, settings);
    let run = start(&engine).await;
    let first = hold_below(&engine, run).await;
    assert_eq!(
        engine.submit().decide(&who("alice"), decision(first, Choice::Approve)).await,
        Ok(Answer::Done)
    );
    until(&engine, first.run, COMPLETED).await;
    let second = loop {
        let hold = hold_below(&engine, run).await;
        if hold.run != first.run {
            break hold;
        }
    };
    let is_erased = async |run: RunId| engine.reads().load(run).await.unwrap().row.run.state.erased;
    // Old runs are looked for every second.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert!(!is_erased(first.run).await, "the run that asked for it still goes on");
    assert_eq!(
        engine.submit().decide(&who("alice"), decision(second, Choice::Approve)).await,
        Ok(Answer::Done)
    );
    for run in [run, first.run, second.run] {
        until(&engine, run, COMPLETED).await;
        for _ in 0..600 {
            if is_erased(run).await {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert!(is_erased(run).await, "{run} ended long enough ago");
    }
}
