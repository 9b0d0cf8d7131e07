//! Which calls of MCP clients wait for a decision: so that the same call, made again by the same or a later proxy, finds its gate.
//!
//! One small file for each, with the name under which the call was asked about. A file that is lost costs one more question, never a
//! second run: what was decided stays with the gate that it was decided on.

use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use standfast_core::digest::Digest;

/// A repeat that comes later than this is asked about again.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// The files.
#[derive(Debug)]
pub(super) struct WaitingCalls {
    folder: Option<PathBuf>,
}

impl WaitingCalls {
    /// Those of whoever runs this.
    pub(super) fn of_this_user() -> WaitingCalls {
        let variable =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || variable("HOME").map(|home| home.join(".local").join("state"));
        let folder =
            variable("XDG_STATE_HOME").or_else(home).map(|state| state.join("standfast").join("mcp"));
        WaitingCalls { folder }
    }

    /// Those in this folder.
    #[cfg(test)]
    fn at(folder: &Path) -> WaitingCalls {
        WaitingCalls { folder: Some(folder.to_owned()) }
    }

    fn file(&self, of: Digest) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(of.to_string()))
    }

    /// Under which name such a call waits, if one does.
    pub(super) fn find(&self, of: Digest) -> Option<String> {
        let file = self.file(of)?;
        let age = std::fs::metadata(&file).ok()?.modified().ok()?.elapsed().unwrap_or_default();
        std::fs::read_to_string(file).ok().filter(|name| age < REMEMBERED && !name.is_empty())
    }

    /// Such a call waits under this name.
    pub(super) fn remember(&self, of: Digest, name: &str) {
        let Some(file) = self.file(of) else { return };
        if let Err(error) = write(&file, name) {
            eprintln!(
                "standfast: a repeat of this call will be asked about again: cannot write {}: {error}",
                file.display()
            );
        }
    }

    /// It does not wait any more.
    pub(super) fn forget(&self, of: Digest) {
        if let Some(file) = self.file(of) {
            // What is not there need not be removed.
            drop(std::fs::remove_file(file));
        }
    }
}

fn write(file: &Path, name: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(file)?.write_all(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use standfast_core::digest;

    use super::*;

    #[test]
    fn a_waiting_call_is_found_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let calls = WaitingCalls::at(&folder.path().join("new"));
        let (one, other) = (digest::of_bytes(b"one"), digest::of_bytes(b"other"));
        assert_eq!(calls.find(one), None);
        calls.remember(one, "a");
        assert_eq!((calls.find(one).as_deref(), calls.find(other)), (Some("a"), None));
        calls.forget(one);
        calls.forget(one);
        assert_eq!(calls.find(one), None);
    }

    #[test]
    fn without_a_home_nothing_is_remembered() {
        let calls = WaitingCalls { folder: None };
        let one = digest::of_bytes(b"one");
        calls.remember(one, "a");
        assert_eq!(calls.find(one), None);
    }
}
