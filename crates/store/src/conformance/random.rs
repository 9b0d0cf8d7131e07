//! Random numbers from a seed: the same seed gives the same test.
//!
//! SplitMix64; good enough to choose operations, and short enough to need no crate.

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0)
    }

    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_number() % end.max(1)
    }

    /// A number below this one, which is not zero.
    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.index(all.len())]
    }

    /// One of these names.
    pub fn name(&mut self, all: &[&'static str]) -> &'static str {
        all[self.index(all.len())]
    }

    /// True about one time in so many.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
