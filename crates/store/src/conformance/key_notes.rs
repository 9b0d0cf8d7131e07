//! Keys that are noted apart from any append: kept, changed, forgotten, seen by everybody at once.
//!
//! That they cost no sync of their own is each backend's business; that a later append keeps them is everybody's.

use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};
use standfast_core::time::{Millis, Timestamp};

use super::Factory;
use super::appending::say;
use super::support::{World, block_on, tenant};
use crate::{Guard, KeyNote, KeyRecord, SideWrite, StoreError};

/// A key, the run that it is about, and what is kept of it until when; none forgets it.
type Note<'a> = (&'a str, RunId, Option<(u8, Timestamp)>);

impl World {
    fn note(&self, notes: &[Note<'_>]) {
        let note = |(key, run, kept): &Note<'_>| KeyNote {
            tenant: tenant("default"),
            key: (*key).to_owned(),
            run: *run,
            kept: kept.map(|(says, until)| (Digest([says; 32]), until)),
        };
        block_on(self.store().note_keys(notes.iter().map(note).collect())).unwrap();
    }

    fn noted(&self, key: &str) -> Option<KeyRecord> {
        block_on(self.store().find_key(tenant("default"), key.to_owned())).unwrap()
    }
}

pub fn a_noted_key_says_the_last_that_was_noted(factory: &Factory) {
    let mut world = World::new(factory);
    let run = world.queued_run("helper").run.facts.id;
    let (soon, late) = (world.now().plus(Millis::hours(1)), world.now().plus(Millis::hours(9 * 24)));
    world.note(&[("a", run, Some((1, late))), ("b", run, Some((1, late)))]);
    let record =
        |says: u8, expires_at| KeyRecord { request: Digest([says; 32]), run, seq: Seq(0), expires_at };
    assert_eq!(world.noted("a"), Some(record(1, late)));
    assert_eq!(
        block_on(world.store().find_key(tenant("acme"), "a".into())),
        Ok(None),
        "not of another tenant"
    );
    // One key twice in one go: the last word counts.
    world.note(&[("a", run, Some((2, late))), ("a", run, Some((3, soon))), ("b", run, None)]);
    assert_eq!((world.noted("a"), world.noted("b")), (Some(record(3, soon)), None));
    world.note(&[("b", run, None), ("c", run, Some((4, late)))]);
    assert_eq!((world.noted("b"), world.noted("c")), (None, Some(record(4, late))));
    world.note(&[]);
    // It is remembered for longer when that is much longer.
    world.note(&[("a", run, Some((3, late)))]);
    assert_eq!(world.noted("a"), Some(record(3, late)));
    // It stays with the append that follows.
    let row = world.queued_run("helper");
    world.send(&row, &say("again"));
    world.reopen();
    assert_eq!((world.noted("a"), world.noted("c")), (Some(record(3, late)), Some(record(4, late))));
    assert_eq!(block_on(world.store().forget_keys(late, 9)), Ok(2), "forgotten like all others");
}

pub fn a_note_about_no_run_is_left_out(factory: &Factory) {
    let world = World::new(factory);
    let late = world.now().plus(Millis::hours(1));
    world.note(&[("a", RunId::from_bytes([7; 16]), Some((1, late)))]);
    assert_eq!(world.noted("a"), None);
}

pub fn a_noted_key_guards_like_any_other(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let (run, late) = (row.run.facts.id, world.now().plus(Millis::hours(1)));
    world.note(&[("a", run, Some((1, late)))]);
    let mut batch = world.scribe.batch(&row, &say("again"));
    batch.guards.push(Guard::KeyUnused { key: "a".into() });
    batch.puts.push(SideWrite::Key { key: "a".into(), request: Digest([2; 32]), expires_at: late });
    let refused = block_on(world.store().append(vec![batch.clone()]));
    assert!(matches!(refused, Err(StoreError::Guard { .. })), "{refused:?}");
    world.note(&[("a", run, None)]);
    let row = world.write(batch);
    assert_eq!(world.noted("a").map(|record| record.seq), Some(row.run.state.seq));
}
