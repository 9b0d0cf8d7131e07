//! The JSON Schema of an entry below `tools`: the keys of all types side by side, and which of them each type has.
//!
//! Files are checked against the union, because the type of an entry may follow from its name; `check/tools.rs` then
//! refuses the keys of other types. Editors get the rule for each type as well, as far as `type` is written.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::tool::{
    A2aKeys, AgentKeys, CommandKeys, CommonKeys, ExternalKeys, FileKeys, HttpRequestKeys, McpKeys, Tool,
};
use super::tool_type::ToolType;

impl JsonSchema for Tool {
    fn schema_name() -> Cow<'static, str> {
        "Tool".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let types: Vec<TypeSchema> =
            ToolType::ALL.iter().map(|kind| TypeSchema::of(*kind, generator)).collect();
        let mut union: BTreeMap<&str, Vec<(ToolType, &Value)>> = BTreeMap::new();
        for of_type in &types {
            for (key, schema) in &of_type.keys {
                union.entry(key).or_default().push((of_type.kind, schema));
            }
        }
        let mut properties = keys_of(&CommonKeys::json_schema(generator));
        properties.extend(union.iter().map(|(key, schemas)| ((*key).to_owned(), merged(schemas))));
        let mut kind = generator.subschema_for::<Option<ToolType>>();
        let about = "What the tool does. May be left out when the tool has the name of a built-in one.";
        kind.insert("description".to_owned(), about.into());
        properties.insert("type".to_owned(), kind.to_value());
        let rules: Vec<Value> = types.iter().map(|of_type| of_type.rule(union.keys().copied())).collect();
        let mut schema = Schema::default();
        schema.insert("description".to_owned(), "A tool.".into());
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), Value::Object(properties));
        schema.insert("additionalProperties".to_owned(), false.into());
        schema.insert("allOf".to_owned(), rules.into());
        schema
    }
}

/// What one type adds to the keys that every tool can have.
struct TypeSchema {
    kind: ToolType,
    keys: Map<String, Value>,
    /// Where its keys are described; none for a type without keys of its own.
    reference: Option<Value>,
}

impl TypeSchema {
    fn of(kind: ToolType, generator: &mut SchemaGenerator) -> TypeSchema {
        match kind {
            ToolType::Command => TypeSchema::with::<CommandKeys>(kind, generator),
            ToolType::ReadFile
            | ToolType::WriteFile
            | ToolType::DeleteFile
            | ToolType::ListDir
            | ToolType::SearchFiles
            | ToolType::EditFile => TypeSchema::with::<FileKeys>(kind, generator),
            ToolType::HttpRequest => TypeSchema::with::<HttpRequestKeys>(kind, generator),
            ToolType::External => TypeSchema::with::<ExternalKeys>(kind, generator),
            ToolType::Agent => TypeSchema::with::<AgentKeys>(kind, generator),
            ToolType::Mcp => TypeSchema::with::<McpKeys>(kind, generator),
            ToolType::A2a => TypeSchema::with::<A2aKeys>(kind, generator),
            ToolType::SuspendForInput => TypeSchema { kind, keys: Map::new(), reference: None },
        }
    }

    fn with<T: JsonSchema>(kind: ToolType, generator: &mut SchemaGenerator) -> TypeSchema {
        let reference = Some(generator.subschema_for::<T>().to_value());
        TypeSchema { kind, keys: keys_of(&T::json_schema(generator)), reference }
    }

    /// With this `type` the entry has the keys of the type and no others.
    fn rule<'a>(&self, all: impl Iterator<Item = &'a str>) -> Value {
        let foreign = all.filter(|key| !self.keys.contains_key(*key));
        let foreign: Map<String, Value> = foreign.map(|key| (key.to_owned(), false.into())).collect();
        let mut then = Map::new();
        then.insert("properties".to_owned(), Value::Object(foreign));
        if let Some(Value::Object(reference)) = &self.reference {
            then.extend(reference.clone());
        }
        json!({
            "if": {"properties": {"type": {"const": self.kind.as_str()}}, "required": ["type"]},
            "then": then,
        })
    }
}

fn keys_of(schema: &Schema) -> Map<String, Value> {
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// One key of several types: how it is written is the same for all; what it means, and its default, may differ.
fn merged(schemas: &[(ToolType, &Value)]) -> Value {
    let Some((_, first)) = schemas.first() else { return Value::Bool(true) };
    let mut merged = (*first).clone();
    let mut meanings: Vec<(&str, Vec<ToolType>)> = Vec::new();
    for (kind, schema) in schemas {
        let meaning = schema["description"].as_str().unwrap_or_default();
        match meanings.iter_mut().find(|(known, _)| *known == meaning) {
            Some((_, kinds)) => kinds.push(*kind),
            None => meanings.push((meaning, vec![*kind])),
        }
    }
    let meanings: Vec<String> =
        meanings.iter().map(|(meaning, kinds)| format!("For {}: {meaning}", listed(kinds))).collect();
    if let Some(object) = merged.as_object_mut() {
        object.insert("description".to_owned(), meanings.join(" ").into());
        if schemas.iter().any(|(_, schema)| schema["default"] != first["default"]) {
            object.remove("default");
        }
    }
    merged
}

/// `a`, `b` and `c`.
fn listed(kinds: &[ToolType]) -> String {
    let names: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.as_str())).collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
