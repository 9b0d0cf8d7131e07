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
    /// What kind of store it is.
    pub backend: Backend,
    /// For `backend: sql`: the database.
    #[garde(dive)]
    pub sql: Option<Sql>,
    /// For `backend: sql`: a directory, relative to the configuration file, in which the server keeps readable copies of
    /// the calls of async tools and of the conversations. Nothing reads them back.
    #[garde(inner(length(min = 1)))]
    pub mirror: Option<String>,
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
    /// For `sqlite`: the path of the file, relative to the configuration file. It is made when it is missing. For
    /// `postgres` without `url`: the name of the database, which must be there.
    #[garde(inner(length(min = 1)))]
    pub database: Option<String>,
    /// For `postgres`: the whole address, such as `postgres://user:password@host:5432/database?sslmode=require`. Write
    /// `${NAME}` and set the variable, so that the password is in no file. Instead of `host` and what goes with it.
    pub url: Option<Secret>,
    /// For `postgres`: the machine that it runs on, or the folder of its socket.
    #[garde(inner(length(min = 1)))]
    #[schemars(extend("default" = "localhost"))]
    pub host: Option<String>,
    /// For `postgres`: the port that it listens on.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 5432))]
    pub port: Option<u16>,
    /// For `postgres`: who connects; the user that the server runs as if it is left out.
    #[garde(inner(length(min = 1)))]
    pub user: Option<String>,
    /// For `postgres`: their password. Write `${NAME}` and set the variable.
    pub password: Option<Secret>,
    /// For `postgres`: whether the connection is encrypted.
    #[schemars(extend("default" = "disable"))]
    pub ssl_mode: Option<SslMode>,
    /// For `postgres`: connections of this node for appends. More of them make smaller groups.
    #[garde(inner(range(min = 1, max = 64)))]
    #[schemars(extend("default" = 2))]
    pub append_connections: Option<u16>,
    /// For `postgres`: connections of this node for everything else. Three more are used beside them.
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
