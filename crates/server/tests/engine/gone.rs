//! What a run is pinned to and the server no longer has (F30): it asks a person, says what is missing, and goes on when
//! the thing is there again and they say so. Nothing takes its place, and nothing runs meanwhile.

use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::decide::Answer;
use standfast_core::event::Outcome;
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldId, RunId};
use standfast_core::name::{AgentName, ToolName};
use standfast_core::run::Status;
use standfast_core::time::Millis;
use standfast_engine::auth::Principal;
use standfast_engine::clock::Clock;
use standfast_engine::settings::Settings;
use standfast_engine::{Engine, EngineError};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};

use crate::{COMPLETED, HELD, Site, agent, decision, hold_of, start, until, who};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Gone {
    Agent,
    Model,
    Tool,
}

/// The settings of a configuration that no longer has it.
fn without(site: &Site, gone: Gone) -> Settings {
    let mut settings = site.settings();
    let mut changed = (*settings.agents[&agent()]).clone();
    let mut definition = (*changed.definition).clone();
    let tool = ToolName::new("delete_file").unwrap();
    match gone {
        Gone::Agent => {
            let other = AgentName::new("other").unwrap();
            definition.agent = other.clone();
            definition.model = "another".into();
            settings.agents.clear();
            settings.agents.insert(other, Arc::new(changed));
            return settings;
        }
        Gone::Model => definition.model = "another".into(),
        Gone::Tool => {
            definition.tools.remove(&tool);
            changed.tools.remove(&tool);
            changed.needs_approval.remove(&tool);
        }
    }
    changed.digest = definition.digest();
    changed.definition = Arc::new(definition);
    settings.agents.insert(agent(), Arc::new(changed));
    settings
}

fn says(gone: Gone) -> &'static str {
    match gone {
        Gone::Agent => "the agent ops is no longer configured",
        Gone::Model => "agent ops no longer has the model scripted, which this run is pinned to",
        Gone::Tool => "agent ops no longer has the tool delete_file, which this run calls",
    }
}

async fn approve(engine: &Engine, run: RunId) {
    let hold = hold_of(engine, run, HoldKind::Approval).await;
    assert_eq!(
        engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await,
        Ok(Answer::Done)
    );
}

/// The question that the run asks, once it asks one other than `before`.
async fn question(engine: &Engine, run: RunId, before: Option<HoldId>) -> HoldId {
    let asked = async {
        loop {
            let holds = engine.reads().load(run).await.unwrap().row.run.state.holds.clone();
            let found = holds.iter().find(|hold| hold.kind == HoldKind::Input && hold.call() == CallNo::RUN);
            match found.map(|hold| HoldId { run, key: hold.key }) {
                Some(hold) if Some(hold) != before => return hold,
                Some(_) | None => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), asked).await.unwrap()
}

async fn answer(engine: &Engine, who: &Principal, hold: HoldId, text: &str) -> Result<Answer, EngineError> {
    engine.submit().decide(who, decision(hold, Choice::Answer { value: Body::text(text) })).await
}

/// F30, S0-47: whichever thing is gone, before or after the decision, the run asks about it, asks again while it is still
/// gone, and goes on when it is back and somebody says so.
#[tokio::test]
async fn f30_a_run_asks_for_what_is_gone_and_goes_on_when_it_is_back() {
    for gone in [Gone::Agent, Gone::Model, Gone::Tool].repeat(crate::changes::rounds()) {
        let site = Site::new();
        let engine = site.server();
        let run = start(&engine).await;
        until(&engine, run, HELD).await;
        engine.reload(without(&site, gone));
        approve(&engine, run).await;
        let first = question(&engine, run, None).await;
        until(&engine, run, HELD).await;
        let view = engine.reads().hold(&who("alice"), first).await.unwrap();
        assert_eq!(view.ask.reason.as_deref(), Some(says(gone)), "{gone:?}");
        assert_eq!(view.ask.options, ["go on"]);
        assert!(view.may_decide);
        let ran = usize::from(gone == Gone::Model);
        assert_eq!(site.effects().len(), ran, "{gone:?}: nothing runs meanwhile");

        let misfit = answer(&engine, &who("alice"), first, "whatever").await;
        assert!(matches!(misfit, Err(EngineError::BreaksSchema(_))), "{misfit:?}");
        assert_eq!(answer(&engine, &who("mallory"), first, "go on").await, Err(EngineError::NotFound));
        assert_eq!(answer(&engine, &who("alice"), first, "go on").await, Ok(Answer::Done));
        let second = question(&engine, run, Some(first)).await;
        assert_eq!(site.effects().len(), ran, "{gone:?}: still gone");

        engine.reload(site.settings());
        assert_eq!(answer(&engine, &who("alice"), second, "go on").await, Ok(Answer::Done));
        until(&engine, run, COMPLETED).await;
        assert_eq!(site.effects().len(), 1, "{gone:?}: it ran once");
        engine.die().await;
    }
}

/// F30: somebody who does not want to wait for it ends the run; the reason is theirs, and nothing ran.
#[tokio::test]
async fn a_run_whose_agent_is_gone_is_ended_by_a_no_or_canceled() {
    let site = Site::new();
    let first = site.server();
    let (denied, canceled) = (start(&first).await, start(&first).await);
    for run in [denied, canceled] {
        until(&first, run, HELD).await;
    }
    first.die().await;
    drop(first);
    let store = SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap();
    let second = Engine::new(Arc::new(store), Clock::system(), crate::fixed(), without(&site, Gone::Agent));
    second.work();
    approve(&second, denied).await;
    let hold = question(&second, denied, None).await;
    let no = Choice::Deny { reason: Some("we moved to another agent".into()) };
    assert_eq!(second.submit().decide(&who("alice"), decision(hold, no)).await, Ok(Answer::Done));
    until(&second, denied, Status::Ended(Outcome::Failed)).await;
    let view = second.reads().run(&who("alice"), denied).await.unwrap();
    assert_eq!(view.reason.as_deref(), Some("we moved to another agent"));
    assert_eq!(second.submit().cancel(&who("alice"), canceled, None, None).await, Ok(Answer::Done));
    until(&second, canceled, Status::Ended(Outcome::Canceled)).await;
    assert_eq!(site.effects(), Vec::<String>::new());
}

/// Runs of an agent that is gone are not claimed in a loop: each asks its question once and is then due to nobody.
#[tokio::test]
async fn a_due_run_of_an_agent_that_is_gone_asks_once() {
    let site = Site::new();
    let first = site.server();
    first.drain(Millis(1)).await;
    let queued = start(&first).await;
    drop(first);
    let store = SqliteStore::open(&SqliteOptions::at(site.path("standfast.db"))).unwrap();
    let second = Engine::new(Arc::new(store), Clock::system(), crate::fixed(), without(&site, Gone::Agent));
    second.work();
    until(&second, queued, HELD).await;
    let hold = question(&second, queued, None).await;
    let is_left = async {
        while second.reads().load(queued).await.unwrap().lease.is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), is_left).await.unwrap();
    let row = second.reads().load(queued).await.unwrap().row;
    assert_eq!(row.due_at, None, "nobody claims it");
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(second.reads().load(queued).await.unwrap().row, row, "and nothing is written");
    second.reload(site.settings());
    assert_eq!(answer(&second, &who("alice"), hold, "go on").await, Ok(Answer::Done));
    until(&second, queued, HELD).await;
    hold_of(&second, queued, HoldKind::Approval).await;
}

/// A call whose tool is gone does not keep its sibling from running, and both are done in the end.
#[tokio::test]
async fn a_sibling_runs_while_a_tool_is_gone() {
    let mut site = Site::new();
    let asked = r#"{"reason": "r", "question": "Which?"}"#;
    site.asks = standfast_models::scripted::Line::calls(&[
        ("delete_file", r#"{"path": "/a"}"#),
        (standfast_engine::tool::suspend::NAME, asked),
    ]);
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    engine.reload(without(&site, Gone::Tool));
    approve(&engine, run).await;
    let hold = question(&engine, run, None).await;
    let holds = engine.reads().load(run).await.unwrap().row.run.state.holds.clone();
    assert_eq!(holds.len(), 2, "the model's own question and that of the run");
    engine.reload(site.settings());
    assert_eq!(answer(&engine, &who("alice"), hold, "go on").await, Ok(Answer::Done));
    let of_the_model = holds.iter().find(|hold| hold.call() != CallNo::RUN).unwrap();
    let of_the_model = HoldId { run, key: of_the_model.key };
    assert_eq!(answer(&engine, &who("alice"), of_the_model, "both").await, Ok(Answer::Done));
    until(&engine, run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
}
