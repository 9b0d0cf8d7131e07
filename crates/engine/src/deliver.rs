//! Telling the outside what happened to runs: one deliverer for every kind of receiver.
//!
//! A kind says how an event becomes a request and how that is signed; a surface brings it along. `rounds.rs` takes
//! notices that are due, reads the log, sends in order for each subscription and run, and settles; it knows no kind. `retries.rs`
//! says when a failed delivery is tried again and when it is given up.
//! `crate::secrets` has the scheme of Standard Webhooks, and seals the secrets that receivers brought along. `subscriptions.rs`
//! says who is notified of what, `channels.rs` does so for the people and rooms that the configuration names, `channel_posts.rs`
//! remembers what was posted there, `digests.rs` gathers what somebody wants in one message, `remote_cancel.rs` cancels tasks elsewhere that no run waits for; [`FileCopies`] are notified of the runs
//! that changed in the same way. What is stored of receivers is in `receivers`.

mod channel_posts;
mod channels;
mod delivery_slots;
mod digests;
mod remote_cancel;
mod retries;
mod rounds;
mod spans;
mod subscriptions;

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use standfast_core::event::Envelope;
use standfast_core::id::{RunId, Seq};
use standfast_core::name::UserId;
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::SessionKey;

use super::EngineError;
use super::host::Host;
use super::identity::Identity;
use super::log::{HoldView, Log, Views};
use super::nodes::Nodes;
use super::receivers::{Callbacks, Receiver};
use super::wakes::Wakes;
use crate::auth::{Principal, Scope};
use crate::settings::Channel;

use delivery_slots::Hosts;
use rounds::{DeliveryOutcome, old_secret_until};

use crate::secrets::SigningSecret;
pub use channel_posts::ChannelPosts;
pub use subscriptions::{NewSubscription, SubscriptionView, Subscriptions, USUAL_EVENTS, hears};

/// Tells the outside what happened to runs.
pub struct Deliveries {
    host: Arc<Host>,
    log: Arc<Log>,
    wakes: Arc<Wakes>,
    nodes: Arc<Nodes>,
    views: Views,
    callbacks: Arc<Callbacks>,
    identity: Arc<Identity>,
    /// The hosts that deliveries are under way to.
    hosts: Hosts,
    /// Kinds of receivers that can be told something.
    kinds: OnceLock<Vec<Arc<dyn ReceiverKind>>>,
    /// Whoever keeps readable copies, if anybody does.
    copies: OnceLock<Arc<dyn FileCopies>>,
}

impl Deliveries {
    pub(crate) fn new(nodes: Arc<Nodes>, wakes: Arc<Wakes>, callbacks: Arc<Callbacks>) -> Deliveries {
        let (log, identity) = (callbacks.log.clone(), callbacks.identity.clone());
        let (host, views) = (log.host.clone(), Views::new(log.clone()));
        let (hosts, kinds) = (Hosts::default(), OnceLock::new());
        let copies = OnceLock::new();
        Deliveries { host, log, wakes, nodes, views, callbacks, identity, hosts, kinds, copies }
    }

    /// Has the sessions of runs that change copied into files; before deliveries begin.
    pub fn copy_files(&self, copies: Arc<dyn FileCopies>) {
        self.copies.get_or_init(|| copies);
    }
}

/// Whoever keeps readable copies of sessions and their calls. A run that changed is due, in the store, until its session was copied.
pub trait FileCopies: Send + Sync {
    /// Copies a session as it is now; why not, if it could not.
    fn copy(&self, session: SessionKey) -> BoxFuture<'_, Result<(), String>>;
}

/// A kind of receiver.
pub trait ReceiverKind: Send + Sync {
    /// Its name, as subscriptions have it.
    fn name(&self) -> &'static str;

    /// The request that tells this; none when there is nothing to tell.
    fn request(&self, telling: &Delivery<'_>) -> Option<DeliveryRequest>;

    /// Sends by another way than a request; none for a kind that is sent one.
    fn send<'a>(&'a self, _telling: &'a Delivery<'a>) -> Option<BoxFuture<'a, Result<(), SendFailure>>> {
        None
    }

    /// Whether the notice of an open hold has the approval link of its receiver.
    fn wants_link(&self, _event: &Envelope, _hold: &HoldView) -> bool {
        false
    }

    /// Whether this is the last notice of a receiver, which can then be forgotten.
    fn is_last(&self, _receiver: &Receiver, _event: &Envelope) -> bool {
        false
    }

    /// What the owner of a receiver must be allowed to do, at each delivery.
    fn needs(&self) -> Scope {
        Scope::RunsRead
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
    pub views: &'a Views,
    /// The receiver.
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

/// What is delivered, to whom.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// The id of the subscription.
    pub subscription: &'a str,
    /// What is known of it.
    pub receiver: &'a Receiver,
    /// The payload.
    pub what: DeliveryPayload<'a>,
    /// The instant of this try.
    pub now: Timestamp,
    /// What to sign with; the newest first.
    pub secrets: &'a [SigningSecret],
    /// The secrets that the receiver brought along, as its kind wrote them.
    pub brought: Option<&'a str>,
    /// The address that people reach this server by, for links.
    pub public_url: Option<&'a str>,
    /// Who is reached, and how, where the configuration says it.
    pub target: Option<ChannelTarget<'a>>,
}

/// Why something was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendFailure {
    /// Why not.
    pub why: String,
    /// How long whoever takes it wants to be left alone.
    pub after: Option<Millis>,
}

impl From<String> for SendFailure {
    fn from(why: String) -> SendFailure {
        SendFailure { why, after: None }
    }
}

impl From<&str> for SendFailure {
    fn from(why: &str) -> SendFailure {
        SendFailure::from(why.to_owned())
    }
}

/// Somebody whom the configuration names, or a room of several, and how they are reached.
#[derive(Clone, Copy)]
pub struct ChannelTarget<'a> {
    /// By what.
    pub channel: &'a Channel,
    /// Who; none of a room.
    pub person: Option<&'a UserId>,
    /// Where; nothing of a room, which is its channel.
    pub address: &'a str,
    /// What was posted there.
    pub posts: &'a ChannelPosts,
    /// Their approval link, as a whole address. A secret.
    pub link: Option<&'a str>,
}

impl std::fmt::Debug for ChannelTarget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChannelTarget({:?} by {})", self.person, self.channel.name)
    }
}

/// The payload for a receiver.
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
    /// Everything that is pending, in one message.
    Digest {
        /// Names this message.
        id: &'a str,
        /// What is pending, oldest first.
        holds: &'a [HoldView],
        /// How many there are beyond those.
        more: usize,
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
    /// The same for every delivery of the same thing: receivers that have seen it need not look again.
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
