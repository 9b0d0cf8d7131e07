//! Events: **the durable format**, the only promise made to the future.
//!
//! An event says what happened, in the past tense, and is never changed once a release has written it: fields may be
//! added with a default, kinds may be added, nothing may be removed or renamed. Golden files under `tests/golden`
//! hold every kind and are parsed for ever. The doc comment of a kind is its transition rule; `apply.rs` folds it,
//! `decide/` emits it. `event/run_start.rs` is what its start says of a run, `event/values.rs` finds what people, models or tools wrote in it,
//! `event/kinds.rs` has the names of the kinds, `event/orphan.rs` what is said of a start that nobody knows the outcome of.

mod kinds;
mod orphan;
mod run_start;
mod values;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::approver::Approver;
use crate::body::Body;
use crate::budget::BudgetTake;
use crate::digest::Digest;
use crate::effect::EffectClaim;
use crate::grant::{GrantUse, SavedGrant};
use crate::hold::{Ask, Delegation, Demand, Escalation, HoldKind, HoldPolicy, Resolution, Stakes};
use crate::id::{CallNo, HoldKey, Incarnation, Seq};
use crate::message::{FileDigest, Message, PolicyVerdict, Reply, ToolCall, ToolResult, is_default};
use crate::name::{RuleId, UserId, WorkerName};
use crate::policy::Role;
use crate::time::{Millis, Timestamp};
use crate::trace::Origin;

pub use run_start::{Driver, EarlierRun, History, Inbox, Parent, RunStarted};

pub use orphan::{AfterOrphan, CallOrphaned, OrphanCause};

/// An event in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Its position in the run.
    pub seq: Seq,
    /// When it happened; never earlier than the event before it.
    pub at: Timestamp,
    /// Who caused it.
    pub actor: Actor,
    /// What happened.
    pub event: Event,
}

/// What happened to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The run exists. Always the first event, never a later one.
    #[serde(rename = "run.started")]
    RunStarted(RunStarted),
    /// Someone works on it: a node that took it from the queue, or an outside worker under a deadline.
    #[serde(rename = "run.claimed")]
    RunClaimed(RunClaimed),
    /// The outside worker no longer has it.
    #[serde(rename = "run.released")]
    RunReleased(RunReleased),
    /// A person moved it to another definition of its agent.
    #[serde(rename = "run.repinned")]
    RunRepinned(RunRepinned),
    /// Its contents were deleted; the chain stays.
    #[serde(rename = "run.erased")]
    RunErased(RunErased),
    /// It has ended. Only what became of calls that had started (`call.finished`, `call.returned`, `call.orphaned`,
    /// `call.contradicted`) and `run.erased` may follow.
    #[serde(rename = "run.ended")]
    RunEnded(RunEnded),
    /// A client said something that the model hears with its next turn.
    #[serde(rename = "message.received")]
    MessageReceived(MessageReceived),
    /// The same, said while the run was busy or waited for an outside system.
    #[serde(rename = "message.queued")]
    MessageQueued(MessageReceived),
    /// The model answered; its calls are proposed with it.
    #[serde(rename = "model.replied")]
    ModelReplied(ModelReplied),
    /// The model could not be asked, or nobody knows whether it was.
    #[serde(rename = "model.failed")]
    ModelFailed(ModelFailed),
    /// An outside worker asks to run a call.
    #[serde(rename = "call.proposed")]
    CallProposed(CallProposed),
    /// The call is about to run. Durable before its effect.
    #[serde(rename = "call.started")]
    CallStarted(CallStarted),
    /// It was too late to run it; nothing happened. It is ready again; after `run.ended` it was not executed.
    #[serde(rename = "call.returned")]
    CallReturned(CallReturned),
    /// News from a running call or an outside job; also what is said to followers of a call that a rule denied at once.
    #[serde(rename = "call.progressed")]
    CallProgressed(CallProgressed),
    /// The call has its result.
    #[serde(rename = "call.finished")]
    CallFinished(CallFinished),
    /// Whoever started the call is gone; nobody knows what it did.
    #[serde(rename = "call.orphaned")]
    CallOrphaned(CallOrphaned),
    /// A result came for an attempt that a person had declared void.
    #[serde(rename = "call.contradicted")]
    CallContradicted(CallFinished),
    /// Something outside is waited for.
    #[serde(rename = "hold.opened")]
    HoldOpened(Box<HoldOpened>),
    /// One of several people agreed.
    #[serde(rename = "hold.voted")]
    HoldVoted(HoldVoted),
    /// The arguments were changed; votes so far are void.
    #[serde(rename = "hold.edited")]
    HoldEdited(HoldEdited),
    /// Someone in particular is asked, or no longer.
    #[serde(rename = "hold.assigned")]
    HoldAssigned(HoldAssigned),
    /// People were reminded.
    #[serde(rename = "hold.reminded")]
    HoldReminded(HoldReminded),
    /// Its time passed. Closed by the `hold.resolved` that follows, unless it is kept.
    #[serde(rename = "hold.expired")]
    HoldExpired(HoldExpired),
    /// A kept hold got a new deadline.
    #[serde(rename = "hold.reopened")]
    HoldReopened(HoldReopened),
    /// It is decided, once.
    #[serde(rename = "hold.resolved")]
    HoldResolved(Box<HoldResolved>),
    /// Nobody decided for long enough: others are asked as well, and may decide.
    #[serde(rename = "hold.escalated")]
    HoldEscalated(HoldEscalated),
    /// One who may decide it lets somebody else decide in their place until an instant.
    #[serde(rename = "hold.delegated")]
    HoldDelegated(HoldDelegated),
}

/// What `run.claimed` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClaimed {
    /// The outside worker; absent when it was a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Whoever has it begins to work on it now. A claim alone, and a sign of life, do not say so.
    #[serde(default, skip_serializing_if = "is_default")]
    pub started: bool,
}

/// An outside worker's claim on a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Who has it.
    pub worker: WorkerName,
    /// Until when, unless it says that it still works.
    pub until: Timestamp,
    /// How long a sign of life counts.
    pub period: Millis,
    /// Counts the claims of the run.
    pub attempt: u32,
    /// When it began to work on it; absent while it only has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
}

/// What `run.released` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReleased {
    /// Why.
    pub why: ReleaseReason,
    /// When it may be claimed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// Why an outside worker no longer has a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseReason {
    /// It gave it back.
    Returned,
    /// Its deadline passed.
    Lapsed,
    /// It waits for a person's answer.
    Suspended,
    /// It failed in a way that may pass.
    Failed(Body),
}

/// What `run.repinned` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRepinned {
    /// The new definition.
    pub definition: Digest,
    /// What the calls that are not settled were shown with: the old definition's schemas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<ShownSchema>,
}

/// The schema that a call was shown with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownSchema {
    /// Which call.
    pub call: CallNo,
    /// Digest of the tool's description and schema.
    pub schema: Digest,
}

/// What `run.erased` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunErased {
    /// Why, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What `run.ended` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    /// How.
    pub outcome: Outcome,
    /// Why, when it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What an outside worker delivered, also with a failure; a loop's result is the model's last reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Body>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a result.
    Completed,
    /// With an error.
    Failed,
    /// Because someone, or a deny, said so.
    Canceled,
    /// The agent would not take it.
    Rejected,
}

/// What `message.received` and `message.queued` say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageReceived {
    /// The message.
    pub message: Message,
}

/// What `model.replied` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReplied {
    /// The reply.
    pub reply: Reply,
    /// How many of the run's messages the model had heard; later ones are still to be heard.
    pub heard: u32,
    /// Digest of the results of the calls of the turn before, as the model was asked with it
    /// ([`results_digest`](crate::transcript::results_digest)); absent when there was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_with: Option<Digest>,
}

/// What `model.failed` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// Counts the failures since the last reply.
    pub failures: u32,
    /// What the provider said.
    pub error: Body,
    /// When it is asked again; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// What `call.proposed` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallProposed {
    /// The call.
    pub call: ToolCall,
    /// Who asks.
    pub worker: WorkerName,
    /// Why the worker wants it, for the approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Body>,
    /// The schema of the tool, by its digest, where the worker brings the tool and says so: what a standing approval is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Digest>,
    /// The use of a standing approval that lets the worker run it: at most one call or start has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_use: Option<GrantUse>,
}

/// What `call.started` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStarted {
    /// Which call.
    pub call: CallNo,
    /// Counts its starts; part of the fencing token.
    pub attempt: u32,
    /// The node that starts it.
    pub node: Incarnation,
    /// The node gives the call back instead of starting it after this instant.
    pub start_by: Timestamp,
    /// What policy said directly before.
    pub judged: PolicyVerdict,
    /// The id that an outside system gets, and that the hold has once it opens: on record before it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<HoldKey>,
    /// What it claims in the world: at most one start has each of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectClaim>,
    /// What it takes from rolling budgets: at most one start has each of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<BudgetTake>,
    /// The use that it takes of a standing approval: at most one start has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_use: Option<GrantUse>,
}

/// What `call.returned` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReturned {
    /// Which call.
    pub call: CallNo,
    /// Which start of it.
    pub attempt: u32,
}

/// What `call.progressed` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallProgressed {
    /// Which call.
    pub call: CallNo,
    /// The news.
    pub note: Body,
    /// Whether the outside system now works on it (S2-4 `processing`); absent when it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing: Option<bool>,
}

/// What `call.finished` and `call.contradicted` say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFinished {
    /// Which call.
    pub call: CallNo,
    /// Which start of it; 0 when it never started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: u32,
    /// The result.
    pub result: ToolResult,
    /// The verdict that stopped it directly before its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<PolicyVerdict>,
}

/// What `hold.opened` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldOpened {
    /// Its id within the run.
    pub hold: HoldKey,
    /// What it waits for.
    pub kind: HoldKind,
    /// The event with the assistant's message that led to it; 0 when there is none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: Seq,
    /// Digest of the call as shown, when it is asked about again after a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The verdict that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<PolicyVerdict>,
    /// How many people must agree; 0 and 1 mean one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub votes_needed: u32,
    /// What each rule demands of those who decide; empty means one of whoever the agent says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demands: Vec<Demand>,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// What deny and silence do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: HoldPolicy,
    /// When people are reminded; absent where the policy's own span counts, from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_at: Option<Timestamp>,
    /// When others are asked as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalations: Vec<Escalation>,
    /// Over a cap: listed, but nobody is notified.
    #[serde(default, skip_serializing_if = "is_default")]
    pub muted: bool,
    /// The attempt whose outcome is unknown, on a recovery hold.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: u32,
    /// How often what is shown has changed: of a call that is asked about again because a file that it names, its tool or what
    /// a rule looked up is another one now, and 0 otherwise. Then a decision must say which it means.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u32,
    /// The files that the call names, as they are now, when it is asked about again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileDigest>,
    /// What is asked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ask: Ask,
}

/// What `hold.voted` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldVoted {
    /// Which hold.
    pub hold: HoldKey,
    /// Who agreed.
    pub by: UserId,
    /// In what role.
    pub role: Role,
    /// In whose place; absent when in their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_of: Option<UserId>,
    /// The rules whose demands their vote counts for; empty where the hold has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts_for: Vec<RuleId>,
    /// The message that decided, as its sender wrote it, for the history; models are not told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<Message>>,
}

/// What `hold.edited` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldEdited {
    /// Which hold.
    pub hold: HoldKey,
    /// The new arguments.
    pub edited: crate::hold::EditedArguments,
    /// What policy says of them.
    pub judged: PolicyVerdict,
    /// How many people must agree now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub votes_needed: u32,
    /// What each rule demands now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demands: Vec<Demand>,
    /// What is at stake now, where rules say.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stakes: Stakes,
    /// Why it is held now, where a rule says; absent where what was said before still counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the arguments are what they were: somebody wanted it asked again by what is there now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub asked_again: bool,
    /// In what role the arguments were changed.
    pub role: Role,
    /// The message that decided, as its sender wrote it, for the history; models are not told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<Message>>,
}

/// What `hold.assigned` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldAssigned {
    /// Which hold.
    pub hold: HoldKey,
    /// Who is asked; absent when nobody in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<UserId>,
    /// Until when; absent when until somebody says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What `hold.escalated` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldEscalated {
    /// Which hold.
    pub hold: HoldKey,
    /// Who is asked as well.
    pub to: Vec<Approver>,
    /// The rule that they may decide for; absent when all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleId>,
}

/// What `hold.delegated` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldDelegated {
    /// Which hold.
    pub hold: HoldKey,
    /// Who decides in whose place, and until when.
    pub delegation: Delegation,
    /// In what role the place is given.
    pub role: Role,
}

/// What `hold.reminded` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldReminded {
    /// Which hold.
    pub hold: HoldKey,
    /// When they are reminded again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
}

/// What `hold.expired` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldExpired {
    /// Which hold.
    pub hold: HoldKey,
    /// It stays open, marked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kept: bool,
}

/// What `hold.reopened` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldReopened {
    /// Which hold.
    pub hold: HoldKey,
    /// Its new deadline; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// What `hold.resolved` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldResolved {
    /// Which hold.
    pub hold: HoldKey,
    /// What was decided.
    pub resolution: Resolution,
    /// In what role; absent for expiry, withdrawal and supersession.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// In whose place; absent when in their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_of: Option<UserId>,
    /// The key that the decision was sent with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// It came after the deadline of a kept hold.
    #[serde(default, skip_serializing_if = "is_default")]
    pub late: bool,
    /// What policy said of edited arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<PolicyVerdict>,
    /// Digest of the call that this decision lets run; on an approval always there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The message that decided, as its sender wrote it, for the history; models are not told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<Message>>,
    /// The standing approval that it saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Box<SavedGrant>>,
    /// The request that decided; only where traces are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
}
