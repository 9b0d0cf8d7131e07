//! Schemas that become forms, and answers that become JSON.
//!
//! Forms are written as browsers send them; what a schema means otherwise is the engine's to check.

use super::*;

fn read(schema: &str) -> Option<AnswerForm> {
    AnswerForm::read(&RawJson::parse(schema).unwrap())
}

const EXPENSE: &str = r#"{"type": "object", "required": ["amount", "paid"], "properties": {
    "amount": {"type": "number", "title": "Amount"},
    "currency": {"enum": ["EUR", "CHF", 3], "default": "CHF"},
    "paid": {"type": "boolean"},
    "count": {"type": "integer", "default": 9007199254740993},
    "note": {"type": "string", "description": "for the books"}}}"#;

const ORDER: &str = r#"{"type": "object", "required": ["address", "items"], "properties": {
    "address": {"type": "object", "required": ["zip"], "properties": {
        "zip": {"type": "string"}, "gate": {"type": "object", "properties": {"code": {"type": "integer"}}}}},
    "items": {"type": "array", "items": {"type": "object", "required": ["sku"], "properties": {
        "sku": {"type": "string"}, "n": {"type": "integer", "default": 1}}}},
    "tags": {"type": "array", "items": {"type": "string"}, "default": ["a", "b"]},
    "days": {"type": "array", "items": {"enum": ["mon", "tue", "wed"]}, "default": ["tue"]}}}"#;

fn form(entered: &[(&str, &str)]) -> PostedForm {
    let posted = entered.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    PostedForm::of(posted.collect())
}

fn answered(schema: &str, entered: &[(&str, &str)]) -> String {
    read(schema).unwrap().answer(&form(entered)).unwrap().text().to_owned()
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
        answered(EXPENSE, &all),
        r#"{"amount": 12.50, "currency": 3, "paid": true, "count": 9007199254740993, "note": "a \"b\"\nc"}"#
    );
    assert_eq!(answered(EXPENSE, &[("field-0", ""), ("field-1", ""), ("field-4", "")]), "{}");
    let odd = [("field-0", "twelve"), ("field-2", "maybe")];
    assert_eq!(answered(EXPENSE, &odd), r#"{"amount": "twelve"}"#);
}

/// S4-17: objects within objects, lists of objects, of texts and of choices.
#[test]
fn nested_schemas_become_nested_forms() {
    let fields = read(ORDER).unwrap().into_fields();
    let kinds: Vec<Kind> = fields.iter().map(|field| field.kind).collect();
    assert_eq!(kinds, [Kind::Object, Kind::List, Kind::Lines, Kind::Several]);
    assert_eq!(fields[0].fields[1].fields[0].input, "field-0-1-0");
    assert_eq!(fields[1].fields[0].fields[1].value, "1");
    assert_eq!((fields[2].value.as_str(), fields[3].taken.as_slice()), ("a\nb", &["1".to_owned()][..]));
    let all = [
        ("field-0-0", "8001"),
        ("field-0-1-0", ""),
        ("field-1-count", "3"),
        ("field-1-0-0", "A"),
        ("field-1-0-1", "2"),
        ("field-1-1-0", ""),
        ("field-1-1-1", "1"),
        ("field-1-2-0", "C"),
        ("field-2", "x\r\n\r\n y "),
        ("field-3", "0"),
        ("field-3", "2"),
    ];
    assert_eq!(
        answered(ORDER, &all),
        r#"{"address": {"zip": "8001"}, "items": [{"sku": "A", "n": 2}, {"sku": "C"}], "tags": ["x", "y"], "days": ["mon", "wed"]}"#
    );
}

#[test]
fn a_list_grows_when_asked_and_keeps_what_was_entered() {
    let mut order = read(ORDER).unwrap();
    let posted = form(&[("decision", "more:field-1"), ("field-1-count", "2"), ("field-1-1-0", "B")]);
    order.keep(&posted);
    let entries = &order.into_fields()[1].fields;
    assert_eq!((entries.len(), entries[1].fields[0].value.as_str()), (3, "B"));
}

#[test]
fn a_mistake_is_told_at_its_field() {
    let posted = form(&[
        ("field-0-0", "1"),
        ("field-1-count", "3"),
        ("field-1-0-0", "A"),
        ("field-1-2-0", "C"),
        ("field-1-2-1", "x"),
    ]);
    let blamed = |pointer: &str, text: &str| {
        let mut order = read(ORDER).unwrap();
        order.keep(&posted);
        order.blame(&posted, pointer, text);
        fn found(fields: &[Field]) -> Vec<String> {
            let own = fields.iter().filter(|field| field.problem.is_some()).map(|field| field.input.clone());
            own.chain(fields.iter().flat_map(|field| found(&field.fields))).collect()
        }
        found(&order.into_fields())
    };
    assert_eq!(blamed("/address/zip", "too short"), ["field-0-0"]);
    assert_eq!(blamed("/items/1/n", "not an integer"), ["field-1-2-1"]);
    assert_eq!(blamed("/address", "\"zip\" is a required property"), ["field-0-0"]);
    assert_eq!(blamed("/tags/3", "too long"), ["field-2"]);
    // Where it is and what follows stands above the form.
    let mut order = read(ORDER).unwrap();
    order.blame(&posted, "/tags/3", "At /tags/3: too long. Nothing was decided.");
    assert_eq!(order.into_fields()[2].problem.as_deref(), Some("too long."));
}

/// As Pydantic and zod write them: references, optional values, titled choices.
#[test]
fn references_and_optional_values_become_fields() {
    const PERSON: &str = r##"{"type": "object", "required": ["who", "born", "meal"], "properties": {
        "who": {"$ref": "#/$defs/Name", "title": "Who"},
        "born": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "title": "Born"},
        "meal": {"oneOf": [{"const": "v", "title": "Vegetarian"}, {"const": "m"}]},
        "age": {"type": ["integer", "null"], "default": null}},
        "$defs": {"Name": {"type": "object", "required": ["first"], "properties": {"first": {"type": "string"}}}}}"##;
    let fields = read(PERSON).unwrap().into_fields();
    let told: Vec<_> =
        fields.iter().map(|field| (field.label.as_str(), field.kind, field.is_required)).collect();
    let expected = [
        ("Who", Kind::Object, true),
        ("Born", Kind::Text, false),
        ("meal", Kind::Choice, true),
        ("age", Kind::Integer, false),
    ];
    assert_eq!(told, expected);
    assert_eq!(fields[2].shown_choices, ["Vegetarian", "m"]);
    assert_eq!((fields[1].hint.is_some(), fields[3].value.as_str()), (true, ""));
    let first = ("field-0-0", "Ann");
    assert_eq!(
        answered(PERSON, &[first, ("field-1", ""), ("field-2", "0"), ("field-3", "")]),
        r#"{"who": {"first": "Ann"}, "born": null, "meal": "v"}"#
    );
    assert_eq!(
        answered(PERSON, &[first, ("field-1", "2026-11-20T09:30:00Z"), ("field-2", "1"), ("field-3", "7")]),
        r#"{"who": {"first": "Ann"}, "born": "2026-11-20T09:30:00Z", "meal": "m", "age": 7}"#
    );
}

#[test]
fn one_value_needs_no_object() {
    let one = read(r#"{"type": "integer"}"#).unwrap();
    assert_eq!(one.answer(&form(&[("field-0", " 7 ")])).unwrap().text(), "7");
    assert_eq!(one.answer(&PostedForm::default()), None);
    let lines = read(r#"{"type": "array", "items": {"type": "string"}}"#).unwrap();
    assert_eq!(lines.answer(&form(&[("field-0", "a\nb")])).unwrap().text(), r#"["a", "b"]"#);
}

#[test]
fn what_is_more_than_fields_is_not_read() {
    let deep = (0..8).fold(r#"{"type": "string"}"#.to_owned(), |below, _| {
        format!(r#"{{"type": "object", "properties": {{"a": {below}}}}}"#)
    });
    for schema in [
        deep.as_str(),
        r#"{"type": "array", "items": {"type": "array", "items": {"type": "string"}}}"#,
        r#"{"type": "object"}"#,
        r#"{"type": "object", "properties": {}}"#,
        r#"{"properties": {"a": {"type": "object"}}}"#,
        r#"{"properties": {"a": {"type": ["string", "integer"]}}}"#,
        r##"{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}}}"##,
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
