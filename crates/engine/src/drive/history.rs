//! What came before a run in its conversation, read once for each drive.
//!
//! Its start names the earlier runs (`log/conversation.rs` chose them); whichever node drives the run reads the same.

use standfast_core::definition::Definition;
use standfast_core::event::{Event, History};
use standfast_core::transcript::{Entry, history};

use super::Drive;
use super::known_log::known_events;
use crate::EngineError;

/// The conversation before this run, as its model is reminded of it.
pub(super) async fn earlier_entries(
    drive: &mut Drive,
    definition: &Definition,
) -> Result<Vec<Entry>, EngineError> {
    if drive.earlier.is_none() {
        let Some(pinned) = known_events(drive).next().and_then(|first| pinned(&first.event)).cloned() else {
            return Ok(Vec::new());
        };
        let logs = drive.drives.log.earlier_events(&pinned).await?;
        drive.earlier = Some(history(&pinned, &logs, definition));
    }
    Ok(drive.earlier.clone().unwrap_or_default())
}

/// The earlier runs that a start names.
fn pinned(event: &Event) -> Option<&History> {
    if let Event::RunStarted(started) = event { started.history.as_ref() } else { None }
}
