//! Files below one directory, and nothing else (T25): every path is resolved by the kernel beneath the open root.
//!
//! `openat2` refuses `..` that leaves, absolute paths, every symbolic link, also one that is swapped in during the open,
//! and other file systems. What was opened is looked at before it is used: regular files with one name only. There is no
//! way around it on a kernel without `openat2`: a check of the path's text can be outrun.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fchmod, fstat, fsync, mkdirat, openat,
    openat2, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use standfast_engine::clock;

use super::sandbox::real_or_planned;

/// How a path is resolved.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// A rename somewhere on the way makes the kernel say "again"; this often is enough for any honest one.
const TRIES: u32 = 32;

/// A directory, opened once, and what of it nobody gets.
#[derive(Debug)]
pub struct Workspace {
    root: OwnedFd,
    path: PathBuf,
    /// Below the root, as in a path that was checked: configuration, store, keys (T26).
    protected: Vec<PathBuf>,
}

/// Why there is no workspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadWorkspace {
    /// It cannot be opened.
    #[error("the workspace {} cannot be opened: {error}", path.display())]
    Closed {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: String,
    },
    /// The whole machine is not a workspace.
    #[error("the workspace must not be /")]
    Everything,
    /// It could not be kept to.
    #[error(
        "this kernel has no openat2 (Linux 5.6), without which file tools cannot be confined to their workspace: {0}"
    )]
    Kernel(String),
}

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileRefusal {
    /// A path that leads out, or nowhere.
    #[error("{path:?} is not a path inside the workspace: {why}")]
    Path {
        /// As given.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Something that file tools do not touch.
    #[error("{path:?} is protected: {why}")]
    Protected {
        /// As given.
        path: String,
        /// What it is.
        why: &'static str,
    },
    /// A link, a pipe, a device, a directory.
    #[error("{path:?} is {what}; only regular files are used")]
    Kind {
        /// As given.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// It has other names, maybe outside.
    #[error("{0:?} has more than one name (hard links), and the others may be outside the workspace")]
    HardLink(String),
    /// More than is read or written.
    #[error("{path:?} has {size} bytes; at most {max} are used")]
    Size {
        /// As given.
        path: String,
        /// Of the file.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// No text.
    #[error("{0:?} is not UTF-8 text")]
    Text(String),
    /// Nothing of that name.
    #[error("{path:?}: there is no such file or directory")]
    Missing {
        /// As given.
        path: String,
    },
    /// The system refused it.
    #[error("{path:?}: {error}")]
    System {
        /// As given.
        path: String,
        /// Why.
        error: String,
    },
}

/// What is to be done with what a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// It stays as it is.
    Look,
    /// It changes, or goes.
    Change,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name; what is not UTF-8 is shown as U+FFFD.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// Bytes, of a regular file.
    pub size: Option<u64>,
}

impl Workspace {
    /// Opens a directory. What is protected may lie inside; it is refused then.
    pub fn open(path: &Path, protected: &[PathBuf]) -> Result<Workspace, BadWorkspace> {
        let closed = |error: String| BadWorkspace::Closed { path: path.to_owned(), error };
        let real = path.canonicalize().map_err(|error| closed(error.to_string()))?;
        if real.parent().is_none() {
            return Err(BadWorkspace::Everything);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &real, flags, Mode::empty()).map_err(|error| closed(error.to_string()))?;
        openat2(&root, ".", flags, Mode::empty(), BENEATH)
            .map_err(|error| BadWorkspace::Kernel(error.to_string()))?;
        let protected = protected
            .iter()
            .filter_map(|path| Some(real_or_planned(path).strip_prefix(&real).ok()?.to_owned()));
        Ok(Workspace { root, protected: protected.collect(), path: real })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as it would be opened, if its text alone does not speak against it.
    pub fn checked(&self, path: &str, intent: Intent) -> Result<PathBuf, FileRefusal> {
        let bad = |why| FileRefusal::Path { path: path.to_owned(), why };
        if path.contains('\0') {
            return Err(bad("it has a NUL character"));
        }
        let mut inside = PathBuf::new();
        for part in Path::new(path).components() {
            match part {
                Component::CurDir => {}
                Component::Normal(name) => inside.push(name),
                Component::ParentDir => return Err(bad("it has ..")),
                Component::RootDir | Component::Prefix(_) => {
                    return Err(bad("it is absolute; paths begin at the workspace"));
                }
            }
        }
        if self.is_protected(&inside) {
            let why = "it belongs to this server";
            return Err(FileRefusal::Protected { path: path.to_owned(), why });
        }
        let is_git = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
        if intent == Intent::Change && inside.components().any(is_git) {
            // A hook or a setting there is a program that the next git command starts.
            let why = "what git keeps is changed with git";
            return Err(FileRefusal::Protected { path: path.to_owned(), why });
        }
        Ok(inside)
    }

    fn is_protected(&self, inside: &Path) -> bool {
        self.protected.iter().any(|protected| inside.starts_with(protected))
    }

    /// The text of a file.
    pub fn read(&self, path: &str, max: u64) -> Result<String, FileRefusal> {
        self.read_with_time(path, max).map(|(text, _)| text)
    }

    /// The text of a file, and when it last changed, in milliseconds since 1970.
    pub fn read_with_time(&self, path: &str, max: u64) -> Result<(String, i64), FileRefusal> {
        let (file, stat) = self.regular(path, Intent::Look)?;
        let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or_default();
        let modified_at = stat.st_mtime.saturating_mul(1000).saturating_add(nanos / 1_000_000);
        let mut bytes = Vec::new();
        let read = file.take(max.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| FileRefusal::System { path: path.to_owned(), error: error.to_string() })?;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size > max {
            return Err(FileRefusal::Size { path: path.to_owned(), size, max });
        }
        let text = String::from_utf8(bytes).map_err(|_| FileRefusal::Text(path.to_owned()))?;
        Ok((text, modified_at))
    }

    /// Writes a whole file, or leaves it as it was: a new file takes the place of the old one. Directories on the way
    /// are made.
    pub fn write(&self, path: &str, text: &str) -> Result<(), FileRefusal> {
        let (parent, name) = self.parent(path, MissingDirectories::Make)?;
        let mode = match self.looked_at(path, &parent, &name)? {
            Some(old) => Mode::from_raw_mode(old.st_mode & 0o777),
            None => Mode::from_raw_mode(0o644),
        };
        let failed = |error: Errno| system(path, error);
        let scratch = format!(".standfast-{:032x}", u128::from_ne_bytes(clock::random_bytes()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&parent, &scratch, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
        let mut file = File::from(file);
        let written = file
            .write_all(text.as_bytes())
            .map_err(|error| FileRefusal::System { path: path.to_owned(), error: error.to_string() })
            .and_then(|()| fchmod(&file, mode).map_err(failed))
            .and_then(|()| fsync(&file).map_err(failed))
            .and_then(|()| renameat(&parent, &scratch, &parent, name.as_path()).map_err(failed));
        if written.is_err() {
            let _ = unlinkat(&parent, &scratch, AtFlags::empty());
        }
        written
    }

    /// Removes a file.
    pub fn delete(&self, path: &str) -> Result<(), FileRefusal> {
        let (parent, name) = self.parent(path, MissingDirectories::Refuse)?;
        if self.looked_at(path, &parent, &name)?.is_none() {
            return Err(system(path, Errno::NOENT));
        }
        unlinkat(&parent, name.as_path(), AtFlags::empty()).map_err(|error| system(path, error))
    }

    /// What a directory has, sorted by name; the second value says how many entries are left out.
    pub fn list(&self, path: &str, max: usize) -> Result<(Vec<Entry>, usize), FileRefusal> {
        let inside = self.checked(path, Intent::Look)?;
        let failed = |error: Errno| system(path, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = self.resolve(&inside, flags).map_err(failed)?;
        let mut entries = Vec::new();
        let mut left_out = 0;
        for entry in Dir::read_from(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let is_self = matches!(name.to_bytes(), b"." | b"..");
            if is_self || self.is_protected(&inside.join(name.to_string_lossy().as_ref())) {
                continue;
            }
            if entries.len() >= max {
                left_out += 1;
                continue;
            }
            let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
            let kind = stat.as_ref().map_or("unknown", |stat| what_it_is(stat));
            let size = stat.filter(|_| kind == "a file").map(|stat| stat.st_size.cast_unsigned());
            entries.push(Entry { name: name.to_string_lossy().into_owned(), kind, size });
        }
        entries.sort();
        Ok((entries, left_out))
    }

    /// An open regular file with one name.
    fn regular(&self, path: &str, intent: Intent) -> Result<(File, Stat), FileRefusal> {
        let inside = self.checked(path, intent)?;
        // Without blocking: a pipe would wait for its writer for ever.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // First without any effect: opening a device can do something already.
        let looked = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failed = |error: Errno| system(path, error);
        fits(path, &fstat(self.resolve(&inside, looked).map_err(failed)?).map_err(failed)?)?;
        let file = self.resolve(&inside, flags).map_err(failed)?;
        let stat = fstat(&file).map_err(failed)?;
        fits(path, &stat)?;
        Ok((File::from(file), stat))
    }

    /// The directory that a path's last name is in, opened, and that name.
    fn parent(&self, path: &str, missing: MissingDirectories) -> Result<(OwnedFd, PathBuf), FileRefusal> {
        let inside = self.checked(path, Intent::Change)?;
        let Some(name) = inside.file_name() else {
            return Err(FileRefusal::Path { path: path.to_owned(), why: "it names no file" });
        };
        let above = inside.parent().unwrap_or(Path::new(""));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failed = |error: Errno| system(path, error);
        let parent = match (self.resolve(above, flags), missing) {
            (Err(Errno::NOENT), MissingDirectories::Make) => {
                let mut so_far = PathBuf::new();
                for part in above.components() {
                    let at = self.resolve(&so_far, flags).map_err(failed)?;
                    match mkdirat(&at, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => so_far.push(part),
                        Err(error) => return Err(failed(error)),
                    }
                }
                self.resolve(above, flags).map_err(failed)?
            }
            (parent, _) => parent.map_err(failed)?,
        };
        Ok((parent, PathBuf::from(name)))
    }

    /// What stands under a name, if it is a file that may be replaced or removed. Whoever swaps it afterwards loses
    /// their link and nothing else: a rename or removal never follows one.
    fn looked_at(&self, path: &str, parent: &OwnedFd, name: &Path) -> Result<Option<Stat>, FileRefusal> {
        match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => fits(path, &stat).map(|()| Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(system(path, error)),
        }
    }

    fn resolve(&self, inside: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        let mut tries = TRIES;
        loop {
            match openat2(&self.root, inside, flags, Mode::empty(), BENEATH) {
                Err(Errno::AGAIN) if tries > 0 => tries -= 1,
                opened => return opened,
            }
        }
    }
}

/// What becomes of directories that are missing on the way.
#[derive(Clone, Copy)]
enum MissingDirectories {
    Make,
    Refuse,
}

fn fits(path: &str, stat: &Stat) -> Result<(), FileRefusal> {
    match what_it_is(stat) {
        "a file" if stat.st_nlink > 1 => Err(FileRefusal::HardLink(path.to_owned())),
        "a file" => Ok(()),
        what => Err(FileRefusal::Kind { path: path.to_owned(), what }),
    }
}

fn what_it_is(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

fn system(path: &str, error: Errno) -> FileRefusal {
    let path = path.to_owned();
    match error {
        Errno::LOOP => FileRefusal::Path { path, why: "a symbolic link is on the way" },
        Errno::XDEV => {
            FileRefusal::Path { path, why: "it leads out of the workspace or to another file system" }
        }
        Errno::NOENT => FileRefusal::Missing { path },
        other => FileRefusal::System { path, error: other.to_string() },
    }
}
