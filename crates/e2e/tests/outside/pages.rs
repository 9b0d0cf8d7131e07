//! Pages of the guide as their readers use them: what a page prints, with the addresses and programs of a test in the place of those that
//! it names.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use standfast_testkit::binary::repository_root;

/// A page of the guide.
pub(crate) fn page(name: &str) -> String {
    std::fs::read_to_string(repository_root().join("docs").join(name)).unwrap()
}

/// A block of a page in this language, by its place among them.
pub(crate) fn block<'a>(page: &'a str, language: &str, no: usize) -> &'a str {
    let begin = format!("\n```{language}\n");
    let rest = page.split(&begin).nth(no + 1).unwrap_or_else(|| panic!("no block {no} of {language}"));
    rest.split_once("\n```").unwrap().0
}

/// What is printed, with what a test has in the place of some of it; all of that has to be there.
pub(crate) fn with(printed: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(printed.to_owned(), |text, (printed, meant)| {
        assert!(text.contains(printed), "{printed} is not in\n{text}");
        text.replace(printed, meant)
    })
}

/// What stands between backticks in a text.
pub(crate) fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The rows of the table below this heading, without its first two lines: their cells.
pub(crate) fn table<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, section) = page.split_once(&format!("{heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}
