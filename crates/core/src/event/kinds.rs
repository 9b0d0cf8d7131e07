//! The names of the kinds of events, as they are stored, and the bits that stand for them.
//!
//! What a kind means is its doc comment in `event.rs`.

use super::Event;

impl Event {
    /// Its kind, as stored.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Event::RunStarted(_) => "run.started",
            Event::RunClaimed(_) => "run.claimed",
            Event::RunReleased(_) => "run.released",
            Event::RunRepinned(_) => "run.repinned",
            Event::RunErased(_) => "run.erased",
            Event::RunEnded(_) => "run.ended",
            Event::MessageReceived(_) => "message.received",
            Event::MessageQueued(_) => "message.queued",
            Event::ModelReplied(_) => "model.replied",
            Event::ModelFailed(_) => "model.failed",
            Event::CallProposed(_) => "call.proposed",
            Event::CallStarted(_) => "call.started",
            Event::CallReturned(_) => "call.returned",
            Event::CallProgressed(_) => "call.progressed",
            Event::CallFinished(_) => "call.finished",
            Event::CallOrphaned(_) => "call.orphaned",
            Event::CallContradicted(_) => "call.contradicted",
            Event::HoldOpened(_) => "hold.opened",
            Event::HoldVoted(_) => "hold.voted",
            Event::HoldEdited(_) => "hold.edited",
            Event::HoldAssigned(_) => "hold.assigned",
            Event::HoldReminded(_) => "hold.reminded",
            Event::HoldExpired(_) => "hold.expired",
            Event::HoldReopened(_) => "hold.reopened",
            Event::HoldResolved(_) => "hold.resolved",
            Event::HoldEscalated(_) => "hold.escalated",
            Event::HoldDelegated(_) => "hold.delegated",
        }
    }

    /// The bit that stands for a kind in a stored set of kinds; none for what is not a kind.
    #[must_use]
    pub fn bit(kind: &str) -> Option<u64> {
        Event::KINDS.iter().position(|known| *known == kind).map(|at| 1 << at)
    }

    /// Every kind, in the order of the code: the list that golden files and tables are checked against. Stored sets of
    /// kinds count on the positions: a new kind goes to the end.
    pub const KINDS: [&'static str; 27] = [
        "run.started",
        "run.claimed",
        "run.released",
        "run.repinned",
        "run.erased",
        "run.ended",
        "message.received",
        "message.queued",
        "model.replied",
        "model.failed",
        "call.proposed",
        "call.started",
        "call.returned",
        "call.progressed",
        "call.finished",
        "call.orphaned",
        "call.contradicted",
        "hold.opened",
        "hold.voted",
        "hold.edited",
        "hold.assigned",
        "hold.reminded",
        "hold.expired",
        "hold.reopened",
        "hold.resolved",
        "hold.escalated",
        "hold.delegated",
    ];
}
