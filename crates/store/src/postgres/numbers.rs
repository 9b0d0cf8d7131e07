//! Numbers that order runs, holds and notices, made by the nodes: the database has no sequences.
//!
//! A number is an instant and 21 bits of the thing it is for. Within a store each is higher than the one before, so
//! what began later has a higher one also within one millisecond; that two nodes make the same one is rare, refused by
//! a unique index, and tried again with the next.

use std::sync::atomic::{AtomicI64, Ordering};

use standfast_core::time::Timestamp;

const LOW_BITS: u32 = 21;
const TIME_MAX: i64 = (1 << 42) - 1;

#[derive(Debug)]
pub(super) struct Numbers {
    last: AtomicI64,
}

impl Numbers {
    /// Goes on after the highest number in the database.
    pub(super) fn after(last: i64) -> Numbers {
        Numbers { last: AtomicI64::new(last) }
    }

    /// The next number, for something of this instant.
    pub(super) fn next(&self, at: Timestamp, random: [u8; 3]) -> i64 {
        let low = i64::from(u32::from_be_bytes([0, random[0], random[1], random[2]])) & ((1 << LOW_BITS) - 1);
        let wanted = (at.0.clamp(0, TIME_MAX) << LOW_BITS) | low;
        let next = |last: i64| Some(wanted.max(last.saturating_add(1)));
        let (Ok(last) | Err(last)) = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        wanted.max(last.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_is_higher_also_within_a_millisecond() {
        let numbers = Numbers::after(0);
        let instants =
            [(5, [255; 3]), (5, [0; 3]), (4, [9; 3]), (6, [0; 3]), (i64::MAX, [0; 3]), (7, [0; 3])];
        let made: Vec<i64> =
            instants.iter().map(|(at, random)| numbers.next(Timestamp(*at), *random)).collect();
        assert!(made.is_sorted_by(|a, b| a < b), "{made:?}");
    }
}
