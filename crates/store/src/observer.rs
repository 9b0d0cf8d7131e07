//! Who watches a store at work, to measure it, and writes what it reports into the server's log.
//!
//! A store reads no clock: the observer has one. It is called in the writer's thread, so it must be quick.

use standfast_core::project::HoldChange;

/// Something that a store did on its way to the disk or the database. Counted, because counts do not depend on how busy
/// the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effort {
    /// A statement of the writer, other than those that begin and end its transactions.
    WriteStatement,
    /// A commit that waited for the disk.
    Sync,
    /// A transaction that only reads.
    ReadTransaction,
    /// A statement in one of those.
    ReadStatement,
    /// A round trip to a database elsewhere.
    Trip,
}

/// Watches a store at work.
pub trait Observer: std::fmt::Debug + Send + Sync {
    /// Microseconds of a clock that never goes back.
    fn now(&self) -> u64;

    /// A transaction with this many appends is durable.
    fn committed(&self, appends: usize);

    /// An append that was handed over at this instant of its clock is durable, with these changed holds.
    fn appended(&self, handed_over: u64, holds: &[HoldChange]);

    /// Whether it counts every [`Effort`]. Asked once, when the store is opened: counting costs a little with
    /// each statement.
    fn counts_efforts(&self) -> bool {
        false
    }

    /// The store did this once more.
    fn spent(&self, _effort: Effort) {}

    /// Something that the operator should know. An observer with a log writes it there; without one it goes to stderr.
    fn report(&self, component: &str, text: &str) {
        to_stderr(component, text);
    }
}

/// Hands a report to whoever watches the store.
pub(crate) fn report(observer: Option<&dyn Observer>, component: &str, text: &str) {
    match observer {
        Some(observer) => observer.report(component, text),
        None => to_stderr(component, text),
    }
}

fn to_stderr(component: &str, text: &str) {
    eprintln!("standfast: {component}: {text}");
}
