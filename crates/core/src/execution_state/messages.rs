//! The conversation of an execution state, spelled as A2A messages: `messageId`, `role`, `parts` of one member each.
//!
//! A2A has two roles and no tools, so a call and a result are data parts of the agent; `metadata.type` tells them from
//! data that somebody sent. What was text in the log is a JSON string here, and reads back as text.

use serde::{Deserialize, Deserializer, Serialize};

use crate::body::Body;
use crate::id::{CallId, MessageId, RunId, Seq};
use crate::json::RawJson;
use crate::message::{Message, Part};
use crate::name::{SessionId, ToolName};
use crate::transcript::{CallResult, Entry, ReplyCall, ResultKind, as_json};

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnMessage {
    /// The client's own id where it gave one, ours otherwise; of a result the id of its call.
    pub message_id: String,
    /// The session.
    pub context_id: SessionId,
    /// The run.
    pub task_id: RunId,
    /// Who speaks.
    pub role: Speaker,
    /// What is said.
    pub parts: Vec<TurnPart>,
    /// Where it stands in the log; absent for results, which may be made of several events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<LogPosition>,
}

/// Where a message stands in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    /// The event that brought it.
    pub seq: Seq,
    /// The model that answered, when it is not the pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Who speaks, in A2A's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Speaker {
    /// A client.
    #[serde(rename = "ROLE_USER")]
    User,
    /// The model, a tool, or whoever answers in its place.
    #[serde(rename = "ROLE_AGENT")]
    Agent,
}

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PartFields", into = "PartFields")]
pub enum TurnPart {
    /// Words.
    Text(String),
    /// Structured content.
    Data(RawJson),
    /// A file.
    File {
        /// Where it is: a URL, or the bytes in base 64.
        content: FileContent,
        /// Its name.
        filename: Option<String>,
        /// Its media type.
        media_type: Option<String>,
    },
    /// A call that the model asks for.
    Call(TurnCall),
    /// The outcome of a call.
    Result(TurnResult),
    /// The provider's own blocks.
    Opaque(RawJson),
}

/// A file's address or bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    /// Where it is.
    Url(String),
    /// Its bytes in base 64.
    Raw(String),
}

/// A call that the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnCall {
    /// Its id.
    pub id: CallId,
    /// The provider's id for it.
    pub provider_id: String,
    /// The tool.
    pub name: ToolName,
    /// The arguments; a string when they are not JSON.
    pub arguments: RawJson,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnResult {
    /// The call.
    pub id: CallId,
    /// The provider's id for it.
    pub provider_id: String,
    /// The tool.
    pub name: ToolName,
    /// What it is, as one word.
    pub status: ResultKind,
    /// What was said; a string when it is text.
    pub content: RawJson,
    /// The arguments that ran, when a person changed them.
    pub ran_with: Option<RawJson>,
}

/// A part as JSON has it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    data: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filename: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<PartKind>,
}

/// What a data part of ours is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PartKind {
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider_id: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    ToolCall,
    ToolResult,
    Opaque,
}

#[derive(Serialize, Deserialize)]
struct CallData {
    id: CallId,
    name: ToolName,
    arguments: RawJson,
}

#[derive(Serialize, Deserialize)]
struct ResultData {
    id: CallId,
    name: ToolName,
    status: ResultKind,
    content: RawJson,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    ran_with: Option<RawJson>,
}

impl From<TurnPart> for PartFields {
    fn from(part: TurnPart) -> PartFields {
        let none = PartFields::default();
        let of = |data: RawJson, kind, provider_id: Option<String>| PartFields {
            data: Some(data),
            metadata: Some(PartKind { kind, provider_id }),
            ..PartFields::default()
        };
        match part {
            TurnPart::Text(text) => PartFields { text: Some(text), ..none },
            TurnPart::Data(data) => PartFields { data: Some(data), ..none },
            TurnPart::File { content: FileContent::Url(url), filename, media_type } => {
                PartFields { url: Some(url), filename, media_type, ..none }
            }
            TurnPart::File { content: FileContent::Raw(raw), filename, media_type } => {
                PartFields { raw: Some(raw), filename, media_type, ..none }
            }
            TurnPart::Call(TurnCall { id, provider_id, name, arguments }) => {
                of(written(&CallData { id, name, arguments }), Kind::ToolCall, Some(provider_id))
            }
            TurnPart::Result(TurnResult { id, provider_id, name, status, content, ran_with }) => {
                let data = written(&ResultData { id, name, status, content, ran_with });
                of(data, Kind::ToolResult, Some(provider_id))
            }
            TurnPart::Opaque(data) => of(data, Kind::Opaque, None),
        }
    }
}

impl TryFrom<PartFields> for TurnPart {
    type Error = String;

    fn try_from(fields: PartFields) -> Result<TurnPart, String> {
        let PartFields { text, data, url, raw, filename, media_type, metadata } = fields;
        let file = |content| TurnPart::File { content, filename, media_type };
        match (text, data, url, raw) {
            (Some(text), None, None, None) => Ok(TurnPart::Text(text)),
            (None, None, Some(url), None) => Ok(file(FileContent::Url(url))),
            (None, None, None, Some(raw)) => Ok(file(FileContent::Raw(raw))),
            (None, Some(data), None, None) => match metadata {
                None => Ok(TurnPart::Data(data)),
                Some(PartKind { kind: Kind::Opaque, .. }) => Ok(TurnPart::Opaque(data)),
                Some(PartKind { kind: Kind::ToolCall, provider_id }) => {
                    let CallData { id, name, arguments } = read(&data)?;
                    let provider_id = provider_id.unwrap_or_default();
                    Ok(TurnPart::Call(TurnCall { id, provider_id, name, arguments }))
                }
                Some(PartKind { kind: Kind::ToolResult, provider_id }) => {
                    let ResultData { id, name, status, content, ran_with } = read(&data)?;
                    let provider_id = provider_id.unwrap_or_default();
                    Ok(TurnPart::Result(TurnResult { id, provider_id, name, status, content, ran_with }))
                }
            },
            (_, _, _, _) => Err("a part has exactly one of text, data, url and raw".into()),
        }
    }
}

/// An entry of the conversation as a message.
pub(super) fn spelled(run: RunId, session: &SessionId, entry: Entry) -> TurnMessage {
    let message = |message_id: String, role, parts, metadata| TurnMessage {
        message_id,
        context_id: session.clone(),
        task_id: run,
        role,
        parts,
        metadata,
    };
    let ours = |seq: Seq| MessageId { run, seq }.to_string();
    match entry {
        Entry::User(user) => {
            let Message { parts, client_id, metadata: _, references: _, extensions: _ } = user.message;
            let id = client_id.unwrap_or_else(|| ours(user.seq));
            let parts = parts.into_iter().map(part).collect();
            message(id, Speaker::User, parts, Some(LogPosition { seq: user.seq, model: None }))
        }
        Entry::Assistant(reply) => {
            let opaque = reply.opaque.iter().map(|body| TurnPart::Opaque(json_of(body)));
            let text = reply.text.iter().map(|body| TurnPart::Text(text_of(body)));
            let calls = reply.calls.into_iter().map(|call| asked(run, call));
            let parts = opaque.chain(text).chain(calls).collect();
            message(
                ours(reply.seq),
                Speaker::Agent,
                parts,
                Some(LogPosition { seq: reply.seq, model: reply.model }),
            )
        }
        Entry::Tool(result) => {
            let id = CallId { run, no: result.call };
            message(id.to_string(), Speaker::Agent, vec![came_to(id, result)], None)
        }
    }
}

fn part(part: Part) -> TurnPart {
    match part {
        Part::Text(body) => TurnPart::Text(text_of(&body)),
        Part::Data(body) => TurnPart::Data(json_of(&body)),
        Part::File { name: filename, media_type, content } => {
            let content = text_of(&content);
            let content =
                if content.contains("://") { FileContent::Url(content) } else { FileContent::Raw(content) };
            TurnPart::File { content, filename, media_type }
        }
    }
}

fn asked(run: RunId, call: ReplyCall) -> TurnPart {
    let id = CallId { run, no: call.no };
    let arguments = json_of(&call.arguments);
    TurnPart::Call(TurnCall { id, provider_id: call.id, name: call.tool, arguments })
}

fn came_to(id: CallId, result: CallResult) -> TurnPart {
    TurnPart::Result(TurnResult {
        id,
        provider_id: result.id,
        name: result.tool,
        status: result.kind,
        content: json_of(&result.content),
        ran_with: result.ran_with.as_ref().map(json_of),
    })
}

/// A value as JSON: text is a string, and null stands for what is not filled in.
pub(super) fn json_of(body: &Body) -> RawJson {
    as_json(body).unwrap_or_else(null)
}

/// What a value was before [`json_of`]: a string was text.
pub(super) fn body_of(json: &RawJson) -> Body {
    match serde_json::from_str::<String>(json.text()) {
        Ok(text) => Body::Text(text),
        Err(_) => Body::Json(json.clone()),
    }
}

fn text_of(body: &Body) -> String {
    body.inline().unwrap_or_default().to_owned()
}

fn null() -> RawJson {
    match RawJson::parse("null") {
        Ok(null) => null,
        Err(_) => unreachable!("null is JSON"),
    }
}

fn written(value: &impl Serialize) -> RawJson {
    match serde_json::to_string(value).map(|text| RawJson::parse(&text)) {
        Ok(Ok(json)) => json,
        Ok(Err(_)) | Err(_) => unreachable!("objects with string keys are JSON"),
    }
}

fn read<T: for<'de> Deserialize<'de>>(json: &RawJson) -> Result<T, String> {
    serde_json::from_str(json.text()).map_err(|error| error.to_string())
}

/// A member that is there counts as given, also when it is `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(deserializer).map(Some)
}
