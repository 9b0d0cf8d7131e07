//! Our server: router, engine and store as in the product, with a scripted model and a tool that does nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use standfast::app;
use standfast_core::body::Body;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::HoldPolicy;
use standfast_core::id::StorageKind;
use standfast_core::json::RawJson;
use standfast_core::message::{Replay, ToolResult};
use standfast_core::name::{AgentName, ToolName};
use standfast_core::time::Millis;
use standfast_engine::Engine;
use standfast_engine::auth::Principal;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Agent, FixedSettings, Settings};
use standfast_engine::telemetry::Telemetry;
use standfast_engine::tool::{Invocation, Outcome, Tool, ToolFuture};
use standfast_models::scripted::{Line, Script};
use standfast_store::memory::MemoryStore;
use standfast_store::postgres::{PostgresOptions, PostgresStore};
use standfast_store::split_store::SplitStore;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{Observer, Store};
use standfast_surfaces::http;
use tokio::sync::watch;

use crate::client::{Connection, text_of};
use crate::counting::{CountingObserver, IS_COUNTING};
use crate::measure::{Lap, now};

const ARGUMENTS: &str = r#"{"path": "/var/lib/app/cache/2026-11-15/segment-000017", "recursive": true, "reason": "disk nearly full"}"#;

/// What the model says in the end.
pub(crate) const DONE: &str = "Done: 4.2 GB are free now.";

/// How often a server looks by itself, in milliseconds: as the product does.
pub(crate) const POLL_MS: i64 = 500;

/// Everything on this place, with a model that thinks for so many milliseconds.
pub(crate) async fn router(place: &Path, thinks: i64) -> Router {
    // Measured as the program measures itself.
    let telemetry = Arc::<Telemetry>::default();
    serving(open_watched(place, telemetry.clone()), settings(thinks), telemetry).await
}

/// The same with agents in blocking mode (S0-65): their runs are in memory, beside the database.
pub(crate) async fn blocking_router(place: &Path) -> Router {
    let telemetry = Arc::<Telemetry>::default();
    let store = SplitStore::new(open_watched(place, telemetry.clone()), Arc::new(MemoryStore::new()));
    let mut settings = settings(0);
    for agent in settings.agents.values_mut() {
        Arc::make_mut(agent).lives = StorageKind::Memory;
    }
    serving(Arc::new(store), settings, telemetry).await
}

async fn serving(store: Arc<dyn Store>, settings: Settings, telemetry: Arc<Telemetry>) -> Router {
    let engine = Engine::new(store, Clock::system(), FixedSettings { telemetry, ..fixed() }, settings);
    engine.join().await.unwrap();
    engine.work();
    engine.deliver(app::receivers());
    engine.node_work().sweep_jobs();
    // Never told to stop: the process is killed.
    let (stop, stopping) = watch::channel(false);
    std::mem::forget(stop);
    app::router(http::App { engine, stopping })
}

/// The store at a place: a directory, or the address of a Postgres, which begins with `host=`.
pub(crate) fn open(place: &Path) -> Arc<dyn Store> {
    open_watched(place, Arc::default())
}

fn open_watched(place: &Path, telemetry: Arc<Telemetry>) -> Arc<dyn Store> {
    let observer: Arc<dyn Observer> =
        if IS_COUNTING { Arc::new(CountingObserver(telemetry)) } else { telemetry };
    let observer = Some(observer);
    match place.to_str().filter(|text| text.starts_with("host=")) {
        Some(address) => {
            let options = PostgresOptions { observer, ..PostgresOptions::at(address) };
            Arc::new(PostgresStore::open(&options).unwrap())
        }
        None => {
            let options = SqliteOptions { observer, ..SqliteOptions::at(place.join("standfast.db")) };
            Arc::new(SqliteStore::open(&options).unwrap())
        }
    }
}

pub(crate) fn engine(store: Arc<dyn Store>, thinks: i64) -> Engine {
    let engine = Engine::new(store, Clock::system(), fixed(), settings(thinks));
    engine.work();
    engine
}

pub(crate) fn local() -> Principal {
    Principal::local()
}

fn settings(thinks: i64) -> Settings {
    let mut lines = vec![Line::calls(&[("delete_file", ARGUMENTS)]), Line::says(DONE)];
    lines.iter_mut().for_each(|line| line.delay = (thinks > 0).then_some(Millis(thinks)));
    let agents = BTreeMap::from([agent("ops", lines), agent("plain", vec![Line::says(DONE)])]);
    Settings { agents, ..Settings::usual() }
}

/// What a process has only once.
pub(crate) fn fixed() -> FixedSettings {
    FixedSettings { poll: Millis(POLL_MS), ..FixedSettings::default() }
}

/// An agent with a tool that needs approval, whose model says these lines.
pub(crate) fn agent(name: &str, lines: Vec<Line>) -> (AgentName, Arc<Agent>) {
    let (name, tool) = (AgentName::new(name).unwrap(), ToolName::new("delete_file").unwrap());
    let spec = ToolSpec {
        description: "Deletes a file".into(),
        schema: RawJson::parse(r#"{"type":"object"}"#).unwrap(),
        replay: Replay::Never,
        reversible: false,
        approval_prompt: None,
        holds: None,
    };
    let definition = Definition {
        agent: name.clone(),
        prompt: "You look after a server.".into(),
        model: "scripted".into(),
        model_parameters: None,
        tools: BTreeMap::from([(tool.clone(), spec)]),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    };
    let agent = Agent {
        tools: BTreeMap::from([(tool.clone(), Arc::new(Nothing) as Arc<dyn Tool>)]),
        needs_approval: BTreeSet::from([tool]),
        worker_pool: 512,
        ..Agent::new(definition, Arc::new(Script { lines }))
    };
    (name, Arc::new(agent))
}

struct Nothing;

impl Tool for Nothing {
    fn run(&self, _: Invocation) -> ToolFuture {
        Box::pin(std::future::ready(Outcome::Done(ToolResult::Ok(Body::text("deleted")))))
    }
}

/// One cycle as a client lives it: two requests, the second answered when the run has ended.
pub(crate) async fn cycle(connection: &mut Connection) -> Option<Lap> {
    let start = now();
    let hold = held(connection).await;
    let approve = now();
    approved(connection, &hold).await;
    Some(Lap { cycle: start.elapsed(), approve: approve.elapsed() })
}

/// The same, decided through another server than the one that began it.
#[cfg(feature = "postgres")]
pub(crate) async fn crossed((one, other): &mut (Connection, Connection)) -> Option<Lap> {
    let start = now();
    let hold = held(one).await;
    let approve = now();
    approved(other, &hold).await;
    Some(Lap { cycle: start.elapsed(), approve: approve.elapsed() })
}

/// Starts a run; its hold.
pub(crate) async fn held(connection: &mut Connection) -> String {
    started(connection).await.1
}

/// Starts a run and waits until it is held; the run and its hold.
pub(crate) async fn started(connection: &mut Connection) -> (String, String) {
    let body = r#"{"input": "Free some space", "wait": "settled"}"#;
    let held = connection.post("/api/v1/agents/ops/runs", body).await;
    let holds = &held[held.find("\"holds\":").unwrap()..];
    (text_of(&held, "id").to_owned(), text_of(holds, "id").to_owned())
}

/// Approves it and waits until the run has ended.
pub(crate) async fn approved(connection: &mut Connection, hold: &str) {
    let body = r#"{"resolution": "approve", "wait": "settled"}"#;
    connection.post(&format!("/api/v1/holds/{hold}/resolve"), body).await;
}
