//! What becomes of a run when driving it fails: rows that cannot be read, panics, model calls that end the process.
//!
//! A run is never lost and never driven round in circles, and nothing that may have had an effect is guessed (C35).

use std::any::Any;
use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Command, FailKind, FailRun, RecordFailure};
use standfast_core::decide::Answer;
use standfast_core::id::RunId;
use standfast_core::policy::Verdicts;
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallState, Run, Stage};
use standfast_store::ahead::Driver;
use standfast_store::{Lease, StoreError};

use super::orders::{More, beside};
use super::{EngineError, Shared};

/// What the log says of a model call that was cut off.
const CUT_OFF: &str = "the server waiting for the model's reply ended or lost its lease";

impl Shared {
    /// Puts a run aside whose rows or log cannot be read. Everything else goes on.
    pub(super) async fn put_aside(&self, run: RunId, why: &str) {
        tracing::error!(%run, why, "quarantined: failed to load execution state");
        if let Err(error) = self.store.quarantine(run, why.to_owned()).await {
            tracing::warn!(%run, %error, "could not be put aside; trying again when it is next due");
        }
        self.wakes.wake(run);
    }

    /// A run whose model call was cut off when its server ended: the try is counted, durably, before the next one, so
    /// that a call which kills its server ends the run instead of the servers.
    pub(super) async fn count_cut_off(
        self: &Arc<Shared>,
        driver: &mut Driver,
        from: Option<Lease>,
    ) -> Result<(), EngineError> {
        let Some(run) = driver.tip().cloned() else { return Ok(()) };
        let was_thinking = matches!(run.state.stage, Stage::Thinking { .. }) && !run.is_blocked();
        // A lease of this very server that ran out cut nothing off: it is there.
        let is_anothers = from.is_some_and(|lease| lease.node != self.node);
        if !is_anothers || !was_thinking {
            return Ok(());
        }
        tracing::warn!(run = %run.facts.id, "{CUT_OFF}; it is counted as a failure");
        let error = Body::text(CUT_OFF);
        let retry_at = Some(self.clock.now());
        let failure = Command::RecordFailure(RecordFailure { error, retry_at, heard: None });
        match self.submit_as_node(driver, &run, failure).await {
            // Somebody ended it meanwhile.
            Ok(_) | Err(EngineError::Refused(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// A panic ends the run as failed; if a call that changes the world had started, a person is asked instead.
    pub(super) async fn after_panic(self: &Arc<Shared>, run: RunId, panic: Box<dyn Any + Send>) {
        let what = said(&*panic);
        tracing::error!(%run, what, "panicked while it was worked on");
        if let Err(error) = self.end_after_panic(run, &what).await {
            tracing::warn!(%run, %error, "could not be ended after a panic; trying again later");
            // Unless somebody drives it by now, who then has the lease.
            if let Some(reins) = self.reins_of_claimed(run) {
                self.release_later(reins);
            }
        }
        self.wakes.wake(run);
        self.wakes.wake_worker();
    }

    async fn end_after_panic(self: &Arc<Shared>, run: RunId, what: &str) -> Result<(), EngineError> {
        let row = match self.store.load(run).await {
            Err(StoreError::Corrupt { why, .. }) => {
                self.put_aside(run, &why).await;
                return Ok(());
            }
            other => other?.row,
        };
        let mut driver = Driver::of(self.store.clone(), row);
        let Some(tip) = driver.tip().cloned() else { return Ok(()) };
        let error = format!("the worker panicked: {what}");
        let fail =
            Command::Fail(FailRun { worker: None, error, detail: None, kind: FailKind::Final, heard: None });
        match self.submit_as_node(&mut driver, &tip, fail).await {
            Err(EngineError::Refused(Refusal::CallStarted(_))) => {}
            Ok(_) | Err(EngineError::Refused(_)) => return Ok(()),
            Err(other) => return Err(other),
        }
        for call in &tip.state.calls {
            if matches!(call.state, CallState::Started { .. }) {
                let orphan = Command::Orphan { call: call.no, attempt: call.attempt, node: self.node };
                match self.submit_as_node(&mut driver, &tip, orphan).await {
                    Ok(_) | Err(EngineError::Refused(_)) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(())
    }

    /// Decides a command of this node and waits until it is durable.
    pub(super) async fn submit_as_node(
        self: &Arc<Shared>,
        driver: &mut Driver,
        run: &Run,
        command: Command,
    ) -> Result<Answer, EngineError> {
        let agent = &run.facts.agent;
        let definition = self.definition(agent, run.state.definition).await?;
        let beside = beside(self.while_busy(), &self.approvers(agent), More::default());
        let actor = Actor::Node(self.node);
        driver.push(self.order(vec![command], actor, definition, Verdicts::default(), beside));
        let mut settlement = driver.settle().await;
        match (settlement.failed, settlement.done.pop()) {
            (Some(error), _) => Err(error.into()),
            (None, Some(settled)) => Ok(settled.outcome?),
            (None, None) => Ok(Answer::Repeated),
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".into())
}
