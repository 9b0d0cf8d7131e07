//! The walk over the log that fills a receipt.
//!
//! Says what was shown, voted, decided and started, and where in the log. The outcome of the call is
//! `transcript/results.rs`.

use super::{
    AskedCall, Attempt, Contradiction, Decision, DecisionWord, Receipt, Report, ShownRevision, Vote,
};
use crate::actor::Actor;
use crate::body::Body;
use crate::digest::Digest;
use crate::event::{
    AfterOrphan, CallFinished, CallStarted, Driver, Envelope, Event, HoldResolved, HoldVoted,
};
use crate::grant::GrantUse;
use crate::hold::{Ask, Demand, EditedArguments, HoldKind, Resolution};
use crate::id::{CallNo, HoldKey};
use crate::message::{PolicyVerdict, ToolCall};
use crate::name::ToolName;

/// Fills what the events say into the receipt.
pub(super) fn fill(receipt: &mut Receipt, call: CallNo, driver: Driver, events: &[Envelope]) {
    let mut walk = Walk { receipt, call, driver, now: CallSnapshot::default() };
    for envelope in events {
        if walk.see(envelope) == Relevance::OnThis {
            walk.receipt.events.push(envelope.seq);
        }
    }
}

struct Walk<'a> {
    receipt: &'a mut Receipt,
    call: CallNo,
    driver: Driver,
    now: CallSnapshot,
}

/// The call as it would be shown at this point of the log.
#[derive(Default)]
struct CallSnapshot {
    tool: Option<ToolName>,
    arguments: Option<Body>,
    digest: Option<Digest>,
}

/// Whether an event is part of the receipt.
#[derive(PartialEq)]
enum Relevance {
    OnThis,
    OnOthers,
}

impl Walk<'_> {
    fn see(&mut self, envelope: &Envelope) -> Relevance {
        match &envelope.event {
            Event::ModelReplied(replied) => replied
                .reply
                .calls
                .iter()
                .map(|call| self.propose(envelope, call, None))
                .fold(Relevance::OnOthers, Relevance::or),
            Event::CallProposed(proposed) => {
                self.propose(envelope, &proposed.call, proposed.grant_use.clone())
            }
            Event::CallStarted(started) => self.of_call(started.call, |walk| walk.start(envelope, started)),
            Event::CallReturned(returned) => self.of_call(returned.call, |_| {}),
            Event::CallFinished(finished) => {
                self.of_call(finished.call, |walk| walk.report(envelope, finished))
            }
            Event::CallOrphaned(orphaned) => self.of_call(orphaned.call, |walk| {
                let is_unreported = orphaned.then == AfterOrphan::Unknown && walk.driver.is_elsewhere();
                let Some(call) = walk.receipt.call.as_mut() else { return };
                if is_unreported {
                    call.report = Some(Report::NotReported);
                }
                let this = |attempt: &&mut Attempt| attempt.attempt == orphaned.attempt;
                if let Some(attempt) = call.attempts.iter_mut().find(this) {
                    attempt.reconciled.clone_from(&orphaned.reconciled);
                }
            }),
            Event::CallContradicted(finished) => {
                self.of_call(finished.call, |walk| walk.contradict(envelope, finished))
            }
            Event::HoldOpened(opened) => self.of_hold(opened.hold, |walk| {
                walk.now.digest = opened.digest.or(walk.now.digest);
                if walk.receipt.hold == Some(opened.hold) {
                    let judged = (opened.judged.as_ref(), &*opened.demands);
                    walk.show(envelope, opened.revision, judged, opened.ask.clone());
                }
            }),
            Event::HoldEdited(edited) => self.of_hold(edited.hold, |walk| {
                walk.edit(&edited.edited);
                if walk.receipt.hold == Some(edited.hold) {
                    let judged = (Some(&edited.judged), &*edited.demands);
                    walk.show(envelope, edited.edited.revision, judged, Ask::default());
                }
            }),
            Event::HoldVoted(voted) => self.of_hold(voted.hold, |walk| walk.vote(envelope, voted)),
            Event::HoldResolved(resolved) => {
                self.of_hold(resolved.hold, |walk| walk.decide(envelope, resolved))
            }
            Event::HoldAssigned(assigned) => self.of_hold(assigned.hold, |_| {}),
            Event::HoldReminded(reminded) => self.of_hold(reminded.hold, |_| {}),
            Event::HoldExpired(expired) => self.of_hold(expired.hold, |_| {}),
            Event::HoldReopened(reopened) => self.of_hold(reopened.hold, |_| {}),
            Event::HoldEscalated(escalated) => self.of_hold(escalated.hold, |_| {}),
            Event::HoldDelegated(delegated) => self.of_hold(delegated.hold, |_| {}),
            Event::RunStarted(_)
            | Event::RunClaimed(_)
            | Event::RunReleased(_)
            | Event::RunRepinned(_)
            | Event::RunErased(_)
            | Event::RunEnded(_)
            | Event::MessageReceived(_)
            | Event::MessageQueued(_)
            | Event::ModelFailed(_)
            | Event::CallProgressed(_) => Relevance::OnOthers,
        }
    }

    fn of_call(&mut self, no: CallNo, fill: impl FnOnce(&mut Self)) -> Relevance {
        if no != self.call {
            return Relevance::OnOthers;
        }
        fill(self);
        Relevance::OnThis
    }

    /// Other holds of the same call belong to it too: they say what became of the call.
    fn of_hold(&mut self, key: HoldKey, fill: impl FnOnce(&mut Self)) -> Relevance {
        let is_other_wait = self.receipt.hold != Some(key) && key.call == CallNo::RUN;
        if is_other_wait { Relevance::OnOthers } else { self.of_call(key.call, fill) }
    }

    fn propose(&mut self, envelope: &Envelope, call: &ToolCall, grant_use: Option<GrantUse>) -> Relevance {
        self.of_call(call.no, |walk| {
            walk.receipt.asked = Some(AskedCall {
                seq: envelope.seq,
                at: envelope.at,
                by: envelope.actor.clone(),
                tool: call.tool.clone(),
                arguments: call.arguments.clone(),
                digest: call.digest,
                judged: call.judged.clone(),
                grant_use,
            });
            let arguments = Some(call.arguments.clone());
            walk.now = CallSnapshot { tool: Some(call.tool.clone()), arguments, digest: call.digest };
        })
    }

    fn edit(&mut self, edited: &EditedArguments) {
        self.now.arguments = Some(edited.arguments.clone());
        self.now.digest = Some(edited.digest);
    }

    fn show(
        &mut self,
        envelope: &Envelope,
        revision: u32,
        (judged, demands): (Option<&PolicyVerdict>, &[Demand]),
        ask: Ask,
    ) {
        self.receipt.shown.push(ShownRevision {
            seq: envelope.seq,
            at: envelope.at,
            by: envelope.actor.clone(),
            revision,
            tool: self.now.tool.clone(),
            arguments: self.now.arguments.clone(),
            digest: self.now.digest,
            verdict: judged.map(|judged| judged.effect),
            rules: judged.map(|judged| judged.rules.clone()).unwrap_or_default(),
            policy: judged.and_then(|judged| judged.policy),
            grant: judged.and_then(|judged| judged.grant.clone()),
            demands: demands.to_vec(),
            ask,
        });
    }

    fn vote(&mut self, envelope: &Envelope, voted: &HoldVoted) {
        if self.receipt.hold != Some(voted.hold) {
            return;
        }
        let revision = self.receipt.shown.last().map_or(0, |shown| shown.revision);
        let (seq, at, by, role) = (envelope.seq, envelope.at, voted.by.clone(), voted.role);
        let (in_place_of, counts_for) = (voted.in_place_of.clone(), voted.counts_for.clone());
        self.receipt.votes.push(Vote { seq, at, by, role, in_place_of, counts_for, revision });
    }

    fn decide(&mut self, envelope: &Envelope, resolved: &HoldResolved) {
        if let Resolution::Approve { edited: Some(edited) } = &resolved.resolution {
            self.edit(edited);
        }
        let Some(kind) = self.receipt.kind.filter(|_| self.receipt.hold == Some(resolved.hold)) else {
            return;
        };
        let word = word(kind, &resolved.resolution);
        self.receipt.decision = Some(Decision {
            seq: envelope.seq,
            at: envelope.at,
            // Whoever's command noticed that the time had passed decided nothing.
            by: if word == DecisionWord::Expired { Actor::Clock } else { envelope.actor.clone() },
            role: resolved.role,
            in_place_of: resolved.in_place_of.clone(),
            word,
            resolution: resolved.resolution.clone(),
            idempotency_key: resolved.idempotency_key.clone(),
            late: resolved.late,
            judged: resolved.judged.clone(),
            digest: resolved.digest,
            grant: resolved.grant.clone(),
        });
    }

    fn start(&mut self, envelope: &Envelope, started: &CallStarted) {
        let digest = self.now.digest;
        if let Some(call) = &mut self.receipt.call {
            call.attempts.push(Attempt {
                seq: envelope.seq,
                attempt: started.attempt,
                at: envelope.at,
                node: started.node,
                digest,
                judged: started.judged.clone(),
                effects: started.effects.clone(),
                takes: started.takes.clone(),
                grant_use: started.grant_use.clone(),
                reconciled: None,
            });
        }
    }

    fn report(&mut self, envelope: &Envelope, finished: &CallFinished) {
        let is_reported = self.driver.is_elsewhere() && finished.refused.is_none();
        if let Some(call) = self.receipt.call.as_mut().filter(|_| is_reported) {
            call.report = Some(Report::ReportedBy(envelope.actor.clone()));
        }
    }

    fn contradict(&mut self, envelope: &Envelope, finished: &CallFinished) {
        if let Some(call) = &mut self.receipt.call {
            let (seq, at, by) = (envelope.seq, envelope.at, envelope.actor.clone());
            let (attempt, result) = (finished.attempt, finished.result.clone());
            call.contradictions.push(Contradiction { seq, at, by, attempt, result });
        }
    }
}

impl Relevance {
    fn or(self, other: Relevance) -> Relevance {
        match self {
            Relevance::OnThis => Relevance::OnThis,
            Relevance::OnOthers => other,
        }
    }
}

fn word(kind: HoldKind, resolution: &Resolution) -> DecisionWord {
    match (resolution, kind) {
        (Resolution::Approve { .. }, HoldKind::Recovery) => DecisionWord::RunAgain,
        (Resolution::Approve { edited: None }, _) => DecisionWord::Approved,
        (Resolution::Approve { edited: Some(_) }, _) => DecisionWord::Edited,
        (Resolution::Deny { .. }, HoldKind::Recovery) => DecisionWord::DidNotHappen,
        (Resolution::Deny { .. }, _) => DecisionWord::Denied,
        (Resolution::Answer { .. }, HoldKind::Recovery) => DecisionWord::Happened,
        (Resolution::Answer { .. }, HoldKind::Auth) => DecisionWord::LoggedIn,
        (Resolution::Answer { .. }, _) => DecisionWord::Answered,
        (Resolution::Fail { .. }, _) => DecisionWord::Failed,
        (Resolution::Expire, _) => DecisionWord::Expired,
        (Resolution::Withdraw, _) => DecisionWord::Withdrawn,
        (Resolution::Supersede, _) => DecisionWord::Superseded,
    }
}
