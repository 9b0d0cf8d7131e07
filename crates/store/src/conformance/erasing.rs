//! Erasure: contents go, headers, commitments and hashes stay, and the chain still verifies.
//!
//! Only a run that says so itself (`run.erased`) can be erased.

use std::collections::BTreeMap;

use standfast_core::command::Command;
use standfast_core::digest;
use standfast_core::event::Event;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::Contents;
use standfast_core::name::AgentName;
use standfast_core::project::RunRow;
use standfast_core::time::{Millis, Timestamp};

use super::Factory;
use super::support::{NewRun, World, all_pages, block_on, tenant, verify};
use crate::{DeadQuery, EndedQuery, Notice, NoticeQuery, SettleNotice, SideWrite, StoreError};

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

pub fn what_could_not_be_told_goes_with_the_contents(factory: &Factory) {
    let mut world = World::new(factory);
    let mut told = Vec::new();
    for _ in 0..2 {
        let mut batch = world.scribe.start(&NewRun::of("helper"));
        let notice =
            Notice { subscription: "hook".into(), owner: String::new(), from: Seq(1), due_at: world.now() };
        batch.puts.push(SideWrite::Notice(notice));
        let row = world.write(batch);
        let row = world.send(&row, &Command::Cancel { reason: None });
        told.push(world.send(&row, &Command::Erase { reason: None }).run.facts.clone());
    }
    for due in block_on(world.store().due_notices(NoticeQuery::all(world.now(), 10))).unwrap() {
        let dead = SettleNotice::Dead { at: world.now(), from: Seq(1), why: "gone".into() };
        assert_eq!(block_on(world.store().settle_notice(due.no, dead)), Ok(()));
    }
    let letters = |world: &World| -> Vec<RunId> {
        let (tenant, subscription) = (told[0].tenant.clone(), "hook".to_owned());
        let query = DeadQuery { tenant, subscription, cursor: None, limit: 10 };
        block_on(world.store().dead_letters(query)).unwrap().items.iter().map(|letter| letter.run).collect()
    };
    assert_eq!(letters(&world), [told[0].id, told[1].id]);
    assert_eq!(block_on(world.store().erase(told[0].id)), Ok(()));
    assert_eq!(letters(&world), [told[1].id]);
}

pub fn ended_runs_are_listed_while_they_have_their_contents(factory: &Factory) {
    let mut world = World::new(factory);
    let before = |world: &World| world.now();
    let first = world.ended_run("helper").run.facts.id;
    let open = world.queued_run("helper").run.facts.id;
    let (_, hold) = world.held_run("other");
    world.later(Millis::seconds(10));
    let then = before(&world);
    world.later(Millis::seconds(10));
    let second = world.ended_run("other").run.facts.id;
    world.later(Millis::seconds(10));
    assert_eq!(world.ended(then), [first], "only what ended before");
    let now = before(&world);
    assert_eq!(world.ended(now), [first, second], "neither {open} nor {hold}");
    let stranger = EndedQuery {
        tenant: tenant("somebody"),
        before: now,
        agents: BTreeMap::new(),
        cursor: None,
        limit: 10,
    };
    assert_eq!(block_on(world.store().ended_runs(stranger)).map(|page| page.items), Ok(vec![]));

    let row = world.load(first).unwrap().row;
    world.send(&row, &Command::Erase { reason: None });
    assert_eq!(block_on(world.store().erase(first)), Ok(()));
    world.later(Millis::hours(24));
    world.reopen();
    assert_eq!(world.ended(world.now()), [second], "what is erased is not listed again, however old it gets");
}

pub fn runs_of_some_agents_are_kept_for_longer_or_not_as_long(factory: &Factory) {
    let mut world = World::new(factory);
    let [long_ago, ever] = [Timestamp(0), Timestamp(i64::MAX)];
    let helper = world.ended_run("helper").run.facts.id;
    world.later(Millis::seconds(10));
    let other = world.ended_run("other").run.facts.id;
    let open = world.queued_run("other").run.facts.id;
    world.later(Millis::seconds(10));
    let now = world.now();
    assert_eq!(world.ended_of(now, &[("helper", long_ago)]), [other], "{helper} is kept, {open} goes on");
    assert_eq!(world.ended_of(long_ago, &[("helper", now)]), [helper]);
    assert_eq!(
        world.ended_of(long_ago, &[("helper", ever), ("other", now), ("unheard", ever)]),
        [helper, other]
    );
    assert_eq!(world.ended_of(now, &[("helper", long_ago), ("other", long_ago)]), []);
    // Whoever wrote that it is erased may have died before it was, however long such runs are kept.
    let half = world.erased_run("secret").run.facts.id;
    assert_eq!(world.ended_of(now, &[("helper", long_ago), ("other", long_ago)]), [half]);
}

pub fn what_waits_to_be_told_keeps_its_contents(factory: &Factory) {
    let mut world = World::new(factory);
    let mut batch = world.scribe.start(&NewRun::of("helper"));
    let notice =
        Notice { subscription: "hook".into(), owner: String::new(), from: Seq(1), due_at: world.now() };
    batch.puts.push(SideWrite::Notice(notice));
    let row = world.write(batch);
    let run = world.send(&row, &Command::Cancel { reason: None }).run.facts.id;
    world.later(Millis::hours(24));
    let due = block_on(world.store().due_notices(NoticeQuery::all(world.now(), 10))).unwrap();
    let settle = |settle| block_on(world.store().settle_notice(due[0].no, settle)).unwrap();
    let later = world.now().plus(Millis::hours(1));
    settle(SettleNotice::Retry { at: later, from: Seq(1) });
    assert_eq!(world.ended(world.now()), [], "it is tried again later");
    settle(SettleNotice::Delivered { upto: Seq(100) });
    assert_eq!(world.ended(world.now()), [run]);
}

pub fn what_says_that_it_is_erased_and_is_not_is_listed(factory: &Factory) {
    let mut world = World::new(factory);
    let long_ago = world.now();
    world.later(Millis::hours(1));
    let run = world.erased_run("secret").run.facts.id;
    // Whoever wrote it may have died before it did what it says, however young that is.
    assert_eq!(world.ended(long_ago), [run]);
    assert_eq!(block_on(world.store().erase(run)), Ok(()));
    assert_eq!(world.ended(long_ago), []);
}

pub fn ended_runs_are_listed_to_the_last_however_many_there_are(factory: &Factory) {
    let mut world = World::new(factory);
    let mut wanted = vec![world.ended_run("helper").run.facts.id];
    // More runs that are not over than one page looks at.
    let batches: Vec<_> =
        (0..EndedQuery::LOOKS_AT + 20).map(|_| world.scribe.start(&NewRun::of("helper"))).collect();
    for batch in batches {
        world.write(batch);
    }
    for _ in 0..5 {
        wanted.push(world.ended_run("helper").run.facts.id);
    }
    world.later(Millis::seconds(1));
    assert_eq!(world.ended(world.now()), wanted);
}

impl World {
    /// Every run that ended before an instant and has its contents, in small pages.
    fn ended(&self, before: Timestamp) -> Vec<RunId> {
        all_pages(|cursor| {
            let query =
                EndedQuery { tenant: tenant("default"), before, agents: BTreeMap::new(), cursor, limit: 2 };
            block_on(self.store().ended_runs(query)).unwrap()
        })
    }

    /// The same, where the runs of some agents have an instant of their own.
    fn ended_of(&self, before: Timestamp, agents: &[(&str, Timestamp)]) -> Vec<RunId> {
        let agents = agents.iter().map(|(name, before)| (AgentName::new(name).unwrap(), *before));
        let agents: BTreeMap<AgentName, Timestamp> = agents.collect();
        all_pages(|cursor| {
            let (tenant, agents) = (tenant("default"), agents.clone());
            let query = EndedQuery { tenant, before, agents, cursor, limit: 1 };
            block_on(self.store().ended_runs(query)).unwrap()
        })
    }

    /// A run that has ended and says that it is erased; its contents are still there.
    fn erased_run(&mut self, text: &str) -> RunRow {
        let row = self.start(&NewRun::of("helper").saying(text));
        let row = self.send(&row, &super::appending::say(text));
        let row = self.send(&row, &Command::Cancel { reason: Some("enough".into()) });
        self.send(&row, &Command::Erase { reason: Some("asked to".into()) })
    }
}

fn headers(
    links: &[standfast_core::link::Link],
) -> Vec<(standfast_core::link::Header, standfast_core::digest::Digest)> {
    links.iter().map(|link| (link.header.clone(), link.hash)).collect()
}
