//! Calls that were left behind or that may have run.
//!
//! What nobody knows is said to be unknown, and what is known not to have run is not.

use super::{lines, ok, results, started};
use crate::actor::Actor;
use crate::body::Body;
use crate::command::{Choice, Command, SuspendFor};
use crate::decide::Answer;
use crate::testing::Story;

/// Rule 5: every call has exactly one result, also after cancel.
#[test]
fn after_cancel_every_call_says_what_became_of_it() {
    let mut story = Story::new();
    let calls = [("write", "{}"), ("read", "{}"), ("read", "{}"), ("write", "{}")];
    story.replies("", &calls);
    story.decides(4, Choice::Approve);
    story.begins(4);
    story.suspends(4, SuspendFor::External);
    story.begins(2);
    story.is_canceled();
    let not_executed = r#"{"status":"canceled","reason":"not executed: the run ended first"}"#;
    let running =
        r#"{"status":"unknown","reason":"outcome unknown: the run ended while the call was running"}"#;
    let outside = r#"{"status":"unknown","reason":"outcome unknown: the run ended while an outside system had the call"}"#;
    let mut all = [
        format!("1: {not_executed}"),
        format!("2: {running}"),
        format!("3: {not_executed}"),
        format!("4: {outside}"),
    ];
    assert_eq!(results(&story), all);

    story.finishes(2, ok("it was read"));
    all[1] = "2: it was read".into();
    assert_eq!(results(&story), all);
}

#[test]
fn a_start_that_nobody_can_account_for_stays_unknown() {
    let mut story = started();
    story.is_canceled();
    story.loses(1);
    let gone = r#"1: {"status":"unknown","reason":"outcome unknown: the node that ran the call is gone"}"#;
    assert_eq!(results(&story), [gone]);

    let mut story = started();
    story.loses(1);
    story.is_canceled();
    let unsaid = "outcome unknown: nobody said what the call did before the run ended";
    assert_eq!(results(&story), [format!(r#"1: {{"status":"unknown","reason":"{unsaid}"}}"#)]);

    let mut story = Story::new();
    story.replies("", &[("read", "{}")]);
    story.begins(1);
    story.loses(1);
    story.is_canceled();
    let untold = "outcome unknown: the call was started, and nobody knows what it did";
    assert_eq!(results(&story), [format!(r#"1: {{"status":"unknown","reason":"{untold}"}}"#)]);
}

/// Rule 5: a start without an effect leaves nothing unknown, but it does not speak for an earlier one.
#[test]
fn a_start_given_back_after_the_end_is_not_executed_unless_an_earlier_one_may_have_run() {
    let mut story = started();
    story.is_canceled();
    story.gives_back(1);
    let not_executed = r#"1: {"status":"canceled","reason":"not executed: the run ended first"}"#;
    assert_eq!(results(&story), [not_executed]);

    let mut story = Story::new();
    story.replies("", &[("read", "{}")]);
    story.begins(1);
    story.loses(1);
    story.begins(1);
    story.is_canceled();
    story.gives_back(1);
    let untold = "outcome unknown: the call was started, and nobody knows what it did";
    assert_eq!(results(&story), [format!(r#"1: {{"status":"unknown","reason":"{untold}"}}"#)]);
}

#[test]
fn a_retry_that_is_forbidden_warns_of_the_first_start() {
    let mut story = Story::new();
    story.replies("", &[("read", "{}")]);
    story.begins(1);
    story.loses(1);
    story.bans("read");
    assert_eq!(story.begins(1), Answer::Refused);
    let refused = "1: {\"status\":\"refused\",\"reason\":\"not executed: the policy forbids this call (about-read)\",\
                   \"warning\":\"an earlier start of this call may have run\"}";
    assert_eq!(results(&story), [refused]);
}

/// C35: what a person says of an unknown outcome is the result.
#[test]
fn a_recovery_answer_is_the_result() {
    let mut story = started();
    story.loses(1);
    assert_eq!(results(&story), Vec::<String>::new());
    story.decides(1, Choice::Answer { value: Body::text("it is written") });
    assert_eq!(results(&story), ["1: it is written"]);

    let mut story = started();
    story.loses(1);
    story.finishes(1, ok("written after all"));
    assert_eq!(results(&story), ["1: written after all"]);
}

#[test]
fn a_contradiction_changes_nothing_for_the_model() {
    let mut story = started();
    story.loses(1);
    story.decides(1, Choice::Deny { reason: None });
    let did_not =
        r#"1: {"status":"did_not_happen","reason":"not executed: a person says that it did not happen"}"#;
    assert_eq!(results(&story), [did_not]);
    assert_eq!(story.finishes_attempt(1, 1, ok("it did")), Answer::Contradicted);
    assert_eq!(results(&story), [did_not]);
}

#[test]
fn what_an_outside_worker_never_reported_is_unknown_until_it_does() {
    let mut story = Story::outside();
    story.proposes("read", r#"{"a":1}"#);
    let worker = crate::testing::worker();
    story.by(Actor::Outside(worker.clone()), Command::Release { worker });
    let never = "outcome unknown: the worker was allowed to run the call and never reported";
    let unknown = format!(r#"1: {{"status":"unknown","reason":"{never}"}}"#);
    assert_eq!(lines(&story), ["user: tidy up", "model:  [1:read]", &unknown]);

    story.reports(1, ok("read"));
    assert_eq!(lines(&story), ["user: tidy up", "model:  [1:read]", "1: read"]);
}
