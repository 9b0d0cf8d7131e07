//! Lists of open holds, by audience and one more thing, oldest first; and holds by their id, open or decided.
//!
//! A decided hold leaves every list and is found by its id with who, when and how.

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Choice, ClaimRun, Command, Edit, Suspend, SuspendFor};
use standfast_core::hold::{Ask, HoldKind, HoldPolicy, OnTimeout};
use standfast_core::id::{CallNo, HoldId, HoldKey, Secret};
use standfast_core::json::RawJson;
use standfast_core::name::InboxName;
use standfast_core::project::{HoldClosure, HoldRow, ResolutionKind, RunRow};
use standfast_core::time::Millis;

use super::Factory;
use super::support::{
    LOOKUP, NewRun, SHELL, World, agent, all_pages, as_seen, block_on, hold_ids, hold_row, holds_by, session,
    tenant, the_hold, tool, user, worker,
};
use crate::{Audience, AudienceMember, DecidedQuery, HoldFilter, HoldQuery, SideWrite};

pub fn holds_are_listed_oldest_first(factory: &Factory) {
    let mut world = World::new(factory);
    let held: Vec<(RunRow, HoldId)> = (0..4).map(|_| world.held_run("helper")).collect();
    world.queued_run("helper");
    let rows: Vec<HoldRow> = held.iter().map(|(row, hold)| hold_row(row, *hold)).collect();
    assert_eq!(world.all_holds(&holds_by(HoldFilter::All)), rows);
    world.reopen();
    assert_eq!(world.all_holds(&holds_by(HoldFilter::All)), rows);
}

pub fn an_audience_sees_its_holds_each_once(factory: &Factory) {
    let mut world = World::new(factory);
    let new = NewRun::of("helper");
    let both = world.held(&new, &["user:alice", "role:ops"]).1;
    let ops = world.held(&new, &["role:ops"]).1;
    let bob = world.held(&new, &["user:bob"]).1;
    let nobody = world.held(&new, &[]).1;
    world.held(&new.clone().of_tenant("acme"), &["user:alice"]);
    assert_eq!(world.seen_by(&["user:alice", "role:ops"]), [both, ops]);
    assert_eq!(world.seen_by(&["role:ops", "user:bob", "role:ops"]), [both, ops, bob]);
    assert_eq!(world.seen_by(&["user:alice"]), [both]);
    assert_eq!(world.seen_by(&["user:carol"]), []);
    assert_eq!(world.seen_by(&[]), []);
    assert_eq!(hold_ids(&world.all_holds(&holds_by(HoldFilter::All))), [both, ops, bob, nobody]);
}

pub fn an_audience_can_grow(factory: &Factory) {
    let mut world = World::new(factory);
    let (row, hold) = world.held(&NewRun::of("helper"), &["user:alice"]);
    let mut batch =
        world.scribe.batch(&row, &Command::Assign { hold: hold.key, to: Some(user("bob")), until: None });
    let who = vec![AudienceMember("user:bob".into()), AudienceMember("user:alice".into())];
    batch.puts.push(SideWrite::Audience { hold, who });
    let row = world.write(batch);
    assert_eq!(world.seen_by(&["user:bob"]), [hold]);
    assert_eq!(world.seen_by(&["user:alice", "user:bob"]), [hold]);
    world.decides(&row, hold, Choice::Approve);
    assert_eq!(world.seen_by(&["user:alice", "user:bob"]), []);
}

pub fn cursors_walk_all_holds_exactly_once(factory: &Factory) {
    let mut world = World::new(factory);
    for n in 0..17 {
        let new = NewRun::of(["a", "b"][n % 2]).in_session(&format!("s-{}", n % 3));
        let audience: &[&str] = [&["user:alice", "role:ops"][..], &["role:ops"], &["user:bob"]][n % 3];
        let (row, hold) = world.held(&new, audience);
        if n % 5 == 4 {
            world.decides(&row, hold, Choice::Approve);
        }
    }
    let some =
        |who: &[&str]| Audience::AnyOf(who.iter().map(|one| AudienceMember((*one).to_owned())).collect());
    let audiences =
        [Audience::Everyone, some(&["role:ops", "user:alice"]), some(&["user:bob", "user:alice"])];
    let filters = [
        HoldFilter::All,
        HoldFilter::Agent(agent("a")),
        HoldFilter::Tool(tool(SHELL)),
        HoldFilter::Session(agent("b"), session("s-1")),
    ];
    for (audience, filter) in
        audiences.iter().flat_map(|a| filters.iter().map(move |f| (a.clone(), f.clone())))
    {
        let query = HoldQuery { audience, limit: 100, ..holds_by(filter) };
        let whole = hold_ids(&world.all_holds(&query));
        assert!(!whole.is_empty() || matches!(query.filter, HoldFilter::Session(..)), "{query:?}");
        for limit in [1, 2, 3, 13] {
            let paged = hold_ids(&world.all_holds(&HoldQuery { limit, ..query.clone() }));
            assert_eq!(paged, whole, "{query:?} in pages of {limit}");
        }
    }
}

pub fn holds_are_listed_by_agent_tool_session_and_run(factory: &Factory) {
    let mut world = World::new(factory);
    let (one, first) = world.held(&NewRun::of("a").in_session("s-1"), &["role:ops"]);
    let (_, second) = world.held(&NewRun::of("b").in_session("s-1"), &["user:bob"]);
    let (_, third) = world.suspended_run("a", SuspendFor::Input);
    let of_run = HoldFilter::Run(one.run.facts.id);
    let by = |filter: HoldFilter| hold_ids(&world.all_holds(&holds_by(filter)));
    assert_eq!(by(HoldFilter::Agent(agent("a"))), [first, third]);
    assert_eq!(by(HoldFilter::Tool(tool(SHELL))), [first, second]);
    assert_eq!(by(HoldFilter::Tool(tool(LOOKUP))), [third]);
    assert_eq!(by(HoldFilter::Tool(tool("unheard of"))), []);
    assert_eq!(by(HoldFilter::Session(agent("b"), session("s-1"))), [second]);
    assert_eq!(by(HoldFilter::Session(agent("a"), session("s-1"))), [first, third]);
    assert_eq!(by(HoldFilter::Session(agent("a"), session("s-7"))), []);
    assert_eq!(by(of_run.clone()), [first]);
    let ops = Audience::AnyOf(vec![AudienceMember("role:ops".into())]);
    let by = |filter| hold_ids(&world.all_holds(&HoldQuery { audience: ops.clone(), ..holds_by(filter) }));
    assert_eq!(by(HoldFilter::Agent(agent("a"))), [first]);
    assert_eq!(by(HoldFilter::Agent(agent("b"))), []);
    assert_eq!(by(of_run), [first]);
}

pub fn holds_are_listed_by_inbox(factory: &Factory) {
    let mut world = World::new(factory);
    let mut asks = |inbox: &str, tenant: &str| {
        let row = world.start(&NewRun::of("a").in_inbox(inbox, 1).of_tenant(tenant));
        let claim = ClaimRun::Worker { worker: worker("w-1"), period: Millis::seconds(60) };
        let row = world.send(&row, &Command::Claim(claim));
        let suspend = Suspend {
            call: CallNo::RUN,
            attempt: 0,
            kind: SuspendFor::Input,
            ask: Ask { reason: Some("stuck".into()), ..Ask::default() },
            timeout: None,
            secret: None,
            worker: Some(worker("w-1")),
        };
        let row = world.send(&row, &Command::Suspend(suspend));
        let hold = HoldId { run: row.run.facts.id, key: row.run.state.holds[0].key };
        (row, hold)
    };
    let (_, first) = asks("tickets", "default");
    let (_, mail) = asks("mail", "default");
    asks("tickets", "acme");
    let (row, last) = asks("tickets", "default");
    world.held_run("a");
    let by = |world: &World, name: &str, limit| {
        let filter = HoldFilter::Inbox(InboxName::new(name).unwrap());
        hold_ids(&world.all_holds(&HoldQuery { limit, ..holds_by(filter) }))
    };
    for limit in [1, 10] {
        assert_eq!(by(&world, "tickets", limit), [first, last]);
        assert_eq!(by(&world, "mail", limit), [mail]);
        assert_eq!(by(&world, "unheard of", limit), []);
    }
    world.decides(&row, last, Choice::Answer { value: Body::text("go on") });
    world.reopen();
    assert_eq!(by(&world, "tickets", 10), [first]);
}

pub fn holds_are_listed_by_deadline(factory: &Factory) {
    let mut world = World::new(factory);
    let timeout = |after: i64| HoldPolicy {
        timeout: Some(Millis::seconds(after)),
        on_timeout: OnTimeout::Keep,
        ..HoldPolicy::default()
    };
    let mut dated = Vec::new();
    let mut undated = Vec::new();
    // Deadlines in another order than they are opened in, three of them at one instant.
    for (after, audience) in
        [(900, "user:alice"), (60, "role:ops"), (300, "user:alice"), (300, "role:ops"), (300, "user:alice")]
    {
        dated.push((after, world.held(&NewRun::of("a").holding(timeout(after)), &[audience])));
        undated.push(world.held(&NewRun::of("b"), &[audience]).1);
    }
    world.held(&NewRun::of("a").of_tenant("acme").holding(timeout(10)), &["role:ops"]);
    dated.sort_by_key(|(after, _)| *after);
    let order: Vec<HoldId> = dated.iter().map(|(_, (_, hold))| *hold).collect();
    let listed = |world: &World, filter: HoldFilter, who: &[&str], limit: usize| {
        let audience = match who {
            [] => Audience::Everyone,
            who => Audience::AnyOf(who.iter().map(|one| AudienceMember((*one).to_owned())).collect()),
        };
        hold_ids(&world.all_holds(&HoldQuery { audience, limit, ..holds_by(filter) }))
    };
    for limit in [1, 2, 100] {
        assert_eq!(listed(&world, HoldFilter::Dated, &[], limit), order);
        assert_eq!(listed(&world, HoldFilter::Undated, &[], limit), undated);
        let ops = [order[0], order[2]];
        assert_eq!(listed(&world, HoldFilter::Dated, &["role:ops"], limit), ops);
        assert_eq!(listed(&world, HoldFilter::Undated, &["role:ops"], limit), [undated[1], undated[3]]);
        assert_eq!(listed(&world, HoldFilter::Dated, &["role:ops", "user:alice"], limit), order);
    }
    let none = HoldQuery { kinds: vec![HoldKind::Input], ..holds_by(HoldFilter::Dated) };
    assert_eq!(world.all_holds(&none), []);
    // A cursor stays where it is when its hold is decided.
    let first =
        block_on(world.store().list_holds(HoldQuery { limit: 2, ..holds_by(HoldFilter::Dated) })).unwrap();
    let (row, hold) = &dated[1].1;
    world.decides(row, *hold, Choice::Approve);
    let query = HoldQuery { cursor: first.next, ..holds_by(HoldFilter::Dated) };
    assert_eq!(hold_ids(&block_on(world.store().list_holds(query)).unwrap().items), order[2..]);
    // One that is opened again has another deadline.
    world.later(Millis::seconds(61));
    let row = world.send(&dated[0].1.0, &Command::Tick);
    let again = |after| Some(after).map(|after| world.now().plus(Millis::seconds(after)));
    let (late, none) = (again(5_000), None);
    let row = world.send(&row, &Command::Reopen { hold: order[0].key, expires_at: late });
    assert_eq!(listed(&world, HoldFilter::Dated, &[], 100), [order[2], order[3], order[4], order[0]]);
    world.later(Millis::seconds(5_001));
    let row = world.send(&row, &Command::Tick);
    world.send(&row, &Command::Reopen { hold: order[0].key, expires_at: none });
    assert_eq!(listed(&world, HoldFilter::Dated, &[], 100), order[2..]);
    world.reopen();
    assert_eq!(listed(&world, HoldFilter::Dated, &[], 1), order[2..]);
    undated.insert(1, order[0]);
    assert_eq!(listed(&world, HoldFilter::Undated, &[], 1), undated);
}

pub fn holds_are_listed_by_kind(factory: &Factory) {
    let mut world = World::new(factory);
    let all = [
        (HoldKind::Approval, world.held_run("a").1),
        (HoldKind::Input, world.suspended_run("a", SuspendFor::Input).1),
        (HoldKind::External, world.suspended_run("a", SuspendFor::External).1),
        (HoldKind::Auth, world.suspended_run("a", SuspendFor::Auth).1),
        (HoldKind::Recovery, world.recovering_run("a").1),
    ];
    let of = |kinds: &[HoldKind]| {
        hold_ids(&world.all_holds(&HoldQuery { kinds: kinds.to_vec(), ..holds_by(HoldFilter::All) }))
    };
    for (kind, hold) in all {
        assert_eq!(of(&[kind]), [hold], "{kind:?}");
    }
    assert_eq!(of(&[HoldKind::Auth, HoldKind::Approval]), [all[0].1, all[3].1]);
    assert_eq!(of(&[]), all.map(|(_, hold)| hold));
}

pub fn tenants_do_not_see_each_others_holds(factory: &Factory) {
    let mut world = World::new(factory);
    let ours = world.held(&NewRun::of("a"), &["role:ops"]).1;
    let (row, theirs) = world.held(&NewRun::of("a").of_tenant("acme"), &["role:ops"]);
    let filters = [
        HoldFilter::All,
        HoldFilter::Agent(agent("a")),
        HoldFilter::Tool(tool(SHELL)),
        HoldFilter::Session(agent("a"), session("s-1")),
    ];
    for audience in [Audience::Everyone, Audience::AnyOf(vec![AudienceMember("role:ops".into())])] {
        let by = |name: &str, filter: HoldFilter| {
            let query = HoldQuery { tenant: tenant(name), audience: audience.clone(), ..holds_by(filter) };
            hold_ids(&world.all_holds(&query))
        };
        for filter in filters.clone() {
            assert_eq!(by("default", filter.clone()), [ours]);
            assert_eq!(by("acme", filter), [theirs]);
        }
        assert_eq!(by("default", HoldFilter::Run(row.run.facts.id)), []);
        assert_eq!(by("nobody", HoldFilter::All), []);
    }
}

pub fn a_decided_hold_leaves_the_lists_and_keeps_its_record(factory: &Factory) {
    let mut world = World::new(factory);
    let (row, hold) = world.held(&NewRun::of("a").in_session("s-4"), &["user:alice"]);
    let open = hold_row(&row, hold);
    assert_eq!(world.find_hold(hold), Some(open.clone()));
    world.later(Millis::seconds(5));
    let row = world.decides(&row, hold, Choice::Deny { reason: Some("no".into()) });
    let by = Actor::Person(user("alice"));
    let closed = HoldClosure { seq: row.run.state.seq, at: world.now(), by, how: ResolutionKind::Denied };
    let decided = HoldRow { closed: Some(closed), ..open };
    world.reopen();
    assert_eq!(world.find_hold(hold), Some(decided));
    assert_eq!(world.seen_by(&["user:alice"]), []);
    for filter in [HoldFilter::All, HoldFilter::Agent(agent("a")), HoldFilter::Run(hold.run)] {
        assert_eq!(world.all_holds(&holds_by(filter)), []);
    }
}

pub fn a_hold_is_found_by_its_whole_id_only(factory: &Factory) {
    let mut world = World::new(factory);
    let (_, hold) = world.held_run("a");
    let other = world.queued_run("a").run.facts.id;
    let guessed = HoldKey { secret: Secret([0; 16]), ..hold.key };
    assert_eq!(world.find_hold(HoldId { key: guessed, ..hold }), None);
    assert_eq!(world.find_hold(HoldId { run: other, ..hold }), None);
    let unknown = world.scribe.run_id(&tenant("default"));
    assert_eq!(world.find_hold(HoldId { run: unknown, ..hold }), None);
}

pub fn every_way_to_close_a_hold_is_recorded(factory: &Factory) {
    let mut world = World::new(factory);
    let edited = Choice::ApproveEdited { arguments: RawJson::parse(r#"{"n": 2}"#).unwrap() };
    let text = standfast_core::body::Body::text;
    let (row, hold) = world.held_run("a");
    world.decides(&row, hold, Choice::Approve);
    let mut closed = vec![(hold, ResolutionKind::Approved)];
    let (row, hold) = world.held_run("a");
    world.decides(&row, hold, edited);
    closed.push((hold, ResolutionKind::Edited));
    let (row, hold) = world.suspended_run("a", SuspendFor::Input);
    world.decides(&row, hold, Choice::Answer { value: text("blue") });
    closed.push((hold, ResolutionKind::Answered));
    let (row, hold) = world.suspended_run("a", SuspendFor::External);
    world.decides(&row, hold, Choice::Fail { error: text("exit 1") });
    closed.push((hold, ResolutionKind::Failed));
    let policy = HoldPolicy { timeout: Some(Millis::seconds(1)), ..HoldPolicy::default() };
    let (row, hold) = world.held(&NewRun::of("a").holding(policy), &[]);
    world.later(Millis::seconds(2));
    world.send(&row, &Command::Tick);
    closed.push((hold, ResolutionKind::Expired));
    let (row, hold) = world.held_run("a");
    world.send(&row, &Command::Cancel { reason: None });
    closed.push((hold, ResolutionKind::Withdrawn));
    let (row, hold) = world.held_run("a");
    let message = standfast_core::message::Message::text("rather this");
    let on_hold = standfast_core::command::OnHold::Supersede;
    world.send(&row, &Command::Say(standfast_core::command::Say { message, on_hold }));
    closed.push((hold, ResolutionKind::Superseded));
    world.reopen();
    for (hold, how) in closed {
        let row = world.find_hold(hold).unwrap();
        assert_eq!(row.closed.map(|closed| closed.how), Some(how));
    }
}

pub fn decided_holds_are_listed_by_when_they_were_decided(factory: &Factory) {
    let mut world = World::new(factory);
    let (early, first) = world.held(&NewRun::of("a"), &[]);
    let (row, second) = world.held(&NewRun::of("b"), &["user:alice"]);
    let (_, open) = world.held_run("a");
    let (theirs, _) = world.held(&NewRun::of("a").of_tenant("acme"), &[]);
    world.decides(&row, second, Choice::Deny { reason: None });
    world.decides(
        &theirs,
        HoldId { run: theirs.run.facts.id, key: theirs.run.state.holds[0].key },
        Choice::Approve,
    );
    let denied_at = world.now();
    world.later(Millis::seconds(5));
    world.decides(&early, first, Choice::Approve);
    // A run that ends withdraws what it waits for; several at one instant.
    world.later(Millis::seconds(5));
    let mut withdrawn = Vec::new();
    for _ in 0..3 {
        let (row, hold) = world.held_run("c");
        world.send(&row, &Command::Cancel { reason: None });
        withdrawn.insert(0, hold);
    }
    world.reopen();
    let all = decided_by(|_| {});
    let expected: Vec<HoldId> = withdrawn.iter().copied().chain([first, second]).collect();
    for limit in [1, 2, 50] {
        assert_eq!(hold_ids(&world.all_decided(&DecidedQuery { limit, ..all.clone() })), expected, "{limit}");
    }
    assert_eq!(world.find_hold(first), world.all_decided(&all).into_iter().find(|row| row.id == first));
    assert!(!expected.contains(&open));
    let of = |world: &World, change: fn(&mut DecidedQuery)| hold_ids(&world.all_decided(&decided_by(change)));
    assert_eq!(of(&world, |query| query.agent = Some(agent("b"))), [second]);
    assert_eq!(of(&world, |query| query.tool = Some(tool(SHELL))), expected);
    assert_eq!(of(&world, |query| query.tool = Some(tool("unheard of"))), []);
    assert_eq!(of(&world, |query| query.kinds = vec![HoldKind::Input]), []);
    assert_eq!(of(&world, |query| query.how = vec![ResolutionKind::Withdrawn]), withdrawn);
    assert_eq!(of(&world, |query| query.by = Some(user("alice"))), [first, second]);
    assert_eq!(of(&world, |query| query.by = Some(user("bob"))), []);
    assert_eq!(of(&world, |query| query.tenant = tenant("nobody")), []);
    let late = DecidedQuery { since: Some(denied_at.plus(Millis(1))), ..all.clone() };
    assert_eq!(hold_ids(&world.all_decided(&late)), expected[..4]);
    let early = DecidedQuery { before: Some(denied_at.plus(Millis(1))), ..all };
    assert_eq!(hold_ids(&world.all_decided(&early)), [second]);
}

/// Every decided hold of the usual tenant, but for what is changed.
fn decided_by(change: impl Fn(&mut DecidedQuery)) -> DecidedQuery {
    let mut query = DecidedQuery {
        tenant: tenant("default"),
        since: None,
        before: None,
        agent: None,
        tool: None,
        kinds: Vec::new(),
        how: Vec::new(),
        by: None,
        cursor: None,
        limit: 50,
    };
    change(&mut query);
    query
}

pub fn changes_of_an_open_hold_are_visible(factory: &Factory) {
    let mut world = World::new(factory);
    let timeout = Some(Millis::seconds(10));
    let kept = HoldPolicy { timeout, on_timeout: OnTimeout::Keep, ..HoldPolicy::default() };
    let (row, hold) = world.held(&NewRun::of("a").holding(kept), &["user:alice"]);
    let first = hold_row(&row, hold);
    let arguments = RawJson::parse(r#"{"n": 7}"#).unwrap();
    let row = world.send(&row, &Command::Edit(Edit { decide: as_seen(hold.key), arguments }));
    let edited = world.same_everywhere(hold);
    assert_eq!((edited.revision, edited.digest == first.digest), (1, false));
    let row = world.send(&row, &Command::Assign { hold: hold.key, to: Some(user("bob")), until: None });
    assert_eq!(world.same_everywhere(hold), HoldRow { assignee: Some(user("bob")), ..edited.clone() });
    world.later(Millis::seconds(11));
    let row = world.send(&row, &Command::Tick);
    let expired = world.same_everywhere(hold);
    assert_eq!(expired.expired_at, Some(world.now()));
    let expires_at = Some(world.now().plus(Millis::hours(1)));
    let row = world.send(&row, &Command::Reopen { hold: hold.key, expires_at });
    assert_eq!(world.same_everywhere(hold), HoldRow { expires_at, expired_at: None, ..expired });
    assert_eq!(world.same_everywhere(hold), hold_row(&row, hold));
}

pub fn news_from_an_outside_job_is_visible(factory: &Factory) {
    let mut world = World::new(factory);
    let (row, hold) = world.suspended_run("a", SuspendFor::External);
    let open = hold_row(&row, hold);
    let note = standfast_core::body::Body::text("half");
    let (call, processing) = (hold.key.call, Some(true));
    let row = world.send(&row, &Command::Progress { call, note, processing });
    let found = |world: &World| (world.find_hold(hold), world.all_holds(&holds_by(HoldFilter::All)));
    let news = HoldRow { processing: true, ..open };
    assert_eq!(found(&world), (Some(news.clone()), vec![news]));
    assert_eq!(the_hold(&row), hold);
}

impl World {
    fn all_decided(&self, query: &DecidedQuery) -> Vec<HoldRow> {
        all_pages(|cursor| {
            block_on(self.store().decided_holds(DecidedQuery { cursor, ..query.clone() })).unwrap()
        })
    }

    fn seen_by(&self, who: &[&str]) -> Vec<HoldId> {
        let audience = Audience::AnyOf(who.iter().map(|one| AudienceMember((*one).to_owned())).collect());
        hold_ids(&self.all_holds(&HoldQuery { audience, ..holds_by(HoldFilter::All) }))
    }

    /// The row of an open hold, which is the same by its id and in the lists.
    fn same_everywhere(&self, hold: HoldId) -> HoldRow {
        let by_id = self.find_hold(hold).unwrap();
        assert_eq!(self.all_holds(&holds_by(HoldFilter::All)), std::slice::from_ref(&by_id));
        assert_eq!(self.seen_by(&["user:alice"]), [hold]);
        by_id
    }
}
