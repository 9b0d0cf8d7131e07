//! 0.3 over JSON-RPC: methods with a slash, at the same address as 1.0.
//!
//! Takes requests apart and puts answers together. `tasks/resubscribe` is answered with a stream even when it is refused,
//! and so is `message/stream` where the client wants one: the clients of 0.3 read nothing else there.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::error::{A2aError, Kind};
use super::super::jsonrpc::{self, members};
use super::super::negotiate;
use super::super::operations::{Operation, OperationResult};
use super::super::rest::Target;
use super::super::stream::{self as newer_stream, Frame};
use super::super::wire::{
    GetTaskRequest, Json, ListPushRequest, PushRequest, RoutedRequest, SendMessageResponse,
    TaskPushNotificationConfig,
};
use super::error::OlderError;
use super::map::{self, Form, Sender};
use super::wire::{PushQuery, RpcPart, RpcTaskPush, SendParams, StreamEvent, TaskId, TaskQuery};
use super::{LegacyRequest, LegacyResult, card};
use crate::http::App;

/// Without the id of a receiver it means any of the task.
const GET_PUSH: &str = "tasks/pushNotificationConfig/get";

#[derive(Serialize)]
struct Answer<'a, T> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<OlderError>,
}

pub(super) async fn answer(app: &App, target: &Target, heard: &LegacyRequest) -> Response {
    let headers = &heard.parts.headers;
    if let Err(error) = negotiate::content_type(headers) {
        return refuse(&jsonrpc::null(), &error);
    }
    let call = match jsonrpc::envelope(&heard.body) {
        Ok(call) => call,
        Err(unread) => return refuse(&unread.id, &unread.error),
    };
    let done = match operation(&call.method, &call.params) {
        Ok(operation) => heard.perform(app, target, operation, call.params.as_bytes()).await,
        Err(error) => Err(error),
    };
    match done {
        Err(error) if is_stream(&call.method, headers) && error.kind != Kind::Unauthenticated => {
            newer_stream::once(None, text::<()>(&call.id, None, Some(OlderError::of(&error))))
        }
        Err(error) => refuse(&call.id, &error),
        Ok(LegacyResult::Ended(task)) => {
            newer_stream::once(None, text(&call.id, Some(map::task(Form::Rpc, &task)), None))
        }
        Ok(LegacyResult::Done(done)) => answered(call.id, done, &call.method),
    }
}

pub(super) fn operation(method: &str, params: &str) -> Result<Operation, A2aError> {
    let send = || members::<SendParams<RpcPart>>(params).and_then(|it| map::send(Sender::Rpc, it));
    Ok(match method {
        "message/send" => Operation::Send(Box::new(send()?)),
        "message/stream" => Operation::Stream(Box::new(send()?)),
        "tasks/get" => {
            let TaskQuery { id, history_length } = members(params)?;
            Operation::Get(GetTaskRequest { tenant: None, id, history_length: map::history(history_length) })
        }
        "tasks/cancel" => Operation::Cancel(members::<TaskId>(params)?),
        "tasks/resubscribe" => Operation::Subscribe(members::<TaskId>(params)?),
        "agent/getAuthenticatedExtendedCard" => Operation::ExtendedCard(RoutedRequest::default()),
        "tasks/pushNotificationConfig/set" => {
            let RpcTaskPush { task_id, push_notification_config } = members(params)?;
            Operation::CreatePush(Box::new(map::push(Some(task_id), push_notification_config)))
        }
        GET_PUSH | "tasks/pushNotificationConfig/list" | "tasks/pushNotificationConfig/delete" => {
            let PushQuery { id: task_id, push_notification_config_id } = members(params)?;
            match (method, push_notification_config_id) {
                (GET_PUSH, Some(id)) => Operation::GetPush(PushRequest { tenant: None, task_id, id }),
                ("tasks/pushNotificationConfig/delete", id) => {
                    let id = id.unwrap_or_default();
                    Operation::DeletePush(PushRequest { tenant: None, task_id, id })
                }
                (_, _) => {
                    let (page_size, page_token) = (None, None);
                    Operation::ListPush(ListPushRequest { tenant: None, task_id, page_size, page_token })
                }
            }
        }
        _ => {
            let message = format!("there is no method {method} in version 0.3");
            return Err(A2aError::new(Kind::MethodNotFound, message));
        }
    })
}

/// Whether a client of this method reads nothing but a stream.
fn is_stream(method: &str, headers: &HeaderMap) -> bool {
    let wants = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    method == "tasks/resubscribe" || (method == "message/stream" && wants.contains("text/event-stream"))
}

fn answered(id: Json, done: OperationResult, method: &str) -> Response {
    let closes_at_a_question = method == "message/stream";
    match done {
        OperationResult::Sent(sent) => match sent.as_ref() {
            SendMessageResponse::Task(task) => result(&id, &map::task(Form::Rpc, task)),
            SendMessageResponse::Message(message) => result(&id, &map::message(Form::Rpc, message)),
        },
        OperationResult::Task(task) => result(&id, &map::task(Form::Rpc, &task)),
        OperationResult::Card(card) => result(&id, &card::hybrid(&card)),
        OperationResult::Tasks(_) => {
            refuse(&id, &A2aError::new(Kind::MethodNotFound, "A2A 0.3 cannot list tasks"))
        }
        OperationResult::PushConfig(config) => result(&id, &task_push(*config)),
        OperationResult::PushConfigs(configs) if method == GET_PUSH => {
            match configs.configs.into_iter().next() {
                Some(config) => result(&id, &task_push(config)),
                None => {
                    let message = "this task has no push notification config of yours";
                    refuse(&id, &A2aError::new(Kind::TaskNotFound, message))
                }
            }
        }
        OperationResult::PushConfigs(configs) => {
            let all: Vec<RpcTaskPush> = configs.configs.into_iter().map(task_push).collect();
            result(&id, &all)
        }
        OperationResult::Nothing => result(&id, &()),
        OperationResult::Once(event) => {
            let frame = Frame { id: None, body: Ok(*event) };
            newer_stream::once(None, self::event(&id, &frame, closes_at_a_question))
        }
        OperationResult::Frames(frames) => {
            newer_stream::events(*frames, move |frame| event(&id, frame, closes_at_a_question))
        }
    }
}

fn task_push(config: TaskPushNotificationConfig) -> RpcTaskPush {
    let (task_id, push_notification_config) = map::older_push(config);
    RpcTaskPush { task_id, push_notification_config }
}

fn event(id: &RawValue, frame: &Frame, closes_at_a_question: bool) -> String {
    match &frame.body {
        Ok(body) => match map::event(Form::Rpc, body, closes_at_a_question) {
            StreamEvent::Task(task) => text(id, Some(task), None),
            StreamEvent::Message(message) => text(id, Some(message), None),
            StreamEvent::StatusUpdate(update) => text(id, Some(update), None),
            StreamEvent::ArtifactUpdate(update) => text(id, Some(update), None),
        },
        Err(error) => text::<()>(id, None, Some(OlderError::of(error))),
    }
}

fn result(id: &RawValue, result: &impl Serialize) -> Response {
    json(text(id, Some(result), None))
}

fn refuse(id: &RawValue, error: &A2aError) -> Response {
    let mut response = json(text::<()>(id, None, Some(OlderError::of(error))));
    if error.kind == Kind::Unauthenticated {
        *response.status_mut() = error.kind.names().http;
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn text<T: Serialize>(id: &RawValue, result: Option<T>, error: Option<OlderError>) -> String {
    serde_json::to_string(&Answer { jsonrpc: "2.0", id, result, error }).unwrap_or_default()
}

fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, negotiate::JSON)], text).into_response()
}
