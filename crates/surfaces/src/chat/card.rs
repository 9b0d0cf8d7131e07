//! An adaptive card: what Teams shows of a hold. It opens the page and decides nothing.
//!
//! Values stand in runs of text, which are not Markdown: in a `TextBlock` a tool could write a link of its own (T20).

use serde_json::{Value, json};

use crate::labels::hidden_characters::visible;
use crate::labels::notice::HoldNotice;

/// The message of a workflow, with the card.
pub(super) fn message(notice: &HoldNotice, shows_arguments: bool) -> Value {
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": card(notice, shows_arguments),
        }],
    })
}

fn card(notice: &HoldNotice, shows_arguments: bool) -> Value {
    let mut body = vec![
        text(&notice.title, json!({"weight": "bolder", "size": "large"})),
        text(&notice.news, json!({})),
    ];
    for (name, value) in &notice.facts {
        body.push(json!({
            "type": "RichTextBlock",
            "inlines": [
                {"type": "TextRun", "text": format!("{name}: "), "weight": "bolder"},
                {"type": "TextRun", "text": visible(value)},
            ],
        }));
    }
    if let Some(reason) = &notice.reason {
        body.push(text(&format!("{}: {reason}", notice.reason_label), json!({})));
    }
    if shows_arguments {
        body.extend(notice.question.as_ref().map(|question| text(question, json!({}))));
        if let (Some(tool), Some(arguments)) = (&notice.tool, &notice.arguments) {
            body.push(text(&format!("{tool}: arguments, byte for byte"), json!({"weight": "bolder"})));
            body.push(text(arguments, json!({"fontType": "monospace"})));
        }
    }
    let open = |page: &String| json!({"type": "Action.OpenUrl", "title": "Open", "url": page});
    json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": visible(&notice.title),
        "body": body,
        "actions": notice.page.iter().map(open).collect::<Vec<_>>(),
    })
}

/// One text that is not Markdown, in a style.
fn text(said: &str, style: Value) -> Value {
    let mut run = style;
    run["type"] = json!("TextRun");
    run["text"] = json!(visible(said));
    json!({"type": "RichTextBlock", "inlines": [run]})
}
