//! Messages of the Model Context Protocol, as far as whoever stands between a client and a server must understand them: which one
//! calls a tool, and with what. Pure; for the gateway and for the proxy of the command line.
//!
//! What two readers could understand differently is not passed on: a text that is not exactly one message, a member twice, a batch
//! with a call in it. Everything else goes through as it is; nothing here knows servers or approvals. What a client can do is
//! `profile.rs`, how a call that waits is shown `ladder.rs`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::profile::ClientProfile;

/// What a client says.
#[derive(Debug)]
pub enum ClientMessage {
    /// It wants to run a tool.
    Call(Box<CallRequest>),
    /// It no longer waits for the answer to a request.
    Cancel(Value),
    /// It says who it is and what it can do.
    Hello(ClientProfile),
    /// It answers a request of the server.
    Answer(Value),
    /// Any other request: none of our business.
    Request(OtherRequest),
    /// Anything else.
    Other,
}

/// A request that calls no tool.
#[derive(Debug)]
pub struct OtherRequest {
    /// Its id, as it was written.
    pub id: Box<RawValue>,
    /// What it asks for.
    pub method: String,
    /// What it is about, where its method has such a thing: the tool, the resource, the task.
    pub name: Option<String>,
    /// What progress is told by, where the client follows it.
    pub progress: Option<Box<RawValue>>,
    /// What the client can do, where each request says so by itself.
    pub profile: Option<ClientProfile>,
}

/// Why a message is not passed on.
#[derive(Debug, PartialEq, Eq)]
pub enum Unpassable {
    /// It is not one message that every reader reads alike.
    Ambiguous(String),
    /// A batch that calls tools.
    Batch,
    /// A call that nobody wants an answer to.
    Unanswerable,
}

/// A request to run a tool.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The request's id, as it was written.
    pub id: Box<RawValue>,
    /// The tool.
    pub tool: String,
    /// Its arguments, as they were written.
    pub arguments: Box<RawValue>,
    /// What progress is told by, where the client follows it.
    pub progress: Option<Box<RawValue>>,
    /// What the client can do, where each request says so by itself: then results have a type.
    pub profile: Option<ClientProfile>,
    /// What the client was asked to bring back, where it was.
    pub request_state: Option<String>,
    /// What it answered, by the names of the questions.
    pub input_responses: BTreeMap<String, Box<RawValue>>,
    /// The whole message.
    line: String,
}

/// What is sent in the place of the state that a client brought back.
#[derive(Debug, Clone, Copy)]
pub enum StateChange<'a> {
    /// What it brought.
    Keep,
    /// Nothing, and none of its answers: they were for us.
    Drop,
    /// The state of the server behind us; none where that had none.
    Restore(Option<&'a str>),
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
    #[serde(default, rename = "requestState")]
    request_state: Option<String>,
    #[serde(default, rename = "inputResponses")]
    input_responses: Option<BTreeMap<String, Box<RawValue>>>,
}

#[derive(Deserialize)]
struct OtherParams<'a> {
    #[serde(default, borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uri: Option<String>,
    #[serde(default, rename = "taskId")]
    task: Option<String>,
}

/// What stands in the `_meta` of a request.
struct Meta {
    progress: Option<Box<RawValue>>,
    profile: Option<ClientProfile>,
}

impl Meta {
    fn read(meta: Option<&RawValue>) -> serde_json::Result<Meta> {
        #[derive(Deserialize)]
        struct Token<'a> {
            #[serde(default, borrow, rename = "progressToken")]
            progress: Option<&'a RawValue>,
        }
        let Some(meta) = meta else { return Ok(Meta { progress: None, profile: None }) };
        let token: Token<'_> = serde_json::from_str(meta.get())?;
        let profile = ClientProfile::of_request(meta)?;
        Ok(Meta { progress: token.progress.map(ToOwned::to_owned), profile })
    }
}

impl ClientMessage {
    /// Reads a line of a client.
    pub fn read(line: &str) -> Result<ClientMessage, Unpassable> {
        let ambiguous = |error: serde_json::Error| Unpassable::Ambiguous(error.to_string());
        if line.trim_start().starts_with('[') {
            let members: Vec<Line<'_>> = serde_json::from_str(line).map_err(ambiguous)?;
            let calls = members.iter().any(|member| member.method.as_deref() == Some(CALL));
            return if calls { Err(Unpassable::Batch) } else { Ok(ClientMessage::Other) };
        }
        let message: Line<'_> = serde_json::from_str(line).map_err(ambiguous)?;
        let params = message.params.map_or("{}", RawValue::get);
        let value = || serde_json::from_str::<Value>(params).map_err(ambiguous);
        match (message.method.as_deref(), message.id) {
            (Some(CALL), id) => {
                let id = id.ok_or(Unpassable::Unanswerable)?.to_owned();
                let params: CallParams<'_> = serde_json::from_str(params).map_err(ambiguous)?;
                let meta = Meta::read(params.meta).map_err(ambiguous)?;
                let no_arguments = || RawValue::from_string("{}".to_owned()).map_err(ambiguous);
                Ok(ClientMessage::Call(Box::new(CallRequest {
                    id,
                    tool: params.name,
                    arguments: params.arguments.map_or_else(no_arguments, |text| Ok(text.to_owned()))?,
                    progress: meta.progress,
                    profile: meta.profile,
                    request_state: params.request_state,
                    input_responses: params.input_responses.unwrap_or_default(),
                    line: line.to_owned(),
                })))
            }
            (Some("notifications/cancelled"), _) => Ok(ClientMessage::Cancel(value()?["requestId"].clone())),
            (Some("initialize"), _) => Ok(ClientMessage::Hello(ClientProfile::of_hello(&value()?))),
            (Some(method), Some(id)) => {
                // Not every method has an object there, and what it has is not ours to refuse.
                let params: Option<OtherParams<'_>> = serde_json::from_str(params).ok();
                let meta = params.as_ref().and_then(|params| Meta::read(params.meta).ok());
                let (progress, profile) = meta.map_or((None, None), |meta| (meta.progress, meta.profile));
                let name = params.and_then(|params| params.name.or(params.uri).or(params.task));
                let (id, method) = (id.to_owned(), method.to_owned());
                Ok(ClientMessage::Request(OtherRequest { id, method, name, progress, profile }))
            }
            (None, Some(id)) => Ok(ClientMessage::Answer(serde_json::from_str(id.get()).map_err(ambiguous)?)),
            (Some(_) | None, None) => Ok(ClientMessage::Other),
        }
    }
}

const CALL: &str = "tools/call";

impl CallRequest {
    /// The id as a value: servers may write it differently than it was asked.
    pub fn id_value(&self) -> Value {
        serde_json::from_str(self.id.get()).unwrap_or_default()
    }

    /// The line as the client wrote it.
    pub fn as_asked(&self) -> String {
        self.line.clone()
    }

    /// The same request with other arguments, or another state; everything else is as it was.
    pub fn changed(
        &self,
        arguments: Option<&RawValue>,
        state: StateChange<'_>,
    ) -> Result<String, serde_json::Error> {
        let message: Line<'_> = serde_json::from_str(&self.line)?;
        let Some(params) = message.params else { return Ok(self.line.clone()) };
        let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(params.get())?;
        if let Some(arguments) = arguments {
            members.insert("arguments".to_owned(), arguments.to_owned());
        }
        match state {
            StateChange::Keep => {}
            StateChange::Drop => {
                members.remove("inputResponses");
                members.remove("requestState");
            }
            StateChange::Restore(Some(state)) => {
                members.insert("requestState".to_owned(), serde_json::value::to_raw_value(state)?);
            }
            StateChange::Restore(None) => {
                members.remove("requestState");
            }
        }
        Ok(spliced(&self.line, params, &serde_json::to_string(&members)?))
    }

    /// The answer to a call that did not run.
    pub fn not_run(&self, text: &str, gate: Option<&str>, is_error: bool) -> String {
        let mut result = json!({"content": [{"type": "text", "text": text}], "isError": is_error});
        if let Some(gate) = gate {
            result["_meta"] = json!({"standfast/gate": gate});
        }
        if self.profile.is_some() {
            result["resultType"] = json!("complete");
        }
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id)
    }

    /// That it still waits; none when the client does not follow progress. The steps are small, so that the server's own progress,
    /// which comes later, is further on.
    pub fn still_waits(&self, step: u32, text: &str) -> Option<String> {
        let token = self.progress.as_deref()?;
        let (step, text) = (f64::from(step) / 1e6, json!(text));
        Some(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{step},"message":{text}}}}}"#
        ))
    }
}

/// A text in which one of its values is another one; every other byte is as it was.
pub fn spliced(text: &str, value: &RawValue, other: &str) -> String {
    let (whole, part) = (text.as_ptr().addr(), value.get().as_ptr().addr());
    let from = part.wrapping_sub(whole);
    match (text.get(..from), text.get(from.wrapping_add(value.get().len())..)) {
        (Some(before), Some(after)) => format!("{before}{other}{after}"),
        (_, _) => unreachable!("the value is part of the text"),
    }
}

/// A request under another id, and with another token for its progress: so that the requests of many can go to one server.
pub fn renamed(line: &str, name: &str) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(default, borrow, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Token<'a> {
        #[serde(default, borrow, rename = "progressToken")]
        progress: Option<&'a RawValue>,
    }
    let name = Value::from(name).to_string();
    let message: Line<'_> = serde_json::from_str(line)?;
    let line = match message.id {
        Some(id) => spliced(line, id, &name),
        None => line.to_owned(),
    };
    let message: Line<'_> = serde_json::from_str(&line)?;
    let params: Option<Params<'_>> =
        message.params.map(|params| serde_json::from_str(params.get())).transpose()?;
    let meta = params.and_then(|params| params.meta);
    let token: Option<Token<'_>> = meta.map(|meta| serde_json::from_str(meta.get())).transpose()?;
    Ok(match token.and_then(|token| token.progress) {
        Some(token) => spliced(&line, token, &name),
        None => line,
    })
}

/// A line as it is handed to a server. A reader that takes more than a line feed for the end of a line would see other messages than
/// were judged: such characters are blanks between values, and are written as escapes within texts.
pub fn unbroken(line: &str) -> Cow<'_, str> {
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

/// What an MCP server says, as far as it matters here.
#[derive(Deserialize)]
pub struct ServerMessage<'a> {
    /// Which request it answers, or the id of its own.
    #[serde(default)]
    pub id: Value,
    /// What came of a request.
    #[serde(default, borrow)]
    pub result: Option<&'a RawValue>,
    /// Why nothing came of it.
    #[serde(default, borrow)]
    pub error: Option<&'a RawValue>,
    /// What it asks for or tells; none in an answer.
    #[serde(default)]
    pub method: Option<String>,
    /// With what.
    #[serde(default, borrow)]
    pub params: Option<&'a RawValue>,
}

impl<'a> ServerMessage<'a> {
    /// Reads a message; none when it is no JSON object.
    #[must_use]
    pub fn read(text: &'a str) -> Option<ServerMessage<'a>> {
        serde_json::from_str(text).ok()
    }

    /// Whether it answers the request with this id.
    #[must_use]
    pub fn answers(&self, id: &Value) -> bool {
        self.method.is_none() && self.id == *id && (self.result.is_some() || self.error.is_some())
    }

    /// What came of a call, as far as the answer says.
    #[must_use]
    pub fn outcome(&self) -> CallEnd<'a> {
        match (self.result, self.error) {
            (Some(result), _) => match Mark::of(result) {
                mark if mark.kind.as_deref() == Some("input_required") => CallEnd::AsksFirst(result),
                mark if mark.is_error => CallEnd::Failed(result),
                _ => CallEnd::Succeeded(result),
            },
            (None, Some(error)) => CallEnd::Failed(error),
            (None, None) => CallEnd::Silent,
        }
    }
}

/// What came of a call.
#[derive(Debug, Clone, Copy)]
pub enum CallEnd<'a> {
    /// It ran.
    Succeeded(&'a RawValue),
    /// It failed.
    Failed(&'a RawValue),
    /// The server asks for something before it runs it.
    AsksFirst(&'a RawValue),
    /// The answer says nothing of it.
    Silent,
}

/// What a result says of itself.
#[derive(Default, Deserialize)]
struct Mark {
    #[serde(default, rename = "isError")]
    is_error: bool,
    #[serde(default, rename = "resultType")]
    kind: Option<String>,
}

impl Mark {
    fn of(result: &RawValue) -> Mark {
        serde_json::from_str(result.get()).unwrap_or_default()
    }
}

/// What a server says of one of its tools.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ListedTool {
    /// Its name.
    pub name: String,
    /// What its structured results keep to.
    #[serde(default, rename = "outputSchema")]
    pub output_schema: Option<Value>,
    /// What it says of itself.
    #[serde(default)]
    pub annotations: Annotations,
    /// Which of its arguments stand in headers as well.
    #[serde(default, rename = "inputSchema")]
    pub argument_headers: ArgumentHeaders,
}

/// Where arguments are that stand in headers as well, and the names of those headers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Value")]
pub struct ArgumentHeaders(Vec<(Vec<String>, String)>);

impl From<Value> for ArgumentHeaders {
    fn from(schema: Value) -> Self {
        fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
            if let Some(header) = schema["x-mcp-header"].as_str() {
                found.push((path.clone(), header.to_owned()));
            }
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                path.push(name.clone());
                collect(property, path, found);
                path.pop();
            }
        }
        let mut found = Vec::new();
        collect(&schema, &mut Vec::new(), &mut found);
        ArgumentHeaders(found)
    }
}

impl ArgumentHeaders {
    /// The headers of a call with these arguments, and what each says.
    #[must_use]
    pub fn of(&self, arguments: &RawValue) -> Vec<(&str, String)> {
        let arguments: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
        let said = |path: &[String]| match path.iter().fold(&arguments, |part, name| &part[name.as_str()]) {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(is_so) => Some(is_so.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        self.0.iter().filter_map(|(path, header)| Some((header.as_str(), said(path)?))).collect()
    }
}

/// What a tool says of itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Annotations {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

impl Annotations {
    /// Whether the tool says that its effect is lost for good.
    pub(crate) fn is_destructive(&self) -> bool {
        self.destructive_hint == Some(true)
    }

    /// As a gate takes them.
    pub fn hints(&self) -> Value {
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

impl Annotations {
    /// In words, for whoever decides.
    #[must_use]
    pub fn in_words(&self) -> String {
        let all = [
            ("read-only", self.read_only_hint),
            ("destructive", self.destructive_hint),
            ("idempotent", self.idempotent_hint),
            ("reaching outside", self.open_world_hint),
        ];
        let said = all
            .into_iter()
            .filter_map(|(word, hint)| Some(if hint? { word.to_owned() } else { format!("not {word}") }));
        said.collect::<Vec<_>>().join(", ")
    }
}

/// The tools that a result lists, if it lists any.
pub fn listed(result: &RawValue) -> Vec<ListedTool> {
    #[derive(Deserialize)]
    struct List {
        tools: Vec<ListedTool>,
    }
    serde_json::from_str::<List>(result.get()).map(|list| list.tools).unwrap_or_default()
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
        let line = call.changed(Some(&other.unwrap()), StateChange::Keep).unwrap();
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
    fn a_state_that_was_ours_is_not_passed_on() {
        let call = call(
            r#"{"id":1,"method":"tools/call","params":{"name":"pay","requestState":"ours","inputResponses":{"a":{"n":1e400}}}}"#,
        );
        assert_eq!(call.request_state.as_deref(), Some("ours"));
        let dropped = call.changed(None, StateChange::Drop).unwrap();
        assert_eq!(dropped, r#"{"id":1,"method":"tools/call","params":{"name":"pay"}}"#);
        let restored = call.changed(None, StateChange::Restore(Some("theirs"))).unwrap();
        assert!(restored.contains(r#""requestState":"theirs""#) && restored.contains("1e400"), "{restored}");
    }

    #[test]
    fn a_renamed_request_is_otherwise_as_it_was() {
        let line = r#"{ "id" : 7 , "method":"x","params":{"n":1e400,"_meta":{"progressToken":7,"a":1.0}}}"#;
        assert_eq!(
            renamed(line, "sf-1").unwrap(),
            r#"{ "id" : "sf-1" , "method":"x","params":{"n":1e400,"_meta":{"progressToken":"sf-1","a":1.0}}}"#
        );
        assert_eq!(renamed(r#"{"id":"a","method":"x"}"#, "b").unwrap(), r#"{"id":"b","method":"x"}"#);
    }

    #[test]
    fn an_answer_says_what_came_of_a_call() {
        let end = |text: &'static str| ServerMessage::read(text).unwrap().outcome();
        assert!(matches!(end(r#"{"id":1,"result":{"content":[]}}"#), CallEnd::Succeeded(_)));
        assert!(matches!(end(r#"{"id":1,"result":{"isError":true}}"#), CallEnd::Failed(_)));
        assert!(matches!(end(r#"{"id":1,"error":{"code":1}}"#), CallEnd::Failed(_)));
        assert!(matches!(end(r#"{"id":1,"result":{"resultType":"input_required"}}"#), CallEnd::AsksFirst(_)));
        assert!(matches!(end(r#"{"id":1}"#), CallEnd::Silent));
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
