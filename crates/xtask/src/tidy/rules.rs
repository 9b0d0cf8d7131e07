//! The list of rules, and the two ways to run them: `tidy` and `tidy --missing`.
//!
//! A new rule is a file beside this one and a row in the table.

use std::path::Path;

use anyhow::{Result, bail};

use super::repository::Repository;
use super::violation::Violation;
use super::{
    code_map, error_texts, file_length, links, module_docs, no_leftovers, old_name, product_only,
    readme_commands, requirements, use_edges,
};

type Rule = fn(&Repository) -> Vec<Violation>;

const RULES: &[Rule] = &[
    use_edges::check,
    module_docs::check,
    file_length::check,
    readme_commands::check,
    links::check,
    error_texts::check,
    requirements::check,
    product_only::check,
    no_leftovers::check,
    old_name::check,
    code_map::check,
];

/// Prints every violation of every rule; any is an error.
pub(crate) fn check(root: &Path) -> Result<()> {
    let repository = Repository::read(root)?;
    let mut violations: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&repository)).collect();
    violations.sort();
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            println!("tidy: {} files, all rules hold", repository.files().len());
            Ok(())
        }
        1 => bail!("tidy found 1 violation, listed above"),
        more => bail!("tidy found {more} violations, listed above"),
    }
}

/// Prints the requirements that no test names. Never an error: the list is a to-do list.
pub(crate) fn missing(root: &Path) -> Result<()> {
    print!("{}", requirements::missing(&Repository::read(root)?));
    Ok(())
}
