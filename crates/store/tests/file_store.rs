//! What only the file store does: older and newer folds, erased bytes, a journal without its end, files for people, and what
//! a run costs.
//!
//! Files are edited while no store has the folder open. A copy of the files of an open store is what a crash leaves.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a failed expectation is a failed test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use standfast_core::command::{Command, SuspendFor};
use standfast_core::time::Millis;
use standfast_store::conformance::Backend;
use standfast_store::conformance::faults::files::{files_of, fresh_folder, job, open, write_files};
use standfast_store::conformance::support::{
    NewRun, SHELL, Scribe, World, block_on, checked, ids, runs_by, session_of, tenant, the_hold,
};
use standfast_store::file::{CredentialFolder, FileOptions, FileStore, verify};
use standfast_store::{
    CallQuery, CallStatus, Credential, IdempotencyStore, KeyNote, RunFilter, RunStore, SecretStore,
    SessionChange, SessionStore, Store, StoreError,
};

/// A folder that is known.
struct KnownFolder(PathBuf);

impl Backend for KnownFolder {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(FileStore::open(&FileOptions::at(&self.0)).unwrap())
    }
}

fn world(folder: &Path) -> World {
    World::on(Box::new(KnownFolder(folder.to_owned())))
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = read(path);
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

#[test]
fn a_row_of_an_older_fold_is_rebuilt_and_one_of_a_newer_is_left_alone() {
    let (_directory, folder) = fresh_folder();
    let mut world = world(&folder);
    let ((older, hold), newer, other) =
        (world.held_run("helper"), world.queued_run("helper"), world.queued_run("helper"));
    let file = |run: &standfast_core::project::RunRow| folder.join(format!("run/{}.json", run.run.facts.id));
    drop(world);
    edit(&file(&older), |row| {
        row["fold"] = json!(0);
        row["state"] = json!({});
    });
    edit(&file(&newer), |row| {
        row["fold"] = json!(99);
        row["state"] = json!("of the future");
    });
    let kept = std::fs::read(file(&newer)).unwrap();
    let store = open(&folder).unwrap();
    assert_eq!(checked(&*store, older.run.facts.id), Ok(older.clone()));
    assert_eq!(block_on(store.find_hold(hold)).unwrap().unwrap().id, hold);
    let run = newer.run.facts.id;
    assert_eq!(block_on(store.load(run)), Err(StoreError::Newer { run, found: 99 }));
    let batch = Scribe::new(5).batch(&newer, &Command::Cancel { reason: None });
    assert_eq!(block_on(store.append(vec![batch])), Err(StoreError::Newer { run, found: 99 }));
    let listed = block_on(store.list_runs(runs_by(RunFilter::All))).unwrap();
    assert_eq!(ids(&listed.items), [other.run.facts.id, older.run.facts.id]);
    drop(store);
    assert_eq!(std::fs::read(file(&newer)).unwrap(), kept);
}

/// Deleted is deleted: not in the log, not in a large value, not in the journal, not in a session.
#[test]
fn erased_contents_are_gone_from_every_file() {
    let (_directory, folder) = fresh_folder();
    let mut world = world(&folder);
    let secret = "xyzzy-in-the-log";
    let large = "plugh-in-a-blob ".repeat(2000);
    let mut erased = Vec::new();
    for said in [secret, &large] {
        let row = world.start(&NewRun::of("helper").saying(said));
        let row = world.send(&row, &Command::Cancel { reason: None });
        let row = world.send(&row, &Command::Erase { reason: None });
        assert_eq!(block_on(world.store().erase(row.run.facts.id)), Ok(()));
        erased.push(row);
    }
    // Also while the store is open.
    for (name, bytes) in files_of(&folder) {
        for word in [secret, "plugh-in-a-blob"] {
            let found = bytes.windows(word.len()).any(|window| window == word.as_bytes());
            assert!(!found, "{word} still stands in {name}");
        }
    }
    world.reopen();
    for row in erased {
        assert_eq!(checked(&*world.store(), row.run.facts.id), Ok(row));
    }
}

/// A journal that was put back to an older state is noticed by the rows that are newer than it.
#[test]
fn a_journal_without_its_end_is_refused() {
    let (_directory, folder) = fresh_folder();
    let mut world = world(&folder);
    world.queued_run("helper");
    let before = files_of(&folder)["journal.jsonl"].clone();
    world.queued_run("helper");
    let mut left = files_of(&folder);
    left.insert("journal.jsonl".into(), before);
    let (_directory, copy) = fresh_folder();
    write_files(&copy, &left);
    let why = open(&copy).unwrap_err().to_string();
    assert!(why.contains("journal.jsonl") && why.contains("its end is missing"), "{why}");
}

/// What was noted without a sync survives a killed process, and what was in the journal alone is in its file again.
#[test]
fn what_a_killed_process_leaves_has_everything() {
    let (_directory, folder) = fresh_folder();
    let mut world = world(&folder);
    let (row, _) = world.suspended_run("a", SuspendFor::External);
    let run = row.run.facts.id;
    let request = standfast_core::digest::of_bytes(b"request");
    let until = world.now().plus(Millis::hours(48));
    let note = KeyNote { tenant: tenant("default"), key: "k".into(), run, kept: Some((request, until)) };
    assert_eq!(block_on(world.store().note_keys(vec![note])), Ok(()));
    let change = SessionChange::Metadata { before: "{}".into(), after: r#"{"b": 1, "a": null}"#.into() };
    let at = world.now();
    assert_eq!(block_on(world.store().change_session(session_of(&row), change, at)), Ok(true));
    let mut left = files_of(&folder);
    // Every file is gone; the journal is all there is.
    left.retain(|name, _| name == "journal.jsonl");
    let (_directory, copy) = fresh_folder();
    write_files(&copy, &left);
    let store = open(&copy).unwrap();
    assert_eq!(checked(&*store, run), Ok(row.clone()));
    let found = block_on(store.find_key(tenant("default"), "k".into())).unwrap().unwrap();
    assert_eq!((found.request, found.run), (request, run));
    let session = block_on(store.session(session_of(&row))).unwrap().unwrap();
    assert_eq!(session.metadata, r#"{"b": 1, "a": null}"#);
    drop(store);
    // The run pins a definition that nobody stored.
    let mut findings = verify(&copy, |_| {}).unwrap().findings;
    findings.retain(|finding| !finding.what.contains("that it is pinned to"));
    assert!(findings.is_empty(), "{findings:?}");
    let call = copy.join(format!("pending_tool/{}.json", the_hold(&row)));
    assert_eq!(read(&call)["status"], "waiting");
}

/// S2-25: the index is made again from the files; S2-42: settled calls go after a while, and stay gone.
#[test]
fn the_index_follows_from_the_files_of_calls() {
    let (_directory, folder) = fresh_folder();
    let options = FileOptions { keep_settled: Some(Millis::hours(1)), ..FileOptions::at(&folder) };
    let store = FileStore::open(&options).unwrap();
    let mut scribe = Scribe::new(25);
    let mut last = Vec::new();
    for name in ["s-1", "s-2"] {
        let batches = job(&mut scribe, &NewRun::of("deployer").in_session(name));
        last.push(batches.last().unwrap().row.clone());
        for batch in batches {
            block_on(store.append(vec![batch])).unwrap();
        }
    }
    let [first, second] = [the_hold(&last[0]), the_hold(&last[1])];
    let cancel = scribe.batch(&last[0], &Command::Cancel { reason: None });
    block_on(store.append(vec![cancel])).unwrap();
    let by = |session: Option<&str>, statuses: &[CallStatus]| {
        let session = session.map(str::to_owned);
        CallQuery { tenant: tenant("default"), session, statuses: statuses.to_vec() }
    };
    let find = |store: &FileStore, query| block_on(store.find_calls(query)).unwrap().unwrap();
    assert_eq!(find(&store, by(None, &[CallStatus::Waiting])), [second]);
    assert_eq!(find(&store, by(Some("s-1"), &[])), [first]);
    assert!(find(&store, by(Some("s-1"), &CallStatus::OPEN)).is_empty());
    drop(store);
    let path = folder.join("pending_tool/index.json");
    let index = read(&path);
    assert_eq!(index["bySession"], json!({"s-1": [first], "s-2": [second]}));
    assert_eq!(index["byStatus"], json!({"failed": [first], "waiting": [second]}));
    std::fs::remove_file(&path).unwrap();
    let store = FileStore::open(&options).unwrap();
    scribe.now = scribe.now.plus(Millis::hours(2));
    block_on(store.append(vec![scribe.start(&NewRun::of("other"))])).unwrap();
    assert_eq!(find(&store, by(None, &[])), [second]);
    assert!(!folder.join(format!("pending_tool/{first}.json")).exists());
    drop(store);
    assert_eq!(read(&path)["bySession"], json!({"s-2": [second]}));
    let store = FileStore::open(&options).unwrap();
    assert_eq!(find(&store, by(None, &[])), [second], "what was forgotten is not made again");
}

/// A key that another process revoked stays revoked, whatever the journal has.
#[test]
fn keys_are_changed_beside_a_running_store() {
    let (_directory, folder) = fresh_folder();
    let store = open(&folder).unwrap();
    let credential = Credential {
        tenant: tenant("default"),
        prefix: "sf_1".into(),
        hash: standfast_core::digest::of_bytes(b"secret"),
        facts: "{}".into(),
        expires_at: None,
        revoked_at: None,
    };
    assert_eq!(block_on(store.put_credential(credential.clone())), Ok(true));
    let beside = CredentialFolder::open(&folder).unwrap();
    assert_eq!(beside.put(credential.clone()), Ok(false));
    let at = standfast_core::time::Timestamp(5);
    assert_eq!(beside.revoke(&tenant("default"), "sf_1", at), Ok(true));
    let revoked = Credential { revoked_at: Some(at), ..credential };
    assert_eq!(block_on(store.credential("sf_1".into())), Ok(Some(revoked.clone())));
    let left = files_of(&folder);
    let (_directory, copy) = fresh_folder();
    write_files(&copy, &left);
    let store = open(&copy).unwrap();
    assert_eq!(block_on(store.credential("sf_1".into())), Ok(Some(revoked)));
}

/// Waiting costs a row in memory: logs and large values stay in their files.
#[test]
fn a_held_run_costs_a_row_in_memory() {
    const RUNS: usize = 1500;
    let (_directory, folder) = fresh_folder();
    let store = open(&folder).unwrap();
    let mut scribe = Scribe::new(28);
    for _ in 0..RUNS {
        let start = scribe.start(&NewRun::of("helper").saying("word ".repeat(4000)));
        let held = scribe.reply(&start.row, &[SHELL]);
        block_on(store.append(vec![start])).unwrap();
        block_on(store.append(vec![held])).unwrap();
    }
    drop((store, scribe));
    let before = resident();
    let store = open(&folder).unwrap();
    let each = resident().saturating_sub(before) / RUNS;
    println!("{each} bytes of memory for a held run");
    assert!(each < 10_000, "{each} bytes of memory for a held run whose message has 20,000");
    drop(store);
}

/// Bytes of memory that this process has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
