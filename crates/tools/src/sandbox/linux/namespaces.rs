//! A process tree and mounts for one command: what is not in sight cannot be signalled, limited, traced or read.
//!
//! Root makes them directly. Anybody else needs a user namespace, which many machines allow and some do not; then the
//! rules of `calls.rs` and of Landlock are stricter instead. Nothing is unmounted afterwards: with the last process the
//! kernel takes everything away.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use super::super::Spaces;

/// What mounting takes, in a user namespace too, and looking at what a process has written that is not to be looked at.
const SHIM: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_PTRACE);

/// What a command has for itself.
pub(super) const APART: UnshareFlags =
    UnshareFlags::NEWNS.union(UnshareFlags::NEWPID).union(UnshareFlags::NEWIPC);

/// File systems in memory.
const MEMORY_FILE_SYSTEMS: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// Leaves the namespaces of the server; what could be had.
pub(in crate::sandbox) fn leave(writable: &[PathBuf]) -> Spaces {
    let users = unshare(APART).is_err();
    if users && leave_as_user(APART).is_err() {
        return Spaces::default();
    }
    Spaces { mounts: close_mounts(writable).is_ok(), processes: true, proc: false, users }
}

/// Mounts what this process, the first of its tree, sees of processes.
pub(in crate::sandbox) fn own_proc() -> bool {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).is_ok()
}

/// Where temporary files would be in memory, which nobody counts as written: a place of their own with this many bytes.
pub(in crate::sandbox) fn bound_scratch(scratch: &Path, bytes: u64) {
    let is_in_memory = statfs(scratch).is_ok_and(|found| MEMORY_FILE_SYSTEMS.contains(&found.f_type));
    let Ok(options) = CString::new(format!("size={bytes},mode=0700")) else { return };
    if is_in_memory {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let _ = mount("tmpfs", scratch, "tmpfs", flags, Some(options.as_c_str()));
    }
}

#[expect(deprecated, reason = "safe for everything but tables of files, which are not unshared here")]
pub(super) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}

/// As the same user and group; nobody else has a number in there. Two rights outlive the next `execve`, so that
/// the first process of the tree can mount its `/proc` and look into it; the command gets nothing of them.
fn leave_as_user(wanted: UnshareFlags) -> std::io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | wanted)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: SHIM, ..sets })?;
    for capability in SHIM.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Everything becomes read-only but what may be written: Landlock does not look at modes, owners and times, a read-only
/// mount does.
pub(super) fn close_mounts(writable: &[PathBuf]) -> std::io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    for path in writable {
        mount_bind_recursive(path, path)?;
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    for (place, flags) in mounts.lines().filter_map(parse_mount) {
        if writable.iter().any(|path| place.starts_with(path)) || flags.contains(MountFlags::RDONLY) {
            continue;
        }
        match mount_remount(&place, flags | MountFlags::BIND | MountFlags::RDONLY, "") {
            // Gone, behind another mount, or where this user cannot go anyway.
            Ok(()) | Err(Errno::NOENT | Errno::INVAL | Errno::ACCESS | Errno::NOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Where something is mounted, and the flags that a remount must repeat.
pub(super) fn parse_mount(line: &str) -> Option<(PathBuf, MountFlags)> {
    let mut fields = line.split(' ').skip(4);
    let place = unescape(fields.next()?);
    let mut flags = MountFlags::empty();
    for option in fields.next()?.split(',') {
        flags |= match option {
            "ro" => MountFlags::RDONLY,
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            "nosymfollow" => MountFlags::NOSYMFOLLOW,
            _ => MountFlags::empty(),
        };
    }
    Some((Path::new(&place).to_owned(), flags))
}

/// The kernel writes spaces, tabs, line ends and backslashes as octal numbers.
fn unescape(field: &str) -> String {
    let known = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    known.iter().fold(field.to_owned(), |text, (code, sign)| text.replace(code, sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_flags() {
        let line =
            "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime,nosuid master:1 - ext3 /dev/root rw,errors=continue";
        let (place, flags) = parse_mount(line).unwrap();
        assert_eq!(place, Path::new("/mnt 2"));
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::NOSUID);
        assert!(parse_mount("nonsense").is_none());
    }
}
