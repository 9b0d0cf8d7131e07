//! Whether a JSON value keeps to a JSON Schema, and where it does not.
//!
//! The value is parsed for the check alone: what is stored and run stays the text that came in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
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
    let parsed = parsed(schema.text()).map_err(|error| error.to_string())?;
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
    let parsed = parsed(text).map_err(|error| error.to_string())?;
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
        let value = match parsed(value.text()) {
            Ok(value) => value,
            Err(error) => return Some(SchemaMismatch { pointer: String::new(), why: error.to_string() }),
        };
        let error = validator.validate(&value).err()?;
        Some(SchemaMismatch { pointer: error.instance_path().to_string(), why: error.to_string() })
    }
}

/// A value to be checked. A number that no double has room for counts as the greatest double of its sign: it is a number all the same, and no
/// limit that a schema sets is further out.
fn parsed(text: &str) -> serde_json::Result<serde_json::Value> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => with_limits(text).map_err(|_| error),
    }
}

fn with_limits(text: &str) -> serde_json::Result<serde_json::Value> {
    let text = text.trim_ascii();
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            members.into_iter().map(|(name, value)| Ok((name, with_limits(value.get())?))).collect()
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            items.into_iter().map(|item| with_limits(item.get())).collect()
        }
        Some(b'-') => serde_json::from_str(text).or_else(|_| limit(text, f64::MIN)),
        Some(b'0'..=b'9') => serde_json::from_str(text).or_else(|_| limit(text, f64::MAX)),
        _ => serde_json::from_str(text),
    }
}

/// The greatest double in the place of a text that is a number.
fn limit(text: &str, greatest: f64) -> serde_json::Result<serde_json::Value> {
    let _: &RawValue = serde_json::from_str(text)?;
    Ok(greatest.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that no double holds are numbers: they fit where one may stand, and break the limits that they are beyond.
    #[test]
    fn numbers_beyond_doubles_are_numbers() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"number"},"i":{"type":"integer"},
            "most":{"type":"number","maximum":1e300},"least":{"items":{"minimum":-5}},"t":{"type":"string"}}}"#;
        for (value, expected) in [
            (r#"{"n":1e400,"i":9007199254740993}"#, Ok(())),
            (r#"{"n":-1e400,"i":123456789012345678901234567890}"#, Ok(())),
            (r#"{"n":0.1000000000000000055511151231257827021181583404541015625,"i":1e400}"#, Ok(())),
            (r#"{"n":1e-400,"t":"1e400"}"#, Ok(())),
            (r#"{"most":1e400}"#, Err("/most".to_owned())),
            (r#"{"n":1, "least":[1e400, -1e400]}"#, Err("/least/1".to_owned())),
            (r#"{"t":1e400}"#, Err("/t".to_owned())),
        ] {
            assert_eq!(found(schema, value), expected, "{value}");
        }
        assert_eq!(found(r#"{"properties":{"n":{"maximum":1e400}}}"#, r#"{"n":7}"#), Ok(()));
    }

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
