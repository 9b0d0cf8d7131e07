//! What reaches the screen: text of models, tools and people with nothing in it that a terminal obeys or hides.
//!
//! Whatever comes from the server is printed through here. [`Text`] is what answers are read into: it cannot be shown
//! in any other way. Escapes are visible and stay in the text, so that a hidden character is seen, not dropped.

use std::fmt;

use serde::Deserialize;
use standfast_surfaces::labels::hidden_characters::is_hidden;

/// Text from the server; showing it makes it plain.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct Text(String);

impl Text {
    /// The text as it came, to compare with; not for the screen.
    pub(super) fn raw(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&plain(&self.0))
    }
}

/// One line: every character that controls, reorders or is not seen becomes an escape such as `\u{202e}`.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

/// What went wrong, in our words, which may show lines of a file of the operator: each of them is plain.
pub(super) fn lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// Several lines, each plain and behind a bar, so that none can pass for a line of ours. Ends with a line break.
pub(super) fn block(text: &str) -> String {
    text.split('\n').map(|line| format!("    | {}", plain(line)).trim_end().to_owned() + "\n").collect()
}

/// Aligned columns under their names; cells are made plain here.
pub(super) fn table(names: &[&str], rows: &[Vec<String>]) -> String {
    let head = names.iter().map(|name| (*name).to_owned()).collect();
    let cells = |row: &Vec<String>| row.iter().map(|cell| plain(cell)).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    let width = |at: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let padded = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(padded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_or_hides_is_left() {
        for (text, expected) in [
            ("\x1b[2Jgone", r"\u{1b}[2Jgone"),
            (
                "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x07",
                r"\u{1b}]8;;http://evil.example\u{1b}\here\u{1b}]8;;\u{7}",
            ),
            ("\x1b]52;c;cm0gLXJm\x07", r"\u{1b}]52;c;cm0gLXJm\u{7}"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("rm -rf /\rls", r"rm -rf /\u{d}ls"),
            ("no\x08\x08yes\x7f", r"no\u{8}\u{8}yes\u{7f}"),
            ("a\tb\nc\0", r"a\u{9}b\u{a}c\u{0}"),
            ("\u{202e}fdp.exe\u{202c}", r"\u{202e}fdp.exe\u{202c}"),
            ("\u{2066}a\u{2069}\u{200e}\u{200f}\u{61c}", r"\u{2066}a\u{2069}\u{200e}\u{200f}\u{61c}"),
            ("pay\u{200b}pal\u{200d}\u{2060}\u{feff}\u{ad}", r"pay\u{200b}pal\u{200d}\u{2060}\u{feff}\u{ad}"),
            ("\u{e0001}\u{e0041}\u{e007f}", r"\u{e0001}\u{e0041}\u{e007f}"),
            ("a\u{fe0f}\u{e0100}\u{180b}", r"a\u{fe0f}\u{e0100}\u{180b}"),
            ("a\u{2028}b\u{2029}\u{85}", r"a\u{2028}b\u{2029}\u{85}"),
            ("\u{3164}\u{115f}", r"\u{3164}\u{115f}"),
        ] {
            assert_eq!(plain(text), expected);
            assert_eq!(plain(&plain(text)), expected);
        }
    }

    #[test]
    fn what_people_write_stays() {
        let text = "Grüße, 你好, مرحبا, שלום, हिन्दी, 🎉 — {\"path\": \"C:\\\\x\"}";
        assert_eq!(plain(text), text);
    }

    #[test]
    fn what_went_wrong_keeps_its_lines() {
        assert_eq!(lines("a mistake\n  --> file\x1b[2J\n"), "a mistake\n  --> file\\u{1b}[2J\n");
    }

    #[test]
    fn lines_of_others_are_behind_a_bar() {
        assert_eq!(block("one\nstate: decided\r\n"), "    | one\n    | state: decided\\u{d}\n    |\n");
    }

    #[test]
    fn columns_are_aligned_and_plain() {
        let rows = [vec!["a".to_owned(), "\x1b[1m".to_owned()], vec!["long one".to_owned(), "b".to_owned()]];
        let expected = "ID        WHAT\na         \\u{1b}[1m\nlong one  b\n";
        assert_eq!(table(&["ID", "WHAT"], &rows), expected);
    }

    /// T18: 300 strings that a terminal would obey, hide or reorder: no character of those is left.
    #[test]
    fn t18_300_strings_are_plain_on_a_terminal() {
        for line in include_str!("../../../testkit/corpus/display.jsonl").lines() {
            let (text, hidden): (String, usize) = serde_json::from_str(line).unwrap();
            let shown = plain(&text);
            assert!(!shown.contains(is_hidden), "{text:?}: {shown:?}");
            assert!(shown.matches("\\u{").count() >= hidden, "{text:?}: {shown:?}");
        }
    }
}
