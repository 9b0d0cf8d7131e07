//! Lines of the Model Context Protocol, as far as a proxy must understand them: which one calls a tool, and with what. Pure.
//!
//! What two readers could understand differently is not passed on: a line that is not exactly one message, a member twice, a batch
//! with a call in it. Everything else goes through as it is; nothing here knows servers or approvals.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What a client says.
#[derive(Debug)]
pub(super) enum ClientMessage {
    /// It wants to run a tool.
    Call(Box<CallRequest>),
    /// It no longer waits for the answer to a request.
    Cancel(Value),
    /// It says who it is.
    Hello(String),
    /// Anything else: none of our business.
    Other,
}

/// Why a line is not passed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unpassable {
    /// It is not one message that every reader reads alike.
    Ambiguous(String),
    /// A batch that calls tools.
    Batch,
    /// A call that nobody wants an answer to.
    Unanswerable,
}

/// A request to run a tool.
#[derive(Debug)]
pub(super) struct CallRequest {
    /// The request's id, as it was written.
    pub(super) id: Box<RawValue>,
    /// The tool.
    pub(super) tool: String,
    /// Its arguments, as they were written.
    pub(super) arguments: Box<RawValue>,
    /// What progress is told by, where the client follows it.
    pub(super) progress: Option<Box<RawValue>>,
    /// Whether the request names the version of the protocol itself: then results have a type.
    pub(super) has_typed_results: bool,
    /// The whole line.
    line: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(default, borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CallParams<'a> {
    name: String,
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(default, borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(default, borrow, rename = "progressToken")]
    progress: Option<&'a RawValue>,
    #[serde(default, borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
}

impl ClientMessage {
    /// Reads a line of a client.
    pub(super) fn read(line: &str) -> Result<ClientMessage, Unpassable> {
        let ambiguous = |error: serde_json::Error| Unpassable::Ambiguous(error.to_string());
        if line.trim_start().starts_with('[') {
            let members: Vec<Line<'_>> = serde_json::from_str(line).map_err(ambiguous)?;
            let calls = members.iter().any(|member| member.method.as_deref() == Some(CALL));
            return if calls { Err(Unpassable::Batch) } else { Ok(ClientMessage::Other) };
        }
        let message: Line<'_> = serde_json::from_str(line).map_err(ambiguous)?;
        let params = message.params.map_or("{}", RawValue::get);
        match message.method.as_deref() {
            Some(CALL) => {
                let id = message.id.ok_or(Unpassable::Unanswerable)?.to_owned();
                let params: CallParams<'_> = serde_json::from_str(params).map_err(ambiguous)?;
                let meta = params.meta.map_or("{}", RawValue::get);
                let meta: Meta<'_> = serde_json::from_str(meta).map_err(ambiguous)?;
                let no_arguments = || RawValue::from_string("{}".to_owned()).map_err(ambiguous);
                Ok(ClientMessage::Call(Box::new(CallRequest {
                    id,
                    tool: params.name,
                    arguments: params.arguments.map_or_else(no_arguments, |text| Ok(text.to_owned()))?,
                    progress: meta.progress.map(ToOwned::to_owned),
                    has_typed_results: meta.version.is_some(),
                    line: line.to_owned(),
                })))
            }
            Some("notifications/cancelled") => {
                let params: Value = serde_json::from_str(params).map_err(ambiguous)?;
                Ok(ClientMessage::Cancel(params["requestId"].clone()))
            }
            Some("initialize") => {
                let params: Value = serde_json::from_str(params).map_err(ambiguous)?;
                Ok(ClientMessage::Hello(params["clientInfo"]["name"].as_str().unwrap_or_default().to_owned()))
            }
            Some(_) | None => Ok(ClientMessage::Other),
        }
    }
}

const CALL: &str = "tools/call";

impl CallRequest {
    /// The id as a value: servers may write it differently than it was asked.
    pub(super) fn id_value(&self) -> Value {
        serde_json::from_str(self.id.get()).unwrap_or_default()
    }

    /// The line as the client wrote it.
    pub(super) fn as_asked(&self) -> String {
        self.line.clone()
    }

    /// The same request with other arguments; everything else is as it was.
    pub(super) fn with_arguments(&self, arguments: &RawValue) -> Result<String, serde_json::Error> {
        let mut line: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&self.line)?;
        let params = line.get("params").map_or("{}", |params| params.get());
        let mut params: BTreeMap<String, Box<RawValue>> = serde_json::from_str(params)?;
        params.insert("arguments".to_owned(), arguments.to_owned());
        line.insert("params".to_owned(), serde_json::value::to_raw_value(&params)?);
        serde_json::to_string(&line)
    }

    /// The answer to a call that did not run.
    pub(super) fn not_run(&self, text: &str, gate: Option<&str>, is_error: bool) -> String {
        let mut result = json!({"content": [{"type": "text", "text": text}], "isError": is_error});
        if let Some(gate) = gate {
            result["_meta"] = json!({"standfast/gate": gate});
        }
        if self.has_typed_results {
            result["resultType"] = json!("complete");
        }
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id)
    }

    /// That it still waits; none when the client does not follow progress. The steps are small, so that the server's own progress,
    /// which comes later, is further on.
    pub(super) fn still_waits(&self, step: u32, text: &str) -> Option<String> {
        let token = self.progress.as_deref()?;
        let (step, text) = (f64::from(step) / 1e6, json!(text));
        Some(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{step},"message":{text}}}}}"#
        ))
    }
}

/// A line as it is handed to a server. A reader that takes more than a line feed for the end of a line would see other messages than
/// were judged: such characters are blanks between values, and are written as escapes within texts.
pub(super) fn unbroken(line: &str) -> Cow<'_, str> {
    const BREAKS: [char; 4] = ['\r', '\u{85}', '\u{2028}', '\u{2029}'];
    if !line.contains(BREAKS) {
        return Cow::Borrowed(line);
    }
    let written = line.chars().map(|letter| match letter {
        '\r' => " ".to_owned(),
        '\u{85}' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", u32::from(letter)),
        other => other.to_string(),
    });
    Cow::Owned(written.collect())
}

/// What an MCP server answers, as far as it matters here.
#[derive(Deserialize)]
pub(super) struct Response<'a> {
    #[serde(default)]
    pub(super) id: Value,
    #[serde(default, borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) method: Option<String>,
}

/// What a server says of one of its tools.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct ListedTool {
    pub(super) name: String,
    #[serde(default, rename = "outputSchema")]
    pub(super) output_schema: Option<Value>,
    #[serde(default)]
    pub(super) annotations: Annotations,
}

/// What a tool says of itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Annotations {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

impl Annotations {
    /// As a gate takes them.
    pub(super) fn hints(&self) -> Value {
        let all = [
            ("readOnly", self.read_only_hint),
            ("destructive", self.destructive_hint),
            ("idempotent", self.idempotent_hint),
            ("openWorld", self.open_world_hint),
        ];
        all.into_iter()
            .filter_map(|(name, hint)| Some((name.to_owned(), json!(hint?))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// The tools that a result lists, if it lists any.
pub(super) fn listed(result: &RawValue) -> Vec<ListedTool> {
    #[derive(Deserialize)]
    struct List {
        tools: Vec<ListedTool>,
    }
    serde_json::from_str::<List>(result.get()).map(|list| list.tools).unwrap_or_default()
}

/// Whether a result says of itself that it is an error.
pub(super) fn says_error(result: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Said {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    serde_json::from_str::<Said>(result.get()).is_ok_and(|said| said.is_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> CallRequest {
        match ClientMessage::read(line) {
            Ok(ClientMessage::Call(call)) => *call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let call = call(
            r#"{"jsonrpc":"2.0","id":"a\u0031","method":"tools\/call","params":{"name":"pay","arguments":{"n": 1.0e400, "m":9007199254740993},"_meta":{"progressToken":7}}}"#,
        );
        assert_eq!(call.tool, "pay");
        assert_eq!(call.arguments.get(), r#"{"n": 1.0e400, "m":9007199254740993}"#);
        assert_eq!((call.id.get(), call.id_value()), (r#""a\u0031""#, json!("a1")));
        assert_eq!(call.progress.as_deref().map(RawValue::get), Some("7"));
    }

    #[test]
    fn other_arguments_change_nothing_else() {
        let call = call(
            r#"{"id":1,"method":"tools/call","params":{"name":"pay","_meta":{"x":1e400},"arguments":{"n":1}}}"#,
        );
        let other = RawValue::from_string(r#"{"n":2.50}"#.to_owned());
        let line = call.with_arguments(&other.unwrap_or_default()).unwrap_or_default();
        assert_eq!(
            line,
            r#"{"id":1,"method":"tools/call","params":{"_meta":{"x":1e400},"arguments":{"n":2.50},"name":"pay"}}"#
        );
    }

    /// What one reader takes for a call and another one does not is passed on to neither.
    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for line in [
            r#"{"method":"ping","method":"tools/call","id":1}"#,
            r#"{"method":"ping","id":1}{"method":"tools/call","id":2}"#,
            r#"{"method":"tools/call","id":1,"params":{"name":"a","name":"b"}}"#,
            r#"{"method":"tools/call","id":1,"params":{"name":"a","arguments":{},"arguments":{"x":1}}}"#,
            r#"{"method":"tools/call","id":1,"params":[]}"#,
            "not JSON",
            "",
        ] {
            let read = ClientMessage::read(line);
            assert!(matches!(read, Err(Unpassable::Ambiguous(_))), "{line}: {read:?}");
        }
        let batch = r#"[{"method":"ping","id":1},{"method":"tools/call","id":2,"params":{"name":"a"}}]"#;
        assert_eq!(ClientMessage::read(batch).err(), Some(Unpassable::Batch));
        let silent = r#"{"method":"tools/call","params":{"name":"a"}}"#;
        assert_eq!(ClientMessage::read(silent).err(), Some(Unpassable::Unanswerable));
    }

    #[test]
    fn a_line_stays_one_line_for_every_reader() {
        let line = "{\"x\":\r{\"method\":\"tools/call\"}\r,\"y\":\"\u{2028}{}\u{85}\"}";
        let passed = unbroken(line);
        assert_eq!(passed, "{\"x\": {\"method\":\"tools/call\"} ,\"y\":\"\\u2028{}\\u0085\"}");
        let same: Result<(Value, Value), _> =
            serde_json::from_str(line).and_then(|a| Ok((a, serde_json::from_str(&passed)?)));
        assert!(same.is_ok_and(|(before, after)| before == after));
        assert!(matches!(unbroken("{}"), Cow::Borrowed("{}")));
    }

    #[test]
    fn answers_carry_the_id_as_it_was_written() {
        let call = call(
            r#"{"id":1.0,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":"t","io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        );
        assert_eq!(
            call.not_run("no", Some("run_1"), true),
            r#"{"jsonrpc":"2.0","id":1.0,"result":{"_meta":{"standfast/gate":"run_1"},"content":[{"text":"no","type":"text"}],"isError":true,"resultType":"complete"}}"#
        );
        assert_eq!(
            call.still_waits(2, "w").as_deref(),
            Some(
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.000002,"message":"w"}}"#
            )
        );
    }
}
