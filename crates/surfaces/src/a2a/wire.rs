//! The types of A2A 1.0 as JSON: names and shapes are the protocol's.
//!
//! Own types rather than generated ones, because protobuf's JSON changes integers, loses `null` and writes other
//! timestamps. What is read takes camelCase and snake_case, ignores members that it does not know, and refuses words
//! that it does not know; what is written leaves out what is empty.

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Any JSON, kept as its text.
pub(super) type Json = Box<RawValue>;

/// A JSON object whose values keep their text.
pub(super) type Object = BTreeMap<String, Json>;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum TaskState {
    /// Nobody has worked on it yet.
    #[serde(rename = "TASK_STATE_SUBMITTED")]
    Submitted,
    /// Somebody works on it, or it waits for an outside system.
    #[serde(rename = "TASK_STATE_WORKING")]
    Working,
    /// Over, with a result.
    #[serde(rename = "TASK_STATE_COMPLETED")]
    Completed,
    /// Over, with an error.
    #[serde(rename = "TASK_STATE_FAILED")]
    Failed,
    /// Over, stopped. The British spelling of older versions is read too (C2).
    #[serde(rename = "TASK_STATE_CANCELED", alias = "TASK_STATE_CANCELLED")]
    Canceled,
    /// It waits for a person.
    #[serde(rename = "TASK_STATE_INPUT_REQUIRED")]
    InputRequired,
    /// The agent would not take it.
    #[serde(rename = "TASK_STATE_REJECTED")]
    Rejected,
    /// It waits for a login.
    #[serde(rename = "TASK_STATE_AUTH_REQUIRED")]
    AuthRequired,
}

impl TaskState {
    /// Whether nothing follows.
    pub(super) fn is_terminal(self) -> bool {
        match self {
            TaskState::Completed | TaskState::Failed | TaskState::Canceled | TaskState::Rejected => true,
            TaskState::Submitted
            | TaskState::Working
            | TaskState::InputRequired
            | TaskState::AuthRequired => false,
        }
    }
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// The client.
    #[serde(rename = "ROLE_USER")]
    User,
    /// The agent.
    #[serde(rename = "ROLE_AGENT")]
    Agent,
}

/// One piece of a message or an artifact: exactly one of the first four.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    /// Bytes in base 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) raw: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    /// Any JSON, also `null`.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) filename: Option<String>,
    #[serde(default, alias = "media_type", skip_serializing_if = "Option::is_none")]
    pub(super) media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Object>,
}

impl Part {
    pub(super) fn text(text: impl Into<String>) -> Part {
        Part { text: Some(text.into()), ..Part::default() }
    }

    pub(super) fn data(data: &impl Serialize) -> Part {
        Part { data: serde_json::value::to_raw_value(data).ok(), ..Part::default() }
    }
}

/// One message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    #[serde(alias = "message_id")]
    pub(super) message_id: String,
    #[serde(default, alias = "context_id", skip_serializing_if = "Option::is_none")]
    pub(super) context_id: Option<String>,
    #[serde(default, alias = "task_id", skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<String>,
    pub(super) role: Role,
    pub(super) parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Object>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) extensions: Option<Vec<String>>,
    #[serde(default, alias = "reference_task_ids", skip_serializing_if = "Option::is_none")]
    pub(super) reference_task_ids: Option<Vec<String>>,
}

/// Where a task stands, since when, and what it says about it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TaskStatus {
    pub(super) state: TaskState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Message>,
    pub(super) timestamp: String,
}

/// What a task made.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Artifact {
    pub(super) artifact_id: String,
    pub(super) name: &'static str,
    pub(super) parts: Vec<Part>,
}

/// A run, as A2A knows it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) context_id: String,
    pub(super) status: TaskStatus,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) artifacts: Vec<Artifact>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) history: Vec<Message>,
}

/// `SendMessage` and `SendStreamingMessage`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendMessageRequest {
    #[serde(default)]
    pub(super) tenant: Option<String>,
    pub(super) message: Message,
    #[serde(default)]
    pub(super) configuration: Option<SendMessageConfiguration>,
    #[serde(default)]
    pub(super) metadata: Option<Object>,
}

/// How a message wants to be answered.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SendMessageConfiguration {
    #[serde(alias = "accepted_output_modes")]
    pub(super) accepted_output_modes: Option<Vec<String>>,
    #[serde(alias = "task_push_notification_config")]
    pub(super) task_push_notification_config: Option<TaskPushNotificationConfig>,
    #[serde(alias = "history_length", deserialize_with = "integer")]
    pub(super) history_length: Option<i32>,
    #[serde(alias = "return_immediately")]
    pub(super) return_immediately: Option<bool>,
}

/// The result of a message.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum SendMessageResponse {
    Task(Box<Task>),
    /// An answer without a task.
    Message(Box<Message>),
}

/// `GetTask`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GetTaskRequest {
    #[serde(default)]
    pub(super) tenant: Option<String>,
    pub(super) id: String,
    #[serde(default, alias = "history_length", deserialize_with = "integer")]
    pub(super) history_length: Option<i32>,
}

/// `CancelTask` and `SubscribeToTask`.
#[derive(Debug, Deserialize)]
pub(super) struct TaskRequest {
    #[serde(default)]
    pub(super) tenant: Option<String>,
    pub(super) id: String,
    #[serde(default)]
    pub(super) metadata: Option<Object>,
}

/// `ListTasks`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListTasksRequest {
    pub(super) tenant: Option<String>,
    #[serde(alias = "context_id")]
    pub(super) context_id: Option<String>,
    #[serde(deserialize_with = "specified")]
    pub(super) status: Option<TaskState>,
    #[serde(alias = "page_size", deserialize_with = "integer")]
    pub(super) page_size: Option<i32>,
    #[serde(alias = "page_token")]
    pub(super) page_token: Option<String>,
    #[serde(alias = "history_length", deserialize_with = "integer")]
    pub(super) history_length: Option<i32>,
    #[serde(alias = "status_timestamp_after")]
    pub(super) status_timestamp_after: Option<String>,
    #[serde(alias = "include_artifacts")]
    pub(super) include_artifacts: Option<bool>,
}

/// A page of tasks: all four members are always there.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListTasksResponse {
    pub(super) tasks: Vec<Task>,
    pub(super) next_page_token: String,
    pub(super) page_size: usize,
    pub(super) total_size: usize,
}

/// A text that is not written into logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Secret(pub(super) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Where what happens to a task is sent, and what the receiver knows the sender by.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskPushNotificationConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
    /// What the client calls it, for this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(default, alias = "task_id", skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<String>,
    pub(super) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) authentication: Option<AuthenticationInfo>,
}

/// What the `Authorization` header of a notification is made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct AuthenticationInfo {
    pub(super) scheme: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) credentials: Option<Secret>,
}

/// `GetTaskPushNotificationConfig` and `DeleteTaskPushNotificationConfig`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PushRequest {
    #[serde(default)]
    pub(super) tenant: Option<String>,
    #[serde(alias = "task_id")]
    pub(super) task_id: String,
    pub(super) id: String,
}

/// `ListTaskPushNotificationConfigs`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListPushRequest {
    #[serde(default)]
    pub(super) tenant: Option<String>,
    #[serde(alias = "task_id")]
    pub(super) task_id: String,
    #[serde(default, alias = "page_size", deserialize_with = "integer")]
    pub(super) page_size: Option<i32>,
    #[serde(default, alias = "page_token")]
    pub(super) page_token: Option<String>,
}

/// The receivers that a client named for a task.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PushConfigs {
    pub(super) configs: Vec<TaskPushNotificationConfig>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) next_page_token: String,
}

/// What is only routed: the calls that this server answers without reading more of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RoutedRequest {
    pub(super) tenant: Option<String>,
}

/// One event of a stream.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum StreamResponse {
    Task(Box<Task>),
    /// An answer without a task; nothing follows.
    Message(Box<Message>),
    StatusUpdate(Box<TaskStatusUpdateEvent>),
    ArtifactUpdate(Box<TaskArtifactUpdateEvent>),
}

/// A task stands elsewhere now.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskStatusUpdateEvent {
    pub(super) task_id: String,
    pub(super) context_id: String,
    pub(super) status: TaskStatus,
}

/// A task made something.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskArtifactUpdateEvent {
    pub(super) task_id: String,
    pub(super) context_id: String,
    pub(super) artifact: Artifact,
    /// Whether it comes behind what was sent of it before, rather than in its place.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) append: bool,
    pub(super) last_chunk: bool,
}

/// What an agent says about itself.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentCard {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) supported_interfaces: Vec<AgentInterface>,
    pub(super) version: String,
    pub(super) capabilities: AgentCapabilities,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) security_schemes: BTreeMap<&'static str, SecurityScheme>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) security_requirements: Vec<SecurityRequirement>,
    pub(super) default_input_modes: Vec<String>,
    pub(super) default_output_modes: Vec<String>,
    pub(super) skills: Vec<AgentSkill>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) signatures: Vec<AgentCardSignature>,
}

/// That nobody changed a card since it was signed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AgentCardSignature {
    pub(super) protected: String,
    pub(super) signature: String,
}

/// Where and how an agent is reached.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentInterface {
    pub(super) url: String,
    pub(super) protocol_binding: &'static str,
    pub(super) protocol_version: &'static str,
    /// What clients repeat in each request, where the address alone does not say which agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
}

/// What an agent can do beyond the least.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentCapabilities {
    pub(super) streaming: bool,
    pub(super) push_notifications: bool,
    pub(super) extended_agent_card: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) extensions: Vec<AgentExtension>,
}

/// An extension of the protocol.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AgentExtension {
    pub(super) uri: &'static str,
    pub(super) description: &'static str,
    pub(super) required: bool,
}

/// How callers say who they are.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum SecurityScheme {
    HttpAuthSecurityScheme { scheme: &'static str, description: &'static str },
}

/// What a caller needs: one of each named scheme.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SecurityRequirement {
    pub(super) schemes: BTreeMap<&'static str, Scopes>,
}

/// The scopes of a scheme.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Scopes {
    pub(super) list: Vec<String>,
}

/// What an agent is good at.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AgentSkill {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) tags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) examples: Vec<String>,
}

/// Details of an error, as every binding carries them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "@type")]
pub(super) enum Detail {
    #[serde(rename = "type.googleapis.com/google.rpc.ErrorInfo")]
    ErrorInfo {
        reason: &'static str,
        domain: &'static str,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        metadata: BTreeMap<&'static str, String>,
    },
    #[serde(rename = "type.googleapis.com/google.rpc.BadRequest", rename_all = "camelCase")]
    BadRequest { field_violations: Vec<FieldViolation> },
}

/// What is wrong with which part of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct FieldViolation {
    pub(super) field: String,
    pub(super) description: String,
}

/// A state that is asked for; protobuf's word for none is none.
fn specified<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TaskState>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    word.map_or(Ok(None), |word| task_state(&word).map_err(D::Error::custom))
}

/// A state by its word, `None` for the word that means none.
pub(super) fn task_state(word: &str) -> Result<Option<TaskState>, serde::de::value::Error> {
    match word {
        "" | "TASK_STATE_UNSPECIFIED" => Ok(None),
        word => TaskState::deserialize(word.into_deserializer()).map(Some),
    }
}

/// A value that is there even when it is `null`.
pub(super) fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// A whole number, also as text: both are protobuf's JSON for one.
pub(super) fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    struct WholeNumber;

    impl Visitor<'_> for WholeNumber {
        type Value = Option<i32>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a whole number of 32 bits")
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<Option<i32>, E> {
            let wrong = |_| E::invalid_value(Unexpected::Signed(number), &self);
            i32::try_from(number).map(Some).map_err(wrong)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Option<i32>, E> {
            let wrong = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
            i32::try_from(number).map(Some).map_err(wrong)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Option<i32>, E> {
            text.parse().map(Some).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }

        fn visit_unit<E: Error>(self) -> Result<Option<i32>, E> {
            Ok(None)
        }
    }

    deserializer.deserialize_any(WholeNumber)
}
