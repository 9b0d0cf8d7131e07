//! F16: files that cannot be used: missing directory, directory, no database, in use, newer, locked, deleted, replaced.
//!
//! Each is refused with a clear message, and works once the cause is gone. What is acknowledged can be found by the
//! name that the operator knows (I1). (Tests run as root, whom permissions do not
//! bind; a file system mounted read-only is left to the system tests.)

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use super::super::support::{NewRun, Scribe, block_on};
use super::{Report, check_all, fresh_file, open};
use crate::{RunStore, StoreError, WorkStore};

type Case = (&'static str, fn() -> Result<(), String>);

const CASES: [Case; 14] = [
    ("a directory that is not there", missing_directory),
    ("a directory in the place of the file", directory_as_file),
    ("a file that is no database", no_database),
    ("a file that another store has", in_use),
    ("a file of a newer schema", newer_schema),
    ("a file that is locked for a moment", locked_for_a_moment),
    ("a file that is locked for long", locked_for_long),
    ("a file that is deleted", deleted),
    ("a write-ahead log that is deleted", log_deleted),
    ("a file that is replaced by another", replaced),
    ("a link that leads elsewhere", link_moved),
    ("a file that another store has by a symbolic link", linked),
    ("a file with a second name", second_name),
    ("files that others may read", readable_by_others),
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
    if text.contains(&*file.to_string_lossy()) && text.contains(says) {
        Ok(())
    } else {
        Err(format!("the message is: {text}"))
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
    refused(&below.join("standfast.db"), "No such file or directory")?;
    std::fs::create_dir(&below).unwrap();
    works(&below.join("standfast.db"))
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
    refused(&file, "is in use by another Standfast server")?;
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
    refused(&file, "has schema 99, but this version of Standfast knows only")?;
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
    if super::checked(&*store, row.run.facts.id)? == row {
        Ok(())
    } else {
        Err("something else was written".into())
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

/// A store that has taken one append and whose files then change: the next append is not acknowledged, the reason says
/// this, nothing more is ever written, and a store that cannot write says so when it is asked.
fn lost_after(file: &Path, change: impl FnOnce(), says: &str) -> Result<(), String> {
    let store = open(file).map_err(|error| error.to_string())?;
    let mut scribe = Scribe::new(17);
    let before = scribe.start(&NewRun::of("helper"));
    block_on(store.append(vec![before.clone()])).map_err(|error| error.to_string())?;
    super::checked(&*store, before.run())?;
    change();
    for n in 0..3 {
        match block_on(store.append(vec![scribe.start(&NewRun::of("helper"))])) {
            Err(StoreError::Unavailable { why } | StoreError::Unknown { why }) if why.contains(says) => {}
            other => return Err(format!("append {n} says: {other:?}")),
        }
    }
    if !store.stopped().is_some_and(|why| why.contains(says)) {
        return Err("it does not say why it stopped".into());
    }
    let node = standfast_core::id::Incarnation([1; 16]);
    match block_on(store.renew(Vec::new(), node, scribe.now)) {
        Err(StoreError::Unavailable { .. }) => {}
        other => return Err(format!("whether it could write, it says: {other:?}")),
    }
    // Reads go on by connections that were there: what was stored is still in the file that is open.
    super::checked(&*store, before.run()).map(|_| ())
}

fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn deleted() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    let all = ["", "-wal", "-shm", ".lock"].map(|end| beside(&file, end));
    let delete = || all.iter().for_each(|name| std::fs::remove_file(name).unwrap());
    lost_after(&file, delete, "was deleted or moved while the server had it open")?;
    works(&file)
}

fn log_deleted() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    let log = beside(&file, "-wal");
    lost_after(&file, || std::fs::remove_file(log).unwrap(), "the write-ahead log")?;
    works(&file)
}

fn replaced() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    let other = beside(&file, ".backup");
    drop(open(&other).map_err(|error| error.to_string())?);
    let replace = || std::fs::rename(&other, &file).unwrap();
    lost_after(&file, replace, "was replaced by another file")
}

fn link_moved() -> Result<(), String> {
    let (directory, file) = fresh_file();
    let (link, other) = (directory.path().join("link.db"), directory.path().join("other.db"));
    drop(open(&other).map_err(|error| error.to_string())?);
    symlink(&file, &link).unwrap();
    let move_it = || {
        std::fs::remove_file(&link).unwrap();
        symlink(&other, &link).unwrap();
    };
    lost_after(&link, move_it, "was replaced by another file")?;
    works(&file)
}

fn linked() -> Result<(), String> {
    let (directory, file) = fresh_file();
    let link = directory.path().join("elsewhere").join("link.db");
    std::fs::create_dir(directory.path().join("elsewhere")).unwrap();
    symlink(&file, &link).unwrap();
    // By a link that leads nowhere yet, the file is made where it leads.
    let first = open(&link).map_err(|error| error.to_string())?;
    refused(&file, "is in use by another Standfast server")?;
    refused(&link, "is in use by another Standfast server")?;
    drop(first);
    let second = open(&file).map_err(|error| error.to_string())?;
    refused(&link, "is in use by another Standfast server")?;
    drop(second);
    works(&link)
}

fn second_name() -> Result<(), String> {
    let (directory, file) = fresh_file();
    let name = directory.path().join("name.db");
    let first = open(&file).map_err(|error| error.to_string())?;
    std::fs::hard_link(&file, &name).unwrap();
    refused(&name, "it has more than one name")?;
    drop(first);
    refused(&file, "it has more than one name")?;
    std::fs::remove_file(&name).unwrap();
    works(&file)
}

/// T29: what is stored is for the server's own eyes. Files of older versions are tightened, a group's rights stay.
fn readable_by_others() -> Result<(), String> {
    let (_directory, file) = fresh_file();
    let names = ["", "-wal", "-shm", ".lock"].map(|end| beside(&file, end));
    let modes = || names.clone().map(|name| std::fs::metadata(name).unwrap().permissions().mode() & 0o777);
    let set = |mode| {
        for name in names.iter().filter(|name| name.exists()) {
            std::fs::set_permissions(name, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    for (before, after) in [(0o600, 0o600), (0o644, 0o600), (0o640, 0o640)] {
        set(before);
        let store = open(&file).map_err(|error| error.to_string())?;
        block_on(store.append(vec![Scribe::new(before.into()).start(&NewRun::of("helper"))]))
            .map_err(|error| error.to_string())?;
        let found = modes();
        if found.iter().any(|mode| *mode != after) {
            return Err(format!("after mode {before:o} they have {found:?} (decimal), not {after:o}"));
        }
    }
    Ok(())
}
