//! What tools say of arguments becomes what the engine does: held, refused or run, also for edited arguments; and jobs
//! outside, known by their id before they begin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::decide::Answer;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::{HoldKind, HoldPolicy};
use standfast_core::id::{RunId, Seq};
use standfast_core::json::RawJson;
use standfast_core::name::ToolName;
use standfast_core::run::{Status, WaitKind};
use standfast_core::transcript::{Entry, transcript};
use standfast_engine::Engine;
use standfast_engine::clock::Clock;
use standfast_engine::outbound::guard::{Guard, UnnamedHosts};
use standfast_engine::outbound::http::HttpLimits;
use standfast_engine::settings::{Agent, Settings};
use standfast_engine::tool::Tool;
use standfast_models::scripted::{Line, Script};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_tools::command::{CommandOptions, CommandTool, rules};
use standfast_tools::external::{CallbackSecret, External, ExternalOptions, USUAL_TIMEOUT};
use standfast_tools::sandbox::Confinement;

use crate::{COMPLETED, HELD, Site, agent, decision, hold_of, start, until, who};
use standfast_testkit::other_server::{OtherServer, answer};

/// A server whose agent has one tool that needs no approval by its settings, and makes one call.
fn server(site: &Site, tool: Arc<dyn Tool>, spec: ToolSpec, arguments: &str) -> Engine {
    let name = ToolName::new("the_tool").unwrap();
    let definition = Definition {
        agent: agent(),
        prompt: "You try things.".into(),
        model: "scripted".into(),
        model_parameters: None,
        tools: BTreeMap::from([(name.clone(), spec)]),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    };
    let script = Script { lines: vec![Line::calls(&[("the_tool", arguments)]), Line::says("Done.")] };
    let settings = Agent {
        tools: BTreeMap::from([(name, tool)]),
        worker_pool: 5,
        ..Agent::new(definition, Arc::new(script))
    };
    let store = SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap();
    let agents = BTreeMap::from([(agent(), Arc::new(settings))]);
    let engine = Engine::new(
        Arc::new(store),
        Clock::system(),
        crate::fixed(),
        Settings { agents, ..Settings::usual() },
    );
    engine.work();
    engine
}

fn commands(site: &Site, arguments: &str) -> Engine {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let options = CommandOptions {
        allowed_commands: Some(words(&["echo", "env"])),
        denied_commands: words(&["rm"]),
        deny_by_default: Some(false),
        confinement: Confinement::Off,
        ..CommandOptions::default()
    };
    let shim = standfast_testkit::binary::path();
    let tool = CommandTool::through(options, shim).unwrap();
    server(site, Arc::new(tool), CommandTool::spec(), arguments)
}

/// The result of the call, as the model was told it.
async fn told(engine: &Engine, run: RunId) -> String {
    let entries = transcript(&engine.reads().events(run, Seq(0)).await.unwrap());
    let results = entries.into_iter().filter_map(|entry| match entry {
        Entry::Tool(call) => call.content.inline().map(str::to_owned),
        Entry::User(_) | Entry::Assistant(_) => None,
    });
    results.collect()
}

async fn rules_of_hold(engine: &Engine, run: RunId) -> Vec<String> {
    let stored = engine.reads().load(run).await.unwrap();
    stored.row.run.state.holds[0].rules.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_listed_command_runs_and_a_denied_one_is_refused_with_a_reason() {
    let site = Site::new();
    let engine = commands(&site, r#"{"command": "echo hello"}"#);
    let run = start(&engine).await;
    until(&engine, run, COMPLETED).await;
    assert!(told(&engine, run).await.contains(r#""stdout":"hello\n""#));

    let site = Site::new();
    let engine = commands(&site, r#"{"command": "env rm -rf x"}"#);
    let run = start(&engine).await;
    until(&engine, run, COMPLETED).await;
    let why = told(&engine, run).await;
    assert!(why.contains(r#"not executed: \"rm\" is denied here"#), "{why}");
}

/// T22: a wrapper around a listed command waits for a person although the tool needs no approval, and runs once it has
/// one.
#[tokio::test]
async fn a_wrapper_is_held_and_runs_when_approved() {
    let site = Site::new();
    let engine = commands(&site, r#"{"command": "env echo hello"}"#);
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    assert_eq!(rules_of_hold(&engine, run).await, [rules::RUNS_OTHERS]);
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    assert_eq!(
        engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await,
        Ok(Answer::Done)
    );
    until(&engine, run, COMPLETED).await;
    assert!(told(&engine, run).await.contains(r#""stdout":"hello\n""#));
}

/// Edited arguments are judged like any others: what is denied stays denied, and a rule that nobody was shown asks again.
#[tokio::test]
async fn edited_arguments_are_judged_again() {
    let site = Site::new();
    let engine = commands(&site, r#"{"command": "env echo hello"}"#);
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    let edited = |text: &str| Choice::ApproveEdited { arguments: RawJson::parse(text).unwrap() };
    let denied =
        engine.submit().decide(&who("alice"), decision(hold, edited(r#"{"command": "rm x"}"#))).await;
    let why = denied.unwrap_err().to_string();
    assert!(why.contains("is denied here"), "{why}");
    let other_rule = edited(r#"{"command": "whoami"}"#);
    let answer = engine.submit().decide(&who("alice"), decision(hold, other_rule)).await.unwrap();
    assert_eq!(answer, Answer::Edited);
    until(&engine, run, HELD).await;
    assert_eq!(told(&engine, run).await, "");
}

/// S2-8: an outside job is known by the id of the hold, its result settles the call, and nobody else's id does.
#[tokio::test]
async fn an_outside_job_is_finished_by_the_id_that_it_was_started_with() {
    let mut other = OtherServer::answering(vec![answer("202 Accepted", r#"{"externalRef": "job-7"}"#)]).await;
    let options = ExternalOptions {
        url: format!("http://127.0.0.1:{}/jobs", other.port),
        guard: Guard { allowed_hosts: BTreeSet::from(["127.0.0.1".into()]), others: UnnamedHosts::Never },
        limits: HttpLimits::default(),
        timeout: USUAL_TIMEOUT,
        public_url: None,
        secrets: vec![CallbackSecret::Derived([3; 32])],
        webhook_url: None,
        result_schema: None,
    };
    let spec = External::spec("Deploys", RawJson::parse(r#"{"type":"object"}"#).unwrap());
    let site = Site::new();
    let tool = Arc::new(External::new(options, Clock::system()));
    let engine = server(&site, tool, spec, r#"{"branch": "main"}"#);
    let run = start(&engine).await;
    until(&engine, run, Status::Held(WaitKind::External)).await;
    let hold = hold_of(&engine, run, HoldKind::External).await;
    let sent = other.request().await;
    assert!(sent.contains(&format!(r#""pendingID":"{hold}""#)), "{sent}");
    let view = engine.reads().hold(&who("alice"), hold).await.unwrap();
    assert_eq!(view.ask.external_ref.as_deref(), Some("job-7"));
    let result = Choice::Answer { value: Body::text("deployed") };
    assert_eq!(engine.submit().decide(&who("alice"), decision(hold, result)).await, Ok(Answer::Done));
    until(&engine, run, COMPLETED).await;
    assert_eq!(told(&engine, run).await, "deployed");
}
