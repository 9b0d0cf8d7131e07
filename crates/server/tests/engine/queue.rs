//! Runs that wait for a place, and decisions that lose their race: what goes on, goes on at once.
//!
//! Nodes here look by themselves once an hour, and leases last as long: whatever depends on either never ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use standfast_core::command::{AskedCall, Choice};
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::event::{Event, ModelReplied};
use standfast_core::hold::HoldKind;
use standfast_core::id::{RunId, Seq};
use standfast_core::message::Message;
use standfast_core::name::AgentName;
use standfast_core::refusal::Refusal;
use standfast_core::time::Millis;
use standfast_core::transcript::Entry;
use standfast_engine::clock::Clock;
use standfast_engine::model::{Live, Model, ModelFuture, ModelReply, Prompt};
use standfast_engine::settings::{Agent, FixedSettings, Settings};
use standfast_engine::{Engine, EngineError, NewRun};
use standfast_store::{
    Answer as Answered, AuditLayer, Batch, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SecretLayer,
    SessionLayer, Store, WorkLayer,
};
use tokio::sync::Notify;

use crate::{ARGUMENTS, COMPLETED, HELD, Site, agent, decision, hold_of, start, until, who};

const NEVER: Millis = Millis::hours(1);

/// What a model was asked with, and for which agent.
type Requests = Arc<Mutex<Vec<(AgentName, String)>>>;

/// Calls the tool first if it has one to call, then quotes what it got of it.
struct Quotes {
    agent: AgentName,
    calls: bool,
    thinks: Millis,
    requests: Requests,
}

impl Model for Quotes {
    fn ask<'a>(&'a self, prompt: Prompt, live: &'a Live) -> ModelFuture<'a> {
        self.requests.lock().unwrap().push((self.agent.clone(), format!("{:?}", prompt.transcript)));
        let told = prompt.transcript.iter().rev().find_map(|entry| match entry {
            Entry::Tool(result) => result.told(),
            Entry::User(_) | Entry::Assistant(_) => None,
        });
        let call = AskedCall {
            id: "call_1".into(),
            tool: "delete_file".into(),
            arguments: ARGUMENTS.into(),
            problem: None,
        };
        let calls = if self.calls && told.is_none() { vec![call] } else { Vec::new() };
        Box::pin(async move {
            live.sleep(self.thinks).await;
            Ok(ModelReply { text: Some(told.unwrap_or_default()), calls, ..ModelReply::default() })
        })
    }
}

/// A site whose nodes never look by themselves, with these agents of so many places.
fn settings(site: &Site, agents: &[&str], places: usize, model: &dyn Fn(AgentName) -> Quotes) -> Settings {
    let usual = site.settings();
    let of = |name: &&str| {
        let name = AgentName::new(*name).unwrap();
        let usual = &usual.agents[&agent()];
        let definition = Definition { agent: name.clone(), ..Definition::clone(&usual.definition) };
        let one = Agent {
            digest: definition.digest(),
            definition: Arc::new(definition),
            worker_pool: places,
            model: Arc::new(model(name.clone())),
            ..Agent::clone(usual)
        };
        (name, Arc::new(one))
    };
    let agents: BTreeMap<AgentName, Arc<Agent>> = agents.iter().map(of).collect();
    Settings { agents, ..usual }
}

/// Nodes never look by themselves.
fn blind() -> FixedSettings {
    FixedSettings { poll: NEVER, lease: NEVER, ..FixedSettings::default() }
}

async fn start_of(engine: &Engine, agent: &str) -> RunId {
    let agent = AgentName::new(agent).unwrap();
    let new = NewRun { agent, session: None, message: Message::text("Go"), once: None };
    engine.submit().start(&who("alice"), new).await.unwrap()
}

/// Forty runs and two places: whenever one is free, the next run is taken, and a second agent does not wait for the
/// backlog of the first.
#[tokio::test]
async fn queued_runs_go_on_when_a_place_is_free() {
    let (site, requests) = (Site::new(), Requests::default());
    let model = |agent| Quotes { agent, calls: false, thinks: Millis(2), requests: requests.clone() };
    let with = |places| settings(&site, &["ops", "desk"], places, &model);
    let full = Engine::new(site.store(), Clock::system(), blind(), with(0));
    let mut runs = Vec::new();
    for (agent, count) in [("ops", 40), ("desk", 6)] {
        for _ in 0..count {
            runs.push(start_of(&full, agent).await);
        }
    }
    full.die().await;
    drop(full);
    let engine = Engine::new(site.store(), Clock::system(), blind(), with(2));
    engine.work();
    for run in runs {
        until(&engine, run, COMPLETED).await;
    }
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 46);
    let last_of_desk = requests.iter().rposition(|(agent, _)| agent.as_str() == "desk");
    assert!(last_of_desk.is_some_and(|at| at < 45), "desk waited for all of ops: {last_of_desk:?}");
}

/// A store whose next decision is on its way for as long as somebody wants.
struct Gated {
    inner: Arc<dyn Store>,
    is_armed: Mutex<bool>,
    gate: Arc<Notify>,
    passed: Arc<Notify>,
}

impl Layer for Gated {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Gated {
    fn append(&self, batches: Vec<Batch>) -> Answered<()> {
        let decides = |batch: &Batch| {
            let events = batch.link.events().unwrap();
            events.iter().any(|envelope| matches!(envelope.event, Event::HoldResolved(_)))
        };
        let is_first = batches.iter().any(decides) && std::mem::take(&mut *self.is_armed.lock().unwrap());
        if !is_first {
            return self.inner.append(batches);
        }
        let (inner, gate) = (self.inner.clone(), self.gate.clone());
        self.passed.notify_one();
        Box::pin(async move {
            gate.notified().await;
            inner.append(batches).await
        })
    }
}

impl WorkLayer for Gated {}
impl DeliveryLayer for Gated {}
impl SessionLayer for Gated {}
impl IdempotencyLayer for Gated {}
impl SecretLayer for Gated {}
impl AuditLayer for Gated {}

/// No node has the lease of a run any more.
async fn until_given_back(engine: &Engine, run: RunId) {
    for _ in 0..6_000 {
        if engine.reads().load(run).await.unwrap().lease.is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("after a minute a node still has the lease of {run}");
}

/// S0-38a, F5: a decision that is handed over and loses its race is never heard by the model, and the run goes on at once
/// with the one that counts.
#[tokio::test]
async fn a_decision_that_loses_its_race_is_never_heard_and_stalls_nothing() {
    let (site, requests) = (Site::new(), Requests::default());
    let model = |agent| Quotes { agent, calls: true, thinks: Millis(0), requests: requests.clone() };
    let store = Arc::new(Gated {
        inner: site.store(),
        is_armed: Mutex::new(false),
        gate: Arc::default(),
        passed: Arc::default(),
    });
    let node = || Engine::new(store.clone(), Clock::system(), blind(), settings(&site, &["ops"], 5, &model));
    let first = node();
    first.work();
    let run = start(&first).await;
    until(&first, run, HELD).await;
    let hold = hold_of(&first, run, HoldKind::Approval).await;
    // Whoever drove it until it was held is gone, so that the first decision takes it.
    until_given_back(&first, run).await;
    first.die().await;
    let engine = node();
    engine.work();
    *store.is_armed.lock().unwrap() = true;
    let deny = |why: &str| decision(hold, Choice::Deny { reason: Some(why.into()) });
    let first = tokio::spawn({
        let (engine, decision) = (engine.clone(), deny("say-0."));
        async move { engine.submit().decide(&who("alice"), decision).await }
    });
    store.passed.notified().await;
    assert_eq!(engine.submit().decide(&who("alice"), deny("say-1.")).await, Ok(Answer::Done));
    // Whoever might be asked has had the time to be.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let heard = |requests: &Requests| {
        let requests = requests.lock().unwrap();
        requests.iter().find(|(_, request)| request.contains("say-0.")).cloned()
    };
    assert_eq!(heard(&requests), None, "asked before it is known which decision counts");
    store.gate.notify_one();
    let lost = first.await.unwrap();
    assert!(matches!(lost, Err(EngineError::Refused(Refusal::AlreadyDecided(_)))), "{lost:?}");
    until(&engine, run, COMPLETED).await;
    assert_eq!(heard(&requests), None);
    let log = engine.reads().events(run, Seq(0)).await.unwrap();
    let said: Vec<String> = log
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::ModelReplied(ModelReplied { reply, .. }) => {
                reply.text.as_ref()?.inline().map(str::to_owned)
            }
            _ => None,
        })
        .collect();
    assert!(said.last().is_some_and(|said| said.contains("say-1.")), "{said:?}");
    let failed = log.iter().find(|envelope| matches!(envelope.event, Event::ModelFailed(_)));
    assert!(failed.is_none(), "{failed:?}");
    assert_eq!(engine.reads().load(run).await.unwrap().lease, None, "a lease that nobody works under");
}
