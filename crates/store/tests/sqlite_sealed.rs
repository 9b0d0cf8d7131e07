//! Sealed payloads of the SQLite store: what its files do not say, rows that were moved, keys that change, are wrong, are missing
//! or are destroyed.
//!
//! The suite runs over such a store too (`conformance.rs`); here is what only its files show.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a failed expectation is a failed test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use standfast_core::command::Command;
use standfast_core::digest;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::Contents;
use standfast_core::project::RunRow;
use standfast_store::audit::{Report, SignedCoverage};
use standfast_store::conformance::faults::corrupt_rows::overwrite;
use standfast_store::conformance::faults::{cycle, fresh_file, open};
use standfast_store::conformance::support::{NewRun, SHELL, Scribe, block_on, checked, sealing, verify};
use standfast_store::sqlite::{self, SqliteFile, SqliteOptions, SqliteSnapshot, SqliteStore};
use standfast_store::{Batch, RunStore};

fn keys_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".keys");
    PathBuf::from(name)
}

fn options(file: &Path, ids: &[&str]) -> SqliteOptions {
    SqliteOptions { sealing: Some(sealing(&keys_of(file), ids)), ..SqliteOptions::at(file) }
}

fn open_sealed(file: &Path, ids: &[&str]) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(&options(file, ids)).unwrap())
}

/// Why a file does not open.
fn refusal(file: &Path, ids: &[&str]) -> String {
    SqliteStore::open(&options(file, ids)).unwrap_err().to_string()
}

/// A file to read, with the keys beside another one.
fn readable<'a>(file: &'a Path, keys: &Path, ids: &[&str]) -> SqliteFile<'a> {
    SqliteFile { path: file, sealing: Some(sealing(&keys_of(keys), ids)) }
}

fn audited(file: SqliteFile<'_>) -> Report {
    sqlite::verify_against(file, &SignedCoverage::default(), |_| {}).unwrap()
}

/// The first append of a run, with its definition.
fn pinned(scribe: &mut Scribe, new: &NewRun) -> Batch {
    let mut batch = scribe.start(new);
    batch.puts.push(scribe.pinned(&batch.row));
    batch
}

/// A run that says this in a message, and in a large value.
fn saying(store: &SqliteStore, scribe: &mut Scribe, text: &str) -> RunRow {
    let mut row = None;
    for text in [text.to_owned(), format!("{text} ").repeat(6000)] {
        let batch = pinned(scribe, &NewRun::of("helper").saying(text));
        row = Some(batch.row.clone());
        block_on(store.append(vec![batch])).unwrap();
    }
    row.unwrap()
}

fn send(store: &SqliteStore, scribe: &mut Scribe, row: &RunRow, command: &Command) -> RunRow {
    let batch = scribe.batch(row, command);
    let after = batch.row.clone();
    block_on(store.append(vec![batch])).unwrap();
    after
}

/// The run says that it is erased, and is.
fn erase(store: &SqliteStore, scribe: &mut Scribe, row: &RunRow) -> RunRow {
    let row = send(store, scribe, row, &Command::Cancel { reason: None });
    let row = send(store, scribe, &row, &Command::Erase { reason: None });
    block_on(store.erase(row.run.facts.id)).unwrap();
    row
}

/// How often a text stands in the files of a folder.
fn count(folder: &Path, text: &str) -> usize {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    files.map(|bytes| bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count()).sum()
}

fn copy(from: &Path, to: &str) -> PathBuf {
    let to = from.with_file_name(to);
    std::fs::copy(from, &to).unwrap();
    to
}

/// T29, T30: neither the file, nor its write-ahead log, nor a backup, nor the file of keys has anything that was said, and every
/// chain verifies; without keys that is all that can be said. The same runs in the clear are found.
#[test]
fn t30_the_files_say_nothing_of_what_was_said() {
    for is_sealed in [true, false] {
        let (directory, file) = fresh_file();
        let store = if is_sealed { open_sealed(&file, &["k1"]) } else { open(&file).unwrap() };
        let mut scribe = Scribe::new(1);
        let row = saying(&store, &mut scribe, "xyzzy-canary");
        let mut batches = cycle(&mut scribe, &NewRun::of("helper").saying("xyzzy-canary"));
        let definition = scribe.pinned(&batches[0].row);
        batches[0].puts.push(definition);
        for batch in batches {
            block_on(store.append(vec![batch])).unwrap();
        }
        let found =
            |folder: &Path| ["xyzzy-canary", SHELL, "\"model.replied\":"].map(|text| count(folder, text) > 0);
        assert_eq!(found(directory.path()), [!is_sealed, true, !is_sealed], "while it is written");
        let backup = directory.path().join("backup.db");
        let source = if is_sealed { readable(&file, &file, &["k1"]) } else { SqliteFile::from(&file) };
        let copied = sqlite::copy(source, &backup, |_| {}).unwrap();
        assert_eq!((copied.is_sealed, copied.report.findings.len(), copied.report.locked), (is_sealed, 0, 0));
        drop(store);
        assert_eq!(found(directory.path()), [!is_sealed, true, !is_sealed], "once it is closed");
        if is_sealed {
            let report = audited(readable(&backup, &file, &["k1"]));
            assert_eq!((report.findings.len(), report.runs, report.locked), (0, 3, 0));
            let locked = audited(SqliteFile::from(&backup));
            assert_eq!((locked.findings.len(), locked.runs, locked.locked), (0, 3, 3));
            assert_eq!(locked.links, report.links);
            let refused = SqliteSnapshot::open(&backup).unwrap_err().to_string();
            assert!(refused.contains("with the key k1"), "{refused}");
            let run = row.run.facts.id;
            let opened = SqliteSnapshot::open(readable(&backup, &file, &["k1"])).unwrap();
            assert_eq!(block_on(RunStore::load(&opened, run)).map(|stored| stored.row), Ok(row));
        }
    }
}

/// T30: a payload, a large value or a state that was moved to another run, another row or another tenant does not open there, and
/// an older state of the same run does not either. Other runs go on.
#[test]
fn t30_rows_that_were_moved_do_not_open() {
    let (_directory, file) = fresh_file();
    let store = open_sealed(&file, &["k1"]);
    let mut scribe = Scribe::new(2);
    let large = |text: &str| format!("{text} ").repeat(6000);
    let runs: Vec<RunRow> = [("one", "default"), ("two", "default"), ("three", "acme")]
        .into_iter()
        .map(|(text, tenant)| {
            let batch = pinned(&mut scribe, &NewRun::of("helper").of_tenant(tenant).saying(large(text)));
            let row = batch.row.clone();
            block_on(store.append(vec![batch])).unwrap();
            row
        })
        .collect();
    let older: Vec<u8> = Connection::open(&file)
        .unwrap()
        .query_row("SELECT packed FROM runs WHERE no = 1", [], |row| row.get(0))
        .unwrap();
    let batch = scribe.reply(&runs[0], &[SHELL]);
    block_on(store.append(vec![batch])).unwrap();
    drop(store);
    let of = |no: usize| runs[no - 1].run.facts.id;
    let older: String = older.iter().map(|byte| format!("{byte:02x}")).collect();
    let older_state = format!("UPDATE runs SET packed = x'{older}' WHERE no = 1");
    let moved = [
        (
            "a payload of another run",
            "UPDATE links SET payload = (SELECT payload FROM links WHERE key = (2 << 20) + 1) WHERE key = (1 << 20) + 1",
        ),
        (
            "a payload of another row",
            "UPDATE links SET payload = (SELECT payload FROM links WHERE key >> 20 = 1 ORDER BY key DESC LIMIT 1) WHERE key = (1 << 20) + 1",
        ),
        (
            "a link of another run",
            "UPDATE links SET (payload, hash, commitment) = (SELECT payload, hash, commitment FROM links WHERE key = (2 << 20) + 1) WHERE key = (1 << 20) + 1",
        ),
        (
            "a value of another run",
            "UPDATE blobs SET sealed = (SELECT sealed FROM blobs WHERE run = 2) WHERE run = 1",
        ),
        (
            "a state of another run",
            "UPDATE runs SET packed = (SELECT packed FROM runs WHERE no = 2) WHERE no = 1",
        ),
        ("an older state", older_state.as_str()),
        ("another tenant", "UPDATE runs SET tenant = (SELECT tenant FROM runs WHERE no = 3) WHERE no = 1"),
        ("a value in the clear", "UPDATE blobs SET sealed = NULL, value = 'something else' WHERE run = 1"),
    ];
    for (at, (what, edit)) in moved.into_iter().enumerate() {
        let copied = copy(&file, &format!("moved-{at}.db"));
        overwrite(&copied, edit).unwrap();
        let report = audited(readable(&copied, &file, &["k1"]));
        let wrong: Vec<&str> = report.findings.iter().map(|finding| finding.run.as_str()).collect();
        assert_eq!(wrong, [of(1).to_string()], "{what}: {:?}", report.findings);
        let opened = SqliteSnapshot::open(readable(&copied, &file, &["k1"])).unwrap();
        assert!(checked(&opened, of(2)).is_ok(), "{what}");
        if !what.contains("value") {
            assert!(checked(&opened, of(1)).is_err(), "{what}");
        }
    }
}

/// New keys are wrapped by the first key, older ones still open; once all are wrapped anew the old key can go, beside a store that
/// goes on meanwhile. What was cut off is carried on with.
#[test]
fn keys_are_changed_while_the_store_is_open() {
    let (_directory, file) = fresh_file();
    let mut scribe = Scribe::new(3);
    let first = {
        let store = open_sealed(&file, &["k1"]);
        (0..1100)
            .for_each(|_| drop(block_on(store.append(vec![pinned(&mut scribe, &NewRun::of("helper"))]))));
        saying(&store, &mut scribe, "before")
    };
    let store = open_sealed(&file, &["k2", "k1"]);
    let second = saying(&store, &mut scribe, "after");
    let by = |file: &Path| -> Vec<(String, u64)> {
        let wrapped = sqlite::wrapped_keys(&keys_of(file)).unwrap();
        wrapped.into_iter().map(|one| (one.wrapped_by, one.runs)).collect()
    };
    assert_eq!(by(&file), [("k1".to_owned(), 1102), ("k2".to_owned(), 2)]);
    drop(store);
    assert!(refusal(&file, &["k2"]).contains("payloads of 1102 runs are sealed under the key k1"));
    let store = open_sealed(&file, &["k2", "k1"]);
    // Cut off in between: a process that is killed is no different, as each step is one transaction.
    let cut_off = std::panic::catch_unwind(|| {
        sqlite::reseal(&sealing(&keys_of(&file), &["k2", "k1"]), |_| panic!("cut off")).map(drop)
    });
    assert!(cut_off.is_err());
    assert_eq!(by(&file), [("k1".to_owned(), 602), ("k2".to_owned(), 502)]);
    let third = saying(&store, &mut scribe, "meanwhile");
    assert_eq!(sqlite::reseal(&sealing(&keys_of(&file), &["k2", "k1"]), |_| {}), Ok(602));
    assert_eq!(by(&file), [("k2".to_owned(), 1106)]);
    let third = send(&store, &mut scribe, &third, &Command::Cancel { reason: None });
    drop(store);
    let store = open_sealed(&file, &["k2"]);
    for row in [first, second, third] {
        assert_eq!(checked(&*store, row.run.facts.id), Ok(row));
    }
    drop(store);
    assert_eq!(audited(readable(&file, &file, &["k2"])).findings, []);
    assert_eq!(sqlite::reseal(&sealing(&keys_of(&file), &["k2"]), |_| {}), Ok(0));
}

/// A wrong or missing key, and a missing, older or foreign file of keys are refused with the id of the key or the name of the file.
#[test]
fn a_start_without_the_right_keys_is_refused() {
    let (directory, file) = fresh_file();
    let mut scribe = Scribe::new(4);
    let store = open_sealed(&file, &["k1"]);
    saying(&store, &mut scribe, "first");
    drop(store);
    let older = std::fs::read(keys_of(&file)).unwrap();
    let store = open_sealed(&file, &["k1"]);
    saying(&store, &mut scribe, "second");
    drop(store);
    let newer = std::fs::read(keys_of(&file)).unwrap();

    let without = open(&file).unwrap_err().to_string();
    assert!(without.contains("there is no server.encryption; configure it with the key k1"), "{without}");
    let missing = refusal(&file, &["k2"]);
    assert!(
        missing.contains("sealed under the key k1, which server.encryption.keys does not have"),
        "{missing}"
    );
    let mut wrong = options(&file, &["k1"]);
    let other = sqlite::WrappingKey::new("k1", &[9; 32]);
    wrong.sealing.as_mut().unwrap().keys = vec![other].into();
    let wrong = SqliteStore::open(&wrong).unwrap_err().to_string();
    assert!(wrong.contains("the key k1 of server.encryption.keys is not the one"), "{wrong}");

    std::fs::write(keys_of(&file), &older).unwrap();
    let refused = refusal(&file, &["k1"]);
    assert!(refused.contains("is older than the database: it has no key for run"), "{refused}");
    std::fs::remove_file(keys_of(&file)).unwrap();
    let refused = refusal(&file, &["k1"]);
    assert!(
        refused.contains("the file with their keys is missing") && refused.contains(".db.keys"),
        "{refused}"
    );
    let foreign = directory.path().join("foreign.db");
    let store = open_sealed(&foreign, &["k1"]);
    saying(&store, &mut scribe, "elsewhere");
    drop(store);
    std::fs::copy(keys_of(&foreign), keys_of(&file)).unwrap();
    let refused = refusal(&file, &["k1"]);
    assert!(refused.contains("has the payload keys of another database"), "{refused}");

    std::fs::write(keys_of(&file), &newer).unwrap();
    drop(open_sealed(&file, &["k1"]));
    assert_eq!(audited(readable(&file, &file, &["k1"])).findings, []);
}

/// What was erased cannot be read in an older copy of the file, although the key that wrapped its key is still there; what stays of
/// it verifies. Its neighbour is read in both.
#[test]
fn an_erased_run_is_unreadable_in_every_copy() {
    let (_directory, file) = fresh_file();
    let mut scribe = Scribe::new(5);
    let store = open_sealed(&file, &["k1"]);
    let row = saying(&store, &mut scribe, "forget me");
    let neighbour = saying(&store, &mut scribe, "keep me");
    let run = row.run.facts.id;
    let backup = file.with_file_name("before.db");
    sqlite::copy(readable(&file, &file, &["k1"]), &backup, |_| {}).unwrap();
    let before = SqliteSnapshot::open(readable(&backup, &file, &["k1"])).unwrap();
    assert_eq!(checked(&before, run), Ok(row.clone()), "until then the copy has it");
    drop(before);
    let erased = erase(&store, &mut scribe, &row);
    assert_eq!(checked(&*store, run), Ok(erased));
    drop(store);
    let after = SqliteSnapshot::open(readable(&backup, &file, &["k1"])).unwrap();
    let why = checked(&after, run).unwrap_err();
    assert!(why.contains("the key that they are sealed with was destroyed"), "{why}");
    let links = block_on(RunStore::links(&after, run, Seq(0), 10)).unwrap();
    assert!(links.iter().all(|link| matches!(link.contents, Contents::Erased { .. })));
    let large = digest::of_bytes("forget me ".repeat(6000).as_bytes());
    assert_eq!(block_on(RunStore::blob(&after, run, large)), Ok(None));
    assert_eq!(checked(&after, neighbour.run.facts.id), Ok(neighbour.clone()));
    let store = open_sealed(&file, &["k1"]);
    assert_eq!(checked(&*store, neighbour.run.facts.id), Ok(neighbour));
    drop(store);
    drop(after);
    // A database that is put back says of the run that it is gone, and starts.
    std::fs::rename(&backup, &file).unwrap();
    let store = open_sealed(&file, &["k1"]);
    assert!(checked(&*store, run).unwrap_err().contains("was destroyed"));
}

/// A key that was destroyed just before the process died: the run says that it is erased, its chain verifies, and erasing it again
/// takes away what nobody could read any more.
#[test]
fn an_erasure_that_was_cut_off_is_carried_on() {
    let (_directory, file) = fresh_file();
    let mut scribe = Scribe::new(6);
    let store = open_sealed(&file, &["k1"]);
    let row = saying(&store, &mut scribe, "forget me");
    let row = send(&store, &mut scribe, &row, &Command::Cancel { reason: None });
    let row = send(&store, &mut scribe, &row, &Command::Erase { reason: None });
    let run = row.run.facts.id;
    drop(store);
    let destroy = "UPDATE run_keys SET no = NULL, wrapped_by = NULL, wrapped = NULL WHERE run = ";
    let id: String = run.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    overwrite(&keys_of(&file), &format!("{destroy} x'{id}'")).unwrap();
    let store = open_sealed(&file, &["k1"]);
    assert_eq!(checked(&*store, run), Ok(row.clone()));
    block_on(store.erase(run)).unwrap();
    assert_eq!(checked(&*store, run), Ok(row));
    drop(store);
    let left: i64 = Connection::open(&file)
        .unwrap()
        .query_row(
            "SELECT count(*) FROM blobs WHERE run = (SELECT no FROM runs WHERE id = ?1)",
            [run.bytes()],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(left, 0);
}

/// Runs from before are read as they are and are sealed from their next append on; what they said before that stays in the clear.
#[test]
fn sealing_begins_with_the_next_append() {
    let (_directory, file) = fresh_file();
    let mut scribe = Scribe::new(7);
    let store = open(&file).unwrap();
    let row = saying(&store, &mut scribe, "in the clear");
    let untouched = saying(&store, &mut scribe, "untouched");
    drop(store);
    let store = open_sealed(&file, &["k1"]);
    assert_eq!(checked(&*store, untouched.run.facts.id), Ok(untouched));
    let row = send(&store, &mut scribe, &row, &Command::Cancel { reason: None });
    let run = row.run.facts.id;
    assert_eq!(checked(&*store, run), Ok(row.clone()));
    let links = block_on(store.links(run, Seq(0), 10)).unwrap();
    assert_eq!(verify(&links), Ok(()));
    drop(store);
    assert_eq!(audited(readable(&file, &file, &["k1"])).findings, []);
    assert_eq!(sealed_links(&file, run), [false, true]);
    let store = open_sealed(&file, &["k1"]);
    let row = send(&store, &mut scribe, &row, &Command::Erase { reason: None });
    block_on(store.erase(run)).unwrap();
    assert_eq!(checked(&*store, run), Ok(row));
}

/// Which links of a run are sealed.
fn sealed_links(file: &Path, run: RunId) -> Vec<bool> {
    let connection = Connection::open(file).unwrap();
    let query = "SELECT payload LIKE '[{\"sealed\":%' FROM links WHERE key >> 20 = (SELECT no FROM runs WHERE id = ?1) ORDER BY key";
    let mut statement = connection.prepare(query).unwrap();
    statement.query_map([run.bytes()], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}
