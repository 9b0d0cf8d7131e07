//! Subscriptions: appends put notices for those who listen, and failed deliveries can be resent.
//!
//! A store knows of a subscription which runs it is about and which kinds of events it wants; nothing else.

use standfast_core::event::Event;
use standfast_core::id::Seq;
use standfast_core::project::RunRow;
use standfast_core::time::Millis;

use super::Factory;
use super::appending::say;
use super::support::{NewRun, World, agent, block_on, tenant};
use crate::{DeadLetter, DeadQuery, Scope, SettleNotice, Subscription, SubscriptionCount, SubscriptionQuery};

fn subscription(id: &str, scope: Scope) -> Subscription {
    Subscription {
        tenant: tenant("default"),
        id: id.into(),
        scope,
        owner: "ann".into(),
        wants: u64::MAX >> 1,
        is_active: true,
        facts: "{\"url\":\"é\"}".into(),
    }
}

impl World {
    fn subscribes(&self, new: &Subscription) -> bool {
        block_on(self.store().put_subscription(new.clone())).unwrap()
    }

    fn changes(&self, before: &Subscription, after: &Subscription) -> bool {
        block_on(self.store().change_subscription(before.facts.clone(), after.clone())).unwrap()
    }

    fn subscription(&self, id: &str) -> Option<Subscription> {
        block_on(self.store().subscription(tenant("default"), id.into())).unwrap()
    }

    fn subscriptions(&self, of: &str, after: Option<&str>, limit: usize) -> Vec<String> {
        let query =
            SubscriptionQuery { tenant: tenant(of), owner: None, after: after.map(Into::into), limit };
        let found = block_on(self.store().list_subscriptions(query)).unwrap();
        found.into_iter().map(|one| one.id).collect()
    }

    fn says(&mut self, row: &RunRow) -> RunRow {
        self.send(row, &say("news"))
    }

    fn letters(&self, subscription: &str) -> Vec<DeadLetter> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let query =
                DeadQuery { tenant: tenant("default"), subscription: subscription.into(), cursor, limit: 1 };
            let page = block_on(self.store().dead_letters(query)).unwrap();
            all.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return all;
            }
        }
    }

    fn gives_up(&self, from: Seq) {
        for due in self.due() {
            let why = "410 Gone".to_owned();
            self.settle(due.no, SettleNotice::Dead { at: self.now(), from, why });
        }
    }

    fn resends(&self, of: &str, no: i64) -> bool {
        block_on(self.store().resend(tenant(of), no, self.now())).unwrap()
    }
}

pub fn a_subscription_is_kept_as_it_is(factory: &Factory) {
    let mut world = World::new(factory);
    let run = world.queued_run("helper").run.facts.id;
    let scopes = [Scope::Tenant, Scope::Agent(agent("helper")), Scope::Run(run)];
    for (id, scope) in ["a", "b", "c"].into_iter().zip(scopes) {
        let new = subscription(id, scope);
        assert!(world.subscribes(&new));
        assert!(!world.subscribes(&Subscription { is_active: false, ..new.clone() }), "its id is taken");
        world.reopen();
        assert_eq!(world.subscription(id), Some(new));
    }
    assert_eq!(world.subscription("d"), None);
    assert_eq!(world.subscription("a\0"), None);
    let other = Subscription { tenant: tenant("acme"), ..subscription("a", Scope::Tenant) };
    assert!(world.subscribes(&other));
    assert_eq!(world.subscriptions("default", None, 2), ["a", "b"]);
    assert_eq!(world.subscriptions("default", Some("b"), 2), ["c"]);
    assert_eq!(world.subscriptions("acme", None, 9), ["a"]);
    assert_eq!(world.subscriptions("nobody", None, 9), [""; 0]);
}

/// What an owner has is listed and counted without looking at what others have. Only active ones count.
pub fn subscriptions_are_listed_and_counted_by_owner(factory: &Factory) {
    let mut world = World::new(factory);
    let (run, other) = (world.queued_run("helper").run.facts.id, world.queued_run("helper").run.facts.id);
    let helper = || Scope::Agent(agent("helper"));
    for (id, owner, scope, is_active) in [
        ("a", "ann", Scope::Tenant, true),
        ("b", "bob", helper(), true),
        ("c", "ann", Scope::Run(run), true),
        ("d", "ann", Scope::Run(other), true),
        ("e", "bob", Scope::Run(run), true),
        ("f", "ann", helper(), false),
        ("g", "ann", Scope::Run(run), false),
        ("h", "ann", helper(), true),
    ] {
        assert!(world.subscribes(&Subscription {
            owner: owner.into(),
            is_active,
            ..subscription(id, scope)
        }));
    }
    let acme = Subscription { tenant: tenant("acme"), ..subscription("a", Scope::Tenant) };
    assert!(world.subscribes(&acme));
    world.reopen();
    let of = |owner: &str, after: Option<&str>, limit| {
        let (owner, after) = (Some(owner.to_owned()), after.map(Into::into));
        let query = SubscriptionQuery { tenant: tenant("default"), owner, after, limit };
        let found = block_on(world.store().list_subscriptions(query)).unwrap();
        found.into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    assert_eq!(of("ann", None, 3), ["a", "c", "d"]);
    assert_eq!(of("ann", Some("d"), 9), ["f", "g", "h"]);
    assert_eq!(of("bob", None, 9), ["b", "e"]);
    assert_eq!(of("nobody", None, 9), [""; 0]);
    let count = |owner: Option<&str>, run| {
        let count = SubscriptionCount { tenant: tenant("default"), owner: owner.map(Into::into), run };
        block_on(world.store().count_subscriptions(count)).unwrap()
    };
    assert_eq!((count(None, None), count(Some("ann"), None), count(Some("bob"), None)), (3, 2, 1));
    let run = Some(run);
    assert_eq!((count(None, run), count(Some("ann"), run), count(Some("eve"), run)), (2, 1, 0));
    // An owner is for good, whatever a change says.
    let before = world.subscription("b").unwrap();
    assert!(world.changes(&before, &Subscription { owner: "eve".into(), ..before.clone() }));
    assert_eq!(world.subscription("b"), Some(before));
}

/// A subscription is notified of what is appended after it was acknowledged, and of nothing else.
pub fn an_append_tells_those_who_listen(factory: &Factory) {
    let mut world = World::new(factory);
    let early = world.queued_run("helper");
    let other = world.queued_run("other");
    let (one, all) = (early.run.facts.id, "everything");
    assert!(world.subscribes(&subscription(all, Scope::Tenant)));
    assert!(world.subscribes(&subscription("helpers", Scope::Agent(agent("helper")))));
    assert!(world.subscribes(&subscription("one", Scope::Run(one))));
    let acme = Subscription { tenant: tenant("acme"), ..subscription("acme", Scope::Tenant) };
    assert!(world.subscribes(&acme));
    world.reopen();
    world.says(&early);
    world.says(&other);
    let late = world.queued_run("helper").run.facts.id;
    let mut told = world.told();
    told.sort();
    let other = other.run.facts.id;
    let mut wanted = [
        (all.into(), one, 3),
        (all.into(), other, 3),
        (all.into(), late, 1),
        ("helpers".into(), one, 3),
        ("helpers".into(), late, 1),
        ("one".into(), one, 3),
    ];
    wanted.sort();
    assert_eq!(told, wanted);
    let mut of_acme = NewRun::of("helper");
    of_acme.tenant = tenant("acme");
    world.start(&of_acme);
    assert_eq!(world.told().iter().filter(|(who, ..)| who == "acme").count(), 1);
}

pub fn only_the_wanted_kinds_are_told(factory: &Factory) {
    let mut world = World::new(factory);
    let wants = Event::bit("hold.opened").unwrap() | Event::bit("run.ended").unwrap();
    assert!(world.subscribes(&Subscription { wants, ..subscription("hook", Scope::Tenant) }));
    let (row, _) = world.held_run("helper");
    let [due] = world.due().try_into().unwrap();
    assert_eq!((due.run, due.from), (row.run.facts.id, Seq(3)), "from the append that opened the hold");
    world.settle(due.no, SettleNotice::Delivered { upto: row.run.state.seq });
    let other = world.queued_run("helper");
    world.says(&other);
    assert_eq!(world.due(), []);
}

pub fn a_change_counts_only_for_what_was_read(factory: &Factory) {
    let mut world = World::new(factory);
    let before = subscription("hook", Scope::Tenant);
    assert!(world.subscribes(&before));
    let off = Subscription { is_active: false, facts: "{}".into(), ..before.clone() };
    assert!(world.changes(&before, &off));
    assert!(!world.changes(&before, &off), "its facts are others by now");
    assert!(!world.changes(&off, &subscription("none", Scope::Tenant)));
    world.reopen();
    assert_eq!(world.subscription("hook"), Some(off.clone()));
    let row = world.queued_run("helper");
    assert_eq!(world.due(), []);
    assert!(world.changes(&off, &before));
    world.says(&row);
    assert_eq!(world.told(), [("hook".into(), row.run.facts.id, 3)]);
}

pub fn a_deleted_subscription_hears_nothing_more(factory: &Factory) {
    let mut world = World::new(factory);
    assert!(world.subscribes(&subscription("hook", Scope::Tenant)));
    world.queued_run("helper");
    world.gives_up(Seq(1));
    let delete =
        |id: &str| block_on(world.store().delete_subscription(tenant("default"), id.into())).unwrap();
    assert!(delete("hook"));
    assert!(!delete("hook"));
    assert_eq!(world.letters("hook"), []);
    world.queued_run("helper");
    assert_eq!((world.due(), world.subscription("hook")), (vec![], None));
}

pub fn what_was_given_up_is_listed_and_sent_again(factory: &Factory) {
    let mut world = World::new(factory);
    assert!(world.subscribes(&subscription("hook", Scope::Tenant)));
    let first = world.queued_run("helper");
    let second = world.queued_run("helper");
    world.gives_up(Seq(2));
    world.reopen();
    let letters = world.letters("hook");
    let runs: Vec<_> = letters.iter().map(|letter| letter.run).collect();
    assert_eq!(runs, [first.run.facts.id, second.run.facts.id]);
    let wanted = DeadLetter {
        no: letters[0].no,
        subscription: "hook".into(),
        run: first.run.facts.id,
        from: Seq(2),
        attempts: 1,
        at: world.now(),
        why: "410 Gone".into(),
    };
    assert_eq!(letters[0], wanted);
    assert_eq!((world.due(), world.letters("other")), (vec![], vec![]));
    assert!(!world.resends("acme", letters[0].no), "that tenant has none");
    assert!(world.resends("default", letters[0].no));
    assert!(!world.resends("default", letters[0].no), "it is no longer dead");
    assert_eq!(world.told(), [("hook".into(), first.run.facts.id, 2)]);
    assert_eq!(world.letters("hook").len(), 1);
}

/// What was given up and what came later are told in order.
pub fn a_letter_sent_again_goes_before_what_came_later(factory: &Factory) {
    let mut world = World::new(factory);
    assert!(world.subscribes(&subscription("hook", Scope::Tenant)));
    let row = world.queued_run("helper");
    world.gives_up(Seq(1));
    let row = world.says(&row);
    let due = world.due();
    world.settle(due[0].no, SettleNotice::Retry { at: world.now().plus(Millis::hours(9)), from: Seq(3) });
    assert!(world.resends("default", world.letters("hook")[0].no));
    let [due] = world.due().try_into().unwrap();
    assert_eq!((due.from, due.attempts), (Seq(1), 0));
    world.settle(due.no, SettleNotice::Delivered { upto: Seq(2) });
    assert_eq!(world.told(), [("hook".into(), row.run.facts.id, 3)]);
}

/// Whoever is acknowledged while others append misses none of what is written after that: each append is either written
/// before, or tells.
pub fn none_is_missed_while_others_append(factory: &Factory) {
    let mut world = World::new(factory);
    let rows: Vec<RunRow> = (0..16).map(|_| world.queued_run("helper")).collect();
    let batches: Vec<_> = rows.iter().map(|row| world.scribe.batch(row, &say("news"))).collect();
    let store = world.store();
    let late = std::thread::scope(|scope| {
        let appending: Vec<_> = batches
            .into_iter()
            .map(|batch| {
                let store = store.clone();
                scope.spawn(move || block_on(store.append(vec![batch])).unwrap())
            })
            .collect();
        assert!(world.subscribes(&subscription("hook", Scope::Tenant)));
        let is_late = |row: &&RunRow| {
            let stored = block_on(store.load(row.run.facts.id)).unwrap();
            stored.row.run.state.seq == row.run.state.seq
        };
        let late: Vec<_> = rows.iter().filter(is_late).map(|row| row.run.facts.id).collect();
        appending.into_iter().for_each(|one| one.join().unwrap());
        late
    });
    let told: Vec<_> = world.told().into_iter().map(|(_, run, _)| run).collect();
    assert!(late.iter().all(|run| told.contains(run)), "{late:?} were written later, {told:?} were told");
}
