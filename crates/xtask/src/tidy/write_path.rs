//! Rule: one write path. Only two components of the engine begin a pipeline of events: the one that commits, and the one that
//! drives a run. Whoever else wants something written asks the first.
//!
//! The names are the data below.

use super::graph::product_tokens;
use super::order::ENGINE_FOLDER;
use super::repository::Repository;
use super::rust_tokens::TokenKind;
use super::violation::Violation;

/// What puts events into the store, by its name now and before.
const PIPELINES: &[&str] = &["Pipeline", "Driver"];

/// What begins one.
const BEGINNINGS: &[&str] = &["of", "start"];

/// The components that may, each in one file.
const WRITERS: &[&str] = &["commit", "drive"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut files: Vec<&str> = Vec::new();
    for file in repository.files().iter().filter(|file| file.is_crate_source()) {
        if matches!(file.crate_folder(), Some("core" | "store" | "xtask" | "testkit")) {
            continue;
        }
        let below =
            file.path.strip_prefix(ENGINE_FOLDER).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
        let component = below.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        for line in beginnings(&file.text) {
            if !files.contains(&file.path.as_str()) {
                files.push(&file.path);
            }
            if !WRITERS.contains(&component) || files.len() > WRITERS.len() {
                violations.push(Violation::new(
                    &file.path,
                    line,
                    "this begins a pipeline of events by itself",
                    format!("only one file of each of {} does; call `commit`", WRITERS.join(" and ")),
                ));
            }
        }
    }
    violations
}

/// The lines in which a pipeline is begun.
fn beginnings(source: &str) -> Vec<usize> {
    let tokens = product_tokens(source);
    let begins = tokens.windows(4).filter(|four| {
        let of = PIPELINES.iter().any(|name| four[0].is_word(name));
        let begins = BEGINNINGS.iter().any(|name| four[2].is_word(name));
        of && begins && four[1].kind == TokenKind::PathSeparator && four[3].is_sign('(')
    });
    begins.map(|four| four[0].line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::places;

    #[test]
    fn two_components_begin_pipelines_and_nobody_else() {
        let begins = "fn f() { Pipeline::of(x) }";
        let files = [
            ("crates/engine/src/log/mod.rs", ""),
            ("crates/engine/src/commit/mod.rs", begins),
            ("crates/engine/src/drive/turn.rs", "fn f() { Pipeline::start(x) }"),
            ("crates/engine/src/reads/list.rs", "fn f() { Pipeline::other(x) }"),
            ("crates/store/src/pipeline.rs", begins),
            ("crates/surfaces/src/inbox.rs", "\nfn f() { Driver::of(x) }"),
        ];
        assert_eq!(places(&check(&Repository::of(&files))), ["crates/surfaces/src/inbox.rs:2"]);
    }

    #[test]
    fn a_third_file_is_one_too_many() {
        let begins = "fn f() { Pipeline::of(x) }";
        let files = [
            ("crates/engine/src/log/mod.rs", ""),
            ("crates/engine/src/commit/mod.rs", begins),
            ("crates/engine/src/commit/other.rs", begins),
            ("crates/engine/src/drive/mod.rs", begins),
        ];
        assert_eq!(places(&check(&Repository::of(&files))), ["crates/engine/src/drive/mod.rs:1"]);
    }
}
