//! A task as the remote agent tells of it, and what it means: at work, asking, over.
//!
//! Everything here is the remote agent's word: it is shown and handed to the model, never taken as a decision.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::json::RawJson;

/// A task.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    pub(super) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context_id: Option<String>,
    status: Status,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    history: Vec<Message>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Status {
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Artifact {
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
}

/// Something that was said.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(default)]
    pub(super) parts: Vec<Part>,
}

/// A piece of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
}

/// What a task is doing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Working,
    /// It asks something, or for a login.
    Asks(SuspendFor),
    Done,
    /// It has ended without a result; how, in words.
    Not(&'static str),
    /// A state that this version does not know.
    Other(String),
}

impl Stage {
    pub(super) fn asks(&self) -> bool {
        matches!(self, Stage::Asks(_))
    }
}

impl Task {
    pub(super) fn stage(&self) -> Stage {
        match self.status.state.as_str() {
            "TASK_STATE_SUBMITTED" | "TASK_STATE_WORKING" => Stage::Working,
            "TASK_STATE_INPUT_REQUIRED" => Stage::Asks(SuspendFor::Input),
            "TASK_STATE_AUTH_REQUIRED" => Stage::Asks(SuspendFor::Auth),
            "TASK_STATE_COMPLETED" => Stage::Done,
            "TASK_STATE_FAILED" => Stage::Not("failed"),
            "TASK_STATE_REJECTED" => Stage::Not("would not take the work"),
            "TASK_STATE_CANCELED" => Stage::Not("canceled the work"),
            other => Stage::Other(other.to_owned()),
        }
    }

    /// What it asks.
    pub(super) fn question(&self) -> &[Part] {
        self.status.message.as_ref().map_or(&[], |message| &message.parts)
    }

    /// What names the question: its holds where the remote agent is a Standfast, else its message, else its instant.
    pub(super) fn key(&self) -> String {
        let holds: Vec<String> =
            self.question().iter().filter_map(|part| super::asks::hold_id(part.data.as_deref()?)).collect();
        let message = self.status.message.as_ref().and_then(|message| message.message_id.clone());
        if holds.is_empty() {
            message.or_else(|| self.status.timestamp.clone()).unwrap_or_default()
        } else {
            holds.join(" ")
        }
    }

    /// Whether it has a message of this id.
    pub(super) fn has_message(&self, id: &str) -> bool {
        self.history.iter().any(|message| message.message_id.as_deref() == Some(id))
    }

    /// What it says of how it is.
    pub(super) fn words(&self) -> Option<String> {
        Some(texts(&self.status.message.as_ref()?.parts))
    }

    /// Its result: its artifacts, else what it said last.
    pub(super) fn result(&self) -> Body {
        let parts: Vec<&Part> = self.artifacts.iter().flat_map(|artifact| &artifact.parts).collect();
        if parts.is_empty() { body(&self.question().iter().collect::<Vec<_>>()) } else { body(&parts) }
    }
}

/// What an agent said instead of beginning a task.
pub(super) fn said(message: &Message) -> Body {
    body(&message.parts.iter().collect::<Vec<_>>())
}

/// The texts of parts.
pub(super) fn texts(parts: &[Part]) -> String {
    parts.iter().filter_map(|part| part.text.as_deref()).collect::<Vec<_>>().join("\n")
}

/// Words alone are a text; anything more is JSON: `text`, `data` and `files`.
fn body(parts: &[&Part]) -> Body {
    let text = parts.iter().filter_map(|part| part.text.as_deref()).collect::<Vec<_>>().join("\n");
    let data: Vec<&str> = parts.iter().filter_map(|part| Some(part.data.as_deref()?.get())).collect();
    let files: Vec<serde_json::Value> = parts.iter().filter_map(|part| file(part)).collect();
    if data.is_empty() && files.is_empty() {
        return Body::text(text);
    }
    let mut members = Vec::new();
    if !text.is_empty() {
        members.push(format!(r#""text":{}"#, serde_json::Value::from(text.as_str())));
    }
    match data.as_slice() {
        [] => {}
        [one] => members.push(format!(r#""data":{one}"#)),
        several => members.push(format!(r#""data":[{}]"#, several.join(","))),
    }
    if !files.is_empty() {
        members.push(format!(r#""files":{}"#, serde_json::Value::from(files)));
    }
    let json = format!("{{{}}}", members.join(","));
    // What stands twice in an object means something else to each reader: then it is only a text.
    RawJson::parse(&json).map_or_else(|_| Body::text(&json), Body::Json)
}

/// A file by its name and place; its bytes are not for a model.
fn file(part: &Part) -> Option<serde_json::Value> {
    (part.url.is_some() || part.raw.is_some()).then(|| {
        let base64_bytes = part.raw.as_ref().map(String::len);
        serde_json::json!({
            "filename": part.filename, "mediaType": part.media_type, "url": part.url, "base64Length": base64_bytes,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn task(state: &str, more: Value) -> Task {
        let mut task = json!({"id": "t", "status": {"state": state, "timestamp": "2026-01-01T00:00:00Z"}});
        for (name, value) in more.as_object().unwrap() {
            task[name] = value.clone();
        }
        serde_json::from_value(task).unwrap()
    }

    #[test]
    fn every_state_means_something() {
        for (state, stage) in [
            ("TASK_STATE_SUBMITTED", Stage::Working),
            ("TASK_STATE_WORKING", Stage::Working),
            ("TASK_STATE_INPUT_REQUIRED", Stage::Asks(SuspendFor::Input)),
            ("TASK_STATE_AUTH_REQUIRED", Stage::Asks(SuspendFor::Auth)),
            ("TASK_STATE_COMPLETED", Stage::Done),
            ("TASK_STATE_FAILED", Stage::Not("failed")),
            ("TASK_STATE_REJECTED", Stage::Not("would not take the work")),
            ("TASK_STATE_CANCELED", Stage::Not("canceled the work")),
            ("TASK_STATE_PONDERING", Stage::Other("TASK_STATE_PONDERING".into())),
        ] {
            assert_eq!(task(state, json!({})).stage(), stage);
        }
    }

    #[test]
    fn a_result_is_a_text_or_keeps_its_data_byte_for_byte() {
        let artifacts = |parts: Value| json!({"artifacts": [{"artifactId": "a", "parts": parts}]});
        let words = task("TASK_STATE_COMPLETED", artifacts(json!([{"text": "paid"}, {"text": "twice"}])));
        assert_eq!(words.result(), Body::text("paid\ntwice"));
        let text = r#"{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},
            "artifacts":[{"parts":[{"text":"paid"},{"data":{"total": 9007199254740993}},{"url":"https://a.org/b"}]}]}"#;
        let mixed: Task = serde_json::from_str(text).unwrap();
        let Body::Json(json) = mixed.result() else { panic!("it has data") };
        assert!(json.text().contains(r#""data":{"total": 9007199254740993}"#), "{}", json.text());
        assert!(json.text().contains("https://a.org/b"));
    }

    #[test]
    fn a_question_is_named_by_its_holds_else_by_its_message() {
        let asks = |message: Value| {
            let status =
                json!({"state": "TASK_STATE_INPUT_REQUIRED", "timestamp": "now", "message": message});
            task("TASK_STATE_INPUT_REQUIRED", json!({"status": status})).key()
        };
        assert_eq!(asks(json!({"messageId": "m", "parts": [{"text": "Sure?"}]})), "m");
        assert_eq!(asks(json!({"parts": [{"text": "Sure?"}]})), "now");
        let ours =
            json!({"messageId": "m", "parts": [{"data": {"interaction_type": "input", "hold_id": "h1"}}]});
        assert_eq!(asks(ours), "h1");
    }
}
