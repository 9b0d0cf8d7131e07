//! Rule: public types are nouns of the field, never bare participles or particles: `Delivery`, not `Told`; `Page`, not `More`.
//!
//! A bare participle is one word that ends as verbs do, or one of the irregular ones below. Names that are nouns all the
//! same, and names that a protocol or Rust itself fixes, are in `EXCEPTIONS`.

use std::collections::BTreeSet;

use super::graph::product_tokens;
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

/// Words that end like a participle and are nouns, or that others have fixed.
const EXCEPTIONS: &[&str] = &["Embed", "Feed", "Need", "Seed", "Speed"];

/// Names of before this rule. The list only shrinks: a name that nobody has any more is taken off it.
const STILL_THERE: &[&str] = &[
    "Asked", "Because", "Begun", "Beside", "Blocked", "Broken", "Built", "Changed", "Checked", "Deleted",
    "Detached", "Disabled", "Failed", "Given", "Handed", "Implied", "Kept", "Listed", "Lost", "More",
    "Others", "Put", "Refused", "Resumed", "Returned", "Settled", "Shown", "Unjudged", "Written",
];

/// Where this list is.
const HERE: &str = "crates/xtask/src/tidy/type_names.rs";

/// Crates that are not the product.
const NOT_PRODUCT: &[&str] = &["xtask", "testkit", "e2e"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut left: BTreeSet<&str> = STILL_THERE.iter().copied().collect();
    for file in repository.files().iter().filter(|file| file.is_crate_source()) {
        if file.crate_folder().is_none_or(|folder| NOT_PRODUCT.contains(&folder)) {
            continue;
        }
        for (name, line) in public_types(&product_tokens(&file.text)) {
            let is_known = EXCEPTIONS.contains(&name.as_str()) || STILL_THERE.contains(&name.as_str());
            left.remove(name.as_str());
            if is_bare(&name) && !is_known {
                violations.push(Violation::new(
                    &file.path,
                    line,
                    format!("the public type `{name}` is a bare participle or particle"),
                    "name it by a noun of the field (a glossary is in CONTEXT.md)",
                ));
            }
        }
    }
    if repository.file(HERE).is_some() {
        violations.extend(left.into_iter().map(|name| {
            let problem = format!("no public type is called `{name}` any more");
            Violation::new(HERE, 1, problem, "take it off STILL_THERE")
        }));
    }
    violations
}

/// The names of the public types that a file declares, with their lines.
fn public_types(tokens: &[Token]) -> Vec<(String, usize)> {
    let declares =
        |token: &Token| ["struct", "enum", "trait", "type"].iter().any(|keyword| token.is_word(keyword));
    let public = tokens.windows(3).filter(|three| three[0].is_word("pub") && declares(&three[1]));
    public.filter_map(|three| Some((three[2].word()?.to_owned(), three[2].line))).collect()
}

/// One word, and not a noun.
fn is_bare(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(char::is_lowercase);
    is_one_word && (REFUSED.contains(&name) || (name.ends_with("ed") && name.len() > 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_participles_and_particles_are_refused() {
        let source = "pub struct Gone;\npub enum Prepared {}\npub(crate) struct Said;\npub struct SignedHead;\n\
            pub struct Feed;\npub trait Most {}\n#[cfg(test)]\npub struct Heard;\npub struct Delivery { pub Held: u8 }";
        let found = check(&Repository::of(&[("crates/engine/src/a.rs", source)]));
        let lines: Vec<usize> = found.iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [1, 2, 6]);
        assert!(check(&Repository::of(&[("crates/xtask/src/a.rs", source)])).is_empty());
    }

    #[test]
    fn the_list_of_old_names_only_shrinks() {
        let all: String = STILL_THERE.iter().map(|name| format!("pub struct {name};\n")).collect();
        let found = |text: &str| check(&Repository::of(&[("crates/core/src/a.rs", text), (HERE, "")])).len();
        assert_eq!(found(&all), 0);
        assert_eq!(found(""), STILL_THERE.len());
    }
}
