//! What whoever decides should know beside the call itself: why it is held, what is different now, what was looked up, what
//! follows from each decision, how many have agreed, who may decide.
//!
//! The same on every page that has a button to decide with: a hold's own page, a widget, a review, a link. Read from the
//! hold and from its own policy; nothing is guessed.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::hold::{AfterGrace, Finding, Hold, HoldKind, OnDeny, OnTimeout};
use standfast_core::name::UserId;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;

use crate::labels::hidden_characters::count_hidden;
use crate::labels::{self, reason};

/// Characters of a question that is a title; a longer one stands below.
const TITLE_MAX: usize = 200;

/// What stands beside a call.
#[derive(Debug, Serialize)]
pub(in crate::web) struct Stakes {
    reason: Option<String>,
    reason_label: &'static str,
    /// What is different now from when it was asked.
    drift: Vec<String>,
    /// What read-only calls found that were made before it was asked.
    findings: Vec<FindingShown>,
    consequences: Option<Consequences>,
    votes: Option<Votes>,
    deciders: String,
}

/// What a read-only call found.
#[derive(Debug, Serialize)]
struct FindingShown {
    tool: String,
    arguments: String,
    result: String,
    /// Whether it could not be asked.
    fails: bool,
}

impl FindingShown {
    fn of(found: &Finding) -> FindingShown {
        let Finding { tool, arguments, result, fails, digest: _ } = found.clone();
        FindingShown { tool, arguments, result, fails }
    }
}

/// Where several people must agree.
#[derive(Debug, Serialize)]
struct Votes {
    have: usize,
    needed: u32,
    by: Vec<String>,
}

/// What follows from each decision.
#[derive(Debug, Serialize)]
struct Consequences {
    approve: Option<String>,
    approve_label: &'static str,
    deny: Option<String>,
    silence: String,
    silence_label: &'static str,
    deciders_label: &'static str,
}

impl Stakes {
    /// Of a hold, for whoever looks.
    pub(in crate::web) fn of(view: &HoldView, who: &UserId, now: Timestamp) -> Stakes {
        let open = view.open.as_ref().filter(|_| view.ask.child.is_none());
        Stakes {
            reason: reason::why(view),
            reason_label: reason::label(view),
            drift: view.drift.iter().map(|drift| drift.text.clone()).collect(),
            findings: view.ask.stakes.findings.iter().map(FindingShown::of).collect(),
            consequences: open.map(|hold| consequences(hold, view, who, now)),
            votes: open.filter(|hold| hold.has_quorum()).map(|hold| Votes {
                have: hold.votes.len(),
                needed: u32::try_from(hold.votes.len())
                    .unwrap_or(u32::MAX)
                    .saturating_add(hold.votes_missing()),
                by: hold.votes.iter().map(ToString::to_string).collect(),
            }),
            deciders: capitalized(&view.deciders),
        }
    }

    /// How many hidden characters it shows as marks.
    pub(in crate::web) fn hidden(&self) -> usize {
        let found = self.findings.iter().flat_map(|found| [&found.arguments, &found.result]);
        self.reason.iter().chain(found).map(|text| count_hidden(text)).sum()
    }
}

/// What is asked, in a line: the same on every page.
pub(in crate::web) fn title(view: &HoldView) -> String {
    let tool = view.row.tool.as_ref().map_or_else(|| "The run".to_owned(), ToString::to_string);
    match view.row.kind {
        _ if view.ask.child.is_some() => format!("A sub-run works on {tool}"),
        HoldKind::Approval => format!("Approve {tool}?"),
        HoldKind::Input => {
            let question = view.ask.question.as_ref().and_then(Body::inline);
            let short = question.filter(|question| question.chars().count() <= TITLE_MAX);
            let asks = || {
                if view.is_asked_by_server {
                    "This run cannot go on".to_owned()
                } else {
                    format!("{} asks for input", view.row.agent)
                }
            };
            short.map_or_else(asks, str::to_owned)
        }
        HoldKind::External => format!("Waiting for the result of {tool}"),
        HoldKind::Auth => format!("{tool} needs a login"),
        HoldKind::Recovery => format!("Did {tool} take effect?"),
    }
}

/// As a value begins; names of people stay as they are.
fn capitalized(deciders: &str) -> String {
    deciders.strip_prefix("the ").map_or_else(|| deciders.to_owned(), |rest| format!("The {rest}"))
}

fn consequences(hold: &Hold, view: &HoldView, who: &UserId, now: Timestamp) -> Consequences {
    let tool = view.row.tool.as_ref().map_or_else(|| "the run".to_owned(), ToString::to_string);
    let (approve, approve_label) = match hold.kind {
        HoldKind::Approval => (Some(approving(hold, who, &tool)), "If you approve"),
        HoldKind::Input if view.is_asked_by_server => {
            (Some("The server tries again to continue the run.".to_owned()), "If you answer")
        }
        HoldKind::Input => (Some("The agent gets your answer and continues.".to_owned()), "If you answer"),
        HoldKind::Auth if view.may_log_in => {
            let owner = &view.owner;
            (
                Some(format!("The run goes on, and runs of {owner} use this login from then on.")),
                "If you log in",
            )
        }
        HoldKind::External | HoldKind::Auth | HoldKind::Recovery => (None, "If you answer"),
    };
    let deny = match (hold.kind, hold.policy.on_deny) {
        (HoldKind::Approval, OnDeny::Continue) => {
            Some(format!("{tool} does not run. The agent gets your reason and continues."))
        }
        (HoldKind::Approval, OnDeny::Cancel) => {
            Some(format!("{tool} does not run, and the whole run is canceled."))
        }
        (HoldKind::Input | HoldKind::External | HoldKind::Auth | HoldKind::Recovery, _) => None,
    };
    let (silence_label, deciders_label) = match hold.kind {
        HoldKind::Input => ("If nobody answers", "Who may answer"),
        HoldKind::External => ("If no result comes", "Who may enter it"),
        HoldKind::Auth => ("If nobody logs in", "Who may decide"),
        HoldKind::Approval | HoldKind::Recovery => ("If nobody decides", "Who may decide"),
    };
    Consequences { approve, approve_label, deny, silence: silence(hold, now), silence_label, deciders_label }
}

/// What an approval leads to.
fn approving(hold: &Hold, who: &UserId, tool: &str) -> String {
    if hold.votes.contains(who) {
        return format!("You have approved already. {tool} runs when others have approved as well.");
    }
    let unmet = hold.demands.iter().filter(|demand| demand.missing() > 0).count();
    match (hold.votes_missing(), unmet) {
        (0 | 1, 0 | 1) => format!("{tool} runs once, with exactly these arguments."),
        (missing, 0 | 1) => {
            let others = missing - 1;
            let (people, have) = if others == 1 { ("other person", "has") } else { ("other people", "have") };
            format!("Your approval counts. {tool} runs when {others} {people} {have} approved as well.")
        }
        (_, rules) => format!(
            "Your approval counts. {tool} runs when the approvers of each of {rules} rules have approved."
        ),
    }
}

/// What happens when nobody decides.
fn silence(hold: &Hold, now: Timestamp) -> String {
    match (hold.expires_at, hold.expired_at) {
        _ if !hold.kind.can_expire() => "It stays open until somebody decides.".to_owned(),
        (None, _) => "It waits until somebody decides: there is no deadline.".to_owned(),
        (Some(_), Some(_)) => match (hold.policy.grace, hold.policy.after_grace) {
            (None, _) => "The deadline has passed; a late decision still counts.".to_owned(),
            (Some(_), AfterGrace::Fail) => {
                "The deadline has passed; a late decision still counts for a while, then the run fails."
                    .to_owned()
            }
            (Some(_), AfterGrace::Cancel) => {
                "The deadline has passed; a late decision still counts for a while, then the run is canceled."
                    .to_owned()
            }
        },
        (Some(at), None) => {
            let then = match hold.policy.on_timeout {
                OnTimeout::Fail => "the run fails",
                OnTimeout::Deny => "it counts as denied",
                OnTimeout::ResumeWithError => "the agent gets an error and continues",
                OnTimeout::Cancel => "the run is canceled",
                OnTimeout::Keep => "it is marked as late and stays open",
            };
            let left =
                if at > now { format!("In {}", labels::span(at.since(now))) } else { "Now".to_owned() };
            format!("{left}, {then}.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_begins_with_a_capital_letter() {
        assert_eq!(capitalized("the owner of the run or user:a"), "The owner of the run or user:a");
        assert_eq!(capitalized("user:the"), "user:the");
    }
}
