//! Faults of the past, one test each: races that were lost again and again, reads that failed at the wrong moment, calls
//! that were started and never run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use standfast_core::body::Body;
use standfast_core::command::{AskedCall, Choice, Limits};
use standfast_core::decide::Answer as Decided;
use standfast_core::event::{Event, Outcome as Ended};
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, Seq};
use standfast_core::message::ToolResult;
use standfast_core::name::{Tenant, ToolName};
use standfast_core::run::{CallOutcome, CallState, Status};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_engine::model::{Live, Model, ModelFuture, ModelReply, Prompt};
use standfast_engine::settings::Settings;
use standfast_engine::tool::{Invocation, Outcome, Tool, ToolFuture, suspend};
use standfast_engine::{Engine, EngineError, StoreError};
use standfast_models::scripted::Line;
use standfast_store::conformance::flaky::{Flaky, Mishap};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{
    Answer, AuditLayer, Batch, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, RunStore, SecretLayer,
    SessionLayer, Store, WorkLayer,
};
use tokio::sync::Notify;

use crate::{COMPLETED, HELD, Site, agent, decision, hold_of, start, until, who};

fn sqlite(site: &Site) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap())
}

/// The site's settings with its agent changed.
pub(crate) fn changed(site: &Site, change: impl FnOnce(&mut standfast_engine::settings::Agent)) -> Settings {
    let mut settings = site.settings();
    let mut changed = (*settings.agents[&agent()]).clone();
    change(&mut changed);
    changed.digest = changed.definition.digest();
    settings.agents.insert(agent(), Arc::new(changed));
    settings
}

fn working(store: Arc<dyn Store>, clock: Clock, settings: Settings) -> Engine {
    let engine = Engine::new(store, clock, crate::fixed(), settings);
    engine.work();
    engine
}

/// Somebody else is first sixteen times in a row, and more: the run waits for its turn, and the call starts once.
#[tokio::test]
async fn a_driver_that_loses_every_race_goes_on_later() {
    let site = Site::new();
    let lost = [Mishap::None, Mishap::None].into_iter().chain([Mishap::Conflict; 40]);
    let store = Arc::new(Flaky::scripted(sqlite(&site), lost));
    let engine = site.server_on(store, Clock::system());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    for _ in 0..10 {
        match engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await {
            Ok(_) => break,
            Err(EngineError::Store(StoreError::Conflict { .. })) => {}
            Err(other) => panic!("{other}"),
        }
    }
    until(&engine, run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
}

/// A store whose definitions cannot be read for a while.
struct NoDefinitions {
    inner: Arc<SqliteStore>,
    failures: AtomicUsize,
}

impl Layer for NoDefinitions {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for NoDefinitions {
    fn definition(&self, tenant: Tenant, digest: standfast_core::digest::Digest) -> Answer<Option<Vec<u8>>> {
        let fails = |left: usize| left.checked_sub(1);
        match self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails) {
            Ok(_) => Box::pin(async { Err(StoreError::Unavailable { why: "a read failed".into() }) }),
            Err(_) => self.inner.definition(tenant, digest),
        }
    }
}

impl WorkLayer for NoDefinitions {}
impl DeliveryLayer for NoDefinitions {}
impl SessionLayer for NoDefinitions {}
impl IdempotencyLayer for NoDefinitions {}
impl SecretLayer for NoDefinitions {}
impl AuditLayer for NoDefinitions {}

/// The definition of a run cannot be read just when its tool runs: what the tool did is kept, and nobody is asked about
/// an outcome that is known.
#[tokio::test]
async fn results_are_kept_when_a_definition_cannot_be_read() {
    let mut site = Site::new();
    let gate = Arc::new(Notify::new());
    site.gate = Some(gate.clone());
    let store = Arc::new(NoDefinitions { inner: sqlite(&site), failures: AtomicUsize::new(0) });
    let engine = site.server_on(store.clone(), Clock::system());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    // The agent is another one now, so that the definition of the run must be read from the store.
    engine.reload(changed(&site, |agent| {
        let mut definition = (*agent.definition).clone();
        definition.prompt = "You look after another server.".into();
        agent.definition = Arc::new(definition);
    }));
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    assert_eq!(
        engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await,
        Ok(Decided::Done)
    );
    store.failures.store(3, Ordering::SeqCst);
    let ran = async {
        while site.effects().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ran).await.unwrap();
    store.failures.store(3, Ordering::SeqCst);
    gate.notify_one();
    until(&engine, run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    assert!(events.iter().all(|envelope| !matches!(envelope.event, Event::CallOrphaned(_))));
}

type Hook = Box<dyn FnOnce() -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// A store in which something else happens directly before the append that starts this call.
struct Interrupted {
    inner: Arc<SqliteStore>,
    before: CallNo,
    hook: Mutex<Option<Hook>>,
}

impl Layer for Interrupted {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Interrupted {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let starts = |batch: &Batch| {
            let events = batch.link.events().unwrap_or_default();
            events.iter().any(|envelope| {
                matches!(&envelope.event, Event::CallStarted(started) if started.call == self.before)
            })
        };
        let hook = if batches.iter().any(starts) { self.hook.lock().unwrap().take() } else { None };
        match hook {
            None => self.inner.append(batches),
            Some(hook) => {
                let inner = self.inner.clone();
                Box::pin(async move {
                    hook().await;
                    inner.append(batches).await
                })
            }
        }
    }
}

impl WorkLayer for Interrupted {}
impl DeliveryLayer for Interrupted {}
impl SessionLayer for Interrupted {}
impl IdempotencyLayer for Interrupted {}
impl SecretLayer for Interrupted {}
impl AuditLayer for Interrupted {}

/// A run is canceled between the start of its first call and that of its second: what was started and never run is given
/// back, and the log does not call it unknown.
#[tokio::test]
async fn a_call_that_never_ran_is_given_back_on_cancel() {
    let mut site = Site::new();
    site.asks = Line::calls(&[("delete_file", r#"{"path": "/a"}"#), ("delete_file", r#"{"path": "/b"}"#)]);
    let settings = || changed(&site, |agent| agent.needs_approval.clear());
    let inner = sqlite(&site);
    let other = Engine::new(inner.clone(), Clock::system(), crate::fixed(), settings());
    let canceled: Arc<Mutex<Option<standfast_core::id::RunId>>> = Arc::default();
    let store = Arc::new(Interrupted { inner, before: CallNo(2), hook: Mutex::new(None) });
    let engine = Engine::new(store.clone(), Clock::system(), crate::fixed(), settings());
    // Known only once the run is there: it is written down and worked on later.
    engine.drain(Millis(1)).await;
    let run = start(&engine).await;
    *canceled.lock().unwrap() = Some(run);
    let hook: Hook = Box::new({
        let (other, canceled) = (other.clone(), canceled.clone());
        move || {
            Box::pin(async move {
                let run = canceled.lock().unwrap().take().unwrap();
                assert_eq!(other.submit().cancel(&who("alice"), run, None, None).await, Ok(Decided::Done));
            })
        }
    });
    *store.hook.lock().unwrap() = Some(hook);
    let engine = working(store, Clock::system(), settings());
    until(&engine, run, Status::Ended(Ended::Canceled)).await;
    let returned = async {
        loop {
            let events = engine.reads().events(run, Seq(0)).await.unwrap();
            if events.iter().any(|envelope| matches!(envelope.event, Event::CallReturned(_))) {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let events = tokio::time::timeout(Duration::from_secs(30), returned).await.unwrap();
    assert!(events.iter().all(|envelope| !matches!(envelope.event, Event::CallOrphaned(_))));
    let row = engine.reads().load(run).await.unwrap().row.run;
    assert_eq!(row.call(CallNo(1)).unwrap().state, CallState::Done(CallOutcome::NotExecuted));
    assert_eq!(site.effects(), Vec::<String>::new());
}

/// A model that asks for one call, and then thinks until it is let go.
struct SlowToReply(Arc<Notify>);

impl Model for SlowToReply {
    fn ask<'a>(&'a self, prompt: Prompt, _: &'a Live) -> ModelFuture<'a> {
        Box::pin(async move {
            if prompt.turn == 0 {
                let call = AskedCall {
                    id: "c1".into(),
                    tool: "delete_file".into(),
                    arguments: crate::ARGUMENTS.into(),
                    problem: None,
                };
                return Ok(ModelReply { calls: vec![call], ..ModelReply::default() });
            }
            self.0.notified().await;
            Ok(ModelReply { text: Some("Done.".into()), ..ModelReply::default() })
        })
    }
}

/// What a tool reported is durable and told while the model is still thinking about it.
#[tokio::test]
async fn a_result_is_not_held_back_behind_the_model() {
    let site = Site::new();
    let gate = Arc::new(Notify::new());
    let settings = changed(&site, |agent| agent.model = Arc::new(SlowToReply(gate.clone())));
    let engine = working(sqlite(&site), Clock::system(), settings);
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap();
    let mut follower = engine.reads().follow(run, Seq(0));
    let told = async {
        loop {
            let events = follower.next().await.unwrap();
            if events.iter().any(|envelope| matches!(envelope.event, Event::CallFinished(_))) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), told).await.unwrap();
    let row = engine.reads().load(run).await.unwrap().row.run;
    assert_eq!((row.state.turn, row.outcome()), (1, None), "the model has not replied");
    gate.notify_one();
    until(&engine, run, COMPLETED).await;
}

/// The answer to the append that starts a call is lost: it is found out by reading, or said to be unknown, and the call
/// runs once either way.
#[tokio::test]
async fn a_lost_answer_at_the_start_of_a_call_costs_no_second_start() {
    let site = Site::new();
    // The start of the run, its reply, and then the decision with the start of the call.
    let script = [Mishap::None, Mishap::None, Mishap::After];
    let store = Arc::new(Flaky::scripted(sqlite(&site), script));
    let engine = site.server_on(store, Clock::system());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    let answer = engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await;
    let is_honest = matches!(answer, Ok(Decided::Done) | Err(EngineError::Store(StoreError::Unknown { .. })));
    assert!(is_honest, "{answer:?}");
    until(&engine, run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    let starts = events.iter().filter(|envelope| matches!(envelope.event, Event::CallStarted(_))).count();
    assert_eq!(starts, 1);
}

/// A question for which a run has no room is no question: the model gets the reason, and the rest of the turn goes on.
#[tokio::test]
async fn a_question_over_the_cap_is_told_to_the_model() {
    let mut site = Site::new();
    let ask = |question: &str| (suspend::NAME, format!(r#"{{"reason": "r", "question": "{question}"}}"#));
    let asked = [ask("one?"), ask("two?")];
    let calls: Vec<(&str, &str)> = asked.iter().map(|(tool, text)| (*tool, text.as_str())).collect();
    site.asks = Line::calls(&calls);
    let limits = Arc::new(Limits { open_holds: 1, ..Limits::default() });
    let settings = Settings { limits, ..site.settings() };
    let engine = working(sqlite(&site), Clock::system(), settings);
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let row = engine.reads().load(run).await.unwrap().row.run;
    assert_eq!(row.state.holds.len(), 1);
    let refused: Vec<_> = row.state.calls.iter().map(|call| call.state).collect();
    assert!(refused.contains(&CallState::Done(CallOutcome::Failed)), "{refused:?}");
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    let told = events.iter().find_map(|envelope| match &envelope.event {
        Event::CallFinished(finished) => Some(finished.result.clone()),
        _ => None,
    });
    let Some(ToolResult::Failed(why)) = told else { panic!("{told:?}") };
    assert!(why.inline().unwrap().starts_with("not executed: "), "{why:?}");
    let hold = hold_of(&engine, run, HoldKind::Input).await;
    let answer = Choice::Answer { value: Body::text("this one") };
    assert_eq!(engine.submit().decide(&who("alice"), decision(hold, answer)).await, Ok(Decided::Done));
    until(&engine, run, COMPLETED).await;
}

/// A tool in whose first moment very much time passes.
struct TakesLong {
    clock: Clock,
    starts: Arc<Mutex<Vec<String>>>,
}

impl Tool for TakesLong {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let (clock, starts) = (self.clock.clone(), self.starts.clone());
        Box::pin(async move {
            starts.lock().unwrap().push(format!("{}/{}", invocation.call.no, invocation.attempt));
            if invocation.call.no == CallNo(1) {
                clock.advance(Millis::seconds(60));
            }
            Outcome::Done(ToolResult::Ok(Body::text("done")))
        })
    }
}

/// Rule 2: `start_by` is compared where the effect begins. A start that got its turn only after that instant is given
/// back and made again; it never runs late.
#[tokio::test]
async fn a_start_that_gets_its_turn_too_late_is_given_back() {
    let mut site = Site::new();
    site.asks = Line::calls(&[("delete_file", r#"{"path": "/a"}"#), ("delete_file", r#"{"path": "/b"}"#)]);
    let clock = Clock::standing_at(Timestamp(1_762_000_000_000));
    let starts: Arc<Mutex<Vec<String>>> = Arc::default();
    let settings = changed(&site, |agent| {
        agent.needs_approval.clear();
        let tool = TakesLong { clock: clock.clone(), starts: starts.clone() };
        agent.tools.insert(ToolName::new("delete_file").unwrap(), Arc::new(tool));
    });
    let engine = working(sqlite(&site), clock, settings);
    let run = start(&engine).await;
    until(&engine, run, COMPLETED).await;
    assert_eq!(*starts.lock().unwrap(), ["1/1", "2/2"]);
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    let returned: Vec<_> = events
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::CallReturned(returned) => Some((returned.call, returned.attempt)),
            _ => None,
        })
        .collect();
    assert_eq!(returned, [(CallNo(2), 1)]);
}
