//! What can be seen of inboxes and their tasks. Reads only.
//!
//! Owners, approvers and administrators see a task, and whoever may work on tasks; for everyone else it does not exist.

use std::collections::BTreeMap;

use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::name::InboxName;
use standfast_core::project::RunRow;
use standfast_core::run::{Facts, Run};
use standfast_store::{Audience, HoldFilter, HoldQuery, InboxCounts, RunFilter, RunQuery, Stored};

use super::{InboxView, TaskList, TaskView};
use crate::auth::{Principal, Scope};
use crate::engine::identify::needs;
use crate::engine::{Engine, EngineError, Page, orders};

/// A list reads this many pages at most before it answers with what it has.
const PAGES_MAX: usize = 16;

impl Engine {
    /// The inboxes: those that have had work, and those that agents of this server serve.
    pub async fn inboxes(&self, who: &Principal) -> Result<Vec<InboxView>, EngineError> {
        needs(who, Scope::InboxWork)?;
        let counted = self.shared.store.inbox_counts(who.tenant.clone()).await?;
        let settings = self.shared.settings();
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
        Ok(all.into_values().collect())
    }

    /// A task, if the caller may see it.
    pub async fn task(
        &self,
        who: &Principal,
        inbox: &InboxName,
        run: RunId,
    ) -> Result<TaskView, EngineError> {
        let stored = self.task_row(who, inbox, run).await?;
        self.task_view(who, stored.row.run).await
    }

    /// Tasks of an inbox, newest first. What is wanted of them is told by where they stand.
    pub async fn tasks(
        &self,
        who: &Principal,
        list: TaskList,
        is_wanted: impl Fn(&Run, &[(HoldId, HoldKind)]) -> bool,
    ) -> Result<Page<TaskView>, EngineError> {
        // Whoever sees only what they added themselves does not look through what others did.
        let filter = match who.has(Scope::InboxWork) || self.sees_others(who, None) {
            true => RunFilter::Inbox(list.inbox.clone()),
            false => RunFilter::Owner(who.user.clone()),
        };
        let is_here = |facts: &Facts| facts.inbox.as_ref().is_some_and(|place| place.inbox == list.inbox);
        let mut page = Page::of(Vec::new(), list.cursor);
        for _ in 0..PAGES_MAX {
            let query = RunQuery {
                tenant: who.tenant.clone(),
                filter: filter.clone(),
                phases: list.phases.clone(),
                since: None,
                cursor: page.next,
                limit: list.limit - page.items.len(),
            };
            let found = self.shared.store.list_runs(query).await?;
            let seen = |row: &RunRow| is_here(&row.run.facts) && self.may_see_task(who, &row.run.facts);
            for row in found.items.into_iter().filter(seen) {
                let below = self.holds_below(&row.run).await?;
                if is_wanted(&row.run, &below) {
                    page.items.push(self.task_view(who, row.run).await?);
                }
            }
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= list.limit {
                break;
            }
        }
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
        let audience = match who.is_admin() {
            true => Audience::Everyone,
            false => Audience::AnyOf(who.parties().map(|party| orders::audience(&party)).collect()),
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
            let found = self.shared.store.list_holds(query).await?;
            for hold in found.items.into_iter().filter(|hold| hold.inbox.is_some()) {
                let is_there = page.items.iter().any(|task| task.run.facts.id == hold.id.run);
                let run = match is_there {
                    true => None,
                    false => self.see(who, hold.id.run).await.ok(),
                };
                let Some(run) = run else { continue };
                if is_waiting(&run, &self.holds_below(&run).await?) {
                    page.items.push(self.task_view(who, run).await?);
                }
            }
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= limit {
                break;
            }
        }
        Ok(page)
    }

    async fn task_view(&self, who: &Principal, run: Run) -> Result<TaskView, EngineError> {
        let events = self.shared.events(run.facts.id, Seq(0)).await?;
        let below = self.holds_below(&run).await?;
        let own = run.state.holds.iter().map(|hold| (HoldId { run: run.facts.id, key: hold.key }, hold.kind));
        let mut waits_for = Vec::new();
        for (id, kind) in own.chain(below.iter().copied()).filter(|_| run.is_held()) {
            // What only an outside system can move is nobody's to answer here (C25).
            if kind != HoldKind::External
                && let Ok(view) = self.hold(who, id).await
            {
                waits_for.push(view);
            }
        }
        Ok(TaskView { run, events, below, waits_for })
    }

    /// A task as it is stored, if it is in this inbox and the caller may see it.
    pub(super) async fn task_row(
        &self,
        who: &Principal,
        inbox: &InboxName,
        run: RunId,
    ) -> Result<Stored, EngineError> {
        let is_in_it = |facts: &Facts| facts.inbox.as_ref().is_some_and(|place| place.inbox == *inbox);
        self.stored_if(who, run, |facts| is_in_it(facts) && self.may_see_task(who, facts)).await
    }

    fn may_see_task(&self, who: &Principal, facts: &Facts) -> bool {
        let works = who.tenant == facts.tenant && who.has(Scope::InboxWork);
        facts.inbox.is_some() && (works || self.may_see(who, facts))
    }
}
