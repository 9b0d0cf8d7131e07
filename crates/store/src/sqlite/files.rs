//! The files of a database: who may read them, what locks them, and whether the path still names what is open.
//!
//! Looks only at names (`stat`). It never opens the database file of a running store: closing it again would drop every
//! lock that SQLite has on it in this process.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::schema::OpenError;
use crate::observer::{self, Observer};

/// For the server's own eyes.
const PRIVATE: u32 = 0o600;

/// What everybody else on the machine may do.
const OTHERS: u32 = 0o007;

/// With less room than this, the next commits would fail.
const LEAST_FREE: u64 = 1024 * 1024;

/// A file itself, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        Identity { device: metadata.dev(), number: metadata.ino() }
    }

    fn at(path: &Path) -> io::Result<Identity> {
        std::fs::metadata(path).map(|metadata| Identity::of(&metadata))
    }
}

/// The files that a store has open, to be compared with what their names stand for.
#[derive(Debug, Clone)]
pub(super) struct OpenFiles {
    /// As the operator named it: a link that leads elsewhere now is noticed too.
    path: PathBuf,
    /// Beside the file that the path leads to.
    log_path: PathBuf,
    database: Identity,
    log: Identity,
}

impl OpenFiles {
    /// What the names stand for just after SQLite has opened them.
    pub(super) fn at(path: &Path) -> io::Result<OpenFiles> {
        let log_path = beside(&path.canonicalize()?, "-wal");
        Ok(OpenFiles {
            database: Identity::at(path)?,
            log: Identity::at(&log_path)?,
            path: path.to_owned(),
            log_path,
        })
    }

    /// Whether the names still stand for the open files; a sentence when they do not. What is written to a file without
    /// its name is gone with the process.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_database()?;
        named(&self.log_path, self.log, "the write-ahead log")
    }

    /// The same of the database file alone.
    pub(super) fn check_database(&self) -> Result<(), String> {
        named(&self.path, self.database, "the database file")
    }

    /// Whether there is room for more; a sentence when there is not.
    pub(super) fn check_room(&self) -> Result<(), String> {
        let Ok(disk) = rustix::fs::statvfs(&self.path) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        // Some file systems do not say how large they are.
        if disk.f_blocks > 0 && free < LEAST_FREE {
            let path = self.path.display();
            return Err(format!(
                "the disk of {path} is full ({free} bytes are free); free some space, nothing else is needed"
            ));
        }
        Ok(())
    }
}

fn named(path: &Path, open: Identity, what: &str) -> Result<(), String> {
    let path_text = path.display();
    match Identity::at(path) {
        Ok(found) if found == open => Ok(()),
        Ok(_) => Err(format!("{what} {path_text} was replaced by another file while the server had it open")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("{what} {path_text} was deleted or moved while the server had it open"))
        }
        Err(error) => Err(format!("{what} {path_text} cannot be found any more ({error})")),
    }
}

/// Makes a missing database file, for the server's own eyes; SQLite gives the files beside it the same permissions.
/// Refuses a file with several names: each name would get a write-ahead log of its own, and neither has everything.
pub(super) fn prepare(path: &Path) -> Result<(), OpenError> {
    let unusable = |error: io::Error| OpenError::unusable(path, error);
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.nlink() > 1 && metadata.is_file() => Err(OpenError::unusable(
            path,
            "it has more than one name (a hard link), and what is written under one is missing under the other; \
             delete the other name, or copy the file",
        )),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            private().open(path).map(|_| ()).map_err(unusable)
        }
        Err(error) => Err(unusable(error)),
    }
}

/// The lock that keeps other stores away, beside the file that the path leads to: whoever comes by another link finds
/// the same one.
pub(super) fn lock(path: &Path) -> Result<File, OpenError> {
    let unusable = |error: io::Error| OpenError::unusable(path, error);
    let name = beside(&path.canonicalize().map_err(unusable)?, ".lock");
    let file = private().open(&name).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(std::fs::TryLockError::Error(error)) => Err(unusable(error)),
    }
}

/// Takes away what everybody on the machine may do with the files, as older versions left them. What a group may do was
/// somebody's wish and stays.
pub(super) fn tighten(path: &Path, observer: Option<&dyn Observer>) {
    let Ok(real) = path.canonicalize() else { return };
    for name in ["", "-wal", "-shm", ".lock"].map(|end| beside(&real, end)) {
        let Ok(metadata) = std::fs::metadata(&name) else { continue };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & OTHERS == 0 {
            continue;
        }
        let text = match std::fs::set_permissions(&name, Permissions::from_mode(PRIVATE)) {
            Ok(()) => format!(
                "{} could be read by everybody on this machine (mode {mode:o}); changed to {PRIVATE:o}",
                name.display()
            ),
            Err(error) => format!(
                "everybody on this machine can read {} (mode {mode:o}), and that cannot be changed ({error}); run chmod \
                 {PRIVATE:o} on it as its owner",
                name.display()
            ),
        };
        observer::report(observer, "store", &text);
    }
}

fn private() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(PRIVATE);
    options
}

pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}
