//! What was posted in rooms: the name that a chat gave to the message about a hold, so that the same message is changed later on.
//!
//! Rows beside the runs, kept until the hold is decided. What stands in one is its kind's business; the deliverer sends in order
//! for each room and run, so nobody else changes it in between.

use std::sync::Arc;

use standfast_core::id::HoldId;
use standfast_core::name::Tenant;
use standfast_store::SealedChange;

use super::SendFailure;
use crate::log::Log;

/// What was posted in one room.
pub struct ChannelPosts {
    pub(super) log: Arc<Log>,
    pub(super) tenant: Tenant,
    pub(super) subscription: String,
}

impl ChannelPosts {
    /// What is known of the message about a hold.
    pub async fn of(&self, hold: HoldId) -> Result<Option<String>, SendFailure> {
        let found = self.log.store.sealed(self.tenant.clone(), self.name(hold)).await;
        found.map_err(|error| SendFailure::from(error.to_string()))
    }

    /// Remembers something else of it, or nothing any more.
    pub async fn keep(
        &self,
        hold: HoldId,
        before: Option<String>,
        after: Option<String>,
    ) -> Result<(), SendFailure> {
        if before == after {
            return Ok(());
        }
        let change = SealedChange { tenant: self.tenant.clone(), name: self.name(hold), before, after };
        match self.log.store.change_sealed(change).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("another node has posted about this hold; looking again".into()),
            Err(error) => Err(error.to_string().into()),
        }
    }

    fn name(&self, hold: HoldId) -> String {
        format!("post {} {hold}", self.subscription)
    }
}
