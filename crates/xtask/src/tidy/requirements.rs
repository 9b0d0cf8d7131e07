//! Rule: every requirement that a test names exists in docs/requirements.md. Also the list of those that none
//! names.
//!
//! A requirement counts as met when a test names its number, in a comment or in a scenario file; so a number
//! that does not exist is a test that shows nothing. Conflicts (`C7`) are named in the doc comment of a test
//! or in a scenario's `shows:`: elsewhere `C` and digits mean other things. The form of the numbers is in
//! `requirement_numbers.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::table_cells;
use super::repository::{Repository, SourceFile};
use super::requirement_numbers::{Group, Looking, Mention, Number, mentions};
use super::requirement_table;
use super::violation::Violation;

pub(super) const REQUIREMENTS: &str = "docs/requirements.md";

/// `tidy --missing` prints a line for each requirement; the page has the whole text.
const SHOWN_CHARACTERS: usize = 110;

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let Some(page) = repository.file(REQUIREMENTS) else {
        let remedy = "every requirement has a row there, with its number in the first cell";
        return vec![Violation::new(REQUIREMENTS, 1, "the file does not exist", remedy)];
    };
    let known = requirements(page);
    named_by_tests(repository).iter().filter_map(|named| wrong_number(named, &known)).collect()
}

/// The requirements that no test names, by source, and how many there are.
pub(crate) fn missing(repository: &Repository) -> String {
    let known = repository.file(REQUIREMENTS).map(requirements).unwrap_or_default();
    let named: BTreeSet<&Number> =
        named_by_tests(repository).iter().flat_map(|named| covered(&named.mention, &known)).collect();
    let groups: BTreeSet<Group> = known.keys().map(|number| number.group).collect();
    let mut text = String::new();
    for group in groups {
        let of_group = || known.iter().filter(|(number, _)| number.group == group);
        let unnamed: Vec<_> = of_group().filter(|(number, _)| !named.contains(number)).collect();
        text.push_str(&format!("{group}: {} of {} named by no test\n", unnamed.len(), of_group().count()));
        for (number, what) in unnamed {
            text.push_str(&format!("  {:7} {}\n", number.to_string(), shortened(what)));
        }
    }
    let unnamed = known.len() - named.len();
    text.push_str(&format!("all: {unnamed} of {} named by no test\n", known.len()));
    text
}

/// The numbers in the first cells of the page's tables, with the text of the second.
pub(super) fn requirements(page: &SourceFile) -> BTreeMap<Number, String> {
    // What follows is the table of tests, whose rows begin with the same numbers.
    let own = page.text.split(requirement_table::HEADING).next().unwrap_or_default();
    let rows = own.lines().filter_map(table_cells);
    let numbered = rows.filter_map(|cells| {
        let number = Number::parse(cells.first()?.trim_matches(['*', '`']))?;
        Some((number, cells.get(1).cloned().unwrap_or_default()))
    });
    numbered.collect()
}

struct NamedByTest {
    path: String,
    line: usize,
    mention: Mention,
}

fn named_by_tests(repository: &Repository) -> Vec<NamedByTest> {
    let mut found = Vec::new();
    for file in repository.files().iter().filter(|file| may_name_requirements(file)) {
        let docs = if file.is_rust() { docs_of_tests(file) } else { BTreeSet::new() };
        for (line, text) in file.numbered_lines() {
            let shows_of_scenario =
                file.path.ends_with(".scenario") && text.trim_start().starts_with("shows:");
            let shows = shows_of_scenario || docs.contains(&line);
            let looking = if shows { Looking::ForSourcesAndConflicts } else { Looking::ForSources };
            let named = mentions(text, looking).into_iter();
            found.extend(named.map(|mention| NamedByTest { path: file.path.clone(), line, mention }));
        }
    }
    found
}

/// The lines that are doc comments of test functions.
fn docs_of_tests(file: &SourceFile) -> BTreeSet<usize> {
    let (mut found, mut above) = (BTreeSet::new(), Vec::new());
    for (line, text) in file.numbered_lines() {
        let text = text.trim_start();
        let is_test = text.starts_with("#[") && (text.contains("test]") || text.contains("test("));
        if text.starts_with("///") {
            above.push(line);
        } else if is_test && !text.starts_with("#[cfg(") {
            found.extend(above.drain(..));
        } else if !text.starts_with("#[") {
            above.clear();
        }
    }
    found
}

/// Files of tests, those of browsers among them, and all Rust source: unit tests and the store's conformance suite live in
/// it. The tests of this crate only make numbers up.
pub(super) fn may_name_requirements(file: &SourceFile) -> bool {
    let in_tests = file.path_in_crate().is_some_and(|path| path.starts_with("tests/"));
    let is_test = in_tests || file.is_rust() || is_browser_test(file);
    file.crate_folder().is_some_and(|folder| folder != "xtask") && is_test
}

/// Tests of pages in a real browser: JavaScript, which says what it shows in the title of each test.
pub(super) fn is_browser_test(file: &SourceFile) -> bool {
    file.path.ends_with(".test.js")
}

fn wrong_number(named: &NamedByTest, known: &BTreeMap<Number, String>) -> Option<Violation> {
    let Mention { first, last } = &named.mention;
    let problem = if let Some(unknown) = [first, last].into_iter().find(|number| !known.contains_key(*number))
    {
        format!("{unknown} is not in {REQUIREMENTS}")
    } else if first > last {
        format!("the range {first} to {last} goes backwards")
    } else {
        return None;
    };
    Some(Violation::new(&named.path, named.line, problem, "name the requirement that the test shows"))
}

pub(super) fn covered<'a>(mention: &Mention, known: &'a BTreeMap<Number, String>) -> Vec<&'a Number> {
    let inside = |number: &&Number| mention.first <= **number && **number <= mention.last;
    known.keys().filter(inside).collect()
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARACTERS {
        return text.to_owned();
    }
    let start: String = text.chars().take(SHOWN_CHARACTERS - 1).collect();
    format!("{}…", start.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
| number | what | mark |
| --- | --- | --- |
| S0-1 | one | |
| S0-2 | two \\| 2 | opt |
| S0-2a | two a | gap |
| S0-3 | three | |
| S1-1 | other | |

| # | conflict |
| --- | --- |
| C7 | seven |
| C8 | eight |
";

    fn repository(tests: &[(&str, &str)]) -> Repository {
        Repository::of(&[&[(REQUIREMENTS, PAGE)], tests].concat())
    }

    #[test]
    fn a_number_that_does_not_exist_is_found_wherever_tests_are() {
        let found = check(&repository(&[
            ("crates/core/src/run.rs", "/// S0-1\n/// S0-9\nfn c7() {} // C9"),
            ("crates/core/tests/scenarios/a.scenario", "shows: S0-2, C9\ngiven C10"),
            ("crates/server/tests/b.json", "{\"why\": \"S4-1\"}"),
            ("crates/e2e/browser/c.test.js", "test('it waits (S0-8)', () => {});"),
            ("crates/e2e/browser/helper.js", "// S0-9"),
            ("crates/server/benches/notes.txt", "S0-9"),
            ("crates/xtask/src/main.rs", "// S0-9"),
            ("README.md", "S0-9"),
        ]));
        let shown: Vec<String> =
            found.iter().map(|one| format!("{}:{} {}", one.path, one.line, one.problem)).collect();
        let expected = [
            "crates/core/src/run.rs:2 S0-9 is not in docs/requirements.md",
            "crates/core/tests/scenarios/a.scenario:1 C9 is not in docs/requirements.md",
            "crates/server/tests/b.json:1 S4-1 is not in docs/requirements.md",
            "crates/e2e/browser/c.test.js:1 S0-8 is not in docs/requirements.md",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_test_names_conflicts_in_its_doc_comment() {
        let named = "/// C7: so it is,\n/// C8 too.\n#[test]\nfn a() {}\n";
        let elsewhere = "/// C7: a rule.\nfn b() {}\n// C8\n#[cfg(test)]\nmod tests {}\n";
        let listed = |text: &str| missing(&repository(&[("crates/core/src/a.rs", text)]));
        assert!(listed(named).contains("C: 0 of 2 named"), "{}", listed(named));
        assert!(listed(elsewhere).contains("C: 2 of 2 named"), "{}", listed(elsewhere));
        let found =
            check(&repository(&[("crates/core/src/a.rs", "/// C9\n#[tokio::test]\nasync fn a() {}")]));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_range_has_known_ends_in_order() {
        assert!(check(&repository(&[("crates/core/tests/a.rs", "// S0-1 … S0-3")])).is_empty());
        let found = check(&repository(&[("crates/core/tests/a.rs", "// S0-3..S0-1\n// S0-1..S0-4")]));
        let problems: Vec<&str> = found.iter().map(|one| one.problem.as_str()).collect();
        assert_eq!(
            problems,
            ["the range S0-3 to S0-1 goes backwards", "S0-4 is not in docs/requirements.md"]
        );
    }

    #[test]
    fn missing_lists_what_no_test_names() {
        let repository = repository(&[
            ("crates/core/tests/a.rs", "// S0-2 … S0-3"),
            ("crates/core/tests/scenarios/b.scenario", "shows: C7"),
        ]);
        let expected = "\
S0: 1 of 4 named by no test
  S0-1    one
S1: 1 of 1 named by no test
  S1-1    other
C: 1 of 2 named by no test
  C8      eight
all: 3 of 7 named by no test
";
        assert_eq!(missing(&repository), expected);
    }

    #[test]
    fn the_page_itself_must_exist() {
        assert_eq!(check(&Repository::of(&[])).len(), 1);
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"x".repeat(200)).chars().count(), SHOWN_CHARACTERS);
    }
}
