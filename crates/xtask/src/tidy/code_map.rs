//! Rule: the code map of ARCHITECTURE.md names every top-level module of every crate of the product.
//!
//! The map has one table for each crate, headed by the crate's source folder. What a module owns is for its author to
//! say; that it is there at all is checked here.

use std::collections::BTreeMap;

use super::repository::{Repository, SourceFile};
use super::violation::Violation;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Crates that are tools for the work on the product: one row of the map is enough for each.
const NOT_MAPPED: &[&str] = &["xtask", "testkit", "e2e"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let Some(page) = repository.file(ARCHITECTURE) else { return Vec::new() };
    let tables = tables(page);
    let mut violations = Vec::new();
    for (folder, modules) in modules(repository) {
        let (line, text) = tables.get(folder.as_str()).cloned().unwrap_or((1, String::new()));
        for module in modules.iter().filter(|module| !names(&text, module)) {
            let problem = format!("the code map of `{folder}` does not name `{module}`");
            violations.push(Violation::new(
                ARCHITECTURE,
                line,
                problem,
                "add it to that table, with what it owns",
            ));
        }
    }
    violations
}

/// Whether a table names a module: as a file or as a folder.
fn names(table: &str, module: &str) -> bool {
    let folder = module.strip_suffix(".rs").unwrap_or(module);
    table.contains(&format!("`{module}`")) || table.contains(&format!("`{folder}/`"))
}

/// The tables of the page by the source folder in their heading row, each with its line and its text.
fn tables(page: &SourceFile) -> BTreeMap<&str, (usize, String)> {
    let mut tables: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    let mut current = None;
    for (number, line) in page.numbered_lines() {
        if !line.starts_with('|') {
            current = None;
        } else if let Some(folder) = heading(line) {
            current = Some(folder);
            tables.insert(folder, (number, String::new()));
        } else if let Some((_, text)) = current.and_then(|folder| tables.get_mut(folder)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    tables
}

/// The folder of a heading such as "| `crates/core/src` | owns |".
fn heading(line: &str) -> Option<&str> {
    let folder = line.strip_prefix("| `")?.split_once('`')?.0;
    (folder.starts_with("crates/") && folder.ends_with("/src")).then_some(folder)
}

/// The top-level modules of each crate: `name.rs`, also of a module that is a folder with `mod.rs`.
fn modules(repository: &Repository) -> BTreeMap<String, Vec<String>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in repository.files().iter().filter(|file| file.is_crate_source()) {
        let (Some(folder), Some(path)) = (file.crate_folder(), file.path_in_crate()) else { continue };
        let inside = path.trim_start_matches("src/");
        let module = match inside.split_once('/') {
            None => inside.to_owned(),
            Some((name, "mod.rs")) => format!("{name}.rs"),
            Some(_) => continue,
        };
        if !NOT_MAPPED.contains(&folder) && module != "lib.rs" && module != "main.rs" {
            modules.entry(format!("crates/{folder}/src")).or_default().push(module);
        }
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_is_named_in_the_table_of_its_crate() {
        let page = "# Map\n\n| `crates/core/src` | owns |\n|---|---|\n| `a.rs`, `b/` | things |\n\n\
            | `crates/store/src` | owns |\n|---|---|\n| `c.rs` | rows |\n\n`d.rs` is elsewhere\n";
        let repository = Repository::of(&[
            (ARCHITECTURE, page),
            ("crates/core/src/lib.rs", ""),
            ("crates/core/src/a.rs", ""),
            ("crates/core/src/a/inside.rs", ""),
            ("crates/core/src/b/mod.rs", ""),
            ("crates/core/src/c.rs", ""),
            ("crates/core/tests/t.rs", ""),
            ("crates/store/src/c.rs", ""),
            ("crates/store/src/d.rs", ""),
            ("crates/xtask/src/x.rs", ""),
            ("crates/new/src/e.rs", ""),
        ]);
        let found: Vec<String> =
            check(&repository).iter().map(|found| format!("{}: {}", found.line, found.problem)).collect();
        let expected = [
            "3: the code map of `crates/core/src` does not name `c.rs`",
            "1: the code map of `crates/new/src` does not name `e.rs`",
            "7: the code map of `crates/store/src` does not name `d.rs`",
        ];
        assert_eq!(found, expected);
    }
}
