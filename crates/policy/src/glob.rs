//! Globs over names and paths: `*` within one part of a path, `**` over several, `?` one character, `\` takes the next as it is.
//!
//! Linear in the text for each star; no classes and no alternatives, so that a glob says what it looks like. Whether a text
//! is a path that means something else than it says is [`is_roundabout`]; what that does to a rule is `matcher.rs`.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Three bytes in a row.
pub(crate) type Trigram = [u8; 3];

/// All of a text.
pub(crate) fn trigrams(text: &str) -> BTreeSet<Trigram> {
    text.as_bytes().windows(3).filter_map(|three| three.try_into().ok()).collect()
}

/// A pattern with wildcards.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
    /// The one text it matches, where it has no wildcards.
    literal: Option<String>,
    /// What every text that it matches begins with.
    begins: String,
    /// What every text that it matches ends with.
    ends: String,
    /// The star between the two, where there is nothing else.
    star: Option<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Char(char),
    One,
    Within,
    Across,
}

impl Glob {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Glob, String> {
        if text.is_empty() {
            return Err("a pattern may not be empty; `*` matches every name".into());
        }
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let part = match c {
                '\\' => Part::Char(chars.next().ok_or(format!("{text:?} ends with a backslash"))?),
                '?' => Part::One,
                '*' => Part::Within,
                c => Part::Char(c),
            };
            let follows_star = matches!(parts.last(), Some(Part::Within | Part::Across));
            if follows_star && part == Part::Within {
                parts.pop();
                parts.push(Part::Across);
            } else {
                parts.push(part);
            }
        }
        let char_of = |part: &Part| if let Part::Char(c) = part { Some(*c) } else { None };
        let literal = parts.iter().map(char_of).collect();
        let begins: Vec<char> = parts.iter().map_while(char_of).collect();
        let ends: Vec<char> = parts.iter().rev().map_while(char_of).collect();
        let star = parts.get(begins.len()).copied().filter(|part| {
            matches!(part, Part::Within | Part::Across) && begins.len() + 1 + ends.len() == parts.len()
        });
        let (begins, ends) = (begins.into_iter().collect(), ends.into_iter().rev().collect());
        Ok(Glob { text: text.to_owned(), parts, literal, begins, ends, star })
    }

    /// The one text it matches, where it has no wildcards.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        self.literal.as_deref()
    }

    /// What every text that it matches begins with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.begins
    }

    /// What every text that it matches ends with.
    #[must_use]
    pub fn suffix(&self) -> &str {
        &self.ends
    }

    /// Three bytes in a row, all that are in every text that it matches.
    pub(crate) fn trigrams(&self) -> BTreeSet<Trigram> {
        let char_of = |part: &Part| if let Part::Char(c) = part { Some(*c) } else { None };
        let runs = self.parts.split(|part| char_of(part).is_none());
        runs.flat_map(|run| trigrams(&run.iter().filter_map(char_of).collect::<String>())).collect()
    }

    /// A text that it matches.
    #[must_use]
    pub fn example(&self) -> String {
        let example = |part: &Part| match part {
            Part::Char(c) => *c,
            Part::One | Part::Within | Part::Across => 'x',
        };
        self.parts.iter().map(example).collect()
    }

    /// Whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.fits(text, &OnceCell::new())
    }

    /// The same of a text whose characters are known after the first pattern that needs them.
    pub(crate) fn fits(&self, text: &str, chars: &OnceCell<Vec<char>>) -> bool {
        if let Some(literal) = &self.literal {
            return literal == text;
        }
        let Some(rest) = text.strip_prefix(self.begins.as_str()) else { return false };
        if !rest.ends_with(self.ends.as_str()) {
            return false;
        }
        // One star between a beginning and an end, as most patterns are.
        if let Some(star) = self.star {
            let between = rest.strip_suffix(self.ends.as_str()).unwrap_or_default();
            return star == Part::Across || !between.contains('/');
        }
        let text = chars.get_or_init(|| text.chars().collect());
        // Greedy with one way back for each kind of star: a star within a part gives up at the first slash, and then the
        // last star across parts takes one more.
        let (mut at, mut part) = (0, 0);
        let mut within: Option<(usize, usize)> = None;
        let mut across: Option<(usize, usize)> = None;
        loop {
            match (self.parts.get(part), text.get(at)) {
                (None, None) => return true,
                (Some(Part::Within), _) => {
                    within = Some((at, part));
                    part += 1;
                    continue;
                }
                (Some(Part::Across), _) => {
                    (across, within) = (Some((at, part)), None);
                    part += 1;
                    continue;
                }
                (Some(Part::Char(wanted)), Some(found)) if wanted == found => {
                    (at, part) = (at + 1, part + 1);
                    continue;
                }
                (Some(Part::One), Some(found)) if *found != '/' => {
                    (at, part) = (at + 1, part + 1);
                    continue;
                }
                (Some(Part::Char(_) | Part::One) | None, _) => {}
            }
            if let Some((begin, star)) =
                within.filter(|(begin, _)| text.get(*begin).is_some_and(|c| *c != '/'))
            {
                within = Some((begin + 1, star));
                (at, part) = (begin + 1, star + 1);
            } else if let Some((begin, star)) = across.filter(|(begin, _)| *begin < text.len()) {
                (across, within) = (Some((begin + 1, star)), None);
                (at, part) = (begin + 1, star + 1);
            } else {
                return false;
            }
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Glob {
    type Error = String;

    fn try_from(text: String) -> Result<Glob, String> {
        Glob::parse(&text)
    }
}

impl From<Glob> for String {
    fn from(glob: Glob) -> String {
        glob.text
    }
}

/// Whether a text is a path that leads elsewhere than it reads, or has characters that nobody sees: `src/../etc`, `a//b`,
/// `./a`, `~root`, `a\..\b`.
#[must_use]
pub fn is_roundabout(text: &str) -> bool {
    let has_odd_part = |part: &str| part == "." || part == "..";
    let has_gap = after_scheme(text).contains("//");
    text.split(['/', '\\']).any(has_odd_part)
        || has_gap
        || text.starts_with('~')
        || text.contains('\\')
        || text.chars().any(is_hidden)
}

/// A URL without its scheme, whose two slashes mean no gap.
fn after_scheme(text: &str) -> &str {
    match text.split_once("://") {
        Some((scheme, rest))
            if !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
        {
            rest
        }
        Some(_) | None => text,
    }
}

/// Control characters, other spaces than the usual one, and what changes the order of text or has no width.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    let other_space = c.is_whitespace() && c != ' ';
    let no_width = matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    c.is_control() || other_space || no_width
}

/// The same in a command, where a line may end and a tab is a space.
#[must_use]
pub fn is_hidden_in_command(c: char) -> bool {
    is_hidden(c) && !matches!(c, '\n' | '\r' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(glob: &str, text: &str) -> bool {
        Glob::parse(glob).unwrap().matches(text)
    }

    #[test]
    fn stars_stay_within_a_part_unless_there_are_two() {
        for (glob, text, fits) in [
            ("mcp__*__*", "mcp__github__merge", true),
            ("mcp__*__*", "mcp__github", false),
            ("src/*", "src/a.rs", true),
            ("src/*", "src/a/b.rs", false),
            ("src/**", "src/a/b.rs", true),
            ("src/**/x.rs", "src/a/b/x.rs", true),
            ("src/**/*.rs", "src/a/b/x.rs", true),
            ("**/*.rs", "a/b.rs/c", false),
            ("*", "", true),
            ("?", "/", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("*a*b*", "xxaxxbxx", true),
            ("**a/*b", "xa/ya/zb", true),
        ] {
            assert_eq!(matches(glob, text), fits, "{glob} {text}");
        }
        assert!(Glob::parse("").is_err() && Glob::parse("a\\").is_err());
        assert!(Glob::parse("mcp__*__*").unwrap().matches(&Glob::parse("mcp__*__*").unwrap().example()));
    }

    /// The plainest way to say the same.
    fn slowly(parts: &[Part], text: &[char]) -> bool {
        match (parts.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((Part::Within, rest)), _) => {
                slowly(rest, text)
                    || text.split_first().is_some_and(|(c, tail)| *c != '/' && slowly(parts, tail))
            }
            (Some((Part::Across, rest)), _) => {
                slowly(rest, text) || text.split_first().is_some_and(|(_, tail)| slowly(parts, tail))
            }
            (Some((Part::One, rest)), Some((c, tail))) => *c != '/' && slowly(rest, tail),
            (Some((Part::Char(wanted), rest)), Some((c, tail))) => wanted == c && slowly(rest, tail),
            (Some((Part::One | Part::Char(_), _)), None) | (None, Some(_)) => false,
        }
    }

    proptest! {
        #[test]
        fn the_quick_way_is_the_plain_one(glob in "[ab/*?]{1,8}", text in "[ab/]{0,10}") {
            let glob = Glob::parse(&glob).unwrap();
            let chars: Vec<char> = text.chars().collect();
            prop_assert_eq!(glob.matches(&text), slowly(&glob.parts, &chars));
            if glob.matches(&text) {
                prop_assert!(text.starts_with(glob.prefix()) && text.ends_with(glob.suffix()));
                prop_assert!(glob.trigrams().is_subset(&trigrams(&text)));
            }
        }
    }

    #[test]
    fn paths_that_mean_something_else_are_found() {
        for text in ["src/../etc/passwd", "./a", "a//b", "~root/x", "a\\..\\b", "a\u{200b}b", "a\nb", ".."] {
            assert!(is_roundabout(text), "{text:?}");
        }
        for text in ["src/a.rs", "/etc/passwd", "a..b", "https://a.example/x", ".env", "Grüße aus Köln"] {
            assert!(!is_roundabout(text), "{text:?}");
        }
    }
}
