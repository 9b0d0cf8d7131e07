//! Refusals: a business no, part of the API.
//!
//! Each says what happened, to which id, and what the caller can do. Surfaces map them to their own error codes.

use std::fmt;

use crate::digest::Digest;
use crate::event::Outcome;
use crate::hold::{HoldKind, RecordedDecision, Resolution};
use crate::id::{CallNo, HoldId};
use crate::name::WorkerName;
use crate::time::Timestamp;

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The run has ended.
    Ended(Outcome),
    /// The run is not over, and the command is for runs that are.
    NotEnded,
    /// The run waits for a person, and the message decides nothing.
    Held {
        /// What it waits for.
        open: Vec<HoldId>,
    },
    /// There is no such hold in this run.
    NoSuchHold(HoldId),
    /// The hold has its decision.
    AlreadyDecided(Box<RecordedDecision>),
    /// The hold's time has passed.
    Expired(HoldId),
    /// The caller may not decide the hold; without a hold: may not change the run.
    NotAllowed(Option<HoldId>),
    /// This kind of hold does not take this decision.
    WrongKind {
        /// Which hold.
        hold: HoldId,
        /// Its kind.
        kind: HoldKind,
    },
    /// What the decider saw is no longer what would run.
    Stale {
        /// Which hold.
        hold: HoldId,
        /// What would run now.
        digest: Option<Digest>,
        /// Counts the edits.
        revision: u32,
    },
    /// The arguments were edited, or what is shown has changed, so a decision must repeat digest or revision.
    MustRepeatDigest {
        /// Which hold.
        hold: HoldId,
        /// What would run now.
        digest: Option<Digest>,
        /// Counts the edits.
        revision: u32,
    },
    /// A rule forbids the edited arguments.
    Forbidden {
        /// Which hold.
        hold: HoldId,
        /// What the rule says.
        reason: String,
    },
    /// The hold did not expire, so there is nothing to reopen.
    NotExpired(HoldId),
    /// The end that was named has passed.
    PastEnd(HoldId),
    /// There is no such call in the current turn.
    NoSuchCall(CallNo),
    /// The call is not in the state that the command needs.
    CallNotReady(CallNo),
    /// The result is for an attempt of the call that is no longer the current one.
    StaleAttempt {
        /// Which call.
        call: CallNo,
        /// The attempt that was reported.
        attempt: u32,
        /// The current one.
        current: u32,
    },
    /// The stored arguments are not the ones that were decided on.
    Tampered {
        /// Which call.
        call: CallNo,
        /// The digest that was decided on.
        decided: Option<Digest>,
        /// The digest of what is stored.
        stored: Digest,
    },
    /// The instant to start by has passed.
    TooLate(CallNo),
    /// The node that started the call may still be running it.
    NotOrphanedYet {
        /// Which call.
        call: CallNo,
        /// From when it can be said.
        from: Timestamp,
    },
    /// The run is not waiting for a model reply, or the reply was made from something else than what is stored.
    NotThinking,
    /// A call has started that may have changed the world; the run cannot simply fail.
    CallStarted(CallNo),
    /// Only the run's own driver may do this.
    WrongDriver,
    /// Another worker has the run.
    ClaimedByOther {
        /// Who; none when nobody has it.
        holder: Option<WorkerName>,
    },
    /// It cannot be claimed now.
    NotClaimable,
    /// A cap was reached.
    Cap {
        /// Of what.
        what: CapKind,
        /// The cap.
        max: u32,
    },
    /// The contents were deleted.
    Erased,
}

/// What can be capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapKind {
    /// Sub-runs of a run.
    Children,
    /// Sub-runs below sub-runs.
    Depth,
    /// Open holds of a run.
    OpenHolds,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Ended(outcome) => {
                write!(
                    f,
                    "the run has ended ({}); start a new one in the same session",
                    outcome_word(*outcome)
                )
            }
            Refusal::NotEnded => f.write_str("the run has not ended; cancel it first"),
            Refusal::Held { open } => {
                let ids: Vec<String> = open.iter().map(ToString::to_string).collect();
                write!(f, "the run is held, and this message decides nothing; open holds: {}", ids.join(", "))
            }
            Refusal::NoSuchHold(hold) => write!(f, "there is no hold {hold} in this run; reload the run"),
            Refusal::AlreadyDecided(recorded) => write!(
                f,
                "this hold was already decided: {} by {} at {}",
                resolution_word(&recorded.resolution),
                recorded.by,
                recorded.at.0
            ),
            Refusal::Expired(hold) => {
                write!(f, "hold {hold} expired; its deadline had passed before this decision")
            }
            Refusal::NotAllowed(Some(hold)) => {
                write!(f, "you may not decide hold {hold}; ask one of its approvers")
            }
            Refusal::NotAllowed(None) => {
                f.write_str("you may not change this run; ask its owner or an administrator")
            }
            Refusal::WrongKind { hold, kind } => {
                write!(f, "hold {hold} does not take this decision; {}", takes(*kind))
            }
            Refusal::Stale { hold, digest, revision } => write!(
                f,
                "hold {hold} has changed since you saw it: it is now revision {revision} with digest {}",
                shown(*digest)
            ),
            Refusal::MustRepeatDigest { hold, digest, revision } => write!(
                f,
                "what hold {hold} shows was edited or has changed: repeat revision {revision} or digest {} to decide",
                shown(*digest)
            ),
            Refusal::Forbidden { hold, reason } => {
                write!(f, "hold {hold} cannot be approved with these arguments: {reason}")
            }
            Refusal::NotExpired(hold) => write!(f, "hold {hold} has not expired, so it cannot be reopened"),
            Refusal::PastEnd(hold) => {
                write!(f, "the end that was given for hold {hold} has passed; name a later instant")
            }
            Refusal::NoSuchCall(call) => write!(f, "there is no call {call} in the run's current turn"),
            Refusal::CallNotReady(call) => {
                write!(f, "call {call} is not in a state that allows this; reload the run")
            }
            Refusal::StaleAttempt { call, attempt, current } if attempt == current => {
                write!(f, "attempt {attempt} of call {call} has already ended and takes no more reports")
            }
            Refusal::StaleAttempt { call, attempt, current } => {
                write!(
                    f,
                    "this reports attempt {attempt} of call {call}, but attempt {current} is the current one"
                )
            }
            Refusal::Tampered { call, decided, stored } => write!(
                f,
                "the stored arguments of call {call} have digest {stored}, but {} was decided on; nothing was started",
                shown(*decided)
            ),
            Refusal::TooLate(call) => {
                write!(f, "it is too late to start call {call} under this lease; renew the lease first")
            }
            Refusal::NotOrphanedYet { call, from } => {
                write!(f, "call {call} may still be running on the node that started it until {}", from.0)
            }
            Refusal::NotThinking => f.write_str("this run is not waiting for a model reply"),
            Refusal::CallStarted(call) => {
                write!(
                    f,
                    "call {call} has started and may have changed something; report it as orphaned instead"
                )
            }
            Refusal::WrongDriver => f.write_str("this run is driven by someone else"),
            Refusal::ClaimedByOther { holder: Some(worker) } => write!(f, "the run is claimed by {worker}"),
            Refusal::ClaimedByOther { holder: None } => {
                f.write_str("nobody has claimed the run; claim it first")
            }
            Refusal::NotClaimable => f.write_str("the run cannot be claimed now"),
            Refusal::Cap { what, max } => write!(f, "the limit of {max} {} is reached", capped_word(*what)),
            Refusal::Erased => f.write_str("the contents of this run were deleted"),
        }
    }
}

impl std::error::Error for Refusal {}

fn shown(digest: Option<Digest>) -> String {
    digest.map_or_else(|| "none".to_owned(), |digest| digest.to_string())
}

fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Failed => "failed",
        Outcome::Canceled => "canceled",
        Outcome::Rejected => "rejected",
    }
}

/// A decision in one word.
#[must_use]
pub fn resolution_word(resolution: &Resolution) -> &'static str {
    match resolution {
        Resolution::Approve { edited: None } => "approved",
        Resolution::Approve { edited: Some(_) } => "approved with edited arguments",
        Resolution::Deny { .. } => "denied",
        Resolution::Answer { .. } => "answered",
        Resolution::Fail { .. } => "failed",
        Resolution::Expire => "expired",
        Resolution::Withdraw => "withdrawn",
        Resolution::Supersede => "superseded",
    }
}

fn capped_word(what: CapKind) -> &'static str {
    match what {
        CapKind::Children => "sub-runs of a run",
        CapKind::Depth => "nested sub-runs",
        CapKind::OpenHolds => "open holds of a run",
    }
}

fn takes(kind: HoldKind) -> &'static str {
    match kind {
        HoldKind::Approval => "an approval takes approve (also with edited arguments) or deny",
        HoldKind::Input => "a question takes an answer or deny",
        HoldKind::External => "an outside job takes its result or fail; a sub-run only its own result",
        HoldKind::Auth => "a login takes an answer, deny or fail",
        HoldKind::Recovery => {
            "an unknown outcome takes approve (run again), an answer (it happened) or deny (it did not happen)"
        }
    }
}
