//! F30: the configuration changes while runs wait. What is pinned stays as it was, who may decide, limits and rules are
//! those of now, and an open hold keeps what it was opened with. What is gone is `gone.rs`.
//!
//! `cargo xtask faults` plays each case many times (`STANDFAST_FAULT_ROUNDS`).

use std::collections::BTreeSet;
use std::sync::Arc;

use standfast_core::approver::Approver;
use standfast_core::body::Body;
use standfast_core::command::{Choice, Limits};
use standfast_core::decide::Answer;
use standfast_core::event::Outcome;
use standfast_core::hold::{HoldKind, HoldPolicy};
use standfast_core::id::RunId;
use standfast_core::json::RawJson;
use standfast_core::name::ToolName;
use standfast_core::run::{Status, status};
use standfast_core::time::Millis;
use standfast_engine::settings::{Agent, Settings};
use standfast_engine::tool::suspend;
use standfast_engine::{DriftKind, Engine, EngineError};
use standfast_models::scripted::Line;

use crate::corners::changed;
use crate::{COMPLETED, HELD, Site, decision, hold_of, start, until, who};

/// How often each case is played.
pub(crate) fn rounds() -> usize {
    std::env::var("STANDFAST_FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// A server and a run of it that waits for an approval.
async fn waiting(site: &Site) -> (Engine, RunId) {
    let engine = site.server();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    (engine, run)
}

async fn approve(engine: &Engine, user: &str, run: RunId) -> Result<Answer, EngineError> {
    let hold = hold_of(engine, run, HoldKind::Approval).await;
    engine.submit().decide(&who(user), decision(hold, Choice::Approve)).await
}

/// The site's settings with the tool `delete_file` told of in another way.
fn told_otherwise(site: &Site, description: &str, schema: &str) -> Settings {
    changed(site, |agent| {
        let mut definition = (*agent.definition).clone();
        let spec = definition.tools.get_mut(&ToolName::new("delete_file").unwrap()).unwrap();
        spec.description = description.into();
        spec.schema = RawJson::parse(schema).unwrap();
        agent.definition = Arc::new(definition);
    })
}

fn named(agent: &mut Agent, user: &str) {
    let party = Approver::User(standfast_core::name::UserId::new(user).unwrap());
    agent.approvers.named = Some(BTreeSet::from([party]));
}

/// F30: another schema, another description, another prompt: the run is pinned, and what was approved is what runs.
#[tokio::test]
async fn f30_a_changed_tool_does_not_change_what_was_shown() {
    for _ in 0..rounds() {
        let schema = r#"{"type":"object","properties":{"force":{}}}"#;
        for (description, schema) in
            [("Deletes a file", schema), ("Formats the disk", r#"{"type":"object"}"#)]
        {
            let site = Site::new();
            let (engine, run) = waiting(&site).await;
            let shown =
                engine.reads().hold(&who("alice"), hold_of(&engine, run, HoldKind::Approval).await).await;
            engine.reload(told_otherwise(&site, description, schema));
            let still =
                engine.reads().hold(&who("alice"), hold_of(&engine, run, HoldKind::Approval).await).await;
            let (shown, still) = (shown.unwrap(), still.unwrap());
            assert_eq!((still.description, still.prompt), (shown.description, shown.prompt));
            assert!(shown.drift.is_empty(), "{:?}", shown.drift);
            let drift: Vec<DriftKind> = still.drift.iter().map(|one| one.what).collect();
            assert_eq!(drift, [DriftKind::Definition, DriftKind::Tool], "{:?}", still.drift);
            assert_eq!(approve(&engine, "alice", run).await, Ok(Answer::Done));
            until(&engine, run, COMPLETED).await;
            assert_eq!(site.effects().len(), 1);
            let next = start(&engine).await;
            until(&engine, next, HELD).await;
            let hold =
                engine.reads().hold(&who("alice"), hold_of(&engine, next, HoldKind::Approval).await).await;
            assert_eq!(hold.unwrap().description.as_deref(), Some(description), "new runs have the new one");
            engine.die().await;
        }
    }
}

/// F30: a tool that ran freely is gated while the run waits: its next call is held. Rules are those of now.
#[tokio::test]
async fn f30_a_stricter_rule_holds_the_next_call() {
    for _ in 0..rounds() {
        let mut site = Site::new();
        site.asks = Line::calls(&[(suspend::NAME, r#"{"reason": "r", "question": "Go?"}"#)]);
        site.asks_then = vec![Line::calls(&[("delete_file", crate::ARGUMENTS)])];
        let engine = site.server();
        engine.reload(changed(&site, |agent| agent.needs_approval.clear()));
        let run = start(&engine).await;
        until(&engine, run, HELD).await;
        engine.reload(site.settings());
        let hold = hold_of(&engine, run, HoldKind::Input).await;
        let yes = Choice::Answer { value: Body::text("yes") };
        assert_eq!(engine.submit().decide(&who("alice"), decision(hold, yes)).await, Ok(Answer::Done));
        let asked = async {
            while !engine
                .reads()
                .load(run)
                .await
                .unwrap()
                .row
                .run
                .state
                .holds
                .iter()
                .any(|hold| hold.kind == HoldKind::Approval)
            {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), asked).await.unwrap();
        assert_eq!(site.effects(), Vec::<String>::new());
        engine.die().await;
    }
}

/// F30: a tool that was gated is free now: what was already asked still waits for its answer.
#[tokio::test]
async fn f30_a_looser_rule_answers_no_question() {
    for _ in 0..rounds() {
        let site = Site::new();
        let (engine, run) = waiting(&site).await;
        engine.reload(changed(&site, |agent| agent.needs_approval.clear()));
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        assert_eq!(status(&engine.reads().load(run).await.unwrap().row.run), HELD);
        assert_eq!(site.effects(), Vec::<String>::new());
        assert_eq!(approve(&engine, "alice", run).await, Ok(Answer::Done));
        until(&engine, run, COMPLETED).await;
        assert_eq!(site.effects().len(), 1);
        engine.die().await;
    }
}

/// F30, C24: who may decide is a matter of now: an approver who is added may, one who is removed may not.
#[tokio::test]
async fn f30_approvers_come_and_go() {
    for _ in 0..rounds() {
        let site = Site::new();
        let (engine, run) = waiting(&site).await;
        assert_eq!(approve(&engine, "bob", run).await, Err(EngineError::NotFound));
        engine.reload(changed(&site, |agent| named(agent, "bob")));
        assert_eq!(engine.reads().see(&who("bob"), run).await.map(|run| run.facts.id), Ok(run));
        engine.reload(changed(&site, |agent| named(agent, "carol")));
        assert_eq!(approve(&engine, "bob", run).await, Err(EngineError::NotFound));
        assert_eq!(site.effects(), Vec::<String>::new());
        assert_eq!(approve(&engine, "carol", run).await, Ok(Answer::Done));
        until(&engine, run, COMPLETED).await;
        assert_eq!(site.effects().len(), 1);
        engine.die().await;
    }
}

/// F30, C7: another deadline and another answer to silence are for new holds; an open one keeps its own.
#[tokio::test]
async fn f30_an_open_hold_keeps_its_deadline() {
    for _ in 0..rounds() {
        let mut site = Site::new();
        site.holds = HoldPolicy { timeout: Some(Millis::hours(1)), ..HoldPolicy::default() };
        let (engine, run) = waiting(&site).await;
        let before = engine.reads().load(run).await.unwrap().row.run.state.holds.clone();
        site.holds = HoldPolicy { timeout: Some(Millis(1)), ..HoldPolicy::default() };
        engine.reload(site.settings());
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        assert_eq!(engine.reads().load(run).await.unwrap().row.run.state.holds, before);
        assert_eq!(approve(&engine, "alice", run).await, Ok(Answer::Done));
        until(&engine, run, COMPLETED).await;
        engine.die().await;
    }
}

/// F30: limits are never pinned: a run that waited obeys today's.
#[tokio::test]
async fn f30_a_lower_limit_counts_at_once() {
    for _ in 0..rounds() {
        let mut site = Site::new();
        site.asks_then = vec![site.asks.clone()];
        let (engine, run) = waiting(&site).await;
        let limits = Arc::new(Limits { turns: 2, ..Limits::default() });
        engine.reload(Settings { limits, ..site.settings() });
        assert_eq!(approve(&engine, "alice", run).await, Ok(Answer::Done));
        until(&engine, run, Status::Ended(Outcome::Failed)).await;
        let reason = engine.reads().run(&who("alice"), run).await.unwrap().reason.unwrap();
        assert_eq!(reason, "the run reached its limit of 2 model replies");
        assert_eq!(site.effects().len(), 1, "what was approved before ran");
        engine.die().await;
    }
}
