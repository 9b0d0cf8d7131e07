//! Notices: somebody outside is to be notified of a run's events, once for each subscription and run at a time.
//!
//! A notice that was delivered while more came in goes on from there; one that failed waits; one that is given up is
//! kept out of the way of the next.

use standfast_core::id::{RunId, Seq};
use standfast_core::project::RunRow;
use standfast_core::time::{Millis, Timestamp};

use super::Factory;
use super::appending::say;
use super::support::{NewRun, World, block_on, tenant};
use crate::{DeadQuery, DueNotice, Notice, NoticeQuery, SettleNotice, ShardSet, SideWrite};

pub fn a_notice_is_due_at_its_time(factory: &Factory) {
    let mut world = World::new(factory);
    let due_at = world.now().plus(Millis::seconds(10));
    let row = world.telling("hook", due_at);
    assert_eq!(world.due(), []);
    world.later(Millis::seconds(10));
    world.reopen();
    let [notice] = world.due().try_into().unwrap();
    let run = row.run.facts.id;
    let wanted = DueNotice {
        no: notice.no,
        subscription: "hook".into(),
        owner: String::new(),
        run,
        from: Seq(1),
        attempts: 0,
    };
    assert_eq!(notice, wanted);
}

/// Whoever delivers looks only after a commit that put something: one that goes uncounted would wait for the next poll.
pub fn every_commit_that_puts_a_notice_is_counted(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    let before = world.store().notices_put();
    world.start(&NewRun::of("helper"));
    assert_eq!(world.store().notices_put(), before, "nobody is told of it");
    // A store that does not count leaves nobody in the belief that there is nothing.
    let has_news = |before: Option<u64>, after: Option<u64>| after.is_none() || after > before;
    let row = world.telling("hook", now);
    let first = world.store().notices_put();
    assert!(has_news(before, first));
    world.tells(&row, "hook", now);
    assert!(has_news(first, world.store().notices_put()), "one that is there already is counted as well");
}

pub fn a_run_has_one_notice_for_each_subscription(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    let row = world.telling("hook", now);
    let row = world.tells(&row, "hook", now.plus(Millis(-5)));
    let row = world.tells(&row, "mail", now);
    let due = world.told();
    assert_eq!(due, [("hook".into(), row.run.facts.id, 1), ("mail".into(), row.run.facts.id, 4)]);
}

pub fn a_delivered_notice_is_gone(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    let row = world.telling("hook", now);
    let no = world.due()[0].no;
    world.settle(no, SettleNotice::Delivered { upto: row.run.state.seq });
    assert_eq!(world.due(), []);
    world.settle(no, SettleNotice::Delivered { upto: row.run.state.seq });
    let row = world.tells(&row, "hook", now);
    assert_eq!(world.told(), [("hook".into(), row.run.facts.id, 3)]);
}

/// More was appended while it was delivered: it goes on after what was told, at once.
pub fn a_delivered_notice_with_more_to_tell_goes_on(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    let row = world.telling("hook", now);
    let told = row.run.state.seq;
    let no = world.due()[0].no;
    world.settle(no, SettleNotice::Retry { at: now, from: Seq(1) });
    let row = world.tells(&row, "hook", now);
    world.settle(no, SettleNotice::Delivered { upto: told });
    world.reopen();
    let run = row.run.facts.id;
    let wanted = DueNotice {
        no,
        subscription: "hook".into(),
        owner: String::new(),
        run,
        from: told.plus(1),
        attempts: 0,
    };
    assert_eq!(world.due(), [wanted]);
    world.settle(no, SettleNotice::Delivered { upto: row.run.state.seq });
    assert_eq!(world.due(), []);
}

pub fn a_failed_notice_waits_and_counts(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    let row = world.telling("hook", now);
    let no = world.due()[0].no;
    world.settle(no, SettleNotice::Retry { at: now.plus(Millis::seconds(30)), from: Seq(1) });
    // News while it waits neither hurries it nor makes a second one.
    world.tells(&row, "hook", now);
    assert_eq!(world.due(), []);
    world.later(Millis::seconds(30));
    assert_eq!(world.due().iter().map(|due| due.attempts).collect::<Vec<_>>(), [1]);
}

/// A part of what is due was told: it goes on behind that, and the tries count again.
pub fn a_notice_that_failed_half_way_goes_on_from_there(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    let row = world.telling("hook", now);
    let no = world.due()[0].no;
    for (from, attempts) in [(1, 1), (1, 2), (2, 1), (1, 2)] {
        world.settle(no, SettleNotice::Retry { at: now, from: Seq(from) });
        assert_eq!(world.due()[0].attempts, attempts);
    }
    assert_eq!(world.told(), [("hook".into(), row.run.facts.id, 2)]);
}

/// A backlog of one does not hide the others.
pub fn notices_of_a_busy_subscription_are_left_out(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    for _ in 0..5 {
        world.telling("slow", now);
    }
    let other = world.telling("quick", now);
    let without = vec!["slow".to_owned(), "unknown".to_owned()];
    let query = NoticeQuery { without, ..NoticeQuery::all(now, 2) };
    let due = block_on(world.store().due_notices(query)).unwrap();
    assert_eq!(due.iter().map(|due| due.run).collect::<Vec<_>>(), [other.run.facts.id]);
}

pub fn a_notice_that_is_given_up_stays_out_of_the_way(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    let row = world.telling("hook", now);
    let no = world.due()[0].no;
    world.settle(no, given_up(now));
    assert_eq!(world.due(), []);
    let row = world.tells(&row, "hook", now);
    let due = world.due();
    assert_eq!(world.told(), [("hook".into(), row.run.facts.id, 3)]);
    // A late word about the old one changes nothing.
    world.settle(no, SettleNotice::Retry { at: now, from: Seq(1) });
    world.reopen();
    assert_eq!(world.due(), due);
}

pub fn notices_come_longest_due_first(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    let late = world.telling("a", now.plus(Millis(-1)));
    let later = world.telling("b", now);
    let first = world.telling("c", now.plus(Millis(-9)));
    let same = world.telling("d", now);
    let order = [&first, &late, &later, &same].map(|row| row.run.facts.id);
    assert_eq!(world.told().iter().map(|(_, run, _)| *run).collect::<Vec<_>>(), order);
    let two = block_on(world.store().due_notices(NoticeQuery::all(now, 2))).unwrap();
    assert_eq!(two.iter().map(|due| due.run).collect::<Vec<_>>(), order[..2]);
}

pub fn notices_belong_to_the_shard_of_their_run(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    let rows: Vec<RunRow> = (0..4).map(|_| world.telling("hook", now)).collect();
    for row in &rows {
        let shard = row.run.facts.id.shard(&row.run.facts.tenant);
        let due = block_on(world.store().due_notices(within(ShardSet::of([shard]), now))).unwrap();
        assert!(due.iter().any(|due| due.run == row.run.facts.id));
        assert!(due.iter().all(|due| due.run.shard(&row.run.facts.tenant) == shard));
    }
    assert_eq!(block_on(world.store().due_notices(within(ShardSet::of([]), now))), Ok(vec![]));
}

pub fn an_unknown_notice_is_settled_without_effect(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    world.telling("hook", now);
    let due = world.due();
    for settle in [
        SettleNotice::Delivered { upto: Seq(9) },
        given_up(now),
        SettleNotice::Retry { at: now, from: Seq(1) },
    ] {
        world.settle(due[0].no + 1000, settle);
    }
    assert_eq!(world.due(), due);
}

/// What stands in front of a slash belongs to that owner, everything else to nobody.
fn owner_of(subscription: &str) -> String {
    subscription.split_once('/').map(|(owner, _)| owner.to_owned()).unwrap_or_default()
}

/// F25: the backlog of one owner, in however many subscriptions, does not hide what others wait for.
pub fn notices_take_turns_between_owners(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    for n in 0..6 {
        world.telling(&format!("ann/{n}"), now);
    }
    world.later(Millis(5));
    let later = world.now();
    world.telling("bob/0", later);
    world.telling("bob/1", later);
    world.telling("server", later);
    world.reopen();
    let due = |query: NoticeQuery| {
        let due = block_on(world.store().due_notices(query)).unwrap();
        due.into_iter().map(|one| (one.owner, one.subscription)).collect::<Vec<_>>()
    };
    let named = |all: &[&str]| {
        all.iter().map(|one| (owner_of(one), (*one).to_owned())).collect::<Vec<(String, String)>>()
    };
    assert_eq!(due(NoticeQuery::all(later, 5)), named(&["ann/0", "bob/0", "server", "ann/1", "bob/1"]));
    assert_eq!(due(NoticeQuery::all(later, 2)), named(&["ann/0", "bob/0"]));
    let few = NoticeQuery { each: 1, ..NoticeQuery::all(later, 9) };
    assert_eq!(due(few), named(&["ann/0", "bob/0", "server"]));
    let without_owners = vec!["ann".to_owned(), String::new()];
    let rest = NoticeQuery { without_owners, ..NoticeQuery::all(later, 9) };
    assert_eq!(due(rest), named(&["bob/0", "bob/1"]));
    let (without, without_owners) = (vec!["bob/0".to_owned()], vec!["ann".to_owned()]);
    let rest = NoticeQuery { without, without_owners, ..NoticeQuery::all(later, 9) };
    assert_eq!(due(rest), named(&["bob/1", "server"]));
}

/// A letter that is sent again counts for its owner, as before.
pub fn a_letter_sent_again_keeps_its_owner(factory: &Factory) {
    let mut world = World::new(factory);
    let now = world.now();
    world.telling("ann/0", now);
    let due = world.due();
    world.settle(due[0].no, given_up(now));
    assert_eq!(world.due(), []);
    let query = DeadQuery { tenant: tenant("default"), subscription: "ann/0".into(), cursor: None, limit: 9 };
    let letters = block_on(world.store().dead_letters(query)).unwrap().items;
    assert!(block_on(world.store().resend(tenant("default"), letters[0].no, now)).unwrap());
    assert_eq!(world.due().iter().map(|one| one.owner.as_str()).collect::<Vec<_>>(), ["ann"]);
}

fn given_up(at: Timestamp) -> SettleNotice {
    SettleNotice::Dead { at, from: Seq(1), why: "503".into() }
}

fn within(shards: ShardSet, now: Timestamp) -> NoticeQuery {
    NoticeQuery { shards, ..NoticeQuery::all(now, 50) }
}

impl World {
    /// A new run whose first append somebody is notified of.
    pub(super) fn telling(&mut self, subscription: &str, due_at: Timestamp) -> RunRow {
        let mut batch = self.scribe.start(&NewRun::of("helper"));
        let from = batch.link.header.first;
        let owner = owner_of(subscription);
        batch.puts.push(SideWrite::Notice(Notice { subscription: subscription.into(), owner, from, due_at }));
        self.write(batch)
    }

    /// A further append that somebody is notified of.
    pub(super) fn tells(&mut self, row: &RunRow, subscription: &str, due_at: Timestamp) -> RunRow {
        let mut batch = self.scribe.batch(row, &say("news"));
        let from = batch.link.header.first;
        let owner = owner_of(subscription);
        batch.puts.push(SideWrite::Notice(Notice { subscription: subscription.into(), owner, from, due_at }));
        self.write(batch)
    }

    pub(super) fn due(&self) -> Vec<DueNotice> {
        block_on(self.store().due_notices(NoticeQuery::all(self.now(), 50))).unwrap()
    }

    /// Who is notified of which run from which event on.
    pub(super) fn told(&self) -> Vec<(String, RunId, u64)> {
        self.due().into_iter().map(|due| (due.subscription, due.run, due.from.0)).collect()
    }

    pub(super) fn settle(&self, no: i64, settle: SettleNotice) {
        assert_eq!(block_on(self.store().settle_notice(no, settle)), Ok(()));
    }
}
