//! Who is asked about a hold, and until when: assignments that end, people who stand in, escalations, reminders.
//!
//! None of it decides anything; what people decide is `rules.rs`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use standfast_core::approver::Approver;
use standfast_core::command::{Choice, Command};
use standfast_core::decide::Answer;
use standfast_core::event::Event;
use standfast_core::hold::{Demand, Escalation, HoldPolicy, OnTimeout};
use standfast_core::id::{CallNo, HoldKey};
use standfast_core::name::{RuleId, UserId};
use standfast_core::next;
use standfast_core::policy::{Effect, HoldTimes, Role, Verdict};
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallOutcome, CallState};
use standfast_core::time::Millis;
use support::{SHELL, Scene, deny, person, resolve};

const HOUR: Millis = Millis::hours(1);

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn group(name: &str) -> Approver {
    Approver::parse(&format!("group:{name}")).unwrap()
}

/// A call that two must agree on.
fn waiting_for_two() -> (Scene, HoldKey, RuleId) {
    let rule = RuleId::new("prod").unwrap();
    let demand = Demand { quorum: 2, ..Demand::of(rule.clone()) };
    let verdict = Verdict { votes: 2, demand: Some(demand), ..Verdict::new(Effect::Hold, rule.clone()) };
    let mut scene = Scene::of_loop();
    scene.verdicts.by_call = vec![(CallNo(1), verdict)];
    scene.the_model_asks(&[SHELL]);
    let hold = scene.hold();
    scene.counts_for = vec![rule.clone()];
    (scene, hold, rule)
}

fn says(scene: &mut Scene, who: &str, role: Role, wanted: Choice) -> Result<Answer, Refusal> {
    let hold = scene.hold();
    (scene.actor, scene.authority) = (person(who), Some(role));
    scene.resolves(hold, wanted)
}

#[test]
fn an_assignment_ends_by_itself() {
    let (mut scene, hold) = Scene::waiting_for_approval(HoldPolicy::default());
    let until = scene.now.plus(HOUR);
    let assign = Command::Assign { hold, to: Some(user("bob")), until: Some(until) };
    assert_eq!(scene.send(assign.clone()), Ok(Answer::Done));
    assert_eq!(scene.send(assign), Ok(Answer::Repeated));
    assert_eq!(next::due_at(&scene.run), Some(until));
    scene.later(HOUR);
    assert_eq!(scene.send(Command::Tick), Ok(Answer::Done));
    let open = scene.hold_of(1);
    assert_eq!((open.assignee.as_ref(), open.assigned_until), (None, None));
    assert_eq!(next::due_at(&scene.run), None);
}

/// Of two people who share a place one counts, whichever comes first; who stands in may not hand it on.
#[test]
fn who_stands_in_counts_in_the_place_of_another() {
    let (mut scene, hold, _) = waiting_for_two();
    let until = scene.now.plus(HOUR);
    scene.actor = person("ann");
    let delegate = |to: &str| Command::Delegate { hold, to: user(to), until };
    assert_eq!(scene.send(delegate("bob")), Ok(Answer::Done));
    assert_eq!(scene.send(delegate("bob")), Ok(Answer::Repeated));
    assert!(matches!(scene.send(delegate("ann")), Err(Refusal::NotAllowed(_))), "to oneself");
    // Bob counts for the rule although nobody names him.
    scene.counts_for.clear();
    let voted = says(&mut scene, "bob", Role::Delegate, Choice::Approve);
    assert_eq!(voted, Ok(Answer::Voted { votes: 1, needed: 2 }));
    assert!(matches!(scene.send(delegate("cy")), Err(Refusal::NotAllowed(_))), "a place is handed on once");
    let last = scene.log.last().unwrap();
    assert!(matches!(&last.event, Event::HoldVoted(voted) if voted.in_place_of == Some(user("ann"))));
    scene.counts_for = vec![RuleId::new("prod").unwrap()];
    assert_eq!(says(&mut scene, "ann", Role::Approver, Choice::Approve), Ok(Answer::Repeated));
    assert_eq!(says(&mut scene, "cy", Role::Approver, Choice::Approve), Ok(Answer::Done));
}

#[test]
fn a_delegation_ends() {
    let (mut scene, hold, _) = waiting_for_two();
    scene.actor = person("ann");
    let until = scene.now.plus(HOUR);
    scene.send(Command::Delegate { hold, to: user("bob"), until }).unwrap();
    scene.later(HOUR);
    scene.counts_for.clear();
    let refused = says(&mut scene, "bob", Role::Delegate, Choice::Approve);
    assert!(matches!(refused, Err(Refusal::NotAllowed(_))), "{refused:?}");
}

/// C4: a deny is final, however many have agreed and whoever says it.
#[test]
fn one_no_ends_the_vote() {
    let (mut scene, hold, _) = waiting_for_two();
    assert_eq!(
        says(&mut scene, "ann", Role::Approver, Choice::Approve),
        Ok(Answer::Voted { votes: 1, needed: 2 })
    );
    assert_eq!(says(&mut scene, "bob", Role::Approver, deny()), Ok(Answer::Done));
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Done(CallOutcome::Denied));
    scene.actor = person("cy");
    assert!(matches!(scene.send(resolve(hold, Choice::Approve)), Err(Refusal::AlreadyDecided(_))));
}

/// S0-52: after a while others are asked as well, once; where a rule names its people, they are among them from then on.
#[test]
fn others_are_asked_as_well() {
    let policy = HoldPolicy {
        escalate_after: Some(HOUR),
        escalate_to: vec![group("leads")],
        remind_after: Some(Millis(HOUR.0 / 2)),
        ..HoldPolicy::default()
    };
    let rule = RuleId::new("prod").unwrap();
    let demand = Demand { approvers: Some(vec![group("ops")]), ..Demand::of(rule.clone()) };
    let verdict = Verdict { demand: Some(demand), ..Verdict::new(Effect::Hold, rule) };
    let mut scene = Scene::of_loop();
    scene.definition.holds = policy;
    scene.verdicts.by_call = vec![(CallNo(1), verdict)];
    scene.the_model_asks(&[SHELL]);
    scene.later(HOUR);
    scene.send(Command::Tick).unwrap();
    let kinds: Vec<&str> = scene.log.iter().rev().take(2).map(|one| one.event.kind()).collect();
    assert_eq!(kinds, ["hold.reminded", "hold.escalated"]);
    let open = scene.hold_of(1);
    assert_eq!(open.demands[0].approvers, Some(vec![group("ops"), group("leads")]));
    assert!(open.escalations.is_empty() && open.escalated.len() == 1);
    assert_eq!(scene.run.state.let_in, [group("leads")]);
    assert_eq!(scene.send(Command::Tick), Ok(Answer::Repeated), "once");
    scene.later(HOUR);
    scene.send(Command::Tick).unwrap();
    assert_eq!(scene.hold_of(1).escalated.len(), 1, "reminders go on, escalations do not");
}

/// Instants that the engine worked out win over the plain spans, for reminders too.
#[test]
fn business_hours_come_in_as_instants() {
    let policy = HoldPolicy {
        timeout: Some(HOUR),
        remind_after: Some(HOUR),
        escalate_after: Some(HOUR),
        escalate_to: vec![group("leads")],
        on_timeout: OnTimeout::Keep,
        ..HoldPolicy::default()
    };
    let mut scene = Scene::of_loop();
    scene.definition.holds = policy;
    scene.verdicts = support::the_policy_says(Effect::Hold);
    let begin = scene.now;
    let at = |hours: i64| begin.plus(Millis::hours(hours));
    let escalation = Escalation { at: at(40), to: vec![group("leads")], rule: None };
    let (remind_at, expires_at, monday) = (Some(at(20)), Some(at(60)), at(80));
    scene.verdicts.times =
        vec![(CallNo(1), HoldTimes { expires_at, remind_at, escalations: vec![escalation.clone()] })];
    scene.the_model_asks(&[SHELL]);
    let open = scene.hold_of(1).clone();
    assert_eq!(
        (open.remind_at, open.expires_at, open.escalations),
        (remind_at, expires_at, vec![escalation])
    );
    scene.later(Millis::hours(20));
    scene.verdicts.times = vec![(CallNo(1), HoldTimes { remind_at: Some(monday), ..HoldTimes::default() })];
    scene.send(Command::Tick).unwrap();
    assert_eq!(scene.hold_of(1).remind_at, Some(monday));
}

/// C24: a call that is asked about again because something is different now is everybody's business once more, not only one
/// person's.
#[test]
fn what_is_different_is_asked_of_everybody_again() {
    let (mut scene, hold, rule) = waiting_for_two();
    scene.counts_for = vec![rule.clone()];
    for who in ["ann", "bob"] {
        scene.actor = person(who);
        scene.resolves(hold, Choice::Approve).unwrap();
    }
    assert_eq!(scene.run.call(CallNo(1)).unwrap().state, CallState::Ready);
    let found = Verdict::new(Effect::Hold, RuleId::new("precondition:prod:1").unwrap());
    scene.verdicts.by_call.push((CallNo(1), found));
    assert_eq!(scene.begins(1), Ok(Answer::Held));
    let again = scene.hold_of(1);
    assert_eq!(again.demands.iter().map(|demand| &demand.rule).collect::<Vec<_>>(), [&rule]);
    assert_eq!(again.votes_missing(), 2);
}
