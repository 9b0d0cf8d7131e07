//! Answers of 0.3 as gRPC carries them, made of those that HTTP+JSON of 0.3 writes.
//!
//! Types are taken apart whole, so that something new in `wire.rs` forces a visit here. Numbers that a double cannot carry are
//! refused, as in 1.0.

use std::collections::HashMap;

use prost_types::value::Kind as Of;
use prost_types::{Struct, Value};

use super::super::super::error::{A2aError, Kind};
use super::super::super::grpc::{from_json, instant};
use super::super::super::wire::{self as newer, AgentCard, Json, Object, Secret, SecurityScheme};
use super::super::card::{PREFERRED, PROTOCOL_VERSION, transports};
use super::super::map::{self, Form};
use super::super::wire::{
    Artifact, ArtifactUpdate, Data, File, Message, Part, PushAuthentication, PushConfig, StatusUpdate,
    StreamEvent, Task, TaskStatus,
};
use super::files::FileForm;
use super::proto::{self, file_part, part, security_scheme, send_message_response, stream_response};

pub(super) fn sent(
    sent: &newer::SendMessageResponse,
    files: FileForm,
) -> Result<proto::SendMessageResponse, A2aError> {
    let payload = match sent {
        newer::SendMessageResponse::Task(task) => {
            send_message_response::Payload::Task(self::task(map::task(Form::Proto, task), files)?)
        }
        newer::SendMessageResponse::Message(message) => {
            send_message_response::Payload::Msg(self::message(map::message(Form::Proto, message), files)?)
        }
    };
    Ok(proto::SendMessageResponse { payload: Some(payload) })
}

pub(super) fn task(task: Task, files: FileForm) -> Result<proto::Task, A2aError> {
    let Task { kind: _, id, context_id, status, artifacts, history } = task;
    Ok(proto::Task {
        id,
        context_id,
        status: Some(self::status(status, files)?),
        artifacts: artifacts.into_iter().map(|one| artifact(one, files)).collect::<Result<_, _>>()?,
        history: history.into_iter().map(|one| message(one, files)).collect::<Result<_, _>>()?,
        metadata: None,
    })
}

fn status(status: TaskStatus, files: FileForm) -> Result<proto::TaskStatus, A2aError> {
    let TaskStatus { state, message, timestamp } = status;
    let state = proto::TaskState::from_str_name(state).unwrap_or(proto::TaskState::Unspecified);
    Ok(proto::TaskStatus {
        state: i32::from(state),
        update: message.map(|one| self::message(one, files)).transpose()?,
        timestamp: instant(&timestamp),
    })
}

fn message(message: Message, files: FileForm) -> Result<proto::Message, A2aError> {
    let Message {
        kind: _,
        message_id,
        context_id,
        task_id,
        role,
        parts,
        content,
        metadata,
        extensions,
        reference_task_ids: _,
    } = message;
    let parts = content.or(parts).unwrap_or_default();
    let role = proto::Role::from_str_name(role).unwrap_or(proto::Role::Unspecified);
    Ok(proto::Message {
        message_id,
        context_id: context_id.unwrap_or_default(),
        task_id: task_id.unwrap_or_default(),
        role: i32::from(role),
        content: parts.into_iter().map(|one| part(one, files)).collect::<Result<_, _>>()?,
        metadata: metadata.as_ref().map(object).transpose()?,
        extensions: extensions.unwrap_or_default(),
    })
}

fn part(part: Part, files: FileForm) -> Result<proto::Part, A2aError> {
    let Part { kind: _, text, file, data, metadata } = part;
    let content = match (text, file, data) {
        (Some(text), _, _) => Some(part::Part::Text(text)),
        (None, Some(file), _) => Some(part::Part::File(self::file(file, files))),
        (None, None, Some(Data::Bare(data) | Data::Wrapped { data })) => {
            Some(part::Part::Data(proto::DataPart { data: Some(json_object(&data)?) }))
        }
        (None, None, None) => None,
    };
    Ok(proto::Part { part: content, metadata: metadata.as_ref().map(object).transpose()? })
}

fn file(file: File, files: FileForm) -> proto::FilePart {
    let File { bytes, uri, file_with_bytes, file_with_uri, mime_type, name } = file;
    let content = match (file_with_bytes.or(bytes), file_with_uri.or(uri)) {
        (Some(base64), _) => Some(file_part::File::FileWithBytes(files.bytes_of(base64))),
        (None, Some(uri)) => Some(file_part::File::FileWithUri(uri)),
        (None, None) => None,
    };
    proto::FilePart {
        file: content,
        mime_type: mime_type.unwrap_or_default(),
        name: name.unwrap_or_default(),
    }
}

fn object(object: &Object) -> Result<Struct, A2aError> {
    let member = |(name, json): (&String, &Json)| Ok((name.clone(), from_json(json)?));
    Ok(Struct { fields: object.iter().map(member).collect::<Result<_, A2aError>>()? })
}

fn json_object(json: &Json) -> Result<Struct, A2aError> {
    match from_json(json)? {
        Value { kind: Some(Of::StructValue(object)) } => Ok(object),
        Value { .. } => Err(A2aError::new(Kind::Internal, "internal error: data that is no object")),
    }
}

fn artifact(artifact: Artifact, files: FileForm) -> Result<proto::Artifact, A2aError> {
    let Artifact { artifact_id, name, parts } = artifact;
    Ok(proto::Artifact {
        artifact_id,
        name: name.to_owned(),
        parts: parts.into_iter().map(|one| part(one, files)).collect::<Result<_, _>>()?,
        ..proto::Artifact::default()
    })
}

pub(super) fn event(event: StreamEvent, files: FileForm) -> Result<proto::StreamResponse, A2aError> {
    let payload = match event {
        StreamEvent::Task(task) => stream_response::Payload::Task(self::task(task, files)?),
        StreamEvent::Message(message) => stream_response::Payload::Msg(self::message(message, files)?),
        StreamEvent::StatusUpdate(update) => {
            let StatusUpdate { kind: _, task_id, context_id, status, is_final } = update;
            stream_response::Payload::StatusUpdate(proto::TaskStatusUpdateEvent {
                task_id,
                context_id,
                status: Some(self::status(status, files)?),
                r#final: is_final,
                metadata: None,
            })
        }
        StreamEvent::ArtifactUpdate(update) => {
            let ArtifactUpdate { kind: _, task_id, context_id, artifact, append, last_chunk } = update;
            stream_response::Payload::ArtifactUpdate(proto::TaskArtifactUpdateEvent {
                task_id,
                context_id,
                artifact: Some(self::artifact(artifact, files)?),
                append,
                last_chunk,
                metadata: None,
            })
        }
    };
    Ok(proto::StreamResponse { payload: Some(payload) })
}

/// A receiver; its name has the ids of its task and itself.
pub(super) fn task_push(config: newer::TaskPushNotificationConfig) -> proto::TaskPushNotificationConfig {
    let secret = |secret: Option<Secret>| secret.map(|Secret(secret)| secret).unwrap_or_default();
    let (task, PushConfig { id, url, token, authentication }) = map::older_push(config);
    let id = id.unwrap_or_default();
    let name = format!("tasks/{task}/pushNotificationConfigs/{id}");
    let authentication = authentication.map(|PushAuthentication { schemes, credentials }| {
        proto::AuthenticationInfo { schemes, credentials: secret(credentials) }
    });
    let config = proto::PushNotificationConfig { id, url, token: secret(token), authentication };
    proto::TaskPushNotificationConfig { name, push_notification_config: Some(config) }
}

pub(super) fn card(card: &AgentCard) -> proto::AgentCard {
    let url = card.supported_interfaces.first().map_or("", |interface| interface.url.as_str());
    let interface = |(transport, url): (&str, &str)| proto::AgentInterface {
        url: url.to_owned(),
        transport: transport.to_owned(),
    };
    let schemes = card.security_schemes.iter().map(|(name, scheme)| ((*name).to_owned(), security(scheme)));
    let required = |(name, _): (&&str, &SecurityScheme)| proto::Security {
        schemes: HashMap::from([((*name).to_owned(), proto::StringList::default())]),
    };
    proto::AgentCard {
        protocol_version: PROTOCOL_VERSION.to_owned(),
        name: card.name.clone(),
        description: card.description.clone(),
        url: url.to_owned(),
        preferred_transport: PREFERRED.to_owned(),
        additional_interfaces: transports(card).into_iter().map(interface).collect(),
        version: card.version.clone(),
        capabilities: Some(proto::AgentCapabilities {
            streaming: card.capabilities.streaming,
            push_notifications: card.capabilities.push_notifications,
            extensions: card.capabilities.extensions.iter().map(extension).collect(),
        }),
        security_schemes: schemes.collect(),
        security: card.security_schemes.iter().map(required).collect(),
        default_input_modes: card.default_input_modes.clone(),
        default_output_modes: card.default_output_modes.clone(),
        skills: card.skills.iter().map(skill).collect(),
        supports_authenticated_extended_card: card.capabilities.extended_agent_card,
        signatures: card.signatures.iter().map(signature).collect(),
        ..proto::AgentCard::default()
    }
}

fn security(scheme: &SecurityScheme) -> proto::SecurityScheme {
    let SecurityScheme::HttpAuthSecurityScheme { scheme, description } = scheme;
    let http = proto::HttpAuthSecurityScheme {
        description: (*description).to_owned(),
        scheme: (*scheme).to_owned(),
        bearer_format: String::new(),
    };
    proto::SecurityScheme { scheme: Some(security_scheme::Scheme::HttpAuthSecurityScheme(http)) }
}

fn extension(extension: &newer::AgentExtension) -> proto::AgentExtension {
    proto::AgentExtension {
        uri: extension.uri.to_owned(),
        description: extension.description.to_owned(),
        required: extension.required,
        params: None,
    }
}

fn skill(skill: &newer::AgentSkill) -> proto::AgentSkill {
    proto::AgentSkill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
        ..proto::AgentSkill::default()
    }
}

fn signature(made: &newer::AgentCardSignature) -> proto::AgentCardSignature {
    let (protected, signature) = (made.protected.clone(), made.signature.clone());
    proto::AgentCardSignature { protected, signature, header: None }
}
