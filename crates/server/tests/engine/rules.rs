//! Rules of the policy in the engine: what they make of calls, and what becomes of runs that wait while they change.
//!
//! The rule language itself is tested in `crates/policy`, a whole file of it in `crates/e2e/tests/program/policy.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::decide::Answer;
use standfast_core::event::Event;
use standfast_core::hold::{HoldKind, OnDeny, OnTimeout, Risk};
use standfast_core::id::{RunId, Seq};
use standfast_core::message::ToolResult;
use standfast_core::name::{GroupName, ToolName};
use standfast_core::policy::Effect;
use standfast_core::refusal::Refusal;
use standfast_core::time::Millis;
use standfast_engine::auth::{Principal, WhyNot};
use standfast_engine::secrets::SigningKey;
use standfast_engine::settings::{Agent, Rules};
use standfast_engine::tool::{Invocation, Outcome, Tool, ToolFuture};
use standfast_engine::{Decision, DriftKind, Engine, EngineError, GrantError, GrantRequest};
use standfast_policy::policy::compile;
use standfast_policy::read::read;

use crate::corners::changed;
use crate::{COMPLETED, HELD, Site, decision, hold_of, start, until, who};

/// The policy with these rules.
pub(crate) fn rules(section: &serde_json::Value) -> Rules {
    let (file, problems) = read(section);
    assert!(problems.is_empty(), "{problems:?}");
    let compiled = compile(&file, &[]);
    Rules::Readable(Arc::new(compiled.policy.unwrap_or_else(|| panic!("{:?}", compiled.problems))))
}

/// An agent whose calls are judged by these rules.
pub(crate) fn judged_by(agent: &mut Agent, section: &serde_json::Value) {
    agent.rules = rules(section);
    agent.approvers.rules = Arc::new(agent.rules.approvers(&crate::agent()));
}

fn member(user: &str, group: &str) -> Principal {
    let mut who = who(user);
    who.groups.insert(GroupName::new(group).unwrap());
    who
}

async fn held(site: &Site, section: &serde_json::Value) -> (Engine, RunId) {
    let engine = site.server();
    engine.reload(changed(site, |agent| judged_by(agent, section)));
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    (engine, run)
}

async fn approve(engine: &Engine, who: &Principal, run: RunId) -> Result<Answer, EngineError> {
    let hold = hold_of(engine, run, HoldKind::Approval).await;
    engine.submit().decide(who, decision(hold, Choice::Approve)).await
}

/// C24, C7: what several hold rules say reaches the hold: each one's people, the shortest time, the strictest end, why, and how
/// bad it can get; and each one's people must agree.
#[tokio::test]
async fn every_hold_rule_counts() {
    let site = Site::new();
    let section = json!({"rules": [
        {"id": "ops", "hold": "delete_file", "approvers": ["group:ops"], "quorum": 2, "because": "it is gone then",
         "risk": "destructive", "expire_after": "2h", "on_timeout": "keep"},
        {"id": "money", "hold": "delete_*", "approvers": ["user:fay"], "expire_after": "1h", "on_timeout": "deny",
         "on_deny": "cancel", "reversible": false, "risk": "low"},
    ]});
    let (engine, run) = held(&site, &section).await;
    let id = hold_of(&engine, run, HoldKind::Approval).await;
    let view = engine.reads().hold(&who("alice"), id).await.unwrap();
    assert_eq!((view.may_decide, view.why_not), (false, Some(WhyNot::NotNamed)));
    assert_eq!(view.deciders, "2 people of: group:ops; and user:fay");
    assert_eq!(view.ask.stakes.because, ["it is gone then"]);
    assert_eq!((view.ask.stakes.risk, view.reversible), (Some(Risk::Destructive), Some(false)));
    let open = engine.reads().load(run).await.unwrap().row.run.state.holds[0].clone();
    assert_eq!((open.policy.on_deny, open.policy.on_timeout), (OnDeny::Cancel, OnTimeout::Deny));
    assert_eq!(open.policy.timeout, Some(Millis::hours(1)));
    let refused = approve(&engine, &who("alice"), run).await;
    assert_eq!(refused, Err(EngineError::Refused(Refusal::NotAllowed(Some(id)))));
    let (ann, bo, fay) = (member("ann", "ops"), member("bo", "ops"), who("fay"));
    assert_eq!(approve(&engine, &ann, run).await, Ok(Answer::Voted { votes: 1, needed: 2 }));
    assert_eq!(approve(&engine, &ann, run).await, Ok(Answer::Repeated));
    assert_eq!(approve(&engine, &bo, run).await, Ok(Answer::Voted { votes: 2, needed: 3 }));
    assert_eq!(site.effects(), Vec::<String>::new());
    assert_eq!(approve(&engine, &fay, run).await, Ok(Answer::Done));
    until(&engine, run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
    engine.die().await;
}

/// A policy that cannot be read holds every call, also one of a tool that needs no approval.
#[tokio::test]
async fn an_unreadable_policy_holds() {
    let site = Site::new();
    let engine = site.server();
    engine.reload(changed(&site, |agent| {
        agent.needs_approval.clear();
        agent.rules = Rules::Unreadable("line 3".into());
    }));
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let id = hold_of(&engine, run, HoldKind::Approval).await;
    let reason = engine.reads().hold(&who("alice"), id).await.unwrap().ask.reason.unwrap();
    assert!(reason.contains("the policy cannot be read") && reason.contains("line 3"), "{reason}");
    assert_eq!(site.effects(), Vec::<String>::new());
    engine.die().await;
}

/// F30: rules change while a call waits. Whoever the rule names now decides; a larger quorum counts; a rule that is new asks
/// again before the start; one that denies wins.
#[tokio::test]
async fn rules_change_while_a_call_waits() {
    let site = Site::new();
    let with = |approvers: &str, quorum: u32, more: Option<serde_json::Value>| {
        let rule = json!({"id": "one", "hold": "delete_file", "approvers": [approvers], "quorum": quorum});
        json!({"rules": std::iter::once(rule).chain(more).collect::<Vec<_>>()})
    };
    let (engine, run) = held(&site, &with("user:ann", 1, None)).await;
    let reload =
        |section: serde_json::Value| engine.reload(changed(&site, |agent| judged_by(agent, &section)));
    // Another list, and more of them.
    reload(with("group:ops", 2, None));
    let (ann, bo, cy) = (who("ann"), member("bo", "ops"), member("cy", "ops"));
    assert_eq!(approve(&engine, &ann, run).await, Err(EngineError::NotFound), "no longer named");
    assert_eq!(approve(&engine, &bo, run).await, Ok(Answer::Voted { votes: 1, needed: 2 }));
    let view =
        engine.reads().hold(&who("alice"), hold_of(&engine, run, HoldKind::Approval).await).await.unwrap();
    assert!(view.drift.iter().any(|drift| drift.what == DriftKind::Policy), "{:?}", view.drift);
    // A new rule: the approval is taken, and the new rule asks again.
    let two = json!({"id": "two", "hold": "delete_file", "approvers": ["user:fay"], "because": "new"});
    reload(with("group:ops", 2, Some(two)));
    let first = hold_of(&engine, run, HoldKind::Approval).await;
    assert_eq!(approve(&engine, &cy, run).await, Ok(Answer::Done));
    let again = async {
        loop {
            let holds = engine.reads().load(run).await.unwrap().row.run.state.holds.clone();
            if holds.iter().any(|hold| hold.key != first.key) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), again).await.unwrap();
    assert_eq!(site.effects(), Vec::<String>::new());
    let second = hold_of(&engine, run, HoldKind::Approval).await;
    let view = engine.reads().hold(&who("fay"), second).await.unwrap();
    assert_eq!(view.deciders, "user:fay", "only the new rule's people are asked again");
    // A rule that denies is stricter than any approval.
    let ban = json!({"id": "ban", "deny": "delete_file", "because": "not on a Friday"});
    reload(with("group:ops", 2, Some(ban)));
    assert_eq!(
        approve(&engine, &who("fay"), run).await.map(|_| ()),
        Err(EngineError::NotFound),
        "the rule is gone"
    );
    engine.die().await;
}

/// C24, F30: two rules that named nobody name different people while a call waits: each one's people are needed, and none of them
/// approves further calls alone.
#[tokio::test]
async fn lists_that_come_later_are_each_met() {
    let site = Site::new();
    let rules = |one: serde_json::Value, two: serde_json::Value| {
        let mut rules = json!([{"id": "one", "hold": "delete_file"}, {"id": "two", "hold": "delete_file"}]);
        (rules[0]["approvers"], rules[1]["approvers"]) = (one, two);
        json!({"rules": rules})
    };
    let plain =
        json!({"rules": [{"id": "one", "hold": "delete_file"}, {"id": "two", "hold": "delete_file"}]});
    let (engine, run) = held(&site, &plain).await;
    let named = rules(json!(["user:ann"]), json!(["user:bo"]));
    let mut settings = changed(&site, |agent| judged_by(agent, &named));
    settings.webhooks.key = Some(SigningKey::new([7; 32]));
    engine.reload(settings);
    let hold = hold_of(&engine, run, HoldKind::Approval).await;
    let further = GrantRequest { uses: Some(2), ..GrantRequest::default() };
    assert_eq!(engine.grants().propose(&who("ann"), hold, &further).await, Err(GrantError::Quorum));
    assert_eq!(approve(&engine, &who("ann"), run).await, Ok(Answer::Voted { votes: 1, needed: 2 }));
    assert_eq!(site.effects(), Vec::<String>::new(), "bo has not agreed");
    let view = engine.reads().hold(&who("bo"), hold).await.unwrap();
    assert_eq!(view.open.unwrap().votes_missing(), 1);
    assert_eq!(approve(&engine, &who("bo"), run).await, Ok(Answer::Done));
    until(&engine, run, COMPLETED).await;
    engine.die().await;
}

/// What rules that only observe would have done is on record with the call; nothing is held by them.
#[tokio::test]
async fn observed_rules_hold_nothing() {
    let site = Site::new();
    let engine = site.server();
    let section = json!({"mode": "observe", "rules": [{"id": "all", "hold": "*"}]});
    engine.reload(changed(&site, |agent| {
        agent.needs_approval.clear();
        judged_by(agent, &section);
    }));
    let run = start(&engine).await;
    until(&engine, run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
    let log = engine.reads().events(run, Seq(0)).await.unwrap();
    let observed = log.iter().find_map(|envelope| match &envelope.event {
        Event::ModelReplied(replied) => replied.reply.calls.first()?.judged.as_ref()?.observed.clone(),
        _ => None,
    });
    let observed = observed.unwrap();
    assert_eq!((observed.effect, observed.rules[0].as_str()), (Effect::Hold, "rule:all"));
    engine.die().await;
}

/// Says how often it was asked.
struct Balance(Arc<AtomicUsize>, Arc<AtomicUsize>);

impl Tool for Balance {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        self.0.fetch_add(1, Ordering::SeqCst);
        let said = format!("{} has {}", invocation.arguments, self.1.load(Ordering::SeqCst));
        Box::pin(async move { Outcome::Done(ToolResult::Ok(Body::text(said))) })
    }
}

/// A rule's read-only call is made before people are asked and again before the start; its result is shown, and another one
/// asks again.
#[tokio::test]
async fn t4_a_precondition_is_looked_at_again_before_the_start() {
    let site = Site::new();
    let section = json!({"rules": [{
        "id": "look", "hold": "delete_file",
        "precondition": {"tool": "balance", "arguments": {"of": "path"}},
    }]});
    let (asked, amount) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(7)));
    let engine = site.server();
    engine.reload(changed(&site, |agent| {
        let name = ToolName::new("balance").unwrap();
        agent.tools.insert(name.clone(), Arc::new(Balance(asked.clone(), amount.clone())));
        agent.says_nothing.insert(name);
        judged_by(agent, &section);
    }));
    let run = start(&engine).await;
    until(&engine, run, HELD).await;
    let first = hold_of(&engine, run, HoldKind::Approval).await;
    let view = engine.reads().hold(&who("alice"), first).await.unwrap();
    assert_eq!(view.ask.stakes.findings[0].result, r#"{"of":"/var/cache/old"} has 7"#);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    amount.store(8, Ordering::SeqCst);
    assert_eq!(approve(&engine, &who("alice"), run).await, Ok(Answer::Done));
    let again = async {
        loop {
            let holds = engine.reads().load(run).await.unwrap().row.run.state.holds.clone();
            if holds.iter().any(|hold| hold.key != first.key) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), again).await.unwrap();
    assert_eq!(site.effects(), Vec::<String>::new(), "what was found is another thing now");
    let second = hold_of(&engine, run, HoldKind::Approval).await;
    let view = engine.reads().hold(&who("alice"), second).await.unwrap();
    assert!(view.ask.stakes.findings[0].result.ends_with("has 8"));
    assert!(view.ask.warning.unwrap().contains("is different now"));
    assert_eq!(view.row.revision, 1);
    let blind = approve(&engine, &who("alice"), run).await;
    assert!(matches!(blind, Err(EngineError::Refused(Refusal::MustRepeatDigest { .. }))), "{blind:?}");
    let seen = |revision| Decision { revision: Some(revision), ..decision(second, Choice::Approve) };
    let stale = engine.submit().decide(&who("alice"), seen(0)).await;
    assert!(matches!(stale, Err(EngineError::Refused(Refusal::Stale { .. }))), "{stale:?}");
    assert_eq!(engine.submit().decide(&who("alice"), seen(1)).await, Ok(Answer::Done));
    until(&engine, run, COMPLETED).await;
    assert_eq!(site.effects().len(), 1);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    engine.die().await;
}
