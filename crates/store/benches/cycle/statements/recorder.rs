//! A store that keeps a copy of every append it passes on.

use std::sync::Mutex;

use standfast_store::memory::MemoryStore;
use standfast_store::{Answer, Batch, Store};

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
    standfast_store::forward_store!(inner: load, links, blob, definition, claim_due, renew, release, list_runs, inbox_counts, list_holds, find_hold, find_key, due_notices, subscriptions,
        forget_keys, settle_notice, session, change_session, erase, credential, put_credential, list_credentials, revoke_credential, put_audit, audit_entries, facts, quarantine, counts,
        list_sessions, time, shards, leave, nodes, hints);
}
