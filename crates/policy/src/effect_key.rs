//! Effect keys: a template over the arguments that names what a call does in the world, such as `refund:{payment_id}`.
//!
//! Two calls with one key do one thing. That there is at most one start for a key is the business of the append that starts
//! a call; here is only the text. What cannot be filled in is an error, and an error holds.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::template::{Part, parts};
use crate::value::{ArgumentPath, Value};

/// Bytes that a key may have.
const MAX_BYTES: usize = 512;

/// A template of effect keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyTemplate {
    text: String,
    parts: Vec<Part>,
}

/// What names an effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectKey(String);

impl EffectKey {
    /// As it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a call has no key; it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKey {
    /// The argument.
    pub path: ArgumentPath,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the effect key cannot be made: argument {} {}", self.path, self.why)
    }
}

impl KeyTemplate {
    /// Reads a template; `{{` and `}}` are braces.
    pub fn parse(text: &str) -> Result<KeyTemplate, String> {
        let parts = parts(text, "an effect key")?;
        if !parts.iter().any(|part| matches!(part, Part::Argument(_))) {
            return Err(format!(
                "{text:?} names no argument, so that every call would have the same key; write {{ARGUMENT}}"
            ));
        }
        Ok(KeyTemplate { text: text.to_owned(), parts })
    }

    /// The key of a call with these arguments.
    pub fn fill(&self, arguments: &Value) -> Result<EffectKey, NoKey> {
        let mut key = String::new();
        let mut last = None;
        for part in &self.parts {
            match part {
                Part::Text(text) => key.push_str(text),
                Part::Argument(path) => {
                    let no_key = |why: &str| NoKey { path: path.clone(), why: why.to_owned() };
                    let filled = match path.find_one(arguments) {
                        None => return Err(no_key("is missing")),
                        Some(Value::Text(text)) if text.is_empty() => return Err(no_key("is empty")),
                        Some(Value::Text(text)) => escaped(text),
                        Some(Value::Number(Some(number))) => number.to_string(),
                        Some(other) => {
                            return Err(no_key(&format!("is {}, not text or a number", other.kind())));
                        }
                    };
                    key.push_str(&filled);
                    last = Some(path);
                }
            }
        }
        match last {
            Some(path) if key.len() > MAX_BYTES => {
                Err(NoKey { path: path.clone(), why: format!("makes the key longer than {MAX_BYTES} bytes") })
            }
            Some(_) | None => Ok(EffectKey(key)),
        }
    }
}

/// What a value may not say by itself is escaped, so that two different lists of values never make one key.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

impl TryFrom<String> for KeyTemplate {
    type Error = String;

    fn try_from(text: String) -> Result<KeyTemplate, String> {
        KeyTemplate::parse(&text)
    }
}

impl From<KeyTemplate> for String {
    fn from(template: KeyTemplate) -> String {
        template.text
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Arguments;
    use proptest::prelude::*;

    fn fill(template: &str, arguments: &str) -> Result<String, String> {
        let arguments = Arguments::parse(arguments);
        let key = KeyTemplate::parse(template).unwrap().fill(arguments.value().unwrap());
        key.map(|key| key.to_string()).map_err(|no| no.to_string())
    }

    #[test]
    fn a_key_is_made_of_arguments() {
        assert_eq!(fill("refund:{payment_id}", r#"{"payment_id":"pay_1"}"#).unwrap(), "refund:pay_1");
        assert_eq!(fill("{/a/b}-{n}{{}}", r#"{"a":{"b":"x:y"},"n":1.50}"#).unwrap(), "x%3Ay-1.5{}");
        assert_eq!(fill("k:{n}", r#"{"n":1e2}"#), fill("k:{n}", r#"{"n":100.0}"#));
    }

    #[test]
    fn what_cannot_be_filled_in_is_an_error() {
        assert!(fill("k:{id}", "{}").unwrap_err().contains("argument id is missing"));
        assert!(fill("k:{id}", r#"{"id":null}"#).unwrap_err().contains("is null"));
        assert!(fill("k:{id}", r#"{"id":""}"#).unwrap_err().contains("is empty"));
        assert!(fill("k:{id}", r#"{"id":["a"]}"#).unwrap_err().contains("is a list"));
        assert!(
            fill("k:{id}", &format!("{{\"id\":\"{}\"}}", "x".repeat(600)))
                .unwrap_err()
                .contains("longer than")
        );
        for template in ["", "fixed", "k:{", "k:}", "k:{}", "k:{/a/*}"] {
            assert!(KeyTemplate::parse(template).is_err(), "{template}");
        }
    }

    proptest! {
        /// No two lists of values share a key, as long as a sign stands between them that values cannot say.
        #[test]
        fn different_values_have_different_keys(a in ".{1,8}", b in ".{1,8}", c in ".{1,8}", d in ".{1,8}") {
            let of = |x: &str, y: &str| fill("k:{x}:{y}", &serde_json::json!({"x": x, "y": y}).to_string()).unwrap();
            prop_assert_eq!(of(&a, &b) == of(&c, &d), (&a, &b) == (&c, &d));
        }
    }
}
