//! The JSON Schema of the configuration file, made from the types.
//!
//! Editors complete and check with it, docs/configuration.md is written from it, and `shape.rs` checks files against
//! it, so the three cannot disagree.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::file::{File, ToolType};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    generator.into_root_schema_for::<File>().to_value()
});

/// The schema that files are checked against, after variables are filled in.
pub(super) fn json() -> &'static Value {
    &SCHEMA
}

/// The schema as editors get it: whatever a value should be, it may also be a variable.
#[must_use]
pub fn published() -> Value {
    let mut schema = SCHEMA.clone();
    allow_variables(&mut schema);
    schema
}

/// What a text with a variable in it looks like.
const VARIABLE: &str = "[$][{]";

fn allow_variables(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        let is_plain = |kind: &Value| ["integer", "number", "boolean"].iter().any(|plain| kind == plain);
        let mut kinds = match object.get("type") {
            Some(Value::Array(kinds)) => kinds.clone(),
            other => other.cloned().into_iter().collect(),
        };
        if kinds.iter().any(is_plain) && !kinds.contains(&"string".into()) {
            kinds.push("string".into());
            object.insert("type".to_owned(), Value::Array(kinds));
            object.insert("pattern".to_owned(), VARIABLE.into());
        }
        if let Some(Value::Array(choices)) = object.get_mut("oneOf") {
            choices.push(json!({"description": "A variable.", "type": "string", "pattern": VARIABLE}));
        }
        object.values_mut().for_each(allow_variables);
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(allow_variables);
    }
}

/// A schema resolved: references followed, the possibility of *nothing* left out.
pub(super) fn resolve(schema: &Value) -> &Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return resolve(&SCHEMA["$defs"][name]);
    }
    let choices = schema["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    match choices.iter().find(|choice| choice["type"] != "null") {
        Some(choice) => resolve(choice),
        None => schema,
    }
}

/// The words that a value must be one of, if it must.
pub(super) fn words(schema: &Value) -> Option<Vec<&str>> {
    if let Some(words) = schema["enum"].as_array() {
        return Some(words.iter().filter_map(Value::as_str).collect());
    }
    let choices = schema["oneOf"].as_array()?;
    Some(choices.iter().filter_map(|choice| choice["const"].as_str()).collect())
}

/// Whether a value may be of this type.
pub(super) fn may_be(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(|known| known == kind),
        Value::String(known) => known == kind,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// The keys that are known at a place; none when any name goes.
pub(super) fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema["properties"].as_object()
}

/// The keys that only other types of tools have, each with the types that have it.
pub(super) fn foreign_keys(kind: ToolType) -> Vec<(&'static str, Vec<&'static str>)> {
    let rules = SCHEMA["$defs"]["Tool"]["allOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |rule: &'static Value| rule["if"]["properties"]["type"]["const"].as_str().unwrap_or_default();
    let lacks = |rule: &Value, key: &str| rule["then"]["properties"].get(key).is_some();
    let own = rules.iter().find(|rule| name(rule) == kind.as_str());
    let foreign = own.and_then(|rule| rule["then"]["properties"].as_object()).into_iter().flatten();
    let foreign = foreign
        .map(|(key, _)| (key.as_str(), rules.iter().filter(|rule| !lacks(rule, key)).map(name).collect()));
    foreign.collect()
}

/// What a type of tool adds to the keys that every tool can have, if it adds any.
pub(super) fn keys_of_type(kind: ToolType) -> Option<&'static Value> {
    let rules = SCHEMA["$defs"]["Tool"]["allOf"].as_array()?;
    let own = rules.iter().find(|rule| rule["if"]["properties"]["type"]["const"] == kind.as_str())?;
    own["then"].get("$ref").map(|_| resolve(&own["then"]))
}

/// Every place that has a key of this name, as `agents.<name>.task`.
pub(super) fn places_of(key: &str) -> Vec<String> {
    let mut places = Vec::new();
    search(&SCHEMA, "", key, &mut places);
    places
}

fn search(schema: &Value, path: &str, key: &str, places: &mut Vec<String>) {
    let schema = resolve(schema);
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, property) in properties(schema).into_iter().flatten() {
        if name == key {
            places.push(path.to_owned());
        }
        search(property, &below(name), key, places);
    }
    if schema["additionalProperties"].is_object() {
        search(&schema["additionalProperties"], &below("<name>"), key, places);
    }
    if schema["items"].is_object() {
        search(&schema["items"], &format!("{path}[]"), key, places);
    }
}
