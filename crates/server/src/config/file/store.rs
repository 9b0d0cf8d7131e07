//! The section `session_stores`: where sessions, runs and holds live.
//!
//! How many databases a server may have, and which agent lives where, is `stores.rs`.

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;

use super::values::Secret;

/// Where agents keep their sessions, runs and holds.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct SessionStore {
    /// The kind of store.
    pub backend: Backend,
    /// For `backend: sql`: the database.
    #[garde(dive)]
    pub sql: Option<Sql>,
    /// For `backend: file`: the directory.
    #[garde(dive)]
    pub file: Option<Files>,
    /// For `backend: sql`: a directory, relative to the configuration file, in which the server writes readable copies
    /// of the calls of async tools and of the sessions. They cannot be imported.
    #[garde(inner(length(min = 1)))]
    pub mirror: Option<String>,
}

/// The kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// A database.
    Sql,
    /// In memory: a restart loses its runs.
    Memory,
    /// Readable files below one directory, for a server that is alone.
    File,
}

/// Readable files.
#[derive(Debug, Clone, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Files {
    /// The directory, relative to the configuration file. It is created if it is missing, and belongs to one server.
    #[garde(length(min = 1))]
    pub directory: String,
    /// The URL of a Redis that indexes the calls of async tools, such as `redis://:password@localhost:6379/0`. It is
    /// optional: without it, or while it is away, lookups read the files. Write `${NAME}` and set the variable, to keep the
    /// password out of the file.
    pub redis: Option<Secret>,
}

/// A database.
#[derive(Debug, Clone, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Sql {
    /// Which database.
    pub driver: Driver,
    /// For `sqlite`: the path of the file, relative to the configuration file. It is created if it is missing. For
    /// `postgres` without `url`: the name of an existing database.
    #[garde(inner(length(min = 1)))]
    pub database: Option<String>,
    /// For `postgres`: the connection URL, such as `postgres://user:password@host:5432/database?sslmode=require`. Write
    /// `${NAME}` and set the variable, to keep the password out of the file. Replaces `host`, `port`, `database`,
    /// `user` and `password`.
    pub url: Option<Secret>,
    /// For `postgres`: the host, or the directory of its socket.
    #[garde(inner(length(min = 1)))]
    #[schemars(extend("default" = "localhost"))]
    pub host: Option<String>,
    /// For `postgres`: the port.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 5432))]
    pub port: Option<u16>,
    /// For `postgres`: the user. Default: the user that the server runs as.
    #[garde(inner(length(min = 1)))]
    pub user: Option<String>,
    /// For `postgres`: the password. Write `${NAME}` and set the variable.
    pub password: Option<Secret>,
    /// For `postgres`: whether the connection is encrypted.
    #[schemars(extend("default" = "disable"))]
    pub ssl_mode: Option<SslMode>,
    /// For `postgres`: connections of this node for appends. More connections mean smaller group commits.
    #[garde(inner(range(min = 1, max = 64)))]
    #[schemars(extend("default" = 2))]
    pub append_connections: Option<u16>,
    /// For `postgres`: connections of this node for everything else. Three more are used in addition.
    #[garde(inner(range(min = 1, max = 256)))]
    #[schemars(extend("default" = 4))]
    pub read_connections: Option<u16>,
}

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// SQLite, compiled in: one server.
    Sqlite,
    /// Postgres: any number of servers share it.
    Postgres,
}

/// Whether a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// It is not.
    Disable,
    /// It is, and the certificate of the database is verified; `SSL_CERT_FILE` names other authorities.
    Require,
    /// The same.
    VerifyFull,
}
