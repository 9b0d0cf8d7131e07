//! Requests that may be sent again: the same key with the same body does it once.
//!
//! A key belongs to whoever sends it and to what it is sent to, so that nobody finds out about, or gets in the way of,
//! another's. It is written by the very append that it guards; what it answers with is read from the run, not stored.

use holdpoint_core::digest::{self, Digest};
use holdpoint_core::time::Millis;
use holdpoint_store::{Guard, KeyRecord, Put, StoreError};

use super::{Engine, EngineError, Shared};
use crate::auth::Principal;

/// How long a key is remembered.
const REMEMBERED: Millis = Millis::hours(7 * 24);

/// Keys forgotten at once at most.
const FORGET_MAX: usize = 1000;

/// A request that its sender may send again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// What it is sent to: the same key elsewhere is another key.
    pub route: String,
    /// The sender's key.
    pub key: String,
    /// Digest of the body.
    pub request: Digest,
}

impl Once {
    /// The key as it is stored: of fixed length, whatever the sender chose.
    fn stored(&self, who: &Principal) -> String {
        let parts = [who.user.as_str().as_bytes(), self.route.as_bytes(), self.key.as_bytes()];
        digest::of_parts("holdpoint.once.1", &parts).to_string()
    }
}

/// What an append must check and write so that a request is carried out once.
#[derive(Debug, Clone, Default)]
pub(super) struct Mark {
    pub(super) guard: Option<Guard>,
    pub(super) put: Option<Put>,
}

impl Engine {
    /// Whether this very request was carried out before; a different one under its key is refused.
    pub async fn was_done(&self, who: &Principal, once: Option<&Once>) -> Result<bool, EngineError> {
        Ok(self.shared.done_before(who, once).await?.is_some())
    }
}

impl Shared {
    pub(super) fn mark(&self, who: &Principal, once: Option<&Once>) -> Mark {
        let Some(once) = once else { return Mark::default() };
        let (key, expires_at) = (once.stored(who), self.clock.now().plus(REMEMBERED));
        let guard = Guard::KeyUnused { key: key.clone() };
        let put = Put::Key { key, request: once.request, expires_at };
        Mark { guard: Some(guard), put: Some(put) }
    }

    /// What this very request did when it came before; a different one under its key is refused.
    pub(super) async fn done_before(
        &self,
        who: &Principal,
        once: Option<&Once>,
    ) -> Result<Option<KeyRecord>, EngineError> {
        let Some(once) = once else { return Ok(None) };
        let found = self.store.find_key(who.tenant.clone(), once.stored(who)).await?;
        match found {
            Some(record) if record.request != once.request => {
                Err(EngineError::KeyReused { key: once.key.clone() })
            }
            found => Ok(found),
        }
    }

    /// Forgets keys whose time has passed.
    pub(super) async fn forget_keys(&self) -> Result<(), StoreError> {
        while self.store.forget_keys(self.clock.now(), FORGET_MAX).await? == FORGET_MAX {}
        Ok(())
    }
}
