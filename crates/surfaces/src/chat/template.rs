//! Texts of messages that the configuration brings: words with placeholders, filled in once, so that nothing of a value is one.
//!
//! What a placeholder stands for is what every notice says (`labels/notice.rs`); how the text is sent is `rooms.rs`.

use crate::labels::hidden_characters::visible;
use crate::labels::notice::HoldNotice;

/// What is said unless the configuration says something else: no arguments, which belong to whoever has signed in.
pub(super) const USUAL: &str = "{title}\n{news}\n{facts}\n{page}";

/// The same with the call.
pub(super) const USUAL_WITH_CALL: &str = "{title}\n{news}\n{facts}\n{reason}\n{call}\n{page}";

const NAMES: [&str; 12] = [
    "title", "news", "facts", "agent", "owner", "opened", "deadline", "risk", "reason", "tool", "call",
    "page",
];

/// The first placeholder of a text that stands for nothing; none when all do.
#[must_use]
pub fn unknown_placeholder(text: &str) -> Option<String> {
    parts(text).into_iter().find_map(|part| match part {
        Part::Name(name) if !NAMES.contains(&name) => Some(name.to_owned()),
        Part::Name(_) | Part::Words(_) => None,
    })
}

/// The text about a hold, line by line; a line of which nothing is left but what stood around placeholders is left out when all of them
/// are empty.
pub(super) fn filled(text: &str, notice: &HoldNotice, shows_arguments: bool) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let (mut out, mut has_names, mut has_values) = (String::new(), false, false);
        for part in parts(line) {
            match part {
                Part::Words(words) => out.push_str(words),
                Part::Name(name) => {
                    let value = value(name, notice, shows_arguments).unwrap_or_default();
                    (has_names, has_values) = (true, has_values || !value.is_empty());
                    out.push_str(&visible(&value));
                }
            }
        }
        if has_values || !has_names {
            lines.push(out);
        }
    }
    lines.join("\n")
}

fn value(name: &str, notice: &HoldNotice, shows_arguments: bool) -> Option<String> {
    let fact =
        |label: &str| notice.facts.iter().find(|(known, _)| *known == label).map(|(_, value)| value.clone());
    match name {
        "title" => Some(notice.title.clone()),
        "news" => Some(notice.news.clone()),
        "facts" => {
            let lines: Vec<String> =
                notice.facts.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            Some(lines.join("\n"))
        }
        "agent" => fact("Agent"),
        "owner" => fact("Started by"),
        "opened" => fact("Opened"),
        "deadline" => fact("Deadline"),
        "risk" => fact("Risk"),
        "reason" => notice.reason.clone(),
        "tool" => notice.tool.clone(),
        "call" => {
            let call = notice.tool.as_ref().zip(notice.arguments.as_ref()).filter(|_| shows_arguments);
            let call = call.map(|(tool, arguments)| format!("{tool} {arguments}"));
            call.or_else(|| notice.question.clone().filter(|_| shows_arguments))
        }
        "page" => notice.page.clone(),
        _ => None,
    }
}

enum Part<'a> {
    Words(&'a str),
    Name(&'a str),
}

/// A text, taken apart. What is no name in braces stays as it is.
fn parts(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let named = after.split_once('}').filter(|(name, _)| {
            !name.is_empty() && name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_')
        });
        match named {
            Some((name, behind)) => {
                parts.push(Part::Words(before));
                parts.push(Part::Name(name));
                rest = behind;
            }
            None => {
                parts.push(Part::Words(&rest[..=before.len()]));
                rest = after;
            }
        }
    }
    parts.push(Part::Words(rest));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice() -> HoldNotice {
        HoldNotice {
            title: "Approve {page}?".into(),
            news: "Your decision is needed.".into(),
            facts: vec![("Agent", "ops".into())],
            reason: None,
            reason_label: "Why it is held",
            question: None,
            tool: Some("pay".into()),
            arguments: Some("{\"to\":\"{page}\u{202e}\"}".into()),
            is_whole: true,
            is_decided: false,
            page: Some("https://a.example/approve/x".into()),
        }
    }

    /// T17, T20: nothing of a value is a placeholder, nothing is hidden, and arguments are shown only where that was said.
    #[test]
    fn t20_a_value_is_no_placeholder() {
        let text = filled("{title}\nWhy: {reason}\n{call} {\n{x\n{agent}", &notice(), true);
        assert_eq!(text, "Approve {page}?\npay {\"to\":\"{page}⟨U+202E⟩\"} {\n{x\nops");
        let text = filled(USUAL_WITH_CALL, &notice(), false);
        assert_eq!(
            text,
            "Approve {page}?\nYour decision is needed.\nAgent: ops\nhttps://a.example/approve/x"
        );
        assert_eq!(unknown_placeholder(USUAL), None);
        assert_eq!(unknown_placeholder("{title} {secret}"), Some("secret".into()));
    }
}
