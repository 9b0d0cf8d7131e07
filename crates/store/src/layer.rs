//! Stores over another store: what a layer does not change goes to the store below it.
//!
//! A layer says what is below it ([`Layer`]) and implements the layer trait of each seam, whose methods all go down
//! unless they are overridden; so it shows nothing but its difference, and a method that is added to the contract
//! needs no word from it. A backend implements the seams themselves (`contract.rs`), so that it cannot forget one.

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;
use tokio::sync::broadcast;

use crate::batch::Batch;
use crate::call_query::CallQuery;
use crate::contract::{
    Answer, AuditStore, DeliveryStore, IdempotencyStore, RunStore, SecretStore, SessionStore, Store,
    WorkStore,
};
use crate::key_query::KeyQuery;
use crate::query::{
    AuditEntry, Claim, ClaimedRun, Counts, Credential, DecidedQuery, DueNotice, EndedQuery, Heartbeat,
    HoldQuery, InboxCounts, KeyNote, KeyRecord, NodeRow, Page, RunQuery, SealedChange, SessionChange,
    SessionKey, SessionQuery, SessionRow, SettleNotice, ShardSet, StoredRun,
};
use crate::subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Subscription, SubscriptionCount, SubscriptionQuery,
};

/// A store over another one.
pub trait Layer: Send + Sync + 'static {
    /// The store that answers what this one leaves as it is.
    fn below(&self) -> &dyn Store;
}

/// What a layer changes of [`RunStore`]; each method goes down unless it is overridden.
pub trait RunLayer: Layer {
    /// See [`RunStore::append`].
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        self.below().append(batches)
    }

    /// See [`RunStore::load`].
    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.below().load(run)
    }

    /// See [`RunStore::links`].
    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.below().links(run, after, limit)
    }

    /// See [`RunStore::blob`].
    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.below().blob(run, digest)
    }

    /// See [`RunStore::definition`].
    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        self.below().definition(tenant, digest)
    }

    /// See [`RunStore::facts`].
    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        self.below().facts(run)
    }

    /// See [`RunStore::find_hold`].
    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        self.below().find_hold(hold)
    }

    /// See [`RunStore::list_runs`].
    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        self.below().list_runs(query)
    }

    /// See [`RunStore::list_holds`].
    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        self.below().list_holds(query)
    }

    /// See [`RunStore::decided_holds`].
    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>> {
        self.below().decided_holds(query)
    }

    /// See [`RunStore::find_calls`].
    fn find_calls(&self, query: CallQuery) -> Answer<Option<Vec<HoldId>>> {
        self.below().find_calls(query)
    }

    /// See [`RunStore::tenants`].
    fn tenants(&self) -> Answer<Vec<Tenant>> {
        self.below().tenants()
    }

    /// See [`RunStore::ended_runs`].
    fn ended_runs(&self, query: EndedQuery) -> Answer<Page<RunId>> {
        self.below().ended_runs(query)
    }

    /// See [`RunStore::erase`].
    fn erase(&self, run: RunId) -> Answer<()> {
        self.below().erase(run)
    }

    /// See [`RunStore::quarantine`].
    fn quarantine(&self, run: RunId, why: String) -> Answer<()> {
        self.below().quarantine(run, why)
    }
}

impl<L: RunLayer> RunStore for L {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        RunLayer::append(self, batches)
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        RunLayer::load(self, run)
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        RunLayer::links(self, run, after, limit)
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        RunLayer::blob(self, run, digest)
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        RunLayer::definition(self, tenant, digest)
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        RunLayer::facts(self, run)
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        RunLayer::find_hold(self, hold)
    }

    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        RunLayer::list_runs(self, query)
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        RunLayer::list_holds(self, query)
    }

    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>> {
        RunLayer::decided_holds(self, query)
    }

    fn find_calls(&self, query: CallQuery) -> Answer<Option<Vec<HoldId>>> {
        RunLayer::find_calls(self, query)
    }

    fn tenants(&self) -> Answer<Vec<Tenant>> {
        RunLayer::tenants(self)
    }

    fn ended_runs(&self, query: EndedQuery) -> Answer<Page<RunId>> {
        RunLayer::ended_runs(self, query)
    }

    fn erase(&self, run: RunId) -> Answer<()> {
        RunLayer::erase(self, run)
    }

    fn quarantine(&self, run: RunId, why: String) -> Answer<()> {
        RunLayer::quarantine(self, run, why)
    }
}

/// What a layer changes of [`WorkStore`]; each method goes down unless it is overridden.
pub trait WorkLayer: Layer {
    /// See [`WorkStore::claim_due`].
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        self.below().claim_due(claim)
    }

    /// See [`WorkStore::renew`].
    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        self.below().renew(runs, node, until)
    }

    /// See [`WorkStore::release`].
    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()> {
        self.below().release(run, node, wake_at)
    }

    /// See [`WorkStore::time`].
    fn time(&self) -> Answer<Option<Timestamp>> {
        self.below().time()
    }

    /// See [`WorkStore::shards`].
    fn shards(&self, beat: Heartbeat) -> Answer<ShardSet> {
        self.below().shards(beat)
    }

    /// See [`WorkStore::leave`].
    fn leave(&self, node: Incarnation) -> Answer<()> {
        self.below().leave(node)
    }

    /// See [`WorkStore::nodes`].
    fn nodes(&self, now: Timestamp) -> Answer<Vec<NodeRow>> {
        self.below().nodes(now)
    }

    /// See [`WorkStore::hints`].
    fn hints(&self) -> Option<broadcast::Receiver<ShardSet>> {
        self.below().hints()
    }

    /// See [`WorkStore::counts`].
    fn counts(&self, tenant: Tenant) -> Answer<Counts> {
        self.below().counts(tenant)
    }

    /// See [`WorkStore::inbox_counts`].
    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        self.below().inbox_counts(tenant)
    }
}

impl<L: WorkLayer> WorkStore for L {
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        WorkLayer::claim_due(self, claim)
    }

    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        WorkLayer::renew(self, runs, node, until)
    }

    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()> {
        WorkLayer::release(self, run, node, wake_at)
    }

    fn time(&self) -> Answer<Option<Timestamp>> {
        WorkLayer::time(self)
    }

    fn shards(&self, beat: Heartbeat) -> Answer<ShardSet> {
        WorkLayer::shards(self, beat)
    }

    fn leave(&self, node: Incarnation) -> Answer<()> {
        WorkLayer::leave(self, node)
    }

    fn nodes(&self, now: Timestamp) -> Answer<Vec<NodeRow>> {
        WorkLayer::nodes(self, now)
    }

    fn hints(&self) -> Option<broadcast::Receiver<ShardSet>> {
        WorkLayer::hints(self)
    }

    fn counts(&self, tenant: Tenant) -> Answer<Counts> {
        WorkLayer::counts(self, tenant)
    }

    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        WorkLayer::inbox_counts(self, tenant)
    }
}

/// What a layer changes of [`DeliveryStore`]; each method goes down unless it is overridden.
pub trait DeliveryLayer: Layer {
    /// See [`DeliveryStore::due_notices`].
    fn due_notices(&self, query: NoticeQuery) -> Answer<Vec<DueNotice>> {
        self.below().due_notices(query)
    }

    /// See [`DeliveryStore::notices_put`].
    fn notices_put(&self) -> Option<u64> {
        self.below().notices_put()
    }

    /// See [`DeliveryStore::settle_notice`].
    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()> {
        self.below().settle_notice(no, settle)
    }

    /// See [`DeliveryStore::subscription`].
    fn subscription(&self, tenant: Tenant, id: String) -> Answer<Option<Subscription>> {
        self.below().subscription(tenant, id)
    }

    /// See [`DeliveryStore::list_subscriptions`].
    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>> {
        self.below().list_subscriptions(query)
    }

    /// See [`DeliveryStore::count_subscriptions`].
    fn count_subscriptions(&self, count: SubscriptionCount) -> Answer<usize> {
        self.below().count_subscriptions(count)
    }

    /// See [`DeliveryStore::put_subscription`].
    fn put_subscription(&self, subscription: Subscription) -> Answer<bool> {
        self.below().put_subscription(subscription)
    }

    /// See [`DeliveryStore::change_subscription`].
    fn change_subscription(&self, before: String, after: Subscription) -> Answer<bool> {
        self.below().change_subscription(before, after)
    }

    /// See [`DeliveryStore::delete_subscription`].
    fn delete_subscription(&self, tenant: Tenant, id: String) -> Answer<bool> {
        self.below().delete_subscription(tenant, id)
    }

    /// See [`DeliveryStore::dead_letters`].
    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        self.below().dead_letters(query)
    }

    /// See [`DeliveryStore::resend`].
    fn resend(&self, tenant: Tenant, no: i64, at: Timestamp) -> Answer<bool> {
        self.below().resend(tenant, no, at)
    }
}

impl<L: DeliveryLayer> DeliveryStore for L {
    fn due_notices(&self, query: NoticeQuery) -> Answer<Vec<DueNotice>> {
        DeliveryLayer::due_notices(self, query)
    }

    fn notices_put(&self) -> Option<u64> {
        DeliveryLayer::notices_put(self)
    }

    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()> {
        DeliveryLayer::settle_notice(self, no, settle)
    }

    fn subscription(&self, tenant: Tenant, id: String) -> Answer<Option<Subscription>> {
        DeliveryLayer::subscription(self, tenant, id)
    }

    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>> {
        DeliveryLayer::list_subscriptions(self, query)
    }

    fn count_subscriptions(&self, count: SubscriptionCount) -> Answer<usize> {
        DeliveryLayer::count_subscriptions(self, count)
    }

    fn put_subscription(&self, subscription: Subscription) -> Answer<bool> {
        DeliveryLayer::put_subscription(self, subscription)
    }

    fn change_subscription(&self, before: String, after: Subscription) -> Answer<bool> {
        DeliveryLayer::change_subscription(self, before, after)
    }

    fn delete_subscription(&self, tenant: Tenant, id: String) -> Answer<bool> {
        DeliveryLayer::delete_subscription(self, tenant, id)
    }

    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        DeliveryLayer::dead_letters(self, query)
    }

    fn resend(&self, tenant: Tenant, no: i64, at: Timestamp) -> Answer<bool> {
        DeliveryLayer::resend(self, tenant, no, at)
    }
}

/// What a layer changes of [`SessionStore`]; each method goes down unless it is overridden.
pub trait SessionLayer: Layer {
    /// See [`SessionStore::session`].
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        self.below().session(key)
    }

    /// See [`SessionStore::list_sessions`].
    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        self.below().list_sessions(query)
    }

    /// See [`SessionStore::change_session`].
    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool> {
        self.below().change_session(key, change, at)
    }
}

impl<L: SessionLayer> SessionStore for L {
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        SessionLayer::session(self, key)
    }

    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        SessionLayer::list_sessions(self, query)
    }

    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool> {
        SessionLayer::change_session(self, key, change, at)
    }
}

/// What a layer changes of [`IdempotencyStore`]; each method goes down unless it is overridden.
pub trait IdempotencyLayer: Layer {
    /// See [`IdempotencyStore::find_key`].
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        self.below().find_key(tenant, key)
    }

    /// See [`IdempotencyStore::keys_under`].
    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>> {
        self.below().keys_under(query)
    }

    /// See [`IdempotencyStore::note_keys`].
    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()> {
        self.below().note_keys(notes)
    }

    /// See [`IdempotencyStore::forget_keys`].
    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize> {
        self.below().forget_keys(until, limit)
    }
}

impl<L: IdempotencyLayer> IdempotencyStore for L {
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        IdempotencyLayer::find_key(self, tenant, key)
    }

    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>> {
        IdempotencyLayer::keys_under(self, query)
    }

    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()> {
        IdempotencyLayer::note_keys(self, notes)
    }

    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize> {
        IdempotencyLayer::forget_keys(self, until, limit)
    }
}

/// What a layer changes of [`SecretStore`]; each method goes down unless it is overridden.
pub trait SecretLayer: Layer {
    /// See [`SecretStore::credential`].
    fn credential(&self, prefix: String) -> Answer<Option<Credential>> {
        self.below().credential(prefix)
    }

    /// See [`SecretStore::put_credential`].
    fn put_credential(&self, credential: Credential) -> Answer<bool> {
        self.below().put_credential(credential)
    }

    /// See [`SecretStore::list_credentials`].
    fn list_credentials(&self, tenant: Tenant) -> Answer<Vec<Credential>> {
        self.below().list_credentials(tenant)
    }

    /// See [`SecretStore::revoke_credential`].
    fn revoke_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        self.below().revoke_credential(tenant, prefix, at)
    }

    /// See [`SecretStore::expire_credential`].
    fn expire_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        self.below().expire_credential(tenant, prefix, at)
    }

    /// See [`SecretStore::sealed`].
    fn sealed(&self, tenant: Tenant, name: String) -> Answer<Option<String>> {
        self.below().sealed(tenant, name)
    }

    /// See [`SecretStore::change_sealed`].
    fn change_sealed(&self, change: SealedChange) -> Answer<bool> {
        self.below().change_sealed(change)
    }
}

impl<L: SecretLayer> SecretStore for L {
    fn credential(&self, prefix: String) -> Answer<Option<Credential>> {
        SecretLayer::credential(self, prefix)
    }

    fn put_credential(&self, credential: Credential) -> Answer<bool> {
        SecretLayer::put_credential(self, credential)
    }

    fn list_credentials(&self, tenant: Tenant) -> Answer<Vec<Credential>> {
        SecretLayer::list_credentials(self, tenant)
    }

    fn revoke_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        SecretLayer::revoke_credential(self, tenant, prefix, at)
    }

    fn expire_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        SecretLayer::expire_credential(self, tenant, prefix, at)
    }

    fn sealed(&self, tenant: Tenant, name: String) -> Answer<Option<String>> {
        SecretLayer::sealed(self, tenant, name)
    }

    fn change_sealed(&self, change: SealedChange) -> Answer<bool> {
        SecretLayer::change_sealed(self, change)
    }
}

/// What a layer changes of [`AuditStore`]; each method goes down unless it is overridden.
pub trait AuditLayer: Layer {
    /// See [`AuditStore::put_audit`].
    fn put_audit(&self, tenant: Tenant, at: Timestamp, entry: String) -> Answer<()> {
        self.below().put_audit(tenant, at, entry)
    }

    /// See [`AuditStore::audit_entries`].
    fn audit_entries(&self, tenant: Tenant, after: u64, limit: usize) -> Answer<Vec<AuditEntry>> {
        self.below().audit_entries(tenant, after, limit)
    }
}

impl<L: AuditLayer> AuditStore for L {
    fn put_audit(&self, tenant: Tenant, at: Timestamp, entry: String) -> Answer<()> {
        AuditLayer::put_audit(self, tenant, at, entry)
    }

    fn audit_entries(&self, tenant: Tenant, after: u64, limit: usize) -> Answer<Vec<AuditEntry>> {
        AuditLayer::audit_entries(self, tenant, after, limit)
    }
}
