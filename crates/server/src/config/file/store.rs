//! The section `session_stores`: where sessions, runs and holds live.
//!
//! How many databases a server may have, and which agent lives where, is `stores.rs`.

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;

/// Where agents keep their sessions, runs and holds.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct SessionStore {
    /// What kind of store it is.
    pub backend: Backend,
    /// For `backend: sql`: the database.
    #[garde(dive)]
    pub sql: Option<Sql>,
}

/// What kind of store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// A database.
    Sql,
    /// Nothing is kept: a restart loses its runs.
    Memory,
    /// Readable files. Not available yet.
    File,
}

/// A database.
#[derive(Debug, Clone, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Sql {
    /// Which database.
    pub driver: Driver,
    /// For `sqlite`: the path of the file, relative to the configuration file. It is made when it is missing.
    #[garde(length(min = 1))]
    pub database: String,
}

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// SQLite, compiled in.
    Sqlite,
    /// Postgres. Not available yet.
    Postgres,
}
