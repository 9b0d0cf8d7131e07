//! The bodies of Teal Agents, as its clients write and read them. Nothing else uses these types.
//!
//! Names and shapes are the protocol's: S1-1 to S1-3 and part 5 of `docs/requirements.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

/// What a client says to an agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"items": [{"content_type": "text", "content": "Free some space"}]}))]
pub(super) struct UserMessage {
    /// The conversation; without one there is a new one.
    pub(super) session_id: Option<String>,
    /// The task to continue; without it a new one begins.
    pub(super) task_id: Option<String>,
    /// The parts of the message.
    #[schema(min_items = 1)]
    pub(super) items: Vec<MultiModalItem>,
    /// What else the agent should know of the user.
    pub(super) user_context: Option<BTreeMap<String, String>>,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MultiModalItem {
    pub(super) content_type: ContentType,
    /// The words, or where the image is: an address, or its bytes as a `data:` address.
    pub(super) content: String,
}

/// What a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ContentType {
    Text,
    Image,
}

/// The agent's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct TealAgentsResponse {
    pub(super) session_id: String,
    pub(super) task_id: String,
    pub(super) request_id: String,
    pub(super) output: String,
    /// The agent.
    pub(super) source: String,
    pub(super) token_usage: TokenUsage,
}

/// What the task cost so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct TokenUsage {
    pub(super) completion_tokens: u64,
    pub(super) prompt_tokens: u64,
    pub(super) total_tokens: u64,
}

/// A piece of what the agent is saying, on a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct TealAgentsPartialResponse {
    pub(super) session_id: String,
    pub(super) task_id: String,
    pub(super) request_id: String,
    pub(super) output_partial: String,
    pub(super) source: String,
}

/// Somebody has to decide first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct HitlResponse {
    pub(super) task_id: String,
    pub(super) session_id: String,
    pub(super) request_id: String,
    /// Always `Human intervention required.`
    pub(super) message: &'static str,
    /// POST here to approve; a browser shows a page that asks once more.
    pub(super) approval_url: String,
    /// POST here to reject.
    pub(super) rejection_url: String,
    /// What is pending.
    pub(super) tool_calls: Vec<FunctionCall>,
}

/// A tool call, as Semantic Kernel writes one down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct FunctionCall {
    /// Always `function_call`.
    pub(super) content_type: &'static str,
    pub(super) id: String,
    /// Its place in the model's reply.
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) function_name: String,
    pub(super) plugin_name: Option<String>,
    /// The arguments: JSON as text, byte for byte as they will run.
    pub(super) arguments: String,
    #[schema(value_type = Object)]
    pub(super) metadata: BTreeMap<String, String>,
}

/// The user has to log in somewhere first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct AuthChallengeResponse {
    pub(super) task_id: String,
    pub(super) session_id: String,
    pub(super) request_id: String,
    /// Always `Authentication required for MCP servers.`
    pub(super) message: &'static str,
    pub(super) auth_challenges: Vec<AuthChallenge>,
    /// POST `{"action": "approve"}` here once that is done.
    pub(super) resume_url: String,
}

/// Where to log in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct AuthChallenge {
    pub(super) server_name: String,
    pub(super) auth_server: String,
    pub(super) scopes: Vec<String>,
    pub(super) auth_url: String,
}

/// A task that has no output: it was stopped, or is still at work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct StateResponse {
    pub(super) session_id: String,
    pub(super) task_id: String,
    pub(super) request_id: String,
    pub(super) status: TaskStatus,
    pub(super) message: String,
    /// While it is at work: GET it, and it waits for the answer to this request, as chat does. Nothing is sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_url: Option<String>,
    /// While it is at work: GET it for the same as a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream_url: Option<String>,
    /// While it is at work: GET it for the task as it is, with its trail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task_url: Option<String>,
}

/// What a task that ended well, waits, or was stopped answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum TaskAnswer {
    Output(TealAgentsResponse),
    Hitl(HitlResponse),
    Auth(AuthChallengeResponse),
    State(StateResponse),
}

/// One event of a stream.
#[derive(Debug, ToSchema)]
pub(super) struct StreamedEvent {
    /// `partial-response`, `final-response`, `hitl-response`, `auth-response`, `state-response` or `error`.
    pub(super) event: &'static str,
    /// JSON as text: a piece of the output, what the plain call answers, or an error.
    pub(super) data: String,
}

/// What the data of an event says.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum StreamData {
    Partial(TealAgentsPartialResponse),
    Answered(TaskAnswer),
    Error(ErrorBody),
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(super) enum TaskStatus {
    Running,
    Paused,
    Completed,
    Failed,
    Canceled,
}

/// A task with its audit trail: messages, requests and decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct AgentTask {
    pub(super) session_id: String,
    pub(super) task_id: String,
    pub(super) user_id: String,
    pub(super) items: Vec<AgentTaskItem>,
    pub(super) created_at: String,
    pub(super) last_updated: String,
    pub(super) status: TaskStatus,
}

/// One entry of the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct AgentTaskItem {
    pub(super) request_id: String,
    pub(super) task_id: String,
    pub(super) role: Role,
    pub(super) item: MultiModalItem,
    pub(super) updated: String,
    /// The calls that waited, or wait, with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pending_tool_calls: Option<Vec<FunctionCall>>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    User,
    Assistant,
}

/// What a decider sends. Left out, the query says it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"action": "approve"}))]
pub(super) struct ResumeBody {
    /// `approve` or `reject`.
    #[schema(value_type = Option<Action>)]
    pub(super) action: Option<String>,
    /// The answer, where something is asked that approving alone does not answer.
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) payload: Option<Box<RawValue>>,
    /// Why it is rejected.
    pub(super) reason: Option<String>,
}

/// What can be decided of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Approve,
    Reject,
}

/// The arguments of the resume route.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ResumeArgs {
    /// `approve` or `reject`, where the body does not say.
    pub(super) action: Option<String>,
    /// Seconds to wait for the answer at most; without it as long as the server allows.
    pub(super) wait: Option<u32>,
}

/// How long a request waits.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitArgs {
    /// Seconds to wait for the answer at most; without it as long as the server allows.
    pub(super) wait: Option<u32>,
}

/// A no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TealError)]
pub(super) struct ErrorBody {
    /// What happened, and what can be done.
    pub(super) detail: String,
    /// The decision that the request already has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recorded: Option<crate::http::RecordedDecision>,
}

/// What came of a call, in the trail.
#[derive(Debug, Serialize)]
pub(super) struct FunctionResult<'a> {
    pub(super) content_type: &'static str,
    pub(super) id: String,
    pub(super) name: &'a str,
    pub(super) result: &'a str,
}

/// A decision, in the trail (S1-22).
#[derive(Debug, Serialize)]
pub(super) struct Decision<'a> {
    pub(super) action: &'a str,
    pub(super) request_id: &'a str,
    /// It came after the deadline.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) late: bool,
}
