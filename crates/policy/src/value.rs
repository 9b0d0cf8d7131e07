//! The arguments of a call as a tree in which numbers are exact, and the paths that rules name places in it by.
//!
//! Reads the same JSON that the core takes; what the core would refuse is unreadable here too. Knows nothing of rules.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::json::RawJson;

use crate::decimal::Decimal;

/// A JSON value with exact numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number; none where it is too long to compare.
    Number(Option<Decimal>),
    /// A text.
    Text(String),
    /// An array.
    List(Vec<Value>),
    /// An object.
    Map(BTreeMap<String, Value>),
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments {
    /// As they were read.
    Read(Value),
    /// Text that is not JSON, or that two readers would understand differently.
    Unreadable(String),
}

impl Arguments {
    /// Reads the text of a call's arguments; text without anything in it is an empty object, as models send it.
    #[must_use]
    pub fn parse(text: &str) -> Arguments {
        let text = if text.trim().is_empty() { "{}" } else { text };
        match RawJson::parse(text) {
            Ok(json) => Value::parse(json.text())
                .map_or_else(|| Arguments::Unreadable(text.to_owned()), Arguments::Read),
            Err(bad) => Arguments::Unreadable(bad.to_string()),
        }
    }

    /// The value, if it could be read.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        match self {
            Arguments::Read(value) => Some(value),
            Arguments::Unreadable(_) => None,
        }
    }
}

impl Value {
    /// Reads JSON that the core took.
    fn parse(text: &str) -> Option<Value> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        Some(match text.as_bytes().first()? {
            b'{' => {
                let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
                let read = |(name, value): (String, &RawValue)| Some((name, Value::parse(value.get())?));
                Value::Map(members.into_iter().map(read).collect::<Option<_>>()?)
            }
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                Value::List(items.into_iter().map(|item| Value::parse(item.get())).collect::<Option<_>>()?)
            }
            b'"' => Value::Text(serde_json::from_str(text).ok()?),
            b't' => Value::Bool(true),
            b'f' => Value::Bool(false),
            b'n' => Value::Null,
            _ => Value::Number(Decimal::parse(text)),
        })
    }

    /// What kind of value it is, for people.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(Some(_)) => "a number",
            Value::Number(None) => "a number that is too long",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "an object",
        }
    }

    fn below(&self, step: &str) -> Option<&Value> {
        match self {
            Value::Map(members) => members.get(step),
            Value::List(items) => items.get(index(step)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => None,
        }
    }

    fn children(&self) -> Vec<&Value> {
        match self {
            Value::Map(members) => members.values().collect(),
            Value::List(items) => items.iter().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => Vec::new(),
        }
    }

    /// Every value that has nothing below it, with its path: empty lists and objects too.
    #[must_use]
    pub fn leaves(&self) -> Vec<(ArgumentPath, &Value)> {
        let mut found = Vec::new();
        self.collect_leaves(&mut Vec::new(), &mut found);
        found
    }

    fn collect_leaves<'a>(&'a self, at: &mut Vec<Step>, found: &mut Vec<(ArgumentPath, &'a Value)>) {
        let below: Vec<(String, &Value)> = match self {
            Value::Map(members) => members.iter().map(|(name, value)| (name.clone(), value)).collect(),
            Value::List(items) => items.iter().enumerate().map(|(no, item)| (no.to_string(), item)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => Vec::new(),
        };
        if below.is_empty() {
            found.push((ArgumentPath(at.clone()), self));
        }
        for (step, value) in below {
            at.push(Step::Named(step));
            value.collect_leaves(at, found);
            at.pop();
        }
    }
}

/// An index as JSON Pointer writes it: no zero in front.
fn index(step: &str) -> Option<usize> {
    let is_index = step == "0" || (!step.starts_with('0') && step.bytes().all(|byte| byte.is_ascii_digit()));
    if is_index { step.parse().ok() } else { None }
}

/// As JSON, with numbers in plain digits.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(truth) => write!(f, "{truth}"),
            Value::Number(Some(number)) => write!(f, "{number}"),
            Value::Number(None) => f.write_str("(a number that is too long)"),
            Value::Text(text) => f.write_str(&quoted(text)),
            Value::List(items) => {
                f.write_str("[")?;
                for (no, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if no == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Value::Map(members) => {
                f.write_str("{")?;
                for (no, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}{}:{value}", if no == 0 { "" } else { "," }, quoted(name))?;
                }
                f.write_str("}")
            }
        }
    }
}

pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Where in the arguments: a member's name, or a JSON Pointer (`/customer/id`) in which `*` is every item or member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArgumentPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    Named(String),
    Every,
}

impl ArgumentPath {
    /// Reads `amount`, `/customer/id` or `/items/*/price`.
    pub fn parse(text: &str) -> Result<ArgumentPath, String> {
        let Some(pointer) = text.strip_prefix('/') else {
            return if text.is_empty() {
                Err("an argument path is a member's name, or a JSON Pointer such as /customer/id".into())
            } else {
                Ok(ArgumentPath(vec![Step::Named(text.to_owned())]))
            };
        };
        let step = |step: &str| {
            if step == "*" {
                return Ok(Step::Every);
            }
            let escapes = step.matches('~').count();
            if escapes != step.matches("~0").count() + step.matches("~1").count() {
                return Err(format!("{text:?} is not a JSON Pointer: write ~0 for ~ and ~1 for /"));
            }
            Ok(Step::Named(step.replace("~1", "/").replace("~0", "~")))
        };
        Ok(ArgumentPath(pointer.split('/').map(step).collect::<Result<_, _>>()?))
    }

    /// Whether it may lead to more than one value.
    #[must_use]
    pub fn is_plural(&self) -> bool {
        self.0.contains(&Step::Every)
    }

    /// The values it leads to; none stands for a place where there is nothing. Never empty.
    #[must_use]
    pub fn find<'a>(&self, root: &'a Value) -> Vec<Option<&'a Value>> {
        let mut at = vec![Some(root)];
        for step in &self.0 {
            at = match step {
                Step::Named(name) => at.into_iter().map(|value| value?.below(name)).collect(),
                Step::Every => at
                    .into_iter()
                    .flat_map(|value| {
                        let below = value.map(Value::children).unwrap_or_default();
                        if below.is_empty() { vec![None] } else { below.into_iter().map(Some).collect() }
                    })
                    .collect(),
            };
        }
        at
    }

    /// The one value it leads to; none where it leads to many.
    #[must_use]
    pub fn find_one<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(root, |at, step| match step {
            Step::Named(name) => at.below(name),
            Step::Every => None,
        })
    }

    /// Puts a value there; false where the way leads through something that is not an object.
    pub(crate) fn put(&self, root: &mut Value, value: Value) -> bool {
        let mut at = root;
        for step in &self.0 {
            let Value::Map(members) = at else { return false };
            let name = match step {
                Step::Named(name) => name.clone(),
                Step::Every => "0".to_owned(),
            };
            at = members.entry(name).or_insert_with(|| Value::Map(BTreeMap::new()));
        }
        *at = value;
        true
    }
}

impl fmt::Display for ArgumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [Step::Named(name)] if !name.starts_with('/') && !name.is_empty() => f.write_str(name),
            steps => steps.iter().try_for_each(|step| match step {
                Step::Named(name) => write!(f, "/{}", name.replace('~', "~0").replace('/', "~1")),
                Step::Every => f.write_str("/*"),
            }),
        }
    }
}

impl TryFrom<String> for ArgumentPath {
    type Error = String;

    fn try_from(text: String) -> Result<ArgumentPath, String> {
        ArgumentPath::parse(&text)
    }
}

impl From<ArgumentPath> for String {
    fn from(path: ArgumentPath) -> String {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Value {
        Arguments::parse(text).value().unwrap().clone()
    }

    #[test]
    fn numbers_keep_every_digit() {
        let value = read(r#"{"a":9007199254740993,"b":[1.10,{"c":"x"}]}"#);
        assert_eq!(value.to_string(), r#"{"a":9007199254740993,"b":[1.1,{"c":"x"}]}"#);
        let at = |path: &str| {
            let found = ArgumentPath::parse(path).unwrap().find(&value);
            found.into_iter().map(|one| one.map(ToString::to_string)).collect::<Vec<_>>()
        };
        assert_eq!(at("a"), [Some("9007199254740993".to_owned())]);
        assert_eq!(at("/b/1/c"), [Some("\"x\"".to_owned())]);
        assert_eq!(at("/b/*"), [Some("1.1".to_owned()), Some("{\"c\":\"x\"}".to_owned())]);
        assert_eq!(at("/b/*/c"), [None, Some("\"x\"".to_owned())]);
        assert_eq!(at("/b/01"), [None]);
        assert_eq!(at("missing"), [None]);
        assert_eq!(at("/a/*"), [None]);
    }

    #[test]
    fn a_path_is_written_as_it_is_read() {
        for text in ["amount", "/a/b", "/items/*/price", "/a~1b/~0", "a.b", "/"] {
            assert_eq!(ArgumentPath::parse(text).unwrap().to_string(), text);
        }
        assert!(ArgumentPath::parse("").is_err());
        assert!(ArgumentPath::parse("/a~2").is_err());
    }

    #[test]
    fn what_two_readers_could_read_differently_is_unreadable() {
        for text in [r#"{"a":1,"a":2}"#, "{", "[1,]", r#""\ud800""#] {
            assert!(matches!(Arguments::parse(text), Arguments::Unreadable(_)), "{text}");
        }
        assert_eq!(Arguments::parse(" "), Arguments::Read(Value::Map(BTreeMap::new())));
    }
}
