//! Where the tasks of an inbox stand, as pages show it: the words of its API (S4-2), for people and in addresses.
//!
//! The API of inboxes is a surface of its own and has its own map; each can be removed without the other.

use std::collections::BTreeMap;

use standfast_core::event::Outcome;
use standfast_core::hold::HoldKind;
use standfast_core::id::HoldId;
use standfast_core::project::Phase;
use standfast_core::run::{Run, Status, WaitKind, status};

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskStatus {
    WaitingForInput,
    Pending,
    Claimed,
    InProgress,
    Completed,
    Failed,
    Cancelled,
}

impl TaskStatus {
    /// All of them, those that somebody should look at first.
    pub(super) const ALL: [TaskStatus; 7] = [
        TaskStatus::WaitingForInput,
        TaskStatus::Pending,
        TaskStatus::Claimed,
        TaskStatus::InProgress,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
    ];

    /// Where a run stands, as a task. `below` are the open holds of its sub-runs: what it really waits for.
    pub(super) fn of(run: &Run, below: &[(HoldId, HoldKind)]) -> TaskStatus {
        let waits_below = below.iter().any(|(_, kind)| *kind != HoldKind::External);
        match status(run) {
            Status::Queued => TaskStatus::Pending,
            Status::Claimed => TaskStatus::Claimed,
            Status::Held(WaitKind::Person | WaitKind::Auth) => TaskStatus::WaitingForInput,
            Status::Held(WaitKind::External) if waits_below => TaskStatus::WaitingForInput,
            Status::Working | Status::Retrying(_) | Status::Held(WaitKind::External) => {
                TaskStatus::InProgress
            }
            Status::Ended(Outcome::Completed) => TaskStatus::Completed,
            Status::Ended(Outcome::Failed | Outcome::Rejected) => TaskStatus::Failed,
            Status::Ended(Outcome::Canceled) => TaskStatus::Cancelled,
        }
    }

    /// As addresses have it.
    pub(super) fn word(self) -> &'static str {
        match self {
            TaskStatus::WaitingForInput => "waiting_for_input",
            TaskStatus::Pending => "pending",
            TaskStatus::Claimed => "claimed",
            TaskStatus::InProgress => "in_progress",
            TaskStatus::Completed => "completed",
            TaskStatus::Failed => "failed",
            TaskStatus::Cancelled => "cancelled",
        }
    }

    /// As people read it.
    pub(super) fn label(self) -> &'static str {
        match self {
            TaskStatus::WaitingForInput => "Waiting for Input",
            TaskStatus::Pending => "Pending",
            TaskStatus::Claimed => "Claimed",
            TaskStatus::InProgress => "In progress",
            TaskStatus::Completed => "Completed",
            TaskStatus::Failed => "Failed",
            TaskStatus::Cancelled => "Cancelled",
        }
    }

    /// The phases that runs in this status can be in.
    pub(super) fn phases(self) -> Vec<Phase> {
        match self {
            TaskStatus::Pending => vec![Phase::Queued],
            TaskStatus::Claimed => vec![Phase::Claimed],
            TaskStatus::InProgress => vec![Phase::Working, Phase::Retrying, Phase::HeldForExternal],
            TaskStatus::WaitingForInput => {
                vec![Phase::HeldForPerson, Phase::HeldForAuth, Phase::HeldForExternal]
            }
            TaskStatus::Completed => vec![Phase::Completed],
            TaskStatus::Failed => vec![Phase::Failed, Phase::Rejected],
            TaskStatus::Cancelled => vec![Phase::Canceled],
        }
    }

    /// How many tasks are in it. One whose sub-run waits for a person counts as in progress here.
    pub(super) fn count(self, runs: &BTreeMap<Phase, u64>) -> u64 {
        let is_counted = |phase: &Phase| match self {
            TaskStatus::WaitingForInput => matches!(phase, Phase::HeldForPerson | Phase::HeldForAuth),
            other => other.phases().contains(phase),
        };
        runs.iter().filter(|(phase, _)| is_counted(phase)).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S4-2, S4-17: people read the words of the API, with its spelling; one of them is given letter by letter.
    #[test]
    fn people_read_the_words_of_the_api() {
        for status in TaskStatus::ALL {
            assert_eq!(status.label().to_lowercase().replace(' ', "_"), status.word());
        }
        assert_eq!(TaskStatus::WaitingForInput.label(), "Waiting for Input");
    }

    /// Every run is counted once, whatever its phase.
    #[test]
    fn counts_add_up() {
        let phases = [
            Phase::Queued,
            Phase::Claimed,
            Phase::Working,
            Phase::Retrying,
            Phase::HeldForExternal,
            Phase::HeldForPerson,
            Phase::HeldForAuth,
            Phase::Completed,
            Phase::Failed,
            Phase::Rejected,
            Phase::Canceled,
        ];
        for phase in phases {
            let runs = BTreeMap::from([(phase, 3)]);
            let counted: u64 = TaskStatus::ALL.iter().map(|status| status.count(&runs)).sum();
            assert_eq!(counted, 3, "{phase:?}");
        }
    }
}
