//! Requests that may be sent again: the same key with the same body does it once, and so does the same message to a run.
//!
//! A key belongs to whoever sends it and to what it is sent to, so that nobody finds out about, or gets in the way of,
//! another's. It is written by the very append that it guards; what it answers with is read from the run, not stored.

use standfast_core::digest::{self, Digest};
use standfast_core::id::RunId;
use standfast_core::time::Millis;
use standfast_store::{Guard, KeyRecord, Put, StoreError};

use super::{Engine, EngineError, Shared};
use crate::auth::Principal;

/// How long a key is remembered.
pub(super) const REMEMBERED: Millis = Millis::hours(7 * 24);

/// Keys forgotten at once at most.
const FORGET_MAX: usize = 1000;

/// A request that its sender may send again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// What it is sent to: the same key elsewhere is another key.
    pub(super) route: String,
    /// The sender's key.
    pub(super) key: String,
    /// Digest of the body.
    pub(super) request: Digest,
    /// What the key is.
    named_by: NamedBy,
    /// Another key that the same request must not have been carried out under.
    also: Option<Box<Once>>,
}

/// What a request is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    /// An idempotency key that its sender chose for it: another body under it is a mistake.
    Key,
    /// The message that it brings: whatever else comes with it, it was carried out.
    Message,
}

impl Once {
    /// A request to a route under its sender's key.
    #[must_use]
    pub fn new(route: impl Into<String>, key: impl Into<String>, request: Digest) -> Once {
        Once { route: route.into(), key: key.into(), request, named_by: NamedBy::Key, also: None }
    }

    /// A message to a run, by what its sender calls it (C26).
    #[must_use]
    pub fn message(run: RunId, id: &str) -> Once {
        let named_by = NamedBy::Message;
        Once {
            route: format!("message {run}"),
            key: id.to_owned(),
            request: Digest([0; 32]),
            named_by,
            also: None,
        }
    }

    /// The same request, which must not have been carried out under this either.
    #[must_use]
    pub fn and(self, other: Option<Once>) -> Once {
        Once { also: other.map(Box::new), ..self }
    }

    /// One of several parts of the request, each of which is carried out once.
    #[must_use]
    pub fn part(&self, name: &str) -> Once {
        let also = self.also.as_ref().map(|also| Box::new(also.part(name)));
        Once { key: format!("{}/{name}", self.key), also, ..self.clone() }
    }

    /// The key that the sender chose, if it did.
    pub(super) fn chosen_key(&self) -> Option<&str> {
        match self.named_by {
            NamedBy::Key => Some(&self.key),
            NamedBy::Message => self.also.as_ref().and_then(|also| also.chosen_key()),
        }
    }

    /// The key as it is stored: of fixed length, whatever the sender chose.
    pub(super) fn stored(&self, who: &Principal) -> String {
        let parts = [who.user.as_str().as_bytes(), self.route.as_bytes(), self.key.as_bytes()];
        digest::of_parts("standfast.once.1", &parts).to_string()
    }

    /// This one and those beside it.
    fn all(&self) -> impl Iterator<Item = &Once> {
        std::iter::successors(Some(self), |one| one.also.as_deref())
    }
}

/// What an append must check and write so that a request is carried out once.
#[derive(Debug, Clone, Default)]
pub(super) struct Mark {
    pub(super) guards: Vec<Guard>,
    pub(super) puts: Vec<Put>,
}

impl Engine {
    /// Whether this very request was carried out before; a different one under its key is refused.
    pub async fn was_done(&self, who: &Principal, once: Option<&Once>) -> Result<bool, EngineError> {
        Ok(self.shared.done(who, once).await?.is_some())
    }
}

impl Shared {
    pub(super) fn mark(&self, who: &Principal, once: Option<&Once>) -> Mark {
        let mut mark = Mark::default();
        for once in once.into_iter().flat_map(Once::all) {
            let (key, expires_at) = (once.stored(who), self.clock.now().plus(REMEMBERED));
            mark.guards.push(Guard::KeyUnused { key: key.clone() });
            mark.puts.push(Put::Key { key, request: once.request, expires_at });
        }
        mark
    }

    /// What this very request did when it came before under a key that its sender chose; a different one under its key is
    /// refused. A message is not looked up: the append that carries it out again is refused, which costs nothing.
    pub(super) async fn done_before(
        &self,
        who: &Principal,
        once: Option<&Once>,
    ) -> Result<Option<KeyRecord>, EngineError> {
        let chosen = once.into_iter().flat_map(Once::all).filter(|once| once.named_by == NamedBy::Key);
        self.found(who, chosen).await
    }

    /// What this very request did when it came before, whatever it is known by.
    pub(super) async fn done(
        &self,
        who: &Principal,
        once: Option<&Once>,
    ) -> Result<Option<KeyRecord>, EngineError> {
        self.found(who, once.into_iter().flat_map(Once::all)).await
    }

    async fn found(
        &self,
        who: &Principal,
        all: impl Iterator<Item = &Once>,
    ) -> Result<Option<KeyRecord>, EngineError> {
        for once in all {
            match self.store.find_key(who.tenant.clone(), once.stored(who)).await? {
                Some(record) if record.request != once.request => {
                    return Err(EngineError::KeyReused { key: once.key.clone() });
                }
                Some(record) => return Ok(Some(record)),
                None => {}
            }
        }
        Ok(None)
    }

    /// Forgets keys whose time has passed.
    pub(super) async fn forget_keys(&self) -> Result<(), StoreError> {
        while self.store.forget_keys(self.clock.now(), FORGET_MAX).await? == FORGET_MAX {}
        Ok(())
    }
}
