//! Between JSON, which is kept as its text, and the values of protobuf, whose only number is a double.
//!
//! What a double cannot carry is refused, in both directions: a number that was changed on the way would no longer be what
//! somebody approved.

use prost_types::value::Kind as Of;
use prost_types::{ListValue, Struct, Value};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::super::error::{A2aError, Kind};
use super::super::wire::{Json, Object};

/// Whole numbers beyond this are not all doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A value as JSON.
pub(in crate::a2a) fn to_json(field: &str, value: &Value) -> Result<Json, A2aError> {
    let mut text = String::new();
    write(field, value, &mut text)?;
    raw(field, text)
}

/// An object as JSON, member by member.
pub(in crate::a2a) fn to_object(field: &str, object: &Struct) -> Result<Object, A2aError> {
    let member =
        |(name, value): (&String, &Value)| Ok((name.clone(), to_json(&format!("{field}.{name}"), value)?));
    object.fields.iter().map(member).collect()
}

fn raw(field: &str, text: String) -> Result<Json, A2aError> {
    RawValue::from_string(text).map_err(|error| A2aError::invalid(field, error.to_string()))
}

fn write(field: &str, value: &Value, text: &mut String) -> Result<(), A2aError> {
    match &value.kind {
        None | Some(Of::NullValue(_)) => text.push_str("null"),
        Some(Of::BoolValue(truth)) => text.push_str(if *truth { "true" } else { "false" }),
        Some(Of::StringValue(string)) => text.push_str(&quoted(string)),
        Some(Of::NumberValue(number)) => text.push_str(&number_text(field, *number)?),
        Some(Of::ListValue(list)) => {
            text.push('[');
            for (index, one) in list.values.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(&format!("{field}[{index}]"), one, text)?;
            }
            text.push(']');
        }
        Some(Of::StructValue(object)) => {
            text.push('{');
            for (index, (name, one)) in object.fields.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&quoted(name));
                text.push(':');
                write(&format!("{field}.{name}"), one, text)?;
            }
            text.push('}');
        }
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn number_text(field: &str, number: f64) -> Result<String, A2aError> {
    if !number.is_finite() {
        return Err(A2aError::invalid(field, "is not a JSON number"));
    }
    if number.fract() != 0.0 {
        return Ok(serde_json::Value::from(number).to_string());
    }
    if number.abs() >= EXACT {
        let why = "is beyond 2^53, where gRPC changes whole numbers; send it over JSON-RPC or HTTP+JSON, or as text";
        return Err(A2aError::invalid(field, why));
    }
    Ok(format!("{number:.0}"))
}

/// JSON as a value.
pub(in crate::a2a) fn from_json(json: &RawValue) -> Result<Value, A2aError> {
    serde_json::from_str::<Exact>(json.get()).map(|exact| exact.0).map_err(|error| {
        let message = format!(
            "gRPC cannot carry this answer ({error}); ask for it over JSON-RPC or HTTP+JSON, where it is as it was sent"
        );
        A2aError::new(Kind::UnsupportedOperation, message)
    })
}

pub(super) fn from_object(object: &Object) -> Result<Struct, A2aError> {
    let member = |(name, json): (&String, &Json)| Ok((name.clone(), from_json(json)?));
    Ok(Struct { fields: object.iter().map(member).collect::<Result<_, A2aError>>()? })
}

/// A value whose numbers are what they were.
struct Exact(Value);

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Exact, D::Error> {
        deserializer.deserialize_any(Reads)
    }
}

struct Reads;

fn exact<E: Error>(kind: Of) -> Result<Exact, E> {
    Ok(Exact(Value { kind: Some(kind) }))
}

impl<'de> Visitor<'de> for Reads {
    type Value = Exact;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Exact, E> {
        exact(Of::NullValue(0))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Exact, E> {
        exact(Of::BoolValue(truth))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Exact, E> {
        exact(Of::StringValue(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Exact, E> {
        if number.unsigned_abs() < 1 << 53 {
            exact(Of::NumberValue(number as f64))
        } else {
            Err(E::custom(format!("{number} is beyond 2^53")))
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Exact, E> {
        if number < 1 << 53 {
            exact(Of::NumberValue(number as f64))
        } else {
            Err(E::custom(format!("{number} is beyond 2^53")))
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Exact, E> {
        if number.fract() == 0.0 && number.abs() >= EXACT {
            Err(E::custom(format!("{number} is beyond 2^53")))
        } else {
            exact(Of::NumberValue(number))
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Exact, A::Error> {
        let mut values = Vec::new();
        while let Some(Exact(value)) = list.next_element()? {
            values.push(value);
        }
        exact(Of::ListValue(ListValue { values }))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Exact, A::Error> {
        let mut fields = std::collections::BTreeMap::new();
        while let Some((name, Exact(value))) = map.next_entry::<String, Exact>()? {
            fields.insert(name, value);
        }
        exact(Of::StructValue(Struct { fields }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(text: &str) -> Result<String, String> {
        let json: Json = serde_json::from_str(text).unwrap();
        let value = from_json(&json).map_err(|error| error.message)?;
        to_json("data", &value).map(|json| json.get().to_owned()).map_err(|error| error.message)
    }

    /// Trap 10: what comes through is as it was, and what would be changed does not come through.
    #[test]
    fn values_come_through_unchanged_or_not_at_all() {
        for text in [
            "null",
            "true",
            r#""a \"text\" with ü and \n""#,
            "0",
            "-1",
            "9007199254740991",
            "-9007199254740991",
            "0.25",
            "1e-7",
            r#"[1,[2,{"a":null}],"x"]"#,
            r#"{"a":{"b":[]},"c":{}}"#,
        ] {
            assert_eq!(there_and_back(text).as_deref(), Ok(text));
        }
        for text in [
            "9007199254740992",
            "-9007199254740993",
            "9223372036854775808",
            r#"{"a":[9007199254740993]}"#,
            "1e300",
        ] {
            assert!(there_and_back(text).is_err_and(|why| why.contains("2^53")), "{text}");
        }
        for (number, why) in [
            (f64::NAN, "not a JSON number"),
            (f64::INFINITY, "not a JSON number"),
            (EXACT, "2^53"),
            (-EXACT, "2^53"),
        ] {
            let refused = to_json("data", &Value { kind: Some(Of::NumberValue(number)) }).unwrap_err();
            assert!(refused.message.contains(why), "{number}: {}", refused.message);
            assert_eq!(refused.kind, Kind::InvalidParams);
        }
    }
}
