//! What came before a run in its conversation, read once for each drive.
//!
//! Its start names the earlier runs (`log/conversation.rs` chose them); whichever node drives the run reads the same.

use standfast_core::definition::Definition;
use standfast_core::event::{Envelope, Event};
use standfast_core::transcript::{Entry, history};

use super::Drive;
use crate::EngineError;

/// The conversation before this run, as its model is reminded of it.
pub(super) async fn earlier_entries(
    drive: &mut Drive,
    events: &[Envelope],
    definition: &Definition,
) -> Result<Vec<Entry>, EngineError> {
    let Some(Event::RunStarted(started)) = events.first().map(|first| &first.event) else {
        return Ok(Vec::new());
    };
    let Some(pinned) = &started.history else { return Ok(Vec::new()) };
    if drive.earlier.is_none() {
        let logs = drive.drives.log.earlier_events(pinned).await?;
        drive.earlier = Some(history(pinned, &logs, definition));
    }
    Ok(drive.earlier.clone().unwrap_or_default())
}
