//! Receivers: what is stored of whoever is notified of runs, and those that clients and jobs name for one run.
//!
//! `callbacks.rs` keeps receivers of one run, `ancestor_notices.rs` finds those of the runs above it. `chat_accounts.rs` says whose the
//! accounts in chats are. Nothing is sent here:
//! `deliver` sends, and keeps the subscriptions that people manage.

mod ancestor_notices;
mod callbacks;
mod chat_accounts;

use serde::{Deserialize, Serialize};
use standfast_core::digest::Digest;
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;
use standfast_store::StoreError;

use super::EngineError;
use super::identity::Owner;
use crate::secrets::{SigningKey, SigningSecret};

pub(crate) use callbacks::UnresolvedHost;
pub use callbacks::{Callback, CallbackView, Callbacks};
pub(crate) use chat_accounts::ACCOUNT_PREFIX;
pub use chat_accounts::{AccountOffer, AccountRefusal, ChatAccount, ChatAccounts, ClickResult};

/// The column that what receivers brought along is sealed for.
pub(crate) const COLUMN: &str = "subscriptions";

/// The kind of receiver that is notified how a job ended.
pub const JOB_RECEIVER: &str = "async-tool";

/// Why nothing can be signed.
pub(crate) const NO_KEY: &str =
    "this server has no key to sign with: set server.webhooks.key, the same on every node";

/// Why there is no such subscription, or nothing was done with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionError {
    /// As for everything else.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What was asked for cannot be.
    #[error("{0}")]
    Invalid(String),
    /// They may not hear that.
    #[error("{0}")]
    NotAllowed(&'static str),
    /// This server cannot sign.
    #[error("{}", NO_KEY)]
    NoKey,
}

impl From<StoreError> for SubscriptionError {
    fn from(error: StoreError) -> SubscriptionError {
        SubscriptionError::Engine(error.into())
    }
}

/// What the server keeps of a subscription beside what the store knows: where to send, and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiver {
    /// The name of its kind.
    pub kind: String,
    /// Where to send.
    pub url: String,
    /// The kinds of events that it wants.
    pub events: Vec<String>,
    /// Whoever made it: it gets only what they may see.
    pub owner: Owner,
    /// When it was made.
    pub created_at: Timestamp,
    /// The number of its secret, which is made from the server's key and this: no secret is stored.
    pub secret: u32,
    /// Until when the secret before is used too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_until: Option<Timestamp>,
    /// Why it is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Deactivation>,
    /// Digest of the request that made it, if that had an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
    /// What a client said about a receiver that it named itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brought: Option<CallbackDetails>,
}

/// What a client says about a receiver that it names itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackDetails {
    /// Its name, which means something to this client and for this run only.
    pub name: String,
    /// What its kind wants to remember, in the kind's own words; no secrets.
    pub details: String,
    /// Its secrets, under the server's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
}

/// Why a subscription is disabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deactivation {
    /// Since when.
    pub at: Timestamp,
    /// Why.
    pub why: String,
}

impl Receiver {
    /// Reads what is stored.
    pub(crate) fn read(facts: &str) -> Result<Receiver, String> {
        serde_json::from_str(facts).map_err(|error| format!("what is stored of it cannot be read: {error}"))
    }

    /// As it is stored.
    pub(crate) fn text(&self) -> String {
        match serde_json::to_string(self) {
            Ok(text) => text,
            Err(error) => unreachable!("names, numbers and texts serialise: {error}"),
        }
    }

    /// The secrets to sign with at this instant, the newest first.
    pub(crate) fn secrets(
        &self,
        key: &SigningKey,
        tenant: &Tenant,
        id: &str,
        now: Timestamp,
    ) -> Vec<SigningSecret> {
        let has_previous = self.previous_until.is_some_and(|until| now < until);
        let before = has_previous.then(|| self.secret.saturating_sub(1));
        let numbers: Vec<u32> = [self.secret].into_iter().chain(before).collect();
        key.each()
            .flat_map(|key| numbers.iter().map(move |no| key.secret(tenant, id, *no)).collect::<Vec<_>>())
            .collect()
    }

    /// The secrets that the client brought along. What cannot be opened, because the key is another one now, is an error
    /// that says so: without its secrets a receiver would not believe what it gets.
    pub(crate) fn brought_secrets(
        &self,
        key: &SigningKey,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<String>, &'static str> {
        let sealed = self.brought.as_ref().and_then(|brought| brought.sealed.as_deref());
        let open = |sealed| {
            key.open(COLUMN, &[tenant.as_str(), id], sealed).ok_or(
                "its token and credentials were sealed under another server.webhooks.key; the client must send them again",
            )
        };
        sealed.map(open).transpose()
    }
}
