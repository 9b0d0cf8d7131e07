//! Telling the outside what happened to runs: one deliverer for every kind of receiver.
//!
//! A kind says how an event becomes a request and how that is signed; a surface brings it along. `rounds.rs` takes
//! notices that are due, reads the log, sends in order for each subscription and run, and settles; it knows no kind.
//! `crate::secrets` has the scheme of Standard Webhooks, and seals the secrets that receivers brought along. `subscriptions.rs` and
//! `callbacks.rs` say who is told of what, `ancestor_notices.rs` who hears what a sub-run asks, `remote_cancel.rs` cancels
//! tasks elsewhere that nobody waits for.

mod ancestor_notices;
mod callbacks;
mod places;
mod remote_cancel;
mod rounds;
mod subscriptions;

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use standfast_core::digest::Digest;
use standfast_core::event::Envelope;
use standfast_core::id::{RunId, Seq};
use standfast_core::name::Tenant;
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;

use super::EngineError;
use super::host::Host;
use super::identity::{Identity, Owner};
use super::log::Log;
use super::nodes::Nodes;
use super::reads::{HoldView, Reads};
use super::wakes::Wakes;
use crate::auth::Principal;

use places::Hosts;
use rounds::{DeliveryOutcome, NO_KEY, old_secret_until};

use crate::secrets::{SigningKey, SigningSecret};
pub use callbacks::{Callback, CallbackView, Callbacks};
pub use subscriptions::{
    NewSubscription, SubscriptionError, SubscriptionView, Subscriptions, USUAL_EVENTS, hears,
};

/// The column that what receivers brought along is sealed for.
pub(crate) const COLUMN: &str = "subscriptions";

/// The kind of receiver that is told how a job ended.
pub const JOB_RECEIVER: &str = "async-tool";

/// Tells the outside what happened to runs.
pub(crate) struct Deliveries {
    host: Arc<Host>,
    log: Arc<Log>,
    wakes: Arc<Wakes>,
    nodes: Arc<Nodes>,
    reads: Arc<Reads>,
    identity: Arc<Identity>,
    /// The hosts that deliveries are under way to.
    hosts: Hosts,
    /// Kinds of receivers that can be told something.
    kinds: OnceLock<Vec<Arc<dyn ReceiverKind>>>,
}

impl Deliveries {
    pub(crate) fn new(
        nodes: Arc<Nodes>,
        reads: Arc<Reads>,
        wakes: Arc<Wakes>,
        identity: Arc<Identity>,
    ) -> Deliveries {
        let log = reads.log.clone();
        let (hosts, kinds) = (Hosts::default(), OnceLock::new());
        Deliveries { host: log.host.clone(), log, wakes, nodes, reads, identity, hosts, kinds }
    }
}

/// A kind of receiver.
pub trait ReceiverKind: Send + Sync {
    /// Its name, as subscriptions have it.
    fn name(&self) -> &'static str;

    /// The request that tells this; none when there is nothing to tell.
    fn request(&self, telling: &Delivery<'_>) -> Option<DeliveryRequest>;

    /// Whether a receiver that was told this is told nothing more, and can be forgotten.
    fn is_last(&self, _receiver: &Receiver, _event: &Envelope) -> bool {
        false
    }

    /// Whether receivers of a run also hear what its sub-runs ask.
    fn hears_below(&self) -> bool {
        false
    }

    /// What a run has to tell in words of this kind's own; none for a kind that tells events one by one.
    fn frames<'a>(
        &'a self,
        _reading: FrameSource<'a>,
    ) -> Option<BoxFuture<'a, Result<Vec<Frame>, EngineError>>> {
        None
    }
}

/// Which part of which log becomes frames, and who looks at it.
#[derive(Clone, Copy)]
pub struct FrameSource<'a> {
    /// What answers.
    pub reads: &'a Reads,
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
pub struct Delivery<'a> {
    /// The id of the subscription.
    pub subscription: &'a str,
    /// What is known of it.
    pub receiver: &'a Receiver,
    /// What it is told.
    pub what: DeliveryPayload<'a>,
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
pub enum DeliveryPayload<'a> {
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
pub struct DeliveryRequest {
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

/// Why a subscription is told nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disabled {
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
    /// that says so: without its secrets a receiver would not believe what it is told.
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
