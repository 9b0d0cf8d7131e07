//! What a server asks back before it answers a call, as something that a person can be asked, and the way back.
//!
//! In the newest protocol a server answers "input required" with a state of its own: both are stored with the hold, and
//! days later any node sends the call again with the answers. In older ones a server asks while the call is open: what
//! becomes of that call is `open.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{ElicitRequestParams, InputRequest, InputRequiredResult, InputResponses};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::hold::Ask;
use standfast_core::json::RawJson;
use standfast_engine::tool::{CallContinuation, Suspension};

/// What a call is made again with; stored with the hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// The server's own state, and what it asked for under which name.
    Rounds {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
        requests: BTreeMap<String, McpQuestion>,
    },
    /// What was asked while a call was open, and what had been answered before.
    Open {
        question: String,
        answered: Vec<AnsweredQuestion>,
        /// Whether the call stays open meanwhile.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum McpQuestion {
    /// Values.
    Form,
    /// That somebody opens an address.
    Address,
    /// Which folders there are; nobody is asked for that.
    Roots,
}

/// A question that was asked while a call was open, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnsweredQuestion {
    pub(super) question: String,
    pub(super) value: Value,
}

/// What a call is made with, beside its arguments.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Answers {
    /// For the newest protocol.
    pub(super) responses: Option<InputResponses>,
    /// The server's own state.
    pub(super) state: Option<String>,
    /// For older ones.
    pub(super) answered: Vec<AnsweredQuestion>,
    /// Whether the last of these is for a call that is still open.
    pub(super) is_awaited: bool,
}

/// What comes after "input required".
#[derive(Debug)]
pub(super) enum NextStep {
    /// A person is asked.
    Ask(Box<Suspension>),
    /// Nobody has to be: the call is made again at once.
    Again(Answers),
}

/// What a server that wants input gets; an error when nobody can give it.
pub(super) fn next(server: &str, required: InputRequiredResult) -> Result<NextStep, String> {
    let mut requests = BTreeMap::new();
    let mut questions = Vec::new();
    for (name, request) in required.input_requests.unwrap_or_default() {
        let asked = match request {
            InputRequest::Elicitation(elicitation) => {
                let question = Question::of(&elicitation.params)?;
                let asked = if question.schema.is_some() { McpQuestion::Form } else { McpQuestion::Address };
                questions.push((name.clone(), question));
                asked
            }
            InputRequest::ListRoots(_) => McpQuestion::Roots,
            InputRequest::CreateMessage(_) => {
                return Err("it requests sampling, which this server does not support".into());
            }
            _ => return Err("it sent a request that this version does not support".into()),
        };
        requests.insert(name, asked);
    }
    if questions.is_empty() {
        let responses: InputResponses = requests.keys().map(|name| (name.clone(), no_roots())).collect();
        let responses = (!responses.is_empty()).then_some(responses);
        let state = required.request_state;
        return Ok(NextStep::Again(Answers { responses, state, ..Answers::default() }));
    }
    let state = State::Rounds { state: required.request_state, requests };
    Ok(NextStep::Ask(Box::new(ask(server, &questions, &state))))
}

fn no_roots() -> Value {
    json!({"roots": []})
}

/// What a person is asked for a server that asked while a call was open, and how long the call stays open for it.
pub(super) fn pending_open(
    server: &str,
    mut question: Question,
    answered: Vec<AnsweredQuestion>,
    waits: Option<Duration>,
) -> Suspension {
    let state = State::Open { question: question.text.clone(), answered, waits: waits.is_some() };
    if let Some(span) = waits {
        let minutes = span.as_secs().div_ceil(60);
        let s = if minutes == 1 { "" } else { "s" };
        question.text.push_str(&format!("\n\n(The server waits {minutes} minute{s} for the answer.)"));
    }
    ask(server, &[(String::new(), question)], &state)
}

fn ask(server: &str, questions: &[(String, Question)], state: &State) -> Suspension {
    let texts: Vec<&str> = questions.iter().map(|(_, question)| question.text.as_str()).collect();
    let schema = match questions {
        [(_, one)] => one.schema.clone(),
        several => {
            let forms = several.iter().filter_map(|(name, one)| Some((name, one.schema.as_ref()?)));
            let properties: Map<String, Value> =
                forms.map(|(name, schema)| (name.clone(), schema.clone())).collect();
            let names: Vec<&String> = properties.keys().collect();
            (!names.is_empty())
                .then(|| json!({"type": "object", "required": names, "properties": properties}))
        }
    };
    // Where there is nothing to fill in, somebody has to go somewhere and then say so.
    let kind = if schema.is_some() { SuspendFor::Input } else { SuspendFor::Auth };
    let raw = |value: &Value| RawJson::parse(&value.to_string()).ok();
    let ask = Ask {
        reason: Some(format!("the MCP server `{server}` asks for this before it continues")),
        question: Some(Body::text(texts.join("\n\n"))),
        answer_schema: schema.as_ref().and_then(raw),
        resume: serde_json::to_value(state)
            .ok()
            .as_ref()
            .and_then(raw)
            .map(|state| Box::new(Body::Json(state))),
        ..Ask::default()
    };
    Suspension { kind, ask, timeout: None, secret: None }
}

/// What a call is made again with, once a person has answered.
pub(super) fn answers(resumed: Option<&CallContinuation>) -> Result<Answers, String> {
    let Some(resumed) = resumed else { return Ok(Answers::default()) };
    let state = resumed.state.inline().unwrap_or_default();
    let state: State = serde_json::from_str(state).map_err(|error| error.to_string())?;
    let given = match &resumed.answer {
        Body::Text(text) => Value::String(text.clone()),
        Body::Json(json) => serde_json::from_str(json.text()).map_err(|error| error.to_string())?,
        Body::Blob(_) => return Err("the answer is not at hand".into()),
    };
    match state {
        State::Open { question, mut answered, waits } => {
            answered.push(AnsweredQuestion { question, value: given });
            // Made again from the beginning, it may ask the same again, and the answer is known then.
            let is_awaited = waits && !resumed.is_repeat;
            Ok(Answers { answered, is_awaited, ..Answers::default() })
        }
        State::Rounds { state, requests } => {
            let is_only = requests.values().filter(|asked| **asked != McpQuestion::Roots).count() == 1;
            let response = |(name, asked): (String, McpQuestion)| {
                let value = match asked {
                    McpQuestion::Roots => no_roots(),
                    McpQuestion::Address => json!({"action": "accept"}),
                    McpQuestion::Form => {
                        let content = if is_only { Some(&given) } else { given.get(&name) };
                        json!({"action": "accept", "content": content})
                    }
                };
                (name, value)
            };
            let responses: InputResponses = requests.into_iter().map(response).collect();
            let responses = (!responses.is_empty()).then_some(responses);
            Ok(Answers { responses, state, ..Answers::default() })
        }
    }
}

/// What a server wants to know.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    /// In words, with the address to open where there is one.
    pub(super) text: String,
    /// What is to be filled in; none for an address.
    pub(super) schema: Option<Value>,
}

impl Question {
    pub(super) fn of(params: &ElicitRequestParams) -> Result<Question, String> {
        match params {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                let schema = serde_json::to_value(requested_schema).map_err(|error| error.to_string())?;
                Ok(Question { text: message.clone(), schema: Some(schema) })
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => Ok(Question {
                text: format!("{message}\n{url}\nOpen this address yourself, and answer when you are done."),
                schema: None,
            }),
            _ => Err("it sent a request that this version does not support".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required(requests: Value) -> InputRequiredResult {
        let result =
            json!({"resultType": "input_required", "requestState": "opaque", "inputRequests": requests});
        serde_json::from_value(result).unwrap()
    }

    fn form(message: &str) -> Value {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        json!({"method": "elicitation/create",
               "params": {"mode": "form", "message": message, "requestedSchema": schema}})
    }

    fn pending(server: &str, required: InputRequiredResult) -> Result<Suspension, String> {
        match next(server, required)? {
            NextStep::Ask(pending) => Ok(*pending),
            NextStep::Again(answers) => panic!("nobody is asked: {answers:?}"),
        }
    }

    /// A server may only want to be called again, with its own state.
    #[test]
    fn where_nobody_knows_better_the_call_is_made_again() {
        let Ok(NextStep::Again(answers)) = next("bank", required(json!({"r": {"method": "roots/list"}})))
        else {
            panic!("somebody is asked")
        };
        assert_eq!(answers.state.as_deref(), Some("opaque"));
        assert_eq!(serde_json::to_value(answers.responses).unwrap(), json!({"r": {"roots": []}}));
    }

    fn answered(pending: &Suspension, answer: Value) -> Answers {
        let answer = Body::Json(RawJson::parse(&answer.to_string()).unwrap());
        let state = *pending.ask.resume.clone().unwrap();
        answers(Some(&CallContinuation { state, answer, is_repeat: false })).unwrap()
    }

    #[test]
    fn one_question_is_answered_by_its_values() {
        let pending = pending("bank", required(json!({"amount": form("How much?")}))).unwrap();
        assert_eq!(pending.kind, SuspendFor::Input);
        assert_eq!(pending.ask.question, Some(Body::text("How much?")));
        assert!(pending.ask.answer_schema.as_ref().unwrap().text().contains("integer"));
        let answers = answered(&pending, json!({"n": 7}));
        assert_eq!(answers.state.as_deref(), Some("opaque"));
        let expected = json!({"amount": {"action": "accept", "content": {"n": 7}}});
        assert_eq!(serde_json::to_value(answers.responses).unwrap(), expected);
    }

    #[test]
    fn several_questions_are_answered_by_name_and_folders_by_nobody() {
        let roots = json!({"method": "roots/list"});
        let asked = json!({"a": form("A?"), "b": form("B?"), "r": roots});
        let pending = pending("bank", required(asked)).unwrap();
        let answers = answered(&pending, json!({"a": {"n": 1}, "b": {"n": 2}}));
        let expected = json!({
            "a": {"action": "accept", "content": {"n": 1}},
            "b": {"action": "accept", "content": {"n": 2}},
            "r": {"roots": []},
        });
        assert_eq!(serde_json::to_value(answers.responses).unwrap(), expected);
    }

    #[test]
    fn an_address_is_a_login_and_a_model_is_not_lent() {
        let address = json!({"method": "elicitation/create", "params":
            {"mode": "url", "message": "Log in", "url": "https://id.example.org/x", "elicitationId": "1"}});
        let at = pending("bank", required(json!({"login": address}))).unwrap();
        assert_eq!(at.kind, SuspendFor::Auth);
        assert!(at.ask.question.as_ref().unwrap().inline().unwrap().contains("https://id.example.org/x"));
        let answers = answered(&at, json!("done"));
        assert_eq!(serde_json::to_value(answers.responses).unwrap(), json!({"login": {"action": "accept"}}));
        let words = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}});
        assert!(pending("bank", required(json!({"words": words}))).is_err());
    }

    #[test]
    fn what_was_asked_in_an_open_call_is_answered_in_the_next_or_in_the_same() {
        let question = Question { text: "Sure?".into(), schema: Some(json!({"type": "object"})) };
        let pending = pending_open("bank", question.clone(), Vec::new(), None);
        let answers = answered(&pending, json!({"yes": true}));
        let expected = vec![AnsweredQuestion { question: "Sure?".into(), value: json!({"yes": true}) }];
        assert_eq!(answers.answered, expected);
        assert_eq!((answers.responses, answers.state, answers.is_awaited), (None, None, false));

        let pending = pending_open("bank", question, Vec::new(), Some(Duration::from_secs(600)));
        let asked = pending.ask.question.as_ref().unwrap().inline().unwrap();
        assert_eq!(asked, "Sure?\n\n(The server waits 10 minutes for the answer.)");
        let answers = answered(&pending, json!({"yes": true}));
        assert_eq!((&answers.answered, answers.is_awaited), (&expected, true));
        let state = *pending.ask.resume.unwrap();
        let again =
            super::answers(Some(&CallContinuation { state, answer: Body::text("yes"), is_repeat: true }));
        assert!(!again.unwrap().is_awaited, "a person wants it made again from the beginning");
    }
}
