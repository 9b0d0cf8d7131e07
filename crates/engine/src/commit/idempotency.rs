//! Requests that may be sent again: the same key with the same body does it once, and so does the same message to a run.
//!
//! A key belongs to whoever sends it and to what it is sent to, so that nobody finds out about, or gets in the way of,
//! another's. It is written by the very append that it guards; what it answers with is read from the run, not stored.

use standfast_core::decide::Answer;
use standfast_core::digest::{self, Digest};
use standfast_core::id::RunId;
use standfast_core::project::RunRow;
use standfast_core::time::Millis;
use standfast_store::pipeline::Writes;
use standfast_store::{Guard, KeyRecord, SideWrite, StoreError};

use super::{Change, Commit};
use crate::EngineError;
use crate::auth::Principal;

/// How long a key is remembered.
pub(crate) const REMEMBERED: Millis = Millis::hours(7 * 24);

/// Keys forgotten at once at most.
const FORGET_MAX: usize = 1000;

/// A request that its sender may send again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// What it is sent to: the same key elsewhere is another key.
    pub(crate) route: String,
    /// The sender's key.
    pub(crate) key: String,
    /// Digest of the body.
    pub(crate) request: Digest,
    /// What the key is.
    named_by: NamedBy,
    /// Another key that the same request must not have been carried out under.
    also: Option<Box<IdempotencyKey>>,
}

/// What a request is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    /// An idempotency key that its sender chose for it: another body under it is a mistake.
    Key,
    /// The message that it brings: whatever else comes with it, it was carried out.
    Message,
}

impl IdempotencyKey {
    /// A request to a route under its sender's key.
    #[must_use]
    pub fn new(route: impl Into<String>, key: impl Into<String>, request: Digest) -> IdempotencyKey {
        IdempotencyKey { route: route.into(), key: key.into(), request, named_by: NamedBy::Key, also: None }
    }

    /// A message to a run, by what its sender calls it (C26).
    #[must_use]
    pub fn message(run: RunId, id: &str) -> IdempotencyKey {
        let named_by = NamedBy::Message;
        IdempotencyKey {
            route: format!("message {run}"),
            key: id.to_owned(),
            request: Digest([0; 32]),
            named_by,
            also: None,
        }
    }

    /// The same request, which must not have been carried out under this either.
    #[must_use]
    pub fn and(self, other: Option<IdempotencyKey>) -> IdempotencyKey {
        IdempotencyKey { also: other.map(Box::new), ..self }
    }

    /// One of several parts of the request, each of which is carried out once.
    #[must_use]
    pub fn part(&self, name: &str) -> IdempotencyKey {
        let also = self.also.as_ref().map(|also| Box::new(also.part(name)));
        IdempotencyKey { key: format!("{}/{name}", self.key), also, ..self.clone() }
    }

    /// The key that the sender chose, if it did.
    pub(crate) fn chosen_key(&self) -> Option<&str> {
        match self.named_by {
            NamedBy::Key => Some(&self.key),
            NamedBy::Message => self.also.as_ref().and_then(|also| also.chosen_key()),
        }
    }

    /// The key as it is stored: of fixed length, whatever the sender chose.
    pub(crate) fn stored(&self, who: &Principal) -> String {
        let parts = [who.user.as_str().as_bytes(), self.route.as_bytes(), self.key.as_bytes()];
        digest::of_parts("standfast.once.1", &parts).to_string()
    }

    /// This one and those beside it.
    fn all(&self) -> impl Iterator<Item = &IdempotencyKey> {
        std::iter::successors(Some(self), |one| one.also.as_deref())
    }
}

impl Commit {
    /// Whether this very request was carried out before; a different one under its key is refused.
    pub(crate) async fn was_done(
        &self,
        who: &Principal,
        once: Option<&IdempotencyKey>,
    ) -> Result<bool, EngineError> {
        Ok(self.done(who, once).await?.is_some())
    }

    /// What an append checks and writes so that a request is carried out once.
    pub(crate) fn mark(&self, who: &Principal, once: Option<&IdempotencyKey>) -> Writes {
        let mut mark = Writes::default();
        for once in once.into_iter().flat_map(IdempotencyKey::all) {
            let (key, expires_at) = (once.stored(who), self.host.clock.now().plus(REMEMBERED));
            mark.guards.push(Guard::KeyUnused { key: key.clone() });
            mark.puts.push(SideWrite::Key { key, request: once.request, expires_at });
        }
        mark
    }

    /// What this very request did when it came before under a key that its sender chose; a different one under its key is
    /// refused. A message is not looked up: the append that carries it out again is refused, which costs nothing.
    pub(crate) async fn done_before(
        &self,
        who: &Principal,
        once: Option<&IdempotencyKey>,
    ) -> Result<Option<KeyRecord>, EngineError> {
        let chosen =
            once.into_iter().flat_map(IdempotencyKey::all).filter(|once| once.named_by == NamedBy::Key);
        self.found(who, chosen).await
    }

    /// What this very request did when it came before, whatever it is known by.
    pub(crate) async fn done(
        &self,
        who: &Principal,
        once: Option<&IdempotencyKey>,
    ) -> Result<Option<KeyRecord>, EngineError> {
        self.found(who, once.into_iter().flat_map(IdempotencyKey::all)).await
    }

    async fn found(
        &self,
        who: &Principal,
        all: impl Iterator<Item = &IdempotencyKey>,
    ) -> Result<Option<KeyRecord>, EngineError> {
        for once in all {
            match self.log.store.find_key(who.tenant.clone(), once.stored(who)).await? {
                Some(record) if record.request != once.request => {
                    return Err(EngineError::KeyReused { key: once.key.clone() });
                }
                Some(record) => return Ok(Some(record)),
                None => {}
            }
        }
        Ok(None)
    }

    /// Commits a change whose request may be sent again.
    pub(crate) async fn commit_once(
        &self,
        who: &Principal,
        once: Option<&IdempotencyKey>,
        base: RunRow,
        change: Change,
    ) -> Result<Answer, EngineError> {
        let committed = self.commit(base, change).await.map(|committed| committed.answer);
        self.unless_repeated(who, once, committed).await
    }

    /// The same of several runs in one append.
    pub(crate) async fn commit_jointly_once(
        &self,
        who: &Principal,
        once: Option<&IdempotencyKey>,
        lead: (RunRow, Change),
        others: Vec<(RunRow, Change)>,
    ) -> Result<Answer, EngineError> {
        let committed = self.commit_jointly(lead, others).await;
        self.unless_repeated(who, once, committed).await
    }

    /// A request that was refused, perhaps because a concurrent duplicate of it was carried out a moment before.
    pub(crate) async fn unless_repeated(
        &self,
        who: &Principal,
        once: Option<&IdempotencyKey>,
        answer: Result<Answer, EngineError>,
    ) -> Result<Answer, EngineError> {
        match answer {
            Err(error @ (EngineError::Store(StoreError::Guard { .. }) | EngineError::Refused(_))) => {
                let before = self.done(who, once).await?;
                before.map(|_| Answer::Repeated).ok_or(error)
            }
            other => other,
        }
    }

    /// Forgets keys whose time has passed.
    pub(crate) async fn forget_keys(&self) -> Result<(), StoreError> {
        while self.log.store.forget_keys(self.host.clock.now(), FORGET_MAX).await? == FORGET_MAX {}
        Ok(())
    }
}
