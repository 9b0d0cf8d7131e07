//! Answer schemas that are flat become a form: strings, numbers, booleans and choices, in the order they are written.
//!
//! Anything else is answered as JSON in a text box. The form only helps: what was entered is put together as JSON text
//! and the engine checks it against the whole schema.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use standfast_core::json::RawJson;

use crate::html::PostedForm;

/// Keywords that make a schema more than a list of fields.
const NOT_FLAT: [&str; 10] = [
    "$ref",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "if",
    "patternProperties",
    "dependentSchemas",
    "dependentRequired",
    "propertyNames",
];

/// A flat schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flat {
    /// The answer is one value.
    One(Field),
    /// The answer is an object of them.
    Object(Vec<Field>),
}

/// One field of a form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Field {
    /// What it is called in the answer.
    pub(super) name: String,
    /// What it is called in the form.
    pub(super) input: String,
    pub(super) label: String,
    pub(super) description: Option<String>,
    pub(super) is_required: bool,
    pub(super) kind: Kind,
    /// What browsers make of it: text, date, email, url.
    pub(super) input_type: &'static str,
    /// The values of a choice, as JSON and as shown.
    #[serde(skip)]
    choices: Vec<RawJson>,
    pub(super) shown_choices: Vec<String>,
    /// What stands in it.
    pub(super) value: String,
    /// What is wrong with it.
    pub(super) problem: Option<String>,
}

/// What a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Text,
    Number,
    Integer,
    Boolean,
    Choice,
}

impl Flat {
    /// The fields of a schema; none when it is not flat.
    pub(super) fn read(schema: &RawJson) -> Option<Flat> {
        #[derive(Deserialize)]
        struct Object {
            #[serde(rename = "type")]
            kind: Option<String>,
            properties: Option<Members>,
            #[serde(default)]
            required: Vec<String>,
        }
        let Members(members) = serde_json::from_str(schema.text()).ok()?;
        if members.iter().any(|(name, _)| NOT_FLAT.contains(&name.as_str())) {
            return None;
        }
        let Ok(object) = serde_json::from_str::<Object>(schema.text()) else { return None };
        let Some(Members(properties)) = object.properties else {
            return field(0, "", schema, FieldNeed::Yes).map(Flat::One);
        };
        let is_object = object.kind.as_deref().is_none_or(|kind| kind == "object");
        let is_known = |name: &String| properties.iter().any(|(known, _)| known == name);
        if !is_object || properties.is_empty() || !object.required.iter().all(is_known) {
            return None;
        }
        let read = |(at, (name, schema)): (usize, &(String, RawJson))| {
            let needed = if object.required.contains(name) { FieldNeed::Yes } else { FieldNeed::No };
            field(at, name, schema, needed)
        };
        properties.iter().enumerate().map(read).collect::<Option<Vec<Field>>>().map(Flat::Object)
    }

    pub(super) fn fields_mut(&mut self) -> &mut [Field] {
        match self {
            Flat::One(field) => std::slice::from_mut(field),
            Flat::Object(fields) => fields,
        }
    }

    pub(super) fn into_fields(self) -> Vec<Field> {
        match self {
            Flat::One(field) => vec![field],
            Flat::Object(fields) => fields,
        }
    }

    /// What was entered stands in the fields again.
    pub(super) fn keep(&mut self, posted: &PostedForm) {
        for field in self.fields_mut() {
            field.value = posted.get(&field.input).unwrap_or_default();
        }
    }

    /// The answer as JSON text; none when nothing was entered for a single value.
    pub(super) fn answer(&self, posted: &PostedForm) -> Option<RawJson> {
        match self {
            Flat::One(field) => field.entered(posted),
            Flat::Object(fields) => {
                let members = fields.iter().filter_map(|field| {
                    let value = field.entered(posted)?;
                    Some(format!("{}: {}", RawJson::string(&field.name).text(), value.text()))
                });
                RawJson::parse(&format!("{{{}}}", members.collect::<Vec<_>>().join(", "))).ok()
            }
        }
    }
}

impl Field {
    /// What was entered, as JSON; none when nothing was. What is no number stays a text, for the schema to refuse.
    fn entered(&self, posted: &PostedForm) -> Option<RawJson> {
        let entered = posted.get(&self.input)?;
        match self.kind {
            Kind::Text if entered.is_empty() && !self.is_required => None,
            Kind::Text => Some(RawJson::string(&entered)),
            Kind::Number | Kind::Integer => match entered.trim() {
                "" => None,
                text => {
                    let number = RawJson::parse(text).ok().filter(is_number);
                    Some(number.unwrap_or_else(|| RawJson::string(text)))
                }
            },
            Kind::Boolean => {
                RawJson::parse(&entered).ok().filter(|json| matches!(json.text(), "true" | "false"))
            }
            Kind::Choice => self.choices.get(entered.parse::<usize>().ok()?).cloned(),
        }
    }
}

/// Whether an answer must have a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldNeed {
    Yes,
    No,
}

fn field(at: usize, name: &str, schema: &RawJson, needed: FieldNeed) -> Option<Field> {
    #[derive(Deserialize)]
    struct Scalar {
        #[serde(rename = "type")]
        kind: Option<String>,
        title: Option<String>,
        description: Option<String>,
        format: Option<String>,
        default: Option<RawJson>,
        #[serde(rename = "enum")]
        choices: Option<Vec<RawJson>>,
    }
    let Members(members) = serde_json::from_str(schema.text()).ok()?;
    if members.iter().any(|(name, _)| NOT_FLAT.contains(&name.as_str())) {
        return None;
    }
    let scalar: Scalar = serde_json::from_str(schema.text()).ok()?;
    let kind = match (&scalar.choices, scalar.kind.as_deref()) {
        (Some(choices), _) if choices.iter().all(|choice| !choice.text().starts_with(['{', '['])) => {
            Kind::Choice
        }
        (None, Some("string")) => Kind::Text,
        (None, Some("number")) => Kind::Number,
        (None, Some("integer")) => Kind::Integer,
        (None, Some("boolean")) => Kind::Boolean,
        (Some(_), _) | (None, Some(_)) | (None, None) => return None,
    };
    let choices = scalar.choices.unwrap_or_default();
    let value = match (&scalar.default, kind) {
        (Some(default), Kind::Choice) => {
            choices.iter().position(|choice| choice == default).map(|at| at.to_string()).unwrap_or_default()
        }
        (Some(default), Kind::Text | Kind::Number | Kind::Integer | Kind::Boolean) => shown(default),
        (None, _) => String::new(),
    };
    Some(Field {
        name: name.to_owned(),
        input: format!("field-{at}"),
        label: scalar
            .title
            .unwrap_or_else(|| if name.is_empty() { "Answer".into() } else { name.to_owned() }),
        description: scalar.description,
        is_required: needed == FieldNeed::Yes,
        kind,
        input_type: match scalar.format.as_deref() {
            Some("date") => "date",
            Some("email") => "email",
            Some("uri") => "url",
            Some(_) | None => "text",
        },
        shown_choices: choices.iter().map(shown).collect(),
        choices,
        value,
        problem: None,
    })
}

/// A string without its quotes; anything else as it is written.
fn shown(json: &RawJson) -> String {
    serde_json::from_str::<String>(json.text()).unwrap_or_else(|_| json.text().to_owned())
}

fn is_number(json: &RawJson) -> bool {
    json.text().starts_with(|c: char| c.is_ascii_digit() || c == '-')
}

/// The members of an object in the order they are written.
struct Members(Vec<(String, RawJson)>);

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

    fn read(schema: &str) -> Option<Flat> {
        Flat::read(&RawJson::parse(schema).unwrap())
    }

    const EXPENSE: &str = r#"{"type": "object", "required": ["amount", "paid"], "properties": {
        "amount": {"type": "number", "title": "Amount"},
        "currency": {"enum": ["EUR", "CHF", 3], "default": "CHF"},
        "paid": {"type": "boolean"},
        "count": {"type": "integer", "default": 9007199254740993},
        "note": {"type": "string", "description": "for the books"}}}"#;

    fn answered(entered: &[(&str, &str)]) -> String {
        let posted = entered.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let posted = PostedForm::of(posted.collect());
        read(EXPENSE).unwrap().answer(&posted).unwrap().text().to_owned()
    }

    /// S4-17: a form from the expected schema, in its order.
    #[test]
    fn a_flat_schema_becomes_fields_in_its_order() {
        let fields = read(EXPENSE).unwrap().into_fields();
        let told: Vec<_> = fields
            .iter()
            .map(|field| (field.label.as_str(), field.kind, field.is_required, field.value.as_str()))
            .collect();
        let expected = [
            ("Amount", Kind::Number, true, ""),
            ("currency", Kind::Choice, false, "1"),
            ("paid", Kind::Boolean, true, ""),
            ("count", Kind::Integer, false, "9007199254740993"),
            ("note", Kind::Text, false, ""),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_was_entered_becomes_json_with_its_own_spelling() {
        let all = [
            ("field-0", "12.50"),
            ("field-1", "2"),
            ("field-2", "true"),
            ("field-3", "9007199254740993"),
            ("field-4", "a \"b\"\r\nc"),
        ];
        assert_eq!(
            answered(&all),
            r#"{"amount": 12.50, "currency": 3, "paid": true, "count": 9007199254740993, "note": "a \"b\"\nc"}"#
        );
        assert_eq!(answered(&[("field-0", ""), ("field-1", ""), ("field-4", "")]), "{}");
        assert_eq!(answered(&[("field-0", "twelve"), ("field-2", "maybe")]), r#"{"amount": "twelve"}"#);
    }

    #[test]
    fn one_value_needs_no_object() {
        let flat = read(r#"{"type": "integer"}"#).unwrap();
        let posted = PostedForm::of(vec![("field-0".into(), " 7 ".into())]);
        assert_eq!(flat.answer(&posted).unwrap().text(), "7");
        assert_eq!(flat.answer(&PostedForm::default()), None);
    }

    #[test]
    fn what_is_not_flat_is_not_read() {
        for schema in [
            r#"{"type": "array", "items": {"type": "string"}}"#,
            r#"{"type": "object"}"#,
            r#"{"type": "object", "properties": {}}"#,
            r#"{"properties": {"a": {"type": "object"}}}"#,
            r#"{"properties": {"a": {"type": ["string", "null"]}}}"#,
            r##"{"properties": {"a": {"type": "string", "$ref": "#/x"}}}"##,
            r#"{"properties": {"a": {"type": "string"}}, "required": ["b"]}"#,
            r#"{"properties": {"a": {"type": "string"}}, "anyOf": []}"#,
            r#"{"properties": {"a": {"enum": [{}]}}}"#,
            r#"{"properties": {"a": true}}"#,
            "{}",
        ] {
            assert_eq!(read(schema), None, "{schema}");
        }
    }
}
