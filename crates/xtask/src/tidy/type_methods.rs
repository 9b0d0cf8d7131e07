//! Rule: no type has more methods than a reader can hold. An object with a hundred methods in twenty files is a module tree
//! that shares one private namespace.
//!
//! Inherent methods of product types, in whatever files of their crate they are defined.

use std::collections::BTreeMap;

use super::graph::{inherent_methods, product_tokens};
use super::repository::Repository;
use super::violation::Violation;

/// The most that a type may have.
const MOST: usize = 40;

/// Types that may have more, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Crates that are not the product.
const NOT_PRODUCT: &[&str] = &["xtask", "testkit", "e2e"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    // By crate and type: how many, and where the first ones are.
    let mut found: BTreeMap<(&str, String), (usize, &str, usize)> = BTreeMap::new();
    for file in repository.files().iter().filter(|file| file.is_crate_source()) {
        let Some(folder) = file.crate_folder().filter(|folder| !NOT_PRODUCT.contains(folder)) else {
            continue;
        };
        if file.path.ends_with("/tests.rs") || file.path.contains("/tests/") {
            continue;
        }
        for (of, methods) in inherent_methods(&product_tokens(&file.text)) {
            let line = methods.first().map_or(1, |method| method.line);
            found.entry((folder, of)).or_insert((0, &file.path, line)).0 += methods.len();
        }
    }
    found.retain(|(_, of), (count, _, _)| *count > MOST && EXCEPTIONS.iter().all(|(name, _)| name != of));
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
        let files = [
            ("crates/engine/src/a.rs", one.as_str()),
            ("crates/engine/src/b.rs", &two),
            ("crates/engine/src/c.rs", &test),
            ("crates/tools/src/a.rs", &one),
        ];
        let found = check(&Repository::of(&files));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].path.as_str(), found[0].problem.as_str()),
            ("crates/engine/src/a.rs", "`Engine` has 41 methods")
        );
    }
}
