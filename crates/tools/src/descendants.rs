//! The processes below a process, found in `/proc`, and their end.
//!
//! A process group is not enough: whoever calls `setsid` leaves it. The shim is a subreaper, so whatever a command
//! starts stays below it. What each has written is found there too. Elsewhere than on Linux nothing is found, and the
//! group has to do.

use std::collections::BTreeMap;

use rustix::process::{Pid, Signal, getpid, kill_process};

/// How often everything below is looked for before giving up. Each time it is stopped first, so that it cannot grow.
const ROUNDS: u32 = 200;

/// The living processes below this one.
#[must_use]
pub fn below(top: Pid) -> Vec<Pid> {
    let all = family(top).into_iter().filter(|member| member.is_alive);
    all.filter_map(|member| Pid::from_raw(member.number)).collect()
}

/// This process by the numbers of `/proc`, which is not always of its own tree.
#[must_use]
pub fn oneself() -> Pid {
    let shown = std::fs::read_link("/proc/self").ok();
    let number = shown.and_then(|path| path.to_str().and_then(|text| text.parse().ok()));
    number.and_then(Pid::from_raw).unwrap_or_else(getpid)
}

/// How many bytes this process and those below it, the dead among them, have handed to file systems to be stored. What was
/// reaped counts with whoever reaped it. Parents are read first, so that nothing is counted twice.
#[must_use]
pub fn written(top: Pid) -> u64 {
    let top_number = top.as_raw_nonzero().get();
    let own = bytes_written(top_number).unwrap_or(0);
    family(top).iter().filter_map(|member| bytes_written(member.number)).fold(own, u64::saturating_add)
}

fn bytes_written(number: i32) -> Option<u64> {
    let counts = std::fs::read_to_string(format!("/proc/{number}/io")).ok()?;
    counts.lines().find_map(|line| line.strip_prefix("write_bytes: ")).and_then(|text| text.parse().ok())
}

struct Member {
    number: i32,
    is_alive: bool,
}

/// Everybody below a process, parents before their children.
fn family(top: Pid) -> Vec<Member> {
    let mut children: BTreeMap<i32, Vec<Member>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(number) = number else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some((parent, is_alive)) = parent(&stat) {
            children.entry(parent).or_default().push(Member { number, is_alive });
        }
    }
    let mut found = Vec::new();
    let mut to_do = vec![top.as_raw_nonzero().get()];
    while let Some(parent) = to_do.pop() {
        let mine = children.remove(&parent).unwrap_or_default();
        to_do.extend(mine.iter().map(|member| member.number));
        found.extend(mine);
    }
    found
}

/// How many tasks the whole machine has: cheap to ask, and enough to know that it is time to count.
#[must_use]
pub fn tasks_of_machine() -> Option<u64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// Ends everything below this process. Whoever is seen is stopped, and killed once nobody new is seen. Where `/proc` has
/// other numbers, this is the first process of a tree, and the kernel ends that with it.
pub fn end_below(top: Pid) {
    if oneself() != getpid() {
        return;
    }
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

/// The parent in a line of `/proc/<pid>/stat`, and whether the process is alive. The name before it may have any
/// characters. A process whose first thread has ended looks dead while its other threads go on.
fn parent(stat: &str) -> Option<(i32, bool)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let threads: u32 = fields.get(17).and_then(|count| count.parse().ok()).unwrap_or(0);
    let is_dead = matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1;
    Some((parent, !is_dead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_whatever_the_name_is() {
        assert_eq!(parent("7 (sh) S 3 7 7 0"), Some((3, true)));
        assert_eq!(parent("7 (a) Z 9 (b) R 4 7"), Some((4, true)));
        assert_eq!(parent("7 (sh) Z 3 7 7 0"), Some((3, false)));
        assert_eq!(parent("7 (sh) Z 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0"), Some((3, true)));
        assert_eq!(parent("nothing"), None);
    }
}
