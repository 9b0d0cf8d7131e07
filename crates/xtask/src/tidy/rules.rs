//! The list of rules, and the ways to run them: `tidy`, `tidy --missing`, `tidy --tests`, `tidy --graph`.
//!
//! A new rule is a file beside this one and a row in the table.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::repository::Repository;
use super::violation::Violation;
use super::{
    code_map, error_texts, file_length, guides, links, module_docs, named_sources, no_leftovers, old_name,
    order, product_only, readme_commands, requirement_table, requirements, script_budget, threats,
    type_methods, type_names, use_edges, write_path,
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
    requirement_table::check,
    product_only::check,
    no_leftovers::check,
    old_name::check,
    order::check,
    write_path::check,
    type_methods::check,
    type_names::check,
    code_map::check,
    named_sources::check,
    script_budget::check,
    threats::check,
    guides::check,
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

/// Prints every graph, and what the rules that are still coming find.
pub(crate) fn show_graph(root: &Path) -> Result<()> {
    let repository = Repository::read(root)?;
    for (title, graph) in order::graphs(&repository) {
        println!("{}", graph.shown(&title));
    }
    Ok(())
}

/// Draws the crates and the engine's components.
pub(crate) fn draw_graph(root: &Path, file: &Path) -> Result<()> {
    let file = root.join(file);
    std::fs::write(&file, order::drawn(&Repository::read(root)?))
        .with_context(|| format!("{} cannot be written", file.display()))
}

/// Writes the table of what shows each requirement.
pub(crate) fn write_tests(root: &Path) -> Result<()> {
    let repository = Repository::read(root)?;
    let Some((path, text)) = requirement_table::current(&repository) else { return Ok(()) };
    std::fs::write(root.join(path), text).with_context(|| format!("{path} cannot be written"))
}

/// Prints the requirements that no test names. Never an error: the list is a to-do list.
pub(crate) fn missing(root: &Path) -> Result<()> {
    print!("{}", requirements::missing(&Repository::read(root)?));
    Ok(())
}
