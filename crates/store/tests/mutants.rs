//! The tests are tested: with any one rule of the core switched off, scenarios must fail.
//!
//! Each mutant of `standfast_core::mutant` is switched on for this thread while all scenario files are played on the
//! memory store, whose appends run on the same thread. Which scenarios noticed is printed.

mod scenario_runner;

use std::panic::{self, AssertUnwindSafe};

use standfast_core::mutant::Mutant;

use scenario_runner::backends::MemoryBackend;
use scenario_runner::script::{self, Scenario};
use scenario_runner::{folder, play};

/// The scenarios that fail now, and why.
fn failing(scenarios: &[Scenario]) -> Vec<(String, String)> {
    let fails = |scenario: &Scenario| {
        let played = panic::catch_unwind(AssertUnwindSafe(|| play(scenario, Box::new(MemoryBackend))));
        let why = match played {
            Ok(Ok(_)) => return None,
            Ok(Err(why)) => why,
            Err(_) => "it panicked".to_owned(),
        };
        Some((scenario.name.clone(), format!("{why}\n    shows {}", scenario.shows.join(", "))))
    };
    scenarios.iter().filter_map(fails).collect()
}

/// A scenario in which the rule matters most; it must be among those that notice.
fn guardian(mutant: Mutant) -> &'static str {
    match mutant {
        Mutant::SequenceUnchecked => "two_people_decide_at_the_same_moment",
        Mutant::DecisionConsumedTwice => "another_decision_is_refused_with_the_record",
        Mutant::OrphanRetriedBlindly => "an_unknown_outcome_is_asked_about",
        Mutant::StartByUnchecked => "a_call_is_not_started_too_late",
        Mutant::DigestUnchecked => "tampered_arguments_never_run",
        Mutant::ExpiryUnchecked => "a_decision_after_the_deadline_is_refused",
        Mutant::AuthorityUnchecked => "who_may_not_decide_learns_nothing",
        Mutant::MissingVerdictAllows => "a_missing_verdict_holds",
        Mutant::TranscriptUnchecked => "a_reply_to_a_refused_decision_is_thrown_away",
        Mutant::DecisionsAskedAhead => unreachable!("a rule of the engine, which the simulation notices"),
    }
}

#[test]
fn scenarios_pass_with_every_rule_on() {
    let scenarios = script::read_all(&folder()).unwrap();
    assert_eq!(failing(&scenarios), []);
}

#[test]
fn scenarios_notice_every_rule_that_is_off() {
    let scenarios = script::read_all(&folder()).unwrap();
    for mutant in Mutant::ALL {
        let noticed = mutant.with(|| failing(&scenarios));
        let names: Vec<&str> = noticed.iter().map(|(name, _)| name.as_str()).collect();
        println!("{mutant:?} is noticed by {} scenarios: {}", names.len(), names.join(", "));
        assert!(names.contains(&guardian(mutant)), "{mutant:?} is not noticed by {}", guardian(mutant));
    }
    // The switch is off again.
    assert_eq!(failing(&scenarios), []);
}
