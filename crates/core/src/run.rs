//! The state of a run: what its events fold into.
//!
//! Control state only: stage, calls of the current turn, open holds, counters. Arguments, messages and results stay
//! in the events, so that the row stays small however long the conversation. `apply.rs` changes it, nothing else.

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::approver::Approver;
use crate::digest::{self, Digest};
use crate::event::{Claim, Driver, Outcome, Parent};
use crate::hold::{Hold, HoldKind};
use crate::id::{CallNo, HoldId, HoldKey, Incarnation, RequestKey, RunId, Seq};
use crate::message::{FileDigest, Replay, Usage, is_default};
use crate::name::{AgentName, InboxName, RuleId, SessionId, Tenant, ToolName, UserId, WorkerName};
use crate::time::Timestamp;

/// Version of the fold. A row with an older one is rebuilt from its events; a newer one is left alone.
pub const FOLD_VERSION: u32 = 2;

/// A run as its events left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// What never changes.
    pub facts: Facts,
    /// What does.
    pub state: State,
}

/// What is fixed when a run starts. A store keeps these as columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Its id.
    pub id: RunId,
    /// Whose run it is.
    pub tenant: Tenant,
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub session: SessionId,
    /// Who started it.
    pub owner: UserId,
    /// Who drives it.
    pub driver: Driver,
    /// Where a sub-run comes from.
    pub parent: Option<Parent>,
    /// When it started.
    pub started_at: Timestamp,
    /// Its place in an inbox.
    pub inbox: Option<InboxEntry>,
}

/// A run's place in an inbox, as far as workers choose by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxEntry {
    /// Which inbox.
    pub inbox: InboxName,
    /// The kind of work.
    pub kind: String,
    /// 0 low, 1 normal, 2 high, 3 urgent.
    pub priority: u8,
    /// The agent that should take it, if only one should.
    pub target_agent: Option<AgentName>,
    /// How often it may be tried.
    pub max_attempts: u32,
    /// Until when somebody must have taken it.
    pub expires_at: Option<Timestamp>,
}

/// What changes from event to event. Stored as JSON under short names, because every append writes it and every held
/// run keeps it; the first three are columns of their own and not repeated in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Position of the last event.
    #[serde(skip)]
    pub seq: Seq,
    /// When it happened.
    #[serde(skip)]
    pub at: Timestamp,
    /// The definition it is pinned to.
    #[serde(skip)]
    pub definition: Digest,
    /// Where it stands.
    #[serde(rename = "s")]
    pub stage: Stage,
    /// Model replies so far.
    #[serde(default, skip_serializing_if = "is_default", rename = "t")]
    pub turn: u32,
    /// What they cost.
    #[serde(default, skip_serializing_if = "is_default", rename = "u")]
    pub usage: Usage,
    /// Event of the last reply.
    #[serde(default, skip_serializing_if = "is_default", rename = "reply")]
    pub replied_at: Seq,
    /// Messages so far.
    #[serde(default, skip_serializing_if = "is_default", rename = "said")]
    pub messages: u32,
    /// The calls of the current turn; of an outside run, those not yet settled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Digest of the results of the calls of this turn so far, while somebody may still be asked with it.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "res")]
    pub results: Option<Digest>,
    /// How many calls were ever made.
    #[serde(default, skip_serializing_if = "is_default", rename = "made")]
    pub calls_made: u32,
    /// The request of the current turn, kept once its first hold was resolved; before, it follows from that hold.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "req")]
    pub request: Option<RequestKey>,
    /// What is waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// Who resolved the last hold, or the clock.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "last")]
    pub last_decider: Option<Actor>,
    /// Somebody took it before its first turn; later that goes without saying.
    #[serde(default, skip_serializing_if = "is_default")]
    pub claimed: bool,
    /// The outside worker that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Claims by outside workers so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub claims: u32,
    /// How many of those claims ended because the worker asked somebody: they are no failed attempts.
    #[serde(default, skip_serializing_if = "is_default", rename = "asks")]
    pub suspensions: u32,
    /// The last outside worker that had it asked somebody, and nobody has claimed it since.
    #[serde(default, skip_serializing_if = "is_default")]
    pub asked: bool,
    /// When an outside worker may claim it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimable_at: Option<Timestamp>,
    /// Starts that a person declared void; a result that still comes contradicts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disowned: Vec<CallAttempt>,
    /// Sub-runs started so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub children: u32,
    /// Who was asked later on, by an escalation or in somebody's place, and so may see it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub let_in: Vec<Approver>,
    /// Its contents were deleted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub erased: bool,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The model is due.
    Thinking {
        /// Failures since its last reply.
        #[serde(default, skip_serializing_if = "is_default")]
        failures: u32,
        /// Not before this instant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// Calls are outstanding, or an outside worker has it.
    Acting,
    /// It has ended.
    Ended(Outcome),
}

/// A call of the current turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its number in the run.
    #[serde(rename = "n")]
    pub no: CallNo,
    /// The tool.
    pub tool: ToolName,
    /// The event with the arguments that will run: the proposal, or the last edit.
    pub at: Seq,
    /// Digest of the call as it was last shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Digest of the schema it was last shown with, if the run has moved to another definition since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Digest>,
    /// Digest of the files that it named when it was last shown; part of its own.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "f")]
    pub files: Option<Digest>,
    /// How often it was asked about again because they, its tool or what a rule looked up had changed.
    #[serde(default, skip_serializing_if = "is_default", rename = "rev")]
    pub revision: u32,
    /// Whether it may be started again by itself.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replay: Replay,
    /// Its starts so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: u32,
    /// Rules that people have satisfied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub satisfied: Vec<RuleId>,
    /// The outside worker that asked for it, and that alone may report on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
    /// Where it stands.
    #[serde(rename = "s")]
    pub state: CallState,
}

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It may start.
    Ready,
    /// It was started; its outcome is not known yet.
    Started {
        /// By this node.
        node: Incarnation,
        /// Latest instant at which the effect may begin.
        start_by: Timestamp,
    },
    /// It waits for the hold that names it.
    Held,
    /// It has its result.
    Done(CallOutcome),
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// The tool, a person or an outside system gave the result.
    Ok,
    /// The tool or the outside system failed.
    Failed,
    /// It never ran: unknown tool, bad arguments, a rule, a cap.
    Refused,
    /// A person denied it.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// It never ran: the run ended or a newer message came first, or a person says that it did not happen.
    NotExecuted,
    /// It may have run; nobody knows.
    Unknown,
}

/// One start of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallAttempt {
    /// Which call.
    pub call: CallNo,
    /// Which start of it.
    pub attempt: u32,
}

/// What a model has before it when it is asked: counted and digested, not by position, because positions move when
/// somebody else's append comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PromptBasis {
    /// Replies so far.
    pub turn: u32,
    /// Messages so far.
    pub messages: u32,
    /// Digest of the results of the calls of the last reply; none when they have none.
    pub results: Option<Digest>,
}

/// What a held run waits for, when there are several holds: what a person can do first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitKind {
    /// A person's decision or answer.
    Person,
    /// A login.
    Auth,
    /// Only outside systems.
    External,
}

/// A run in the words of the core; each surface maps them to its own (architecture, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Nobody works on it: it waits for a node, or for a worker to claim it (again).
    Queued,
    /// An outside worker has it.
    Claimed,
    /// Thinking or acting.
    Working,
    /// The model failed and is asked again at this instant.
    Retrying(Timestamp),
    /// Nothing can go on until something outside happens.
    Held(WaitKind),
    /// It has ended.
    Ended(Outcome),
}

impl Call {
    /// It is shown again, with the tool as it is now.
    pub(crate) fn show(&mut self, digest: Option<Digest>, files: &[FileDigest]) {
        self.digest = digest;
        self.files = digest::of_files(files);
        self.schema = None;
    }
}

impl Run {
    /// The call with this number, if it belongs to the current turn.
    #[must_use]
    pub fn call(&self, no: CallNo) -> Option<&Call> {
        self.state.calls.iter().find(|call| call.no == no)
    }

    /// A hold of this run as the world names it.
    #[must_use]
    pub fn hold_id(&self, key: HoldKey) -> HoldId {
        HoldId { run: self.facts.id, key }
    }

    /// The open hold with this key. Compares the secret in constant time.
    #[must_use]
    pub fn hold(&self, key: HoldKey) -> Option<&Hold> {
        self.state.holds.iter().find(|hold| hold.key == key)
    }

    /// What names the holds of the current turn: one request for each turn that opens some.
    #[must_use]
    pub fn request(&self) -> Option<RequestKey> {
        let of_first = |hold: &Hold| RequestKey::of_first_hold(self.state.turn, hold.key.secret);
        self.state.request.or_else(|| self.state.holds.first().map(of_first))
    }

    /// How it ended, if it did.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self.state.stage {
            Stage::Ended(outcome) => Some(outcome),
            Stage::Thinking { .. } | Stage::Acting => None,
        }
    }

    /// What a model that is asked now has before it.
    #[must_use]
    pub fn heard(&self) -> PromptBasis {
        PromptBasis { turn: self.state.turn, messages: self.state.messages, results: self.state.results }
    }

    /// Whether a model that was asked with this would be told the same today, but for messages that came since: those
    /// it hears in the next turn.
    #[must_use]
    pub fn is_asked_with(&self, heard: PromptBasis) -> bool {
        heard.turn == self.state.turn && heard.results == self.state.results
    }

    /// Whether anybody has worked on it.
    #[must_use]
    pub fn was_claimed(&self) -> bool {
        self.state.claimed || self.state.turn > 0
    }

    /// Whether the whole run waits, whatever its calls could do.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.state.holds.iter().any(|hold| hold.call() == CallNo::RUN)
    }

    /// A run is held exactly when something is waited for and nothing can go on meanwhile. Derived, never stored.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let can_go_on = |call: &Call| matches!(call.state, CallState::Ready | CallState::Started { .. });
        match self.state.stage {
            Stage::Ended(_) => false,
            Stage::Thinking { .. } => self.is_blocked(),
            Stage::Acting if self.state.holds.is_empty() => false,
            Stage::Acting => {
                let started = |call: &Call| matches!(call.state, CallState::Started { .. });
                if self.is_blocked() {
                    !self.state.calls.iter().any(started)
                } else {
                    !self.state.calls.iter().any(can_go_on)
                }
            }
        }
    }

    /// What a held run waits for.
    #[must_use]
    pub fn waiting(&self) -> Option<WaitKind> {
        if !self.is_held() {
            return None;
        }
        let of = |kind: HoldKind| match kind {
            HoldKind::Approval | HoldKind::Input | HoldKind::Recovery => WaitKind::Person,
            HoldKind::Auth => WaitKind::Auth,
            HoldKind::External => WaitKind::External,
        };
        let rank = |waiting: &WaitKind| match waiting {
            WaitKind::Person => 0,
            WaitKind::Auth => 1,
            WaitKind::External => 2,
        };
        self.state.holds.iter().map(|hold| of(hold.kind)).min_by_key(rank)
    }

    /// Whether it lies in an inbox until an agent of this server takes it: by priority and age, not by when it is due.
    #[must_use]
    pub fn waits_in_inbox(&self) -> bool {
        self.facts.driver == Driver::Loop
            && self.facts.inbox.is_some()
            && self.outcome().is_none()
            && !self.was_claimed()
    }

    /// Until when somebody must take it, if it lies in an inbox and nobody has it (S4-29, `taskTtl`).
    #[must_use]
    pub fn must_be_taken_by(&self) -> Option<Timestamp> {
        let place = self.facts.inbox.as_ref()?;
        let is_pending = self.is_claimable(Timestamp(i64::MAX)) && !self.state.asked;
        place.expires_at.filter(|_| is_pending)
    }

    /// When the outside worker that has it loses it without a sign of life; none while it waits for a person, or has said that
    /// it runs a call.
    #[must_use]
    pub fn claim_lapses_at(&self) -> Option<Timestamp> {
        let is_running =
            || self.state.calls.iter().any(|call| matches!(call.state, CallState::Started { .. }));
        let claim = self.state.claim.as_ref().filter(|_| !self.is_held() && !is_running())?;
        Some(claim.until)
    }

    /// How often outside workers have tried it; asking somebody in between is not a new attempt.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        // The claim that ended with a question is the current try.
        self.state.claims.saturating_sub(self.state.suspensions) + u32::from(self.state.asked)
    }

    /// Whether it may be claimed now: by an outside worker, or by an agent of this server that serves its inbox.
    #[must_use]
    pub fn is_claimable(&self, now: Timestamp) -> bool {
        let is_taken_once = self.facts.driver == Driver::Gate && self.state.claims == 0;
        (self.facts.driver == Driver::Outside || is_taken_once || self.waits_in_inbox())
            && self.outcome().is_none()
            && self.state.claim.is_none()
            && self.state.holds.is_empty()
            && self.state.claimable_at.is_none_or(|at| at <= now)
    }
}

/// The run in the words of the core.
#[must_use]
pub fn status(run: &Run) -> Status {
    match run.state.stage {
        Stage::Ended(outcome) => Status::Ended(outcome),
        Stage::Thinking { .. } | Stage::Acting => match run.waiting() {
            Some(waiting) => Status::Held(waiting),
            None => unheld_status(run),
        },
    }
}

fn unheld_status(run: &Run) -> Status {
    match run.state.stage {
        Stage::Thinking { retry_at: Some(at), .. } => Status::Retrying(at),
        Stage::Thinking { .. } | Stage::Acting | Stage::Ended(_) if !run.was_claimed() => Status::Queued,
        // Its worker failed, went silent or gave it back. One that asked and has its answer goes on (C19).
        Stage::Acting
            if run.facts.driver == Driver::Outside && run.state.claim.is_none() && !run.state.asked =>
        {
            Status::Queued
        }
        Stage::Acting
            if run.facts.driver == Driver::Outside
                && run.state.calls.is_empty()
                && run.state.claim.as_ref().is_some_and(|claim| claim.started_at.is_none()) =>
        {
            Status::Claimed
        }
        Stage::Thinking { .. } | Stage::Acting | Stage::Ended(_) => Status::Working,
    }
}
