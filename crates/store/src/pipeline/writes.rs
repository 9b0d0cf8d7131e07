//! What an append writes beside its events, as plain data, and the one function that turns it into guards and puts.
//!
//! The caller says what should happen (keep the lease while there is work, show new holds to these people, notify these
//! recipients); what is written depends on what was decided, and is worked out anew whenever the commands are decided
//! again. Because it is data, a caller can change one part of it: an order that is taken back after a lost lease is pushed
//! again with another [`LeaseRule`] and everything else as it was.

use standfast_core::decide::Transition;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, HoldKey, Incarnation};
use standfast_core::next::{NextStep, next};
use standfast_core::project::ResolutionKind;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;

use crate::batch::{AudienceMember, Guard, LeaseChange, Notice, SideWrite};
use crate::recipient::Recipient;

/// What an append writes beside its events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Writes {
    /// What happens to the lease.
    pub lease: LeaseRule,
    /// What must hold beyond what the lease needs.
    pub guards: Vec<Guard>,
    /// What else is written, unless the commands are refused: a refused request is not done, and is refused again when
    /// it is repeated.
    pub puts: Vec<SideWrite>,
    /// Who may see and decide the holds that are opened.
    pub audience: Vec<AudienceMember>,
    /// Who is notified of what.
    pub notices: Vec<NoticeRule>,
}

/// What happens to the lease with an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRule {
    /// Exactly this, whatever is decided.
    Set(LeaseChange),
    /// The node has the run for as long as there is something to do, or a relative to look after, unless another node
    /// has it.
    WhileBusy {
        /// The node.
        node: Incarnation,
        /// The instant of asking.
        now: Timestamp,
        /// Until when the lease lasts, unless renewed.
        until: Timestamp,
    },
}

/// Somebody who is notified if the decided events give a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeRule {
    /// The reason.
    pub trigger: NoticeTrigger,
    /// Who is notified.
    pub recipient: Recipient,
    /// Whose turn the delivery counts for.
    pub owner: String,
}

/// Why somebody is notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeTrigger {
    /// A hold was opened that people are asked about.
    QuestionAsked,
    /// A hold ended, and its call does not go on.
    HoldGivenUp,
}

/// What is written beside the events of an append, for what was decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SideWrites {
    /// What happens to the lease; none keeps it.
    pub lease: Option<LeaseChange>,
    /// What must hold. That of the lease is the first.
    pub guards: Vec<Guard>,
    /// What else is written.
    pub puts: Vec<SideWrite>,
}

impl LeaseRule {
    /// The lease stays as it is: it is nobody's, or another node's.
    pub const UNTOUCHED: LeaseRule = LeaseRule::Set(LeaseChange::Keep);
}

impl Default for LeaseRule {
    fn default() -> LeaseRule {
        LeaseRule::UNTOUCHED
    }
}

impl Writes {
    /// What is written for what was decided.
    #[must_use]
    pub fn beside(&self, decided: &Transition) -> SideWrites {
        let mut guards = Vec::new();
        let lease = match self.lease {
            LeaseRule::Set(LeaseChange::Keep) => None,
            LeaseRule::Set(change) => Some(change),
            LeaseRule::WhileBusy { node, now, until } => {
                guards.push(Guard::NotLeased { node, now });
                Some(if keeps_lease(&decided.run) {
                    LeaseChange::Take { node, until }
                } else {
                    LeaseChange::Release
                })
            }
        };
        guards.extend(self.guards.iter().cloned());
        let is_done = decided.outcome.is_ok();
        let mut puts: Vec<SideWrite> = self.puts.iter().filter(|_| is_done).cloned().collect();
        puts.extend(audiences(decided, &self.audience));
        puts.extend(wakes(decided));
        puts.extend(self.notices.iter().filter_map(|rule| rule.notice(decided)));
        SideWrites { lease, guards, puts }
    }
}

impl NoticeRule {
    fn notice(&self, decided: &Transition) -> Option<SideWrite> {
        let first = decided.events.iter().find(|envelope| self.trigger.is_in(envelope))?;
        Some(SideWrite::Notice(Notice {
            subscription: self.recipient.stored().to_owned(),
            owner: self.owner.clone(),
            from: first.seq,
            due_at: decided.run.state.at,
        }))
    }
}

impl NoticeTrigger {
    fn is_in(self, envelope: &Envelope) -> bool {
        match self {
            NoticeTrigger::QuestionAsked => asks_people(envelope),
            NoticeTrigger::HoldGivenUp => hold_given_up(envelope).is_some(),
        }
    }
}

/// Whether an event opens a hold that people are asked about.
#[must_use]
pub fn asks_people(envelope: &Envelope) -> bool {
    matches!(&envelope.event, Event::HoldOpened(opened) if opened.kind != HoldKind::External)
}

/// The hold that ends with an event, if its call does not go on.
#[must_use]
pub fn hold_given_up(envelope: &Envelope) -> Option<HoldKey> {
    let Event::HoldResolved(resolved) = &envelope.event else { return None };
    match ResolutionKind::from(&resolved.resolution) {
        ResolutionKind::Approved | ResolutionKind::Edited | ResolutionKind::Answered => None,
        ResolutionKind::Denied
        | ResolutionKind::Failed
        | ResolutionKind::Expired
        | ResolutionKind::Withdrawn
        | ResolutionKind::Superseded => Some(resolved.hold),
    }
}

/// Whether the node that has a run keeps it. One with relatives is looked at once more before it is given back.
#[must_use]
pub fn keeps_lease(run: &Run) -> bool {
    is_busy(run) || has_relatives(run)
}

/// Whether a run may be woken for its sub-runs or its parent.
#[must_use]
pub fn has_relatives(run: &Run) -> bool {
    let has_children = || run.state.holds.iter().any(|hold| hold.child.is_some());
    run.outcome().is_none() && (run.facts.parent.is_some() || has_children())
}

fn is_busy(run: &Run) -> bool {
    match next(run, run.state.at) {
        NextStep::Think | NextStep::Tick | NextStep::Act { .. } => true,
        NextStep::Wait(_) | NextStep::Nothing => false,
    }
}

fn audiences(decided: &Transition, who: &[AudienceMember]) -> Vec<SideWrite> {
    let run = decided.run.facts.id;
    let opened = decided.events.iter().filter_map(|envelope| {
        let Event::HoldOpened(opened) = &envelope.event else { return None };
        Some(SideWrite::Audience { hold: HoldId { run, key: opened.hold }, who: who.to_vec() })
    });
    opened.filter(|_| !who.is_empty()).collect()
}

/// Wakes whoever must look at a relative: the run itself when it has a child to begin, its parent when it has ended, its
/// children when they are no longer awaited.
fn wakes(decided: &Transition) -> Vec<SideWrite> {
    let facts = &decided.run.facts;
    let at = decided.run.state.at;
    let mut runs = decided.cancel_children.clone();
    for envelope in &decided.events {
        if let Event::HoldOpened(opened) = &envelope.event {
            runs.extend(opened.ask.child.map(|_| facts.id));
        } else if let Event::RunEnded(_) = &envelope.event {
            runs.extend(facts.parent.map(|parent| parent.run));
        }
    }
    runs.into_iter().map(|run| SideWrite::Wake { run, at }).collect()
}
