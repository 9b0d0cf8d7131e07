//! The JSON-RPC binding: one address for each agent, the operation in the body.
//!
//! Takes requests apart and puts answers together; what they do is `operations.rs`. Whatever happens is answered with
//! HTTP 200 and an error inside, except what the door refuses.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::digest;

use super::error::{A2aError, Kind, RpcError};
use super::negotiate;
use super::operations::{Operation, OperationResult};
use super::stream::{self, Frame};
use super::wire::Json;
use crate::http::is_too_deep;

/// A request whose members nobody has looked at yet.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: Json,
    pub(super) method: String,
    /// The operation's members.
    pub(super) params: String,
}

/// A request that could be read.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: Json,
    pub(super) operation: Operation,
    /// Digest of the operation's members.
    pub(super) digest: digest::Digest,
}

/// Why there is no request, and whom to tell.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) id: Json,
    pub(super) error: A2aError,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: Option<String>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Answer<'a, T> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RpcError>,
}

/// Reads a request: first whether it is one, then which, then its members.
pub(super) fn read(bytes: &[u8]) -> Result<Request, Box<Unread>> {
    let Call { id, method, params } = envelope(bytes)?;
    match operation(&method, &params) {
        Ok(operation) => Ok(Request { id, operation, digest: digest::of_bytes(params.as_bytes()) }),
        Err(error) => Err(Box::new(Unread { id, error })),
    }
}

/// The id of a request, whatever else it says; null when it has none.
pub(super) fn id(bytes: &[u8]) -> Json {
    envelope(bytes).map_or_else(|unread| unread.id, |call| call.id)
}

/// Whether it is a request, and which.
pub(super) fn envelope(bytes: &[u8]) -> Result<Call, Box<Unread>> {
    let nobody = |kind, why: String| Box::new(Unread { id: null(), error: A2aError::new(kind, why) });
    if is_too_deep(bytes) {
        return Err(nobody(Kind::InvalidRequest, "the body is nested too deep".into()));
    }
    let malformed = |error: serde_json::Error| nobody(Kind::Parse, format!("the body is not JSON: {error}"));
    let raw: &RawValue = serde_json::from_slice(bytes).map_err(malformed)?;
    if !raw.get().starts_with('{') {
        let why = "the body must be one request object; batches are not supported";
        return Err(nobody(Kind::InvalidRequest, why.into()));
    }
    let misfit = |error: serde_json::Error| nobody(Kind::InvalidRequest, format!("no request: {error}"));
    let envelope: Envelope<'_> = serde_json::from_str(raw.get()).map_err(misfit)?;
    let id = match envelope.id {
        None => null(),
        Some(id) if id.get().starts_with(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) => {
            id.to_owned()
        }
        Some(id) if id.get() == "null" => null(),
        Some(_) => return Err(nobody(Kind::InvalidRequest, "id must be a text or a number".into())),
    };
    let unread = |error| Box::new(Unread { id: id.clone(), error });
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return Err(unread(A2aError::new(Kind::InvalidRequest, "jsonrpc must be \"2.0\"")));
    }
    let Some(method) = envelope.method else {
        return Err(unread(A2aError::new(Kind::InvalidRequest, "method is missing")));
    };
    Ok(Call { id, method, params: envelope.params.map_or("{}", RawValue::get).to_owned() })
}

fn operation(method: &str, params: &str) -> Result<Operation, A2aError> {
    Ok(match method {
        "SendMessage" => Operation::Send(members(params)?),
        "SendStreamingMessage" => Operation::Stream(members(params)?),
        "GetTask" => Operation::Get(members(params)?),
        "ListTasks" => Operation::List(members(params)?),
        "CancelTask" => Operation::Cancel(members(params)?),
        "SubscribeToTask" => Operation::Subscribe(members(params)?),
        "GetExtendedAgentCard" => Operation::ExtendedCard(members(params)?),
        "CreateTaskPushNotificationConfig" => Operation::CreatePush(members(params)?),
        "GetTaskPushNotificationConfig" => Operation::GetPush(members(params)?),
        "ListTaskPushNotificationConfigs" => Operation::ListPush(members(params)?),
        "DeleteTaskPushNotificationConfig" => Operation::DeletePush(members(params)?),
        _ => {
            let message = format!("there is no method {method}");
            return Err(A2aError::new(Kind::MethodNotFound, message));
        }
    })
}

/// The members of an operation. A derived reader would also take an array of them in their order.
pub(super) fn members<T: DeserializeOwned>(text: &str) -> Result<T, A2aError> {
    if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| A2aError::unreadable(&error))
    } else {
        Err(A2aError::invalid("", "the request's members must be a JSON object"))
    }
}

/// The answer to a request.
pub(super) fn answer(id: Json, done: Result<OperationResult, A2aError>) -> Response {
    match done {
        Ok(OperationResult::Sent(sent)) => result(&id, &sent),
        Ok(OperationResult::Task(task)) => result(&id, &task),
        Ok(OperationResult::Tasks(tasks)) => result(&id, &tasks),
        Ok(OperationResult::Card(card)) => result(&id, &card),
        Ok(OperationResult::PushConfig(config)) => result(&id, &config),
        Ok(OperationResult::PushConfigs(configs)) => result(&id, &configs),
        Ok(OperationResult::Nothing) => result(&id, &()),
        Ok(OperationResult::Once(event)) => stream::once(None, text(&id, Some(event), None)),
        Ok(OperationResult::Frames(frames)) => stream::events(*frames, move |frame| event(&id, frame)),
        Err(error) => refuse(&id, &error),
    }
}

fn event(id: &RawValue, frame: &Frame) -> String {
    match &frame.body {
        Ok(body) => text(id, Some(body), None),
        Err(error) => text::<()>(id, None, Some(error.rpc())),
    }
}

fn result(id: &RawValue, result: &impl Serialize) -> Response {
    json(text(id, Some(result), None))
}

pub(super) fn refuse(id: &RawValue, error: &A2aError) -> Response {
    let mut response = json(text::<()>(id, None, Some(error.rpc())));
    if error.kind == Kind::Unauthenticated {
        *response.status_mut() = error.kind.names().http;
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn text<T: Serialize>(id: &RawValue, result: Option<T>, error: Option<RpcError>) -> String {
    serde_json::to_string(&Answer { jsonrpc: "2.0", id, result, error }).unwrap_or_default()
}

fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, negotiate::JSON)], text).into_response()
}

pub(super) fn null() -> Json {
    RawValue::NULL.to_owned()
}
