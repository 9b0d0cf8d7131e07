//! The steps of a scenario as people write them, and what they come to.
//!
//! A step is a mapping with one key that says what is done (send, approve, wait, expect …) and others that say how.
//! Which keys go together is checked here.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_saphyr::Spanned;
use standfast_core::body::Body;
use standfast_core::hold::HoldKind;
use standfast_core::id::CallNo;
use standfast_core::json::RawJson;
use standfast_core::name::{SessionId, ToolName, UserId};
use standfast_core::time::Millis;
use standfast_models::script_file::{Arguments, Json, Span};

use super::ScenarioError;
use super::file::{body, forms};

/// A step.
pub(super) struct Step {
    pub(super) line: u64,
    pub(super) verb: Verb,
    /// Who does it; none means whoever began the run.
    pub(super) who: Option<UserId>,
    /// Which run, by its label; none means the one that began last.
    pub(super) run: Option<String>,
    /// The no that is expected.
    pub(super) refused: Option<RefusedText>,
}

/// What is done.
pub(super) enum Verb {
    Send { text: String, session: Option<SessionId> },
    Say { text: String, supersedes: bool },
    Cancel { reason: Option<String> },
    Decide { how: ScriptedDecision, hold: Selector },
    Wait(Millis),
    Restart { down: Option<Millis> },
    Expect(Box<ExpectText>),
}

/// What a person or an outside system decides.
pub(super) enum ScriptedDecision {
    Approve,
    Edit(RawJson),
    Deny { reason: Option<String> },
    Answer(Body),
    Result(Body),
    Fail(String),
}

impl Verb {
    /// The key in the file.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Verb::Send { .. } => "send",
            Verb::Say { .. } => "say",
            Verb::Cancel { .. } => "cancel",
            Verb::Decide { how, .. } => match how {
                ScriptedDecision::Approve => "approve",
                ScriptedDecision::Edit(_) => "edit",
                ScriptedDecision::Deny { .. } => "deny",
                ScriptedDecision::Answer(_) => "answer",
                ScriptedDecision::Result(_) => "result",
                ScriptedDecision::Fail(_) => "fail",
            },
            Verb::Wait(_) => "wait",
            Verb::Restart { .. } => "restart",
            Verb::Expect(_) => "expect",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepText {
    send: Option<String>,
    say: Option<String>,
    #[serde(default, deserialize_with = "given")]
    cancel: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    approve: Option<Option<Selector>>,
    #[serde(default, deserialize_with = "given")]
    edit: Option<Option<Selector>>,
    #[serde(default, deserialize_with = "given")]
    deny: Option<Option<Selector>>,
    #[serde(default, deserialize_with = "given")]
    answer: Option<Option<Selector>>,
    #[serde(default, deserialize_with = "given")]
    result: Option<Option<Selector>>,
    #[serde(default, deserialize_with = "given")]
    fail: Option<Option<Selector>>,
    wait: Option<Span>,
    #[serde(default, deserialize_with = "given")]
    restart: Option<Option<Span>>,
    expect: Option<Box<ExpectText>>,

    #[serde(rename = "as")]
    who: Option<String>,
    run: Option<String>,
    session: Option<String>,
    supersede: Option<bool>,
    arguments: Option<Arguments>,
    reason: Option<String>,
    value: Option<Json>,
    error: Option<String>,
    refused: Option<RefusedText>,
}

/// A key that is there counts as given, also when nothing stands behind it.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

/// Which hold: the only one, or that of a tool, a kind, a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) tool: Option<ToolName>,
    pub(super) kind: Option<HoldKind>,
    pub(super) call: Option<u32>,
}

impl Selector {
    /// Whether it means a hold of this tool, kind and call.
    pub(super) fn takes(&self, tool: Option<&ToolName>, kind: HoldKind, call: CallNo) -> bool {
        self.tool.as_ref().is_none_or(|wanted| tool == Some(wanted))
            && self.kind.is_none_or(|wanted| wanted == kind)
            && self.call.is_none_or(|wanted| wanted == call.0)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SelectorText {
    tool: Option<String>,
    kind: Option<HoldKind>,
    call: Option<u32>,
}

/// The no that is expected.
pub(super) struct RefusedText {
    /// Its kind, as the native API names it.
    pub(super) kind: String,
    /// Part of what is said.
    pub(super) text: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedFields {
    kind: String,
    text: Option<String>,
}

/// How things are expected to be; what is not named may be anything.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectText {
    pub(super) status: Option<String>,
    pub(super) waiting_for: Option<String>,
    pub(super) holds: Option<Vec<HoldText>>,
    pub(super) result: Option<Json>,
    pub(super) reason: Option<String>,
    pub(super) starts: Option<Vec<StartText>>,
    pub(super) events: Option<Vec<String>>,
    pub(super) told: Option<Vec<ToldText>>,
}

/// An open hold; what is not named may be anything.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldText {
    pub(super) kind: Option<HoldKind>,
    pub(super) tool: Option<String>,
    pub(super) arguments: Option<Json>,
    pub(super) reason: Option<String>,
    pub(super) question: Option<String>,
    pub(super) options: Option<Vec<String>>,
    pub(super) expires_in: Option<Span>,
    pub(super) expired: Option<bool>,
}

/// A start of a tool.
pub(super) struct StartText {
    pub(super) tool: String,
    pub(super) arguments: Option<Json>,
    pub(super) attempt: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartFields {
    tool: String,
    arguments: Option<Json>,
    attempt: Option<u32>,
}

/// The result of a call as the model gets it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToldText {
    pub(super) tool: String,
    /// Part of the result.
    pub(super) text: String,
}

impl Step {
    pub(super) fn read(text: Spanned<StepText>) -> Result<Step, ScenarioError> {
        let line = text.referenced.line();
        read(text.value, line).map_err(|message| ScenarioError::at(line, message))
    }
}

fn read(mut text: StepText, line: u64) -> Result<Step, String> {
    let verb = verb(&mut text)?;
    let unused = [
        ("session", text.session.is_some()),
        ("supersede", text.supersede.is_some()),
        ("arguments", text.arguments.is_some()),
        ("reason", text.reason.is_some()),
        ("value", text.value.is_some()),
        ("error", text.error.is_some()),
    ];
    if let Some((key, _)) = unused.into_iter().find(|(_, is_left)| *is_left) {
        return Err(format!("`{key}` does not belong to `{}`", verb.word()));
    }
    let is_done_by_somebody = !matches!(verb, Verb::Wait(_) | Verb::Restart { .. } | Verb::Expect(_));
    if !is_done_by_somebody && text.refused.is_some() {
        return Err(format!("`refused` does not belong to `{}`", verb.word()));
    }
    if matches!(verb, Verb::Wait(_) | Verb::Restart { .. }) && (text.who.is_some() || text.run.is_some()) {
        return Err(format!("`as` and `run` do not belong to `{}`", verb.word()));
    }
    let who = text.who.map(|name| UserId::new(&name).map_err(|bad| bad.to_string())).transpose()?;
    Ok(Step { line, verb, who, run: text.run, refused: text.refused })
}

/// What the step does; the keys that belong to it are taken out.
fn verb(text: &mut StepText) -> Result<Verb, String> {
    let mut found = Vec::new();
    if let Some(words) = text.send.take() {
        let session = text.session.take().map(|name| SessionId::new(&name).map_err(|bad| bad.to_string()));
        found.push(Verb::Send { text: words, session: session.transpose()? });
    }
    if let Some(words) = text.say.take() {
        found.push(Verb::Say { text: words, supersedes: text.supersede.take().unwrap_or_default() });
    }
    found.extend(text.cancel.take().map(|reason| Verb::Cancel { reason }));
    let mut decide = |how: ScriptedDecision, hold: Option<Selector>| {
        found.push(Verb::Decide { how, hold: hold.unwrap_or_default() });
    };
    if let Some(hold) = text.approve.take() {
        decide(ScriptedDecision::Approve, hold);
    }
    if let Some(hold) = text.edit.take() {
        let Arguments(arguments) = text.arguments.take().ok_or("`edit` needs `arguments`")?;
        decide(ScriptedDecision::Edit(RawJson::parse(&arguments).map_err(|error| error.to_string())?), hold);
    }
    if let Some(hold) = text.deny.take() {
        decide(ScriptedDecision::Deny { reason: text.reason.take() }, hold);
    }
    if let Some(hold) = text.answer.take() {
        decide(ScriptedDecision::Answer(body(text.value.take().ok_or("`answer` needs a `value`")?)), hold);
    }
    if let Some(hold) = text.result.take() {
        decide(ScriptedDecision::Result(body(text.value.take().ok_or("`result` needs a `value`")?)), hold);
    }
    if let Some(hold) = text.fail.take() {
        decide(ScriptedDecision::Fail(text.error.take().ok_or("`fail` needs an `error`")?), hold);
    }
    found.extend(text.wait.take().map(|Span(span)| Verb::Wait(span)));
    found.extend(text.restart.take().map(|down| Verb::Restart { down: down.map(|span| span.0) }));
    found.extend(text.expect.take().map(Verb::Expect));
    match (found.pop(), found.pop()) {
        (Some(verb), None) => Ok(verb),
        (Some(one), Some(other)) => {
            Err(format!("a step does one thing, not both `{}` and `{}`", other.word(), one.word()))
        }
        (None, _) => {
            Err("a step needs one of `send`, `say`, `cancel`, `approve`, `edit`, `deny`, `answer`, \
                          `result`, `fail`, `wait`, `restart` and `expect`"
                .into())
        }
    }
}

forms! {
    Selector, "the tool of a hold, or a mapping with `tool`, `kind` or `call`",
    fn visit_str<E: Error>(self, tool: &str) -> Result<Selector, E> {
        Ok(Selector { tool: Some(ToolName::new(tool).map_err(E::custom)?), ..Selector::default() })
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Selector, A::Error> {
        let SelectorText { tool, kind, call } = SelectorText::deserialize(MapAccessDeserializer::new(map))?;
        let tool = tool.map(ToolName::new).transpose().map_err(A::Error::custom)?;
        Ok(Selector { tool, kind, call })
    }
}

forms! {
    RefusedText, "the kind of a refusal, or a mapping with `kind` and `text`",
    fn visit_str<E: Error>(self, kind: &str) -> Result<RefusedText, E> {
        Ok(RefusedText { kind: kind.to_owned(), text: None })
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RefusedText, A::Error> {
        let RefusedFields { kind, text } = RefusedFields::deserialize(MapAccessDeserializer::new(map))?;
        Ok(RefusedText { kind, text })
    }
}

forms! {
    StartText, "the name of a tool, or a mapping with `tool` and `arguments`",
    fn visit_str<E: Error>(self, tool: &str) -> Result<StartText, E> {
        Ok(StartText { tool: tool.to_owned(), arguments: None, attempt: None })
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StartText, A::Error> {
        let fields = StartFields::deserialize(MapAccessDeserializer::new(map))?;
        Ok(StartText { tool: fields.tool, arguments: fields.arguments, attempt: fields.attempt })
    }
}
