//! What a request is made of, whatever the dialect: members of a JSON object, of which some are raw text.
//!
//! What people add by `parameters` goes beside what is said anyway, never in its place.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::conversation::Conversation;

/// What a model is asked with.
#[derive(Debug)]
pub(super) struct ModelQuery<'a> {
    /// The provider's name of the model.
    pub(super) model: &'a str,
    /// The conversation.
    pub(super) conversation: &'a Conversation,
    /// What the definition says beside it.
    pub(super) parameters: &'a Parameters,
    /// Whether it is the provider itself, not something that speaks like it.
    pub(super) is_official: bool,
}

/// What a definition says beside the conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct Parameters {
    pub(super) temperature: Option<f64>,
    pub(super) max_tokens: Option<u64>,
    /// Members of the request that this server knows nothing of.
    pub(super) more: Map<String, Value>,
}

impl Parameters {
    /// From the parameters of a definition.
    pub(super) fn parse(text: Option<&str>) -> Parameters {
        let parsed = text.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
        let mut more = parsed.unwrap_or_default();
        Parameters {
            temperature: more.remove("temperature").and_then(|value| value.as_f64()),
            max_tokens: more.remove("max_tokens").and_then(|value| value.as_u64()),
            more,
        }
    }
}

/// The members of an object, in order.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    /// Adds a member.
    pub(super) fn put(&mut self, name: &str, value: impl Serialize) {
        self.0.push((name.to_owned(), raw(&value)));
    }

    /// Adds a member if there is a value.
    pub(super) fn put_some(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    /// Adds what people added. An object joins the one that is there; anything else leaves what is there.
    pub(super) fn join(&mut self, more: &Map<String, Value>) {
        for (name, value) in more {
            match self.0.iter_mut().find(|(known, _)| known == name) {
                None => self.put(name, value),
                Some((_, there)) => {
                    let known = serde_json::from_str::<Map<String, Value>>(there.get());
                    if let (Ok(known), Value::Object(added)) = (known, value) {
                        let mut both = added.clone();
                        both.extend(known);
                        *there = raw(&both);
                    }
                }
            }
        }
    }

    /// The object.
    pub(super) fn object(self) -> Box<RawValue> {
        let members: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{}:{}", quoted(name), value.get())).collect();
        parse(format!("{{{}}}", members.join(",")))
    }
}

/// A value as raw JSON.
pub(super) fn raw(value: &impl Serialize) -> Box<RawValue> {
    match serde_json::value::to_raw_value(value) {
        Ok(raw) => raw,
        Err(_) => unreachable!("what requests are made of has only string keys"),
    }
}

/// A list of raw values.
pub(super) fn list(items: &[Box<RawValue>]) -> Box<RawValue> {
    raw(&items)
}

/// The arguments of a call as a JSON object: what providers want that have no place for text. What the model wrote
/// stays as it is where it is an object.
pub(super) fn arguments_object(text: &str) -> Box<RawValue> {
    let object = serde_json::from_str::<Box<RawValue>>(text).ok().filter(|raw| raw.get().starts_with('{'));
    object.unwrap_or_else(|| {
        let mut members = Members::default();
        members.put("malformed_arguments", text);
        members.object()
    })
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn parse(text: String) -> Box<RawValue> {
    match RawValue::from_string(text) {
        Ok(raw) => raw,
        Err(_) => unreachable!("members are JSON"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_people_add_goes_beside_what_is_said() {
        let mut members = Members::default();
        members.put("model", "m");
        members.put("options", json!({"temperature": 0.5}));
        let more = json!({"model": "other", "options": {"temperature": 1, "seed": 7}, "effort": "high"});
        members.join(more.as_object().unwrap());
        assert_eq!(
            members.object().get(),
            r#"{"model":"m","options":{"seed":7,"temperature":0.5},"effort":"high"}"#
        );
    }

    /// T1: arguments keep their bytes; what is not an object is shown as what it is.
    #[test]
    fn arguments_keep_their_bytes() {
        assert_eq!(
            arguments_object(r#"{"n": 9007199254740993,"b" :1.0}"#).get(),
            r#"{"n": 9007199254740993,"b" :1.0}"#
        );
        assert_eq!(arguments_object("{\"a\":").get(), r#"{"malformed_arguments":"{\"a\":"}"#);
        assert_eq!(arguments_object("[1]").get(), r#"{"malformed_arguments":"[1]"}"#);
    }
}
