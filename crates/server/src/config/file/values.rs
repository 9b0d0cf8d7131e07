//! Values that several sections share: spans of time, secrets, what deny and silence do.
//!
//! Each says in its schema what it takes, so that the check can say it too.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use standfast_core::hold;
use standfast_core::time::Millis;
use zeroize::Zeroize as _;

/// A span of time: a whole number of seconds, or a number with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Millis);

impl Span {
    /// The name of the format in the schema.
    pub const FORMAT: &str = "span";

    /// Reads `90`, `200ms`, `30s`, `10m`, `24h` or `7d`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Span> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        number.parse::<i64>().ok()?.checked_mul(unit).map(|millis| Span(Millis(millis)))
    }
}

/// Whether a span is one: for what cannot be done in no time at all.
pub(super) fn more_than_nothing(span: &Span, (): &()) -> garde::Result {
    if span.0.0 > 0 { Ok(()) } else { Err(garde::Error::new("must be more than 0")) }
}

/// As people say it.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seconds, or a span such as 30s, 10m or 24h")
            }
            fn visit_u64<E: Error>(self, seconds: u64) -> Result<Span, E> {
                self.visit_str(&seconds.to_string())
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                Span::parse(text).ok_or_else(|| E::custom("not a span"))
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "format": Span::FORMAT,
            "minimum": 0,
            "pattern": "^[0-9]+(ms|s|m|h|d)?$|[$][{]",
        })
    }

    fn inline_schema() -> bool {
        true
    }
}

/// A value that is never shown: not in errors, not in logs, not in what is stored.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The value, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "writeOnly": true})
    }

    fn inline_schema() -> bool {
        true
    }
}

/// What a tool takes: a JSON Schema, written as YAML.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Parameters(pub serde_json::Map<String, serde_json::Value>);

impl JsonSchema for Parameters {
    fn schema_name() -> Cow<'static, str> {
        "Parameters".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": true})
    }

    fn inline_schema() -> bool {
        true
    }
}

/// What happens when a person denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDeny {
    /// The model gets the reason and continues.
    Continue,
    /// The run ends as canceled.
    Cancel,
}

/// What happens when nobody decides in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The run fails.
    Fail,
    /// Same as a denial.
    Deny,
    /// The model gets an error and continues.
    ResumeWithError,
    /// The run ends as canceled.
    Cancel,
    /// The hold stays open, marked as expired, and accepts a late decision until `expiry_grace` ends.
    Keep,
}

/// What happens when the grace of a kept hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterGrace {
    /// The run fails.
    Fail,
    /// The run ends as canceled.
    Cancel,
}

/// Whether whoever started a run may decide its holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SelfApproval {
    /// They may.
    Allow,
    /// They may not: four-eyes principle.
    Forbid,
}

impl From<OnDeny> for hold::OnDeny {
    fn from(value: OnDeny) -> hold::OnDeny {
        match value {
            OnDeny::Continue => hold::OnDeny::Continue,
            OnDeny::Cancel => hold::OnDeny::Cancel,
        }
    }
}

impl From<OnTimeout> for hold::OnTimeout {
    fn from(value: OnTimeout) -> hold::OnTimeout {
        match value {
            OnTimeout::Fail => hold::OnTimeout::Fail,
            OnTimeout::Deny => hold::OnTimeout::Deny,
            OnTimeout::ResumeWithError => hold::OnTimeout::ResumeWithError,
            OnTimeout::Cancel => hold::OnTimeout::Cancel,
            OnTimeout::Keep => hold::OnTimeout::Keep,
        }
    }
}

impl From<AfterGrace> for hold::AfterGrace {
    fn from(value: AfterGrace) -> hold::AfterGrace {
        match value {
            AfterGrace::Fail => hold::AfterGrace::Fail,
            AfterGrace::Cancel => hold::AfterGrace::Cancel,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_said() {
        let said = |text: &str| Span::parse(text).map(|span| span.to_string());
        for (text, expected) in [
            ("600", "10m"),
            ("90", "90s"),
            ("200ms", "200ms"),
            ("24h", "1d"),
            ("0", "0ms"),
            ("1500ms", "1500ms"),
        ] {
            assert_eq!(said(text).as_deref(), Some(expected), "{text}");
        }
        for wrong in
            ["", "m", "-1", "1.5h", "5 m", "10minutes", "99999999999999999999s", "9223372036854775807d"]
        {
            assert_eq!(Span::parse(wrong), None, "{wrong}");
        }
    }

    /// T29: a secret is not in what is printed of it.
    #[test]
    fn secrets_do_not_print() {
        let secret: Secret = serde_json::from_str("\"sk-canary\"").unwrap();
        assert_eq!(format!("{secret} {secret:?}"), "[secret] [secret]");
        assert_eq!(secret.expose(), "sk-canary");
    }
}
