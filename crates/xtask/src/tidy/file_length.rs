//! Rule: no source file of a crate is longer than 700 lines.
//!
//! Most stay under 400. A file past 700 usually hides two concerns; by then it is known where to part it.

use super::repository::Repository;
use super::violation::Violation;

const MOST_LINES: usize = 700;

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in repository.files().iter().filter(|file| file.is_crate_source()) {
        let lines = file.text.lines().count();
        if lines > MOST_LINES {
            violations.push(Violation::new(
                &file.path,
                MOST_LINES + 1,
                format!("the file has {lines} lines, at most {MOST_LINES} are allowed"),
                "part it by concern; one concern, one file",
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::places;

    #[test]
    fn seven_hundred_lines_pass_and_one_more_does_not() {
        let (most, too_many) = ("x\n".repeat(700), "x\n".repeat(701));
        let repository = Repository::of(&[
            ("crates/core/src/a.rs", most.as_str()),
            ("crates/core/src/b.rs", too_many.as_str()),
            ("crates/core/tests/c.rs", too_many.as_str()),
        ]);
        assert_eq!(places(&check(&repository)), ["crates/core/src/b.rs:701"]);
    }
}
