//! Which agent lives where (C28): one database for a server, and memory beside it.
//!
//! A path is relative to the configuration file, so that it does not matter where the server is started.

use std::path::{Component, Path as FilePath, PathBuf};

use super::check::CheckResult;
use super::database;
use super::file::{Agent, Backend, File, Sql, TaskBackend};
use super::path::Path;
use super::tree::Node;
use crate::database::Database;

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

/// The database that the file names.
pub(super) fn database(file: &File, tree: &Node, folder: &FilePath) -> Option<Database> {
    let (path, sql) = databases(file, tree).into_iter().next()?;
    Some(database::named(&path, sql, folder))
}

/// Checks that what is named can be opened, and that it is one database.
pub(super) fn check(file: &File, tree: &Node, folder: &FilePath, found: &mut CheckResult) {
    for (name, store) in &file.session_stores {
        let path = Path::of(&["session_stores", name]);
        backend(store.backend, store.sql.as_ref(), &path, tree, found);
        if store.mirror.is_some() && store.backend != Backend::Sql {
            let what = format!("`{path}.mirror` is for `backend: sql` only");
            found.problem(tree, &path.key("mirror"), what, "remove it");
        }
        if let Some(sql) = &store.sql {
            database::check(sql, &path.key("sql"), tree, found);
        }
    }
    for (name, agent) in &file.agents {
        task_backend(name, agent, tree, found);
    }
    one_database(file, tree, folder, found);
}

fn backend(backend: Backend, sql: Option<&Sql>, path: &Path, tree: &Node, found: &mut CheckResult) {
    match (backend, sql) {
        (Backend::File, _) => {
            let what = "`backend: file` is not available yet in this version".to_owned();
            let help = "use `backend: sql` with `driver: sqlite`";
            found.problem(tree, &path.key("backend"), what, help);
        }
        // A `sql` that is there and wrong has been told.
        (Backend::Sql, None) if tree.find(&path.key("sql")).is_none() => {
            let what = format!("`{path}` has `backend: sql` and no `sql`");
            let help = "add below it: `sql: {driver: sqlite, database: ./sessions.db}`";
            found.problem(tree, path, what, help);
        }
        (Backend::Memory, Some(_)) => {
            let what = format!("`{path}` has `backend: memory` and a database");
            found.problem(tree, &path.key("sql"), what, "remove `sql`, or write `backend: sql`");
        }
        (Backend::Sql, _) | (Backend::Memory, None) => {}
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
    let Some((first, first_sql)) = all.first() else { return };
    let chosen = database::named(first, first_sql, folder);
    for (path, sql) in all.iter().skip(1) {
        if !database::named(path, sql, folder).is_same(&chosen) {
            let what = format!("`{path}` names another database than `{first}`, and a server has one");
            let (key, help) = match (&chosen, &first_sql.database) {
                (Database::Sqlite(_), Some(database)) => {
                    ("database", format!("write `database: {database}` here too; they stay separate in it"))
                }
                (Database::Sqlite(_) | Database::Postgres(_), _) => {
                    ("driver", format!("write here what `{first}` says; they stay separate in it"))
                }
            };
            let at = if tree.find(&path.key(key)).is_some() { path.key(key) } else { path.clone() };
            found.problem(tree, &at, what, help);
        }
    }
}

/// Every database that an agent uses: stores first, in the order of the file, then those of `task.sql`.
fn databases<'a>(file: &'a File, tree: &Node) -> Vec<(Path, &'a Sql)> {
    let is_used = |name: &str| file.agents.values().any(|agent| agent.session_store.as_deref() == Some(name));
    let stores = tree.keys(&Path::of(&["session_stores"])).into_iter().filter(|name| is_used(name));
    let stores = stores.filter_map(|name| {
        let store = file.session_stores.get(name).filter(|store| store.backend == Backend::Sql)?;
        Some((Path::of(&["session_stores", name, "sql"]), store.sql.as_ref()?))
    });
    let tasks = file.agents.iter().filter(|(_, agent)| agent.session_store.is_none());
    let tasks = tasks.filter_map(|(name, agent)| {
        let task = agent.task.as_ref().filter(|task| task.backend == Some(TaskBackend::Sql))?;
        Some((Path::of(&["agents", name, "task", "sql"]), task.sql.as_ref()?))
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
