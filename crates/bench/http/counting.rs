//! What is counted inside a server: allocations, statements, transactions, syncs, appends.
//!
//! Only the build with the feature `counting` counts; its times mean nothing. A server is asked for its counters over its
//! standard input, so that asking is not a request of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use standfast_core::project::HoldChange;
use standfast_store::{Effort, Observer};

/// The line that asks a server what it has counted.
pub(crate) const ASK: &str = "counts";

/// Whether this program counts.
pub(crate) const IS_COUNTING: bool = cfg!(feature = "counting");

/// The counters of this process.
static COUNTERS: Counters = Counters::new();

struct Counters {
    syncs: AtomicU64,
    commits: AtomicU64,
    appends: AtomicU64,
    read_transactions: AtomicU64,
    read_statements: AtomicU64,
    write_statements: AtomicU64,
    trips: AtomicU64,
}

impl Counters {
    const fn new() -> Counters {
        Counters {
            syncs: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            appends: AtomicU64::new(0),
            read_transactions: AtomicU64::new(0),
            read_statements: AtomicU64::new(0),
            write_statements: AtomicU64::new(0),
            trips: AtomicU64::new(0),
        }
    }
}

/// One commit of the floor, synced, with so many rows.
pub(crate) fn count_floor_commit(rows: usize) {
    for (counter, count) in [
        (&COUNTERS.syncs, 1),
        (&COUNTERS.commits, 1),
        (&COUNTERS.appends, rows as u64),
        (&COUNTERS.write_statements, rows as u64),
    ] {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// What a server has counted since it began, or its share for one cycle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) syncs: f64,
    /// Transactions with at least one append.
    pub(crate) commits: f64,
    pub(crate) appends: f64,
    pub(crate) read_transactions: f64,
    pub(crate) read_statements: f64,
    pub(crate) write_statements: f64,
    /// To a database elsewhere.
    pub(crate) trips: f64,
    /// By Rust code; SQLite's own are not among them.
    pub(crate) allocations: f64,
    pub(crate) bytes: f64,
}

impl Counts {
    /// Now, in this process.
    pub(crate) fn here() -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let (allocations, bytes) = allocated();
        Counts {
            syncs: read(&COUNTERS.syncs),
            commits: read(&COUNTERS.commits),
            appends: read(&COUNTERS.appends),
            read_transactions: read(&COUNTERS.read_transactions),
            read_statements: read(&COUNTERS.read_statements),
            write_statements: read(&COUNTERS.write_statements),
            trips: read(&COUNTERS.trips),
            allocations,
            bytes,
        }
    }

    /// What was counted since then, for each of so many cycles.
    pub(crate) fn since(self, before: Counts, cycles: usize) -> Counts {
        let each = |after: f64, before: f64| (after - before) / cycles.max(1) as f64;
        Counts {
            syncs: each(self.syncs, before.syncs),
            commits: each(self.commits, before.commits),
            appends: each(self.appends, before.appends),
            read_transactions: each(self.read_transactions, before.read_transactions),
            read_statements: each(self.read_statements, before.read_statements),
            write_statements: each(self.write_statements, before.write_statements),
            trips: each(self.trips, before.trips),
            allocations: each(self.allocations, before.allocations),
            bytes: each(self.bytes, before.bytes),
        }
    }

    /// Without so many times these, never less than nothing.
    pub(crate) fn less(self, other: Counts, times: f64) -> Counts {
        let rest = |all: f64, other: f64| (all - other * times).max(0.0);
        Counts {
            syncs: rest(self.syncs, other.syncs),
            commits: rest(self.commits, other.commits),
            appends: rest(self.appends, other.appends),
            read_transactions: rest(self.read_transactions, other.read_transactions),
            read_statements: rest(self.read_statements, other.read_statements),
            write_statements: rest(self.write_statements, other.write_statements),
            trips: rest(self.trips, other.trips),
            allocations: rest(self.allocations, other.allocations),
            bytes: rest(self.bytes, other.bytes),
        }
    }

    pub(crate) fn appends_per_commit(&self) -> f64 {
        if self.commits > 0.0 { self.appends / self.commits } else { 0.0 }
    }
}

#[cfg(feature = "counting")]
fn allocated() -> (f64, f64) {
    let stats = stats_alloc::INSTRUMENTED_SYSTEM.stats();
    ((stats.allocations + stats.reallocations) as f64, stats.bytes_allocated as f64)
}

#[cfg(not(feature = "counting"))]
fn allocated() -> (f64, f64) {
    (f64::NAN, f64::NAN)
}

/// Counts what a store does, in front of whoever watches it anyway.
#[derive(Debug)]
pub(crate) struct CountingObserver<Inner>(pub(crate) Arc<Inner>);

impl<Inner: Observer> Observer for CountingObserver<Inner> {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn committed(&self, appends: usize) {
        COUNTERS.commits.fetch_add(1, Ordering::Relaxed);
        COUNTERS.appends.fetch_add(appends as u64, Ordering::Relaxed);
        self.0.committed(appends);
    }

    fn appended(&self, handed_over: u64, holds: &[HoldChange]) {
        self.0.appended(handed_over, holds);
    }

    fn counts_efforts(&self) -> bool {
        true
    }

    fn spent(&self, effort: Effort) {
        let counter = match effort {
            Effort::WriteStatement => &COUNTERS.write_statements,
            Effort::Sync => &COUNTERS.syncs,
            Effort::ReadTransaction => &COUNTERS.read_transactions,
            Effort::ReadStatement => &COUNTERS.read_statements,
            Effort::Trip => &COUNTERS.trips,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn report(&self, component: &str, text: &str) {
        self.0.report(component, text);
    }
}
