//! A copy of a database file, taken beside the server that has it, or put back.
//!
//! SQLite's online backup copies every page in one read transaction: the copy is one instant, and the server goes on
//! writing. The copy is one file, without a write-ahead log beside it; it gets its name once it is on the disk and has
//! been verified, so a copy with its name is a whole one. Knows files, not what is in them: that is `audit.rs`.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use standfast_core::time::Timestamp;

use super::schema::{self, OpenError, SqliteFile};
use super::{audit, files};
use crate::audit::{Report, SignedCoverage};

/// How often the copy is begun again when somebody locks the source, and how long to wait between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// A copy that was made.
#[derive(Debug)]
pub struct FileCopy {
    /// How large it is.
    pub bytes: u64,
    /// What was verified in it. Findings were in the source too: the pages are the same.
    pub report: Report,
    /// When the last event in it happened; none when it has no run.
    pub last_event_at: Option<Timestamp>,
    /// Deliveries of webhooks that were not made yet.
    pub undelivered: u64,
    /// Whether its payloads are sealed: their keys are in a file that is not part of the copy.
    pub is_sealed: bool,
}

/// Copies a database. Refuses a target that is there, a source that is not a database of ours, or newer than this program.
pub fn copy<'a>(
    file: impl Into<SqliteFile<'a>>,
    to: &Path,
    progress: impl FnMut(u64),
) -> Result<FileCopy, OpenError> {
    let SqliteFile { path: from, sealing } = file.into();
    schema::check_readable(from)?;
    refuse_existing(to)?;
    let unfinished = UnfinishedFile::beside(to)?;
    let target = |error: &dyn ToString| OpenError::unusable(to, error.to_string());
    pages(from, &unfinished.0).map_err(|why| OpenError::unusable(from, why))?;
    File::open(&unfinished.0).and_then(|file| file.sync_all()).map_err(|error| target(&error))?;
    let copied = SqliteFile { path: &unfinished.0, sealing };
    let is_sealed = schema::is_sealed(&copied)?;
    let report = audit::verify_against(copied, &SignedCoverage::default(), progress)?;
    let (last_event_at, undelivered) = facts(&unfinished.0).map_err(|error| target(&error))?;
    let bytes = std::fs::metadata(&unfinished.0).map_err(|error| target(&error))?.len();
    // Whoever made a file of this name meanwhile keeps it.
    renameat_with(CWD, &unfinished.0, CWD, to, RenameFlags::NOREPLACE).map_err(|error| target(&error))?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| target(&error))?;
    Ok(FileCopy { bytes, report, last_event_at, undelivered, is_sealed })
}

/// A file that has no name of its own yet; removed unless it got one.
struct UnfinishedFile(PathBuf);

impl UnfinishedFile {
    fn beside(to: &Path) -> Result<UnfinishedFile, OpenError> {
        let path = files::beside(to, ".partial");
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(_) => Ok(UnfinishedFile(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let why = format!(
                    "{} is there: another copy is being made, or one was cut off; delete it",
                    path.display()
                );
                Err(OpenError::unusable(to, why))
            }
            Err(error) => Err(OpenError::unusable(to, error)),
        }
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // Gone already when all went well.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Neither the file nor what SQLite keeps beside it may be there: a log of another file would be played into this one.
fn refuse_existing(to: &Path) -> Result<(), OpenError> {
    let taken = ["", "-wal", "-shm", "-journal"].map(|end| files::beside(to, end));
    match taken.iter().find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => {
            let why = format!("{} is there and is not overwritten; move it away first", path.display());
            Err(OpenError::unusable(to, why))
        }
        None => Ok(()),
    }
}

fn pages(from: &Path, to: &Path) -> Result<(), String> {
    let copy = || -> rusqlite::Result<StepResult> {
        let source = schema::open_for_reading(from)?;
        let mut target = Connection::open(to)?;
        target.execute_batch("PRAGMA synchronous = FULL;")?;
        let backup = Backup::new(&source, &mut target)?;
        let mut last = backup.step(-1)?;
        for _ in 0..TRIES {
            if last == StepResult::Done {
                break;
            }
            std::thread::sleep(PAUSE);
            last = backup.step(-1)?;
        }
        drop(backup);
        // A file of its own: without the write-ahead log that the next reader would make beside it.
        target.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
        Ok(last)
    };
    match copy().map_err(|error| error.to_string())? {
        StepResult::Done => Ok(()),
        _ => Err("it stays locked by another program; try again".to_owned()),
    }
}

/// When the last event of a file happened; none when it has no run.
pub fn last_event_at(path: &Path) -> Result<Option<Timestamp>, OpenError> {
    schema::check_readable(path)?;
    facts(path).map(|(last, _)| last).map_err(|error| OpenError::unusable(path, error))
}

fn facts(path: &Path) -> rusqlite::Result<(Option<Timestamp>, u64)> {
    let connection = schema::open_for_reading(path)?;
    let last: Option<i64> = connection.query_row("SELECT max(at) FROM runs", [], |row| row.get(0))?;
    let undelivered =
        connection
            .query_row("SELECT count(*) FROM notices WHERE due_at IS NOT NULL", [], |row| row.get(0))?;
    Ok((last.map(Timestamp), undelivered))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::sqlite::{SqliteOptions, SqliteStore};

    /// The store holds its lock and its write-ahead log all the while.
    #[test]
    fn a_copy_is_one_private_file_and_never_overwrites() {
        let directory = tempfile::tempdir().unwrap();
        let (path, copied) = (directory.path().join("standfast.db"), directory.path().join("copy.db"));
        let store = SqliteStore::open(&SqliteOptions::at(&path)).unwrap();
        let made = copy(&path, &copied, |_| {}).unwrap();
        assert_eq!((made.report.findings.len(), made.last_event_at), (0, None));
        assert_eq!(std::fs::metadata(&copied).unwrap().permissions().mode() & 0o777, 0o600);
        let names: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        let beside =
            |name: &std::ffi::OsString| name.to_string_lossy().starts_with("copy.db") && name != "copy.db";
        assert!(!names.iter().any(beside), "{names:?}");
        let again = copy(&path, &copied, |_| {}).unwrap_err().to_string();
        assert!(again.contains("is not overwritten"), "{again}");
        drop(store);
        drop(SqliteStore::open(&SqliteOptions::at(&copied)).unwrap());
    }

    #[test]
    fn a_log_that_lies_where_the_copy_goes_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, copied) = (directory.path().join("standfast.db"), directory.path().join("copy.db"));
        drop(SqliteStore::open(&SqliteOptions::at(&path)).unwrap());
        std::fs::write(directory.path().join("copy.db-wal"), "left over").unwrap();
        assert!(copy(&path, &copied, |_| {}).unwrap_err().to_string().contains("copy.db-wal is there"));
        let text = directory.path().join("notes.txt");
        std::fs::write(&text, "x".repeat(5000)).unwrap();
        assert!(copy(&text, &directory.path().join("other.db"), |_| {}).is_err());
    }
}
