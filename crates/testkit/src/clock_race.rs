//! Races against a clock: many rounds side by side, each of which acts as near to its own deadline as it can.
//!
//! A round that waits for a clock costs seconds and hardly any work, so a test plays many at once against one server: each
//! lane plays its rounds one after the other. Where the deadline lies for whoever acts depends on the machine and on what
//! else it does; `Edge` finds it by who was first, and stays there.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::wait::now_ms;

/// The first step towards the edge, and the smallest and largest one, in milliseconds.
const BEGIN: i64 = 16;
const SMALLEST: i64 = 2;
const LARGEST: i64 = 256;

/// After how many times in a row the edge is thought to be elsewhere.
const ALWAYS: u32 = 2;

/// From how many rounds on each end must have been seen: of a few, one side may win all.
const MANY: usize = 100;

/// The numbers of all rounds, by lane.
pub fn lanes(rounds: usize, most: usize) -> impl Iterator<Item = impl Iterator<Item = usize>> {
    let lanes = most.min(rounds).max(1);
    (0..lanes).map(move |lane| (lane..rounds).step_by(lanes))
}

/// Who was first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Whoever acted.
    Act,
    /// The clock.
    Clock,
}

/// When to act so that nobody knows who will be first: later after being in time, earlier after being late; by half as much
/// when it was the other one than before, by twice as much when it is always the same.
#[derive(Debug)]
pub struct Edge {
    after_deadline: i64,
    step: i64,
    /// Who was first, and how often in a row.
    last: Option<(First, u32)>,
}

impl Edge {
    /// Begins at the deadline.
    #[must_use]
    pub fn new() -> Edge {
        Edge { after_deadline: 0, step: BEGIN, last: None }
    }

    /// Waits until it is time to act on a deadline, in milliseconds since 1970.
    pub async fn reached(&self, deadline: i64) {
        let wait = deadline + self.after_deadline - now_ms();
        tokio::time::sleep(Duration::from_millis(u64::try_from(wait).unwrap_or(0))).await;
    }

    /// Says who was first, for the next round.
    pub fn was(&mut self, first: First) {
        let (step, in_a_row) = match self.last {
            Some((last, in_a_row)) if last == first => {
                (if in_a_row < ALWAYS { self.step } else { self.step * 2 }, in_a_row + 1)
            }
            Some(_) => (self.step / 2, 1),
            None => (self.step, 1),
        };
        self.step = step.clamp(SMALLEST, LARGEST);
        self.last = Some((first, in_a_row));
        self.after_deadline += match first {
            First::Act => self.step,
            First::Clock => -self.step,
        };
    }
}

impl Default for Edge {
    fn default() -> Self {
        Edge::new()
    }
}

/// How often each end of a race was seen.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<String, usize>);

impl Ends {
    /// One more round that ended like this.
    pub fn add(&mut self, end: &str) {
        *self.0.entry(end.to_owned()).or_default() += 1;
    }

    /// How often this end was seen.
    #[must_use]
    pub fn count(&self, end: &str) -> usize {
        self.0.get(end).copied().unwrap_or(0)
    }

    /// What all lanes saw together.
    #[must_use]
    pub fn of(lanes: Vec<Ends>) -> Ends {
        let mut all = Ends::default();
        for (end, count) in lanes.into_iter().flat_map(|lane| lane.0) {
            *all.0.entry(end).or_default() += count;
        }
        all
    }

    /// Prints the counts. Of many rounds each of these ends was seen, and of any number none but these.
    ///
    /// # Panics
    ///
    /// When one was not, or there is another one.
    pub fn assert_raced(&self, ends: &[&str]) {
        println!("{:?}", self.0);
        assert!(self.0.keys().all(|end| ends.contains(&end.as_str())), "only {ends:?}: {:?}", self.0);
        let is_raced = ends.iter().all(|end| self.count(end) > 0);
        assert!(is_raced || self.0.values().sum::<usize>() < MANY, "each of {ends:?}: {:?}", self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_every_round_once() {
        for (rounds, most) in [(0, 4), (1, 4), (3, 50), (1_000, 50), (1_001, 7)] {
            let mut all: Vec<usize> = lanes(rounds, most).flatten().collect();
            all.sort_unstable();
            assert_eq!(all, (0..rounds).collect::<Vec<_>>());
            assert!(lanes(rounds, most).count() <= most);
        }
    }

    #[test]
    fn the_edge_is_found_and_kept() {
        for deadline in [-700, -3, 0, 40, 900] {
            let mut edge = Edge::new();
            let mut seen = Ends::default();
            for _ in 0..60 {
                let first = if edge.after_deadline < deadline { First::Act } else { First::Clock };
                seen.add(if first == First::Act { "act" } else { "clock" });
                edge.was(first);
            }
            assert!((edge.after_deadline - deadline).abs() <= 2 * SMALLEST + 2, "{deadline}: {edge:?}");
            assert!(seen.count("act").min(seen.count("clock")) > 15, "{deadline}: {seen:?}");
        }
    }

    #[test]
    #[should_panic(expected = "each of")]
    fn many_rounds_with_one_end_are_no_race() {
        let mut ends = Ends::default();
        (0..MANY).for_each(|_| ends.add("in time"));
        ends.assert_raced(&["in time", "late"]);
    }
}
