//! The nodes and shards of a store that several nodes share, in memory: for tests that have several nodes and no database.
//!
//! The same rule as in the Postgres store decides who gets what; here a value behind a lock stands in for its rows.

use std::collections::BTreeMap;

use standfast_core::id::{Incarnation, Shard};
use standfast_core::time::Timestamp;

use crate::query::{Heartbeat, NodeRow, ShardSet};
use crate::shard_balance::{HANDED_OVER_AFTER, ShardHolding, rebalance};

/// Who is there, and who has which shard.
#[derive(Debug)]
pub struct Registry {
    held: Vec<ShardHolding>,
    nodes: BTreeMap<[u8; 16], Heartbeat>,
}

impl Default for Registry {
    fn default() -> Registry {
        let held =
            (0..=255).map(|n| ShardHolding { shard: Shard(n), node: None, until: Timestamp(0) }).collect();
        Registry { held, nodes: BTreeMap::new() }
    }
}

impl Registry {
    /// As [`crate::WorkStore::shards`].
    pub fn beat(&mut self, beat: Heartbeat) -> ShardSet {
        let (node, now, until) = (beat.node, beat.now, beat.until);
        self.nodes.insert(node.0, beat);
        let there = self.nodes.values().filter(|beat| beat.until > now).count();
        let turn = rebalance(&self.held, node, now, there);
        for held in &mut self.held {
            if turn.gives.contains(&held.shard) {
                (held.node, held.until) = (None, now.plus(HANDED_OVER_AFTER));
            }
            if turn.keeps.contains(&held.shard) {
                (held.node, held.until) = (Some(node), until);
            }
        }
        ShardSet::of(turn.keeps)
    }

    /// As [`crate::WorkStore::leave`].
    pub fn leave(&mut self, node: Incarnation) {
        self.nodes.remove(&node.0);
        for held in self.held.iter_mut().filter(|held| held.node == Some(node)) {
            (held.node, held.until) = (None, Timestamp(0));
        }
    }

    /// As [`crate::WorkStore::nodes`].
    #[must_use]
    pub fn nodes(&self, now: Timestamp) -> Vec<NodeRow> {
        let row = |beat: &Heartbeat| {
            let mine = self.held.iter().filter(|held| held.node == Some(beat.node) && held.until > now);
            NodeRow {
                node: beat.node,
                facts: beat.facts.clone(),
                seen_until: beat.until,
                shards: ShardSet::of(mine.map(|held| held.shard)),
            }
        };
        self.nodes.values().filter(|beat| beat.until > now).map(row).collect()
    }
}
