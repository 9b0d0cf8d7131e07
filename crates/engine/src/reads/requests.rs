//! Requests: what one turn asks people, found by one id (S1-4, S1-29).
//!
//! The run in front of the id is the indexed lookup, the same in every store; its log says whether the rest is true.

use standfast_core::id::{HoldId, RequestId, tenant_tag};
use standfast_core::refusal::Refusal;
use standfast_core::request::requests;

use super::HoldView;
use super::Reads;
use crate::EngineError;
use crate::auth::Principal;
use crate::log::Snapshot;

/// A request with what it asked.
pub struct RequestView {
    /// The run that waits, or waited, for it, as it was when the request was looked up.
    pub snapshot: Snapshot,
    /// Its holds, open and decided, in the order in which they opened.
    pub holds: Vec<HoldView>,
}

impl Reads {
    /// A request by its id. Unlike a run or a hold, one that belongs to somebody else of the same tenant is *refused*, not
    /// hidden: the id cannot be guessed, and whoever has it gets the error that it is not theirs (S1-17, C12).
    pub async fn request(&self, who: &Principal, id: RequestId) -> Result<RequestView, EngineError> {
        if id.run.tenant_tag() != tenant_tag(&who.tenant) {
            return Err(EngineError::NotFound);
        }
        let snapshot = self.log.any_snapshot(id.run).await?;
        let run = snapshot.run();
        let asked = requests(snapshot.log().await?).into_iter().find(|request| request.key == id.key);
        if asked.as_ref().is_none_or(|request| request.holds.is_empty()) {
            return Err(EngineError::NotFound);
        }
        if run.facts.tenant != who.tenant {
            return Err(EngineError::NotFound);
        }
        if !self.log.may_see_run(who, run) {
            return Err(Refusal::NotAllowed(None).into());
        }
        let mut holds = Vec::new();
        for (key, _) in asked.iter().flat_map(|request| &request.holds) {
            holds.push(self.hold_view(who, &snapshot, HoldId { run: id.run, key: *key }).await?);
        }
        Ok(RequestView { snapshot, holds })
    }
}
