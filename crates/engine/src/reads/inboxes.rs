//! What can be seen of inboxes and their tasks. Reads only.
//!
//! Owners, approvers and administrators see a task, and whoever may work on tasks; for everyone else it does not exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::event::Envelope;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId};
use standfast_core::name::{AgentName, InboxName};
use standfast_core::project::{Phase, RunRow};
use standfast_core::run::{Facts, Run};
use standfast_store::{
    Audience, HoldFilter, HoldQuery, InboxCounts, Page, RunFilter, RunQuery, StoreError, UnreadableRun,
};

use super::Reads;
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::host::Host;
use crate::log::{HoldView, Log, Snapshot, audience_member, needs};

/// A list reads this many pages at most before it answers with what it has.
const PAGES_MAX: usize = 16;

/// A task with everything that is shown of it.
#[derive(Debug, Clone)]
pub struct TaskView {
    /// The fold of its events.
    pub run: Run,
    /// Its events.
    pub events: Vec<Envelope>,
    /// Open holds of its sub-runs: what it really waits for.
    pub below: Vec<(HoldId, HoldKind)>,
    /// What it waits for that somebody can do something about, as far as the caller may see that.
    pub waits_for: Vec<HoldView>,
}

/// The result of looking for a task.
#[derive(Debug, Clone)]
pub enum LookedUpTask {
    /// The task.
    Task(Box<TaskView>),
    /// Its row or its log cannot be read: what else is known of it, and why (C35).
    Unreadable(Box<UnreadableRun>),
}

/// Which tasks are wanted. Newest first.
#[derive(Debug, Clone)]
pub struct TaskList {
    /// Of which inbox.
    pub inbox: InboxName,
    /// Only those in one of these phases; empty means any.
    pub phases: Vec<Phase>,
    /// Where to go on.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// An inbox.
#[derive(Debug, Clone)]
pub struct InboxView {
    /// Its tasks by phase.
    pub counts: InboxCounts,
    /// The agents of this server that serve it.
    pub agents: Vec<AgentName>,
}

/// Inboxes and their tasks, as callers see them.
pub struct Inboxes {
    host: Arc<Host>,
    log: Arc<Log>,
    reads: Arc<Reads>,
}

impl Inboxes {
    pub(crate) fn new(reads: Arc<Reads>) -> Inboxes {
        Inboxes { host: reads.host.clone(), log: reads.log.clone(), reads }
    }

    /// The inboxes: those that have had work, and those that agents of this server serve.
    pub async fn list(&self, who: &Principal) -> Result<Vec<InboxView>, EngineError> {
        let reads_all = who.is_auditor() || who.is_operator();
        if !reads_all {
            needs(who, Scope::InboxWork)?;
        }
        let counted = self.log.store.inbox_counts(who.tenant.clone()).await?;
        let settings = self.host.settings();
        let mut all: BTreeMap<InboxName, InboxView> = BTreeMap::new();
        let empty = |inbox: &InboxName| InboxView {
            counts: InboxCounts { inbox: inbox.clone(), runs: BTreeMap::new() },
            agents: Vec::new(),
        };
        for counts in counted {
            all.insert(counts.inbox.clone(), InboxView { counts, agents: Vec::new() });
        }
        for (name, agent) in &settings.agents {
            for served in agent.serves.iter().flat_map(|serves| &serves.inboxes) {
                let view = all.entry(served.name.clone()).or_insert_with(|| empty(&served.name));
                view.agents.push(name.clone());
            }
        }
        all.retain(|inbox, _| reads_all || who.works_in(inbox));
        Ok(all.into_values().collect())
    }

    /// A task, if the caller may see it.
    pub async fn task(
        &self,
        who: &Principal,
        inbox: &InboxName,
        run: RunId,
    ) -> Result<TaskView, EngineError> {
        self.task_view(who, &self.snapshot(who, inbox, run).await?).await
    }

    /// A task, also one that cannot be read, if the caller may see it.
    pub async fn look_up(
        &self,
        who: &Principal,
        inbox: &InboxName,
        run: RunId,
    ) -> Result<LookedUpTask, EngineError> {
        match self.task(who, inbox, run).await {
            Ok(view) => Ok(LookedUpTask::Task(Box::new(view))),
            Err(EngineError::Store(StoreError::Corrupt { run: bad, why })) if bad == run => {
                let facts = self.log.store.facts(run).await?;
                let found = UnreadableRun { run, facts, why };
                if !self.may_see_unreadable(who, inbox, &found) {
                    return Err(EngineError::NotFound);
                }
                Ok(LookedUpTask::Unreadable(Box::new(found)))
            }
            Err(error) => Err(error),
        }
    }

    /// Tasks of an inbox, newest first, and those that cannot be read. Their status says what is wanted of them.
    pub async fn tasks(
        &self,
        who: &Principal,
        list: TaskList,
        is_wanted: impl Fn(&Run, &[(HoldId, HoldKind)]) -> bool,
    ) -> Result<Page<TaskView>, EngineError> {
        // Whoever sees only what they added themselves does not look through what others did.
        let filter = if who.works_in(&list.inbox) || self.log.sees_others(who, None) {
            RunFilter::Inbox(list.inbox.clone())
        } else {
            RunFilter::Owner(who.user.clone())
        };
        let is_here = |facts: &Facts| facts.inbox.as_ref().is_some_and(|place| place.inbox == list.inbox);
        // One that cannot be read has failed, and does not hide the others (C35).
        let wants_failed = list.phases.is_empty() || list.phases.contains(&Phase::Failed);
        let mut page: Page<TaskView> = Page::of(Vec::new(), list.cursor);
        for _ in 0..PAGES_MAX {
            let query = RunQuery {
                tenant: who.tenant.clone(),
                filter: filter.clone(),
                phases: list.phases.clone(),
                since: None,
                cursor: page.next,
                limit: list.limit - page.items.len(),
            };
            let found = self.log.store.list_runs(query).await?;
            let seen = |row: &RunRow| is_here(&row.run.facts) && self.may_see_task(who, &row.run.facts);
            for row in found.items.into_iter().filter(seen) {
                let below = self.log.holds_below(&row.run).await?;
                if !is_wanted(&row.run, &below) {
                    continue;
                }
                let snapshot = Snapshot::of_row(self.log.clone(), row);
                match self.task_view(who, &snapshot).await {
                    Ok(view) => page.items.push(view),
                    Err(EngineError::Store(StoreError::Corrupt { run, why })) => {
                        let facts = Some(snapshot.run().facts.clone());
                        page.unreadable.push(UnreadableRun { run, facts, why });
                    }
                    Err(error) => return Err(error),
                }
            }
            page.unreadable.extend(found.unreadable);
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= list.limit {
                break;
            }
        }
        page.unreadable.retain(|found| wants_failed && self.may_see_unreadable(who, &list.inbox, found));
        Ok(page)
    }

    /// Tasks that wait for somebody, the longest waiting first: of one inbox, or of all.
    pub async fn waiting_tasks(
        &self,
        who: &Principal,
        inbox: Option<InboxName>,
        (cursor, limit): (Option<u64>, usize),
        is_waiting: impl Fn(&Run, &[(HoldId, HoldKind)]) -> bool,
    ) -> Result<Page<TaskView>, EngineError> {
        let audience = if who.oversees() {
            Audience::Everyone
        } else {
            Audience::AnyOf(who.parties().map(|party| audience_member(&party)).collect())
        };
        let filter = inbox.map_or(HoldFilter::All, HoldFilter::Inbox);
        let mut page: Page<TaskView> = Page::of(Vec::new(), cursor);
        for _ in 0..PAGES_MAX {
            let query = HoldQuery {
                tenant: who.tenant.clone(),
                audience: audience.clone(),
                filter: filter.clone(),
                kinds: Vec::new(),
                cursor: page.next,
                limit: limit - page.items.len(),
            };
            let found = self.log.store.list_holds(query).await?;
            for hold in found.items.into_iter().filter(|hold| hold.inbox.is_some()) {
                let is_there = page.items.iter().any(|task| task.run.facts.id == hold.id.run);
                if is_there {
                    continue;
                }
                let Ok(snapshot) = self.log.snapshot(who, hold.id.run).await else { continue };
                if is_waiting(snapshot.run(), &self.log.holds_below(snapshot.run()).await?) {
                    match self.task_view(who, &snapshot).await {
                        Ok(view) => page.items.push(view),
                        // It has failed, which its inbox shows.
                        Err(EngineError::Store(StoreError::Corrupt { .. })) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= limit {
                break;
            }
        }
        Ok(page)
    }

    /// What is shown of a task as it was at one moment.
    pub async fn task_view(&self, who: &Principal, snapshot: &Snapshot) -> Result<TaskView, EngineError> {
        let run = snapshot.run();
        let below = self.log.holds_below(run).await?;
        let waits_for =
            if run.is_held() { self.open_holds(who, snapshot, &below).await? } else { Vec::new() };
        let events = snapshot.log().await?.to_vec();
        Ok(TaskView { run: run.clone(), events, below, waits_for })
    }

    /// The same of whoever names a hold: it can be answered while other calls of the task still run (C36).
    pub async fn task_view_with_open_holds(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
    ) -> Result<TaskView, EngineError> {
        let run = snapshot.run();
        let below = self.log.holds_below(run).await?;
        let waits_for = self.open_holds(who, snapshot, &below).await?;
        let events = snapshot.log().await?.to_vec();
        Ok(TaskView { run: run.clone(), events, below, waits_for })
    }

    /// What somebody can do something about, as far as the caller may see it.
    async fn open_holds(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        below: &[(HoldId, HoldKind)],
    ) -> Result<Vec<HoldView>, EngineError> {
        let run = snapshot.run();
        let own = run.state.holds.iter().map(|hold| (HoldId { run: run.facts.id, key: hold.key }, hold.kind));
        let mut found = Vec::new();
        for (id, kind) in own.chain(below.iter().copied()) {
            // What only an outside system can move is nobody's to answer here (C25).
            if kind == HoldKind::External {
                continue;
            }
            let view = if id.run == run.facts.id && self.log.may_see(who, &run.facts) {
                self.reads.views().hold_with_drift(who, snapshot, id).await
            } else {
                self.reads.hold(who, id).await
            };
            found.extend(view);
        }
        Ok(found)
    }

    /// What is stored of a task now, if it is in this inbox and the caller may see it.
    pub async fn snapshot(
        &self,
        who: &Principal,
        inbox: &InboxName,
        run: RunId,
    ) -> Result<Snapshot, EngineError> {
        let is_in_it = |facts: &Facts| facts.inbox.as_ref().is_some_and(|place| place.inbox == *inbox);
        let may = |facts: &Facts| is_in_it(facts) && self.may_see_task(who, facts);
        Ok(Snapshot::new(self.log.clone(), self.log.stored_if(who, run, may).await?))
    }

    /// Whether one that cannot be read is a task of this inbox that the caller may see.
    fn may_see_unreadable(&self, who: &Principal, inbox: &InboxName, found: &UnreadableRun) -> bool {
        found.facts.as_ref().is_some_and(|facts| {
            facts.inbox.as_ref().is_some_and(|place| place.inbox == *inbox) && self.may_see_task(who, facts)
        })
    }

    fn may_see_task(&self, who: &Principal, facts: &Facts) -> bool {
        let Some(place) = &facts.inbox else { return false };
        let works = who.tenant == facts.tenant && who.works_in(&place.inbox);
        works || self.log.may_see(who, facts)
    }
}
