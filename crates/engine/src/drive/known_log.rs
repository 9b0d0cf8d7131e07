//! What a drive knows of its run: the events that are durable, with those that are still on their way to plan by.
//!
//! Looked at in place, because a log may be long. What is on its way is never shown to anybody; once the run rests, all of it is
//! left for whoever began the drive.

use std::sync::Arc;

use standfast_core::event::Envelope;
use standfast_core::id::Seq;

use super::Drive;
use crate::wakes::{RestSlot, RestedRun};

/// The run's events with those that are still on their way. A log that was read a moment later than the run may have more
/// than the run knows of.
pub(super) fn known_events(drive: &Drive) -> impl Iterator<Item = &Envelope> {
    let durable = drive.durable_seq();
    drive.log.iter().take_while(move |envelope| envelope.seq <= durable).chain(drive.pipeline.unsettled())
}

/// The same as one slice, without copying the log: what is on its way is put behind it for as long as somebody looks.
pub(super) fn with_known_log<T>(drive: &mut Drive, look: impl FnOnce(&[Envelope]) -> T) -> T {
    let durable = drive.durable_seq();
    let whole = drive.log.iter().take_while(|envelope| envelope.seq <= durable).count();
    let mut unsettled = drive.pipeline.unsettled().peekable();
    if unsettled.peek().is_none() {
        return look(&drive.log[..whole]);
    }
    let log = Arc::make_mut(&mut drive.log);
    let later = log.split_off(whole);
    log.extend(unsettled.cloned());
    let seen = look(log);
    log.truncate(whole);
    log.extend(later);
    seen
}

/// The run as it came to rest, for whoever began this drive, if all of it is in hand and the run is nobody's.
pub(super) fn what_it_came_to(drive: &mut Drive) -> Option<(RestSlot, RestedRun)> {
    let is_whole = Seq(drive.log.len() as u64) == drive.durable_seq();
    let is_free = !drive.is_leased && !drive.is_lost;
    let slot = drive.rest.take().filter(|slot| is_whole && is_free && !slot.is_unwanted())?;
    let row = drive.pipeline.durable()?.clone();
    let decided = std::mem::take(&mut drive.decided);
    Some((slot, RestedRun { row, log: drive.log.clone(), decided }))
}
