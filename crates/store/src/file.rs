//! Runs in readable files: JSON below one folder is the source of truth (S2-24, C9).
//!
//! One process has the folder, and one writer thread commits: a line in the journal is synced before anything is
//! acknowledged, then the files follow (`writer.rs`, `journal.rs`). Rows are kept in memory, as the memory store keeps them,
//! and made from the files at every start (`load.rs`); logs and large values stay in their files. Which file has what is
//! `paths.rs`; what an operation changes is `transaction.rs`; the files of the async-tool design are `calls.rs` and
//! `sessions.rs`.

mod audit;
mod calls;
mod credentials;
mod documents;
mod folder;
mod journal;
mod load;
mod log;
mod model;
mod paths;
mod redis;
mod resp;
mod sessions;
mod transaction;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldRow, Phase, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use tokio::sync::RwLock;

use crate::batch::Batch;
use crate::call_query::CallQuery;
use crate::contract::{
    Answer, AuditStore, DeliveryStore, IdempotencyStore, RunStore, SecretStore, SessionStore, WorkStore,
};
use crate::error::StoreError;
use crate::key_query::KeyQuery;
use crate::observer::Observer;
use crate::query::{
    AuditEntry, Claim, ClaimedRun, Counts, Credential, DecidedQuery, DueNotice, EndedQuery, Heartbeat,
    HoldQuery, InboxCounts, KeyNote, KeyRecord, NodeRow, Page, RunFilter, RunQuery, SealedChange,
    SessionChange, SessionKey, SessionQuery, SessionRow, SettleNotice, ShardSet, StoredRun, UnreadableRun,
};
use crate::row_audit::RowEntry;
use crate::single_node::SingleNode;
use crate::subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Subscription, SubscriptionCount, SubscriptionQuery,
};
use folder::Folder;
use model::{FileDamage, Model};
use redis::RedisIndex;
use transaction::Transaction;
use writer::{Durability, RunningWriter, Writer};

pub use audit::{agent_definitions, audit_entries, export, heads, verify, verify_against};
pub use credentials::CredentialFolder;
pub use resp::RedisAddress;

/// Keeps runs in files below one folder.
#[derive(Debug)]
pub struct FileStore {
    writer: Writer,
    model: Arc<RwLock<Model>>,
    credentials: CredentialFolder,
    observer: Option<Arc<dyn Observer>>,
    node: SingleNode,
    redis: Option<RedisIndex>,
}

/// Where the folder is and how it is used.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// The folder; made when it is missing.
    pub path: PathBuf,
    /// How much may be written to the journal; none means as much as the disk holds.
    pub room: Option<u64>,
    /// Operations that may wait for the writer; more are refused until it has caught up.
    pub queue: usize,
    /// How long the files of settled calls stay; none means as long as their run.
    pub keep_settled: Option<Millis>,
    /// The URL of a Redis that indexes the calls of outside jobs; none means that there is none.
    pub redis: Option<String>,
    /// Who watches the writer, to measure it.
    pub observer: Option<Arc<dyn Observer>>,
}

impl FileOptions {
    /// The usual ones.
    #[must_use]
    pub fn at(path: impl AsRef<Path>) -> FileOptions {
        let path = path.as_ref().to_owned();
        FileOptions { path, room: None, queue: 4096, keep_settled: None, redis: None, observer: None }
    }
}

/// Why a folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another store has it.
    #[error(
        "{path} is in use by another Standfast server, and a file store has one; stop that one, give this one a folder of its \
         own, or use Postgres for several nodes"
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The Redis is not named by a URL.
    #[error("the URL of the Redis cannot be used: {why}")]
    Redis {
        /// What is wrong with it.
        why: String,
    },
    /// It cannot be used.
    #[error("{path}: {why}")]
    Unusable {
        /// The file, or the folder.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
}

impl OpenError {
    fn unusable(path: &Path, why: impl ToString) -> OpenError {
        OpenError::Unusable { path: path.to_owned(), why: why.to_string() }
    }
}

impl FileStore {
    /// Opens the folder, makes its journal good and starts the writer. Refuses a folder that another store has, files of a
    /// newer version, and files that are damaged and that many runs need.
    pub fn open(options: &FileOptions) -> Result<FileStore, OpenError> {
        let folder = Folder::observed(&options.path, options.observer.clone())?;
        let lock = folder.lock()?;
        let opened = load::open(folder.clone(), options)?;
        let RunningWriter { writer, model, redis } = Writer::start(opened, lock, options)?;
        Ok(FileStore {
            writer,
            model,
            credentials: CredentialFolder::of(folder),
            observer: options.observer.clone(),
            node: SingleNode::default(),
            redis,
        })
    }

    /// Why the writer stopped for good, if it did: a sync that failed, or a folder that lost its name. Reads still work;
    /// nothing more is written.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        self.writer.stopped()
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Model) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        let model = self.model.clone();
        Box::pin(async move {
            let model = model.read().await;
            match &model.lost {
                None => read(&model),
                Some(why) => Err(StoreError::unavailable(format!("{why}; restart the server"))),
            }
        })
    }

    fn write<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        self.writer.hand_over(Durability::Synced, operation)
    }
}

impl RunStore for FileStore {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let Some(observer) = self.observer.clone() else {
            return self.write(|transaction| transaction.append(batches));
        };
        let handed_over = observer.now();
        let holds: Vec<_> = batches.iter().flat_map(|batch| batch.holds.clone()).collect();
        let done = self.write(|transaction| transaction.append(batches));
        Box::pin(async move {
            done.await?;
            observer.appended(handed_over, &holds);
            Ok(())
        })
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.read(move |model| {
            model.check_readable(run)?;
            model.state.load(run)
        })
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.read(move |model| model.links(run, after, limit))
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.read(move |model| model.blob(run, digest))
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        self.read(move |model| model.definition(&tenant, digest))
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        self.read(move |model| Ok(model.facts(run)))
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        self.read(move |model| {
            model.check_readable(hold.run)?;
            model.state.find_hold(hold)
        })
    }

    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        self.read(move |model| {
            let mut page = model.state.list_runs(&query);
            page.unreadable.extend(unreadable(model, &query));
            Ok(page)
        })
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        self.read(move |model| Ok(model.state.list_holds(&query)))
    }

    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>> {
        self.read(move |model| Ok(model.state.decided_holds(&query)))
    }

    /// From the sets of the Redis, if there is one and it says what the files say, and then from the files (S2-26).
    fn find_calls(&self, query: CallQuery) -> Answer<Option<Vec<HoldId>>> {
        let (redis, model) = (self.redis.clone(), self.model.clone());
        Box::pin(async move { redis::look_up(redis.as_ref(), &model, &query).await.map(Some) })
    }

    fn tenants(&self) -> Answer<Vec<Tenant>> {
        self.read(|model| Ok(model.state.tenants()))
    }

    fn ended_runs(&self, query: EndedQuery) -> Answer<Page<RunId>> {
        self.read(move |model| Ok(model.state.ended_runs(&query)))
    }

    fn erase(&self, run: RunId) -> Answer<()> {
        self.write(move |transaction| transaction.erase(run))
    }

    fn quarantine(&self, run: RunId, why: String) -> Answer<()> {
        self.write(move |transaction| transaction.quarantine(run, why))
    }
}

/// Runs whose files cannot be read: on the first page of everything, because nobody knows where they belong.
fn unreadable(model: &Model, query: &RunQuery) -> Vec<UnreadableRun> {
    // They count as failed, as any quarantined run.
    let is_phase = query.phases.is_empty() || query.phases.contains(&Phase::Failed);
    if query.cursor.is_some() || query.filter != RunFilter::All || !is_phase {
        return Vec::new();
    }
    let is_wanted = |facts: Option<&Facts>| facts.is_none_or(|facts| facts.tenant == query.tenant);
    let damaged = model.unreadable.iter().filter_map(|(run, files)| match &files.why {
        FileDamage::Damaged(why) if is_wanted(files.facts.as_ref()) => {
            Some(UnreadableRun { run: *run, facts: files.facts.clone(), why: why.clone() })
        }
        FileDamage::Damaged(_) | FileDamage::Newer(_) => None,
    });
    damaged.collect()
}

impl WorkStore for FileStore {
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        self.write(move |transaction| Ok(transaction.model.state.claim_due(&claim)))
    }

    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        self.write(move |transaction| Ok(transaction.model.state.renew(runs, node, until)))
    }

    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()> {
        self.write(move |transaction| {
            transaction.model.state.release(run, node, wake_at);
            Ok(())
        })
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
        self.read(move |model| {
            let mut counts = model.state.counts(&tenant);
            let is_of = |facts: &Option<Facts>| facts.as_ref().is_none_or(|facts| facts.tenant == tenant);
            let unreadable = model.unreadable.values().filter(|files| is_of(&files.facts)).count();
            counts.quarantined += u64::try_from(unreadable).unwrap_or_default();
            Ok(counts)
        })
    }

    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        self.read(move |model| Ok(model.state.inbox_counts(&tenant)))
    }
}

impl DeliveryStore for FileStore {
    fn due_notices(&self, query: NoticeQuery) -> Answer<Vec<DueNotice>> {
        self.read(move |model| Ok(model.state.due_notices(&query)))
    }

    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()> {
        self.write(move |transaction| {
            transaction.model.state.settle_notice(no, settle);
            Ok(())
        })
    }

    fn subscription(&self, tenant: Tenant, id: String) -> Answer<Option<Subscription>> {
        self.read(move |model| Ok(model.state.subscription(tenant, id)))
    }

    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>> {
        self.read(move |model| Ok(model.state.list_subscriptions(&query)))
    }

    fn count_subscriptions(&self, count: SubscriptionCount) -> Answer<usize> {
        self.read(move |model| Ok(model.state.count_subscriptions(&count)))
    }

    fn put_subscription(&self, subscription: Subscription) -> Answer<bool> {
        self.write(move |transaction| {
            let (tenant, row) = (subscription.tenant.clone(), RowEntry::subscription(&subscription));
            let is_new = transaction.model.state.put_subscription(subscription);
            if is_new {
                transaction.put_row(tenant, &row);
            }
            Ok(is_new)
        })
    }

    fn change_subscription(&self, before: String, after: Subscription) -> Answer<bool> {
        self.write(move |transaction| {
            let (tenant, id) = (after.tenant.clone(), after.id.clone());
            let is_changed = transaction.model.state.change_subscription(&before, after);
            let now = transaction.model.state.subscription(tenant.clone(), id);
            if let (true, Some(now)) = (is_changed, now) {
                transaction.put_row(tenant, &RowEntry::subscription(&now));
            }
            Ok(is_changed)
        })
    }

    fn delete_subscription(&self, tenant: Tenant, id: String) -> Answer<bool> {
        self.write(move |transaction| {
            let is_deleted = transaction.model.state.delete_subscription(tenant.clone(), id.clone());
            if is_deleted {
                transaction.put_row(tenant, &RowEntry::no_subscription(id));
            }
            Ok(is_deleted)
        })
    }

    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        self.read(move |model| Ok(model.state.dead_letters(&query)))
    }

    fn resend(&self, tenant: Tenant, no: i64, at: Timestamp) -> Answer<bool> {
        self.write(move |transaction| Ok(transaction.model.state.resend(&tenant, no, at)))
    }
}

impl SessionStore for FileStore {
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        self.read(move |model| Ok(model.state.session(&key)))
    }

    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        self.read(move |model| Ok(model.state.list_sessions(&query)))
    }

    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool> {
        self.write(move |transaction| {
            let is_said = change.is_said();
            let is_changed = transaction.model.state.change_session(&key, change, at);
            let now = transaction.model.state.session(&key);
            if let (true, true, Some(now)) = (is_changed, is_said, now) {
                let row = RowEntry::session(&key, &now.metadata, now.closed);
                transaction.put_audit(key.tenant, at, row.text());
            }
            Ok(is_changed)
        })
    }
}

impl IdempotencyStore for FileStore {
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        self.read(move |model| Ok(model.state.find_key(tenant, key)))
    }

    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>> {
        self.read(move |model| Ok(model.state.keys_under(&query)))
    }

    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()> {
        self.writer.hand_over(Durability::WithTheNext, |transaction| {
            transaction.note_keys(notes);
            Ok(())
        })
    }

    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize> {
        self.write(move |transaction| Ok(transaction.model.state.forget_keys(until, limit)))
    }
}

impl SecretStore for FileStore {
    fn credential(&self, prefix: String) -> Answer<Option<Credential>> {
        Box::pin(std::future::ready(self.credentials.get(&prefix)))
    }

    fn put_credential(&self, credential: Credential) -> Answer<bool> {
        let credentials = self.credentials.clone();
        self.write(move |_| credentials.put(credential))
    }

    fn list_credentials(&self, tenant: Tenant) -> Answer<Vec<Credential>> {
        Box::pin(std::future::ready(self.credentials.list(&tenant)))
    }

    fn revoke_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        let credentials = self.credentials.clone();
        self.write(move |_| credentials.revoke(&tenant, &prefix, at))
    }

    fn expire_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        let credentials = self.credentials.clone();
        self.write(move |_| credentials.expire(&tenant, &prefix, at))
    }

    fn sealed(&self, tenant: Tenant, name: String) -> Answer<Option<String>> {
        self.read(move |model| Ok(model.state.sealed(&tenant, &name)))
    }

    fn change_sealed(&self, change: SealedChange) -> Answer<bool> {
        self.write(move |transaction| {
            let (tenant, is_change) =
                (change.tenant.clone(), change.before.is_some() || change.after.is_some());
            let row = RowEntry::sealed(&change.name, change.after.as_deref());
            let is_done = transaction.model.state.change_sealed(change);
            if is_done && is_change {
                transaction.put_row(tenant, &row);
            }
            Ok(is_done)
        })
    }
}

impl AuditStore for FileStore {
    fn put_audit(&self, tenant: Tenant, at: Timestamp, entry: String) -> Answer<()> {
        self.write(move |transaction| {
            transaction.put_audit(tenant, at, entry);
            Ok(())
        })
    }

    fn audit_entries(&self, tenant: Tenant, after: u64, limit: usize) -> Answer<Vec<AuditEntry>> {
        self.read(move |model| {
            let entries = model.audit(&tenant)?.into_iter();
            Ok(entries.filter(|entry| entry.no > after).take(limit).collect())
        })
    }
}
