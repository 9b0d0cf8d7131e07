//! Stores that wrap another one: what they do not change themselves, they pass on.
//!
//! `forward_store!(inner: load, links, …)` inside an `impl Store` writes the methods that only pass on to `self.inner`,
//! so that a wrapper shows nothing but its difference.

/// Writes the named methods of `Store` as calls of the same method of a field.
#[macro_export]
macro_rules! forward_store {
    ($field:ident: $($method:ident),+ $(,)?) => { $($crate::forward_store!(@ $method $field);)+ };
    (@ append $f:ident) => {
        fn append(&self, batches: Vec<$crate::Batch>) -> $crate::Answer<()> { self.$f.append(batches) }
    };
    (@ load $f:ident) => {
        fn load(&self, run: ::standfast_core::id::RunId) -> $crate::Answer<$crate::Stored> { self.$f.load(run) }
    };
    (@ links $f:ident) => {
        fn links(
            &self,
            run: ::standfast_core::id::RunId,
            after: ::standfast_core::id::Seq,
            limit: usize,
        ) -> $crate::Answer<Vec<::standfast_core::link::Link>> {
            self.$f.links(run, after, limit)
        }
    };
    (@ blob $f:ident) => {
        fn blob(
            &self,
            run: ::standfast_core::id::RunId,
            digest: ::standfast_core::digest::Digest,
        ) -> $crate::Answer<Option<String>> {
            self.$f.blob(run, digest)
        }
    };
    (@ definition $f:ident) => {
        fn definition(
            &self,
            tenant: ::standfast_core::name::Tenant,
            digest: ::standfast_core::digest::Digest,
        ) -> $crate::Answer<Option<Vec<u8>>> {
            self.$f.definition(tenant, digest)
        }
    };
    (@ claim_due $f:ident) => {
        fn claim_due(&self, claim: $crate::Claim) -> $crate::Answer<Vec<$crate::Claimed>> { self.$f.claim_due(claim) }
    };
    (@ renew $f:ident) => {
        fn renew(
            &self,
            runs: Vec<::standfast_core::id::RunId>,
            node: ::standfast_core::id::Incarnation,
            until: ::standfast_core::time::Timestamp,
        ) -> $crate::Answer<Vec<::standfast_core::id::RunId>> {
            self.$f.renew(runs, node, until)
        }
    };
    (@ release $f:ident) => {
        fn release(
            &self,
            run: ::standfast_core::id::RunId,
            node: ::standfast_core::id::Incarnation,
            wake_at: ::core::option::Option<::standfast_core::time::Timestamp>,
        ) -> $crate::Answer<()> {
            self.$f.release(run, node, wake_at)
        }
    };
    (@ inbox_counts $f:ident) => {
        fn inbox_counts(
            &self,
            tenant: ::standfast_core::name::Tenant,
        ) -> $crate::Answer<Vec<$crate::InboxCounts>> {
            self.$f.inbox_counts(tenant)
        }
    };
    (@ list_runs $f:ident) => {
        fn list_runs(
            &self,
            query: $crate::RunQuery,
        ) -> $crate::Answer<$crate::Page<::standfast_core::project::RunRow>> {
            self.$f.list_runs(query)
        }
    };
    (@ list_holds $f:ident) => {
        fn list_holds(
            &self,
            query: $crate::HoldQuery,
        ) -> $crate::Answer<$crate::Page<::standfast_core::project::HoldRow>> {
            self.$f.list_holds(query)
        }
    };
    (@ find_hold $f:ident) => {
        fn find_hold(
            &self,
            hold: ::standfast_core::id::HoldId,
        ) -> $crate::Answer<Option<::standfast_core::project::HoldRow>> {
            self.$f.find_hold(hold)
        }
    };
    (@ find_key $f:ident) => {
        fn find_key(
            &self,
            tenant: ::standfast_core::name::Tenant,
            key: String,
        ) -> $crate::Answer<Option<$crate::KeyRecord>> {
            self.$f.find_key(tenant, key)
        }
    };
    (@ due_notices $f:ident) => {
        fn due_notices(&self, query: $crate::NoticeQuery) -> $crate::Answer<Vec<$crate::DueNotice>> {
            self.$f.due_notices(query)
        }
    };
    (@ subscriptions $f:ident) => {
        fn sealed(
            &self,
            tenant: ::standfast_core::name::Tenant,
            name: String,
        ) -> $crate::Answer<Option<String>> {
            self.$f.sealed(tenant, name)
        }
        fn change_sealed(&self, change: $crate::SealedChange) -> $crate::Answer<bool> {
            self.$f.change_sealed(change)
        }
        fn subscription(
            &self,
            tenant: ::standfast_core::name::Tenant,
            id: String,
        ) -> $crate::Answer<Option<$crate::Subscription>> {
            self.$f.subscription(tenant, id)
        }
        fn list_subscriptions(
            &self,
            query: $crate::SubscriptionQuery,
        ) -> $crate::Answer<Vec<$crate::Subscription>> {
            self.$f.list_subscriptions(query)
        }
        fn count_subscriptions(&self, count: $crate::SubscriptionCount) -> $crate::Answer<usize> {
            self.$f.count_subscriptions(count)
        }
        fn put_subscription(&self, subscription: $crate::Subscription) -> $crate::Answer<bool> {
            self.$f.put_subscription(subscription)
        }
        fn change_subscription(&self, before: String, after: $crate::Subscription) -> $crate::Answer<bool> {
            self.$f.change_subscription(before, after)
        }
        fn delete_subscription(
            &self,
            tenant: ::standfast_core::name::Tenant,
            id: String,
        ) -> $crate::Answer<bool> {
            self.$f.delete_subscription(tenant, id)
        }
        fn dead_letters(
            &self,
            query: $crate::DeadQuery,
        ) -> $crate::Answer<$crate::Page<$crate::DeadLetter>> {
            self.$f.dead_letters(query)
        }
        fn resend(
            &self,
            tenant: ::standfast_core::name::Tenant,
            no: i64,
            at: ::standfast_core::time::Timestamp,
        ) -> $crate::Answer<bool> {
            self.$f.resend(tenant, no, at)
        }
    };
    (@ forget_keys $f:ident) => {
        fn note_keys(&self, notes: Vec<$crate::KeyNote>) -> $crate::Answer<()> { self.$f.note_keys(notes) }
        fn forget_keys(
            &self,
            until: ::standfast_core::time::Timestamp,
            limit: usize,
        ) -> $crate::Answer<usize> {
            self.$f.forget_keys(until, limit)
        }
    };
    (@ settle_notice $f:ident) => {
        fn settle_notice(&self, no: i64, settle: $crate::SettleNotice) -> $crate::Answer<()> {
            self.$f.settle_notice(no, settle)
        }
    };
    (@ session $f:ident) => {
        fn tenants(&self) -> $crate::Answer<Vec<::standfast_core::name::Tenant>> { self.$f.tenants() }
        fn session(&self, key: $crate::SessionKey) -> $crate::Answer<Option<$crate::SessionRow>> {
            self.$f.session(key)
        }
    };
    (@ facts $f:ident) => {
        fn facts(
            &self,
            run: ::standfast_core::id::RunId,
        ) -> $crate::Answer<Option<::standfast_core::run::Facts>> {
            self.$f.facts(run)
        }
    };
    (@ quarantine $f:ident) => {
        fn quarantine(&self, run: ::standfast_core::id::RunId, why: String) -> $crate::Answer<()> {
            self.$f.quarantine(run, why)
        }
    };
    (@ counts $f:ident) => {
        fn counts(&self, tenant: ::standfast_core::name::Tenant) -> $crate::Answer<$crate::Counts> {
            self.$f.counts(tenant)
        }
    };
    (@ list_sessions $f:ident) => {
        fn list_sessions(
            &self,
            query: $crate::SessionQuery,
        ) -> $crate::Answer<$crate::Page<$crate::SessionRow>> {
            self.$f.list_sessions(query)
        }
    };
    (@ change_session $f:ident) => {
        fn change_session(
            &self,
            key: $crate::SessionKey,
            change: $crate::SessionChange,
            at: ::standfast_core::time::Timestamp,
        ) -> $crate::Answer<bool> {
            self.$f.change_session(key, change, at)
        }
    };
    (@ erase $f:ident) => {
        fn erase(&self, run: ::standfast_core::id::RunId) -> $crate::Answer<()> { self.$f.erase(run) }
        fn ended_runs(
            &self,
            query: $crate::EndedQuery,
        ) -> $crate::Answer<$crate::Page<::standfast_core::id::RunId>> {
            self.$f.ended_runs(query)
        }
    };
    (@ credential $f:ident) => {
        fn credential(&self, prefix: String) -> $crate::Answer<Option<$crate::Credential>> {
            self.$f.credential(prefix)
        }
    };
    (@ put_credential $f:ident) => {
        fn put_credential(&self, credential: $crate::Credential) -> $crate::Answer<bool> {
            self.$f.put_credential(credential)
        }
    };
    (@ list_credentials $f:ident) => {
        fn list_credentials(
            &self,
            tenant: ::standfast_core::name::Tenant,
        ) -> $crate::Answer<Vec<$crate::Credential>> {
            self.$f.list_credentials(tenant)
        }
    };
    (@ revoke_credential $f:ident) => {
        fn revoke_credential(
            &self,
            tenant: ::standfast_core::name::Tenant,
            prefix: String,
            at: ::standfast_core::time::Timestamp,
        ) -> $crate::Answer<bool> {
            self.$f.revoke_credential(tenant, prefix, at)
        }
    };
    (@ put_audit $f:ident) => {
        fn put_audit(
            &self,
            tenant: ::standfast_core::name::Tenant,
            at: ::standfast_core::time::Timestamp,
            entry: String,
        ) -> $crate::Answer<()> {
            self.$f.put_audit(tenant, at, entry)
        }
    };
    (@ audit_entries $f:ident) => {
        fn audit_entries(
            &self,
            tenant: ::standfast_core::name::Tenant,
            after: u64,
            limit: usize,
        ) -> $crate::Answer<Vec<$crate::AuditEntry>> {
            self.$f.audit_entries(tenant, after, limit)
        }
    };
    (@ time $f:ident) => {
        fn time(&self) -> $crate::Answer<Option<::standfast_core::time::Timestamp>> { self.$f.time() }
    };
    (@ shards $f:ident) => {
        fn shards(&self, beat: $crate::Heartbeat) -> $crate::Answer<$crate::ShardSet> { self.$f.shards(beat) }
    };
    (@ leave $f:ident) => {
        fn leave(&self, node: ::standfast_core::id::Incarnation) -> $crate::Answer<()> { self.$f.leave(node) }
    };
    (@ nodes $f:ident) => {
        fn nodes(&self, now: ::standfast_core::time::Timestamp) -> $crate::Answer<Vec<$crate::NodeRow>> {
            self.$f.nodes(now)
        }
    };
    (@ hints $f:ident) => {
        fn hints(&self) -> Option<::tokio::sync::broadcast::Receiver<$crate::ShardSet>> { self.$f.hints() }
    };
}
