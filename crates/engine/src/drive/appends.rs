//! What a drive writes: commands are pushed on the tip, settled, and shown once they are durable.
//!
//! What is in hand is kept until it is durable: a store that is away is waited for. The lease that is kept meanwhile is
//! `lease.rs`, what comes next is `drive.rs`.

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::Command;
use standfast_core::definition::Definition;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{Incarnation, Seq};
use standfast_core::policy::{Role, Verdicts};
use standfast_core::run::{CallAttempt, Run, Status, status};
use standfast_store::StoreError;
use standfast_store::pipeline::{LeaseRule, Writes, asks_people, keeps_lease};

use super::Drive;
use super::known_log::what_it_came_to;
use crate::EngineError;
use crate::commit::{Authority, Change, is_leased_elsewhere};
use crate::log::log_events;
use crate::wakes::Continuation;

/// How often a run waits for a store that is away before it is left to whoever finds it later.
const STORE_TRIES: u32 = 120;

impl Drive {
    /// A store that is away for a while, or a run that many write to: what the model said and what tools reported is
    /// kept and written when it can be, never asked for or run again.
    pub(super) async fn recovers_from(&mut self, error: &EngineError) -> bool {
        let mut error = error.clone();
        for _ in 0..STORE_TRIES {
            if let EngineError::Store(failure) = &error
                && is_leased_elsewhere(failure)
            {
                self.lose();
                self.leave_the_lease_alone();
                match self.settle().await {
                    Ok(()) => return true,
                    Err(again) => error = again,
                }
            }
            let EngineError::Store(
                StoreError::Unavailable { .. } | StoreError::Unknown { .. } | StoreError::Conflict { .. },
            ) = &error
            else {
                return false;
            };
            tracing::warn!(run = %self.run, %error, "drive: the store is not available; waiting for it");
            self.drives.host.clock.sleep(self.drives.host.fixed.poll).await;
            match self.settle().await {
                Ok(()) => return true,
                Err(again) => error = again,
            }
        }
        false
    }

    /// Decides a command on the tip and hands its append over.
    pub(super) async fn push(&mut self, command: Command, verdicts: Verdicts) -> Result<(), EngineError> {
        let authority = Authority { verdicts, ..Authority::default() };
        self.push_with(authority, command, Writes::default()).await
    }

    pub(super) async fn push_as(&mut self, role: Role, command: Command) -> Result<(), EngineError> {
        self.push_with(role.into(), command, Writes::default()).await
    }

    /// The same, with something written beside it.
    pub(super) async fn push_with(
        &mut self,
        authority: Authority,
        command: Command,
        writes: Writes,
    ) -> Result<(), EngineError> {
        let Some(run) = self.pipeline.tip() else { return Ok(()) };
        let (agent, owner) = (run.facts.agent.clone(), run.facts.owner.clone());
        let definition = self.definition().await?;
        let drives = self.drives.clone();
        let lease = if self.is_lost { LeaseRule::UNTOUCHED } else { drives.commit.while_busy() };
        let change = Change {
            actor: Actor::Node(drives.host.node),
            authority,
            commands: vec![command],
            writes: Writes { lease, notices: self.above.clone(), ..writes },
        };
        let order = drives.commit.order((&agent, &owner), definition, change);
        self.pushed_at.get_or_insert(order.given.now);
        self.pipeline.push(order);
        Ok(())
    }

    /// The definition that the run is pinned to.
    pub(super) async fn definition(&mut self) -> Result<Arc<Definition>, EngineError> {
        let Some(run) = self.pipeline.tip() else { return Err(EngineError::NotFound) };
        let (agent, pinned) = (run.facts.agent.clone(), run.state.definition);
        if let Some((_, known)) = self.definition.as_ref().filter(|(digest, _)| *digest == pinned) {
            return Ok(known.clone());
        }
        let found = self.drives.log.definition(&agent, pinned).await?;
        self.definition = Some((pinned, found.clone()));
        Ok(found)
    }

    /// Waits until everything is durable, then lets it be seen.
    pub(super) async fn settle(&mut self) -> Result<(), EngineError> {
        let telemetry = self.drives.host.fixed.telemetry.clone();
        let waiting = telemetry.write();
        let settlement = self.pipeline.settle().await;
        drop(waiting);
        let is_news = !settlement.done.is_empty() || settlement.failed.is_some();
        self.refused = None;
        // Whatever was written has renewed the lease; counted from the first of it.
        if settlement.failed.is_none()
            && let Some(pushed_at) = self.pushed_at.take()
            && settlement.done.iter().any(|settled| !settled.events.is_empty())
        {
            self.leased_until = pushed_at.plus(self.drives.host.fixed.lease);
        }
        self.may_lose &= settlement.failed.is_some();
        for settled in settlement.done {
            if let Err(refusal) = &settled.outcome {
                tracing::debug!(run = %self.run, %refusal, "drive: a command was refused");
                self.refused = Some(refusal.clone());
            }
            if let Some(accepted) = self.accepted.take() {
                // A wish that wrote nothing gave this node no lease either. If it has one, a claim took it meanwhile.
                self.is_void = settled.outcome.is_err() && settled.events.is_empty();
                self.is_leased &= !self.is_void;
                let _ = accepted.send(settled.outcome.map_err(EngineError::from));
            }
            let node = self.drives.host.node;
            if !settled.events.is_empty() {
                let is_kept = self.pipeline.durable().is_none_or(|row| keeps_lease(&row.run));
                self.is_leased = is_kept && !self.is_lost;
            }
            self.asks_people |= settled.events.iter().any(asks_people);
            if let Some(row) = self.pipeline.durable() {
                log_events(&row.run, &settled.events);
            }
            super::spans::trace_decided(self, &settled.decided, &settled.events);
            if self.rest.is_some() {
                self.decided.extend(settled.decided);
            }
            self.begun.extend(settled.events.iter().filter_map(|envelope| started_by(node, envelope)));
            Arc::make_mut(&mut self.log).extend(settled.events);
        }
        if let Some(error) = &settlement.failed
            && let Some(accepted) = self.accepted.take()
        {
            // An answer that was lost may still turn out to be a yes: then the run must be driven.
            self.is_void = !matches!(error, StoreError::Unknown { .. });
            self.is_leased &= !self.is_void;
            let _ = accepted.send(Err(error.clone().into()));
        }
        if self.is_void {
            return settlement.failed.map_or(Ok(()), |error| Err(error.into()));
        }
        self.catch_up().await?;
        let is_at_rest = |run: &Run| matches!(status(run), Status::Held(_) | Status::Ended(_));
        let rests = self.pipeline.durable().is_none_or(|row| is_at_rest(&row.run));
        if rests && self.is_rest_left && !is_news {
            // It was shown like this: once more would discard what was left for whoever asked for it.
            return Ok(());
        }
        let left = if rests { what_it_came_to(self) } else { None };
        self.is_rest_left = left.is_some();
        self.guard.show(if rests { Continuation::Rests } else { Continuation::GoesOn }, |changes| {
            if let Some((slot, rested)) = left {
                slot.leave(rested, changes);
            }
        });
        settlement.failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Looks at what others have appended.
    pub(super) async fn refresh(&mut self) -> Result<(), EngineError> {
        self.pipeline.refresh().await?;
        self.catch_up().await
    }

    /// Reads what others appended, so that the log is whole up to what is durable. What was appended since the run was last
    /// loaded is not looked at before the run is: the two must be of the same moment.
    pub(super) async fn catch_up(&mut self) -> Result<(), EngineError> {
        let durable = self.durable_seq();
        let is_next =
            |(seq, envelope): &(u64, &Envelope)| envelope.seq == Seq(*seq) && envelope.seq <= durable;
        let whole = (1..).zip(&*self.log).take_while(is_next).count();
        if whole == self.log.len() && Seq(whole as u64) == durable {
            return Ok(());
        }
        Arc::make_mut(&mut self.log).truncate(whole);
        let more = self.drives.log.events(self.run, Seq(whole as u64)).await?;
        Arc::make_mut(&mut self.log).extend(more.into_iter().take_while(|envelope| envelope.seq <= durable));
        Ok(())
    }

    pub(super) fn durable_seq(&self) -> Seq {
        self.pipeline.durable().map_or(Seq(0), |row| row.run.state.seq)
    }
}

fn started_by(node: Incarnation, envelope: &Envelope) -> Option<CallAttempt> {
    let Event::CallStarted(started) = &envelope.event else { return None };
    (started.node == node).then_some(CallAttempt { call: started.call, attempt: started.attempt })
}
