//! The engine on a real SQLite file: a run that stops, dies and goes on.
//!
//! A node dies by having all its tasks dropped in the middle; what is stored is all that is left. The oracle of what
//! ran is outside the store: each start of the tool is a synced line in a file.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod ahead;
mod asked_people;
mod budgets;
mod changes;
mod corners;
mod effects;
mod family;
mod family_ends;
mod foreign;
mod gone;
mod grants;
mod hours;
mod judged;
mod lists;
mod log_lines;
mod lost_lease;
mod nodes;
mod queue;
mod races;
mod readers;
mod repeats;
mod rules;
mod sessions;
mod snapshots;
mod stopping;
mod telling;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::decide::Answer;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::event::{Event, Outcome as Ended};
use standfast_core::hold::{HoldKind, HoldPolicy};
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay, ToolResult};
use standfast_core::name::{AgentName, ToolName, UserId};
use standfast_core::receipt::{CallEffect, receipt};
use standfast_core::refusal::Refusal;
use standfast_core::run::{Status, WaitKind, status};
use standfast_core::time::{Millis, Timestamp};
use standfast_core::transcript::{Entry, transcript};
use standfast_engine::auth::Principal;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Agent, FixedSettings, Settings};
use standfast_engine::tool::suspend::{self, SuspendForInput};
use standfast_engine::tool::{Invocation, Outcome, Tool, ToolFuture};
use standfast_engine::{Decision, Engine, EngineError, NewRun};
use standfast_models::scripted::{Line, Script};
use standfast_store::Store;
use standfast_store::conformance::flaky::{Flaky, Mishap};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;
use tokio::sync::Notify;

const ARGUMENTS: &str = r#"{"path": "/var/cache/old", "size": 9007199254740993}"#;

/// A tool with a visible effect: a synced line for each start. May then hang for ever.
struct Deletes {
    effects: PathBuf,
    hangs: bool,
    panics: bool,
    gate: Option<Arc<Notify>>,
}

impl Tool for Deletes {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let (effects, hangs, panics) = (self.effects.clone(), self.hangs, self.panics);
        let gate = self.gate.clone();
        Box::pin(async move {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(effects).unwrap();
            writeln!(file, "{} {}", invocation.token(), invocation.arguments).unwrap();
            file.sync_all().unwrap();
            assert!(!panics, "a tool with a bug");
            if hangs {
                std::future::pending::<()>().await;
            }
            if let Some(gate) = gate {
                gate.notified().await;
            }
            Outcome::Done(ToolResult::Ok(Body::text("deleted")))
        })
    }
}

/// A place where servers live, one after the other.
struct Site {
    directory: TempDir,
    hangs: bool,
    panics: bool,
    /// What a tool waits for before it ends.
    gate: Option<Arc<Notify>>,
    holds: HoldPolicy,
    asks: Line,
    /// What it asks after that, turn by turn.
    asks_then: Vec<Line>,
}

impl Site {
    fn new() -> Site {
        let asks = Line::calls(&[("delete_file", ARGUMENTS)]);
        Site {
            directory: tempfile::tempdir().unwrap(),
            hangs: false,
            panics: false,
            gate: None,
            holds: HoldPolicy::default(),
            asks,
            asks_then: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a server on what is stored.
    fn server(&self) -> Engine {
        self.server_with(Clock::system())
    }

    fn server_with(&self, clock: Clock) -> Engine {
        self.server_on(self.store(), clock)
    }

    /// What is stored.
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&SqliteOptions::at(self.path("standfast.db"))).unwrap())
    }

    fn server_on(&self, store: Arc<dyn Store>, clock: Clock) -> Engine {
        let engine = Engine::new(store, clock, fixed(), self.settings());
        engine.work();
        engine
    }

    fn settings(&self) -> Settings {
        let tool = ToolName::new("delete_file").unwrap();
        let suspend = ToolName::new(suspend::NAME).unwrap();
        let spec = ToolSpec {
            description: "Deletes a file".into(),
            schema: RawJson::parse(r#"{"type":"object"}"#).unwrap(),
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        };
        let definition = Definition {
            agent: agent(),
            prompt: "You look after a server.".into(),
            model: "scripted".into(),
            model_parameters: None,
            tools: BTreeMap::from([(tool.clone(), spec), (suspend.clone(), SuspendForInput::spec())]),
            policy: None,
            sub_agents: Vec::new(),
            show_thinking: false,
            hold_batch: false,
            holds: self.holds.clone(),
        };
        let deletes = Deletes {
            effects: self.path("effects"),
            hangs: self.hangs,
            panics: self.panics,
            gate: self.gate.clone(),
        };
        let asks = std::iter::once(&self.asks).chain(&self.asks_then).cloned();
        let script = Script { lines: asks.chain([Line::says("Done.")]).collect() };
        let agent_settings = Agent {
            tools: BTreeMap::from([
                (tool.clone(), Arc::new(deletes) as Arc<dyn Tool>),
                (suspend, Arc::new(SuspendForInput)),
            ]),
            needs_approval: BTreeSet::from([tool]),
            worker_pool: 5,
            ..Agent::new(definition, Arc::new(script))
        };
        Settings { agents: BTreeMap::from([(agent(), Arc::new(agent_settings))]), ..Settings::usual() }
    }

    /// What the tool did, by its own account.
    fn effects(&self) -> Vec<String> {
        read(&self.path("effects"))
    }
}

/// What the process of a server has only once: short times, so that a take-over does not make the test wait.
fn fixed() -> FixedSettings {
    FixedSettings { lease: Millis(2_600), poll: Millis(50), ..FixedSettings::default() }
}

fn read(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn agent() -> AgentName {
    AgentName::new("ops").unwrap()
}

fn who(user: &str) -> Principal {
    Principal::of(UserId::new(user).unwrap())
}

async fn start(engine: &Engine) -> RunId {
    let new = NewRun { agent: agent(), session: None, message: Message::text("Free some space"), once: None };
    engine.submit().start(&who("alice"), new).await.unwrap()
}

/// The tool has begun to run this often.
async fn until_effects(site: &Site, wanted: usize) {
    while site.effects().len() < wanted {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The hold of a run whose call was approved, while its tool is at work.
async fn at_work(site: &Site, engine: &Engine) -> HoldId {
    let run = start(engine).await;
    until(engine, run, HELD).await;
    let hold = hold_of(engine, run, HoldKind::Approval).await;
    engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap();
    until_effects(site, 1).await;
    hold
}

/// Approves two runs at the same moment of which only one may start: the one that is asked about again, and the other one.
async fn approved_together(engine: &Engine, runs: [RunId; 2]) -> (RunId, RunId) {
    let mut holds = Vec::new();
    for run in runs {
        until(engine, run, HELD).await;
        holds.push(hold_of(engine, run, HoldKind::Approval).await);
    }
    let alice = who("alice");
    let approve = |hold| engine.submit().decide(&alice, decision(hold, Choice::Approve));
    let (one, other) = tokio::join!(approve(holds[0]), approve(holds[1]));
    assert_eq!((one, other), (Ok(Answer::Done), Ok(Answer::Done)));
    let asks_again = async {
        loop {
            for run in runs {
                let row = engine.reads().load(run).await.unwrap().row;
                if row.run.state.holds.iter().any(|hold| !holds.iter().any(|old| old.key == hold.key)) {
                    return run;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let held = tokio::time::timeout(Duration::from_secs(30), asks_again).await.unwrap();
    (held, if held == runs[0] { runs[1] } else { runs[0] })
}

/// Follows the run until it is as wanted.
async fn until(engine: &Engine, run: RunId, wanted: Status) {
    let mut follower = engine.reads().follow(run, Seq(0));
    let reached = async {
        loop {
            follower.next().await.unwrap();
            if status(&engine.reads().load(run).await.unwrap().row.run) == wanted {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.unwrap();
}

async fn hold_of(engine: &Engine, run: RunId, kind: HoldKind) -> HoldId {
    let stored = engine.reads().load(run).await.unwrap();
    let hold = stored.row.run.state.holds.iter().find(|hold| hold.kind == kind).unwrap();
    HoldId { run, key: hold.key }
}

fn decision(hold: HoldId, wanted: Choice) -> Decision {
    Decision { hold, wanted, digest: None, revision: None, once: None }
}

const HELD: Status = Status::Held(WaitKind::Person);
const COMPLETED: Status = Status::Ended(Ended::Completed);

/// S0-1 … S0-5, S0-33, S0-34, S0-40, S0-79: the run is rows while it waits, and goes on in another process with the stored
/// call and its stored arguments.
#[tokio::test]
async fn an_approved_call_runs_once_after_a_restart() {
    let site = Site::new();
    let first = site.server();
    let run = start(&first).await;
    until(&first, run, HELD).await;
    first.die().await;
    drop(first);
    assert_eq!(site.effects(), Vec::<String>::new());

    let second = site.server();
    let hold = hold_of(&second, run, HoldKind::Approval).await;
    assert_eq!(
        second.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await,
        Ok(Answer::Done)
    );
    until(&second, run, COMPLETED).await;
    assert_eq!(site.effects(), [format!("{run}/1/1 {ARGUMENTS}")]);
}

/// The promise: if the server dies while the tool runs, the user gets *outcome unknown* and a choice.
#[tokio::test]
async fn a_death_inside_the_tool_is_asked_about_and_nothing_runs_twice() {
    let mut site = Site::new();
    site.hangs = true;
    let first = site.server();
    let hold = at_work(&site, &first).await;
    let run = hold.run;
    first.die().await;
    drop(first);

    site.hangs = false;
    let second = site.server();
    until(&second, run, HELD).await;
    let recovery = hold_of(&second, run, HoldKind::Recovery).await;
    assert_eq!(site.effects().len(), 1);
    let happened = Choice::Answer { value: Body::text("it was deleted") };
    assert_eq!(second.submit().decide(&who("alice"), decision(recovery, happened)).await, Ok(Answer::Done));
    until(&second, run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1, "nothing ran twice");
    let events = second.reads().events(run, Seq(0)).await.unwrap();
    let effect = receipt(hold.key, &events).unwrap().call.unwrap().effect;
    assert_eq!(effect, CallEffect::Executed);
}

/// S1-32, C12, C24: nobody but the owner decides, and nobody else learns that there is something to decide.
#[tokio::test]
async fn only_the_owner_decides_and_only_once() {
    let site = Site::new();
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    let mallory = who("mallory");
    let by_mallory = engine.submit().decide(&mallory, decision(hold, Choice::Approve)).await;
    assert_eq!(by_mallory, Err(EngineError::NotFound));
    assert_eq!(engine.submit().cancel(&mallory, run, None, None).await, Err(EngineError::NotFound));

    let deny = || decision(hold, Choice::Deny { reason: Some("not today".into()) });
    assert_eq!(engine.submit().decide(&who("alice"), deny()).await, Ok(Answer::Done));
    let again = engine.submit().decide(&who("alice"), deny()).await.unwrap_err();
    assert!(matches!(again.refusal(), Some(Refusal::AlreadyDecided(_))), "{again}");
    until(&engine, run, COMPLETED).await;
    assert_eq!(site.effects(), Vec::<String>::new());
}

/// Rule 5: cancel is immediate, also while the tool runs, and the receipt does not claim to know what it did.
#[tokio::test]
async fn cancel_stops_a_running_tool() {
    let mut site = Site::new();
    site.hangs = true;
    let engine = site.server();
    let hold = at_work(&site, &engine).await;
    let run = hold.run;
    assert_eq!(engine.submit().cancel(&who("alice"), run, None, None).await, Ok(Answer::Done));
    let mut follower = engine.reads().follow(run, Seq(0));
    let told = async {
        loop {
            let events = follower.next().await.unwrap();
            if events.iter().any(|envelope| matches!(envelope.event, Event::CallOrphaned(_))) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), told).await.unwrap();
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    assert_eq!(receipt(hold.key, &events).unwrap().call.unwrap().effect, CallEffect::OutcomeUnknown);
    assert_eq!(status(&engine.reads().load(run).await.unwrap().row.run), Status::Ended(Ended::Canceled));
}

/// S3-26, S3-28, S0-81, C7: nobody answers in time, so the run fails; the deadline is a row and outlives the server.
#[tokio::test]
async fn a_deadline_passes_while_nobody_watches() {
    let mut site = Site::new();
    site.holds = HoldPolicy { timeout: Some(Millis::seconds(600)), ..HoldPolicy::default() };
    let noon = Timestamp(1_762_000_000_000);
    let first = site.server_with(Clock::standing_at(noon));
    let run = start(&first).await;
    until(&first, run, HELD).await;
    first.die().await;
    drop(first);

    let second = site.server_with(Clock::standing_at(noon));
    second.clock().advance(Millis::seconds(599));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(status(&second.reads().load(run).await.unwrap().row.run), HELD);
    second.clock().advance(Millis::seconds(1));
    until(&second, run, Status::Ended(Ended::Failed)).await;
    let events = second.reads().events(run, Seq(0)).await.unwrap();
    let reason = events.iter().find_map(|envelope| match &envelope.event {
        Event::RunEnded(ended) => ended.reason.clone(),
        _ => None,
    });
    assert_eq!(reason.as_deref(), Some("timeout waiting for user input"));
    assert_eq!(site.effects(), Vec::<String>::new());
}

/// S4-11, S4-15, S4-25, C15, C18: the model asks a question by itself, nobody approves that, and after a restart the
/// answer is the result of its call.
#[tokio::test]
async fn a_question_is_answered_after_a_restart() {
    let mut site = Site::new();
    let question = r#"{"reason": "two disks are full", "question": "Which first?", "options": ["a", "b"]}"#;
    site.asks = Line::calls(&[(suspend::NAME, question)]);
    let first = site.server();
    let run = start(&first).await;
    until(&first, run, HELD).await;
    first.die().await;
    drop(first);

    let second = site.server();
    let hold = hold_of(&second, run, HoldKind::Input).await;
    let approve = second.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap_err();
    assert!(matches!(approve.refusal(), Some(Refusal::WrongKind { .. })), "C25: {approve}");
    let answer = Choice::Answer { value: Body::text("b") };
    assert_eq!(second.submit().decide(&who("alice"), decision(hold, answer)).await, Ok(Answer::Done));
    until(&second, run, COMPLETED).await;
    let events = second.reads().events(run, Seq(0)).await.unwrap();
    let told = transcript(&events).into_iter().find_map(|entry| match entry {
        Entry::Tool(result) => result.told(),
        Entry::User(_) | Entry::Assistant(_) => None,
    });
    assert_eq!(told.as_deref(), Some("b"));
}

/// The promise: whichever append of a cycle fails, or is written and its answer lost, the call starts once, and what it
/// reported is kept until the store is back.
#[tokio::test]
async fn a_store_that_fails_for_a_moment_costs_no_second_start() {
    for failing in 1..=6 {
        for mishap in [Mishap::Before, Mishap::After] {
            let site = Site::new();
            let store = Arc::new(SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap());
            let script = (0..failing).map(|_| Mishap::None).chain([mishap]);
            let engine = site.server_on(Arc::new(Flaky::scripted(store, script)), Clock::system());
            let run = start(&engine).await;
            until(&engine, run, HELD).await;
            let hold = hold_of(&engine, run, HoldKind::Approval).await;
            // Whoever is told "not now" asks again; the second time it may have been done already.
            if engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.is_err() {
                let _ = engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await;
            }
            until(&engine, run, COMPLETED).await;
            assert_eq!(site.effects().len(), 1, "append {failing} fails: {mishap:?}");
            engine.die().await;
        }
    }
}

/// C35: a panic after the effect is an unknown outcome, also on the node that is still there; nothing runs again by
/// itself.
#[tokio::test]
async fn a_tool_that_panics_is_asked_about() {
    let mut site = Site::new();
    site.panics = true;
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap();
    let asked = async {
        while engine.reads().load(run).await.unwrap().row.run.state.holds.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asked).await.unwrap();
    hold_of(&engine, run, HoldKind::Recovery).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(site.effects().len(), 1);
}
