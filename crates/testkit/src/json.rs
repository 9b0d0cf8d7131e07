//! Reading answers in JSON, in words that say what was missing.
//!
//! Knows the shape of no answer but that of `standfast show`.

use serde_json::Value;

/// A value that must be a text.
///
/// # Panics
///
/// When it is none.
#[must_use]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// The run itself in what `standfast show --json` prints.
#[must_use]
pub fn of_run(shown: &Value) -> &Value {
    shown.get("run").unwrap_or(shown)
}

/// The same, to keep.
#[must_use]
pub fn owned_text(value: &Value) -> String {
    text(value).to_owned()
}
