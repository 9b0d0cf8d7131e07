//! Appends: what is written, what is refused, and that refused means nothing was written.
//!
//! The expected sequence and hash are the only lock on a run.

use standfast_core::command::{Command, OnHold, Say};
use standfast_core::digest::Digest;
use standfast_core::id::Seq;
use standfast_core::message::Message;

use super::Factory;
use super::support::{NODE, NewRun, SHELL, World, block_on, resolve, tenant};
use crate::{LeaseChange, StoreError, StoredRun};

pub fn a_new_run_is_stored(factory: &Factory) {
    let mut world = World::new(factory);
    let batch = world.scribe.start(&NewRun::of("helper"));
    let (row, link) = (batch.row.clone(), batch.link.clone());
    assert_eq!(world.append(vec![batch]), Ok(()));
    assert_eq!(world.load(row.run.facts.id), Ok(StoredRun { row: row.clone(), lease: None }));
    assert_eq!(world.links(row.run.facts.id), [link]);
    world.expect_stored(&row);
}

pub fn every_fact_of_a_run_is_stored(factory: &Factory) {
    let mut world = World::new(factory);
    let parent = world.queued_run("root");
    let parent = world.the_model_asks(&parent, &[super::support::LOOKUP]);
    let parent = world.begins(&parent, 1);
    let mut suspend = super::support::suspend(1, 1, standfast_core::command::SuspendFor::External);
    let Command::Suspend(ask) = &mut suspend else { unreachable!("a suspend") };
    let child = parent.run.facts.id.child(standfast_core::id::CallNo(1), 1);
    ask.ask.child = Some(child);
    let parent = world.send(&parent, &suspend);
    let hold = parent.run.state.holds[0].key;
    let of = standfast_core::event::Parent {
        run: parent.run.facts.id,
        call: standfast_core::id::CallNo(1),
        hold,
        depth: 1,
    };
    let below = NewRun { id: Some(child), parent: Some(of), ..NewRun::of("sub") };
    let below = world.start(&below);
    let mut targeted = NewRun::of("inbox-agent").in_inbox("tickets", 3).in_session("s-9").of_tenant("acme");
    targeted.inbox.as_mut().unwrap().target_agent = Some(super::support::agent("only-me"));
    let targeted = world.start(&targeted);
    world.reopen();
    world.expect_stored(&parent);
    world.expect_stored(&below);
    world.expect_stored(&targeted);
}

pub fn a_run_is_created_once(factory: &Factory) {
    let mut world = World::new(factory);
    let batch = world.scribe.start(&NewRun::of("helper"));
    let row = world.write(batch.clone());
    let run = row.run.facts.id;
    assert_eq!(world.append(vec![batch]), Err(StoreError::Conflict { run }));
    world.expect_stored(&row);
}

pub fn an_append_moves_the_run_on(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let row = world.the_model_asks(&row, &[SHELL]);
    world.expect_stored(&row);
    let hold = row.run.state.holds[0].key;
    let row = world.send(&row, &resolve(hold, standfast_core::command::Choice::Approve));
    let row = world.begins(&row, 1);
    let row = world.send(&row, &super::support::finish(1, 1, "ok"));
    let row = world.the_model_asks(&row, &[]);
    assert_eq!(row.phase, standfast_core::project::Phase::Completed);
    world.expect_stored(&row);
}

pub fn a_stale_sequence_is_a_conflict(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let stale = world.scribe.batch(&row, &say("second"));
    let row = world.send(&row, &say("first"));
    let run = row.run.facts.id;
    assert_eq!(world.append(vec![stale]), Err(StoreError::Conflict { run }));
    world.expect_stored(&row);
}

pub fn a_sequence_from_the_future_is_a_conflict(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let ahead = world.scribe.batch(&row, &say("never written")).row;
    let further = world.scribe.batch(&ahead, &say("on top of it"));
    let run = row.run.facts.id;
    assert_eq!(world.append(vec![further]), Err(StoreError::Conflict { run }));
    world.expect_stored(&row);
}

/// Decided on a link that lost its race: the winner has as many events, but another hash.
pub fn another_head_at_the_same_sequence_is_a_conflict(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let lost = world.scribe.batch(&row, &say("lost")).row;
    let winner = world.send(&row, &say("won"));
    assert_eq!(lost.run.state.seq, winner.run.state.seq);
    let on_top = world.scribe.batch(&lost, &say("on top of what was lost"));
    let run = row.run.facts.id;
    assert_eq!(world.append(vec![on_top]), Err(StoreError::Conflict { run }));
    world.expect_stored(&winner);
}

pub fn an_unknown_run_is_not_found(factory: &Factory) {
    let mut world = World::new(factory);
    let other = world.queued_run("helper");
    let never_stored = world.scribe.start(&NewRun::of("helper")).row;
    let run = never_stored.run.facts.id;
    let batch = world.scribe.batch(&never_stored, &say("hello?"));
    assert_eq!(world.append(vec![batch]), Err(StoreError::NotFound { run }));
    assert_eq!(world.load(run), Err(StoreError::NotFound { run }));
    assert_eq!(block_on(world.store().links(run, Seq(0), 10)), Err(StoreError::NotFound { run }));
    assert_eq!(block_on(world.store().blob(run, Digest([1; 32]))), Ok(None));
    assert_eq!(block_on(world.store().erase(run)), Err(StoreError::NotFound { run }));
    assert_eq!(block_on(world.store().release(run, NODE, None)), Ok(()));
    assert_eq!(block_on(world.store().renew(vec![run], NODE, world.now())), Ok(vec![]));
    world.expect_stored(&other);
}

pub fn several_runs_are_written_together(factory: &Factory) {
    let mut world = World::new(factory);
    let old = world.queued_run("helper");
    let mut batches: Vec<_> = (0..7).map(|_| world.scribe.start(&NewRun::of("helper"))).collect();
    batches.push(world.scribe.batch(&old, &say("more")));
    let rows: Vec<_> = batches.iter().map(|batch| batch.row.clone()).collect();
    assert_eq!(world.append(batches), Ok(()));
    rows.iter().for_each(|row| world.expect_stored(row));
}

pub fn a_conflict_in_the_last_run_undoes_all(factory: &Factory) {
    let mut world = World::new(factory);
    let (first, last) = (world.queued_run("helper"), world.queued_run("helper"));
    let stale = world.scribe.batch(&last, &say("stale"));
    let last = world.send(&last, &say("moved on"));
    let created = world.scribe.start(&NewRun::of("newcomer").in_session("s-new"));
    let new = created.row.clone();
    let batches = vec![created, world.scribe.batch(&first, &say("no")), stale];
    assert_eq!(world.append(batches), Err(StoreError::Conflict { run: last.run.facts.id }));
    world.expect_stored(&first);
    world.expect_stored(&last);
    let run = new.run.facts.id;
    assert_eq!(world.load(run), Err(StoreError::NotFound { run }));
    assert_eq!(block_on(world.store().session(super::support::session_of(&new))), Ok(None));
}

pub fn one_run_twice_in_an_append_is_a_conflict(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let batches = vec![world.scribe.batch(&row, &say("one")), world.scribe.batch(&row, &say("two"))];
    let run = row.run.facts.id;
    assert_eq!(world.append(batches), Err(StoreError::Conflict { run }));
    world.expect_stored(&row);
}

/// An append is handed over when the method is called; its future is only about the answer.
pub fn appends_are_written_in_the_order_of_the_calls(factory: &Factory) {
    let mut world = World::new(factory);
    let (mut row, store) = (world.queued_run("helper"), world.store());
    let mut answers = Vec::new();
    for n in 0..20 {
        let batch = world.scribe.batch(&row, &say(&format!("message {n}")));
        row = batch.row.clone();
        answers.push(store.append(vec![batch]));
    }
    answers.drain(..10).for_each(drop);
    let answers: Vec<_> = answers.into_iter().rev().map(block_on).collect();
    assert_eq!(answers, vec![Ok(()); 10]);
    world.expect_stored(&row);
}

pub fn what_was_acknowledged_survives_reopening(factory: &Factory) {
    let mut world = World::new(factory);
    let (held, _) = world.held_run("helper");
    let mut batch = world.scribe.start(&NewRun::of("helper").of_tenant("acme").in_session("s-2"));
    let until = world.now().plus(standfast_core::time::Millis::seconds(9));
    batch.lease = LeaseChange::Take { node: NODE, until };
    let leased = world.write(batch);
    world.reopen();
    world.expect_stored(&held);
    let lease = Some(crate::Lease { node: NODE, until });
    assert_eq!(world.load(leased.run.facts.id), Ok(StoredRun { row: leased.clone(), lease }));
    assert_eq!(leased.run.facts.tenant, tenant("acme"));
    let held = world.send(&held, &Command::Cancel { reason: None });
    world.reopen();
    world.expect_stored(&held);
}

/// Somebody says something.
pub fn say(text: &str) -> Command {
    Command::Say(Say { message: Message::text(text), on_hold: OnHold::Refuse })
}
