//! Characters that control, reorder or are not seen, and how they are made visible.
//!
//! Text of models and tools must not look other than it is (T17): whoever shows it asks here. The terminal has its own
//! spelling of the escapes; which characters they are is said once.

use std::borrow::Cow;

/// Controls (C0, DEL, C1), all format characters (Unicode's Cf: bidi, zero width, tags), line and paragraph separators,
/// variation selectors, and the fillers that have no shape.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The same where lines may break: line breaks and tabs are seen for what they are.
#[must_use]
pub fn is_hidden_in_lines(c: char) -> bool {
    is_hidden(c) && c != '\n' && c != '\t'
}

/// How a hidden character is shown: `⟨U+202E⟩`.
#[must_use]
pub fn mark(c: char) -> String {
    format!("⟨U+{:04X}⟩", u32::from(c))
}

/// Lines with every hidden character marked.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    replaced(text, mark)
}

/// JSON text with hidden characters as escapes: they can only stand inside strings, so it means the same.
#[must_use]
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    replaced(json, |c| match c {
        // A line break of another system, between tokens.
        '\r' => String::new(),
        _ => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    })
}

fn replaced(text: &str, shown: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(is_hidden_in_lines) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden_in_lines(c) { out.push_str(&shown(c)) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// How many characters of a text are shown as marks.
pub(crate) fn count_hidden(text: &str) -> usize {
    text.chars().filter(|c| is_hidden_in_lines(*c)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T17: bidi, zero width, tags and controls are seen; what people write stays.
    #[test]
    fn what_is_hidden_is_marked_and_the_rest_stays() {
        assert_eq!(visible("a\u{202e}b\u{200b}\u{e0041}\r"), "a⟨U+202E⟩b⟨U+200B⟩⟨U+E0041⟩⟨U+000D⟩");
        let people = "Grüße\n\tשלום 🎉";
        assert_eq!(visible(people), people);
    }

    #[test]
    fn escaped_json_means_the_same() {
        let json = "{\"a\":\r\n \"x\u{202e}\u{e0041}\"}";
        let escaped = escaped_json(json);
        assert_eq!(escaped, "{\"a\":\n \"x\\u202e\\udb40\\udc41\"}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&escaped), read(json));
    }

    /// T17: 300 strings that look like something else, each with how many of its characters Python's tables of Unicode call
    /// control or format: at least those are seen, in texts and in JSON, and nothing is marked twice.
    #[test]
    fn t17_300_strings_show_what_they_are() {
        let corpus = include_str!("../../../testkit/corpus/display.jsonl");
        let strings: Vec<(String, usize)> =
            corpus.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(strings.len() >= 300, "{}", strings.len());
        for (text, hidden) in &strings {
            assert!(count_hidden(text) >= *hidden, "{text:?}");
            let shown = visible(text);
            assert_eq!(count_hidden(&shown), 0, "{text:?}");
            assert_eq!(visible(&shown), shown, "{text:?}");
            let json = serde_json::to_string(text).unwrap();
            let escaped = escaped_json(&json);
            assert_eq!(count_hidden(&escaped), 0, "{text:?}");
            assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), *text);
        }
    }
}
