//! Waiting until a run settles: it waits for somebody or something, or has ended. For as long as the caller says.
//!
//! What is found then is one snapshot, which the answer is made of; `follow.rs` says when.

use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::time::Millis;

use super::{LookedUpRun, Reads};
use crate::EngineError;
use crate::auth::Principal;
use crate::log::{HoldView, RunView, Snapshot};
use crate::wakes::RestTicket;

impl Reads {
    /// A run as soon as it waits or ends; as it is when that takes longer than `at_most`.
    pub async fn settled_run(
        &self,
        who: &Principal,
        run: RunId,
        at_most: Millis,
    ) -> Result<RunView, EngineError> {
        self.run_view(&self.settled(who, run, None, at_most).await?).await
    }

    /// What is stored of a run as soon as it waits or ends, or when `at_most` has passed. Whoever made it go on has a ticket
    /// for how it settles, and reads nothing then.
    pub async fn settled(
        &self,
        who: &Principal,
        run: RunId,
        rest: Option<RestTicket>,
        at_most: Millis,
    ) -> Result<Snapshot, EngineError> {
        let settled = self.waits_for(run, at_most, self.follow(run, Seq(0)).settles(rest)).await?;
        self.rested(who, run, settled).await
    }

    /// What is stored of a run, also an unreadable one, as soon as it needs somebody or ends, or when `at_most` has
    /// passed. Jobs of outside systems and sub-runs that are at work are waited for as well.
    pub async fn needs_somebody(
        &self,
        who: &Principal,
        run: RunId,
        rest: Option<RestTicket>,
        at_most: Millis,
    ) -> Result<LookedUpRun, EngineError> {
        let settled = if at_most.0 > 0 {
            self.waits_for(run, at_most, self.follow(run, Seq(0)).needs_somebody(rest)).await
        } else {
            Ok(None)
        };
        let found = match settled {
            Ok(settled) => self.rested(who, run, settled).await,
            Err(error) => Err(error),
        };
        self.or_unreadable(who, found).await
    }

    /// What was found when a run came to rest; what is stored now when it did not.
    async fn rested(
        &self,
        who: &Principal,
        run: RunId,
        settled: Option<Snapshot>,
    ) -> Result<Snapshot, EngineError> {
        match settled {
            Some(snapshot) if self.log.may_see_run(who, snapshot.run()) => Ok(snapshot),
            Some(_) => Err(EngineError::NotFound),
            None => self.snapshot(who, run).await,
        }
    }

    async fn waits_for(
        &self,
        run: RunId,
        at_most: Millis,
        settles: impl Future<Output = Result<Snapshot, EngineError>>,
    ) -> Result<Option<Snapshot>, EngineError> {
        let mut stopping = self.host.stopping();
        tokio::select! {
            biased;
            settled = self.host.clock.timeout(at_most, settles) => match settled {
                Some(settled) => return settled.map(Some),
                None => tracing::debug!(%run, "reads: the run is still at work after the longest wait"),
            },
            _ = stopping.wait_for(|stopping| *stopping) => tracing::debug!(%run, "reads: the server stops"),
        }
        Ok(None)
    }

    /// A hold as soon as its run waits or ends; as it is when that takes longer than `at_most`.
    pub async fn settled_hold(
        &self,
        who: &Principal,
        hold: HoldId,
        rest: Option<RestTicket>,
        at_most: Millis,
    ) -> Result<HoldView, EngineError> {
        self.hold_view(who, &self.settled(who, hold.run, rest, at_most).await?, hold).await
    }
}
