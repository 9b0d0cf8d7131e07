//! Which parts of the system a command can read.
//!
//! Landlock only opens: what it was given is open with everything below it. So a directory with something protected
//! inside is opened entry by entry, without the protected one; what is made in such a directory later stays closed.

use std::path::{Path, PathBuf};

use super::NoSandbox;

/// Programs, their libraries and settings. `/proc` is opened when the command is started. Not here: homes, `/root`, `/var`, `/run`, `/tmp`,
/// `/dev` and whatever else there is.
const SYSTEM: &[&str] = &[
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/opt",
    "/sbin",
    "/sys/devices/system",
    "/usr",
];

/// Secrets of the machine below [`SYSTEM`], for servers that run as root.
const SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/NetworkManager",
    "/etc/docker",
    "/etc/kubernetes",
];

/// What can be read: the system and these directories, without what is protected.
pub(super) fn readable(more: Vec<PathBuf>, mut closed: Vec<PathBuf>) -> Vec<PathBuf> {
    closed.extend(SECRETS.iter().filter_map(|path| PathBuf::from(path).canonicalize().ok()));
    let mut open = Vec::new();
    for root in SYSTEM.iter().map(PathBuf::from).filter_map(|root| root.canonicalize().ok()).chain(more) {
        open_up(root, &closed, &mut open);
    }
    open.sort();
    open.dedup();
    open
}

fn open_up(root: PathBuf, closed: &[PathBuf], open: &mut Vec<PathBuf>) {
    if closed.iter().any(|path| root.starts_with(path)) {
        return;
    }
    if !closed.iter().any(|path| path.starts_with(&root)) {
        return open.push(root);
    }
    for entry in std::fs::read_dir(&root).into_iter().flatten().flatten() {
        // A link is opened by what it leads to, which is open or closed on its own.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            open_up(entry.path(), closed, open);
        }
    }
}

/// The path without links.
pub(super) fn real(path: &Path) -> Result<PathBuf, NoSandbox> {
    let bad = |error: String| NoSandbox::Directory { path: path.to_owned(), error };
    let real = path.canonicalize().map_err(|error| bad(error.to_string()))?;
    if real.is_dir() { Ok(real) } else { Err(bad("it is not a directory".into())) }
}

/// The path without links; of what is not there yet, where it would be.
pub fn real_or_planned(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing = Vec::new();
    let mut there = absolute.as_path();
    loop {
        if let Ok(real) = there.canonicalize() {
            return missing.iter().rev().fold(real, |path, name| path.join(name));
        }
        let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else { return absolute };
        missing.push(name.to_owned());
        there = parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T26: a directory with something protected inside is opened around it, links do not count, and what is made
    /// there later stays closed.
    #[test]
    fn what_is_protected_is_left_out_and_its_neighbours_are_not() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for directory in ["app/keys", "app/share", "other"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("app/keys"), root.join("link")).unwrap();
        let mut open = Vec::new();
        open_up(root.clone(), &[root.join("app/keys"), root.join("other/missing")], &mut open);
        assert_eq!(open, [root.join("app/share")]);
    }

    #[test]
    fn what_is_not_there_yet_is_protected_where_it_would_be() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&root, root.join("again")).unwrap();
        assert_eq!(real_or_planned(&root.join("again/a/b.yaml")), root.join("a/b.yaml"));
    }
}
