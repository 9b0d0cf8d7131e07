//! The types of A2A 0.3 as JSON: those of JSON-RPC, and those of HTTP+JSON, which are protobuf's.
//!
//! What is written is one set of types with what only one of the two has left out by the other; `map.rs` fills them.
//! What is read differs only in the parts of a message, so messages are read over any kind of part.

use serde::{Deserialize, Serialize};

use super::super::wire::{self, Json, Object, Secret, even_null, integer};

/// A part, in either form.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<File>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Data>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Object>,
}

/// A file: the first two over JSON-RPC, the next two over HTTP+JSON.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct File {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_with_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_with_uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mime_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
}

/// Data: as it is over JSON-RPC, one level deeper over HTTP+JSON.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Data {
    Bare(Json),
    Wrapped { data: Json },
}

/// A message: `parts` over JSON-RPC, `content` over HTTP+JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    pub(super) message_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<String>,
    pub(super) role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parts: Option<Vec<Part>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Vec<Part>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Object>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extensions: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reference_task_ids: Option<Vec<String>>,
}

/// Where a task stands.
#[derive(Debug, Serialize)]
pub(super) struct TaskStatus {
    pub(super) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Message>,
    pub(super) timestamp: String,
}

/// What a task made.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Artifact {
    pub(super) artifact_id: String,
    pub(super) name: &'static str,
    pub(super) parts: Vec<Part>,
}

/// A task.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    pub(super) id: String,
    pub(super) context_id: String,
    pub(super) status: TaskStatus,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) artifacts: Vec<Artifact>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) history: Vec<Message>,
}

/// A task stands elsewhere now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusUpdate {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    pub(super) task_id: String,
    pub(super) context_id: String,
    pub(super) status: TaskStatus,
    /// Whether nothing follows in this stream.
    #[serde(rename = "final")]
    pub(super) is_final: bool,
}

/// A task made something.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ArtifactUpdate {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    pub(super) task_id: String,
    pub(super) context_id: String,
    pub(super) artifact: Artifact,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) append: bool,
    pub(super) last_chunk: bool,
}

/// An event of a stream over HTTP+JSON; over JSON-RPC it is what is inside.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum StreamEvent {
    Task(Task),
    Message(Message),
    StatusUpdate(StatusUpdate),
    ArtifactUpdate(ArtifactUpdate),
}

/// `message/send` and `message/stream`. The message is `request` in protobuf.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "P: Deserialize<'de>")]
pub(super) struct SendParams<P> {
    #[serde(default)]
    pub(super) tenant: Option<String>,
    #[serde(alias = "request")]
    pub(super) message: ClientMessage<P>,
    #[serde(default)]
    pub(super) configuration: Option<Configuration>,
    #[serde(default)]
    pub(super) metadata: Option<Object>,
}

/// A message that a client sends. Its parts are `content` in protobuf.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "P: Deserialize<'de>")]
pub(super) struct ClientMessage<P> {
    #[serde(default, alias = "message_id")]
    pub(super) message_id: String,
    #[serde(default, alias = "context_id")]
    pub(super) context_id: Option<String>,
    #[serde(default, alias = "task_id")]
    pub(super) task_id: Option<String>,
    pub(super) role: Role,
    #[serde(alias = "content")]
    pub(super) parts: Vec<P>,
    #[serde(default)]
    pub(super) metadata: Option<Object>,
    #[serde(default)]
    pub(super) extensions: Option<Vec<String>>,
    #[serde(default, alias = "reference_task_ids")]
    pub(super) reference_task_ids: Option<Vec<String>>,
}

/// Who speaks, in the words of any version.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) enum Role {
    #[serde(rename = "user", alias = "ROLE_USER")]
    User,
    #[serde(rename = "agent", alias = "ROLE_AGENT")]
    Agent,
}

/// How a message wants to be answered.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Configuration {
    #[serde(alias = "accepted_output_modes")]
    pub(super) accepted_output_modes: Option<Vec<String>>,
    #[serde(alias = "push_notification_config", alias = "pushNotification", alias = "push_notification")]
    pub(super) push_notification_config: Option<PushConfig>,
    /// As 1.0 has it, in the dialect.
    #[serde(alias = "task_push_notification_config")]
    pub(super) task_push_notification_config: Option<wire::TaskPushNotificationConfig>,
    #[serde(alias = "history_length", deserialize_with = "integer")]
    pub(super) history_length: Option<i32>,
    pub(super) blocking: Option<bool>,
    #[serde(alias = "return_immediately")]
    pub(super) return_immediately: Option<bool>,
}

/// A part over JSON-RPC.
#[derive(Debug, Deserialize)]
pub(super) struct RpcPart {
    pub(super) kind: Option<String>,
    pub(super) text: Option<String>,
    pub(super) file: Option<RpcFile>,
    #[serde(default, deserialize_with = "even_null")]
    pub(super) data: Option<Json>,
    pub(super) metadata: Option<Object>,
}

/// A file over JSON-RPC.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RpcFile {
    pub(super) bytes: Option<String>,
    pub(super) uri: Option<String>,
    #[serde(alias = "mime_type")]
    pub(super) mime_type: Option<String>,
    pub(super) name: Option<String>,
}

/// A part over HTTP+JSON.
#[derive(Debug, Deserialize)]
pub(super) struct ProtoPart {
    pub(super) text: Option<String>,
    pub(super) file: Option<ProtoFile>,
    pub(super) data: Option<ProtoData>,
    pub(super) metadata: Option<Object>,
}

/// A file over HTTP+JSON.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProtoFile {
    #[serde(alias = "file_with_bytes")]
    pub(super) file_with_bytes: Option<String>,
    #[serde(alias = "file_with_uri")]
    pub(super) file_with_uri: Option<String>,
    #[serde(alias = "mime_type")]
    pub(super) mime_type: Option<String>,
    pub(super) name: Option<String>,
}

/// Data over HTTP+JSON.
#[derive(Debug, Deserialize)]
pub(super) struct ProtoData {
    pub(super) data: Json,
}

/// `tasks/get`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskQuery {
    pub(super) id: String,
    #[serde(default, alias = "history_length", deserialize_with = "integer")]
    pub(super) history_length: Option<i32>,
}

/// Where what happens to a task is sent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PushConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) authentication: Option<PushAuthentication>,
}

/// What the receiver knows the sender by.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PushAuthentication {
    #[serde(default)]
    pub(super) schemes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) credentials: Option<Secret>,
}

/// A receiver and its task, over JSON-RPC.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RpcTaskPush {
    #[serde(alias = "task_id")]
    pub(super) task_id: String,
    #[serde(alias = "push_notification_config")]
    pub(super) push_notification_config: PushConfig,
}

/// `tasks/pushNotificationConfig/get`, `/list` and `/delete`. Without the last, `get` means any.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PushQuery {
    pub(super) id: String,
    #[serde(default, alias = "push_notification_config_id")]
    pub(super) push_notification_config_id: Option<String>,
}

/// A receiver over HTTP+JSON; its name has the ids of its task and itself.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProtoTaskPush {
    pub(super) name: String,
    pub(super) push_notification_config: PushConfig,
}

/// Receivers over HTTP+JSON.
#[derive(Debug, Serialize)]
pub(super) struct ProtoPushes {
    pub(super) configs: Vec<ProtoTaskPush>,
}

/// What creates a receiver over HTTP+JSON: the receiver, or a request that has it inside.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProtoCreatePush {
    #[serde(default, alias = "config_id")]
    pub(super) config_id: Option<String>,
    #[serde(default)]
    pub(super) config: Option<ProtoPushInside>,
    #[serde(default, alias = "push_notification_config")]
    pub(super) push_notification_config: Option<PushConfig>,
}

/// The receiver inside such a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProtoPushInside {
    #[serde(alias = "push_notification_config")]
    pub(super) push_notification_config: PushConfig,
}

/// `tasks/cancel` and `tasks/resubscribe`.
pub(super) type TaskId = wire::TaskRequest;
