//! What a message of Slack says: of one hold, with everything of others as plain text (T17, T19, T20).
//!
//! No text of others is `mrkdwn`, where it could be a link, a mention of everybody or the end of a quotation. What does not fit is not cut:
//! such a message has neither arguments nor buttons.

use serde_json::{Value, json};
use standfast_engine::HoldView;
use standfast_engine::settings::DecideInChat;

use super::clicks::{Button, has_buttons, is_whole};
use super::rooms::{cut, escaped};
use crate::labels::hidden_characters::visible;
use crate::labels::notice::{DigestNotice, HoldNotice};

/// Bytes of arguments and question that are shown; a block takes 3,000 characters.
pub(super) const WHOLE: usize = 2_800;

/// Characters of a heading.
const HEADING: usize = 150;

/// Characters of another text.
const TEXT: usize = 2_900;

/// The names of the buttons.
pub(super) const APPROVE: &str = "standfast_approve";
pub(super) const DENY: &str = "standfast_deny";
const OPEN: &str = "standfast_open";

/// What a message about a hold says: its text for notifications, and its blocks.
pub(super) fn of_hold(notice: &HoldNotice, view: &HoldView, decide: Option<DecideInChat>) -> Value {
    let is_shown = is_whole(view, WHOLE);
    let mut blocks = vec![heading(&notice.title), plain(&notice.news)];
    let facts = notice.facts.iter().map(|(name, value)| plain_text(&format!("{name}: {value}"), 1_900));
    blocks.push(json!({"type": "section", "fields": facts.take(10).collect::<Vec<_>>()}));
    blocks.extend(notice.reason.as_ref().map(|reason| plain(&format!("{}: {reason}", notice.reason_label))));
    if is_shown {
        blocks.extend(notice.question.as_deref().map(quoted));
        if let (Some(tool), Some(arguments)) = (&notice.tool, &notice.arguments) {
            blocks.push(plain(&format!("{tool}: arguments, byte for byte")));
            blocks.push(quoted(arguments));
        }
    } else if !notice.is_decided {
        blocks.push(plain("It is too long for a message. Sign in to see all of it and to decide."));
    }
    if !notice.is_decided {
        blocks.push(plain(&format!("Who may decide: {}", view.deciders)));
    }
    let mut buttons = Vec::new();
    if decide.is_some_and(|decide| has_buttons(view, decide, WHOLE)) {
        buttons.push(button(APPROVE, "Approve", "primary", view, true));
        buttons.push(button(DENY, "Deny", "danger", view, false));
    }
    if let Some(page) = &notice.page {
        buttons.push(json!({
            "type": "button",
            "action_id": OPEN,
            "text": {"type": "plain_text", "text": "Open", "emoji": false},
            "url": page,
        }));
    }
    if !buttons.is_empty() {
        blocks.push(json!({"type": "actions", "block_id": "standfast", "elements": buttons}));
    }
    json!({"text": said(&format!("{} {}", notice.title, notice.news)), "blocks": blocks})
}

/// Everything that is pending for somebody, each with its page: nothing is decided from here.
pub(super) fn of_digest(digest: &DigestNotice) -> Value {
    let line = |(title, page): &(String, String)| {
        let title = cut(&visible(title), HEADING);
        let element = if page.is_empty() {
            json!({"type": "text", "text": title})
        } else {
            json!({"type": "link", "url": page, "text": title})
        };
        json!({"type": "rich_text_section", "elements": [element]})
    };
    let lines: Vec<Value> = digest.holds.iter().map(line).collect();
    let list = json!({"type": "rich_text_list", "style": "bullet", "elements": lines});
    let blocks =
        json!([heading(&digest.title), plain(&digest.news), {"type": "rich_text", "elements": [list]}]);
    json!({"text": said(&digest.title), "blocks": blocks})
}

/// What is said of a hold that has a message already, below it.
pub(super) fn reply(notice: &HoldNotice) -> Value {
    let deadline = notice.facts.iter().find(|(name, _)| *name == "Deadline");
    let deadline = deadline.map(|(_, at)| format!(" Deadline: {at}.")).unwrap_or_default();
    let text = format!("{}{deadline}", notice.news);
    json!({"text": said(&format!("{}: {text}", notice.title)), "blocks": [plain(&text)]})
}

/// What is said to find out whether a channel is reached.
pub(super) fn of_notice(notice: &HoldNotice) -> Value {
    let blocks = vec![heading(&notice.title), plain(&notice.news)];
    json!({"text": said(&notice.title), "blocks": blocks})
}

/// A text for whoever clicked, in which nothing but addresses is markup.
pub(super) fn said(text: &str) -> String {
    escaped(&cut(&visible(text), TEXT))
}

fn heading(text: &str) -> Value {
    json!({"type": "header", "text": plain_text(text, HEADING)})
}

fn plain(text: &str) -> Value {
    json!({"type": "section", "text": plain_text(text, TEXT)})
}

fn plain_text(text: &str, most: usize) -> Value {
    let text = visible(text);
    let text = if text.is_empty() { " ".to_owned() } else { cut(&text, most) };
    json!({"type": "plain_text", "text": text, "emoji": false})
}

/// Exact text: nothing in it is markup, and nothing of it ends the quotation.
fn quoted(text: &str) -> Value {
    let text = visible(text);
    let text = if text.is_empty() { " ".into() } else { text };
    json!({
        "type": "rich_text",
        "elements": [{"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}],
    })
}

fn button(id: &str, label: &str, style: &str, view: &HoldView, approves: bool) -> Value {
    let tool = view.row.tool.as_ref().map_or_else(|| "this".to_owned(), ToString::to_string);
    let what = if approves { format!("Run {tool} as it is shown?") } else { format!("Do not run {tool}?") };
    let text = |text: &str, most| plain_text(text, most);
    json!({
        "type": "button",
        "action_id": id,
        "style": style,
        "text": text(label, 75),
        "value": Button::of(view, approves).text(),
        "confirm": {
            "title": text(label, 100),
            "text": text(&what, 300),
            "confirm": text(label, 30),
            "deny": text("Cancel", 30),
        },
    })
}
