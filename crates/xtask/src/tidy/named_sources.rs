//! Rule: every file and folder that ARCHITECTURE.md names between backticks is there, and so is every function that its walks
//! name.
//!
//! A path stands as short as its reader understands it: `core/decide.rs` for `crates/core/src/decide.rs`, `drive/act.rs` where
//! one file ends like that. Which of several it means is for the reader; that one is there is checked here.

use super::markdown::{PageLine, Place, heading, page_lines};
use super::repository::Repository;
use super::violation::Violation;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// The chapter whose names of functions are checked, too.
const WALKS: &str = "Three walks";

/// Ends of names of files.
const ENDS: &[&str] = &[".rs", ".md", ".json", ".py", ".js", ".svg", ".toml"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let Some(page) = repository.file(ARCHITECTURE) else { return Vec::new() };
    let mut violations = Vec::new();
    let mut is_walk = false;
    for line in page_lines(&page.text).iter().filter(|line| line.place == Place::Prose) {
        if let Some((level, text)) = heading(line) {
            is_walk = level == 2 && text == WALKS || is_walk && level > 2;
        }
        let unknown = |name: &&str| {
            is_path(name) && !is_there(repository, name)
                || is_walk && is_function(name) && !is_written(repository, name)
        };
        for name in code_spans(line).filter(unknown) {
            let problem = format!("there is no `{name}`");
            violations.push(Violation::new(
                ARCHITECTURE,
                line.number,
                problem,
                "name what is there, as its path ends",
            ));
        }
    }
    violations
}

/// What stands between backticks.
fn code_spans<'a>(line: &PageLine<'a>) -> impl Iterator<Item = &'a str> {
    line.text.split('`').skip(1).step_by(2)
}

fn is_path(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    is_plain && (ENDS.iter().any(|end| name.ends_with(end)) || name.ends_with('/'))
}

fn is_there(repository: &Repository, name: &str) -> bool {
    let name = name.trim_start_matches("../").trim_end_matches('/');
    let in_crate = name.split_once('/').map(|(folder, rest)| format!("crates/{folder}/src/{rest}"));
    let ends = |path: &str| path == name || path.strip_suffix(name).is_some_and(|front| front.ends_with('/'));
    in_crate.is_some_and(|path| repository.has_file_or_folder(&path))
        || repository.files().iter().any(|file| ends(&file.path))
        || repository.folders().any(ends)
}

/// A name of a function: `needs_somebody`, `IdempotencyStore::note_keys`. Names of events and of other things in lower case have
/// dots, or no underscore.
fn is_function(name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    let is_snake = !last.is_empty() && last.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    is_snake && (name.contains("::") || last.contains('_'))
}

fn is_written(repository: &Repository, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    let marks = [format!("fn {last}("), format!("fn {last}<"), format!("{last}:")];
    let mut sources = repository.files().iter().filter(|file| file.is_crate_source());
    sources.any(|file| marks.iter().any(|mark| file.text.contains(mark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(page: &str) -> Vec<String> {
        let files = [
            (ARCHITECTURE, page),
            ("crates/core/src/decide.rs", "fn decide() {}"),
            ("crates/engine/src/drive/act.rs", "pub(crate) async fn needs_somebody(run: Run) {}"),
        ];
        check(&Repository::of(&files)).into_iter().map(|violation| violation.problem).collect()
    }

    #[test]
    fn files_and_folders_are_named_as_their_path_ends() {
        let known =
            "`core/decide.rs`, `decide.rs`, `drive/act.rs`, `drive/`, `crates/core/src/decide.rs`, `../src/`";
        assert_eq!(problems(known), Vec::<String>::new());
        let unknown = ["core/act.rs", "cide.rs", "drive/decide.rs", "steer/", "act.py"];
        for name in unknown {
            assert_eq!(problems(&format!("See `{name}`.")), [format!("there is no `{name}`")]);
        }
        assert_eq!(problems("```\n`steer/`\n```\n"), Vec::<String>::new());
    }

    #[test]
    fn walks_name_functions_that_are_there() {
        let walk =
            "## Three walks\n`needs_somebody` ends in `Engine::needs_nobody`; `call.started`, `auth`\n";
        assert_eq!(problems(walk), ["there is no `Engine::needs_nobody`"]);
        assert_eq!(problems(&walk.replace("walks", "runs")), Vec::<String>::new());
        let after = walk.replace("`auth`", "`auth`\n\n## After\n`no_function`");
        assert_eq!(problems(&after), ["there is no `Engine::needs_nobody`"]);
    }
}
