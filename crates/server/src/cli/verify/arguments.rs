//! Arguments made up from a JSON Schema: the least that a tool takes, in several variants.
//!
//! Nothing here is checked: whoever asks finds out what the server says of them. What no schema says (a keyword that is
//! not known here) is left out.

use serde_json::{Map, Value, json};

/// How deep a schema is followed.
const DEPTH: usize = 8;

/// Something that fits a schema, as far as is known here; another `variant` is another value where the schema lets it be.
pub(super) fn sample(schema: &Value, variant: usize) -> Value {
    of(schema, "", variant, DEPTH)
}

/// One object over another: members of the second win.
pub(super) fn overlaid(base: &Value, over: &Value) -> Value {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            let mut members = base.clone();
            for (name, value) in over {
                let merged = match members.get(name) {
                    Some(below) => overlaid(below, value),
                    None => value.clone(),
                };
                members.insert(name.clone(), merged);
            }
            Value::Object(members)
        }
        (_, over) => over.clone(),
    }
}

fn of(schema: &Value, name: &str, variant: usize, depth: usize) -> Value {
    let Some(keys) = schema.as_object().filter(|_| depth > 0) else { return json!({}) };
    if let Some(only) = keys.get("const") {
        return only.clone();
    }
    for listed in ["enum", "examples"] {
        let values = keys.get(listed).and_then(Value::as_array).filter(|values| !values.is_empty());
        if let Some(value) = values.and_then(|values| values.get(variant % values.len())) {
            return value.clone();
        }
    }
    match kind(keys) {
        "string" => Value::from(text(keys, name, variant)),
        "integer" => integer(keys, variant),
        "number" => number(keys, variant),
        "boolean" => Value::from(variant.is_multiple_of(2)),
        "null" => Value::Null,
        "array" => {
            let least = keys.get("minItems").and_then(Value::as_u64).unwrap_or(1).clamp(1, 16);
            let item = keys.get("items").cloned().unwrap_or_else(|| json!({"type": "string"}));
            (0..least).map(|_| of(&item, name, variant, depth - 1)).collect()
        }
        _ => object(keys, variant, depth),
    }
}

fn kind(keys: &Map<String, Value>) -> &str {
    match keys.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if keys.contains_key("properties") => "object",
        _ if keys.contains_key("items") => "array",
        _ => "object",
    }
}

/// The members that must be there, also by the first of several shapes.
fn object(keys: &Map<String, Value>, variant: usize, depth: usize) -> Value {
    let mut members = Map::new();
    let shapes = ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|key| {
        let of_key = keys.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if key == "allOf" { of_key } else { of_key.get(..1).unwrap_or_default() }
    });
    let shapes: Vec<&Map<String, Value>> =
        std::iter::once(keys).chain(shapes.filter_map(Value::as_object)).collect();
    let property = |name: &str| {
        let own = |shape: &&Map<String, Value>| shape.get("properties")?.get(name).cloned();
        shapes.iter().find_map(own).unwrap_or_else(|| json!({"type": "string"}))
    };
    for shape in &shapes {
        let required = shape.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            members.insert(name.to_owned(), of(&property(name), name, variant, depth - 1));
        }
    }
    Value::Object(members)
}

fn text(keys: &Map<String, Value>, name: &str, variant: usize) -> String {
    let number = variant + 1;
    let format = keys.get("format").and_then(Value::as_str).unwrap_or_default();
    let is_address = ["url", "uri", "href"].iter().any(|part| name.to_ascii_lowercase().ends_with(part));
    let made = match format {
        "date" => format!("2026-01-{number:02}"),
        "time" => format!("12:00:{number:02}Z"),
        "date-time" => format!("2026-01-{number:02}T12:00:00Z"),
        "email" => format!("verify-{number}@example.org"),
        "uuid" => format!("00000000-0000-4000-8000-{number:012}"),
        "uri" | "url" => format!("https://example.org/verify-{number}"),
        _ if is_address => format!("https://example.org/verify-{number}"),
        _ => format!("verify-{number}"),
    };
    let length = |key: &str| keys.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let least = length("minLength").unwrap_or(0).min(10_000);
    let most = length("maxLength").unwrap_or(usize::MAX);
    // What tells variants apart stays: it is at the end.
    let longer = format!("{}{made}", "x".repeat(least.saturating_sub(made.len())));
    let from = longer.len().saturating_sub(most);
    longer.get(from..).unwrap_or_default().to_owned()
}

fn integer(keys: &Map<String, Value>, variant: usize) -> Value {
    let step = keys.get("multipleOf").and_then(Value::as_i64).filter(|step| *step > 0).unwrap_or(1);
    let bound = |key: &str| keys.get(key).and_then(Value::as_i64);
    let least = bound("minimum").or(bound("exclusiveMinimum").map(|n| n.saturating_add(1))).unwrap_or(1);
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|n| n.saturating_sub(1)));
    let first = least.div_euclid(step) + i64::from(least.rem_euclid(step) != 0);
    let variant = i64::try_from(variant).unwrap_or_default();
    let value = first.saturating_add(variant).saturating_mul(step);
    Value::from(most.map_or(value, |most| value.min(most - most.rem_euclid(step))))
}

fn number(keys: &Map<String, Value>, variant: usize) -> Value {
    let bound = |key: &str| keys.get(key).and_then(Value::as_f64);
    let least = bound("minimum").or(bound("exclusiveMinimum").map(|n| n + 1.0)).unwrap_or(1.0);
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|n| n - 0.5)).unwrap_or(f64::MAX);
    let value = (least + variant as f64).min(most);
    // Whole numbers are written as people write them.
    if value.fract() == 0.0 && value.abs() < 1e15 { Value::from(value as i64) } else { Value::from(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(schema: &Value, variant: usize) -> Value {
        let made = sample(schema, variant);
        let validator = jsonschema::validator_for(schema).unwrap();
        assert!(validator.is_valid(&made), "{made} does not fit {schema}");
        made
    }

    #[test]
    fn what_is_made_up_fits_and_variants_differ() {
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["to", "amount", "why", "tags", "when"],
        "properties": {
            "to": {"enum": ["ann", "bob"]},
            "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 500},
            "why": {"type": "string", "minLength": 12, "maxLength": 14},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "when": {"type": "string", "format": "date"},
            "left_out": {"type": "string"},
        }});
        let [first, second] = [0, 1].map(|variant| fits(&schema, variant));
        assert_ne!(first, second);
        assert!(first.get("left_out").is_none(), "{first}");
    }

    #[test]
    fn of_several_shapes_the_first_is_taken() {
        let schema = json!({"type": "object", "properties": {"command": {"type": "string"}, "argv": {"type": "array"}},
            "oneOf": [{"required": ["command"]}, {"required": ["argv"]}], "additionalProperties": false});
        assert_eq!(fits(&schema, 0), json!({"command": "verify-1"}));
    }

    #[test]
    fn numbers_keep_to_their_bounds() {
        for schema in [
            json!({"type": "integer", "minimum": 7, "multipleOf": 5}),
            json!({"type": "integer", "maximum": 0, "minimum": 0}),
            json!({"type": "number", "minimum": 0.25, "exclusiveMaximum": 1}),
            json!({"type": ["null", "integer"], "exclusiveMinimum": 3}),
        ] {
            fits(&schema, 0);
            fits(&schema, 3);
        }
    }

    #[test]
    fn members_of_the_second_win() {
        let over = json!({"b": {"d": 2}, "e": 3});
        let merged = overlaid(&json!({"a": 0, "b": {"c": 1, "d": 0}}), &over);
        assert_eq!(merged, json!({"a": 0, "b": {"c": 1, "d": 2}, "e": 3}));
    }
}
