//! Between 1.0 and 0.3: pure functions.
//!
//! Matches are exhaustive and types are taken apart whole, so that something new in 1.0 forces a visit here. The rules are
//! those of the official libraries: `blocking` is the opposite of `returnImmediately`, a history of 0 messages means as
//! many as the server likes, and data that is not an object travels as `{"value": …}` with a mark.

#![warn(clippy::wildcard_enum_match_arm)]

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::super::error::A2aError;
use super::super::wire::{self as newer, Json, Object, TaskState};
use super::wire::{
    Artifact, ArtifactUpdate, ClientMessage, Configuration, Data, File, Message, Part, ProtoPart,
    PushAuthentication, PushConfig, Role, RpcPart, SendParams, StatusUpdate, StreamEvent, Task, TaskStatus,
};

/// The member of a part's metadata that says: this data was no object.
const WAS_NO_OBJECT: &str = "data_part_compat";

/// The two forms of 0.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// That of JSON-RPC: `kind`, words in lower case.
    Rpc,
    /// That of HTTP+JSON: protobuf's.
    Proto,
}

impl Form {
    fn kind(self, kind: &'static str) -> Option<&'static str> {
        match self {
            Form::Rpc => Some(kind),
            Form::Proto => None,
        }
    }
}

/// The word for a state.
pub(super) fn state(form: Form, state: TaskState) -> &'static str {
    match (form, state) {
        (Form::Rpc, TaskState::Submitted) => "submitted",
        (Form::Rpc, TaskState::Working) => "working",
        (Form::Rpc, TaskState::Completed) => "completed",
        (Form::Rpc, TaskState::Failed) => "failed",
        (Form::Rpc, TaskState::Canceled) => "canceled",
        (Form::Rpc, TaskState::InputRequired) => "input-required",
        (Form::Rpc, TaskState::Rejected) => "rejected",
        (Form::Rpc, TaskState::AuthRequired) => "auth-required",
        (Form::Proto, TaskState::Submitted) => "TASK_STATE_SUBMITTED",
        (Form::Proto, TaskState::Working) => "TASK_STATE_WORKING",
        (Form::Proto, TaskState::Completed) => "TASK_STATE_COMPLETED",
        (Form::Proto, TaskState::Failed) => "TASK_STATE_FAILED",
        (Form::Proto, TaskState::Canceled) => "TASK_STATE_CANCELLED",
        (Form::Proto, TaskState::InputRequired) => "TASK_STATE_INPUT_REQUIRED",
        (Form::Proto, TaskState::Rejected) => "TASK_STATE_REJECTED",
        (Form::Proto, TaskState::AuthRequired) => "TASK_STATE_AUTH_REQUIRED",
    }
}

fn role(form: Form, role: newer::Role) -> &'static str {
    match (form, role) {
        (Form::Rpc, newer::Role::User) => "user",
        (Form::Rpc, newer::Role::Agent) => "agent",
        (Form::Proto, newer::Role::User) => "ROLE_USER",
        (Form::Proto, newer::Role::Agent) => "ROLE_AGENT",
    }
}

/// A task as 0.3 has it.
pub(super) fn task(form: Form, task: &newer::Task) -> Task {
    let newer::Task { id, context_id, status, artifacts, history } = task;
    Task {
        kind: form.kind("task"),
        id: id.clone(),
        context_id: context_id.clone(),
        status: self::status(form, status),
        artifacts: artifacts.iter().map(|one| artifact(form, one)).collect(),
        history: history.iter().map(|one| message(form, one)).collect(),
    }
}

fn status(form: Form, status: &newer::TaskStatus) -> TaskStatus {
    let newer::TaskStatus { state, message, timestamp } = status;
    TaskStatus {
        state: self::state(form, *state),
        message: message.as_ref().map(|one| self::message(form, one)),
        timestamp: timestamp.clone(),
    }
}

fn artifact(form: Form, artifact: &newer::Artifact) -> Artifact {
    let newer::Artifact { artifact_id, name, parts } = artifact;
    let parts = parts.iter().map(|one| part(form, one)).collect();
    Artifact { artifact_id: artifact_id.clone(), name, parts }
}

/// A message as 0.3 has it.
pub(super) fn message(form: Form, message: &newer::Message) -> Message {
    let newer::Message {
        message_id,
        context_id,
        task_id,
        role,
        parts,
        metadata,
        extensions,
        reference_task_ids,
    } = message;
    let all: Vec<Part> = parts.iter().map(|one| part(form, one)).collect();
    let (parts, content) = match form {
        Form::Rpc => (Some(all), None),
        Form::Proto => (None, Some(all)),
    };
    Message {
        kind: form.kind("message"),
        message_id: message_id.clone(),
        context_id: context_id.clone(),
        task_id: task_id.clone(),
        role: self::role(form, *role),
        parts,
        content,
        metadata: metadata.clone(),
        extensions: extensions.clone(),
        reference_task_ids: reference_task_ids.clone().filter(|_| form == Form::Rpc),
    }
}

fn part(form: Form, part: &newer::Part) -> Part {
    let newer::Part { text, raw, url, data, filename, media_type, metadata } = part;
    let mut metadata = metadata.clone();
    let data = data.as_ref().map(|data| {
        let (data, was_object) = as_object(data);
        if !was_object && let Ok(yes) = to_raw_value(&true) {
            metadata.get_or_insert_default().insert(WAS_NO_OBJECT.to_owned(), yes);
        }
        data
    });
    let file = (raw.is_some() || url.is_some()).then(|| {
        let (mime_type, name) = (media_type.clone(), filename.clone());
        match form {
            Form::Rpc => File { bytes: raw.clone(), uri: url.clone(), mime_type, name, ..File::default() },
            Form::Proto => {
                let (file_with_bytes, file_with_uri) = (raw.clone(), url.clone());
                File { file_with_bytes, file_with_uri, mime_type, name, ..File::default() }
            }
        }
    });
    let kind = match (&data, &file) {
        (Some(_), _) => "data",
        (None, Some(_)) => "file",
        (None, None) => "text",
    };
    let data = data.map(|data| match form {
        Form::Rpc => Data::Bare(data),
        Form::Proto => Data::Wrapped { data },
    });
    Part { kind: form.kind(kind), text: text.clone(), file, data, metadata }
}

/// Data as an object, and whether it was one.
fn as_object(data: &RawValue) -> (Json, bool) {
    #[derive(Serialize)]
    struct Value<'a> {
        value: &'a RawValue,
    }
    if data.get().trim_start().starts_with('{') {
        return (data.to_owned(), true);
    }
    let wrapped = to_raw_value(&Value { value: data });
    (wrapped.unwrap_or_else(|_| RawValue::NULL.to_owned()), false)
}

/// An event of a stream. `closes` says whether the stream ends where a person is needed.
pub(super) fn event(form: Form, event: &newer::StreamResponse, closes: bool) -> StreamEvent {
    match event {
        newer::StreamResponse::Task(task) => StreamEvent::Task(self::task(form, task)),
        newer::StreamResponse::Message(message) => StreamEvent::Message(self::message(form, message)),
        newer::StreamResponse::StatusUpdate(update) => {
            let newer::TaskStatusUpdateEvent { task_id, context_id, status } = update.as_ref();
            let at_a_question = closes && status.state == TaskState::InputRequired;
            StreamEvent::StatusUpdate(StatusUpdate {
                kind: form.kind("status-update"),
                task_id: task_id.clone(),
                context_id: context_id.clone(),
                status: self::status(form, status),
                is_final: at_a_question || status.state.is_terminal(),
            })
        }
        newer::StreamResponse::ArtifactUpdate(update) => {
            let newer::TaskArtifactUpdateEvent { task_id, context_id, artifact, append, last_chunk } =
                update.as_ref();
            StreamEvent::ArtifactUpdate(ArtifactUpdate {
                kind: form.kind("artifact-update"),
                task_id: task_id.clone(),
                context_id: context_id.clone(),
                artifact: self::artifact(form, artifact),
                append: *append,
                last_chunk: *last_chunk,
            })
        }
    }
}

/// A part that older clients send.
pub(super) trait OlderPart {
    /// The same in 1.0; `at` is its place in the message.
    fn newer(self, at: usize) -> Result<newer::Part, A2aError>;
}

impl OlderPart for newer::Part {
    fn newer(self, _at: usize) -> Result<newer::Part, A2aError> {
        Ok(self)
    }
}

impl OlderPart for RpcPart {
    fn newer(self, at: usize) -> Result<newer::Part, A2aError> {
        let RpcPart { kind, text, file, data, metadata } = self;
        let has = match kind.as_deref() {
            Some("text") => text.is_some(),
            Some("file") => file.is_some(),
            Some("data") => data.is_some(),
            Some(_) => false,
            None => true,
        };
        if !has {
            let kind = kind.unwrap_or_default();
            let why =
                format!("a part of the kind {kind:?} must have the member of that name: text, file or data");
            return Err(A2aError::invalid(format!("message.parts[{at}]"), why));
        }
        let part = newer::Part { text, ..newer::Part::default() };
        let part = match file {
            Some(file) => newer::Part {
                raw: file.bytes,
                url: file.uri,
                filename: file.name,
                media_type: file.mime_type,
                ..part
            },
            None => part,
        };
        Ok(with_data(part, data, metadata))
    }
}

impl OlderPart for ProtoPart {
    fn newer(self, _at: usize) -> Result<newer::Part, A2aError> {
        let ProtoPart { text, file, data, metadata } = self;
        let part = newer::Part { text, ..newer::Part::default() };
        let part = match file {
            Some(file) => newer::Part {
                raw: file.file_with_bytes,
                url: file.file_with_uri,
                filename: file.name,
                media_type: file.mime_type,
                ..part
            },
            None => part,
        };
        Ok(with_data(part, data.map(|data| data.data), metadata))
    }
}

/// Data that was no object is what it was again.
fn with_data(part: newer::Part, data: Option<Json>, metadata: Option<Object>) -> newer::Part {
    #[derive(serde::Deserialize)]
    struct Value {
        #[serde(deserialize_with = "json")]
        value: Json,
    }
    fn json<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        serde::Deserialize::deserialize(deserializer)
    }
    let is_marked = metadata
        .as_ref()
        .and_then(|metadata| metadata.get(WAS_NO_OBJECT))
        .is_some_and(|mark| mark.get() == "true");
    let inner = data.as_ref().filter(|_| is_marked);
    let inner = inner.and_then(|data| serde_json::from_str::<Value>(data.get()).ok());
    let metadata = metadata.map(|mut metadata| {
        metadata.remove(WAS_NO_OBJECT);
        metadata
    });
    let metadata = metadata.filter(|metadata| !metadata.is_empty());
    newer::Part { data: inner.map(|inner| inner.value).or(data), metadata, ..part }
}

/// What differs between the older ways to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// Over JSON-RPC.
    Rpc,
    /// Over HTTP+JSON, where protobuf leaves out what is false or 0.
    Proto,
    /// In the dialect, where 0 messages are none.
    Dialect,
}

/// A message as 1.0 has it.
pub(super) fn send<P: OlderPart>(
    sender: Sender,
    params: SendParams<P>,
) -> Result<newer::SendMessageRequest, A2aError> {
    let SendParams { tenant, message, configuration, metadata } = params;
    let ClientMessage {
        message_id,
        context_id,
        task_id,
        role,
        parts,
        metadata: own,
        extensions,
        reference_task_ids,
    } = message;
    let parts = parts.into_iter().enumerate().map(|(at, part)| part.newer(at)).collect::<Result<_, _>>()?;
    let role = match role {
        Role::User => newer::Role::User,
        Role::Agent => newer::Role::Agent,
    };
    let message = newer::Message {
        message_id,
        context_id,
        task_id,
        role,
        parts,
        metadata: own,
        extensions,
        reference_task_ids,
    };
    let configuration = configuration.map(|one| self::configuration(sender, one));
    Ok(newer::SendMessageRequest { tenant, message, configuration, metadata })
}

fn configuration(sender: Sender, configuration: Configuration) -> newer::SendMessageConfiguration {
    let Configuration {
        accepted_output_modes,
        push_notification_config,
        task_push_notification_config,
        history_length,
        blocking,
        return_immediately,
    } = configuration;
    let at_once = blocking.map(|blocking| !blocking);
    newer::SendMessageConfiguration {
        accepted_output_modes,
        task_push_notification_config: push_notification_config
            .map(|config| push(None, config))
            .or(task_push_notification_config),
        history_length: match sender {
            Sender::Rpc | Sender::Proto => history(history_length),
            Sender::Dialect => history_length,
        },
        return_immediately: match sender {
            Sender::Rpc => at_once,
            Sender::Proto => at_once.or(Some(true)),
            Sender::Dialect => at_once.or(return_immediately),
        },
    }
}

/// A receiver as 1.0 has it, for a task if that is known. Of several schemes the first counts.
pub(super) fn push(task_id: Option<String>, config: PushConfig) -> newer::TaskPushNotificationConfig {
    let PushConfig { id, url, token, authentication } = config;
    let authentication = authentication.map(|known| newer::AuthenticationInfo {
        scheme: known.schemes.into_iter().next().unwrap_or_default(),
        credentials: known.credentials,
    });
    newer::TaskPushNotificationConfig { tenant: None, id, task_id, url, token, authentication }
}

/// A receiver as 0.3 has it, and its task.
pub(super) fn older_push(config: newer::TaskPushNotificationConfig) -> (String, PushConfig) {
    let newer::TaskPushNotificationConfig { tenant: _, id, task_id, url, token, authentication } = config;
    let authentication = authentication
        .map(|known| PushAuthentication { schemes: vec![known.scheme], credentials: known.credentials });
    (task_id.unwrap_or_default(), PushConfig { id, url, token, authentication })
}

/// 0 messages of the history: as many as there are.
pub(super) fn history(length: Option<i32>) -> Option<i32> {
    length.filter(|length| *length != 0)
}
