//! Which servers run with a data directory: one small file for each, locked for as long as its server runs.
//!
//! The lock is the truth and goes with the process, however that ends; a file without one is left over and removed. Knows
//! addresses and names of databases, nothing of what is in them. `keys create` asks it, and `doctor`.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use standfast::database::Database;

/// How the names of the files in the data directory begin, before the number of the process.
const PREFIX: &str = "server-";

/// A server that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunningServer {
    /// Its process.
    pub(super) pid: u32,
    /// Where it listens.
    pub(super) url: String,
    /// Its configuration file; none when it serves the demo.
    pub(super) config: Option<PathBuf>,
    /// Its database, as [`name_of`] has it.
    pub(super) database: String,
}

/// What keeps a server announced; dropping it takes the announcement back.
#[derive(Debug)]
pub(super) struct Announcement {
    path: PathBuf,
    /// Locked.
    _file: File,
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // Without its lock the file says nothing; removing it is tidiness.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The name of a database, the same from whichever folder it is named.
pub(super) fn name_of(database: &Database) -> String {
    match database.file() {
        Some(path) => path.canonicalize().unwrap_or(path).display().to_string(),
        None => database.to_string(),
    }
}

/// Announces this process.
pub(super) fn announce(data: &Path, server: &RunningServer) -> io::Result<Announcement> {
    let path = data.join(format!("{PREFIX}{}.json", server.pid));
    let unfinished = path.with_extension("new");
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
    // Locked before it has its name: whoever reads the folder would take it for left over.
    file.lock()?;
    file.write_all(&serde_json::to_vec(server)?)?;
    std::fs::rename(&unfinished, &path)?;
    Ok(Announcement { path, _file: file })
}

/// The servers that run with a data directory now. What cannot be read is none.
pub(super) fn running(data: &Path) -> Vec<RunningServer> {
    let Ok(entries) = std::fs::read_dir(data) else { return Vec::new() };
    let is_one = |name: &str| name.starts_with(PREFIX) && name.ends_with(".json");
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_one))
        .filter_map(|entry| read(&entry.path()))
        .collect()
}

fn read(path: &Path) -> Option<RunningServer> {
    let file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => serde_json::from_slice(&std::fs::read(path).ok()?).ok(),
        Ok(()) => {
            let _ = std::fs::remove_file(path);
            None
        }
        Err(TryLockError::Error(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_for_as_long_as_it_runs() {
        let data = tempfile::tempdir().unwrap();
        let server = RunningServer {
            pid: 7,
            url: "http://127.0.0.1:1".into(),
            config: None,
            database: "/srv/a.db".into(),
        };
        let announced = announce(data.path(), &server).unwrap();
        assert_eq!(running(data.path()), [server]);
        drop(announced);
        assert_eq!(running(data.path()), []);
        // What a killed server leaves behind.
        let left = data.path().join("server-8.json");
        std::fs::write(&left, "{}").unwrap();
        assert_eq!(running(data.path()), []);
        assert!(!left.exists());
    }
}
