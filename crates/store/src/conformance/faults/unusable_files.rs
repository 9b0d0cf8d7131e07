//! F16: files that cannot be used: missing directory, directory, no database, in use, newer, locked.
//!
//! Each is refused with a clear message, and works once the cause is gone. (Tests run as root, whom permissions do not
//! bind; a file system mounted read-only is left to the system tests.)

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::super::support::{NewRun, Scribe, block_on};
use super::{Report, check_all, fresh_file, open};
use crate::{Store, StoreError};

type Case = (&'static str, fn() -> Result<(), String>);

const CASES: [Case; 7] = [
    ("a directory that is not there", missing_directory),
    ("a directory in the place of the file", directory_as_file),
    ("a file that is no database", no_database),
    ("a file that another store has", in_use),
    ("a file of a newer schema", newer_schema),
    ("a file that is locked for a moment", locked_for_a_moment),
    ("a file that is locked for long", locked_for_long),
];

/// Opens so many unusable files, each case in turn.
#[must_use]
pub fn unusable_files(count: usize) -> Report {
    let mut violations = Vec::new();
    for (what, case) in CASES.iter().cycle().take(count) {
        if let Err(why) = case() {
            violations.push(format!("{what}: {why}"));
        }
    }
    Report { id: "F16", what: "unusable files", count, violations }
}

/// Refused with a message that names the file and says this.
fn refused(file: &Path, says: &str) -> Result<(), String> {
    let Err(error) = open(file) else { return Err("it opens".into()) };
    let text = error.to_string();
    match text.contains(&*file.to_string_lossy()) && text.contains(says) {
        true => Ok(()),
        false => Err(format!("the message is: {text}")),
    }
}

/// Opens and takes an append.
fn works(file: &Path) -> Result<(), String> {
    let store = open(file).map_err(|error| error.to_string())?;
    let batch = Scribe::new(16).start(&NewRun::of("helper"));
    block_on(store.append(vec![batch])).map_err(|error| error.to_string())?;
    check_all(&*store).first().map_or(Ok(()), |why| Err(why.clone()))
}

fn missing_directory() -> Result<(), String> {
    let (directory, _) = fresh_file();
    let below = directory.path().join("missing");
    refused(&below.join("holdpoint.db"), "No such file or directory")?;
    std::fs::create_dir(&below).unwrap();
    works(&below.join("holdpoint.db"))
}

fn directory_as_file() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    std::fs::create_dir(&file).unwrap();
    refused(&file, "it is a directory")?;
    std::fs::remove_dir(&file).unwrap();
    works(&file)
}

fn no_database() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    std::fs::write(&file, "Dear diary, ".repeat(1000)).unwrap();
    refused(&file, "not a database")?;
    let kept = std::fs::read_to_string(&file).unwrap();
    if !kept.starts_with("Dear diary") {
        return Err("somebody's file was overwritten".into());
    }
    std::fs::remove_file(&file).unwrap();
    works(&file)
}

fn in_use() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    let first = open(&file).map_err(|error| error.to_string())?;
    refused(&file, "is in use by another Holdpoint server")?;
    drop(first);
    works(&file)
}

fn newer_schema() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    drop(open(&file).map_err(|error| error.to_string())?);
    let sql =
        |sql: &str| Connection::open(&file).and_then(|connection| connection.execute_batch(sql)).unwrap();
    sql(
        "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) VALUES (99, 'later', '', '1')",
    );
    refused(&file, "has schema 99, but this version of Holdpoint knows only")?;
    sql("DELETE FROM refinery_schema_history WHERE version = 99");
    works(&file)
}

/// Another process's write lock.
fn locked(file: &Path) -> Connection {
    let other = Connection::open(file).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    other
}

fn locked_for_a_moment() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    let store = open(&file).map_err(|error| error.to_string())?;
    let other = locked(&file);
    let batch = Scribe::new(16).start(&NewRun::of("helper"));
    let row = batch.row.clone();
    let answer = store.append(vec![batch]);
    std::thread::sleep(Duration::from_millis(200));
    drop(other);
    block_on(answer).map_err(|error| error.to_string())?;
    match super::checked(&*store, row.run.facts.id)? == row {
        true => Ok(()),
        false => Err("something else was written".into()),
    }
}

fn locked_for_long() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    let store = open(&file).map_err(|error| error.to_string())?;
    let before = Scribe::new(15).start(&NewRun::of("helper"));
    block_on(store.append(vec![before.clone()])).map_err(|error| error.to_string())?;
    let other = locked(&file);
    let batch = Scribe::new(16).start(&NewRun::of("helper"));
    match block_on(store.append(vec![batch.clone()])) {
        Err(StoreError::Unavailable { why }) if why.contains("locked") => {}
        other => return Err(format!("appending says: {other:?}")),
    }
    // Reads go on meanwhile.
    super::checked(&*store, before.run())?;
    drop(other);
    block_on(store.append(vec![batch])).map_err(|error| format!("after the lock is gone: {error}"))
}
