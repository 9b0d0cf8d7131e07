//! What an MCP server answered, as a result that a model can read.
//!
//! Text stays as it is. What is not text is named and left out: its bytes would only fill the model's memory.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use standfast_core::body::Body;
use standfast_core::message::ToolResult;

/// What a later version of the protocol may bring.
const UNKNOWN: &str = "[something of a kind that this version does not know, left out]";

/// The result of a call; of its text so many bytes are kept.
pub(super) fn read(answer: CallToolResult, keep: usize) -> ToolResult {
    let is_error = answer.is_error == Some(true);
    let blocks: Vec<String> = answer.content.iter().map(block).collect();
    let mut text = blocks.join("\n");
    if text.is_empty()
        && let Some(value) = &answer.structured_content
    {
        text = value.to_string();
    }
    let body = Body::text(cut(text, keep));
    if is_error { ToolResult::Failed(body) } else { ToolResult::Ok(body) }
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => left_out("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => left_out("sound", &audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                left_out(uri, mime_type.as_deref().unwrap_or("of an unknown type"), blob)
            }
            _ => UNKNOWN.to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        _ => UNKNOWN.to_owned(),
    }
}

fn left_out(what: &str, kind: &str, base64: &str) -> String {
    format!("[{what}, {kind}, {} bytes, left out]", base64.len() / 4 * 3)
}

/// The beginning of a text, and how much of it is missing.
fn cut(mut text: String, keep: usize) -> String {
    if text.len() <= keep {
        return text;
    }
    let all = text.len();
    let mut end = keep;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(&format!("\n[{} more bytes; {keep} bytes of an answer are kept]", all - end));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(json: &str) -> CallToolResult {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn text_stays_and_the_rest_is_named() {
        let mixed = answer(
            r#"{"content":[{"type":"text","text":"one"},{"type":"image","mimeType":"image/png","data":"AAAA"},
               {"type":"resource","resource":{"uri":"file:///a","text":"two"}}],"structuredContent":{"a":1}}"#,
        );
        let expected = "one\n[image, image/png, 3 bytes, left out]\n[file:///a]\ntwo";
        assert_eq!(read(mixed, 1000), ToolResult::Ok(Body::text(expected)));
        let only_json = answer(r#"{"content":[],"structuredContent":{"a":9007199254740993}}"#);
        assert_eq!(read(only_json, 1000), ToolResult::Ok(Body::text(r#"{"a":9007199254740993}"#)));
        let failed = answer(r#"{"content":[{"type":"text","text":"no such file"}],"isError":true}"#);
        assert_eq!(read(failed, 1000), ToolResult::Failed(Body::text("no such file")));
    }

    #[test]
    fn a_long_text_says_what_is_missing() {
        let long = answer(r#"{"content":[{"type":"text","text":"ää23456789"}]}"#);
        let kept = "ä\n[10 more bytes; 3 bytes of an answer are kept]";
        assert_eq!(read(long, 3), ToolResult::Ok(Body::text(kept)));
    }
}
