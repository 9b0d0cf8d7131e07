//! What stays of a run whose contents are erased, for the proof of that.
//!
//! Made while the contents are still there: afterwards there is nothing to fold it from.

use serde::Serialize;
use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::{BadLink, Contents, Link};
use standfast_core::project::hold_rows;
use standfast_store::StoreError;
use standfast_store::audit::remains_digest;

use super::Log;

/// A run whose contents go, with the head of the chain that stays.
#[derive(Serialize)]
pub(crate) struct ErasedRun {
    pub(crate) run: RunId,
    pub(crate) seq: Seq,
    pub(crate) hash: Digest,
    /// What else stays of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remains: Option<Digest>,
}

impl Log {
    /// What stays of a run that says it is erased.
    pub(crate) async fn remains_of(&self, run: RunId) -> Result<ErasedRun, StoreError> {
        let row = self.store.load(run).await?.row;
        let links = self.store.links(run, Seq(0), usize::MAX).await?;
        let is_whole = links.iter().all(|link| matches!(link.contents, Contents::Whole { .. }));
        let events = links.iter().map(Link::events).collect::<Result<Vec<_>, BadLink>>();
        let events = events.map_err(|bad| StoreError::Corrupt { run, why: bad.to_string() })?.concat();
        let remains = is_whole.then(|| remains_digest(&row.run, &hold_rows(run, &events)));
        Ok(ErasedRun { run, seq: row.run.state.seq, hash: row.head, remains })
    }
}
