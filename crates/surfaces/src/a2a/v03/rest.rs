//! 0.3 over HTTP+JSON: the paths of 1.0 behind `/v1`, and bodies as protobuf writes them.
//!
//! Takes requests apart and puts answers together. Whatever a client of 0.3 does not know must not be in an answer: the
//! official one for Python reads nothing that has more.

use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::super::error::{A2aError, Kind};
use super::super::negotiate;
use super::super::operations::{Operation, OperationResult};
use super::super::rest::{self, Path, PathTarget, Target, object};
use super::super::stream as newer_stream;
use super::super::wire::{SendMessageResponse, TaskPushNotificationConfig};
use super::error::{OlderError, http};
use super::map::{self, Form, Sender};
use super::wire::{
    Message, ProtoCreatePush, ProtoPart, ProtoPushes, ProtoTaskPush, PushConfig, SendParams, StreamEvent,
    Task,
};
use super::{LegacyRequest, LegacyResult, card};
use crate::http::App;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum SendResponse {
    Task(Box<Task>),
    Message(Box<Message>),
}

pub(super) async fn answer(app: &App, mut target: Target, heard: &LegacyRequest) -> Response {
    let PathTarget::Operation(path) = std::mem::replace(&mut target.what, PathTarget::Nothing) else {
        return refuse(&nothing());
    };
    let closes_at_a_question = path == Path::Stream;
    let done = match read(path, heard) {
        Ok(operation) => heard.perform(app, &target, operation, &heard.body).await,
        Err(error) => Err(error),
    };
    match done {
        Err(error) => refuse(&error),
        Ok(LegacyResult::Ended(task)) => {
            let event = StreamEvent::Task(map::task(Form::Proto, &task));
            newer_stream::once(None, serde_json::to_string(&event).unwrap_or_default())
        }
        Ok(LegacyResult::Done(done)) => answered(done, closes_at_a_question),
    }
}

fn read(path: Path, heard: &LegacyRequest) -> Result<Operation, A2aError> {
    let (method, uri, body) = (&heard.parts.method, &heard.parts.uri, &heard.body);
    if !body.is_empty() {
        negotiate::content_type(&heard.parts.headers)?;
    }
    let send = || object::<SendParams<ProtoPart>>(body).and_then(|it| map::send(Sender::Proto, it));
    match (path, method) {
        (Path::Send, &Method::POST) => Ok(Operation::Send(Box::new(send()?))),
        (Path::Stream, &Method::POST) => Ok(Operation::Stream(Box::new(send()?))),
        (Path::Tasks, _) => Err(A2aError::new(Kind::MethodNotFound, "A2A 0.3 cannot list tasks")),
        (Path::PushConfigs(task), &Method::POST) => {
            let ProtoCreatePush { config_id, config, push_notification_config } = object(body)?;
            let inside = config.map(|config| config.push_notification_config);
            let missing =
                || A2aError::invalid("pushNotificationConfig", "is missing; name the URL to notify");
            let config = push_notification_config.or(inside).ok_or_else(missing)?;
            let id = config.id.clone().filter(|id| !id.is_empty()).or(config_id);
            let config = map::push(Some(task), PushConfig { id, ..config });
            Ok(Operation::CreatePush(Box::new(config)))
        }
        (path, method) => {
            let mut operation = rest::read(path, method, uri, body)?;
            if let Operation::Get(get) = &mut operation {
                get.history_length = map::history(get.history_length);
            }
            Ok(operation)
        }
    }
}

fn answered(done: OperationResult, closes_at_a_question: bool) -> Response {
    match done {
        OperationResult::Sent(sent) => result(&match sent.as_ref() {
            SendMessageResponse::Task(task) => SendResponse::Task(Box::new(map::task(Form::Proto, task))),
            SendMessageResponse::Message(message) => {
                SendResponse::Message(Box::new(map::message(Form::Proto, message)))
            }
        }),
        OperationResult::Task(task) => result(&map::task(Form::Proto, &task)),
        OperationResult::Card(card) => result(&card::hybrid(&card)),
        OperationResult::Tasks(_) => refuse(&nothing()),
        OperationResult::PushConfig(config) => result(&task_push(*config)),
        OperationResult::PushConfigs(configs) => {
            result(&ProtoPushes { configs: configs.configs.into_iter().map(task_push).collect() })
        }
        OperationResult::Nothing => result(&serde_json::Map::new()),
        OperationResult::Once(event) => {
            let event = map::event(Form::Proto, &event, closes_at_a_question);
            newer_stream::once(None, serde_json::to_string(&event).unwrap_or_default())
        }
        OperationResult::Frames(frames) => newer_stream::events(*frames, move |frame| {
            let text = match &frame.body {
                Ok(body) => serde_json::to_string(&map::event(Form::Proto, body, closes_at_a_question)),
                Err(error) => serde_json::to_string(&OlderError::of(error)),
            };
            text.unwrap_or_default()
        }),
    }
}

fn task_push(config: TaskPushNotificationConfig) -> ProtoTaskPush {
    let (task, push_notification_config) = map::older_push(config);
    let id = push_notification_config.id.as_deref().unwrap_or_default();
    ProtoTaskPush { name: format!("tasks/{task}/pushNotificationConfigs/{id}"), push_notification_config }
}

fn nothing() -> A2aError {
    A2aError::new(Kind::MethodNotFound, "there is no such operation in version 0.3")
}

fn result(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    ([(header::CONTENT_TYPE, negotiate::JSON)], text).into_response()
}

pub(super) fn refuse(error: &A2aError) -> Response {
    let mut response = result(&OlderError::of(error));
    *response.status_mut() = http(error.kind);
    if error.kind == Kind::Unauthenticated {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
