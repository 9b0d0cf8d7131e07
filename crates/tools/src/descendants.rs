//! The processes below a process, found in `/proc`, and their end.
//!
//! A process group is not enough: whoever calls `setsid` leaves it. The shim is a subreaper, so whatever a command
//! starts stays below it. Elsewhere than on Linux nothing is found, and the group has to do.

use std::collections::BTreeMap;

use rustix::process::{Pid, Signal, kill_process};

/// How often everything below is looked for before giving up. Each time it is stopped first, so that it cannot grow.
const ROUNDS: u32 = 200;

/// The living processes below this one.
#[must_use]
pub fn below(top: Pid) -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(number) = number else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = living_parent(&stat) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut found = Vec::new();
    let mut to_do = vec![top.as_raw_nonzero().get()];
    while let Some(parent) = to_do.pop() {
        let mine = children.remove(&parent).unwrap_or_default();
        found.extend(mine.iter().filter_map(|number| Pid::from_raw(*number)));
        to_do.extend(mine);
    }
    found
}

/// How many tasks the whole machine has: cheap to ask, and enough to know that it is time to count.
#[must_use]
pub fn tasks_of_machine() -> Option<u64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// Ends everything below this process. Whoever is seen is stopped, and killed once nobody new is seen.
pub fn end_below(top: Pid) {
    let mut stopped = Vec::new();
    for _ in 0..ROUNDS {
        let seen = below(top);
        if seen.is_empty() {
            return;
        }
        let is_settled = seen.iter().all(|pid| stopped.contains(pid));
        let signal = if is_settled { Signal::KILL } else { Signal::STOP };
        for pid in &seen {
            // An error means that it is gone.
            let _ = kill_process(*pid, signal);
        }
        stopped = if is_settled { Vec::new() } else { seen };
    }
    for pid in below(top) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The parent in a line of `/proc/<pid>/stat`; none of the dead. The name before it may have any characters. A process
/// whose first thread has ended looks dead while its other threads go on.
fn living_parent(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let threads: u32 = fields.get(17).and_then(|count| count.parse().ok()).unwrap_or(0);
    let is_dead = matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1;
    (!is_dead).then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_whatever_the_name_is() {
        assert_eq!(living_parent("7 (sh) S 3 7 7 0"), Some(3));
        assert_eq!(living_parent("7 (a) Z 9 (b) R 4 7"), Some(4));
        assert_eq!(living_parent("7 (sh) Z 3 7 7 0"), None);
        assert_eq!(living_parent("7 (sh) Z 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0"), Some(3));
        assert_eq!(living_parent("nothing"), None);
    }
}
