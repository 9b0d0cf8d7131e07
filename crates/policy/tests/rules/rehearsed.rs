//! What `standfast verify` asks of a policy: calls that its rules are about, and the same policy with other times.
//!
//! That a policy says the same of every call otherwise is what makes a rehearsal one of the user's own file.

use super::common::{call, policy};
use standfast_core::policy::Effect;
use standfast_core::time::{Millis, Timestamp};
use standfast_policy::call::ToolDefault;
use standfast_policy::span::Span;
use standfast_policy::witness::example_calls;

const RULES: &str = "
business_hours: {office: {time_zone: Europe/Berlin, days: {mon: ['09:00-17:00']}}}
rules:
- {id: small, allow: pay, where: {amount: {ge: 1, le: 100}}}
- {id: large, hold: pay, where: {amount: {gt: 100}}, expire_after: 48h, business_hours: office, match: [{amount: 250}]}
";

#[test]
fn examples_and_corners_of_rules_are_calls_that_they_match() {
    let policy = policy(RULES);
    let calls = example_calls(&policy);
    let held =
        calls.iter().filter(|call| policy.decide(call, ToolDefault::NeedsNoApproval).effect == Effect::Hold);
    let held: Vec<String> = held.filter_map(|call| call.arguments.value()).map(ToString::to_string).collect();
    assert_eq!(
        held.first().map(String::as_str),
        Some(r#"{"amount":250}"#),
        "written examples come first: {held:?}"
    );
    assert!(held.len() > 1, "{held:?}");
}

#[test]
fn with_other_times_a_policy_says_the_same_of_calls() {
    let written = policy(RULES);
    let shorter = written.with_rules(|rule| {
        rule.expire_after = rule.expire_after.map(|_| Span(Millis(1_500)));
        rule.business_hours = None;
    });
    let shorter = shorter.unwrap();
    for arguments in [r#"{"amount":7}"#, r#"{"amount":101}"#, "{}", "not JSON"] {
        let call = call("pay", arguments);
        let [before, after] =
            [&written, &shorter].map(|policy| policy.decide(&call, ToolDefault::ChangesWorld));
        assert_eq!((before.effect, before.decided_by), (after.effect, after.decided_by), "{arguments}");
    }
    let decision = shorter.decide(&call("pay", r#"{"amount":101}"#), ToolDefault::ChangesWorld);
    assert_eq!(decision.terms.deadlines(Timestamp(0)).expires_at, Some(Timestamp(1_500)));
}
