//! The tools of the MCP server: how models see them, and what their arguments mean. Pure.
//!
//! What follows from a wish is `mcp.rs`; what a gate is, the engine.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, Tool, ToolAnnotations};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use standfast_core::body::Body;
use standfast_core::hold::Ask;
use standfast_core::id::RunId;
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Part};
use standfast_core::name::{SessionId, ToolName};
use standfast_engine::{GateOutcome, GateState};

/// What a model gets of the server.
pub(super) const INSTRUCTIONS: &str = "People approve what you do and answer your questions here. Before you do something that \
     changes the world, call request_approval with exactly what you are about to do, and do it only when it says approved, once. \
     A request stays open when you stop waiting: standfast_result says what came of it.";

/// Conversations that nobody named.
const USUAL_SESSION: &str = "mcp";

/// Under which name questions are judged and listed.
const ASK_HUMAN: &str = "ask_human";

/// What a client wants.
#[derive(Debug)]
pub(super) enum ToolRequest {
    /// Somebody is to approve a call, or to answer a question.
    Ask(PersonRequest),
    /// What the rules say of a call.
    Check(PersonRequest),
    /// How a request stands.
    Look(RunId),
    /// What came of what was approved.
    Report(RunId, GateOutcome),
}

/// A call or a question.
#[derive(Debug)]
pub(super) struct PersonRequest {
    pub(super) tool: ToolName,
    pub(super) arguments: RawJson,
    pub(super) session: SessionId,
    pub(super) question: Option<Ask>,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallArgs {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    reason: Option<String>,
    session: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionArgs {
    question: String,
    #[serde(default)]
    options: Vec<String>,
    answer_schema: Option<Map<String, Value>>,
    session: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultArgs {
    gate: String,
    status: Option<Status>,
    result: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Succeeded,
    Failed,
    NotExecuted,
    Unknown,
}

impl ToolRequest {
    /// What a call of a tool asks for.
    pub(super) fn read(request: &CallToolRequestParams) -> Result<ToolRequest, String> {
        let arguments = || request.arguments.clone().unwrap_or_default();
        match request.name.as_ref() {
            "request_approval" => {
                Ok(ToolRequest::Ask(PersonRequest::of_call(read("request_approval", arguments())?)?))
            }
            "check" => Ok(ToolRequest::Check(PersonRequest::of_call(read("check", arguments())?)?)),
            ASK_HUMAN => Ok(ToolRequest::Ask(PersonRequest::of_question(read(ASK_HUMAN, arguments())?)?)),
            "standfast_result" => {
                let ResultArgs { gate, status, result } = read("standfast_result", arguments())?;
                let gate = gate.parse().map_err(|_| format!("gate: {gate:?} is not the id of a request"))?;
                Ok(match status {
                    None => ToolRequest::Look(gate),
                    Some(status) => ToolRequest::Report(gate, outcome(status, result)),
                })
            }
            other => Err(format!(
                "there is no tool {other:?}; the tools are: request_approval, ask_human, check, standfast_result"
            )),
        }
    }
}

fn read<T: DeserializeOwned>(tool: &str, arguments: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|why| format!("arguments of {tool}: {why}"))
}

fn outcome(status: Status, result: Option<Value>) -> GateOutcome {
    let said = match result {
        None => Body::text(""),
        Some(Value::String(text)) => Body::text(text),
        Some(other) => match RawJson::parse(&other.to_string()) {
            Ok(json) => Body::Json(json),
            Err(_) => Body::text(other.to_string()),
        },
    };
    match status {
        Status::Succeeded => GateOutcome::Succeeded(said),
        Status::Failed => GateOutcome::Failed(said),
        Status::NotExecuted => GateOutcome::NotExecuted,
        Status::Unknown => {
            let why = said.inline().filter(|why| !why.is_empty()).map(str::to_owned);
            GateOutcome::Unknown(why.unwrap_or_else(|| "the agent does not know how it ended".to_owned()))
        }
    }
}

impl PersonRequest {
    fn of_call(args: CallArgs) -> Result<PersonRequest, String> {
        let CallArgs { tool, arguments, reason, session } = args;
        PersonRequest::new(&tool, &Value::Object(arguments), session, reason)
    }

    fn of_question(args: QuestionArgs) -> Result<PersonRequest, String> {
        let QuestionArgs { question, options, answer_schema, session } = args;
        if question.trim().is_empty() {
            return Err("question: it is empty".to_owned());
        }
        let mut arguments = json!({"question": question});
        if !options.is_empty() {
            arguments["options"] = json!(options);
        }
        if let Some(schema) = &answer_schema {
            arguments["answer_schema"] = json!(schema);
        }
        let schema = answer_schema.map(|schema| RawJson::parse(&Value::Object(schema).to_string()));
        let answer_schema = schema.transpose().map_err(|why| format!("answer_schema: {why}"))?;
        let ask = Ask { question: Some(Body::text(question)), options, answer_schema, ..Ask::default() };
        Ok(PersonRequest { question: Some(ask), ..PersonRequest::new(ASK_HUMAN, &arguments, session, None)? })
    }

    fn new(
        tool: &str,
        arguments: &Value,
        session: Option<String>,
        reason: Option<String>,
    ) -> Result<PersonRequest, String> {
        let tool = ToolName::new(tool).map_err(|why| format!("tool: {why}"))?;
        let arguments = RawJson::parse(&arguments.to_string()).map_err(|why| format!("arguments: {why}"))?;
        let session = session.as_deref().unwrap_or(USUAL_SESSION);
        let session = SessionId::new(session).map_err(|why| format!("session: {why}"))?;
        Ok(PersonRequest { tool, arguments, session, question: None, reason })
    }

    /// What approvers see beside it.
    pub(super) fn message(&self) -> Message {
        let mut text = match &self.question {
            Some(_) => "An agent asks a question over MCP.".to_owned(),
            None => format!("An agent asks over MCP before it does {}.", self.tool),
        };
        if let Some(reason) = self.reason.as_ref().filter(|reason| !reason.is_empty()) {
            text.push_str(&format!("\n\nWhy, in its own words: {reason}"));
        }
        Message::of(vec![Part::Text(Body::text(text))])
    }
}

/// Where a gate stands, in one word.
pub(super) fn state(state: GateState) -> &'static str {
    match state {
        GateState::Allowed => "approved",
        GateState::Held => "held",
        GateState::Denied => "denied",
        GateState::Expired => "expired",
        GateState::Withdrawn => "withdrawn",
        GateState::Started => "started",
        GateState::Done => "done",
        GateState::OutcomeUnknown => "outcome_unknown",
    }
}

/// The tools, as models see them.
pub(super) fn all() -> Vec<Tool> {
    let call = json!({
        "type": "object",
        "properties": {
            "tool": {"type": "string", "description": "What you are about to do, in one word or the name of the tool"},
            "arguments": {"type": "object", "description": "Exactly what with: a person sees this, and this is what you may then do"},
            "reason": {"type": "string", "description": "Why, for the person who decides"},
            "session": {"type": "string", "description": "A name that keeps this conversation apart from others"}
        },
        "required": ["tool", "arguments"]
    });
    let mut check = call.clone();
    if let Some(properties) = check["properties"].as_object_mut() {
        properties.remove("reason");
    }
    let question = json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "The question. The same question again has the same answer"},
            "options": {"type": "array", "items": {"type": "string"}, "description": "Answers to choose from"},
            "answer_schema": {"type": "object", "description": "JSON Schema of the answer, which becomes a form"},
            "session": {"type": "string", "description": "A name that keeps this conversation apart from others"}
        },
        "required": ["question"]
    });
    let result = json!({
        "type": "object",
        "properties": {
            "gate": {"type": "string", "description": "The id that the request was given"},
            "status": {"enum": ["succeeded", "failed", "not_executed", "unknown"], "description": "What came of what was approved; leave it out to ask how the request stands"},
            "result": {"description": "What it returned, or why it failed"}
        },
        "required": ["gate"]
    });
    let reads = || ToolAnnotations::new().read_only(true).open_world(false);
    let asks = || ToolAnnotations::new().read_only(false).destructive(false).open_world(false);
    vec![
        tool(
            "request_approval",
            "Ask a person to approve something before you do it. Returns approved (do exactly that, once), \
              denied, or held: nobody has decided yet, and the request stays open. What a rule allows needs no person.",
            &call,
            asks(),
        ),
        tool(
            ASK_HUMAN,
            "Ask a person a question and wait for the answer. When nobody has answered yet, the question stays open.",
            &question,
            asks(),
        ),
        tool(
            "check",
            "What the rules say of something that you might do: allow, hold (a person has to approve it) or deny. Asks nobody.",
            &check,
            reads(),
        ),
        tool(
            "standfast_result",
            "How a request stands, by the id that it was given: waits a while for the decision or the answer. \
              With a status: say what came of what was approved.",
            &result,
            asks(),
        ),
    ]
}

fn tool(name: &'static str, description: &'static str, schema: &Value, hints: ToolAnnotations) -> Tool {
    let schema = schema.as_object().cloned().unwrap_or_default();
    Tool::new(name, description, Arc::new(schema)).with_annotations(hints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(name: &str, arguments: &Value) -> Result<ToolRequest, String> {
        let mut request = CallToolRequestParams::new(name.to_owned());
        request.arguments = arguments.as_object().cloned();
        ToolRequest::read(&request)
    }

    #[test]
    fn arguments_become_wishes() {
        let Ok(ToolRequest::Ask(asked)) =
            wish("request_approval", &json!({"tool": "pay", "arguments": {"eur": 4}}))
        else {
            panic!("no wish");
        };
        assert_eq!((asked.tool.as_str(), asked.arguments.text()), ("pay", r#"{"eur":4}"#));
        assert!(asked.question.is_none());
        let Ok(ToolRequest::Ask(asked)) =
            wish("ask_human", &json!({"question": "Which?", "options": ["a", "b"]}))
        else {
            panic!("no wish");
        };
        assert_eq!(asked.question.map(|ask| ask.options), Some(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn mistakes_are_named() {
        for (name, arguments, said) in [
            ("request_approval", json!({"arguments": {}}), "missing field `tool`"),
            ("request_approval", json!({"tool": "", "arguments": {}}), "tool:"),
            ("request_approval", json!({"tool": "pay", "argument": {}}), "unknown field `argument`"),
            ("ask_human", json!({"question": " "}), "it is empty"),
            ("standfast_result", json!({"gate": "x"}), "is not the id of a request"),
            ("approve", json!({}), "there is no tool \"approve\""),
        ] {
            let why = wish(name, &arguments).expect_err(name);
            assert!(why.contains(said), "{name}: {why}");
        }
    }
}
