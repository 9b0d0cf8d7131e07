//! The two generations of the protocol, one in the words of the other: what a client with a session says, as a server without sessions
//! is asked it, and what that server answers, as the client reads it. Pure.
//!
//! With sessions a client says once who it is and is asked back while its request waits; without, each request says it, and who has to
//! be asked something first comes back with the same request. Values keep the bytes that they were written with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::message::ServerMessage;

/// The version without sessions that servers are asked in.
pub(super) const NEWEST: &str = "2026-07-28";

/// The versions with sessions, oldest first.
const WITH_SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What requests and results say of whoever sent them.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The extension that such a client does not follow.
const TASKS: &str = "io.modelcontextprotocol/tasks";

type Members = BTreeMap<String, Box<RawValue>>;

/// What a client said at the beginning of its session, as it wrote it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Hello {
    version: String,
    client: Box<RawValue>,
    capabilities: Box<RawValue>,
}

/// What a client brings back that was asked something first.
#[derive(Debug, Default)]
pub(super) struct Return {
    /// Its answers, by the names of the questions.
    pub(super) responses: Members,
    /// The server's own state.
    pub(super) state: Option<Box<RawValue>>,
}

/// A question of a server.
#[derive(Debug, Deserialize)]
pub(super) struct Question {
    method: String,
    #[serde(default)]
    params: Option<Box<RawValue>>,
}

/// What a server wants to know before it answers.
#[derive(Debug, Deserialize)]
pub(super) struct Questions {
    /// By their names.
    #[serde(default, rename = "inputRequests")]
    pub(super) asked: BTreeMap<String, Question>,
    /// What comes back with the answers.
    #[serde(default, rename = "requestState")]
    pub(super) state: Option<Box<RawValue>>,
}

/// What an answer of a server says.
#[derive(Debug)]
pub(super) enum ServerAnswer {
    /// This, as the client reads it.
    Answer(String),
    /// That somebody is asked something first.
    AsksFirst(Questions),
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: String,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
}

impl Hello {
    /// What `initialize` says.
    #[must_use]
    pub(super) fn read(line: &str) -> Option<Hello> {
        #[derive(Deserialize)]
        struct Params {
            #[serde(default, rename = "protocolVersion")]
            version: String,
            #[serde(rename = "clientInfo")]
            client: Box<RawValue>,
            #[serde(default)]
            capabilities: Option<Box<RawValue>>,
        }
        let message: Message<'_> = serde_json::from_str(line).ok()?;
        let params: Params = serde_json::from_str(message.params?.get()).ok()?;
        let empty = || RawValue::from_string("{}".to_owned()).ok();
        let said = params.capabilities.or_else(empty)?;
        let capabilities = without_tasks(&said).unwrap_or(said);
        Some(Hello { version: params.version, client: params.client, capabilities })
    }

    /// A request of this client, as a server without sessions is asked it.
    pub(super) fn asks(
        &self,
        line: &str,
        level: Option<&str>,
        back: Option<&Return>,
    ) -> Result<String, serde_json::Error> {
        let message: Message<'_> = serde_json::from_str(line)?;
        let members = |raw: Option<&RawValue>| -> Result<Members, serde_json::Error> {
            raw.map_or_else(|| Ok(Members::new()), |raw| serde_json::from_str(raw.get()))
        };
        let mut params = members(message.params)?;
        let mut meta = members(params.get("_meta").map(|meta| &**meta))?;
        meta.insert(VERSION.to_owned(), to_raw_value(NEWEST)?);
        meta.insert(CLIENT.to_owned(), self.client.clone());
        meta.insert(CAPABILITIES.to_owned(), self.capabilities.clone());
        if let Some(level) = level {
            meta.insert(LOG_LEVEL.to_owned(), to_raw_value(level)?);
        }
        params.insert("_meta".to_owned(), to_raw_value(&meta)?);
        if let Some(back) = back {
            params.insert("inputResponses".to_owned(), to_raw_value(&back.responses)?);
            if let Some(state) = &back.state {
                params.insert("requestState".to_owned(), state.clone());
            }
        }
        let (id, method) = (message.id.map_or("null", RawValue::get), Value::from(message.method));
        let params = serde_json::to_string(&params)?;
        Ok(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#))
    }

    /// The answer to `initialize`, made of what the server says of itself; none where it speaks no version without sessions.
    #[must_use]
    pub(super) fn welcome(&self, id: &RawValue, discovered: &RawValue, gateway: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Discovery {
            #[serde(rename = "supportedVersions")]
            versions: Vec<String>,
            capabilities: Box<RawValue>,
            #[serde(default)]
            instructions: Option<Box<RawValue>>,
            #[serde(default, rename = "serverInfo")]
            server: Option<Box<RawValue>>,
            #[serde(default, rename = "_meta")]
            meta: Members,
        }
        let mut found: Discovery = serde_json::from_str(discovered.get()).ok()?;
        found.versions.iter().find(|version| *version == NEWEST)?;
        let version = WITH_SESSIONS.into_iter().find(|known| *known == self.version);
        let nameless = || to_raw_value(&json!({"name": gateway, "version": "unknown"})).ok();
        let server = found.server.or_else(|| found.meta.remove(SERVER)).or_else(nameless)?;
        let mut result = Members::new();
        result.insert("protocolVersion".to_owned(), to_raw_value(version.unwrap_or("2025-11-25")).ok()?);
        result.insert("capabilities".to_owned(), found.capabilities);
        result.insert("serverInfo".to_owned(), server);
        if let Some(instructions) = found.instructions {
            result.insert("instructions".to_owned(), instructions);
        }
        let result = serde_json::to_string(&result).ok()?;
        Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
    }
}

/// A request of a client without sessions, as a server with sessions is asked it.
#[derive(Debug)]
pub(super) struct SpokenRequest {
    /// What it asks for.
    pub(super) method: String,
    /// The same in the other words, under this server's name for it.
    pub(super) line: String,
    /// Who asks, and what it can do: as it wrote it.
    pub(super) client: Box<RawValue>,
    /// What it can do.
    pub(super) capabilities: Box<RawValue>,
    /// From which level on it wants to hear what the server logs.
    pub(super) level: Option<String>,
    /// What it brings back.
    pub(super) back: Return,
    /// What it wants to hear of that belongs to no request.
    pub(super) wanted: Subscriptions,
}

/// What a client wants to hear of that belongs to no request.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Subscriptions {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    /// The resources whose changes it wants to hear of.
    pub(super) resource_subscriptions: Vec<String>,
}

impl SpokenRequest {
    /// Reads a request, and names it and its progress anew.
    pub(super) fn read(line: &str, name: &str) -> Result<SpokenRequest, serde_json::Error> {
        let message: Message<'_> = serde_json::from_str(line)?;
        let members = |raw: Option<&RawValue>| -> Result<Members, serde_json::Error> {
            raw.map_or_else(|| Ok(Members::new()), |raw| serde_json::from_str(raw.get()))
        };
        let mut params = members(message.params)?;
        let mut meta = members(params.get("_meta").map(|meta| &**meta))?;
        let empty = || RawValue::from_string("{}".to_owned());
        let client = meta.remove(CLIENT).map_or_else(empty, Ok)?;
        let capabilities = meta.remove(CAPABILITIES).map_or_else(empty, Ok)?;
        let level = meta.remove(LOG_LEVEL).and_then(|level| serde_json::from_str(level.get()).ok());
        meta.remove(VERSION);
        if let Some(token) = meta.get_mut("progressToken") {
            *token = to_raw_value(name)?;
        }
        let responses = params.remove("inputResponses");
        let responses =
            responses.map_or_else(|| Ok(Members::new()), |raw| serde_json::from_str(raw.get()))?;
        let back = Return { responses, state: params.remove("requestState") };
        let wanted = params.remove("notifications").map(|raw| serde_json::from_str(raw.get())).transpose()?;
        if meta.is_empty() {
            params.remove("_meta");
        } else {
            params.insert("_meta".to_owned(), to_raw_value(&meta)?);
        }
        let (id, method) = (Value::from(name), Value::from(message.method.as_str()));
        let params = serde_json::to_string(&params)?;
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#);
        let capabilities = without_tasks(&capabilities).unwrap_or(capabilities);
        let wanted = wanted.unwrap_or_default();
        Ok(SpokenRequest { method: message.method, line, client, capabilities, level, back, wanted })
    }

    /// The request that begins a session for this client.
    #[must_use]
    pub(super) fn hello(&self, name: &str) -> String {
        let [.., newest] = WITH_SESSIONS;
        let (name, client, capabilities) = (Value::from(name), &self.client, &self.capabilities);
        format!(
            r#"{{"jsonrpc":"2.0","id":{name},"method":"initialize","params":{{"protocolVersion":"{newest}","clientInfo":{client},"capabilities":{capabilities}}}}}"#
        )
    }

    /// Whether a server may ask this client something.
    #[must_use]
    pub(super) fn can_be_asked(&self) -> bool {
        let capabilities: Members = serde_json::from_str(self.capabilities.get()).unwrap_or_default();
        ["elicitation", "sampling", "roots"].iter().any(|one| capabilities.contains_key(*one))
    }
}

impl Subscriptions {
    /// Whether a notification is among it.
    #[must_use]
    pub(super) fn has(&self, method: &str, params: Option<&RawValue>) -> bool {
        #[derive(Deserialize)]
        struct About {
            uri: String,
        }
        match method {
            "notifications/tools/list_changed" => self.tools_list_changed,
            "notifications/prompts/list_changed" => self.prompts_list_changed,
            "notifications/resources/list_changed" => self.resources_list_changed,
            "notifications/resources/updated" => {
                let about = params.and_then(|params| serde_json::from_str::<About>(params.get()).ok());
                about.is_some_and(|about| self.resource_subscriptions.contains(&about.uri))
            }
            _ => false,
        }
    }

    /// That the server listens, for the request with this id.
    #[must_use]
    pub(super) fn acknowledged(&self, id: &RawValue) -> Option<String> {
        let meta: Members = [(SUBSCRIPTION.to_owned(), id.to_owned())].into();
        let (meta, wanted) = (serde_json::to_string(&meta).ok()?, serde_json::to_string(self).ok()?);
        let method = "notifications/subscriptions/acknowledged";
        Some(format!(
            r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{meta},"notifications":{wanted}}}}}"#
        ))
    }
}

/// A notification that belongs to no request, for whoever listens with the request of this id.
#[must_use]
pub(super) fn subscribed(text: &str, id: &RawValue) -> Option<String> {
    let message: Message<'_> = serde_json::from_str(text).ok()?;
    let mut params: Members =
        message.params.map_or_else(|| Some(Members::new()), |raw| serde_json::from_str(raw.get()).ok())?;
    let mut meta: Members = params
        .get("_meta")
        .map_or_else(|| Some(Members::new()), |raw| serde_json::from_str(raw.get()).ok())?;
    meta.insert(SUBSCRIPTION.to_owned(), id.to_owned());
    params.insert("_meta".to_owned(), to_raw_value(&meta).ok()?);
    let (method, params) = (Value::from(message.method), serde_json::to_string(&params).ok()?);
    Some(format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#))
}

/// What a server with sessions answers, as a client without them reads it, under the id that it gave.
#[must_use]
pub(super) fn newest_answer(text: &str, method: &str, id: &RawValue) -> String {
    let message = ServerMessage::read(text);
    let (result, error) = message.map_or((None, None), |message| (message.result, message.error));
    let members = result.and_then(|result| serde_json::from_str::<Members>(result.get()).ok());
    let (Some(mut members), Some(complete)) = (members, to_raw_value("complete").ok()) else {
        let error =
            error.map_or(r#"{"code":-32603,"message":"the MCP server gave no answer"}"#, RawValue::get);
        return format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
    };
    members.entry("resultType".to_owned()).or_insert(complete);
    let is_kept = matches!(method, "server/discover" | "resources/read") || method.ends_with("/list");
    if is_kept && let (Ok(ttl), Ok(scope)) = (to_raw_value(&0), to_raw_value("private")) {
        members.entry("ttlMs".to_owned()).or_insert(ttl);
        members.entry("cacheScope".to_owned()).or_insert(scope);
    }
    let result = serde_json::to_string(&members).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// The answer to `server/discover`, made of what a server said at the beginning of a session.
#[must_use]
pub(super) fn discovered(welcome: &RawValue, id: &RawValue) -> Option<String> {
    let mut said: Members = serde_json::from_str(welcome.get()).ok()?;
    let mut result = Members::new();
    result.insert("supportedVersions".to_owned(), to_raw_value(&[NEWEST]).ok()?);
    result.insert("capabilities".to_owned(), said.remove("capabilities")?);
    if let Some(instructions) = said.remove("instructions") {
        result.insert("instructions".to_owned(), instructions);
    }
    let server: Members = [(SERVER.to_owned(), said.remove("serverInfo")?)].into();
    result.insert("_meta".to_owned(), to_raw_value(&server).ok()?);
    let result = serde_json::to_string(&result).ok()?;
    Some(newest_answer(&format!(r#"{{"id":1,"result":{result}}}"#), "server/discover", id))
}

/// The answer that asks a client something first, by a question that the server asked while its request waits.
#[must_use]
pub(super) fn asks_first(question: &str, state: &str, id: &RawValue) -> Option<String> {
    let message: Message<'_> = serde_json::from_str(question).ok()?;
    let (method, state) = (Value::from(message.method), Value::from(state));
    let params = message.params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
    Some(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"input_required","inputRequests":{{"{QUESTION}":{{"method":{method}{params}}}}},"requestState":{state}}}}}"#
    ))
}

/// What the one question is called.
pub(super) const QUESTION: &str = "server";

/// Capabilities of which nobody is told that results may come later.
fn without_tasks(said: &RawValue) -> Option<Box<RawValue>> {
    let mut members: Members = serde_json::from_str(said.get()).ok()?;
    let mut extensions: Members = serde_json::from_str(members.get("extensions")?.get()).ok()?;
    extensions.remove(TASKS)?;
    members.insert("extensions".to_owned(), to_raw_value(&extensions).ok()?);
    to_raw_value(&members).ok()
}

/// What a server's answer to a request says; none where it is no answer.
#[must_use]
pub(super) fn said(text: &str) -> Option<ServerAnswer> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default, rename = "resultType")]
        kind: Option<String>,
    }
    let message = ServerMessage::read(text).filter(|message| message.method.is_none())?;
    let Some(result) = message.result else {
        return message.error.map(|_| ServerAnswer::Answer(text.to_owned()));
    };
    let kind = serde_json::from_str::<Kind>(result.get()).ok().and_then(|result| result.kind);
    match kind.as_deref() {
        None => Some(ServerAnswer::Answer(text.to_owned())),
        Some("input_required") => serde_json::from_str(result.get()).ok().map(ServerAnswer::AsksFirst),
        Some(_) => {
            let mut members: Members = serde_json::from_str(result.get()).ok()?;
            members.remove("resultType");
            let result_now = serde_json::to_string(&members).ok()?;
            Some(ServerAnswer::Answer(super::message::spliced(text, result, &result_now)))
        }
    }
}

impl Question {
    /// The request that asks the client while its own waits, under this id.
    #[must_use]
    pub(super) fn request(&self, id: &str) -> String {
        let (id, method) = (Value::from(id), Value::from(self.method.as_str()));
        let Some(params) = &self.params else {
            return format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method}}}"#);
        };
        let params = self.named(params, &id).unwrap_or_else(|| params.get().to_owned());
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)
    }

    /// An address to open has a name in the versions with sessions.
    fn named(&self, params: &RawValue, id: &Value) -> Option<String> {
        let mut members: Members = serde_json::from_str(params.get()).ok()?;
        if members.get("mode")?.get() != r#""url""# || members.contains_key("elicitationId") {
            return None;
        }
        members.insert("elicitationId".to_owned(), to_raw_value(id).ok()?);
        serde_json::to_string(&members).ok()
    }

    /// What an answer of the client is to the server; in JSON-RPC's words why it is none.
    pub(super) fn answer(&self, text: &str) -> Result<Box<RawValue>, Box<RawValue>> {
        let broken =
            || RawValue::from_string(r#"{"code":-32603,"message":"the client gave no answer"}"#.to_owned());
        let message = ServerMessage::read(text);
        match message.as_ref().map(|message| (message.result, message.error)) {
            Some((Some(result), _)) => Ok(result.to_owned()),
            // Whoever cannot ask its user has not been answered.
            Some((None, _)) if self.method == "elicitation/create" => {
                RawValue::from_string(r#"{"action":"cancel"}"#.to_owned())
                    .map_err(|_| RawValue::NULL.to_owned())
            }
            Some((None, Some(error))) => Err(error.to_owned()),
            Some((None, None)) | None => Err(broken().unwrap_or_else(|_| RawValue::NULL.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = r#"{"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"c","n":1.0},
        "capabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{},"x":{}}}}}"#;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_request_says_who_asks() {
        let hello = Hello::read(HELLO).unwrap();
        let line = r#"{"id":"a","method":"tools/call","params":{"name":"pay","arguments":{"n":9007199254740993.10},"_meta":{"progressToken":7}}}"#;
        let asked = hello.asks(line, Some("debug"), None).unwrap();
        assert!(asked.contains(r#""arguments":{"n":9007199254740993.10}"#), "{asked}");
        assert!(asked.contains(r#""io.modelcontextprotocol/clientInfo":{"name":"c","n":1.0}"#), "{asked}");
        let value: Value = serde_json::from_str(&asked).unwrap();
        let meta = &value["params"]["_meta"];
        assert_eq!(
            (&meta["progressToken"], &meta[VERSION], &meta[LOG_LEVEL]),
            (&json!(7), &json!(NEWEST), &json!("debug"))
        );
        assert_eq!(meta[CAPABILITIES], json!({"elicitation": {}, "extensions": {"x": {}}}));
        let back =
            Return { responses: [("q".to_owned(), raw("{\"n\":1.0}"))].into(), state: Some(raw("\"s\"")) };
        let again = hello.asks(r#"{"id":2,"method":"tools/call"}"#, None, Some(&back)).unwrap();
        assert!(again.contains(r#""inputResponses":{"q":{"n":1.0}},"requestState":"s""#), "{again}");
    }

    #[test]
    fn a_session_begins_with_what_a_server_says_of_itself() {
        let hello = Hello::read(HELLO).unwrap();
        let found = raw(
            r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
        );
        let welcome: Value = serde_json::from_str(&hello.welcome(&raw("1"), &found, "g").unwrap()).unwrap();
        let expected = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}});
        assert_eq!(welcome["result"], expected);
        let older = raw(r#"{"supportedVersions":["2025-11-25"],"capabilities":{}}"#);
        assert!(hello.welcome(&raw("1"), &older, "g").is_none());
        assert!(Hello::read(r#"{"method":"initialize"}"#).is_none());
    }

    #[test]
    fn an_answer_is_what_the_client_reads() {
        let answer = |text: &str| match said(text) {
            Some(ServerAnswer::Answer(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            answer(r#"{"id":1.0,"result":{"n":1.0,"resultType":"complete"}}"#),
            r#"{"id":1.0,"result":{"n":1.0}}"#
        );
        assert_eq!(answer(r#"{"id":1,"error":{"code":1}}"#), r#"{"id":1,"error":{"code":1}}"#);
        assert!(said(r#"{"method":"notifications/message","params":{}}"#).is_none());
        let asks = r#"{"id":1,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create",
            "params":{"mode":"url","url":"http://x","message":"m"}},"r":{"method":"roots/list"}},"requestState":"s"}}"#;
        let Some(ServerAnswer::AsksFirst(questions)) = said(asks) else { panic!() };
        let asked: Value = serde_json::from_str(&questions.asked["q"].request("i")).unwrap();
        assert_eq!((&asked["id"], &asked["params"]["elicitationId"]), (&json!("i"), &json!("i")));
        assert_eq!(questions.asked["r"].request("i"), r#"{"jsonrpc":"2.0","id":"i","method":"roots/list"}"#);
        let refused = r#"{"id":"i","error":{"code":-1,"message":"no"}}"#;
        assert_eq!(questions.asked["q"].answer(refused).unwrap().get(), r#"{"action":"cancel"}"#);
        assert_eq!(questions.asked["r"].answer(refused).unwrap_err().get(), r#"{"code":-1,"message":"no"}"#);
        let given = r#"{"id":"i","result":{"roots":[1.0]}}"#;
        assert_eq!(questions.asked["r"].answer(given).unwrap().get(), r#"{"roots":[1.0]}"#);
    }

    #[test]
    fn a_request_without_a_session_is_asked_in_one() {
        let line = r#"{"id":1,"method":"tools/call","params":{"name":"pay","arguments":{"n":1.0},"inputResponses":{"server":{"a":1.0}},"requestState":"s",
            "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},
            "io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/logLevel":"info","progressToken":1,"x":1.0}}}"#;
        let spoken = SpokenRequest::read(line, "sf-1").unwrap();
        let expected = r#"{"jsonrpc":"2.0","id":"sf-1","method":"tools/call","params":{"_meta":{"progressToken":"sf-1","x":1.0},"arguments":{"n":1.0},"name":"pay"}}"#;
        assert_eq!((spoken.line.as_str(), spoken.level.as_deref()), (expected, Some("info")));
        assert_eq!(spoken.back.responses["server"].get(), r#"{"a":1.0}"#);
        assert!(spoken.can_be_asked());
        assert!(spoken.hello("h").contains(r#""clientInfo":{"name":"c"},"capabilities":{"sampling":{}}"#));
        let silent = SpokenRequest::read(r#"{"id":1,"method":"tools/list"}"#, "n").unwrap();
        assert_eq!(silent.line, r#"{"jsonrpc":"2.0","id":"n","method":"tools/list","params":{}}"#);
        assert!(!silent.can_be_asked());
    }

    #[test]
    fn an_answer_of_a_session_is_one_without() {
        let id = raw("7.0");
        assert_eq!(
            newest_answer(r#"{"id":"n","result":{"n":1.0}}"#, "tools/call", &id),
            r#"{"jsonrpc":"2.0","id":7.0,"result":{"n":1.0,"resultType":"complete"}}"#
        );
        let list: Value =
            serde_json::from_str(&newest_answer(r#"{"id":"n","result":{}}"#, "tools/list", &id)).unwrap();
        assert_eq!(list["result"], json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}));
        let error = newest_answer(r#"{"id":"n","error":{"code":-1}}"#, "tools/call", &id);
        assert_eq!(error, r#"{"jsonrpc":"2.0","id":7.0,"error":{"code":-1}}"#);
        let welcome =
            raw(r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s"}}"#);
        let found: Value = serde_json::from_str(&discovered(&welcome, &id).unwrap()).unwrap();
        assert_eq!(found["result"]["supportedVersions"], json!([NEWEST]));
        assert_eq!(found["result"]["_meta"][SERVER], json!({"name": "s"}));
        let asks = asks_first(r#"{"id":1,"method":"roots/list"}"#, "st", &id).unwrap();
        let asks: Value = serde_json::from_str(&asks).unwrap();
        assert_eq!(asks["result"]["inputRequests"][QUESTION], json!({"method": "roots/list"}));
    }

    #[test]
    fn who_listens_hears_what_it_wants() {
        let line = r#"{"id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a"]}}}"#;
        let wanted = SpokenRequest::read(line, "n").unwrap().wanted;
        let about = |uri: &str| raw(&json!({"uri": uri}).to_string());
        assert!(wanted.has("notifications/tools/list_changed", None));
        assert!(!wanted.has("notifications/prompts/list_changed", None));
        assert!(wanted.has("notifications/resources/updated", Some(&about("a"))));
        assert!(!wanted.has("notifications/resources/updated", Some(&about("b"))));
        let first: Value = serde_json::from_str(&wanted.acknowledged(&raw("1")).unwrap()).unwrap();
        assert_eq!(
            (&first["params"]["_meta"][SUBSCRIPTION], &first["params"]["notifications"]["toolsListChanged"]),
            (&json!(1), &json!(true))
        );
        let told =
            subscribed(r#"{"method":"notifications/resources/updated","params":{"uri":"a"}}"#, &raw("1"))
                .unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["params"], json!({"uri": "a", "_meta": {SUBSCRIPTION: 1}}));
    }
}
