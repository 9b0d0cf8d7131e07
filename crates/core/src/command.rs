//! Commands: what someone wants to happen to a run.
//!
//! A command carries what its sender knows; everything else that the rules need (time, randomness, verdicts, who may
//! decide) comes in the [`Context`]. Whether it may happen is `decide`'s business.

use crate::actor::Actor;
use crate::body::Body;
use crate::definition::Definition;
use crate::digest::{self, Digest};
use crate::event::{Driver, History, Inbox, OrphanCause, Parent};
use crate::hold::{Ask, HoldKind, RecordedDecision, Resolution};
use crate::id::{CallNo, HoldKey, Incarnation, RunId, Secret};
use crate::json::RawJson;
use crate::message::{Message, Part, ToolResult, Usage};
use crate::name::{AgentName, RuleId, SessionId, Tenant, ToolName, UserId, WorkerName};
use crate::policy::{Role, Verdicts};
use crate::reconcile::Reconciliation;
use crate::run::PromptBasis;
use crate::time::{Millis, Timestamp};
use crate::trace::Origin;

/// What the rules need beside run and command. Worked out by the engine before the core is asked.
#[derive(Debug, Clone)]
pub struct Context<'a> {
    /// The instant of the decision.
    pub now: Timestamp,
    /// Random bytes for ids and salts.
    pub entropy: Entropy,
    /// Who sends the command.
    pub actor: Actor,
    /// The definition that the run is pinned to.
    pub definition: &'a Definition,
    /// What rules and grants say of the calls that the command concerns.
    pub verdicts: &'a Verdicts,
    /// In what role the actor may decide the hold; none means not at all.
    pub authority: Option<Role>,
    /// The rules whose demands on a hold the actor counts for.
    pub counts_for: &'a [RuleId],
    /// The recorded decision, when the hold that the command names is no longer open.
    pub recorded: Option<&'a RecordedDecision>,
    /// Budgets and caps, always the current ones.
    pub limits: &'a Limits,
    /// The request that the command came with, where traces are on. Nothing is decided by it.
    pub origin: Option<&'a Origin>,
}

/// 32 random bytes, stretched into as many ids as a decision needs.
#[derive(Clone, Copy)]
pub struct Entropy(pub [u8; 32]);

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entropy(..)")
    }
}

impl Entropy {
    /// 128 bits for the n-th use under this label.
    #[must_use]
    pub fn draw(&self, label: &str, n: u32) -> Secret {
        let Digest(bytes) =
            digest::of_parts("standfast.entropy.1", &[&self.0, label.as_bytes(), &n.to_be_bytes()]);
        let mut secret = [0u8; 16];
        secret.copy_from_slice(&bytes[..16]);
        Secret(secret)
    }
}

/// Budgets and caps. Never pinned: a run that waited for weeks obeys today's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open holds of one run; further calls that need one are refused.
    pub open_holds: usize,
    /// Sub-runs below sub-runs.
    pub depth: u32,
    /// Sub-runs of one run.
    pub children: u32,
    /// Tries to get one reply from the model.
    pub model_attempts: u32,
    /// Starts of one idempotent call; then a person is asked.
    pub call_attempts: u32,
    /// Model replies of one run.
    pub turns: u32,
    /// Tokens of one run; none means without limit.
    pub tokens: Option<u64>,
    /// What one run may cost, in millionths of a currency unit; none means without limit.
    pub cost_micros: Option<u64>,
    /// How long after its `start_by` a started call is still taken to be somebody's.
    pub orphan_margin: Millis,
    /// How long a denied call is refused without asking, unless a person asks for it.
    pub deny_memory: Millis,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            open_holds: 64,
            depth: 8,
            children: 64,
            model_attempts: 5,
            call_attempts: 3,
            turns: 200,
            tokens: None,
            cost_micros: None,
            orphan_margin: Millis::seconds(2),
            deny_memory: Millis::hours(24),
        }
    }
}

/// What someone wants to happen to a run that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a command is there for one decision; a box would be an allocation for each"
)]
pub enum Command {
    /// A client says something more.
    Say(Say),
    /// A client, or a parent that ended, stops the run.
    Cancel {
        /// Why.
        reason: Option<String>,
    },
    /// Delete the contents of a run that has ended.
    Erase {
        /// Why, for the audit.
        reason: Option<String>,
    },

    /// An outside worker, or a node, begins to work on it.
    Claim(ClaimRun),
    /// An outside worker asks to run a call.
    Propose(Propose),
    /// An outside worker delivers the result of the run.
    Finish {
        /// Who.
        worker: WorkerName,
        /// The result.
        result: Body,
    },
    /// An outside worker, or a node, gives the run up.
    Fail(FailRun),
    /// An outside worker that has the run begins to work on it.
    StartWork {
        /// Who.
        worker: WorkerName,
    },
    /// An outside worker still works.
    Heartbeat {
        /// Who.
        worker: WorkerName,
    },
    /// An outside worker gives the run back.
    Release {
        /// Who.
        worker: WorkerName,
    },

    /// A person or a callback decides a hold.
    Resolve(Resolve),
    /// A person decides several holds at once, all or none of them (S1-30).
    ResolveAll(Vec<Resolve>),
    /// A person denies what is asked and stops the run with it (C4).
    Reject(Reject),
    /// A person agrees, where several must.
    Vote(Decide),
    /// A person changes the arguments without deciding yet.
    Edit(Edit),
    /// Someone in particular is asked.
    Assign {
        /// Which hold.
        hold: HoldKey,
        /// Who; none means nobody in particular.
        to: Option<UserId>,
        /// Until when; none means until somebody says otherwise.
        until: Option<Timestamp>,
    },
    /// One who may decide a hold lets somebody else decide in their place for a while.
    Delegate {
        /// Which hold.
        hold: HoldKey,
        /// Who stands in.
        to: UserId,
        /// Until when.
        until: Timestamp,
    },
    /// A kept hold that expired gets a new deadline.
    Reopen {
        /// Which hold.
        hold: HoldKey,
        /// Until when; none means without limit.
        expires_at: Option<Timestamp>,
    },
    /// A person moves the run to another definition of its agent.
    Repin {
        /// The new definition.
        definition: Digest,
    },

    /// The model answered.
    RecordReply(RecordReply),
    /// The model could not be asked, or nobody knows whether it was.
    RecordFailure(RecordFailure),
    /// A node is about to run a call.
    Begin(Begin),
    /// A node was too late to run it.
    Return {
        /// Which call.
        call: CallNo,
        /// Which start of it.
        attempt: u32,
    },
    /// News from a running call or an outside job.
    Progress {
        /// Which call.
        call: CallNo,
        /// The news.
        note: Body,
        /// Whether the outside system works on it; none when it does not say.
        processing: Option<bool>,
    },
    /// A call has its result.
    FinishCall(FinishCall),
    /// A call cannot go on before something outside happens.
    Suspend(Suspend),
    /// Whoever started a call is gone.
    Orphan {
        /// Which call.
        call: CallNo,
        /// Which start of it.
        attempt: u32,
        /// The node that says so; one that lost its own call need not wait.
        node: Incarnation,
        /// Why its outcome is not known.
        why: OrphanCause,
        /// What was found out of it, where its tool names a call for that.
        reconciled: Option<Box<Reconciliation>>,
    },

    /// Time has passed.
    Tick,
}

/// A new run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Its id, made by the engine, or derived from its parent.
    pub id: RunId,
    /// Whose run.
    pub tenant: Tenant,
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub session: SessionId,
    /// Who starts it.
    pub owner: UserId,
    /// Who drives it.
    pub driver: Driver,
    /// The definition it is pinned to: the digest of the context's, worked out once by the engine.
    pub definition: Digest,
    /// The run and call above it.
    pub parent: Option<Parent>,
    /// Its place in an inbox.
    pub inbox: Option<Inbox>,
    /// What to do.
    pub message: Message,
    /// Whether the node that stores it works on it at once.
    pub taken: Admission,
    /// The runs before it in its conversation.
    pub history: Option<History>,
}

/// Whether a new run waits in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The node that stores it works on it at once.
    AtOnce,
    /// It waits for a node or a worker.
    Queued,
}

/// A further message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Say {
    /// The message.
    pub message: Message,
    /// What it does to a run that waits for a person.
    pub on_hold: OnHold,
}

/// What a message does to a run that waits for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnHold {
    /// Nothing: the run stays held and the sender gets a refusal. A message that decides arrives as [`Resolve`].
    #[default]
    Refuse,
    /// It takes the place of what was asked.
    Supersede,
}

/// Someone begins to work on a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimRun {
    /// A node takes a queued run.
    Node,
    /// An outside worker takes it for a while.
    Worker {
        /// Who.
        worker: WorkerName,
        /// How long a sign of life counts.
        period: Millis,
    },
}

/// A call that an outside worker asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Propose {
    /// Who; must hold the claim.
    pub worker: WorkerName,
    /// The call.
    pub call: AskedCall,
    /// Why, for the approver.
    pub context: Option<Body>,
    /// The schema of the tool, by its digest, where the worker brings the tool and says so.
    pub schema: Option<Digest>,
}

/// Someone gives a run up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailRun {
    /// The outside worker; none when it is a node.
    pub worker: Option<WorkerName>,
    /// What went wrong.
    pub error: String,
    /// What the worker has to say beyond that, as it said it.
    pub detail: Option<Body>,
    /// What it means.
    pub kind: FailKind,
    /// What the model had before it when it gave up; none when it is not the model that did.
    pub heard: Option<PromptBasis>,
}

/// What a failure of a run means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailKind {
    /// It may pass: try again later, while attempts are left.
    Transient {
        /// When.
        retry_at: Timestamp,
    },
    /// It is final.
    Final,
    /// It has worked for as long as it may: what it had started is stopped, and nobody knows what that did.
    OutOfTime,
    /// The agent would not take the work.
    Rejected,
}

/// A hold, and what its decider saw of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decide {
    /// Which hold.
    pub hold: HoldKey,
    /// The digest that was shown, if the decider repeats it.
    pub digest: Option<Digest>,
    /// The revision that was shown, if the decider repeats it.
    pub revision: Option<u32>,
}

/// A decision on a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    /// The hold as the decider saw it.
    pub decide: Decide,
    /// What is decided.
    pub resolution: Choice,
    /// Makes a repeat safe.
    pub idempotency_key: Option<String>,
    /// The message that decides, where it is one.
    pub message: Option<Box<Message>>,
}

/// A no that stops the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// What it denies; each must still be open.
    pub holds: Vec<HoldKey>,
    /// Why.
    pub reason: Option<String>,
    /// Makes a repeat safe.
    pub idempotency_key: Option<String>,
}

/// What a person or a callback decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Run it; on a recovery hold: again.
    Approve,
    /// Run it with these arguments instead.
    ApproveEdited {
        /// Checked against the tool's schema by the engine.
        arguments: RawJson,
    },
    /// Do not run it; on a recovery hold: it did not happen.
    Deny {
        /// Told to the model.
        reason: Option<String>,
    },
    /// The answer, the result, or *it happened*.
    Answer {
        /// Checked against the answer schema by the engine.
        value: Body,
    },
    /// The outside job failed.
    Fail {
        /// What it said.
        error: Body,
    },
    /// The outside job is no longer waited for (C37).
    Withdraw,
}

/// Other arguments for a held call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The hold as the editor saw it.
    pub decide: Decide,
    /// Checked against the tool's schema by the engine.
    pub arguments: RawJson,
}

/// A reply of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordReply {
    /// Its words.
    pub text: Option<String>,
    /// Data and files beside them.
    pub parts: Vec<Part>,
    /// The calls it asks for, in its order.
    pub calls: Vec<AskedCall>,
    /// The provider's own blocks.
    pub opaque: Option<RawJson>,
    /// What it cost.
    pub usage: Usage,
    /// The model that answered, when it is not the pinned one.
    pub model: Option<String>,
    /// What the model had before it: [`Run::heard`](crate::run::Run::heard) when it was asked.
    pub heard: PromptBasis,
}

/// A call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedCall {
    /// The provider's id.
    pub id: String,
    /// The tool's name, as written; may be no tool at all.
    pub tool: String,
    /// The argument text, as written; may be no JSON at all.
    pub arguments: String,
    /// What the engine found wrong with it beyond the text (the schema).
    pub problem: Option<String>,
}

/// A failure to get a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFailure {
    /// What the provider said.
    pub error: Body,
    /// When to ask again; none when asking again cannot help.
    pub retry_at: Option<Timestamp>,
    /// What the model had before it; none when whoever asked it is gone and nobody knows.
    pub heard: Option<PromptBasis>,
}

/// A node is about to run a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// Which call.
    pub call: CallNo,
    /// The node.
    pub node: Incarnation,
    /// An instant before the node's lease ends.
    pub start_by: Timestamp,
    /// What the log holds for the call, read by the node.
    pub stored: StoredCall,
    /// The random part of the id that an outside system will be told, when this call starts a job there.
    pub pending: Option<Secret>,
}

/// A call as the log holds it: what will run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCall {
    /// The tool.
    pub tool: ToolName,
    /// The argument text.
    pub arguments: String,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishCall {
    /// Which call.
    pub call: CallNo,
    /// Which start of it; of an outside run: 0.
    pub attempt: u32,
    /// The result.
    pub result: ToolResult,
    /// The outside worker that reports it; none when it is a node.
    pub worker: Option<WorkerName>,
}

/// A call, or the whole run, that cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspend {
    /// Which call; [`CallNo::RUN`] for the run.
    pub call: CallNo,
    /// Which start of it; 0 when it had not started.
    pub attempt: u32,
    /// What is waited for.
    pub kind: SuspendFor,
    /// What is asked.
    pub ask: Ask,
    /// How long it may wait, when that is not the policy's business (an outside job's own timeout).
    pub timeout: Option<Millis>,
    /// The hold's random part, when it had to be known before (a `pendingID` handed to the outside system).
    pub secret: Option<Secret>,
    /// The outside worker that suspends the run; none when it is a node.
    pub worker: Option<WorkerName>,
}

/// What a call can be suspended for; approval and recovery holds are opened by the rules alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendFor {
    /// A person's answer.
    Input,
    /// An outside system's result.
    External,
    /// A login.
    Auth,
}

impl From<SuspendFor> for HoldKind {
    fn from(kind: SuspendFor) -> HoldKind {
        match kind {
            SuspendFor::Input => HoldKind::Input,
            SuspendFor::External => HoldKind::External,
            SuspendFor::Auth => HoldKind::Auth,
        }
    }
}

impl Choice {
    /// The resolution without anything that the rules add.
    #[must_use]
    pub fn plain(&self) -> Resolution {
        match self {
            Choice::Approve | Choice::ApproveEdited { .. } => Resolution::Approve { edited: None },
            Choice::Deny { reason } => Resolution::Deny { reason: reason.clone() },
            Choice::Answer { value } => Resolution::Answer { value: value.clone() },
            Choice::Fail { error } => Resolution::Fail { error: error.clone() },
            Choice::Withdraw => Resolution::Withdraw,
        }
    }
}
