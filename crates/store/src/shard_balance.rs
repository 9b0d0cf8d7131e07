//! How the shards of the work are spread over the nodes that are there, as a pure function of who has what.
//!
//! Nobody decides for others: each node, when it says that it is there, keeps what it has up to its fair share, gives
//! back the rest, and takes what is free. After two turns of everyone the shards are spread evenly. Whoever stores them
//! makes the turns of all nodes follow each other.

use standfast_core::id::{Incarnation, Shard};
use standfast_core::time::{Millis, Timestamp};

const SHARDS: usize = 256;

/// A shard that was given back is free only after so long: until then whoever had it has heard the answer to its turn
/// and stopped what it did for it.
pub(crate) const HANDED_OVER_AFTER: Millis = Millis::seconds(1);

/// Who has a shard, until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardHolding {
    pub(crate) shard: Shard,
    /// None when it was given back.
    pub(crate) node: Option<Incarnation>,
    /// Until when it is nobody else's.
    pub(crate) until: Timestamp,
}

/// What a node keeps and takes, and what it gives back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rebalance {
    pub(crate) keeps: Vec<Shard>,
    pub(crate) gives: Vec<Shard>,
}

/// The turn of a node at an instant at which so many nodes are there.
pub(crate) fn rebalance(held: &[ShardHolding], node: Incarnation, now: Timestamp, nodes: usize) -> Rebalance {
    let share = SHARDS.div_ceil(nodes.max(1));
    let is_mine = |held: &&ShardHolding| held.node == Some(node);
    let mut keeps: Vec<Shard> = held.iter().filter(is_mine).map(|held| held.shard).collect();
    let gives = keeps.split_off(share.min(keeps.len()));
    let is_free = |held: &&ShardHolding| held.until <= now && held.node != Some(node);
    let free = held.iter().filter(is_free).map(|held| held.shard);
    let room = share - keeps.len();
    keeps.extend(free.take(room));
    Rebalance { keeps, gives }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_free() -> Vec<ShardHolding> {
        (0..=255).map(|n| ShardHolding { shard: Shard(n), node: None, until: Timestamp(0) }).collect()
    }

    fn node(name: u8) -> Incarnation {
        Incarnation([name; 16])
    }

    /// Nodes that join, stay and die: after two turns of everyone each shard has one owner and the shares are even.
    #[test]
    fn shards_spread_evenly_over_whoever_is_there() {
        let mut held = all_free();
        let mut now = 0;
        for alive in [&[1u8][..], &[1, 2], &[1, 2, 3], &[3], &[3, 4, 5, 6, 7], &[9]] {
            // Long enough for whoever went away to be forgotten, then two turns of those who are there.
            for round in 0..3 {
                now += 10;
                for name in alive {
                    let Rebalance { keeps, gives } =
                        rebalance(&held, node(*name), Timestamp(now), alive.len());
                    for one in &mut held {
                        if gives.contains(&one.shard) {
                            (one.node, one.until) = (None, Timestamp(now));
                        }
                        if keeps.contains(&one.shard) {
                            (one.node, one.until) = (Some(node(*name)), Timestamp(now + 15));
                        }
                    }
                }
                if round == 2 {
                    let count = |name: &u8| held.iter().filter(|one| one.node == Some(node(*name))).count();
                    let counts: Vec<usize> = alive.iter().map(count).collect();
                    assert_eq!(counts.iter().sum::<usize>(), 256, "{alive:?}");
                    let share = 256usize.div_ceil(alive.len());
                    assert!(counts.iter().all(|count| *count <= share), "{counts:?}");
                }
            }
        }
    }

    /// What was given back is not taken before whoever had it knows; what a silent node has, not before its time is up.
    #[test]
    fn a_shard_is_free_only_after_its_time() {
        let mut held = all_free();
        for one in &mut held {
            (one.node, one.until) = (Some(node(1)), Timestamp(100));
        }
        held[7] = ShardHolding { shard: Shard(7), node: None, until: Timestamp(50) };
        let taken = |now| rebalance(&held, node(2), Timestamp(now), 2).keeps;
        assert_eq!(taken(49), []);
        assert_eq!(taken(50), [Shard(7)]);
        assert_eq!(taken(99), [Shard(7)]);
        assert_eq!(taken(100).len(), 128);
    }
}
