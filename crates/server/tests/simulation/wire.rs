//! Between a node and the store: everything takes time, gets lost, or is answered with nobody left to hear it.
//!
//! The store itself answers at once: whoever plays the world waits for it, so that nothing depends on how fast a disk is.
//! Which node has which shards is kept beside it, as a database of several nodes does; what one node changes the others
//! are told late, twice or never.
//! Each question is under way on its own, whatever becomes of the node that asked: one that crashed may still write. The
//! appends of a node to one run keep their order, as the contract says; nothing else does.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex};

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::conformance::support::{block_on, events_of};
use standfast_store::{
    Answer, AuditLayer, Batch, Claim, ClaimedRun, Counts, DeliveryLayer, Heartbeat, HoldQuery,
    IdempotencyLayer, InboxCounts, KeyNote, KeyQuery, KeyRecord, Layer, NodeRow, Page, RunLayer, RunQuery,
    SecretLayer, SessionLayer, ShardSet, Store, StoreError, StoredRun, WorkLayer,
};
use tokio::sync::{broadcast, oneshot};

use crate::world::Sim;

/// What a node has in the place of the store.
pub(crate) struct Wire {
    sim: Arc<Sim>,
    inner: Arc<dyn Store>,
    seat: usize,
    life: u64,
    /// When the last append of this node to a run arrives.
    last: Mutex<BTreeMap<RunId, Timestamp>>,
    /// What the other nodes tell.
    hints: broadcast::Sender<ShardSet>,
}

/// What becomes of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is done and answered.
    Fine,
    /// It never arrives, and that is known.
    Unavailable,
    /// It never arrives, and nobody knows.
    Lost,
    /// It is done, and nobody knows.
    Unheard,
    /// Nobody knows, and it is done some time after that.
    Late,
}

/// What becomes of the node that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    CrashBefore,
    CrashMeanwhile,
    CrashAfter,
    PauseBefore,
    PauseAfter,
}

/// What a question does to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Append(RunId),
    /// Changes no state of a run.
    Lease,
    Look,
    /// Looks for work, all the time.
    Poll,
}

impl Wire {
    pub(crate) fn new(sim: Arc<Sim>, seat: usize, life: u64, hints: broadcast::Sender<ShardSet>) -> Wire {
        let inner = sim.store();
        Wire { sim, inner, seat, life, last: Mutex::default(), hints }
    }

    fn fate(&self, kind: Kind) -> Fate {
        let rate = match kind {
            Kind::Append(_) => self.sim.rates.lost,
            Kind::Lease | Kind::Look | Kind::Poll => self.sim.rates.lost * 3,
        };
        if !self.sim.strikes(rate) {
            return Fate::Fine;
        }
        let fates: &[Fate] = match kind {
            Kind::Append(_) => &[Fate::Unavailable, Fate::Unavailable, Fate::Lost, Fate::Unheard, Fate::Late],
            Kind::Lease | Kind::Poll => &[Fate::Unavailable, Fate::Unheard],
            Kind::Look => &[Fate::Unavailable],
        };
        self.sim.pick(fates)
    }

    fn then(&self, kind: Kind) -> Then {
        let times = match kind {
            Kind::Append(_) => 1,
            Kind::Lease | Kind::Look => 4,
            Kind::Poll => 12,
        };
        if self.sim.strikes(self.sim.rates.crash * times) {
            self.sim.pick(&[Then::CrashBefore, Then::CrashMeanwhile, Then::CrashAfter])
        } else if self.sim.strikes(self.sim.rates.pause * times) {
            self.sim.pick(&[Then::PauseBefore, Then::PauseAfter])
        } else {
            Then::Nothing
        }
    }

    /// How long something is under way.
    fn takes(&self) -> Millis {
        if self.sim.strikes(self.sim.rates.slow * 10) {
            return self.sim.span(4_000);
        }
        self.sim.span(if self.sim.strikes(self.sim.rates.slow) { 150 } else { 4 })
    }

    fn ask<T: Send + 'static>(
        &self,
        what: &'static str,
        kind: Kind,
        question: impl FnOnce(&dyn Store) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (fate, then) = (self.fate(kind), self.then(kind));
        let (sim, seat, life) = (self.sim.clone(), self.seat, self.life);
        let is_news = kind != Kind::Poll || fate != Fate::Fine || then != Then::Nothing;
        if is_news {
            let about = |run: RunId| format!(" {run}");
            let run = if let Kind::Append(run) = kind { about(run) } else { String::new() };
            sim.tell(|| format!("node {seat} asks {what}{run}: {fate:?}, {then:?}"));
        }
        match then {
            Then::CrashBefore => {
                sim.crash(seat, life);
                return Box::pin(std::future::pending());
            }
            Then::CrashMeanwhile => sim.crash(seat, life),
            Then::PauseBefore => sim.pause(seat, life),
            Then::CrashAfter | Then::PauseAfter | Then::Nothing => {}
        }
        let (answers, answer) = oneshot::channel();
        let arrives = self.arrives(kind);
        let (back, late) = (self.takes(), self.sim.span(3_000));
        let inner = self.inner.clone();
        let journey = async move {
            arrives.await;
            let unknown = |why: &str| Err(StoreError::Unknown { why: why.to_owned() });
            let answer = match fate {
                Fate::Fine => block_on(question(&*inner)),
                Fate::Unavailable => Err(StoreError::Unavailable { why: "simulated".into() }),
                Fate::Lost => unknown("simulated: it never arrived"),
                Fate::Unheard => {
                    // Nobody hears the answer.
                    let _ = block_on(question(&*inner));
                    unknown("simulated: the answer was lost")
                }
                Fate::Late => {
                    let later = sim.clock.sleep(late);
                    let teller = sim.clone();
                    sim.spawn(async move {
                        later.await;
                        let done = block_on(question(&*inner)).is_ok();
                        teller.tell(|| format!("what node {seat} asked arrives late: {done}"));
                    });
                    unknown("simulated: it is still under way")
                }
            };
            if let Err(error) = &answer {
                sim.tell(|| format!("node {seat} hears of {what}: {error}"));
            }
            sim.clock.sleep(back).await;
            match then {
                Then::CrashAfter => sim.crash(seat, life),
                Then::PauseAfter => sim.pause(seat, life),
                Then::Nothing | Then::CrashBefore | Then::CrashMeanwhile | Then::PauseBefore => {}
            }
            let _ = answers.send(answer);
        };
        self.sim.spawn(journey);
        Box::pin(async move {
            match answer.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// Until it is there. Appends to one run arrive in the order in which they were handed over.
    fn arrives(&self, kind: Kind) -> impl Future<Output = ()> + Send + use<> {
        let mut at = self.sim.now().plus(self.takes());
        if let Kind::Append(run) = kind {
            let mut last = self.last.lock().unwrap();
            at = at.max(last.get(&run).copied().unwrap_or(at));
            last.insert(run, at);
        }
        self.sim.clock.sleep(at.since(self.sim.now()))
    }
}

/// The kinds of the events of an append.
fn kinds(batches: &[Batch]) -> String {
    let links = batches.iter().map(|batch| batch.link.clone()).collect::<Vec<_>>();
    let kinds: Vec<&str> = events_of(&links).iter().map(|envelope| envelope.event.kind()).collect();
    kinds.join("+")
}

impl Layer for Wire {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Wire {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let kind = Kind::Append(batches[0].run());
        self.sim.tell(|| format!("node {} writes {}", self.seat, kinds(&batches)));
        let shards = batches.iter().map(|batch| batch.run().shard(batch.tenant()));
        let (shards, sim, seat) = (ShardSet::of(shards), self.sim.clone(), self.seat);
        self.ask("append", kind, move |store| {
            let answer = store.append(batches);
            sim.hint(seat, &shards);
            answer
        })
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.ask("load", Kind::Look, move |store| store.load(run))
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.ask("links", Kind::Look, move |store| store.links(run, after, limit))
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.ask("blob", Kind::Look, move |store| store.blob(run, digest))
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        self.ask("definition", Kind::Look, move |store| store.definition(tenant, digest))
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        self.ask("holds", Kind::Look, move |store| store.list_holds(query))
    }

    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        self.ask("runs", Kind::Look, move |store| store.list_runs(query))
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        self.ask("hold", Kind::Look, move |store| store.find_hold(hold))
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        self.ask("facts", Kind::Look, move |store| store.facts(run))
    }

    fn quarantine(&self, run: RunId, why: String) -> Answer<()> {
        self.ask("quarantine", Kind::Lease, move |store| store.quarantine(run, why))
    }
}

impl WorkLayer for Wire {
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        self.ask("claim", Kind::Poll, move |store| store.claim_due(claim))
    }

    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        self.ask("renew", Kind::Lease, move |store| store.renew(runs, node, until))
    }

    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()> {
        self.ask("release", Kind::Lease, move |store| store.release(run, node, wake_at))
    }

    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        self.ask("inbox counts", Kind::Look, move |store| store.inbox_counts(tenant))
    }

    fn counts(&self, tenant: Tenant) -> Answer<Counts> {
        self.ask("counts", Kind::Look, move |store| store.counts(tenant))
    }

    fn shards(&self, beat: Heartbeat) -> Answer<ShardSet> {
        let (sim, seat) = (self.sim.clone(), self.seat);
        self.ask("shards", Kind::Poll, move |_| Box::pin(ready(Ok(sim.beat(seat, beat)))))
    }

    fn leave(&self, node: Incarnation) -> Answer<()> {
        let sim = self.sim.clone();
        self.ask("leave", Kind::Lease, move |_| {
            sim.registry.lock().unwrap().leave(node);
            Box::pin(ready(Ok(())))
        })
    }

    fn nodes(&self, now: Timestamp) -> Answer<Vec<NodeRow>> {
        let sim = self.sim.clone();
        self.ask("nodes", Kind::Poll, move |_| {
            let nodes = sim.registry.lock().unwrap().nodes(now);
            Box::pin(ready(Ok(nodes)))
        })
    }

    fn hints(&self) -> Option<broadcast::Receiver<ShardSet>> {
        Some(self.hints.subscribe())
    }
}

impl IdempotencyLayer for Wire {
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        self.ask("key", Kind::Look, move |store| store.find_key(tenant, key))
    }

    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>> {
        self.ask("keys", Kind::Look, move |store| store.keys_under(query))
    }

    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()> {
        self.ask("note keys", Kind::Lease, move |store| store.note_keys(notes))
    }

    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize> {
        self.ask("forget keys", Kind::Poll, move |store| store.forget_keys(until, limit))
    }
}

impl DeliveryLayer for Wire {}
impl SessionLayer for Wire {}
impl SecretLayer for Wire {}
impl AuditLayer for Wire {}
