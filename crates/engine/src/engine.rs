//! The engine: the only write path, and whatever drives runs.
//!
//! `submit.rs` turns what clients want into commands, `deciding.rs` what people decide, `drive.rs` follows one run until it waits or ends,
//! `worker.rs` finds due runs, `nodes.rs` shares them with other nodes, `lookout.rs` asks outside about calls that wait,
//! `follow.rs` lets readers follow the log, `deliver.rs` tells the outside. A held run is known to none of them: it is rows.

mod abandon;
mod above;
mod callbacks;
mod deciding;
mod deliver;
mod deltas;
mod drive;
mod facts;
mod family;
mod fits;
mod follow;
mod gone;
mod identify;
mod inbox;
mod jobs;
mod login;
mod lookout;
mod mishaps;
mod nodes;
mod once;
mod orders;
mod recent;
mod recovery;
mod reports;
mod requests;
mod retention;
mod sessions;
mod shown;
mod submit;
mod subscriptions;
mod tenants;
mod views;
mod worker;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::Envelope;
use standfast_core::id::{Incarnation, RunId, Seq};
use standfast_core::name::{AgentName, SessionId, Tenant};
use standfast_core::refusal::Refusal;
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{Counts, Store, Stored};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::auth::Approvers;
use crate::auth::Scope;
use crate::clock::{self, Clock};
use crate::schema::Broken;
use crate::settings::{Access, Agent, Settings, Webhooks};

pub use callbacks::{Callback, CallbackView};
pub use deciding::{Deciding, Decision, Decisions, One};
pub use deliver::{
    Brought, Disabled, Frame, Kind, Owner, Reading, Receiver, Sending, Telling, What, delivery_id,
};
pub use deltas::Delta;
pub use follow::{Follower, News, Step};
pub use inbox::{ClaimTask, InboxView, NewTask, TaskList, TaskReport, TaskView, claimed_by};
pub use jobs::{JOB_RECEIVER, JobList, JobView, SessionNow};
pub use login::LoginError;
pub use nodes::{FEATURE_LEVEL, NodeFacts, NodeView};
pub use once::Once;
pub use recent::{Listed, RecentRuns};
pub use recovery::Recovery;
pub use reports::{Report, ReportError, Said, Signature};
pub use requests::RequestView;
pub use sessions::{
    Deleted, Metadata, PENDING, SessionError, SessionList, SessionName, SessionView, metadata,
};
pub use shown::{Implied, Showing, ShownHold};
pub use standfast_store::{DeadLetter, Page, Scope as Hears, SessionKey, SessionRow, StoreError, Unreadable};
pub use submit::NewRun;
pub use subscriptions::{NewSubscription, SubscriptionError, SubscriptionView, USUAL_EVENTS, hears};
pub use views::{HoldList, HoldView, RunList, RunView, Seen};

/// Why the engine did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A rule says no.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The store says no, or not now.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// There is no such agent.
    #[error("there is no agent {agent}; the agents are: {known}")]
    NoSuchAgent {
        /// The name that was asked for.
        agent: AgentName,
        /// The names there are.
        known: String,
    },
    /// Edited arguments or an answer do not keep to their schema.
    #[error("{}", .0.why)]
    BreaksSchema(Broken),
    /// An idempotency key was sent before, with another body.
    #[error("the idempotency key {key} was used for another request; a new request needs a new key")]
    KeyReused {
        /// The key.
        key: String,
    },
    /// The conversation takes no more runs.
    #[error("session {session} of agent {agent} is closed; begin another one")]
    SessionClosed {
        /// Of which agent.
        agent: AgentName,
        /// Its name.
        session: SessionId,
    },
    /// The caller's credential is not for this.
    #[error("this needs a key with the scope {0}")]
    MissingScope(Scope),
    /// There is nothing with this id that the caller may see.
    #[error("not found")]
    NotFound,
}

/// Drives runs. A handle: clones share everything.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    clock: Clock,
    node: Incarnation,
    settings: RwLock<Arc<Settings>>,
    wakes: follow::Wakes,
    /// The tenants that have runs, as far as this node knows.
    tenants: tenants::Tenants,
    /// The latest tokens that were shown here.
    seen_tokens: identify::SeenTokens,
    deltas: Arc<deltas::Deltas>,
    /// Facts of runs that somebody was allowed to see lately.
    facts: facts::KnownFacts,
    /// How many runs of each agent are worked on here.
    busy: Mutex<HashMap<AgentName, usize>>,
    /// How many of those came from an inbox.
    serving: Mutex<HashMap<AgentName, usize>>,
    /// The runs that are driven here.
    driven: Mutex<HashMap<RunId, drive::Driven>>,
    /// What was found at the start.
    looking: Mutex<recovery::Looking>,
    /// What this node is among others.
    membership: nodes::Membership,
    /// What was shown to whom, on its way to the store.
    notes: shown::Notes,
    /// The last counts of each tenant, and when they were made.
    counted: tokio::sync::Mutex<BTreeMap<Tenant, (Timestamp, Counts)>>,
    /// The agents of which more runs may be due than there are places: whoever leaves one has the next run looked for.
    crowded: Mutex<HashSet<AgentName>>,
    /// Whether it was stopped as by a crash: nothing more is done.
    is_dead: AtomicBool,
    /// The hosts that deliveries are under way to.
    hosts: deliver::Hosts,
    /// Kinds of receivers that can be told something.
    kinds: OnceLock<Vec<Arc<dyn deliver::Kind>>>,
    /// Held by whoever tells the outside, until it has stopped.
    delivering: Arc<tokio::sync::Mutex<()>>,
    /// Jobs that were found silent.
    silent_jobs: AtomicU64,
    /// What is at work here.
    tasks: Mutex<JoinSet<()>>,
    /// Whether nothing new is begun.
    stopping: watch::Sender<bool>,
    /// How often the settings were changed.
    reloads: watch::Sender<u64>,
}

impl Engine {
    /// An engine on a store. Nothing runs before [`Engine::work`] or a message.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Clock, settings: Settings) -> Engine {
        let membership = nodes::Membership::new(store.hints().is_some());
        let shared = Shared {
            store,
            node: clock.incarnation(),
            clock,
            membership,
            settings: RwLock::new(Arc::new(settings)),
            wakes: follow::Wakes::default(),
            tenants: tenants::Tenants::default(),
            seen_tokens: identify::SeenTokens::default(),
            deltas: Arc::default(),
            facts: facts::KnownFacts::default(),
            busy: Mutex::default(),
            serving: Mutex::default(),
            driven: Mutex::default(),
            looking: Mutex::default(),
            notes: shown::Notes::default(),
            counted: tokio::sync::Mutex::default(),
            crowded: Mutex::default(),
            is_dead: AtomicBool::new(false),
            hosts: deliver::Hosts::default(),
            kinds: OnceLock::new(),
            delivering: Arc::default(),
            silent_jobs: AtomicU64::new(0),
            tasks: Mutex::default(),
            stopping: watch::Sender::new(false),
            reloads: watch::Sender::new(0),
        };
        Engine { shared: Arc::new(shared) }
    }

    /// Goes on with other settings: agents, limits, who may call. Runs keep the definitions that they are pinned to; who
    /// may decide, models, tools and limits are those of now. What a process has only once stays: its tenant, its
    /// lease and poll times, its connections and what it measures.
    pub fn reload(&self, new: Settings) {
        let old = self.shared.settings();
        let access = match new.access.auth == old.access.auth {
            // The same provider goes on with the keys that it has.
            true => Access { auth: old.access.auth.clone(), ..new.access },
            false => new.access,
        };
        let kept = Settings {
            fixed: old.fixed.clone(),
            access,
            webhooks: Webhooks { key: new.webhooks.key.or_else(|| old.webhooks.key.clone()), ..new.webhooks },
            ..new
        };
        *self.shared.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kept);
        self.shared.reloads.send_modify(|count| *count += 1);
        self.shared.wakes.wake_worker();
    }

    /// The clock it goes by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// A run as it is stored.
    pub async fn load(&self, run: RunId) -> Result<Stored, EngineError> {
        match self.shared.store.load(run).await {
            Err(StoreError::NotFound { .. }) => Err(EngineError::NotFound),
            other => Ok(other?),
        }
    }

    /// The events of a run after a position, with large values in their places.
    pub async fn events(&self, run: RunId, after: Seq) -> Result<Vec<Envelope>, EngineError> {
        Ok(self.shared.events(run, after).await?)
    }

    /// The events of a run after a position, those of one append together: between them the run was never seen.
    pub async fn appends(&self, run: RunId, after: Seq) -> Result<Vec<Vec<Envelope>>, EngineError> {
        Ok(self.shared.appends(run, after).await?)
    }

    /// Begins nothing new, lets models and tools that are at work finish for this long, gives every run back, and
    /// stops. Another node, or the next start, goes on at once.
    pub async fn drain(&self, at_most: Millis) {
        self.shared.stopping.send_replace(true);
        self.shared.wakes.wake_worker();
        let until = tokio::time::Instant::now() + clock::duration(at_most);
        loop {
            let mut tasks = std::mem::take(&mut *self.shared.tasks());
            if tasks.is_empty() {
                return;
            }
            let finished = async { while tasks.join_next().await.is_some() {} };
            if timeout_at(until, finished).await.is_err() {
                tracing::warn!(
                    at_work = tasks.len(),
                    "stopping all the same; a node that takes over goes on"
                );
                tasks.shutdown().await;
            }
        }
    }

    /// Whether it has been asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Stops everything at once, as a crash would: what is stored is all that is left. Until then the tasks keep the
    /// engine alive, whoever drops it.
    pub async fn die(&self) {
        self.shared.is_dead.store(true, Ordering::SeqCst);
        let mut tasks = std::mem::take(&mut *self.shared.tasks());
        tasks.shutdown().await;
    }
}

impl Shared {
    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Keeps a task for as long as the engine lives.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(self.clock.follows(task));
    }

    fn agent(&self, name: &AgentName) -> Result<Arc<Agent>, EngineError> {
        let settings = self.settings();
        settings.agents.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = settings.agents.keys().map(AgentName::as_str).collect();
            EngineError::NoSuchAgent { agent: name.clone(), known: known.join(", ") }
        })
    }

    /// Who may decide now. Of an agent that is no longer configured: whoever started the run, and administrators.
    fn approvers(&self, name: &AgentName) -> Approvers {
        self.settings().agents.get(name).map(|agent| agent.approvers.clone()).unwrap_or_default()
    }

    /// What the server is made of now. Whoever works with it for a while keeps what it got.
    fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a place of an agent's pool; none when it is full.
    fn place(self: &Arc<Shared>, name: &AgentName, queue: Queue) -> Option<Place> {
        if self.is_stopping() {
            return None;
        }
        let pool = self.settings().agents.get(name).map_or(gone::POOL, |agent| agent.worker_pool);
        let mut busy = self.busy();
        let count = busy.entry(name.clone()).or_default();
        if *count >= pool {
            drop(busy);
            self.crowded().insert(name.clone());
            return None;
        }
        *count += 1;
        if queue == Queue::Inbox {
            *self.serving().entry(name.clone()).or_default() += 1;
        }
        Some(Place { shared: self.clone(), agent: name.clone(), queue })
    }

    /// How many tasks of inboxes an agent works on here.
    fn tasks_at_work(&self, name: &AgentName) -> usize {
        self.serving().get(name).copied().unwrap_or(0)
    }

    fn serving(&self) -> MutexGuard<'_, HashMap<AgentName, usize>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more runs of an agent may be worked on here.
    fn room(&self, name: &AgentName) -> usize {
        let pool = self.settings().agents.get(name).map_or(0, |agent| agent.worker_pool);
        pool.saturating_sub(self.busy().get(name).copied().unwrap_or(0))
    }

    /// Sleeps, but not longer than until nothing new is begun here.
    async fn sleep_unless_stopping(&self, span: Millis) {
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => {}
            () = self.clock.sleep(span) => {}
        }
    }

    fn crowded(&self) -> MutexGuard<'_, HashSet<AgentName>> {
        self.crowded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy(&self) -> MutexGuard<'_, HashMap<AgentName, usize>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The definition that a run is pinned to.
    async fn definition(&self, agent: &AgentName, digest: Digest) -> Result<Arc<Definition>, EngineError> {
        let settings = self.settings();
        if let Some(agent) = settings.agents.get(agent) {
            if agent.digest == digest {
                return Ok(agent.definition.clone());
            }
            if let Some(serves) = agent.serves.as_ref().filter(|serves| serves.digest == digest) {
                return Ok(serves.definition.clone());
            }
        }
        // Named by what it says, so it is the same whoever keeps it.
        for tenant in self.known_tenants() {
            let bytes = self.store.definition(tenant, digest).await?;
            if let Some(parsed) = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                return Ok(Arc::new(parsed));
            }
        }
        Err(EngineError::NotFound)
    }

    async fn events(&self, run: RunId, after: Seq) -> Result<Vec<Envelope>, StoreError> {
        Ok(self.appends(run, after).await?.into_iter().flatten().collect())
    }

    async fn appends(&self, run: RunId, after: Seq) -> Result<Vec<Vec<Envelope>>, StoreError> {
        let mut appends = Vec::new();
        for link in self.store.links(run, after, usize::MAX).await? {
            let corrupt =
                |bad: standfast_core::link::BadLink| StoreError::Corrupt { run, why: bad.to_string() };
            let mut events = link.events().map_err(corrupt)?;
            events.retain(|envelope| envelope.seq > after);
            for envelope in &mut events {
                self.fill(run, envelope).await?;
            }
            if !events.is_empty() {
                appends.push(events);
            }
        }
        Ok(appends)
    }

    /// Puts large values back in their places.
    async fn fill(&self, run: RunId, envelope: &mut Envelope) -> Result<(), StoreError> {
        for name in envelope.event.blobs() {
            let value = self.store.blob(run, name.digest).await?;
            let missing =
                || StoreError::Corrupt { run, why: format!("the large value {} is missing", name.digest) };
            let wrong =
                |bad: standfast_core::body::WrongBlob| StoreError::Corrupt { run, why: bad.to_string() };
            envelope.event.fill(&name, &value.ok_or_else(missing)?).map_err(wrong)?;
        }
        Ok(())
    }
}

/// A place in an agent's pool, given back when it is dropped.
struct Place {
    shared: Arc<Shared>,
    agent: AgentName,
    queue: Queue,
}

/// Where a run that is worked on came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    /// From an inbox: an agent takes so many of those at once.
    Inbox,
    /// From anywhere else.
    Other,
}

impl Queue {
    fn of(facts: &Facts) -> Queue {
        if facts.inbox.is_some() { Queue::Inbox } else { Queue::Other }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(count) = self.shared.busy().get_mut(&self.agent) {
            *count = count.saturating_sub(1);
        }
        // Looking for due runs costs the writer's time: only when there may be one.
        if self.shared.crowded().contains(&self.agent) {
            self.shared.wakes.wake_worker();
        }
        if self.queue == Queue::Inbox {
            if let Some(count) = self.shared.serving().get_mut(&self.agent) {
                *count = count.saturating_sub(1);
            }
            // There may be room for the next task.
            self.shared.wakes.wake_inboxes();
        }
    }
}
