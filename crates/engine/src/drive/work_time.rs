//! `task.timeout`: how long a run may work. Waiting does not count.
//!
//! A run is driven only while there is something to do, so all of a drive is work. What earlier drives did is read from
//! the log (`standfast_core::work_time`); the limit is never pinned, so a run that has waited obeys today's.

use standfast_core::command::{Command, FailKind, FailRun};
use standfast_core::event::Envelope;
use standfast_core::policy::Verdicts;
use standfast_core::run::Run;
use standfast_core::time::{Millis, Timestamp};
use standfast_core::work_time::worked;
use standfast_store::pipeline::Pipeline;

use super::{Drive, Drives};
use crate::EngineError;

/// What a run has worked.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkedTime {
    /// When this drive began.
    since: Timestamp,
    /// What drives before it did.
    before: Millis,
}

impl WorkedTime {
    /// What a drive that begins now begins with. Logs are long: it is read only where there is a limit.
    pub(super) fn before(drives: &Drives, pipeline: &Pipeline, log: &[Envelope]) -> WorkedTime {
        let run = pipeline.tip().filter(|run| drives.limit_of(run).is_some());
        WorkedTime {
            since: drives.host.clock.now(),
            before: run.map_or(Millis(0), |run| worked(run.facts.id, log)),
        }
    }

    fn by(&self, now: Timestamp) -> Millis {
        Millis(self.before.0.saturating_add(now.since(self.since).0.max(0)))
    }
}

/// How much longer the run may work; none when there is no limit.
pub(super) fn time_left(drive: &Drive) -> Option<Millis> {
    let limit = drive.drives.limit_of(drive.pipeline.tip()?)?;
    Some(Millis(limit.0.saturating_sub(drive.worked.by(drive.drives.host.clock.now()).0)))
}

/// Whether the run must end because it has worked for as long as it may.
pub(super) fn is_out_of_time(drive: &Drive, run: &Run) -> bool {
    run.outcome().is_none() && time_left(drive).is_some_and(|left| left.0 <= 0)
}

/// Ends the run. What it had started is stopped as after a cancel.
pub(super) async fn run_out_of_time(drive: &mut Drive, run: &Run) -> Result<(), EngineError> {
    let limit = drive.drives.limit_of(run).unwrap_or(Millis(0));
    let error = format!("the run has worked for longer than its task.timeout of {limit} allows");
    tracing::warn!(run = %drive.run, "drive: {error}");
    let fail = FailRun { worker: None, error, detail: None, kind: FailKind::OutOfTime, heard: None };
    drive.push(Command::Fail(fail), Verdicts::default()).await?;
    drive.settle().await
}

impl Drives {
    /// How long a run may work by the settings of now.
    fn limit_of(&self, run: &Run) -> Option<Millis> {
        self.host.agent(&run.facts.agent).ok()?.may_work
    }

    /// Sleeps until a run has worked for as long as it may; for ever when there is no limit.
    pub(super) async fn sleep_until_out_of_time(&self, left: Option<Millis>) {
        match left {
            Some(left) => self.host.clock.sleep(left).await,
            None => std::future::pending().await,
        }
    }
}
