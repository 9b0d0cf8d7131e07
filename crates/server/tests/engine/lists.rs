//! Lists cost what their caller may see, not what everybody has (T37).
//!
//! A store that keeps what it is asked shows by what runs, holds, sessions and subscriptions are looked for.

use std::sync::{Arc, Mutex};

use standfast_core::name::{SessionId, UserId};
use standfast_core::project::{HoldRow, Phase, RunRow};
use standfast_engine::clock::Clock;
use standfast_engine::{Engine, HoldList, JobList, RecentRuns, RunList, SessionList};
use standfast_store::memory::MemoryStore;
use standfast_store::{
    Answer, AuditLayer, DeliveryLayer, HoldFilter, HoldQuery, IdempotencyLayer, Layer, Page, RunFilter,
    RunLayer, RunQuery, RunStore, SecretLayer, SessionLayer, SessionQuery, SessionRow, SessionStore, Store,
    WorkLayer,
};

use crate::{HELD, Site, agent, start, until, who};

struct Asked {
    inner: Arc<MemoryStore>,
    runs: Mutex<Vec<RunFilter>>,
    holds: Mutex<Vec<HoldFilter>>,
    sessions: Mutex<Vec<Option<UserId>>>,
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
        self.holds.lock().unwrap().push(query.filter.clone());
        self.inner.list_holds(query)
    }
}

impl SessionLayer for Asked {
    fn list_sessions(&self, query: SessionQuery) -> Answer<Page<SessionRow>> {
        self.sessions.lock().unwrap().push(query.owner.clone());
        self.inner.list_sessions(query)
    }
}

impl WorkLayer for Asked {}
impl DeliveryLayer for Asked {}
impl IdempotencyLayer for Asked {}
impl SecretLayer for Asked {}
impl AuditLayer for Asked {}

/// T37: whoever sees nothing of others looks at nothing of others, whatever they filter by, in every list; what they get is
/// empty all the same.
#[tokio::test]
async fn whoever_sees_nothing_looks_at_nothing() {
    let site = Site::new();
    let store = Arc::new(Asked {
        inner: Arc::new(MemoryStore::new()),
        runs: Mutex::default(),
        holds: Mutex::default(),
        sessions: Mutex::default(),
    });
    let engine = Engine::new(store.clone(), Clock::system(), site.settings());
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let session = engine.load(run).await.unwrap().row.run.facts.session.clone();
    store.runs.lock().unwrap().clear();
    store.holds.lock().unwrap().clear();
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
        let list = HoldList { kind: None, agent, tool, session, cursor: None, limit: 50 };
        assert!(engine.reads().holds(&eve, list).await.unwrap().items.is_empty());
    }
    let list = SessionList { agent: Some(agent()), cursor: None, limit: 50 };
    assert!(engine.sessions().list(&eve, list).await.unwrap().items.is_empty());
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
    let holds = store.holds.lock().unwrap().clone();
    assert!(holds.iter().all(|filter| *filter == HoldFilter::All), "by what eve sees: {holds:?}");
    assert_eq!(*store.sessions.lock().unwrap(), [Some(eve.user.clone())]);
}
