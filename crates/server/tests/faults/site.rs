//! Where a row is played: on a file or a folder of files, with two engines in one process; or on Postgres, with a process
//! for each node.
//!
//! A row that says nothing of its store is played on a file, on a folder and on Postgres. Each field is a fresh directory, and
//! a fresh database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use standfast_store::Store;
use standfast_store::conformance::cluster;
use standfast_store::file::{FileOptions, FileStore};
use standfast_store::postgres::{PostgresOptions, PostgresStore};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

use crate::check::{check, check_postgres};
use crate::child::Options;
use crate::server::{Http, Server};
use crate::story::Acked;

/// The folder of files below a data directory.
pub(crate) const FOLDER: &str = "standfast-files";

/// The same in a configuration.
pub(crate) const IN_FILES: &str = "backend: file, file: {directory: ./standfast-files}";

/// What keeps the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    File,
    Folder,
    Postgres,
}

impl Kept {
    /// The name of a row.
    pub(crate) fn row(self, in_file: &'static str, in_postgres: &'static str) -> &'static str {
        match self {
            Kept::File => in_file,
            Kept::Folder => in_folder(in_file),
            Kept::Postgres => in_postgres,
        }
    }
}

/// The name of a row that is played on a folder of files.
fn in_folder(in_file: &'static str) -> &'static str {
    let names = [
        "F1-FILES",
        "F2-FILES",
        "F3-FILES",
        "F5-FILES",
        "F6-FILES",
        "F7-FILES",
        "F8-FILES",
        "F14-FILES",
        "F19-FILES",
        "F21-FILES",
        "F28-FILES",
        "F31-FILES",
    ];
    let is_it = |name: &&'static str| name.strip_suffix("-FILES") == Some(in_file);
    names.into_iter().find(is_it).unwrap_or(in_file)
}

/// Copies a folder with everything below it.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, is_folder) =
            entry.map(|entry| (entry.path(), entry.file_type().unwrap().is_dir())).unwrap();
        let copy = to.join(entry.file_name().unwrap());
        if is_folder {
            copy_folder(&entry, &copy);
        } else {
            std::fs::copy(&entry, &copy).unwrap();
        }
    }
}

/// What a field was at some moment.
pub(crate) struct Backup {
    file: PathBuf,
}

/// A directory, and the address of a database where there is one.
pub(crate) struct Field {
    data: TempDir,
    kept: Kept,
    pub(crate) url: Option<String>,
}

impl Drop for Field {
    fn drop(&mut self) {
        self.url.iter().for_each(|url| cluster::shared().remove(url));
    }
}

impl Field {
    pub(crate) fn new(kept: Kept) -> Field {
        let url = match kept {
            Kept::File | Kept::Folder => None,
            Kept::Postgres => Some(cluster::shared().database()),
        };
        Field { data: tempfile::tempdir().unwrap(), kept, url }
    }

    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// A server on this field.
    pub(crate) fn start(&self, options: &Options) -> Server {
        let in_folder = self.kept == Kept::Folder;
        Server::start(self.data(), &Options { postgres: self.url.clone(), in_folder, ..options.clone() })
    }

    /// The product itself on this field.
    pub(crate) fn product(&self) -> Server {
        match (self.kept, &self.url) {
            (Kept::Folder, _) => Server::product(self.data(), Some(IN_FILES)),
            (Kept::File | Kept::Postgres, None) => Server::product(self.data(), None),
            (Kept::File | Kept::Postgres, Some(url)) => {
                let sql = format!("backend: sql, sql: {{driver: postgres, url: \"{url}\"}}");
                Server::product(self.data(), Some(&sql))
            }
        }
    }

    /// What keeps the runs here.
    pub(crate) fn kept(&self) -> Kept {
        self.kept
    }

    /// A copy of everything, made as an operator makes it: while servers run, but for a folder of files.
    pub(crate) fn back_up(&self) -> Backup {
        let file = self.data().join(format!("backup-{}", self.url.is_some()));
        match &self.url {
            None if self.kept == Kept::Folder => copy_folder(&self.data().join(FOLDER), &file),
            None => {
                let live = rusqlite::Connection::open(self.data().join("standfast.db")).unwrap();
                live.execute("VACUUM INTO ?1", [file.to_string_lossy()]).unwrap();
            }
            Some(url) => cluster::dump(url, &file),
        }
        Backup { file }
    }

    /// Puts a backup in the place of what is there. No server may run.
    pub(crate) fn restore(&mut self, backup: &Backup) {
        match &mut self.url {
            None if self.kept == Kept::Folder => {
                let folder = self.data.path().join(FOLDER);
                std::fs::remove_dir_all(&folder).unwrap();
                copy_folder(&backup.file, &folder);
            }
            None => {
                for old in ["standfast.db", "standfast.db-wal", "standfast.db-shm"] {
                    let _ = std::fs::remove_file(self.data.path().join(old));
                }
                std::fs::copy(&backup.file, self.data.path().join("standfast.db")).unwrap();
            }
            Some(url) => {
                let restored = cluster::shared().empty_database();
                cluster::restore(&restored, &backup.file);
                cluster::shared().remove(&std::mem::replace(url, restored));
            }
        }
    }

    /// Two nodes, and how to reach each of them.
    pub(crate) fn start_two(&self, options: &Options) -> (Vec<Server>, [Http; 2]) {
        match self.url {
            None => {
                let server = self.start(&Options { nodes: 2, ..options.clone() });
                let nodes = [server.http_of(0), server.http_of(1)];
                (vec![server], nodes)
            }
            Some(_) => {
                let (one, two) = (self.start(options), self.start(options));
                let nodes = [one.http(), two.http()];
                (vec![one, two], nodes)
            }
        }
    }

    /// The store, opened beside or after the servers.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match &self.url {
            None if self.kept == Kept::Folder => {
                Arc::new(FileStore::open(&FileOptions::at(self.data().join(FOLDER))).unwrap())
            }
            None => {
                Arc::new(SqliteStore::open(&SqliteOptions::at(self.data().join("standfast.db"))).unwrap())
            }
            Some(url) => Arc::new(PostgresStore::open(&PostgresOptions::at(url)).unwrap()),
        }
    }

    /// Everything that is wrong with what dead servers left here.
    pub(crate) fn check(&self, acked: &[Acked]) -> Vec<String> {
        match &self.url {
            None if self.kept == Kept::Folder => check(self.data(), FOLDER, acked),
            None => check(self.data(), "standfast.db", acked),
            // On a thread of its own: it waits for the database, and whoever asks may be in a runtime.
            Some(url) => std::thread::scope(|scope| {
                scope.spawn(|| check_postgres(url, self.data(), acked)).join().unwrap()
            }),
        }
    }
}
