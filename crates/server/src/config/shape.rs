//! A file against the schema: unknown keys, missing keys, values of the wrong type.
//!
//! Every mistake is collected, and what is wrong is left out of the result, so that the rest can still be checked for
//! mistakes that only show between keys. What comes out fits the types of `file.rs`.

use serde_json::{Map, Number, Value as Json};

use super::file::Span;
use super::nearest::{advice, nearest};
use super::path::Path;
use super::problem::Problem;
use super::schema::{self, may_be, properties, resolve, words};
use super::source::Spot;
use super::tree::{Entry, Form, Node, Scalar, Value};

/// What of a file fits the schema, and everything that does not.
pub(super) fn shape(root: &Node) -> (Json, Vec<Problem>) {
    let mut shaper = Shaper { problems: Vec::new() };
    let here = ShapePosition { path: Path::top(), name: String::new(), at: root.at };
    let fits = shaper.value(root, schema::json(), &here);
    (fits.unwrap_or(Json::Object(Map::new())), shaper.problems)
}

/// Where we are.
struct ShapePosition {
    path: Path,
    /// The last two known keys of the path: how a message calls this place.
    name: String,
    /// Where its key stands.
    at: Spot,
}

impl ShapePosition {
    fn key(&self, key: &str, at: Spot) -> ShapePosition {
        let parent = self.name.rsplit('.').next().unwrap_or_default();
        let name = if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") };
        ShapePosition { path: self.path.key(key), name, at }
    }

    /// Below a name that somebody chose.
    fn named(&self, key: &str, at: Spot) -> ShapePosition {
        ShapePosition { path: self.path.key(key), name: String::new(), at }
    }

    fn item(&self, index: usize, at: Spot) -> ShapePosition {
        ShapePosition { path: self.path.item(index), name: self.name.clone(), at }
    }
}

struct Shaper {
    problems: Vec<Problem>,
}

impl Shaper {
    fn wrong(
        &mut self,
        here: &ShapePosition,
        at: Spot,
        what: String,
        help: impl Into<String>,
    ) -> Option<Json> {
        self.problems.push(Problem { at, path: here.path.clone(), what, help: help.into() });
        None
    }

    fn value(&mut self, node: &Node, schema: &Json, here: &ShapePosition) -> Option<Json> {
        let schema = resolve(schema);
        if *schema == Json::Bool(true) {
            return Some(as_it_is(node));
        }
        match &node.value {
            Value::Scalar(scalar) if scalar.form == Form::Unknown => None,
            Value::Map(entries) if may_be(schema, "object") => self.map(entries, schema, here),
            // A key with nothing behind it is a key with everything left out.
            Value::Nothing if may_be(schema, "object") => self.map(&[], schema, here),
            Value::List(items) if may_be(schema, "array") => Some(self.list(items, schema, here)),
            Value::Scalar(scalar) if !may_be(schema, "object") && !may_be(schema, "array") => {
                self.scalar(scalar, node.at, schema, here)
            }
            Value::Nothing | Value::Scalar(_) | Value::List(_) | Value::Map(_) => {
                let at = if matches!(node.value, Value::Scalar(_)) { node.at } else { here.at };
                let what = format!("{} must be {}, not {}", quoted(here), wanted(schema), found(&node.value));
                self.wrong(here, at, what, example(schema, here, &node.value))
            }
        }
    }

    fn map(&mut self, entries: &[Entry], schema: &Json, here: &ShapePosition) -> Option<Json> {
        let mut fits = Map::new();
        let known = properties(schema);
        for entry in entries {
            let below = match known {
                Some(_) => here.key(&entry.key, entry.key_at),
                None => here.named(&entry.key, entry.key_at),
            };
            let expected = match known {
                Some(known) => known.get(&entry.key),
                None => Some(&schema["additionalProperties"]),
            };
            match expected {
                None => self.unknown_key(entry, schema, here),
                // Below a chosen name even nothing is something: what it lacks is said.
                Some(_) if matches!(entry.node.value, Value::Nothing) && known.is_some() => {}
                Some(expected) => {
                    let value = self.value(&entry.node, expected, &below);
                    fits.extend(value.map(|value| (entry.key.clone(), value)));
                }
            }
        }
        let is_whole = self.nothing_missing(entries, schema, here, &fits);
        is_whole.then_some(Json::Object(fits))
    }

    fn unknown_key(&mut self, entry: &Entry, schema: &Json, here: &ShapePosition) {
        let place = if here.path.is_top() {
            "at the top of the file".to_owned()
        } else {
            format!("in `{}`", here.path)
        };
        let what = format!("unknown key `{}` {place}", entry.key);
        let known = || properties(schema).into_iter().flatten().map(|(name, _)| name.as_str());
        let help = match nearest(&entry.key, known()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => match schema::places_of(&entry.key).first() {
                Some(place) if place.is_empty() => format!("`{}` belongs at the top of the file", entry.key),
                Some(place) => format!("`{}` is a key of `{place}`", entry.key),
                None => advice(&entry.key, known().collect::<Vec<_>>()).unwrap_or_default(),
            },
        };
        let below = here.key(&entry.key, entry.key_at);
        self.wrong(&below, entry.key_at, what, help);
    }

    /// Whether every key that must be there is there and right; says which one is missing.
    fn nothing_missing(
        &mut self,
        entries: &[Entry],
        schema: &Json,
        here: &ShapePosition,
        fits: &Map<String, Json>,
    ) -> bool {
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut is_whole = true;
        for key in required.iter().filter_map(Json::as_str) {
            is_whole &= fits.contains_key(key);
            let is_given = |entry: &Entry| entry.key == key && !matches!(entry.node.value, Value::Nothing);
            // A key with nearly this name is a mistake that has been reported.
            let is_meant = |entry: &Entry| {
                let is_unknown = properties(schema).is_some_and(|known| !known.contains_key(&entry.key));
                is_unknown && nearest(&entry.key, [key]).is_some()
            };
            if !entries.iter().any(|entry| is_given(entry) || is_meant(entry)) {
                let about = properties(schema).and_then(|known| known.get(key));
                let help = format!("add `{key}: …` below it. {}", about.map(description).unwrap_or_default());
                let what = format!("`{}` has no `{key}`", shown(here));
                self.wrong(here, here.at, what, help.trim_end());
            }
        }
        is_whole
    }

    fn list(&mut self, items: &[Node], schema: &Json, here: &ShapePosition) -> Json {
        let items = items.iter().enumerate();
        Json::Array(
            items
                .filter_map(|(no, item)| self.value(item, &schema["items"], &here.item(no, item.at)))
                .collect(),
        )
    }

    fn scalar(&mut self, scalar: &Scalar, at: Spot, schema: &Json, here: &ShapePosition) -> Option<Json> {
        let written = &scalar.written;
        if let Some(words) = words(schema) {
            return if words.contains(&scalar.text.as_str()) {
                Some(Json::String(scalar.text.clone()))
            } else {
                let what = format!("invalid {}: {written} (must be {})", here.name, either(&words));
                let help = match nearest(&scalar.text, words.iter().copied()) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("write one of them, such as `{}`", words.first().unwrap_or(&"")),
                };
                self.wrong(here, at, what, help)
            };
        }
        if schema["format"] == Span::FORMAT {
            return match Span::parse(&scalar.text) {
                Some(_) => Some(Json::String(scalar.text.clone())),
                None => {
                    let what = format!("`{}` must be a duration, not `{written}`", shown(here));
                    self.wrong(
                        here,
                        at,
                        what,
                        "write seconds, such as 600, or a number with its unit: 30s, 10m, 24h, 7d",
                    )
                }
            };
        }
        if may_be(schema, "string") {
            return self.text(scalar, at, schema, here);
        }
        if scalar.form == Form::Quoted {
            let what = format!("`{}` must be {}, not text in quotes", shown(here), wanted(schema));
            return self.wrong(here, at, what, "remove the quotes");
        }
        if may_be(schema, "boolean") {
            self.truth(scalar, at, here)
        } else {
            self.number(scalar, at, schema, here)
        }
    }

    fn text(&mut self, scalar: &Scalar, at: Spot, schema: &Json, here: &ShapePosition) -> Option<Json> {
        let is_address = scalar.text.parse::<std::net::SocketAddr>().is_ok();
        if schema["format"] == "socket-address" && !is_address {
            let what = format!("`{}` must be an address and a port, not `{}`", shown(here), scalar.written);
            return self.wrong(here, at, what, "write for example 127.0.0.1:8080 or [::1]:8080");
        }
        Some(Json::String(scalar.text.clone()))
    }

    fn truth(&mut self, scalar: &Scalar, at: Spot, here: &ShapePosition) -> Option<Json> {
        match scalar.text.as_str() {
            "true" => Some(Json::Bool(true)),
            "false" => Some(Json::Bool(false)),
            _ => {
                let what = format!("`{}` must be true or false, not `{}`", shown(here), scalar.written);
                self.wrong(here, at, what, "write true or false")
            }
        }
    }

    fn number(&mut self, scalar: &Scalar, at: Spot, schema: &Json, here: &ShapePosition) -> Option<Json> {
        let number = if may_be(schema, "integer") {
            whole(&scalar.text, schema["format"].as_str()).map(Number::from)
        } else {
            scalar.text.parse().ok().and_then(Number::from_f64)
        };
        if number.is_none() {
            let what = format!("`{}` must be {}, not `{}`", shown(here), wanted(schema), scalar.written);
            let is_too_large =
                !scalar.text.is_empty() && scalar.text.bytes().all(|byte| byte.is_ascii_digit());
            let help = if is_too_large {
                "write a smaller number"
            } else {
                "write digits, without quotes and without a unit"
            };
            return self.wrong(here, at, what, help);
        }
        number.map(Json::Number)
    }
}

/// What may be anything: as YAML reads it, quotes make a text of whatever they are around.
fn as_it_is(node: &Node) -> Json {
    match &node.value {
        Value::Nothing => Json::Null,
        Value::List(items) => Json::Array(items.iter().map(as_it_is).collect()),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.clone(), as_it_is(&entry.node))).collect())
        }
        Value::Scalar(scalar) => match scalar.form {
            Form::Quoted | Form::Expanded | Form::Unknown => Json::String(scalar.text.clone()),
            Form::Plain => {
                let plain = serde_json::from_str(&scalar.text).ok();
                let is_plain = |value: &Json| value.is_boolean() || value.is_number();
                plain.filter(is_plain).unwrap_or_else(|| Json::String(scalar.text.clone()))
            }
        },
    }
}

/// A whole number that the type has room for.
fn whole(text: &str, format: Option<&str>) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (format != Some("uint32") || u32::try_from(number).is_ok()).then_some(number)
}

fn shown(here: &ShapePosition) -> String {
    if here.path.is_top() { "the file".into() } else { here.path.to_string() }
}

fn quoted(here: &ShapePosition) -> String {
    if here.path.is_top() { "the file".into() } else { format!("`{}`", here.path) }
}

fn wanted(schema: &Json) -> &'static str {
    let kinds = [
        ("object", "a mapping of keys to values"),
        ("array", "a list"),
        ("boolean", "true or false"),
        ("integer", "a whole number"),
        ("number", "a number"),
    ];
    kinds.into_iter().find(|(kind, _)| may_be(schema, kind)).map_or("text", |(_, words)| words)
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Nothing => "nothing",
        Value::Scalar(_) => "a single value",
        Value::List(_) => "a list",
        Value::Map(_) => "a mapping",
    }
}

/// How it would be right.
fn example(schema: &Json, here: &ShapePosition, value: &Value) -> String {
    let key = here.path.to_string();
    let key = key.rsplit('.').next().unwrap_or_default();
    if may_be(schema, "array") {
        return match value {
            Value::Scalar(scalar) => format!("write it as a list: `{key}: [{}]`", scalar.written),
            Value::Nothing | Value::List(_) | Value::Map(_) => {
                format!("write it as a list: `{key}: [one, two]`")
            }
        };
    }
    if here.path.is_top() {
        return "begin with a section at the left margin, such as `agents:`".into();
    }
    if may_be(schema, "object") {
        return match properties(schema).and_then(|known| known.keys().next()) {
            Some(first) => format!("write keys below it, such as `{first}: …`, indented by two spaces"),
            None => "write `NAME:` below it, and the keys of that entry below the name, indented".into(),
        };
    }
    "write one value after the colon".into()
}

/// `'a', 'b', or 'c'`.
fn either(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [one, other] => format!("{one} or {other}"),
        [first @ .., last] => format!("{}, or {last}", first.join(", ")),
    }
}

fn description(schema: &Json) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}
