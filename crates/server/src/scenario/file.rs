//! A scenario as people write it: the agent, what its model says, what its tools do, and the steps.
//!
//! A file becomes a [`Scenario`] once, with every mistake named by its line; nothing after it reads YAML. Where the agent
//! comes from is one key, so that agents of a configuration can take that place later.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::hold::{AfterGrace, Ask, HoldPolicy, OnDeny, OnTimeout};
use standfast_core::json::RawJson;
use standfast_core::name::{ToolName, UserId};
use standfast_core::time::Millis;
use standfast_engine::tool::Suspension;
use standfast_models::script_file::{self, Json, Replies, ScriptError, Span};
use standfast_models::scripted::Script;

use super::ScenarioError;
use super::step_file::{Step, StepText};
use super::tools::{Behaviour, ComesTo};

/// A scenario.
pub(super) struct Scenario {
    pub(super) name: Option<String>,
    pub(super) agent: AgentText,
    /// What the model says; none leaves the agent's own model.
    pub(super) script: Option<Script>,
    /// What each start of each tool does.
    pub(super) results: BTreeMap<ToolName, Vec<Behaviour>>,
    pub(super) admins: Vec<UserId>,
    pub(super) steps: Vec<Step>,
}

/// Reads a scenario; files that it names are beside it.
pub(super) fn parse(text: &str, folder: &Path) -> Result<Scenario, ScenarioError> {
    // Only `true` and `false` are truth values; `no` and `off` are words.
    let options = serde_saphyr::options! { strict_booleans: true };
    let file: FileText = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map_or(1, |location| location.line());
        let message = error.to_string();
        // The reader says where at the end of its message; here it stands in front.
        let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
        ScenarioError::at(line.max(1), what)
    })?;
    let script = file.script.map(|script| script.read(folder)).transpose()?;
    if script.is_none() && matches!(file.agent, AgentText::Inline(_)) {
        return Err(ScenarioError::at(1, "an agent that is described here needs a `script` for its model"));
    }
    let mut results = BTreeMap::new();
    for (tool, DoesText(starts)) in file.results {
        let name = ToolName::new(&tool).map_err(|bad| ScenarioError::at(1, bad.to_string()))?;
        results.insert(name, starts);
    }
    let admin = |name: &String| UserId::new(name).map_err(|bad| ScenarioError::at(1, bad.to_string()));
    let steps: Result<Vec<Step>, ScenarioError> = file.steps.into_iter().map(Step::read).collect();
    let steps = steps?;
    if steps.is_empty() {
        return Err(ScenarioError::at(1, "`steps` must have at least one step"));
    }
    Ok(Scenario {
        name: file.name,
        agent: file.agent,
        script,
        results,
        admins: file.admins.iter().map(admin).collect::<Result<_, _>>()?,
        steps,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: Option<String>,
    agent: AgentText,
    script: Option<ScriptText>,
    #[serde(default)]
    results: BTreeMap<String, DoesText>,
    #[serde(default)]
    admins: Vec<String>,
    steps: Vec<Spanned<StepText>>,
}

/// The agent under test.
pub(super) enum AgentText {
    /// One that is known by its name.
    Named(String),
    /// One that is described here.
    Inline(Box<InlineText>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InlineText {
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) prompt: String,
    #[serde(default)]
    pub(super) tools: BTreeMap<String, ToolText>,
    pub(super) approvers: Option<Vec<String>>,
    #[serde(default)]
    pub(super) self_approval: SelfApprovalText,
    #[serde(default)]
    pub(super) hold_batch: bool,
    pub(super) holds: Option<HoldsText>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SelfApprovalText {
    #[default]
    Allow,
    Forbid,
}

/// A tool as the agent has it.
pub(super) enum ToolText {
    /// One that comes with the server.
    BuiltIn,
    /// One that is described here.
    Inline(Box<InlineToolText>),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InlineToolText {
    #[serde(default)]
    pub(super) description: String,
    pub(super) schema: Option<Json>,
    #[serde(default)]
    pub(super) requires_approval: bool,
    #[serde(default)]
    pub(super) idempotent: bool,
    #[serde(default)]
    pub(super) reversible: bool,
    pub(super) approval_prompt: Option<String>,
    pub(super) holds: Option<HoldsText>,
}

/// What deny and silence do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldsText {
    input_timeout: Option<Span>,
    #[serde(default)]
    on_timeout: OnTimeout,
    #[serde(default)]
    on_deny: OnDeny,
    expiry_grace: Option<Span>,
    #[serde(default)]
    after_grace: AfterGrace,
    remind_after: Option<Span>,
}

impl HoldsText {
    pub(super) fn policy(&self) -> HoldPolicy {
        let span = |span: &Option<Span>| span.as_ref().map(|span| span.0);
        HoldPolicy {
            on_deny: self.on_deny,
            on_timeout: self.on_timeout,
            timeout: span(&self.input_timeout),
            grace: span(&self.expiry_grace),
            after_grace: self.after_grace,
            remind_after: span(&self.remind_after),
            ..HoldPolicy::default()
        }
    }
}

/// What the model says.
enum ScriptText {
    File(String),
    Replies(Replies),
}

impl ScriptText {
    fn read(self, folder: &Path) -> Result<Script, ScenarioError> {
        match self {
            ScriptText::Replies(replies) => {
                replies.script().map_err(|ScriptError { line, message }| ScenarioError::at(line, message))
            }
            ScriptText::File(name) => {
                let wrong = |why: String| ScenarioError::here(format!("the script {name}: {why}"));
                let text =
                    std::fs::read_to_string(folder.join(&name)).map_err(|error| wrong(error.to_string()))?;
                script_file::parse(&text).map_err(|error| wrong(error.to_string()))
            }
        }
    }
}

/// What the starts of a tool do: one for all, or one for each.
struct DoesText(Vec<Behaviour>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BehaviourText {
    returns: Option<Json>,
    fails: Option<String>,
    pending: Option<PendingText>,
    unknown: Option<String>,
    #[serde(default)]
    crashes: bool,
    takes: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PendingText {
    #[serde(rename = "for")]
    kind: PendingWord,
    reason: Option<String>,
    question: Option<String>,
    #[serde(default)]
    options: Vec<String>,
    timeout: Option<Span>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PendingWord {
    External,
    Input,
    Auth,
}

impl<'de> Deserialize<'de> for Behaviour {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Behaviour, D::Error> {
        behaviour(BehaviourText::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

fn behaviour(text: BehaviourText) -> Result<Behaviour, &'static str> {
    let BehaviourText { returns, fails, pending, unknown, crashes, takes } = text;
    let mut found = Vec::new();
    found.extend(returns.map(|json| ComesTo::Returns(body(json))));
    found.extend(fails.map(ComesTo::Fails));
    found.extend(pending.map(|pending| ComesTo::Pending(Box::new(pending.pending()))));
    found.extend(unknown.map(ComesTo::Unknown));
    found.extend(crashes.then_some(ComesTo::Crash));
    let takes = takes.map_or(Millis(0), |span| span.0);
    match (found.pop(), found.is_empty()) {
        (None, _) => Ok(Behaviour { takes, ..Behaviour::default() }),
        (Some(comes_to), true) => Ok(Behaviour { takes, comes_to }),
        (Some(_), false) => Err("a start has one of `returns`, `fails`, `pending`, `unknown` and `crashes`"),
    }
}

impl PendingText {
    fn pending(self) -> Suspension {
        let kind = match self.kind {
            PendingWord::External => SuspendFor::External,
            PendingWord::Input => SuspendFor::Input,
            PendingWord::Auth => SuspendFor::Auth,
        };
        let ask = Ask {
            reason: self.reason,
            question: self.question.map(Body::text),
            options: self.options,
            ..Ask::default()
        };
        Suspension { kind, ask, timeout: self.timeout.map(|span| span.0), secret: None }
    }
}

/// A string is a text, anything else is JSON.
pub(super) fn body(Json(text): Json) -> Body {
    match (serde_json::from_str::<String>(&text), RawJson::parse(&text)) {
        (Ok(words), _) => Body::text(words),
        (Err(_), Ok(json)) => Body::Json(json),
        (Err(_), Err(_)) => Body::text(text),
    }
}

/// Reads one of several forms of a value; each form has a method of the visitor.
macro_rules! forms {
    ($type:ty, $expecting:literal, $($method:item)+) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct V;
                impl<'de> Visitor<'de> for V {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    $($method)+
                }
                deserializer.deserialize_any(V)
            }
        }
    };
}
pub(super) use forms;

forms! {
    AgentText, "the name of an agent, or a mapping that describes one",
    fn visit_str<E: Error>(self, name: &str) -> Result<AgentText, E> {
        Ok(AgentText::Named(name.to_owned()))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AgentText, A::Error> {
        InlineText::deserialize(MapAccessDeserializer::new(map)).map(|text| AgentText::Inline(Box::new(text)))
    }
}

forms! {
    ToolText, "`built-in`, or a mapping that describes a tool",
    fn visit_str<E: Error>(self, name: &str) -> Result<ToolText, E> {
        match name {
            "built-in" => Ok(ToolText::BuiltIn),
            other => Err(E::custom(format!("{other:?} is not a tool; write `built-in`, or describe it"))),
        }
    }
    fn visit_unit<E: Error>(self) -> Result<ToolText, E> {
        Ok(ToolText::Inline(Box::default()))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ToolText, A::Error> {
        let text = InlineToolText::deserialize(MapAccessDeserializer::new(map))?;
        Ok(ToolText::Inline(Box::new(text)))
    }
}

forms! {
    ScriptText, "a list of replies, or the name of a script file",
    fn visit_str<E: Error>(self, name: &str) -> Result<ScriptText, E> {
        Ok(ScriptText::File(name.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ScriptText, A::Error> {
        Replies::deserialize(SeqAccessDeserializer::new(seq)).map(ScriptText::Replies)
    }
}

forms! {
    DoesText, "what the tool does, or a list with one entry for each start",
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DoesText, A::Error> {
        Behaviour::deserialize(MapAccessDeserializer::new(map)).map(|one| DoesText(vec![one]))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<DoesText, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(DoesText)
    }
}
