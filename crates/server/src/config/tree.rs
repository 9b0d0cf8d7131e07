//! YAML as a tree in which every key and every value knows its place.
//!
//! serde-saphyr reads it: aliases, merge keys and its budget against hostile files included. Scalars stay text here;
//! what they should be is known to the schema (`shape.rs`). Only broken YAML stops the reading, everything else is
//! collected.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned};

use super::path::Path;
use super::problem::Problem;
use super::source::Spot;

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: Spot,
    pub(super) value: Value,
}

/// What stands there.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Nothing,
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: Spot,
    pub(super) node: Node,
}

/// A text, a number or a truth value, as text.
#[derive(Debug, Clone)]
pub(super) struct Scalar {
    /// What it says, with variables filled in.
    pub(super) text: String,
    /// What stands in the file; errors say this, never the value of a variable.
    pub(super) written: String,
    pub(super) form: Form,
}

/// How a scalar came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Quoted,
    /// It contains a variable, so quotes say nothing about its type.
    Expanded,
    /// It contains a variable that is not set, and that was allowed: nothing is known about it.
    Unknown,
}

/// Reads a file. Keys that are given twice are problems of their own; broken YAML is the only one.
pub(super) fn parse(text: &str) -> Result<(Node, Vec<Problem>), Problem> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        // Both come to us, so that this is one problem among others.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
    };
    let raw: Option<Spanned<Raw>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| broken(&error))?;
    let mut problems = Vec::new();
    let node = match raw {
        Some(raw) => node(raw, text, &Path::top(), &mut problems),
        None => Node { at: Spot::START, value: Value::Nothing },
    };
    Ok((node, problems))
}

fn broken(error: &serde_saphyr::Error) -> Problem {
    let at = error.location().map_or(Spot::START, spot);
    // Where it is, is shown in our own way.
    let message = error.without_snippet().to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    if message.starts_with("multiple YAML documents") {
        let what = "the file has more than one YAML document".to_owned();
        let help = "remove the line `---` and what follows it, or put it into a file of its own".to_owned();
        return Problem { at, path: Path::top(), what, help };
    }
    let help = "YAML is read by its indentation: spaces, not tabs; a colon and a space after each key; quotes around \
                text with `: ` or ` #` in it";
    Problem { at, path: Path::top(), what: format!("this is not YAML: {message}"), help: help.into() }
}

fn spot(location: Location) -> Spot {
    let size = |n: u64| usize::try_from(n).unwrap_or(1).max(1);
    Spot { line: size(location.line()), column: size(location.column()), width: size(location.span().len()) }
}

fn node(raw: Spanned<Raw>, text: &str, path: &Path, problems: &mut Vec<Problem>) -> Node {
    let at = spot(raw.referenced);
    let value = match raw.value {
        Raw::Nothing => Value::Nothing,
        Raw::Plain(value) => {
            let written = slice(text, raw.defined).unwrap_or(&value).to_owned();
            Value::Scalar(Scalar { text: written.clone(), written, form: Form::Plain })
        }
        Raw::Text(value) => {
            let is_quoted =
                slice(text, raw.defined).is_some_and(|source| source.starts_with(['"', '\'', '|', '>']));
            let form = if is_quoted { Form::Quoted } else { Form::Plain };
            Value::Scalar(Scalar { text: value.clone(), written: value, form })
        }
        Raw::List(items) => {
            let items = items.into_iter().enumerate();
            Value::List(items.map(|(no, item)| node(item, text, &path.item(no), problems)).collect())
        }
        Raw::Map(entries) => Value::Map(map(entries, text, path, problems)),
    };
    Node { at, value }
}

fn map(
    raw: Vec<(Spanned<String>, Spanned<Raw>)>,
    text: &str,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (key, value) in raw {
        let (key_at, key) = (spot(key.referenced), key.value);
        let below = path.key(&key);
        let value = node(value, text, &below, problems);
        if let Some(first) = entries.iter().find(|entry| entry.key == key) {
            let what = format!("`{below}` is given twice; it was first given on line {}", first.key_at.line);
            let help = "keep one of the two".to_owned();
            problems.push(Problem { at: key_at, path: below, what, help });
        } else {
            entries.push(Entry { key, key_at, node: value });
        }
    }
    entries
}

fn slice(text: &str, location: Location) -> Option<&str> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
    text.get(start..end)
}

impl Node {
    /// The value at a path.
    pub(super) fn find(&self, path: &Path) -> Option<&Node> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        let below = match (&self.value, first) {
            (Value::Map(entries), Ok(key)) => &entries.iter().find(|entry| entry.key == key)?.node,
            (Value::List(items), Err(index)) => items.get(index)?,
            (Value::Nothing | Value::Scalar(_) | Value::List(_) | Value::Map(_), _) => return None,
        };
        below.find(&rest)
    }

    /// The keys at a path, in their order.
    pub(super) fn keys(&self, path: &Path) -> Vec<&str> {
        self.entries(path).iter().map(|entry| entry.key.as_str()).collect()
    }

    /// The entries at a path.
    pub(super) fn entries(&self, path: &Path) -> &[Entry] {
        match self.find(path).map(|node| &node.value) {
            Some(Value::Map(entries)) => entries,
            Some(Value::Nothing | Value::Scalar(_) | Value::List(_)) | None => &[],
        }
    }

    /// Where the value at a path stands: a scalar itself, the key of anything larger, and for what is missing the
    /// nearest key above it.
    pub(super) fn spot(&self, path: &Path) -> Spot {
        let (mut node, mut at, mut rest) = (self, self.at, path.clone());
        while let Some((first, below)) = rest.split_first() {
            let next = match (&node.value, first) {
                (Value::Map(entries), Ok(key)) => {
                    entries.iter().find(|entry| entry.key == key).map(|entry| (entry.key_at, &entry.node))
                }
                (Value::List(items), Err(index)) => items.get(index).map(|item| (item.at, item)),
                (Value::Nothing | Value::Scalar(_) | Value::List(_) | Value::Map(_), _) => None,
            };
            let Some((spot, found)) = next else { return at };
            (node, at, rest) = (found, spot, below);
        }
        match node.value {
            Value::Scalar(_) => node.at,
            Value::Nothing | Value::List(_) | Value::Map(_) => at,
        }
    }
}

/// What serde-saphyr hands over.
#[derive(Debug)]
enum Raw {
    Nothing,
    /// Something that YAML would not take for text; how it was written is in the source.
    Plain(String),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_none<E: Error>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}
