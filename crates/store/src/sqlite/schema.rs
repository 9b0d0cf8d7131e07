//! The file: opening it, its settings, its schema.
//!
//! Refuses what could lose data: a schema newer than this program, a second store on the same file, a SQLite library
//! with known corruption bugs.
//!
//! Migrations are numbered and only ever go up. A change has the same number in every backend. The missing numbers (4,
//! 7, 8, 10 to 12, 14, 19, 20; in Postgres also 17 and 27, in SQLite 28) were set aside for changes that in the end needed no table; none was ever applied, so gaps do no
//! harm, and a number is not used again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use standfast_core::id::RunId;

use super::files::{self, OpenFiles};
use super::payload_keys::{FoundKey, PayloadKeys, PayloadSealer, RingId};
use super::{SqliteOptions, audit, deadlines, sql};
use crate::row_audit::RowAudit;

mod embedded {
    refinery::embed_migrations!("src/sqlite/migrations");
}

/// 3.51.3 fixed a corruption in WAL resets.
const OLDEST_LIBRARY: i32 = 3_051_003;

/// The schema since which the audit speaks of rows beside the runs.
const ROW_AUDIT: i64 = 22;

/// The schema since which it speaks of sealed documents too.
const SEALED_AUDIT: i64 = 26;

/// How long a statement waits for another process's lock on the file.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// An open file, and the lock that keeps other stores away from it.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) connection: Connection,
    pub(super) files: OpenFiles,
    pub(super) lock: File,
}

/// A file to read from, and how its payloads are sealed.
#[derive(Debug, Clone)]
pub struct SqliteFile<'a> {
    /// The file.
    pub path: &'a Path,
    /// The keys of its payloads; without them those that are sealed stay closed.
    pub sealing: Option<PayloadSealer>,
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for SqliteFile<'a> {
    fn from(path: &'a P) -> SqliteFile<'a> {
        SqliteFile { path: path.as_ref(), sealing: None }
    }
}

/// Why a file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another store has it.
    #[error(
        "{path} is in use by another Standfast server; stop that one, or give this one a data directory of its own"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a newer version.
    #[error(
        "{path} has schema {found}, but this version of Standfast knows only {known}; \
         upgrade Standfast, or open a backup from before the upgrade"
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema that this program knows.
        known: i64,
    },
    /// The library has known bugs.
    #[error("SQLite {found} has known corruption bugs; 3.51.3 or newer is needed")]
    OldLibrary {
        /// The library's version.
        found: String,
    },
    /// The file cannot be used.
    #[error("cannot open {path}: {why}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
}

impl OpenError {
    pub(super) fn unusable(path: &Path, why: impl ToString) -> OpenError {
        OpenError::Unusable { path: path.to_owned(), why: why.to_string() }
    }
}

pub(super) fn open(options: &SqliteOptions) -> Result<OpenFile, OpenError> {
    let path = options.path.as_path();
    if rusqlite::version_number() < OLDEST_LIBRARY {
        return Err(OpenError::OldLibrary { found: rusqlite::version().to_owned() });
    }
    refuse_directory(path)?;
    files::prepare(path)?;
    let lock = files::lock(path)?;
    files::tighten(path, options.observer.as_deref());
    let mut connection = Connection::open(path).map_err(|error| OpenError::unusable(path, error))?;
    configure(&connection, options).map_err(|error| OpenError::unusable(path, error))?;
    write_ahead(&connection).map_err(|why| OpenError::unusable(path, why))?;
    refuse_newer(&connection, path)?;
    migrate(&mut connection).map_err(|why| OpenError::unusable(path, why))?;
    audit::seal_entries(&mut connection).map_err(|why| OpenError::unusable(path, why))?;
    audit::adopt_rows(&mut connection).map_err(|why| OpenError::unusable(path, why))?;
    deadlines::fill_in(&mut connection).map_err(|why| OpenError::unusable(path, why))?;
    let files = OpenFiles::at(path).map_err(|error| OpenError::unusable(path, error))?;
    Ok(OpenFile { connection, files, lock })
}

/// The newest runs that are looked at: a file of keys from before them is refused.
const LOOKED_AT: i64 = 500;

/// The keys of the payloads of a database, if they are sealed, or are to be from now on.
pub(super) fn payload_keys(
    connection: &Connection,
    options: &SqliteOptions,
) -> Result<Option<Arc<PayloadKeys>>, String> {
    let said = |error: rusqlite::Error| error.to_string();
    let named = named_keys(connection).map_err(said)?;
    let Some(sealing) = &options.sealing else {
        return match named {
            Some((_, wrapped_by)) => Err(without_keys(&wrapped_by)),
            None => Ok(None),
        };
    };
    let keys = PayloadKeys::open(sealing, named.map(|(ring, _)| ring))?;
    let mut statement = connection.prepare(sql::NEWEST_SEALED).map_err(said)?;
    let mut newest = statement.query(params![i64::MAX, LOOKED_AT]).map_err(said)?;
    while let Some(row) = newest.next().map_err(said)? {
        let (run, is_sealed) = (row.get(0).map(RunId::from_bytes).map_err(said)?, row.get(1).map_err(said)?);
        if is_sealed && matches!(keys.find(run).map_err(|error| error.to_string())?, FoundKey::Never) {
            return Err(format!(
                "{} is older than the database: it has no key for run {run}; put back the one that was with this database",
                keys.path().display()
            ));
        }
    }
    connection.execute(sql::PAYLOAD_KEYS_SET, params![keys.ring(), keys.first()]).map_err(said)?;
    Ok(Some(Arc::new(keys)))
}

/// Which file has the keys of a database, and what wraps them.
fn named_keys(connection: &Connection) -> rusqlite::Result<Option<(RingId, String)>> {
    let has_table = "SELECT count(*) FROM sqlite_master WHERE name = 'payload_keys'";
    let is_there: i64 = connection.query_row(has_table, [], |row| row.get(0))?;
    if is_there == 0 {
        return Ok(None);
    }
    connection.query_row(sql::PAYLOAD_KEYS, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

fn without_keys(wrapped_by: &str) -> String {
    format!(
        "its payloads are sealed, and there is no server.encryption; configure it with the key {wrapped_by}, and pass \
         the configuration with --config"
    )
}

/// The keys to read a file with: those that were given. A file without sealed payloads needs none.
pub(super) fn keys_to_read(file: &SqliteFile<'_>) -> Result<Option<Arc<PayloadKeys>>, OpenError> {
    let Some(sealing) = &file.sealing else { return Ok(None) };
    let unusable = |why: String| OpenError::unusable(file.path, why);
    let connection = open_for_reading(file.path).map_err(|error| unusable(error.to_string()))?;
    match named_keys(&connection).map_err(|error| unusable(error.to_string()))? {
        Some((ring, _)) => {
            PayloadKeys::open_to_read(sealing, ring).map(|keys| Some(Arc::new(keys))).map_err(unusable)
        }
        None => Ok(None),
    }
}

/// Whether the payloads of a file are sealed.
pub(super) fn is_sealed(file: &SqliteFile<'_>) -> Result<bool, OpenError> {
    let unusable = |error: rusqlite::Error| OpenError::unusable(file.path, error);
    let connection = open_for_reading(file.path).map_err(unusable)?;
    named_keys(&connection).map(|named| named.is_some()).map_err(unusable)
}

/// Refuses a file whose payloads are sealed when nobody gave the keys.
pub(super) fn refuse_locked(file: &SqliteFile<'_>) -> Result<(), OpenError> {
    let unusable = |why: String| OpenError::unusable(file.path, why);
    let connection = open_for_reading(file.path).map_err(|error| unusable(error.to_string()))?;
    match named_keys(&connection).map_err(|error| unusable(error.to_string()))? {
        Some((_, wrapped_by)) if file.sealing.is_none() => Err(unusable(without_keys(&wrapped_by))),
        Some(_) | None => Ok(()),
    }
}

/// SQLite says "disk I/O error" of a directory.
fn refuse_directory(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        Err(OpenError::unusable(path, "it is a directory; name the database file in it"))
    } else {
        Ok(())
    }
}

/// A connection that cannot write.
pub(super) fn open_for_reading(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_WAIT)?;
    keep_plans(&connection)?;
    connection.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA query_only = 1;")?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// Refuses a file that is not there, is not a database of ours, or is newer than this program.
pub(super) fn check_readable(path: &Path) -> Result<(), OpenError> {
    refuse_directory(path)?;
    let connection = open_for_reading(path).map_err(|error| OpenError::unusable(path, error))?;
    match newest_migration(&connection, path)? {
        Some(_) => refuse_newer(&connection, path),
        None => Err(OpenError::unusable(path, "it is not a Standfast database")),
    }
}

/// Which rows beside the runs the audit of a file speaks of: keys, subscriptions and sessions since schema 22, sealed
/// documents since 26.
pub(super) fn row_audit(path: &Path) -> Result<RowAudit, OpenError> {
    let connection = open_for_reading(path).map_err(|error| OpenError::unusable(path, error))?;
    let found = newest_migration(&connection, path)?.unwrap_or_default();
    Ok(if found >= SEALED_AUDIT {
        RowAudit::All
    } else if found >= ROW_AUDIT {
        RowAudit::AllButSealed
    } else {
        RowAudit::None
    })
}

/// A connection for one short change beside a server that may be running. It has no lock on the file, so it never
/// changes the schema and never moves pages out of the WAL: both are the server's, which must see a sync that fails.
/// A file that is missing or of an older schema is brought up to date first, for which the lock is taken.
pub(super) fn open_beside(path: &Path) -> Result<Connection, OpenError> {
    let options = SqliteOptions::at(path);
    if !path.exists() || !is_current(path)? {
        drop(open(&options)?);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let beside = || -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        configure(&connection, &options)?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok(connection)
    };
    beside().map_err(|error| OpenError::unusable(path, error))
}

/// Whether the file has the schema of this program; a newer one is refused.
fn is_current(path: &Path) -> Result<bool, OpenError> {
    refuse_directory(path)?;
    let connection = open_for_reading(path).map_err(|error| OpenError::unusable(path, error))?;
    refuse_newer(&connection, path)?;
    Ok(newest_migration(&connection, path)? == Some(newest_known()))
}

/// A statement keeps its plan whatever it is used with. Otherwise SQLite prepares cached statements again for other
/// values, which took a fifth of the time of an append.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

fn configure(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    // After a failed sync nothing more may be written, not even what a close would move into the file. A clean end
    // switches it back.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(LOCK_WAIT)?;
    keep_plans(connection)?;
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192;")?;
    if let Some(pages) = options.max_pages {
        connection.pragma_update(None, "max_page_count", pages)?;
    }
    connection.set_prepared_statement_cache_capacity(128);
    Ok(())
}

/// Switches to the WAL. The statement says which mode it will be before it has written that, so it is run to its end.
fn write_ahead(connection: &Connection) -> Result<(), String> {
    let switch = || -> rusqlite::Result<String> {
        let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
        let mut rows = statement.query([])?;
        let mut mode = String::new();
        while let Some(row) = rows.next()? {
            mode = row.get(0)?;
        }
        Ok(mode)
    };
    match switch().map_err(|error| error.to_string())?.as_str() {
        "wal" => Ok(()),
        other => Err(format!("it cannot be switched to write-ahead logging and stays in mode {other}")),
    }
}

fn refuse_newer(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let Some(found) = newest_migration(connection, path)? else { return Ok(()) };
    let known = newest_known();
    if found > known { Err(OpenError::NewerSchema { path: path.to_owned(), found, known }) } else { Ok(()) }
}

/// The number of the newest migration that this program has.
fn newest_known() -> i64 {
    let runner = embedded::migrations::runner();
    runner.get_migrations().iter().map(refinery::Migration::version).max().map_or(0, i64::from)
}

/// The number of the newest migration in the file; none when it has no schema of ours yet.
fn newest_migration(connection: &Connection, path: &Path) -> Result<Option<i64>, OpenError> {
    let read = || -> rusqlite::Result<Option<i64>> {
        let has_history = "SELECT count(*) FROM sqlite_master WHERE name = 'refinery_schema_history'";
        let is_there: i64 = connection.query_row(has_history, [], |row| row.get(0))?;
        match is_there {
            0 => Ok(None),
            _ => {
                connection.query_row("SELECT max(version) FROM refinery_schema_history", [], |row| row.get(0))
            }
        }
    };
    read().map_err(|error| OpenError::unusable(path, error))
}

fn migrate(connection: &mut Connection) -> Result<(), String> {
    // All in one transaction: a crash between a migration and the record of it would lock everybody out.
    embedded::migrations::runner()
        .set_grouped(true)
        .run(connection)
        .map(|_| ())
        .map_err(|error| error.to_string())
}
