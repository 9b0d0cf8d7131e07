//! Claims: which due runs a node gets, and in what order.
//!
//! The longest due first, turn by turn for each agent, within the room that each has, from the node's shards only.

use standfast_core::command::{Choice, Command, RecordFailure, SuspendFor};
use standfast_core::hold::HoldPolicy;
use standfast_core::id::RunId;
use standfast_core::time::Millis;

use super::Factory;
use super::support::{NODE, NewRun, World, agent, block_on, claimed_runs, tenant};
use crate::{Claim, ClaimedRun, Lease, ShardSet, StoredRun};

pub fn a_new_run_is_due_at_once(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    world.reopen();
    let claim = world.asking(10);
    let lease = Some(Lease { node: NODE, until: claim.until });
    let stored = StoredRun { row: row.clone(), lease };
    assert_eq!(
        block_on(world.store().claim_due(claim)),
        Ok(vec![ClaimedRun::Run { stored: Box::new(stored.clone()), from: None }])
    );
    assert_eq!(world.load(row.run.facts.id), Ok(stored));
}

pub fn the_longest_due_comes_first(factory: &Factory) {
    let mut world = World::new(factory);
    let mut runs = Vec::new();
    for later in [5, 0, 3] {
        let now = world.now();
        world.scribe.now = now.plus(Millis::seconds(later));
        runs.push(world.queued_run("helper").run.facts.id);
        world.scribe.now = now;
    }
    world.later(Millis::seconds(9));
    assert_eq!(world.claimed(10), [runs[1], runs[2], runs[0]]);
}

pub fn a_backlog_of_one_agent_does_not_starve_another(factory: &Factory) {
    let mut world = World::new(factory);
    let backlog: Vec<RunId> = (0..6).map(|_| world.queued_run("busy").run.facts.id).collect();
    world.later(Millis::seconds(1));
    let other = world.queued_run("quiet").run.facts.id;
    let third = world.start(&NewRun::of("busy").of_tenant("acme")).run.facts.id;
    assert_eq!(world.claimed(5), [backlog[0], other, third, backlog[1], backlog[2]]);
    assert_eq!(world.claimed(50), backlog[3..]);
}

pub fn an_agent_at_its_limit_is_skipped(factory: &Factory) {
    let mut world = World::new(factory);
    let busy: Vec<RunId> = (0..4).map(|_| world.queued_run("busy").run.facts.id).collect();
    let other = world.queued_run("quiet").run.facts.id;
    let same_name = world.start(&NewRun::of("busy").of_tenant("acme")).run.facts.id;
    let room = vec![(tenant("default"), agent("busy"), 1), (tenant("default"), agent("unheard of"), 0)];
    let claim = Claim { room: room.clone(), ..world.asking(10) };
    let claimed = block_on(world.store().claim_due(claim)).unwrap();
    assert_eq!(claimed_runs(&claimed), [busy[0], other, same_name]);
    let none = vec![(tenant("default"), agent("busy"), 0)];
    let claim = Claim { room: none, ..world.asking(10) };
    assert_eq!(block_on(world.store().claim_due(claim)), Ok(vec![]));
    assert_eq!(world.claimed(10), busy[1..]);
}

pub fn a_claim_takes_no_more_than_its_limit(factory: &Factory) {
    let mut world = World::new(factory);
    let runs: Vec<RunId> = (0..5).map(|_| world.queued_run("helper").run.facts.id).collect();
    assert_eq!(world.claimed(0), []);
    assert_eq!(world.claimed(2), runs[..2]);
    assert_eq!(world.claimed(2), runs[2..4]);
    assert_eq!(world.claimed(2), runs[4..]);
    assert_eq!(world.claimed(2), []);
}

pub fn a_node_claims_from_its_shards_only(factory: &Factory) {
    let mut world = World::new(factory);
    let runs: Vec<RunId> = (0..12).map(|_| world.queued_run("helper").run.facts.id).collect();
    let shard = |run: &RunId| run.shard(&tenant("default"));
    let mine = shard(&runs[7]);
    let claim = |shards| Claim { shards, ..world.asking(50) };
    let claimed = block_on(world.store().claim_due(claim(ShardSet::of([mine])))).unwrap();
    let wanted: Vec<RunId> = runs.iter().copied().filter(|run| shard(run) == mine).collect();
    assert_eq!(claimed_runs(&claimed), wanted);
    let others = ShardSet::of((0..=255).map(standfast_core::id::Shard).filter(|shard| *shard != mine));
    let claimed = block_on(world.store().claim_due(claim(others))).unwrap();
    assert_eq!(claimed.len() + wanted.len(), runs.len());
}

/// The first of a shard may stand behind many of others.
pub fn a_small_limit_still_finds_the_nodes_own_shard(factory: &Factory) {
    let mut world = World::new(factory);
    let runs: Vec<RunId> = (0..40).map(|_| world.queued_run("helper").run.facts.id).collect();
    let mine = ShardSet::of([runs[39].shard(&tenant("default"))]);
    let claim = Claim { shards: mine.clone(), ..world.asking(1) };
    let claimed = claimed_runs(&block_on(world.store().claim_due(claim)).unwrap());
    assert_eq!(claimed.len(), 1);
    assert!(claimed.iter().all(|run| mine.contains(run.shard(&tenant("default")))));
}

pub fn a_held_run_without_a_deadline_is_never_due(factory: &Factory) {
    let mut world = World::new(factory);
    world.held_run("helper");
    world.recovering_run("helper");
    world.suspended_run("helper", SuspendFor::Input);
    world.later(Millis::hours(24 * 365));
    assert_eq!(world.claimed(10), []);
}

pub fn a_deadline_makes_a_held_run_due(factory: &Factory) {
    let mut world = World::new(factory);
    let policy = HoldPolicy { timeout: Some(Millis::seconds(30)), ..HoldPolicy::default() };
    let (row, _) = world.held(&NewRun::of("helper").holding(policy), &[]);
    world.later(Millis::seconds(29));
    assert_eq!(world.claimed(10), []);
    world.later(Millis::seconds(1));
    world.reopen();
    assert_eq!(world.claimed(10), [row.run.facts.id]);
}

pub fn a_decision_makes_a_held_run_due(factory: &Factory) {
    let mut world = World::new(factory);
    let (row, hold) = world.held_run("helper");
    assert_eq!(world.claimed(10), []);
    world.decides(&row, hold, Choice::Approve);
    assert_eq!(world.claimed(10), [row.run.facts.id]);
}

pub fn a_retry_is_due_at_its_instant(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let retry_at = Some(world.now().plus(Millis::seconds(8)));
    let error = standfast_core::body::Body::text("overloaded");
    world.send(&row, &Command::RecordFailure(RecordFailure { error, retry_at, heard: None }));
    assert_eq!(world.claimed(10), []);
    world.later(Millis::seconds(8));
    assert_eq!(world.claimed(10), [row.run.facts.id]);
}

pub fn a_run_that_is_over_is_not_due(factory: &Factory) {
    let mut world = World::new(factory);
    world.ended_run("helper");
    world.later(Millis::hours(1));
    assert_eq!(world.claimed(10), []);
}
