//! Where the runs of a simulation are kept: in memory, or in a real SQLite file that survives whoever had it open.
//!
//! The second is for power cuts: the files are taken as they lie there, as a process that was killed leaves them, and
//! opened again by whoever comes next.

use std::path::Path;
use std::sync::Arc;

use standfast_store::Store;
use standfast_store::memory::MemoryStore;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

/// Where runs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    Memory,
    Sqlite,
}

/// A store and its files, if it has some.
pub(crate) struct Disk {
    store: Arc<dyn Store>,
    directory: Option<TempDir>,
}

const FILE: &str = "standfast.db";

impl Disk {
    pub(crate) fn new(ground: Ground) -> Disk {
        match ground {
            Ground::Memory => Disk { store: Arc::new(MemoryStore::new()), directory: None },
            Ground::Sqlite => {
                let directory = tempfile::tempdir().unwrap();
                Disk { store: open(directory.path()), directory: Some(directory) }
            }
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Whether there is something left when its process is killed.
    pub(crate) fn is_mortal(&self) -> bool {
        self.directory.is_some()
    }

    /// Whoever had it open is gone: the files are copied as they are, and the copy is opened.
    pub(crate) fn reopen(&mut self) {
        let Some(before) = &self.directory else { return };
        let after = tempfile::tempdir().unwrap();
        for suffix in ["", "-wal"] {
            let name = format!("{FILE}{suffix}");
            let from = before.path().join(&name);
            if from.exists() {
                std::fs::copy(from, after.path().join(&name)).unwrap();
            }
        }
        self.store = open(after.path());
        self.directory = Some(after);
    }
}

fn open(directory: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(&SqliteOptions::at(directory.join(FILE))).unwrap())
}
