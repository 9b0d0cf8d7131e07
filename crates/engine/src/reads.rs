//! What can be looked at: runs, holds, lists of them, receipts.
//!
//! `follow.rs` reads a run as it goes on, `waiting.rs` waits until one settles, `requests.rs` finds what one turn asked,
//! `run_lists.rs` lists runs by when they changed, `hold_lists.rs` holds as people look for them; `sessions.rs`, `jobs.rs` and `inboxes.rs` are components of their own over
//! the same reads. Reads only. Whatever the caller may not see is answered like something that does not exist.

mod follow;
mod hold_lists;
mod inboxes;
mod jobs;
mod requests;
mod run_lists;
mod sessions;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::name::{AgentName, SessionId, Tenant, ToolName, UserId};
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::receipt::{Receipt, receipt};
use standfast_core::run::{Facts, Run};
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{
    Audience, Counts, HoldFilter, HoldQuery, Page, RunQuery, StoreError, StoredRun, UnreadableRun,
};
use tokio::sync::broadcast;

use super::EngineError;
use super::host::Host;
use super::log::data_reads::ErasedReads;
use super::log::{HoldView, Log, RunView, Snapshot, Views, audience_member};
use super::wakes::{Deltas, Wakes};
use crate::auth::{Party, Principal};

pub use follow::{Follower, News, Step};
pub use hold_lists::{
    DeadlineFilter, HistoryList, HoldListScope, HoldOrder, HoldSearch, HoldsFound, RiskFilter,
};
pub use inboxes::{InboxView, Inboxes, LookedUpTask, TaskList, TaskView};
pub use jobs::{JobList, Jobs, SessionNow, WaitingSession};
pub use requests::RequestView;
pub use run_lists::{ListedRun, RecentRuns};
pub use sessions::{
    Metadata, PENDING, SessionError, SessionList, SessionName, SessionView, Sessions, metadata,
};

/// A list reads this many pages at most before it answers with what it has.
const PAGES_MAX: usize = 16;

/// Counts are cached for this long.
const COUNTS_LAST: Millis = Millis::seconds(5);

/// The result of looking for a run.
#[derive(Clone)]
pub enum LookedUpRun {
    /// The run.
    Run(Arc<Snapshot>),
    /// Its rows cannot be read: it counts as failed (C35).
    Quarantined(Box<UnreadableRun>),
}

impl LookedUpRun {
    /// What never changes of it; none where not even that can be read.
    #[must_use]
    pub fn facts(&self) -> Option<&Facts> {
        match self {
            LookedUpRun::Run(snapshot) => Some(&snapshot.run().facts),
            LookedUpRun::Quarantined(found) => found.facts.as_ref(),
        }
    }

    /// The same for whoever shows what was said: of a run whose log cannot be read no more is shown than of one whose row cannot.
    pub async fn whole(self) -> LookedUpRun {
        let LookedUpRun::Run(snapshot) = self else { return self };
        let read = snapshot.log().await.map(drop);
        match read {
            Err(StoreError::Corrupt { run, why }) => {
                let facts = Some(snapshot.run().facts.clone());
                LookedUpRun::Quarantined(Box::new(UnreadableRun { run, facts, why }))
            }
            Ok(()) | Err(_) => LookedUpRun::Run(snapshot),
        }
    }
}

/// Which runs are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunList {
    /// Of one agent.
    pub agent: Option<AgentName>,
    /// Of one conversation.
    pub session: Option<SessionId>,
    /// Where to go on.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// Which open holds are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldList {
    /// Of one kind.
    pub kind: Option<HoldKind>,
    /// Of one agent.
    pub agent: Option<AgentName>,
    /// Of one tool.
    pub tool: Option<ToolName>,
    /// Of one conversation.
    pub session: Option<SessionId>,
    /// Which part of them, and in which order.
    pub part: HoldListPart,
    /// Where to go on.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// A part of the open holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HoldListPart {
    /// All, oldest first.
    #[default]
    All,
    /// Those with a deadline, the earliest first.
    Dated,
    /// Those without one, oldest first.
    Undated,
}

/// How far a list of open holds is read.
struct HoldScan<'a> {
    /// Only holds of this owner are wanted; the store narrows by it where it can, and others may still come along.
    owner: Option<&'a UserId>,
    /// In the order of deadlines, nothing later is wanted.
    until: Option<Timestamp>,
    /// How often the store is still asked.
    looks: usize,
}

/// What callers may look at.
pub struct Reads {
    host: Arc<Host>,
    pub(crate) log: Arc<Log>,
    views: Views,
    wakes: Arc<Wakes>,
    deltas: Arc<Deltas>,
    /// The last counts of each tenant, and when they were made.
    counted: tokio::sync::Mutex<BTreeMap<Tenant, (Timestamp, Counts)>>,
    erased_reads: ErasedReads,
}

impl Reads {
    pub(crate) fn new(log: Arc<Log>, wakes: Arc<Wakes>, deltas: Arc<Deltas>) -> Reads {
        let (host, views) = (log.host.clone(), Views::new(log.clone()));
        let (counted, erased_reads) = (tokio::sync::Mutex::default(), ErasedReads::default());
        Reads { host, log, views, wakes, deltas, counted, erased_reads }
    }

    /// What is shown of one run.
    #[must_use]
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// A run as it is stored, whoever asks.
    pub async fn load(&self, run: RunId) -> Result<StoredRun, EngineError> {
        self.log.load(run).await
    }

    /// The events of a run after a position, with large values in their places.
    pub async fn events(&self, run: RunId, after: Seq) -> Result<Vec<Envelope>, EngineError> {
        Ok(self.log.events(run, after).await?)
    }

    /// The events of a run after a position, those of one append together: between them the run was never seen.
    pub async fn appends(&self, run: RunId, after: Seq) -> Result<Vec<Vec<Envelope>>, EngineError> {
        Ok(self.log.appends(run, after).await?)
    }

    /// Runs that change on this node, as they do. What other nodes change is not heard here: whoever must not miss it
    /// looks once in a while.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<RunId> {
        self.wakes.changes()
    }

    /// Owners, approvers and administrators of the run's tenant.
    #[must_use]
    pub fn may_see(&self, who: &Principal, facts: &Facts) -> bool {
        self.log.may_see(who, facts)
    }

    /// What is stored of a run now, if the caller may see it: one request reads one, and hands it on.
    pub async fn snapshot(&self, who: &Principal, run: RunId) -> Result<Snapshot, EngineError> {
        let snapshot = self.views.snapshot(who, run).await?;
        if snapshot.run().state.erased {
            self.erased_reads.record(&self.log, who, run).await;
        }
        Ok(snapshot)
    }

    /// A run, if the caller may see it.
    pub async fn run(&self, who: &Principal, run: RunId) -> Result<RunView, EngineError> {
        self.views.run(who, run).await
    }

    /// What is shown of a run as it was at one moment.
    pub async fn run_view(&self, snapshot: &Snapshot) -> Result<RunView, EngineError> {
        self.views.run_view(snapshot).await
    }

    /// A run, also one whose rows cannot be read, if the caller may see it.
    pub async fn look_up(&self, who: &Principal, run: RunId) -> Result<LookedUpRun, EngineError> {
        self.or_unreadable(who, self.snapshot(who, run).await).await
    }

    /// What was found of a run that may not be readable.
    async fn or_unreadable(
        &self,
        who: &Principal,
        found: Result<Snapshot, EngineError>,
    ) -> Result<LookedUpRun, EngineError> {
        // The result of a run stands in its log: where that cannot be read, neither can the run.
        let found = match found {
            Ok(snapshot) if snapshot.run().outcome().is_some() => {
                let read = snapshot.log().await.map(drop);
                read.map(|()| snapshot).map_err(EngineError::from)
            }
            Ok(_) | Err(_) => found,
        };
        match found {
            Ok(snapshot) => Ok(LookedUpRun::Run(Arc::new(snapshot))),
            Err(EngineError::Store(StoreError::Corrupt { run, why })) => {
                let facts = self.log.store.facts(run).await?;
                let found = UnreadableRun { run, facts, why };
                if !self.log.may_see_unreadable(who, &found) {
                    return Err(EngineError::NotFound);
                }
                Ok(LookedUpRun::Quarantined(Box::new(found)))
            }
            Err(other) => Err(other),
        }
    }

    /// How much there is of what, as `/metrics` shows it. At most a few seconds old, so that scraping costs nothing.
    /// Of runs and holds it counts those of the caller's tenant.
    pub async fn metrics(&self, who: &Principal) -> String {
        let now = self.host.clock.now();
        let mut counted = self.counted.lock().await;
        counted.retain(|_, (at, _)| now.since(*at) < COUNTS_LAST && now >= *at);
        if !counted.contains_key(&who.tenant) {
            match self.log.store.counts(who.tenant.clone()).await {
                Ok(counts) => drop(counted.insert(who.tenant.clone(), (now, counts))),
                Err(error) => tracing::warn!(%error, "metrics: runs and holds could not be counted"),
            }
        }
        let counts = counted.get(&who.tenant).map(|(_, counts)| counts);
        let leases = self.host.at_work.load(Ordering::Relaxed);
        self.host.fixed.telemetry.render(counts, leases, now)
    }

    /// The events of a run after a position, if the caller may see it.
    pub async fn log(&self, who: &Principal, run: RunId, after: Seq) -> Result<Vec<Envelope>, EngineError> {
        let events = self.views.log(who, run, after).await?;
        if events.last().is_some_and(|last| matches!(last.event, Event::RunErased(_))) {
            self.erased_reads.record(&self.log, who, run).await;
        }
        Ok(events)
    }

    /// The events of a run's first append, if the caller may see it: its first words, without the log behind them.
    pub async fn opening(&self, who: &Principal, run: RunId) -> Result<Vec<Envelope>, EngineError> {
        self.views.opening(who, run).await
    }

    /// Runs, newest first.
    pub async fn runs(&self, who: &Principal, list: RunList) -> Result<Page<RunRow>, EngineError> {
        let filter = self.log.run_filter(who, list.agent.as_ref(), list.session.as_ref());
        let is_wanted = |row: &RunRow| {
            let facts = &row.run.facts;
            self.log.may_see(who, facts)
                && list.agent.as_ref().is_none_or(|agent| *agent == facts.agent)
                && list.session.as_ref().is_none_or(|session| *session == facts.session)
        };
        let is_wanted_too = |found: &UnreadableRun| {
            let of = |wanted: &dyn Fn(&Facts) -> bool| found.facts.as_ref().is_some_and(wanted);
            self.log.may_see_unreadable(who, found)
                && list.agent.as_ref().is_none_or(|agent| of(&|facts| *agent == facts.agent))
                && list.session.as_ref().is_none_or(|session| of(&|facts| *session == facts.session))
        };
        let mut page = Page::of(Vec::new(), list.cursor);
        for _ in 0..PAGES_MAX {
            let query = RunQuery {
                tenant: who.tenant.clone(),
                filter: filter.clone(),
                phases: Vec::new(),
                since: None,
                cursor: page.next,
                limit: list.limit - page.items.len() - page.unreadable.len(),
            };
            let found = self.log.store.list_runs(query).await?;
            page.items.extend(found.items.into_iter().filter(is_wanted));
            page.unreadable.extend(found.unreadable.into_iter().filter(is_wanted_too));
            page.next = found.next;
            if page.next.is_none() || page.items.len() + page.unreadable.len() >= list.limit {
                break;
            }
        }
        Ok(page)
    }

    /// Open holds, oldest first where their part says nothing else.
    pub async fn holds(&self, who: &Principal, list: HoldList) -> Result<Page<HoldRow>, EngineError> {
        self.holds_of(who, list, &mut HoldScan { owner: None, until: None, looks: PAGES_MAX }).await
    }

    /// The same within bounds.
    async fn holds_of(
        &self,
        who: &Principal,
        list: HoldList,
        scan: &mut HoldScan<'_>,
    ) -> Result<Page<HoldRow>, EngineError> {
        let filter = match (&list.agent, &list.session, &list.tool) {
            _ if list.part == HoldListPart::Dated => HoldFilter::Dated,
            _ if list.part == HoldListPart::Undated => HoldFilter::Undated,
            // Whoever is not an approver sees few holds: theirs are looked through, not those of everybody.
            (agent, _, _) if !self.log.sees_others(who, agent.as_ref()) => HoldFilter::All,
            (Some(agent), Some(session), _) => HoldFilter::Session(agent.clone(), session.clone()),
            (_, _, Some(tool)) => HoldFilter::Tool(tool.clone()),
            (Some(agent), None, None) => HoldFilter::Agent(agent.clone()),
            (None, _, None) => HoldFilter::All,
        };
        let audience = match scan.owner {
            // An owner is in the audience of each of their holds.
            Some(owner) if who.oversees() => {
                Audience::AnyOf(vec![audience_member(&Party::User(owner.clone()))])
            }
            None if who.oversees() => Audience::Everyone,
            Some(_) | None => Audience::AnyOf(who.parties().map(|party| audience_member(&party)).collect()),
        };
        let is_wanted = |row: &HoldRow| {
            list.agent.as_ref().is_none_or(|agent| *agent == row.agent)
                && list.session.as_ref().is_none_or(|session| *session == row.session)
                && list.tool.as_ref().is_none_or(|tool| Some(tool) == row.tool.as_ref())
        };
        let mut page = Page::of(Vec::new(), list.cursor);
        while scan.looks > 0 {
            scan.looks -= 1;
            let query = HoldQuery {
                tenant: who.tenant.clone(),
                audience: audience.clone(),
                filter: filter.clone(),
                kinds: list.kind.into_iter().collect(),
                cursor: page.next,
                limit: list.limit - page.items.len(),
            };
            let found = self.log.store.list_holds(query).await?;
            let is_late =
                |row: &HoldRow| row.expires_at.is_some_and(|at| scan.until.is_some_and(|until| at > until));
            let is_done = found.items.last().is_some_and(is_late);
            for row in found.items.into_iter().filter(is_wanted) {
                // An audience is as old as its hold. Somebody may have been taken off the list of approvers since.
                if who.sees_all() || self.see(who, row.id.run).await.is_ok() {
                    page.items.push(row);
                }
            }
            page.next = found.next.filter(|_| !is_done);
            if page.next.is_none() || page.items.len() >= list.limit {
                break;
            }
        }
        Ok(page)
    }

    /// A hold, open or decided, if the caller may see it.
    pub async fn hold(&self, who: &Principal, hold: HoldId) -> Result<HoldView, EngineError> {
        self.views.hold(who, hold).await
    }

    /// What is shown of a hold of a run as it was at one moment.
    pub async fn hold_view(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        hold: HoldId,
    ) -> Result<HoldView, EngineError> {
        self.views.hold_view(who, snapshot, hold).await
    }

    /// The receipt of a hold, if the caller may see it.
    pub async fn receipt(&self, who: &Principal, hold: HoldId) -> Result<Receipt, EngineError> {
        self.receipt_in(&self.snapshot(who, hold.run).await?, hold).await
    }

    /// The receipt of a hold of a run as it was at one moment.
    pub async fn receipt_in(&self, snapshot: &Snapshot, hold: HoldId) -> Result<Receipt, EngineError> {
        receipt(hold.key, snapshot.log().await?).ok_or(EngineError::NotFound)
    }

    /// Open holds of the sub-runs that a run waits for, and of theirs.
    pub async fn holds_below(&self, run: &Run) -> Result<Vec<(HoldId, HoldKind)>, EngineError> {
        self.log.holds_below(run).await
    }

    /// Whether the store takes writes.
    pub async fn is_ready(&self) -> Result<(), EngineError> {
        // Through the writer, and it writes nothing: a store that can only read is not ready.
        self.log.store.renew(Vec::new(), self.host.node, self.host.clock.now()).await?;
        Ok(())
    }

    /// What never changes of a run, whoever asks: for those who then look whether they may see it.
    pub async fn facts(&self, run: RunId) -> Result<Option<Facts>, EngineError> {
        Ok(self.log.store.facts(run).await?)
    }

    /// The fold of a run, if the caller may see it.
    pub async fn see(&self, who: &Principal, run: RunId) -> Result<Run, EngineError> {
        Ok(Arc::unwrap_or_clone(self.log.see(who, run).await?))
    }
}
