//! Runs that are quarantined because their log cannot be read (C35).
//!
//! Such a run is never due, takes no appends and loads as corrupt; everything else goes on, and nothing of it is lost.

use standfast_core::command::Command;
use standfast_core::id::Seq;
use standfast_core::project::Phase;
use standfast_core::time::Millis;

use super::Factory;
use super::support::{World, block_on, ids, runs_by, tenant};
use crate::{RunFilter, RunQuery, StoreError, UnreadableRun};

const WHY: &str = "a link cannot be read";

pub fn a_run_put_aside_is_never_due_and_takes_nothing(factory: &Factory) {
    let mut world = World::new(factory);
    let (broken, whole) = (world.queued_run("helper"), world.queued_run("helper"));
    let run = broken.run.facts.id;
    assert_eq!(world.claimed(1), [run]);
    for why in [WHY, "another reason"] {
        assert_eq!(block_on(world.store().quarantine(run, why.into())), Ok(()));
    }
    let corrupt = StoreError::Corrupt { run, why: WHY.into() };
    let batch = world.scribe.batch(&broken, &Command::Cancel { reason: None });
    assert_eq!(world.append(vec![batch]), Err(corrupt.clone()));
    world.reopen();
    assert_eq!(world.load(run), Err(corrupt));
    world.later(Millis::hours(1));
    assert_eq!(world.claimed(10), [whole.run.facts.id]);
    let unknown = world.scribe.run_id(&tenant("default"));
    let nowhere = block_on(world.store().quarantine(unknown, WHY.into()));
    assert_eq!(nowhere, Err(StoreError::NotFound { run: unknown }));
}

pub fn a_run_put_aside_is_listed_apart(factory: &Factory) {
    let mut world = World::new(factory);
    let (whole, (broken, _)) = (world.queued_run("helper"), world.held_run("helper"));
    let facts = broken.run.facts.clone();
    assert_eq!(block_on(world.store().quarantine(facts.id, WHY.into())), Ok(()));
    for _ in 0..2 {
        let page = world.list_runs(runs_by(RunFilter::All));
        assert_eq!(ids(&page.items), [whole.run.facts.id]);
        let apart = UnreadableRun { run: facts.id, facts: Some(facts.clone()), why: WHY.into() };
        assert_eq!(page.unreadable, vec![apart.clone()]);
        let failed = world.list_runs(RunQuery { phases: vec![Phase::Failed], ..runs_by(RunFilter::All) });
        assert_eq!((failed.items.len(), failed.unreadable), (0, vec![apart]));
        let queued = world.list_runs(RunQuery { phases: vec![Phase::Queued], ..runs_by(RunFilter::All) });
        assert_eq!((queued.items.len(), queued.unreadable.len()), (1, 0));
        let counts = block_on(world.store().counts(tenant("default"))).unwrap();
        assert_eq!((counts.runs.values().sum::<u64>(), counts.quarantined), (1, 1));
        world.reopen();
    }
}

pub fn a_run_put_aside_keeps_its_facts_and_its_log(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let facts = row.run.facts.clone();
    let links = |world: &World| block_on(world.store().links(facts.id, Seq(0), 10)).unwrap();
    let before = links(&world);
    assert_eq!(block_on(world.store().facts(facts.id)), Ok(Some(facts.clone())));
    assert_eq!(block_on(world.store().quarantine(facts.id, WHY.into())), Ok(()));
    assert_eq!(block_on(world.store().facts(facts.id)), Ok(Some(facts.clone())));
    assert_eq!(links(&world), before);
    let unknown = world.scribe.run_id(&tenant("default"));
    assert_eq!(block_on(world.store().facts(unknown)), Ok(None));
}
