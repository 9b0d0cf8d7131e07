//! What a running command is looked at for: how many processes it has, and how many bytes it has written.
//!
//! Neither is the kernel's bound; that is `stages.rs`, and it holds without anybody looking. This thread knows nothing of
//! how the command is ended.

use std::time::{Duration, Instant};

use super::ExecChild;
use crate::descendants::{below, oneself, tasks_of_machine, written};

/// How often the number of processes is looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// Every so many looks everything is counted, however few tasks the machine has.
const COUNTS_EVERY: u32 = 25;

/// Adding up rests this many times as long as it took: a machine may have many processes.
const REST: u32 = 19;

/// What a command has more of than it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    /// Processes at a time.
    Processes,
    /// Bytes written, in all.
    Written,
}

/// How far a command may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    processes: u32,
    /// 0 means no limit.
    written: u64,
}

impl Limits {
    pub(super) fn of(order: &ExecChild) -> Limits {
        Limits { processes: order.process_limit, written: order.disk_limit }
    }

    /// Waits until a command below this process is over one of its limits.
    ///
    /// Root is not always bound by a limit on processes, so they are counted: often when the machine has many more than
    /// before, now and then otherwise.
    #[expect(
        clippy::disallowed_methods,
        reason = "the shim is a process of its own, and how long a look takes is no part of any run"
    )]
    pub(super) fn wait_for_excess(self) -> Excess {
        let before = tasks_of_machine().unwrap_or(0);
        let (mut look, mut next_sum) = (0u32, Instant::now());
        loop {
            std::thread::sleep(LOOKS_EVERY);
            look = look.wrapping_add(1);
            let many = before + u64::from(self.processes) / 2;
            let many_more = tasks_of_machine().is_none_or(|now| now > many);
            let is_time = many_more || look.is_multiple_of(COUNTS_EVERY);
            if is_time && below(oneself()).len() > self.processes as usize {
                return Excess::Processes;
            }
            let begun = Instant::now();
            if self.written > 0 && begun >= next_sum {
                if written(oneself()) > self.written {
                    return Excess::Written;
                }
                next_sum = Instant::now() + begun.elapsed() * REST;
            }
        }
    }
}
