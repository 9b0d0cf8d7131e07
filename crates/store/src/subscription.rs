//! Deliveries: subscriptions, due notices and dead letters.
//!
//! A store knows of a subscription whose runs it is about and which kinds of events it wants, as bits; the rest is a
//! JSON document of the server's. An append that brings a wanted kind puts a notice for it, in the same transaction.

use standfast_core::id::{RunId, Seq};
use standfast_core::name::{AgentName, Tenant};
use standfast_core::time::Timestamp;

use crate::batch::{Batch, Notice};
use crate::query::{Page, ShardSet};

/// Somebody outside who wants to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Whose.
    pub tenant: Tenant,
    /// Its name, without control characters; unique within the tenant. Notices carry it.
    pub id: String,
    /// Which runs it is about; never changes.
    pub scope: Scope,
    /// Whose it is, as a text that the server chooses; never changes. Deliveries take turns by it.
    pub owner: String,
    /// The kinds of events that it wants, as the bits of `Event::bit`.
    pub wants: u64,
    /// Whether appends put notices for it.
    pub is_active: bool,
    /// A JSON object: where to send, and what only the server knows how to read.
    pub facts: String,
}

/// Which runs a subscription is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All of the tenant.
    Tenant,
    /// Those of an agent.
    Agent(AgentName),
    /// One.
    Run(RunId),
}

impl Scope {
    /// The text under which a store finds the subscriptions of a run.
    #[must_use]
    pub fn topic(&self) -> String {
        match self {
            Scope::Tenant => "tenant".into(),
            Scope::Agent(agent) => format!("agent {agent}"),
            Scope::Run(run) => format!("run {run}"),
        }
    }

    /// The scope behind a text; none when it is not a topic.
    pub(crate) fn of_topic(topic: &str) -> Option<Scope> {
        match topic.split_once(' ') {
            None => (topic == "tenant").then_some(Scope::Tenant),
            Some(("agent", name)) => AgentName::new(name).ok().map(Scope::Agent),
            Some(("run", id)) => id.parse().ok().map(Scope::Run),
            Some(_) => None,
        }
    }

    /// The scopes that a batch belongs to.
    pub(crate) fn of_batch(batch: &Batch) -> [Scope; 3] {
        [Scope::Tenant, Scope::Agent(batch.row.run.facts.agent.clone()), Scope::Run(batch.run())]
    }
}

impl Notice {
    /// The notice of a batch for a subscription.
    pub(crate) fn of_batch(batch: &Batch, subscription: String, owner: String) -> Notice {
        Notice { subscription, owner, from: batch.link.header.first, due_at: batch.link.header.at }
    }
}

/// Which subscriptions are asked for, in the order of their ids.
#[derive(Debug, Clone)]
pub struct SubscriptionQuery {
    /// Whose.
    pub tenant: Tenant,
    /// Only those of one owner.
    pub owner: Option<String>,
    /// The last id of the page before.
    pub after: Option<String>,
    /// How many at most.
    pub limit: usize,
}

/// Which active subscriptions are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionCount {
    /// Whose.
    pub tenant: Tenant,
    /// Only those of one owner.
    pub owner: Option<String>,
    /// Only those to this run; none counts those to an agent or the whole tenant.
    pub run: Option<RunId>,
}

impl SubscriptionCount {
    /// Whether a subscription counts.
    pub(crate) fn counts(&self, one: &Subscription) -> bool {
        let is_meant = match (&one.scope, self.run) {
            (Scope::Run(run), Some(wanted)) => *run == wanted,
            (Scope::Run(_), None) | (Scope::Tenant | Scope::Agent(_), Some(_)) => false,
            (Scope::Tenant | Scope::Agent(_), None) => true,
        };
        let is_owners = self.owner.as_ref().is_none_or(|owner| *owner == one.owner);
        one.is_active && one.tenant == self.tenant && is_owners && is_meant
    }
}

/// Which notices are asked for: those whose time has come, turn by turn for each owner, in each round the longest due first.
#[derive(Debug, Clone)]
pub struct NoticeQuery {
    /// The shards to look in.
    pub shards: ShardSet,
    /// The instant of asking.
    pub now: Timestamp,
    /// How many at most.
    pub limit: usize,
    /// How many of one owner at most.
    pub each: usize,
    /// Subscriptions that are busy: one with a long backlog must not hide the others.
    pub without: Vec<String>,
    /// Owners that are busy.
    pub without_owners: Vec<String>,
}

impl NoticeQuery {
    /// Everything that is due.
    #[must_use]
    pub fn all(now: Timestamp, limit: usize) -> NoticeQuery {
        NoticeQuery {
            shards: ShardSet::all(),
            now,
            limit,
            each: limit,
            without: Vec::new(),
            without_owners: Vec::new(),
        }
    }
}

/// A notice that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Names it when it is sent again.
    pub no: i64,
    /// Who was not told.
    pub subscription: String,
    /// Of which run.
    pub run: RunId,
    /// From which event on.
    pub from: Seq,
    /// Tries.
    pub attempts: u32,
    /// When it was given up.
    pub at: Timestamp,
    /// What happened the last time.
    pub why: String,
}

impl DeadLetter {
    /// A page of what was found: one more than the limit, if there is more.
    pub(crate) fn page(mut found: Vec<DeadLetter>, limit: usize) -> Page<DeadLetter> {
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().map(|letter| letter.no.cast_unsigned()).filter(|_| has_more);
        Page::of(found, next)
    }
}

/// Which dead letters are asked for, oldest first.
#[derive(Debug, Clone)]
pub struct DeadQuery {
    /// Whose.
    pub tenant: Tenant,
    /// Of which subscription.
    pub subscription: String,
    /// Where to continue.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}
