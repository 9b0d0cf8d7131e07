//! Rule: docs/threats.md has one row for each threat, T1 to T37, and each row names tests that exist.
//!
//! What a test asserts is not looked at: a reader has to. A test is named by its file below `crates/` and its function.

use super::repository::Repository;
use super::violation::Violation;

const PAGE: &str = "docs/threats.md";

/// Threats have the numbers from 1 to this one.
const LAST: u32 = 37;

/// Which cell of a row names tests.
const TESTS: usize = 3;

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let Some(page) = repository.file(PAGE) else { return Vec::new() };
    let mut violations = Vec::new();
    let mut seen = Vec::new();
    for (line, text) in page.numbered_lines() {
        let Some((number, cells)) = row(text) else { continue };
        seen.push(number);
        let named = cells.get(TESTS).map(|cell| names(cell)).unwrap_or_default();
        if named.is_empty() {
            violations.push(Violation::new(
                PAGE,
                line,
                format!("no test shows that T{number} is stopped"),
                "name one as `crate/tests/file.rs::function`",
            ));
        }
        for name in named.into_iter().filter(|name| !is_test(repository, name)) {
            let problem = format!("there is no test `{name}`");
            violations.push(Violation::new(PAGE, line, problem, "name one that is there"));
        }
    }
    for number in 1..=LAST {
        let rows = seen.iter().filter(|one| **one == number).count();
        if rows != 1 {
            let problem = format!("T{number} has {rows} rows");
            violations.push(Violation::new(PAGE, 1, problem, "each threat has one"));
        }
    }
    violations
}

/// The number and the cells of a row about a threat.
fn row(line: &str) -> Option<(u32, Vec<&str>)> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let number = cells.first()?.strip_prefix('T')?.parse().ok()?;
    Some((number, cells))
}

/// What stands between backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Whether a file has a function of this name with an attribute that makes it a test.
fn is_test(repository: &Repository, name: &str) -> bool {
    let Some((path, function)) = name.split_once("::") else { return false };
    let Some(file) = repository.file(&format!("crates/{path}")) else { return false };
    let mut is_marked = false;
    for line in file.text.lines().map(str::trim_start) {
        if line.starts_with("#[") {
            is_marked |= (line.contains("test]") || line.contains("test(")) && !line.starts_with("#[cfg(");
        } else if is_function(line, function) {
            if is_marked {
                return true;
            }
        } else if !line.starts_with("//") {
            is_marked = false;
        }
    }
    false
}

fn is_function(line: &str, name: &str) -> bool {
    let after = line.split_once("fn ").map(|(_, after)| after);
    after.and_then(|after| after.strip_prefix(name)).is_some_and(|rest| rest.starts_with(['(', '<']))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
/// T1: it holds.
#[tokio::test]
async fn it_holds() {}

#[test]
#[cfg(unix)]
fn so_does_this() {}

fn helper() {}
";

    fn problems(rows: &str) -> Vec<String> {
        let page = format!("# Threats\n\n{rows}");
        let repository = Repository::of(&[(PAGE, page.as_str()), ("crates/core/tests/a.rs", SOURCE)]);
        check(&repository).into_iter().map(|violation| violation.problem).collect()
    }

    fn all(tests: &str) -> String {
        (1..=LAST).map(|number| format!("| T{number} | what | where | {tests} | |\n")).collect()
    }

    #[test]
    fn tests_that_are_there_are_enough() {
        assert_eq!(
            problems(&all("`core/tests/a.rs::it_holds`, `core/tests/a.rs::so_does_this`")),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_is_no_test_is_named() {
        for name in
            ["core/tests/a.rs::helper", "core/tests/a.rs::it_hold", "core/tests/b.rs::it_holds", "it_holds"]
        {
            let found = problems(&all(&format!("`{name}`")));
            assert_eq!(found.len(), LAST as usize, "{found:?}");
            assert_eq!(found[0], format!("there is no test `{name}`"));
        }
    }

    #[test]
    fn each_threat_has_one_row_with_a_test() {
        let rows = all("`core/tests/a.rs::it_holds`").replace("| T7 |", "| T8 |");
        assert_eq!(problems(&rows), ["T7 has 0 rows", "T8 has 2 rows"]);
        assert_eq!(problems(&all("none")).len(), LAST as usize);
    }
}
