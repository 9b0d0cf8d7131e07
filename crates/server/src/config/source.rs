//! The text of a configuration file and places in it.
//!
//! Shows the line of a mistake with a mark below it. What looks like a secret is cut out of the line first.

use std::fmt::Write;

/// A place in a file; lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
    /// How many characters are meant.
    pub width: usize,
}

impl Spot {
    /// Where a file begins.
    pub const START: Spot = Spot { line: 1, column: 1, width: 1 };
}

/// The text of a file, and what it is called.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name, as the person wrote it.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// `name:line:column`, the line itself and a mark below the place.
    #[must_use]
    pub fn show(&self, spot: Spot) -> String {
        let line = self.text.lines().nth(spot.line.saturating_sub(1)).unwrap_or_default();
        let shown: String = without_secret(line).chars().map(printable).collect();
        let number = spot.line.to_string();
        let margin = " ".repeat(number.len());
        let before = shown.chars().take(spot.column.saturating_sub(1));
        let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let room = shown.chars().count().saturating_sub(spot.column.saturating_sub(1));
        let mark = "^".repeat(spot.width.min(room).max(1));
        let mut out = String::new();
        let _ = writeln!(out, "{margin}--> {}:{}:{}", self.name, spot.line, spot.column);
        let _ = writeln!(out, "{margin} |");
        let _ = writeln!(out, "{number} | {shown}");
        let _ = writeln!(out, "{margin} | {indent}{mark}");
        out
    }
}

/// A character that does nothing to a terminal.
fn printable(c: char) -> char {
    if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }
}

/// A line with stars for the values of keys that sound like secrets; a variable's name is none. Columns stay.
fn without_secret(line: &str) -> String {
    for (colon, _) in line.match_indices(':') {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let before = line[..colon].trim_end_matches(['"', '\'', ' ']);
        let name = &before[before.rfind(|c| !is_part(c)).map_or(0, |at| at + 1)..];
        let (start, end) = value_after(line, colon);
        let value = line[start..end].trim_matches(['"', '\'']);
        if sounds_secret(name) && !value.is_empty() && !value.starts_with("${") {
            let stars = "*".repeat(line[start..end].chars().count());
            return format!("{}{stars}{}", &line[..start], without_secret(&line[end..]));
        }
        if let Some((start, end)) = password_in_address(line, colon) {
            let stars = "*".repeat(line[start..end].chars().count());
            return format!("{}{stars}{}", &line[..start], without_secret(&line[end..]));
        }
    }
    line.to_owned()
}

/// Where the value behind a colon begins and ends.
fn value_after(line: &str, colon: usize) -> (usize, usize) {
    let rest = &line[colon + 1..];
    let start = colon + 1 + (rest.len() - rest.trim_start().len());
    let end = line[start..].find([',', '}']).map_or(line.len(), |at| start + at);
    (start, end.max(start))
}

/// The password of `scheme://user:password@host`, when the colon is the one of the scheme.
fn password_in_address(line: &str, colon: usize) -> Option<(usize, usize)> {
    let user = colon + line[colon..].strip_prefix("://").map(|_| 3)?;
    let end = user + line[user..].find('@')?;
    let start = user + line[user..end].find(':')? + 1;
    let is_value = line[start..end].chars().all(|c| !c.is_whitespace());
    (is_value && !line[start..end].starts_with("${")).then_some((start, end))
}

fn sounds_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    let words = ["key", "secret", "token", "password", "kye", "authorization", "cookie", "headers"];
    // The name of an effect is made of arguments, and no secret.
    name != "effect_key" && words.iter().any(|word| name.ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_marked() {
        let source = Source { name: "a.yaml".into(), text: "one: 1\ntwo: 2\n".into() };
        let expected = " --> a.yaml:2:6\n  |\n2 | two: 2\n  |      ^\n";
        assert_eq!(source.show(Spot { line: 2, column: 6, width: 9 }), expected);
    }

    /// T29: a key that was written into the file does not reach the screen with some other mistake.
    #[test]
    fn secrets_are_cut_out() {
        assert_eq!(without_secret("  api_kye: sk-canary"), "  api_kye: *********");
        assert_eq!(without_secret("- \"Key\": \"sk-canary\""), "- \"Key\": ***********");
        assert_eq!(
            without_secret("{api_key: sk-1, webhook_secret: sk-2}"),
            "{api_key: ****, webhook_secret: ****}"
        );
        assert_eq!(
            without_secret("{headers: {x-team: blue}, model: m}"),
            "{headers: *************}, model: m}"
        );
        assert_eq!(without_secret("url: postgres://me:sk-1@db/runs"), "url: postgres://me:****@db/runs");
        for harmless in [
            "url: postgres://me:${PASSWORD}@db",
            "  api_key: ${OPENAI_API_KEY}",
            "  model: gpt-4o",
            "tokens: many",
            "api_key:",
            "ü: {key: }",
        ] {
            assert_eq!(without_secret(harmless), harmless);
        }
    }
}
