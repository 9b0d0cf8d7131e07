//! A store that keeps a copy of every append it passes on.

use std::sync::Mutex;

use holdpoint_core::digest::Digest;
use holdpoint_core::id::{HoldId, Incarnation, RunId, Seq};
use holdpoint_core::link::Link;
use holdpoint_core::name::Tenant;
use holdpoint_core::project::{HoldRow, RunRow};
use holdpoint_core::time::Timestamp;
use holdpoint_store::memory::MemoryStore;
use holdpoint_store::{
    Answer, Batch, Claim, Claimed, DueNotice, HoldQuery, KeyRecord, Page, RunQuery, SessionChange,
    SessionKey, SessionRow, SettleNotice, ShardSet, Store, Stored,
};

pub(crate) struct Recorder {
    inner: MemoryStore,
    appends: Mutex<Vec<Vec<Batch>>>,
}

impl Recorder {
    pub(crate) fn new(inner: MemoryStore) -> Recorder {
        Recorder { inner, appends: Mutex::default() }
    }

    pub(crate) fn taken(&self) -> Vec<Vec<Batch>> {
        std::mem::take(&mut self.appends.lock().unwrap())
    }
}

impl Store for Recorder {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        self.appends.lock().unwrap().push(batches.clone());
        self.inner.append(batches)
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
