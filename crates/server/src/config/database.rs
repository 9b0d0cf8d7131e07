//! The database that a file names: a file of SQLite, or a Postgres.
//!
//! Which keys belong to which driver is checked here. A password is in the address alone, and that is never shown.

use std::path::Path as FilePath;

use standfast_store::postgres::PostgresOptions;

use super::check::CheckResult;
use super::file::{Driver, Sql, SslMode};
use super::path::Path;
use super::stores::absolute;
use super::tree::Node;
use crate::database::{Database, Postgres};

/// What the section at this path names. What is missing has been reported by [`check`].
pub(super) fn named(path: &Path, sql: &Sql, folder: &FilePath) -> Database {
    match sql.driver {
        Driver::Sqlite => Database::Sqlite(absolute(folder, sql.database.as_deref().unwrap_or_default())),
        Driver::Postgres => Database::Postgres(Postgres {
            setting: path.to_string(),
            address: address(sql),
            appends: sql.append_connections,
            reads: sql.read_connections,
        }),
    }
}

/// The address as the driver reads it.
fn address(sql: &Sql) -> String {
    if let Some(url) = &sql.url {
        return url.expose().to_owned();
    }
    let quoted = |text: &str| format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"));
    let mut parts = vec![format!("host={}", quoted(sql.host.as_deref().unwrap_or("localhost")))];
    parts.extend(sql.port.map(|port| format!("port={port}")));
    parts.extend(sql.database.as_deref().map(|name| format!("dbname={}", quoted(name))));
    parts.extend(sql.user.as_deref().map(|user| format!("user={}", quoted(user))));
    parts.extend(sql.password.as_ref().map(|password| format!("password={}", quoted(password.expose()))));
    let is_encrypted = match sql.ssl_mode {
        Some(SslMode::Require | SslMode::VerifyFull) => true,
        Some(SslMode::Disable) | None => false,
    };
    parts.extend(is_encrypted.then(|| "sslmode=require".to_owned()));
    parts.join(" ")
}

/// Checks that a section says what its driver needs, and nothing that it does not know.
pub(super) fn check(sql: &Sql, path: &Path, tree: &Node, found: &mut CheckResult) {
    match sql.driver {
        Driver::Sqlite => sqlite(sql, path, tree, found),
        Driver::Postgres => postgres(sql, path, tree, found),
    }
}

fn sqlite(sql: &Sql, path: &Path, tree: &Node, found: &mut CheckResult) {
    for (key, is_said) in parts(sql).into_iter().chain([
        ("url", sql.url.is_some()),
        ("append_connections", sql.append_connections.is_some()),
        ("read_connections", sql.read_connections.is_some()),
    ]) {
        if is_said && key != "database" {
            let what = format!("`{}` is for `driver: postgres`", path.key(key));
            found.problem(tree, &path.key(key), what, "remove it, or write `driver: postgres`");
        }
    }
    // A malformed value has already been reported.
    if tree.find(&path.key("database")).is_none() {
        let what = format!("`{path}` has `driver: sqlite` and no `database`");
        found.problem(tree, path, what, "add the path of a file: `database: ./sessions.db`");
    }
}

fn postgres(sql: &Sql, path: &Path, tree: &Node, found: &mut CheckResult) {
    let help = "write `url: ${DATABASE_URL}`, or `host`, `port`, `database`, `user` and `password`";
    if tree.find(&path.key("url")).is_none() && tree.find(&path.key("database")).is_none() {
        let what = format!("`{path}` has `driver: postgres` and names no database");
        return found.problem(tree, path, what, help);
    }
    if sql.url.is_some() {
        for (key, is_said) in parts(sql) {
            if is_said {
                let what = format!("`{path}` has both `url` and `{key}`");
                found.problem(tree, &path.key(key), what, format!("put it into the URL, and remove `{key}`"));
            }
        }
    }
    // A variable that is not set has been reported, or is not asked for.
    let is_unknown =
        sql.url.as_ref().is_some_and(|url| url.expose().is_empty() || url.expose().contains("${"));
    if let Err(error) = PostgresOptions::at(address(sql)).place()
        && !is_unknown
    {
        let key = if sql.url.is_some() { path.key("url") } else { path.clone() };
        found.problem(tree, &key, format!("`{key}`: {error}"), help);
    }
}

/// The keys that an address says in one.
fn parts(sql: &Sql) -> [(&'static str, bool); 6] {
    [
        ("database", sql.database.is_some()),
        ("host", sql.host.is_some()),
        ("port", sql.port.is_some()),
        ("user", sql.user.is_some()),
        ("password", sql.password.is_some()),
        ("ssl_mode", sql.ssl_mode.is_some()),
    ]
}
