//! Counts: open holds by kind and agent with the oldest of each, runs by phase.
//!
//! Asked before, between and after appends, because a backend may count once and only follow after that.

use std::collections::BTreeMap;

use standfast_core::command::{Choice, SuspendFor};
use standfast_core::hold::HoldKind;
use standfast_core::project::Phase;
use standfast_core::time::{Millis, Timestamp};

use super::Factory;
use super::support::{NewRun, World, agent, block_on, tenant};
use crate::{Counts, OpenHolds};

pub fn everything_is_counted(factory: &Factory) {
    let mut world = World::new(factory);
    assert_eq!(world.counts("default"), Counts::default());
    world.queued_run("a");
    let began = world.now();
    world.held_run("b");
    world.later(Millis::seconds(1));
    world.held_run("b");
    world.suspended_run("b", SuspendFor::External);
    let later = world.now();
    world.ended_run("a");
    let wanted = Counts {
        holds: vec![open(HoldKind::Approval, "b", 2, began), open(HoldKind::External, "b", 1, later)],
        runs: BTreeMap::from([
            (Phase::Queued, 1),
            (Phase::HeldForPerson, 2),
            (Phase::HeldForExternal, 1),
            (Phase::Canceled, 1),
        ]),
        quarantined: 0,
    };
    assert_eq!(world.counts("default"), wanted);
    world.reopen();
    assert_eq!(world.counts("default"), wanted);
}

pub fn counts_follow_every_append(factory: &Factory) {
    let mut world = World::new(factory);
    let (row, hold) = world.held_run("helper");
    assert_eq!(world.phases(), [(Phase::HeldForPerson, 1)]);
    assert_eq!(world.counts("default").holds.len(), 1);
    world.decides(&row, hold, Choice::Approve);
    assert_eq!(world.phases(), [(Phase::Working, 1)]);
    assert_eq!(world.counts("default").holds, []);
    world.ended_run("helper");
    assert_eq!(world.phases(), [(Phase::Working, 1), (Phase::Canceled, 1)]);
}

pub fn the_oldest_hold_is_the_oldest_that_is_open(factory: &Factory) {
    let mut world = World::new(factory);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push((world.now(), world.held_run("helper")));
        world.later(Millis::seconds(10));
    }
    let oldest = |world: &World| world.counts("default").holds[0].oldest;
    assert_eq!(oldest(&world), Some(held[0].0));
    let (_, (row, hold)) = &held[1];
    world.decides(row, *hold, Choice::Deny { reason: None });
    assert_eq!(oldest(&world), Some(held[0].0));
    let (_, (row, hold)) = &held[0];
    world.decides(row, *hold, Choice::Deny { reason: None });
    assert_eq!(oldest(&world), Some(held[2].0));
}

pub fn counts_belong_to_their_tenant(factory: &Factory) {
    let mut world = World::new(factory);
    world.held(&NewRun::of("helper").of_tenant("acme"), &[]);
    assert_eq!(world.counts("default"), Counts::default());
    let began = world.now();
    assert_eq!(world.counts("acme").holds, [open(HoldKind::Approval, "helper", 1, began)]);
    assert_eq!(world.counts("unheard of"), Counts::default());
}

pub fn a_refused_append_counts_nothing(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    assert_eq!(world.phases(), [(Phase::Queued, 1)]);
    let (first, second) = (world.scribe.reply(&row, &[super::support::SHELL]), world.scribe.reply(&row, &[]));
    world.write(first);
    assert!(world.append(vec![second]).is_err());
    assert_eq!(world.phases(), [(Phase::HeldForPerson, 1)]);
}

fn open(kind: HoldKind, of: &str, count: u64, oldest: Timestamp) -> OpenHolds {
    OpenHolds { kind, agent: agent(of), count, oldest: Some(oldest) }
}

impl World {
    fn counts(&self, of: &str) -> Counts {
        block_on(self.store().counts(tenant(of))).unwrap()
    }

    fn phases(&self) -> Vec<(Phase, u64)> {
        self.counts("default").runs.into_iter().collect()
    }
}
