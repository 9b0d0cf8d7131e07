//! Commands with everything that deciding them needs: time, verdicts, lease, audience.
//!
//! The one place that says what is written beside events: who may see new holds, and what happens to the lease.

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::Command;
use standfast_core::decide::Decided;
use standfast_core::definition::Definition;
use standfast_core::event::Event;
use standfast_core::id::{HoldId, Incarnation};
use standfast_core::policy::Verdicts;
use standfast_core::time::Timestamp;
use standfast_store::ahead::{Beside, Given, Order};
use standfast_store::{Guard, LeaseChange, Put, StoreError, Who};

use super::drive::is_kept;
use super::once::Mark;
use super::{Shared, family};
use crate::auth::{Approvers, Party};

/// What happens to the lease with an append.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lease {
    /// Nothing.
    Untouched,
    /// This node works on the run for as long as there is something to do, or somebody to look after, unless another
    /// node does.
    WhileBusy { node: Incarnation, now: Timestamp, until: Timestamp },
}

/// What an append checks and writes beyond what every append does.
#[derive(Debug, Clone, Default)]
pub(super) struct More {
    pub(super) guards: Vec<Guard>,
    pub(super) puts: Vec<Put>,
}

impl From<Mark> for More {
    fn from(mark: Mark) -> More {
        More { guards: mark.guards, puts: mark.puts }
    }
}

impl Shared {
    pub(super) fn order(
        &self,
        commands: Vec<Command>,
        actor: Actor,
        definition: Arc<Definition>,
        verdicts: Verdicts,
        beside: Arc<dyn Fn(&Decided) -> Beside + Send + Sync>,
    ) -> Order {
        let settings = self.settings();
        let limits = settings.limits_of(&definition.agent).clone();
        let given = Given {
            now: self.clock.now(),
            entropy: self.clock.entropy(),
            actor,
            definition,
            verdicts,
            authority: None,
            recorded: None,
            limits,
            over_soft_cap: false,
        };
        let beside = self.telling_outside(&given.definition.agent, beside);
        Order { commands, given, beside }
    }

    /// A lease that lasts as long as there is something to do.
    pub(super) fn while_busy(&self) -> Lease {
        let now = self.clock.now();
        Lease::WhileBusy { node: self.node, now, until: now.plus(self.settings().fixed.lease) }
    }
}

/// Whether an append that was to take a run, or to give it back, found that another node works on it: the first guard
/// of such an append.
pub(super) fn is_leased_elsewhere(error: &StoreError) -> bool {
    matches!(error, StoreError::Guard { which: 0, .. })
}

/// What is written beside the events of an append.
pub(super) fn beside(
    lease: Lease,
    approvers: &Approvers,
    more: More,
) -> Arc<dyn Fn(&Decided) -> Beside + Send + Sync> {
    let approvers = approvers.clone();
    Arc::new(move |decided| {
        let mut guards = Vec::new();
        let lease = match lease {
            Lease::Untouched => None,
            Lease::WhileBusy { node, now, until } => {
                guards.push(Guard::NotLeased { node, now });
                Some(match is_kept(&decided.run) {
                    true => LeaseChange::Take { node, until },
                    false => LeaseChange::Release,
                })
            }
        };
        guards.extend(more.guards.iter().cloned());
        // A request that was refused is not done: sent again it must be refused again.
        let is_done = decided.outcome.is_ok();
        let mut puts: Vec<Put> = more.puts.iter().filter(|_| is_done).cloned().collect();
        puts.extend(audiences(decided, &approvers));
        puts.extend(family::wakes(decided));
        Beside { lease, guards, puts }
    })
}

/// Who may see and decide the holds that were opened: the owner and those named.
fn audiences(decided: &Decided, approvers: &Approvers) -> Vec<Put> {
    let facts = &decided.run.facts;
    let mut who = vec![audience(&Party::User(facts.owner.clone()))];
    who.extend(approvers.named.iter().flatten().map(audience));
    who.sort();
    who.dedup();
    let mut puts = Vec::new();
    for envelope in &decided.events {
        if let Event::HoldOpened(opened) = &envelope.event {
            puts.push(Put::Audience { hold: HoldId { run: facts.id, key: opened.hold }, who: who.clone() });
        }
    }
    puts
}

/// How audiences name a user, a group or a role.
pub(super) fn audience(party: &Party) -> Who {
    Who(party.to_string())
}
