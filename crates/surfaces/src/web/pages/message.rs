//! A message as pages show it: its words, and beside them what is no words: data as a tree, files by name and type.
//!
//! The words stay with their page; nothing of a file is loaded.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Part};

use crate::labels::hidden_characters::count_hidden;
use crate::web::json_view;

/// Characters of data that is no JSON.
const TEXT_MAX: usize = 4_000;

/// A part of a message that is no words.
#[derive(Debug, Serialize)]
pub(in crate::web) struct MessagePart {
    label: String,
    /// Markup of a tree, escaped.
    tree: Option<String>,
    text: Option<String>,
    /// Characters of the text that are not shown.
    left_out: usize,
}

impl MessagePart {
    /// How many hidden characters it shows as marks.
    pub(super) fn hidden(&self) -> usize {
        let marks = self.tree.as_deref().map_or(0, |tree| tree.matches("class=\"mark\"").count());
        [Some(&self.label), self.text.as_ref()]
            .into_iter()
            .flatten()
            .map(|text| count_hidden(text))
            .sum::<usize>()
            + marks
    }
}

/// What a message has beside its words.
pub(in crate::web) fn parts(message: &Message) -> Vec<MessagePart> {
    let mut shown = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(_) => {}
            Part::Data(data) => shown.push(self::data(data)),
            Part::File { .. } => {
                shown.push(MessagePart { label: label(part), tree: None, text: None, left_out: 0 });
            }
        }
    }
    shown
}

/// Words that are an object or a list of JSON, as a tree.
pub(in crate::web) fn tree(words: &str) -> Option<MessagePart> {
    let json = RawJson::parse(words).ok().filter(|json| json.text().trim_start().starts_with(['{', '[']))?;
    Some(data(&Body::Json(json)))
}

fn data(data: &Body) -> MessagePart {
    let text = match data {
        Body::Json(_) | Body::Blob(_) => None,
        Body::Text(text) => Some(text),
    };
    let tree = match data {
        Body::Json(json) => Some(json_view::html(json)),
        Body::Text(_) | Body::Blob(_) => None,
    };
    MessagePart {
        label: "Data".to_owned(),
        tree,
        left_out: text.map_or(0, |text| text.chars().count().saturating_sub(TEXT_MAX)),
        text: text.map(|text| text.chars().take(TEXT_MAX).collect()),
    }
}

/// The words of a message; of one without any, what it has instead.
pub(in crate::web) fn words(message: &Message) -> String {
    let words = message.words();
    if !words.is_empty() {
        return words;
    }
    let labels: Vec<String> = message.parts.iter().map(label).collect();
    if labels.is_empty() { "(a message without text)".to_owned() } else { labels.join(", ") }
}

fn label(part: &Part) -> String {
    match part {
        Part::Text(_) => "Text".to_owned(),
        Part::Data(_) => "Data".to_owned(),
        Part::File { name, media_type, content: _ } => {
            let name = name.as_deref().unwrap_or("without a name");
            let kind = media_type.as_ref().map(|kind| format!(" ({kind})"));
            format!("File {name}{}", kind.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_words_is_shown_as_what_it_is() {
        let json = RawJson::parse(r#"{"who": "M\u00fcller <b>"}"#).unwrap();
        let file = Part::File {
            name: Some("a.pdf".into()),
            media_type: Some("application/pdf".into()),
            content: Body::text("https://example.org/a.pdf"),
        };
        let message = Message::of(vec![Part::Data(Body::Json(json)), file]);
        assert_eq!(words(&message), "Data, File a.pdf (application/pdf)");
        let shown = parts(&message);
        let drawn = shown[0].tree.as_deref().unwrap_or_default();
        assert!(drawn.contains("Müller &lt;b&gt;"), "{drawn}");
        assert_eq!(shown[1].label, "File a.pdf (application/pdf)");
        assert_eq!(words(&Message::text("Hello")), "Hello");
        assert!(tree(r#" {"cents": 1}"#).is_some_and(|part| part.tree.is_some()));
        assert!(["12", "\"text\"", "{not JSON", "Hello"].iter().all(|text| tree(text).is_none()));
        assert!(parts(&Message::text("Hello")).is_empty());
        let long = data(&Body::text("x".repeat(TEXT_MAX + 2)));
        assert_eq!((long.text.map(|text| text.len()), long.left_out), (Some(TEXT_MAX), 2));
    }
}
