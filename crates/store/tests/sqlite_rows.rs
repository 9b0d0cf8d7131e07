//! What only the SQLite store does with its rows: older and newer folds, deleted bytes, one culprit in a group.
//!
//! Rows are edited by SQL while no store has the file open, or while it is open where a lock is needed.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a failed expectation is a failed test")]

use std::path::Path;

use rusqlite::Connection;
use standfast_core::command::Command;
use standfast_core::id::RunId;
use standfast_core::project::Phase;
use standfast_core::time::Millis;
use standfast_store::conformance::faults::corrupt_rows::{Scene, overwrite};
use standfast_store::conformance::faults::{fresh_file, open};
use standfast_store::conformance::support::{
    NODE, NewRun, Scribe, block_on, checked, claimed_runs, hold_row, holds_by, ids, runs_by, user,
};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{
    Claim, ClaimedRun, HoldFilter, Lease, LeaseChange, RunFilter, RunQuery, RunStore, ShardSet, StoreError,
    StoredRun, WorkStore,
};

fn claim(scribe: &Scribe, limit: usize) -> Claim {
    let now = scribe.now.plus(Millis::hours(1));
    Claim { node: NODE, now, until: now.plus(Millis(1)), shards: ShardSet::all(), limit, room: Vec::new() }
}

#[test]
fn a_row_of_an_older_fold_is_rebuilt_wherever_it_is_read() {
    let (_directory, file) = fresh_file();
    let scene = Scene::write(&file);
    let until = scene.victim.run.state.at.plus(Millis::seconds(9));
    let lease = "lease_node = x'07070707070707070707070707070707', lease_until = ";
    overwrite(&file, &format!("UPDATE runs SET fold = 0, state = '{{}}', {lease} {} WHERE no = 1", until.0))
        .unwrap();
    let store = open(&file).unwrap();
    let run = scene.victim.run.facts.id;
    let stored = StoredRun { row: scene.victim.clone(), lease: Some(Lease { node: NODE, until }) };
    assert_eq!(block_on(store.load(run)), Ok(stored));
    assert_eq!(block_on(store.find_hold(scene.hold)), Ok(Some(hold_row(&scene.victim, scene.hold))));
    let runs = block_on(store.list_runs(runs_by(RunFilter::All))).unwrap().items;
    assert!(runs.contains(&scene.victim));
    let holds = block_on(store.list_holds(holds_by(HoldFilter::All))).unwrap().items;
    assert_eq!(holds.len(), 3);
    let claimed = block_on(store.claim_due(claim(&Scribe::new(1), 10))).unwrap();
    let is_victim = |claimed: &ClaimedRun| matches!(claimed, ClaimedRun::Run { stored, .. } if stored.row == scene.victim);
    assert!(claimed.iter().any(is_victim), "{claimed:?}");
    assert_eq!(block_on(store.release(run, NODE, None)), Ok(()));
    let batch = Scribe::new(2).batch(&scene.victim, &Command::Cancel { reason: None });
    let after = batch.row.clone();
    assert_eq!(block_on(store.append(vec![batch])), Ok(()));
    assert_eq!(checked(&*store, run), Ok(after));
}

#[test]
fn an_erased_run_of_an_older_fold_is_read_from_its_row() {
    let (_directory, file) = fresh_file();
    let mut scribe = Scribe::new(3);
    let (store, row) = erased(&file, &mut scribe, "anything");
    drop(store);
    overwrite(&file, "UPDATE runs SET fold = 0").unwrap();
    let store = open(&file).unwrap();
    assert_eq!(block_on(store.load(row)).map(|stored| stored.row.run.state.erased), Ok(true));
}

#[test]
fn a_row_of_a_newer_fold_is_left_alone_and_in_nobodys_way() {
    let (_directory, file) = fresh_file();
    let scene = Scene::write(&file);
    overwrite(&file, "UPDATE runs SET fold = 99, state = 'of the future' WHERE no <= 2").unwrap();
    let store = open(&file).unwrap();
    let run = scene.victim.run.facts.id;
    assert_eq!(block_on(store.load(run)), Err(StoreError::Newer { run, found: 99 }));
    assert_eq!(block_on(store.find_hold(scene.hold)), Err(StoreError::Newer { run, found: 99 }));
    let healthy = scene.bystanders[1].run.facts.id;
    assert_eq!(ids(&block_on(store.list_runs(runs_by(RunFilter::All))).unwrap().items), [healthy]);
    // Two that nobody here may take stand before it in the queue.
    let claimed = block_on(store.claim_due(claim(&Scribe::new(1), 1))).unwrap();
    assert_eq!(claimed_runs(&claimed), [healthy]);
    drop(store);
    let kept: (i64, String) = Connection::open(&file)
        .unwrap()
        .query_row("SELECT fold, state FROM runs WHERE no = 1", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(kept, (99, "of the future".into()));
}

/// Deleted from the database is not yet deleted from the file.
#[test]
fn erased_contents_are_gone_from_the_file() {
    let (_directory, file) = fresh_file();
    let mut scribe = Scribe::new(4);
    let secrets = ["xyzzy-in-the-log".to_owned(), "plugh-in-a-blob ".repeat(2000)];
    for secret in &secrets {
        drop(erased(&file, &mut scribe, secret));
    }
    let bytes = std::fs::read(&file).unwrap();
    let mut wal = file.as_os_str().to_owned();
    wal.push("-wal");
    let bytes = [bytes, std::fs::read(wal).unwrap_or_default()].concat();
    for word in ["xyzzy-in-the-log", "plugh-in-a-blob"] {
        let found = bytes.windows(word.len()).filter(|window| *window == word.as_bytes()).count();
        assert_eq!(found, 0, "{word} still stands in the file");
    }
}

/// One transaction for all that wait; if one of them cannot be written, only its sender gets the error.
#[test]
fn one_append_that_does_not_fit_fails_alone() {
    let (_directory, file) = fresh_file();
    drop(open(&file).unwrap());
    let pages = u32::try_from(std::fs::metadata(&file).unwrap().len() / 4096).unwrap() + 40;
    let store =
        SqliteStore::open(&SqliteOptions { max_pages: Some(pages), ..SqliteOptions::at(&file) }).unwrap();
    let mut scribe = Scribe::new(5);
    let mut small: Vec<_> = (0..4).map(|_| scribe.start(&NewRun::of("helper"))).collect();
    small[1].lease = LeaseChange::Take { node: NODE, until: scribe.now };
    let huge = scribe.start(&NewRun::of("helper").saying("x".repeat(1_000_000)));
    // The writer waits for this lock with the first append; all others gather behind it into one group.
    let lock = Connection::open(&file).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut answers = vec![store.append(vec![small[0].clone()])];
    std::thread::sleep(std::time::Duration::from_millis(200));
    answers.push(store.append(vec![small[1].clone()]));
    let claimed = store.claim_due(claim(&scribe, 10));
    answers.push(store.append(vec![small[2].clone()]));
    let refused = store.append(vec![huge]);
    answers.push(store.append(vec![small[3].clone()]));
    drop(lock);
    let answers: Vec<_> = answers.into_iter().map(block_on).collect();
    assert_eq!(answers, vec![Ok(()); 4]);
    assert_eq!(block_on(claimed).map(|claimed| claimed.len()), Ok(2));
    assert!(
        matches!(block_on(refused), Err(StoreError::Unavailable { why }) if why.contains("disk is full"))
    );
    for batch in small {
        assert_eq!(checked(&store, batch.run()), Ok(batch.row));
    }
}

/// A run with this text that was erased; the store it is in.
fn erased(file: &Path, scribe: &mut Scribe, text: &str) -> (std::sync::Arc<SqliteStore>, RunId) {
    let store = open(file).unwrap();
    let mut row = None;
    for command in [None, Some(Command::Cancel { reason: None }), Some(Command::Erase { reason: None })] {
        let batch = match (&row, command) {
            (Some(row), Some(command)) => scribe.batch(row, &command),
            _ => scribe.start(&NewRun::of("helper").saying(text)),
        };
        row = Some(batch.row.clone());
        block_on(store.append(vec![batch])).unwrap();
    }
    let run = row.unwrap().run.facts.id;
    block_on(store.erase(run)).unwrap();
    (store, run)
}

/// T37: what a filter leaves out is told by its columns: its fold, which may be large, is not even read. A fold that nobody
/// can read shows it.
#[test]
fn a_filter_that_matches_nothing_reads_no_fold() {
    let (_directory, file) = fresh_file();
    let mut scribe = Scribe::new(1);
    let store = open(&file).unwrap();
    for _ in 0..3 {
        block_on(store.append(vec![scribe.start(&NewRun::of("helper"))])).unwrap();
    }
    drop(store);
    overwrite(&file, "UPDATE runs SET state = 'nonsense'").unwrap();
    let store = open(&file).unwrap();
    let listed = |query: RunQuery| block_on(store.list_runs(query)).unwrap();
    assert_eq!(listed(runs_by(RunFilter::All)).unreadable.len(), 3);
    for query in [
        RunQuery { phases: vec![Phase::Rejected], ..runs_by(RunFilter::All) },
        RunQuery { since: Some(scribe.now.plus(Millis::hours(1))), ..runs_by(RunFilter::All) },
        runs_by(RunFilter::Owner(user("nobody"))),
    ] {
        let page = listed(query);
        assert_eq!((page.items.len(), page.unreadable.len(), page.next), (0, 0, None));
    }
}
