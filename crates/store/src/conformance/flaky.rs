//! A store that loses answers: wraps another and fails appends by a script.
//!
//! What a network or a disk does to an append is one of three things: it never arrives, it arrives and its answer is
//! lost, or somebody else was first. The script says which, for each append in order; behind its end all is well.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use holdpoint_core::digest::Digest;
use holdpoint_core::id::{HoldId, Incarnation, RunId, Seq};
use holdpoint_core::link::Link;
use holdpoint_core::name::Tenant;
use holdpoint_core::project::{HoldRow, RunRow};
use holdpoint_core::time::Timestamp;

use super::random::Random;
use crate::{
    Answer, Batch, Claim, Claimed, DueNotice, HoldQuery, KeyRecord, Page, RunQuery, SessionChange,
    SessionKey, SessionRow, SettleNotice, ShardSet, Store, StoreError, Stored,
};

/// What happens to one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing: it is written and answered.
    None,
    /// It never arrives: `Unavailable`, nothing is written.
    Before,
    /// It is written and its answer is lost: `Unknown`.
    After,
    /// It never arrives and its failure is not told apart: `Unknown`, nothing is written.
    Lost,
    /// Somebody else is said to have been first: `Conflict`, nothing is written.
    Conflict,
}

/// A store that fails appends by a script.
pub struct Flaky {
    inner: Arc<dyn Store>,
    script: Mutex<VecDeque<Mishap>>,
}

impl Flaky {
    /// Fails appends by this script; behind its end all is well.
    #[must_use]
    pub fn scripted(inner: Arc<dyn Store>, script: impl IntoIterator<Item = Mishap>) -> Flaky {
        Flaky { inner, script: Mutex::new(script.into_iter().collect()) }
    }

    /// Fails about one append in `one_in`, in any of the ways, for this many appends.
    #[must_use]
    pub fn seeded(inner: Arc<dyn Store>, seed: u64, one_in: u64, appends: usize) -> Flaky {
        let mut random = Random::new(seed);
        let ways = [Mishap::Before, Mishap::After, Mishap::Lost, Mishap::Conflict];
        let mishap = |_| if random.below(one_in) == 0 { *random.pick(&ways) } else { Mishap::None };
        let script: Vec<Mishap> = (0..appends).map(mishap).collect();
        Flaky::scripted(inner, script)
    }

    fn next(&self) -> Mishap {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front().unwrap_or(Mishap::None)
    }
}

fn failed<T: Send + 'static>(error: StoreError) -> Answer<T> {
    Box::pin(std::future::ready(Err(error)))
}

impl Store for Flaky {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let unknown = |why: &str| StoreError::Unknown { why: why.into() };
        match self.next() {
            Mishap::None => self.inner.append(batches),
            Mishap::Before => failed(StoreError::Unavailable { why: "flaky: it never arrived".into() }),
            Mishap::Lost => failed(unknown("flaky: nobody knows, and it never arrived")),
            Mishap::Conflict => match batches.first() {
                Some(batch) => failed(StoreError::Conflict { run: batch.run() }),
                None => self.inner.append(batches),
            },
            Mishap::After => {
                let answer = self.inner.append(batches);
                let lost = unknown("flaky: the answer was lost");
                Box::pin(async move {
                    match answer.await {
                        Ok(()) => Err(lost),
                        Err(error) => Err(error),
                    }
                })
            }
        }
    }

    fn load(&self, run: RunId) -> Answer<Stored> {
        self.inner.load(run)
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.inner.links(run, after, limit)
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.inner.blob(run, digest)
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        self.inner.definition(tenant, digest)
    }

    fn claim_due(&self, claim: Claim) -> Answer<Vec<Claimed>> {
        self.inner.claim_due(claim)
    }

    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        self.inner.renew(runs, node, until)
    }

    fn release(&self, run: RunId, node: Incarnation) -> Answer<()> {
        self.inner.release(run, node)
    }

    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        self.inner.list_runs(query)
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        self.inner.list_holds(query)
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        self.inner.find_hold(hold)
    }

    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        self.inner.find_key(tenant, key)
    }

    fn due_notices(&self, shards: ShardSet, now: Timestamp, limit: usize) -> Answer<Vec<DueNotice>> {
        self.inner.due_notices(shards, now, limit)
    }

    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()> {
        self.inner.settle_notice(no, settle)
    }

    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        self.inner.session(key)
    }

    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool> {
        self.inner.change_session(key, change, at)
    }

    fn erase(&self, run: RunId) -> Answer<()> {
        self.inner.erase(run)
    }
}
