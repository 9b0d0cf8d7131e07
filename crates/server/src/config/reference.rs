//! docs/configuration.md, written from the schema: one table for each section, every key with its description.
//!
//! What is said around the tables stands in `reference.md`. A test compares the page with what comes out here.

use std::fmt::Write;

use serde_json::Value;

use super::file::ToolType;
use super::schema::{self, properties, resolve, words};

const AROUND: &str = include_str!("reference.md");

/// The page.
#[must_use]
pub fn markdown() -> String {
    AROUND.replace("{{sections}}", sections().trim_end())
}

fn sections() -> String {
    let mut out = String::new();
    for name in
        ["llms", "tools", "agents", "session_stores", "people", "channels", "gateways", "server", "policy"]
    {
        let section = &schema::json()["properties"][name];
        let _ = writeln!(out, "## `{name}`\n\n{}\n", said(section));
        let _ = writeln!(out, "| key | takes | default | meaning |\n| --- | --- | --- | --- |");
        let entry = resolve(section);
        if name == "tools" {
            tools(resolve(&entry["additionalProperties"]), &mut out);
        } else if entry["additionalProperties"].is_object() {
            rows(&entry["additionalProperties"], &format!("{name}.&lt;name&gt;"), &mut out);
        } else if entry["items"].is_object() {
            rows(&entry["items"], name, &mut out);
        } else {
            rows(entry, name, &mut out);
        }
        out.push('\n');
    }
    out
}

/// Tools: what all of them can have, then a table for each type that has keys of its own.
fn tools(tool: &Value, out: &mut String) {
    let mut common = tool.clone();
    let types: Vec<(&ToolType, &Value)> =
        ToolType::ALL.iter().filter_map(|kind| Some((kind, schema::keys_of_type(*kind)?))).collect();
    if let Some(keys) = common["properties"].as_object_mut() {
        keys.retain(|key, _| !types.iter().any(|(_, own)| own["properties"].get(key).is_some()));
    }
    rows(&common, "tools.&lt;name&gt;", out);
    let mut rest = types.as_slice();
    while let Some((_, own)) = rest.first() {
        let same = rest.iter().take_while(|(_, other)| other == own).count();
        let names: Vec<String> =
            rest[..same].iter().map(|(kind, _)| format!("`{}`", kind.as_str())).collect();
        let _ = writeln!(out, "\n### Tools of type {}\n", names.join(", "));
        let _ = writeln!(out, "| key | takes | default | meaning |\n| --- | --- | --- | --- |");
        rows(own, "tools.&lt;name&gt;", out);
        rest = &rest[same..];
    }
}

/// One row for each key below a place; the keys below a key follow it.
fn rows(schema: &Value, path: &str, out: &mut String) {
    let schema = resolve(schema);
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, property) in properties(schema).into_iter().flatten() {
        let kind = resolve(property);
        let default = match (&property["default"], required.contains(&key.as_str())) {
            (Value::Null, true) => "*required*".to_owned(),
            (Value::Null, false) => String::new(),
            (value, _) if *value == "" || *value == Value::Array(Vec::new()) => String::new(),
            (value, _) => format!("`{}`", value.to_string().replace('"', "")),
        };
        let mut meaning = said(property);
        for choice in kind["oneOf"].as_array().into_iter().flatten() {
            let _ =
                write!(meaning, "<br>`{}`: {}", choice["const"].as_str().unwrap_or_default(), said(choice));
        }
        let _ = writeln!(out, "| `{}` | {} | {default} | {meaning} |", below(path, key), takes(kind));
        if properties(kind).is_some() {
            rows(kind, &format!("{path}.{key}"), out);
        } else if kind["items"].is_object() {
            rows(&kind["items"], &format!("{path}.{key}[]"), out);
        }
    }
}

/// The path as it is shown: the name that somebody chooses goes without saying in a table of its own.
fn below(path: &str, key: &str) -> String {
    let inside = path.split_once(".&lt;name&gt;").map_or_else(
        || path.split_once('.').map_or("", |(_, rest)| rest),
        |(_, rest)| rest.trim_start_matches('.'),
    );
    if inside.is_empty() { key.to_owned() } else { format!("{inside}.{key}") }
}

fn takes(schema: &Value) -> &'static str {
    if words(schema).is_some() {
        return "one of";
    }
    if schema["format"] == "span" {
        return "time";
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("object") => "keys",
        Some("array") => "list",
        Some("boolean") => "true or false",
        Some("integer") => "whole number",
        Some("number") => "number",
        Some(_) | None => "text",
    }
}

fn said(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}
