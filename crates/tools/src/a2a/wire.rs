//! What is sent to a remote agent, over the binding that its card names: JSON-RPC, or HTTP with JSON.
//!
//! What matters is whether a request can have had an effect, as with every request: [`SendError`] tells them apart.

use reqwest::{Method, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use standfast_core::time::Millis;
use standfast_engine::outbound::http::{self, Answer, HttpLimits, Request, Trouble};

use super::RemoteOptions;
use super::asks::shortened;
use super::card::{Binding, Card, CardText, IDEMPOTENCY};
use super::task::{Message, Task};

/// How long an answer may take. Tasks answer at once and are looked at later.
const TIME: Millis = Millis::seconds(60);

/// The member of a message's metadata that the extension reads.
const KEY: &str = "a2a-rust.com/idempotency-key";

/// The error of a task that is not there.
const TASK_NOT_FOUND: (i64, &str) = (-32001, "TASK_NOT_FOUND");

/// A remote agent as it is spoken to.
pub(super) struct Line<'a> {
    pub(super) options: &'a RemoteOptions,
    pub(super) card: &'a Card,
    pub(super) transport: Transport<'a>,
}

/// What carries requests there and answers back.
#[derive(Debug, Clone, Copy)]
pub(super) enum Transport<'a> {
    Http,
    /// Nothing is sent, and this is every answer (`canned_client.rs`).
    Canned(&'a str),
}

/// The result of a message.
pub(super) enum SendResult {
    Task(Box<Task>),
    Message(Message),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SendError {
    /// Nothing was sent.
    #[error("{0}")]
    NotSent(String),
    /// It was sent, and may have had any effect.
    #[error("{0}")]
    Lost(String),
    /// The remote agent refused it.
    #[error("{0}")]
    Refused(String),
    /// It knows no such task.
    #[error("{0}")]
    UnknownTask(String),
    /// It wants to know who we are.
    #[error("it requires a login: {0}")]
    Login(String),
}

/// One operation, in both bindings.
struct Operation<'a> {
    /// What names it when it is sent again.
    key: &'a str,
    rpc: &'static str,
    params: Value,
    method: Method,
    /// Below the address, as segments.
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
}

#[derive(Deserialize)]
struct SendAnswer {
    task: Option<Box<Task>>,
    message: Option<Message>,
}

#[derive(Deserialize)]
struct ListAnswer {
    #[serde(default)]
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct RpcAnswer {
    result: Option<Box<serde_json::value::RawValue>>,
    error: Option<RemoteError>,
}

#[derive(Deserialize)]
struct RestAnswer {
    error: RemoteError,
}

/// An error as the remote agent tells it.
#[derive(Deserialize)]
struct RemoteError {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Vec<Value>,
}

impl Line<'_> {
    /// Sends a message; with the same key it may be sent again where the remote agent says so.
    pub(super) async fn send(&self, key: &str, mut message: Value) -> Result<SendResult, SendError> {
        if self.card.is_idempotent {
            message["metadata"] = json!({KEY: key});
        }
        let configuration =
            json!({"returnImmediately": true, "acceptedOutputModes": ["text/plain", "application/json"]});
        let sent: SendAnswer = self
            .ask(Operation {
                key,
                rpc: "SendMessage",
                params: json!({"message": message, "configuration": configuration}),
                method: Method::POST,
                path: vec!["message:send".into()],
                query: Vec::new(),
            })
            .await?;
        match (sent.task, sent.message) {
            (Some(task), _) => Ok(SendResult::Task(task)),
            (None, Some(message)) => Ok(SendResult::Message(message)),
            (None, None) => Err(SendError::Lost("the answer has neither a task nor a message".into())),
        }
    }

    /// A task as it is now.
    pub(super) async fn get(&self, task: &str, history: u32) -> Result<Task, SendError> {
        self.ask(Operation {
            key: &format!("get-{task}"),
            rpc: "GetTask",
            params: json!({"id": task, "historyLength": history}),
            method: Method::GET,
            path: vec!["tasks".into(), task.to_owned()],
            query: vec![("historyLength", history.to_string())],
        })
        .await
    }

    /// The task of a conversation that only one message can have begun.
    pub(super) async fn find(&self, context: &str) -> Result<Option<Task>, SendError> {
        let found: ListAnswer = self
            .ask(Operation {
                key: &format!("find-{context}"),
                rpc: "ListTasks",
                params: json!({"contextId": context, "pageSize": 2}),
                method: Method::GET,
                path: vec!["tasks".into()],
                query: vec![("contextId", context.to_owned()), ("pageSize", "2".into())],
            })
            .await?;
        let is_ours = |task: &Task| task.context_id.as_deref() == Some(context);
        Ok(found.tasks.into_iter().find(is_ours))
    }

    /// What the agent says of itself to those who are known.
    pub(super) async fn card(&self) -> Result<CardText, SendError> {
        self.ask(Operation {
            key: "card",
            rpc: "GetExtendedAgentCard",
            params: json!({}),
            method: Method::GET,
            path: vec!["extendedAgentCard".into()],
            query: Vec::new(),
        })
        .await
    }

    pub(super) async fn cancel(&self, task: &str) -> Result<(), SendError> {
        let _: Value = self
            .ask(Operation {
                key: &format!("cancel-{task}"),
                rpc: "CancelTask",
                params: json!({"id": task}),
                method: Method::POST,
                path: vec!["tasks".into(), format!("{task}:cancel")],
                query: Vec::new(),
            })
            .await?;
        Ok(())
    }

    async fn ask<T: DeserializeOwned>(&self, mut operation: Operation<'_>) -> Result<T, SendError> {
        if let Some(tenant) = &self.card.endpoint.tenant {
            operation.params["tenant"] = json!(tenant);
        }
        let request = self.request(operation)?;
        let limits =
            HttpLimits { time: TIME, answer_bytes: self.options.answer_bytes, ..HttpLimits::default() };
        let sent = match self.transport {
            Transport::Http => http::send(&self.options.guard, &limits, request).await,
            Transport::Canned(body) => Ok(canned(body)),
        };
        let answer = sent.map_err(|trouble| match trouble {
            Trouble::Blocked(_) | Trouble::NotSent(_) => SendError::NotSent(trouble.to_string()),
            Trouble::Broken(_) => SendError::Lost(trouble.to_string()),
        })?;
        match self.card.endpoint.binding {
            Binding::JsonRpc => rpc_answer(answer),
            Binding::HttpJson => rest_answer(answer),
        }
    }

    fn request(&self, operation: Operation<'_>) -> Result<Request, SendError> {
        let endpoint = &self.card.endpoint;
        let mut url = Url::parse(&endpoint.url)
            .map_err(|error| SendError::NotSent(format!("{}: {error}", endpoint.url)))?;
        let mut headers = self.options.headers.clone();
        let mut own = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        own("a2a-version", "1.0");
        own("accept", "application/json");
        if self.card.is_idempotent {
            own("a2a-extensions", IDEMPOTENCY);
        }
        let (method, body) = match endpoint.binding {
            Binding::JsonRpc => {
                // The same bytes when it is sent again: the id is the key.
                let body = json!({
                    "jsonrpc": "2.0", "id": operation.key, "method": operation.rpc, "params": operation.params,
                });
                (Method::POST, Some(body.to_string()))
            }
            Binding::HttpJson => {
                let mut path = url
                    .path_segments_mut()
                    .map_err(|()| SendError::NotSent(format!("{}: no path", endpoint.url)))?;
                path.pop_if_empty().extend(&endpoint.tenant).extend(&operation.path);
                drop(path);
                if !operation.query.is_empty() {
                    url.query_pairs_mut().extend_pairs(&operation.query);
                }
                let body = (operation.method == Method::POST).then(|| operation.params.to_string());
                (operation.method, body)
            }
        };
        if body.is_some() {
            headers.push(("content-type".into(), "application/json".into()));
        }
        Ok(Request { method, url: url.into(), headers, body, idempotency_key: operation.key.to_owned() })
    }
}

fn canned(body: &str) -> Answer {
    Answer {
        status: 200,
        content_type: Some("application/json".to_owned()),
        location: None,
        retry_after: None,
        body: body.to_owned(),
        truncated: false,
    }
}

fn rpc_answer<T: DeserializeOwned>(answer: Answer) -> Result<T, SendError> {
    let body = whole(answer)?;
    let read: RpcAnswer = parsed(&body)?;
    match (read.error, read.result) {
        (Some(said), _) => Err(refused(said)),
        (None, Some(result)) => parsed(result.get()),
        (None, None) => Err(SendError::Lost("the answer has neither a result nor an error".into())),
    }
}

fn rest_answer<T: DeserializeOwned>(answer: Answer) -> Result<T, SendError> {
    parsed(&whole(answer)?)
}

/// The body of an answer that is one.
fn whole(answer: Answer) -> Result<String, SendError> {
    let Answer { status, body, truncated, .. } = answer;
    match status {
        200..=299 if truncated => {
            Err(SendError::Lost("the answer is longer than `max_output` of the tool lets it be".into()))
        }
        200..=299 => Ok(body),
        401 => Err(SendError::Login(shortened(&body, 300))),
        300..=499 => Err(match serde_json::from_str::<RestAnswer>(&body) {
            Ok(RestAnswer { error }) => refused(error),
            Err(_) => SendError::Refused(format!("the answer was {status}: {}", shortened(&body, 300))),
        }),
        status => Err(SendError::Lost(format!("the answer was {status}: {}", shortened(&body, 300)))),
    }
}

fn refused(said: RemoteError) -> SendError {
    let (code, reason) = TASK_NOT_FOUND;
    let is_gone = said.code == code || said.details.iter().any(|detail| detail["reason"] == reason);
    let why = shortened(&said.message, 2_000);
    if is_gone { SendError::UnknownTask(why) } else { SendError::Refused(why) }
}

fn parsed<T: DeserializeOwned>(body: &str) -> Result<T, SendError> {
    serde_json::from_str(body).map_err(|error| SendError::Lost(format!("the answer cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: Value) -> Answer {
        Answer {
            status,
            content_type: None,
            location: None,
            body: body.to_string(),
            truncated: false,
            retry_after: None,
        }
    }

    #[test]
    fn what_was_refused_is_told_from_what_was_lost() {
        let rest = |status, body| rest_answer::<Value>(answer(status, body)).unwrap_err();
        let gone =
            json!({"error": {"code": 404, "message": "no", "details": [{"reason": "TASK_NOT_FOUND"}]}});
        assert_eq!(rest(404, gone), SendError::UnknownTask("no".into()));
        assert!(matches!(rest(404, json!("nginx")), SendError::Refused(why) if why.contains("404")));
        assert!(matches!(rest(401, json!("who?")), SendError::Login(_)));
        assert!(matches!(rest(502, json!("nginx")), SendError::Lost(_)));
        let rpc = |body| rpc_answer::<Value>(answer(200, body)).unwrap_err();
        assert_eq!(
            rpc(json!({"error": {"code": -32001, "message": "no"}})),
            SendError::UnknownTask("no".into())
        );
        assert_eq!(
            rpc(json!({"error": {"code": -32602, "message": "bad"}})),
            SendError::Refused("bad".into())
        );
        assert!(matches!(rpc(json!({"jsonrpc": "2.0"})), SendError::Lost(_)));
    }
}
