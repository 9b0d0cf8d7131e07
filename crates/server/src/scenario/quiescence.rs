//! A store that counts what it was asked and has not answered yet.
//!
//! Its writer is another thread, so a task that waits for it looks idle and is not. Whoever wants to know whether
//! anything is left to do asks here first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;
use standfast_store::{
    Answer, AuditEntry, AuditStore, Batch, Claim, ClaimedRun, Counts, Credential, DeadLetter, DeadQuery,
    DecidedQuery, DeliveryStore, DueNotice, EndedQuery, Heartbeat, HoldQuery, IdempotencyStore, InboxCounts,
    KeyNote, KeyQuery, KeyRecord, NodeRow, NoticeQuery, Page, RunQuery, RunStore, SealedChange, SecretStore,
    SessionChange, SessionKey, SessionQuery, SessionRow, SessionStore, SettleNotice, ShardSet, Store,
    StoredRun, Subscription, SubscriptionCount, SubscriptionQuery, WorkStore,
};
use tokio::sync::Notify;

/// What a store has been asked and has not answered yet.
#[derive(Debug, Default)]
pub(super) struct UnansweredCalls {
    count: AtomicUsize,
    answered: Notify,
}

impl UnansweredCalls {
    /// Whether an answer is still to come.
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Waits until an answer has come since the last time.
    pub(super) async fn one_comes(&self) {
        self.answered.notified().await;
    }
}

struct CallGuard(Arc<UnansweredCalls>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.answered.notify_one();
    }
}

/// A store whose answers are counted.
pub(super) struct CountedStore<S> {
    pub(super) store: S,
    pub(super) unanswered: Arc<UnansweredCalls>,
}

impl<S> CountedStore<S> {
    fn count<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        self.unanswered.count.fetch_add(1, Ordering::SeqCst);
        let asked = CallGuard(self.unanswered.clone());
        Box::pin(async move {
            let answer = answer.await;
            drop(asked);
            answer
        })
    }
}

impl<S: Store> RunStore for CountedStore<S> {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        self.count(self.store.append(batches))
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.count(self.store.load(run))
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.count(self.store.links(run, after, limit))
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.count(self.store.blob(run, digest))
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        self.count(self.store.definition(tenant, digest))
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        self.count(self.store.facts(run))
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        self.count(self.store.find_hold(hold))
    }

    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        self.count(self.store.list_runs(query))
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        self.count(self.store.list_holds(query))
    }

    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>> {
        self.count(self.store.decided_holds(query))
    }

    fn tenants(&self) -> Answer<Vec<Tenant>> {
        self.count(self.store.tenants())
    }

    fn ended_runs(&self, query: EndedQuery) -> Answer<Page<RunId>> {
        self.count(self.store.ended_runs(query))
    }

    fn erase(&self, run: RunId) -> Answer<()> {
        self.count(self.store.erase(run))
    }

    fn quarantine(&self, run: RunId, why: String) -> Answer<()> {
        self.count(self.store.quarantine(run, why))
    }
}

impl<S: Store> WorkStore for CountedStore<S> {
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        self.count(self.store.claim_due(claim))
    }

    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        self.count(self.store.renew(runs, node, until))
    }

    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()> {
        self.count(self.store.release(run, node, wake_at))
    }

    fn time(&self) -> Answer<Option<Timestamp>> {
        self.count(self.store.time())
    }

    fn shards(&self, beat: Heartbeat) -> Answer<ShardSet> {
        self.count(self.store.shards(beat))
    }

    fn leave(&self, node: Incarnation) -> Answer<()> {
        self.count(self.store.leave(node))
    }

    fn nodes(&self, now: Timestamp) -> Answer<Vec<NodeRow>> {
        self.count(self.store.nodes(now))
    }

    fn hints(&self) -> Option<tokio::sync::broadcast::Receiver<ShardSet>> {
        self.store.hints()
    }

    fn counts(&self, tenant: Tenant) -> Answer<Counts> {
        self.count(self.store.counts(tenant))
    }

    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        self.count(self.store.inbox_counts(tenant))
    }
}

impl<S: Store> DeliveryStore for CountedStore<S> {
    fn due_notices(&self, query: NoticeQuery) -> Answer<Vec<DueNotice>> {
        self.count(self.store.due_notices(query))
    }

    fn notices_put(&self) -> Option<u64> {
        self.store.notices_put()
    }

    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()> {
        self.count(self.store.settle_notice(no, settle))
    }

    fn subscription(&self, tenant: Tenant, id: String) -> Answer<Option<Subscription>> {
        self.count(self.store.subscription(tenant, id))
    }

    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>> {
        self.count(self.store.list_subscriptions(query))
    }

    fn count_subscriptions(&self, count: SubscriptionCount) -> Answer<usize> {
        self.count(self.store.count_subscriptions(count))
    }

    fn put_subscription(&self, subscription: Subscription) -> Answer<bool> {
        self.count(self.store.put_subscription(subscription))
    }

    fn change_subscription(&self, before: String, after: Subscription) -> Answer<bool> {
        self.count(self.store.change_subscription(before, after))
    }

    fn delete_subscription(&self, tenant: Tenant, id: String) -> Answer<bool> {
        self.count(self.store.delete_subscription(tenant, id))
    }

    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        self.count(self.store.dead_letters(query))
    }

    fn resend(&self, tenant: Tenant, no: i64, at: Timestamp) -> Answer<bool> {
        self.count(self.store.resend(tenant, no, at))
    }
}

impl<S: Store> SessionStore for CountedStore<S> {
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        self.count(self.store.session(key))
    }

    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        self.count(self.store.list_sessions(query))
    }

    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool> {
        self.count(self.store.change_session(key, change, at))
    }
}

impl<S: Store> IdempotencyStore for CountedStore<S> {
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        self.count(self.store.find_key(tenant, key))
    }

    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>> {
        self.count(self.store.keys_under(query))
    }

    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()> {
        self.count(self.store.note_keys(notes))
    }

    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize> {
        self.count(self.store.forget_keys(until, limit))
    }
}

impl<S: Store> SecretStore for CountedStore<S> {
    fn credential(&self, prefix: String) -> Answer<Option<Credential>> {
        self.count(self.store.credential(prefix))
    }

    fn put_credential(&self, credential: Credential) -> Answer<bool> {
        self.count(self.store.put_credential(credential))
    }

    fn list_credentials(&self, tenant: Tenant) -> Answer<Vec<Credential>> {
        self.count(self.store.list_credentials(tenant))
    }

    fn revoke_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        self.count(self.store.revoke_credential(tenant, prefix, at))
    }

    fn expire_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        self.count(self.store.expire_credential(tenant, prefix, at))
    }

    fn sealed(&self, tenant: Tenant, name: String) -> Answer<Option<String>> {
        self.count(self.store.sealed(tenant, name))
    }

    fn change_sealed(&self, change: SealedChange) -> Answer<bool> {
        self.count(self.store.change_sealed(change))
    }
}

impl<S: Store> AuditStore for CountedStore<S> {
    fn put_audit(&self, tenant: Tenant, at: Timestamp, entry: String) -> Answer<()> {
        self.count(self.store.put_audit(tenant, at, entry))
    }

    fn audit_entries(&self, tenant: Tenant, after: u64, limit: usize) -> Answer<Vec<AuditEntry>> {
        self.count(self.store.audit_entries(tenant, after, limit))
    }
}
