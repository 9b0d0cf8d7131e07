//! The paths that a Rust file names, written out in full from the crate's root.
//!
//! `use` trees are taken apart, and `self` and `super` are resolved, also inside inline modules: a fence that
//! only knew `use crate::…` would have a gate right beside it. Macros and `#[path]` are not followed.

use super::rust_tokens::{Token, TokenKind, tokens};

/// A path such as `crate::engine::submit`, `std::fs` or `tokio::spawn`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedPath {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    pub(crate) origin: Origin,
}

/// Where the path stands. A `use` of a whole module opens everything in it; in code the path ends at what it
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Use,
    Code,
}

impl NamedPath {
    pub(crate) fn starts_with(&self, start: &[&str]) -> bool {
        self.segments.len() >= start.len() && self.segments.iter().zip(start).all(|(a, b)| a == b)
    }

    pub(crate) fn shown(&self) -> String {
        self.segments.join("::")
    }
}

/// The paths named in `source`, which is the file `path_in_src` (such as `surface/a2a/map.rs`) of its crate.
pub(crate) fn named_paths(source: &str, path_in_src: &str) -> Vec<NamedPath> {
    named_paths_in(&tokens(source), path_in_src)
}

/// The same of tokens that were read before, and perhaps sifted.
pub(crate) fn named_paths_in(tokens: &[Token], path_in_src: &str) -> Vec<NamedPath> {
    let mut walk = Walk { tokens, at: 0, file_module: module_of(path_in_src), blocks: Vec::new() };
    let mut found = Vec::new();
    while walk.at < tokens.len() {
        walk.step(&mut found);
    }
    found
}

fn module_of(path_in_src: &str) -> Vec<String> {
    let mut segments: Vec<String> =
        path_in_src.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if segments.last().is_some_and(|last| last == "mod")
        || (segments.len() == 1 && ["lib", "main"].contains(&segments[0].as_str()))
    {
        segments.pop();
    }
    segments
}

enum Block {
    InlineModule(String),
    Other,
}

struct Walk<'a> {
    tokens: &'a [Token],
    at: usize,
    file_module: Vec<String>,
    blocks: Vec<Block>,
}

impl Walk<'_> {
    fn step(&mut self, found: &mut Vec<NamedPath>) {
        let token = &self.tokens[self.at];
        match &token.kind {
            TokenKind::Sign('{') => self.blocks.push(Block::Other),
            TokenKind::Sign('}') => {
                self.blocks.pop();
            }
            TokenKind::Word(word) if word == "mod" => {
                let opens = self.peek(2).is_some_and(|next| next.is_sign('{'));
                if let (Some(name), true) = (self.peek(1).and_then(Token::word), opens) {
                    self.blocks.push(Block::InlineModule(name.to_owned()));
                    self.at += 2;
                }
            }
            // `use<…>` in a type says what it captures; it names no path.
            TokenKind::Word(word) if word == "use" && !self.peek(1).is_some_and(|next| next.is_sign('<')) => {
                self.at += 1;
                self.use_tree(&[], found);
                return;
            }
            TokenKind::Word(_) if self.starts_a_path() => {
                let line = token.line;
                let segments = self.take_segments();
                found.push(self.resolved(segments, line, Origin::Code));
                return;
            }
            TokenKind::Word(_) | TokenKind::Text(_) | TokenKind::PathSeparator | TokenKind::Sign(_) => {}
        }
        self.at += 1;
    }

    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn separator_follows(&self) -> bool {
        self.peek(1).is_some_and(|next| next.kind == TokenKind::PathSeparator)
    }

    /// A word with `::` behind it and no path before it.
    fn starts_a_path(&self) -> bool {
        let continues = self.at >= 2
            && self.tokens[self.at - 1].kind == TokenKind::PathSeparator
            && (self.tokens[self.at - 2].word().is_some() || self.tokens[self.at - 2].is_sign('>'));
        self.separator_follows() && !continues
    }

    /// The words of a path; stands behind the last of them afterwards.
    fn take_segments(&mut self) -> Vec<String> {
        let mut segments = Vec::new();
        while let Some(word) = self.peek(0).and_then(Token::word) {
            segments.push(word.to_owned());
            self.at += 1;
            let another = self.peek(0).is_some_and(|next| next.kind == TokenKind::PathSeparator)
                && self.peek(1).is_some_and(|next| next.word().is_some());
            if !another {
                break;
            }
            self.at += 1;
        }
        segments
    }

    /// One tree of a `use`: a path, perhaps with `{…}` or `*` at its end, perhaps with `as name`.
    fn use_tree(&mut self, prefix: &[String], found: &mut Vec<NamedPath>) {
        if self.peek(0).is_some_and(|next| next.kind == TokenKind::PathSeparator) {
            self.at += 1;
        }
        let Some(line) = self.peek(0).map(|token| token.line) else {
            return;
        };
        let mut segments = prefix.to_vec();
        segments.extend(self.take_segments());
        if self.peek(0).is_some_and(|next| next.kind == TokenKind::PathSeparator) {
            self.at += 1;
        }
        if self.peek(0).is_some_and(|next| next.is_sign('{')) {
            self.at += 1;
            self.use_list(&segments, found);
            return;
        }
        if self.peek(0).is_some_and(|next| next.is_sign('*')) {
            self.at += 1;
            segments.push("*".to_owned());
        } else if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
            segments.pop();
        }
        if self.peek(0).is_some_and(|next| next.is_word("as")) {
            self.at += 2;
        }
        found.push(self.resolved(segments, line, Origin::Use));
    }

    /// The trees between braces; stands behind the closing one afterwards.
    fn use_list(&mut self, prefix: &[String], found: &mut Vec<NamedPath>) {
        while let Some(token) = self.peek(0) {
            if token.is_sign('}') {
                self.at += 1;
                return;
            }
            if token.is_sign(',') {
                self.at += 1;
                continue;
            }
            let before = self.at;
            self.use_tree(prefix, found);
            if self.at == before {
                // Not a use tree after all (a macro's pattern, say): go on, whatever it is.
                self.at += 1;
            }
        }
    }

    fn resolved(&self, segments: Vec<String>, line: usize, origin: Origin) -> NamedPath {
        let relative = matches!(segments.first().map(String::as_str), Some("self" | "super"));
        if !relative {
            return NamedPath { segments, line, origin };
        }
        let mut full = vec!["crate".to_owned()];
        full.extend(self.file_module.iter().cloned());
        full.extend(self.blocks.iter().filter_map(|block| match block {
            Block::InlineModule(name) => Some(name.clone()),
            Block::Other => None,
        }));
        for segment in segments {
            match segment.as_str() {
                "self" => {}
                "super" if full.len() > 1 => {
                    full.pop();
                }
                _ => full.push(segment),
            }
        }
        NamedPath { segments: full, line, origin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &str, path_in_src: &str) -> Vec<String> {
        named_paths(source, path_in_src).iter().map(NamedPath::shown).collect()
    }

    #[test]
    fn use_trees_are_taken_apart() {
        let source =
            "use crate::{engine::{self, submit as s, follow::*}, model};\npub use std::fs;\nuse ::rand;";
        let expected = [
            "crate::engine",
            "crate::engine::submit",
            "crate::engine::follow::*",
            "crate::model",
            "std::fs",
            "rand",
        ];
        assert_eq!(shown(source, "lib.rs"), expected);
    }

    #[test]
    fn paths_in_code_count_too() {
        let source = "fn f() -> crate::model::Reply { tokio::spawn(Vec::<std::fs::File>::new()) }";
        assert_eq!(shown(source, "lib.rs"), ["crate::model::Reply", "tokio::spawn", "Vec", "std::fs::File"]);
    }

    #[test]
    fn self_and_super_are_resolved_also_in_inline_modules() {
        let source =
            "use super::wire::Task;\nmod tests { use super::*; use super::super::wire; }\nself::f();";
        let expected = [
            "crate::surface::a2a::wire::Task",
            "crate::surface::a2a::map::*",
            "crate::surface::a2a::wire",
            "crate::surface::a2a::map::f",
        ];
        assert_eq!(shown(source, "surface/a2a/map.rs"), expected);
        assert_eq!(shown("use super::teal;", "surface/a2a/mod.rs"), ["crate::surface::teal"]);
    }

    #[test]
    fn what_is_not_a_path_is_passed_over() {
        let source = "fn f(x: &str) -> impl Sized + use<'_> { \"crate::a::b\"; /* c::d */ x.len() }";
        assert_eq!(shown(source, "main.rs"), Vec::<String>::new());
    }

    #[test]
    fn lines_and_origins_are_kept() {
        let paths = named_paths("use a::{\n    b,\n    c,\n};\nfn f() { d::e() }", "lib.rs");
        let places: Vec<(usize, Origin)> = paths.iter().map(|path| (path.line, path.origin)).collect();
        assert_eq!(places, [(2, Origin::Use), (3, Origin::Use), (5, Origin::Code)]);
    }
}
