//! The client over a canned transport: what it makes of an answer that it is handed, for conformance kits.
//!
//! The kit ACTS asks an agent by the message `tck-client-parse` what its own client makes of a payload. Everything of the
//! client runs but the connection: the request, the envelope, the mapping of errors, the reading of tasks and cards.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use standfast_core::time::Millis;
use standfast_engine::outbound::guard::Guard;

use super::RemoteOptions;
use super::card::{Binding, Card, CardText, Endpoint};
use super::wire::{Line, SendError, SendResult, Transport};

/// Whom nobody calls.
const NOBODY: &str = "https://canned.invalid";

/// What the client makes of this answer to an operation, as JSON: what it read, or `{"error": {"code", "message"}}`.
pub async fn parse(operation: &str, payload: &str) -> Value {
    let is_enveloped = serde_json::from_str::<Envelope>(payload).is_ok_and(|read| read.jsonrpc.is_some());
    let options = RemoteOptions {
        name: "canned".to_owned(),
        url: NOBODY.to_owned(),
        headers: Vec::new(),
        guard: Guard::default(),
        answer_bytes: payload.len(),
        timeout: Millis::seconds(1),
        idempotent: None,
        description: None,
    };
    let binding = if is_enveloped { Binding::JsonRpc } else { Binding::HttpJson };
    let endpoint = Endpoint { url: NOBODY.to_owned(), binding, tenant: None };
    let card = Card {
        name: "canned".to_owned(),
        description: String::new(),
        endpoint,
        is_idempotent: false,
        digest: String::new(),
    };
    let line = Line { options: &options, card: &card, transport: Transport::Canned(payload) };
    let read = match operation {
        "send_message" => {
            let message = json!({"messageId": "canned", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
            line.send("canned", message).await.map(|sent| match sent {
                SendResult::Task(task) => json!({"task": task}),
                SendResult::Message(message) => json!({"message": message}),
            })
        }
        "get_task" => line.get("canned", 0).await.map(|task| json!(task)),
        "get_agent_card" | "get_extended_agent_card" => {
            let written = line.card().await;
            written.map(|written: CardText| json!(written))
        }
        other => Err(SendError::NotSent(format!("this client has no operation {other:?}"))),
    };
    read.unwrap_or_else(|no| json!({"error": error(&no, payload)}))
}

#[derive(Deserialize)]
struct Envelope {
    jsonrpc: Option<String>,
    error: Option<Box<RawValue>>,
}

/// How the client refuses. Of a refusal it keeps the words alone, so the code is that of the answer.
fn error(no: &SendError, payload: &str) -> Value {
    let said = serde_json::from_str::<Envelope>(payload).ok().and_then(|read| read.error);
    let code = said.and_then(|said| serde_json::from_str::<Value>(said.get()).ok()?.get("code").cloned());
    match (no, code) {
        (SendError::Refused(why) | SendError::UnknownTask(why), Some(code)) => {
            json!({"code": code, "message": why})
        }
        (no, _) => json!({"message": no.to_string()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parsed(operation: &str, payload: Value) -> Value {
        parse(operation, &payload.to_string()).await
    }

    #[tokio::test]
    async fn tasks_messages_and_errors_are_read() {
        let task = json!({"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "a", "parts": [{"raw": "dGNr", "filename": "f", "mediaType": "text/plain"}]}]});
        let sent = json!({"jsonrpc": "2.0", "id": "x", "result": {"task": task}});
        assert_eq!(parsed("send_message", sent).await, json!({"task": task}));
        let got = json!({"jsonrpc": "2.0", "id": "x", "result": task});
        assert_eq!(parsed("get_task", got).await, task);
        assert_eq!(parsed("get_task", task.clone()).await, task, "over HTTP+JSON there is no envelope");
        let message = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]});
        let sent = json!({"jsonrpc": "2.0", "id": "x", "result": {"message": message}});
        assert_eq!(parsed("send_message", sent).await, json!({"message": message}));
        let no = json!({"jsonrpc": "2.0", "id": "x", "error": {"code": -32001, "message": "Task not found"}});
        let expected = json!({"error": {"code": -32001, "message": "Task not found"}});
        assert_eq!(parsed("get_task", no).await, expected);
        let unreadable = parsed("get_task", json!({"jsonrpc": "2.0", "result": {"id": 7}})).await;
        assert!(unreadable["error"]["message"].as_str().is_some_and(|why| why.contains("cannot be read")));
        assert!(parsed("fly", json!({})).await["error"]["message"].is_string());
    }

    #[tokio::test]
    async fn cards_are_read() {
        let card = json!({"name": "A", "description": "", "supportedInterfaces": [],
            "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": true},
            "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}});
        assert_eq!(parsed("get_agent_card", card.clone()).await, card);
        let enveloped = json!({"jsonrpc": "2.0", "id": 1, "result": card});
        assert_eq!(parsed("get_extended_agent_card", enveloped).await, card);
    }
}
