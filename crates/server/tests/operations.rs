//! What operators see: the start-up report, `/metrics`, and runs whose rows cannot be read.
//!
//! With real SQLite files, broken by hand while nobody has them open, and where users would notice with the real binary.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

#[path = "operations/files.rs"]
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use standfast_core::command::Choice;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::event::Outcome;
use standfast_core::hold::{HoldKind, HoldPolicy};
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay};
use standfast_core::name::{AgentName, SessionId, ToolName, UserId};
use standfast_core::run::{Status, WaitKind, status};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::Principal;
use standfast_engine::clock::Clock;
use standfast_engine::model::{Live, Model, ModelFuture, Prompt};
use standfast_engine::settings::{Agent, FixedSettings, Settings};
use standfast_engine::tool::{Invocation, Tool, ToolFuture};
use standfast_engine::{
    Decision, Engine, EngineError, LookedUpRun, NewRun, RunList, SessionError, SessionList, SessionName,
};
use standfast_store::Observer;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};

use standfast_testkit::{Server, until_found};

/// A server that writes its log beside its data.
fn serve(data: &Path) -> Server {
    let log = std::fs::File::create(data.join("log")).unwrap();
    let mut command = standfast_testkit::standfast();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .env("RUST_LOG", "info")
        .stderr(log);
    Server::of(standfast_testkit::start(&mut command))
}

/// What the start found.
async fn recovered(server: &Server) -> Value {
    until_found("the start has looked at everything", async || {
        let found = server.get("/api/v1/recovery").await;
        found["ended_at"].is_string().then_some(found)
    })
    .await
}

fn change(data: &Path, sql: &str) {
    rusqlite::Connection::open(data.join("standfast.db")).unwrap().execute_batch(sql).unwrap();
}

fn log(data: &Path) -> String {
    let mut text = String::new();
    std::fs::File::open(data.join("log")).unwrap().read_to_string(&mut text).unwrap();
    text
}

/// C22, S0-37, S0-46, S0-47, S0-48, S0-52, C35: after a start one line and the API say who waits; a run whose row cannot be
/// read is shown as failed, counted, and stands in nobody's way.
#[tokio::test]
async fn an_unreadable_row_is_shown_as_failed_and_the_others_go_on() {
    let data = tempfile::tempdir().unwrap();
    let first = serve(data.path());
    let (broken, hold_of_broken) = first.held().await;
    let (whole, hold_of_whole) = first.held().await;
    drop(first);
    change(data.path(), "UPDATE runs SET state = '{\"s\": 17' WHERE no = 1");

    let second = serve(data.path());
    let found = recovered(&second).await;
    let counts = ["waiting_for_person", "waiting_for_outside", "expired", "taken_over", "quarantined"];
    assert_eq!(counts.map(|name| found[name].as_u64().unwrap()), [1, 0, 0, 0, 1]);
    let said = log(data.path());
    assert_eq!(said.matches("Found 1 tasks waiting for input").count(), 1, "{said}");
    assert!(said.contains("quarantined=1"), "{said}");

    let shown = second.get(&format!("/api/v1/runs/{broken}")).await;
    assert_eq!((&shown["status"], &shown["quarantined"]), (&json!("failed"), &json!(true)));
    assert_eq!((&shown["agent"], &shown["owner"]), (&json!("ops"), &json!("local")));
    let reason = shown["reason"].as_str().unwrap();
    assert!(reason.starts_with("failed to load execution state: "), "{reason}");
    let list = second.get("/api/v1/runs").await;
    assert_eq!((&list["runs"][0]["id"], &list["runs"][1]), (&json!(whole), &shown));

    let path = format!("/api/v1/holds/{hold_of_broken}/resolve");
    let (status, problem) = second.ask("POST", &path, Some(json!({"resolution": "approve"}))).await;
    assert_eq!(status, 500);
    assert!(problem["detail"].as_str().unwrap().starts_with("failed to load execution state: "), "{problem}");
    second.approve(&hold_of_whole).await;
    second.until(&whole, "completed").await;
    let metrics = second.text("/metrics").await;
    assert!(metrics.contains("standfast_runs{state=\"quarantined\"} 1\n"), "{metrics}");
}

/// C35, S0-48: a link that cannot be read is found when the run goes on; the run is quarantined for good, also after a
/// restart, and nothing is tried again and again.
#[tokio::test]
async fn a_broken_link_puts_its_run_aside() {
    let data = tempfile::tempdir().unwrap();
    let first = serve(data.path());
    let (broken, hold_of_broken) = first.held().await;
    let (whole, hold_of_whole) = first.held().await;
    drop(first);
    change(data.path(), "UPDATE links SET payload = '[{' WHERE key = (SELECT min(key) FROM links)");

    let second = serve(data.path());
    // The decision is stored; what it was about can no longer be shown.
    let path = format!("/api/v1/holds/{hold_of_broken}/resolve");
    let (status, problem) = second.ask("POST", &path, Some(json!({"resolution": "approve"}))).await;
    assert_eq!((status, &problem["type"]), (500, &json!("urn:standfast:problem:corrupt")));
    second.approve(&hold_of_whole).await;
    second.until(&whole, "completed").await;
    let failed = second.until(&broken, "failed").await;
    assert_eq!(failed["quarantined"], true);
    let effects = std::fs::read_to_string(data.path().join("demo-effects.log")).unwrap();
    assert_eq!(effects.lines().count(), 1, "what cannot be read is not run: {effects}");
    assert_eq!(log(data.path()).matches("quarantined: failed to load execution state").count(), 1);
    drop(second);

    let third = serve(data.path());
    assert_eq!(recovered(&third).await["quarantined"], 1);
    assert_eq!(third.get(&format!("/api/v1/runs/{broken}")).await["reason"], failed["reason"]);
}

/// T20: whatever is asked, on every surface, and whatever the answer is, nobody guesses what it might be instead.
#[tokio::test]
async fn every_answer_is_what_its_type_says() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    let (run, hold) = server.held().await;
    for path in [
        "/healthz".to_owned(),
        "/readyz".into(),
        "/metrics".into(),
        "/openapi.json".into(),
        "/".into(),
        "/no/such/path".into(),
        "/api/v1/runs".into(),
        format!("/api/v1/runs/{run}"),
        format!("/api/v1/runs/{run}/events"),
        format!("/api/v1/holds/{hold}"),
        "/api/v1/runs/none".into(),
        "/v1/agents/ops/.well-known/agent-card.json".into(),
        format!("/v1/agents/ops/tasks/{run}"),
        "/v1/agents/ops/tasks/none".into(),
        "/async-tool/pending".into(),
        "/async-tool/pending/none".into(),
        "/api/inboxes".into(),
    ] {
        let response = server.http.client.get(format!("{}{path}", server.program.base)).send().await.unwrap();
        let said = response.headers().get("x-content-type-options").map(|value| value.to_str().unwrap());
        assert_eq!(said, Some("nosniff"), "{path}: {response:?}");
    }
}

/// S0-52: the metrics that operators alert on: what is pending, since when, how long people and the disk take. No ids in labels.
#[tokio::test]
async fn metrics_tell_what_waits_and_how_long_things_take() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    let (run, hold) = server.held().await;
    let (_, other) = server.held().await;
    let before = server.text("/metrics").await;
    for line in [
        "# TYPE standfast_holds_open gauge",
        "standfast_holds_open{kind=\"approval\",agent=\"ops\"} 2",
        "standfast_runs{state=\"held_for_person\"} 2",
        "standfast_runs{state=\"completed\"} 0",
        "standfast_holds_expired_total 0",
        "# TYPE standfast_append_seconds histogram",
        "# TYPE standfast_append_batch_size histogram",
        "standfast_store_up 1",
    ] {
        assert!(before.lines().any(|found| found == line), "{line} is not in:\n{before}");
    }
    assert!(
        before.contains("standfast_hold_oldest_age_seconds{kind=\"approval\",agent=\"ops\"} "),
        "{before}"
    );
    assert!(before.contains(&format!("standfast_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"))));
    assert!(!before.contains("run_") && !before.contains("hold_0"), "{before}");

    server.approve(&hold).await;
    server.approve(&other).await;
    server.until(&run, "completed").await;
    let mut after = String::new();
    for _ in 0..400 {
        after = server.text("/metrics").await;
        if after.contains("standfast_runs{state=\"completed\"} 2\n") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(after.contains("standfast_holds_open{kind=\"approval\",agent=\"ops\"} 0\n"), "{after}");
    assert!(after.contains("standfast_hold_decision_seconds_count{kind=\"approval\"} 2\n"), "{after}");
}

/// An agent of an engine in this process.
struct Site {
    directory: tempfile::TempDir,
    model: Arc<dyn Model>,
    holds: HoldPolicy,
    lease: Millis,
}

impl Site {
    fn with(model: impl Model + 'static) -> Site {
        let (directory, model) = (tempfile::tempdir().unwrap(), Arc::new(model));
        Site { directory, model, holds: HoldPolicy::default(), lease: Millis(2_600) }
    }

    fn server(&self, clock: Clock) -> Engine {
        let fixed = FixedSettings { lease: self.lease, poll: Millis(20), ..FixedSettings::default() };
        let observer = Some(fixed.telemetry.clone() as Arc<dyn Observer>);
        let file = self.directory.path().join("standfast.db");
        let store = SqliteStore::open(&SqliteOptions { observer, ..SqliteOptions::at(file) }).unwrap();
        let engine = Engine::new(Arc::new(store), clock, fixed, self.settings());
        engine.work();
        engine
    }

    fn settings(&self) -> Settings {
        let agents = [agent(), other_agent()].map(|name| (name.clone(), Arc::new(self.agent(name))));
        let agents = BTreeMap::from(agents);
        Settings { agents, ..Settings::usual() }
    }

    fn agent(&self, name: AgentName) -> Agent {
        let tool = ToolName::new("hang").unwrap();
        let spec = ToolSpec {
            description: "Hangs".into(),
            schema: RawJson::parse(r#"{"type":"object"}"#).unwrap(),
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        };
        let definition = Definition {
            agent: name,
            prompt: String::new(),
            model: "test".into(),
            model_parameters: None,
            tools: BTreeMap::from([(tool.clone(), spec)]),
            policy: None,
            sub_agents: Vec::new(),
            show_thinking: false,
            hold_batch: false,
            holds: self.holds.clone(),
        };
        Agent {
            tools: BTreeMap::from([(tool.clone(), Arc::new(Hangs) as Arc<dyn Tool>)]),
            needs_approval: BTreeSet::from([tool]),
            worker_pool: 8,
            ..Agent::new(definition, self.model.clone())
        }
    }
}

struct Hangs;

impl Tool for Hangs {
    fn run(&self, _: Invocation) -> ToolFuture {
        Box::pin(std::future::pending())
    }
}

/// A model that does what it is told with each prompt.
struct Does<F>(F);

impl<F: Fn(&Prompt) -> Option<standfast_engine::model::ModelReply> + Send + Sync> Model for Does<F> {
    fn ask<'a>(&'a self, prompt: Prompt, _: &'a Live) -> ModelFuture<'a> {
        Box::pin(async move {
            match (self.0)(&prompt) {
                Some(reply) => Ok(reply),
                None => std::future::pending().await,
            }
        })
    }
}

fn agent() -> AgentName {
    AgentName::new("ops").unwrap()
}

fn other_agent() -> AgentName {
    AgentName::new("night").unwrap()
}

fn alice() -> Principal {
    person("alice")
}

fn person(name: &str) -> Principal {
    Principal::of(UserId::new(name).unwrap())
}

async fn start(engine: &Engine, text: &str) -> RunId {
    let new = NewRun { agent: agent(), session: None, message: Message::text(text), once: None };
    engine.submit().start(&alice(), new).await.unwrap()
}

async fn until(engine: &Engine, run: RunId, wanted: impl Fn(Status) -> bool) {
    let mut follower = engine.reads().follow(run, Seq(0));
    let reached = async {
        loop {
            follower.next().await.unwrap();
            if wanted(status(&engine.reads().load(run).await.unwrap().row.run)) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.unwrap();
}

async fn reason(engine: &Engine, run: RunId) -> String {
    match engine.reads().look_up(&alice(), run).await.unwrap() {
        LookedUpRun::Run(found) => engine.reads().run_view(&found).await.unwrap().reason.unwrap(),
        LookedUpRun::Quarantined(found) => found.why,
    }
}

fn says(text: &str) -> Option<standfast_engine::model::ModelReply> {
    Some(standfast_engine::model::ModelReply { text: Some(text.into()), ..Default::default() })
}

/// S0-47, F26: a model call that never outlives its server is counted before it is tried again, and ends the run.
#[tokio::test]
async fn a_model_call_that_kills_its_server_ends_the_run_after_five_tries() {
    let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = asked.clone();
    let mut site = Site::with(Does(move |_: &Prompt| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        None
    }));
    site.lease = Millis(200);
    let asked = || asked.load(std::sync::atomic::Ordering::SeqCst);
    let mut server = site.server(Clock::system());
    let run = start(&server, "go").await;
    for tries in 1..=5 {
        while asked() < tries {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.die().await;
        drop(server);
        server = site.server(Clock::system());
    }
    until(&server, run, |status| status == Status::Ended(Outcome::Failed)).await;
    let why = reason(&server, run).await;
    assert!(why.contains("5 tries") && why.contains("ended or lost its lease"), "{why}");
    assert_eq!(asked(), 5);
}

/// S0-42, C35: a panic ends its run as failed and says so; the runs beside it go on.
#[tokio::test]
async fn a_panic_ends_its_run_and_no_other() {
    let site = Site::with(Does(|prompt: &Prompt| {
        let text = format!("{:?}", prompt.transcript);
        assert!(!text.contains("panic, please"), "a model with a bug");
        says("fine")
    }));
    let server = site.server(Clock::system());
    let bad = start(&server, "panic, please").await;
    let good = start(&server, "hello").await;
    until(&server, bad, |status| status == Status::Ended(Outcome::Failed)).await;
    until(&server, good, |status| status == Status::Ended(Outcome::Completed)).await;
    assert_eq!(reason(&server, bad).await, "the worker panicked: a model with a bug");
    let later = start(&server, "still there?").await;
    until(&server, later, |status| status == Status::Ended(Outcome::Completed)).await;
}

/// S0-46, S0-49, S0-51, S0-53, S0-81: the report tells what expired while no server ran and what one left behind.
#[tokio::test]
async fn the_report_tells_what_expired_and_what_was_taken_over() {
    let mut site = Site::with(Does(|_: &Prompt| {
        let hang = standfast_core::command::AskedCall {
            id: "1".into(),
            tool: "hang".into(),
            arguments: "{}".into(),
            problem: None,
        };
        Some(standfast_engine::model::ModelReply { calls: vec![hang], ..Default::default() })
    }));
    site.holds.timeout = Some(Millis::hours(1));
    let noon = Timestamp(1_800_000_000_000);
    let first = site.server(Clock::standing_at(noon));
    let held = |status| status == Status::Held(WaitKind::Person);
    let (expires, hangs) = (start(&first, "expires").await, start(&first, "hangs").await);
    until(&first, expires, held).await;
    until(&first, hangs, held).await;
    let hold = first.reads().load(hangs).await.unwrap().row.run.state.holds[0].key;
    let hold = HoldId { run: hangs, key: hold };
    let decision = Decision { hold, wanted: Choice::Approve, digest: None, revision: None, once: None };
    first.submit().decide(&alice(), decision).await.unwrap();
    let is_started = |engine: Engine| async move {
        let events = engine.reads().events(hangs, Seq(0)).await.unwrap();
        events.iter().any(|envelope| envelope.event.kind() == "call.started")
    };
    while !is_started(first.clone()).await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.die().await;
    drop(first);

    let second = site.server(Clock::standing_at(noon.plus(Millis::hours(2))));
    until(&second, expires, |status| status == Status::Ended(Outcome::Failed)).await;
    until(&second, hangs, held).await;
    assert_eq!(second.reads().load(hangs).await.unwrap().row.run.state.holds[0].kind, HoldKind::Recovery);
    second.clock().advance(Millis::seconds(60));
    while second.node_work().startup_report(None).ended_at.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let found = second.node_work().startup_report(None);
    assert_eq!((found.waiting_for_person, found.expired, found.taken_over), (0, 1, 1));
    assert!(second.reads().metrics(&Principal::local()).await.contains("standfast_holds_expired_total 1\n"));
}

/// C35, T15: a run that cannot be read is still nobody's but its owner's.
#[tokio::test]
async fn an_unreadable_run_is_shown_to_its_owner_only() {
    let site = Site::with(Does(|_: &Prompt| says("fine")));
    let first = site.server(Clock::system());
    let run = start(&first, "hello").await;
    until(&first, run, |status| status == Status::Ended(Outcome::Completed)).await;
    first.die().await;
    drop(first);
    change(site.directory.path(), "UPDATE runs SET head = zeroblob(32)");
    let second = site.server(Clock::system());
    let Ok(LookedUpRun::Quarantined(found)) = second.reads().look_up(&alice(), run).await else {
        panic!("it can be read");
    };
    assert_eq!(found.facts.unwrap().owner, alice().user);
    assert_eq!(second.reads().look_up(&person("bob"), run).await.err(), Some(EngineError::NotFound));
    let list = RunList { agent: None, session: None, cursor: None, limit: 10 };
    let listed = second.reads().runs(&alice(), list.clone()).await.unwrap();
    assert_eq!((listed.items.len(), listed.unreadable.len()), (0, 1));
    let listed = second.reads().runs(&person("bob"), list).await.unwrap();
    assert_eq!((listed.items.len(), listed.unreadable.len()), (0, 0));
}

/// S0-10, T15: a session belongs to one agent and is seen by whoever sees one of its runs.
#[tokio::test]
async fn a_session_of_several_agents_is_asked_about() {
    let site = Site::with(Does(|_: &Prompt| says("fine")));
    let server = site.server(Clock::system());
    let session = SessionId::new("s").unwrap();
    for name in [agent(), other_agent()] {
        let new = NewRun {
            agent: name,
            session: Some(session.clone()),
            message: Message::text("hello"),
            once: None,
        };
        server.submit().start(&alice(), new).await.unwrap();
    }
    let name = SessionName { session: session.clone(), agent: None, owner: None };
    let Err(SessionError::Ambiguous { agents }) = server.sessions().session(&alice(), &name).await else {
        panic!("it is not ambiguous");
    };
    assert_eq!(agents, [other_agent(), agent()]);
    let named = SessionName { agent: Some(agent()), ..name };
    assert_eq!(server.sessions().session(&alice(), &named).await.unwrap().row.key.agent, agent());
    let foreign = server.sessions().session(&person("bob"), &named).await;
    assert!(matches!(foreign, Err(SessionError::Engine(EngineError::NotFound))));
    let list = SessionList { agent: None, cursor: None, limit: 10 };
    assert_eq!(server.sessions().list(&alice(), list.clone()).await.unwrap().items.len(), 2);
    assert_eq!(server.sessions().list(&person("bob"), list).await.unwrap().items.len(), 0);
    let deleted = server.submit().delete_session(&person("bob"), &named, true).await;
    assert!(matches!(deleted, Err(SessionError::Engine(EngineError::NotFound))));
}
