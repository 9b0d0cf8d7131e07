//! A run that came to rest, left by whoever drove it for whoever asked for that: so nobody reads back what was just written.
//!
//! It goes from one drive to the one caller whose append that drive began with, so it always has that append. Any other wake
//! of the run discards it: then the run is read. It is kept for nobody else, and for no longer than the caller waits.

use std::sync::Arc;

use standfast_core::event::Envelope;
use standfast_core::project::{HoldRow, RunRow};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::RunListener;

/// A run as it was when it came to rest.
#[derive(Debug)]
pub(crate) struct RestedRun {
    /// Its row; nobody has a lease on it.
    pub(crate) row: RunRow,
    /// All its events.
    pub(crate) log: Arc<Vec<Envelope>>,
    /// The holds that were decided since the drive began.
    pub(crate) decided: Vec<HoldRow>,
}

/// What a drive leaves, with the number of changes that it was part of.
#[derive(Debug)]
struct RestNote {
    rested: RestedRun,
    changes: u64,
}

/// Where a drive leaves its run.
#[derive(Debug)]
pub(crate) struct RestSlot(oneshot::Sender<RestNote>);

/// What a caller has of a run that is driven because they asked for it: how the run stands, once it rests.
#[derive(Debug)]
pub struct RestTicket {
    note: oneshot::Receiver<RestNote>,
    listener: Arc<RunListener>,
}

/// A slot and its ticket, for a run that is listened to.
pub(crate) fn rest_slot(listener: Arc<RunListener>) -> (RestSlot, RestTicket) {
    let (slot, note) = oneshot::channel();
    (RestSlot(slot), RestTicket { note, listener })
}

impl RestSlot {
    /// Whether its caller has stopped waiting.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.0.is_closed()
    }

    /// Leaves it, as so many changes have made it: just before whoever listens is woken for the last of them.
    pub(crate) fn leave(self, rested: RestedRun, changes: u64) {
        // Whoever asked may have gone away; what was written is written.
        let _ = self.0.send(RestNote { rested, changes });
    }
}

/// What a ticket is worth now.
#[derive(Debug)]
pub(crate) enum RestState {
    /// The run is driven, and has not come to rest since.
    GoesOn,
    /// This is how it came to rest, and nothing else has happened to it since.
    Rests(Box<RestedRun>),
    /// Nothing was left, or something else has happened: the run is to be read.
    Unknown,
}

impl RestTicket {
    /// What became of the run; what was left is given out once.
    pub(crate) fn look(&mut self) -> RestState {
        match self.note.try_recv() {
            Ok(note) if note.changes == self.listener.changes() => RestState::Rests(Box::new(note.rested)),
            Ok(_) | Err(TryRecvError::Closed) => RestState::Unknown,
            Err(TryRecvError::Empty) => RestState::GoesOn,
        }
    }
}
