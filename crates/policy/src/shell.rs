//! Reads the text of a command as a shell would, as far as that is beyond doubt, and takes the rest apart for a search.
//!
//! Two readings of one text. [`simple`] is for what loosens: one command whose words are exactly what they look like, or
//! nothing at all. [`pieces`] is for what tightens: everything in the text that could come to be a command. Neither starts
//! anything, and which words matter is `argv.rs`.

use crate::glob::is_hidden;

/// A word of a simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// What the program gets.
    pub text: String,
    /// Whether it stands there without quotes.
    pub is_plain: bool,
}

/// Longest text that is read as one simple command.
const MAX_SIMPLE: usize = 16 * 1024;

/// Characters that mean themselves to every shell, beside letters and digits.
const SAFE: &str = "-_./,:=+@%";

/// The words of a text that is one simple command beyond doubt: plain words, whole words in quotes, and `--name='value'`.
/// None for everything else: operators, redirections, substitutions, variables, wildcards, escapes, comments, assignments,
/// more than one line, and characters that nobody sees.
#[must_use]
pub fn simple(text: &str) -> Option<Vec<Word>> {
    if text.len() > MAX_SIMPLE || text.chars().any(is_hidden) {
        return None;
    }
    let mut words = Vec::new();
    let mut rest = text.trim_matches(' ');
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after.trim_start_matches(' ');
    }
    let first = words.first()?;
    // An assignment before a command changes what it does; `=name` is a path to zsh.
    let is_assignment = first.text.contains('=');
    let expands = words.iter().any(|word| word.is_plain && word.text.starts_with('='));
    (!first.text.is_empty() && !is_assignment && !expands).then_some(words)
}

/// The first word of a text that begins with one, and what follows it.
fn word(text: &str) -> Option<(Word, &str)> {
    let plain = text.find(|c: char| !(c.is_alphanumeric() || SAFE.contains(c))).unwrap_or(text.len());
    let (before, after) = text.split_at_checked(plain)?;
    match after.chars().next() {
        None | Some(' ') => Some((Word { text: before.to_owned(), is_plain: true }, after)),
        Some(quote @ ('\'' | '"'))
            if before.is_empty() || (before.starts_with('-') && before.ends_with('=')) =>
        {
            let (inside, after) = after.get(1..)?.split_once(quote)?;
            let is_literal = quote == '\'' || !inside.contains(['$', '`', '\\', '!']);
            let is_whole = after.is_empty() || after.starts_with(' ');
            (is_literal && is_whole)
                .then(|| (Word { text: format!("{before}{inside}"), is_plain: false }, after))
        }
        Some(_) => None,
    }
}

/// A part of a text between two operators, as words without quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its words.
    pub words: Vec<String>,
    /// Whether something is piped or redirected into it.
    pub reads_input: bool,
}

/// Everything in a text that could be a command: cut at each operator, bracket, line and substitution, also within quotes,
/// with quotes and escapes taken away. What cannot be known stays in the words as `$` or a wildcard.
#[must_use]
pub fn pieces(text: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut piece = Piece { words: Vec::new(), reads_input: false };
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                word.get_or_insert_default();
            }
            '\\' => match chars.next() {
                // A line that goes on.
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            ';' | '|' | '&' | '\n' | '\r' | '(' | ')' | '`' | '<' | '>' => {
                piece.words.extend(word.take());
                let next = Piece { words: Vec::new(), reads_input: c == '|' };
                piece.reads_input |= c == '<';
                found.push(std::mem::replace(&mut piece, next));
            }
            c if c.is_whitespace() => piece.words.extend(word.take()),
            '{' | '}' if word.is_none() => {}
            c => word.get_or_insert_default().push(c),
        }
    }
    piece.words.extend(word.take());
    found.push(piece);
    found.retain(|piece| !piece.words.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Option<Vec<String>> {
        Some(simple(text)?.into_iter().map(|word| word.text).collect())
    }

    #[test]
    fn a_simple_command_is_its_words() {
        assert_eq!(words("git  log -3").unwrap(), ["git", "log", "-3"]);
        assert_eq!(
            words("git commit -m 'two words' --author=\"A B\"").unwrap(),
            ["git", "commit", "-m", "two words", "--author=A B"]
        );
        assert_eq!(words("grep '$HOME' x").unwrap(), ["grep", "$HOME", "x"]);
        assert_eq!(words("git log --author=Jürgen").unwrap(), ["git", "log", "--author=Jürgen"]);
    }

    #[test]
    fn everything_else_is_none() {
        for text in [
            "",
            " ",
            "a;b",
            "a&&b",
            "a|b",
            "a>b",
            "a<b",
            "a&",
            "$a",
            "a $b",
            "`a`",
            "a\nb",
            "a\tb",
            "a\\ b",
            "a*",
            "a?",
            "[a]",
            "~",
            "a ~",
            "a #b",
            "A=1 b",
            "{a,b}",
            "a{b,c}",
            "!a",
            "a !b",
            "'a",
            "\"a",
            "\"$a\"",
            "\"`a`\"",
            "\"\\a\"",
            "a'b'",
            "'a'b",
            "a\"b\"",
            "''",
            "=a",
            "a =b",
            "a^b",
            "a\u{a0}b",
            "a\u{200b}",
            "(a)",
            "a\r",
        ] {
            assert_eq!(simple(text), None, "{text:?}");
        }
    }

    #[test]
    fn pieces_show_what_is_inside() {
        let all =
            |text: &str| pieces(text).into_iter().map(|piece| piece.words.join(" ")).collect::<Vec<_>>();
        assert_eq!(all("ls; r\"m\" -rf /|wc"), ["ls", "rm -rf /", "wc"]);
        assert_eq!(all("bash -c 'cd x && \\rm y'"), ["bash -c cd x", "rm y"]);
        assert_eq!(all("echo $(rm x) `rm y` <(rm z)"), ["echo $", "rm x", "rm y", "rm z"]);
        assert!(pieces("curl x | sh")[1].reads_input);
        assert!(pieces("sh <<E\nrm x\nE")[0].reads_input);
    }

    proptest! {
        /// What a shell would split in the same way, this does; and no text is too odd for either.
        #[test]
        fn no_text_is_too_odd(text in ".{0,60}") {
            let _ = pieces(&text);
            if let Some(words) = simple(&text) {
                prop_assert!(!words.is_empty());
                prop_assert!(!text.contains([';', '\n', '\\']) || text.contains(['\'', '"']));
            }
        }
    }
}
