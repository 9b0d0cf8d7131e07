//! Receivers that a client names for one run, with secrets of its own.
//!
//! They are subscriptions like all others: the same store, the same deliverer, the same dead letters. What is different is
//! that the client names them, each for itself, and that it brings the secrets that its receiver knows it by: those are
//! kept sealed.

use std::sync::{Arc, OnceLock};

use standfast_core::base32;
use standfast_core::digest::{self, Digest};
use standfast_core::event::Event;
use standfast_core::id::RunId;
use standfast_store::{Scope as Hears, StoreError, Subscription, SubscriptionQuery};

use super::{COLUMN, CallbackDetails, ChatAccounts, Receiver, SubscriptionError};
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::host::Host;
use crate::identity::{Identity, Owner};
use crate::log::{Log, needs, needs_for};
use crate::outbound::guard::BlockReason;

/// Receivers that a client may name for one run: every append looks at them.
const CALLBACKS_MAX: usize = 20;

/// What becomes of an address whose name leads nowhere when it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnresolvedHost {
    /// It is refused: a person can correct it.
    Refused,
    /// It is kept: it is looked at again at each delivery.
    Kept,
}

/// A receiver that a client names.
#[derive(Clone)]
pub struct Callback {
    /// The kind of receiver.
    pub kind: &'static str,
    /// What the client calls it. The same name again replaces it.
    pub name: String,
    /// Where to send.
    pub url: String,
    /// What the kind wants to remember; no secrets.
    pub details: String,
    /// The secrets that the receiver knows the sender by.
    pub secrets: Option<String>,
}

/// A receiver as the client that named it sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct CallbackView {
    /// What the client calls it.
    pub name: String,
    /// Where to send.
    pub url: String,
    /// What the kind remembers.
    pub details: String,
    /// The secrets that were brought along.
    pub secrets: Option<String>,
}

/// Receivers that clients name.
pub struct Callbacks {
    host: Arc<Host>,
    pub(crate) log: Arc<Log>,
    pub(crate) identity: Arc<Identity>,
    /// The kinds of receivers that also hear what sub-runs ask, once deliveries have begun.
    pub(crate) ancestor_kinds: OnceLock<Vec<&'static str>>,
}

impl Callbacks {
    pub(crate) fn new(log: Arc<Log>, identity: Arc<Identity>) -> Callbacks {
        Callbacks { host: log.host.clone(), log, identity, ancestor_kinds: OnceLock::new() }
    }

    /// Whose accounts in chats are.
    #[must_use]
    pub fn chat_accounts(&self) -> ChatAccounts {
        ChatAccounts::new(self.log.clone())
    }

    /// Tells a receiver of a run from now on. One that the client named the same is replaced.
    pub async fn call_back(
        &self,
        who: &Principal,
        run: RunId,
        callback: Callback,
    ) -> Result<(), SubscriptionError> {
        let seen = self.log.see(who, run).await?;
        needs_for(who, Scope::RunsWrite, &seen.facts.agent)?;
        self.keep_callback(who, run, callback).await
    }

    /// Keeps a receiver of a run that may not be there yet.
    pub(crate) async fn keep_callback(
        &self,
        who: &Principal,
        run: RunId,
        callback: Callback,
    ) -> Result<(), SubscriptionError> {
        needs(who, Scope::RunsRead)?;
        needs(who, Scope::RunsWrite)?;
        self.keep_named(who, run, callback).await
    }

    /// The same for whoever may name it: that was asked before.
    pub(crate) async fn keep_named(
        &self,
        who: &Principal,
        run: RunId,
        callback: Callback,
    ) -> Result<(), SubscriptionError> {
        let settings = self.host.settings();
        let key = settings.webhooks.key.as_ref().ok_or(SubscriptionError::NoKey)?;
        // A program names it, and may be faster than its name server.
        self.check_address(&callback.url, UnresolvedHost::Kept).await?;
        self.identity.keep_rights(who, true).await?;
        let id = row_id(who, run, callback.kind, &callback.name);
        let sealed =
            callback.secrets.as_ref().map(|secrets| key.seal(COLUMN, &[who.tenant.as_str(), &id], secrets));
        let brought =
            CallbackDetails { name: callback.name.clone(), details: callback.details.clone(), sealed };
        for _ in 0..5 {
            let found = self.log.store.subscription(who.tenant.clone(), id.clone()).await?;
            let known = found.as_ref().and_then(|row| Receiver::read(&row.facts).ok());
            let receiver = Receiver {
                kind: callback.kind.to_owned(),
                url: callback.url.clone(),
                events: Event::KINDS.map(str::to_owned).to_vec(),
                owner: Owner::of(who),
                created_at: known.as_ref().map_or(self.host.clock.now(), |known| known.created_at),
                secret: known.as_ref().map_or(1, |known| known.secret),
                previous_until: known.and_then(|known| known.previous_until),
                disabled: None,
                request: None,
                brought: Some(brought.clone()),
            };
            let row = Subscription {
                tenant: who.tenant.clone(),
                id: id.clone(),
                scope: Hears::Run(run),
                owner: Owner::turn(&who.tenant, &who.user),
                wants: Event::KINDS.iter().filter_map(|kind| Event::bit(kind)).fold(0, |all, bit| all | bit),
                is_active: true,
                facts: receiver.text(),
            };
            let is_kept = match found {
                Some(found) => self.log.store.change_subscription(found.facts, row).await?,
                None => {
                    let others = self.rows(who, run, callback.kind).await?;
                    if others.len() >= CALLBACKS_MAX {
                        return Err(SubscriptionError::Invalid(format!(
                            "{run} has {CALLBACKS_MAX} receivers of yours already; delete one first"
                        )));
                    }
                    self.log.store.put_subscription(row).await?
                }
            };
            if is_kept {
                return Ok(());
            }
        }
        let why = "the receiver is being changed by others".to_owned();
        Err(StoreError::Unavailable { why }.into())
    }

    /// The receivers that the caller named for a run, in an order that stays.
    pub async fn list(
        &self,
        who: &Principal,
        run: RunId,
        kind: &'static str,
    ) -> Result<Vec<CallbackView>, SubscriptionError> {
        needs(who, Scope::RunsRead)?;
        self.log.see(who, run).await?;
        let settings = self.host.settings();
        let key = settings.webhooks.key.as_ref().ok_or(SubscriptionError::NoKey)?;
        let mut views = Vec::new();
        for row in self.rows(who, run, kind).await? {
            let Ok(receiver) = Receiver::read(&row.facts) else { continue };
            let secrets = receiver.brought_secrets(key, &who.tenant, &row.id).ok().flatten();
            if let Some(CallbackDetails { name, details, .. }) = receiver.brought {
                views.push(CallbackView { name, url: receiver.url, details, secrets });
            }
        }
        Ok(views)
    }

    /// Tells a receiver nothing more. One that is not there is no mistake: it is told nothing either way.
    pub async fn forget_callback(
        &self,
        who: &Principal,
        run: RunId,
        kind: &'static str,
        name: &str,
    ) -> Result<(), SubscriptionError> {
        needs(who, Scope::RunsWrite)?;
        let seen = self.log.see(who, run).await?;
        needs_for(who, Scope::RunsWrite, &seen.facts.agent)?;
        let id = row_id(who, run, kind, name);
        self.log.store.delete_subscription(who.tenant.clone(), id).await?;
        Ok(())
    }

    /// Forgets a receiver of a run that is not there after all.
    pub(crate) async fn drop_callback(
        &self,
        who: &Principal,
        run: RunId,
        callback: &Callback,
    ) -> Result<(), StoreError> {
        let unused = row_id(who, run, callback.kind, &callback.name);
        self.log.store.delete_subscription(who.tenant.clone(), unused).await?;
        Ok(())
    }

    /// Looked at again whenever something is sent; here it is reported to whoever can change it.
    pub(crate) async fn check_address(
        &self,
        url: &str,
        unresolved: UnresolvedHost,
    ) -> Result<(), SubscriptionError> {
        let settings = self.host.settings();
        let guard = &settings.webhooks.guard;
        let invalid = |why: String| SubscriptionError::Invalid(why);
        let parsed = guard.check_text(url).map_err(|blocked| invalid(blocked.to_string()))?;
        if parsed.scheme() != "https" && !guard.is_named(&parsed) {
            return Err(invalid(format!(
                "{url:?} is not https, so deliveries could be read on the way. A host that may be called without it must be \
                 named in server.webhooks.allowed_hosts"
            )));
        }
        match guard.check(url).await {
            Ok(_) => Ok(()),
            Err(BlockReason::NoAddress { .. }) if unresolved == UnresolvedHost::Kept => Ok(()),
            Err(blocked) => Err(invalid(blocked.to_string())),
        }
    }

    /// The rows that a caller named for a run: their ids begin alike, and the store lists by id.
    async fn rows(&self, who: &Principal, run: RunId, kind: &str) -> Result<Vec<Subscription>, EngineError> {
        let begins = row_prefix(who, run, kind);
        let query = SubscriptionQuery {
            tenant: who.tenant.clone(),
            owner: None,
            after: Some(begins.clone()),
            limit: CALLBACKS_MAX + 1,
        };
        let mut rows = self.log.store.list_subscriptions(query).await?;
        rows.retain(|row| row.id.starts_with(&begins));
        Ok(rows)
    }
}

/// How the ids of a caller's receivers of a run begin.
fn row_prefix(who: &Principal, run: RunId, kind: &str) -> String {
    format!("{}{}_", ids_of_run(run, kind), short("standfast.callback-owner.1", who.user.as_str()))
}

/// How the ids of all receivers of a run begin, whoever named them.
pub(crate) fn ids_of_run(run: RunId, kind: &str) -> String {
    let run = run.to_string();
    format!("{kind}_{}_", run.trim_start_matches("run_"))
}

fn row_id(who: &Principal, run: RunId, kind: &str, name: &str) -> String {
    format!("{}{}", row_prefix(who, run, kind), short("standfast.callback-name.1", name))
}

/// Of fixed length, whatever was chosen.
fn short(what: &str, text: &str) -> String {
    let Digest(bytes) = digest::of_parts(what, &[text.as_bytes()]);
    base32::encode(bytes.get(..10).unwrap_or_default())
}
