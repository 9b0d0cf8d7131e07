//! Rule: the name that the product had before stands nowhere but in the changelog, in no spelling.
//!
//! Another program of the field has that name: a reader who meets it here would look for the wrong product.

use super::repository::Repository;
use super::violation::Violation;

/// In two pieces, so that this file keeps the rule too.
const OLD_NAME: [&str; 2] = ["hold", "point"];

/// Where it is said that there was a rename.
const CHANGELOG: &str = "CHANGELOG.md";

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let old_name = OLD_NAME.concat();
    let mut found = Vec::new();
    for file in repository.files().iter().filter(|file| file.path != CHANGELOG) {
        let in_path = file.path.to_lowercase().contains(&old_name).then_some(1);
        let in_lines = file.numbered_lines().filter(|(_, line)| line.to_lowercase().contains(&old_name));
        found.extend(in_path.into_iter().chain(in_lines.map(|(number, _)| number)).map(|number| {
            let what = format!("the old name of the product (`{old_name}`)");
            Violation::new(&file.path, number, what, "write `standfast`")
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::places;

    #[test]
    fn the_old_name_is_found_in_every_spelling_and_in_paths() {
        let [first, second] = OLD_NAME;
        let text = format!("fine\n{}{second}-core\n{}\n", first.to_uppercase(), "a hold point is fine");
        let path = format!("examples/{first}{second}.yaml");
        let repository = Repository::of(&[("README.md", &text), (&path, "fine"), (CHANGELOG, &text)]);
        assert_eq!(places(&check(&repository)), ["README.md:2".to_owned(), format!("{path}:1")]);
    }
}
