//! Rule: docs/threats.md has one row for each threat, T1 to T37, and each row names tests that exist,
//! one of them by the number of the threat: `t12_…`, or `t12_t13_…` for two.
//!
//! What a test asserts is not looked at: a reader has to. A test is named by its file below `crates/` and its function.

use super::repository::Repository;
use super::violation::Violation;

const PAGE: &str = "docs/threats.md";

/// Threats have the numbers from 1 to this one.
const LAST: u32 = 37;

/// Which cell of a row names tests.
const TESTS: usize = 3;

/// The cells of a row, and what follows its last line.
const CELLS: usize = 6;

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
        if !named.is_empty() && !named.iter().any(|name| numbers(name).contains(&number)) {
            let problem = format!("no test of T{number} has its number");
            violations.push(Violation::new(PAGE, line, problem, "name a test `t1_…` after the threat T1"));
        }
        if cells.len() != CELLS {
            let problem = format!("T{number} has {} cells", cells.len().saturating_sub(1));
            violations.push(Violation::new(PAGE, line, problem, "each row has five, the last may be empty"));
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
pub(super) fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The threats that the name of a test begins with.
fn numbers(name: &str) -> Vec<u32> {
    let function = name.split_once("::").map_or("", |(_, function)| function);
    function.split('_').map_while(|word| word.strip_prefix('t')?.parse().ok()).collect()
}

/// Whether a file has a function of this name with an attribute that makes it a test.
pub(super) fn is_test(repository: &Repository, name: &str) -> bool {
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
/// It holds.
#[tokio::test]
async fn it_holds() {}

#[test]
#[cfg(unix)]
fn so_does_this() {}

fn helper() {}
";

    /// A test for each threat, named after it.
    fn numbered() -> String {
        (1..=LAST).map(|number| format!("#[test]\nfn t{number}_t99_it_is_stopped() {{}}\n")).collect()
    }

    fn problems(rows: &str) -> Vec<String> {
        let (page, numbered) = (format!("# Threats\n\n{rows}"), numbered());
        let files = [
            (PAGE, page.as_str()),
            ("crates/core/tests/a.rs", SOURCE),
            ("crates/core/tests/n.rs", numbered.as_str()),
        ];
        let repository = Repository::of(&files);
        check(&repository).into_iter().map(|violation| violation.problem).collect()
    }

    fn all(tests: &str) -> String {
        let row = |number| {
            format!(
                "| T{number} | what | where | `core/tests/n.rs::t{number}_t99_it_is_stopped`, {tests} | |\n"
            )
        };
        (1..=LAST).map(row).collect()
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
        let number = "no test of T8 has its number";
        assert_eq!(problems(&rows), [number, "T7 has 0 rows", "T8 has 2 rows"]);
        let rows = all("").replace("`core/tests/n.rs::t7_t99_it_is_stopped`, ", "none");
        assert_eq!(problems(&rows), ["no test shows that T7 is stopped"]);
    }

    #[test]
    fn each_row_has_a_test_with_its_number_and_five_cells() {
        let rows =
            all("`core/tests/a.rs::it_holds`").replace("`core/tests/n.rs::t7_t99_it_is_stopped`, ", "");
        assert_eq!(problems(&rows), ["no test of T7 has its number"]);
        let rows = all("").replacen("| |\n", "|\n", 1);
        assert_eq!(problems(&rows), ["T1 has 4 cells"]);
    }
}
