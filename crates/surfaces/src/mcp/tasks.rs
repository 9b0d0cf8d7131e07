//! Calls that wait for a person as tasks of the protocol: what such a task says. Pure; for the gateway and for the proxy of the
//! command line.
//!
//! A task is its gate under another name, so nothing is kept of it. Who looks at the gate, and who runs its call, is said elsewhere.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ladder::OUR_TASK;
use super::message::{CallRequest, ClientMessage, OtherRequest};
use super::profile::ClientProfile;

/// How often a client should ask.
const POLL_MS: u32 = 2_000;

/// What every task says of itself.
#[derive(Debug, Clone, Copy)]
pub struct TaskFacts<'a> {
    /// The gate that it is.
    pub gate: &'a str,
    /// Since when it is as it is.
    pub since: &'a str,
    /// The instant of this answer.
    pub now: &'a str,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy)]
pub enum TaskState<'a> {
    /// Somebody has to decide, or it runs.
    Working(&'a str),
    /// Nobody wants it any more.
    Cancelled(&'a str),
    /// It did not run, or nobody knows: the model is told this.
    Told(&'a str),
    /// Its call has run: what came of it, as it was written, and whether that is an error of the protocol.
    Done {
        /// The result or the error.
        value: &'a RawValue,
        /// Whether it is an error of the protocol.
        is_error: bool,
    },
}

/// Whether a request is about a task of ours.
#[must_use]
pub fn is_ours(request: &OtherRequest) -> bool {
    matches!(request.method.as_str(), "tasks/get" | "tasks/update" | "tasks/cancel")
        && request.name.as_ref().is_some_and(|task| task.starts_with(OUR_TASK))
}

/// The gate that a request about a task of ours means.
#[must_use]
pub fn gate_of(request: &OtherRequest) -> Option<&str> {
    request.name.as_deref()?.strip_prefix(OUR_TASK)
}

impl TaskFacts<'_> {
    fn shown(&self, status: &str, message: Option<&str>) -> Value {
        json!({
            "taskId": format!("{OUR_TASK}{}", self.gate),
            "status": status,
            "statusMessage": message,
            "createdAt": self.since,
            "lastUpdatedAt": self.now,
            "ttlMs": null,
            "pollIntervalMs": POLL_MS,
        })
    }

    /// The answer to a call that waits: a task.
    #[must_use]
    pub fn created(&self, call: &CallRequest, text: &str) -> String {
        let mut result = self.shown("working", Some(text));
        result["resultType"] = "task".into();
        result["_meta"] = json!({"standfast/gate": self.gate});
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, call.id)
    }

    /// The answer to `tasks/get`.
    #[must_use]
    pub fn answer(&self, id: &RawValue, state: TaskState<'_>) -> String {
        let mut result = match state {
            TaskState::Working(text) => self.shown("working", Some(text)),
            TaskState::Cancelled(text) => self.shown("cancelled", Some(text)),
            TaskState::Told(text) => {
                let mut result = self.shown("completed", Some(text));
                result["result"] = json!({
                    "content": [{"type": "text", "text": text}],
                    "isError": true,
                    "resultType": "complete",
                });
                result
            }
            TaskState::Done { value, is_error } => {
                let (status, member) = if is_error { ("failed", "error") } else { ("completed", "result") };
                let shown = self.shown(status, None).to_string();
                let head = shown.strip_suffix('}').unwrap_or(&shown);
                return format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{head},"resultType":"complete","{member}":{value}}}}}"#
                );
            }
        };
        result["resultType"] = "complete".into();
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
    }
}

/// The answer about a task that is not there.
#[must_use]
pub fn unknown(id: &RawValue) -> String {
    let error = json!({"code": -32602, "message": "there is no such task, or you don't have access"});
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// The answer to a request that wants to know nothing.
#[must_use]
pub fn taken(id: &RawValue) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete"}}}}"#)
}

/// The call of a task, as a request of ours: what a server would ask of the client nobody could answer.
#[must_use]
pub fn call_of(gate: &str, client: &ClientProfile, tool: &str, arguments: &RawValue) -> Option<CallRequest> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": client.version,
        "io.modelcontextprotocol/clientInfo": {"name": client.name, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let tool = Value::from(tool);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":"{OUR_TASK}{gate}","method":"tools/call","params":{{"name":{tool},"arguments":{arguments},"_meta":{meta}}}}}"#
    );
    match ClientMessage::read(&line) {
        Ok(ClientMessage::Call(call)) => Some(*call),
        _ => None,
    }
}

/// Whether what came of a call is an error of the protocol, and no result of its tool.
#[must_use]
pub fn is_protocol_error(value: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    struct ErrorCode {
        #[serde(rename = "code")]
        _code: i64,
    }
    serde_json::from_str::<ErrorCode>(value.get()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: TaskFacts<'static> = TaskFacts { gate: "run_1", since: "s", now: "n" };

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_task_says_where_its_gate_stands() {
        let id = raw("7.0");
        let read =
            |state| serde_json::from_str::<Value>(&FACTS.answer(&id, state)).unwrap()["result"].clone();
        assert_eq!(read(TaskState::Working("w"))["status"], "working");
        assert_eq!(read(TaskState::Cancelled("c"))["status"], "cancelled");
        assert_eq!(read(TaskState::Told("no"))["result"]["isError"], true);
        let value = raw(r#"{"content":[],"n":9007199254740993.10}"#);
        let done = FACTS.answer(&id, TaskState::Done { value: &value, is_error: false });
        assert!(done.starts_with(r#"{"jsonrpc":"2.0","id":7.0,"#) && done.contains(value.get()), "{done}");
        let error = raw(r#"{"code":-1,"message":"x"}"#);
        assert!(is_protocol_error(&error) && !is_protocol_error(&value));
        assert_eq!(read(TaskState::Done { value: &error, is_error: true })["error"]["code"], -1);
    }

    #[test]
    fn the_call_of_a_task_is_one_of_ours() {
        let call = call_of("run_1", &ClientProfile::default(), "pay", &raw(r#"{"n":1.0}"#)).unwrap();
        assert_eq!((call.id.get(), call.arguments.get()), (r#""standfast-run_1""#, r#"{"n":1.0}"#));
    }
}
