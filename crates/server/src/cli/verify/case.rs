//! The cases: what each promises, when it does not apply, what came of it.
//!
//! How one is played is `play.rs`, what makes it pass `judge.rs`.

use clap::ValueEnum;
use standfast::config::{AgentPlan, RunStorage};
use standfast_core::message::Replay;

use super::choose::HeldCall;
use super::rehearsal::StoreKind;

/// A part of the promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Case {
    /// A hold survives `kill -9` of its server.
    KillWhileHeld,
    /// After `kill -9` inside the tool the outcome is unknown and a person decides.
    KillInTool,
    /// Several clients approve at once: one decision, one start.
    DoubleApproval,
    /// An approval with the digest of an older version is refused.
    StaleDigest,
    /// Edited arguments are what runs.
    EditedArguments,
    /// What was denied never runs.
    Denied,
    /// Without a decision before the deadline, the configured default applies.
    Expiry,
    /// Without its store the server acknowledges nothing.
    LostStore,
    /// A run that began on one node is decided on another.
    TwoNodes,
}

impl Case {
    pub(super) const ALL: [Case; 9] = [
        Case::KillWhileHeld,
        Case::KillInTool,
        Case::DoubleApproval,
        Case::StaleDigest,
        Case::EditedArguments,
        Case::Denied,
        Case::Expiry,
        Case::LostStore,
        Case::TwoNodes,
    ];

    /// As it is written on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Case::KillWhileHeld => "kill-while-held",
            Case::KillInTool => "kill-in-tool",
            Case::DoubleApproval => "double-approval",
            Case::StaleDigest => "stale-digest",
            Case::EditedArguments => "edited-arguments",
            Case::Denied => "denied",
            Case::Expiry => "expiry",
            Case::LostStore => "lost-store",
            Case::TwoNodes => "two-nodes",
        }
    }

    /// Why it cannot be played with this call; none if it can.
    pub(super) fn inapplicable(
        self,
        plan: &AgentPlan,
        call: &HeldCall,
        store: StoreKind,
        named: StoreKind,
    ) -> Option<String> {
        let in_memory = || {
            let why = "its runs are kept in memory, so a restart loses them; give it a session_store";
            (plan.lives == RunStorage::InMemory).then(|| why.to_owned())
        };
        match self {
            Case::KillWhileHeld => in_memory(),
            Case::KillInTool => in_memory().or_else(|| match call.replay {
                Replay::Never => None,
                Replay::Idempotent => {
                    Some(format!("{} is declared idempotent, so it is started again by itself", call.tool))
                }
            }),
            Case::DoubleApproval | Case::StaleDigest | Case::Denied => None,
            Case::EditedArguments => {
                let why =
                    format!("no second arguments of {} were found that the policy does not deny", call.tool);
                call.edited.is_none().then_some(why)
            }
            Case::Expiry => {
                let why =
                    "a decision may take any time: neither the agent nor its tool nor a rule has a timeout";
                call.holds.timeout.is_none().then(|| why.to_owned())
            }
            Case::LostStore => in_memory(),
            Case::TwoNodes => in_memory().or_else(|| match (store, named) {
                (StoreKind::Postgres, _) => None,
                (_, StoreKind::Postgres) => {
                    Some("it needs a Postgres to make a database in; name one with --postgres URL".to_owned())
                }
                (_, StoreKind::Sqlite | StoreKind::Files) => {
                    Some(format!("its store is {}, which one server opens", named.as_str()))
                }
            }),
        }
    }
}

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    NotApplicable,
}

impl Verdict {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::NotApplicable => "not applicable",
        }
    }
}

/// A case with what came of it.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) case: Case,
    pub(super) verdict: Verdict,
    /// What was seen, what was wrong, or why it does not apply: one sentence.
    pub(super) why: String,
    /// How long it took.
    pub(super) millis: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for case in Case::ALL {
            assert_eq!(case.to_possible_value().unwrap().get_name(), case.name());
        }
        assert_eq!(Case::value_variants(), Case::ALL);
    }
}
