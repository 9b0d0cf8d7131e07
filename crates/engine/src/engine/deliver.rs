//! Telling the outside what happened to runs: one deliverer for every kind of receiver.
//!
//! A kind says how an event becomes a request and how that is signed; a surface brings it along. `rounds.rs` takes
//! notices that are due, reads the log, sends in order for each subscription and run, and settles; it knows no kind.
//! `crate::secrets` has the scheme of Standard Webhooks, and seals the secrets that receivers brought along.

mod places;
mod rounds;

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use standfast_core::digest::Digest;
use standfast_core::event::Envelope;
use standfast_core::id::{RunId, Seq};
use standfast_core::name::{GroupName, RoleName, Tenant, UserId};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;

use super::{Engine, EngineError, HoldView};
use crate::auth::{Identification, Principal, Scope};
use crate::secrets::{SigningKey, SigningSecret};

pub(super) use places::Hosts;
pub(super) use rounds::{NO_KEY, Tried, old_secret_until};

/// The column that what receivers brought along is sealed for.
pub(super) const COLUMN: &str = "subscriptions";

/// A kind of receiver.
pub trait Kind: Send + Sync {
    /// Its name, as subscriptions have it.
    fn name(&self) -> &'static str;

    /// The request that tells this; none when there is nothing to tell.
    fn request(&self, telling: &Telling<'_>) -> Option<Sending>;

    /// Whether a receiver that was told this is told nothing more, and can be forgotten.
    fn is_last(&self, _receiver: &Receiver, _event: &Envelope) -> bool {
        false
    }

    /// Whether receivers of a run also hear what its sub-runs ask.
    fn hears_below(&self) -> bool {
        false
    }

    /// What a run has to tell in words of this kind's own; none for a kind that tells events one by one.
    fn frames<'a>(&'a self, _reading: Reading<'a>) -> Option<BoxFuture<'a, Result<Vec<Frame>, EngineError>>> {
        None
    }
}

/// Which part of which log becomes frames, and who looks at it.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// What answers.
    pub engine: &'a Engine,
    /// Whoever is told.
    pub who: &'a Principal,
    /// What is known of the receiver.
    pub receiver: &'a Receiver,
    /// The run.
    pub run: RunId,
    /// The run that the receiver was named for: this one, or one above it.
    pub named_for: RunId,
    /// The first event that was not told yet.
    pub from: Seq,
}

/// One thing that a kind tells of a run: the same every time that the same log is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The last event that it tells of.
    pub seq: Seq,
    /// Its place among all frames of the run, from 1; none for what a run below asks.
    pub number: Option<u64>,
    /// What is sent.
    pub body: String,
}

/// What is told, to whom.
#[derive(Debug)]
pub struct Telling<'a> {
    /// The id of the subscription.
    pub subscription: &'a str,
    /// What is known of it.
    pub receiver: &'a Receiver,
    /// What it is told.
    pub what: What<'a>,
    /// The instant of this try.
    pub now: Timestamp,
    /// What to sign with; the newest first.
    pub secrets: &'a [SigningSecret],
    /// The secrets that the receiver brought along, as its kind wrote them.
    pub brought: Option<&'a str>,
    /// The address that people reach this server by, for links.
    pub public_url: Option<&'a str>,
}

/// What a receiver is told.
#[derive(Debug)]
pub enum What<'a> {
    /// That it is reachable.
    Ping {
        /// Names this ping.
        id: &'a str,
    },
    /// An event.
    Event {
        /// Of which run.
        run: &'a Facts,
        /// The event.
        event: &'a Envelope,
        /// The hold that it is about, as it is now.
        hold: Option<Box<HoldView>>,
    },
    /// Something in the kind's own words.
    Frame {
        /// Of which run.
        run: &'a Facts,
        /// What.
        frame: &'a Frame,
    },
}

/// A request to a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sending {
    /// The same every time that the same thing is told: receivers that have seen it need not look again.
    pub id: String,
    /// Headers, with the signature.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// The id of telling a subscription of an event.
#[must_use]
pub fn delivery_id(subscription: &str, run: RunId, event: &Envelope) -> String {
    format!("{subscription}-{run}-{}", event.seq.0)
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
    /// Whoever made it: it is told only what they may see.
    pub owner: Owner,
    /// When it was made.
    pub created_at: Timestamp,
    /// The number of its secret, which is made from the server's key and this: no secret is stored.
    pub secret: u32,
    /// Until when the secret before is used too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_until: Option<Timestamp>,
    /// Why it is told nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    /// Digest of the request that made it, if that had an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
    /// What a client said about a receiver that it named itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brought: Option<Brought>,
}

/// What a client says about a receiver that it names itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    /// Its name, which means something to this client and for this run only.
    pub name: String,
    /// What its kind wants to remember, in the kind's own words; no secrets.
    pub details: String,
    /// Its secrets, under the server's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
}

/// Why a subscription is told nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disabled {
    /// Since when.
    pub at: Timestamp,
    /// Why.
    pub why: String,
}

/// Whoever made a subscription, as they were then. What they may see is worked out anew for each delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Who they are.
    pub user: UserId,
    /// Their groups.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<GroupName>,
    /// Their roles.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<RoleName>,
    /// Whether they administer.
    #[serde(default)]
    pub is_admin: bool,
    /// How they were identified; none for subscriptions of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Identification>,
}

impl Owner {
    /// Whoever is calling.
    #[must_use]
    pub fn of(who: &Principal) -> Owner {
        let (user, groups, roles) = (who.user.clone(), who.groups.clone(), who.roles.clone());
        Owner { user, groups, roles, is_admin: who.is_admin(), by: Some(who.by.clone()) }
    }

    /// Whose turn a delivery counts for.
    #[must_use]
    pub fn turn(tenant: &Tenant, user: &UserId) -> String {
        format!("{tenant} {user}")
    }

    /// Somebody who may look at what they could see when they subscribed, and nothing else.
    #[must_use]
    pub fn principal(&self, tenant: Tenant) -> Principal {
        let scope = if self.is_admin { Scope::Admin } else { Scope::RunsRead };
        Principal {
            tenant,
            user: self.user.clone(),
            groups: self.groups.clone(),
            roles: self.roles.clone(),
            scopes: BTreeSet::from([scope]),
            by: self.by.clone().unwrap_or_default(),
        }
    }
}

impl Receiver {
    /// Reads what is stored.
    pub(super) fn read(facts: &str) -> Result<Receiver, String> {
        serde_json::from_str(facts).map_err(|error| format!("what is stored of it cannot be read: {error}"))
    }

    /// As it is stored.
    pub(super) fn text(&self) -> String {
        match serde_json::to_string(self) {
            Ok(text) => text,
            Err(error) => unreachable!("names, numbers and texts serialise: {error}"),
        }
    }

    /// The secrets to sign with at this instant, the newest first.
    pub(super) fn secrets(
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
    /// that says so: without its secrets a receiver would not believe what it is told.
    pub(super) fn brought_secrets(
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
