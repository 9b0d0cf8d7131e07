//! Reads: connections of their own, which never wait for the writer.
//!
//! Point reads are here, pages in `lists.rs`. A read sees one snapshot, and a row that cannot be read concerns its own
//! run only.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{self, HoldRow};
use standfast_core::run::{FOLD_VERSION, Facts};
use standfast_core::time::Timestamp;

use super::append::{VALUE_COLUMN, run_number};
use super::credentials;
use super::deliveries;
use super::efforts;
use super::files::OpenFiles;
use super::holds::find_hold_of_run;
use super::job::Failure;
use super::names::{self, Texts};
use super::payload_keys::{FoundKey, PayloadKeys};
use super::rows::{self, RunColumns, SEQ_MAX};
use super::schema::{self, OpenError, SqliteFile, open_for_reading};
use super::sealing::Place;
use super::sql;
use crate::columns::{self, CorruptRow, Record};
use crate::error::StoreError;
use crate::key_query::KeyQuery;
use crate::observer::{Effort, Observer};
use crate::query::{AuditEntry, Credential, DueNotice, KeyRecord, Page, StoredRun};
use crate::subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Subscription, SubscriptionCount, SubscriptionQuery,
};

pub(super) mod lists;
pub(super) mod sessions;

/// Connections for reading, opened as they are needed and kept.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    /// What the path must stand for; none when nobody has it open.
    files: Option<OpenFiles>,
    idle: Mutex<Vec<Connection>>,
    texts: Texts,
    /// Who counts reads.
    counts: Option<Arc<dyn Observer>>,
}

/// Idle connections that are kept; more come and go with a burst.
const IDLE_MAX: usize = 4;

impl Readers {
    /// Connections to a file that another process may have open. What is sealed is opened if somebody gave the keys.
    pub(super) fn new(file: &SqliteFile<'_>) -> Result<Readers, OpenError> {
        Ok(Readers {
            path: file.path.to_owned(),
            files: None,
            idle: Mutex::default(),
            texts: Texts::with(schema::keys_to_read(file)?),
            counts: None,
        })
    }

    /// Connections to the very file that a store has open.
    pub(super) fn of_open(
        path: &Path,
        files: OpenFiles,
        keys: Option<Arc<PayloadKeys>>,
        counts: Option<Arc<dyn Observer>>,
    ) -> Readers {
        let (idle, texts) = (Mutex::default(), Texts::with(keys));
        Readers { path: path.to_owned(), files: Some(files), idle, texts, counts }
    }

    /// Runs a read on a connection that nobody else uses meanwhile. Reads are short (a page looks at a bounded number
    /// of rows), so they run where they are asked for instead of hopping to another thread and back.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&ReadSession<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let connection = self.begin()?;
        let result = read(&ReadSession { connection: &connection, texts: &self.texts });
        self.give_back(connection);
        result
    }

    /// The same for a read of one statement, which sees one instant anyway.
    pub(super) fn read_one<T>(
        &self,
        read: impl FnOnce(&ReadSession<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let connection = self.take()?;
        self.count_read();
        let result = read(&ReadSession { connection: &connection, texts: &self.texts });
        self.keep(connection);
        result
    }

    /// The run as it is stored.
    pub(super) fn load(&self, run: RunId) -> Result<StoredRun, StoreError> {
        // One of an older fold is made again from its events, which must be those of the same instant.
        match self.read_one(|reading| reading.load_current(run))? {
            Some(stored) => Ok(stored),
            None => self.read(|reading| reading.load(run)),
        }
    }

    fn take(&self) -> Result<Connection, StoreError> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match kept {
            Some(connection) => Ok(connection),
            None => self.open(),
        }
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn count_read(&self) {
        if let Some(observer) = &self.counts {
            observer.spent(Effort::ReadTransaction);
        }
    }

    /// A connection that sees one instant from its first statement on.
    fn begin(&self) -> Result<Connection, StoreError> {
        let connection = self.take()?;
        self.count_read();
        // One snapshot for everything that the read looks at.
        connection.execute_batch("BEGIN").map_err(unreadable)?;
        Ok(connection)
    }

    fn open(&self) -> Result<Connection, StoreError> {
        let mut connection = open_for_reading(&self.path).map_err(unreadable)?;
        if let Some(observer) = &self.counts {
            efforts::count(&mut connection, observer.clone(), Effort::ReadStatement).map_err(unreadable)?;
        }
        // Another file that has taken the name since does not belong to this store.
        if let Some(files) = &self.files {
            files.check_database().map_err(StoreError::unavailable)?;
        }
        Ok(connection)
    }

    /// A connection that sees this very instant, for as long as it is kept.
    pub(super) fn snapshot(&self) -> Result<Connection, StoreError> {
        let connection = self.begin()?;
        names::find(&connection, "").map_err(unreadable)?;
        Ok(connection)
    }

    /// Ends what a connection sees, and keeps it for others.
    pub(super) fn give_back(&self, connection: Connection) {
        if connection.execute_batch("COMMIT").is_ok() {
            self.keep(connection);
        }
    }

    pub(super) fn texts(&self) -> &Texts {
        &self.texts
    }
}

/// A read under way.
pub(super) struct ReadSession<'a> {
    pub(super) connection: &'a Connection,
    pub(super) texts: &'a Texts,
}

pub(super) fn unreadable(error: rusqlite::Error) -> StoreError {
    StoreError::unavailable(format!("the database cannot be read: {error}"))
}

fn failed(failure: Failure) -> StoreError {
    match failure {
        Failure::Refused(error) => error,
        Failure::Database(error) => unreadable(error),
    }
}

impl ReadSession<'_> {
    pub(super) fn load(&self, run: RunId) -> Result<StoredRun, StoreError> {
        self.columns(sql::RUN_BY_ID, run)?.stored(self.connection, self.texts)
    }

    /// The same; none when it is of an older fold.
    fn load_current(&self, run: RunId) -> Result<Option<StoredRun>, StoreError> {
        let columns = self.columns(sql::RUN_BY_ID, run)?;
        if columns.fold < FOLD_VERSION {
            return Ok(None);
        }
        columns.stored(self.connection, self.texts).map(Some)
    }

    pub(super) fn facts(&self, run: RunId) -> Result<Option<Facts>, StoreError> {
        match self.columns(sql::RUN_FACTS, run) {
            Ok(columns) => Ok(columns.facts(self.connection, self.texts)),
            Err(StoreError::NotFound { .. } | StoreError::Corrupt { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    fn columns(&self, statement: &str, run: RunId) -> Result<RunColumns, StoreError> {
        let row = self
            .connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.query_row(params![run.bytes()], RunColumns::read).optional());
        row.map_err(|error| CorruptRow::from(error).of(run))?.ok_or(StoreError::NotFound { run })
    }

    pub(super) fn links(&self, run: RunId, after: Seq, limit: usize) -> Result<Vec<Link>, StoreError> {
        let key = self.texts.key(run)?;
        let read = || -> Result<Vec<Link>, CorruptRow> {
            // The link that holds the next event may begin before it.
            let next = after.plus(1).0.min(SEQ_MAX);
            let mut statement = self.connection.prepare_cached(sql::LINKS_FROM)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
            let mut found = statement.query(params![run.bytes(), next, limit])?;
            let mut links = Vec::new();
            while let Some(row) = found.next()? {
                links.push(rows::link(run, row, self.connection, self.texts, &key)?);
            }
            links.retain(|link| link.next() > after.plus(1));
            Ok(links)
        };
        let mut links = read().map_err(|corrupt| corrupt.of(run))?;
        if links.is_empty() {
            self.number(run)?;
        }
        links.truncate(limit);
        Ok(links)
    }

    pub(super) fn blob(&self, run: RunId, digest: Digest) -> Result<Option<String>, StoreError> {
        let Some(no) = run_number(self.connection, run).map_err(unreadable)? else { return Ok(None) };
        // Without keys the file may be of an older version, which sealed nothing.
        if self.texts.keys().is_none() {
            let mut statement = self.connection.prepare_cached(sql::BLOB).map_err(unreadable)?;
            return statement
                .query_row(params![no, digest.0], |row| row.get(0))
                .optional()
                .map_err(unreadable);
        }
        let mut statement = self.connection.prepare_cached(sql::BLOB_SEALED).map_err(unreadable)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found: Option<(String, Option<Vec<u8>>)> =
            statement.query_row(params![no, digest.0], read).optional().map_err(unreadable)?;
        let Some((value, sealed)) = found else { return Ok(None) };
        let Some(sealed) = sealed else { return Ok(Some(value)) };
        let FoundKey::Here(key) = self.texts.key(run)? else { return Ok(None) };
        let place = Place { run, column: VALUE_COLUMN, row: &[&digest.0] };
        let opened = key.open(place, &sealed).map_err(|why| CorruptRow(why).of(run))?;
        let text = String::from_utf8(opened.to_vec());
        text.map(Some).map_err(|_| CorruptRow("a large value is no text".into()).of(run))
    }

    /// Whether the contents of a run are sealed, and nobody gave the keys.
    pub(super) fn is_locked(&self, run: RunId) -> Result<bool, StoreError> {
        if self.texts.keys().is_some() {
            return Ok(false);
        }
        let mut statement = self.connection.prepare_cached(sql::RUN_IS_SEALED).map_err(unreadable)?;
        let is_sealed = statement.query_row(params![run.bytes()], |row| row.get(0)).optional();
        Ok(is_sealed.map_err(unreadable)?.unwrap_or(false))
    }

    pub(super) fn definition(&self, tenant: &Tenant, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(tenant) = self.name(tenant.as_str())? else { return Ok(None) };
        let mut statement = self.connection.prepare_cached(sql::DEFINITION).map_err(unreadable)?;
        statement.query_row(params![tenant, digest.0], |row| row.get(0)).optional().map_err(unreadable)
    }

    pub(super) fn find_hold(&self, hold: HoldId) -> Result<Option<HoldRow>, StoreError> {
        let Some(found) = find_hold_of_run(self.connection, hold).map_err(failed)? else { return Ok(None) };
        match found.record {
            Some(record) => {
                let record: Record = columns::parse(&record).map_err(|corrupt| corrupt.of(hold.run))?;
                Ok(Some(record.row(hold)))
            }
            None => {
                let run = self.load(hold.run)?.row.run;
                Ok(run.hold(hold.key).map(|open| project::hold_row(&run, open)))
            }
        }
    }

    pub(super) fn find_key(&self, tenant: &Tenant, key: &str) -> Result<Option<KeyRecord>, StoreError> {
        let Some(tenant) = self.name(tenant.as_str())? else { return Ok(None) };
        let read = || -> rusqlite::Result<Option<KeyRecord>> {
            let row = |row: &rusqlite::Row<'_>| {
                Ok((Digest(row.get(0)?), row.get::<_, i64>(1)?, Seq(row.get(2)?), Timestamp(row.get(3)?)))
            };
            let found =
                self.connection.prepare_cached(sql::KEY)?.query_row(params![tenant, key], row).optional()?;
            let Some((request, run, seq, expires_at)) = found else { return Ok(None) };
            let run = super::work::run_id(self.connection, run)?;
            Ok(Some(KeyRecord { request, run, seq, expires_at }))
        };
        read().map_err(unreadable)
    }

    pub(super) fn keys_under(&self, query: &KeyQuery) -> Result<Vec<(String, KeyRecord)>, StoreError> {
        let Some(tenant) = self.name(query.tenant.as_str())? else { return Ok(Vec::new()) };
        let read = || -> rusqlite::Result<Vec<(String, KeyRecord)>> {
            let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
            let mut statement = self.connection.prepare_cached(sql::KEYS_UNDER)?;
            let rows = statement.query_map(params![tenant, query.prefix, query.end(), limit], |row| {
                let record = KeyRecord {
                    request: Digest(row.get(1)?),
                    run: RunId::from_bytes(row.get(2)?),
                    seq: Seq(row.get(3)?),
                    expires_at: Timestamp(row.get(4)?),
                };
                Ok((row.get(0)?, record))
            })?;
            rows.collect()
        };
        read().map_err(unreadable)
    }

    pub(super) fn due_notices(&self, query: &NoticeQuery) -> Result<Vec<DueNotice>, StoreError> {
        lists::due_notices(self, query).map_err(unreadable)
    }

    pub(super) fn subscription(&self, tenant: &Tenant, id: &str) -> Result<Option<Subscription>, StoreError> {
        deliveries::find(self.connection, tenant, id).map_err(unreadable)
    }

    pub(super) fn list_subscriptions(
        &self,
        query: &SubscriptionQuery,
    ) -> Result<Vec<Subscription>, StoreError> {
        deliveries::list(self.connection, query).map_err(unreadable)
    }

    pub(super) fn count_subscriptions(&self, count: &SubscriptionCount) -> Result<usize, StoreError> {
        deliveries::count(self.connection, count).map_err(unreadable)
    }

    pub(super) fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        tenants(self.connection)
    }

    pub(super) fn dead_letters(&self, query: &DeadQuery) -> Result<Page<DeadLetter>, StoreError> {
        deliveries::dead_letters(self.connection, self.texts, query).map_err(unreadable)
    }

    fn number(&self, run: RunId) -> Result<i64, StoreError> {
        run_number(self.connection, run).map_err(unreadable)?.ok_or(StoreError::NotFound { run })
    }

    /// The number of a name; none when the store has never heard it.
    pub(super) fn sealed(&self, tenant: &Tenant, name: &str) -> Result<Option<String>, StoreError> {
        let found = || -> rusqlite::Result<Option<String>> {
            let Some(tenant) = names::find(self.connection, tenant.as_str())? else { return Ok(None) };
            let mut statement = self.connection.prepare_cached(sql::SEALED)?;
            statement.query_row(params![tenant, name], |row| row.get(0)).optional()
        };
        found().map_err(unreadable)
    }

    pub(super) fn credential(&self, prefix: &str) -> Result<Option<Credential>, StoreError> {
        credentials::find(self.connection, prefix).map_err(unreadable)
    }

    pub(super) fn credentials(&self, tenant: &Tenant) -> Result<Vec<Credential>, StoreError> {
        credentials::of_tenant(self.connection, tenant).map_err(unreadable)
    }

    pub(super) fn audit_entries(
        &self,
        tenant: &Tenant,
        after: u64,
        limit: usize,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let Some(tenant) = self.name(tenant.as_str())? else { return Ok(Vec::new()) };
        let read = || -> rusqlite::Result<Vec<AuditEntry>> {
            let mut statement = self.connection.prepare_cached(sql::AUDIT_AFTER)?;
            let entry = |row: &rusqlite::Row<'_>| {
                let no = u64::try_from(row.get::<_, i64>(0)?).unwrap_or_default();
                Ok(AuditEntry {
                    no,
                    at: Timestamp(row.get(1)?),
                    entry: row.get(2)?,
                    hash: Digest(row.get(3)?),
                })
            };
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            statement.query_map(params![tenant, after, limit], entry)?.collect()
        };
        read().map_err(unreadable)
    }

    fn name(&self, text: &str) -> Result<Option<i64>, StoreError> {
        names::find(self.connection, text).map_err(unreadable)
    }
}

/// The tenants that there are.
pub(super) fn tenants(connection: &Connection) -> Result<Vec<Tenant>, StoreError> {
    let read = || -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare_cached(sql::TENANTS)?;
        statement.query_map([0], |row| row.get(0))?.collect()
    };
    // An invalid name has no runs that anybody could see.
    let mut all: Vec<Tenant> =
        read().map_err(unreadable)?.into_iter().filter_map(|name| Tenant::new(name).ok()).collect();
    all.sort_unstable();
    Ok(all)
}
