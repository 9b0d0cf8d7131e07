//! Outside jobs as callers see them: which there are, how each stands, what a conversation is waiting for.
//!
//! Everything here is read from the log of runs (`standfast_core::job`); `reports.rs` is how jobs report. A job that
//! said it works on it and went silent waits again after a while: nothing has to be written for that to be seen, and
//! `sweep` writes it down so that other readers of the database see it too.

use std::collections::BTreeSet;
use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::command::Command;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::job::{self, Job, Stands};
use standfast_core::name::{AgentName, SessionId, Tenant, ToolName};
use standfast_core::run::{Facts, Stage, Status, status};
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{Audience, HoldFilter, HoldQuery, RunQuery, StoreError};
use tokio::sync::broadcast;

use super::{Callback, Engine, EngineError, HoldList, SessionError, SessionName, Shared};
use crate::auth::Principal;

/// Holds that are read at once.
const AT_ONCE: usize = 200;

/// Runs that are looked at for jobs that are over, at most; of more than that the newest.
const LOOKED_AT_MAX: usize = 500;

/// How often it is looked for jobs that went silent.
const SWEEP_EVERY: Millis = Millis::seconds(60);

/// A job, and the run that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// What never changes of its run.
    pub run: Facts,
    /// The job.
    pub job: Job,
}

impl JobView {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> HoldId {
        HoldId { run: self.run.id, key: self.job.key }
    }
}

/// Which jobs are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobList {
    /// Of one agent.
    pub agent: Option<AgentName>,
    /// Of one conversation.
    pub session: Option<SessionId>,
    /// Those that are over instead of those that are not.
    pub over: bool,
    /// How many at most.
    pub limit: usize,
}

/// The kind of receiver that is told how a job ended.
pub const JOB_RECEIVER: &str = "async-tool";

/// What a conversation is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionNow {
    /// Nothing.
    Idle,
    /// Working.
    Busy,
    /// The model failed and is asked again.
    Retry {
        /// How often it failed.
        attempt: u32,
        /// What it said.
        message: String,
        /// When it is asked again.
        next: Timestamp,
    },
    /// It waits for somebody or something.
    Waiting {
        /// The oldest hold that it waits for.
        hold: HoldId,
        /// The tool whose call waits, if it is one.
        tool: Option<String>,
        /// Since when.
        since: Timestamp,
        /// Until when at most.
        until: Option<Timestamp>,
    },
}

impl Shared {
    /// A job that said it works on it, and has been silent for too long, waits again.
    fn as_of_now(&self, mut job: Job) -> Job {
        let lasts = self.settings().jobs.processing_lasts;
        let is_silent = job.heard_at.is_none_or(|at| self.clock.now() >= at.plus(lasts));
        if let Stands::Waiting { processing } = &mut job.stands
            && is_silent
        {
            *processing = false;
        }
        job
    }

    /// Whether it has been over for so long that it is no longer shown.
    fn is_forgotten(&self, job: &Job) -> bool {
        let keep = self.settings().jobs.keep;
        match job.stands {
            Stands::Over { at, .. } => self.clock.now() >= at.plus(keep),
            Stands::Starting | Stands::Waiting { .. } | Stands::Unknown { .. } => false,
        }
    }

    /// The jobs of a run that are still shown.
    pub(super) fn shown_jobs(&self, events: &[Envelope]) -> Vec<Job> {
        let jobs = job::jobs(events).into_iter();
        jobs.filter(|job| !self.is_forgotten(job)).map(|job| self.as_of_now(job)).collect()
    }
}

impl Engine {
    /// Any job, whoever asks: for those who then say why they may.
    pub(super) async fn any_job(&self, id: HoldId) -> Result<JobView, EngineError> {
        let run = self.load(id.run).await?.row.run;
        if run.state.erased {
            return Err(EngineError::NotFound);
        }
        let events = self.shared.events(id.run, Seq(0)).await?;
        let found = self.shared.shown_jobs(&events).into_iter().find(|job| job.key == id.key);
        found.map(|job| JobView { run: run.facts, job }).ok_or(EngineError::NotFound)
    }

    /// A job, if the caller may see its run.
    pub async fn job(&self, who: &Principal, id: HoldId) -> Result<JobView, EngineError> {
        self.see(who, id.run).await?;
        self.any_job(id).await
    }

    /// Jobs that the caller may see: those that are not over, oldest first, or those that are, of the newest runs.
    pub async fn jobs(&self, who: &Principal, list: JobList) -> Result<Vec<JobView>, EngineError> {
        match list.over {
            false => self.open_jobs(who, &list).await,
            true => self.jobs_over(who, &list).await,
        }
    }

    async fn open_jobs(&self, who: &Principal, list: &JobList) -> Result<Vec<JobView>, EngineError> {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let wanted = HoldList {
                kind: Some(HoldKind::External),
                agent: list.agent.clone(),
                tool: None,
                session: list.session.clone(),
                cursor,
                limit: AT_ONCE,
            };
            let page = self.holds(who, wanted).await?;
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
        found.truncate(list.limit);
        Ok(found)
    }

    async fn jobs_over(&self, who: &Principal, list: &JobList) -> Result<Vec<JobView>, EngineError> {
        let filter = self.run_filter(who, list.agent.as_ref(), list.session.as_ref());
        let (mut found, mut cursor, mut looked_at) = (Vec::new(), None, 0);
        while looked_at < LOOKED_AT_MAX && found.len() < list.limit {
            let query = RunQuery {
                tenant: who.tenant.clone(),
                filter: filter.clone(),
                phases: Vec::new(),
                since: None,
                cursor,
                limit: AT_ONCE,
            };
            let page = self.shared.store.list_runs(query).await?;
            looked_at += page.items.len();
            for row in page.items {
                let facts = &row.run.facts;
                let is_wanted = list.session.as_ref().is_none_or(|session| *session == facts.session)
                    && list.agent.as_ref().is_none_or(|agent| *agent == facts.agent);
                if !is_wanted || row.run.state.calls_made == 0 || !self.may_see(who, facts) {
                    continue;
                }
                found.extend(self.jobs_of(facts.id).await?.into_iter().filter(|view| !view.job.is_open()));
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        found.truncate(list.limit);
        Ok(found)
    }

    /// The jobs of a run. Of one that is erased, or cannot be read, none: it does not hide the others.
    async fn jobs_of(&self, run: RunId) -> Result<Vec<JobView>, EngineError> {
        let loaded = match self.load(run).await {
            Ok(stored) => stored.row.run,
            Err(EngineError::NotFound | EngineError::Store(StoreError::Corrupt { .. })) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        if loaded.state.erased {
            return Ok(Vec::new());
        }
        let events = self.shared.events(run, Seq(0)).await?;
        let jobs = self.shared.shown_jobs(&events).into_iter();
        Ok(jobs.map(|job| JobView { run: loaded.facts.clone(), job }).collect())
    }

    /// The jobs of a run, if the caller may see it.
    pub async fn run_jobs(&self, who: &Principal, run: RunId) -> Result<Vec<JobView>, EngineError> {
        self.see(who, run).await?;
        self.jobs_of(run).await
    }

    /// Every job of a conversation, in the order in which they began.
    pub async fn session_jobs(
        &self,
        who: &Principal,
        name: &SessionName,
    ) -> Result<Vec<JobView>, SessionError> {
        let mut found = Vec::new();
        for row in self.session_runs(who, name).await? {
            found.extend(self.jobs_of(row.run.facts.id).await?);
        }
        found.sort_by_key(|view| (view.job.created_at, view.job.key.call));
        Ok(found)
    }

    /// What a conversation is doing: work first, then what is tried again, then what waits.
    pub async fn session_now(&self, who: &Principal, name: &SessionName) -> Result<SessionNow, SessionError> {
        let runs = self.session_runs(who, name).await?;
        let mut retrying = None;
        for row in &runs {
            match status(&row.run) {
                Status::Queued | Status::Claimed | Status::Working => return Ok(SessionNow::Busy),
                Status::Retrying(next) => retrying = Some((row, next)),
                Status::Held(_) | Status::Ended(_) => {}
            }
        }
        if let Some((row, next)) = retrying {
            let events = self.shared.events(row.run.facts.id, Seq(0)).await?;
            let attempt = match row.run.state.stage {
                Stage::Thinking { failures, .. } => failures,
                Stage::Acting | Stage::Ended(_) => 0,
            };
            return Ok(SessionNow::Retry { attempt, message: last_failure(&events), next });
        }
        let holds = runs.iter().flat_map(|row| row.run.state.holds.iter().map(move |hold| (&row.run, hold)));
        Ok(match holds.min_by_key(|(_, hold)| hold.opened_at) {
            Some((run, hold)) => SessionNow::Waiting {
                hold: HoldId { run: run.facts.id, key: hold.key },
                tool: run.call(hold.call()).map(|call| call.tool.to_string()),
                since: hold.opened_at,
                until: hold.expires_at,
            },
            None => SessionNow::Idle,
        })
    }

    /// Whoever a job wants to be told when it is settled is named before its hold is there, so that nothing is missed.
    /// One that may not be told is left out: the job goes on without it.
    pub(super) async fn tell_when_settled(&self, run: &Facts, id: HoldId, tool: &ToolName, url: String) {
        let agent = self.shared.agent(&run.agent).ok();
        let tool = agent.as_ref().and_then(|agent| agent.tools.get(tool));
        let secret = tool.and_then(|tool| tool.external()).and_then(|job| job.secrets(id).into_iter().next());
        let callback = Callback {
            kind: JOB_RECEIVER,
            name: id.to_string(),
            url,
            details: id.key.to_string(),
            secrets: secret,
        };
        let owner = Principal { tenant: run.tenant.clone(), ..Principal::of(run.owner.clone()) };
        if let Err(error) = self.call_back(&owner, run.id, callback).await {
            tracing::warn!(run = %run.id, hold = %id, %error, "the webhookURL of this job is not told");
        }
    }

    /// Runs that change on this node, as they do. What other nodes change is not heard here: whoever must not miss it
    /// looks once in a while.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<RunId> {
        self.shared.wakes.changes()
    }

    /// Looks for jobs that went silent, now and once in a while, until the engine stops.
    pub fn sweep_jobs(&self) {
        let shared = Arc::downgrade(&self.shared);
        self.shared.spawn(async move {
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_stopping()) {
                let engine = Engine { shared: shared.clone() };
                match engine.sweep().await {
                    Ok(0) => {}
                    Ok(silent) => {
                        shared.silent_jobs.fetch_add(silent, std::sync::atomic::Ordering::Relaxed);
                        tracing::info!(silent, "jobs that went silent wait again");
                    }
                    Err(error) => tracing::warn!(%error, "jobs that went silent could not be looked for"),
                }
                let mut stopping = shared.stopping.subscribe();
                tokio::select! {
                    () = shared.clock.sleep(SWEEP_EVERY) => {}
                    _ = stopping.wait_for(|stopping| *stopping) => return,
                }
            }
        });
    }

    /// How many jobs were found silent since this server started.
    #[must_use]
    pub fn silent_jobs(&self) -> u64 {
        self.shared.silent_jobs.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// S2-37: what is `processing` on record and has been silent for too long goes back to waiting.
    async fn sweep(&self) -> Result<u64, EngineError> {
        let mut silent = 0;
        for tenant in self.shared.tenants().await? {
            silent += self.sweep_of(tenant).await?;
        }
        Ok(silent)
    }

    async fn sweep_of(&self, tenant: Tenant) -> Result<u64, EngineError> {
        let shards = self.shared.shards();
        let (mut silent, mut cursor) = (0, None);
        loop {
            let query = HoldQuery {
                tenant: tenant.clone(),
                audience: Audience::Everyone,
                filter: HoldFilter::All,
                kinds: vec![HoldKind::External],
                cursor,
                limit: AT_ONCE,
            };
            let page = self.shared.store.list_holds(query).await?;
            let own =
                page.items.iter().filter(|row| row.processing && self.shared.is_own(&shards, row.id.run));
            for row in own {
                match self.any_job(row.id).await {
                    Ok(view) if view.job.stands == (Stands::Waiting { processing: false }) => {
                        self.goes_back(row.id).await?;
                        silent += 1;
                    }
                    Ok(_) | Err(EngineError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(silent);
            }
        }
    }

    async fn goes_back(&self, id: HoldId) -> Result<(), EngineError> {
        let note = Body::text("no word for a while");
        let command = Command::Progress { call: id.key.call, note, processing: Some(false) };
        match self.by_the_clock(id.run, command).await {
            // It has moved on meanwhile.
            Ok(_) | Err(EngineError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
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
