//! Rule: no type has more methods than a reader can hold. An object with a hundred methods in twenty files is a module tree
//! that shares one private namespace.
//!
//! Inherent methods of product types, in whatever files of their crate they are defined.

use std::collections::BTreeMap;

use super::graph::{declared, inherent_methods, product_tokens};
use super::order::FOR_TESTS_ONLY;
use super::repository::{Repository, SourceFile};
use super::rust_tokens::Token;
use super::violation::Violation;

/// The most that a type may have.
const MOST: usize = 40;

/// Types that may have more: the file that declares each, its name, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "crates/store/src/memory/state.rs",
    "State",
    "the memory store: one function for each statement of the other stores",
)];

/// Crates that are not the product.
const NOT_PRODUCT: &[&str] = &["xtask", "testkit", "e2e"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let files: Vec<(&str, &str, Vec<Token>)> = repository.files().iter().filter_map(product_file).collect();
    // Where each name is declared: two types of one crate may share a name.
    let mut declarations: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (folder, path, tokens) in &files {
        for (_, name, _) in declared(tokens, &["struct", "enum", "trait"]) {
            declarations.entry((folder, name)).or_default().push(path);
        }
    }
    // By the file that declares the type: how many it has, and where the first ones are.
    let mut found: BTreeMap<(&str, String), (usize, &str, usize)> = BTreeMap::new();
    for (folder, path, tokens) in &files {
        for (of, methods) in inherent_methods(tokens) {
            let line = methods.first().map_or(1, |method| method.line);
            let declared = declarations.get(&(*folder, of.as_str())).map_or(&[][..], Vec::as_slice);
            let nearest = declared.iter().max_by_key(|other| shared(other, path)).copied().unwrap_or(path);
            found.entry((nearest, of)).or_insert((0, path, line)).0 += methods.len();
        }
    }
    let is_excepted =
        |file: &str, of: &str| EXCEPTIONS.iter().any(|(path, name, _)| (*path, *name) == (file, of));
    found.retain(|(file, of), (count, _, _)| *count > MOST && !is_excepted(file, of));
    let violation = |((_, of), (count, path, line)): ((&str, String), (usize, &str, usize))| {
        Violation::new(
            path,
            line,
            format!("`{of}` has {count} methods"),
            format!("{MOST} are the most: let parts of it own their state, and hand them out"),
        )
    };
    found.into_iter().map(violation).collect()
}

/// The crate, the path and the tokens of a source file of the product.
fn product_file(file: &SourceFile) -> Option<(&str, &str, Vec<Token>)> {
    let folder =
        file.crate_folder().filter(|folder| file.is_crate_source() && !NOT_PRODUCT.contains(folder))?;
    let is_test = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
    let is_for_tests = FOR_TESTS_ONLY.iter().any(|skipped| file.path.starts_with(skipped));
    (!is_test && !is_for_tests).then(|| (folder, file.path.as_str(), product_tokens(&file.text)))
}

/// How much of their paths two files share.
fn shared(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_counted_over_all_files() {
        let block = |from: usize, to: usize| {
            let methods: String = (from..to).map(|number| format!("fn f{number}(&self) {{}} ")).collect();
            format!("impl Engine {{ {methods} }}")
        };
        let (one, two, test) = (block(0, 21), block(21, 41), format!("#[cfg(test)]\n{}", block(41, 90)));
        let exempt = format!("struct State;\n{}", block(0, 41).replace("Engine", "State"));
        let files = [
            ("crates/engine/src/lib.rs", "pub struct Engine;"),
            ("crates/engine/src/a.rs", one.as_str()),
            ("crates/engine/src/b.rs", &two),
            ("crates/engine/src/c.rs", &test),
            ("crates/tools/src/a.rs", &one),
            ("crates/store/src/memory/state.rs", &exempt),
            ("crates/store/src/sqlite/state.rs", &exempt),
        ];
        let found = check(&Repository::of(&files));
        let said: Vec<_> = found.iter().map(|one| (one.path.as_str(), one.problem.as_str())).collect();
        assert_eq!(
            said,
            [
                ("crates/engine/src/a.rs", "`Engine` has 41 methods"),
                ("crates/store/src/sqlite/state.rs", "`State` has 41 methods")
            ],
            "a name is excepted in one file, not everywhere"
        );
    }
}
