//! `cargo xtask upgrade-check`: two real programs of different commits on one database, upgraded as an operator does it.
//!
//! The older one is built from its commit, once, in a checkout below the target folder, or named as a file; the newer one
//! is the product. Not a step of `cargo xtask test`: it builds a second program. What is played is in
//! `packaging/upgrade.py`, and `docs/upgrade.md` has the steps and the last result.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{process, product};

const TAKES: &str =
    "`cargo xtask upgrade-check` takes the COMMIT to upgrade from, or --old FILE, and --new FILE";

/// Where older programs and their checkouts are, below the target folder.
const FOLDER: &str = "upgrade";

/// The two programs, as the command line names them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    commit: Option<OsString>,
    old: Option<OsString>,
    new: Option<OsString>,
}

/// Builds what is not named, and plays the upgrade.
pub(crate) fn run(root: &Path, arguments: &[OsString]) -> Result<()> {
    let Named { commit, old, new } = named(arguments)?;
    let old = match (old, commit) {
        (Some(file), None) => PathBuf::from(file),
        (None, Some(commit)) => build(root, &commit.to_string_lossy())?,
        (Some(_), Some(_)) | (None, None) => bail!("{TAKES}"),
    };
    let new = match new {
        Some(file) => PathBuf::from(file),
        None => product::build(root)?,
    };
    let mut command = Command::new("python3");
    command.arg("packaging/upgrade.py").arg("--old").arg(old).arg("--new").arg(new);
    process::run(root, command)
}

fn named(arguments: &[OsString]) -> Result<Named> {
    let mut named = Named::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let place = match argument.to_str() {
            Some("--old") => &mut named.old,
            Some("--new") => &mut named.new,
            Some(word) if !word.starts_with('-') => {
                named.commit = Some(argument.clone());
                continue;
            }
            Some(_) | None => bail!("{TAKES}, it got `{}`", argument.to_string_lossy()),
        };
        *place = Some(arguments.next().with_context(|| TAKES)?.clone());
    }
    Ok(named)
}

/// The program of a commit: kept from an earlier call, or built in a checkout of its own. Dependencies are those of the
/// target folder as far as they are the same.
fn build(root: &Path, commit: &str) -> Result<PathBuf> {
    let wanted = format!("{commit}^{{commit}}");
    let id = process::output(root, "git", &["rev-parse", "--short=12", "--verify", &wanted])?;
    let id = String::from_utf8(id).context("the commit's id is no text")?.trim().to_owned();
    let target = process::target_folder(root);
    let kept = target.join(FOLDER).join(format!("standfast-{id}"));
    if kept.exists() {
        return Ok(kept);
    }
    let checkout = target.join(FOLDER).join(&id);
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.arg("worktree").args(words).arg(&checkout);
        command
    };
    if !checkout.exists() {
        let mut add = git(&["add", "--detach", "--force"]);
        add.arg(&id);
        process::run(root, add)?;
    }
    let mut cargo = process::cargo_command(&["build", "--quiet", "-p", "standfast", "--bin", "standfast"]);
    cargo.env("CARGO_TARGET_DIR", &target);
    process::run(&checkout, cargo)?;
    product::keep(&target.join("debug/standfast"), &kept)
        .with_context(|| format!("{} cannot be kept", kept.display()))?;
    process::run(root, git(&["remove", "--force"]))?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_from_a_commit_or_a_file() {
        let parsed = |line: &str| named(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        let commit = parsed("v0.1.0").unwrap();
        assert_eq!(commit, Named { commit: Some("v0.1.0".into()), ..Named::default() });
        let files = parsed("--old a --new b").unwrap();
        assert_eq!(files, Named { commit: None, old: Some("a".into()), new: Some("b".into()) });
        assert!(parsed("--older").is_err() && parsed("--old").is_err());
        assert!(run(Path::new("."), &[]).unwrap_err().to_string().contains("takes the COMMIT"));
    }
}
