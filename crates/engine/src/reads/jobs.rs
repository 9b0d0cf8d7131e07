//! Outside jobs as callers see them: which there are, how each stands, what a conversation is waiting for.
//!
//! Everything here is read from the log of runs (`standfast_core::job`); `submit/reports.rs` is how jobs report. A job that
//! said it works on it and went silent waits again after a while: nothing has to be written for that to be seen, and
//! `work/job_sweep.rs` writes it down so that other readers of the database see it too.

use std::collections::BTreeSet;
use std::sync::Arc;

use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::name::{AgentName, SessionId};
use standfast_core::run::{Stage, Status, status};
use standfast_core::time::Timestamp;
use standfast_store::{CallQuery, CallStatus, Page, RunFilter, RunQuery, SessionKey, StoreError};

use super::{HoldList, HoldListPart, Reads, SessionError, SessionName, Sessions};
use crate::EngineError;
use crate::auth::Principal;
use crate::log::{JobView, Log, Snapshot};

/// Holds that are read at once.
const AT_ONCE: usize = 200;

/// A list reads this many pages at most before it answers with what it has; its cursor says where to go on.
const PAGES_MAX: usize = 16;

/// Which jobs are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobList {
    /// Of one agent.
    pub agent: Option<AgentName>,
    /// Of one conversation.
    pub session: Option<SessionId>,
    /// Those that have ended instead of those that have not.
    pub over: bool,
    /// Only those whose runs changed at this instant or later; none means any. For jobs that have ended.
    pub since: Option<Timestamp>,
    /// Where to go on.
    pub cursor: Option<u64>,
    /// How many at most; a page has whole runs, so it may have a few more.
    pub limit: usize,
}

/// A conversation that waits for outside jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingSession {
    /// Which.
    pub key: SessionKey,
    /// What it waits for.
    pub now: SessionNow,
}

/// What a conversation is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionNow {
    /// Nothing.
    Idle,
    /// Working.
    Busy,
    /// It waits for somebody, and for no outside job.
    Asks(HoldKind),
    /// The model failed and is asked again.
    Retry {
        /// How often it failed.
        attempt: u32,
        /// What it said.
        message: String,
        /// When it is asked again.
        next: Timestamp,
    },
    /// It waits for an outside job.
    Waiting {
        /// The oldest of those that it waits for.
        hold: HoldId,
        /// The tool whose call waits, if it is one.
        tool: Option<String>,
        /// Since when.
        since: Timestamp,
        /// Until when at most.
        until: Option<Timestamp>,
    },
}

/// Outside jobs, as callers see them.
pub struct Jobs {
    log: Arc<Log>,
    reads: Arc<Reads>,
    sessions: Arc<Sessions>,
}

impl Jobs {
    pub(crate) fn new(reads: Arc<Reads>, sessions: Arc<Sessions>) -> Jobs {
        Jobs { log: reads.log.clone(), reads, sessions }
    }

    /// A job, if the caller may see its run.
    pub async fn job(&self, who: &Principal, id: HoldId) -> Result<JobView, EngineError> {
        self.log.job_in(&self.log.snapshot(who, id.run).await?, id).await
    }

    /// Jobs that the caller may see: those that are not over, oldest first, or those that are, of the newest runs first.
    /// Following the cursors gives each of them.
    pub async fn list(&self, who: &Principal, list: JobList) -> Result<Page<JobView>, EngineError> {
        let wanted = CallQuery {
            tenant: who.tenant.clone(),
            session: list.session.as_ref().map(ToString::to_string),
            statuses: if list.over { CallStatus::OVER.to_vec() } else { CallStatus::OPEN.to_vec() },
        };
        // A store with an index of jobs knows them all.
        if let Some(found) = self.log.store.find_calls(wanted).await? {
            return self.indexed_jobs(who, &list, found).await;
        }
        if list.over { self.jobs_over(who, &list).await } else { self.open_jobs(who, &list).await }
    }

    /// What an index names, as the log has it now. The cursor counts them.
    async fn indexed_jobs(
        &self,
        who: &Principal,
        list: &JobList,
        ids: Vec<HoldId>,
    ) -> Result<Page<JobView>, EngineError> {
        let mut found = Vec::new();
        for id in ids {
            match self.job(who, id).await {
                Ok(view) => found.push(view),
                // Of others, forgotten, or not readable: it does not hide the rest.
                Err(EngineError::NotFound | EngineError::Store(StoreError::Corrupt { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        found.retain(|view| view.job.is_open() != list.over);
        found.retain(|view| list.agent.as_ref().is_none_or(|agent| view.run.agent == *agent));
        found.sort_by_key(|view| (view.job.created_at, view.job.key.call));
        let from = list.cursor.and_then(|cursor| usize::try_from(cursor).ok()).unwrap_or_default();
        let upto = from.saturating_add(list.limit);
        let next = (found.len() > upto).then(|| u64::try_from(upto).unwrap_or(u64::MAX));
        Ok(Page::of(found.into_iter().skip(from).take(list.limit).collect(), next))
    }

    async fn open_jobs(&self, who: &Principal, list: &JobList) -> Result<Page<JobView>, EngineError> {
        let (mut found, mut cursor) = (Vec::new(), list.cursor);
        loop {
            let wanted = HoldList {
                kind: Some(HoldKind::External),
                agent: list.agent.clone(),
                tool: None,
                session: list.session.clone(),
                part: HoldListPart::All,
                cursor,
                limit: AT_ONCE.min(list.limit.saturating_sub(found.len()).max(1)),
            };
            let page = self.reads.holds(who, wanted).await?;
            let runs: BTreeSet<RunId> = page.items.iter().map(|hold| hold.id.run).collect();
            for run in runs {
                let views = self.jobs_of(run).await?.into_iter();
                found.extend(views.filter(|view| page.items.iter().any(|hold| hold.id == view.id())));
            }
            cursor = page.next;
            if cursor.is_none() || found.len() >= list.limit {
                break;
            }
        }
        found.sort_by_key(|view| (view.job.created_at, view.job.key.call));
        Ok(Page::of(found, cursor))
    }

    async fn jobs_over(&self, who: &Principal, list: &JobList) -> Result<Page<JobView>, EngineError> {
        // Runs with jobs have an index; whoever sees only their own runs looks at those, and a conversation has few.
        let filter = match self.log.run_filter(who, list.agent.as_ref(), list.session.as_ref()) {
            RunFilter::All | RunFilter::Agent(_) => RunFilter::WithJobs,
            other @ (RunFilter::Session(..)
            | RunFilter::SessionOf(..)
            | RunFilter::Owner(_)
            | RunFilter::Inbox(_)
            | RunFilter::WithJobs
            | RunFilter::Claimable(..)) => other,
        };
        let (mut found, mut cursor) = (Vec::new(), list.cursor);
        for _ in 0..PAGES_MAX {
            let query = RunQuery {
                tenant: who.tenant.clone(),
                filter: filter.clone(),
                phases: Vec::new(),
                since: list.since,
                cursor,
                limit: AT_ONCE.min(list.limit.saturating_sub(found.len()).max(1)),
            };
            let page = self.log.store.list_runs(query).await?;
            for row in page.items {
                let facts = &row.run.facts;
                let is_wanted = list.session.as_ref().is_none_or(|session| *session == facts.session)
                    && list.agent.as_ref().is_none_or(|agent| *agent == facts.agent);
                if !is_wanted || row.run.state.calls_made == 0 || !self.log.may_see(who, facts) {
                    continue;
                }
                found.extend(self.jobs_of(facts.id).await?.into_iter().filter(|view| !view.job.is_open()));
            }
            cursor = page.next;
            if cursor.is_none() || found.len() >= list.limit {
                break;
            }
        }
        Ok(Page::of(found, cursor))
    }

    /// Conversations that wait for outside jobs, the longest waiting first (S2-12). Following the cursors gives each of them
    /// once: it stands where the oldest of its jobs does.
    pub async fn waiting_sessions(
        &self,
        who: &Principal,
        (cursor, limit): (Option<u64>, usize),
    ) -> Result<Page<WaitingSession>, EngineError> {
        let mut page = Page::of(Vec::new(), cursor);
        for _ in 0..PAGES_MAX {
            let wanted = HoldList {
                kind: Some(HoldKind::External),
                agent: None,
                tool: None,
                session: None,
                part: HoldListPart::All,
                cursor: page.next,
                limit: limit.saturating_sub(page.items.len()).max(1),
            };
            let found = self.reads.holds(who, wanted).await?;
            for hold in found.items {
                let Ok(run) = self.log.see(who, hold.id.run).await else { continue };
                let key = SessionKey::of(&run.facts);
                let name = SessionName {
                    session: key.session.clone(),
                    agent: Some(key.agent.clone()),
                    owner: Some(key.owner.clone()),
                };
                match self.session_now(who, &name).await {
                    Ok(now @ SessionNow::Waiting { hold: oldest, .. }) if oldest == hold.id => {
                        page.items.push(WaitingSession { key, now });
                    }
                    // It stands elsewhere, or does something else; one that is gone does not hide the others.
                    Ok(_) | Err(_) => {}
                }
            }
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= limit {
                break;
            }
        }
        Ok(page)
    }

    /// The jobs of a run. Of one that is erased, or cannot be read, none: it does not hide the others.
    async fn jobs_of(&self, run: RunId) -> Result<Vec<JobView>, EngineError> {
        let found = match self.log.any_snapshot(run).await {
            Ok(snapshot) => self.jobs_in(&snapshot).await,
            Err(error) => Err(error),
        };
        match found {
            Err(EngineError::NotFound | EngineError::Store(StoreError::Corrupt { .. })) => Ok(Vec::new()),
            Ok(_) | Err(_) => found,
        }
    }

    async fn jobs_in(&self, snapshot: &Snapshot) -> Result<Vec<JobView>, EngineError> {
        let run = snapshot.run();
        if run.state.erased {
            return Ok(Vec::new());
        }
        let jobs = self.log.shown_jobs(snapshot.log().await?).into_iter();
        Ok(jobs.map(|job| JobView { run: run.facts.clone(), job }).collect())
    }

    /// The jobs of a run, if the caller may see it.
    pub async fn run_jobs(&self, who: &Principal, run: RunId) -> Result<Vec<JobView>, EngineError> {
        let snapshot = self.log.snapshot(who, run).await?;
        self.jobs_in(&snapshot).await
    }

    /// Every job of a conversation, in the order in which they began.
    pub async fn session_jobs(
        &self,
        who: &Principal,
        name: &SessionName,
    ) -> Result<Vec<JobView>, SessionError> {
        let mut found = Vec::new();
        for row in self.sessions.session_runs(who, name).await? {
            found.extend(self.jobs_of(row.run.facts.id).await?);
        }
        found.sort_by_key(|view| (view.job.created_at, view.job.key.call));
        Ok(found)
    }

    /// What a conversation is doing: work first, then what is tried again, then what is pending.
    pub async fn session_now(&self, who: &Principal, name: &SessionName) -> Result<SessionNow, SessionError> {
        let runs = self.sessions.session_runs(who, name).await?;
        let mut retrying = None;
        for row in &runs {
            match status(&row.run) {
                Status::Queued | Status::Claimed | Status::Working => return Ok(SessionNow::Busy),
                Status::Retrying(next) => retrying = Some((row, next)),
                Status::Held(_) | Status::Ended(_) => {}
            }
        }
        if let Some((row, next)) = retrying {
            let events = self.log.events(row.run.facts.id, Seq(0)).await?;
            let attempt = match row.run.state.stage {
                Stage::Thinking { failures, .. } => failures,
                Stage::Acting | Stage::Ended(_) => 0,
            };
            return Ok(SessionNow::Retry { attempt, message: last_failure(&events), next });
        }
        let holds = runs.iter().flat_map(|row| row.run.state.holds.iter().map(move |hold| (&row.run, hold)));
        // The id of any other hold is none of an outside job (C25), and neither is that of a sub-run that is waited for.
        let jobs = holds.clone().filter(|(_, hold)| hold.kind == HoldKind::External && hold.child.is_none());
        Ok(match jobs.min_by_key(|(_, hold)| hold.opened_at) {
            Some((run, hold)) => SessionNow::Waiting {
                hold: HoldId { run: run.facts.id, key: hold.key },
                tool: run.call(hold.call()).map(|call| call.tool.to_string()),
                since: hold.opened_at,
                until: hold.expires_at,
            },
            None => {
                let oldest = holds.min_by_key(|(_, hold)| hold.opened_at);
                oldest.map_or(SessionNow::Idle, |(_, hold)| SessionNow::Asks(hold.kind))
            }
        })
    }
}

/// What the model said when it last failed.
fn last_failure(events: &[Envelope]) -> String {
    let failed = events.iter().rev().find_map(|envelope| {
        let Event::ModelFailed(failed) = &envelope.event else { return None };
        Some(failed.error.inline().unwrap_or_default().to_owned())
    });
    failed.unwrap_or_default()
}
