//! A user of its own for the commands of a server that runs as root, where no control group counts their tasks.
//!
//! A limit on processes does not bind root. So the command gets a user namespace in which it is user 0 as before, but
//! which is another user for the kernel: one number for each command, out of a range that nobody else has. On disk
//! nothing of that is seen. What it may write to is mounted with the two numbers exchanged, so that its files are root's,
//! and every other number stays what it is. Where the kernel or a file system cannot do that, there is no such user and
//! the shim has to count; ADR 0012 has the reasons.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use composefs_ioctls::mount::mount_setattr_idmap;
use rustix::fs::CWD;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree,
};
use rustix::process::{Pid, Uid, getpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, set_thread_res_uid};

use super::super::Spaces;
use super::namespaces::{APART, close_mounts, parse_mount, unshare};

/// Where the numbers begin; that of the shim is added. Systemd's list of ranges has nobody there.
const FIRST_NUMBER: u32 = 1_900_000_000;

/// Holds a user namespace for somebody else to name, until standard input closes.
pub(in crate::sandbox) fn hold_namespace() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER)?;
    let mut stdout = io::stdout();
    stdout.write_all(b"\n")?;
    stdout.flush()?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// The namespace that this process holds, with its numbers in place.
pub(in crate::sandbox) fn namespace(holder: Pid) -> io::Result<OwnedFd> {
    let place = PathBuf::from(format!("/proc/{}", holder.as_raw_nonzero()));
    let own = FIRST_NUMBER.saturating_add(getpid().as_raw_nonzero().get().unsigned_abs());
    let (users, groups) = (Numbers::of("/proc/self/uid_map")?, Numbers::of("/proc/self/gid_map")?);
    let Some(users) = users.with_exchanged(own) else { return Err(io::ErrorKind::Unsupported.into()) };
    std::fs::write(place.join("uid_map"), users)?;
    std::fs::write(place.join("gid_map"), groups.as_they_are())?;
    File::open(place.join("ns/user")).map(OwnedFd::from)
}

/// Leaves the namespaces of the server for that one and for others below it. None where what may be written cannot be
/// mounted so that files stay root's: then nothing has changed for this process but that its mounts are its own.
pub(in crate::sandbox) fn leave(namespace: &OwnedFd, writable: &[PathBuf]) -> Result<Option<Spaces>, String> {
    let Ok(trees) = exchanged_trees(namespace, writable) else { return Ok(None) };
    enter(namespace, trees).map_err(|error| format!("a user of its own could not be had: {error}"))?;
    Ok(Some(Spaces { mounts: close_mounts(writable).is_ok(), processes: true, proc: false, users: true }))
}

/// From the first mount on there is no way back: root would write files of the other number.
fn enter(namespace: &OwnedFd, trees: Vec<(PathBuf, OwnedFd)>) -> rustix::io::Result<()> {
    for (place, tree) in trees {
        move_mount(tree.as_fd(), "", CWD, &place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    }
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?;
    unshare(APART)?;
    let root = Uid::ROOT;
    set_thread_res_uid(root, root, root)
}

/// Each mount that may be written to, the outer ones first, with the numbers of the namespace; not in place yet.
fn exchanged_trees(namespace: &OwnedFd, writable: &[PathBuf]) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let inner = mounts.lines().filter_map(parse_mount).map(|(place, _)| place);
    let inner = inner.filter(|place| writable.iter().any(|path| place.starts_with(path)));
    let places: BTreeSet<PathBuf> = writable.iter().cloned().chain(inner).collect();
    let exchanged = |place: PathBuf| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, Path::new(&place), flags)?;
        mount_setattr_idmap(&tree, namespace)?;
        Ok((place, tree))
    };
    places.into_iter().map(exchanged).collect()
}

/// The users or groups that there are: first numbers and counts.
#[derive(Debug, PartialEq, Eq)]
struct Numbers(Vec<(u64, u64)>);

impl Numbers {
    fn of(map: &str) -> io::Result<Numbers> {
        Ok(Numbers::parse(&std::fs::read_to_string(map)?))
    }

    fn parse(text: &str) -> Numbers {
        let range = |line: &str| {
            let mut fields = line.split_whitespace().map(str::parse::<u64>);
            let (first, _, count) = (fields.next()?.ok()?, fields.next()?, fields.next()?.ok()?);
            Some((first, count))
        };
        Numbers(text.lines().filter_map(range).collect())
    }

    fn as_they_are(&self) -> String {
        self.0.iter().map(|(first, count)| format!("{first} {first} {count}\n")).collect()
    }

    /// With root and this number in each other's place; none where one of them is missing.
    fn with_exchanged(&self, own: u32) -> Option<String> {
        let own = u64::from(own);
        let has = |number: u64| self.0.iter().any(|(first, count)| (*first..first + count).contains(&number));
        if !has(0) || !has(own) {
            return None;
        }
        let mut map = format!("0 {own} 1\n{own} 0 1\n");
        for (first, count) in &self.0 {
            let (mut from, end) = (*first, first + count);
            for cut in [0, own].into_iter().filter(|cut| (*first..end).contains(cut)).chain([end]) {
                if cut > from {
                    map.push_str(&format!("{from} {from} {}\n", cut - from));
                }
                from = cut + 1;
            }
        }
        Some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_change_places_and_the_others_stay() {
        let all = Numbers::parse("         0          0 4294967295\n");
        assert_eq!(
            all.with_exchanged(1_900_000_007).unwrap(),
            "0 1900000007 1\n1900000007 0 1\n1 1 1900000006\n1900000008 1900000008 2394967287\n"
        );
        assert_eq!(all.as_they_are(), "0 0 4294967295\n");
        let several = Numbers::parse("0 1000 1\n5 100000 10\n");
        assert_eq!(several.with_exchanged(14).unwrap(), "0 14 1\n14 0 1\n5 5 9\n");
        assert_eq!(several.with_exchanged(15), None);
        assert_eq!(Numbers::parse("nonsense"), Numbers(Vec::new()));
    }
}
