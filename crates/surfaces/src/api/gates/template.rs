//! Bodies that a client writes beforehand: JSON whose texts name members of what they are filled with, in double braces. Pure.
//!
//! Everything but those texts stays byte for byte as the client wrote it, and what is filled in keeps its own bytes: a body is
//! always JSON, whatever the values say. Which names there are is the caller's to say; nothing here knows gates.

use serde_json::value::RawValue;

/// A part of a text.
enum Part<'a> {
    Words(&'a str),
    Name(&'a str),
}

/// The parts of a text; why not, where a brace has no end.
fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once("{{") {
        let Some((name, after)) = behind.split_once("}}") else {
            return Err(format!("{text:?} has {{{{ without }}}}"));
        };
        if !before.is_empty() {
            parts.push(Part::Words(before));
        }
        parts.push(Part::Name(name.trim()));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Words(rest));
    }
    Ok(parts)
}

/// The texts of a JSON value that are no names of members, each with its place.
fn texts(json: &str) -> Vec<(usize, usize, String)> {
    let bytes = json.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(from) = bytes.iter().skip(at).position(|byte| *byte == b'"').map(|no| at + no) {
        let mut end = from + 1;
        while let Some(byte) = bytes.get(end).filter(|byte| **byte != b'"') {
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        let end = (end + 1).min(bytes.len());
        at = end;
        let next = bytes.iter().skip(end).find(|byte| !byte.is_ascii_whitespace());
        if next == Some(&b':') {
            continue;
        }
        let text = json.get(from..end).and_then(|text| serde_json::from_str(text).ok());
        found.extend(text.map(|text| (from, end, text)));
    }
    found
}

/// Says what is wrong with a template that may use these names.
pub(super) fn check(template: &RawValue, names: &[&str]) -> Result<(), String> {
    for (_, _, text) in texts(template.get()) {
        for part in parts(&text)? {
            if let Part::Name(name) = part
                && !names.contains(&name)
            {
                return Err(format!("there is no {{{{{name}}}}}; there are {}", names.join(", ")));
            }
        }
    }
    Ok(())
}

/// A template with its names filled in. What has no value is `null` by itself, and nothing within other words.
pub(super) fn filled(template: &str, value: impl Fn(&str) -> Option<Box<RawValue>>) -> String {
    let (mut out, mut at) = (String::new(), 0);
    for (from, end, text) in texts(template) {
        let parts = parts(&text).unwrap_or_default();
        let filled = match parts.as_slice() {
            [Part::Name(name)] => {
                value(name).map_or_else(|| "null".to_owned(), |value| value.get().to_owned())
            }
            parts if parts.iter().any(|part| matches!(part, Part::Name(_))) => {
                let words = parts.iter().map(|part| match part {
                    Part::Words(words) => (*words).to_owned(),
                    Part::Name(name) => value(name).map(|value| as_words(&value)).unwrap_or_default(),
                });
                serde_json::Value::from(words.collect::<String>()).to_string()
            }
            _ => continue,
        };
        out.push_str(template.get(at..from).unwrap_or_default());
        out.push_str(&filled);
        at = end;
    }
    out.push_str(template.get(at..).unwrap_or_default());
    out
}

/// A value within words: a text is itself, nothing is nothing.
fn as_words(value: &RawValue) -> String {
    match value.get() {
        "null" => String::new(),
        json => serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn value(name: &str) -> Option<Box<RawValue>> {
        match name {
            "state" => Some(raw("\"den\\u0069ed\"")),
            "n" => Some(raw("9007199254740993.10")),
            "body" => Some(raw(r#"{"a": [1.0, "x"]}"#)),
            "nothing" => Some(raw("null")),
            _ => None,
        }
    }

    #[test]
    fn names_become_values_and_everything_else_stays() {
        for (template, expected) in [
            (r#"{"input": ["{{body}}"]}"#, r#"{"input": [{"a": [1.0, "x"]}]}"#),
            (r#""{{ n }}""#, "9007199254740993.10"),
            (
                r#"{"n":1.50e3,  "text":"is {{state}}: {{n}}{{nothing}}{{absent}}."}"#,
                r#"{"n":1.50e3,  "text":"is denied: 9007199254740993.10."}"#,
            ),
            (r#"["{{nothing}}", "{{absent}}"]"#, "[null, null]"),
            (r#"{"{{state}}": "\"{{state}}\\"}"#, r#"{"{{state}}": "\"denied\\"}"#),
            (r#"{"a":"} {{ not"}"#, r#"{"a":"} {{ not"}"#),
        ] {
            assert_eq!(filled(template, value), expected, "{template}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let names = ["state", "n"];
        assert_eq!(check(&raw(r#"{"a": "{{state}} {{n}}", "{{key}}": 1}"#), &names), Ok(()));
        let unknown = check(&raw(r#"["{{stat}}"]"#), &names).unwrap_err();
        assert_eq!(unknown, "there is no {{stat}}; there are state, n");
        assert!(check(&raw(r#""{{state""#), &names).unwrap_err().contains("without }}"));
    }

    /// Whatever a value says, the body is JSON with exactly that value in it.
    #[test]
    fn a_value_cannot_leave_its_place() {
        for said in
            ["", "\"", "\\", "\\\"", "\"}, {\"a\": \"", "{{it}}", "}}", "{{", "\u{0}\u{2028}\n", "é\u{1f600}"]
        {
            let template = json!({"a": "{{it}}", "b": ["x {{it}}"], "c": "\\\"{{it}}\""}).to_string();
            let it = Value::from(said).to_string();
            let body: Value = serde_json::from_str(&filled(&template, |_| Some(raw(&it)))).unwrap();
            assert_eq!(body, json!({"a": said, "b": [format!("x {said}")], "c": format!("\\\"{said}\"")}));
        }
    }
}
