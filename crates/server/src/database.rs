//! Where a server keeps its runs: a file of SQLite, or a Postgres.
//!
//! A value that the configuration names and the commands open. A password is in the address alone, and that is never shown.

use std::fmt;
use std::path::PathBuf;

use standfast_store::postgres::PostgresOptions;

/// A database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A server that several nodes share.
    Postgres(Postgres),
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
            Database::Postgres(postgres) => match postgres.options().place() {
                Ok(place) => write!(f, "Postgres at {place}"),
                Err(_) => f.write_str("Postgres"),
            },
        }
    }
}

impl Postgres {
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
    /// The file of SQLite.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Database::Sqlite(path) => Some(path.clone()),
            Database::Postgres(_) => None,
        }
    }

    /// Whether the two are one database.
    pub(crate) fn is_same(&self, other: &Database) -> bool {
        match (self, other) {
            (Database::Sqlite(one), Database::Sqlite(other)) => one == other,
            (Database::Postgres(one), Database::Postgres(other)) => one.address == other.address,
            (Database::Sqlite(_), Database::Postgres(_)) | (Database::Postgres(_), Database::Sqlite(_)) => {
                false
            }
        }
    }
}
