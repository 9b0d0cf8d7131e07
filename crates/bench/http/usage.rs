//! What a server used, as the kernel counts it: processor time of its threads, context switches, memory.
//!
//! From `/proc`, so it costs the server nothing and works for any process. A thread that ended takes its share along;
//! servers here keep theirs.

use std::path::Path;

/// What the store's writer, and the floor's, call their thread; the kernel keeps fifteen characters of it.
pub(crate) const WRITER: &str = "standfast-write";

/// What a process has used since it began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) writer_us: f64,
    pub(crate) other_us: f64,
    /// Of a database in processes of its own.
    pub(crate) database_us: f64,
    pub(crate) switches: f64,
}

impl Usage {
    pub(crate) fn of(process: u32) -> Usage {
        let mut usage = Usage::default();
        let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return usage };
        for thread in threads.flatten() {
            let text = |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let microseconds = on_processor_ns(&thread.path()) / 1000.0;
            if text("comm").trim() == WRITER {
                usage.writer_us += microseconds;
            } else {
                usage.other_us += microseconds;
            }
            let status = text("status");
            let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
            usage.switches += lines.filter_map(|(_, number)| number.trim().parse::<f64>().ok()).sum::<f64>();
        }
        usage
    }

    /// Processor time of the server, all of its threads.
    pub(crate) fn all_us(&self) -> f64 {
        self.writer_us + self.other_us
    }

    /// What was used since then.
    pub(crate) fn since(self, before: Usage) -> Usage {
        Usage {
            writer_us: self.writer_us - before.writer_us,
            other_us: self.other_us - before.other_us,
            database_us: self.database_us - before.database_us,
            switches: self.switches - before.switches,
        }
    }

    pub(crate) fn add(&mut self, other: Usage) {
        self.writer_us += other.writer_us;
        self.other_us += other.other_us;
        self.database_us += other.database_us;
        self.switches += other.switches;
    }

    /// A share of it: one cycle of so many.
    pub(crate) fn per(self, cycles: f64) -> Usage {
        let cycles = cycles.max(1.0);
        Usage {
            writer_us: self.writer_us / cycles,
            other_us: self.other_us / cycles,
            database_us: self.database_us / cycles,
            switches: self.switches / cycles,
        }
    }
}

/// Processor time of a database in microseconds: of the process that was started and of those that it has.
#[cfg(feature = "postgres")]
pub(crate) fn database_us(parent: u32) -> f64 {
    let Ok(processes) = std::fs::read_dir("/proc") else { return f64::NAN };
    let is_part = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The name of a process, in parentheses, may have spaces in it.
        let behind = stat.rsplit(')').next().unwrap_or_default().split_whitespace().nth(1);
        *process == parent || behind.and_then(|ppid| ppid.parse::<u32>().ok()) == Some(parent)
    };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let each = numbers.filter(is_part).map(|process: u32| {
        let usage = Usage::of(process);
        usage.writer_us + usage.other_us
    });
    each.sum()
}

/// The scheduler's own account, to the nanosecond; `stat` counts in hundredths of a second.
fn on_processor_ns(thread: &Path) -> f64 {
    let text = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Resident memory of a process in MB.
pub(crate) fn resident_mb(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kilobytes = line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) / 1024.0
}
