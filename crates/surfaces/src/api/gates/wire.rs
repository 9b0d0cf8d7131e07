//! The bodies of gates, as clients write and read them.
//!
//! Arguments stay raw text: what is approved is what runs, byte for byte. Instants are RFC 3339.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::api::wire::is_false;

/// A call that an agent wants to run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"tool": "send_refund", "arguments": {"order": "A-7", "amount": 40}, "agent": "billing", "session": "case-7", "call": "call_1", "words": "the customer returned it"}))]
pub(crate) struct OpenGate {
    /// The tool, as the agent calls it.
    pub(crate) tool: String,
    /// Its arguments: any JSON, kept byte for byte.
    #[schema(value_type = serde_json::Value)]
    pub(crate) arguments: Box<RawValue>,
    /// What a person is asked for. `answer`: nothing runs, and `arguments` are the question, with `question`, `options` and
    /// `answer_schema`.
    #[serde(default)]
    pub(crate) ask: GateAsk,
    /// JSON Schema of the arguments: checked now, and when somebody edits them.
    #[schema(value_type = Option<Object>)]
    pub(crate) arguments_schema: Option<Box<RawValue>>,
    /// What the agent is called.
    pub(crate) agent: String,
    /// The agent's conversation.
    pub(crate) session: String,
    /// What the agent calls this call: the same again, with the same arguments, is the same gate.
    pub(crate) call: String,
    /// The turn that the call belongs to.
    pub(crate) turn: Option<String>,
    /// The call above it, when a sub-agent asks.
    pub(crate) parent: Option<String>,
    /// Why, in the agent's own words.
    pub(crate) words: Option<String>,
    /// What approvers should see beside the arguments.
    #[serde(default)]
    pub(crate) context: Vec<Context>,
    /// What the tool says of itself. It is shown, and loosens nothing.
    pub(crate) hints: Option<Hints>,
    /// The deadline of the decision.
    pub(crate) deadline: Option<String>,
    /// What happens then.
    #[serde(default)]
    pub(crate) on_deadline: OnDeadline,
    /// A webhook that is called once it is decided, for a program that waits for it elsewhere.
    pub(crate) callback: Option<GateCallback>,
    /// How long the request waits for a decision, in milliseconds; 55000 at most.
    pub(crate) wait_ms: Option<u64>,
}

/// A webhook that is called once a gate is decided.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GateCallback, example = json!({"url": "https://temporal.example/api/v1/namespaces/default/workflows/order-7/signal/approved", "template": {"input": ["{{body}}"]}}))]
pub(crate) struct GateCallback {
    /// Where to send a POST.
    pub(crate) url: String,
    /// Headers of it, such as `Authorization`. Kept sealed, and shown to nobody.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Its body: any JSON, whose texts may have names of the gate's members in double braces, such as `{{state}}`, `{{decision.by}}`,
    /// `{{outcome.value}}`, or `{{body}}` for the gate as it is shown. A text that is nothing else becomes the value itself. Without
    /// it the body is the gate.
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) template: Option<Box<RawValue>>,
}

impl std::fmt::Debug for GateCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GateCallback(..)")
    }
}

/// What a person is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GateAsk {
    /// Whether the call may run.
    #[default]
    Approval,
    /// An answer; nothing runs.
    Answer,
}

/// A question to a person: the arguments of a gate that asks for an answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// The question.
    pub(crate) question: String,
    /// Answers to choose from.
    #[serde(default)]
    pub(crate) options: Vec<String>,
    /// JSON Schema of the answer.
    pub(crate) answer_schema: Option<Box<RawValue>>,
}

/// The calls of one turn.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenGates {
    /// The calls, in order.
    pub(crate) gates: Vec<OpenGate>,
}

/// Something that approvers should see: one of these.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GateContext)]
pub(crate) struct Context {
    /// Words.
    pub(crate) text: Option<String>,
    /// A unified diff.
    pub(crate) diff: Option<String>,
    /// Data: any JSON.
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) json: Option<Box<RawValue>>,
    /// An address.
    pub(crate) link: Option<String>,
}

/// What a tool says of itself.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GateHints)]
pub(crate) struct Hints {
    /// It changes nothing.
    #[serde(rename = "readOnly", skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    /// Something may be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive: Option<bool>,
    /// Doing it twice is doing it once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotent: Option<bool>,
    /// It reaches beyond its own world.
    #[serde(rename = "openWorld", skip_serializing_if = "Option::is_none")]
    pub(crate) open_world: Option<bool>,
}

/// What happens when nobody decides in time.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = GateOnDeadline)]
pub(crate) enum OnDeadline {
    /// The call must not run.
    #[default]
    Deny,
    /// Somebody may still decide.
    Keep,
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitArgs {
    /// How long to wait for a decision, in milliseconds; 55000 at most.
    pub(crate) wait_ms: Option<u64>,
}

/// The call begins.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartGate {
    /// The digest of the gate: that of the arguments that are about to run.
    pub(crate) digest: String,
    /// How long the outcome is awaited, in milliseconds; ten minutes unless said, a day at most.
    pub(crate) lease_ms: Option<u64>,
}

/// The call may run now, this once.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GateStart)]
pub(crate) struct StartedCall {
    /// The gate.
    pub(crate) gate: String,
    /// Which start it is; the outcome names it.
    pub(crate) attempt: u32,
    /// Until when the outcome is awaited; then a person is asked what the call did.
    pub(crate) start_by: String,
}

/// What came of a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportOutcome {
    /// Which start; absent when it was not started over this API.
    pub(crate) attempt: Option<u32>,
    /// In one word.
    pub(crate) status: OutcomeStatus,
    /// What it returned: any JSON.
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) result: Option<Box<RawValue>>,
    /// Why it failed, or why the outcome is unknown: any JSON.
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) error: Option<Box<RawValue>>,
}

/// What came of a call, in one word.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = GateOutcomeStatus)]
pub(crate) enum OutcomeStatus {
    /// It did what it should.
    Succeeded,
    /// It failed.
    Failed,
    /// It never ran.
    NotExecuted,
    /// Nobody knows: a person is asked.
    Unknown,
}

/// A gate is no longer wanted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WithdrawGate)]
pub(crate) struct Withdraw {
    /// Why.
    #[serde(default)]
    pub(crate) reason: WithdrawReason,
}

/// Why a gate is no longer wanted.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = GateWithdrawReason)]
pub(crate) enum WithdrawReason {
    /// The work was stopped.
    #[default]
    Cancelled,
    /// Somebody decided where the agent runs.
    DecidedElsewhere,
    /// Another call takes its place.
    Superseded,
}

/// A gate.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Gate {
    /// Its id: that of its run.
    pub(crate) gate: String,
    /// Where it stands.
    pub(crate) state: State,
    /// The hold that waits, or that was decided last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hold: Option<String>,
    /// The agent's conversation.
    pub(crate) session: String,
    /// What the agent calls the call.
    pub(crate) call: String,
    /// The tool.
    pub(crate) tool: String,
    /// The arguments that may run, or that were decided on last: any JSON.
    #[schema(value_type = serde_json::Value)]
    pub(crate) arguments: Box<RawValue>,
    /// Digest of tool and arguments: `start` repeats it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// How often the arguments were edited.
    pub(crate) revision: u32,
    /// When it expired, while a late decision still counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expired_at: Option<String>,
    /// Until when a late decision is taken, of a gate that expired and is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grace_ends_at: Option<String>,
    /// Who or what decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<Decision>,
    /// Which start, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    /// Until when its outcome is awaited, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start_by: Option<String>,
    /// What came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Outcome>,
    /// Where a person decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// When to ask again; absent when nothing more will happen by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) poll_after_ms: Option<u32>,
    /// What to tell the model.
    pub(crate) model_text: String,
}

/// Gates, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Gates {
    /// The gates.
    pub(crate) gates: Vec<Gate>,
}

/// Where a gate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = GateState)]
pub(crate) enum State {
    /// The call may start.
    Allowed,
    /// Somebody has to decide.
    Held,
    /// The call must not run.
    Denied,
    /// Nobody decided in time; the call must not run.
    Expired,
    /// Nobody wants it any more.
    Withdrawn,
    /// The call runs.
    Started,
    /// The call has its outcome.
    Done,
    /// The call may have run; nobody knows.
    OutcomeUnknown,
}

/// Who or what decided.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GateDecision)]
pub(crate) struct Decision {
    /// Whether the call may run.
    pub(crate) allowed: bool,
    /// Who; `policy` when rules alone decided.
    pub(crate) by: String,
    /// When.
    pub(crate) at: String,
    /// In words, where some were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The rules that decided, or that asked for approval.
    pub(crate) rules: Vec<String>,
    /// The grant that let it through, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grant: Option<String>,
    /// Whether the arguments are others than those that were asked about.
    pub(crate) edited: bool,
    /// The decision came after the deadline.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) late: bool,
}

/// What came of a call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GateOutcome)]
pub(crate) struct Outcome {
    /// Whether it did what it should.
    pub(crate) ok: bool,
    /// What it returned, or why it failed: any JSON.
    #[schema(value_type = serde_json::Value)]
    pub(crate) value: Box<RawValue>,
}
