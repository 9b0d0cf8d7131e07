//! Who watches a store at work, to measure it.
//!
//! A store reads no clock: the observer has one. It is called in the writer's thread, so it must be quick.

use standfast_core::project::HoldChange;

/// Watches a store at work.
pub trait Observer: std::fmt::Debug + Send + Sync {
    /// Microseconds of a clock that never goes back.
    fn now(&self) -> u64;

    /// A transaction with this many appends is durable.
    fn committed(&self, appends: usize);

    /// An append that was handed over at this instant of its clock is durable, with these changed holds.
    fn appended(&self, handed_over: u64, holds: &[HoldChange]);
}
