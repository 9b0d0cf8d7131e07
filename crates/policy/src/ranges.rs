//! Ranges of exact numbers, found by a number that is in them without looking at the others.
//!
//! Sorted by where they begin, with a tree over where they end: a part of the list that ends below the number is left out as a
//! whole. Knows nothing of rules.

use std::cmp::Ordering;

use crate::decimal::Decimal;

/// Where a range begins or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RangeEnd {
    /// Nowhere.
    Open,
    /// At this number, which belongs to it.
    At(Decimal),
    /// Next to this number, which does not belong to it.
    Beside(Decimal),
}

/// A range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: RangeEnd,
    pub(crate) high: RangeEnd,
}

impl RangeEnd {
    /// Of two lower bounds the higher one, of two upper ones the lower one: whichever leaves less.
    pub(crate) fn tighter(at: Option<&Decimal>, beside: Option<&Decimal>, looser: Ordering) -> RangeEnd {
        match (at, beside) {
            (None, None) => RangeEnd::Open,
            (Some(at), None) => RangeEnd::At(at.clone()),
            (None, Some(beside)) => RangeEnd::Beside(beside.clone()),
            (Some(at), Some(beside)) if beside.cmp(at) == looser => RangeEnd::At(at.clone()),
            (Some(_), Some(beside)) => RangeEnd::Beside(beside.clone()),
        }
    }

    /// Whether a range that begins here has begun by a number.
    fn has_begun(&self, number: &Decimal) -> bool {
        match self {
            RangeEnd::Open => true,
            RangeEnd::At(low) => low <= number,
            RangeEnd::Beside(low) => low < number,
        }
    }

    /// Whether a range that ends here has not ended before a number.
    fn reaches(&self, number: &Decimal) -> bool {
        match self {
            RangeEnd::Open => true,
            RangeEnd::At(high) => high >= number,
            RangeEnd::Beside(high) => high > number,
        }
    }

    /// Which of two ranges begins first.
    fn begins_before(&self, other: &RangeEnd) -> Ordering {
        match (self, other) {
            (RangeEnd::Open, RangeEnd::Open) => Ordering::Equal,
            (RangeEnd::Open, _) => Ordering::Less,
            (_, RangeEnd::Open) => Ordering::Greater,
            (RangeEnd::At(one), RangeEnd::At(two)) | (RangeEnd::Beside(one), RangeEnd::Beside(two)) => {
                one.cmp(two)
            }
            (RangeEnd::At(one), RangeEnd::Beside(two)) => one.cmp(two).then(Ordering::Less),
            (RangeEnd::Beside(one), RangeEnd::At(two)) => one.cmp(two).then(Ordering::Greater),
        }
    }

    /// Which of two ranges ends first.
    fn ends_before(&self, other: &RangeEnd) -> Ordering {
        match (self, other) {
            (RangeEnd::Open, RangeEnd::Open) => Ordering::Equal,
            (RangeEnd::Open, _) => Ordering::Greater,
            (_, RangeEnd::Open) => Ordering::Less,
            (RangeEnd::At(one), RangeEnd::At(two)) | (RangeEnd::Beside(one), RangeEnd::Beside(two)) => {
                one.cmp(two)
            }
            (RangeEnd::At(one), RangeEnd::Beside(two)) => one.cmp(two).then(Ordering::Greater),
            (RangeEnd::Beside(one), RangeEnd::At(two)) => one.cmp(two).then(Ordering::Less),
        }
    }
}

/// Many ranges, each with what it stands for.
#[derive(Debug)]
pub(crate) struct Ranges<T> {
    /// By where they begin, once sorted.
    ranges: Vec<(Bounds, T)>,
    /// For each half of the list, and each half of that, and so on, which of it ends last; in the order in which
    /// [`Ranges::search`] comes by.
    last: Vec<usize>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges { ranges: Vec::new(), last: Vec::new() }
    }
}

impl<T: Copy> Ranges<T> {
    /// Adds one; [`Ranges::sort`] comes before the next search.
    pub(crate) fn add(&mut self, bounds: Bounds, of: T) {
        self.ranges.push((bounds, of));
    }

    /// Makes the list ready to be searched.
    pub(crate) fn sort(&mut self) {
        self.ranges.sort_by(|(one, _), (two, _)| one.low.begins_before(&two.low));
        self.last = vec![0; self.ranges.len().saturating_mul(4)];
        if !self.ranges.is_empty() {
            self.note_last(0, 0, self.ranges.len());
        }
    }

    /// Finds which range ends last among those from `from` to before `to`, and notes it at a node of the tree.
    fn note_last(&mut self, node: usize, from: usize, to: usize) -> usize {
        let found = if to - from == 1 {
            from
        } else {
            let middle = usize::midpoint(from, to);
            let one = self.note_last(2 * node + 1, from, middle);
            let two = self.note_last(2 * node + 2, middle, to);
            match (self.ranges.get(one), self.ranges.get(two)) {
                (Some((a, _)), Some((b, _))) if a.high.ends_before(&b.high) == Ordering::Greater => one,
                _ => two,
            }
        };
        if let Some(slot) = self.last.get_mut(node) {
            *slot = found;
        }
        found
    }

    /// Every range that a number is in.
    pub(crate) fn find(&self, number: &Decimal, found: &mut dyn FnMut(T)) {
        let begun = self.ranges.partition_point(|(bounds, _)| bounds.low.has_begun(number));
        if begun > 0 {
            self.search((0, 0, self.ranges.len()), begun, number, found);
        }
    }

    fn search(
        &self,
        (node, from, to): (usize, usize, usize),
        begun: usize,
        number: &Decimal,
        found: &mut dyn FnMut(T),
    ) {
        let last = self.last.get(node).and_then(|last| self.ranges.get(*last));
        if from >= begun || !last.is_some_and(|(bounds, _)| bounds.high.reaches(number)) {
            return;
        }
        if to - from == 1 {
            if let Some((_, of)) = self.ranges.get(from) {
                found(*of);
            }
            return;
        }
        let middle = usize::midpoint(from, to);
        self.search((2 * node + 1, from, middle), begun, number, found);
        self.search((2 * node + 2, middle, to), begun, number, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bound(kind: u8, at: i64) -> RangeEnd {
        match kind {
            0 => RangeEnd::Open,
            1 => RangeEnd::At(Decimal::from(at)),
            _ => RangeEnd::Beside(Decimal::from(at)),
        }
    }

    proptest! {
        /// The same as looking at each of them.
        #[test]
        fn a_search_finds_what_looking_at_each_finds(
            given in proptest::collection::vec((0_u8..3, -9_i64..9, 0_u8..3, -9_i64..9), 0..40),
            number in -10_i64..10,
        ) {
            let number = Decimal::from(number);
            let mut ranges = Ranges::default();
            let mut expected = Vec::new();
            for (no, (low, begin, high, end)) in given.into_iter().enumerate() {
                let bounds = Bounds { low: bound(low, begin), high: bound(high, end) };
                if bounds.low.has_begun(&number) && bounds.high.reaches(&number) {
                    expected.push(no);
                }
                ranges.add(bounds, no);
            }
            ranges.sort();
            let mut found = Vec::new();
            ranges.find(&number, &mut |no| found.push(no));
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
