//! The rules of gates: whoever opened one starts its call, once; silence asks a person; the gate ends with its call.
//!
//! Moved by real commands; what the program makes of it is tested from outside.

use crate::actor::Actor;
use crate::command::{Begin, Choice, Command, Suspend, SuspendFor};
use crate::decide::Answer;
use crate::event::Outcome;
use crate::hold::HoldKind;
use crate::id::CallNo;
use crate::message::ToolResult;
use crate::next::{NextStep, deadline, due_at, next};
use crate::receipt::{CallEffect, Report, receipt};
use crate::refusal::Refusal;
use crate::run::{CallOutcome, CallState};
use crate::testing::{NODE, Story, body, worker};
use crate::time::Millis;
use crate::transcript::stored_call;

const CALL: CallNo = CallNo(1);

fn begin(story: &Story, seconds: i64) -> Command {
    let stored = stored_call(&story.events, CALL).unwrap();
    let start_by = story.now.plus(Millis::seconds(seconds));
    Command::Begin(Begin { call: CALL, node: NODE, start_by, stored, pending: None })
}

fn starts(story: &mut Story, seconds: i64) -> Result<Answer, Refusal> {
    let begin = begin(story, seconds);
    story.tries(Actor::Outside(worker()), begin)
}

fn held() -> Story {
    let mut story = Story::gate();
    story.proposes("write", r#"{"amount": 1}"#);
    story
}

fn approved() -> Story {
    let mut story = held();
    story.decides(1, Choice::Approve);
    story
}

fn state(story: &Story) -> CallState {
    story.run.call(CALL).unwrap().state
}

/// Nobody but whoever opened it starts the call; a node has nothing to do with it; twice is refused.
#[test]
fn its_owner_starts_it_once() {
    let mut story = approved();
    let by_node = begin(&story, 60);
    assert!(matches!(story.tries(Actor::Node(NODE), by_node), Err(Refusal::ClaimedByOther { .. })));
    assert!(matches!(next(&story.run, story.now), NextStep::Wait(_)), "nothing for a node to do");
    assert_eq!(starts(&mut story, 60), Ok(Answer::Done));
    assert_eq!(starts(&mut story, 60), Err(Refusal::CallNotReady(CALL)));
    assert!(matches!(next(&story.run, story.now), NextStep::Wait(_)));
    let CallState::Started { start_by, .. } = state(&story) else { panic!("{:?}", state(&story)) };
    assert_eq!((due_at(&story.run), deadline(&story.run)), (Some(start_by), Some(start_by)));
    story.finishes(1, ToolResult::Ok(body("1")));
    assert_eq!(story.run.outcome(), Some(Outcome::Completed), "it ends with its call");
}

/// No outcome in time: a person is asked, whoever looks first; the truth is welcome later, and answers.
#[test]
fn silence_after_a_start_asks_a_person() {
    let mut story = approved();
    let hold = story.events.iter().find_map(|envelope| crate::project::hold_of(&envelope.event)).unwrap();
    starts(&mut story, 60).unwrap();
    story.waits(Millis::seconds(61));
    assert_eq!(state(&story), CallState::Held);
    assert_eq!(story.run.state.holds[0].kind, HoldKind::Recovery);
    assert_eq!(starts(&mut story, 60), Err(Refusal::CallNotReady(CALL)));
    // Long after the claim would have lapsed: it waits for a person.
    story.waits(Millis::hours(1000));
    assert_eq!(story.run.outcome(), None);
    let mut told = story.clone();
    told.finishes(1, ToolResult::Failed(body("2")));
    assert_eq!(told.run.outcome(), Some(Outcome::Failed));
    let again = story.decides(1, Choice::Approve);
    assert_eq!((again, state(&story)), (Answer::Done, CallState::Ready));
    starts(&mut story, 60).unwrap();
    assert_eq!(story.finishes_attempt(1, 1, ToolResult::Ok(body("1"))), Answer::Contradicted);
    story.finishes_attempt(1, 2, ToolResult::Ok(body("1")));
    let receipt = receipt(hold, &story.events).unwrap().call.unwrap();
    assert_eq!((receipt.effect, receipt.attempts.len()), (CallEffect::Executed, 2));
}

/// Every end of the call is the end of the gate; what nobody started did not run, what nobody reported may have.
#[test]
fn a_gate_ends_with_its_call() {
    let mut denied = held();
    denied.decides(1, Choice::Deny { reason: None });
    assert_eq!(
        (denied.run.outcome(), state(&denied)),
        (Some(Outcome::Canceled), CallState::Done(CallOutcome::Denied))
    );
    let mut refused = Story::gate();
    refused.proposes("banned", "{}");
    assert_eq!(refused.run.outcome(), Some(Outcome::Rejected));
    for mut withdrawn in [held(), approved()] {
        let hold = withdrawn.events.iter().find_map(|one| crate::project::hold_of(&one.event)).unwrap();
        withdrawn.is_canceled();
        assert_eq!(state(&withdrawn), CallState::Done(CallOutcome::NotExecuted));
        let call = receipt(hold, &withdrawn.events).unwrap().call.unwrap();
        assert_eq!((call.effect, call.report), (CallEffect::NotExecuted, None));
    }
    let mut unused = approved();
    let hold = unused.events.iter().find_map(|one| crate::project::hold_of(&one.event)).unwrap();
    unused.waits(Millis::hours(2));
    assert_eq!(unused.run.outcome(), Some(Outcome::Failed), "an unused approval ends");
    let call = receipt(hold, &unused.events).unwrap().call.unwrap();
    assert_eq!((call.effect, call.report), (CallEffect::OutcomeUnknown, Some(Report::NotReported)));
    let mut returned = approved();
    starts(&mut returned, 60).unwrap();
    returned.gives_back(1);
    assert_eq!(state(&returned), CallState::Ready);
    let mut stopped = approved();
    starts(&mut stopped, 60).unwrap();
    stopped.is_canceled();
    assert!(matches!(state(&stopped), CallState::Started { .. }), "it may still report");
    assert!(matches!(next(&stopped.run, stopped.now), NextStep::Wait(Some(_))));
    assert!(matches!(next(&stopped.run, stopped.now.plus(Millis::hours(1))), NextStep::Act { .. }));
    stopped.finishes(1, ToolResult::Ok(body("1")));
    assert_eq!(state(&stopped), CallState::Done(CallOutcome::Ok));
}

/// A login in the place of the call: whoever logs in ends the gate, and nothing runs; it is asked for before a start only.
#[test]
fn a_gate_may_wait_for_a_login_alone() {
    let logs_in = |story: &mut Story| {
        let suspend = Suspend {
            call: CALL,
            attempt: 0,
            kind: SuspendFor::Auth,
            ask: Default::default(),
            timeout: None,
            secret: None,
            worker: Some(worker()),
        };
        story.tries(Actor::Outside(worker()), Command::Suspend(suspend))
    };
    let mut story = Story::gate();
    story.proposes("read", "{}");
    assert_eq!(logs_in(&mut story), Ok(Answer::Done));
    assert_eq!(story.run.state.holds[0].kind, HoldKind::Auth);
    assert_eq!(starts(&mut story, 60), Err(Refusal::CallNotReady(CALL)));
    story.decides(1, Choice::Answer { value: body("\"logged in\"") });
    assert_eq!(
        (state(&story), story.run.outcome()),
        (CallState::Done(CallOutcome::Ok), Some(Outcome::Completed))
    );
    let mut started = approved();
    starts(&mut started, 60).unwrap();
    assert!(logs_in(&mut started).is_err(), "what runs asks its caller");
}
