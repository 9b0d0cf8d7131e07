//! What becomes of a run when driving it fails: rows that cannot be read, panics, model calls that end the process.
//!
//! A run is never lost and never driven round in circles, and nothing that may have had an effect is guessed (C35).

use std::any::Any;
use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::command::{Command, FailKind, FailRun, RecordFailure};
use standfast_core::event::OrphanCause;
use standfast_core::id::RunId;
use standfast_core::project::RunRow;
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallState, Stage};
use standfast_store::{Lease, StoreError};

use super::Drives;
use crate::EngineError;

/// What the log says of a model call that was cut off.
const CUT_OFF: &str = "the server waiting for the model's reply ended or lost its lease";

impl Drives {
    /// A run whose model call was cut off when its server ended: the try is counted, durably, before the next one, so
    /// that a call which kills its server ends the run instead of the servers.
    pub(crate) async fn count_cut_off(
        self: &Arc<Drives>,
        row: RunRow,
        from: Option<Lease>,
    ) -> Result<RunRow, EngineError> {
        let run = &row.run;
        let was_thinking = matches!(run.state.stage, Stage::Thinking { .. }) && !run.is_blocked();
        // A lease of this very server that ran out cut nothing off: it is there.
        let is_anothers = from.is_some_and(|lease| lease.node != self.host.node);
        if !is_anothers || !was_thinking {
            return Ok(row);
        }
        tracing::warn!(run = %run.facts.id, "drive: {CUT_OFF}; counted as a failed model call");
        let error = Body::text(CUT_OFF);
        let retry_at = Some(self.host.clock.now());
        let failure = Command::RecordFailure(RecordFailure { error, retry_at, heard: None });
        match self.commit.commit_as_node(row.clone(), failure).await {
            Ok(committed) => Ok(committed.row),
            // Somebody ended it meanwhile.
            Err(EngineError::Refused(_)) => Ok(row),
            Err(other) => Err(other),
        }
    }

    /// A panic ends the run as failed; if a call that changes the world had started, a person is asked instead.
    pub(crate) async fn after_panic(self: &Arc<Drives>, run: RunId, panic: Box<dyn Any + Send>) {
        let what = said(&*panic);
        tracing::error!(%run, what, "drive: panicked");
        if let Err(error) = self.end_after_panic(run, &what).await {
            tracing::warn!(%run, %error, "drive: a run could not be ended after a panic; trying again later");
            // Unless somebody drives it by now, who then has the lease.
            if let Some(guard) = self.guard_of_claimed(run) {
                self.release_later(guard);
            }
        }
        self.wakes.wake(run);
        self.wakes.wake_worker();
    }

    async fn end_after_panic(self: &Arc<Drives>, run: RunId, what: &str) -> Result<(), EngineError> {
        let row = match self.log.store.load(run).await {
            Err(StoreError::Corrupt { why, .. }) => {
                self.commit.quarantine(run, &why).await;
                return Ok(());
            }
            other => other?.row,
        };
        let error = format!("the worker panicked: {what}");
        let fail =
            Command::Fail(FailRun { worker: None, error, detail: None, kind: FailKind::Final, heard: None });
        match self.commit.commit_as_node(row.clone(), fail).await {
            Err(EngineError::Refused(Refusal::CallStarted(_))) => {}
            Ok(_) | Err(EngineError::Refused(_)) => return Ok(()),
            Err(other) => return Err(other),
        }
        for call in &row.run.state.calls {
            if matches!(call.state, CallState::Started { .. }) {
                let orphan = Command::Orphan {
                    call: call.no,
                    attempt: call.attempt,
                    node: self.host.node,
                    why: OrphanCause::Crash,
                    reconciled: None,
                };
                match self.commit.commit_as_node(row.clone(), orphan).await {
                    Ok(_) | Err(EngineError::Refused(_)) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(())
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".into())
}
