//! Rust source as words, texts and signs, without comments.
//!
//! Just enough of the language for the rules: a rule that searched plain text would trip over comments and
//! over the strings in its own tests. Nothing here knows what the words mean; `rust_paths.rs` reads paths
//! from them.

/// A token and the line it starts on, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier, a keyword or a number.
    Word(String),
    /// What is inside a string literal, escapes as written.
    Text(String),
    /// `::`
    PathSeparator,
    /// Any other sign. Character literals and lifetimes are left out.
    Sign(char),
}

impl Token {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, TokenKind::Word(found) if found == word)
    }

    pub(crate) fn is_sign(&self, sign: char) -> bool {
        self.kind == TokenKind::Sign(sign)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match &self.kind {
            TokenKind::Word(word) => Some(word),
            TokenKind::Text(_) | TokenKind::PathSeparator | TokenKind::Sign(_) => None,
        }
    }
}

pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut reader = Reader { rest: source, line: 1 };
    let mut tokens = Vec::new();
    loop {
        reader.skip_blanks_and_comments();
        let line = reader.line;
        let Some(first) = reader.rest.chars().next() else {
            return tokens;
        };
        let kind = if first == '"' {
            reader.take(1);
            Some(TokenKind::Text(reader.take_string(Escapes::Backslash, "\"")))
        } else if first == '\'' {
            reader.skip_character_or_lifetime();
            None
        } else if is_word_part(first) {
            Some(reader.take_word_or_prefixed_string())
        } else if reader.rest.starts_with("::") {
            reader.take(2);
            Some(TokenKind::PathSeparator)
        } else {
            reader.take(first.len_utf8());
            Some(TokenKind::Sign(first))
        };
        tokens.extend(kind.map(|kind| Token { kind, line }));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    Backslash,
    None,
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    /// Moves on by so many bytes, which must end between two characters.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, accepts: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c: char| !accepts(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn skip_blanks_and_comments(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if self.rest.starts_with("//") {
                self.take_while(|c| c != '\n');
            } else if self.rest.starts_with("/*") {
                self.skip_block_comment();
            } else {
                return;
            }
        }
    }

    /// Block comments nest.
    fn skip_block_comment(&mut self) {
        let mut depth = 0_usize;
        while !self.rest.is_empty() {
            if self.rest.starts_with("/*") {
                depth += 1;
                self.take(2);
            } else if self.rest.starts_with("*/") {
                depth -= 1;
                self.take(2);
                if depth == 0 {
                    return;
                }
            } else {
                self.take_character();
            }
        }
    }

    fn take_character(&mut self) {
        let length = self.rest.chars().next().map_or(0, char::len_utf8);
        self.take(length);
    }

    /// Reads up to and over `end`, without it; the opening quote is already taken.
    fn take_string(&mut self, escapes: Escapes, end: &str) -> String {
        let start = self.rest;
        while !self.rest.is_empty() {
            if self.rest.starts_with(end) {
                let text = start[..start.len() - self.rest.len()].to_owned();
                self.take(end.len());
                return text;
            }
            if escapes == Escapes::Backslash && self.rest.starts_with('\\') {
                self.take(1);
            }
            self.take_character();
        }
        start.to_owned()
    }

    /// `'a'` and `'\n'` are characters, `'a` alone is a lifetime.
    fn skip_character_or_lifetime(&mut self) {
        self.take(1);
        if self.rest.starts_with('\\') {
            self.take(1);
            self.take_character();
            self.take_while(|c| c != '\'');
            self.take(self.rest.len().min(1));
        } else if self.rest.chars().nth(1) == Some('\'') {
            self.take_character();
            self.take(1);
        } else {
            self.take_while(is_word_part);
        }
    }

    /// A word, unless it is the prefix of a string such as `r#"…"#`, or the `r#` of a raw identifier.
    fn take_word_or_prefixed_string(&mut self) -> TokenKind {
        let word = self.take_while(is_word_part);
        let hashes = self.rest.len() - self.rest.trim_start_matches('#').len();
        let is_string = self.rest[hashes..].starts_with('"');
        match word {
            "r" | "br" | "cr" if is_string => {
                self.take(hashes + 1);
                TokenKind::Text(self.take_string(Escapes::None, &format!("\"{}", "#".repeat(hashes))))
            }
            "b" | "c" if is_string && hashes == 0 => {
                self.take(1);
                TokenKind::Text(self.take_string(Escapes::Backslash, "\""))
            }
            "r" if hashes == 1 => {
                self.take(1);
                TokenKind::Word(self.take_while(is_word_part).to_owned())
            }
            _ => TokenKind::Word(word.to_owned()),
        }
    }
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens with blanks between them, texts in angle brackets.
    fn shown(source: &str) -> String {
        let show = |token: Token| match token.kind {
            TokenKind::Word(word) => word,
            TokenKind::Text(text) => format!("<{text}>"),
            TokenKind::PathSeparator => "::".to_owned(),
            TokenKind::Sign(sign) => sign.to_string(),
        };
        tokens(source).into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_vanish_and_strings_stay_whole() {
        assert_eq!(shown("use a::b; // c::d"), "use a :: b ;");
        assert_eq!(shown("x /* a /* b */ c */ y"), "x y");
        assert_eq!(shown(r#"f("a // \" b", c)"#), r#"f ( <a // \" b> , c )"#);
    }

    #[test]
    fn strings_of_every_kind() {
        let source = "r\"a\\\" r#\"b\"c\"# b\"d\" br##\"e\"#f\"## c\"g\" r#type";
        assert_eq!(shown(source), "<a\\> <b\"c> <d> <e\"#f> <g> type");
    }

    #[test]
    fn characters_and_lifetimes_are_left_out() {
        assert_eq!(shown(r"x: &'a str = '\'' + 'b' + '\u{1F}' + '\\' + '{';"), "x : & str = + + + + ;");
        assert_eq!(shown(r#"b'"' y"#), "b y");
    }

    #[test]
    fn lines_count_through_comments_and_strings() {
        let lines: Vec<usize> = tokens("a\n/*\n*/ b \"\n\"\nc").iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 3, 3, 5]);
    }
}
