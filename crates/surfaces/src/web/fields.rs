//! Answer schemas become forms: texts, numbers, booleans, choices and dates, objects of them, and lists of any of these, in
//! the order they are written. References and alternatives are made plain before (`plain_schema.rs`).
//!
//! Anything else is answered as JSON in a text box. The form only helps: what was entered is put together as JSON text
//! and the engine checks it against the whole schema; what is wrong is shown at its field.

use serde::{Deserialize, Serialize};
use standfast_core::json::RawJson;

pub(super) use super::plain_schema::Members;
use super::plain_schema::{Definitions, PlainSchema};
use crate::html::PostedForm;

/// Keywords that make a schema more than fields.
const NOT_A_FORM: [&str; 7] = [
    "$dynamicRef",
    "not",
    "if",
    "patternProperties",
    "dependentSchemas",
    "dependentRequired",
    "propertyNames",
];

/// Objects within objects.
const DEPTH_MAX: usize = 4;
/// Fields of a form.
const FIELDS_MAX: usize = 100;
/// Entries of a list that a form has room for.
const ENTRIES_MAX: usize = 50;

/// A schema as a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AnswerForm {
    /// The whole answer; an object's members are shown without a frame of their own.
    root: Field,
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
    /// Whether a browser insists on it: not within something that may be left out.
    pub(super) must_fill: bool,
    /// How many entries a list must have.
    pub(super) at_least: usize,
    pub(super) kind: Kind,
    /// What browsers make of it: text, date, email, url.
    pub(super) input_type: &'static str,
    /// How it is written, where that is not plain.
    pub(super) hint: Option<&'static str>,
    /// It must be there, and is `null` where nothing is entered.
    #[serde(skip)]
    is_null_when_empty: bool,
    /// The values of a choice, as JSON and as shown.
    #[serde(skip)]
    choices: Vec<RawJson>,
    pub(super) shown_choices: Vec<String>,
    /// What stands in it.
    pub(super) value: String,
    /// What stood in it at first.
    #[serde(skip)]
    initial: String,
    /// Which choices are taken, where there may be several.
    pub(super) taken: Vec<String>,
    /// The members of an object; the entries of a list.
    pub(super) fields: Vec<Field>,
    /// What an entry of a list is.
    #[serde(skip)]
    entry: Option<Box<Field>>,
    /// Where its value stands in the answer that was tried.
    #[serde(skip)]
    pointer: String,
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
    /// Members of its own.
    Object,
    /// A list of simple values, one in a line.
    Lines,
    /// A list of choices.
    Several,
    /// A list of objects.
    List,
}

impl AnswerForm {
    /// The form of a schema; none when it is more than fields.
    pub(super) fn read(schema: &RawJson) -> Option<AnswerForm> {
        let mut reader = Reader { definitions: Definitions::of(schema), count: 0 };
        let root = reader.field("field", "", schema, FieldNeed::Yes, 0)?;
        // Whoever sends nothing at all has not answered.
        let root = Field { is_null_when_empty: false, ..root };
        let is_empty = root.kind == Kind::Object && root.fields.is_empty();
        (!is_empty).then_some(AnswerForm { root })
    }

    pub(super) fn into_fields(self) -> Vec<Field> {
        match self.root.kind {
            Kind::Object => self.root.fields,
            Kind::Text
            | Kind::Number
            | Kind::Integer
            | Kind::Boolean
            | Kind::Choice
            | Kind::Lines
            | Kind::Several
            | Kind::List => vec![self.root],
        }
    }

    /// What was entered stands in the fields again.
    pub(super) fn keep(&mut self, posted: &PostedForm) {
        self.root.keep(posted);
    }

    /// Says what is wrong at the field that it is wrong with; at the nearest one above where that has no field.
    pub(super) fn blame(&mut self, posted: &PostedForm, pointer: &str, text: &str) {
        self.root.place(posted, "");
        if let Some(field) = self.root.nearest(pointer, text) {
            // Where it is and that nothing was decided stands above.
            let own = text.strip_prefix(&format!("At {pointer}: ")).unwrap_or(text);
            field.problem = Some(own.strip_suffix(" Nothing was decided.").unwrap_or(own).to_owned());
        }
    }

    /// The answer as JSON text; none when nothing was entered for a single value.
    pub(super) fn answer(&self, posted: &PostedForm) -> Option<RawJson> {
        self.root.entered(posted)
    }
}

impl Field {
    fn keep(&mut self, posted: &PostedForm) {
        if self.kind == Kind::List {
            let wanted = posted.get(&format!("{}-count", self.input)).and_then(|text| text.parse().ok());
            let more = usize::from(posted.get("decision") == Some(format!("more:{}", self.input)));
            let count = wanted.unwrap_or(self.fields.len()).saturating_add(more);
            self.resize(count);
        }
        self.value = posted.get(&self.input).unwrap_or_default();
        self.taken = posted.all(&self.input);
        self.fields.iter_mut().for_each(|field| field.keep(posted));
    }

    /// Room for so many entries.
    fn resize(&mut self, count: usize) {
        let Some(entry) = &self.entry else { return };
        let named = |at: usize| renamed(entry, &format!("{}-{at}", self.input));
        self.fields = (0..count.clamp(1, ENTRIES_MAX)).map(named).collect();
    }

    /// The entries of a list as they were posted.
    fn entries(&self, posted: &PostedForm) -> Vec<Field> {
        let mut list = self.clone();
        list.keep(posted);
        list.fields
    }

    /// What was entered, as JSON; none when nothing was. What is not a number stays a text, for the schema to refuse.
    fn entered(&self, posted: &PostedForm) -> Option<RawJson> {
        if self.is_null_when_empty && self.is_empty(posted) {
            return RawJson::parse("null").ok();
        }
        match self.kind {
            Kind::Object => {
                if !self.is_required && self.is_blank(posted) {
                    return None;
                }
                let members = self.fields.iter().filter_map(|field| {
                    let value = field.entered(posted)?;
                    Some(format!("{}: {}", RawJson::string(&field.name).text(), value.text()))
                });
                RawJson::parse(&format!("{{{}}}", members.collect::<Vec<_>>().join(", "))).ok()
            }
            Kind::List => {
                let entries = self.entries(posted);
                let entered = entries.iter().filter(|entry| !entry.is_blank(posted));
                self.list(entered.filter_map(|entry| entry.entered(posted)).collect())
            }
            Kind::Lines => {
                let text = posted.get(&self.input)?;
                let kind = self.entry.as_ref().map_or(Kind::Text, |entry| entry.kind);
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                self.list(lines.map(|line| scalar(kind, line)).collect())
            }
            Kind::Several => {
                let taken = posted.all(&self.input);
                let value = |at: &String| self.choices.get(at.parse::<usize>().ok()?).cloned();
                self.list(taken.iter().filter_map(value).collect())
            }
            Kind::Text => {
                let entered = posted.get(&self.input)?;
                let is_nothing = entered.is_empty() && !self.is_required;
                (!is_nothing).then(|| RawJson::string(&entered))
            }
            Kind::Number | Kind::Integer => match posted.get(&self.input)?.trim() {
                "" => None,
                text => Some(scalar(self.kind, text)),
            },
            Kind::Boolean => {
                let entered = posted.get(&self.input)?;
                RawJson::parse(&entered).ok().filter(|json| matches!(json.text(), "true" | "false"))
            }
            Kind::Choice => self.choices.get(posted.get(&self.input)?.parse::<usize>().ok()?).cloned(),
        }
    }

    fn list(&self, values: Vec<RawJson>) -> Option<RawJson> {
        if values.is_empty() && !self.is_required {
            return None;
        }
        let texts: Vec<&str> = values.iter().map(RawJson::text).collect();
        RawJson::parse(&format!("[{}]", texts.join(", "))).ok()
    }

    /// Whether nothing was entered in it, nor in anything below it, beyond what stood there at first.
    fn is_blank(&self, posted: &PostedForm) -> bool {
        match self.kind {
            Kind::Object => self.fields.iter().all(|field| field.is_blank(posted)),
            Kind::List => self.entries(posted).iter().all(|entry| entry.is_blank(posted)),
            Kind::Text
            | Kind::Number
            | Kind::Integer
            | Kind::Boolean
            | Kind::Choice
            | Kind::Lines
            | Kind::Several => {
                let mut values = posted.all(&self.input).into_iter();
                values.all(|value| value.trim().is_empty() || value == self.initial)
            }
        }
    }

    /// Whether nothing at all was entered in it: of what has members, nothing beyond what stood there at first.
    fn is_empty(&self, posted: &PostedForm) -> bool {
        match self.kind {
            Kind::Object | Kind::List => self.is_blank(posted),
            Kind::Text
            | Kind::Number
            | Kind::Integer
            | Kind::Boolean
            | Kind::Choice
            | Kind::Lines
            | Kind::Several => posted.all(&self.input).iter().all(|value| value.trim().is_empty()),
        }
    }

    /// Notes where each value stands in the answer. Entries that were left blank are not part of it.
    fn place(&mut self, posted: &PostedForm, pointer: &str) {
        pointer.clone_into(&mut self.pointer);
        match self.kind {
            Kind::Object => {
                for field in &mut self.fields {
                    let name = field.name.replace('~', "~0").replace('/', "~1");
                    field.place(posted, &format!("{pointer}/{name}"));
                }
            }
            Kind::List => {
                let mut at = 0;
                for entry in &mut self.fields {
                    let is_blank = entry.is_blank(posted);
                    entry.place(posted, &if is_blank { "-".to_owned() } else { format!("{pointer}/{at}") });
                    at += usize::from(!is_blank);
                }
            }
            Kind::Text
            | Kind::Number
            | Kind::Integer
            | Kind::Boolean
            | Kind::Choice
            | Kind::Lines
            | Kind::Several => {}
        }
    }

    /// The field that a pointer means. What is missing is shown at the object that it is missing in: then the member that
    /// the text names.
    fn nearest(&mut self, pointer: &str, text: &str) -> Option<&mut Field> {
        let is_above = pointer == self.pointer || pointer.starts_with(&format!("{}/", self.pointer));
        if !is_above {
            return None;
        }
        let below = self.fields.iter().position(|field| {
            let is_on_the_way =
                pointer == field.pointer || pointer.starts_with(&format!("{}/", field.pointer));
            let is_named = self.kind == Kind::Object && pointer == self.pointer && names(text, &field.name);
            is_on_the_way || is_named
        });
        match below {
            Some(at) if pointer == self.pointer => self.fields.get_mut(at),
            Some(at) => self.fields.get_mut(at)?.nearest(pointer, text),
            None => Some(self),
        }
    }
}

fn names(text: &str, name: &str) -> bool {
    text.contains(&format!("{name:?}")) || text.contains(&format!("`{name}`"))
}

/// Whether an answer must have a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldNeed {
    Yes,
    No,
}

#[derive(Deserialize)]
struct FieldSchema {
    #[serde(rename = "type")]
    kind: Option<String>,
    title: Option<String>,
    description: Option<String>,
    format: Option<String>,
    default: Option<RawJson>,
    #[serde(rename = "enum")]
    choices: Option<Vec<RawJson>>,
    properties: Option<Members>,
    #[serde(default)]
    required: Vec<String>,
    items: Option<RawJson>,
    #[serde(rename = "minItems", default)]
    at_least: usize,
}

/// Reads the fields of one schema.
struct Reader {
    definitions: Definitions,
    /// Fields so far.
    count: usize,
}

impl Reader {
    fn field(
        &mut self,
        input: &str,
        name: &str,
        schema: &RawJson,
        needed: FieldNeed,
        depth: usize,
    ) -> Option<Field> {
        self.count += 1;
        let plain = PlainSchema::of(schema, &self.definitions)?;
        let is_more = plain.members.iter().any(|(name, _)| NOT_A_FORM.contains(&name.as_str()));
        if is_more || depth > DEPTH_MAX || self.count > FIELDS_MAX {
            return None;
        }
        let read: FieldSchema = serde_json::from_str(&plain.text()).ok()?;
        let is_null_when_empty = plain.is_nullable && needed == FieldNeed::Yes;
        let needed = if plain.is_nullable { FieldNeed::No } else { needed };
        let input =
            if depth == 0 && read.properties.is_none() { format!("{input}-0") } else { input.to_owned() };
        let mut made = Field {
            name: name.to_owned(),
            label: read
                .title
                .clone()
                .unwrap_or_else(|| if name.is_empty() { "Answer".into() } else { name.to_owned() }),
            description: read.description.clone(),
            is_required: needed == FieldNeed::Yes,
            must_fill: needed == FieldNeed::Yes,
            at_least: read.at_least,
            kind: Kind::Text,
            input_type: match read.format.as_deref() {
                Some("date") => "date",
                Some("email") => "email",
                Some("uri") => "url",
                Some(_) | None => "text",
            },
            hint: (read.format.as_deref() == Some("date-time"))
                .then_some("A date and time, such as 2026-11-20T09:30:00Z."),
            is_null_when_empty,
            choices: Vec::new(),
            shown_choices: Vec::new(),
            value: String::new(),
            initial: String::new(),
            taken: Vec::new(),
            fields: Vec::new(),
            entry: None,
            pointer: String::new(),
            problem: None,
            input,
        };
        match (&read.choices, read.kind.as_deref(), &read.properties) {
            (Some(choices), _, _) => {
                made.choices(choices)?;
                made.kind = Kind::Choice;
                let titles = made.shown_choices.iter_mut().zip(plain.titles);
                titles.for_each(|(shown, title)| *shown = title.unwrap_or_else(|| std::mem::take(shown)));
            }
            (None, Some("object") | None, Some(Members(properties))) => {
                made.kind = Kind::Object;
                made.fields = self.members(&made.input, properties, &read.required, depth)?;
                if needed == FieldNeed::No {
                    made.fields.iter_mut().for_each(Field::may_be_left_out);
                }
            }
            (None, Some("array"), None) => {
                let mut entry =
                    self.field(&made.input, "", read.items.as_ref()?, FieldNeed::Yes, depth + 1)?;
                match entry.kind {
                    Kind::Text | Kind::Number | Kind::Integer => made.kind = Kind::Lines,
                    Kind::Choice => {
                        made.choices(&entry.choices)?;
                        made.shown_choices.clone_from(&entry.shown_choices);
                        made.kind = Kind::Several;
                    }
                    Kind::Object => made.kind = Kind::List,
                    Kind::Boolean | Kind::Lines | Kind::Several | Kind::List => return None,
                }
                entry.may_be_left_out();
                made.entry = Some(Box::new(entry));
                made.resize_if_list();
            }
            (None, Some("string"), None) => made.kind = Kind::Text,
            (None, Some("number"), None) => made.kind = Kind::Number,
            (None, Some("integer"), None) => made.kind = Kind::Integer,
            (None, Some("boolean"), None) => made.kind = Kind::Boolean,
            (None, _, _) => return None,
        }
        if let Some(default) =
            read.default.as_ref().filter(|default| !(plain.is_nullable && default.text() == "null"))
        {
            made.fill(default);
        }
        Some(made)
    }

    /// The fields of an object. A member that is required and not described cannot be entered.
    fn members(
        &mut self,
        input: &str,
        properties: &[(String, RawJson)],
        required: &[String],
        depth: usize,
    ) -> Option<Vec<Field>> {
        if !required.iter().all(|name| properties.iter().any(|(known, _)| known == name)) {
            return None;
        }
        let mut fields = Vec::with_capacity(properties.len());
        for (at, (name, schema)) in properties.iter().enumerate() {
            let needed = if required.contains(name) { FieldNeed::Yes } else { FieldNeed::No };
            fields.push(self.field(&format!("{input}-{at}"), name, schema, needed, depth + 1)?);
        }
        Some(fields)
    }
}

impl Field {
    /// Simple values only: what has members cannot be told in a word.
    fn choices(&mut self, choices: &[RawJson]) -> Option<()> {
        let is_simple = choices.iter().all(|choice| !choice.text().starts_with(['{', '[']));
        self.choices = choices.to_vec();
        self.shown_choices = choices.iter().map(shown).collect();
        is_simple.then_some(())
    }

    fn may_be_left_out(&mut self) {
        self.must_fill = false;
        self.fields.iter_mut().for_each(Field::may_be_left_out);
    }

    fn resize_if_list(&mut self) {
        if self.kind == Kind::List {
            self.resize(self.at_least);
        }
    }

    /// What stands in it at first.
    fn fill(&mut self, default: &RawJson) {
        let place = |value: &RawJson| self.choices.iter().position(|choice| choice == value);
        match self.kind {
            Kind::Choice => self.value = place(default).map(|at| at.to_string()).unwrap_or_default(),
            Kind::Text | Kind::Number | Kind::Integer | Kind::Boolean => self.value = shown(default),
            Kind::Lines => self.value = items(default).iter().map(shown).collect::<Vec<_>>().join("\n"),
            Kind::Several => {
                self.taken = items(default).iter().filter_map(place).map(|at| at.to_string()).collect();
            }
            // Their members have their own.
            Kind::Object | Kind::List => {}
        }
        self.initial = self.value.clone();
    }
}

/// The same field, and everything below it, under another name in the form.
fn renamed(field: &Field, input: &str) -> Field {
    let below = |(at, field): (usize, &Field)| renamed(field, &format!("{input}-{at}"));
    Field {
        input: input.to_owned(),
        fields: field.fields.iter().enumerate().map(below).collect(),
        ..field.clone()
    }
}

fn items(json: &RawJson) -> Vec<RawJson> {
    serde_json::from_str(json.text()).unwrap_or_default()
}

/// A number where one is wanted and given; otherwise the text, for the schema to judge.
fn scalar(kind: Kind, text: &str) -> RawJson {
    let is_number = |json: &RawJson| json.text().starts_with(|c: char| c.is_ascii_digit() || c == '-');
    match kind {
        Kind::Number | Kind::Integer => {
            RawJson::parse(text).ok().filter(is_number).unwrap_or_else(|| RawJson::string(text))
        }
        Kind::Text
        | Kind::Boolean
        | Kind::Choice
        | Kind::Object
        | Kind::Lines
        | Kind::Several
        | Kind::List => RawJson::string(text),
    }
}

/// A string without its quotes; anything else as it is written.
fn shown(json: &RawJson) -> String {
    serde_json::from_str::<String>(json.text()).unwrap_or_else(|_| json.text().to_owned())
}

#[cfg(test)]
mod tests;
