//! The engine of Standfast: everything between the stored runs and whoever asks, decides and works. The only write path.
//!
//! Components own their state and depend in one direction: `host` (process) ← `log` (what is stored, and what is shown of it)
//! ← `wakes` ← `commit` (the one write path) ← `drive` (one run until it waits or ends) ← `work` (what a node does by
//! itself). `reads` (lists, waiting) uses log and wakes; `deliver` uses log and commit; `receivers` (who is notified),
//! `identity` and `nodes` are below drive and deliver; `submit` (what callers ask for) is on drive, reads, receivers
//! and what is below them. [`Engine`] hands them out, and forwards what is the process's. A held run is known to none of them: it is rows.
//!
//! Beside the components: `policy` and `auth` work out verdicts and authority before the core is asked; `settings` say what a
//! server is made of; `tool` and `model` are what it asks of tools and models, which are crates of their own; `clock` is the
//! one file that reads time and draws randomness. `secrets` and `vault` keep what must not be read, `outbound` calls others,
//! `upstream` is what a gateway asks of whoever reaches the servers behind it, `telemetry` measures, `traces` are spans for a
//! collector, `request_context` is what both know of a request. No protocol, no provider and no configuration file is known here.

#![warn(missing_docs)]

pub mod auth;
pub mod card_key;
pub mod clock;
mod commit;
mod deliver;
mod drive;
mod error;
mod host;
pub mod http_date;
mod identity;
mod log;
pub mod model;
mod nodes;
pub mod outbound;
pub mod policy;
mod reads;
mod receivers;
pub mod request_context;
pub mod schema;
pub mod secrets;
pub mod settings;
mod submit;
pub mod telemetry;
pub mod tool;
pub mod traces;
pub mod upstream;
pub mod vault;
mod wakes;
mod work;

use std::sync::Arc;

use standfast_core::digest::Digest;
use standfast_core::time::Millis;
use standfast_store::Store;

use clock::Clock;
use settings::{FixedSettings, Settings};

pub use commit::{HoldMarks, IdempotencyKey, ImpliedHold, ShownHold, ShownHolds};
pub use deliver::{
    ChannelPosts, ChannelTarget, Deliveries, Delivery, DeliveryPayload, DeliveryRequest, FileCopies, Frame,
    FrameSource, NewSubscription, ReceiverKind, SendFailure, SubscriptionView, Subscriptions, USUAL_EVENTS,
    delivery_id, hears,
};
pub use drive::Acceptance;
pub use error::EngineError;
pub use identity::{
    Activity, BegunSignIn, BrowserSession, CommandLineOffer, FinishedSignIn, Identity, Owner, SessionSource,
    SignInFailure, SignInView, bound_nonce,
};
pub use log::data_reads::ExportedData;
pub use log::{Drift, DriftKind, HoldView, JobView, KeptGrant, Revocation, RunView, Snapshot, Views};
pub use nodes::{FEATURE_LEVEL, NodeFacts, NodeView, Nodes};
pub use reads::{
    DeadlineFilter, Follower, HistoryList, HoldList, HoldListPart, HoldListScope, HoldOrder, HoldSearch,
    HoldsFound, InboxView, Inboxes, JobList, Jobs, ListedRun, LookedUpRun, LookedUpTask, Metadata, News,
    PENDING, Reads, RecentRuns, RequestView, RiskFilter, RunList, SessionError, SessionList, SessionName,
    SessionNow, SessionView, Sessions, Step, TaskList, TaskView, WaitingSession, metadata,
};
pub use receivers::{
    AccountOffer, AccountRefusal, Callback, CallbackDetails, CallbackView, Callbacks, ChatAccount,
    ChatAccounts, ClickResult, Deactivation, JOB_RECEIVER, Receiver, SubscriptionError,
};
pub use standfast_policy::grant::{
    Freedom, Grant, GrantCondition, GrantProposal, GrantReach, GrantRefusal, GrantRequest,
};
pub use standfast_policy::value::ArgumentPath;
pub use standfast_store::{
    DeadLetter, Page, Scope as SubscriptionScope, SessionKey, SessionRow, StoreError, UnreadableRun,
};
pub use submit::{
    Adjustment, CallReport, ClaimTask, ClosedDialogs, Decision, DecisionSet, Decisions, GateDecision,
    GateError, GateOutcome, GateStart, GateState, GateView, Gates, GrantError, GrantState, GrantView, Grants,
    HoldAdjustment, HoldDecision, IssuedLink, LinkError, LinkRefusal, Links, LoginAsked, LoginError, Logins,
    LookedUpGate, NewGate, NewRun, NewTask, OpenedGate, OpenedLink, ProposedCall, Report, ReportBody,
    ReportError, Reports, RestoreError, RestoredState, SessionDeletion, Signature, StartedRun, Submit,
    TaskQueue, TaskReport, Withdrawal, claimed_by,
};
pub use wakes::{Delta, RestTicket};
pub use work::{StartupReport, Work};

use commit::Commit;
use drive::Drives;
use host::Host;
use log::Log;
use wakes::{Deltas, Wakes};

/// Drives runs. A handle: clones share everything.
#[derive(Clone)]
pub struct Engine {
    parts: Arc<Parts>,
}

/// The components, each with those it depends on.
struct Parts {
    host: Arc<Host>,
    wakes: Arc<Wakes>,
    nodes: Arc<Nodes>,
    reads: Arc<Reads>,
    sessions: Arc<Sessions>,
    jobs: Arc<Jobs>,
    inboxes: Arc<Inboxes>,
    shown: HoldMarks,
    identity: Arc<Identity>,
    deliveries: Arc<Deliveries>,
    subscriptions: Arc<Subscriptions>,
    callbacks: Arc<Callbacks>,
    submit: Arc<Submit>,
    reports: Reports,
    grants: Grants,
    logins: Logins,
    tasks: TaskQueue,
    gates: Gates,
    work: Arc<Work>,
}

impl Engine {
    /// An engine on a store. Nothing runs before [`Engine::work`] or a message.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Clock, fixed: FixedSettings, settings: Settings) -> Engine {
        let host = Arc::new(Host::new(clock, fixed, settings));
        let log = Arc::new(Log::new(host.clone(), store));
        let (wakes, deltas) = (Arc::new(Wakes::default()), Arc::new(Deltas::default()));
        let nodes = Arc::new(Nodes::new(log.clone(), wakes.clone()));
        let reads = Arc::new(Reads::new(log.clone(), wakes.clone(), deltas.clone()));
        let sessions = Arc::new(Sessions::new(&reads));
        let jobs = Arc::new(Jobs::new(reads.clone(), sessions.clone()));
        let inboxes = Arc::new(Inboxes::new(reads.clone()));
        let commit = Arc::new(Commit::new(log.clone(), wakes.clone()));
        let identity = Arc::new(Identity::new(log.clone()));
        let callbacks = Arc::new(Callbacks::new(log.clone(), identity.clone()));
        let deliveries = Arc::new(Deliveries::new(nodes.clone(), wakes.clone(), callbacks.clone()));
        let subscriptions = Arc::new(Subscriptions::new(deliveries.clone()));
        let drives = Arc::new(Drives::new(commit, deltas, callbacks.clone()));
        let submit = Arc::new(Submit::new(
            drives.clone(),
            callbacks.clone(),
            sessions.clone(),
            Links::new(log.clone(), reads.clone(), nodes.clone()),
        ));
        let parts = Parts {
            shown: HoldMarks::new(log, nodes.clone()),
            reports: Reports::new(submit.clone()),
            grants: Grants::new(submit.clone()),
            logins: Logins::new(submit.clone(), reads.clone()),
            tasks: TaskQueue::new(submit.clone(), inboxes.clone()),
            gates: Gates::new(submit.clone(), reads.clone()),
            work: Arc::new(Work::new(drives, nodes.clone())),
            host,
            wakes,
            nodes,
            reads,
            sessions,
            jobs,
            inboxes,
            identity,
            deliveries,
            subscriptions,
            callbacks,
            submit,
        };
        Engine { parts: Arc::new(parts) }
    }

    /// Agrees with the other nodes on the time and takes the first shards, and sees to it that people whom the configuration
    /// names are notified of pending holds. Call it before anybody can ask for anything; [`Engine::work`] and
    /// [`Engine::deliver`] keep it up.
    pub async fn join(&self) -> Result<(), EngineError> {
        self.parts.nodes.join().await?;
        self.parts.deliveries.begin_channels().await;
        Ok(())
    }

    /// Looks for due runs from now on, until the engine is dropped or dies.
    pub fn work(&self) {
        self.parts.work.begin();
        self.parts.submit.keep_stand_ins();
    }

    /// Tells the outside from now on, until the engine stops. Each kind of receiver is brought along by whoever knows it.
    pub fn deliver(&self, kinds: Vec<Arc<dyn ReceiverKind>>) {
        self.parts.deliveries.deliver(kinds);
    }

    /// Looks for due runs at once, not only at the next poll.
    pub fn look(&self) {
        self.parts.wakes.wake_worker();
    }

    /// Goes on with other settings: agents, limits, who may call. Runs keep the definitions that they are pinned to; who may
    /// decide, models, tools and limits are those of now. What a process has only once ([`FixedSettings`]) stays.
    pub fn reload(&self, new: Settings) {
        self.parts.host.reload(new);
        self.parts.wakes.wake_worker();
    }

    /// Records in the audit of every tenant that the server goes by another configuration, by digests of what it was and is.
    pub async fn record_configuration(&self, before: Digest, after: Digest) -> Result<(), EngineError> {
        Ok(log::config_changes::record_change(&self.parts.reads.log, before, after).await?)
    }

    /// Records in the audit that somebody takes data out; nothing may be handed to them before.
    pub async fn record_export(
        &self,
        who: &auth::Principal,
        what: ExportedData,
        count: usize,
    ) -> Result<(), EngineError> {
        Ok(log::data_reads::record_export(&self.parts.reads.log, who, what, count).await?)
    }

    /// Begins nothing new, lets models and tools that are at work finish for this long, gives every run back, and
    /// stops. Another node, or the next start, goes on at once.
    pub async fn drain(&self, at_most: Millis) {
        self.parts.host.stop();
        self.parts.wakes.wake_worker();
        self.parts.host.drain(at_most).await;
    }

    /// Whether it has been asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.parts.host.is_stopping()
    }

    /// Stops everything at once, as a crash would: what is stored is all that is left. Until then the tasks keep the
    /// engine alive, whoever drops it.
    pub async fn die(&self) {
        self.parts.host.die().await;
    }

    /// The clock it goes by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.parts.host.clock
    }

    /// What this process has only once: no reload changes it.
    #[must_use]
    pub fn fixed(&self) -> &FixedSettings {
        &self.parts.host.fixed
    }

    /// What this server is made of now.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.parts.host.settings()
    }

    /// What this node does by itself, and what it found when it started.
    #[must_use]
    pub fn node_work(&self) -> &Arc<Work> {
        &self.parts.work
    }

    /// Deliveries to whoever is notified.
    #[must_use]
    pub fn deliveries(&self) -> &Arc<Deliveries> {
        &self.parts.deliveries
    }

    /// What callers may look at.
    #[must_use]
    pub fn reads(&self) -> &Reads {
        &self.parts.reads
    }

    /// Conversations.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.parts.sessions
    }

    /// Jobs of outside systems.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.parts.jobs
    }

    /// Inboxes and their tasks.
    #[must_use]
    pub fn inboxes(&self) -> &Inboxes {
        &self.parts.inboxes
    }

    /// Gates: calls that somebody else's agent asks about before it runs them.
    #[must_use]
    pub fn gates(&self) -> &Gates {
        &self.parts.gates
    }

    /// What callers were shown.
    #[must_use]
    pub fn shown(&self) -> &HoldMarks {
        &self.parts.shown
    }

    /// Who callers are.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.parts.identity
    }

    /// The nodes of the store.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.parts.nodes
    }

    /// Who is notified of what.
    #[must_use]
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.parts.subscriptions
    }

    /// Receivers that clients name for one run.
    #[must_use]
    pub fn callbacks(&self) -> &Callbacks {
        &self.parts.callbacks
    }

    /// What clients and people ask for.
    #[must_use]
    pub fn submit(&self) -> &Submit {
        &self.parts.submit
    }

    /// What outside systems report about jobs.
    #[must_use]
    pub fn reports(&self) -> &Reports {
        &self.parts.reports
    }

    /// Standing approvals.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.parts.grants
    }

    /// Logins that runs wait for.
    #[must_use]
    pub fn logins(&self) -> &Logins {
        &self.parts.logins
    }

    /// Work that is put into inboxes and claimed from them.
    #[must_use]
    pub fn tasks(&self) -> &TaskQueue {
        &self.parts.tasks
    }
}
