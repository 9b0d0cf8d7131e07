//! What git may take from files that an agent can write: nothing that names a program (T23).
//!
//! A repository's own settings can start programs from `git status` on: monitors, filters, drivers, hooks. Every command
//! gets an environment in which the known ones are off, and settings of a user, whose home is the working directory here,
//! are not read. A filter or driver has any name, so a repository whose settings have more than the harmless keys below is
//! a matter for a person: see [`suspicious`].

use std::path::Path;

use crate::sandbox::Confinement;

/// Settings that every git of a command has, over those of the repository.
const SETTINGS: &[(&str, &str)] = &[
    ("safe.bareRepository", "explicit"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("log.showSignature", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
    ("protocol.ext.allow", "never"),
];

/// Sections of a repository's settings, and the keys in them that only describe it; `*` is every key.
const HARMLESS: &[(&str, &[&str])] = &[
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
            "autocrlf",
            "eol",
            "safecrlf",
            "abbrev",
            "quotepath",
            "compression",
        ],
    ),
    ("extensions", &["objectformat", "refstorage", "compatobjectformat", "noop"]),
    ("remote", &["url", "fetch", "push", "pushurl", "tagopt", "prune"]),
    ("branch", &["remote", "merge", "rebase", "description"]),
    ("user", &["name", "email"]),
    ("color", &["ui"]),
    ("init", &["defaultbranch"]),
    ("pull", &["rebase", "ff"]),
    ("push", &["default"]),
    ("gc", &["auto"]),
    ("advice", &["*"]),
];

/// What the environment of every command has for the sake of git.
pub(super) fn environment() -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_TERMINAL_PROMPT", "0".to_owned()),
        ("GIT_PAGER", "cat".to_owned()),
        ("PAGER", "cat".to_owned()),
        ("GIT_CONFIG_COUNT", SETTINGS.len().to_string()),
    ];
    for ((name, value), (key, setting)) in NAMES.iter().zip(SETTINGS) {
        all.push((name, (*key).to_owned()));
        all.push((value, (*setting).to_owned()));
    }
    all
}

/// The variables of [`SETTINGS`], which git counts from 0.
const NAMES: &[(&str, &str)] = &[
    ("GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"),
    ("GIT_CONFIG_KEY_1", "GIT_CONFIG_VALUE_1"),
    ("GIT_CONFIG_KEY_2", "GIT_CONFIG_VALUE_2"),
    ("GIT_CONFIG_KEY_3", "GIT_CONFIG_VALUE_3"),
    ("GIT_CONFIG_KEY_4", "GIT_CONFIG_VALUE_4"),
    ("GIT_CONFIG_KEY_5", "GIT_CONFIG_VALUE_5"),
    ("GIT_CONFIG_KEY_6", "GIT_CONFIG_VALUE_6"),
    ("GIT_CONFIG_KEY_7", "GIT_CONFIG_VALUE_7"),
    ("GIT_CONFIG_KEY_8", "GIT_CONFIG_VALUE_8"),
    ("GIT_CONFIG_KEY_9", "GIT_CONFIG_VALUE_9"),
];

const _: () = assert!(NAMES.len() == SETTINGS.len(), "each setting has its variables");

/// What of the repository in this directory could start a program; none when nothing could, or when there is no
/// repository. What cannot be read is suspicious. Git would also take one from a directory above, which a confined
/// command cannot read.
pub(super) fn suspicious(directory: &Path, confinement: Confinement) -> Option<String> {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let most = match confinement {
        Confinement::On => 1,
        Confinement::Off => usize::MAX,
    };
    let mut places = directory.ancestors().take(most);
    let top = places.find(|place| place.join(".git").symlink_metadata().is_ok())?;
    let git = top.join(".git");
    // A file leads somewhere else, and so may a link.
    if !git.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Some(format!("{} is not a directory", git.display()));
    }
    for other in ["config.worktree", "modules", "commondir", "worktrees"] {
        if git.join(other).symlink_metadata().is_ok() {
            return Some(format!("the repository has .git/{other}, whose settings are not looked at"));
        }
    }
    if top.join(".gitmodules").symlink_metadata().is_ok() {
        return Some("submodules have settings of their own (.gitmodules)".into());
    }
    match std::fs::read_to_string(git.join("config")) {
        Ok(text) => odd_setting(&text).map(|key| format!("the repository sets {key} (.git/config)")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(format!(".git/config cannot be read: {error}")),
    }
}

/// The first setting that is not harmless. Whatever is not plainly `[section "name"]` and `key = value` counts as one.
fn odd_setting(text: &str) -> Option<String> {
    let mut section: Option<&(&str, &[&str])> = None;
    let mut name = String::new();
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(head) = line.strip_prefix('[') {
            let Some(head) = head.strip_suffix(']') else { return Some(line.to_owned()) };
            let first = head.split([' ', '"', '.']).next().unwrap_or(head).to_ascii_lowercase();
            section = HARMLESS.iter().find(|(known, _)| *known == first);
            name = head.to_owned();
            continue;
        }
        let key = line.split(['=', ' ', '\t']).next().unwrap_or(line).to_ascii_lowercase();
        let is_harmless = section
            .is_some_and(|(_, keys)| keys.iter().any(|known| *known == "*" || *known == key))
            // A value that goes on in the next line could hide one.
            && !line.ends_with('\\');
        if !is_harmless {
            return Some(format!("{name}.{key}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_repository_is_harmless_and_programs_are_found() {
        let usual = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
                     [remote \"origin\"]\n\turl = https://example.org/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                     [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        assert_eq!(odd_setting(usual), None);
        for odd in [
            "[core]\n\tfsmonitor = ./x",
            "[CORE]\nFSMonitor=./x",
            "[filter \"x\"]\nclean = ./x",
            "[diff]\nexternal = ./x",
            "[include]\npath = other",
            "[includeIf \"gitdir:/\"]\npath = other",
            "[core] fsmonitor = ./x",
            "[core\nfsmonitor = ./x",
            "[remote \"x\"]\nuploadpack = ./x",
            "[alias]\nstatus = !x",
            "[core]\nbare = false \\\n",
            "fsmonitor = x",
            "[core]\nworktree = /",
            "[extensions]\nworktreeConfig = true",
        ] {
            assert!(odd_setting(odd).is_some(), "{odd}");
        }
    }
}
