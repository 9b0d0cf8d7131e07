//! Rolling budgets in the engine: exact sums, calls of one turn, approvals at once, outcomes that nobody knows.
//!
//! The arithmetic is tested in `crates/policy`, the guard in the cases of every store, real servers in
//! `crates/e2e/tests/program/budgets.rs`.

use std::sync::Arc;

use serde_json::{Value, json};
use standfast_core::command::Choice;
use standfast_core::decide::Answer;
use standfast_core::event::Event;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_engine::Engine;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Agent, Settings};
use standfast_models::scripted::Line;

use crate::rules::judged_by;
use crate::{
    ARGUMENTS, COMPLETED, HELD, Site, approved_together, decision, hold_of, start, until, until_effects, who,
};

/// Settings with a rule that has this budget; it allows what it matches, or holds it.
fn settings(site: &Site, effect: &str, budget: &Value) -> Settings {
    let section = json!({"rules": [{"id": "deletions", effect: "delete_file", "budgets": [budget]}]});
    let mut settings = site.settings();
    let change = |agent: &Arc<Agent>| {
        let mut agent = Agent::clone(agent);
        agent.needs_approval.clear();
        judged_by(&mut agent, &section);
        Arc::new(agent)
    };
    settings.agents = settings.agents.iter().map(|(name, agent)| (name.clone(), change(agent))).collect();
    settings
}

fn server(site: &Site, effect: &str, budget: &Value) -> Engine {
    let engine = Engine::new(site.store(), Clock::system(), crate::fixed(), settings(site, effect, budget));
    engine.work();
    engine
}

async fn reason(engine: &Engine, hold: HoldId) -> String {
    engine.reads().hold(&who("alice"), hold).await.unwrap().ask.reason.unwrap()
}

/// Number and amount of what the starts of a run took.
async fn takes(engine: &Engine, run: RunId) -> Vec<(u32, String)> {
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    let started = events.iter().filter_map(|envelope| match &envelope.event {
        Event::CallStarted(started) => Some(started.takes.iter().map(|take| (take.no, take.amount.clone()))),
        _ => None,
    });
    started.flatten().collect()
}

/// A sum is exact to the last digit; what would be too much needs a person, who sees how much was taken, and counts too.
#[tokio::test]
async fn a_person_decides_about_what_is_too_much() {
    let site = Site::new();
    let budget = json!({"name": "size", "sum": "size", "limit": "18014398509481986", "window": "1d", "per": ["owner"]});
    let engine = server(&site, "allow", &budget);
    for no in 1..=2 {
        let run = start(&engine).await;
        until(&engine, run, COMPLETED).await;
        assert_eq!(takes(&engine, run).await, [(no, "9007199254740993".to_owned())]);
    }
    let third = start(&engine).await;
    until(&engine, third, HELD).await;
    assert_eq!(site.effects().len(), 2);
    let hold = hold_of(&engine, third, HoldKind::Approval).await;
    let shown = reason(&engine, hold).await;
    let said = "budget size of rule deletions: 18014398509481986 of 18014398509481986 in 1d are taken, \
                and this call takes 9007199254740993; there is enough for it from ";
    assert!(shown.starts_with(said), "{shown}");
    let log = format!("{:?}", engine.reads().events(third, Seq(0)).await.unwrap());
    assert!(log.contains("budget:over:deletions:size"), "{log}");
    assert_eq!(
        engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await,
        Ok(Answer::Done)
    );
    until(&engine, third, COMPLETED).await;
    assert_eq!(takes(&engine, third).await, [(3, "9007199254740993".to_owned())]);
    assert_eq!(site.effects().len(), 3);
    engine.die().await;
}

/// Calls of one turn are counted with each other; where the budget denies, the model gets the reason.
#[tokio::test]
async fn calls_of_one_turn_are_counted_together() {
    let mut site = Site::new();
    let other = r#"{"path": "/var/cache/new", "size": 1}"#;
    let big = r#"{"path": "/var/cache/big", "size": 100}"#;
    site.asks = Line::calls(&[("delete_file", big), ("delete_file", other), ("delete_file", ARGUMENTS)]);
    let budget = json!({"name": "size", "sum": "size", "limit": 100, "window": "1d", "over": "deny"});
    let engine = server(&site, "allow", &budget);
    let run = start(&engine).await;
    until(&engine, run, COMPLETED).await;
    assert_eq!(takes(&engine, run).await, [(1, "100".to_owned())]);
    assert_eq!(site.effects().len(), 1);
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    let told = format!("{events:?}");
    assert!(
        told.contains("not executed: budget size of rule deletions: 100 of 100 in 1d are taken"),
        "{told}"
    );
    assert!(told.contains("that is more than there ever is"), "{told}");
    engine.die().await;
}

/// Two approvals at once for the last of a budget: one call starts, the other one is asked about again.
#[tokio::test]
async fn of_two_approvals_for_the_last_of_it_one_starts() {
    let site = Site::new();
    let budget = json!({"name": "few", "limit": 1, "window": "1d"});
    let engine = server(&site, "hold", &budget);
    let runs = [start(&engine).await, start(&engine).await];
    let (held, other) = approved_together(&engine, runs).await;
    until(&engine, other, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
    assert!(takes(&engine, held).await.is_empty());
    let hold = hold_of(&engine, held, HoldKind::Approval).await;
    assert!(reason(&engine, hold).await.contains("1 of 1 in 1d are taken"));
    engine.die().await;
}

/// An unknown outcome keeps what it took; once a person says that it did not happen, it is there again.
#[tokio::test]
async fn an_unknown_outcome_keeps_its_take_until_it_is_settled() {
    let mut site = Site::new();
    site.hangs = true;
    let budget =
        json!({"name": "few", "limit": 1, "window": "1d", "per": ["tool", "agent", "owner", "/path"]});
    let engine = server(&site, "allow", &budget);
    let first = start(&engine).await;
    until_effects(&site, 1).await;
    engine.die().await;
    drop(engine);
    site.hangs = false;
    let engine = server(&site, "allow", &budget);
    until(&engine, first, HELD).await;
    let second = start(&engine).await;
    until(&engine, second, HELD).await;
    let hold = hold_of(&engine, second, HoldKind::Approval).await;
    assert!(reason(&engine, hold).await.contains("1 of 1 in 1d are taken"));
    let recovery = hold_of(&engine, first, HoldKind::Recovery).await;
    let deny = Choice::Deny { reason: None };
    engine.submit().decide(&who("alice"), decision(recovery, deny)).await.unwrap();
    until(&engine, first, COMPLETED).await;
    let third = start(&engine).await;
    until(&engine, third, COMPLETED).await;
    assert_eq!(takes(&engine, third).await, [(2, "1".to_owned())]);
    assert_eq!(site.effects().len(), 2);
    engine.die().await;
}
