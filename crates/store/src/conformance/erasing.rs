//! Erasure: contents go, headers, commitments and hashes stay, and the chain still verifies.
//!
//! Only a run that says so itself (`run.erased`) can be erased.

use holdpoint_core::command::Command;
use holdpoint_core::digest;
use holdpoint_core::event::Event;
use holdpoint_core::link::Contents;
use holdpoint_core::project::RunRow;

use super::Factory;
use super::support::{NewRun, World, block_on, verify};
use crate::StoreError;

pub fn an_erased_run_keeps_its_chain_and_loses_its_contents(factory: &Factory) {
    let mut world = World::new(factory);
    let secret = "my secret ".repeat(5000);
    let row = world.erased_run(&secret);
    let run = row.run.facts.id;
    let neighbour = world.start(&NewRun::of("helper").saying(secret.clone()));
    let before = world.links(run);
    assert_eq!(block_on(world.store().erase(run)), Ok(()));
    world.reopen();
    let after = world.links(run);
    assert_eq!(verify(&after), Ok(()));
    assert_eq!(headers(&after), headers(&before));
    let (last, erased) = after.split_last().unwrap();
    assert!(erased.iter().all(|link| matches!(link.contents, Contents::Erased { .. })));
    let events = last.events().unwrap();
    assert!(matches!(events.as_slice(), [one] if matches!(one.event, Event::RunErased(_))));
    let name = digest::of_bytes(secret.as_bytes());
    assert_eq!(block_on(world.store().blob(run, name)), Ok(None));
    assert_eq!(world.load(run).unwrap().row, row);
    assert_eq!(block_on(world.store().blob(neighbour.run.facts.id, name)), Ok(Some(secret)));
    world.expect_stored(&neighbour);
}

pub fn a_run_that_does_not_say_so_is_not_erased(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.ended_run("helper");
    let run = row.run.facts.id;
    let refused = block_on(world.store().erase(run));
    let why = format!("run {run} has no run.erased event yet; append it first");
    assert_eq!(refused, Err(StoreError::Unavailable { why }));
    world.expect_stored(&row);
}

pub fn erasing_twice_changes_nothing(factory: &Factory) {
    let mut world = World::new(factory);
    let run = world.erased_run("secret").run.facts.id;
    assert_eq!(block_on(world.store().erase(run)), Ok(()));
    let once = world.links(run);
    assert_eq!(block_on(world.store().erase(run)), Ok(()));
    assert_eq!(world.links(run), once);
}

impl World {
    /// A run that is over and says that it is erased; its contents are still there.
    fn erased_run(&mut self, text: &str) -> RunRow {
        let row = self.start(&NewRun::of("helper").saying(text));
        let row = self.send(&row, &super::appending::say(text));
        let row = self.send(&row, &Command::Cancel { reason: Some("enough".into()) });
        self.send(&row, &Command::Erase { reason: Some("asked to".into()) })
    }
}

fn headers(
    links: &[holdpoint_core::link::Link],
) -> Vec<(holdpoint_core::link::Header, holdpoint_core::digest::Digest)> {
    links.iter().map(|link| (link.header.clone(), link.hash)).collect()
}
