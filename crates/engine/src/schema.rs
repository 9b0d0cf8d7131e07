//! Whether a JSON value keeps to a JSON Schema, and where it does not.
//!
//! The value is parsed for the check alone: what is stored and run stays the text that came in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use standfast_core::json::RawJson;

/// Where and how a value breaks its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaMismatch {
    /// JSON pointer to the place; empty for the value itself.
    pub pointer: String,
    /// What is wrong there.
    pub why: String,
}

/// Whether a schema can be used at all; if not, why.
pub fn is_usable(schema: &RawJson) -> Result<(), String> {
    let parsed: serde_json::Value = serde_json::from_str(schema.text()).map_err(|error| error.to_string())?;
    if !parsed.is_object() {
        return Err("must be a JSON object".into());
    }
    jsonschema::validator_for(&parsed).map(|_| ()).map_err(|error| format!("cannot be used: {error}"))
}

/// Checks a value. A schema that cannot be used refuses everything: what nobody can check nobody may change.
pub fn check(schema: &RawJson, value: &RawJson) -> Result<(), SchemaMismatch> {
    let unusable = |why: String| SchemaMismatch { pointer: String::new(), why };
    let checker = checker(schema).map_err(unusable)?;
    checker.broken(value).map_or(Ok(()), Err)
}

/// Where a value breaks its schema; nothing when the schema cannot be used, so that nobody knows.
#[must_use]
pub fn misfit(schema: &RawJson, value: &RawJson) -> Option<SchemaMismatch> {
    checker(schema).ok()?.broken(value)
}

/// A schema that was made ready.
enum Checker {
    /// It asks for an object and nothing else, as that of a tool without parameters does.
    AnyObject,
    Whole(jsonschema::Validator),
}

/// Schemas that were made ready, by their text. Agents have a few and use them for every call; whatever else comes along
/// makes room for itself by clearing the rest.
static READY: Mutex<BTreeMap<String, Arc<Checker>>> = Mutex::new(BTreeMap::new());

/// How many are kept, and how long the text of one may be.
const READY_MAX: usize = 256;
const READY_TEXT_MAX: usize = 16 * 1024;

fn checker(schema: &RawJson) -> Result<Arc<Checker>, String> {
    let text = schema.text();
    if let Some(ready) = ready().get(text) {
        return Ok(ready.clone());
    }
    let parsed: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let made = if parsed == serde_json::json!({ "type": "object" }) {
        Checker::AnyObject
    } else {
        let made = jsonschema::validator_for(&parsed);
        Checker::Whole(made.map_err(|error| format!("the schema itself cannot be used: {error}"))?)
    };
    let made = Arc::new(made);
    if text.len() <= READY_TEXT_MAX {
        let mut ready = ready();
        if ready.len() >= READY_MAX {
            ready.clear();
        }
        ready.insert(text.to_owned(), made.clone());
    }
    Ok(made)
}

fn ready() -> MutexGuard<'static, BTreeMap<String, Arc<Checker>>> {
    READY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checker {
    fn broken(&self, value: &RawJson) -> Option<SchemaMismatch> {
        let validator = match self {
            // Its text is JSON, so how it begins says what it is.
            Checker::AnyObject if value.text().trim_start().starts_with('{') => return None,
            Checker::AnyObject => {
                return Some(SchemaMismatch {
                    pointer: String::new(),
                    why: format!("{} is not of type \"object\"", value.text()),
                });
            }
            Checker::Whole(validator) => validator,
        };
        let value: serde_json::Value = match serde_json::from_str(value.text()) {
            Ok(value) => value,
            Err(error) => return Some(SchemaMismatch { pointer: String::new(), why: error.to_string() }),
        };
        let error = validator.validate(&value).err()?;
        Some(SchemaMismatch { pointer: error.instance_path().to_string(), why: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(schema: &str, value: &str) -> Result<(), String> {
        let json = |text: &str| RawJson::parse(text).unwrap();
        check(&json(schema), &json(value)).map_err(|broken| broken.pointer)
    }

    #[test]
    fn a_broken_value_is_named_by_its_place() {
        let schema = r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}},
                         "required":["a"],"additionalProperties":false}"#;
        for (value, expected) in [
            (r#"{"a":["x"]}"#, Ok(())),
            (r#"{"a":["x",1]}"#, Err("/a/1".to_owned())),
            (r#"{"a":1}"#, Err("/a".to_owned())),
            (r#"{}"#, Err(String::new())),
            (r#"{"a":[],"b":1}"#, Err(String::new())),
            (r#"[]"#, Err(String::new())),
        ] {
            assert_eq!(found(schema, value), expected, "{value}");
        }
    }

    /// The short way for a schema that asks for an object alone says what the long one says.
    #[test]
    fn any_object_fits_a_schema_that_asks_for_one() {
        let json = |text: &str| RawJson::parse(text).unwrap();
        let why = |schema: &str, value: &str| misfit(&json(schema), &json(value)).map(|misfit| misfit.why);
        for value in ["{}", " {\"a\": 1}", "[]", "1.50", "\"{\"", "null"] {
            let long = why(r#"{"type":"object","$comment":"the long way"}"#, value);
            assert_eq!(why(r#"{"type":"object"}"#, value).is_some(), long.is_some(), "{value}");
            assert_eq!(long.is_some(), !value.trim_start().starts_with('{'), "{value}");
        }
    }

    #[test]
    fn a_schema_that_cannot_be_used_refuses() {
        assert_eq!(found(r#"{"type":"no such type"}"#, "{}"), Err(String::new()));
        assert_eq!(found(r#"{"$ref":"http://example.com/schema"}"#, "{}"), Err(String::new()));
    }
}
