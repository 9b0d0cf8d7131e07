//! Reconciling: which read-only call says whether the effect of a call happened, and how its answer is read.
//!
//! Pure: arguments by template out of the call's own, and conditions over the answer, with the three outcomes of all
//! conditions. What cannot be told is *cannot tell*, so that a person is asked. Who makes the call, and when, is the
//! engine's business.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use standfast_core::json::RawJson;
use standfast_core::reconcile::EffectAnswer;
use standfast_core::time::Millis;

use crate::matcher::Matcher;
use crate::matching::all_say;
use crate::span::Span;
use crate::template::{Part, parts};
use crate::truth::Truth;
use crate::value::{ArgumentPath, Arguments, Value, quoted};

/// How long the answer may take, unless something else is said.
pub const PATIENCE: Span = Span(Millis::seconds(30));

/// The longest that it may take.
pub const LONGEST: Span = Span(Millis::seconds(300));

/// What an answer that is neither an object nor a list is read as a member of.
pub const TEXT: &str = "text";

/// Conditions over an answer, by path; all of them must hold.
pub type Conditions = BTreeMap<ArgumentPath, Matcher>;

/// The call that says whether the effect of another one happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconcile {
    /// The tool; it must be one that changes nothing.
    pub tool: String,
    /// Its arguments, made of those of the call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, ArgumentTemplate>,
    /// What the answer is if the effect happened.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub happened: Conditions,
    /// What it is if it did not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub did_not_happen: Conditions,
    /// How long the answer may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

impl Reconcile {
    /// What is wrong with it, and with which key.
    #[must_use]
    pub fn misfit(&self) -> Option<(&'static str, String)> {
        if self.happened.is_empty() && self.did_not_happen.is_empty() {
            let why = "nothing says how the answer is read; write `happened`, `did_not_happen` or both";
            return Some(("happened", why.to_owned()));
        }
        let wrong =
            |(path, matcher): (&ArgumentPath, &Matcher)| matcher.misfit().map(|why| format!("{path}: {why}"));
        let of = |key: &'static str, conditions: &Conditions| {
            conditions.iter().find_map(wrong).map(|why| (key, why))
        };
        let long = self.timeout.filter(|span| *span > LONGEST || span.0.0 <= 0);
        let long = long.map(|_| ("timeout", format!("it must be above zero and at most {LONGEST}")));
        of("happened", &self.happened).or_else(|| of("did_not_happen", &self.did_not_happen)).or(long)
    }

    /// How long the answer may take.
    #[must_use]
    pub fn patience(&self) -> Millis {
        self.timeout.unwrap_or(PATIENCE).min(LONGEST).0
    }

    /// The arguments of the call, as JSON; or why there are none.
    pub fn arguments(&self, of_call: &Arguments) -> Result<String, String> {
        let Some(of_call) = of_call.value() else { return Err("the call's arguments cannot be read".into()) };
        let mut members = Vec::new();
        for (name, template) in &self.arguments {
            members.push(format!("{}:{}", quoted(name), template.fill(of_call)?));
        }
        Ok(format!("{{{}}}", members.join(",")))
    }

    /// What an answer means. One that says both, or neither, does not tell.
    #[must_use]
    pub fn read(&self, answer: &str) -> EffectAnswer {
        let read = match RawJson::parse(answer).map(|json| Arguments::parse(json.text())) {
            Ok(Arguments::Read(value @ (Value::Map(_) | Value::List(_)))) => value,
            // What two readers could read differently is not read at all.
            Ok(Arguments::Unreadable(_)) => return EffectAnswer::CannotTell,
            Ok(Arguments::Read(Value::Text(text))) => text_alone(text),
            Ok(Arguments::Read(Value::Null | Value::Bool(_) | Value::Number(_))) | Err(_) => {
                text_alone(answer.to_owned())
            }
        };
        let holds = |conditions: &Conditions| {
            let all = conditions.iter().map(|(path, matcher)| all_say(path, matcher, &read));
            !conditions.is_empty() && all.fold(Truth::Yes, Truth::and) == Truth::Yes
        };
        match (holds(&self.happened), holds(&self.did_not_happen)) {
            (true, false) => EffectAnswer::Happened,
            (false, true) => EffectAnswer::DidNotHappen,
            (true, true) | (false, false) => EffectAnswer::CannotTell,
        }
    }
}

fn text_alone(text: String) -> Value {
    Value::Map(BTreeMap::from([(TEXT.to_owned(), Value::Text(text))]))
}

/// One argument: a value as it is, or a text in which `{path}` stands for an argument of the call. A text that is nothing but
/// one `{path}` takes that argument whole, with its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ArgumentTemplate {
    written: Json,
    #[serde(skip)]
    parts: Vec<Part>,
}

impl ArgumentTemplate {
    /// Reads one; `{{` and `}}` are braces.
    pub fn read(written: Json) -> Result<ArgumentTemplate, String> {
        let parts = match &written {
            // An empty text is one too.
            Json::String(text) if text.is_empty() => vec![Part::Text(String::new())],
            Json::String(text) => parts(text, "an argument")?,
            Json::Null | Json::Bool(_) | Json::Number(_) => Vec::new(),
            Json::Array(_) | Json::Object(_) => {
                return Err("an argument is a text, a number, or true or false; `{PATH}` takes a list or object of the call".into());
            }
        };
        Ok(ArgumentTemplate { written, parts })
    }

    /// The argument as JSON.
    fn fill(&self, of_call: &Value) -> Result<String, String> {
        let missing = |path: &ArgumentPath| format!("the call has no argument {path}");
        match self.parts.as_slice() {
            [] => Ok(self.written.to_string()),
            [Part::Argument(path)] => {
                path.find_one(of_call).map(ToString::to_string).ok_or_else(|| missing(path))
            }
            several => {
                let mut text = String::new();
                for part in several {
                    match part {
                        Part::Text(plain) => text.push_str(plain),
                        Part::Argument(path) => {
                            let value = path.find_one(of_call).ok_or_else(|| missing(path))?;
                            text.push_str(&within_text(path, value)?);
                        }
                    }
                }
                Ok(quoted(&text))
            }
        }
    }
}

/// A value between other text. Models write the arguments of calls: one that could lead elsewhere than the template reads, such
/// as a way out of a folder, is not put there.
fn within_text(path: &ArgumentPath, value: &Value) -> Result<String, String> {
    let is_plain = |text: &str| {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        !text.is_empty() && text.bytes().all(may) && !text.starts_with('.') && !text.contains("..")
    };
    match value {
        Value::Text(text) if is_plain(text) => Ok(text.clone()),
        Value::Text(_) => {
            Err(format!("argument {path} has characters that may not stand between other text"))
        }
        Value::Number(Some(number)) => Ok(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(None) | Value::List(_) | Value::Map(_) => {
            Err(format!("argument {path} is {}, not text or a number", value.kind()))
        }
    }
}

impl<'de> Deserialize<'de> for ArgumentTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ArgumentTemplate, D::Error> {
        ArgumentTemplate::read(Json::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl fmt::Display for ArgumentTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Reconcile {
        serde_json::from_str(text).unwrap()
    }

    fn refunds() -> Reconcile {
        read(
            r#"{"tool": "find_refund",
                "arguments": {"payment": "{payment_id}", "key": "refund-{payment_id}-{/of/n}", "deep": true, "empty": ""},
                "happened": {"/refund/state": ["paid", "sent"]},
                "did_not_happen": {"/refund": {"present": false}, "known": true}}"#,
        )
    }

    #[test]
    fn arguments_are_made_of_those_of_the_call() {
        let made = |arguments: &str| refunds().arguments(&Arguments::parse(arguments));
        assert_eq!(
            made(r#"{"payment_id":"p_1","of":{"n":1.50}}"#).unwrap(),
            r#"{"deep":true,"empty":"","key":"refund-p_1-1.5","payment":"p_1"}"#
        );
        assert!(made("{}").unwrap_err().contains("no argument payment_id"));
        assert!(made(r#"{"payment_id":["p"],"of":{"n":1}}"#).unwrap_err().contains("is a list"));
        assert!(made("not json").unwrap_err().contains("cannot be read"));
        for way_out in ["../../etc/passwd", "a/b", "..", ".env", "", "p 1", "p%2f", "ü"] {
            let call = serde_json::json!({"payment_id": way_out, "of": {"n": 1}}).to_string();
            assert!(made(&call).unwrap_err().contains("between other text"), "{way_out}");
        }
    }

    #[test]
    fn whole_arguments_keep_their_type() {
        let copy = read(r#"{"tool": "t", "arguments": {"a": "{/x/y}"}, "happened": {"b": 1}}"#);
        let made = copy.arguments(&Arguments::parse(r#"{"x":{"y":[1,{"z":"../"}]}}"#)).unwrap();
        assert_eq!(made, r#"{"a":[1,{"z":"../"}]}"#);
    }

    #[test]
    fn an_answer_happened_did_not_or_does_not_tell() {
        for (answer, says) in [
            (r#"{"refund":{"state":"paid"}}"#, EffectAnswer::Happened),
            (r#"{"refund":{"state":"sent"},"known":true}"#, EffectAnswer::Happened),
            (r#"{"known":true}"#, EffectAnswer::DidNotHappen),
            (r#"{"refund":{"state":"queued"},"known":true}"#, EffectAnswer::CannotTell),
            (r#"{"refund":{"state":5}}"#, EffectAnswer::CannotTell),
            (r#"{"known":false}"#, EffectAnswer::CannotTell),
            ("{}", EffectAnswer::CannotTell),
            ("paid", EffectAnswer::CannotTell),
            ("", EffectAnswer::CannotTell),
            (r#"{"known":true,"known":true}"#, EffectAnswer::CannotTell),
        ] {
            assert_eq!(refunds().read(answer), says, "{answer}");
        }
        let both = read(r#"{"tool": "t", "happened": {"a": 1}, "did_not_happen": {"b": 1}}"#);
        assert_eq!(both.read(r#"{"a":1,"b":1}"#), EffectAnswer::CannotTell);
        let texts = read(
            r#"{"tool": "t", "happened": {"text": {"glob": "refund ** paid"}}, "did_not_happen": {"text": "none"}}"#,
        );
        assert_eq!(texts.read("refund 7 paid"), EffectAnswer::Happened);
        assert_eq!(texts.read("none"), EffectAnswer::DidNotHappen);
        assert_eq!(texts.read("\"none\""), EffectAnswer::DidNotHappen);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert_eq!(read(r#"{"tool": "t"}"#).misfit().unwrap().0, "happened");
        assert_eq!(read(r#"{"tool": "t", "happened": {"a": {}}}"#).misfit().unwrap().0, "happened");
        assert_eq!(
            read(r#"{"tool": "t", "did_not_happen": {"a": []}}"#).misfit().unwrap().0,
            "did_not_happen"
        );
        for timeout in ["0s", "6m"] {
            let long = format!(r#"{{"tool": "t", "happened": {{"a": 1}}, "timeout": "{timeout}"}}"#);
            assert_eq!(read(&long).misfit().unwrap().0, "timeout");
        }
        assert_eq!(refunds().misfit(), None);
        for template in ["\"{\"", "\"}\"", "\"{}\"", "\"{/a/*}\"", "[]", "{}"] {
            let text =
                format!(r#"{{"tool": "t", "arguments": {{"a": {template}}}, "happened": {{"b": 1}}}}"#);
            assert!(serde_json::from_str::<Reconcile>(&text).is_err(), "{template}");
        }
    }

    proptest! {
        /// Whatever a model writes, no text leads out of the place that a template names.
        #[test]
        fn texts_stay_where_they_are_put(value in ".{0,12}") {
            let file = read(r#"{"tool": "t", "arguments": {"path": "receipts/{id}.json"}, "happened": {"b": 1}}"#);
            let call = serde_json::json!({"id": value}).to_string();
            if let Ok(made) = file.arguments(&Arguments::parse(&call)) {
                let made: Json = serde_json::from_str(&made).unwrap();
                let path = made["path"].as_str().unwrap();
                let parts: Vec<&str> = path.split('/').collect();
                prop_assert_eq!(parts.len(), 2, "{}", path);
                prop_assert_eq!(parts[0], "receipts");
                prop_assert!(parts[1].ends_with(".json") && parts[1] != ".." && !path.contains('\\'), "{}", path);
            }
        }
    }
}
