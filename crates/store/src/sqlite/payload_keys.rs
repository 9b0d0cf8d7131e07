//! The keys of runs: a small file beside the database, in which each is wrapped by a key that is in neither.
//!
//! The two files belong apart: a copy of the database is of no use without this file, and what this file forgets is
//! unreadable in every copy of the database, however old. So erasing a run destroys its key, and what stays here of it is its id.
//! A key is durable before the first commit that has anything sealed with it. Wrapping keys are changed here alone: payloads stay
//! as they are. Knows nothing of what is sealed (`sealing.rs`).

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};
use standfast_core::id::RunId;

use super::files;
use super::sealing::{KeyNo, Random, RunKey, RunSecret, WrappingKey};
use crate::error::StoreError;

/// How payloads of a database are sealed.
#[derive(Clone)]
pub struct PayloadSealer {
    /// The file of the keys of runs; created with the database.
    pub file: PathBuf,
    /// The keys that wrap them: the first wraps new ones, each opens what it wrapped.
    pub keys: Arc<[WrappingKey]>,
    /// Where randomness comes from.
    pub random: Random,
}

impl fmt::Debug for PayloadSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadSealer")
            .field("file", &self.file)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// How many keys of runs are wrapped by which key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKeys {
    /// The id of the wrapping key.
    pub wrapped_by: String,
    /// Keys of runs.
    pub runs: u64,
}

/// What names a file of keys; the database has it too.
pub(super) type RingId = [u8; 16];

/// Keys that are kept in memory; past it the map starts over instead of growing without bound.
const KNOWN_MAX: usize = 20_000;

/// Keys that are wrapped anew in one transaction.
const STEP: i64 = 500;

/// How long a statement waits for another process that has the file locked.
const LOCK_WAIT: Duration = Duration::from_secs(5);

const SCHEMA: &str = "BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS ring (id BLOB NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS wrapping_keys (id TEXT PRIMARY KEY, sealed BLOB NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS run_keys (
        run        BLOB PRIMARY KEY,
        tenant     TEXT NOT NULL,
        no         BLOB,            -- NULL when the run was erased
        wrapped_by TEXT,
        wrapped    BLOB
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS run_keys_by_wrapping_key ON run_keys (wrapped_by) WHERE wrapped_by IS NOT NULL;
    COMMIT;";
const RING: &str = "SELECT id FROM ring";
const RING_ADD: &str = "INSERT INTO ring (id) VALUES (?1)";
const CHECK: &str = "SELECT sealed FROM wrapping_keys WHERE id = ?1";
const CHECK_ADD: &str = "INSERT INTO wrapping_keys (id, sealed) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
const COUNTS: &str =
    "SELECT wrapped_by, count(*) FROM run_keys WHERE wrapped_by IS NOT NULL GROUP BY wrapped_by ORDER BY 1";
const KEY: &str = "SELECT tenant, no, wrapped_by, wrapped FROM run_keys WHERE run = ?1";
const KEY_ADD: &str = "INSERT INTO run_keys (run, tenant, no, wrapped_by, wrapped) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO NOTHING";
const KEY_DESTROY: &str = "UPDATE run_keys SET no = NULL, wrapped_by = NULL, wrapped = NULL WHERE run = ?1";
const KEYS_OF_OTHERS: &str = "SELECT run, tenant, no, wrapped_by, wrapped FROM run_keys \
     WHERE wrapped_by IS NOT NULL AND wrapped_by <> ?1 AND run > ?2 ORDER BY run LIMIT ?3";
const KEY_REWRAP: &str =
    "UPDATE run_keys SET wrapped_by = ?2, wrapped = ?3 WHERE run = ?1 AND wrapped_by IS NOT NULL";

/// What is known of the key of a run.
#[derive(Debug, Clone)]
pub(super) enum FoundKey {
    /// It is here.
    Here(Arc<RunKey>),
    /// It was destroyed, with the contents of the run.
    Destroyed,
    /// There never was one.
    Never,
}

/// A new key that is not in the file yet.
struct PendingKey {
    key: Arc<RunKey>,
    no: KeyNo,
    wrapped: Vec<u8>,
}

/// The keys of the runs of one database.
pub(super) struct PayloadKeys {
    sealing: PayloadSealer,
    ring: RingId,
    file: Mutex<Connection>,
    known: Mutex<HashMap<RunId, Arc<RunKey>>>,
    pending: Mutex<HashMap<RunId, PendingKey>>,
}

impl fmt::Debug for PayloadKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadKeys").field("sealing", &self.sealing).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PayloadKeys {
    /// Opens the file of keys for a database that names this one, and creates it for a database that names none. Says why not in a sentence.
    pub(super) fn open(sealing: &PayloadSealer, named: Option<RingId>) -> Result<PayloadKeys, String> {
        let path = sealing.file.as_path();
        if named.is_some() && !path.exists() {
            return Err(missing(path));
        }
        files::prepare(path).map_err(|error| error.to_string())?;
        let connect = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(LOCK_WAIT)?;
            // What is destroyed is overwritten, and not only unlinked.
            connection.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; \
                 PRAGMA temp_store = MEMORY;",
            )?;
            connection.execute_batch(SCHEMA)?;
            Ok(connection)
        };
        let connection = connect().map_err(|error| unusable(path, &error))?;
        let keys = PayloadKeys::of(sealing, connection, named)?;
        keys.write_check().map_err(|error| unusable(path, &error))?;
        Ok(keys)
    }

    /// The same, to read alone, beside the server that has the database.
    pub(super) fn open_to_read(sealing: &PayloadSealer, named: RingId) -> Result<PayloadKeys, String> {
        let path = sealing.file.as_path();
        if !path.exists() {
            return Err(missing(path));
        }
        let connect = || -> rusqlite::Result<Connection> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(LOCK_WAIT)?;
            Ok(connection)
        };
        let connection = connect().map_err(|error| unusable(path, &error))?;
        PayloadKeys::of(sealing, connection, Some(named))
    }

    fn of(
        sealing: &PayloadSealer,
        connection: Connection,
        named: Option<RingId>,
    ) -> Result<PayloadKeys, String> {
        let path = sealing.file.as_path();
        let failed = |error: rusqlite::Error| unusable(path, &error);
        let found: Option<RingId> =
            connection.query_row(RING, [], |row| row.get(0)).optional().map_err(failed)?;
        let counts = counts(&connection).map_err(failed)?;
        let ring = match (found, named) {
            (Some(found), Some(named)) if found == named => found,
            // A start that ended before the database named its file.
            (Some(found), None) if counts.is_empty() => found,
            (None, None) => {
                let mut ring = RingId::default();
                ring.iter_mut().zip((sealing.random)()).for_each(|(to, from)| *to = from);
                connection.execute(RING_ADD, params![ring]).map_err(failed)?;
                ring
            }
            (Some(_) | None, _) => {
                return Err(format!(
                    "{} has the payload keys of another database; put the file back that belongs to this one, or name \
                     another one in server.encryption.key_file",
                    path.display()
                ));
            }
        };
        for key in sealing.keys.iter() {
            let check: Option<Vec<u8>> = connection
                .query_row(CHECK, params![key.id()], |row| row.get(0))
                .optional()
                .map_err(failed)?;
            if check.is_some_and(|check| !key.is_that_of(&check)) {
                return Err(format!(
                    "the key {id} of server.encryption.keys is not the one under which payloads were sealed as {id}; \
                     put that key back, or give the new one an id of its own",
                    id = key.id()
                ));
            }
        }
        if let Some(unknown) = counts.iter().find(|count| sealing.of_id(&count.wrapped_by).is_none()) {
            return Err(format!(
                "payloads of {} runs are sealed under the key {id}, which server.encryption.keys does not have; add it \
                 again, and before it is removed run standfast encryption reseal",
                unknown.runs,
                id = unknown.wrapped_by
            ));
        }
        Ok(PayloadKeys {
            sealing: sealing.clone(),
            ring,
            file: Mutex::new(connection),
            known: Mutex::default(),
            pending: Mutex::default(),
        })
    }

    fn write_check(&self) -> rusqlite::Result<()> {
        let Some(first) = self.sealing.keys.first() else { return Ok(()) };
        let file = locked(&self.file);
        let known: Option<Vec<u8>> =
            file.query_row(CHECK, params![first.id()], |row| row.get(0)).optional()?;
        if known.is_none() {
            file.execute(CHECK_ADD, params![first.id(), first.check(self.sealing.random)])?;
        }
        Ok(())
    }

    pub(super) fn ring(&self) -> RingId {
        self.ring
    }

    pub(super) fn random(&self) -> Random {
        self.sealing.random
    }

    /// The id of the key that wraps new keys.
    pub(super) fn first(&self) -> &str {
        self.sealing.keys.first().map_or("", WrappingKey::id)
    }

    /// The file, for people.
    pub(super) fn path(&self) -> &Path {
        &self.sealing.file
    }

    /// The key of a run, if it has one.
    pub(super) fn find(&self, run: RunId) -> Result<FoundKey, StoreError> {
        if let Some(key) = locked(&self.known).get(&run) {
            return Ok(FoundKey::Here(key.clone()));
        }
        if let Some(pending) = locked(&self.pending).get(&run) {
            return Ok(FoundKey::Here(pending.key.clone()));
        }
        self.read(run)
    }

    fn read(&self, run: RunId) -> Result<FoundKey, StoreError> {
        let unavailable = |error: rusqlite::Error| StoreError::unavailable(unusable(self.path(), &error));
        let found = {
            let file = locked(&self.file);
            let mut statement = file.prepare_cached(KEY).map_err(unavailable)?;
            statement.query_row(params![run.bytes()], WrappedKey::read).optional().map_err(unavailable)?
        };
        let Some(wrapped) = found else { return Ok(FoundKey::Never) };
        let Some(wrapped) = wrapped else { return Ok(FoundKey::Destroyed) };
        let secret = self.sealing.unwrap(run, &wrapped).ok_or_else(|| {
            let (id, path) = (&wrapped.wrapped_by, self.path().display());
            StoreError::unavailable(format!(
                "the payload key of run {run} in {path} cannot be opened with the key {id}: it was changed"
            ))
        })?;
        let key = Arc::new(RunKey::from(secret));
        self.remember(run, key.clone());
        Ok(FoundKey::Here(key))
    }

    fn remember(&self, run: RunId, key: Arc<RunKey>) {
        let mut known = locked(&self.known);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(run, key);
    }

    /// The key to seal the payloads of a run with: made when it has none. It is in the file before anything is that was sealed
    /// with it, see [`PayloadKeys::write_pending`]. None when it was destroyed.
    pub(super) fn to_seal(&self, run: RunId, tenant: &str) -> Result<Option<Arc<RunKey>>, StoreError> {
        if let Some(key) = locked(&self.known).get(&run).filter(|key| key.tenant() == tenant) {
            return Ok(Some(key.clone()));
        }
        // Until this is given back nobody else makes one, and none that was made moves into the file.
        let mut pending = locked(&self.pending);
        if let Some(made) = pending.get(&run) {
            return Ok(Some(made.key.clone()));
        }
        match self.read(run)? {
            FoundKey::Here(key) if key.tenant() == tenant => Ok(Some(key)),
            FoundKey::Here(_) => Err(StoreError::unavailable(format!(
                "the payload key of run {run} is that of another tenant"
            ))),
            FoundKey::Destroyed => Ok(None),
            FoundKey::Never => {
                let Some(first) = self.sealing.keys.first() else {
                    return Err(StoreError::unavailable("server.encryption.keys is empty"));
                };
                let secret = RunSecret::new(tenant, self.sealing.random);
                let (no, wrapped) = (secret.no, first.wrap(run, &secret, self.sealing.random));
                let key = Arc::new(RunKey::from(secret));
                pending.insert(run, PendingKey { key: key.clone(), no, wrapped });
                Ok(Some(key))
            }
        }
    }

    /// Writes the keys that are not in the file yet: one sync for all of them, and none when there are none.
    pub(super) fn write_pending(&self) -> rusqlite::Result<()> {
        let mut pending = locked(&self.pending);
        if pending.is_empty() {
            return Ok(());
        }
        let mut file = locked(&self.file);
        let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (run, new) in pending.iter() {
            let row = params![run.bytes(), new.key.tenant(), new.no, self.first(), new.wrapped];
            transaction.prepare_cached(KEY_ADD)?.execute(row)?;
        }
        transaction.commit()?;
        drop(file);
        for (run, new) in pending.drain() {
            self.remember(run, new.key);
        }
        Ok(())
    }

    /// Destroys the key of a run: what was sealed with it is unreadable from now on, wherever there is a copy of it.
    pub(super) fn destroy(&self, run: RunId) -> rusqlite::Result<()> {
        locked(&self.pending).remove(&run);
        locked(&self.known).remove(&run);
        let file = locked(&self.file);
        file.execute(KEY_DESTROY, params![run.bytes()])?;
        // Nor must it live on in the write-ahead log.
        file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }
}

impl PayloadSealer {
    fn of_id(&self, id: &str) -> Option<&WrappingKey> {
        self.keys.iter().find(|key| key.id() == id)
    }

    fn unwrap(&self, run: RunId, key: &WrappedKey) -> Option<RunSecret> {
        self.of_id(&key.wrapped_by)?.unwrap(run, &key.tenant, key.no, &key.wrapped)
    }
}

/// The key of a run as the file has it.
struct WrappedKey {
    tenant: String,
    no: KeyNo,
    wrapped_by: String,
    wrapped: Vec<u8>,
}

impl WrappedKey {
    /// None of one that was destroyed.
    fn read(row: &Row<'_>) -> rusqlite::Result<Option<WrappedKey>> {
        let (no, wrapped_by, wrapped) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let (Some(no), Some(wrapped_by), Some(wrapped)) = (no, wrapped_by, wrapped) else { return Ok(None) };
        Ok(Some(WrappedKey { tenant: row.get(0)?, no, wrapped_by, wrapped }))
    }
}

/// What the keys of runs in a file are wrapped by. The server may be running.
pub fn wrapped_keys(file: &Path) -> Result<Vec<WrappedKeys>, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = || -> rusqlite::Result<Vec<WrappedKeys>> {
        let connection = Connection::open_with_flags(file, flags)?;
        connection.busy_timeout(LOCK_WAIT)?;
        counts(&connection)
    };
    read().map_err(|error| unusable(file, &error))
}

/// Wraps the keys of all runs by the first key, a few at a time: the server may be running, and what was done is done if this ends
/// in between. `progress` hears how many were wrapped anew. Answers how many those were.
pub fn reseal(sealing: &PayloadSealer, mut progress: impl FnMut(u64)) -> Result<u64, String> {
    let path = sealing.file.as_path();
    let Some(first) = sealing.keys.first() else { return Err("server.encryption.keys is empty".to_owned()) };
    if !path.exists() {
        return Err(missing(path));
    }
    let named = ring_of(path).map_err(|error| unusable(path, &error))?;
    let keys = PayloadKeys::open(sealing, Some(named))?;
    let mut done = 0;
    let mut after: Vec<u8> = Vec::new();
    loop {
        let mut file = locked(&keys.file);
        let step = resealed_step(&mut file, sealing, first, &after)?;
        drop(file);
        let Some((last, wrapped)) = step else { break };
        (after, done) = (last, done + wrapped);
        progress(done);
    }
    // The old wrapping must not live on in the write-ahead log. Where a server reads meanwhile, it goes with the next one.
    let truncated = locked(&keys.file).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    truncated.map_err(|error| unusable(path, &error))?;
    Ok(done)
}

/// Wraps some keys anew, in one transaction; none when there are no more. The last of them, and how many.
fn resealed_step(
    file: &mut Connection,
    sealing: &PayloadSealer,
    first: &WrappingKey,
    after: &[u8],
) -> Result<Option<(Vec<u8>, u64)>, String> {
    let failed = |error: rusqlite::Error| unusable(&sealing.file, &error);
    let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = keys_of_others(&transaction, first, after).map_err(failed)?;
    let Some((last, _)) = found.last() else { return Ok(None) };
    let (last, count) = (last.to_vec(), found.len() as u64);
    for (id, key) in found {
        let run = RunId::from_bytes(id);
        let secret = sealing.unwrap(run, &key).ok_or_else(|| {
            let by = &key.wrapped_by;
            format!("the payload key of run {run} cannot be opened with the key {by}: it was changed")
        })?;
        let wrapped = first.wrap(run, &secret, sealing.random);
        let row = params![run.bytes(), first.id(), wrapped];
        transaction.execute(KEY_REWRAP, row).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    Ok(Some((last, count)))
}

/// The next keys that are wrapped by another one than the first.
fn keys_of_others(
    connection: &Connection,
    first: &WrappingKey,
    after: &[u8],
) -> rusqlite::Result<Vec<([u8; 16], WrappedKey)>> {
    let mut statement = connection.prepare_cached(KEYS_OF_OTHERS)?;
    let read = |row: &Row<'_>| {
        let (tenant, no, wrapped_by, wrapped) = (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
        Ok((row.get(0)?, WrappedKey { tenant, no, wrapped_by, wrapped }))
    };
    statement.query_map(params![first.id(), after, STEP], read)?.collect()
}

fn ring_of(path: &Path) -> rusqlite::Result<RingId> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)?.query_row(RING, [], |row| row.get(0))
}

fn counts(connection: &Connection) -> rusqlite::Result<Vec<WrappedKeys>> {
    let count = |row: &Row<'_>| Ok(WrappedKeys { wrapped_by: row.get(0)?, runs: row.get(1)? });
    connection.prepare(COUNTS)?.query_map([], count)?.collect()
}

fn missing(path: &Path) -> String {
    format!(
        "its payloads are sealed, and the file with their keys is missing: {}; restore it, or name it in \
         server.encryption.key_file",
        path.display()
    )
}

fn unusable(path: &Path, error: &rusqlite::Error) -> String {
    format!("the payload keys in {} cannot be used: {error}", path.display())
}
