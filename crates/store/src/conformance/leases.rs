//! Leases: a claimed run is nobody else's until its lease ends, is given back, or runs out.
//!
//! Losing a lease never harms state; taking, keeping and giving back are also fields of an append.

use standfast_core::command::{Choice, Command, SuspendFor};
use standfast_core::id::{Incarnation, RunId};
use standfast_core::time::{Millis, Timestamp};

use super::Factory;
use super::appending::say;
use super::support::{NODE, NewRun, OTHER_NODE, SHELL, World, block_on, claimed_runs};
use crate::{Claim, ClaimedRun, Lease, LeaseChange, SideWrite};

pub fn a_live_lease_keeps_others_away(factory: &Factory) {
    let mut world = World::new(factory);
    let run = world.queued_run("helper").run.facts.id;
    assert_eq!(world.claimed(10), [run]);
    world.later(Millis::seconds(59));
    assert_eq!(world.claimed_by(OTHER_NODE), []);
    assert_eq!(world.claimed(10), []);
}

pub fn a_lease_that_ran_out_is_taken_over(factory: &Factory) {
    let mut world = World::new(factory);
    let run = world.queued_run("helper").run.facts.id;
    assert_eq!(world.claimed(10), [run]);
    world.later(Millis::seconds(60));
    world.reopen();
    let claim = Claim { node: OTHER_NODE, ..world.asking(10) };
    let stored = Box::new(crate::StoredRun {
        lease: Some(Lease { node: OTHER_NODE, until: claim.until }),
        ..world.load(run).unwrap()
    });
    let from = Some(Lease { node: NODE, until: world.now() });
    assert_eq!(block_on(world.store().claim_due(claim)), Ok(vec![ClaimedRun::Run { stored, from }]));
    assert_eq!(world.lease(run), Some(Lease { node: OTHER_NODE, until: world.in_a_minute() }));
    assert_eq!(block_on(world.store().renew(vec![run], NODE, world.in_a_minute())), Ok(vec![]));
}

pub fn a_renewed_lease_lasts(factory: &Factory) {
    let mut world = World::new(factory);
    let (one, two) = (world.queued_run("a").run.facts.id, world.queued_run("b").run.facts.id);
    assert_eq!(world.claimed(1), [one]);
    let unknown = world.scribe.run_id(&super::support::tenant("default"));
    world.later(Millis::seconds(50));
    let until = world.in_a_minute();
    assert_eq!(block_on(world.store().renew(vec![unknown, one, two], NODE, until)), Ok(vec![one]));
    assert_eq!(world.lease(one), Some(Lease { node: NODE, until }));
    world.later(Millis::seconds(20));
    assert_eq!(world.claimed_by(OTHER_NODE), [two]);
    world.later(Millis::seconds(40));
    assert_eq!(world.claimed_by(OTHER_NODE), [one]);
}

pub fn a_released_run_is_due_when_its_row_says(factory: &Factory) {
    let mut world = World::new(factory);
    let run = world.queued_run("helper").run.facts.id;
    assert_eq!(world.claimed(10), [run]);
    assert_eq!(block_on(world.store().release(run, OTHER_NODE, None)), Ok(()));
    assert_eq!(world.claimed_by(OTHER_NODE), []);
    assert_eq!(block_on(world.store().release(run, NODE, None)), Ok(()));
    assert_eq!(world.lease(run), None);
    assert_eq!(world.claimed_by(OTHER_NODE), [run]);
    assert_eq!(block_on(world.store().release(run, NODE, None)), Ok(()));
    assert_eq!(world.claimed(10), []);
}

pub fn a_released_run_with_nothing_to_do_is_not_due(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let run = row.run.facts.id;
    assert_eq!(world.claimed(10), [run]);
    world.the_model_asks(&row, &[SHELL]);
    assert_eq!(block_on(world.store().release(run, NODE, None)), Ok(()));
    world.later(Millis::hours(9));
    assert_eq!(world.claimed(10), []);
}

pub fn an_append_takes_the_lease(factory: &Factory) {
    let mut world = World::new(factory);
    let (row, hold) = world.held_run("helper");
    let mut batch = world.scribe.batch(&row, &super::support::resolve(hold.key, Choice::Approve));
    let until = world.in_a_minute();
    batch.lease = LeaseChange::Take { node: NODE, until };
    let run = world.write(batch).run.facts.id;
    assert_eq!(world.lease(run), Some(Lease { node: NODE, until }));
    assert_eq!(world.claimed_by(OTHER_NODE), []);
    world.later(Millis::seconds(60));
    assert_eq!(world.claimed_by(OTHER_NODE), [run]);
}

pub fn an_append_keeps_the_lease(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let run = row.run.facts.id;
    let until = world.in_a_minute();
    assert_eq!(world.claimed(10), [run]);
    // Somebody else's append does not take the run away from its node.
    let row = world.send(&row, &say("one more thing"));
    world.the_model_asks(&row, &[SHELL]);
    assert_eq!(world.lease(run), Some(Lease { node: NODE, until }));
    assert_eq!(world.claimed_by(OTHER_NODE), []);
    world.later(Millis::seconds(60));
    assert_eq!(world.claimed_by(OTHER_NODE), [run], "a lease that runs out is looked at, even of a held run");
}

pub fn an_append_gives_the_lease_back(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let run = row.run.facts.id;
    assert_eq!(world.claimed(10), [run]);
    let mut batch = world.scribe.batch(&row, &say("your turn"));
    batch.lease = LeaseChange::Release;
    let row = world.write(batch);
    assert_eq!(world.lease(run), None);
    assert_eq!(world.claimed_by(OTHER_NODE), [run]);
    let mut batch = world.scribe.reply(&row, &[SHELL]);
    batch.lease = LeaseChange::Release;
    world.write(batch);
    world.later(Millis::hours(9));
    assert_eq!(world.claimed(10), [], "held, without a deadline, and nobody's");
}

pub fn a_wake_makes_a_held_run_due(factory: &Factory) {
    let mut world = World::new(factory);
    let run = world.held_run("helper").0.run.facts.id;
    let at = world.now().plus(Millis::seconds(2));
    world.wakes(run, at);
    world.wakes(run, at.plus(Millis::hours(1)));
    assert_eq!(world.claimed(10), [], "a wake at its time, and the earliest counts");
    world.later(Millis::seconds(2));
    world.reopen();
    assert_eq!(world.claimed(10), [run]);
    assert_eq!(block_on(world.store().release(run, NODE, None)), Ok(()));
    assert_eq!(world.claimed(10), [], "who took the run has looked at it");
}

/// Who has used up a wake without looking gives it back with the lease.
pub fn a_wake_is_given_back_with_the_lease(factory: &Factory) {
    let mut world = World::new(factory);
    let run = world.held_run("helper").0.run.facts.id;
    let now = world.now();
    world.wakes(run, now);
    assert_eq!(world.claimed(10), [run]);
    assert_eq!(block_on(world.store().release(run, OTHER_NODE, Some(now))), Ok(()), "it is not theirs");
    assert_eq!(world.claimed_by(OTHER_NODE), []);
    let later = now.plus(Millis::seconds(2));
    assert_eq!(block_on(world.store().release(run, NODE, Some(later))), Ok(()));
    assert_eq!(world.lease(run), None);
    assert_eq!(world.claimed_by(OTHER_NODE), [], "at its time");
    world.later(Millis::seconds(2));
    assert_eq!(world.claimed_by(OTHER_NODE), [run]);
    assert_eq!(block_on(world.store().release(run, OTHER_NODE, None)), Ok(()));
    assert_eq!(world.claimed(10), [], "who took the run has looked at it");
}

pub fn a_wake_of_an_unknown_run_does_nothing(factory: &Factory) {
    let mut world = World::new(factory);
    let unknown = world.scribe.run_id(&super::support::tenant("default"));
    let now = world.now();
    world.wakes(unknown, now);
    assert_eq!(world.claimed(10), []);
}

pub fn a_wake_while_leased_is_not_forgotten(factory: &Factory) {
    let mut world = World::new(factory);
    let (row, _) = world.suspended_run("helper", SuspendFor::Input);
    let run = row.run.facts.id;
    let now = world.now();
    world.wakes(run, now);
    assert_eq!(world.claimed(10), [run]);
    world.wakes(run, now);
    assert_eq!(world.claimed_by(OTHER_NODE), [], "the lease still counts");
    // Neither an append of the node that has the run nor a renewal is a look at what the wake was about.
    let (hold, to) = (row.run.state.holds[0].key, Some(super::support::user("bob")));
    let row = world.send(&row, &Command::Assign { hold, to, until: None });
    let mut batch = world.scribe.batch(&row, &Command::Assign { hold, to: None, until: None });
    batch.lease = LeaseChange::Take { node: NODE, until: world.in_a_minute() };
    world.write(batch);
    assert_eq!(block_on(world.store().renew(vec![run], NODE, world.in_a_minute())), Ok(vec![run]));
    assert_eq!(block_on(world.store().release(run, NODE, None)), Ok(()));
    assert_eq!(world.claimed_by(OTHER_NODE), [run]);
    assert_eq!(block_on(world.store().release(run, OTHER_NODE, None)), Ok(()));
    assert_eq!(world.claimed(10), []);
}

/// A parent ends, wakes its child, and the child moves, all in one append.
pub fn a_wake_in_the_append_that_moves_the_run_is_not_forgotten(factory: &Factory) {
    let mut world = World::new(factory);
    let parent = world.queued_run("parent");
    let (child, hold) = world.suspended_run("child", SuspendFor::Input);
    let mut ends = world.scribe.batch(&parent, &Command::Cancel { reason: None });
    ends.puts.push(SideWrite::Wake { run: child.run.facts.id, at: world.now() });
    let to = Some(super::support::user("bob"));
    let moves = world.scribe.batch(&child, &Command::Assign { hold: hold.key, to, until: None });
    assert_eq!(world.append(vec![ends, moves.clone()]), Ok(()));
    world.expect_stored(&moves.row);
    let mut batch =
        world.scribe.batch(&moves.row, &Command::Assign { hold: hold.key, to: None, until: None });
    batch.lease = LeaseChange::Release;
    world.write(batch);
    assert_eq!(world.claimed(10), [child.run.facts.id]);
}

impl World {
    fn in_a_minute(&self) -> Timestamp {
        self.now().plus(Millis::seconds(60))
    }

    pub(super) fn claimed_by(&self, node: Incarnation) -> Vec<RunId> {
        claimed_runs(&block_on(self.store().claim_due(Claim { node, ..self.asking(10) })).unwrap())
    }

    fn lease(&self, run: RunId) -> Option<Lease> {
        self.load(run).unwrap().lease
    }

    /// Another run's end wants this one looked at.
    fn wakes(&mut self, run: RunId, at: Timestamp) {
        let parent = self.scribe.start(&NewRun::of("parent"));
        let row = self.write(parent);
        let mut batch = self.scribe.batch(&row, &Command::Cancel { reason: None });
        batch.puts.push(SideWrite::Wake { run, at });
        self.write(batch);
    }
}
