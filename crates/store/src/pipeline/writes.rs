//! What an append writes beside its events, as plain data, and the one function that turns it into guards and puts.
//!
//! The caller says what should happen (keep the lease while there is work, show new holds to these people, notify these
//! recipients); what is written depends on what was decided, and is worked out again whenever the commands are decided
//! again. Because it is data, a caller can change one part of it: an order that is taken back after a lost lease is pushed
//! again with another [`LeaseRule`] and everything else as it was.

use standfast_core::approver::Approver;
use standfast_core::budget::BudgetTake;
use standfast_core::decide::Transition;
use standfast_core::digest::Digest;
use standfast_core::effect::EffectClaim;
use standfast_core::event::{Envelope, Event};
use standfast_core::grant::{self, GrantUse};
use standfast_core::hold::{Demand, HoldKind};
use standfast_core::id::{CallNo, HoldId, HoldKey, Incarnation, RunId};
use standfast_core::name::UserId;
use standfast_core::next::{NextStep, next};
use standfast_core::project::ResolutionKind;
use standfast_core::run::Run;
use standfast_core::time::{Millis, Timestamp};

use crate::batch::{AudienceMember, Guard, LeaseChange, Notice, SideWrite};
use crate::recipient::Recipient;

/// A hundred years.
const FOR_GOOD: Millis = Millis::hours(24 * 365 * 100);

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
    pub audience: HoldAudience,
    /// Who is notified of what.
    pub notices: Vec<NoticeRule>,
}

/// Who may see and decide the holds that an append opens; most open none, so it is spelled out only then.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HoldAudience {
    /// The owner of the run.
    pub owner: Option<UserId>,
    /// Those named beside them.
    pub named: Vec<AudienceMember>,
}

impl HoldAudience {
    fn members(&self) -> Vec<AudienceMember> {
        let mut who = Vec::with_capacity(self.named.len() + 1);
        who.extend(self.owner.as_ref().map(AudienceMember::user));
        who.extend(self.named.iter().cloned());
        who.sort();
        who.dedup();
        who
    }
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
    /// Anything happened.
    RunChanged,
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
        guards.extend(decided.events.iter().flat_map(claims).map(|(_, key)| Guard::KeyUnused { key }));
        guards.extend(decided.events.iter().flat_map(guarded_takes).map(|key| Guard::KeyUnused { key }));
        guards.extend(decided.events.iter().filter_map(revocation).map(|key| Guard::KeyUnused { key }));
        let is_done = decided.outcome.is_ok();
        let mut puts: Vec<SideWrite> = self.puts.iter().filter(|_| is_done).cloned().collect();
        puts.extend(claim_puts(&decided.run, &decided.events));
        puts.extend(audiences(decided.run.facts.id, &decided.events, &self.audience));
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
            NoticeTrigger::RunChanged => true,
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

/// The keys that a start claims: effects in the world, and its use of a standing approval. Where a call is run elsewhere, the
/// use is taken when it is allowed: nobody has to say that it starts.
fn claims(envelope: &Envelope) -> impl Iterator<Item = (CallNo, String)> + '_ {
    let started = if let Event::CallStarted(started) = &envelope.event { Some(started) } else { None };
    let proposed = if let Event::CallProposed(proposed) = &envelope.event { Some(proposed) } else { None };
    let allowed =
        proposed.and_then(|proposed| Some((proposed.call.no, proposed.grant_use.as_ref()?.stored())));
    let begun = started.into_iter().flat_map(|started| {
        let effects = started.effects.iter().map(EffectClaim::stored);
        effects.chain(started.grant_use.as_ref().map(GrantUse::stored)).map(|key| (started.call, key))
    });
    begun.chain(allowed)
}

/// The key that must not be there when a call starts, or may start elsewhere, by a standing approval: somebody has revoked it.
fn revocation(envelope: &Envelope) -> Option<String> {
    let judged = if let Event::CallStarted(started) = &envelope.event {
        Some(&started.judged)
    } else if let Event::CallProposed(proposed) = &envelope.event {
        proposed.call.judged.as_ref()
    } else {
        None
    };
    judged?.grant.as_ref().map(grant::revoked_key)
}

/// The keys that must not be there when a start takes from budgets: somebody has taken since it was counted.
fn guarded_takes(envelope: &Envelope) -> impl Iterator<Item = String> + '_ {
    let started = if let Event::CallStarted(started) = &envelope.event { Some(started) } else { None };
    started.into_iter().flat_map(|started| started.takes.iter().flat_map(BudgetTake::numbers))
}

/// What keeps the takes of a start: their numbers for good, how much they are for as long as they count.
fn take_puts(run: RunId, envelope: &Envelope) -> impl Iterator<Item = SideWrite> + '_ {
    let started = if let Event::CallStarted(started) = &envelope.event { Some(started) } else { None };
    let at = envelope.at;
    started.into_iter().flat_map(move |started| {
        let request = EffectClaim::owner(run, started.call);
        started.takes.iter().flat_map(move |take| {
            let numbers = take.numbers().map(move |key| (key, at.plus(FOR_GOOD)));
            let taken = (take.stored(at, started.call, started.attempt), take.expires_at(at));
            numbers.chain([taken]).map(move |(key, expires_at)| SideWrite::Key { key, request, expires_at })
        })
    })
}

/// What keeps the claims of starts, for good: nobody knows how late a second call for the same effect comes; and what they took
/// from budgets.
pub(crate) fn claim_puts(run: &Run, events: &[Envelope]) -> impl Iterator<Item = SideWrite> {
    let (id, expires_at) = (run.facts.id, run.state.at.plus(FOR_GOOD));
    let claims = events.iter().flat_map(claims).map(move |(call, key)| SideWrite::Key {
        key,
        request: EffectClaim::owner(id, call),
        expires_at,
    });
    claims.chain(events.iter().flat_map(move |envelope| take_puts(id, envelope)))
}

/// The keys that starts took for good, and what each of them says of whose it is.
pub(crate) fn taken_for_good(run: RunId, events: &[Envelope]) -> impl Iterator<Item = (String, Digest)> {
    events.iter().flat_map(move |envelope| {
        let claims = claims(envelope).map(move |(call, key)| (key, EffectClaim::owner(run, call)));
        let started = if let Event::CallStarted(started) = &envelope.event { Some(started) } else { None };
        let numbers = started.into_iter().flat_map(move |started| {
            let owner = EffectClaim::owner(run, started.call);
            started.takes.iter().flat_map(BudgetTake::numbers).map(move |key| (key, owner))
        });
        claims.chain(numbers)
    })
}

/// The keys that say how much starts took from budgets, of what still counts at this instant.
pub(crate) fn counted_takes(
    run: RunId,
    events: &[Envelope],
    now: Timestamp,
) -> impl Iterator<Item = (String, Digest)> {
    events.iter().flat_map(move |envelope| {
        let started = if let Event::CallStarted(started) = &envelope.event { Some(started) } else { None };
        started.into_iter().flat_map(move |started| {
            let counts = move |take: &&BudgetTake| envelope.at.plus(take.window) > now;
            let (at, owner) = (envelope.at, EffectClaim::owner(run, started.call));
            let taken = started.takes.iter().filter(counts);
            taken.map(move |take| (take.stored(at, started.call, started.attempt), owner))
        })
    })
}

/// Who may see and decide the holds that these events open or change: these people, and whoever the events name.
pub(crate) fn audiences(run: RunId, events: &[Envelope], who: &HoldAudience) -> Vec<SideWrite> {
    let shown = events.iter().filter_map(|envelope| match &envelope.event {
        Event::HoldOpened(opened) => Some((opened.hold, with_approvers(who.members(), &opened.demands))),
        // Other arguments may be other people's business as well.
        Event::HoldEdited(edited) => Some((edited.hold, with_approvers(Vec::new(), &edited.demands))),
        Event::HoldEscalated(escalated) => Some((escalated.hold, members(&escalated.to))),
        Event::HoldDelegated(delegated) => {
            Some((delegated.hold, members(&[Approver::User(delegated.delegation.to.clone())])))
        }
        _ => None,
    });
    let shown = shown.filter(|(_, who)| !who.is_empty());
    shown.map(|(key, who)| SideWrite::Audience { hold: HoldId { run, key }, who }).collect()
}

/// These people, and those whom the rules of a hold name.
fn with_approvers(mut who: Vec<AudienceMember>, demands: &[Demand]) -> Vec<AudienceMember> {
    for member in demands.iter().flat_map(|demand| members(demand.approvers.iter().flatten())) {
        if !who.contains(&member) {
            who.push(member);
        }
    }
    who
}

/// How audiences name these people. Owners are among those who see every hold of their runs.
fn members<'a>(approvers: impl IntoIterator<Item = &'a Approver>) -> Vec<AudienceMember> {
    let named = approvers.into_iter().filter_map(|approver| match approver {
        Approver::Owner => None,
        Approver::User(_) | Approver::Group(_) | Approver::Role(_) => {
            Some(AudienceMember(approver.to_string()))
        }
    });
    named.collect()
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
