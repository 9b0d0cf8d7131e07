//! Rule: types and source files are nouns of the field, never bare participles or particles: `Delivery`, not `Told`; `Page`,
//! not `More`; `hold_marks.rs`, not `shown.rs`.
//!
//! A bare participle is one word that ends as verbs do (`…ed`, in types `…ing` too), or one of the irregular ones below. Names that are nouns all the
//! same, and names that a protocol or Rust itself fixes, are in `EXCEPTIONS` and `FILE_EXCEPTIONS`.

use super::graph::product_tokens;
use super::order::FOR_TESTS_ONLY;
use super::repository::Repository;
use super::rust_tokens::Token;
use super::violation::Violation;

/// Participles that do not end in `ed`, and words that are none but say as little.
const REFUSED: &[&str] = &[
    "All",
    "Also",
    "Any",
    "Asked",
    "Back",
    "Because",
    "Begun",
    "Below",
    "Beside",
    "Born",
    "Both",
    "Bound",
    "Broken",
    "Brought",
    "Built",
    "Chosen",
    "Done",
    "Drawn",
    "Driven",
    "Else",
    "Felt",
    "Forbidden",
    "Found",
    "Given",
    "Goes",
    "Gone",
    "Got",
    "Heard",
    "Held",
    "Here",
    "Hidden",
    "How",
    "Kept",
    "Known",
    "Left",
    "Less",
    "Lost",
    "Made",
    "Meant",
    "Met",
    "More",
    "Most",
    "None",
    "Not",
    "One",
    "Other",
    "Others",
    "Over",
    "Own",
    "Paid",
    "Put",
    "Rest",
    "Said",
    "Same",
    "Seen",
    "Sent",
    "Shown",
    "Shut",
    "Sought",
    "Spent",
    "Spoken",
    "Such",
    "Taken",
    "Taught",
    "That",
    "Then",
    "There",
    "These",
    "They",
    "This",
    "Those",
    "Thought",
    "Threw",
    "Told",
    "Whole",
    "Whose",
    "Won",
    "Woken",
    "Written",
];

/// Nouns that say as little as a type.
const REFUSED_TYPES: &[&str] = &["Way", "Wish", "Words"];

/// Words that end like a participle and are nouns, or that others have fixed.
const EXCEPTIONS: &[&str] = &[
    "Binding",
    "Embed",
    "Feed",
    "Finding",
    "Greeting",
    "Heading",
    "Listing",
    "Need",
    "Reasoning",
    "Seed",
    "Setting",
    "Speed",
];

/// Files that are named as others name what is in them: the header `Forwarded`, the HTTP binding of A2A, models of the type
/// `scripted`; and a run's rest, which is a noun.
const FILE_EXCEPTIONS: &[&str] = &["Forwarded", "Rest", "Scripted"];

/// Crates that are not the product.
const NOT_PRODUCT: &[&str] = &["xtask", "testkit", "e2e"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in repository.files().iter().filter(|file| file.is_crate_source()) {
        if file.crate_folder().is_none_or(|folder| NOT_PRODUCT.contains(&folder)) {
            continue;
        }
        let is_for_tests = FOR_TESTS_ONLY.iter().any(|folder| file.path.starts_with(folder));
        if let Some(name) = file_stem(&file.path).filter(|name| is_bare(name) && !is_for_tests)
            && !FILE_EXCEPTIONS.contains(&name.as_str())
        {
            violations.push(Violation::new(
                &file.path,
                1,
                "the file's name is a bare participle or particle",
                "name it by the noun of what it owns",
            ));
        }
        for (name, line) in declared_types(&product_tokens(&file.text)) {
            if is_bare_type(&name) && !EXCEPTIONS.contains(&name.as_str()) {
                violations.push(Violation::new(
                    &file.path,
                    line,
                    format!("the type `{name}` is a bare participle or particle"),
                    "name it by a noun of the field (a glossary is in CONTEXT.md)",
                ));
            }
        }
    }
    violations
}

/// The name of a file as a type would be written.
fn file_stem(path: &str) -> Option<String> {
    let stem = path.rsplit('/').next()?.strip_suffix(".rs")?;
    let (first, rest) = stem.split_at_checked(1)?;
    Some(first.to_uppercase() + rest)
}

/// The names of the types that a file declares, with their lines.
fn declared_types(tokens: &[Token]) -> Vec<(String, usize)> {
    let declares =
        |token: &Token| ["struct", "enum", "trait", "type"].iter().any(|keyword| token.is_word(keyword));
    let declared = tokens.windows(2).filter(|two| declares(&two[0]));
    declared.filter_map(|two| Some((two[1].word()?.to_owned(), two[1].line))).collect()
}

/// A type of one word that is no noun, or one that fits anything. Files may be named by what is done in them.
fn is_bare_type(name: &str) -> bool {
    is_bare(name)
        || is_one_word(name) && (REFUSED_TYPES.contains(&name) || (name.ends_with("ing") && name.len() > 5))
}

fn is_one_word(name: &str) -> bool {
    name.chars().skip(1).all(char::is_lowercase)
}

/// One word, and not a noun.
fn is_bare(name: &str) -> bool {
    is_one_word(name) && (REFUSED.contains(&name) || (name.ends_with("ed") && name.len() > 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_participles_and_particles_are_refused() {
        let source = "pub struct Gone;\nenum Prepared {}\npub(crate) struct Said;\npub struct SignedHead;\n\
            pub struct Feed;\npub trait Most {}\n#[cfg(test)]\npub struct Heard;\npub struct Delivery { pub Held: u8 }";
        let found = check(&Repository::of(&[("crates/engine/src/a.rs", source)]));
        let lines: Vec<usize> = found.iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [1, 2, 3, 6]);
        assert!(check(&Repository::of(&[("crates/xtask/src/a.rs", source)])).is_empty());
    }

    #[test]
    fn so_are_types_that_are_named_by_what_they_do() {
        let source =
            "pub struct Sending;\nenum Way {}\npub struct Finding;\npub struct PayloadSealing;\nstruct Ring;";
        let found = check(&Repository::of(&[("crates/engine/src/a.rs", source)]));
        let lines: Vec<usize> = found.iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [1, 2]);
        assert!(check(&Repository::of(&[("crates/engine/src/reads/waiting.rs", "")])).is_empty());
    }

    #[test]
    fn so_are_files() {
        let named = |path: &'static str| check(&Repository::of(&[(path, "")])).len();
        assert_eq!(named("crates/engine/src/commit/shown.rs"), 1);
        assert_eq!(named("crates/engine/src/drive/denied.rs"), 1);
        for noun in ["commit/hold_marks.rs", "http/forwarded.rs", "drive/seed.rs", "lib.rs"] {
            let path = format!("crates/engine/src/{noun}");
            assert!(check(&Repository::of(&[(&path, "")])).is_empty(), "{noun}");
        }
        assert_eq!(named("crates/engine/tests/shown.rs"), 0);
    }
}
