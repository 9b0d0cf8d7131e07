//! What can be looked at: runs, holds, lists of them, receipts; and waiting until a run settles.
//!
//! Reads only. Whatever the caller may not see is answered like something that does not exist.

use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{Ask, HoldKind, Recorded, name_files};
use standfast_core::id::{HoldId, RunId, Seq, tenant_tag};
use standfast_core::json::RawJson;
use standfast_core::name::{AgentName, SessionId, ToolName};
use standfast_core::project::{HoldRow, RunRow};
use standfast_core::receipt::{Receipt, receipt};
use standfast_core::run::{Facts, Run};
use standfast_core::time::Millis;
use standfast_core::transcript::{approval_text, stored_call};
use standfast_store::{Audience, HoldFilter, HoldQuery, RunFilter, RunQuery, StoreError, Stored, Unreadable};

use super::orders;
use super::{Engine, EngineError, Page};
use crate::auth::{Principal, may_decide, may_log_in, may_see};
use crate::settings::Settings;

/// A list reads this many pages at most before it answers with what it has.
const PAGES_MAX: usize = 16;

/// Counts are told again for this long before they are made anew.
const COUNTS_LAST: Millis = Millis::seconds(5);

/// A run with what it came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    /// The fold of its events.
    pub run: Run,
    /// What came out, once it is over.
    pub result: Option<Body>,
    /// Why it did not complete.
    pub reason: Option<String>,
    /// Open holds of its sub-runs: what it really waits for.
    pub holds_below: Vec<(HoldId, HoldKind)>,
}

/// What looking for a run comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The run.
    Run(Box<RunView>),
    /// Its rows cannot be read: it counts as failed (C35).
    Quarantined(Box<Unreadable>),
}

/// A hold with everything that people need to decide it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldView {
    /// The hold.
    pub row: HoldRow,
    /// The argument text of its call: what will run when it is approved now, or what was last shown.
    pub arguments: Option<RawJson>,
    /// What is asked.
    pub ask: Ask,
    /// The text that people are asked with before a call runs.
    pub prompt: Option<String>,
    /// What its tool does, as the run was told.
    pub description: Option<String>,
    /// Whether what its tool does can be undone.
    pub reversible: Option<bool>,
    /// Its decision.
    pub recorded: Option<Recorded>,
    /// The runs above its run, the root first, each with its agent; empty when it is no sub-run.
    pub path: Vec<(RunId, AgentName)>,
    /// Whether the caller may decide it.
    pub may_decide: bool,
    /// Whether the caller may give the login that it waits for.
    pub may_log_in: bool,
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
    /// Where to go on.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

impl Engine {
    /// What this server is made of.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.shared.settings()
    }

    /// A run, if the caller may see it.
    pub async fn run(&self, who: &Principal, run: RunId) -> Result<RunView, EngineError> {
        let run = self.see(who, run).await?;
        self.view(run).await
    }

    async fn view(&self, run: Run) -> Result<RunView, EngineError> {
        let (result, reason) = match run.outcome() {
            Some(_) => result_of(&self.shared.events(run.facts.id, Seq(0)).await?),
            None => (None, None),
        };
        let holds_below = self.holds_below(&run).await?;
        Ok(RunView { run, result, reason, holds_below })
    }

    /// Open holds of the sub-runs that a run waits for, and of theirs. Depth and number are capped by the core.
    pub(super) async fn holds_below(&self, run: &Run) -> Result<Vec<(HoldId, HoldKind)>, EngineError> {
        let mut found = Vec::new();
        let mut children: Vec<RunId> = run.state.holds.iter().filter_map(|hold| hold.child).collect();
        while let Some(child) = children.pop() {
            // One that is promised and not begun yet holds nothing.
            let Ok(stored) = self.shared.store.load(child).await else { continue };
            for hold in &stored.row.run.state.holds {
                match hold.child {
                    Some(grandchild) => children.push(grandchild),
                    None => found.push((HoldId { run: child, key: hold.key }, hold.kind)),
                }
            }
        }
        Ok(found)
    }

    /// Runs above a run, the root first, each with its agent.
    async fn path_to(&self, run: &Run) -> Result<Vec<(RunId, AgentName)>, EngineError> {
        let (mut path, mut above) = (Vec::new(), run.facts.parent);
        while let Some(parent) = above {
            let facts = self.load(parent.run).await?.row.run.facts;
            path.push((facts.id, facts.agent));
            above = facts.parent;
        }
        path.reverse();
        Ok(path)
    }

    /// A run, also one whose rows cannot be read, if the caller may see it.
    pub async fn look_up(&self, who: &Principal, run: RunId) -> Result<Seen, EngineError> {
        match self.run(who, run).await {
            Ok(view) => Ok(Seen::Run(Box::new(view))),
            Err(EngineError::Store(StoreError::Corrupt { run, why })) => {
                let facts = self.shared.store.facts(run).await?;
                let found = Unreadable { run, facts, why };
                match self.may_see_unreadable(who, &found) {
                    true => Ok(Seen::Quarantined(Box::new(found))),
                    false => Err(EngineError::NotFound),
                }
            }
            Err(other) => Err(other),
        }
    }

    /// How much there is of what, as `/metrics` shows it. At most a few seconds old, so that scraping costs nothing.
    /// Of runs and holds it counts those of the caller's tenant.
    pub async fn metrics(&self, who: &Principal) -> String {
        let shared = &self.shared;
        let now = shared.clock.now();
        let mut counted = shared.counted.lock().await;
        counted.retain(|_, (at, _)| now.since(*at) < COUNTS_LAST && now >= *at);
        if !counted.contains_key(&who.tenant) {
            match shared.store.counts(who.tenant.clone()).await {
                Ok(counts) => drop(counted.insert(who.tenant.clone(), (now, counts))),
                Err(error) => tracing::warn!(%error, "nothing was counted"),
            }
        }
        shared.settings().fixed.telemetry.render(counted.get(&who.tenant).map(|(_, counts)| counts), now)
    }

    /// A run as soon as it waits or is over; as it is when that takes longer than `at_most`.
    pub async fn settled_run(
        &self,
        who: &Principal,
        run: RunId,
        at_most: Millis,
    ) -> Result<RunView, EngineError> {
        match self.settles(run, at_most).await? {
            Some(settled) if self.may_see(who, &settled.facts) => self.view(settled).await,
            Some(_) => Err(EngineError::NotFound),
            None => self.run(who, run).await,
        }
    }

    /// Waits until a run waits or is over, at most this long; none when that takes longer.
    pub async fn settles(&self, run: RunId, at_most: Millis) -> Result<Option<Run>, EngineError> {
        self.waits_for(run, at_most, self.follow(run, Seq(0)).settles()).await
    }

    /// Waits until a run needs somebody or is over, at most this long; none when that takes longer. Jobs of outside
    /// systems and sub-runs that are at work are waited for as well.
    pub async fn needs_somebody(&self, run: RunId, at_most: Millis) -> Result<Option<Run>, EngineError> {
        self.waits_for(run, at_most, self.follow(run, Seq(0)).needs_somebody()).await
    }

    async fn waits_for(
        &self,
        run: RunId,
        at_most: Millis,
        settles: impl Future<Output = Result<Run, EngineError>>,
    ) -> Result<Option<Run>, EngineError> {
        let mut stopping = self.shared.stopping.subscribe();
        tokio::select! {
            settled = self.shared.clock.timeout(at_most, settles) => match settled {
                Some(settled) => return settled.map(Some),
                None => tracing::debug!(%run, "still at work after the longest wait"),
            },
            _ = stopping.wait_for(|stopping| *stopping) => tracing::debug!(%run, "the server stops"),
        }
        Ok(None)
    }

    /// The events of a run after a position, if the caller may see it.
    pub async fn log(&self, who: &Principal, run: RunId, after: Seq) -> Result<Vec<Envelope>, EngineError> {
        self.see(who, run).await?;
        Ok(self.shared.events(run, after).await?)
    }

    /// Runs, newest first.
    pub async fn runs(&self, who: &Principal, list: RunList) -> Result<Page<RunRow>, EngineError> {
        let filter = self.run_filter(who, list.agent.as_ref(), list.session.as_ref());
        let is_wanted = |row: &RunRow| {
            let facts = &row.run.facts;
            self.may_see(who, facts)
                && list.agent.as_ref().is_none_or(|agent| *agent == facts.agent)
                && list.session.as_ref().is_none_or(|session| *session == facts.session)
        };
        let is_wanted_too = |found: &Unreadable| {
            let of = |wanted: &dyn Fn(&Facts) -> bool| found.facts.as_ref().is_some_and(wanted);
            self.may_see_unreadable(who, found)
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
            let found = self.shared.store.list_runs(query).await?;
            page.items.extend(found.items.into_iter().filter(is_wanted));
            page.unreadable.extend(found.unreadable.into_iter().filter(is_wanted_too));
            page.next = found.next;
            if page.next.is_none() || page.items.len() + page.unreadable.len() >= list.limit {
                break;
            }
        }
        Ok(page)
    }

    /// Open holds, oldest first.
    pub async fn holds(&self, who: &Principal, list: HoldList) -> Result<Page<HoldRow>, EngineError> {
        let filter = match (&list.agent, &list.session, &list.tool) {
            // Whoever is no approver sees few holds: theirs are looked through, not those of everybody.
            (agent, _, _) if !self.sees_others(who, agent.as_ref()) => HoldFilter::All,
            (Some(agent), Some(session), _) => HoldFilter::Session(agent.clone(), session.clone()),
            (_, _, Some(tool)) => HoldFilter::Tool(tool.clone()),
            (Some(agent), None, None) => HoldFilter::Agent(agent.clone()),
            (None, _, None) => HoldFilter::All,
        };
        let audience = match who.is_admin() {
            true => Audience::Everyone,
            false => Audience::AnyOf(who.parties().map(|party| orders::audience(&party)).collect()),
        };
        let is_wanted = |row: &HoldRow| {
            list.agent.as_ref().is_none_or(|agent| *agent == row.agent)
                && list.session.as_ref().is_none_or(|session| *session == row.session)
                && list.tool.as_ref().is_none_or(|tool| Some(tool) == row.tool.as_ref())
        };
        let mut page = Page::of(Vec::new(), list.cursor);
        for _ in 0..PAGES_MAX {
            let query = HoldQuery {
                tenant: who.tenant.clone(),
                audience: audience.clone(),
                filter: filter.clone(),
                kinds: list.kind.into_iter().collect(),
                cursor: page.next,
                limit: list.limit - page.items.len(),
            };
            let found = self.shared.store.list_holds(query).await?;
            for row in found.items.into_iter().filter(is_wanted) {
                // An audience is as old as its hold. Somebody may have been taken off the list of approvers since.
                if who.is_admin() || self.see(who, row.id.run).await.is_ok() {
                    page.items.push(row);
                }
            }
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= list.limit {
                break;
            }
        }
        Ok(page)
    }

    /// A hold, open or decided, if the caller may see it.
    pub async fn hold(&self, who: &Principal, hold: HoldId) -> Result<HoldView, EngineError> {
        let run = self.see(who, hold.run).await?;
        self.hold_of(who, run, hold).await
    }

    /// A hold as soon as its run waits or is over; as it is when that takes longer than `at_most`.
    pub async fn settled_hold(
        &self,
        who: &Principal,
        hold: HoldId,
        at_most: Millis,
    ) -> Result<HoldView, EngineError> {
        match self.settles(hold.run, at_most).await? {
            Some(settled) if self.may_see(who, &settled.facts) => self.hold_of(who, settled, hold).await,
            Some(_) => Err(EngineError::NotFound),
            None => self.hold(who, hold).await,
        }
    }

    async fn hold_of(&self, who: &Principal, run: Run, hold: HoldId) -> Result<HoldView, EngineError> {
        let row = self.shared.store.find_hold(hold).await?.ok_or(EngineError::NotFound)?;
        let events = self.shared.events(hold.run, Seq(0)).await?;
        let arguments = arguments(&row, &events);
        let definition = self.shared.definition(&run.facts.agent, run.state.definition).await?;
        let spec = row.tool.as_ref().and_then(|tool| definition.tools.get(tool));
        let prompt = match (row.kind, &row.tool, &arguments) {
            (HoldKind::Approval, Some(tool), Some(arguments)) => {
                let own = spec.and_then(|spec| spec.approval_prompt.as_deref());
                Some(approval_text(own, tool, arguments))
            }
            (
                HoldKind::Approval
                | HoldKind::Input
                | HoldKind::External
                | HoldKind::Auth
                | HoldKind::Recovery,
                _,
                _,
            ) => None,
        };
        let approvers = self.shared.approvers(&run.facts.agent);
        let may_log_in = may_log_in(who, &run.facts, (&row).into(), &approvers);
        let may_decide = may_decide(who, &run.facts, (&row).into(), &approvers).is_some();
        let recorded = row.closed.as_ref().and_then(|closed| recorded(closed.seq, &events));
        let path = self.path_to(&run).await?;
        Ok(HoldView {
            ask: asked(&row, &events),
            description: spec.map(|spec| spec.description.clone()),
            reversible: spec.map(|spec| spec.reversible),
            row,
            arguments,
            prompt,
            recorded,
            path,
            may_decide,
            may_log_in,
        })
    }

    /// The receipt of a hold, if the caller may see it.
    pub async fn receipt(&self, who: &Principal, hold: HoldId) -> Result<Receipt, EngineError> {
        self.see(who, hold.run).await?;
        let events = self.shared.events(hold.run, Seq(0)).await?;
        receipt(hold.key, &events).ok_or(EngineError::NotFound)
    }

    /// Whether the store takes writes.
    pub async fn is_ready(&self) -> Result<(), EngineError> {
        // Through the writer, and it writes nothing: a store that can only read is not ready.
        self.shared.store.renew(Vec::new(), self.shared.node, self.shared.clock.now()).await?;
        Ok(())
    }

    /// What never changes of a run, whoever asks: for those who then look whether they may see it.
    pub async fn facts(&self, run: RunId) -> Result<Option<Facts>, EngineError> {
        Ok(self.shared.store.facts(run).await?)
    }

    /// The fold of a run, if the caller may see it.
    pub async fn see(&self, who: &Principal, run: RunId) -> Result<Run, EngineError> {
        Ok(self.visible(who, run).await?.row.run)
    }

    /// A run as it is stored, if the caller may see it. A foreign run and one that does not exist look alike (T15).
    pub(super) async fn visible(&self, who: &Principal, run: RunId) -> Result<Stored, EngineError> {
        self.stored_if(who, run, |facts| self.may_see(who, facts)).await
    }

    /// Whether somebody sees runs of others: of this agent, or of any.
    pub(super) fn sees_others(&self, who: &Principal, agent: Option<&AgentName>) -> bool {
        let settings = self.shared.settings();
        let mut agents = settings.agents.iter().filter(|(name, _)| agent.is_none_or(|agent| agent == *name));
        who.is_admin() || agents.any(|(_, agent)| agent.approvers.include(who))
    }

    /// By what a list of runs is looked for: whoever sees only their own runs looks at no others.
    pub(super) fn run_filter(
        &self,
        who: &Principal,
        agent: Option<&AgentName>,
        session: Option<&SessionId>,
    ) -> RunFilter {
        match (self.sees_others(who, agent), agent.cloned(), session.cloned()) {
            (false, Some(agent), Some(session)) => RunFilter::SessionOf(who.user.clone(), agent, session),
            (false, _, _) => RunFilter::Owner(who.user.clone()),
            (true, Some(agent), Some(session)) => RunFilter::Session(agent, session),
            (true, Some(agent), None) => RunFilter::Agent(agent),
            (true, None, _) => RunFilter::All,
        }
    }

    /// Owners, approvers and administrators of the run's tenant.
    #[must_use]
    pub fn may_see(&self, who: &Principal, facts: &Facts) -> bool {
        let agent = self.shared.agent(&facts.agent).ok();
        may_see(who, facts, agent.as_ref().map(|agent| &agent.approvers))
    }

    /// Of a run that does not even say whose it is, only its id speaks, and only to administrators.
    pub(super) fn may_see_unreadable(&self, who: &Principal, found: &Unreadable) -> bool {
        match &found.facts {
            Some(facts) => self.may_see(who, facts),
            None => who.is_admin() && found.run.tenant_tag() == tenant_tag(&who.tenant),
        }
    }
}

/// What a run came to, and why it did not complete.
pub(super) fn result_of(events: &[Envelope]) -> (Option<Body>, Option<String>) {
    let (mut result, mut reason) = (None, None);
    for envelope in events {
        if let Event::ModelReplied(replied) = &envelope.event {
            result = replied.reply.text.clone().or(result);
        } else if let Event::RunEnded(ended) = &envelope.event {
            (result, reason) = (ended.result.clone().or(result), ended.reason.clone());
        }
    }
    (result, reason)
}

/// Of an open hold what will run when it is approved now; of a decided one what was last shown.
fn arguments(row: &HoldRow, events: &[Envelope]) -> Option<RawJson> {
    let text = match &row.closed {
        None => stored_call(events, row.id.key.call)?.arguments,
        Some(_) => {
            let shown = receipt(row.id.key, events)?.shown.pop()?.arguments?;
            shown.inline()?.to_owned()
        }
    };
    RawJson::parse(&text).ok()
}

/// What people were asked when it opened.
pub(super) fn asked(row: &HoldRow, events: &[Envelope]) -> Ask {
    let opened = events.iter().find(|envelope| envelope.seq == row.at);
    let Some(Event::HoldOpened(opened)) = opened.map(|envelope| &envelope.event) else {
        return Ask::default();
    };
    // Other arguments name other files.
    let edited = events.iter().rev().find_map(|envelope| {
        let Event::HoldEdited(edited) = &envelope.event else { return None };
        (edited.hold == opened.hold).then_some(&edited.edited.files)
    });
    let ask = opened.ask.clone();
    match edited {
        Some(files) => Ask { reason: name_files(ask.reason, files), ..ask },
        None => ask,
    }
}

fn recorded(at: Seq, events: &[Envelope]) -> Option<Recorded> {
    let envelope = events.iter().find(|envelope| envelope.seq == at)?;
    let Event::HoldResolved(resolved) = &envelope.event else { return None };
    Some(Recorded {
        resolution: resolved.resolution.clone(),
        by: envelope.actor.clone(),
        at: envelope.at,
        idempotency_key: resolved.idempotency_key.clone(),
    })
}
