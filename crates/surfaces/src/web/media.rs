//! Pictures and files inside of arguments: found, and served by themselves from a route on which nothing can run.
//!
//! Two forms are known: a `data:` address, and an object that has its type beside its base64 (as MCP writes it). Anything
//! else stays text. What a browser shows is a picture in an `img`; everything is a download when it is opened by itself.

use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use crate::html::Failure;
use crate::http::filters::encoded;

/// Files that a page lists.
const FOUND_MAX: usize = 20;
/// Characters of a text file that stand on the page.
const PREVIEW_MAX: usize = 4_000;
/// Members of an object that have the contents of a file.
const CONTENTS: [&str; 3] = ["data", "blob", "bytes"];
/// Types that a browser shows as a picture. Scripts of an SVG do not run in an `img`.
const PICTURES: [&str; 6] =
    ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/svg+xml"];

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
            place: place.clone(),
            is_picture: PICTURES.contains(&media_type.as_str()),
            href: format!("{base}?at={}", encoded(place)),
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
    let is_text =
        media_type.starts_with("text/") || media_type == "application/json" || media_type.ends_with("+json");
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_text)?;
    let left_out = text.chars().count().saturating_sub(PREVIEW_MAX);
    Some(TextPreview { begins: text.chars().take(PREVIEW_MAX).collect(), left_out })
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// What a value is as a file.
fn decoded(value: &Value) -> Option<(String, Vec<u8>)> {
    match value {
        Value::String(text) => {
            let (head, data) = text.strip_prefix("data:")?.split_once(',')?;
            let media_type = head.strip_suffix(";base64")?;
            file(media_type, data)
        }
        Value::Object(members) => {
            let names = ["mimeType", "mime_type", "media_type", "mediaType"];
            let media_type = names.iter().find_map(|name| members.get(*name)).and_then(Value::as_str)?;
            let data = CONTENTS.iter().find_map(|name| members.get(*name))?;
            file(media_type, data.as_str()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// The member of an object that has the contents of a file, where its others say that it is one.
pub(super) fn file_member(object: &str) -> Option<&'static str> {
    let value: Value = serde_json::from_str(object).ok()?;
    decoded(&value)?;
    CONTENTS.into_iter().find(|name| value.get(name).is_some())
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
        });
        let found = find(&json.to_string(), "/x").files;
        let begins: Vec<_> = found
            .iter()
            .map(|file| file.text.as_ref().map(|text| (text.begins.chars().count(), text.left_out)))
            .collect();
        assert_eq!(begins, [Some((PREVIEW_MAX, 7)), Some((8, 0)), None, None]);
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
