//! Runs in one SQLite file: the embedded default.
//!
//! WAL with `synchronous=FULL`. One writer thread takes everything that waits into one transaction and acknowledges
//! after COMMIT, so that many runs share one sync. Reads use connections of their own and never wait for the writer.
//! Start with `schema.rs` (the file), `writer.rs` (the thread), `gather.rs` (groups), `append.rs` (what an append does),
//! `writer_memory.rs` (what the writer need not look up), `sql.rs` (every statement).

mod append;
mod audit;
mod backup;
mod conversations;
mod credentials;
mod deadlines;
mod deliveries;
mod dense;
mod efforts;
mod erase;
mod files;
mod gather;
mod holds;
mod job;
mod names;
mod payload_keys;
#[cfg(test)]
mod plans;
mod read;
mod rows;
mod schema;
mod sealing;
mod snapshot;
mod sql;
mod tally;
mod work;
mod writer;
mod writer_memory;

use std::path::{Path, PathBuf};
use std::sync::Arc;

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
use crate::observer::Observer;
use crate::query::{
    AuditEntry, Claim, ClaimedRun, Counts, Credential, DecidedQuery, DueNotice, EndedQuery, Heartbeat,
    HoldQuery, InboxCounts, KeyNote, KeyRecord, NodeRow, Page, RunQuery, SealedChange, SessionChange,
    SessionKey, SessionQuery, SessionRow, SettleNotice, ShardSet, StoredRun,
};
use crate::single_node::SingleNode;
use crate::subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Subscription, SubscriptionCount, SubscriptionQuery,
};
use append::EncodedBatch;
use credentials::CredentialChange;
use deliveries::SubscriptionChange;
use job::Job;
use payload_keys::PayloadKeys;
use read::Readers;
use tally::Tallies;
use writer::Writer;

pub use audit::{agent_definitions, audit_entries, export, heads, verify, verify_against};
pub use backup::{FileCopy, copy, last_event_at};
pub use credentials::CredentialFile;
pub use payload_keys::{PayloadSealer, WrappedKeys, reseal, wrapped_keys};
pub use schema::{OpenError, SqliteFile};
pub use sealing::{Random, WrappingKey};
pub use snapshot::SqliteSnapshot;

/// Keeps runs in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Arc<Readers>,
    tallies: Arc<Tallies>,
    observer: Option<Arc<dyn Observer>>,
    node: SingleNode,
    keys: Option<Arc<PayloadKeys>>,
}

/// Where the file is and how it is used.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The file; created when it is missing.
    pub path: PathBuf,
    /// The file may have at most this many pages; none means as many as the disk holds.
    pub max_pages: Option<u32>,
    /// Appends that may wait for the writer; more are refused until it has caught up.
    pub queue: usize,
    /// Who watches the writer, to measure it.
    pub observer: Option<Arc<dyn Observer>>,
    /// How payloads are sealed; none means not at all.
    pub sealing: Option<PayloadSealer>,
}

impl SqliteOptions {
    /// The usual ones.
    #[must_use]
    pub fn at(path: impl AsRef<Path>) -> SqliteOptions {
        SqliteOptions {
            path: path.as_ref().to_owned(),
            max_pages: None,
            queue: 4096,
            observer: None,
            sealing: None,
        }
    }
}

impl SqliteStore {
    /// Opens the file, brings its schema up to date and starts the writer. Refuses a schema that is newer than this
    /// program, a file that another store has open, and a SQLite library with known corruption bugs.
    pub fn open(options: &SqliteOptions) -> Result<SqliteStore, OpenError> {
        let file = schema::open(options)?;
        let keys = schema::payload_keys(&file.connection, options);
        let keys = keys.map_err(|why| OpenError::unusable(&options.path, why))?;
        let readers = Arc::new(Readers::of_open(
            &options.path,
            file.files.clone(),
            keys.clone(),
            efforts::counting(options.observer.as_ref()),
        ));
        let tallies = Arc::new(Tallies::default());
        let writer = Writer::start(file, options, keys.clone(), tallies.clone())?;
        Ok(SqliteStore {
            writer,
            readers,
            tallies,
            observer: options.observer.clone(),
            node: SingleNode::default(),
            keys,
        })
    }

    /// Why the writer stopped for good, if it did: a sync that failed, or files that lost their names. Reads still work; nothing more is written.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        self.writer.stopped()
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&read::ReadSession<'_>) -> Result<T, StoreError>,
    ) -> Answer<T> {
        let result = self.readers.read(read);
        Box::pin(std::future::ready(result))
    }
}

impl RunStore for SqliteStore {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let encode = |batch| EncodedBatch::new(batch, self.keys.as_deref());
        match batches.into_iter().map(encode).collect() {
            Ok(encoded) => {
                let now = self.observer.as_ref().map_or(0, |observer| observer.now());
                self.writer.hand_over_append(encoded, now)
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        let loaded = self.readers.load(run);
        if let Err(StoreError::Corrupt { run, .. }) = &loaded {
            self.tallies.quarantined(*run);
        }
        Box::pin(std::future::ready(loaded))
    }

    fn load_with_links(&self, run: RunId) -> Answer<(StoredRun, Vec<Link>)> {
        let read = self.readers.read(|reading| {
            let stored = reading.load(run)?;
            Ok((stored, reading.links(run, Seq(0), usize::MAX)))
        });
        if let Err(StoreError::Corrupt { run, .. }) = &read {
            self.tallies.quarantined(*run);
        }
        let loaded = read.and_then(|(stored, links)| Ok((stored, links?)));
        Box::pin(std::future::ready(loaded))
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        Box::pin(std::future::ready(self.readers.read_one(|reading| reading.links(run, after, limit))))
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.read(|reading| reading.blob(run, digest))
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        self.read(|reading| reading.definition(&tenant, digest))
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        Box::pin(std::future::ready(self.readers.read_one(|reading| reading.facts(run))))
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        self.read(|reading| reading.find_hold(hold))
    }

    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        self.read(|reading| reading.list_runs(&query))
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        self.read(|reading| reading.list_holds(&query))
    }

    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>> {
        self.read(|reading| reading.decided_holds(&query))
    }

    fn tenants(&self) -> Answer<Vec<Tenant>> {
        self.read(|reading| reading.tenants())
    }

    fn ended_runs(&self, query: EndedQuery) -> Answer<Page<RunId>> {
        self.read(|reading| reading.ended_runs(&query))
    }

    fn erase(&self, run: RunId) -> Answer<()> {
        self.writer.hand_over(|reply| Job::Erase(run, reply))
    }

    fn quarantine(&self, run: RunId, why: String) -> Answer<()> {
        let done = self.writer.hand_over(|reply| Job::Quarantine(run, why, reply));
        let tallies = self.tallies.clone();
        Box::pin(async move {
            done.await?;
            tallies.quarantined(run);
            Ok(())
        })
    }
}

impl WorkStore for SqliteStore {
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        let claimed = self.writer.hand_over(|reply| Job::Claim(claim, reply));
        let tallies = self.tallies.clone();
        Box::pin(async move {
            let claimed = claimed.await?;
            for one in &claimed {
                if let ClaimedRun::Corrupt { run, .. } = one {
                    tallies.quarantined(*run);
                }
            }
            Ok(claimed)
        })
    }

    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        if runs.is_empty() {
            self.writer.probe()
        } else {
            self.writer.hand_over(|reply| Job::Renew(runs, node, until, reply))
        }
    }

    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()> {
        self.writer.hand_over(|reply| Job::Release(run, node, wake_at, reply))
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
        self.tallies.counts(&self.readers, tenant)
    }

    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        self.read(|reading| reading.inbox_counts(&tenant))
    }
}

impl DeliveryStore for SqliteStore {
    fn due_notices(&self, query: NoticeQuery) -> Answer<Vec<DueNotice>> {
        self.read(|reading| reading.due_notices(&query))
    }

    fn notices_put(&self) -> Option<u64> {
        Some(self.writer.notices_put())
    }

    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()> {
        self.writer.hand_over(|reply| Job::SettleNotice(no, settle, reply))
    }

    fn subscription(&self, tenant: Tenant, id: String) -> Answer<Option<Subscription>> {
        self.read(|reading| reading.subscription(&tenant, &id))
    }

    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>> {
        self.read(|reading| reading.list_subscriptions(&query))
    }

    fn count_subscriptions(&self, count: SubscriptionCount) -> Answer<usize> {
        self.read(|reading| reading.count_subscriptions(&count))
    }

    fn put_subscription(&self, subscription: Subscription) -> Answer<bool> {
        let change = SubscriptionChange::Put(subscription);
        self.writer.hand_over(|reply| Job::Subscription(change, reply))
    }

    fn change_subscription(&self, before: String, after: Subscription) -> Answer<bool> {
        let change = SubscriptionChange::Change { before, after };
        self.writer.hand_over(|reply| Job::Subscription(change, reply))
    }

    fn delete_subscription(&self, tenant: Tenant, id: String) -> Answer<bool> {
        let change = SubscriptionChange::Delete { tenant, id };
        self.writer.hand_over(|reply| Job::Subscription(change, reply))
    }

    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        self.read(|reading| reading.dead_letters(&query))
    }

    fn resend(&self, tenant: Tenant, no: i64, at: Timestamp) -> Answer<bool> {
        let change = SubscriptionChange::Resend { tenant, no, at };
        self.writer.hand_over(|reply| Job::Subscription(change, reply))
    }
}

impl SessionStore for SqliteStore {
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        self.read(|reading| reading.session(&key))
    }

    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        self.read(|reading| reading.list_sessions(&query))
    }

    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool> {
        self.writer.hand_over(|reply| Job::ChangeSession(key, change, at, reply))
    }
}

impl IdempotencyStore for SqliteStore {
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        self.read(|reading| reading.find_key(&tenant, &key))
    }

    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>> {
        self.read(|reading| reading.keys_under(&query))
    }

    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()> {
        self.writer.hand_over(|reply| Job::NoteKeys(KeyNote::last_of_each(notes), reply))
    }

    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize> {
        self.writer.hand_over(|reply| Job::ForgetKeys(until, limit, reply))
    }
}

impl SecretStore for SqliteStore {
    fn credential(&self, prefix: String) -> Answer<Option<Credential>> {
        self.read(|reading| reading.credential(&prefix))
    }

    fn put_credential(&self, credential: Credential) -> Answer<bool> {
        self.writer.hand_over(|reply| Job::Credential(CredentialChange::Put(credential), reply))
    }

    fn list_credentials(&self, tenant: Tenant) -> Answer<Vec<Credential>> {
        self.read(|reading| reading.credentials(&tenant))
    }

    fn revoke_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        let change = CredentialChange::Revoke { tenant, prefix, at };
        self.writer.hand_over(|reply| Job::Credential(change, reply))
    }

    fn expire_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        let change = CredentialChange::Expire { tenant, prefix, at };
        self.writer.hand_over(|reply| Job::Credential(change, reply))
    }

    fn sealed(&self, tenant: Tenant, name: String) -> Answer<Option<String>> {
        self.read(|reading| reading.sealed(&tenant, &name))
    }

    fn change_sealed(&self, change: SealedChange) -> Answer<bool> {
        self.writer.hand_over(|reply| Job::Sealed(change, reply))
    }
}

impl AuditStore for SqliteStore {
    fn put_audit(&self, tenant: Tenant, at: Timestamp, entry: String) -> Answer<()> {
        self.writer.hand_over(|reply| Job::Audit(tenant, at, entry, reply))
    }

    fn audit_entries(&self, tenant: Tenant, after: u64, limit: usize) -> Answer<Vec<AuditEntry>> {
        self.read(|reading| reading.audit_entries(&tenant, after, limit))
    }
}
