//! Whether there is room for one more run: a server that has more to do than it can says so before it takes more.
//!
//! Only what begins a run is refused, with a 503 and a time to come back. Decisions, messages, reports and reads are not: they
//! let work end. The store has a queue of its own behind this one, four times as long by default, which is theirs then. What
//! waits is counted in this process; how many runs are stored and wait for a slot is asked of the store, and only while some
//! agent has no slot left.

use standfast_store::StoreError;

use super::Submit;
use crate::EngineError;

impl Submit {
    /// Refuses a new run when too much waits already.
    pub(super) fn refuse_if_overloaded(&self) -> Result<(), EngineError> {
        let settings = self.host.settings();
        let (load, telemetry) = (&settings.load, &self.host.fixed.telemetry);
        let (writes, queued) = (telemetry.waiting_writes(), self.host.queued_runs());
        let what = if writes >= load.waiting_writes {
            format!("{writes} writes wait for the store")
        } else if queued >= load.queued_runs {
            format!("{queued} runs wait for a slot")
        } else {
            return Ok(());
        };
        telemetry.shed();
        let why = format!(
            "the server has too much to do: {what}; new runs are refused for now, decisions and reads are not"
        );
        Err(StoreError::Unavailable { why }.into())
    }
}
