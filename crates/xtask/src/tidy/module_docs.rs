//! Rule: every source file of a crate starts with what it owns, what it must not know, where to look next.
//!
//! Two lines are the least that can say it. A program in `src/bin` may be so small that one line is enough.

use super::repository::{Repository, SourceFile};
use super::violation::Violation;

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    repository.files().iter().filter(|file| file.is_crate_source()).filter_map(lacks_docs).collect()
}

fn lacks_docs(file: &SourceFile) -> Option<Violation> {
    let needed = if file.path_in_crate()?.starts_with("src/bin/") { 1 } else { 2 };
    let docs = file.text.lines().map_while(|line| line.strip_prefix("//!"));
    let written = docs.filter(|line| !line.trim().is_empty()).count();
    if written >= needed {
        return None;
    }
    let problem = match written {
        0 => "the file does not start with a `//!` doc".to_owned(),
        some => format!("the `//!` doc has {some} line of text, {needed} are needed"),
    };
    let remedy = "say in two to six lines what the module owns, what it must not know, where to look next";
    Some(Violation::new(&file.path, 1, problem, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::places;

    #[test]
    fn two_lines_of_text_from_line_one() {
        let repository = Repository::of(&[
            ("crates/core/src/good.rs", "//! Owns a.\n//!\n//! Not b.\n\nuse x;"),
            ("crates/core/src/late.rs", "\n//! Owns a.\n//! Not b.\n"),
            ("crates/core/src/none.rs", "use x;"),
            ("crates/core/src/short.rs", "//! Owns a.\n//!\n"),
            ("crates/core/tests/any.rs", "use x;"),
        ]);
        let expected =
            ["crates/core/src/late.rs:1", "crates/core/src/none.rs:1", "crates/core/src/short.rs:1"];
        assert_eq!(places(&check(&repository)), expected);
    }

    #[test]
    fn a_program_in_bin_needs_one_line() {
        let repository = Repository::of(&[
            ("crates/store/src/bin/a.rs", "//! Runs the faults.\nfn main() {}"),
            ("crates/store/src/bin/b.rs", "fn main() {}"),
        ]);
        assert_eq!(places(&check(&repository)), ["crates/store/src/bin/b.rs:1"]);
    }
}
