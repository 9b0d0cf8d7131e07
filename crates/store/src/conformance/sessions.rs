//! Conversations: made by their first run, changed by compare-and-set, closed for good.
//!
//! A conversation is named by tenant, agent, owner and session together.

use standfast_core::command::Choice;
use standfast_core::id::HoldId;
use standfast_core::project::RunRow;
use standfast_core::time::Millis;

use super::Factory;
use super::support::{
    NewRun, World, agent, all_pages, block_on, hold_ids, holds_by, runs_by, session, session_of, tenant,
};
use crate::{
    Guard, HoldFilter, RunFilter, RunQuery, SessionChange, SessionKey, SessionQuery, SessionRow, StoreError,
};

pub fn a_session_is_made_by_its_first_run(factory: &Factory) {
    let mut world = World::new(factory);
    let began = world.now();
    let row = world.queued_run("helper");
    world.later(Millis::seconds(5));
    world.queued_run("helper");
    world.reopen();
    let key = session_of(&row);
    let fresh = SessionRow {
        key: key.clone(),
        metadata: "{}".into(),
        created_at: began,
        updated_at: began,
        closed: false,
    };
    assert_eq!(world.session(&key), Some(fresh));
}

pub fn an_unknown_session_is_none(factory: &Factory) {
    let mut world = World::new(factory);
    let key = session_of(&world.queued_run("helper"));
    let elsewhere = SessionKey { tenant: tenant("acme"), ..key.clone() };
    assert_eq!(world.session(&elsewhere), None);
    let unknown = SessionKey { session: super::support::session("s-9"), ..key };
    assert_eq!(world.session(&unknown), None);
    assert!(!world.change(&unknown, "{}", "{\"a\":1}"));
    let close = world.store().change_session(unknown, SessionChange::Close, world.now());
    assert_eq!(block_on(close), Ok(false));
}

pub fn metadata_change_only_as_they_were_read(factory: &Factory) {
    let mut world = World::new(factory);
    let key = session_of(&world.queued_run("helper"));
    world.later(Millis::seconds(3));
    assert!(world.change(&key, "{}", "{\"a\":1}"));
    let changed_at = world.now();
    world.later(Millis::seconds(3));
    assert!(!world.change(&key, "{}", "{\"b\":2}"));
    world.reopen();
    let row = world.session(&key).unwrap();
    assert_eq!((row.metadata.as_str(), row.updated_at), ("{\"a\":1}", changed_at));
    assert!(world.change(&key, "{\"a\":1}", "{\"c\":\"é\\u0000\"}"));
    assert_eq!(world.session(&key).unwrap().metadata, "{\"c\":\"é\\u0000\"}");
}

pub fn a_session_is_closed_for_good(factory: &Factory) {
    let mut world = World::new(factory);
    let key = session_of(&world.queued_run("helper"));
    let other = session_of(&world.start(&NewRun::of("helper").in_session("s-2")));
    for _ in 0..2 {
        let close = world.store().change_session(key.clone(), SessionChange::Close, world.now());
        assert_eq!(block_on(close), Ok(true));
    }
    world.reopen();
    assert!(world.session(&key).unwrap().closed);
    assert!(!world.session(&other).unwrap().closed);
    // Only the guard keeps runs out; the runs that are there go on.
    world.queued_run("helper");
    assert!(world.session(&key).unwrap().closed);
}

pub fn sessions_are_listed_newest_first(factory: &Factory) {
    let mut world = World::new(factory);
    let mut keys = Vec::new();
    for (agent, name) in [("a", "s-1"), ("b", "s-1"), ("a", "s-2"), ("a", "s-3")] {
        keys.push(session_of(&world.start(&NewRun::of(agent).in_session(name))));
    }
    world.start(&NewRun::of("a").in_session("s-1"));
    world.start(&NewRun::of("a").of_tenant("acme").in_session("s-9"));
    world.reopen();
    keys.reverse();
    assert_eq!(world.sessions(None), keys);
    let of_a = [keys[0].clone(), keys[1].clone(), keys[3].clone()];
    assert_eq!(world.sessions(Some("a")), of_a);
    assert_eq!(world.sessions(Some("unheard of")), []);
}

/// The same name of two users is two conversations: metadata, closing, runs and lists.
pub fn a_session_belongs_to_its_user(factory: &Factory) {
    let mut world = World::new(factory);
    let ours = world.start(&NewRun::of("helper").of_user("ann"));
    let theirs = world.start(&NewRun::of("helper").of_user("bob"));
    let more = world.start(&NewRun::of("helper").of_user("bob"));
    world.start(&NewRun::of("helper").of_user("bob").in_session("s-2"));
    let (ann, bob) = (session_of(&ours), session_of(&theirs));
    assert!(world.change(&ann, "{}", "{\"a\":1}"));
    let close = world.store().change_session(bob.clone(), SessionChange::Close, world.now());
    assert_eq!(block_on(close), Ok(true));
    world.reopen();
    assert_eq!(world.session(&bob).unwrap().metadata, "{}");
    assert!(!world.session(&ann).unwrap().closed);
    let mut refused = world.scribe.start(&NewRun::of("helper").of_user("bob"));
    refused.guards.push(Guard::SessionOpen { session: bob.clone() });
    assert!(matches!(block_on(world.store().append(vec![refused])), Err(StoreError::Guard { .. })));
    let mut welcome = world.scribe.start(&NewRun::of("helper").of_user("ann"));
    welcome.guards.push(Guard::SessionOpen { session: ann.clone() });
    let welcome = world.write(welcome);
    let of = |user: &str| {
        let filter = RunFilter::SessionOf(super::support::user(user), agent("helper"), session("s-1"));
        world.all_runs(&RunQuery { limit: 1, ..runs_by(filter) })
    };
    assert_eq!(of("ann"), [welcome.clone(), ours.clone()]);
    assert_eq!(of("bob"), [more.clone(), theirs.clone()]);
    assert_eq!(of("eve"), []);
    let by_name = RunFilter::Session(agent("helper"), session("s-1"));
    assert_eq!(world.all_runs(&RunQuery { limit: 3, ..runs_by(by_name) }), [welcome, more, theirs, ours]);
    let listed = |owner: Option<&str>, name: Option<&str>| {
        let query = |cursor| SessionQuery {
            tenant: tenant("default"),
            owner: owner.map(super::support::user),
            agent: name.map(|_| agent("helper")),
            session: name.map(session),
            cursor,
            limit: 1,
        };
        let rows = all_pages(|cursor| block_on(world.store().list_sessions(query(cursor))).unwrap());
        rows.into_iter().map(|row| row.key).collect::<Vec<_>>()
    };
    assert_eq!(listed(Some("ann"), None), std::slice::from_ref(&ann));
    assert_eq!(listed(Some("bob"), None).len(), 2);
    assert_eq!(listed(Some("bob"), Some("s-1")), std::slice::from_ref(&bob));
    assert_eq!(listed(None, Some("s-1")), [bob, ann]);
    assert_eq!(listed(Some("eve"), None), []);
}

/// A conversation that nobody named has the name of its run, and is found by it.
pub fn a_run_begun_without_a_session_has_its_own(factory: &Factory) {
    let mut world = World::new(factory);
    let named = world.start(&NewRun::of("helper"));
    world.later(Millis::seconds(1));
    let began = world.now();
    let (alone, hold) = world.alone("helper");
    let last = world.start(&NewRun::of("helper").in_session("s-2"));
    world.reopen();
    let key = session_of(&alone);
    let fresh = SessionRow {
        key: key.clone(),
        metadata: "{}".into(),
        created_at: began,
        updated_at: began,
        closed: false,
    };
    assert_eq!(world.session(&key), Some(fresh));
    world.expect_stored(&alone);
    assert_eq!(world.sessions(None), [session_of(&last), key.clone(), session_of(&named)]);
    assert_eq!(world.sessions(Some("helper")).len(), 3);
    for filter in [
        RunFilter::Session(key.agent.clone(), key.session.clone()),
        RunFilter::SessionOf(key.owner.clone(), key.agent.clone(), key.session.clone()),
    ] {
        assert_eq!(world.all_runs(&runs_by(filter)), std::slice::from_ref(&alone));
    }
    let holds = world.all_holds(&holds_by(HoldFilter::Session(key.agent.clone(), key.session.clone())));
    assert_eq!(hold_ids(&holds), [hold]);
    assert_eq!(world.named(&key), std::slice::from_ref(&key));
    for other in [
        SessionKey { owner: super::support::user("eve"), ..key.clone() },
        SessionKey { agent: agent("other"), ..key.clone() },
        SessionKey { tenant: tenant("acme"), ..key },
    ] {
        assert_eq!(world.session(&other), None);
        let filter = RunFilter::SessionOf(other.owner, other.agent, other.session);
        assert_eq!(world.all_runs(&RunQuery { tenant: other.tenant, ..runs_by(filter) }), []);
    }
}

/// Whoever goes on in a conversation by the name of its first run finds that run in it.
pub fn a_second_run_in_a_runs_own_session_finds_the_first(factory: &Factory) {
    let mut world = World::new(factory);
    let began = world.now();
    let (first, hold) = world.alone("helper");
    let between = world.queued_run("helper");
    world.later(Millis::seconds(1));
    let key = session_of(&first);
    let mut second = world.scribe.start(&NewRun { session: key.session.clone(), ..NewRun::of("helper") });
    second.guards.push(Guard::SessionOpen { session: key.clone() });
    let second = world.write(second);
    let third = world.start(&NewRun { session: key.session.clone(), ..NewRun::of("helper") });
    world.reopen();
    let all = [third, second, first.clone()];
    for filter in [
        RunFilter::Session(key.agent.clone(), key.session.clone()),
        RunFilter::SessionOf(key.owner.clone(), key.agent.clone(), key.session.clone()),
    ] {
        assert_eq!(world.all_runs(&RunQuery { limit: 1, ..runs_by(filter) }), all);
    }
    let found = world.session(&key).unwrap();
    assert_eq!((found.created_at, found.closed), (began, false));
    assert_eq!(world.sessions(None), [session_of(&between), key.clone()], "it is as old as its first run");
    let holds = world.all_holds(&holds_by(HoldFilter::Session(key.agent.clone(), key.session)));
    assert_eq!(hold_ids(&holds), [hold]);
    let after = world.decides(&first, hold, Choice::Approve);
    world.expect_stored(&after);
}

/// Metadata and closing as with any other.
pub fn a_runs_own_session_is_changed_and_closed(factory: &Factory) {
    let mut world = World::new(factory);
    let (first, _) = world.alone("helper");
    let key = session_of(&first);
    assert!(!world.change(&key, "{\"not\":1}", "{}"));
    assert!(world.change(&key, "{}", "{\"a\":1}"));
    let close = world.store().change_session(key.clone(), SessionChange::Close, world.now());
    assert_eq!(block_on(close), Ok(true));
    world.reopen();
    let found = world.session(&key).unwrap();
    assert_eq!((found.metadata.as_str(), found.closed), ("{\"a\":1}", true));
    let mut refused = world.scribe.start(&NewRun { session: key.session.clone(), ..NewRun::of("helper") });
    refused.guards.push(Guard::SessionOpen { session: key.clone() });
    assert!(matches!(world.append(vec![refused]), Err(StoreError::Guard { .. })));
    world.expect_stored(&first);
    assert_eq!(world.sessions(None), [key]);
}

/// The name of a run's own conversation, used by somebody else, names theirs.
pub fn anothers_session_of_the_same_name_is_another(factory: &Factory) {
    let mut world = World::new(factory);
    let (ours, _) = world.alone("helper");
    let key = session_of(&ours);
    let of_eve = NewRun { session: key.session.clone(), ..NewRun::of("helper").of_user("eve") };
    let theirs = world.start(&of_eve);
    world.reopen();
    let by_name = RunFilter::Session(key.agent.clone(), key.session.clone());
    assert_eq!(world.all_runs(&RunQuery { limit: 1, ..runs_by(by_name) }), [theirs.clone(), ours.clone()]);
    for row in [&ours, &theirs] {
        let key = session_of(row);
        assert!(world.session(&key).is_some());
        let filter = RunFilter::SessionOf(key.owner, key.agent, key.session);
        assert_eq!(world.all_runs(&runs_by(filter)), std::slice::from_ref(row));
    }
    assert_eq!(world.named(&key), [session_of(&theirs), key]);
}

/// Tenants are known as soon as they have a run.
pub fn tenants_are_listed(factory: &Factory) {
    let mut world = World::new(factory);
    assert_eq!(block_on(world.store().tenants()), Ok(vec![]));
    world.queued_run("helper");
    world.start(&NewRun::of("helper").of_tenant("acme"));
    world.queued_run("helper");
    world.reopen();
    assert_eq!(block_on(world.store().tenants()), Ok(vec![tenant("acme"), tenant("default")]));
}

impl World {
    /// A held run that was begun without naming a conversation.
    fn alone(&mut self, name: &str) -> (RunRow, HoldId) {
        let id = self.scribe.run_id(&tenant("default"));
        self.held(&NewRun { id: Some(id), session: id.own_session(), ..NewRun::of(name) }, &[])
    }

    /// All conversations of this name with this agent, whoever has them, one on each page.
    fn named(&self, key: &SessionKey) -> Vec<SessionKey> {
        let query = |cursor| SessionQuery {
            tenant: key.tenant.clone(),
            owner: None,
            agent: Some(key.agent.clone()),
            session: Some(key.session.clone()),
            cursor,
            limit: 1,
        };
        let rows = all_pages(|cursor| block_on(self.store().list_sessions(query(cursor))).unwrap());
        rows.into_iter().map(|row| row.key).collect()
    }

    /// All conversations, in pages of two.
    fn sessions(&self, of: Option<&str>) -> Vec<SessionKey> {
        let query = |cursor| SessionQuery {
            tenant: tenant("default"),
            owner: None,
            agent: of.map(agent),
            session: None,
            cursor,
            limit: 2,
        };
        let rows = all_pages(|cursor| block_on(self.store().list_sessions(query(cursor))).unwrap());
        rows.into_iter().map(|row| row.key).collect()
    }

    fn session(&self, key: &SessionKey) -> Option<SessionRow> {
        block_on(self.store().session(key.clone())).unwrap()
    }

    fn change(&self, key: &SessionKey, before: &str, after: &str) -> bool {
        let change = SessionChange::Metadata { before: before.into(), after: after.into() };
        block_on(self.store().change_session(key.clone(), change, self.now())).unwrap()
    }
}
