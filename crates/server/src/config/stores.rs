//! Which agent lives where (C28): one database for a server, and memory beside it.
//!
//! A path is relative to the configuration file, so that it does not matter where the server is started.

use std::path::{Component, Path as FilePath, PathBuf};

use standfast_engine::settings::JobSettings;
use standfast_store::file::RedisAddress;

use super::check::CheckResult;
use super::database;
use super::file::{Agent, Backend, File, Files, SessionStore, Sql, TaskBackend};
use super::path::Path;
use super::tree::Node;
use crate::database::{self as places, Database};

/// Where the runs of an agent live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStorage {
    /// In memory: a restart loses them.
    InMemory,
    /// In the server's database.
    Durably,
}

/// Where the runs of an agent live.
#[must_use]
pub(super) fn lives(agent: &Agent, file: &File) -> RunStorage {
    match &agent.session_store {
        Some(name) => match file.session_stores.get(name).map(|store| store.backend) {
            Some(Backend::Memory) => RunStorage::InMemory,
            Some(Backend::Sql | Backend::File) | None => RunStorage::Durably,
        },
        None => match agent.task.as_ref().and_then(|task| task.backend) {
            Some(TaskBackend::Sql) => RunStorage::Durably,
            Some(TaskBackend::Memory) | None => RunStorage::InMemory,
        },
    }
}

/// A database as a section of the file names it.
#[derive(Clone, Copy)]
enum NamedDatabase<'a> {
    Sql(&'a Sql),
    Files(&'a Files),
}

impl NamedDatabase<'_> {
    /// The database that the section at this path names.
    fn database(self, path: &Path, file: &File, folder: &FilePath) -> Database {
        match self {
            NamedDatabase::Sql(sql) => database::named(path, sql, folder),
            NamedDatabase::Files(files) => {
                let keep = file.server.async_tools.keep_settled.map(|span| span.0);
                Database::Files(places::Files {
                    path: absolute(folder, &files.directory),
                    keep_settled: Some(keep.unwrap_or(JobSettings::default().keep)),
                    redis: files.redis.as_ref().map(|url| url.expose().to_owned()),
                })
            }
        }
    }
}

/// The database that the file names.
pub(super) fn database(file: &File, tree: &Node, folder: &FilePath) -> Option<Database> {
    let (path, named) = databases(file, tree).into_iter().next()?;
    Some(named.database(&path, file, folder))
}

/// Checks that what is named can be opened, and that it is one database.
pub(super) fn check(file: &File, tree: &Node, folder: &FilePath, found: &mut CheckResult) {
    for (name, store) in &file.session_stores {
        let path = Path::of(&["session_stores", name]);
        backend(store, &path, tree, found);
        if store.mirror.is_some() && store.backend != Backend::Sql {
            let what = format!("`{path}.mirror` is for `backend: sql` only");
            found.problem(tree, &path.key("mirror"), what, "remove it");
        }
        if let Some(sql) = &store.sql {
            database::check(sql, &path.key("sql"), tree, found);
        }
        if let Some(files) = &store.file {
            redis(files, &path.key("file").key("redis"), tree, found);
        }
    }
    for (name, agent) in &file.agents {
        task_backend(name, agent, tree, found);
    }
    one_database(file, tree, folder, found);
}

fn backend(store: &SessionStore, path: &Path, tree: &Node, found: &mut CheckResult) {
    let is_missing = |key: &str| tree.find(&path.key(key)).is_none();
    match store.backend {
        // A malformed section has already been reported.
        Backend::File if is_missing("file") => {
            let what = format!("`{path}` has `backend: file` and no `file`");
            found.problem(tree, path, what, "add below it: `file: {directory: ./sessions}`");
        }
        Backend::Sql if is_missing("sql") => {
            let what = format!("`{path}` has `backend: sql` and no `sql`");
            let help = "add below it: `sql: {driver: sqlite, database: ./sessions.db}`";
            found.problem(tree, path, what, help);
        }
        Backend::File | Backend::Sql | Backend::Memory => {}
    }
    if store.sql.is_some() && store.backend != Backend::Sql {
        let is = if store.backend == Backend::Memory { "memory" } else { "file" };
        let what = format!("`{path}` has `backend: {is}` and a database");
        found.problem(tree, &path.key("sql"), what, "remove `sql`, or write `backend: sql`");
    }
    if store.file.is_some() && store.backend != Backend::File {
        let what = format!("`{path}.file` is for `backend: file` only");
        found.problem(tree, &path.key("file"), what, "remove it, or write `backend: file`");
    }
}

/// A Redis is named by a URL that this server understands.
fn redis(files: &Files, path: &Path, tree: &Node, found: &mut CheckResult) {
    let Some(url) = &files.redis else { return };
    // A variable that is not set has been reported, or is not asked for.
    let is_unknown = url.expose().is_empty() || url.expose().contains("${");
    if let (false, Err(why)) = (is_unknown, RedisAddress::parse(url.expose())) {
        let help = "write `redis://[user:password@]host[:port][/number]`";
        found.problem(tree, path, format!("`{path}`: {why}"), help);
    }
}

fn task_backend(name: &str, agent: &Agent, tree: &Node, found: &mut CheckResult) {
    let path = Path::of(&["agents", name, "task"]);
    let Some(task) = &agent.task else { return };
    if let Some(sql) = &task.sql {
        database::check(sql, &path.key("sql"), tree, found);
    }
    let is_sql = task.backend == Some(TaskBackend::Sql);
    if agent.session_store.is_some() && (is_sql || task.sql.is_some()) {
        let what = format!(
            "agent `{name}` is stored in its session_store; `task.backend` and `task.sql` have no effect"
        );
        return found.notice(tree, &path.key("backend"), what);
    }
    if is_sql && tree.find(&path.key("sql")).is_none() && agent.session_store.is_none() {
        let what = format!("`{path}` has `backend: sql` and no `sql`");
        let help = "add below it: `sql: {driver: sqlite, database: ./sessions.db}`";
        found.problem(tree, &path.key("backend"), what, help);
    }
    if !is_sql && task.sql.is_some() && agent.session_store.is_none() {
        let what = format!("`{path}.sql` has no effect without `backend: sql`");
        found.problem(tree, &path.key("sql"), what, "write `backend: sql`, or remove `sql`");
    }
}

/// A server has one database; the first that an agent uses is it.
fn one_database(file: &File, tree: &Node, folder: &FilePath, found: &mut CheckResult) {
    let all = databases(file, tree);
    let Some((first, first_named)) = all.first() else { return };
    let chosen = first_named.database(first, file, folder);
    for (path, named) in all.iter().skip(1) {
        if !named.database(path, file, folder).is_same(&chosen) {
            let what = format!("`{path}` names another database than `{first}`, and a server has one");
            let (key, help) = match (first_named, named) {
                (NamedDatabase::Sql(Sql { database: Some(database), .. }), NamedDatabase::Sql(_))
                    if matches!(chosen, Database::Sqlite(_)) =>
                {
                    ("database", format!("write `database: {database}` here too; they stay separate in it"))
                }
                (NamedDatabase::Files(Files { directory, .. }), NamedDatabase::Files(_)) => (
                    "directory",
                    format!("write `directory: {directory}` here too; they stay separate in it"),
                ),
                (NamedDatabase::Sql(_) | NamedDatabase::Files(_), _) => {
                    ("driver", format!("write here what `{first}` says; they stay separate in it"))
                }
            };
            let at = if tree.find(&path.key(key)).is_some() { path.key(key) } else { path.clone() };
            found.problem(tree, &at, what, help);
        }
    }
}

/// Every database that an agent uses: stores first, in the order of the file, then those of `task.sql`.
fn databases<'a>(file: &'a File, tree: &Node) -> Vec<(Path, NamedDatabase<'a>)> {
    let is_used = |name: &str| file.agents.values().any(|agent| agent.session_store.as_deref() == Some(name));
    let stores = tree.keys(&Path::of(&["session_stores"])).into_iter().filter(|name| is_used(name));
    let stores = stores.filter_map(|name| {
        let store = file.session_stores.get(name)?;
        let at = |key: &str| Path::of(&["session_stores", name, key]);
        match store.backend {
            Backend::Sql => Some((at("sql"), NamedDatabase::Sql(store.sql.as_ref()?))),
            Backend::File => Some((at("file"), NamedDatabase::Files(store.file.as_ref()?))),
            Backend::Memory => None,
        }
    });
    let tasks = file.agents.iter().filter(|(_, agent)| agent.session_store.is_none());
    let tasks = tasks.filter_map(|(name, agent)| {
        let task = agent.task.as_ref().filter(|task| task.backend == Some(TaskBackend::Sql))?;
        Some((Path::of(&["agents", name, "task", "sql"]), NamedDatabase::Sql(task.sql.as_ref()?)))
    });
    stores.chain(tasks).collect()
}

/// A path without `.` and `..`, relative to the folder of the configuration.
pub(super) fn absolute(folder: &FilePath, path: &str) -> PathBuf {
    let mut out = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            Component::ParentDir | Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                out.push(part)
            }
        }
    }
    // The folder itself has a name too, or nothing could be found there.
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}
