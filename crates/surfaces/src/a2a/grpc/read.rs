//! Requests as gRPC brings them, turned into those that the other bindings read from JSON.
//!
//! An empty text means that nothing was said: protobuf cannot tell the two apart.

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::super::error::A2aError;
use super::super::wire::{self, Secret};
use super::proto::{self, part};
use super::value;
use super::write::instant_text;

pub(super) fn said(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

pub(super) fn send(request: proto::SendMessageRequest) -> Result<wire::SendMessageRequest, A2aError> {
    let message = request.message.ok_or_else(|| A2aError::invalid("message", "is missing"))?;
    let metadata = request.metadata.as_ref().map(|it| value::to_object("metadata", it)).transpose()?;
    Ok(wire::SendMessageRequest {
        tenant: said(request.tenant),
        message: self::message(message)?,
        configuration: request.configuration.map(configuration),
        metadata,
    })
}

fn configuration(wanted: proto::SendMessageConfiguration) -> wire::SendMessageConfiguration {
    wire::SendMessageConfiguration {
        accepted_output_modes: Some(wanted.accepted_output_modes).filter(|modes| !modes.is_empty()),
        task_push_notification_config: wanted.task_push_notification_config.map(push_config),
        history_length: wanted.history_length,
        return_immediately: Some(wanted.return_immediately),
    }
}

fn message(message: proto::Message) -> Result<wire::Message, A2aError> {
    let role = match message.role() {
        proto::Role::User => wire::Role::User,
        proto::Role::Agent => wire::Role::Agent,
        proto::Role::Unspecified => {
            return Err(A2aError::invalid("message.role", "must be ROLE_USER"));
        }
    };
    let parts: Result<Vec<wire::Part>, A2aError> =
        message.parts.into_iter().enumerate().map(|(index, part)| self::part(index, part)).collect();
    let metadata =
        message.metadata.as_ref().map(|it| value::to_object("message.metadata", it)).transpose()?;
    Ok(wire::Message {
        message_id: message.message_id,
        context_id: said(message.context_id),
        task_id: said(message.task_id),
        role,
        parts: parts?,
        metadata,
        extensions: Some(message.extensions).filter(|uris| !uris.is_empty()),
        reference_task_ids: Some(message.reference_task_ids).filter(|ids| !ids.is_empty()),
    })
}

fn part(index: usize, part: proto::Part) -> Result<wire::Part, A2aError> {
    let field = format!("message.parts[{index}]");
    let metadata =
        part.metadata.as_ref().map(|it| value::to_object(&format!("{field}.metadata"), it)).transpose()?;
    let plain = wire::Part {
        filename: said(part.filename),
        media_type: said(part.media_type),
        metadata,
        ..wire::Part::default()
    };
    Ok(match part.content {
        Some(part::Content::Text(text)) => wire::Part { text: Some(text), ..plain },
        Some(part::Content::Raw(bytes)) => wire::Part { raw: Some(BASE64_STANDARD.encode(bytes)), ..plain },
        Some(part::Content::Url(url)) => wire::Part { url: Some(url), ..plain },
        Some(part::Content::Data(data)) => {
            wire::Part { data: Some(value::to_json(&format!("{field}.data"), &data)?), ..plain }
        }
        None => plain,
    })
}

pub(super) fn list(request: proto::ListTasksRequest) -> Result<wire::ListTasksRequest, A2aError> {
    let unknown = |_| A2aError::invalid("status", "is not a state of a task");
    let state = proto::TaskState::try_from(request.status).map_err(unknown)?;
    Ok(wire::ListTasksRequest {
        tenant: said(request.tenant),
        context_id: said(request.context_id),
        status: self::state(state),
        page_size: request.page_size,
        page_token: said(request.page_token),
        history_length: request.history_length,
        status_timestamp_after: request.status_timestamp_after.as_ref().map(instant_text),
        include_artifacts: request.include_artifacts,
    })
}

fn state(state: proto::TaskState) -> Option<wire::TaskState> {
    Some(match state {
        proto::TaskState::Unspecified => return None,
        proto::TaskState::Submitted => wire::TaskState::Submitted,
        proto::TaskState::Working => wire::TaskState::Working,
        proto::TaskState::Completed => wire::TaskState::Completed,
        proto::TaskState::Failed => wire::TaskState::Failed,
        proto::TaskState::Canceled => wire::TaskState::Canceled,
        proto::TaskState::InputRequired => wire::TaskState::InputRequired,
        proto::TaskState::Rejected => wire::TaskState::Rejected,
        proto::TaskState::AuthRequired => wire::TaskState::AuthRequired,
    })
}

pub(super) fn push_config(config: proto::TaskPushNotificationConfig) -> wire::TaskPushNotificationConfig {
    wire::TaskPushNotificationConfig {
        tenant: said(config.tenant),
        id: said(config.id),
        task_id: said(config.task_id),
        url: config.url,
        token: said(config.token).map(Secret),
        authentication: config.authentication.map(|known| wire::AuthenticationInfo {
            scheme: known.scheme,
            credentials: said(known.credentials).map(Secret),
        }),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use standfast_testkit::damage::each;

    use super::*;

    /// T31: whatever bytes a message of protocol buffers is, what is taken has the texts that it had.
    #[test]
    fn t31_any_message_of_grpc_is_read_or_refused() {
        let text = |text: &str| proto::Part {
            content: Some(part::Content::Text(text.into())),
            ..Default::default()
        };
        let raw = proto::Part {
            content: Some(part::Content::Raw(vec![0, 255])),
            filename: "a".into(),
            ..Default::default()
        };
        let message = proto::Message {
            message_id: "m-1".into(),
            task_id: "run_1".into(),
            role: 1,
            parts: vec![text("approve"), raw, text("\u{202e}")],
            ..Default::default()
        };
        let sent =
            proto::SendMessageRequest { message: Some(message), tenant: "ops".into(), ..Default::default() };
        let listed = proto::ListTasksRequest { page_token: "41".into(), status: 6, ..Default::default() };
        let (sent, listed) = (sent.encode_to_vec(), listed.encode_to_vec());
        let (mut taken, mut refused) = (0, 0);
        each(&[&sent, &listed], 30_000, |bytes| {
            if let Ok(asked) = proto::ListTasksRequest::decode(bytes) {
                let _ = list(asked);
            }
            let Ok(asked) = proto::SendMessageRequest::decode(bytes) else { return };
            let said: Vec<Option<String>> =
                asked.message.iter().flat_map(|message| &message.parts).map(said_by).collect();
            match send(asked) {
                Ok(read) => {
                    taken += 1;
                    let read: Vec<Option<String>> =
                        read.message.parts.into_iter().map(|part| part.text).collect();
                    assert_eq!(read, said);
                }
                Err(_) => refused += 1,
            }
        });
        assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused");
    }

    fn said_by(part: &proto::Part) -> Option<String> {
        match &part.content {
            Some(part::Content::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }
}
