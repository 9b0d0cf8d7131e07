//! Runs in Postgres: one store for many nodes.
//!
//! Appends are handed over at the call and written in groups, each group one transaction of two round trips. Everything
//! else is a single statement. Nodes are interchangeable: any of them may append to any run, and each claims work from
//! the shards that it has. Start with `schema.rs` (the database), `writer.rs` (the queue), `group.rs` and `append.rs`
//! (what a group of appends does), `sql.rs` (every statement), `audit.rs` (proving it right).

mod append;
mod audit;
mod connect;
mod counts;
mod deliveries;
mod failure;
mod group;
mod hints;
mod known_rows;
mod lists;
mod nodes;
mod numbers;
#[cfg(test)]
mod plans;
mod pool;
mod read;
mod rows;
mod schema;
mod scratch;
mod side;
mod sql;
mod types;
mod work;
mod writer;

use std::future::Future;
use std::sync::Arc;

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, Incarnation, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::broadcast;

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
use crate::subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Subscription, SubscriptionCount, SubscriptionQuery,
};
use connect::Connector;
use group::EncodedBatch;
use hints::Hints;
use numbers::Numbers;
use pool::Pool;
use side::SideConnection;
use writer::Writer;

pub use audit::{agent_definitions, audit_entries, delivery_counts, export, heads, verify, verify_against};
pub use schema::OpenError;
pub use scratch::ScratchDatabase;

/// Keeps runs in Postgres.
#[derive(Debug)]
pub struct PostgresStore {
    writer: Writer,
    shared: Arc<Connections>,
    hints: Arc<Hints>,
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Connections {
    pool: Pool,
    side: SideConnection,
    /// For saying that this node is there, and for nothing else: whoever waited behind something slow would be taken for
    /// dead.
    beats: SideConnection,
}

/// Where the database is and how it is used.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database?sslmode=require`. With `sslmode=require` the connection is encrypted
    /// and the server's certificate verified; without `sslmode` it is not encrypted.
    pub url: String,
    /// Connections for appends. More of them make smaller groups: two let one group be judged while another commits.
    pub writers: usize,
    /// Connections for everything else.
    pub readers: usize,
    /// Appends that may wait; more are refused until the database has caught up.
    pub queue: usize,
    /// Who measures.
    pub observer: Option<Arc<dyn Observer>>,
}

impl std::fmt::Debug for PostgresOptions {
    /// Without the address: it has a password in it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("writers", &self.writers)
            .field("readers", &self.readers)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl PostgresOptions {
    /// The usual ones.
    #[must_use]
    pub fn at(url: impl Into<String>) -> PostgresOptions {
        PostgresOptions { url: url.into(), writers: 2, readers: 4, queue: 4096, observer: None }
    }

    /// Where the database is, as an operator would look for it: `host:port/database`, never the password.
    pub fn place(&self) -> Result<String, OpenError> {
        connect::parsed(&self.url).map(|(config, _)| connect::place(&config))
    }
}

impl PostgresStore {
    /// Connects and brings the schema up to date; waits while another node does. Refuses a schema that is newer than
    /// this program, a standby, and a database with tables of another program. Blocks until that is done.
    pub fn open(options: &PostgresOptions) -> Result<PostgresStore, OpenError> {
        let connector = Arc::new(Connector::new(options)?);
        let unusable = |why: String| OpenError::Unusable { place: connector.place().to_owned(), why };
        // A runtime of its own: appends go on whoever calls, and whatever becomes of the caller's runtime.
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("standfast-postgres")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| unusable(error.to_string()))?;
        let (said, opened) = std::sync::mpsc::channel();
        let opening = connector.clone();
        runtime.spawn(async move {
            // Whoever asked waits for it.
            let _ = said.send(prepared(opening).await);
        });
        let opened = opened.recv().unwrap_or_else(|error| Err(unusable(error.to_string())));
        let highest = match opened {
            Ok(highest) => highest,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let hints = Arc::new(Hints::default());
        let numbers = Numbers::after(highest);
        let handle = runtime.handle().clone();
        Ok(PostgresStore {
            writer: Writer::new(connector.clone(), numbers, hints.clone(), handle, options),
            shared: Arc::new(Connections {
                pool: Pool::new(connector.clone(), options.readers),
                side: SideConnection::new(connector.clone()),
                beats: SideConnection::new(connector),
            }),
            hints,
            runtime: Some(runtime),
        })
    }

    /// Begins at once, whether or not anybody waits for the answer.
    fn begin<T: Send + 'static, F>(&self, work: impl FnOnce(Arc<Connections>) -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let Some(runtime) = &self.runtime else {
            return Box::pin(std::future::ready(Err(StoreError::unavailable("the store is closed"))));
        };
        let task = runtime.spawn(work(self.shared.clone()));
        Box::pin(async move {
            task.await.unwrap_or_else(|_| {
                Err(StoreError::Unknown { why: "the store was closed before it answered".into() })
            })
        })
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.writer.finish();
        if let Some(runtime) = self.runtime.take() {
            // The connections end with it. A runtime must not wait for its own end inside another one.
            runtime.shutdown_background();
        }
    }
}

/// Brings the database up to date; the highest number in use.
async fn prepared(connector: Arc<Connector>) -> Result<i64, OpenError> {
    let opened = schema::open(&connector).await?;
    let place = connector.place().to_owned();
    let unusable = |error: StoreError| OpenError::Unusable { place, why: error.to_string() };
    let side = SideConnection::new(connector.clone());
    let adopted = if opened.is_new {
        audit::adopt_nothing(&side).await
    } else {
        let looked_at = lists::look_at_deadlines(&Pool::new(connector, 1), &side).await;
        match looked_at {
            Ok(()) => audit::adopt_rows(&side).await,
            Err(error) => Err(error),
        }
    };
    adopted.map_err(unusable)?;
    Ok(opened.highest)
}

impl RunStore for PostgresStore {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        self.writer.hand_over(batches.into_iter().map(EncodedBatch::new).collect())
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.begin(|shared| async move { read::load(&shared.pool, run).await })
    }

    fn load_with_links(&self, run: RunId) -> Answer<(StoredRun, Vec<Link>)> {
        self.begin(move |shared| async move {
            // One after the other: links that came after the row are left out, none is missing.
            let stored = read::load(&shared.pool, run).await?;
            let mut links = read::links(&shared.pool, run, Seq(0), usize::MAX).await?;
            links.retain(|link| link.next() <= stored.row.run.state.seq.plus(1));
            Ok((stored, links))
        })
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.begin(move |shared| async move { read::links(&shared.pool, run, after, limit).await })
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.begin(move |shared| async move { read::blob(&shared.pool, run, digest).await })
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        self.begin(move |shared| async move { read::definition(&shared.pool, &tenant, digest).await })
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        self.begin(move |shared| async move { read::facts(&shared.pool, run).await })
    }

    fn find_hold(&self, hold: HoldId) -> Answer<Option<HoldRow>> {
        self.begin(move |shared| async move { read::find_hold(&shared.pool, hold).await })
    }

    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        self.begin(move |shared| async move { lists::list_runs(&shared.pool, &query).await })
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        self.begin(move |shared| async move { lists::list_holds(&shared.pool, &query).await })
    }

    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>> {
        self.begin(move |shared| async move { lists::decided_holds(&shared.pool, &query).await })
    }

    fn tenants(&self) -> Answer<Vec<Tenant>> {
        self.begin(move |shared| async move { read::tenants(&shared.pool).await })
    }

    fn ended_runs(&self, query: EndedQuery) -> Answer<Page<RunId>> {
        self.begin(move |shared| async move { lists::ended_runs(&shared.pool, &query).await })
    }

    fn erase(&self, run: RunId) -> Answer<()> {
        self.begin(move |shared| async move { work::erase(&shared.side, run).await })
    }

    fn quarantine(&self, run: RunId, why: String) -> Answer<()> {
        self.begin(move |shared| async move { work::quarantine(&shared.side, run, &why).await })
    }
}

impl WorkStore for PostgresStore {
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        self.begin(move |shared| async move { work::claim_due(&shared.pool, &claim).await })
    }

    fn renew(&self, runs: Vec<RunId>, node: Incarnation, until: Timestamp) -> Answer<Vec<RunId>> {
        self.begin(move |shared| async move { work::renew(&shared.pool, runs, node, until).await })
    }

    fn release(&self, run: RunId, node: Incarnation, wake_at: Option<Timestamp>) -> Answer<()> {
        self.begin(move |shared| async move { work::release(&shared.pool, run, node, wake_at).await })
    }

    fn time(&self) -> Answer<Option<Timestamp>> {
        self.begin(|shared| async move { read::time(&shared.pool).await })
    }

    fn shards(&self, beat: Heartbeat) -> Answer<ShardSet> {
        self.begin(move |shared| async move { nodes::beat(&shared.beats, beat).await })
    }

    fn leave(&self, node: Incarnation) -> Answer<()> {
        self.begin(move |shared| async move { nodes::leave(&shared.beats, node).await })
    }

    fn nodes(&self, now: Timestamp) -> Answer<Vec<NodeRow>> {
        self.begin(move |shared| async move { nodes::nodes(&shared.pool, now).await })
    }

    fn hints(&self) -> Option<broadcast::Receiver<ShardSet>> {
        let runtime = self.runtime.as_ref()?;
        Some(self.hints.hear(&self.shared.pool.connector, runtime.handle()))
    }

    fn counts(&self, tenant: Tenant) -> Answer<Counts> {
        self.begin(move |shared| async move { counts::counts(&shared.pool, &tenant).await })
    }

    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        self.begin(move |shared| async move { counts::inboxes(&shared.pool, &tenant).await })
    }
}

impl DeliveryStore for PostgresStore {
    fn due_notices(&self, query: NoticeQuery) -> Answer<Vec<DueNotice>> {
        self.begin(move |shared| async move { deliveries::due_notices(&shared.pool, &query).await })
    }

    fn notices_put(&self) -> Option<u64> {
        Some(self.writer.notices_put())
    }

    fn settle_notice(&self, no: i64, settle: SettleNotice) -> Answer<()> {
        self.begin(move |shared| async move { deliveries::settle_notice(&shared.pool, no, settle).await })
    }

    fn subscription(&self, tenant: Tenant, id: String) -> Answer<Option<Subscription>> {
        self.begin(move |shared| async move { deliveries::find(&shared.pool, &tenant, &id).await })
    }

    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>> {
        self.begin(move |shared| async move { deliveries::list(&shared.pool, &query).await })
    }

    fn count_subscriptions(&self, count: SubscriptionCount) -> Answer<usize> {
        self.begin(move |shared| async move { deliveries::count(&shared.pool, &count).await })
    }

    fn put_subscription(&self, subscription: Subscription) -> Answer<bool> {
        self.begin(move |shared| async move { deliveries::put(&shared.side, subscription).await })
    }

    fn change_subscription(&self, before: String, after: Subscription) -> Answer<bool> {
        self.begin(move |shared| async move { deliveries::change(&shared.side, before, after).await })
    }

    fn delete_subscription(&self, tenant: Tenant, id: String) -> Answer<bool> {
        self.begin(move |shared| async move { deliveries::delete(&shared.side, tenant, id).await })
    }

    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        self.begin(move |shared| async move { deliveries::dead_letters(&shared.pool, &query).await })
    }

    fn resend(&self, tenant: Tenant, no: i64, at: Timestamp) -> Answer<bool> {
        self.begin(move |shared| async move { deliveries::resend(&shared.pool, &tenant, no, at).await })
    }
}

impl SessionStore for PostgresStore {
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        self.begin(move |shared| async move { read::session(&shared.pool, key).await })
    }

    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        self.begin(move |shared| async move { lists::list_sessions(&shared.pool, &query).await })
    }

    fn change_session(&self, key: SessionKey, change: SessionChange, at: Timestamp) -> Answer<bool> {
        self.begin(move |shared| async move { work::change_session(&shared.side, key, change, at).await })
    }
}

impl IdempotencyStore for PostgresStore {
    fn find_key(&self, tenant: Tenant, key: String) -> Answer<Option<KeyRecord>> {
        self.begin(move |shared| async move { read::find_key(&shared.pool, &tenant, &key).await })
    }

    fn keys_under(&self, query: KeyQuery) -> Answer<Vec<(String, KeyRecord)>> {
        self.begin(move |shared| async move { read::keys_under(&shared.pool, &query).await })
    }

    fn note_keys(&self, notes: Vec<KeyNote>) -> Answer<()> {
        self.begin(move |shared| async move { work::note_keys(&shared.pool, notes).await })
    }

    fn forget_keys(&self, until: Timestamp, limit: usize) -> Answer<usize> {
        self.begin(move |shared| async move { work::forget_keys(&shared.pool, until, limit).await })
    }
}

impl SecretStore for PostgresStore {
    fn credential(&self, prefix: String) -> Answer<Option<Credential>> {
        self.begin(move |shared| async move { read::credential(&shared.pool, &prefix).await })
    }

    fn put_credential(&self, credential: Credential) -> Answer<bool> {
        self.begin(move |shared| async move { work::put_credential(&shared.side, credential).await })
    }

    fn list_credentials(&self, tenant: Tenant) -> Answer<Vec<Credential>> {
        self.begin(move |shared| async move { read::credentials(&shared.pool, &tenant).await })
    }

    fn revoke_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        self.begin(move |shared| async move {
            work::end_credential(&shared.side, sql::CREDENTIAL_REVOKE, (tenant, prefix), at).await
        })
    }

    fn expire_credential(&self, tenant: Tenant, prefix: String, at: Timestamp) -> Answer<bool> {
        self.begin(move |shared| async move {
            work::end_credential(&shared.side, sql::CREDENTIAL_EXPIRE, (tenant, prefix), at).await
        })
    }

    fn sealed(&self, tenant: Tenant, name: String) -> Answer<Option<String>> {
        self.begin(move |shared| async move { read::sealed(&shared.pool, &tenant, &name).await })
    }

    fn change_sealed(&self, change: SealedChange) -> Answer<bool> {
        self.begin(move |shared| async move { work::change_sealed(&shared.side, change).await })
    }
}

impl AuditStore for PostgresStore {
    fn put_audit(&self, tenant: Tenant, at: Timestamp, entry: String) -> Answer<()> {
        self.begin(move |shared| async move { work::put_audit(&shared.pool, &tenant, at, &entry).await })
    }

    fn audit_entries(&self, tenant: Tenant, after: u64, limit: usize) -> Answer<Vec<AuditEntry>> {
        self.begin(
            move |shared| async move { read::audit_entries(&shared.pool, &tenant, after, limit).await },
        )
    }
}
