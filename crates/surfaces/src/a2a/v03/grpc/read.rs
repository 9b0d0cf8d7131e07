//! Requests of 0.3 as gRPC brings them, turned into those of `wire.rs`, as HTTP+JSON of 0.3 reads them.
//!
//! An empty text means that nothing was said: protobuf cannot tell the two apart. What it then means in 1.0 is `map.rs`.

use prost_types::value::Kind as Of;
use prost_types::{Struct, Value};

use super::super::super::error::A2aError;
use super::super::super::grpc::{to_json, to_object};
use super::super::super::wire::{self as newer, Object, Secret};
use super::super::map::{self, Sender};
use super::super::wire::{
    ClientMessage, Configuration, ProtoData, ProtoFile, ProtoPart, PushAuthentication, PushConfig, Role,
    SendParams,
};
use super::files::FileForm;
use super::proto::{self, file_part, part};

fn said(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn object(field: &str, object: Option<&Struct>) -> Result<Option<Object>, A2aError> {
    object.map(|it| to_object(field, it)).transpose()
}

pub(super) fn send(
    request: proto::SendMessageRequest,
    files: FileForm,
) -> Result<newer::SendMessageRequest, A2aError> {
    let proto::SendMessageRequest { request, configuration, metadata } = request;
    let message = request.ok_or_else(|| A2aError::invalid("request", "is missing"))?;
    let params = SendParams {
        tenant: None,
        message: self::message(message, files)?,
        configuration: configuration.map(self::configuration),
        metadata: object("metadata", metadata.as_ref())?,
    };
    map::send(Sender::Proto, params)
}

fn configuration(wanted: proto::SendMessageConfiguration) -> Configuration {
    let proto::SendMessageConfiguration {
        accepted_output_modes,
        push_notification,
        history_length,
        blocking,
    } = wanted;
    Configuration {
        accepted_output_modes: Some(accepted_output_modes).filter(|modes| !modes.is_empty()),
        push_notification_config: push_notification.map(push),
        history_length: Some(history_length),
        blocking: Some(blocking),
        ..Configuration::default()
    }
}

fn message(message: proto::Message, files: FileForm) -> Result<ClientMessage<ProtoPart>, A2aError> {
    let role = match message.role() {
        proto::Role::User => Role::User,
        proto::Role::Agent => Role::Agent,
        proto::Role::Unspecified => return Err(A2aError::invalid("request.role", "must be ROLE_USER")),
    };
    let proto::Message { message_id, context_id, task_id, role: _, content, metadata, extensions } = message;
    let parts = content.into_iter().enumerate().map(|(at, part)| self::part(at, part, files));
    Ok(ClientMessage {
        message_id,
        context_id: said(context_id),
        task_id: said(task_id),
        role,
        parts: parts.collect::<Result<_, A2aError>>()?,
        metadata: object("request.metadata", metadata.as_ref())?,
        extensions: Some(extensions).filter(|uris| !uris.is_empty()),
        reference_task_ids: None,
    })
}

fn part(at: usize, part: proto::Part, files: FileForm) -> Result<ProtoPart, A2aError> {
    let field = format!("request.content[{at}]");
    let proto::Part { part, metadata } = part;
    let plain = ProtoPart {
        text: None,
        file: None,
        data: None,
        metadata: object(&format!("{field}.metadata"), metadata.as_ref())?,
    };
    Ok(match part {
        None => plain,
        Some(part::Part::Text(text)) => ProtoPart { text: Some(text), ..plain },
        Some(part::Part::File(file)) => ProtoPart { file: Some(self::file(file, files)), ..plain },
        Some(part::Part::Data(proto::DataPart { data })) => {
            let value = Value { kind: Some(Of::StructValue(data.unwrap_or_default())) };
            let data = to_json(&format!("{field}.data"), &value)?;
            ProtoPart { data: Some(ProtoData { data }), ..plain }
        }
    })
}

fn file(file: proto::FilePart, files: FileForm) -> ProtoFile {
    let proto::FilePart { file, mime_type, name } = file;
    let (file_with_bytes, file_with_uri) = match file {
        Some(file_part::File::FileWithBytes(bytes)) => (Some(files.base64_of(bytes)), None),
        Some(file_part::File::FileWithUri(uri)) => (None, Some(uri)),
        None => (None, None),
    };
    ProtoFile { file_with_bytes, file_with_uri, mime_type: said(mime_type), name: said(name) }
}

fn push(config: proto::PushNotificationConfig) -> PushConfig {
    let proto::PushNotificationConfig { id, url, token, authentication } = config;
    let authentication = authentication.map(|proto::AuthenticationInfo { schemes, credentials }| {
        PushAuthentication { schemes, credentials: said(credentials).map(Secret) }
    });
    PushConfig { id: said(id), url, token: said(token).map(Secret), authentication }
}

pub(super) fn create_push(
    request: proto::CreateTaskPushNotificationConfigRequest,
) -> Result<newer::TaskPushNotificationConfig, A2aError> {
    let proto::CreateTaskPushNotificationConfigRequest { parent, config_id, config } = request;
    let task = task_id("parent", &parent)?;
    let missing = || A2aError::invalid("config.pushNotificationConfig", "is missing; name the URL to notify");
    let config = config.and_then(|config| config.push_notification_config).ok_or_else(missing)?;
    let config = push(config);
    let id = config.id.clone().or_else(|| said(config_id));
    Ok(map::push(Some(task), PushConfig { id, ..config }))
}

/// The task in a name such as `tasks/run_…`.
pub(super) fn task_id(field: &str, name: &str) -> Result<String, A2aError> {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        ["tasks", id] if !id.is_empty() => Ok((*id).to_owned()),
        _ => Err(A2aError::invalid(field, "must be tasks/{id}")),
    }
}

/// Task and receiver in a name such as `tasks/run_…/pushNotificationConfigs/…`.
pub(super) fn push_ids(name: &str) -> Result<(String, String), A2aError> {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        ["tasks", task, "pushNotificationConfigs", id] if !task.is_empty() => {
            Ok(((*task).to_owned(), (*id).to_owned()))
        }
        _ => Err(A2aError::invalid("name", "must be tasks/{id}/pushNotificationConfigs/{config}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_form() {
        assert_eq!(task_id("name", "tasks/run_x").unwrap(), "run_x");
        let receiver = push_ids("tasks/run_x/pushNotificationConfigs/c").unwrap();
        assert_eq!(receiver, ("run_x".to_owned(), "c".to_owned()));
        for wrong in ["", "run_x", "tasks/", "tasks/a/b", "Tasks/a", "tasks/a/pushNotificationConfigs"] {
            assert!(task_id("name", wrong).is_err() && push_ids(wrong).is_err(), "{wrong}");
        }
    }
}
