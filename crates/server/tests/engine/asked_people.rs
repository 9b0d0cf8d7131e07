//! Several people and one hold: votes, who stands in, escalations, reminders, muted ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use standfast_core::approver::Approver;
use standfast_core::command::Choice;
use standfast_core::decide::Answer;
use standfast_core::hold::{HoldKind, HoldPolicy, OnTimeout};
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::name::{GroupName, ToolName, UserId};
use standfast_core::refusal::Refusal;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{Approvers, Principal};
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Agent, NotifiedHolds, Settings};
use standfast_engine::{Adjustment, Engine, EngineError, HoldAdjustment};

use crate::{COMPLETED, HELD, Site, decision, hold_of, start, until, who};

/// Settings in which ann, bob and cy decide, two of them.
fn settings(site: &Site) -> Settings {
    let mut settings = site.settings();
    let tool = ToolName::new("delete_file").unwrap();
    let named: BTreeSet<Approver> =
        ["ann", "bob", "cy"].map(|name| Approver::User(UserId::new(name).unwrap())).into_iter().collect();
    let change = |agent: &Arc<Agent>| {
        let mut agent = Agent::clone(agent);
        agent.approvers = Approvers { named: Some(named.clone()), ..Approvers::default() };
        agent.quorum.insert(tool.clone(), 2);
        Arc::new(agent)
    };
    settings.agents = settings.agents.iter().map(|(name, agent)| (name.clone(), change(agent))).collect();
    settings
}

async fn held(site: &Site, settings: Settings) -> (Engine, HoldId) {
    let engine = Engine::new(site.store(), Clock::system(), crate::fixed(), settings);
    engine.work();
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    (engine, hold)
}

async fn approves(engine: &Engine, who: &Principal, hold: HoldId) -> Result<Answer, EngineError> {
    engine.submit().decide(who, decision(hold, Choice::Approve)).await
}

async fn adjusts(engine: &Engine, by: &str, hold: HoldId, what: Adjustment) -> Result<Answer, EngineError> {
    engine.submit().adjust(&who(by), HoldAdjustment { hold, what, once: None }).await
}

async fn kinds(engine: &Engine, run: RunId) -> Vec<&'static str> {
    engine.reads().events(run, Seq(0)).await.unwrap().iter().map(|envelope| envelope.event.kind()).collect()
}

fn soon() -> Timestamp {
    Clock::system().now().plus(Millis::hours(1))
}

/// C4, C24: two different people, and what each of them sees.
#[tokio::test]
async fn two_of_three_agree() {
    let site = Site::new();
    let (engine, hold) = held(&site, settings(&site)).await;
    assert_eq!(approves(&engine, &who("ann"), hold).await, Ok(Answer::Voted { votes: 1, needed: 2 }));
    assert_eq!(approves(&engine, &who("ann"), hold).await, Ok(Answer::Repeated));
    let view = engine.reads().hold(&who("bob"), hold).await.unwrap();
    let open = view.open.unwrap();
    assert_eq!((open.votes.len(), open.votes_missing(), view.may_decide), (1, 1, true));
    assert!(site.effects().is_empty());
    assert_eq!(approves(&engine, &who("bob"), hold).await, Ok(Answer::Done));
    until(&engine, hold.run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
}

/// C16: an edit voids the votes and says so; who saw the old arguments cannot agree with the new ones.
#[tokio::test]
async fn an_edit_begins_the_vote_anew() {
    let site = Site::new();
    let (engine, hold) = held(&site, settings(&site)).await;
    approves(&engine, &who("ann"), hold).await.unwrap();
    let arguments = standfast_core::json::RawJson::parse(r#"{"path": "/var/cache/new"}"#).unwrap();
    let edit = Adjustment::Edit { arguments, digest: None, revision: Some(0) };
    assert_eq!(adjusts(&engine, "bob", hold, edit).await, Ok(Answer::Edited));
    let open = engine.reads().hold(&who("cy"), hold).await.unwrap().open.unwrap();
    assert_eq!((open.votes.len(), open.votes_missing(), open.revision), (0, 2, 1));
    let stale = approves(&engine, &who("cy"), hold).await.unwrap_err();
    assert!(matches!(stale.refusal(), Some(Refusal::MustRepeatDigest { .. })), "{stale}");
    for name in ["cy", "ann"] {
        let again = standfast_engine::Decision { revision: Some(1), ..decision(hold, Choice::Approve) };
        engine.submit().decide(&who(name), again).await.unwrap();
    }
    until(&engine, hold.run, COMPLETED).await;
    assert!(site.effects()[0].ends_with(r#"{"path": "/var/cache/new"}"#));
}

/// Who stands in sees the run and counts in the place of another; a stranger sees nothing.
#[tokio::test]
async fn somebody_stands_in() {
    let site = Site::new();
    let (engine, hold) = held(&site, settings(&site)).await;
    let dora = who("dora");
    assert_eq!(approves(&engine, &dora, hold).await, Err(EngineError::NotFound));
    let delegate = Adjustment::Delegate { to: UserId::new("dora").unwrap(), until: soon() };
    assert_eq!(adjusts(&engine, "dora", hold, delegate.clone()).await, Err(EngineError::NotFound));
    assert_eq!(adjusts(&engine, "ann", hold, delegate).await, Ok(Answer::Done));
    assert!(engine.reads().hold(&dora, hold).await.unwrap().may_decide);
    assert_eq!(approves(&engine, &dora, hold).await, Ok(Answer::Voted { votes: 1, needed: 2 }));
    assert_eq!(approves(&engine, &who("ann"), hold).await, Ok(Answer::Repeated), "one place, one vote");
    let assign = Adjustment::Assign { to: Some(UserId::new("bob").unwrap()), until: None };
    assert_eq!(adjusts(&engine, "cy", hold, assign).await, Ok(Answer::Done));
    assert_eq!(approves(&engine, &who("bob"), hold).await, Ok(Answer::Done));
    until(&engine, hold.run, COMPLETED).await;
    assert!(engine.reads().hold(&dora, hold).await.is_ok(), "what one has decided on can still be seen");
}

/// S0-52: nobody decides for a while: people are reminded, others are asked as well and may decide. Each step is written once.
#[tokio::test]
async fn time_asks_others_as_well() {
    let mut site = Site::new();
    site.holds = HoldPolicy {
        remind_after: Some(Millis(300)),
        escalate_after: Some(Millis(200)),
        escalate_to: vec![Approver::parse("group:leads").unwrap()],
        ..HoldPolicy::default()
    };
    let (engine, hold) = held(&site, site.settings()).await;
    let mut lead = who("lea");
    assert_eq!(approves(&engine, &lead, hold).await, Err(EngineError::NotFound));
    lead.groups.insert(GroupName::new("leads").unwrap());
    let is_told = async {
        while !kinds(&engine, hold.run).await.contains(&"hold.reminded") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), is_told).await.unwrap();
    let escalated =
        kinds(&engine, hold.run).await.into_iter().filter(|kind| *kind == "hold.escalated").count();
    assert_eq!(escalated, 1);
    assert_eq!(approves(&engine, &lead, hold).await, Ok(Answer::Done));
    until(&engine, hold.run, COMPLETED).await;
}

/// C7, S0-50: a kept hold is shown as expired, reopened, and a late decision is marked as one.
#[tokio::test]
async fn what_is_late_is_shown_as_late() {
    let mut site = Site::new();
    site.holds =
        HoldPolicy { timeout: Some(Millis(100)), on_timeout: OnTimeout::Keep, ..HoldPolicy::default() };
    let (engine, hold) = held(&site, site.settings()).await;
    let alice = who("alice");
    let expired = async {
        while engine.reads().hold(&alice, hold).await.unwrap().row.expired_at.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), expired).await.unwrap();
    let reopen = Adjustment::Reopen { expires_at: Some(soon()) };
    assert_eq!(adjusts(&engine, "alice", hold, reopen.clone()).await, Ok(Answer::Done));
    let open = engine.reads().hold(&alice, hold).await.unwrap();
    assert_eq!((open.row.expired_at, open.late), (None, false));
    let again = adjusts(&engine, "alice", hold, reopen).await.unwrap_err();
    assert!(matches!(again.refusal(), Some(Refusal::NotExpired(_))), "{again}");

    let second = start(&engine).await;
    until(&engine, second, HELD).await;
    let second = hold_of(&engine, second, HoldKind::Approval).await;
    let expired = async {
        while engine.reads().hold(&alice, second).await.unwrap().row.expired_at.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), expired).await.unwrap();
    assert_eq!(approves(&engine, &alice, second).await, Ok(Answer::Done));
    assert!(engine.reads().hold(&alice, second).await.unwrap().late);
}

/// Above the cap a hold is listed and can be decided, and nobody is notified of it.
#[tokio::test]
async fn t27_too_many_are_muted_and_none_is_dropped() {
    let site = Site::new();
    let caps = [
        NotifiedHolds { per_agent: Some(1), per_owner: None },
        NotifiedHolds { per_agent: None, per_owner: Some(1) },
    ];
    for caps in caps {
        let site = if caps.per_agent.is_some() { &site } else { &Site::new() };
        let settings = Settings { notified_holds: caps, ..site.settings() };
        let (engine, first) = held(site, settings).await;
        let second = start(&engine).await;
        until(&engine, second, HELD).await;
        let second = hold_of(&engine, second, HoldKind::Approval).await;
        let muted = |hold| {
            let engine = &engine;
            async move { engine.reads().hold(&who("alice"), hold).await.unwrap().row.muted }
        };
        assert_eq!((muted(first).await, muted(second).await), (false, true), "{caps:?}");
        assert_eq!(approves(&engine, &who("alice"), second).await, Ok(Answer::Done));
        until(&engine, second.run, COMPLETED).await;
    }
}
