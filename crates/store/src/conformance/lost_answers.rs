//! Lost answers: after `Unknown` the link at that sequence tells what happened.
//!
//! Our hash means ours, another means a conflict, none means that it never happened.

use std::sync::Arc;

use standfast_core::project::RunRow;

use super::Factory;
use super::appending::say;
use super::flaky::{Flaky, Mishap};
use super::support::{NewRun, World, block_on, checked};
use crate::{Batch, RunStore, Store, StoreError};

/// What became of an append whose answer was lost.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Ours,
    Anothers,
    NeverHappened,
}

/// Settles a lost answer as the engine does: by the link at that sequence.
fn fate(store: &dyn Store, batch: &Batch) -> Fate {
    match block_on(store.links(batch.run(), batch.expected.seq, 1)) {
        Ok(links) => match links.first() {
            Some(link) if link.hash == batch.link.hash => Fate::Ours,
            Some(_) => Fate::Anothers,
            None => Fate::NeverHappened,
        },
        Err(StoreError::NotFound { .. }) => Fate::NeverHappened,
        Err(other) => panic!("{other}"),
    }
}

pub fn a_lost_answer_is_settled_by_the_link(factory: &Factory) {
    let mut world = World::new(factory);
    let store = Flaky::scripted(world.store(), [Mishap::After, Mishap::Lost]);
    let row = world.queued_run("helper");
    let batch = world.scribe.batch(&row, &say("written"));
    assert!(matches!(block_on(store.append(vec![batch.clone()])), Err(StoreError::Unknown { .. })));
    assert_eq!(fate(&store, &batch), Fate::Ours);
    let next = world.scribe.batch(&batch.row, &say("not written"));
    assert!(matches!(block_on(store.append(vec![next.clone()])), Err(StoreError::Unknown { .. })));
    assert_eq!(fate(&store, &next), Fate::NeverHappened);
    world.expect_stored(&batch.row);
}

pub fn a_lost_answer_may_hide_a_conflict(factory: &Factory) {
    let mut world = World::new(factory);
    let store = Flaky::scripted(world.store(), [Mishap::Lost]);
    let row = world.queued_run("helper");
    let mine = world.scribe.batch(&row, &say("mine"));
    let theirs = world.scribe.batch(&row, &say("theirs"));
    assert!(block_on(store.append(vec![mine.clone()])).is_err());
    let theirs = world.write(theirs);
    assert_eq!(fate(&store, &mine), Fate::Anothers);
    world.expect_stored(&theirs);
}

pub fn a_lost_answer_of_a_new_run_is_settled_too(factory: &Factory) {
    let mut world = World::new(factory);
    let store = Flaky::scripted(world.store(), [Mishap::After, Mishap::Lost]);
    for wanted in [Fate::Ours, Fate::NeverHappened] {
        let batch = world.scribe.start(&NewRun::of("helper"));
        assert!(block_on(store.append(vec![batch.clone()])).is_err());
        assert_eq!(fate(&store, &batch), wanted);
    }
}

/// Whatever happens to the answers, following the links loses nothing and writes nothing twice.
pub fn a_run_survives_any_number_of_lost_answers(factory: &Factory) {
    for seed in 0..10 {
        let mut world = World::new(factory);
        let mut row = world.queued_run("helper");
        let store: Arc<dyn Store> = Arc::new(Flaky::seeded(world.store(), seed, 2, 1000));
        for n in 0..20 {
            row = insist(&mut world, &*store, &row, n);
        }
        let links = world.links(row.run.facts.id);
        assert_eq!(links.len(), 21, "seed {seed}");
        assert_eq!(checked(&*store, row.run.facts.id), Ok(row), "seed {seed}");
    }
}

/// Appends until it is written, exactly once.
fn insist(world: &mut World, store: &dyn Store, row: &RunRow, n: u64) -> RunRow {
    let batch = world.scribe.batch(row, &say(&format!("message {n}")));
    for _ in 0..100 {
        let result = block_on(store.append(vec![batch.clone()]));
        let is_written = match result {
            Ok(()) => true,
            Err(StoreError::Unavailable { .. } | StoreError::Conflict { .. }) => false,
            Err(StoreError::Unknown { .. }) => fate(store, &batch) == Fate::Ours,
            Err(other) => panic!("{other}"),
        };
        if is_written {
            return batch.row;
        }
    }
    panic!("a hundred mishaps in a row");
}
