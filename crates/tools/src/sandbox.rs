//! What a command can reach: Landlock for files, signals and TCP, a filter of system calls for the rest (T24, T26).
//!
//! The working directory and a temporary directory of its own are writable, the system is readable, everything else is
//! not there; without network no socket can be made. A plan is made and checked in the server, handed to the shim, and
//! applied there to the one thread that starts the command. Where the kernel cannot do it, [`probe`] says so.

#[cfg(target_os = "linux")]
mod linux;
mod refusal;
mod roots;

use std::path::{Path, PathBuf};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

pub use refusal::words;
pub use roots::real_or_planned;

/// Whether the kernel confines commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Confinement {
    /// Yes; no commands where it cannot.
    #[default]
    On,
    /// No: a command can do what the server's user can. The operator said so.
    Off,
}

/// What of the network a command reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Nothing, not even this machine.
    #[default]
    None,
    /// Everything by IP, this server's own port included. Sockets of this machine's services stay out of reach.
    Internet,
}

/// What a command can reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Directories that it can change.
    pub writable: Vec<PathBuf>,
    /// Files and directories that it can read and run.
    pub readable: Vec<PathBuf>,
    /// The network.
    pub network: Reach,
    /// Whether it gets namespaces of its own.
    #[serde(default)]
    pub isolation: Isolation,
    /// What it has for itself; filled in by the shim, once that is known.
    #[serde(default)]
    pub spaces: Spaces,
}

/// Whether a command gets namespaces of its own where the kernel allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Yes.
    #[default]
    Namespaces,
    /// No, as on a machine that does not allow it; what they would have kept apart is closed instead.
    Strict,
}

/// What a command has for itself. Whatever it has not is closed to it by stricter rules: without mounts of its own no
/// mode, owner or time of a file can be changed; without a `/proc` of its own no process is in sight there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spaces {
    /// Everything that it may not change is mounted read-only.
    pub mounts: bool,
    /// Its processes are the only ones that it can name.
    pub processes: bool,
    /// `/proc` shows only those.
    pub proc: bool,
    /// What counts for its user counts for it alone.
    pub users: bool,
}

/// Why commands cannot be confined as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSandbox {
    /// The kernel lacks something, or it is switched off.
    #[error(
        "the sandbox is not available: {0}. It needs Linux 6.2 or newer with Landlock (`lsm=landlock,…`) and seccomp. \
         To run commands without a sandbox, write `sandbox: off`"
    )]
    Kernel(String),
    /// A directory that is not there.
    #[error("the directory {} cannot be used: {error}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: String,
    },
    /// What must not be reached lies where commands can write.
    #[error(
        "{} lies inside of {}, which commands can change; choose another directory, or move the file",
        protected.display(), workspace.display()
    )]
    Exposed {
        /// Configuration, store or keys.
        protected: PathBuf,
        /// What commands can change.
        workspace: PathBuf,
    },
}

impl Plan {
    /// Everything inside of the workspace, nothing of what is protected, the system to read.
    pub fn around(
        workspace: &Path,
        readable: &[PathBuf],
        protected: &[PathBuf],
        network: Reach,
    ) -> Result<Plan, NoSandbox> {
        let workspace = roots::real(workspace)?;
        let protected: Vec<PathBuf> = protected.iter().map(|path| roots::real_or_planned(path)).collect();
        if let Some(protected) = exposed(&workspace, &protected) {
            return Err(NoSandbox::Exposed { protected, workspace });
        }
        let readable = readable.iter().map(|path| roots::real(path)).collect::<Result<Vec<_>, _>>()?;
        let readable = roots::readable(readable, protected);
        Ok(Plan {
            writable: vec![workspace],
            readable,
            network,
            isolation: Isolation::default(),
            spaces: Spaces::default(),
        })
    }

    /// With these directories to change as well; nothing of what is protected may lie inside.
    pub fn with_writable(mut self, more: &[PathBuf], protected: &[PathBuf]) -> Result<Plan, NoSandbox> {
        for path in more {
            let path = roots::real(path)?;
            if let Some(protected) = exposed(&path, protected) {
                return Err(NoSandbox::Exposed { protected, workspace: path });
            }
            self.writable.push(path);
        }
        Ok(self)
    }

    /// Confines the thread that calls this, and everything that it starts from now on. There is no way back.
    pub fn apply(&self) -> Result<(), NoSandbox> {
        #[cfg(target_os = "linux")]
        return linux::apply(self);
        #[cfg(not(target_os = "linux"))]
        Err(NoSandbox::Kernel("this is not Linux".into()))
    }
}

/// The first of these files that lies inside of a directory, where commands could change it.
#[must_use]
pub fn exposed(workspace: &Path, protected: &[PathBuf]) -> Option<PathBuf> {
    let mut real = protected.iter().map(|path| roots::real_or_planned(path));
    real.find(|path| path.starts_with(workspace))
}

/// Leaves the namespaces of the server for this process and what it starts, as far as the kernel allows it. To be called
/// by a process with one thread, which only waits from then on: `/proc` is for [`own_proc`].
#[must_use]
pub fn leave(writable: &[PathBuf]) -> Spaces {
    #[cfg(target_os = "linux")]
    return linux::namespaces::leave(writable);
    #[cfg(not(target_os = "linux"))]
    Spaces::default()
}

/// The same as a user of its own, in the user namespace that this process holds; none where that cannot be had, and an
/// error where it went wrong half-way.
pub fn leave_as_own_user(holder: Pid, writable: &[PathBuf]) -> Result<Option<Spaces>, String> {
    #[cfg(target_os = "linux")]
    return match linux::own_user::namespace(holder) {
        Ok(namespace) => linux::own_user::leave(&namespace, writable),
        Err(_) => Ok(None),
    };
    #[cfg(not(target_os = "linux"))]
    Ok(None)
}

/// Holds a user namespace for [`leave_as_own_user`] until standard input closes.
pub fn hold_namespace() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    return linux::own_user::hold_namespace();
    #[cfg(not(target_os = "linux"))]
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Bounds what temporary files take where they are in memory; called with mounts of its own only.
pub fn bound_scratch(scratch: &Path, bytes: u64) {
    #[cfg(target_os = "linux")]
    linux::namespaces::bound_scratch(scratch, bytes);
}

/// Mounts a `/proc` of the processes in sight; called by the first process of a tree of its own.
#[must_use]
pub fn own_proc() -> bool {
    #[cfg(target_os = "linux")]
    return linux::namespaces::own_proc();
    #[cfg(not(target_os = "linux"))]
    false
}

/// Whether commands can be confined here: tried for real, on a thread that ends at once.
pub fn probe() -> Result<(), NoSandbox> {
    let nothing = Plan {
        writable: Vec::new(),
        readable: Vec::new(),
        network: Reach::None,
        isolation: Isolation::default(),
        spaces: Spaces::default(),
    };
    let tried = std::thread::Builder::new().name("sandbox-probe".into()).spawn(move || nothing.apply());
    let tried = tried.map_err(|error| NoSandbox::Kernel(format!("no thread to try it on: {error}")))?;
    tried.join().unwrap_or_else(|_| Err(NoSandbox::Kernel("trying it ended in a panic".into())))
}
