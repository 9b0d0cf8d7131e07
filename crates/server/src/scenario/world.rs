//! The server of a scenario and its time: real engine, real SQLite file, virtual clock.
//!
//! Time is moved only when nothing is left to do at its instant, and never past an instant at which somebody wants to do
//! something, so that everything happens when it would have happened, in no time. There is one thread: when no task was
//! polled while we gave way and the store owes no answer, no task can run before time is moved.

use std::sync::Arc;

use standfast_core::id::RunId;
use standfast_core::name::{AgentName, UserId};
use standfast_core::run::Run;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{Principal, Scope};
use standfast_engine::clock::{Clock, ManualClock};
use standfast_engine::{Engine, EngineError};
use standfast_store::StoredRun;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

use super::ScenarioError;
use super::agent::Cast;
use super::quiescence::{CountedStore, UnansweredCalls};
use super::tools::Oracle;

/// When scenarios begin: 2026-01-01T09:00:00Z.
const BEGIN: Timestamp = Timestamp(1_767_258_000_000);
/// How long the server is down when nobody says otherwise: longer than the claims of one that died, so that the new one
/// sees at once what it left.
const DOWN: Millis = Millis::seconds(120);
/// Polls of tasks at one instant, after which a scenario is taken to run in circles.
const RESTLESS: u64 = 2_000_000;

/// The server of a scenario and its time.
pub(super) struct World {
    cast: Cast,
    admins: Vec<UserId>,
    pub(super) oracle: Arc<Oracle>,
    clock: Clock,
    time: Arc<ManualClock>,
    /// None only while the server is down.
    engine: Option<Engine>,
    unanswered: Arc<UnansweredCalls>,
    pub(super) runs: Vec<StartedRun>,
    directory: TempDir,
}

/// A run that the scenario began.
#[derive(Debug, Clone)]
pub(super) struct StartedRun {
    pub(super) label: Option<String>,
    pub(super) run: RunId,
    pub(super) owner: UserId,
}

impl World {
    pub(super) fn begin(cast: Cast, admins: Vec<UserId>) -> Result<World, ScenarioError> {
        let time = Arc::new(ManualClock::at(BEGIN));
        let clock = Clock::Virtual(time.clone());
        let directory = tempfile::tempdir().map_err(|error| ScenarioError::here(error.to_string()))?;
        let oracle = Arc::new(Oracle::default());
        let (engine, unanswered) = serve(&directory, &cast, &oracle, &clock)?;
        let engine = Some(engine);
        Ok(World { cast, admins, oracle, clock, time, engine, unanswered, runs: Vec::new(), directory })
    }

    pub(super) fn engine(&self) -> Result<&Engine, ScenarioError> {
        self.engine.as_ref().ok_or_else(|| ScenarioError::here("the server is down"))
    }

    pub(super) fn agent(&self) -> &AgentName {
        &self.cast.name
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Someone who calls.
    pub(super) fn principal(&self, user: &UserId) -> Principal {
        let mut principal = Principal::of(user.clone());
        if self.admins.contains(user) {
            principal.scopes.insert(Scope::Admin);
        }
        principal
    }

    /// A run as it is stored.
    pub(super) async fn load(&self, run: RunId) -> Result<Run, ScenarioError> {
        Ok(Arc::unwrap_or_clone(self.stored(run).await?.row.run))
    }

    async fn stored(&self, run: RunId) -> Result<StoredRun, ScenarioError> {
        let unreadable = |error: EngineError| ScenarioError::here(format!("{run} cannot be read: {error}"));
        self.engine()?.reads().load(run).await.map_err(unreadable)
    }

    /// Waits until nothing is left to do at this instant. A server that a tool made crash is started again.
    pub(super) async fn come_to_rest(&mut self) -> Result<(), ScenarioError> {
        loop {
            self.no_task_can_run().await?;
            if !self.oracle.take_crash() {
                return Ok(());
            }
            self.restart(None).await?;
        }
    }

    /// Lets time pass.
    pub(super) async fn wait(&mut self, span: Millis) -> Result<(), ScenarioError> {
        let until = self.now().plus(span);
        loop {
            self.come_to_rest().await?;
            let now = self.now();
            let next = self.next_instant().await?.filter(|at| *at <= until);
            if now >= until && next.is_none() {
                return Ok(());
            }
            self.time.move_to(next.unwrap_or(until));
            self.engine()?.look();
        }
    }

    /// The server dies and is started again on the same file, after a while.
    pub(super) async fn restart(&mut self, down: Option<Millis>) -> Result<(), ScenarioError> {
        if let Some(engine) = self.engine.take() {
            // Nobody has the file open after this.
            engine.die().await;
        }
        self.oracle.take_crash();
        self.time.move_to(self.now().plus(down.unwrap_or(DOWN)));
        let (engine, unanswered) = serve(&self.directory, &self.cast, &self.oracle, &self.clock)?;
        (self.engine, self.unanswered) = (Some(engine), unanswered);
        Box::pin(self.come_to_rest()).await
    }

    async fn no_task_can_run(&self) -> Result<(), ScenarioError> {
        let began = self.time.polls();
        loop {
            if self.unanswered.is_any() {
                self.unanswered.one_comes().await;
                continue;
            }
            let before = self.time.polls();
            tokio::task::yield_now().await;
            if self.time.polls() == before && !self.unanswered.is_any() {
                return Ok(());
            }
            if before - began > RESTLESS {
                return Err(ScenarioError::here(
                    "the runs do not settle; does the script call tools endlessly?",
                ));
            }
        }
    }

    /// The next instant at which somebody wants to do something.
    async fn next_instant(&self) -> Result<Option<Timestamp>, ScenarioError> {
        let now = self.now();
        let mut instants: Vec<Timestamp> = self.time.next_wake().into_iter().collect();
        for begun in &self.runs {
            let stored = self.stored(begun.run).await?;
            let leased = stored.lease.map(|lease| lease.until);
            // Due and not worked on: a claim of somebody who died must end first.
            instants.extend(stored.row.due_at.map(|due| leased.map_or(due, |until| due.max(until))));
        }
        Ok(instants.into_iter().filter(|at| *at > now).min())
    }
}

fn serve(
    directory: &TempDir,
    cast: &Cast,
    oracle: &Arc<Oracle>,
    clock: &Clock,
) -> Result<(Engine, Arc<UnansweredCalls>), ScenarioError> {
    let options = SqliteOptions::at(directory.path().join("standfast.db"));
    let store = SqliteStore::open(&options).map_err(|error| ScenarioError::here(error.to_string()))?;
    let unanswered = Arc::new(UnansweredCalls::default());
    let counted = CountedStore { store, unanswered: unanswered.clone() };
    let engine =
        Engine::new(Arc::new(counted), clock.clone(), super::agent::fixed(), cast.settings(oracle, clock));
    engine.work();
    Ok((engine, unanswered))
}
