//! The bodies of the inbox routes, with the names of S4-2 to S4-4 and S4-28.
//!
//! Values of senders and workers go through as text: nothing re-serialises them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

/// Where a task stands (S4-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = InboxTaskStatus)]
pub(super) enum TaskStatus {
    Pending,
    Claimed,
    InProgress,
    WaitingForInput,
    Completed,
    Failed,
    #[serde(alias = "canceled", alias = "CANCELLED", alias = "CANCELED")]
    Cancelled,
}

/// 0 low, 1 normal, 2 high, 3 urgent; the words are taken too.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = InboxPriority)]
pub(super) enum Priority {
    Number(u8),
    Word(PriorityWord),
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = InboxPriorityWord)]
pub(super) enum PriorityWord {
    Low,
    Normal,
    High,
    Urgent,
}

/// A new task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxNewTask, example = json!({"type": "ticket", "payload": {"subject": "Refund"}, "priority": 2}))]
pub(super) struct NewTask {
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// What to do: any JSON.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = serde_json::Value)]
    pub(super) payload: Box<RawValue>,
    pub(super) priority: Option<Priority>,
    pub(super) title: Option<String>,
    pub(super) source_id: Option<String>,
    pub(super) source_url: Option<String>,
    /// The agent that should take it, if only one should.
    pub(super) target_agent_id: Option<String>,
    /// How often it may be tried; 3 unless given.
    pub(super) max_attempts: Option<u32>,
    /// How long it may lie in the inbox until somebody takes it, in milliseconds; then it fails. As the server's settings say
    /// (24 hours) unless given.
    pub(super) task_ttl: Option<u64>,
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) metadata: Option<Box<RawValue>>,
}

/// New tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = InboxNewTasks)]
pub(super) struct NewTasks {
    pub(super) tasks: Vec<NewTask>,
}

/// A worker asks for a task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxClaim, example = json!({"agentId": "triage", "types": ["ticket"], "waitMs": 20000}))]
pub(super) struct Claim {
    /// The agent that the worker works for.
    pub(super) agent_id: String,
    /// What the worker calls itself; the agent's name unless given.
    pub(super) worker_id: Option<String>,
    /// The types of work that it takes; any unless given.
    #[serde(default)]
    pub(super) types: Vec<String>,
    /// How long a sign of life counts, in milliseconds; 30 minutes unless given.
    pub(super) lease_ms: Option<u64>,
    /// How long to wait for a task when there is none, in milliseconds.
    pub(super) wait_ms: Option<u64>,
}

/// The task that was claimed; null when there is none.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InboxClaimed)]
pub(super) struct ClaimedTask {
    pub(super) task: Option<Box<Task>>,
}

/// What only names the claim.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxOwnClaim)]
pub(super) struct OwnClaim {
    /// As the claimed task has it.
    pub(super) claim_id: String,
}

/// A task is done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxComplete)]
pub(super) struct Complete {
    pub(super) claim_id: String,
    /// What came of it: any JSON.
    #[serde(default = "null")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) result: Box<RawValue>,
}

/// A task failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxFail)]
pub(super) struct Fail {
    pub(super) claim_id: String,
    pub(super) error: TaskError,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = InboxTaskError)]
pub(super) struct TaskError {
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stack: Option<String>,
    /// Whether it may pass by itself; without it the message decides that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) retryable: Option<bool>,
}

/// A call that a worker wants to run with a tool of its own.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxNewCall, example = json!({"claimId": "w-1#1@ann", "tool": "send_refund", "input": {"amount": 40}}))]
pub(super) struct NewCall {
    pub(super) claim_id: String,
    pub(super) tool: String,
    /// What it is to be run with: any JSON. What is approved is this, byte for byte.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = serde_json::Value)]
    pub(super) input: Box<RawValue>,
    /// What the worker calls it.
    pub(super) call_id: Option<String>,
    /// Why, for the approvers.
    pub(super) context: Option<String>,
    /// Whether somebody is to be asked first; true unless given. The server's own rules may be stricter.
    pub(super) requires_approval: Option<bool>,
    /// The JSON Schema of a tool that the worker brings itself. With it there can be standing approvals for the tool, which end
    /// when it changes.
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) input_schema: Option<Box<RawValue>>,
}

/// What came of a call: a result or an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxCallResult)]
pub(super) struct CallResult {
    pub(super) claim_id: String,
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) result: Option<Box<RawValue>>,
    pub(super) error: Option<String>,
}

/// How a call of a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = InboxCallStatus)]
pub(super) enum CallStatus {
    /// Somebody is asked.
    WaitingForApproval,
    /// The worker may run it, once, with the input that it has now.
    Approved,
    /// It must not run: it was denied.
    Denied,
    /// It must not run: a rule forbids it, or it was not understood.
    Refused,
    /// It must not run: nobody decided in time.
    Expired,
    /// It must not run: the task went on without it.
    Cancelled,
    /// The worker ran it.
    Completed,
    /// The worker tried, and it failed.
    Failed,
    /// The worker was allowed to run it and never said what came of it.
    Unknown,
}

/// A call of a worker.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = InboxCall)]
pub(super) struct Call {
    pub(super) id: String,
    /// What the worker calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call_id: Option<String>,
    pub(super) tool: String,
    /// The arguments to run it with: as requested, or as an approver changed them.
    #[schema(value_type = serde_json::Value)]
    pub(super) input: Box<RawValue>,
    pub(super) status: CallStatus,
    /// The hold to decide, while approval is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hold_id: Option<String>,
    /// Why it must not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) error: Option<Box<RawValue>>,
}

/// Calls of a task, in the order in which they were asked for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InboxCalls)]
pub(super) struct Calls {
    pub(super) calls: Vec<Call>,
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct WaitArgs {
    /// How long to wait for a decision, in milliseconds.
    pub(super) wait_ms: Option<u64>,
}

/// Somebody must be asked first (S4-4).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxSuspend)]
pub(super) struct Suspend {
    pub(super) claim_id: String,
    pub(super) reason: String,
    /// What people are shown; `question` and `options` in it are shown as such.
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) payload: Option<Box<RawValue>>,
    /// JSON Schema of the answer.
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) resume_schema: Option<Box<RawValue>>,
}

/// The answer of a person (S4-4).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxResume, example = json!({"payload": "approve"}))]
pub(super) struct Resume {
    #[serde(deserialize_with = "given")]
    #[schema(value_type = serde_json::Value)]
    pub(super) payload: Box<RawValue>,
    /// Which question, where several are open.
    pub(super) hold_id: Option<String>,
}

/// The answer was taken.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InboxResumed)]
pub(super) struct ResumedTask {
    pub(super) success: bool,
}

/// What stops a task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = InboxCancel)]
pub(super) struct Cancel {
    pub(super) reason: Option<String>,
}

/// Who is notified of tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = InboxSubscribe, example = json!({"url": "https://example.com/hooks/tasks", "agentId": "triage"}))]
pub(super) struct Subscribe {
    /// Where to send: https, unless the host is named in the configuration.
    pub(super) url: String,
    /// Only tasks of this agent. Without it: of all.
    pub(super) agent_id: Option<String>,
}

/// A subscription with its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InboxSubscribed)]
pub(super) struct SubscriptionWithSecret {
    pub(super) id: String,
    /// What its deliveries are signed with. Keep it: it is not shown again.
    pub(super) secret: String,
}

/// Which tasks.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct TasksArgs {
    pub(super) status: Option<TaskStatus>,
    #[serde(rename = "type")]
    #[param(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) target_agent_id: Option<String>,
    pub(super) claimed_by: Option<String>,
    /// 0 to 3.
    pub(super) priority: Option<u8>,
    #[param(format = "uint64")]
    pub(super) cursor: Option<u64>,
    pub(super) limit: Option<usize>,
}

/// Where a list goes on.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageArgs {
    #[param(format = "uint64")]
    pub(super) cursor: Option<u64>,
    pub(super) limit: Option<usize>,
}

/// Tasks.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = InboxTasks)]
pub(super) struct Tasks {
    pub(super) tasks: Vec<Task>,
    /// What to ask with for more; null when there is no more.
    pub(super) next_cursor: Option<String>,
}

/// Inboxes.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Inboxes {
    pub(super) inboxes: Vec<Inbox>,
}

/// An inbox: who serves it, and how many tasks it has in which status.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Inbox {
    pub(super) inbox_id: String,
    /// The agents of this server that serve it.
    pub(super) agents: Vec<String>,
    pub(super) stats: InboxStats,
}

/// How many tasks there are in which status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
pub(super) struct InboxStats {
    pub(super) pending: u64,
    pub(super) claimed: u64,
    pub(super) in_progress: u64,
    pub(super) waiting_for_input: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) total: u64,
}

/// A task (S4-3, S4-28, S4-31).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = InboxTask)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) inbox_id: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: TaskStatus,
    pub(super) priority: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_url: Option<String>,
    #[schema(value_type = serde_json::Value)]
    pub(super) payload: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<TaskError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claimed_by: Option<String>,
    /// Names the claim in what its worker reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claim_id: Option<String>,
    /// The run behind it: events, holds and receipts are found by it.
    pub(super) run_id: String,
    pub(super) created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claimed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claim_expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suspended_at: Option<String>,
    /// What people are asked; after the answer, what they were asked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) suspend_payload: Option<Object>,
    /// JSON Schema that an answer must keep to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) resume_schema: Option<Box<RawValue>>,
    /// What people answered last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) resume_payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completed_at: Option<String>,
    pub(super) attempts: u32,
    pub(super) max_attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_retry_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) metadata: Option<Box<RawValue>>,
}

/// A JSON object whose values keep their text.
pub(super) type Object = BTreeMap<String, Box<RawValue>>;

/// A member that is there counts as given, also when it is `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<RawValue>, D::Error> {
    Box::<RawValue>::deserialize(deserializer)
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}
