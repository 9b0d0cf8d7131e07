//! Where a server keeps its runs: a file of SQLite, a folder of readable files, or a Postgres.
//!
//! A value that the configuration names and the commands open. A password is in the address alone, and that is never shown.

use std::fmt;
use std::path::PathBuf;

use standfast_core::time::Millis;
use standfast_store::file::FileOptions;
use standfast_store::postgres::PostgresOptions;

/// A database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A folder of readable files.
    Files(Files),
    /// A server that several nodes share.
    Postgres(Postgres),
}

/// A folder of readable files.
#[derive(Clone, PartialEq, Eq)]
pub struct Files {
    /// The folder.
    pub path: PathBuf,
    /// How long the files of settled calls stay.
    pub(crate) keep_settled: Option<Millis>,
    /// The address of the Redis that indexes them, if one does; it may have a password in it.
    pub(crate) redis: Option<String>,
}

impl fmt::Debug for Files {
    /// Without the address of the Redis.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Files {
    /// A folder of files, as it is opened without a configuration.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Files {
        Files { path: path.into(), keep_settled: None, redis: None }
    }

    /// What the store is opened with.
    #[must_use]
    pub fn options(&self) -> FileOptions {
        FileOptions {
            keep_settled: self.keep_settled,
            redis: self.redis.clone(),
            ..FileOptions::at(&self.path)
        }
    }
}

/// A Postgres.
#[derive(Clone, PartialEq, Eq)]
pub struct Postgres {
    /// The key that names it, such as `session_stores.main.sql`.
    pub setting: String,
    pub(crate) address: String,
    pub(crate) appends: Option<u16>,
    pub(crate) reads: Option<u16>,
}

impl fmt::Debug for Postgres {
    /// Without the address: it has a password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("setting", &self.setting).finish_non_exhaustive()
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite(path) => write!(f, "{}", path.display()),
            Database::Files(files) => write!(f, "{}", files.path.display()),
            Database::Postgres(postgres) => match postgres.options().place() {
                Ok(place) => write!(f, "Postgres at {place}"),
                Err(_) => f.write_str("Postgres"),
            },
        }
    }
}

impl Postgres {
    /// A Postgres by its address; `setting` is what named it.
    #[must_use]
    pub fn at(setting: &str, address: String) -> Postgres {
        Postgres { setting: setting.to_owned(), address, appends: None, reads: None }
    }

    /// What the store is opened with.
    #[must_use]
    pub fn options(&self) -> PostgresOptions {
        let usual = PostgresOptions::at(&*self.address);
        PostgresOptions {
            writers: self.appends.map_or(usual.writers, usize::from),
            readers: self.reads.map_or(usual.readers, usize::from),
            ..usual
        }
    }
}

impl Database {
    /// The file of SQLite, or the folder of files.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Database::Sqlite(path) => Some(path.clone()),
            Database::Files(files) => Some(files.path.clone()),
            Database::Postgres(_) => None,
        }
    }

    /// Whether the two are one database.
    pub(crate) fn is_same(&self, other: &Database) -> bool {
        match (self, other) {
            (Database::Sqlite(one), Database::Sqlite(other)) => one == other,
            (Database::Postgres(one), Database::Postgres(other)) => one.address == other.address,
            (Database::Files(one), Database::Files(other)) => one.path == other.path,
            (Database::Sqlite(_) | Database::Postgres(_) | Database::Files(_), _) => false,
        }
    }
}
