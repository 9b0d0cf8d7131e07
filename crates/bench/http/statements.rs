//! The second floor: the same HTTP stack and our own statements without logic.
//!
//! Cycles of the real engine are recorded on a memory store before the clock starts; the server then writes and reads
//! exactly that, in the engine's order.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use standfast_core::command::Choice;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::message::Message;
use standfast_core::name::AgentName;
use standfast_core::time::Millis;
use standfast_engine::{Decision, NewRun};
use standfast_store::memory::MemoryStore;
use standfast_store::{
    Answer, AuditLayer, Batch, DeliveryLayer, ExpectedHead, IdempotencyLayer, Layer, RunLayer, RunStore,
    SecretLayer, SessionLayer, Store, WorkLayer,
};

use crate::ours;

/// Cycles recorded on one memory store: it is not an index, and slows down with what it holds.
const OF_A_STORE: usize = 100;

struct Recorded {
    store: Arc<dyn Store>,
    fresh: Mutex<Vec<Vec<Batch>>>,
    held: Mutex<HashMap<RunId, Vec<Batch>>>,
}

pub(crate) async fn router(directory: &Path, count: usize) -> Router {
    let mut fresh = Vec::new();
    while fresh.len() < count {
        fresh.extend(record(OF_A_STORE).await);
    }
    let recorded =
        Recorded { store: ours::open(directory), fresh: Mutex::new(fresh), held: Mutex::default() };
    let router = Router::new().route("/start", post(start)).route("/approve", post(approve));
    router.with_state(Arc::new(recorded))
}

async fn start(State(recorded): State<Arc<Recorded>>, Json(_): Json<Value>) -> Json<Value> {
    let next = recorded.fresh.lock().unwrap().pop();
    let Some(mut cycle) = next else { return Json(json!({"run": ""})) };
    let held_at = cycle.iter().position(|batch| has(batch, "hold.opened")).unwrap();
    let rest = cycle.split_off(held_at + 1);
    let run = cycle[0].run();
    together(&recorded.store, cycle).await;
    recorded.held.lock().unwrap().insert(run, rest);
    Json(json!({"run": run.to_string(), "holds": [{"id": "hold_1", "kind": "approval"}], "status": "held"}))
}

async fn approve(State(recorded): State<Arc<Recorded>>, Json(body): Json<Value>) -> Json<Value> {
    let run: RunId = body["id"].as_str().unwrap().parse().unwrap();
    let mut cycle = recorded.held.lock().unwrap().remove(&run).unwrap();
    recorded.store.load(run).await.unwrap();
    recorded.store.links(run, Seq(0), 1000).await.unwrap();
    // The decision and the start are waited for; the rest is handed over as it comes.
    let started_at = cycle.iter().position(|batch| has(batch, "call.started")).unwrap();
    let rest = cycle.split_off(started_at + 1);
    for batch in cycle {
        recorded.store.append(vec![batch]).await.unwrap();
    }
    together(&recorded.store, rest).await;
    Json(json!({"outcome": "decided"}))
}

async fn together(store: &Arc<dyn Store>, batches: Vec<Batch>) {
    let answers: Vec<Answer<()>> = batches.into_iter().map(|batch| store.append(vec![batch])).collect();
    for answer in answers {
        answer.await.unwrap();
    }
}

fn has(batch: &Batch, kind: &str) -> bool {
    batch.link.events().unwrap().iter().any(|envelope| envelope.event.kind() == kind)
}

/// The appends of so many cycles of the engine.
async fn record(count: usize) -> Vec<Vec<Batch>> {
    let recorder = Arc::new(Recorder { inner: MemoryStore::new(), appends: Mutex::default() });
    let engine = ours::engine(recorder.clone(), 0);
    let who = ours::local();
    let mut runs = Vec::new();
    for _ in 0..count {
        let agent = AgentName::new("ops").unwrap();
        let new = NewRun { agent, session: None, message: Message::text("Free some space"), once: None };
        let run = engine.submit().start(&who, new).await.unwrap();
        let held = engine.reads().settled_run(&who, run, Millis::seconds(10)).await.unwrap();
        let hold = HoldId { run, key: held.run.state.holds[0].key };
        let decision = Decision { hold, wanted: Choice::Approve, digest: None, revision: None, once: None };
        engine.submit().decide(&who, decision).await.unwrap();
        engine.reads().settled_run(&who, run, Millis::seconds(10)).await.unwrap();
        runs.push(run);
    }
    engine.die().await;
    let mut appends: HashMap<RunId, Vec<Batch>> = HashMap::new();
    for batch in std::mem::take(&mut *recorder.appends.lock().unwrap()) {
        let written = appends.entry(batch.run()).or_default();
        // What lost a race was decided again; only what was written counts.
        if batch.expected
            == written.last().map_or(ExpectedHead::NEW, |last: &Batch| ExpectedHead::after(&last.row))
        {
            written.push(batch);
        }
    }
    runs.iter().filter_map(|run| appends.remove(run)).collect()
}

/// Keeps a copy of every append that it passes on.
struct Recorder {
    inner: MemoryStore,
    appends: Mutex<Vec<Batch>>,
}

impl Layer for Recorder {
    fn below(&self) -> &dyn Store {
        &self.inner
    }
}

impl RunLayer for Recorder {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        self.appends.lock().unwrap().extend(batches.clone());
        self.inner.append(batches)
    }
}

impl WorkLayer for Recorder {}
impl DeliveryLayer for Recorder {}
impl SessionLayer for Recorder {}
impl IdempotencyLayer for Recorder {}
impl SecretLayer for Recorder {}
impl AuditLayer for Recorder {}
