//! The HTTP+JSON binding: the operation in method and path, its members in path, query and body.
//!
//! Takes requests apart and puts answers together; what they do is `operations.rs`.

use axum::extract::Query;
use axum::http::{HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;

use super::error::{A2aError, Kind};
use super::jsonrpc::members;
use super::operations::{Operation, OperationResult};
use super::stream;
use super::wire::{
    GetTaskRequest, ListPushRequest, ListTasksRequest, PushRequest, RoutedRequest, SendMessageRequest,
    TaskPushNotificationConfig, TaskRequest, task_state,
};
use crate::http::is_too_deep;

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The agent that the path names.
    pub(super) agent: Option<String>,
    /// The routing value in front of the operation's path.
    pub(super) tenant: Option<String>,
    pub(super) what: PathTarget,
}

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathTarget {
    /// JSON-RPC.
    Rpc,
    /// The public card.
    Card,
    /// An operation of this binding.
    Operation(Path),
    /// Nothing.
    Nothing,
}

/// An operation's path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Path {
    Send,
    Stream,
    Tasks,
    Task(String),
    Cancel(String),
    Subscribe(String),
    /// Of a task.
    PushConfigs(String),
    /// Of a task, with its id.
    PushConfig(String, String),
    ExtendedCard,
}

/// Where a path leads.
pub(super) fn target(path: &str) -> Target {
    let segments: Vec<String> =
        path.trim_matches('/').split('/').filter(|part| !part.is_empty()).map(decoded).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (agent, rest) = match segments.as_slice() {
        ["v1", "agents", agent, rest @ ..] => (Some((*agent).to_owned()), rest),
        rest => (None, rest),
    };
    let (tenant, what) = match rest {
        [] => (None, PathTarget::Rpc),
        [".well-known", "agent-card.json"] => (None, PathTarget::Card),
        [first, behind @ ..] => match (operation_path(rest), operation_path(behind)) {
            (Some(path), _) => (None, PathTarget::Operation(path)),
            (None, Some(path)) => (Some((*first).to_owned()), PathTarget::Operation(path)),
            (None, None) => (None, PathTarget::Nothing),
        },
    };
    Target { agent, tenant, what }
}

fn operation_path(segments: &[&str]) -> Option<Path> {
    Some(match segments {
        ["message:send"] => Path::Send,
        ["message:stream"] => Path::Stream,
        ["extendedAgentCard"] => Path::ExtendedCard,
        ["tasks"] => Path::Tasks,
        ["tasks", task] => match task.rsplit_once(':') {
            Some((id, "cancel")) => Path::Cancel(id.to_owned()),
            Some((id, "subscribe")) => Path::Subscribe(id.to_owned()),
            Some(_) => return None,
            None => Path::Task((*task).to_owned()),
        },
        ["tasks", task, "pushNotificationConfigs"] => Path::PushConfigs((*task).to_owned()),
        ["tasks", task, "pushNotificationConfigs", id] => {
            Path::PushConfig((*task).to_owned(), (*id).to_owned())
        }
        _ => return None,
    })
}

/// A segment with its escapes resolved; what is not text stays as it is.
fn decoded(segment: &str) -> String {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, behind @ ..] = rest {
        let escaped = match (first, behind) {
            (b'%', [high, low, ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                digit(high).zip(digit(low)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok())
            }
            (_, _) => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| segment.to_owned())
}

/// Reads an operation.
pub(super) fn read(path: Path, method: &Method, uri: &Uri, body: &[u8]) -> Result<Operation, A2aError> {
    let arguments = arguments(uri)?;
    let tenant = || arguments.get("tenant").map(str::to_owned);
    match (path, method) {
        (Path::Send, &Method::POST) => {
            object::<SendMessageRequest>(body).map(|it| Operation::Send(Box::new(it)))
        }
        (Path::Stream, &Method::POST) => {
            object::<SendMessageRequest>(body).map(|it| Operation::Stream(Box::new(it)))
        }
        (Path::Tasks, &Method::GET) => list(&arguments).map(Operation::List),
        (Path::Task(id), &Method::GET) => {
            let history_length = arguments.number(["historyLength", "history_length"])?;
            Ok(Operation::Get(GetTaskRequest { tenant: tenant(), id, history_length }))
        }
        (Path::Cancel(id), &Method::POST) => about_task(id, tenant(), body).map(Operation::Cancel),
        (Path::Subscribe(id), &Method::POST | &Method::GET) => {
            about_task(id, tenant(), body).map(Operation::Subscribe)
        }
        (Path::ExtendedCard, &Method::GET) => Ok(Operation::ExtendedCard(RoutedRequest { tenant: tenant() })),
        (Path::PushConfigs(task), &Method::POST) => {
            let config: TaskPushNotificationConfig = object(body)?;
            let tenant = config.tenant.clone().or_else(tenant);
            let config = TaskPushNotificationConfig { tenant, task_id: Some(task), ..config };
            Ok(Operation::CreatePush(Box::new(config)))
        }
        (Path::PushConfigs(task_id), &Method::GET) => {
            let page_size = arguments.number(["pageSize", "page_size"])?;
            let page_token = arguments.text(["pageToken", "page_token"]);
            Ok(Operation::ListPush(ListPushRequest { tenant: tenant(), task_id, page_size, page_token }))
        }
        (Path::PushConfig(task_id, id), &Method::GET) => {
            Ok(Operation::GetPush(PushRequest { tenant: tenant(), task_id, id }))
        }
        (Path::PushConfig(task_id, id), &Method::DELETE) => {
            Ok(Operation::DeletePush(PushRequest { tenant: tenant(), task_id, id }))
        }
        (_, method) => {
            let message = format!("{} does not support {method}", uri.path());
            Err(A2aError::new(Kind::MethodNotFound, message))
        }
    }
}

/// The members of a request about a task; its id is the path's, whatever the body says.
fn about_task(id: String, tenant: Option<String>, body: &[u8]) -> Result<TaskRequest, A2aError> {
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct RequestMembers {
        tenant: Option<String>,
        metadata: Option<super::wire::Object>,
    }
    let rest: RequestMembers = if body.is_empty() { RequestMembers::default() } else { object(body)? };
    Ok(TaskRequest { tenant: rest.tenant.or(tenant), id, metadata: rest.metadata })
}

/// The members of a request in a body.
pub(super) fn object<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, A2aError> {
    if is_too_deep(body) {
        return Err(A2aError::new(Kind::InvalidRequest, "the body is nested too deep"));
    }
    let malformed = |error| A2aError::new(Kind::Parse, format!("the body is not JSON: {error}"));
    let raw: &RawValue = serde_json::from_slice(body).map_err(malformed)?;
    members(raw.get())
}

fn list(arguments: &Arguments) -> Result<ListTasksRequest, A2aError> {
    let status = arguments.get("status").map(|word| {
        task_state(word).map_err(|_| A2aError::invalid("status", format!("{word} is not a task state")))
    });
    let truth = |word: &str| match word {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(A2aError::invalid("includeArtifacts", "must be true or false")),
    };
    let text = |names| arguments.text(names);
    Ok(ListTasksRequest {
        tenant: text(["tenant", "tenant"]),
        context_id: text(["contextId", "context_id"]),
        status: status.transpose()?.flatten(),
        page_size: arguments.number(["pageSize", "page_size"])?,
        page_token: text(["pageToken", "page_token"]),
        history_length: arguments.number(["historyLength", "history_length"])?,
        status_timestamp_after: text(["statusTimestampAfter", "status_timestamp_after"]),
        include_artifacts: text(["includeArtifacts", "include_artifacts"])
            .as_deref()
            .map(truth)
            .transpose()?,
    })
}

/// The arguments after the `?`.
struct Arguments(Vec<(String, String)>);

fn arguments(uri: &Uri) -> Result<Arguments, A2aError> {
    let unreadable = |bad: axum::extract::rejection::QueryRejection| A2aError::invalid("", bad.body_text());
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(unreadable)?;
    let mut names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|two| two.first() == two.last()) {
        Some(two) => {
            let name = two.first().copied().unwrap_or_default().to_owned();
            Err(A2aError::invalid(name, "stands more than once"))
        }
        None => Ok(Arguments(pairs)),
    }
}

impl Arguments {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn text(&self, names: [&str; 2]) -> Option<String> {
        names.iter().find_map(|name| self.get(name)).map(str::to_owned)
    }

    fn number(&self, names: [&str; 2]) -> Result<Option<i32>, A2aError> {
        let found = names.iter().find_map(|name| self.get(name)).filter(|text| !text.is_empty());
        let wrong = |_| A2aError::invalid(names[0], "must be a whole number of 32 bits");
        found.map(str::parse).transpose().map_err(wrong)
    }
}

/// The answer to a request, in this media type.
pub(super) fn answer(media: &'static str, done: Result<OperationResult, A2aError>) -> Response {
    match done {
        Ok(OperationResult::Sent(sent)) => result(media, &sent),
        Ok(OperationResult::Task(task)) => result(media, &task),
        Ok(OperationResult::Tasks(tasks)) => result(media, &tasks),
        Ok(OperationResult::Card(card)) => result(media, &card),
        Ok(OperationResult::PushConfig(config)) => result(media, &config),
        Ok(OperationResult::PushConfigs(configs)) => result(media, &configs),
        Ok(OperationResult::Nothing) => result(media, &serde_json::Map::new()),
        Ok(OperationResult::Once(event)) => {
            stream::once(None, serde_json::to_string(&event).unwrap_or_default())
        }
        Ok(OperationResult::Frames(frames)) => stream::events(*frames, |frame| {
            let text = match &frame.body {
                Ok(body) => serde_json::to_string(body),
                Err(error) => serde_json::to_string(&error.rest()),
            };
            text.unwrap_or_default()
        }),
        Err(error) => refuse(media, &error),
    }
}

fn result(media: &'static str, value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    ([(header::CONTENT_TYPE, media)], text).into_response()
}

pub(super) fn refuse(media: &'static str, error: &A2aError) -> Response {
    let mut response = result(media, &error.rest());
    *response.status_mut() = error.kind.names().http;
    if error.kind == Kind::Unauthenticated {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every path of the binding, with and without agent and routing value.
    #[test]
    fn paths_lead_to_operations() {
        let id = || "run_1".to_owned();
        for (path, agent, tenant, what) in [
            ("/", None, None, PathTarget::Rpc),
            ("/v1/agents/ops", Some("ops"), None, PathTarget::Rpc),
            ("/v1/agents/ops/", Some("ops"), None, PathTarget::Rpc),
            ("/v1/agents/my%20ops", Some("my ops"), None, PathTarget::Rpc),
            ("/.well-known/agent-card.json", None, None, PathTarget::Card),
            ("/v1/agents/ops/.well-known/agent-card.json", Some("ops"), None, PathTarget::Card),
            ("/v1/agents/ops/message:send", Some("ops"), None, PathTarget::Operation(Path::Send)),
            ("/message:stream", None, None, PathTarget::Operation(Path::Stream)),
            ("/ops/message:send", None, Some("ops"), PathTarget::Operation(Path::Send)),
            ("/v1/agents/ops/ops/tasks", Some("ops"), Some("ops"), PathTarget::Operation(Path::Tasks)),
            ("/tasks/run_1", None, None, PathTarget::Operation(Path::Task(id()))),
            ("/tasks/run_1:cancel", None, None, PathTarget::Operation(Path::Cancel(id()))),
            ("/tasks/run_1%3Asubscribe", None, None, PathTarget::Operation(Path::Subscribe(id()))),
            ("/ops/tasks/run_1", None, Some("ops"), PathTarget::Operation(Path::Task(id()))),
            ("/tasks/run_1:other", None, None, PathTarget::Nothing),
            (
                "/tasks/run_1/pushNotificationConfigs",
                None,
                None,
                PathTarget::Operation(Path::PushConfigs(id())),
            ),
            (
                "/tasks/run_1/pushNotificationConfigs/c",
                None,
                None,
                PathTarget::Operation(Path::PushConfig(id(), "c".into())),
            ),
            ("/extendedAgentCard", None, None, PathTarget::Operation(Path::ExtendedCard)),
            ("/v1/agents/ops/nothing", Some("ops"), None, PathTarget::Nothing),
            ("/v1/agents", None, None, PathTarget::Nothing),
        ] {
            let expected =
                Target { agent: agent.map(str::to_owned), tenant: tenant.map(str::to_owned), what };
            assert_eq!(target(path), expected, "{path}");
        }
    }

    #[test]
    fn escapes_are_resolved_and_broken_ones_stay() {
        for (text, expected) in [("a%20b", "a b"), ("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%ff", "%ff")] {
            assert_eq!(decoded(text), expected);
        }
    }
}
