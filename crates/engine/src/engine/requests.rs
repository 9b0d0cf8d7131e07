//! Requests: what one turn asks people, found by one id (S1-4, S1-29).
//!
//! The run in front of the id is the indexed lookup, the same in every store; its log says whether the rest is true.

use standfast_core::id::{HoldId, RequestId, Seq, tenant_tag};
use standfast_core::refusal::Refusal;
use standfast_core::request::requests;
use standfast_core::run::Run;

use super::views::HoldView;
use super::{Engine, EngineError};
use crate::auth::Principal;

/// A request with what it asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestView {
    /// The run that waits, or waited, for it.
    pub run: Run,
    /// Its holds, open and decided, in the order in which they opened.
    pub holds: Vec<HoldView>,
}

impl Engine {
    /// A request by its id. Unlike a run or a hold, one that belongs to somebody else of the same tenant is *refused*, not
    /// hidden: the id cannot be guessed, and whoever has it is told that it is not theirs (S1-17, C12).
    pub async fn request(&self, who: &Principal, id: RequestId) -> Result<RequestView, EngineError> {
        if id.run.tenant_tag() != tenant_tag(&who.tenant) {
            return Err(EngineError::NotFound);
        }
        let run = self.load(id.run).await?.row.run;
        let log = self.shared.events(id.run, Seq(0)).await?;
        let asked = requests(&log).into_iter().find(|request| request.key == id.key);
        let Some((first, _)) = asked.as_ref().and_then(|request| request.holds.first()) else {
            return Err(EngineError::NotFound);
        };
        if run.facts.tenant != who.tenant {
            return Err(EngineError::NotFound);
        }
        if !self.may_see(who, &run.facts) {
            return Err(Refusal::NotAllowed(*first).into());
        }
        let mut holds = Vec::new();
        for (key, _) in asked.iter().flat_map(|request| &request.holds) {
            holds.push(self.hold(who, HoldId { run: id.run, key: *key }).await?);
        }
        Ok(RequestView { run, holds })
    }
}
