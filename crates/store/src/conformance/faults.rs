//! Faults of the SQLite store's file, disk and process, by the rows of the fault matrix; `files.rs` has those of the file
//! store.
//!
//! Each function breaks something so many times and reports what should not have been possible. The tests run a few
//! of each; the program `store-faults` runs them all. What must hold: acknowledged is durable, what is stored is whole
//! or said to be broken, one broken run stops no other.

pub mod child;
pub mod corrupt_rows;
pub mod files;
pub mod full_disk;
pub mod io_errors;
pub mod kills;
pub mod torn_tails;
pub mod unusable_files;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use standfast_core::command::Choice;
use standfast_core::project::RunRow;

use super::support::{LOOKUP, NewRun, SHELL, Scribe, begin, block_on, checked, finish, resolve, runs_by};
use crate::file::{FileOptions, FileStore};
use crate::sqlite::{OpenError, SqliteOptions, SqliteStore};
use crate::{Batch, RunFilter, RunQuery, Store};

/// The result of a row of the fault matrix.
#[derive(Debug)]
pub struct Report {
    /// The row, such as `F17`.
    pub id: &'static str,
    /// What was broken.
    pub what: &'static str,
    /// How often.
    pub count: usize,
    /// What should not have been possible.
    pub violations: Vec<String>,
}

impl Report {
    /// Fails a test with what should not have been possible.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.violations.is_empty(), "{} ({}): {:#?}", self.id, self.what, self.violations);
        assert!(self.count > 0, "{} ({}) did nothing", self.id, self.what);
    }
}

/// Opens the store in this file.
pub fn open(file: &Path) -> Result<Arc<SqliteStore>, OpenError> {
    SqliteStore::open(&SqliteOptions::at(file)).map(Arc::new)
}

/// A store that says when it stopped for good.
pub trait StoppableStore: Store {
    /// Why it stopped writing, if it did.
    fn stopped(&self) -> Option<String>;
}

impl StoppableStore for SqliteStore {
    fn stopped(&self) -> Option<String> {
        SqliteStore::stopped(self)
    }
}

impl StoppableStore for FileStore {
    fn stopped(&self) -> Option<String> {
        FileStore::stopped(self)
    }
}

/// Opens the store of this name: SQLite when it ends with `.db`, else a folder of files.
pub fn open_any(path: &Path) -> Result<Arc<dyn StoppableStore>, String> {
    if path.extension().is_some_and(|ending| ending == "db") {
        return open(path).map(|store| store as Arc<dyn StoppableStore>).map_err(|error| error.to_string());
    }
    match FileStore::open(&FileOptions::at(path)) {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(error.to_string()),
    }
}

/// A place for a store in a directory of its own.
pub type FreshPlace = fn() -> (tempfile::TempDir, PathBuf);

/// A file for a store in a directory of its own.
#[must_use]
pub fn fresh_file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("standfast.db");
    (directory, file)
}

/// The appends of one approval cycle, in order: start, question, approval, start of the call, result, last word.
pub fn cycle(scribe: &mut Scribe, new: &NewRun) -> Vec<Batch> {
    let mut batches = vec![scribe.start(new)];
    let last = |batches: &[Batch]| batches.last().map(|batch| batch.row.clone()).unwrap();
    batches.push(scribe.reply(&last(&batches), &[SHELL, LOOKUP]));
    let hold = last(&batches).run.state.holds[0].key;
    batches.push(scribe.batch(&last(&batches), &resolve(hold, Choice::Approve)));
    for call in [1, 2] {
        let events: Vec<_> = batches.iter().flat_map(|batch| batch.link.events().unwrap()).collect();
        let command = begin(&events, standfast_core::id::CallNo(call), scribe.now);
        batches.push(scribe.batch(&last(&batches), &command));
        batches.push(scribe.batch(&last(&batches), &finish(call, 1, "done")));
    }
    batches.push(scribe.reply(&last(&batches), &[]));
    batches
}

/// Every run of the file that can be listed: its chain verifies and its events fold into its row.
pub fn check_all(store: &dyn Store) -> Vec<String> {
    let page = |cursor| block_on(store.list_runs(RunQuery { cursor, limit: 500, ..runs_by(RunFilter::All) }));
    let (mut cursor, mut wrong) = (None, Vec::new());
    loop {
        let page = match page(cursor) {
            Ok(page) => page,
            Err(error) => return vec![format!("the runs cannot be listed: {error}")],
        };
        let check = |row: &RunRow| checked(store, row.run.facts.id).err();
        wrong.extend(page.items.iter().filter_map(check));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return wrong,
        }
    }
}
