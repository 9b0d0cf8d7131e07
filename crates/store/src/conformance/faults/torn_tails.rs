//! F17: the file and its WAL are copied, and the tail of the WAL is cut or damaged.
//!
//! Opening the copy gives a state that is a prefix of history, or is refused with a message.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};

use super::super::random::Random;
use super::super::support::{NewRun, Scribe, block_on, checked};
use super::{Report, cycle, fresh_file, open};
use crate::{Batch, RunStore, Store, StoreError};

/// Damages the tail of a WAL at so many places.
#[must_use]
pub fn torn_tails(count: usize) -> Report {
    let scenes = [HistoryStart::InTheFile, HistoryStart::InTheWal].map(|begins| {
        let (directory, file) = fresh_file();
        let history = write_history(&file, begins);
        (directory, file, history)
    });
    let copies = tempfile::tempdir().unwrap();
    let mut random = Random::new(17);
    let (mut violations, mut lengths) = (Vec::new(), Vec::new());
    for n in 0..count {
        let (_, file, history) = &scenes[n % scenes.len()];
        let copy = copies.path().join(format!("copy-{n}.db"));
        let wal = std::fs::read(wal_of(file)).unwrap();
        let (what, damaged) = damage(&mut random, wal);
        std::fs::copy(file, &copy).unwrap();
        std::fs::write(wal_of(&copy), damaged).unwrap();
        match prefix(&copy, history) {
            Ok(Some(appends)) => lengths.push(appends),
            Ok(None) => {}
            Err(why) => violations.push(format!("{what}: {why}")),
        }
        for name in ["", "-wal", "-shm", ".lock"] {
            // Some of them are gone after a clean close.
            let _ = std::fs::remove_file(with_suffix(&copy, name));
        }
    }
    // A test that only ever saw refusals, or whole histories, would have shown nothing.
    lengths.sort_unstable();
    let opened = lengths.len();
    lengths.dedup();
    if opened * 4 < count * 3 || lengths.len() * 8 < count.min(100) {
        violations.push(format!(
            "of {count} damaged files {opened} opened, with {} different prefixes",
            lengths.len()
        ));
    }
    Report { id: "F17", what: "torn or damaged tail of the WAL", count, violations }
}

/// Where the first half of a history stands when the tail is damaged; the second half stands in the WAL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HistoryStart {
    /// It was moved into the file.
    InTheFile,
    /// It stands in the WAL too, and the schema with it.
    InTheWal,
}

/// Writes a history and leaves it as a crash would.
fn write_history(file: &Path, begins: HistoryStart) -> Vec<Batch> {
    let mut scribe = Scribe::new(17);
    let mut cycles = |runs: usize| -> Vec<Batch> {
        let runs: Vec<Vec<Batch>> = (0..runs).map(|_| cycle(&mut scribe, &NewRun::of("helper"))).collect();
        let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
        // Runs take turns, as they do in a server.
        (0..longest).flat_map(|n| runs.iter().filter_map(move |run| run.get(n).cloned())).collect()
    };
    let (first, second) = (cycles(3), cycles(4));
    let mut store = open(file).unwrap();
    write(&*store, &first);
    if begins == HistoryStart::InTheFile {
        drop(store);
        store = open(file).unwrap();
    }
    write(&*store, &second);
    // As if the process had been killed: copied while it is open, put back after it has closed.
    let (database, wal) = (std::fs::read(file).unwrap(), std::fs::read(wal_of(file)).unwrap());
    drop(store);
    std::fs::write(file, database).unwrap();
    std::fs::write(wal_of(file), wal).unwrap();
    first.into_iter().chain(second).collect()
}

fn write(store: &dyn Store, batches: &[Batch]) {
    for batch in batches {
        block_on(store.append(vec![batch.clone()])).unwrap();
    }
}

fn damage(random: &mut Random, mut wal: Vec<u8>) -> (String, Vec<u8>) {
    let at = random.index(wal.len());
    let length = (random.index(8192) + 1).min(wal.len() - at);
    let other = random.index(wal.len() - length + 1);
    match random.below(5) {
        0 => {
            wal.truncate(at);
            (format!("cut at {at}"), wal)
        }
        1 => {
            wal[at..at + length].fill(0);
            (format!("zeros at {at} for {length}"), wal)
        }
        2 => {
            wal[at..at + length].iter_mut().for_each(|byte| *byte = random.next_number().to_le_bytes()[0]);
            (format!("noise at {at} for {length}"), wal)
        }
        3 => {
            wal[at] ^= 1 << random.below(8);
            (format!("one bit at {at}"), wal)
        }
        _ => {
            wal.copy_within(other..other + length, at);
            (format!("{length} bytes of {other} at {at}"), wal)
        }
    }
}

/// The file opens with the state after this many appends; none when it is refused with a message.
fn prefix(file: &Path, history: &[Batch]) -> Result<Option<usize>, String> {
    let store = match open(file) {
        Ok(store) => store,
        Err(error) if error.to_string().is_empty() => return Err("refused without a word".into()),
        Err(_) => return Ok(None),
    };
    let mut after: HashMap<RunId, (Seq, Digest)> = HashMap::new();
    let mut found: HashMap<RunId, (Seq, Digest)> = HashMap::new();
    for run in history.iter().map(Batch::run) {
        if let std::collections::hash_map::Entry::Vacant(entry) = found.entry(run) {
            let stored = match block_on(store.load(run)) {
                Ok(_) => checked(&*store, run)?,
                Err(StoreError::NotFound { .. }) => continue,
                Err(other) => return Err(other.to_string()),
            };
            entry.insert((stored.run.state.seq, stored.head));
        }
    }
    if found == after {
        return Ok(Some(0));
    }
    for (batch, appends) in history.iter().zip(1..) {
        after.insert(batch.run(), (batch.row.run.state.seq, batch.row.head));
        if found == after {
            return Ok(Some(appends));
        }
    }
    Err(format!("no prefix of history: {found:?}"))
}

fn wal_of(file: &Path) -> PathBuf {
    with_suffix(file, "-wal")
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
