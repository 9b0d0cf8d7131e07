//! The folder: its files, who may read them, the lock, and whether the path still names what is open.
//!
//! Knows paths and bytes, nothing of what is in them. A file is replaced by a rename, so whoever looks sees a whole one;
//! a log grows at a known place, so the same change made twice is made once. Nothing here is durable before
//! [`Folder::sync`]: what makes a change count is the journal (`journal.rs`).

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::OpenError;
use crate::observer::{self, Observer};

/// The component that reports name.
const COMPONENT: &str = "store";

/// For the server's own eyes.
const PRIVATE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

/// What everybody else on the machine may do.
const OTHERS: u32 = 0o007;

/// With less room than this, the next commits would fail.
const LEAST_FREE: u64 = 1024 * 1024;

/// The longest name that every file system takes, with room for what is put behind it.
const NAME_MAX: usize = 200;

/// What becomes of one file. Making it again changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileChange {
    /// It has this text.
    Put { path: String, text: String },
    /// From this place on it has this text.
    Append { path: String, at: u64, text: String },
    /// It is gone.
    Delete { path: String },
}

impl FileChange {
    pub(super) fn path(&self) -> &str {
        match self {
            FileChange::Put { path, .. } | FileChange::Append { path, .. } | FileChange::Delete { path } => {
                path
            }
        }
    }

    /// What it makes of the file's bytes.
    pub(super) fn made_of(&self, before: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match self {
            FileChange::Put { text, .. } => Some(text.clone().into_bytes()),
            FileChange::Append { at, text, .. } => {
                let mut bytes = before.unwrap_or_default();
                bytes.truncate(usize::try_from(*at).unwrap_or(usize::MAX));
                bytes.extend_from_slice(text.as_bytes());
                Some(bytes)
            }
            FileChange::Delete { .. } => None,
        }
    }
}

/// A file or folder itself, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    fn at(path: &Path) -> io::Result<Identity> {
        fs::metadata(path).map(|found| Identity { device: found.dev(), number: found.ino() })
    }
}

/// The folder of a store.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    /// As the operator named it: a link that leads elsewhere now is noticed too.
    named: PathBuf,
    root: PathBuf,
    identity: Identity,
    observer: Option<Arc<dyn Observer>>,
}

impl Folder {
    /// Opens a folder that nobody watches: reports go to stderr.
    pub(super) fn open(path: &Path) -> Result<Folder, OpenError> {
        Folder::observed(path, None)
    }

    /// Makes a missing folder. What is above it must be there.
    pub(super) fn observed(path: &Path, observer: Option<Arc<dyn Observer>>) -> Result<Folder, OpenError> {
        let unusable = |error: io::Error| OpenError::unusable(path, error);
        match fs::metadata(path) {
            Ok(found) if !found.is_dir() => {
                return Err(OpenError::unusable(path, "it is a file, and the file store needs a folder"));
            }
            Ok(found) if found.permissions().mode() & OTHERS != 0 => tighten(path, observer.as_deref()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                DirBuilder::new().mode(PRIVATE_FOLDER).create(path).map_err(unusable)?;
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                sync_folder(above.unwrap_or(Path::new("."))).map_err(unusable)?;
            }
            Err(error) => return Err(unusable(error)),
        }
        let root = path.canonicalize().map_err(unusable)?;
        let identity = Identity::at(&root).map_err(unusable)?;
        Ok(Folder { identity, named: path.to_owned(), root, observer })
    }

    /// Reports something that the operator should know.
    pub(super) fn report(&self, text: &str) {
        observer::report(self.observer.as_deref(), COMPONENT, text);
    }

    /// Keeps other stores away, by whichever name they come.
    pub(super) fn lock(&self) -> Result<File, OpenError> {
        let unusable = |error: io::Error| OpenError::unusable(&self.named, error);
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(PRIVATE);
        let file = options.open(self.root.join("lock")).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => Err(OpenError::InUse { path: self.named.clone() }),
            Err(fs::TryLockError::Error(error)) => Err(unusable(error)),
        }
    }

    pub(super) fn named(&self) -> &Path {
        &self.named
    }

    /// Where a file of the folder is.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Whether the name still stands for the folder; a sentence when it does not. What is written to a folder without its
    /// name is gone with the process.
    pub(super) fn check(&self) -> Result<(), String> {
        let named = self.named.display();
        match Identity::at(&self.named) {
            Ok(found) if found == self.identity => Ok(()),
            Ok(_) => Err(format!("the folder {named} was replaced by another while the server had it open")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(format!("the folder {named} was deleted or moved while the server had it open"))
            }
            Err(error) => Err(format!("the folder {named} cannot be found any more ({error})")),
        }
    }

    /// Whether there is room for this much; a sentence when there is not.
    pub(super) fn check_room(&self) -> Result<(), String> {
        let Ok(disk) = rustix::fs::statvfs(&self.root) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        // Some file systems do not say how large they are.
        if disk.f_blocks > 0 && free < LEAST_FREE {
            let named = self.named.display();
            return Err(format!(
                "the disk of {named} is full ({free} bytes are free); free some space, nothing else is needed"
            ));
        }
        Ok(())
    }

    /// The bytes of a file; none when there is none.
    pub(super) fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.at(path)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names in a folder below, in order; none when it is not there. Leaves out what a crash left half-written.
    pub(super) fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.at(path)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| !name.ends_with(".new"));
        names.sort();
        Ok(names)
    }

    /// Makes a change, and remembers what has to be synced for it.
    pub(super) fn make(&self, change: &FileChange, unsynced: &mut UnsyncedPaths) -> io::Result<()> {
        let relative = Path::new(change.path());
        if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(io::Error::new(ErrorKind::InvalidData, "it leads out of the folder"));
        }
        let path = self.at(change.path());
        self.make_folders(relative, unsynced)?;
        match change {
            FileChange::Put { text, .. } => {
                let mut beside = path.clone().into_os_string();
                beside.push(".new");
                let mut options = File::options();
                let file = options.create(true).truncate(true).write(true).mode(PRIVATE).open(&beside)?;
                file.write_all_at(text.as_bytes(), 0)?;
                fs::rename(&beside, &path)?;
                unsynced.files.insert(change.path().to_owned());
            }
            FileChange::Append { at, text, .. } => {
                let mut options = File::options();
                let file = options.create(true).truncate(false).write(true).mode(PRIVATE).open(&path)?;
                let length = file.metadata()?.len();
                if length < *at {
                    let why = format!("it has {length} bytes, and {at} were written");
                    return Err(io::Error::new(ErrorKind::InvalidData, why));
                }
                if length > *at {
                    file.set_len(*at)?;
                }
                file.write_all_at(text.as_bytes(), *at)?;
                unsynced.files.insert(change.path().to_owned());
            }
            FileChange::Delete { .. } => match fs::remove_file(&path) {
                Ok(()) => drop(unsynced.files.remove(change.path())),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    /// Makes the folders that a file is in, and remembers all of them.
    fn make_folders(&self, file: &Path, unsynced: &mut UnsyncedPaths) -> io::Result<()> {
        let Some(parent) = file.parent() else { return Ok(()) };
        if !unsynced.folders.insert(parent.to_owned()) {
            return Ok(());
        }
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(PRIVATE_FOLDER).create(self.root.join(parent))?;
        unsynced.folders.extend(parent.ancestors().map(Path::to_owned));
        Ok(())
    }

    /// Makes everything durable that was changed.
    pub(super) fn sync(&self, unsynced: &UnsyncedPaths) -> io::Result<()> {
        for path in &unsynced.files {
            match File::open(self.at(path)) {
                Ok(file) => file.sync_all()?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        unsynced.folders.iter().try_for_each(|folder| sync_folder(&self.root.join(folder)))
    }

    /// Makes the names in the folder itself durable.
    pub(super) fn sync_root(&self) -> io::Result<()> {
        sync_folder(&self.root)
    }

    /// A new file, for the server's own eyes.
    pub(super) fn create(&self, path: &str) -> io::Result<File> {
        File::options().create(true).truncate(true).read(true).write(true).mode(PRIVATE).open(self.at(path))
    }
}

/// What was changed and is not durable in its own place yet.
#[derive(Debug, Default)]
pub(super) struct UnsyncedPaths {
    files: BTreeSet<String>,
    folders: BTreeSet<PathBuf>,
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Takes away what everybody on the machine may do with the folder: then nobody gets at the files in it either.
fn tighten(path: &Path, observer: Option<&dyn Observer>) {
    let (shown, mode) = (path.display(), format!("{PRIVATE_FOLDER:o}"));
    let text = match fs::set_permissions(path, Permissions::from_mode(PRIVATE_FOLDER)) {
        Ok(()) => format!("{shown} could be read by everybody on this machine; changed to mode {mode}"),
        Err(error) => format!(
            "everybody on this machine can read {shown}, and that cannot be changed ({error}); run chmod {mode} on it \
             as its owner"
        ),
    };
    observer::report(observer, COMPONENT, &text);
}

/// A name as a file name: whatever could lead elsewhere is written as `%` and its hex digits, and what is too long ends
/// with its digest.
pub(super) fn file_name(name: &str) -> String {
    let mut safe = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => safe.push(char::from(byte)),
            b'.' if !safe.is_empty() => safe.push('.'),
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    bounded(safe)
}

/// A file name that every file system takes: what is too long ends with its digest.
pub(super) fn bounded(mut name: String) -> String {
    if name.len() > NAME_MAX {
        let digest = standfast_core::digest::of_bytes(name.as_bytes());
        name.truncate(NAME_MAX - 60);
        name = format!("{name}~{digest}");
    }
    name
}
