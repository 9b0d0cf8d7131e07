//! The process that the engine lives in: its clock, its settings, the tasks that run in it, and how it stops.
//!
//! The lowest component: it knows neither a store nor a run. Whoever works with the settings for a while keeps what it got.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use standfast_core::id::Incarnation;
use standfast_core::name::AgentName;
use standfast_core::time::Millis;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use tracing::Instrument as _;

use super::EngineError;
use crate::auth::Approvers;
use crate::clock::{self, Clock};
use crate::settings::{Access, Agent, FixedSettings, Settings, Webhooks};

/// The process that the engine lives in.
pub(crate) struct Host {
    pub(crate) clock: Clock,
    /// This start of this node.
    pub(crate) node: Incarnation,
    /// What no reload changes.
    pub(crate) fixed: FixedSettings,
    settings: RwLock<Arc<Settings>>,
    /// How often the settings were changed.
    reloads: watch::Sender<u64>,
    /// Whether nothing new is begun.
    stopping: watch::Sender<bool>,
    /// Whether it was stopped as by a crash: nothing more is done.
    is_dead: AtomicBool,
    /// How many runs are driven here.
    pub(crate) at_work: AtomicUsize,
    /// How many stored runs wait for a slot, when it was last asked.
    queued_runs: AtomicU64,
    /// What is at work here.
    tasks: Mutex<JoinSet<()>>,
}

impl Host {
    pub(crate) fn new(clock: Clock, fixed: FixedSettings, settings: Settings) -> Host {
        Host {
            node: clock.incarnation(),
            clock,
            fixed,
            settings: RwLock::new(Arc::new(settings)),
            reloads: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
            is_dead: AtomicBool::new(false),
            at_work: AtomicUsize::new(0),
            queued_runs: AtomicU64::new(0),
            tasks: Mutex::default(),
        }
    }

    /// What the server is made of now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Goes on with other settings.
    pub(crate) fn reload(&self, new: Settings) {
        let old = self.settings();
        // The same provider goes on with the keys that it has.
        let access = if new.access.auth == old.access.auth {
            Access { auth: old.access.auth.clone(), ..new.access }
        } else {
            new.access
        };
        let kept = Settings {
            access,
            webhooks: Webhooks { key: new.webhooks.key.or_else(|| old.webhooks.key.clone()), ..new.webhooks },
            ..new
        };
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kept);
        self.reloads.send_modify(|count| *count += 1);
    }

    /// Hears of other settings from now on.
    pub(crate) fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    pub(crate) fn agent(&self, name: &AgentName) -> Result<Arc<Agent>, EngineError> {
        let settings = self.settings();
        settings.configured_or_built_in(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = settings.agents.keys().map(AgentName::as_str).collect();
            EngineError::NoSuchAgent { agent: name.clone(), known: known.join(", ") }
        })
    }

    /// An agent that the configuration names: the built-in one takes no messages.
    pub(crate) fn configured_agent(&self, name: &AgentName) -> Result<Arc<Agent>, EngineError> {
        let found = self.agent(name)?;
        if self.settings().agents.contains_key(name) {
            return Ok(found);
        }
        let known: Vec<String> = self.settings().agents.keys().map(ToString::to_string).collect();
        Err(EngineError::NoSuchAgent { agent: name.clone(), known: known.join(", ") })
    }

    /// Who may decide now. Of an agent that is no longer configured: whoever started the run, and administrators.
    pub(crate) fn approvers(&self, name: &AgentName) -> Approvers {
        let settings = self.settings();
        settings.configured_or_built_in(name).map(|agent| agent.approvers.clone()).unwrap_or_default()
    }

    /// Keeps a task for as long as the engine lives. Its log lines name what the caller's name: the request, the run.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(self.clock.follows(task.in_current_span()));
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Hears, from now on, when nothing new is begun any more.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Begins nothing new from now on.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Sleeps, but not longer than until nothing new is begun here.
    pub(crate) async fn sleep_unless_stopping(&self, span: Millis) {
        let mut stopping = self.stopping();
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => {}
            () = self.clock.sleep(span) => {}
        }
    }

    /// Lets everything that is at work finish for this long, then stops it.
    pub(crate) async fn drain(&self, at_most: Millis) {
        let until = tokio::time::Instant::now() + clock::duration(at_most);
        loop {
            let mut tasks = std::mem::take(&mut *self.tasks());
            if tasks.is_empty() {
                return;
            }
            let finished = async { while tasks.join_next().await.is_some() {} };
            if timeout_at(until, finished).await.is_err() {
                tracing::warn!(
                    at_work = tasks.len(),
                    "engine: stopping although tasks are still at work; the node that takes over goes on"
                );
                tasks.shutdown().await;
            }
        }
    }

    /// Stops everything at once, as a crash would.
    pub(crate) async fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        let mut tasks = std::mem::take(&mut *self.tasks());
        tasks.shutdown().await;
    }

    /// How many stored runs wait for a slot, as far as is known.
    pub(crate) fn queued_runs(&self) -> u64 {
        self.queued_runs.load(Ordering::Relaxed)
    }

    pub(crate) fn note_queued_runs(&self, count: u64) {
        self.queued_runs.store(count, Ordering::Relaxed);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
