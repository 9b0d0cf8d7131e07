//! Being one of several nodes on one store: saying that this one is there, knowing which shards are its own and what
//! time it is, hearing what the others change.
//!
//! Nothing here is a lock. A node that claims outside its shards, hears no hint or counts time wrongly costs latency;
//! who may write is decided by the sequence. A store that only one process can have open is asked once: then this node is
//! alone and has every shard.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use standfast_core::id::{Incarnation, RunId, StorageKind};
use standfast_core::run::FOLD_VERSION;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{Heartbeat, ShardSet, StoreError};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::EngineError;
use super::host::Host;
use super::log::Log;
use super::wakes::Wakes;
use crate::auth::{Principal, Scope};

/// What this version can write beyond what older ones can read. Raised with each new kind of event or actor; one is written
/// only when no node that is there is older ([`Nodes::feature_level`]).
pub const FEATURE_LEVEL: u32 = 2;

/// From this level on nodes can read decisions by approval links.
pub(crate) const LINK_LEVEL: u32 = 2;

/// A look at the store's clock that took longer says less about the time than an earlier one did.
const LOOK_MAX: Millis = Millis::seconds(2);

/// How long a node that goes waits until it tells nobody anything any more, before it gives its shards away.
const LAST_WORDS: Millis = Millis::seconds(2);

/// A clock that is off by more is worth a word.
const WORTH_A_WORD: Millis = Millis::seconds(1);

/// What a node says of itself to the others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFacts {
    /// What people call it.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The newest fold that it can read.
    pub fold: u32,
    /// What it can read and write beyond the first version.
    pub level: u32,
    /// Since when it is there.
    pub since: Timestamp,
    /// Runs that it works on.
    pub at_work: usize,
    /// How long the last run that it claimed had been due; 0 when there was nothing to claim.
    pub behind: Millis,
}

/// A node that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Since its start.
    pub node: Incarnation,
    /// Whether it is the one that answers.
    pub is_this: bool,
    /// What it says of itself; none when that cannot be read.
    pub facts: Option<NodeFacts>,
    /// When it counts as gone without another heartbeat; none where no other node can be.
    pub seen_until: Option<Timestamp>,
    /// How many of the 256 shards of work it has.
    pub shards: usize,
}

/// The nodes of one store, as this one knows them.
pub struct Nodes {
    host: Arc<Host>,
    log: Arc<Log>,
    wakes: Arc<Wakes>,
    /// Whether there can be other nodes.
    pub(crate) is_shared: bool,
    own: watch::Sender<OwnShards>,
    /// Whether it has ever agreed with the others on the time.
    has_agreed: AtomicBool,
    /// When it first said that it is there.
    since: OnceLock<Timestamp>,
    behind: AtomicI64,
    level: AtomicU32,
    /// Held by the deliverer until it has stopped.
    pub(crate) delivering: Arc<tokio::sync::Mutex<()>>,
}

/// The shards that are this node's own until an instant.
#[derive(Debug, Clone)]
struct OwnShards {
    shards: ShardSet,
    until: Timestamp,
}

impl Nodes {
    pub(crate) fn new(log: Arc<Log>, wakes: Arc<Wakes>) -> Nodes {
        let own = OwnShards { shards: ShardSet::of([]), until: Timestamp(0) };
        Nodes {
            host: log.host.clone(),
            is_shared: log.store.hints().is_some(),
            log,
            wakes,
            own: watch::Sender::new(own),
            has_agreed: AtomicBool::new(false),
            since: OnceLock::new(),
            behind: AtomicI64::new(0),
            level: AtomicU32::new(FEATURE_LEVEL),
            delivering: Arc::default(),
        }
    }

    /// How long the run that was claimed last had been due.
    pub(crate) fn is_behind(&self, by: Millis) {
        self.behind.store(by.0.max(0), Ordering::Relaxed);
    }

    /// Agrees with the other nodes on the time and takes the first shards. Call it before anybody can ask for anything;
    /// `work` keeps it up.
    pub async fn join(&self) -> Result<(), EngineError> {
        self.agree_on_time().await?;
        self.beat().await?;
        Ok(())
    }

    /// The nodes that are there, the one that answers first.
    pub async fn list(&self, who: &Principal) -> Result<Vec<NodeView>, EngineError> {
        if !who.sees_all() {
            return Err(EngineError::MissingScope(Scope::Admin.into()));
        }
        let view = |row: standfast_store::NodeRow| NodeView {
            node: row.node,
            is_this: row.node == self.host.node,
            facts: serde_json::from_str(&row.facts).ok(),
            seen_until: self.is_shared.then_some(row.seen_until),
            shards: row.shards.len(),
        };
        let mut nodes: Vec<NodeView> =
            self.log.store.nodes(self.host.clock.now()).await?.into_iter().map(view).collect();
        nodes.sort_by_key(|node| !node.is_this);
        Ok(nodes)
    }

    /// What every node that is there can read: nothing newer may be written.
    #[must_use]
    pub fn feature_level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// The shards that are this node's own at this instant: due runs, and notices, of others are others' to look for.
    /// Empty for a node that could not say in time that it is there.
    pub(crate) fn shards(&self) -> ShardSet {
        if !self.is_shared {
            return ShardSet::all();
        }
        let own = self.own.borrow().clone();
        if own.until > self.host.clock.now() { own.shards } else { ShardSet::of([]) }
    }

    /// Whether a run is among those that a node with these shards looks after. What lives in memory is nobody else's.
    pub(crate) fn is_own(&self, shards: &ShardSet, run: RunId) -> bool {
        run.storage() == StorageKind::Memory || shards.contains(run.shard(&self.log.tenant_of(run)))
    }

    /// Waits until a run is no longer among those that this node looks after: its shard was given to another one, or this
    /// one could not say in time that it is there. For ever where no other node can be.
    pub(crate) async fn no_longer_own(&self, run: RunId) {
        if !self.is_shared || run.storage() == StorageKind::Memory {
            return std::future::pending().await;
        }
        let mut own = self.own.subscribe();
        loop {
            let (is_own, until) = {
                let own = own.borrow_and_update();
                (self.is_own(&own.shards, run), own.until)
            };
            let left = until.since(self.host.clock.now());
            if !is_own || left.0 <= 0 {
                return;
            }
            // The membership lives as long as this node, so somebody can always say so.
            let _ = self.host.clock.timeout(left, own.changed()).await;
        }
    }

    /// Says again and again that this node is there; says when it goes. Hears what other nodes change.
    pub(crate) fn stay(self: &Arc<Nodes>) {
        // Heard from now on, so that nothing falls between the first look and the first hint.
        if let Some(hints) = self.log.store.hints() {
            let (shared, mut stopping) = (Arc::downgrade(self), self.host.stopping());
            self.host.spawn(async move {
                tokio::select! {
                    _ = stopping.wait_for(|stopping| *stopping) => {}
                    () = hear(shared, hints) => {}
                }
            });
        }
        let (shared, mut stopping) = (Arc::downgrade(self), self.host.stopping());
        self.host.spawn(async move {
            while let Some(shared) = shared.upgrade() {
                if shared.host.is_stopping() {
                    break;
                }
                if let Err(error) = shared.turn().await {
                    tracing::warn!(%error, "nodes: could not announce this node; trying again");
                }
                if !shared.is_shared {
                    return;
                }
                let pause = shared.host.clock.sleep(shared.beat_every());
                drop(shared);
                tokio::select! {
                    _ = stopping.wait_for(|stopping| *stopping) => {}
                    () = pause => {}
                }
            }
            let Some(shared) = shared.upgrade() else { return };
            // Whoever gets the shards begins to tell at once; until then this node must have stopped.
            let _ = shared.host.clock.timeout(LAST_WORDS, shared.delivering.lock()).await;
            if let Err(error) = shared.log.store.leave(shared.host.node).await {
                tracing::warn!(%error, "nodes: could not announce that this node leaves; its lease expires by itself");
            }
        });
    }

    /// A node is believed for three beats, and no longer than a run is its own: whoever takes over its shards finds its
    /// runs as soon as their leases run out.
    fn beat_every(&self) -> Millis {
        Millis((self.host.fixed.lease.0 / 5).max(1))
    }

    async fn turn(&self) -> Result<(), StoreError> {
        self.agree_on_time().await?;
        self.beat().await?;
        self.look_at_the_others().await
    }

    /// Measures how far this node's clock is from the one that all nodes go by. The first time any measurement is better
    /// than none: a node that went by a clock of its own might take others for dead.
    async fn agree_on_time(&self) -> Result<(), StoreError> {
        let before = self.host.clock.own();
        let Some(theirs) = self.log.store.time().await? else { return Ok(()) };
        let took = self.host.clock.own().since(before);
        if self.has_agreed.swap(true, Ordering::Relaxed) && took > LOOK_MAX {
            return Ok(());
        }
        let half = Millis(took.0 / 2);
        let ahead = Millis(theirs.0.saturating_sub(before.plus(half).0));
        let moved = self.host.clock.agree(ahead, Millis(half.0 + 2));
        if moved.0.saturating_abs() >= WORTH_A_WORD.0 {
            tracing::warn!(
                milliseconds = ahead.0,
                "nodes: the database's clock is ahead of this machine's; using the database's time"
            );
        }
        Ok(())
    }

    /// Says that this node is there, and hears which shards are its own.
    async fn beat(&self) -> Result<(), StoreError> {
        let now = self.host.clock.now();
        let until = if self.is_shared {
            now.plus(Millis(self.beat_every().0.saturating_mul(3)))
        } else {
            Timestamp(i64::MAX)
        };
        let facts = serde_json::to_string(&self.facts()).unwrap_or_default();
        let shards = self.log.store.shards(Heartbeat { node: self.host.node, facts, now, until }).await?;
        let before = self.own.send_replace(OwnShards { shards: shards.clone(), until });
        if shards.iter().any(|shard| !before.shards.contains(shard)) {
            // Whoever had them may have left something.
            self.wakes.wake_worker();
            self.wakes.wake_deliverer();
        }
        Ok(())
    }

    fn facts(&self) -> NodeFacts {
        let at_work = self.host.at_work.load(Ordering::Relaxed);
        NodeFacts {
            name: self.host.fixed.node_name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            fold: FOLD_VERSION,
            level: FEATURE_LEVEL,
            since: *self.since.get_or_init(|| self.host.clock.now()),
            at_work,
            behind: Millis(self.behind.load(Ordering::Relaxed)),
        }
    }

    /// Nothing is written that one of the nodes could not read. One that says nothing of its level is the oldest.
    async fn look_at_the_others(&self) -> Result<(), StoreError> {
        let there = self.log.store.nodes(self.host.clock.now()).await?;
        let level = |facts: &str| serde_json::from_str::<NodeFacts>(facts).map_or(0, |facts| facts.level);
        let lowest = there.iter().map(|row| level(&row.facts)).min().unwrap_or(FEATURE_LEVEL);
        let lowest = lowest.min(FEATURE_LEVEL);
        let before = self.level.swap(lowest, Ordering::Relaxed);
        if before != lowest {
            tracing::info!(lowest, own = FEATURE_LEVEL, "nodes: the oldest node has another feature level");
        }
        Ok(())
    }
}

/// Wakes whoever follows or drives what other nodes changed. A hint that was lost costs latency only: whoever waits looks
/// by itself after a while.
async fn hear(shared: std::sync::Weak<Nodes>, mut hints: Receiver<ShardSet>) {
    loop {
        let heard = match hints.recv().await {
            Ok(heard) => heard,
            Err(RecvError::Lagged(_)) => ShardSet::all(),
            Err(RecvError::Closed) => return,
        };
        let Some(shared) = shared.upgrade() else { return };
        shared.wakes.wake_shards(&heard, |run| run.shard(&shared.log.tenant_of(run)));
        shared.wakes.wake_inboxes();
        let own = shared.shards();
        if heard.iter().any(|shard| own.contains(shard)) {
            shared.wakes.wake_worker();
            shared.wakes.wake_deliverer();
        }
    }
}
