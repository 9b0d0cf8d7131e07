//! Many who follow one run: each hears everything once, and the log is read for all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use standfast_core::command::Choice;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::Link;
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use standfast_engine::settings::FixedSettings;
use standfast_engine::{Engine, Follower};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{
    Answer, AuditLayer, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, RunStore, SecretLayer,
    SessionLayer, Store, WorkLayer,
};
use tokio::task::JoinSet;

use crate::{HELD, Site, decision, hold_of, start, until, who};

const READERS: usize = 200;

/// A store that counts how often a log is read.
struct Counting {
    inner: Arc<SqliteStore>,
    reads: AtomicUsize,
}

impl Layer for Counting {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Counting {
    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.links(run, after, limit)
    }
}

impl WorkLayer for Counting {}
impl DeliveryLayer for Counting {}
impl SessionLayer for Counting {}
impl IdempotencyLayer for Counting {}
impl SecretLayer for Counting {}
impl AuditLayer for Counting {}

/// Two engines on one store, and a run that is held.
async fn held(poll: Millis) -> (Site, Arc<Counting>, Engine, Engine, RunId) {
    let site = Site::new();
    let inner = Arc::new(SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap());
    let store = Arc::new(Counting { inner, reads: AtomicUsize::new(0) });
    let fixed = FixedSettings { poll, ..crate::fixed() };
    let engine = Engine::new(store.clone(), Clock::system(), fixed, site.settings());
    let other = Engine::new(store.inner.clone(), Clock::system(), crate::fixed(), site.settings());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    (site, store, engine, other, run)
}

/// Reads until the run has ended.
async fn whole(mut follower: Follower, mut log: Vec<Envelope>) -> Vec<Seq> {
    let is_over = |event: &Envelope| matches!(event.event, Event::RunEnded(_));
    while !log.iter().any(is_over) {
        log.extend(follower.next().await.unwrap());
    }
    log.iter().map(|event| event.seq).collect()
}

/// Readers who are at the same place or at different ones, one of them in the middle of an append: all see the whole rest
/// of the log once (I7), for a handful of reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_one_run_share_its_log() {
    // Nobody looks by itself.
    let (_site, store, engine, _, run) = held(Millis::hours(1)).await;
    let so_far = engine.reads().events(run, Seq(0)).await.unwrap();
    let mut readers = JoinSet::new();
    for at in 0..READERS {
        let after = so_far.len() - at % 2;
        let mut follower = engine.reads().follow(run, Seq(after as u64));
        let mut log = so_far[..after].to_vec();
        if at % 2 == 1 {
            log.extend(follower.next().await.unwrap());
        } else {
            let nothing = tokio::time::timeout(Duration::from_millis(1), follower.next()).await;
            assert!(nothing.is_err(), "there is nothing new");
        }
        readers.spawn(whole(follower, log));
    }
    let before = store.reads.load(Ordering::SeqCst);
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap();
    let logs = tokio::time::timeout(Duration::from_secs(60), readers.join_all()).await.unwrap();
    let reads = store.reads.load(Ordering::SeqCst) - before;
    let all: Vec<Seq> =
        engine.reads().events(run, Seq(0)).await.unwrap().iter().map(|event| event.seq).collect();
    assert!(all.len() > so_far.len() + 3);
    logs.iter().for_each(|log| assert_eq!(*log, all));
    assert!(reads < READERS / 4, "{reads} reads for {READERS} readers");
}

/// Another process goes on with the run, and nothing is learned of it here: readers look by themselves.
#[tokio::test]
async fn readers_find_what_nobody_told_them() {
    let (_site, _store, engine, other, run) = held(Millis(50)).await;
    let readers: JoinSet<_> = (0..5).map(|_| whole(engine.reads().follow(run, Seq(0)), Vec::new())).collect();
    let hold = hold_of(&other, run, HoldKind::Approval).await;
    other.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap();
    let logs = tokio::time::timeout(Duration::from_secs(60), readers.join_all()).await.unwrap();
    let all: Vec<Seq> =
        engine.reads().events(run, Seq(0)).await.unwrap().iter().map(|event| event.seq).collect();
    logs.iter().for_each(|log| assert_eq!(*log, all));
}
