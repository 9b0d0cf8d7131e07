//! Lists of runs: newest first, in pages, narrowed by agent, conversation and phase; and what workers may claim.
//!
//! Following the cursors of any list gives each run exactly once.

use standfast_core::command::{ClaimRun, Command, FailKind, FailRun};
use standfast_core::name::InboxName;
use standfast_core::project::{Phase, RunRow};
use standfast_core::time::Millis;

use super::Factory;
use super::support::{LOOKUP, NewRun, SHELL, World, agent, block_on, ids, runs_by, session, tenant, worker};
use crate::{Claimant, RunFilter, RunQuery};

pub fn runs_are_listed_newest_first(factory: &Factory) {
    let mut world = World::new(factory);
    let mut rows: Vec<RunRow> = (0..5).map(|_| world.queued_run("helper")).collect();
    // An old run that moves stays in its place.
    rows[1] = world.the_model_asks(&rows[1].clone(), &[SHELL]);
    rows.reverse();
    assert_eq!(world.all_runs(&runs_by(RunFilter::All)), rows);
    world.reopen();
    assert_eq!(world.all_runs(&runs_by(RunFilter::All)), rows);
}

pub fn cursors_walk_all_runs_exactly_once(factory: &Factory) {
    let mut world = World::new(factory);
    for n in 0..23 {
        world.start(&NewRun::of(["a", "b", "c"][n % 3]).in_session(&format!("s-{}", n % 2)));
    }
    let filters =
        [RunFilter::All, RunFilter::Agent(agent("a")), RunFilter::Session(agent("b"), session("s-1"))];
    for filter in filters {
        let whole = world.all_runs(&RunQuery { limit: 100, ..runs_by(filter.clone()) });
        assert!(!whole.is_empty());
        for limit in [1, 2, 3, 7, 22, 23, 24] {
            let query = RunQuery { limit, ..runs_by(filter.clone()) };
            assert!(world.list_runs(query.clone()).items.len() <= limit);
            assert_eq!(ids(&world.all_runs(&query)), ids(&whole), "{filter:?} in pages of {limit}");
        }
    }
}

/// A page taken while runs are added neither repeats nor loses one that was there before.
pub fn a_cursor_survives_new_runs(factory: &Factory) {
    let mut world = World::new(factory);
    let rows: Vec<RunRow> = (0..6).map(|_| world.queued_run("helper")).collect();
    let first = world.list_runs(RunQuery { limit: 3, ..runs_by(RunFilter::All) });
    world.queued_run("helper");
    world.reopen();
    let rest = world.list_runs(RunQuery { cursor: first.next, limit: 9, ..runs_by(RunFilter::All) });
    let seen: Vec<_> = ids(&first.items).into_iter().chain(ids(&rest.items)).collect();
    assert_eq!(seen, ids(&rows).into_iter().rev().collect::<Vec<_>>());
}

pub fn runs_are_listed_by_agent(factory: &Factory) {
    let mut world = World::new(factory);
    let (one, _other, two) = (world.queued_run("a"), world.queued_run("b"), world.queued_run("a"));
    assert_eq!(world.all_runs(&runs_by(RunFilter::Agent(agent("a")))), [two, one]);
    assert_eq!(world.all_runs(&runs_by(RunFilter::Agent(agent("unheard of")))), []);
}

pub fn runs_are_listed_by_session(factory: &Factory) {
    let mut world = World::new(factory);
    let one = world.start(&NewRun::of("a").in_session("s-1"));
    world.start(&NewRun::of("a").in_session("s-2"));
    // The same name with another agent is another conversation.
    world.start(&NewRun::of("b").in_session("s-1"));
    let two = world.start(&NewRun::of("a").in_session("s-1"));
    let by = |of: &str, name: &str| world.all_runs(&runs_by(RunFilter::Session(agent(of), session(name))));
    assert_eq!(by("a", "s-1"), [two, one]);
    assert_eq!(by("b", "s-2"), []);
    assert_eq!(by("nobody", "s-1"), []);
}

/// T37: what a user may see is found by their name, and what did not change lately is not read.
pub fn runs_are_listed_by_owner_and_by_when_they_changed(factory: &Factory) {
    let mut world = World::new(factory);
    let one = world.start(&NewRun::of("a").of_user("ann"));
    world.start(&NewRun::of("a").of_user("bob"));
    world.start(&NewRun::of("a").of_user("ann").of_tenant("acme"));
    world.later(Millis::seconds(10));
    let since = Some(world.now());
    let two = world.start(&NewRun::of("b").of_user("ann"));
    for limit in [1, 9] {
        let of = |user: &str, since| {
            let filter = RunFilter::Owner(super::support::user(user));
            world.all_runs(&RunQuery { limit, since, ..runs_by(filter) })
        };
        assert_eq!(of("ann", None), [two.clone(), one.clone()]);
        assert_eq!(of("ann", since), std::slice::from_ref(&two));
        assert_eq!(of("bob", since), []);
        assert_eq!(of("eve", None), []);
        let all = RunQuery { limit, since, ..runs_by(RunFilter::All) };
        assert_eq!(world.all_runs(&all), std::slice::from_ref(&two));
    }
}

pub fn runs_are_listed_by_phase(factory: &Factory) {
    let mut world = World::new(factory);
    let queued = world.queued_run("a");
    let (held, _) = world.held_run("a");
    let working = world.queued_run("b");
    let working = world.the_model_asks(&working, &[LOOKUP]);
    let ended = world.ended_run("a");
    let in_phases = |filter: RunFilter, phases: &[Phase], limit| {
        world.all_runs(&RunQuery { phases: phases.to_vec(), limit, ..runs_by(filter) })
    };
    for limit in [1, 2, 10] {
        assert_eq!(in_phases(RunFilter::All, &[Phase::HeldForPerson], limit), std::slice::from_ref(&held));
        let two = [Phase::Queued, Phase::Canceled];
        assert_eq!(in_phases(RunFilter::All, &two, limit), [ended.clone(), queued.clone()]);
        assert_eq!(in_phases(RunFilter::All, &[Phase::Working], limit), std::slice::from_ref(&working));
        assert_eq!(in_phases(RunFilter::Agent(agent("a")), &[Phase::Working], limit), []);
        assert_eq!(in_phases(RunFilter::All, &[Phase::Rejected], limit), []);
    }
}

pub fn tenants_do_not_see_each_others_runs(factory: &Factory) {
    let mut world = World::new(factory);
    let ours = world.queued_run("a");
    let theirs = world.start(&NewRun::of("a").of_tenant("acme"));
    let of = |name: &str, filter: RunFilter| {
        world.all_runs(&RunQuery { tenant: tenant(name), limit: 1, ..runs_by(filter) })
    };
    for filter in
        [RunFilter::All, RunFilter::Agent(agent("a")), RunFilter::Session(agent("a"), session("s-1"))]
    {
        assert_eq!(of("default", filter.clone()), std::slice::from_ref(&ours));
        assert_eq!(of("acme", filter.clone()), std::slice::from_ref(&theirs));
        assert_eq!(of("nobody", filter), []);
    }
}

pub fn runs_are_listed_and_counted_by_inbox(factory: &Factory) {
    let mut world = World::new(factory);
    let one = world.start(&NewRun::of("a").in_inbox("tickets", 1));
    let mail = world.start(&NewRun::of("a").in_inbox("mail", 3));
    world.start(&NewRun::of("a").in_inbox("tickets", 1).of_tenant("acme"));
    world.queued_run("a");
    let two = world.start(&NewRun::of("b").in_inbox("tickets", 0));
    let two = world.send(&two, &the_worker_claims());
    let inbox = |name: &str| RunFilter::Inbox(InboxName::new(name).unwrap());
    for limit in [1, 2, 10] {
        let of = |name: &str| world.all_runs(&RunQuery { limit, ..runs_by(inbox(name)) });
        assert_eq!(of("tickets"), [two.clone(), one.clone()]);
        assert_eq!(of("mail"), std::slice::from_ref(&mail));
        assert_eq!(of("unheard of"), []);
        let claimed = RunQuery { limit, phases: vec![Phase::Claimed], ..runs_by(inbox("tickets")) };
        assert_eq!(world.all_runs(&claimed), std::slice::from_ref(&two));
    }
    world.reopen();
    let counted = |of: &str| {
        let counts = block_on(world.store().inbox_counts(tenant(of))).unwrap();
        let each = counts.into_iter().map(|one| (one.inbox.to_string(), one.runs.into_iter().collect()));
        each.collect::<Vec<(String, Vec<(Phase, u64)>)>>()
    };
    let (mail, tickets) = ("mail".to_owned(), "tickets".to_owned());
    let ours =
        [(mail, vec![(Phase::Queued, 1)]), (tickets.clone(), vec![(Phase::Queued, 1), (Phase::Claimed, 1)])];
    assert_eq!(counted("default"), ours);
    assert_eq!(counted("acme"), [(tickets, vec![(Phase::Queued, 1)])]);
    assert_eq!(counted("nobody"), []);
}

pub fn claimable_runs_come_by_priority_then_age(factory: &Factory) {
    let mut world = World::new(factory);
    let in_inbox = |priority| NewRun::of("a").in_inbox("tickets", priority);
    let rows: Vec<RunRow> = [1, 3, 0, 1, 3].map(|priority| world.start(&in_inbox(priority))).to_vec();
    world.start(&NewRun::of("a").in_inbox("mail", 3));
    world.start(&NewRun::of("a").in_inbox("tickets", 3).of_tenant("acme"));
    world.queued_run("a");
    let order = [1, 4, 0, 3, 2].map(|n: usize| rows[n].clone());
    assert_eq!(world.claimable("tickets", 50), order);
    assert_eq!(world.claimable("tickets", 2), order[..2]);
    assert_eq!(world.claimable("unheard of", 2), []);
}

pub fn a_claimed_run_is_not_claimable(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.start(&NewRun::of("a").in_inbox("tickets", 1));
    let row = world.send(&row, &the_worker_claims());
    assert_eq!(world.claimable("tickets", 50), []);
    let kind = FailKind::Transient { retry_at: world.now().plus(Millis::seconds(5)) };
    let fail = FailRun { worker: Some(worker("w-1")), error: "busy".into(), detail: None, kind, heard: None };
    let row = world.send(&row, &Command::Fail(fail));
    assert_eq!(world.claimable("tickets", 50), []);
    world.later(Millis::seconds(5));
    assert_eq!(world.claimable("tickets", 50), std::slice::from_ref(&row));
    world.reopen();
    world.send(&row, &Command::Cancel { reason: None });
    assert_eq!(world.claimable("tickets", 50), []);
}

pub fn claimable_runs_obey_phases(factory: &Factory) {
    let mut world = World::new(factory);
    let queued = world.start(&NewRun::of("a").in_inbox("tickets", 1));
    let given_back = world.start(&NewRun::of("a").in_inbox("tickets", 1));
    let given_back = world.send(&given_back, &the_worker_claims());
    let given_back = world.send(&given_back, &Command::Release { worker: worker("w-1") });
    let filter = RunFilter::Claimable(InboxName::new("tickets").unwrap(), world.now(), Claimant::Anybody);
    let in_phase = |phase| world.all_runs(&RunQuery { phases: vec![phase], ..runs_by(filter.clone()) });
    assert_eq!(in_phase(Phase::Queued), [queued, given_back]);
    assert_eq!(in_phase(Phase::Working), []);
}

impl World {
    fn claimable(&self, inbox: &str, limit: usize) -> Vec<RunRow> {
        let filter = RunFilter::Claimable(InboxName::new(inbox).unwrap(), self.now(), Claimant::Anybody);
        let page = self.list_runs(RunQuery { limit, ..runs_by(filter) });
        assert_eq!(page.next, None);
        page.items
    }
}

fn the_worker_claims() -> Command {
    Command::Claim(ClaimRun::Worker { worker: worker("w-1"), period: Millis::seconds(60) })
}
