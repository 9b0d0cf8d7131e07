//! Lists cost what their caller may see, not what everybody has (T37).
//!
//! A store that keeps what it is asked shows by what runs, holds, sessions, subscriptions and dead letters are looked for.

use std::sync::{Arc, Mutex};

use standfast_core::name::{AgentName, InboxName, SessionId, Tenant, UserId};
use standfast_core::project::{HoldRow, Phase, RunRow};
use standfast_core::time::Timestamp;
use standfast_engine::auth::Principal;
use standfast_engine::clock::Clock;
use standfast_engine::{
    DeadlineFilter, Engine, HistoryList, HoldList, HoldListPart, HoldListScope, HoldOrder, HoldSearch,
    JobList, RecentRuns, RunList, SessionList, TaskList,
};
use standfast_store::memory::MemoryStore;
use standfast_store::{
    Answer, Audience, AuditLayer, Counts, DeadLetter, DeadQuery, DecidedQuery, DeliveryLayer, DeliveryStore,
    HoldFilter, HoldQuery, IdempotencyLayer, InboxCounts, Layer, Page, RunFilter, RunLayer, RunQuery,
    RunStore, Scope, SecretLayer, SessionLayer, SessionQuery, SessionRow, SessionStore, Store, Subscription,
    SubscriptionQuery, WorkLayer, WorkStore,
};

use crate::{HELD, Site, agent, start, until, who};

struct Asked {
    inner: Arc<MemoryStore>,
    runs: Mutex<Vec<RunFilter>>,
    holds: Mutex<Vec<HoldQuery>>,
    /// How many rows each look at decided holds may come to.
    decided: Mutex<Vec<usize>>,
    /// Questions that cost what everybody has.
    counts: Mutex<Vec<&'static str>>,
    sessions: Mutex<Vec<Option<UserId>>>,
    subscriptions: Mutex<Vec<SubscriptionQuery>>,
    letters: Mutex<Vec<DeadQuery>>,
}

impl Layer for Asked {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Asked {
    fn list_runs(&self, query: RunQuery) -> Answer<Page<RunRow>> {
        self.runs.lock().unwrap().push(query.filter.clone());
        self.inner.list_runs(query)
    }

    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        self.holds.lock().unwrap().push(query.clone());
        self.inner.list_holds(query)
    }

    fn decided_holds(&self, query: DecidedQuery) -> Answer<Page<HoldRow>> {
        self.decided.lock().unwrap().push(query.limit);
        self.inner.decided_holds(query)
    }
}

impl SessionLayer for Asked {
    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        self.sessions.lock().unwrap().push(query.owner.clone());
        self.inner.list_sessions(query)
    }
}

impl WorkLayer for Asked {
    fn counts(&self, tenant: Tenant) -> Answer<Counts> {
        self.counts.lock().unwrap().push("counts");
        self.inner.counts(tenant)
    }

    fn inbox_counts(&self, tenant: Tenant) -> Answer<Vec<InboxCounts>> {
        self.counts.lock().unwrap().push("inbox_counts");
        self.inner.inbox_counts(tenant)
    }
}

impl DeliveryLayer for Asked {
    fn list_subscriptions(&self, query: SubscriptionQuery) -> Answer<Vec<Subscription>> {
        self.subscriptions.lock().unwrap().push(query.clone());
        self.inner.list_subscriptions(query)
    }

    fn dead_letters(&self, query: DeadQuery) -> Answer<Page<DeadLetter>> {
        self.letters.lock().unwrap().push(query.clone());
        self.inner.dead_letters(query)
    }
}

impl IdempotencyLayer for Asked {}
impl SecretLayer for Asked {}
impl AuditLayer for Asked {}

/// Subscriptions of a tenant that has many of others: eve is told of none and looks at none; nor does she at their dead letters. Who
/// sees all looks at a few pages, however many of them cannot be read.
async fn subscriptions_of_others_cost_nothing(engine: &Engine, store: &Asked, eve: &Principal) {
    for no in 0..500 {
        let one = Subscription {
            tenant: eve.tenant.clone(),
            id: format!("sub_{no:03}"),
            scope: Scope::Tenant,
            owner: "default ann".to_owned(),
            wants: 1,
            is_active: true,
            facts: "{}".to_owned(),
        };
        assert!(store.inner.put_subscription(one).await.unwrap());
    }
    let asked = || std::mem::take(&mut *store.subscriptions.lock().unwrap());
    asked();
    let (found, next) = engine.subscriptions().list(eve, None, 50).await.unwrap();
    assert!(found.is_empty() && next.is_none(), "{next:?}");
    let of_eve = asked();
    let is_hers = |query: &SubscriptionQuery| query.owner.as_deref() == Some("default eve");
    assert!(of_eve.len() == 1 && of_eve.iter().all(is_hers), "{of_eve:?}");
    assert!(engine.subscriptions().dead_letters(eve, "sub_007", None, 50).await.is_err());
    assert_eq!(store.letters.lock().unwrap().len(), 0, "dead letters of others");
    let (found, next) = engine.subscriptions().list(&Principal::local(), None, 50).await.unwrap();
    assert!(found.is_empty() && next.is_some(), "{next:?}");
    let of_all = asked();
    assert!(of_all.len() <= 4 && of_all.iter().all(|query| query.limit <= 51), "{of_all:?}");
}

/// Lists of holds, decided holds, standing approvals and inboxes.
async fn find_nothing(engine: &Engine, eve: &Principal) {
    for order in [HoldOrder::Age, HoldOrder::Deadline] {
        for audience in [HoldListScope::Anybody, HoldListScope::Caller] {
            let text = Some("free".to_owned());
            let search = HoldSearch { text, audience, order, limit: 50, ..HoldSearch::default() };
            assert!(engine.reads().find_holds(eve, &search).await.unwrap().items.is_empty());
        }
    }
    let list = HistoryList { limit: 50, ..HistoryList::default() };
    assert!(engine.reads().history(eve, &list).await.unwrap().items.is_empty());
    let pending = engine.reads().pending_counts(eve, 100).await.unwrap();
    assert!(pending.iter().all(|(_, count)| *count == 0), "{pending:?}");
    assert!(engine.grants().list(eve).await.unwrap().is_empty());
    let inbox = InboxName::new("tickets").unwrap();
    let list = TaskList { inbox: inbox.clone(), phases: Vec::new(), cursor: None, limit: 50 };
    assert!(engine.inboxes().tasks(eve, list, |_, _| true).await.unwrap().items.is_empty());
    for inbox in [None, Some(inbox)] {
        let waiting = engine.inboxes().waiting_tasks(eve, inbox, (None, 50), |_, _| true).await;
        assert!(waiting.unwrap().items.is_empty());
    }
    assert!(engine.inboxes().list(eve).await.is_err(), "a list of inboxes is for those who work in them");
}

/// T37: whoever sees nothing of others looks at nothing of others, whatever they filter by, in every list; what they get is
/// empty all the same.
#[tokio::test]
async fn t37_whoever_sees_nothing_looks_at_nothing() {
    let site = Site::new();
    let store = Arc::new(Asked {
        inner: Arc::new(MemoryStore::new()),
        runs: Mutex::default(),
        holds: Mutex::default(),
        decided: Mutex::default(),
        counts: Mutex::default(),
        sessions: Mutex::default(),
        subscriptions: Mutex::default(),
        letters: Mutex::default(),
    });
    let engine = Engine::new(store.clone(), Clock::system(), crate::fixed(), site.settings());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let session = engine.reads().load(run).await.unwrap().row.run.facts.session.clone();
    store.runs.lock().unwrap().clear();
    store.holds.lock().unwrap().clear();
    store.counts.lock().unwrap().clear();
    let eve = who("eve");
    for session in [None, Some(session), Some(SessionId::new("other").unwrap())] {
        for phases in [vec![], vec![Phase::Rejected], vec![Phase::HeldForPerson]] {
            let wanted = RecentRuns { agent: agent(), session: session.clone(), phases, since: None };
            assert!(engine.reads().recent_runs(&eve, wanted).await.unwrap().is_empty());
        }
        let list = RunList { agent: Some(agent()), session: session.clone(), cursor: None, limit: 50 };
        assert!(engine.reads().runs(&eve, list).await.unwrap().items.is_empty());
        for over in [false, true] {
            let list = JobList { session: session.clone(), over, limit: 50, ..JobList::default() };
            assert!(engine.jobs().list(&eve, list).await.unwrap().items.is_empty());
        }
        let (agent, tool) = (Some(agent()), None);
        let list =
            HoldList { kind: None, agent, tool, session, part: HoldListPart::All, cursor: None, limit: 50 };
        assert!(engine.reads().holds(&eve, list).await.unwrap().items.is_empty());
    }
    let list = SessionList { agent: Some(agent()), cursor: None, limit: 50 };
    assert!(engine.sessions().list(&eve, list).await.unwrap().items.is_empty());
    find_nothing(&engine, &eve).await;
    subscriptions_of_others_cost_nothing(&engine, &store, &eve).await;
    let runs = store.runs.lock().unwrap().clone();
    let of_eve = |filter: &RunFilter| match filter {
        RunFilter::Owner(owner) | RunFilter::SessionOf(owner, _, _) => *owner == eve.user,
        RunFilter::All
        | RunFilter::Agent(_)
        | RunFilter::Session(..)
        | RunFilter::Inbox(_)
        | RunFilter::WithJobs
        | RunFilter::Claimable(..) => false,
    };
    assert!(!runs.is_empty() && runs.iter().all(of_eve), "{runs:?}");
    // By what eve is asked: an index says that there is nothing.
    let holds = store.holds.lock().unwrap().clone();
    let is_by_audience = |query: &HoldQuery| matches!(query.audience, Audience::AnyOf(_));
    assert!(!holds.is_empty() && holds.iter().all(is_by_audience), "{holds:?}");
    // What was decided is looked through, so much and no more for each page.
    let decided = store.decided.lock().unwrap().clone();
    assert!((1..=16).contains(&decided.len()) && decided.iter().all(|limit| *limit <= 50), "{decided:?}");
    assert_eq!(*store.counts.lock().unwrap(), [""; 0], "counts of everybody's");
    assert_eq!(*store.sessions.lock().unwrap(), [Some(eve.user.clone())]);
}

/// A store that has a hundred thousand open holds: the one that there is, again and again, each with a later deadline.
struct Endless {
    inner: Arc<MemoryStore>,
    asked: Mutex<Vec<(HoldFilter, usize)>>,
    first_deadline: Timestamp,
}

const ENDLESS: u64 = 100_000;

impl Layer for Endless {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Endless {
    fn list_holds(&self, query: HoldQuery) -> Answer<Page<HoldRow>> {
        self.asked.lock().unwrap().push((query.filter.clone(), query.limit));
        let (limit, after, first) = (query.limit, query.cursor.unwrap_or_default(), self.first_deadline);
        let all = self.inner.list_holds(HoldQuery {
            audience: Audience::Everyone,
            cursor: None,
            filter: HoldFilter::All,
            limit: 1,
            ..query
        });
        Box::pin(async move {
            let row = all.await?.items.remove(0);
            let end = ENDLESS.min(after + u64::try_from(limit).unwrap());
            let dated = |at: u64| HoldRow {
                expires_at: Some(Timestamp(first.0 + 1_000 * i64::try_from(at).unwrap())),
                ..row.clone()
            };
            Ok(Page::of((after..end).map(dated).collect(), (end < ENDLESS).then_some(end)))
        })
    }
}

impl SessionLayer for Endless {}
impl WorkLayer for Endless {}
impl DeliveryLayer for Endless {}
impl IdempotencyLayer for Endless {}
impl SecretLayer for Endless {}
impl AuditLayer for Endless {}

/// However many holds there are and however few of them fit, one page asks the store a few times, and says where it stopped.
#[tokio::test]
async fn a_page_of_a_hundred_thousand_holds_has_a_bound() {
    let clock = Clock::system();
    let now = clock.now();
    let store = Arc::new(Endless {
        inner: Arc::new(MemoryStore::new()),
        asked: Mutex::default(),
        first_deadline: Timestamp(now.0 + 60_000),
    });
    let engine = Engine::new(store.clone(), clock, crate::fixed(), Site::new().settings());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let admin = Principal::local();
    let usual = HoldSearch { limit: 25, ..HoldSearch::default() };
    let nobodys = Some(AgentName::new("nobody").unwrap());
    let other = Some(UserId::new("nobody").unwrap());
    let soon = |ms: i64| Some(DeadlineFilter::Until(Timestamp(now.0 + 60_000 + ms)));
    for (search, found, is_more, most) in [
        (usual.clone(), 25, true, 1),
        // None of them: nothing is read beyond the first deadline that is too late.
        (HoldSearch { deadline: Some(DeadlineFilter::Passed), ..usual.clone() }, 0, false, 1),
        (HoldSearch { deadline: soon(-1), ..usual.clone() }, 0, false, 1),
        // Ten of them, and more than a page.
        (HoldSearch { deadline: soon(9_500), ..usual.clone() }, 10, false, 1),
        (HoldSearch { deadline: soon(90_000_000), ..usual.clone() }, 25, true, 2),
        // None of them, in an order without an index of agents or owners.
        (HoldSearch { agent: nobodys.clone(), order: HoldOrder::Deadline, ..usual.clone() }, 0, true, 16),
        (HoldSearch { agent: nobodys, ..usual.clone() }, 0, true, 64),
        (HoldSearch { owner: other, ..usual.clone() }, 0, true, 20),
    ] {
        store.asked.lock().unwrap().clear();
        let page = engine.reads().find_holds(&admin, &search).await.unwrap();
        let asked = store.asked.lock().unwrap().clone();
        assert_eq!((page.items.len(), page.next.is_some()), (found, is_more), "{search:?}");
        assert!(asked.len() <= most, "{search:?} asked {asked:?}");
        assert!(asked.iter().all(|(_, rows)| *rows <= 250), "{asked:?}");
    }
}
