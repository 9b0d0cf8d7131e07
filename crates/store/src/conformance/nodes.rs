//! Nodes: who is there, and which shards of the work each has.
//!
//! What only several nodes at once can show is tested where several can be: with the Postgres store.

use standfast_core::time::Millis;

use super::Factory;
use super::support::{NODE, OTHER_NODE, World, block_on};
use crate::{Heartbeat, NodeRow, ShardSet};

pub fn a_node_that_is_alone_has_all_shards(factory: &Factory) {
    let mut world = World::new(factory);
    for _ in 0..3 {
        assert_eq!(block_on(world.store().shards(world.beat())), Ok(ShardSet::all()));
        world.later(Millis::seconds(2));
    }
    world.reopen();
    assert_eq!(block_on(world.store().shards(world.beat())), Ok(ShardSet::all()));
}

pub fn a_node_is_listed_while_it_says_so(factory: &Factory) {
    let mut world = World::new(factory);
    assert_eq!(block_on(world.store().nodes(world.now())), Ok(vec![]));
    let beat = world.beat();
    block_on(world.store().shards(beat.clone())).unwrap();
    let (facts, seen_until) = (beat.facts, beat.until);
    let row = NodeRow { node: NODE, facts, seen_until, shards: ShardSet::all() };
    assert_eq!(block_on(world.store().nodes(world.now())), Ok(vec![row.clone()]));
    world.later(Millis::seconds(9));
    assert_eq!(block_on(world.store().nodes(world.now())), Ok(vec![row]));
    world.later(Millis::seconds(1));
    assert_eq!(block_on(world.store().nodes(world.now())), Ok(vec![]));
}

pub fn a_node_that_left_is_not_listed(factory: &Factory) {
    let world = World::new(factory);
    block_on(world.store().shards(world.beat())).unwrap();
    assert_eq!(block_on(world.store().leave(OTHER_NODE)), Ok(()));
    assert_eq!(block_on(world.store().nodes(world.now())).map(|nodes| nodes.len()), Ok(1));
    assert_eq!(block_on(world.store().leave(NODE)), Ok(()));
    assert_eq!(block_on(world.store().nodes(world.now())), Ok(vec![]));
    assert_eq!(block_on(world.store().shards(world.beat())), Ok(ShardSet::all()));
}

pub fn a_shared_clock_goes_on_if_there_is_one(factory: &Factory) {
    let world = World::new(factory);
    let first = block_on(world.store().time()).unwrap();
    let second = block_on(world.store().time()).unwrap();
    assert_eq!(first.is_some(), second.is_some());
    assert!(first <= second);
    // Later than the day on which this was written, and no nonsense.
    assert!(first.is_none_or(|now| (1_750_000_000_000..10_000_000_000_000).contains(&now.0)));
}

impl World {
    /// The usual node is there for ten seconds.
    fn beat(&self) -> Heartbeat {
        let until = self.now().plus(Millis::seconds(10));
        Heartbeat { node: NODE, facts: "{\"version\":\"1\"}".into(), now: self.now(), until }
    }
}
