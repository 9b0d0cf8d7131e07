//! Labels for people: kinds, states, decisions, actors, durations.
//!
//! For the surfaces that people read. `hidden_characters.rs` makes visible what a reader could not see, `events.rs` describes
//! what happened in a run, `closure.rs` how a hold ended that nothing came of, `notice.rs` what somebody is told who is asked,
//! `reason.rs` why something is held.
//! Protocols have terms of their own in their `map.rs`.

mod closure;
mod events;
#[cfg(test)]
pub(crate) mod example_hold;
pub mod hidden_characters;
pub(crate) mod notice;
pub(crate) mod reason;

use standfast_core::actor::Actor;
use standfast_core::event::{OrphanCause, Outcome};
use standfast_core::hold::HoldKind;
use standfast_core::project::ResolutionKind;
use standfast_core::receipt::{CallEffect, CallReceipt};
use standfast_core::run::{Status, WaitKind};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::GrantProposal;
use standfast_engine::tool::preview::Risk;

use crate::http::rfc3339;

pub(crate) use closure::closure;
pub use events::{EventLabel, LabelledText, decided, describe};

/// The rule of a standing approval in words, with its end: all of it, so that what is saved is what was read.
#[must_use]
pub fn grant_rule(proposal: &GrantProposal) -> Vec<String> {
    let mut lines = proposal.describe();
    lines.push(format!("until {}", instant(proposal.until)));
    lines
}

/// An instant as people read it, in UTC.
pub(crate) fn instant(at: Timestamp) -> String {
    let iso = rfc3339(at);
    format!("{} {} UTC", &iso[..10], &iso[11..19])
}

/// What a hold waits for.
#[must_use]
pub fn kind(kind: HoldKind) -> &'static str {
    match kind {
        HoldKind::Approval => "Approval",
        HoldKind::Input => "Question",
        HoldKind::External => "External job",
        HoldKind::Auth => "Login",
        HoldKind::Recovery => "Unknown outcome",
    }
}

/// How many of a kind, in words. `more` stands behind the number where there may be more of them.
pub(crate) fn counted_kind(kind: HoldKind, count: u64, more: &str) -> String {
    let is_one = count == 1 && more.is_empty();
    match (kind, is_one) {
        // A run waits for a sub-run as it does for an outside job.
        (HoldKind::External, true) => "1 job or sub-run".to_owned(),
        (HoldKind::External, false) => format!("{count}{more} jobs and sub-runs"),
        (kind, _) => {
            let word = self::kind(kind).to_lowercase();
            format!("{count}{more} {word}{}", if is_one { "" } else { "s" })
        }
    }
}

/// Where a run stands.
#[must_use]
pub fn status(status: Status) -> &'static str {
    match status {
        Status::Queued => "Queued",
        Status::Claimed => "Claimed by a worker",
        Status::Working => "Working",
        Status::Retrying(_) => "Retrying the model",
        Status::Held(WaitKind::Person) => "Waiting for a person",
        Status::Held(WaitKind::Auth) => "Waiting for a login",
        Status::Held(WaitKind::External) => "Waiting for an external system",
        Status::Ended(ended) => outcome(ended),
    }
}

/// How a run ended.
#[must_use]
pub fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "Completed",
        Outcome::Failed => "Failed",
        Outcome::Canceled => "Canceled",
        Outcome::Rejected => "Rejected",
    }
}

/// What was decided. On an unknown outcome the same decisions say other things.
#[must_use]
pub fn decision(kind: Option<HoldKind>, how: ResolutionKind) -> &'static str {
    let is_recovery = kind == Some(HoldKind::Recovery);
    match how {
        ResolutionKind::Approved if is_recovery => "Run again",
        ResolutionKind::Denied if is_recovery => "It did not happen",
        ResolutionKind::Answered if is_recovery => "It happened",
        ResolutionKind::Approved => "Approved",
        ResolutionKind::Edited => "Approved with edited arguments",
        ResolutionKind::Denied => "Denied",
        ResolutionKind::Answered => "Answered",
        ResolutionKind::Failed => "Failed",
        ResolutionKind::Expired => "Expired: nobody decided in time",
        ResolutionKind::Withdrawn => "Withdrawn: the run ended first",
        ResolutionKind::Superseded => "Superseded by a newer message",
    }
}

/// What became of a call.
#[must_use]
pub fn effect(call: &CallReceipt) -> &'static str {
    match call.effect {
        CallEffect::Executed => "It ran.",
        CallEffect::Failed => "It ran and failed.",
        CallEffect::NotExecuted => "It did not run.",
        CallEffect::OutcomeUnknown => "It may have run; the outcome is unknown.",
        CallEffect::Running => "It started and has not finished yet.",
        CallEffect::Waiting if call.attempts.is_empty() => "It has not started.",
        CallEffect::Waiting => "It was started, and how it ended is not known yet.",
    }
}

/// Why nobody knows what a call did; what earlier versions wrote does not say it.
#[must_use]
pub fn unknown_because(cause: Option<&OrphanCause>) -> String {
    match cause {
        None => "The server could not record how this call ended.".to_owned(),
        Some(OrphanCause::ServerLost) => {
            "The server that ran this call stopped, or lost its connection to the store, before it reported."
                .to_owned()
        }
        Some(OrphanCause::Tool(why)) => format!("The tool could not tell how the call ended: {why}"),
        Some(OrphanCause::Crash) => "The tool crashed while this call ran.".to_owned(),
        Some(OrphanCause::RunEnded) => {
            "The run ended while this call ran, and the call was stopped.".to_owned()
        }
        Some(OrphanCause::Unreported) => {
            "The worker was allowed to run this call and never reported.".to_owned()
        }
    }
}

/// What is known of the harm that a call can do.
#[must_use]
pub fn risk(risk: Risk) -> &'static str {
    match risk {
        Risk::ReadOnly => "Read-only",
        Risk::Reversible => "↺ Can be undone",
        Risk::Destructive => "⚠ Cannot be undone",
    }
}

/// Who caused something.
#[must_use]
pub fn actor(actor: &Actor) -> String {
    match actor {
        Actor::Person(user) | Actor::Client(user) => user.to_string(),
        Actor::Link(user) => format!("{user} (by link)"),
        Actor::Callback(user) => format!("{user} (callback)"),
        Actor::Outside(worker) => format!("worker {worker}"),
        Actor::Node(_) => "the server".into(),
        Actor::Clock => "the clock".into(),
    }
}

/// A span as people say it: its largest unit, and the next smaller one where that matters.
#[must_use]
pub fn span(span: Millis) -> String {
    let seconds = span.0.max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, word: &str, small: i64, small_word: &str| match small {
        0 => format!("{large} {word}"),
        _ => format!("{large} {word} {small} {small_word}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => two(hours, "h", minutes % 60, "min"),
        (1, _, _) => two(1, "day", hours % 24, "h"),
        (2..=6, _, _) => two(days, "days", hours % 24, "h"),
        (_, _, _) => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_one_or_two_units() {
        for (ms, text) in [
            (-5, "0 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (3_600_000, "1 h"),
            (5_400_000, "1 h 30 min"),
            (86_400_000, "1 day"),
            (90_000_000, "1 day 1 h"),
            (3 * 86_400_000, "3 days"),
            (30 * 86_400_000 + 3_600_000, "30 days"),
        ] {
            assert_eq!(span(Millis(ms)), text);
        }
    }

    /// Each cause is told as what it was, and none as another.
    #[test]
    fn every_cause_of_an_unknown_outcome_has_its_own_words() {
        let causes = [
            (None, "could not record how this call ended"),
            (Some(OrphanCause::ServerLost), "The server that ran this call stopped, or lost its connection"),
            (Some(OrphanCause::Tool("timed out".into())), "could not tell how the call ended: timed out"),
            (Some(OrphanCause::Crash), "The tool crashed while this call ran"),
            (Some(OrphanCause::RunEnded), "The run ended while this call ran"),
            (Some(OrphanCause::Unreported), "The worker was allowed to run this call and never reported"),
        ];
        for (cause, words) in &causes {
            let told = unknown_because(cause.as_ref());
            assert!(told.contains(words), "{told}");
            let others = causes.iter().filter(|(_, other)| other != words);
            assert!(
                others.clone().count() == 5 && others.clone().all(|(_, other)| !told.contains(other)),
                "{told}"
            );
        }
    }

    #[test]
    fn kinds_are_counted_by_what_they_hold() {
        assert_eq!(counted_kind(HoldKind::Approval, 2, ""), "2 approvals");
        assert_eq!(counted_kind(HoldKind::Auth, 1, ""), "1 login");
        assert_eq!(counted_kind(HoldKind::Input, 1, "+"), "1+ questions");
        assert_eq!(counted_kind(HoldKind::External, 1, ""), "1 job or sub-run");
        assert_eq!(counted_kind(HoldKind::External, 3, ""), "3 jobs and sub-runs");
    }

    #[test]
    fn an_unknown_outcome_has_its_own_decisions() {
        let words = [ResolutionKind::Approved, ResolutionKind::Answered, ResolutionKind::Denied]
            .map(|how| (decision(Some(HoldKind::Recovery), how), decision(Some(HoldKind::Approval), how)));
        let expected =
            [("Run again", "Approved"), ("It happened", "Answered"), ("It did not happen", "Denied")];
        assert_eq!(words, expected);
    }
}
