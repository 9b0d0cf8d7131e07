//! The dialect of S3, at the addresses of 1.0 (C3): its JSON is that of 1.0, with a few habits of older versions.
//!
//! A message is `request`, its role may be in lower case and its id may be missing, so that its bytes stand for it; `configuration.blocking` says whether
//! to wait; a stopped task is `TASK_STATE_CANCELLED`; streams consist of events called `status_update`, and of
//! `artifact_update` while a model speaks (`enable_streaming`). Whoever does not
//! want to wait is answered within two seconds, which a quick model needs to ask its question (C33).

use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::Serialize;
use standfast_core::time::Millis;

use super::super::error::{A2aError, Kind};
use super::super::negotiate;
use super::super::operations::{Operation, OperationResult, QuestionPaging, perform};
use super::super::rest::{self, Path, PathTarget, Target, object};
use super::super::stream::{Frame, named_events};
use super::super::wire::{
    Artifact, ListTasksResponse, Message, Part, SendMessageRequest, SendMessageResponse, StreamResponse,
    Task, TaskStatus,
};
use super::LegacyRequest;
use super::map::{self, Form, Sender};
use super::wire::SendParams;
use crate::http::App;

/// How long whoever does not want to wait waits all the same (C33).
const LINGERS: Millis = Millis::seconds(2);

/// The name of the events that say where a task stands.
const STATUS_UPDATE: &str = "status_update";

/// The name of those with tokens that the model is streaming.
const ARTIFACT_UPDATE: &str = "artifact_update";

/// A task, with the other spelling of one state.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DialectTask<'a> {
    id: &'a str,
    context_id: &'a str,
    status: Status<'a>,
    #[serde(skip_serializing_if = "<[Artifact]>::is_empty")]
    artifacts: &'a [Artifact],
    #[serde(skip_serializing_if = "<[Message]>::is_empty")]
    history: &'a [Message],
}

#[derive(Serialize)]
struct Status<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a Message>,
    timestamp: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum DialectResponse<'a> {
    Task(DialectTask<'a>),
    Message(&'a Message),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    tasks: Vec<DialectTask<'a>>,
    next_page_token: &'a str,
    page_size: usize,
    total_size: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    task_id: &'a str,
    context_id: &'a str,
    status: Status<'a>,
}

pub(super) async fn answer(app: &App, mut target: Target, heard: &LegacyRequest) -> Response {
    let media = negotiate::answer_type(&heard.parts.headers);
    let PathTarget::Operation(path) = std::mem::replace(&mut target.what, PathTarget::Nothing) else {
        return rest::refuse(media, &A2aError::new(Kind::MethodNotFound, "there is no such operation"));
    };
    let done = async {
        let (operation, is_unnamed) = read(app, path, heard)?;
        let mut asked = heard.asked(app, &target, &operation, &heard.body)?;
        (asked.lingers, asked.is_unnamed, asked.asks) = (LINGERS, is_unnamed, QuestionPaging::OneByOne);
        perform(asked, operation).await
    };
    match done.await {
        Ok(OperationResult::Sent(sent)) => match sent.as_ref() {
            SendMessageResponse::Task(task) => result(media, &DialectResponse::Task(told(task))),
            SendMessageResponse::Message(message) => result(media, &DialectResponse::Message(message)),
        },
        Ok(OperationResult::Task(task)) => result(media, &told(&task)),
        Ok(OperationResult::Tasks(page)) => {
            let ListTasksResponse { tasks, next_page_token, page_size, total_size } = &page;
            let tasks = tasks.iter().map(told).collect();
            let (page_size, total_size) = (*page_size, *total_size);
            result(media, &Page { tasks, next_page_token, page_size, total_size })
        }
        Ok(OperationResult::Frames(frames)) => named_events(*frames, event),
        // Those that 1.0 answers in the same words.
        done @ (Ok(
            OperationResult::Card(_)
            | OperationResult::PushConfig(_)
            | OperationResult::PushConfigs(_)
            | OperationResult::Nothing
            | OperationResult::Once(_),
        )
        | Err(_)) => rest::answer(media, done),
    }
}

/// An operation, and whether its message has no id.
fn read(app: &App, path: Path, heard: &LegacyRequest) -> Result<(Operation, bool), A2aError> {
    let (method, uri, body) = (&heard.parts.method, &heard.parts.uri, &heard.body);
    if !body.is_empty() {
        negotiate::content_type(&heard.parts.headers)?;
    }
    match (path, method) {
        (Path::Send, &Method::POST) => {
            send(app, body).map(|(it, is_unnamed)| (Operation::Send(Box::new(it)), is_unnamed))
        }
        (Path::Stream, &Method::POST) => {
            send(app, body).map(|(it, is_unnamed)| (Operation::Stream(Box::new(it)), is_unnamed))
        }
        (path, method) => rest::read(path, method, uri, body).map(|operation| (operation, false)),
    }
}

fn send(app: &App, body: &[u8]) -> Result<(SendMessageRequest, bool), A2aError> {
    let mut request = map::send(Sender::Dialect, object::<SendParams<Part>>(body)?)?;
    let is_unnamed = request.message.message_id.is_empty();
    if is_unnamed {
        let random = app.engine.clock().entropy().draw("message", 0);
        request.message.message_id = BASE64_URL_SAFE_NO_PAD.encode(random.0);
    }
    Ok((request, is_unnamed))
}

fn told(task: &Task) -> DialectTask<'_> {
    let Task { id, context_id, status, artifacts, history } = task;
    DialectTask { id, context_id, status: self::status(status), artifacts, history }
}

fn status(status: &TaskStatus) -> Status<'_> {
    let TaskStatus { state, message, timestamp } = status;
    // Its words are those of protobuf in 0.3.
    Status { state: map::state(Form::Proto, *state), message: message.as_ref(), timestamp }
}

/// Where the task stands: first as it is, then each time that it stands elsewhere. What it made is in its last status;
/// until then words are sent as they come.
fn event(frame: &Frame) -> Option<(Option<&'static str>, String)> {
    let (task_id, context_id, status) = match &frame.body {
        Ok(StreamResponse::Task(task)) => (&task.id, &task.context_id, &task.status),
        Ok(StreamResponse::StatusUpdate(update)) => (&update.task_id, &update.context_id, &update.status),
        Ok(StreamResponse::ArtifactUpdate(words)) if frame.id.is_none() => {
            return Some((Some(ARTIFACT_UPDATE), serde_json::to_string(words).unwrap_or_default()));
        }
        Ok(StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_)) => return None,
        Err(error) => return Some((None, serde_json::to_string(&error.rest()).unwrap_or_default())),
    };
    let update = Update { task_id, context_id, status: self::status(status) };
    Some((Some(STATUS_UPDATE), serde_json::to_string(&update).unwrap_or_default()))
}

fn result(media: &'static str, value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    ([(header::CONTENT_TYPE, media)], text).into_response()
}
