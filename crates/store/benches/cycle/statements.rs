//! The same statements without logic: the appends of many cycles are sealed before the clock starts, then written and
//! read exactly as in a cycle.

use std::sync::{Arc, Mutex};

use standfast_core::id::RunId;
use standfast_store::memory::MemoryStore;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{Batch, Store};

use crate::cycle::Bench;
use crate::measure::{Lap, Measurement, load, now};

mod recorder;

use recorder::Recorder;

/// The five appends of one cycle.
pub(crate) struct SealedRun {
    run: RunId,
    appends: Vec<Vec<Batch>>,
}

pub(crate) async fn run(concurrency: usize, seconds: f64) -> Measurement {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(&SqliteOptions::at(directory.path().join("statements.db"))).unwrap());
    // More than any machine here gets through; when they run out the time so far counts.
    let count = (seconds * if concurrency == 1 { 3_000.0 } else { 20_000.0 }) as usize;
    let sealed = Arc::new(Mutex::new(seal(count).await));
    load(concurrency, seconds, move |_, _| {
        let next = sealed.lock().unwrap().pop();
        let store = store.clone();
        async move { Some(cycle(store, next?).await) }
    })
    .await
}

async fn cycle(store: Arc<dyn Store>, sealed: SealedRun) -> Lap {
    let start = now();
    let mut appends = sealed.appends.into_iter().map(|batches| store.append(batches));
    let mut hand_over = || appends.next().unwrap();
    let started = hand_over();
    let held = hand_over();
    started.await.unwrap();
    held.await.unwrap();
    let approve = now();
    store.load(sealed.run).await.unwrap();
    store.links(sealed.run, Default::default(), 1000).await.unwrap();
    hand_over().await.unwrap();
    let finished = hand_over();
    let ended = hand_over();
    finished.await.unwrap();
    ended.await.unwrap();
    Lap { cycle: start.elapsed(), approve: approve.elapsed() }
}

/// Runs cycles on a memory store and keeps the appends.
async fn seal(count: usize) -> Vec<SealedRun> {
    let mut all = Vec::with_capacity(count);
    for n in 0..count {
        let recorder = Arc::new(Recorder::new(MemoryStore::new()));
        let bench = Bench::numbered(recorder.clone(), n as u64);
        let hold = bench.start_until_held().await;
        bench.approve_until_done(hold).await;
        all.push(SealedRun { run: hold.run, appends: recorder.taken() });
    }
    all
}
