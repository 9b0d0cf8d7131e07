//! Pictures and files inside of arguments: found, and served by themselves from a route on which nothing can run.
//!
//! Two forms are known: a `data:` address, and an object that has its type beside its base64 (as MCP writes it). Anything
//! else stays text. What a browser shows is a picture in an `img`, and how a text begins; everything is a download when it is
//! opened by itself. A PDF is only that: Chromium shows none in a frame with `sandbox`, and in one without it runs what the PDF
//! has for scripts, whatever the headers of the file say.

use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use crate::html::Failure;
use crate::http::filters::encoded;
use crate::labels::hidden_characters::count_hidden;

/// Files that a page lists.
const FOUND_MAX: usize = 20;
/// Characters of a text file that stand on the page.
const PREVIEW_MAX: usize = 4_000;
/// Types that are text beside `text/*`, JSON and XML.
const TEXTS: [&str; 7] = [
    "application/csv",
    "application/x-ndjson",
    "application/jsonl",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/sql",
];
/// Members of an object that have the contents of a file.
pub(super) const CONTENTS: [&str; 3] = ["data", "blob", "bytes"];
/// Types that a browser shows as a picture. Scripts of an SVG do not run in an `img`.
const PICTURES: [&str; 6] =
    ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/svg+xml"];

/// Whether whoever looks can open what the route of files serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileAccess {
    /// They are signed in.
    Open,
    /// Only after they sign in: whoever follows a link is known for one decision.
    AfterSignIn,
}

/// What is said of a file where its contents are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileFacts {
    pub(super) media_type: String,
    pub(super) bytes: usize,
}

impl FileFacts {
    fn of((media_type, bytes): (String, Vec<u8>)) -> FileFacts {
        FileFacts { media_type, bytes: bytes.len() }
    }

    /// A `data:` address.
    pub(super) fn of_text(text: &str) -> Option<FileFacts> {
        decoded_text(text).map(FileFacts::of)
    }

    /// An object that says its type, with the member that has the contents.
    pub(super) fn of_object(object: &str) -> Option<(&'static str, FileFacts)> {
        let value: Value = serde_json::from_str(object).ok()?;
        let facts = decoded(&value).map(FileFacts::of)?;
        let member = CONTENTS.into_iter().find(|name| value.get(name).is_some())?;
        Some((member, facts))
    }

    pub(super) fn is_picture(&self) -> bool {
        PICTURES.contains(&self.media_type.as_str())
    }
}

/// A file as a page lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Media {
    /// Where in the arguments it stands.
    pub(super) place: String,
    pub(super) media_type: String,
    pub(super) bytes: usize,
    pub(super) is_picture: bool,
    pub(super) href: String,
    /// How a text begins.
    pub(super) text: Option<TextPreview>,
    /// Why a file that a browser could show is not shown.
    pub(super) why_not_shown: Option<&'static str>,
}

/// The beginning of a text file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct TextPreview {
    pub(super) begins: String,
    /// Characters that are not shown.
    pub(super) left_out: usize,
}

/// The files of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct FilesFound {
    pub(super) files: Vec<Media>,
    /// How many there are beside those.
    pub(super) more: usize,
}

impl FilesFound {
    /// How many hidden characters the texts have that are shown of them.
    pub(super) fn hidden(&self) -> usize {
        let texts = self.files.iter().filter_map(|file| file.text.as_ref());
        texts.map(|text| count_hidden(&text.begins)).sum()
    }
}

/// The files of a JSON text; `base` is the path of the route that serves them.
pub(super) fn find(json: &str, base: &str) -> FilesFound {
    let mut found = FilesFound::default();
    if let Ok(value) = serde_json::from_str::<Value>(json) {
        walk(&value, &mut String::new(), base, &mut found);
    }
    found
}

fn walk(value: &Value, place: &mut String, base: &str, found: &mut FilesFound) {
    if let Some((media_type, bytes)) = decoded(value) {
        if found.files.len() >= FOUND_MAX {
            found.more += 1;
            return;
        }
        found.files.push(Media {
            text: preview(&media_type, &bytes),
            why_not_shown: (media_type == "application/pdf").then_some(
                "No preview: a browser shows a PDF only where the PDF's own scripts can run. Check it in a program that you trust.",
            ),
            place: place.clone(),
            is_picture: PICTURES.contains(&media_type.as_str()),
            href: address(base, place),
            bytes: bytes.len(),
            media_type,
        });
        return;
    }
    let length = place.len();
    let members: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, value)| (escaped(name), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (name, value) in members {
        place.push('/');
        place.push_str(&name);
        walk(value, place, base, found);
        place.truncate(length);
    }
}

/// How a file begins that is text by its type and by its bytes.
fn preview(media_type: &str, bytes: &[u8]) -> Option<TextPreview> {
    let (kind, form) = media_type.split_once('/').unwrap_or_default();
    let is_text = kind == "text"
        || TEXTS.contains(&media_type)
        || (kind != "image"
            && ["json", "xml"].iter().any(|one| form == *one || form.ends_with(&format!("+{one}"))));
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_text)?;
    let left_out = text.chars().count().saturating_sub(PREVIEW_MAX);
    Some(TextPreview { begins: text.chars().take(PREVIEW_MAX).collect(), left_out })
}

/// Where a file is served; `base` is the path of the route.
pub(super) fn address(base: &str, place: &str) -> String {
    format!("{base}?at={}", encoded(place))
}

/// A name as a part of a place.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// What a value is as a file.
fn decoded(value: &Value) -> Option<(String, Vec<u8>)> {
    match value {
        Value::String(text) => decoded_text(text),
        Value::Object(members) => {
            let names = ["mimeType", "mime_type", "media_type", "mediaType"];
            let media_type = names.iter().find_map(|name| members.get(*name)).and_then(Value::as_str)?;
            let data = CONTENTS.iter().find_map(|name| members.get(*name))?;
            file(media_type, data.as_str()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

fn decoded_text(text: &str) -> Option<(String, Vec<u8>)> {
    let (head, data) = text.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    file(media_type, data)
}

fn file(media_type: &str, data: &str) -> Option<(String, Vec<u8>)> {
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '+' | '-' | '.');
    let is_type = media_type.contains('/') && media_type.chars().all(is_plain);
    let bytes = STANDARD.decode(data.trim()).ok().filter(|bytes| !bytes.is_empty())?;
    is_type.then_some((media_type, bytes))
}

/// One of the files, by its place.
pub(super) fn serve(json: &str, place: &str) -> Result<Response, Failure> {
    let value: Value = serde_json::from_str(json).map_err(|_| Failure::not_found())?;
    let found = value.pointer(place).and_then(decoded);
    let (media_type, bytes) = found.ok_or_else(Failure::not_found)?;
    let is_picture = PICTURES.contains(&media_type.as_str());
    // What is not a picture has no business in this browser but as a file.
    let media_type = if is_picture { media_type } else { "application/octet-stream".to_owned() };
    Ok((StatusCode::OK, harmless(&media_type, "attachment"), bytes).into_response())
}

/// Headers of something that comes from outside: nothing in it runs, loads or is guessed to be something else.
pub(super) fn harmless(media_type: &str, disposition: &str) -> [(HeaderName, String); 4] {
    [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox; frame-ancestors 'none'".to_owned()),
        (header::CONTENT_DISPOSITION, disposition.to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_and_files_are_found_where_they_stand() {
        let json = r#"{"a/b": "data:image/png;base64,aGVsbG8=", "l": [{"mimeType": "application/pdf", "data": "aGk="}],
                       "no": "data:image/png,hello", "neither": {"data": "aGk="}}"#;
        let FilesFound { files: found, more } = find(json, "/x");
        assert_eq!(more, 0);
        let told: Vec<_> = found.iter().map(|one| (one.place.as_str(), one.bytes, one.is_picture)).collect();
        assert_eq!(told, [("/a~1b", 5, true), ("/l/0", 2, false)]);
        assert_eq!(found[0].href, "/x?at=%2Fa~1b");
        assert!(serve(json, "/l/0").is_ok());
        assert!(serve(json, "/no").is_err());
        assert!(serve(json, "/nothing").is_err());
    }

    #[test]
    fn a_text_is_shown_as_far_as_it_is_short_and_further_files_are_counted() {
        let long = STANDARD.encode("é".repeat(PREVIEW_MAX + 7));
        let short = STANDARD.encode("{\"a\": 1}");
        let bytes = STANDARD.encode([0xff, 0xfe]);
        let json = serde_json::json!({
            "a": format!("data:text/csv;base64,{long}"),
            "b": {"mimeType": "application/json", "data": short},
            "c": format!("data:text/plain;base64,{bytes}"),
            "d": "data:application/pdf;base64,aGk=",
            "e": {"mimeType": "application/yaml", "data": STANDARD.encode("a: \u{202e}b")},
            "f": {"mimeType": "application/atom+xml", "data": STANDARD.encode("<a/>")},
            "g": {"mimeType": "image/svg+xml", "data": STANDARD.encode("<svg/>")},
        });
        assert_eq!(find(&json.to_string(), "/x").hidden(), 1);
        let found = find(&json.to_string(), "/x").files;
        let begins: Vec<_> = found
            .iter()
            .map(|file| file.text.as_ref().map(|text| (text.begins.chars().count(), text.left_out)))
            .collect();
        let (yaml, xml) = (Some((5, 0)), Some((4, 0)));
        assert_eq!(begins, [Some((PREVIEW_MAX, 7)), Some((8, 0)), None, None, yaml, xml, None]);
        let unshown: Vec<&str> = found
            .iter()
            .filter(|file| file.why_not_shown.is_some())
            .map(|file| file.place.as_str())
            .collect();
        assert_eq!(unshown, ["/d"], "only of a PDF it is said why it is not shown");
        let many = vec!["data:text/plain;base64,aGk="; FOUND_MAX + 3];
        let FilesFound { files, more } = find(&serde_json::json!(many).to_string(), "/x");
        assert_eq!((files.len(), more), (FOUND_MAX, 3));
    }

    /// T20: whatever it says it is, it is shown as a picture or not at all, and nothing in it runs.
    #[test]
    fn what_is_served_cannot_run() {
        let page = r#"["data:text/html;base64,PHNjcmlwdD4=", "data:image/svg+xml;base64,PHN2Zz4=", "data:text/html\r\nx: y;base64,aGk="]"#;
        let headers = |place: &str| serve(page, place).unwrap().headers().clone();
        assert_eq!(headers("/0")[header::CONTENT_TYPE], "application/octet-stream");
        assert_eq!(headers("/1")[header::CONTENT_TYPE], "image/svg+xml");
        for place in ["/0", "/1"] {
            assert_eq!(headers(place)[header::CONTENT_DISPOSITION], "attachment");
            assert!(headers(place)[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("sandbox"));
        }
        assert!(serve(page, "/2").is_err());
    }
}
