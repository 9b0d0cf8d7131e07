//! The signature of a card: over its canonical JSON (RFC 8785), without what is at its default.
//!
//! An agent's card is read before anybody is trusted; with a signature a client can tell that nobody changed it on the way.

use serde_json::{Map, Value};
use standfast_engine::card_key::CardKey;

use super::wire::{AgentCard, AgentCardSignature};

/// A card with its signatures.
pub(super) fn signed(key: Option<&CardKey>, mut card: AgentCard) -> AgentCard {
    let (Some(key), Ok(value)) = (key, serde_json::to_value(&card)) else { return card };
    // Clients do not agree on whether an empty object is at its default: where there is one, each finds its signature.
    let mut payloads = vec![payload(&value, Empty::Kept), payload(&value, Empty::Dropped)];
    payloads.dedup();
    let sign = |payload: &String| {
        let made = key.sign(payload.as_bytes());
        AgentCardSignature { protected: made.protected, signature: made.signature }
    };
    card.signatures = payloads.iter().map(sign).collect();
    card
}

/// What becomes of empty objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    Kept,
    Dropped,
}

fn payload(card: &Value, empty: Empty) -> String {
    let mut text = String::new();
    canonical(&without_defaults(card, empty).unwrap_or(Value::Null), &mut text);
    text
}

/// A value without members that say what saying nothing says. Truths that may be unsaid (`streaming`) stay.
fn without_defaults(value: &Value, empty: Empty) -> Option<Value> {
    match value {
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            let kept: Vec<Value> = items.iter().filter_map(|item| without_defaults(item, empty)).collect();
            (!kept.is_empty() || empty == Empty::Kept).then_some(Value::Array(kept))
        }
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, member) in members {
                let is_unsaid = name == "required" && member == &Value::Bool(false);
                if let Some(member) = without_defaults(member, empty).filter(|_| !is_unsaid) {
                    kept.insert(name.clone(), member);
                }
            }
            (!kept.is_empty() || empty == Empty::Kept).then_some(Value::Object(kept))
        }
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
    }
}

/// Members in the order of their names as UTF-16, no space, texts as this server writes them anyway. A card has no
/// numbers.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<u16>>());
            text.push('{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                canonical(member, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                canonical(item, text);
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&value.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The order of RFC 8785 is that of UTF-16, and defaults go; the members are from its section 3.2.3.
    #[test]
    fn canonical_is_sorted_and_bare() {
        let value = json!({"\u{20ac}": "Euro", "\r": "Return", "\u{fb33}": "Dalet", "1": "One", "\u{1f600}": "Smiley",
            "\u{80}": "Control", "\u{f6}": "o", "gone": "", "none": [], "required": false, "streaming": false});
        let expected = "{\"\\r\":\"Return\",\"1\":\"One\",\"streaming\":false,\"\u{80}\":\"Control\",\"\u{f6}\":\"o\",\"\u{20ac}\":\"Euro\",\"\u{1f600}\":\"Smiley\",\"\u{fb33}\":\"Dalet\"}";
        assert_eq!(payload(&value, Empty::Dropped), expected);
        let scopes = json!({"schemes": {"bearer": {"list": []}}});
        assert_eq!(payload(&scopes, Empty::Kept), r#"{"schemes":{"bearer":{}}}"#);
        assert_eq!(payload(&scopes, Empty::Dropped), "null");
    }
}
