//! The bodies of the async-tool protocol, named as it names them.
//!
//! Instants are milliseconds since 1970. Secrets have no place in any of them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::json::RawJson;
use utoipa::{IntoParams, ToSchema};

/// A call whose result comes from elsewhere (S2-3).
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PendingToolCall {
    /// The id by which its result is reported.
    pub(super) id: String,
    /// The conversation.
    #[serde(rename = "sessionID")]
    pub(super) session_id: String,
    /// The assistant's message that asked for it.
    #[serde(rename = "messageID")]
    pub(super) message_id: String,
    /// The model's id of the call.
    #[serde(rename = "callID")]
    pub(super) call_id: String,
    /// The tool.
    pub(super) tool: String,
    /// What it was called with.
    #[schema(value_type = Object)]
    pub(super) input: RawJson,
    /// How it stands.
    pub(super) status: CallStatus,
    /// Who is notified when it is settled.
    #[serde(rename = "webhookURL", skip_serializing_if = "Option::is_none")]
    pub(super) webhook_url: Option<String>,
    /// The outside system's own name for the job.
    #[serde(rename = "externalRef", skip_serializing_if = "Option::is_none")]
    pub(super) external_ref: Option<String>,
    /// When it is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout: Option<i64>,
    /// When what happened.
    pub(super) time: CallTime,
    /// What came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<ToolResult>,
    /// Why nothing came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// How a call stands (S2-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum CallStatus {
    /// Nobody has reported yet.
    Waiting,
    /// The outside system works on it.
    Processing,
    /// It has its result.
    Completed,
    /// It failed, or was cancelled.
    Failed,
    /// It was not reported in time.
    Expired,
}

/// When what happened to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct CallTime {
    /// When it began to wait.
    pub(super) created: i64,
    /// When the outside system reported that it works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) started: Option<i64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completed: Option<i64>,
}

/// What came of a call.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(super) struct ToolResult {
    /// In a few words.
    #[serde(default)]
    pub(super) title: String,
    /// In full.
    pub(super) output: String,
    /// What programs may want to know.
    #[serde(default = "nothing")]
    #[schema(value_type = Object)]
    pub(super) metadata: serde_json::Map<String, serde_json::Value>,
}

fn nothing() -> serde_json::Map<String, serde_json::Value> {
    serde_json::Map::new()
}

/// A result.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct SubmitResult {
    /// Of which call.
    #[serde(rename = "pendingID")]
    pub(super) pending_id: String,
    /// `{title, output, metadata}`.
    #[schema(value_type = ToolResult)]
    pub(super) result: Box<RawValue>,
}

/// A failure.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct SubmitError {
    /// Of which call.
    #[serde(rename = "pendingID")]
    pub(super) pending_id: String,
    /// What went wrong.
    pub(super) error: String,
}

/// A result or a failure, signed.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct Webhook {
    /// Of which call.
    #[serde(rename = "pendingID")]
    pub(super) pending_id: String,
    /// The result.
    #[serde(default)]
    #[schema(value_type = Option<ToolResult>)]
    pub(super) result: Option<Box<RawValue>>,
    /// What went wrong.
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// How far a job is.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct Progress {
    /// Of which call.
    #[serde(rename = "pendingID")]
    pub(super) pending_id: String,
    /// In words, for people.
    #[serde(default)]
    pub(super) output: Option<String>,
    /// From 0 to 1.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    pub(super) progress: Option<f64>,
    /// `processing` (also without it), or `waiting` when nobody works on it any more.
    #[serde(default)]
    pub(super) status: Option<CallStatus>,
}

/// It was done.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DoneResponse {
    /// Always.
    pub(super) success: bool,
    /// To which call.
    #[serde(rename = "pendingID")]
    pub(super) pending_id: String,
    /// How it stands now.
    pub(super) status: CallStatus,
}

/// A no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct ErrorBody {
    /// What happened, and what to do.
    pub(super) error: String,
    /// How the call stands, where that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<CallStatus>,
    /// JSON pointer to what is wrong in a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pointer: Option<String>,
}

/// Which calls.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PendingArgs {
    /// Only those that stand so; without it those that wait or are worked on.
    #[param(inline)]
    pub(super) status: Option<CallStatus>,
    /// Only those of one conversation.
    #[serde(rename = "sessionID", alias = "session")]
    #[param(rename = "sessionID")]
    pub(super) session_id: Option<String>,
    /// Only those of one agent.
    pub(super) agent: Option<String>,
    /// How many at most.
    pub(super) limit: Option<usize>,
    /// Where to go on, as the header `Link` of the answer before has it; of the stream: the id of the last event.
    #[param(format = "uint64")]
    pub(super) cursor: Option<u64>,
}

/// Where a list goes on.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageArgs {
    /// How many at most.
    pub(super) limit: Option<usize>,
    /// Where to go on, as the header `Link` of the answer before has it.
    #[param(format = "uint64")]
    pub(super) cursor: Option<u64>,
}

/// With which agent, where several have a conversation of the name; which conversation, for the stream.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionArgs {
    /// With which agent.
    pub(super) agent: Option<String>,
    /// Whose; the caller's own if it is left out.
    pub(super) owner: Option<String>,
}

/// A tool whose results come from elsewhere (S2-7).
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AsyncToolDefinition {
    /// Its name.
    pub(super) id: String,
    /// What it is for.
    pub(super) description: String,
    /// What it takes, as a JSON Schema.
    #[schema(value_type = Object)]
    pub(super) parameters: RawJson,
    /// Always.
    #[serde(rename = "async")]
    pub(super) is_async: bool,
    /// How long a call may take, in milliseconds.
    pub(super) timeout: i64,
    /// What a result must keep to, as a JSON Schema.
    #[serde(rename = "validateResult", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) validate_result: Option<RawJson>,
    /// The agents that have it.
    pub(super) agents: Vec<String>,
}

/// A call as a part of the assistant's message (S2-28, S2-29).
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolPart {
    /// Its id.
    pub(super) id: String,
    /// The message.
    #[serde(rename = "messageID")]
    pub(super) message_id: String,
    /// The conversation.
    #[serde(rename = "sessionID")]
    pub(super) session_id: String,
    /// Always `tool`.
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// The model's id of the call.
    #[serde(rename = "callID")]
    pub(super) call_id: String,
    /// The tool.
    pub(super) tool: String,
    /// How it stands.
    pub(super) state: PartState,
}

/// How a call stands, as a part.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(super) enum PartState {
    /// It waits.
    WaitingAsync {
        /// What it was called with.
        #[schema(value_type = Object)]
        input: RawJson,
        /// The id by which its result is reported.
        #[serde(rename = "pendingID")]
        pending_id: String,
        /// Since when.
        time: PartTime,
    },
    /// It has its result.
    Completed {
        /// What it was called with.
        #[schema(value_type = Object)]
        input: RawJson,
        /// In full.
        output: String,
        /// In a few words.
        title: String,
        /// What programs may want to know.
        #[schema(value_type = Object)]
        metadata: serde_json::Map<String, serde_json::Value>,
        /// From when to when.
        time: PartTime,
    },
    /// Nothing came of it.
    Error {
        /// What it was called with.
        #[schema(value_type = Object)]
        input: RawJson,
        /// Why.
        error: String,
        /// From when to when.
        time: PartTime,
    },
}

/// From when to when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct PartTime {
    /// When it began.
    pub(super) start: i64,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<i64>,
}

/// What a conversation is doing (S2-30).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum SessionStatus {
    /// Nothing.
    Idle,
    /// Working, or it waits for a person.
    Busy {
        /// What it waits for: `approval`, `input`, `login` or `recovery`. Its id is none of a pending call.
        #[serde(rename = "waitingFor", skip_serializing_if = "Option::is_none")]
        waiting_for: Option<&'static str>,
    },
    /// The model failed and is asked again.
    Retry {
        /// How often it failed.
        attempt: u32,
        /// What it said.
        message: String,
        /// When it is asked again.
        next: i64,
    },
    /// It waits.
    WaitingAsync {
        /// For what; of several the oldest.
        #[serde(rename = "pendingID")]
        pending_id: String,
        /// The tool whose call waits.
        tool: String,
        /// Since when.
        since: i64,
        /// Until when at most.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<i64>,
    },
}

/// A conversation that waits for outside jobs (S2-12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct WaitingSession {
    /// Its name.
    #[serde(rename = "sessionID")]
    pub(super) session_id: String,
    /// The agent.
    #[serde(rename = "projectID")]
    pub(super) project_id: String,
    /// Whose it is.
    pub(super) owner: String,
    /// What it waits for.
    pub(super) status: SessionStatus,
}

/// Who else is notified when a call is settled (S2-10).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookOptions {
    /// Where to send.
    #[serde(rename = "webhookURL")]
    pub(super) webhook_url: String,
    /// What it is signed with; one is made unless given.
    #[serde(rename = "webhookSecret")]
    pub(super) webhook_secret: Option<String>,
}

/// The webhook was set.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookSet {
    pub(super) success: bool,
    /// What it is signed with, where the server made it. Keep it: it is not shown again.
    #[serde(rename = "webhookSecret", skip_serializing_if = "Option::is_none")]
    pub(super) webhook_secret: Option<String>,
}

/// What the server found when it started, and since (S2-33, S2-37).
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RecoveryStatus {
    /// When it began to look.
    pub(super) started: i64,
    /// When it had seen everything; absent while it still looks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completed: Option<i64>,
    /// Runs that wait for jobs elsewhere only.
    pub(super) waiting: u64,
    /// Runs with a call whose time ran out while no server looked.
    pub(super) expired: u64,
    /// Calls that were `processing` without a report for too long, and are waiting again.
    #[serde(rename = "staleProcessing")]
    pub(super) stale_processing: u64,
    /// Runs that a server which is gone had at work.
    #[serde(rename = "takenOver")]
    pub(super) taken_over: u64,
    /// Runs whose rows cannot be read.
    pub(super) quarantined: u64,
}
