//! The kernel's own count of what a command has: memory and tasks, in a control group made for it.
//!
//! Versions 1 and 2 are used where this process may make groups, as root mostly can. Where it may not, the shim has to do
//! with limits of single processes. The limit on tasks counts threads, so it is higher than the one on processes: it
//! bounds how far a fork bomb gets before it is seen and ended.

use std::path::{Path, PathBuf};

use rustix::process::getpid;

/// How groups are called: with the number of the process that made them, so that those of the dead can be removed.
const PREFIX: &str = "standfast-command-";

/// How often an empty group is tried to be removed: the kernel may still count somebody who has just ended.
const REMOVALS: u32 = 50;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of memory, all processes together; none means no bound.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub tasks: u32,
}

/// The groups of one command. Dropping this removes them.
#[derive(Debug, Default)]
pub struct ControlGroups {
    made: Vec<OwnGroup>,
    /// Whether memory is bounded by one of them.
    pub has_memory: bool,
    /// Whether tasks are.
    pub has_tasks: bool,
}

#[derive(Debug)]
struct OwnGroup {
    group: PathBuf,
    /// Where this process was before.
    home: PathBuf,
}

impl ControlGroups {
    /// Makes groups with these bounds as far as possible and moves this process into them, so that what it starts next is
    /// counted from its first moment.
    #[must_use]
    pub fn join(bounds: &Bounds) -> ControlGroups {
        let mut groups = ControlGroups::default();
        let (Ok(mine), Ok(mounts)) =
            (std::fs::read_to_string("/proc/self/cgroup"), std::fs::read_to_string("/proc/self/mountinfo"))
        else {
            return groups;
        };
        let places: Vec<CgroupMount> = mine.lines().filter_map(|line| place(line, &mounts)).collect();
        for place in &places {
            groups.join_at(place, bounds);
        }
        groups
    }

    fn join_at(&mut self, place: &CgroupMount, bounds: &Bounds) {
        let memory = bounds.memory.filter(|_| !self.has_memory && place.has("memory"));
        let tasks = Some(bounds.tasks).filter(|_| !self.has_tasks && place.has("pids"));
        if memory.is_none() && tasks.is_none() {
            return;
        }
        for parent in place.parents() {
            remove_left_over(&parent);
            let group = parent.join(format!("{PREFIX}{}", getpid().as_raw_nonzero()));
            if std::fs::create_dir(&group).is_err() {
                continue;
            }
            let bounds_memory = memory.is_some_and(|bytes| place.bound_memory(&group, bytes));
            let bounds_tasks =
                tasks.is_some_and(|count| std::fs::write(group.join("pids.max"), count.to_string()).is_ok());
            let is_used = (bounds_memory || bounds_tasks) && enter(&group).is_ok();
            let made = OwnGroup { group, home: place.directory.clone() };
            if is_used {
                self.has_memory |= bounds_memory;
                self.has_tasks |= bounds_tasks;
                self.made.push(made);
                return;
            }
            remove(&made.group, 1);
        }
    }

    /// Moves this process back to where it was; what it has started stays.
    pub fn leave(&self) {
        for made in &self.made {
            let _ = enter(&made.home);
        }
    }
}

impl Drop for ControlGroups {
    fn drop(&mut self) {
        self.leave();
        for made in &self.made {
            remove(&made.group, REMOVALS);
        }
    }
}

/// Moves this process into a group.
fn enter(group: &Path) -> std::io::Result<()> {
    std::fs::write(group.join("cgroup.procs"), "0")
}

fn remove(group: &Path, tries: u32) {
    for _ in 0..tries {
        if std::fs::remove_dir(group).is_ok() || !group.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Removes the groups of shims that were killed.
fn remove_left_over(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let is_number = number.chars().all(|c| c.is_ascii_digit());
        if is_number && !Path::new("/proc").join(number).exists() {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// Where this process is in one hierarchy of groups.
#[derive(Debug, PartialEq, Eq)]
struct CgroupMount {
    /// The directory of its group.
    directory: PathBuf,
    /// Where the hierarchy is mounted.
    mount: PathBuf,
    /// The controllers of a hierarchy of version 1; none in version 2, where each group says which it has.
    controllers: Option<Vec<String>>,
}

impl CgroupMount {
    fn has(&self, controller: &str) -> bool {
        match &self.controllers {
            Some(controllers) => controllers.iter().any(|name| name == controller),
            None => std::fs::read_to_string(self.directory.join("cgroup.controllers"))
                .is_ok_and(|names| names.split_whitespace().any(|name| name == controller)),
        }
    }

    /// Where a group can be made. In version 2 a group with processes passes nothing on to groups below it, so the one
    /// above is tried as well.
    fn parents(&self) -> Vec<PathBuf> {
        if self.controllers.is_some() {
            return vec![self.directory.clone()];
        }
        let above = self.directory.parent().filter(|above| above.starts_with(&self.mount));
        let all = std::iter::once(self.directory.as_path()).chain(above);
        let passes_on = |group: &&Path| {
            let control = group.join("cgroup.subtree_control");
            let _ = std::fs::write(&control, "+memory +pids");
            std::fs::read_to_string(control).is_ok_and(|names| !names.trim().is_empty())
        };
        all.filter(passes_on).map(Path::to_owned).collect()
    }

    fn bound_memory(&self, group: &Path, bytes: u64) -> bool {
        let write = |file: &str, value: &str| std::fs::write(group.join(file), value).is_ok();
        let bytes = bytes.to_string();
        match self.controllers {
            Some(_) => {
                let bounded = write("memory.limit_in_bytes", &bytes);
                // Memory and swap together; not every kernel counts swap.
                let _ = write("memory.memsw.limit_in_bytes", &bytes);
                bounded
            }
            None => {
                let _ = write("memory.swap.max", "0");
                write("memory.max", &bytes)
            }
        }
    }
}

/// The place that a line of `/proc/self/cgroup` names.
fn place(line: &str, mounts: &str) -> Option<CgroupMount> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let is_version_2 = controllers.is_empty();
    let controllers: Vec<String> = controllers.split(',').map(str::to_owned).collect();
    let wanted = controllers.iter().any(|name| name == "memory" || name == "pids");
    if !is_version_2 && !wanted {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, PathBuf::from(mount.next()?));
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let is_it = if is_version_2 {
            name == "cgroup2"
        } else {
            name == "cgroup" && controllers.iter().all(|one| options.split(',').any(|has| has == one))
        };
        // A container may see only a part of the hierarchy.
        let below = Path::new(path).strip_prefix(root).ok()?;
        let controllers = (!is_version_2).then(|| controllers.clone());
        is_it.then(|| CgroupMount { directory: point.join(below), mount: point, controllers })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_both_versions() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      31 24 0:27 /box /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let memory = place("4:memory:/api/7", mounts).unwrap();
        assert_eq!(memory.directory, Path::new("/sys/fs/cgroup/memory/api/7"));
        assert!(memory.has("memory") && !memory.has("pids"));
        let unified = place("0::/box/here", mounts).unwrap();
        assert_eq!(unified.directory, Path::new("/sys/fs/cgroup/unified/here"));
        assert_eq!(unified.controllers, None);
        assert_eq!(place("0::/elsewhere", mounts), None);
        assert_eq!(place("9:name=systemd:/", mounts), None);
    }

    const BOUNDS: Bounds = Bounds { memory: Some(64 << 20), tasks: 20 };

    /// A folder that looks like a hierarchy of version 2 with two groups, one below the other; this process is in the lower one.
    fn version_2(controllers: &str) -> (tempfile::TempDir, CgroupMount) {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("box/here");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("cgroup.controllers"), controllers).unwrap();
        let mount = folder.path().join("box");
        (folder, CgroupMount { directory, mount, controllers: None })
    }

    fn written(group: &Path, file: &str) -> String {
        std::fs::read_to_string(group.join(file)).unwrap_or_default()
    }

    /// The group that was made in this directory.
    fn made_in(parent: &Path) -> Option<PathBuf> {
        let group = parent.join(format!("{PREFIX}{}", getpid().as_raw_nonzero()));
        group.exists().then_some(group)
    }

    /// What is written in version 2: which controllers are passed on, the bounds, and who enters; leaving goes back.
    #[test]
    fn version_2_is_told_its_bounds() {
        let (_folder, place) = version_2("cpu io memory pids\n");
        let mut groups = ControlGroups::default();
        groups.join_at(&place, &BOUNDS);
        assert!(groups.has_memory && groups.has_tasks);
        assert_eq!(written(&place.directory, "cgroup.subtree_control"), "+memory +pids");
        let group = made_in(&place.directory).unwrap();
        for (file, said) in
            [("memory.max", "67108864"), ("memory.swap.max", "0"), ("pids.max", "20"), ("cgroup.procs", "0")]
        {
            assert_eq!(written(&group, file), said, "{file}");
        }
        assert_eq!(written(&place.directory, "cgroup.procs"), "");
        groups.leave();
        assert_eq!(written(&place.directory, "cgroup.procs"), "0");
    }

    /// A group of version 2 that has processes passes nothing on: the new one is beside it. Without the controllers there is none.
    #[test]
    fn version_2_is_asked_for_what_it_has() {
        let (_folder, place) = version_2("cpu memory pids\n");
        // As the kernel refuses it: neither written nor read.
        std::fs::create_dir(place.directory.join("cgroup.subtree_control")).unwrap();
        let mut groups = ControlGroups::default();
        groups.join_at(&place, &Bounds { memory: None, ..BOUNDS });
        assert!(groups.has_tasks && !groups.has_memory);
        assert_eq!(made_in(&place.directory), None);
        let group = made_in(&place.mount).unwrap();
        assert_eq!(
            (written(&group, "pids.max").as_str(), written(&group, "memory.max").as_str()),
            ("20", "")
        );
        let (_folder, place) = version_2("cpu io\n");
        let mut groups = ControlGroups::default();
        groups.join_at(&place, &BOUNDS);
        assert!(!groups.has_memory && !groups.has_tasks);
        assert_eq!((made_in(&place.directory), made_in(&place.mount)), (None, None));
    }
}
