//! Rule: what the documentation tells people to type exists.
//!
//! Looks at README.md, CONTRIBUTING.md and docs/. The known commands are the lists in `commands.rs`; nothing
//! is run. What the pages link to is checked in `links.rs`.

use super::markdown::{PageLine, Place, page_lines};
use super::repository::{Repository, SourceFile};
use super::violation::Violation;
use crate::commands::{STANDFAST_SUBCOMMANDS, SUBCOMMANDS};

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in repository.files().iter().filter(|file| is_documentation(&file.path)) {
        let lines = page_lines(&file.text);
        for line in &lines {
            violations.extend(unknown_xtask(file, line));
            violations.extend(unknown_standfast(file, line, &lines));
        }
    }
    violations
}

fn is_documentation(path: &str) -> bool {
    path == "README.md" || path == "CONTRIBUTING.md" || (path.starts_with("docs/") && path.ends_with(".md"))
}

fn unknown_xtask(file: &SourceFile, line: &PageLine<'_>) -> Vec<Violation> {
    let named = line.text.match_indices("cargo xtask ").map(|(at, found)| &line.text[at + found.len()..]);
    let unknown = named
        .map(leading_name)
        .filter(|name| !name.is_empty() && !SUBCOMMANDS.iter().any(|subcommand| subcommand.name == *name));
    unknown
        .map(|name| {
            let known: Vec<&str> = SUBCOMMANDS.iter().map(|subcommand| subcommand.name).collect();
            Violation::new(
                &file.path,
                line.number,
                format!("`cargo xtask {name}` does not exist"),
                format!("known: {}", known.join(", ")),
            )
        })
        .collect()
}

/// The lower-case name at the start of a text; placeholders such as NAME or `<name>` give nothing.
fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(text.len());
    text[..end].trim_end_matches('-')
}

fn unknown_standfast(file: &SourceFile, line: &PageLine<'_>, page: &[PageLine<'_>]) -> Vec<Violation> {
    if line.place == Place::Prose {
        return Vec::new();
    }
    // In a block with prompts, lines without one are output.
    let prompted = |one: &PageLine<'_>| one.text.trim_start().starts_with("$ ");
    let has_prompts = page.iter().any(|other| other.place == line.place && prompted(other));
    if has_prompts && !prompted(line) {
        return Vec::new();
    }
    let commands = line.text.split(['|', ';', '&', '(']);
    let unknown =
        commands.filter_map(standfast_subcommand).filter(|name| !STANDFAST_SUBCOMMANDS.contains(name));
    unknown
        .map(|name| {
            Violation::new(
                &file.path,
                line.number,
                format!("`standfast {name}` does not exist"),
                format!(
                    "known: {}; a new one is added to STANDFAST_SUBCOMMANDS in crates/xtask/src/commands.rs",
                    STANDFAST_SUBCOMMANDS.join(", ")
                ),
            )
        })
        .collect()
}

/// The subcommand, if the command is `standfast` by any path, after a prompt, settings (`A=b`) and words such
/// as sudo.
fn standfast_subcommand(command: &str) -> Option<&str> {
    const BEFORE_A_COMMAND: &[&str] = &["$", "sudo", "exec", "nohup", "time"];
    let mut words = command.split_whitespace().skip_while(|word| {
        BEFORE_A_COMMAND.contains(word) || word.split_once('=').is_some_and(|(name, _)| !name.contains('/'))
    });
    let program = words.next()?;
    let name = words.next()?;
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase()) && leading_name(name) == name;
    (program.rsplit('/').next() == Some("standfast") && is_name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let files = [(path, text)];
        let show = |violation: &Violation| format!("{}: {}", violation.line, violation.problem);
        check(&Repository::of(&files)).iter().map(show).collect()
    }

    #[test]
    fn xtask_commands_exist() {
        let page =
            "Run `cargo xtask test`, `cargo xtask` or `cargo xtask NAME`.\n```\ncargo xtask paint --red\n```";
        assert_eq!(found("CONTRIBUTING.md", page), ["3: `cargo xtask paint` does not exist"]);
        assert!(found("CHANGELOG.md", page).is_empty());
    }

    #[test]
    fn standfast_commands_in_code_exist() {
        let page = "standfast juggle\n```sh\nstandfast audit verify\nA=b ./target/debug/standfast juggle\n\
            standfast --help\necho x | standfast paint --fast\ncd standfast\n```";
        let expected = ["4: `standfast juggle` does not exist", "6: `standfast paint` does not exist"];
        assert_eq!(found("README.md", page), expected);
    }

    #[test]
    fn output_below_a_prompt_is_no_command() {
        let page = "```console\n$ standfast audit\nstandfast listens\n$ sudo standfast sing\n```";
        assert_eq!(found("docs/a.md", page), ["4: `standfast sing` does not exist"]);
    }
}
