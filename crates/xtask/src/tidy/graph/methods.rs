//! Which methods a type has, and in which file each of them is defined.
//!
//! One type may be given methods in many files; that is what makes modules depend on each other without any `use`.
//! Only inherent methods: those of traits are found by their trait.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::rust_tokens::{Token, TokenKind};

/// One inherent method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) name: String,
    /// The words of what it returns.
    pub(crate) returns: Vec<String>,
    pub(crate) line: usize,
}

/// An `impl` block: its type, the tokens between its braces, and its methods if it is of no trait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImplBlock {
    pub(crate) of: String,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) methods: Vec<Method>,
}

/// The inherent methods of each type of a file.
type Methods = BTreeMap<String, Vec<Method>>;

/// The inherent methods that a file gives to types.
pub(crate) fn inherent_methods(tokens: &[Token]) -> Methods {
    let mut found = Methods::new();
    for block in impl_blocks(tokens) {
        found.entry(block.of).or_default().extend(block.methods);
    }
    found.retain(|_, methods| !methods.is_empty());
    found
}

/// The `impl` blocks of a file.
pub(crate) fn impl_blocks(tokens: &[Token]) -> Vec<ImplBlock> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_item = at == 0
            || [';', '}', '{', ']'].iter().any(|sign| tokens[at - 1].is_sign(*sign))
            || tokens[at - 1].is_word("unsafe");
        if tokens[at].is_word("impl")
            && is_item
            && let Some(block) = impl_block(tokens, at)
        {
            at = block.to;
            blocks.push(block);
        }
        at += 1;
    }
    blocks
}

/// The names that a file declares with one of these keywords, such as `struct`, and their lines.
pub(crate) fn declared<'a>(
    tokens: &'a [Token],
    keywords: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, &'a str, usize)> {
    tokens.windows(2).filter_map(move |pair| {
        let keyword = keywords.iter().find(|keyword| pair[0].is_word(keyword))?;
        let name = pair[1].word()?;
        name.starts_with(char::is_uppercase).then_some((*keyword, name, pair[1].line))
    })
}

/// The fields of every struct of a file, by struct and name, and the words of their types.
pub(crate) fn fields(tokens: &[Token]) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut found: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for at in 0..tokens.len() {
        let name = tokens.get(at + 1).and_then(Token::word);
        let Some(of) = name.filter(|_| tokens[at].is_word("struct")) else { continue };
        let Some(open) =
            (at..tokens.len()).find(|here| tokens[*here].is_sign('{') || tokens[*here].is_sign(';'))
        else {
            continue;
        };
        if tokens[open].is_sign('{') {
            for (name, words) in annotations(&tokens[open..closing(tokens, open)]) {
                found.entry((of.to_owned(), name)).or_default().extend(words);
            }
        }
    }
    found
}

/// Whatever is written as `name: Type`: fields, parameters, variables with a type; also `let name = Type::…`.
pub(crate) fn annotations(tokens: &[Token]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for at in 1..tokens.len() {
        let Some(name) = tokens[at - 1].word() else { continue };
        if tokens[at].is_sign(':') {
            found.push((name.to_owned(), words_of_type(&tokens[at + 1..])));
        } else if tokens[at].is_sign('=') && at >= 2 && is_let(&tokens[..at - 1]) {
            let first = tokens.get(at + 1).and_then(Token::word);
            found.extend(first.map(|word| (name.to_owned(), vec![word.to_owned()])));
        }
    }
    found
}

/// The position of the brace that closes the one at `open`.
pub(crate) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.is_sign('{') {
            depth += 1;
        } else if token.is_sign('}') {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    tokens.len()
}

fn is_let(before: &[Token]) -> bool {
    before.last().is_some_and(|last| last.is_word("let"))
        || (before.last().is_some_and(|last| last.is_word("mut"))
            && before.len() >= 2
            && before[before.len() - 2].is_word("let"))
}

/// The words of a type, up to where it ends.
fn words_of_type(tokens: &[Token]) -> Vec<String> {
    let mut depth = 0_i32;
    let mut words = Vec::new();
    for token in tokens {
        match &token.kind {
            TokenKind::Sign('(' | '<' | '[') => depth += 1,
            TokenKind::Sign(')' | '>' | ']') if depth == 0 => break,
            TokenKind::Sign(')' | '>' | ']') => depth -= 1,
            TokenKind::Sign(',' | ';' | '=' | '{' | '}' | '|') if depth <= 0 => break,
            TokenKind::Word(word) => words.push(word.clone()),
            TokenKind::Text(_) | TokenKind::PathSeparator | TokenKind::Sign(_) => {}
        }
    }
    words
}

/// The block that begins at the word `impl`.
fn impl_block(tokens: &[Token], at: usize) -> Option<ImplBlock> {
    let open = (at..tokens.len()).find(|here| tokens[*here].is_sign('{'))?;
    let head = &tokens[at + 1..open];
    let of_trait = outside_of_brackets(head).find(|(_, token)| token.is_word("for")).map(|(at, _)| at);
    let head = of_trait.map_or(head, |at| &head[at + 1..]);
    let end = outside_of_brackets(head).find(|(_, token)| token.is_word("where")).map(|(at, _)| at);
    let head = &head[..end.unwrap_or(head.len())];
    let of = outside_of_brackets(head).filter_map(|(_, token)| token.word()).last()?.to_owned();
    let to = closing(tokens, open);
    let methods = if of_trait.is_some() { Vec::new() } else { methods_in(&tokens[open..to]) };
    Some(ImplBlock { of, from: open, to, methods })
}

/// The tokens that stand in no `<…>`.
fn outside_of_brackets(tokens: &[Token]) -> impl Iterator<Item = (usize, &Token)> {
    let mut depth = 0_i32;
    tokens.iter().enumerate().filter(move |(at, token)| {
        if token.is_sign('<') {
            depth += 1;
        } else if token.is_sign('>') && *at > 0 && !tokens[at - 1].is_sign('-') {
            depth -= 1;
            return false;
        }
        depth == 0
    })
}

fn methods_in(block: &[Token]) -> Vec<Method> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for (at, token) in block.iter().enumerate() {
        if token.is_sign('{') {
            depth += 1;
        } else if token.is_sign('}') {
            depth -= 1;
        } else if depth == 1
            && token.is_word("fn")
            && let Some(name) = block.get(at + 1).and_then(Token::word)
        {
            let rest = &block[at..];
            let body = rest.iter().position(|one| one.is_sign('{') || one.is_sign(';')).unwrap_or(rest.len());
            let arrow =
                rest[..body].windows(2).rposition(|pair| pair[0].is_sign('-') && pair[1].is_sign('>'));
            let returns = arrow.map_or_else(Vec::new, |arrow| words_of_type(&rest[arrow + 2..body]));
            found.push(Method { name: name.to_owned(), returns, line: token.line });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rust_tokens::tokens;

    fn names(source: &str) -> Vec<String> {
        let found = inherent_methods(&tokens(source));
        let shown = |(of, methods): (&String, &Vec<Method>)| {
            let names: Vec<&str> = methods.iter().map(|method| method.name.as_str()).collect();
            format!("{of}: {}", names.join(" "))
        };
        found.iter().map(shown).collect()
    }

    #[test]
    fn inherent_methods_count_and_those_of_traits_do_not() {
        let source = "impl Engine { pub fn a(&self) { fn inner() {} } async fn b() -> u8 { 1 } }\n\
            impl<T: Into<X>> Log<T> where T: Sized { fn c(&self) -> Result<Row, E>; }\n\
            impl Drop for Engine { fn drop(&mut self) {} }\nfn f(x: impl Fn() -> u8) {}";
        assert_eq!(names(source), ["Engine: a b", "Log: c"]);
    }

    #[test]
    fn what_a_method_returns_is_known() {
        let found =
            inherent_methods(&tokens("impl E { fn log(&self, f: fn() -> u8) -> Option<&Log> { x } }"));
        assert_eq!(found["E"][0].returns, ["Option", "Log"]);
    }

    #[test]
    fn names_have_the_types_they_are_declared_with() {
        let source = "struct E { log: Arc<Log>, n: u8 }\nfn f(w: &Wakes) { let mut c = Commit::new(); }";
        let found = annotations(&tokens(source));
        let of = |name: &str| found.iter().find(|(one, _)| one == name).map(|(_, words)| words.join(" "));
        assert_eq!(of("log").as_deref(), Some("Arc Log"));
        assert_eq!(of("w").as_deref(), Some("Wakes"));
        assert_eq!(of("c").as_deref(), Some("Commit"));
        assert_eq!(fields(&tokens(source)).len(), 2);
    }
}
