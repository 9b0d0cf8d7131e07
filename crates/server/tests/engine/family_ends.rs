//! A no to a sub-run ends the runs above it with it, in one append: on one node, on two, and when the append goes wrong.
//!
//! A store in between sees which runs each append writes. Nothing is asked of a model once the no is there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use standfast_core::decide::Answer as Decided;
use standfast_core::event::{Event, Outcome};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::message::Message;
use standfast_core::name::{AgentName, ToolName};
use standfast_core::run::{Status, WaitKind};
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Agent, Settings};
use standfast_engine::tool::Tool;
use standfast_engine::{DecisionSet, Decisions, Engine, NewRun};
use standfast_models::scripted::{Line, Script};
use standfast_store::conformance::flaky::Mishap;
use standfast_store::{
    Answer, AuditLayer, Batch, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SecretLayer, SessionLayer,
    Store, StoreError, WorkLayer,
};
use standfast_tools::agent::AsksAgent;

use crate::family::{lead, settings};
use crate::{Site, until, who};

/// Sees which runs are written together, and lets such appends go wrong by a script.
struct Joint {
    inner: Arc<dyn Store>,
    seen: Mutex<Vec<BTreeSet<RunId>>>,
    script: Mutex<VecDeque<Mishap>>,
}

fn failed(error: StoreError) -> Answer<()> {
    Box::pin(std::future::ready(Err(error)))
}

impl Layer for Joint {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Joint {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        if batches.len() < 2 {
            return self.inner.append(batches);
        }
        let runs: BTreeSet<RunId> = batches.iter().map(Batch::run).collect();
        let mishap = self.script.lock().unwrap().pop_front().unwrap_or(Mishap::None);
        match (mishap, batches.first()) {
            (Mishap::Conflict, Some(first)) => return failed(StoreError::Conflict { run: first.run() }),
            (Mishap::Lost, _) => return failed(StoreError::Unknown { why: "it never arrived".into() }),
            (Mishap::Before, _) => return failed(StoreError::Unavailable { why: "it never arrived".into() }),
            (Mishap::None | Mishap::After | Mishap::Conflict, _) => {}
        }
        self.seen.lock().unwrap().push(runs);
        let answer = self.inner.append(batches);
        Box::pin(async move {
            answer.await?;
            match mishap {
                Mishap::After => Err(StoreError::Unknown { why: "the answer was lost".into() }),
                Mishap::None | Mishap::Before | Mishap::Lost | Mishap::Conflict => Ok(()),
            }
        })
    }
}

impl WorkLayer for Joint {}
impl DeliveryLayer for Joint {}
impl SessionLayer for Joint {}
impl IdempotencyLayer for Joint {}
impl SecretLayer for Joint {}
impl AuditLayer for Joint {}

fn chief() -> AgentName {
    AgentName::new("chief").unwrap()
}

/// `chief` asks `lead`, who asks `ops`, who asks a person.
fn three_deep(site: &Site) -> Settings {
    let mut settings = settings(site);
    let (name, tool) = (ToolName::new("ask_lead").unwrap(), AsksAgent::new(lead()));
    let mut definition = (*settings.agents[&lead()].definition).clone();
    definition.agent = chief();
    definition.sub_agents = vec![lead()];
    definition.tools = BTreeMap::from([(name.clone(), tool.spec(None))]);
    let asks = Line::calls(&[("ask_lead", r#"{"message": "See to it"}"#)]);
    let script = Script { lines: vec![asks, Line::says("Seen to.")] };
    let agent = Agent {
        tools: BTreeMap::from([(name, Arc::new(tool) as Arc<dyn Tool>)]),
        worker_pool: 5,
        ..Agent::new(definition, Arc::new(script))
    };
    settings.agents.insert(chief(), Arc::new(agent));
    settings
}

fn node(site: &Site, store: &Arc<Joint>) -> Engine {
    let engine = Engine::new(store.clone(), Clock::system(), crate::fixed(), three_deep(site));
    engine.work();
    engine
}

/// The first run, the one between, and what the last one asks.
async fn asked(engine: &Engine) -> (RunId, RunId, HoldId) {
    let new = NewRun { agent: chief(), session: None, message: Message::text("please"), once: None };
    let top = engine.submit().start(&who("alice"), new).await.unwrap();
    until(engine, top, Status::Held(WaitKind::External)).await;
    for _ in 0..3_000 {
        let view = engine.reads().run(&who("alice"), top).await.unwrap();
        if let [(hold, HoldKind::Approval)] = view.holds_below.as_slice() {
            let path = engine.reads().hold(&who("alice"), *hold).await.unwrap().path;
            return (top, path.last().unwrap().0, *hold);
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("nobody is asked");
}

async fn reject(
    engine: &Engine,
    task: RunId,
    hold: HoldId,
) -> Result<Decided, standfast_engine::EngineError> {
    let alice = who("alice");
    let snapshot = engine.reads().snapshot(&alice, hold.run).await.unwrap();
    let what = DecisionSet::Reject { holds: vec![hold.key], reason: Some("no".into()), above: Vec::new() };
    let decisions = Decisions::new(hold.run, what, None, None);
    engine
        .submit()
        .decide_and_cancel(&alice, decisions, &snapshot, task)
        .await
        .map(|accepted| accepted.answer)
}

async fn replies(engine: &Engine, run: RunId) -> usize {
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    events.iter().filter(|envelope| matches!(envelope.event, Event::ModelReplied(_))).count()
}

/// S1, C26: whatever happens to the append, the three runs end by one, or none of them does; and no model is asked again.
#[tokio::test]
async fn a_no_to_a_sub_run_is_one_append() {
    for mishap in [Mishap::None, Mishap::Conflict, Mishap::After, Mishap::Before, Mishap::Lost] {
        let site = Site::new();
        let script = Mutex::new(VecDeque::from([mishap]));
        let store = Arc::new(Joint { inner: site.store(), seen: Mutex::default(), script });
        let engine = node(&site, &store);
        let (top, between, hold) = asked(&engine).await;
        let decided = reject(&engine, top, hold).await;
        match mishap {
            Mishap::None | Mishap::Conflict | Mishap::After => {
                assert_eq!(decided, Ok(Decided::Done), "{mishap:?}")
            }
            Mishap::Before | Mishap::Lost => {
                assert!(decided.is_err(), "{mishap:?}");
                for run in [top, between, hold.run] {
                    assert_eq!(engine.reads().load(run).await.unwrap().row.run.outcome(), None, "{mishap:?}");
                }
                assert_eq!(reject(&engine, top, hold).await, Ok(Decided::Done));
            }
        }
        for run in [top, between, hold.run] {
            until(&engine, run, Status::Ended(Outcome::Canceled)).await;
            assert_eq!(replies(&engine, run).await, 1, "{mishap:?}: {run} went on");
        }
        assert_eq!(*store.seen.lock().unwrap(), [BTreeSet::from([top, between, hold.run])]);
        assert_eq!(site.effects(), Vec::<String>::new());
    }
}

/// The same with two nodes that both look after the runs: whoever drives a run above does not go on with it.
#[tokio::test]
async fn a_no_to_a_sub_run_is_one_append_for_every_node() {
    let site = Site::new();
    let (seen, script) = (Mutex::default(), Mutex::default());
    let store = Arc::new(Joint { inner: site.store(), seen, script });
    let (one, other) = (node(&site, &store), node(&site, &store));
    for round in 0..20 {
        let (here, there) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let (top, between, hold) = asked(here).await;
        let (first, second) = tokio::join!(reject(there, top, hold), reject(here, top, hold));
        assert!([&first, &second].contains(&&Ok(Decided::Done)), "{first:?} {second:?}");
        for run in [top, between, hold.run] {
            until(there, run, Status::Ended(Outcome::Canceled)).await;
            assert_eq!(replies(there, run).await, 1, "{run} went on");
        }
    }
    assert!(store.seen.lock().unwrap().len() >= 20);
}
