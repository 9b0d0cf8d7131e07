//! Runs in memory: the reference that every other backend is compared with, and the store of agents without a
//! durable one.
//!
//! One lock around plain collections, no cleverness. It holds everything that the other backends hold, and loses it
//! when the process ends.

pub(crate) mod state;

use std::future::ready;
use std::sync::{Mutex, MutexGuard, PoisonError};

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;

use crate::batch::Batch;
use crate::contract::{
    Answer, AuditStore, DeliveryStore, IdempotencyStore, RunStore, SecretStore, SessionStore, WorkStore,
};
use crate::error::StoreError;
use crate::key_query::KeyQuery;
use crate::query::{
    AuditEntry, Claim, ClaimedRun, Counts, Credential, DecidedQuery, DueNotice, EndedQuery, Heartbeat,
    HoldQuery, InboxCounts, KeyNote, KeyRecord, NodeRow, Page, RunQuery, SealedChange, SessionChange,
    SessionKey, SessionQuery, SessionRow, SettleNotice, ShardSet, StoredRun,
};
use crate::single_node::SingleNode;
use crate::subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Subscription, SubscriptionCount, SubscriptionQuery,
};
use state::State;

/// Keeps runs until the process ends.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    node: SingleNode,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held can only have happened before a change was complete for the caller; the
        // collections themselves are always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer<T: Send + 'static>(result: Result<T, StoreError>) -> Answer<T> {
    Box::pin(ready(result))
}

impl RunStore for MemoryStore {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        answer(self.state().append(batches))
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        answer(self.state().load(run))
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        answer(self.state().links(run, after, limit))
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        answer(Ok(self.state().blob(run, digest)))
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        answer(Ok(self.state().definition(&tenant, digest)))
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        answer(Ok(self.state().facts(run)))
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        answer(self.state().find_hold(hold))
    }

    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        answer(Ok(self.state().list_runs(&query)))
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        answer(Ok(self.state().list_holds(&query)))
    }

    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>> {
        answer(Ok(self.state().decided_holds(&query)))
    }

    fn tenants(&self) -> Answer<Vec<Tenant>> {
        answer(Ok(self.state().tenants()))
    }

    fn ended_runs(&self, query: EndedQuery) -> Answer<Page<RunId>> {
        answer(Ok(self.state().ended_runs(&query)))
    }

    fn erase(&self, run: RunId) -> Answer<()> {
        answer(self.state().erase(run))
    }

    fn quarantine(&self, run: RunId, why: String) -> Answer<()> {
        answer(self.state().quarantine(run, why))
    }
}

impl WorkStore for MemoryStore {
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        answer(Ok(self.state().claim_due(&claim)))
    }

    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        answer(Ok(self.state().renew(runs, node, until)))
    }

    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()> {
        self.state().release(run, node, wake_at);
        answer(Ok(()))
    }

    fn time(&self) -> Answer<Option<Timestamp>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn shards(&self, beat: Heartbeat) -> Answer<ShardSet> {
        self.node.shards(beat)
    }

    fn leave(&self, node: Incarnation) -> Answer<()> {
        self.node.leave(node)
    }

    fn nodes(&self, now: Timestamp) -> Answer<Vec<NodeRow>> {
        self.node.nodes(now)
    }

    fn hints(&self) -> Option<tokio::sync::broadcast::Receiver<ShardSet>> {
        None
    }

    fn counts(&self, tenant: Tenant) -> Answer<Counts> {
        answer(Ok(self.state().counts(&tenant)))
    }

    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        answer(Ok(self.state().inbox_counts(&tenant)))
    }
}

impl DeliveryStore for MemoryStore {
    fn due_notices(&self, query: NoticeQuery) -> Answer<Vec<DueNotice>> {
        answer(Ok(self.state().due_notices(&query)))
    }

    fn notices_put(&self) -> Option<u64> {
        Some(self.state().notices_put())
    }

    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()> {
        self.state().settle_notice(no, settle);
        answer(Ok(()))
    }

    fn subscription(&self, tenant: Tenant, id: String) -> Answer<Option<Subscription>> {
        answer(Ok(self.state().subscription(tenant, id)))
    }

    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>> {
        answer(Ok(self.state().list_subscriptions(&query)))
    }

    fn count_subscriptions(&self, count: SubscriptionCount) -> Answer<usize> {
        answer(Ok(self.state().count_subscriptions(&count)))
    }

    fn put_subscription(&self, subscription: Subscription) -> Answer<bool> {
        answer(Ok(self.state().put_subscription(subscription)))
    }

    fn change_subscription(&self, before: String, after: Subscription) -> Answer<bool> {
        answer(Ok(self.state().change_subscription(&before, after)))
    }

    fn delete_subscription(&self, tenant: Tenant, id: String) -> Answer<bool> {
        answer(Ok(self.state().delete_subscription(tenant, id)))
    }

    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        answer(Ok(self.state().dead_letters(&query)))
    }

    fn resend(&self, tenant: Tenant, no: i64, at: Timestamp) -> Answer<bool> {
        answer(Ok(self.state().resend(&tenant, no, at)))
    }
}

impl SessionStore for MemoryStore {
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        answer(Ok(self.state().session(&key)))
    }

    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        answer(Ok(self.state().list_sessions(&query)))
    }

    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool> {
        answer(Ok(self.state().change_session(&key, change, at)))
    }
}

impl IdempotencyStore for MemoryStore {
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        answer(Ok(self.state().find_key(tenant, key)))
    }

    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>> {
        answer(Ok(self.state().keys_under(&query)))
    }

    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()> {
        self.state().note_keys(notes);
        answer(Ok(()))
    }

    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize> {
        answer(Ok(self.state().forget_keys(until, limit)))
    }
}

impl SecretStore for MemoryStore {
    fn credential(&self, prefix: String) -> Answer<Option<Credential>> {
        answer(Ok(self.state().credential(&prefix)))
    }

    fn put_credential(&self, credential: Credential) -> Answer<bool> {
        answer(Ok(self.state().put_credential(credential)))
    }

    fn list_credentials(&self, tenant: Tenant) -> Answer<Vec<Credential>> {
        answer(Ok(self.state().list_credentials(&tenant)))
    }

    fn revoke_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        answer(Ok(self.state().revoke_credential(&tenant, &prefix, at)))
    }

    fn expire_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        answer(Ok(self.state().expire_credential(&tenant, &prefix, at)))
    }

    fn sealed(&self, tenant: Tenant, name: String) -> Answer<Option<String>> {
        answer(Ok(self.state().sealed(&tenant, &name)))
    }

    fn change_sealed(&self, change: SealedChange) -> Answer<bool> {
        answer(Ok(self.state().change_sealed(change)))
    }
}

impl AuditStore for MemoryStore {
    fn put_audit(&self, tenant: Tenant, at: Timestamp, entry: String) -> Answer<()> {
        self.state().put_audit(tenant, at, entry);
        answer(Ok(()))
    }

    fn audit_entries(&self, tenant: Tenant, after: u64, limit: usize) -> Answer<Vec<AuditEntry>> {
        answer(Ok(self.state().audit_entries(&tenant, after, limit)))
    }
}
