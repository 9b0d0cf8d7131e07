//! A file as it was at one instant, for reading beside the server that has it: one read transaction for everything.
//!
//! The server goes on writing meanwhile; what it writes is not seen here. Nothing can be written through it. Used by
//! `standfast export`.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::run::Facts;

use super::read::{ReadSession, Readers};
use super::schema::{self, OpenError, SqliteFile};
use crate::batch::Batch;
use crate::contract::{Answer, Store};
use crate::error::StoreError;
use crate::layer::{
    AuditLayer, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SecretLayer, SessionLayer, WorkLayer,
};
use crate::memory::MemoryStore;
use crate::query::{
    AuditEntry, Credential, DecidedQuery, HoldQuery, Page, RunQuery, SessionKey, SessionQuery, SessionRow,
    StoredRun,
};
use crate::subscription::{DeadLetter, DeadQuery, Subscription, SubscriptionQuery};

/// A file as it was when this was opened.
#[derive(Debug, Clone)]
pub struct SqliteSnapshot {
    readers: Arc<Readers>,
    /// The transaction that sees that instant.
    connection: Arc<Mutex<Connection>>,
    /// What is asked of a store beside reading finds nothing there.
    nothing: Arc<MemoryStore>,
}

impl SqliteSnapshot {
    /// Sees the file as it is now. Refuses one that is not there, is not a database of ours, or is newer than this program.
    /// The same for one with sealed payloads and no keys.
    pub fn open<'a>(file: impl Into<SqliteFile<'a>>) -> Result<SqliteSnapshot, OpenError> {
        let file = file.into();
        let path = file.path;
        schema::check_readable(path)?;
        schema::refuse_locked(&file)?;
        let readers = Readers::new(&file)?;
        let connection = readers.snapshot().map_err(|error| OpenError::unusable(path, error))?;
        Ok(SqliteSnapshot {
            readers: Arc::new(readers),
            connection: Arc::new(Mutex::new(connection)),
            nothing: Arc::new(MemoryStore::new()),
        })
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadSession<'_>) -> Result<T, StoreError>,
    ) -> Answer<T> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let result = read(&ReadSession { connection: &connection, texts: self.readers.texts() });
        Box::pin(std::future::ready(result))
    }
}

impl Layer for SqliteSnapshot {
    fn below(&self) -> &dyn Store {
        &*self.nothing
    }
}

impl RunLayer for SqliteSnapshot {
    fn append(&self, _batches: Vec<Batch>) -> Answer<()> {
        let why = "the database is open for reading only, beside its server";
        Box::pin(std::future::ready(Err(StoreError::unavailable(why))))
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.read(|reading| reading.load(run))
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.read(|reading| reading.links(run, after, limit))
    }

    fn blob(&self, run: RunId, digest: Digest) -> Answer<Option<String>> {
        self.read(|reading| reading.blob(run, digest))
    }

    fn definition(&self, tenant: Tenant, digest: Digest) -> Answer<Option<Vec<u8>>> {
        self.read(|reading| reading.definition(&tenant, digest))
    }

    fn facts(&self, run: RunId) -> Answer<Option<Facts>> {
        self.read(|reading| reading.facts(run))
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
}

impl SessionLayer for SqliteSnapshot {
    fn session(&self, key: SessionKey) -> Answer<Option<SessionRow>> {
        self.read(|reading| reading.session(&key))
    }

    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        self.read(|reading| reading.list_sessions(&query))
    }
}

impl DeliveryLayer for SqliteSnapshot {
    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>> {
        self.read(|reading| reading.list_subscriptions(&query))
    }

    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        self.read(|reading| reading.dead_letters(&query))
    }
}

impl SecretLayer for SqliteSnapshot {
    fn list_credentials(&self, tenant: Tenant) -> Answer<Vec<Credential>> {
        self.read(|reading| reading.credentials(&tenant))
    }
}

impl AuditLayer for SqliteSnapshot {
    fn audit_entries(&self, tenant: Tenant, after: u64, limit: usize) -> Answer<Vec<AuditEntry>> {
        self.read(|reading| reading.audit_entries(&tenant, after, limit))
    }
}

impl WorkLayer for SqliteSnapshot {}

impl IdempotencyLayer for SqliteSnapshot {}
