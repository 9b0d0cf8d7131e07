//! Effect keys: over all runs there is at most one start for a name, and the second one needs a person who has seen the first.

use std::sync::Arc;

use serde_json::json;
use standfast_core::command::Choice;
use standfast_core::decide::Answer;
use standfast_core::event::Event;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::name::ToolName;
use standfast_engine::Engine;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Agent, Settings};
use standfast_policy::effect_key::KeyTemplate;
use standfast_store::Store;

use crate::corners::changed;
use crate::rules::judged_by;
use crate::{COMPLETED, HELD, Site, approved_together, decision, hold_of, start, until, until_effects, who};

/// Settings in which deleting the same path is the same effect; with `needs_approval` or without.
fn settings(site: &Site, needs_approval: bool) -> Settings {
    let mut settings = site.settings();
    let tool = ToolName::new("delete_file").unwrap();
    let change = |agent: &Arc<Agent>| {
        let mut agent = Agent::clone(agent);
        agent.effect_keys.insert(tool.clone(), KeyTemplate::parse("delete:{path}").unwrap());
        if !needs_approval {
            agent.needs_approval.clear();
        }
        Arc::new(agent)
    };
    settings.agents = settings.agents.iter().map(|(name, agent)| (name.clone(), change(agent))).collect();
    settings
}

fn server_on(site: &Site, store: Arc<dyn Store>, needs_approval: bool) -> Engine {
    let engine = Engine::new(store, Clock::system(), crate::fixed(), settings(site, needs_approval));
    engine.work();
    engine
}

async fn reason(engine: &Engine, hold: HoldId) -> String {
    engine.reads().hold(&who("alice"), hold).await.unwrap().ask.reason.unwrap()
}

async fn claims(engine: &Engine, run: RunId) -> Vec<u32> {
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    let started = events.iter().filter_map(|envelope| match &envelope.event {
        Event::CallStarted(started) => Some(started.effects.iter().map(|claim| claim.no)),
        _ => None,
    });
    started.flatten().collect()
}

/// A tool that runs without asking is asked about once its effect was started before; who approves has seen what came of it.
#[tokio::test]
async fn a_second_call_for_an_effect_needs_a_person() {
    let site = Site::new();
    let engine = server_on(&site, site.store(), false);
    let first = start(&engine).await;
    until(&engine, first, COMPLETED).await;
    assert_eq!(claims(&engine, first).await, [1]);

    let second = start(&engine).await;
    until(&engine, second, HELD).await;
    assert_eq!(site.effects().len(), 1);
    let hold = hold_of(&engine, second, HoldKind::Approval).await;
    let shown = reason(&engine, hold).await;
    assert!(shown.starts_with("delete:%2Fvar%2Fcache%2Fold was started before"), "{shown}");
    assert!(shown.contains(&first.to_string()) && shown.contains("it was executed"), "{shown}");
    assert_eq!(
        engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await,
        Ok(Answer::Done)
    );
    until(&engine, second, COMPLETED).await;
    assert_eq!((site.effects().len(), claims(&engine, second).await), (2, vec![2]));
}

/// A rule that holds for a reason of its own does not hide what was started before: whoever is asked sees both.
#[tokio::test]
async fn what_was_started_before_stands_beside_the_reason_of_a_rule() {
    let site = Site::new();
    let section = json!({"rules": [
        {"id": "gone", "hold": "delete_file", "because": "it is gone then", "effect_key": "delete:{path}"},
    ]});
    let settings = changed(&site, |agent| judged_by(agent, &section));
    let engine = Engine::new(site.store(), Clock::system(), crate::fixed(), settings);
    engine.work();
    let first = start(&engine).await;
    until(&engine, first, HELD).await;
    let hold = hold_of(&engine, first, HoldKind::Approval).await;
    assert_eq!(reason(&engine, hold).await, "it is gone then");
    engine.submit().decide(&who("alice"), decision(hold, Choice::Approve)).await.unwrap();
    until(&engine, first, COMPLETED).await;
    let second = start(&engine).await;
    until(&engine, second, HELD).await;
    let hold = hold_of(&engine, second, HoldKind::Approval).await;
    let shown = engine.reads().hold(&who("alice"), hold).await.unwrap().ask;
    assert_eq!(shown.stakes.because, ["it is gone then"]);
    let reason = shown.reason.unwrap();
    assert!(reason.contains(&first.to_string()) && reason.contains("it was executed"), "{reason}");
    engine.die().await;
}

/// Two runs are approved at once: one of them starts, the other one is asked about again.
#[tokio::test]
async fn of_two_approvals_at_once_one_starts() {
    let site = Site::new();
    let engine = server_on(&site, site.store(), true);
    let runs = [start(&engine).await, start(&engine).await];
    let (held, other) = approved_together(&engine, runs).await;
    until(&engine, other, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
    let hold = hold_of(&engine, held, HoldKind::Approval).await;
    assert!(reason(&engine, hold).await.contains(&other.to_string()));
}

/// An unknown outcome keeps the name; once a person says that it did not happen, it is free.
#[tokio::test]
async fn an_unknown_outcome_keeps_the_name_until_it_is_settled() {
    let mut site = Site::new();
    site.hangs = true;
    let store = site.store();
    let engine = server_on(&site, store, false);
    let first = start(&engine).await;
    until_effects(&site, 1).await;
    engine.die().await;
    drop(engine);
    site.hangs = false;
    let engine = server_on(&site, site.store(), false);
    until(&engine, first, HELD).await;
    let second = start(&engine).await;
    until(&engine, second, HELD).await;
    let hold = hold_of(&engine, second, HoldKind::Approval).await;
    assert!(reason(&engine, hold).await.contains("its outcome is unknown"));

    let recovery = hold_of(&engine, first, HoldKind::Recovery).await;
    let deny = Choice::Deny { reason: None };
    engine.submit().decide(&who("alice"), decision(recovery, deny)).await.unwrap();
    until(&engine, first, COMPLETED).await;
    let third = start(&engine).await;
    until(&engine, third, COMPLETED).await;
    assert_eq!(claims(&engine, third).await, [2]);
    assert_eq!(site.effects().len(), 2);
}
