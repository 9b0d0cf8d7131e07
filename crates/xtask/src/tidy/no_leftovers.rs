//! Rule: nothing half-done is committed: no `todo!`, `unimplemented!` or `dbg!`, no test switched off without
//! a reason.
//!
//! Clippy has lints for some of these, but a lint can be switched off in the file that breaks it.

use super::repository::{Repository, SourceFile};
use super::rust_tokens::{Token, TokenKind, tokens};
use super::violation::Violation;

const LEFTOVER_MACROS: &[&str] = &["todo", "unimplemented", "dbg"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    repository.files().iter().filter(|file| file.is_rust()).flat_map(leftovers).collect()
}

fn leftovers(file: &SourceFile) -> Vec<Violation> {
    let tokens = tokens(&file.text);
    let mut violations = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at..];
        if let Some(name) = leftover_macro(rest) {
            violations.push(Violation::new(
                &file.path,
                token.line,
                format!("`{name}!` is left in the code"),
                "finish it, or return an error that says what is not supported",
            ));
        } else if is_ignored_without_reason(rest) {
            violations.push(Violation::new(
                &file.path,
                token.line,
                "`#[ignore]` without a reason",
                "write `#[ignore = \"why, and how to run it\"]`, or remove it",
            ));
        }
    }
    violations
}

fn leftover_macro(tokens: &[Token]) -> Option<&str> {
    let [name, bang, bracket, ..] = tokens else {
        return None;
    };
    let is_call = bang.is_sign('!') && ['(', '[', '{'].iter().any(|sign| bracket.is_sign(*sign));
    name.word().filter(|name| is_call && LEFTOVER_MACROS.contains(name))
}

fn is_ignored_without_reason(tokens: &[Token]) -> bool {
    match tokens {
        [hash, bracket, ignore, equals, reason, ..]
            if hash.is_sign('#') && bracket.is_sign('[') && ignore.is_word("ignore") =>
        {
            let given = matches!(&reason.kind, TokenKind::Text(text) if !text.trim().is_empty());
            !(equals.is_sign('=') && given)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::places;

    #[test]
    fn leftovers_in_code_are_found() {
        let source = "fn a() { todo!() }\nfn b() { unimplemented!(\"x\") }\nfn c() { dbg!(1); }\n";
        let found = check(&Repository::of(&[("crates/core/src/a.rs", source)]));
        assert_eq!(
            places(&found),
            ["crates/core/src/a.rs:1", "crates/core/src/a.rs:2", "crates/core/src/a.rs:3"]
        );
    }

    #[test]
    fn comments_texts_and_other_names_are_not_leftovers() {
        let source =
            "// todo!()\nconst X: &str = \"dbg!(x)\";\nfn todo() { let todo = !todo; unreachable!(\"why\") }";
        assert!(check(&Repository::of(&[("crates/core/src/a.rs", source)])).is_empty());
    }

    #[test]
    fn an_ignored_test_says_why() {
        let source = "#[ignore = \"needs an hour; run with --ignored\"]\nfn a() {}\n#[ignore]\nfn b() {}\n\
            #[ignore = \"\"]\nfn c() {}\n";
        let found = check(&Repository::of(&[("crates/core/tests/a.rs", source)]));
        assert_eq!(places(&found), ["crates/core/tests/a.rs:3", "crates/core/tests/a.rs:5"]);
    }
}
