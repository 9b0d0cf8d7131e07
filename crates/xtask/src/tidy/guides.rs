//! Rule: each page below "Guides" of the guide's table of contents has a row in CONTRIBUTING.md, with a test that does what the page
//! says, and that test exists.
//!
//! What a test asserts is not looked at: a reader has to. Tests are named as in `threats.rs`; those of the packages for Python and
//! TypeScript by their path and what stands in the file for their name.

use super::repository::Repository;
use super::threats::{is_test, names};
use super::violation::Violation;

const CONTENTS: &str = "docs/SUMMARY.md";
const TABLE: &str = "CONTRIBUTING.md";
const CHAPTER: &str = "# Guides";

/// Where a page of the guide is, as a row of the table links to it.
const LINK: &str = "(docs/";

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let (Some(contents), Some(table)) = (repository.file(CONTENTS), repository.file(TABLE)) else {
        return Vec::new();
    };
    let rows: Vec<(usize, &str, Vec<&str>)> = table
        .numbered_lines()
        .filter_map(|(line, text)| row(text).map(|(page, tests)| (line, page, tests)))
        .collect();
    let mut violations = Vec::new();
    let pages = pages(&contents.text);
    for page in &pages {
        if !rows.iter().any(|(_, known, tests)| known == page && !tests.is_empty()) {
            let problem = format!("no test is named that does what the guide {page} says");
            violations.push(Violation::new(TABLE, 1, problem, "add a row to its table of guides"));
        }
    }
    for (line, page, tests) in rows {
        if !pages.contains(&page) {
            let problem = format!("{page} is not below `{CHAPTER}` of {CONTENTS}");
            violations.push(Violation::new(TABLE, line, problem, "remove the row, or add the page there"));
        }
        for name in tests.into_iter().filter(|name| !exists(repository, name)) {
            let problem = format!("there is no test `{name}`");
            violations.push(Violation::new(TABLE, line, problem, "name one that is there"));
        }
    }
    violations
}

/// The pages of the chapter, by their names in `docs`.
fn pages(contents: &str) -> Vec<&str> {
    let chapter = contents.lines().skip_while(|line| *line != CHAPTER).skip(1);
    let lines = chapter.take_while(|line| !line.starts_with("# "));
    lines.filter_map(|line| line.split_once("](")?.1.strip_suffix(')')).collect()
}

/// The page and the tests of a row of the table.
fn row(line: &str) -> Option<(&str, Vec<&str>)> {
    let (page, tests) = line.strip_prefix("| [")?.split_once(LINK)?.1.split_once(')')?;
    Some((page, names(tests)))
}

fn exists(repository: &Repository, name: &str) -> bool {
    let Some((path, test)) = name.split_once("::").filter(|_| name.starts_with("packages/")) else {
        return is_test(repository, name);
    };
    let marks = [format!("def {test}("), format!("test('{test}'")];
    repository.file(path).is_some_and(|file| marks.iter().any(|mark| file.text.contains(mark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: &str = "# Start\n- [Start](start.md)\n\n# Guides\n\n- [Gates](gates.md)\n  - [Python](python.md)\n\n# Reference\n- [A](a.md)\n";
    const SOURCE: &str = "#[test]\nfn it_works() {}\n";

    fn problems(rows: &str) -> Vec<String> {
        let files = [
            (CONTENTS, PAGES),
            (TABLE, rows),
            ("crates/e2e/tests/a.rs", SOURCE),
            ("packages/python/tests/test_a.py", "def test_it() -> None:\n"),
            ("packages/typescript/test/a.test.js", "test('it works', () => {});\n"),
        ];
        check(&Repository::of(&files)).into_iter().map(|violation| violation.problem).collect()
    }

    #[test]
    fn each_guide_has_a_test_that_is_there() {
        let gates = "| [Gates](docs/gates.md) | `e2e/tests/a.rs::it_works` |\n";
        let python = "| [Python](docs/python.md) | `packages/python/tests/test_a.py::test_it`, `packages/typescript/test/a.test.js::it works` |\n";
        assert_eq!(problems(&format!("{gates}{python}")), Vec::<String>::new());
        assert_eq!(problems(gates), ["no test is named that does what the guide python.md says"]);
        let wrong = python.replace("test_it`", "test_that`");
        assert_eq!(
            problems(&format!("{gates}{wrong}")),
            ["there is no test `packages/python/tests/test_a.py::test_that`"]
        );
        let other = "| [A](docs/a.md) | `e2e/tests/a.rs::it_works` |\n";
        assert_eq!(
            problems(&format!("{gates}{python}{other}")),
            ["a.md is not below `# Guides` of docs/SUMMARY.md"]
        );
    }
}
