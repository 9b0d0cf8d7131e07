//! How the jobs of a run stand, read from its log as of now: who went silent, what is no longer shown.
//!
//! `standfast_core::job` reads the log; `reads/jobs.rs` lists jobs for callers, `work/job_sweep.rs` writes silence down.

use std::sync::Arc;

use standfast_core::event::Envelope;
use standfast_core::id::HoldId;
use standfast_core::job::{self, Job, JobProgress};
use standfast_core::run::Facts;

use super::{Log, Snapshot};
use crate::EngineError;

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

impl Log {
    /// A job that said it works on it, and has been silent for too long, waits again.
    fn as_of_now(&self, mut job: Job) -> Job {
        let lasts = self.host.settings().jobs.processing_lasts;
        let is_silent = job.heard_at.is_none_or(|at| self.host.clock.now() >= at.plus(lasts));
        if let JobProgress::Waiting { processing } = &mut job.stands
            && is_silent
        {
            *processing = false;
        }
        job
    }

    /// Whether it has been over for so long that it is no longer shown.
    fn is_forgotten(&self, job: &Job) -> bool {
        let keep = self.host.settings().jobs.keep;
        match job.stands {
            JobProgress::Over { at, .. } => self.host.clock.now() >= at.plus(keep),
            JobProgress::Starting | JobProgress::Waiting { .. } | JobProgress::Unknown { .. } => false,
        }
    }

    /// The jobs of a run that are still shown.
    pub(crate) fn shown_jobs(&self, events: &[Envelope]) -> Vec<Job> {
        let jobs = job::jobs(events).into_iter();
        jobs.filter(|job| !self.is_forgotten(job)).map(|job| self.as_of_now(job)).collect()
    }

    /// Any job, whoever asks: for those who then say why they may.
    pub(crate) async fn any_job(self: &Arc<Log>, id: HoldId) -> Result<JobView, EngineError> {
        self.job_in(&self.any_snapshot(id.run).await?, id).await
    }

    /// A job of a run as it was at one moment.
    pub(crate) async fn job_in(&self, snapshot: &Snapshot, id: HoldId) -> Result<JobView, EngineError> {
        let run = snapshot.run();
        if run.state.erased {
            return Err(EngineError::NotFound);
        }
        let found = self.shown_jobs(snapshot.log().await?).into_iter().find(|job| job.key == id.key);
        found.map(|job| JobView { run: run.facts.clone(), job }).ok_or(EngineError::NotFound)
    }
}
