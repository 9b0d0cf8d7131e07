//! `standfast audit verify`, asked as its users ask it: the real binary on a real file.
//!
//! T32: whatever was changed in a stored log, the verifier says so and names the run. `audit/tampered.rs` changes everything
//! that is made from logs, and what only signed heads notice; `audit/rows.rs` what stands beside the runs,
//! `audit/sealed.rs` standing approvals, `audit/bundle.rs` the one file that an auditor is given, `audit/sent.rs` heads that a server
//! sends on, `audit/entries.rs` what is written of people.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod bundle;
mod bundle_range;
mod entries;
mod rows;
mod sealed;
mod sent;
mod tampered;

use std::path::{Path, PathBuf};
use std::process::Output;

use standfast_core::id::RunId;
use standfast_store::RunStore;
use standfast_store::conformance::support::{NewRun, Scribe, block_on};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

/// A file with two runs, of which the second has three links.
fn stored() -> (TempDir, PathBuf, RunId) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("standfast.db");
    let store = SqliteStore::open(&SqliteOptions::at(&path)).unwrap();
    let mut scribe = Scribe::new(7);
    let mut started = |name: &str| {
        let mut batch = scribe.start(&NewRun::of(name));
        batch.puts.push(scribe.pinned(&batch.row));
        batch
    };
    block_on(store.append(vec![started("other")])).unwrap();
    let mut batch = started("ops");
    for text in ["first", "second"] {
        let row = batch.row.clone();
        block_on(store.append(vec![batch])).unwrap();
        batch = scribe.batch(&row, &scribe_says(text));
    }
    let run = batch.run();
    block_on(store.append(vec![batch])).unwrap();
    (directory, path, run)
}

fn scribe_says(text: &str) -> standfast_core::command::Command {
    standfast_core::command::Command::Say(standfast_core::command::Say {
        message: standfast_core::message::Message::text(text),
        on_hold: standfast_core::command::OnHold::Refuse,
    })
}

fn verify(path: &Path, flags: &[&str]) -> Output {
    standfast_testkit::standfast().args(["audit", "verify"]).arg(path).args(flags).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn after_change(sql: &str) -> (Output, RunId) {
    let (_directory, path, run) = stored();
    rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    (verify(&path, &[]), run)
}

#[test]
fn an_untouched_file_verifies() {
    let (_directory, path, _) = stored();
    let answer = verify(&path, &[]);
    let said = text(&answer.stdout);
    assert!(said.contains("2 runs, 4 links, 6 events, 0 erased"), "{said}");
    assert!(said.contains("every chain verifies"), "{said}");
    assert_eq!(answer.status.code(), Some(0));
    let json = text(&verify(&path, &["--json"]).stdout);
    assert!(json.contains(r#""ok":true"#) && json.contains(r#""links":4"#), "{json}");
}

#[test]
fn it_can_be_asked_while_a_server_writes() {
    let (_directory, path, _) = stored();
    let _server = SqliteStore::open(&SqliteOptions::at(&path)).unwrap();
    assert_eq!(verify(&path, &[]).status.code(), Some(0));
}

#[test]
fn an_edited_a_moved_a_cut_and_a_missing_link_are_each_found() {
    let last = "(SELECT max(key) FROM links)";
    for change in [
        "UPDATE links SET payload = replace(payload, 'second', 'sixth!')".to_owned(),
        format!("UPDATE links SET at = at + 1 WHERE key = {last}"),
        format!("UPDATE links SET actor = actor + 1 WHERE key = {last}"),
        format!("DELETE FROM links WHERE key = {last}"),
        format!("DELETE FROM links WHERE key = (SELECT max(key) FROM links WHERE key < {last})"),
        "UPDATE runs SET head = zeroblob(32) WHERE no = 2".to_owned(),
        "UPDATE runs SET (fold, state, packed) = (SELECT fold, state, packed FROM runs WHERE no = 1) WHERE no = 2".to_owned(),
    ] {
        let (answer, run) = after_change(&change);
        let said = text(&answer.stdout);
        assert!(said.starts_with(&run.to_string()), "after {change}: {said}");
        assert!(said.contains("1 findings: "), "after {change}: {said}");
        assert_eq!(answer.status.code(), Some(1), "after {change}");
    }
}

#[test]
fn what_is_no_database_is_said_plainly() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("no.db");
    let said = |path: &Path| {
        let answer = verify(path, &[]);
        assert_eq!(answer.status.code(), Some(2));
        text(&answer.stderr)
    };
    assert!(said(&path).contains("cannot open"), "{}", said(&path));
    assert!(!path.exists(), "asking must not create the file");
    assert!(said(directory.path()).contains("there is no file store in it"), "{}", said(directory.path()));
    std::fs::write(&path, "not a database, only a text that is long enough to look like a file").unwrap();
    assert!(said(&path).contains("file is not a database"), "{}", said(&path));
    let other = directory.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(said(&other).contains("it is not a Standfast database"), "{}", said(&other));
}

fn export(path: &Path, flags: &[&str]) -> Output {
    let mut command = standfast_testkit::standfast();
    command.args(["audit", "export"]).arg(path).args(flags).output().unwrap()
}

fn lines(output: &Output) -> Vec<serde_json::Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// T32: everything that happened, with the hash that seals it, also while a server has the file open.
#[test]
fn an_export_has_every_event_with_its_link() {
    let (_directory, path, run) = stored();
    let _server = SqliteStore::open(&SqliteOptions::at(&path)).unwrap();
    let all = export(&path, &["--json"]);
    let summary: serde_json::Value = serde_json::from_str(&text(&all.stderr)).unwrap();
    assert_eq!((all.status.code(), &summary["ok"], &summary["runs"]), (Some(0), &true.into(), &2.into()));
    assert_eq!(lines(&all).len() as u64, summary["events"].as_u64().unwrap());

    let id = run.to_string();
    let one = export(&path, &["--run", &id]);
    let events = lines(&one);
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert!(events.iter().all(|event| event["run"] == id.as_str() && event["link"]["hash"].is_string()));
    assert_eq!(events[0]["type"], "run.started");
    assert!(events.last().unwrap()["data"].to_string().contains("second"), "{events:?}");
    let first_of_link = |event: &serde_json::Value| event["link"]["first"].as_u64().unwrap();
    assert!(first_of_link(&events[0]) == 1 && first_of_link(events.last().unwrap()) > 1, "{events:?}");
}

#[test]
fn an_export_stops_a_run_where_it_does_not_verify() {
    let (_directory, path, run) = stored();
    let change = "UPDATE links SET payload = replace(payload, 'second', 'sixth!')";
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch(change).unwrap();
    drop(database);
    let all = export(&path, &[]);
    assert_eq!(all.status.code(), Some(1), "{all:?}");
    let events = lines(&all);
    let last = events.last().unwrap();
    assert_eq!(last["run"], run.to_string().as_str());
    assert!(last["problem"].as_str().unwrap().contains("hash"), "{last}");
    assert!(text(&all.stdout).contains("first") && !text(&all.stdout).contains("sixth"));
    assert!(text(&all.stderr).contains("1 do not verify"), "{all:?}");
}

#[test]
fn an_export_of_nothing_says_so() {
    let (_directory, path, run) = stored();
    let other = RunId::new(
        &standfast_core::name::Tenant::default_tenant(),
        standfast_core::id::StorageKind::Durable,
        standfast_core::time::Timestamp(1),
        [9; 5],
    );
    assert_ne!(other, run);
    for (flags, expected) in
        [(["--run", &other.to_string()], "there is no run"), (["--run", "no-id"], "--run: ")]
    {
        let output = export(&path, &flags);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}
