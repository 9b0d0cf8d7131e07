//! JSON text that is kept byte for byte.
//!
//! What a person approves is the text a tool gets, so nothing may re-serialise it on the way: integers of any size,
//! the order of members and the spelling of numbers survive. Text that two readers could understand differently
//! (a repeated member, a lone surrogate) is refused at the door.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// How deep arrays and objects may be nested.
pub const MAX_DEPTH: usize = 64;

/// A JSON value as the text it came in.
#[derive(Clone)]
pub struct RawJson(Box<RawValue>);

/// Why a text is not JSON that two readers understand alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadJson {
    /// Not JSON at all; what the parser said.
    Malformed(String),
    /// An object has the same member twice (after decoding escapes).
    RepeatedMember(String),
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep,
}

impl fmt::Display for BadJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadJson::Malformed(why) => write!(f, "this is not JSON: {why}"),
            BadJson::RepeatedMember(name) => {
                write!(f, "the member {name:?} stands more than once in an object")
            }
            BadJson::TooDeep => write!(f, "the value is nested deeper than {MAX_DEPTH} levels"),
        }
    }
}

impl std::error::Error for BadJson {}

impl RawJson {
    /// Takes a text from outside; only unambiguous JSON is taken.
    pub fn parse(text: &str) -> Result<RawJson, BadJson> {
        let raw: Box<RawValue> = serde_json::from_str(text).map_err(malformed)?;
        check(raw.get(), MAX_DEPTH)?;
        Ok(RawJson(raw))
    }

    /// A JSON string.
    #[must_use]
    pub fn string(text: &str) -> RawJson {
        match serde_json::value::to_raw_value(text) {
            Ok(raw) => RawJson(raw),
            Err(_) => unreachable!("a string can be serialised"),
        }
    }

    /// The text as serde_json has it, to be written into something longer.
    #[must_use]
    pub fn into_raw(self) -> Box<RawValue> {
        self.0
    }

    /// The text, byte for byte.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The looser key by which two values are "the same again": members sorted, white space dropped, strings
    /// decoded, numbers by their text. An approval is bound to a digest of the text itself, never to this; where a client
    /// writes the same arguments anew, this says that they are the same value.
    #[must_use]
    pub fn loose_key(&self) -> String {
        // Stored text was checked when it came in; should a stored row be damaged, it is only like itself.
        loose(self.text(), MAX_DEPTH).unwrap_or_else(|_| self.text().to_owned())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &RawJson) -> bool {
        self.text() == other.text()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(RawJson)
    }
}

fn malformed(error: serde_json::Error) -> BadJson {
    BadJson::Malformed(error.to_string())
}

/// Whether two readers understand a text alike. Walks like [`loose`] and writes nothing: most texts are only let in.
fn check(text: &str, depth: usize) -> Result<(), BadJson> {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    match text.as_bytes().first() {
        Some(b'{' | b'[') if depth == 0 => Err(BadJson::TooDeep),
        Some(b'{') => {
            let mut members = serde_json::from_str::<Members<'_>>(text).map_err(malformed)?.0;
            members.iter().try_for_each(|(_, value)| check(value.get(), depth - 1))?;
            members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            let repeated = members.windows(2).find(|two| two[0].0 == two[1].0);
            repeated.map_or(Ok(()), |two| Err(BadJson::RepeatedMember(two[0].0.to_string())))
        }
        Some(b'[') => {
            let items = serde_json::from_str::<Items<'_>>(text).map_err(malformed)?.0;
            items.iter().try_for_each(|item| check(item.get(), depth - 1))
        }
        // Decoding finds lone surrogates, which skipping over a string would not; without an escape there is none.
        Some(b'"') if text.contains('\\') => {
            serde_json::from_str::<String>(text).map(drop).map_err(malformed)
        }
        Some(_) | None => Ok(()),
    }
}

/// Walks `text` and writes its loose form. Each level is read again by its parent, which costs at most
/// `MAX_DEPTH` passes and leaves the grammar to serde_json.
fn loose(text: &str, depth: usize) -> Result<String, BadJson> {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    match text.as_bytes().first() {
        Some(b'{' | b'[') if depth == 0 => Err(BadJson::TooDeep),
        Some(b'{') => {
            let mut sorted = BTreeMap::new();
            for (name, value) in serde_json::from_str::<Members<'_>>(text).map_err(malformed)?.0 {
                let value = loose(value.get(), depth - 1)?;
                if sorted.insert(name.clone(), value).is_some() {
                    return Err(BadJson::RepeatedMember(name.into_owned()));
                }
            }
            let members: Vec<String> = sorted.iter().map(|(n, v)| format!("{}:{v}", quoted(n))).collect();
            Ok(format!("{{{}}}", members.join(",")))
        }
        Some(b'[') => {
            let items = serde_json::from_str::<Items<'_>>(text).map_err(malformed)?.0;
            let items: Result<Vec<String>, BadJson> =
                items.iter().map(|v| loose(v.get(), depth - 1)).collect();
            Ok(format!("[{}]", items?.join(",")))
        }
        // Decoding finds lone surrogates, which skipping over a string would not.
        Some(b'"') => Ok(quoted(&serde_json::from_str::<String>(text).map_err(malformed)?)),
        Some(_) | None => Ok(text.to_owned()),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(MemberName(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(V)
    }
}

/// The name of a member: where it stands, unless it has to be decoded.
struct MemberName<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for MemberName<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = MemberName<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: serde::de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(MemberName(Cow::Borrowed(name)))
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(MemberName(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(V)
    }
}

struct Items<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Items<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(V)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_survives_byte_for_byte() {
        for text in [
            r#"{"b": 1, "a":9007199254740993}"#,
            r#"[1.0, 1, 1e400, -0.0, 123456789012345678901234567890]"#,
            r#""\u00e9é\n""#,
            "null",
        ] {
            let json = RawJson::parse(text).unwrap();
            let stored = serde_json::to_string(&json).unwrap();
            assert_eq!(stored, text);
            assert_eq!(serde_json::from_str::<RawJson>(&stored).unwrap(), json);
        }
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        let refused = |text: &str| RawJson::parse(text).unwrap_err();
        assert_eq!(refused(r#"{"a":1,"a":2}"#), BadJson::RepeatedMember("a".into()));
        assert_eq!(refused(r#"{"x":[{"a":1,"\u0061":2}]}"#), BadJson::RepeatedMember("a".into()));
        assert!(matches!(refused(r#"{"a":"\ud800"}"#), BadJson::Malformed(_)));
        assert!(matches!(refused(r#"{"\udc00":1}"#), BadJson::Malformed(_)));
        assert!(matches!(refused("{\"a\":1} x"), BadJson::Malformed(_)));
        assert!(matches!(refused("NaN"), BadJson::Malformed(_)));
        assert!(matches!(refused(""), BadJson::Malformed(_)));
        assert_eq!(refused(&format!("{}{}", "[".repeat(65), "]".repeat(65))), BadJson::TooDeep);
        assert!(RawJson::parse(&format!("{}{}", "[".repeat(64), "]".repeat(64))).is_ok());
    }

    #[test]
    fn the_loose_key_forgets_order_and_space_but_no_digit() {
        let key = |text: &str| RawJson::parse(text).unwrap().loose_key();
        assert_eq!(key(r#"{ "b":[1, 2], "a":"\u0078" }"#), key(r#"{"a":"x","b":[1,2]}"#));
        assert_ne!(key("9007199254740993"), key("9007199254740992"));
        assert_ne!(key("1"), key("1.0"));
        assert_ne!(key("[1,2]"), key("[2,1]"));
    }

    proptest! {
        /// Whatever serde_json can write is taken, and comes out unchanged.
        #[test]
        fn ordinary_values_are_taken(numbers in proptest::collection::vec(any::<i64>(), 0..5), text in ".*") {
            let value = serde_json::json!({ "numbers": numbers, "text": text, "deep": { "er": [null, true] } });
            let spelled = value.to_string();
            let taken = RawJson::parse(&spelled).unwrap();
            prop_assert_eq!(taken.text(), spelled.as_str());
        }

        /// No text makes the reader panic.
        #[test]
        fn no_text_is_too_odd(text in ".*") {
            let _ = RawJson::parse(&text);
        }
    }
}
