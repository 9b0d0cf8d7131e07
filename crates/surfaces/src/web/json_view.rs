//! JSON as people read it: a tree with real characters, tables where a list has objects, nothing cut without saying so.
//!
//! Made from the stored text, number by number and string by string, so that nothing is rounded; hidden characters are
//! marked. It only helps to read: the bytes themselves are one click away and are what runs.

use std::fmt::Write as _;

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::json::RawJson;

use super::fields::Members;
use super::media::{self, FileFacts};
use crate::html::marked;

/// Characters of one string that a page shows.
const STRING_MAX: usize = 20_000;
/// Values that a page shows.
const VALUES_MAX: usize = 3_000;
/// Characters of a text from which on it is shown as a file, where it is one.
const FILE_MIN: usize = 64;
/// Columns of a table.
const COLUMNS_MAX: usize = 12;
/// A tree is not deeper than this; what is deeper is shown as it is written.
const DEPTH_MAX: usize = 24;

/// The value as markup; everything in it is escaped.
pub(super) fn html(json: &RawJson) -> String {
    html_with(json, None)
}

/// The same with a link to each file, and a preview of each picture; `files` is the path of the route that serves them.
pub(super) fn html_with_files(json: &RawJson, files: &str) -> String {
    html_with(json, Some(files.to_owned()))
}

fn html_with(json: &RawJson, files: Option<String>) -> String {
    let mut view = View {
        out: String::new(),
        left: VALUES_MAX,
        is_cut: false,
        is_file_left_out: false,
        place: String::new(),
        files,
    };
    view.value(json.text(), 0);
    if view.is_cut {
        view.out.push_str("<p class=\"cut\">Not everything is shown here: the value is too long. The raw arguments have all of it.</p>");
    }
    if view.is_file_left_out {
        view.out.push_str("<p class=\"cut\">The contents of files are left out here. The raw arguments have all of them.</p>");
    }
    view.out
}

/// What an agent shows beside a question: a tree where it is JSON, otherwise the text; the stored text is always beside it.
#[derive(Debug, Serialize)]
pub(super) struct DataShown {
    /// Markup, escaped.
    tree: Option<String>,
    text: String,
}

impl DataShown {
    pub(super) fn of(data: &Body) -> Option<DataShown> {
        match data {
            Body::Json(json) => Some(DataShown { tree: Some(html(json)), text: json.text().to_owned() }),
            Body::Text(text) => Some(DataShown { tree: None, text: text.clone() }),
            Body::Blob(_) => None,
        }
    }
}

struct View {
    out: String,
    left: usize,
    is_cut: bool,
    /// The contents of a file stand somewhere else.
    is_file_left_out: bool,
    /// Where in the value it is, as a JSON pointer.
    place: String,
    /// Where its files are served.
    files: Option<String>,
}

impl View {
    fn value(&mut self, text: &str, depth: usize) {
        if self.left == 0 {
            self.is_cut = true;
            self.out.push_str("<span class=\"cut\">…</span>");
            return;
        }
        self.left -= 1;
        match text.trim_start().chars().next() {
            Some('{') if depth < DEPTH_MAX => self.object(text, depth),
            Some('[') if depth < DEPTH_MAX => self.array(text, depth),
            Some('"') => self.string(text),
            Some(_) | None => {
                let _ = write!(self.out, "<span class=\"literal\">{}</span>", marked(text.trim()));
            }
        }
    }

    fn object(&mut self, text: &str, depth: usize) {
        let Ok(Members(members)) = serde_json::from_str::<Members>(text) else {
            return self.as_written(text);
        };
        if members.is_empty() {
            self.out.push_str("<span class=\"quiet\">empty object</span>");
            return;
        }
        self.out.push_str("<dl class=\"tree\">");
        let count = members.len();
        for (at, (name, value)) in members.iter().enumerate() {
            if self.left == 0 {
                self.is_cut = true;
                let _ =
                    write!(self.out, "<dt class=\"cut\">{} more members are not shown here</dt>", count - at);
                break;
            }
            let _ = write!(self.out, "<dt>{}</dt><dd>", marked(name));
            self.member(text, (name, value), depth);
            self.out.push_str("</dd>");
        }
        self.out.push_str("</dl>");
    }

    fn array(&mut self, text: &str, depth: usize) {
        let Ok(items) = serde_json::from_str::<Vec<RawJson>>(text) else { return self.as_written(text) };
        if items.is_empty() {
            self.out.push_str("<span class=\"quiet\">empty list</span>");
            return;
        }
        if let Some(table) = Table::read(&items) {
            return self.table(&table, &items, depth);
        }
        self.out.push_str("<ol class=\"tree\" start=\"0\">");
        for (at, item) in items.iter().enumerate() {
            if self.left == 0 {
                self.is_cut = true;
                let _ =
                    write!(self.out, "<li class=\"cut\">{} more are not shown here</li>", items.len() - at);
                break;
            }
            self.out.push_str("<li>");
            self.at(&at.to_string(), |view| view.value(item.text(), depth + 1));
            self.out.push_str("</li>");
        }
        self.out.push_str("</ol>");
    }

    /// A member of an object. The contents of a file are left out where the other members say that it is one.
    fn member(&mut self, object: &str, (name, value): (&str, &RawJson), depth: usize) {
        let text = value.text();
        let is_candidate = media::CONTENTS.contains(&name) && text.starts_with('"') && text.len() > FILE_MIN;
        let file = is_candidate.then(|| FileFacts::of_object(object)).flatten();
        match file.filter(|(member, _)| *member == name) {
            // Its place is that of the object.
            Some((_, facts)) => self.file(&facts),
            None => self.at(&media::escaped(name), |view| view.value(text, depth + 1)),
        }
    }

    /// Shows what stands one step further in.
    fn at(&mut self, step: &str, show: impl FnOnce(&mut View)) {
        let length = self.place.len();
        self.place.push('/');
        self.place.push_str(step);
        show(self);
        self.place.truncate(length);
    }

    fn table(&mut self, table: &Table, items: &[RawJson], depth: usize) {
        self.out.push_str(
            "<div class=\"wide-table\" role=\"group\" aria-label=\"Table\" tabindex=\"0\"><table><thead><tr>",
        );
        for name in &table.columns {
            let _ = write!(self.out, "<th scope=\"col\">{}</th>", marked(name));
        }
        self.out.push_str("</tr></thead><tbody>");
        for (at, (row, item)) in table.rows.iter().zip(items).enumerate() {
            if self.left == 0 {
                self.is_cut = true;
                let (rest, columns) = (table.rows.len() - at, table.columns.len());
                let _ = write!(
                    self.out,
                    "<tr><td class=\"cut\" colspan=\"{columns}\">{rest} more rows are not shown here</td></tr>"
                );
                break;
            }
            self.out.push_str("<tr>");
            for name in &table.columns {
                self.out.push_str("<td>");
                if let Some((_, value)) = row.iter().find(|(known, _)| known == name) {
                    self.at(&at.to_string(), |view| view.member(item.text(), (name, value), depth));
                }
                self.out.push_str("</td>");
            }
            self.out.push_str("</tr>");
        }
        self.out.push_str("</tbody></table></div>");
    }

    /// A file by its type and size, with the way to it where there is one. Its name is a member beside it.
    fn file(&mut self, facts: &FileFacts) {
        self.is_file_left_out = true;
        let told = format!("{}, {} bytes", marked(&facts.media_type), facts.bytes);
        let Some(files) = &self.files else {
            let _ = write!(self.out, "<span class=\"file\">{told}</span>");
            return;
        };
        let address = marked(&media::address(files, &self.place));
        let picture = if facts.is_picture() {
            format!("<img src=\"{address}\" alt=\"\" loading=\"lazy\">")
        } else {
            String::new()
        };
        let _ = write!(self.out, "<a class=\"file\" href=\"{address}\">{picture}{told}</a>");
    }

    /// With the characters that its escapes stand for.
    fn string(&mut self, text: &str) {
        let Ok(string) = serde_json::from_str::<String>(text) else { return self.as_written(text) };
        let length = string.chars().count();
        if let Some(facts) = FileFacts::of_text(&string).filter(|_| length > FILE_MIN) {
            return self.file(&facts);
        }
        // A block may scroll, which must also be possible without a mouse.
        let is_block = string.contains('\n') || length > 120;
        let attributes = if is_block { "class=\"string block\" tabindex=\"0\"" } else { "class=\"string\"" };
        if length > STRING_MAX {
            let shown: String = string.chars().take(STRING_MAX).collect();
            self.is_cut = true;
            let more = length - STRING_MAX;
            let _ = write!(
                self.out,
                "<span {attributes}>{}</span> <strong class=\"cut\">… and {more} more characters, not shown here</strong>",
                marked(&shown)
            );
        } else if string.is_empty() {
            self.out.push_str("<span class=\"quiet\">empty text</span>");
        } else {
            let _ = write!(self.out, "<span {attributes}>{}</span>", marked(&string));
        }
    }

    fn as_written(&mut self, text: &str) {
        let shown: String = text.chars().take(STRING_MAX).collect();
        self.is_cut |= shown.len() < text.len();
        let _ = write!(self.out, "<code>{}</code>", marked(&shown));
    }
}

/// A list of objects that have few different members.
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<(String, RawJson)>>,
}

impl Table {
    fn read(items: &[RawJson]) -> Option<Table> {
        if items.len() < 2 {
            return None;
        }
        let mut table = Table { columns: Vec::new(), rows: Vec::new() };
        for item in items {
            if !item.text().trim_start().starts_with('{') {
                return None;
            }
            let Members(members) = serde_json::from_str(item.text()).ok()?;
            for (name, _) in &members {
                if !table.columns.contains(name) {
                    table.columns.push(name.clone());
                }
            }
            if table.columns.len() > COLUMNS_MAX {
                return None;
            }
            table.rows.push(members);
        }
        (!table.columns.is_empty()).then_some(table)
    }
}

/// What large arguments have, in a line each: names and how much there is of each.
pub(super) fn summary(json: &RawJson) -> Vec<(String, String)> {
    let Ok(Members(members)) = serde_json::from_str::<Members>(json.text()) else { return Vec::new() };
    members.iter().map(|(name, value)| (name.clone(), size(value.text()))).collect()
}

fn size(text: &str) -> String {
    match text.trim_start().chars().next() {
        Some('"') => match serde_json::from_str::<String>(text) {
            Ok(string) => {
                let (length, lines) = (string.chars().count(), string.lines().count());
                let short = length <= 60 && lines <= 1;
                if short { string } else { format!("text of {length} characters, {lines} lines") }
            }
            Err(_) => "text".to_owned(),
        },
        Some('[') => {
            let count = serde_json::from_str::<Vec<RawJson>>(text).map_or(0, |items| items.len());
            format!("list of {count}")
        }
        Some('{') => {
            let count = serde_json::from_str::<Members>(text).map_or(0, |Members(members)| members.len());
            format!("object with {count} members")
        }
        Some(_) | None => text.trim().chars().take(60).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        html(&RawJson::parse(text).unwrap())
    }

    /// T17: real characters, exact numbers, hidden characters seen, markup is text.
    #[test]
    fn values_are_shown_as_they_are() {
        let text = r#"{"name": "M\u00fcller", "n": 9007199254740993.10, "x": "\u202e<b>", "no": null, "e": {}, "l": []}"#;
        assert_eq!(
            shown(text),
            "<dl class=\"tree\"><dt>name</dt><dd><span class=\"string\">Müller</span></dd>\
             <dt>n</dt><dd><span class=\"literal\">9007199254740993.10</span></dd>\
             <dt>x</dt><dd><span class=\"string\"><span class=\"mark\">⟨U+202E⟩</span>&lt;b&gt;</span></dd>\
             <dt>no</dt><dd><span class=\"literal\">null</span></dd>\
             <dt>e</dt><dd><span class=\"quiet\">empty object</span></dd>\
             <dt>l</dt><dd><span class=\"quiet\">empty list</span></dd></dl>"
        );
    }

    #[test]
    fn lists_of_objects_are_tables() {
        let table = shown(r#"[{"a": 1, "b": "x"}, {"a": 2}]"#);
        assert!(table.contains("tabindex=\"0\"><table><thead><tr><th scope=\"col\">a</th>"), "{table}");
        assert!(table.contains("<td></td>"), "{table}");
        assert!(shown("[1, 2]").starts_with("<ol"));
    }

    #[test]
    fn nothing_is_cut_without_saying_so() {
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(STRING_MAX + 5));
        assert!(shown(&long).contains("and 5 more characters"));
        let many = format!("[{}]", vec!["1"; VALUES_MAX + 10].join(","));
        assert!(shown(&many).contains("11 more are not shown here"));
        assert!(shown(&many).contains("Not everything is shown here"));
        let rows = format!("[{}]", vec![r#"{"a": 1}"#; VALUES_MAX + 10].join(","));
        assert!(shown(&rows).contains("more rows are not shown here"));
    }

    /// A file is left out on purpose, whether it is a `data:` address or base64 beside its type, and that is what is said.
    #[test]
    fn files_are_left_out_of_the_tree() {
        let base64 = "A".repeat(400);
        for json in [
            format!("{{\"a\": \"data:image/png;base64,{base64}\"}}"),
            format!("{{\"mimeType\": \"image/png\", \"data\": \"{base64}\"}}"),
        ] {
            let told = shown(&json);
            assert!(told.contains("image&#x2f;png, 300 bytes") && !told.contains(&base64), "{told}");
            assert!(told.contains("contents of files are left out") && !told.contains("too long"), "{told}");
            assert!(!told.contains("<a ") && !told.contains("<img"), "{told}");
        }
        let plain = shown(&format!("{{\"data\": \"{base64}\"}}"));
        assert!(plain.contains(&base64) && !plain.contains("left out here"), "{plain}");
        // What only looks like one is a text like any other.
        let looks = shown(&format!("{{\"a\": \"data:image/png;base64,{base64}?\"}}"));
        assert!(looks.contains(&base64) && !looks.contains("left out here"), "{looks}");
    }

    /// In a row of a table a file is its name, its type, its size and the way to it; a picture is seen.
    #[test]
    fn files_in_tables_are_linked() {
        let base64 = "A".repeat(400);
        let file = |name: &str, kind: &str| {
            format!("{{\"name\": \"{name}\", \"mimeType\": \"{kind}\", \"data\": \"{base64}\"}}")
        };
        let rows = format!(
            "{{\"a/b\": [{}, {}, {{\"name\": \"data:text/csv;base64,{base64}\"}}]}}",
            file("one.png", "image/png"),
            file("two.pdf", "application/pdf")
        );
        let told = html_with_files(&RawJson::parse(&rows).unwrap(), "/x");
        assert!(!told.contains(&base64), "{told}");
        for piece in [
            "<td><span class=\"string\">one.png</span></td>",
            "<a class=\"file\" href=\"&#x2f;x?at=%2Fa~1b%2F0\"><img src=\"&#x2f;x?at=%2Fa~1b%2F0\" alt=\"\" loading=\"lazy\">image&#x2f;png, 300 bytes</a>",
            "<a class=\"file\" href=\"&#x2f;x?at=%2Fa~1b%2F1\">application&#x2f;pdf, 300 bytes</a>",
            "<a class=\"file\" href=\"&#x2f;x?at=%2Fa~1b%2F2%2Fname\">text&#x2f;csv, 300 bytes</a>",
        ] {
            assert!(told.contains(piece), "{piece}: {told}");
        }
        // What the links say is found there.
        let found = media::find(&rows, "/x").files;
        let places: Vec<&str> = found.iter().map(|file| file.place.as_str()).collect();
        assert_eq!(places, ["/a~1b/0", "/a~1b/1", "/a~1b/2/name"]);
    }

    #[test]
    fn a_summary_names_every_member() {
        let json = RawJson::parse(r#"{"path": "a", "body": "x\ny\nz", "l": [1, 2], "o": {"a": 1}, "n": 3}"#)
            .unwrap();
        let told: Vec<String> =
            summary(&json).into_iter().map(|(name, size)| format!("{name}: {size}")).collect();
        assert_eq!(
            told,
            [
                "path: a",
                "body: text of 5 characters, 3 lines",
                "l: list of 2",
                "o: object with 1 members",
                "n: 3"
            ]
        );
    }
}
