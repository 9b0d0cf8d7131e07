//! What chats are sent of strings that look like something else: no hidden character is left in any message (T17).
//!
//! Which characters those are is `labels/hidden_characters.rs`; pages, mails and terminals have tests of their own with the same corpus.

use serde_json::{Value, json};
use standfast_core::digest::Digest;
use standfast_core::hold::HoldKind;
use standfast_core::json::RawJson;
use standfast_engine::HoldView;
use standfast_engine::settings::DecideInChat;

use super::clicks::is_whole;
use super::{card, discord, slack_message};
use crate::labels::example_hold::open_hold;
use crate::labels::hidden_characters::is_hidden_in_lines;
use crate::labels::notice::HoldNotice;

/// The strings.
pub(super) fn corpus() -> Vec<String> {
    let corpus = include_str!("../../../testkit/corpus/display.jsonl");
    let strings = corpus.lines().map(|line| serde_json::from_str::<(String, usize)>(line).unwrap().0);
    strings.collect()
}

/// A notice with this text everywhere where text of others can stand.
pub(super) fn notice(text: &str) -> HoldNotice {
    HoldNotice {
        title: format!("Approve {text}?"),
        news: format!("Denied by {text}."),
        facts: vec![("Agent", text.to_owned()), ("Deadline", text.to_owned())],
        reason: Some(text.to_owned()),
        reason_label: "Why it is held",
        question: Some(text.to_owned()),
        tool: Some(text.to_owned()),
        arguments: Some(json!({"path": text}).to_string()),
        is_whole: true,
        is_decided: false,
        page: Some("https://a.example/approve/x".into()),
    }
}

/// An open approval of a call with this text.
fn view(text: &str) -> HoldView {
    let mut view = open_hold(HoldKind::Approval, 1);
    view.row.digest = Some(Digest([7; 32]));
    view.arguments = Some(RawJson::parse(&json!({"path": text}).to_string()).unwrap());
    view.deciders = text.to_owned();
    view
}

/// Asserts that nothing in any text of a message is hidden, neither as it is sent nor as its reader has it.
pub(super) fn assert_nothing_is_hidden(message: &Value, of: &str) {
    match message {
        Value::String(text) => assert!(!text.contains(is_hidden_in_lines), "{of:?}: {text:?}"),
        Value::Array(all) => all.iter().for_each(|one| assert_nothing_is_hidden(one, of)),
        Value::Object(all) => all.values().for_each(|one| assert_nothing_is_hidden(one, of)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// T17: what each chat with messages of its own is sent of 300 strings, with buttons and call.
#[test]
fn t17_300_strings_show_what_they_are_in_every_chat() {
    let strings = corpus();
    assert!(strings.len() >= 300, "{}", strings.len());
    let mut shown = 0;
    for text in &strings {
        let (notice, view) = (notice(text), view(text));
        let slack = slack_message::of_hold(&notice, &view, Some(DecideInChat::Always));
        let discord = discord::of_hold(&notice, &view, Some(DecideInChat::Always));
        let (said, card) = (slack_message::reply(&notice), card::message(&notice, true));
        let heading = slack_message::of_notice(&notice);
        for message in [&slack, &discord, &said, &card, &heading] {
            assert_nothing_is_hidden(message, text);
        }
        // The call is there, so the looking was at something; unless it is too long for a message.
        let is_shown = is_whole(&view, slack_message::WHOLE);
        assert_eq!(slack.to_string().contains(slack_message::APPROVE), is_shown, "{text:?}");
        shown += usize::from(is_shown);
        assert!(card.to_string().contains("byte for byte"), "{card}");
        let is_shown = is_shown && !text.contains("```");
        assert_eq!(discord.to_string().contains("custom_id"), is_shown, "{text:?}");
    }
    assert!(shown > 280, "{shown}");
}
