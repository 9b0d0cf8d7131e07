//! Answers in the words of the protocol's JSON, turned into messages of gRPC.
//!
//! What protobuf cannot carry is refused, never changed.

use std::collections::HashMap;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine as _};
use standfast_core::time::Timestamp;

use super::super::error::A2aError;
use super::super::wire;
use super::proto::{self, part, security_scheme, send_message_response, stream_response};
use super::value;
use crate::http::{parse_rfc3339, rfc3339};

pub(super) fn sent(sent: &wire::SendMessageResponse) -> Result<proto::SendMessageResponse, A2aError> {
    let payload = match sent {
        wire::SendMessageResponse::Task(task) => send_message_response::Payload::Task(self::task(task)?),
        wire::SendMessageResponse::Message(message) => {
            send_message_response::Payload::Message(self::message(message)?)
        }
    };
    Ok(proto::SendMessageResponse { payload: Some(payload) })
}

pub(super) fn task(task: &wire::Task) -> Result<proto::Task, A2aError> {
    Ok(proto::Task {
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: Some(status(&task.status)?),
        artifacts: task.artifacts.iter().map(artifact).collect::<Result<_, _>>()?,
        history: task.history.iter().map(message).collect::<Result<_, _>>()?,
        metadata: None,
    })
}

fn status(status: &wire::TaskStatus) -> Result<proto::TaskStatus, A2aError> {
    Ok(proto::TaskStatus {
        state: i32::from(state(status.state)),
        message: status.message.as_ref().map(message).transpose()?,
        timestamp: instant(&status.timestamp),
    })
}

fn state(state: wire::TaskState) -> proto::TaskState {
    match state {
        wire::TaskState::Submitted => proto::TaskState::Submitted,
        wire::TaskState::Working => proto::TaskState::Working,
        wire::TaskState::Completed => proto::TaskState::Completed,
        wire::TaskState::Failed => proto::TaskState::Failed,
        wire::TaskState::Canceled => proto::TaskState::Canceled,
        wire::TaskState::InputRequired => proto::TaskState::InputRequired,
        wire::TaskState::Rejected => proto::TaskState::Rejected,
        wire::TaskState::AuthRequired => proto::TaskState::AuthRequired,
    }
}

/// An instant as the other bindings write it.
pub(in crate::a2a) fn instant(text: &str) -> Option<prost_types::Timestamp> {
    let Timestamp(ms) = parse_rfc3339(text)?;
    let nanos = i32::try_from(ms.rem_euclid(1000) * 1_000_000).unwrap_or_default();
    Some(prost_types::Timestamp { seconds: ms.div_euclid(1000), nanos })
}

/// The same the other way round.
pub(super) fn instant_text(at: &prost_types::Timestamp) -> String {
    rfc3339(Timestamp(at.seconds.saturating_mul(1000).saturating_add(i64::from(at.nanos / 1_000_000))))
}

fn message(message: &wire::Message) -> Result<proto::Message, A2aError> {
    let role = match message.role {
        wire::Role::User => proto::Role::User,
        wire::Role::Agent => proto::Role::Agent,
    };
    Ok(proto::Message {
        message_id: message.message_id.clone(),
        context_id: message.context_id.clone().unwrap_or_default(),
        task_id: message.task_id.clone().unwrap_or_default(),
        role: i32::from(role),
        parts: message.parts.iter().map(part).collect::<Result<_, _>>()?,
        metadata: message.metadata.as_ref().map(value::from_object).transpose()?,
        extensions: message.extensions.clone().unwrap_or_default(),
        reference_task_ids: message.reference_task_ids.clone().unwrap_or_default(),
    })
}

fn part(part: &wire::Part) -> Result<proto::Part, A2aError> {
    let content = match (&part.text, &part.raw, &part.url, &part.data) {
        (Some(text), _, _, _) => Some(part::Content::Text(text.clone())),
        (_, Some(raw), _, _) => {
            let bytes = BASE64_STANDARD.decode(raw).or_else(|_| BASE64_URL_SAFE.decode(raw));
            Some(part::Content::Raw(bytes.unwrap_or_default()))
        }
        (_, _, Some(url), _) => Some(part::Content::Url(url.clone())),
        (_, _, _, Some(data)) => Some(part::Content::Data(value::from_json(data)?)),
        (None, None, None, None) => None,
    };
    Ok(proto::Part {
        content,
        metadata: part.metadata.as_ref().map(value::from_object).transpose()?,
        filename: part.filename.clone().unwrap_or_default(),
        media_type: part.media_type.clone().unwrap_or_default(),
    })
}

fn artifact(artifact: &wire::Artifact) -> Result<proto::Artifact, A2aError> {
    Ok(proto::Artifact {
        artifact_id: artifact.artifact_id.clone(),
        name: artifact.name.to_owned(),
        parts: artifact.parts.iter().map(part).collect::<Result<_, _>>()?,
        ..proto::Artifact::default()
    })
}

pub(super) fn frame(frame: &wire::StreamResponse) -> Result<proto::StreamResponse, A2aError> {
    let payload = match frame {
        wire::StreamResponse::Task(task) => stream_response::Payload::Task(self::task(task)?),
        wire::StreamResponse::Message(message) => stream_response::Payload::Message(self::message(message)?),
        wire::StreamResponse::StatusUpdate(update) => {
            stream_response::Payload::StatusUpdate(proto::TaskStatusUpdateEvent {
                task_id: update.task_id.clone(),
                context_id: update.context_id.clone(),
                status: Some(status(&update.status)?),
                metadata: None,
            })
        }
        wire::StreamResponse::ArtifactUpdate(update) => {
            stream_response::Payload::ArtifactUpdate(proto::TaskArtifactUpdateEvent {
                task_id: update.task_id.clone(),
                context_id: update.context_id.clone(),
                artifact: Some(artifact(&update.artifact)?),
                append: update.append,
                last_chunk: update.last_chunk,
                metadata: None,
            })
        }
    };
    Ok(proto::StreamResponse { payload: Some(payload) })
}

pub(super) fn tasks(page: &wire::ListTasksResponse) -> Result<proto::ListTasksResponse, A2aError> {
    Ok(proto::ListTasksResponse {
        tasks: page.tasks.iter().map(task).collect::<Result<_, _>>()?,
        next_page_token: page.next_page_token.clone(),
        page_size: i32::try_from(page.page_size).unwrap_or(i32::MAX),
        total_size: i32::try_from(page.total_size).unwrap_or(i32::MAX),
    })
}

pub(super) fn push_config(config: wire::TaskPushNotificationConfig) -> proto::TaskPushNotificationConfig {
    let secret = |secret: Option<wire::Secret>| secret.map(|secret| secret.0).unwrap_or_default();
    proto::TaskPushNotificationConfig {
        tenant: config.tenant.unwrap_or_default(),
        id: config.id.unwrap_or_default(),
        task_id: config.task_id.unwrap_or_default(),
        url: config.url,
        token: secret(config.token),
        authentication: config.authentication.map(|known| proto::AuthenticationInfo {
            scheme: known.scheme,
            credentials: secret(known.credentials),
        }),
    }
}

pub(super) fn push_configs(page: wire::PushConfigs) -> proto::ListTaskPushNotificationConfigsResponse {
    proto::ListTaskPushNotificationConfigsResponse {
        configs: page.configs.into_iter().map(push_config).collect(),
        next_page_token: page.next_page_token,
    }
}

pub(super) fn card(card: &wire::AgentCard) -> proto::AgentCard {
    let schemes = card.security_schemes.iter().map(|(name, scheme)| ((*name).to_owned(), security(scheme)));
    let requirement = |required: &wire::SecurityRequirement| proto::SecurityRequirement {
        schemes: required
            .schemes
            .iter()
            .map(|(name, scopes)| ((*name).to_owned(), proto::StringList { list: scopes.list.clone() }))
            .collect(),
    };
    proto::AgentCard {
        name: card.name.clone(),
        description: card.description.clone(),
        supported_interfaces: card.supported_interfaces.iter().map(interface).collect(),
        version: card.version.clone(),
        capabilities: Some(proto::AgentCapabilities {
            streaming: Some(card.capabilities.streaming),
            push_notifications: Some(card.capabilities.push_notifications),
            extensions: card.capabilities.extensions.iter().map(extension).collect(),
            extended_agent_card: Some(card.capabilities.extended_agent_card),
        }),
        security_schemes: schemes.collect::<HashMap<_, _>>(),
        security_requirements: card.security_requirements.iter().map(requirement).collect(),
        default_input_modes: card.default_input_modes.clone(),
        default_output_modes: card.default_output_modes.clone(),
        skills: card.skills.iter().map(skill).collect(),
        signatures: card.signatures.iter().map(signature).collect(),
        ..proto::AgentCard::default()
    }
}

fn signature(made: &wire::AgentCardSignature) -> proto::AgentCardSignature {
    let (protected, signature) = (made.protected.clone(), made.signature.clone());
    proto::AgentCardSignature { protected, signature, header: None }
}

fn interface(interface: &wire::AgentInterface) -> proto::AgentInterface {
    proto::AgentInterface {
        url: interface.url.clone(),
        protocol_binding: interface.protocol_binding.to_owned(),
        tenant: interface.tenant.clone().unwrap_or_default(),
        protocol_version: interface.protocol_version.to_owned(),
    }
}

fn extension(extension: &wire::AgentExtension) -> proto::AgentExtension {
    proto::AgentExtension {
        uri: extension.uri.to_owned(),
        description: extension.description.to_owned(),
        required: extension.required,
        params: None,
    }
}

fn security(scheme: &wire::SecurityScheme) -> proto::SecurityScheme {
    let scheme = match scheme {
        wire::SecurityScheme::HttpAuthSecurityScheme { scheme, description } => {
            security_scheme::Scheme::HttpAuthSecurityScheme(proto::HttpAuthSecurityScheme {
                description: (*description).to_owned(),
                scheme: (*scheme).to_owned(),
                bearer_format: String::new(),
            })
        }
    };
    proto::SecurityScheme { scheme: Some(scheme) }
}

fn skill(skill: &wire::AgentSkill) -> proto::AgentSkill {
    proto::AgentSkill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
        ..proto::AgentSkill::default()
    }
}
