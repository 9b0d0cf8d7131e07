//! Schemas as forms read them: local references followed, an optional value told from one that must be there, choices with
//! their titles.
//!
//! Only what keeps its meaning is made plain: anything else stays as it is, and no form is made of it. The engine checks answers
//! against the schema as it was written.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use standfast_core::json::RawJson;

/// References that lead to references, and alternatives within alternatives.
const HOPS_MAX: usize = 8;
/// Where a schema keeps parts that it refers to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// What says what a value is, so that it cannot stand beside a reference without changing what that means.
const STRUCTURE: [&str; 5] = ["properties", "items", "enum", "const", "required"];

/// The parts that a schema refers to.
pub(super) struct Definitions(Vec<(String, RawJson)>);

impl Definitions {
    /// Of a whole schema.
    pub(super) fn of(schema: &RawJson) -> Definitions {
        let all = members(schema).unwrap_or_default().into_iter();
        let parts =
            all.filter(|(name, _)| DEFINITIONS.contains(&name.as_str())).flat_map(|(place, parts)| {
                let named = move |(name, part): (String, RawJson)| {
                    (format!("#/{place}/{}", name.replace('~', "~0").replace('/', "~1")), part)
                };
                members(&parts).unwrap_or_default().into_iter().map(named)
            });
        Definitions(parts.collect())
    }

    fn get(&self, reference: &RawJson) -> Option<&RawJson> {
        let reference: String = serde_json::from_str(reference.text()).ok()?;
        self.0.iter().find(|(pointer, _)| *pointer == reference).map(|(_, part)| part)
    }
}

/// A schema made plain.
pub(super) struct PlainSchema {
    pub(super) members: Vec<(String, RawJson)>,
    /// What its choices are called, where it says.
    pub(super) titles: Vec<Option<String>>,
    /// Whether `null` is an answer too.
    pub(super) is_nullable: bool,
}

impl PlainSchema {
    /// Of a schema, by the parts that it refers to; none where they are not there, or lead to themselves.
    pub(super) fn of(schema: &RawJson, definitions: &Definitions) -> Option<PlainSchema> {
        let mut plain = PlainSchema { members: members(schema)?, titles: Vec::new(), is_nullable: false };
        for _ in 0..HOPS_MAX {
            if let Some(reference) = plain.take("$ref") {
                plain.merge(definitions.get(&reference)?)?;
            } else if let Some(all) = plain.take("allOf") {
                let [only]: [RawJson; 1] = list(&all)?.try_into().ok()?;
                plain.merge(&only)?;
            } else if let Some(alternatives) = plain.take("anyOf").or_else(|| plain.take("oneOf")) {
                plain.choose(list(&alternatives)?)?;
            } else {
                plain.name_type()?;
                plain.name_constant();
                return Some(plain);
            }
        }
        None
    }

    /// The same as the text of a schema.
    pub(super) fn text(&self) -> String {
        let written = self
            .members
            .iter()
            .map(|(name, value)| format!("{}: {}", RawJson::string(name).text(), value.text()));
        format!("{{{}}}", written.collect::<Vec<_>>().join(", "))
    }

    fn take(&mut self, name: &str) -> Option<RawJson> {
        let at = self.members.iter().position(|(known, _)| known == name)?;
        Some(self.members.remove(at).1)
    }

    /// What is referred to, with what is said beside the reference: a title, a description, a default.
    fn merge(&mut self, part: &RawJson) -> Option<()> {
        if self.members.iter().any(|(name, _)| STRUCTURE.contains(&name.as_str())) {
            return None;
        }
        for (name, value) in members(part)? {
            if !self.members.iter().any(|(known, _)| *known == name) {
                self.members.push((name, value));
            }
        }
        Some(())
    }

    /// One of several: `null` beside something else makes that optional, and constants are choices.
    fn choose(&mut self, alternatives: Vec<RawJson>) -> Option<()> {
        let (nulls, others): (Vec<RawJson>, Vec<RawJson>) = alternatives.into_iter().partition(is_null);
        self.is_nullable |= !nulls.is_empty();
        let constants: Option<Vec<(RawJson, Option<String>)>> = others.iter().map(constant).collect();
        match (constants, others.as_slice()) {
            (_, []) => None,
            (Some(constants), _) => {
                if self.members.iter().any(|(name, _)| STRUCTURE.contains(&name.as_str())) {
                    return None;
                }
                let (values, titles): (Vec<RawJson>, Vec<Option<String>>) = constants.into_iter().unzip();
                let values: Vec<&str> = values.iter().map(RawJson::text).collect();
                let values = RawJson::parse(&format!("[{}]", values.join(", "))).ok()?;
                self.members.push(("enum".to_owned(), values));
                self.titles = titles;
                Some(())
            }
            (None, [only]) => self.merge(only),
            (None, _) => None,
        }
    }

    /// A type and `null` is that type, optional.
    fn name_type(&mut self) -> Option<()> {
        let several =
            self.members.iter().position(|(name, value)| name == "type" && value.text().starts_with('['));
        let Some(at) = several else { return Some(()) };
        let (nulls, others): (Vec<RawJson>, Vec<RawJson>) =
            list(&self.members[at].1)?.into_iter().partition(|one| one.text() == "\"null\"");
        let [only]: [RawJson; 1] = others.try_into().ok()?;
        self.is_nullable |= !nulls.is_empty();
        self.members[at].1 = only;
        Some(())
    }

    /// A constant is the only choice.
    fn name_constant(&mut self) {
        if let Some(value) = self.take("const")
            && let Ok(values) = RawJson::parse(&format!("[{}]", value.text()))
        {
            self.members.push(("enum".to_owned(), values));
        }
    }
}

/// A value with its title, where a schema allows nothing else.
fn constant(schema: &RawJson) -> Option<(RawJson, Option<String>)> {
    let members = members(schema)?;
    let of = |name: &str| members.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let title = of("title").and_then(|title| serde_json::from_str(title.text()).ok());
    Some((of("const")?, title))
}

/// Whether a schema allows nothing but `null`.
fn is_null(schema: &RawJson) -> bool {
    let is = |(name, value): &(String, RawJson)| {
        (name == "type" && value.text() == "\"null\"") || (name == "const" && value.text() == "null")
    };
    members(schema).is_some_and(|members| members.iter().any(is))
}

fn members(json: &RawJson) -> Option<Vec<(String, RawJson)>> {
    serde_json::from_str::<Members>(json.text()).ok().map(|Members(members)| members)
}

fn list(json: &RawJson) -> Option<Vec<RawJson>> {
    serde_json::from_str(json.text()).ok()
}

/// The members of an object in the order they are written.
#[derive(Debug)]
pub(super) struct Members(pub(super) Vec<(String, RawJson)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain schema, and whether `null` is an answer.
    fn plain(schema: &str) -> Option<(String, bool)> {
        let whole = RawJson::parse(schema).unwrap();
        let made = PlainSchema::of(&whole, &Definitions::of(&whole))?;
        let kept = made.members.iter().filter(|(name, _)| !DEFINITIONS.contains(&name.as_str())).cloned();
        let made = PlainSchema { members: kept.collect(), ..made };
        Some((made.text(), made.is_nullable))
    }

    #[test]
    fn references_and_alternatives_are_made_plain() {
        for (schema, expected, is_nullable) in [
            (
                r##"{"$ref": "#/$defs/a~1b", "title": "T", "$defs": {"a/b": {"type": "string", "title": "S"}}}"##,
                r#"{"title": "T", "type": "string"}"#,
                false,
            ),
            (
                r##"{"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"type": "integer"}}}"##,
                r#"{"type": "integer"}"#,
                false,
            ),
            (
                r##"{"allOf": [{"$ref": "#/$defs/a"}], "default": 3, "$defs": {"a": {"type": "integer"}}}"##,
                r#"{"default": 3, "type": "integer"}"#,
                false,
            ),
            (
                r#"{"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": null}"#,
                r#"{"default": null, "type": "string", "format": "date"}"#,
                true,
            ),
            (r#"{"type": ["null", "number"]}"#, r#"{"type": "number"}"#, true),
            (
                r#"{"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}"#,
                r#"{"type": "string", "enum": ["a", "b"]}"#,
                false,
            ),
            (r#"{"anyOf": [{"const": 1}, {"type": "null"}]}"#, r#"{"enum": [1]}"#, true),
            (r#"{"const": "x", "title": "X"}"#, r#"{"title": "X", "enum": ["x"]}"#, false),
        ] {
            assert_eq!(plain(schema), Some((expected.to_owned(), is_nullable)), "{schema}");
        }
    }

    #[test]
    fn what_would_mean_something_else_is_not_made_plain() {
        for schema in [
            r##"{"$ref": "#/$defs/none"}"##,
            r##"{"$ref": "https://example.org/schema.json"}"##,
            r##"{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}"##,
            r##"{"$ref": "#/$defs/a", "properties": {}, "$defs": {"a": {"type": "object"}}}"##,
            r#"{"anyOf": [{"type": "string"}, {"type": "integer"}]}"#,
            r#"{"anyOf": [{"type": "null"}]}"#,
            r#"{"anyOf": []}"#,
            r#"{"allOf": [{"type": "string"}, {"minLength": 3}]}"#,
            r#"{"type": ["string", "integer", "null"]}"#,
        ] {
            assert_eq!(plain(schema), None, "{schema}");
        }
    }
}
