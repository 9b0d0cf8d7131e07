//! Rule: no file says where it was written: no path of somebody's machine, no address of somebody's package
//! mirror.
//!
//! Such a path works on one machine only, and a lock file with addresses makes every install go there.

use super::repository::{Repository, SourceFile};
use super::violation::Violation;

/// Folders that only exist on a machine, never in the repository.
const MACHINE_FOLDERS: &[&str] = &["/work/", "/root/", "/home/"];

const DOWNLOAD_ADDRESS: &str = "\"resolved\": \"http";

/// This file has to spell out what it looks for.
const OWN_SOURCE: &str = "crates/xtask/src/tidy/product_only.rs";

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let others = repository.files().iter().filter(|file| file.path != OWN_SOURCE);
    others.flat_map(|file| machine_paths(file).chain(download_addresses(file))).collect()
}

fn machine_paths(file: &SourceFile) -> impl Iterator<Item = Violation> {
    file.numbered_lines().filter_map(|(number, line)| {
        let folder = MACHINE_FOLDERS.iter().find(|folder| names_folder(line, folder))?;
        Some(Violation::new(
            &file.path,
            number,
            format!("a path of a machine (`{folder}…`)"),
            "use a path relative to the repository, or a made-up one such as `/srv/…`",
        ))
    })
}

fn download_addresses(file: &SourceFile) -> impl Iterator<Item = Violation> {
    let is_lock = file.path.rsplit('/').next() == Some("package-lock.json");
    let lines = file.numbered_lines().filter(move |(_, line)| is_lock && line.contains(DOWNLOAD_ADDRESS));
    lines.map(|(number, _)| {
        Violation::new(
            &file.path,
            number,
            "the lock file records a download address",
            "write it again with `npm install --omit-lockfile-registry-resolved`",
        )
    })
}

/// Whether the folder stands at the start of a path. In `src/home/mod.rs` or a URL it stands in the middle of
/// one.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || ['_', '-', '.', '}', ')', '*'].contains(&c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::places;

    #[test]
    fn machine_paths_are_found_in_any_file() {
        let repository = Repository::of(&[
            ("README.md", "fine\ncd /work/x\n"),
            ("ui/app.js", "//# source=file:///home/me/app.ts"),
            ("crates/a/src/a.rs", "const A: &str = \"/root/.cargo\";"),
            (OWN_SOURCE, "/work/"),
        ]);
        assert_eq!(places(&check(&repository)), ["README.md:2", "ui/app.js:1", "crates/a/src/a.rs:1"]);
    }

    #[test]
    fn paths_of_the_repository_and_urls_are_fine() {
        let text = "src/home/mod.rs\nhttps://example.org/work/1\n./root/x\n/workshop/x\n{base}/home/x";
        assert!(check(&Repository::of(&[("README.md", text)])).is_empty());
    }

    #[test]
    fn lock_files_have_no_addresses() {
        let text = "{\n  \"resolved\": \"https://registry.example/x.tgz\"\n}";
        let repository = Repository::of(&[("ui/package-lock.json", text), ("ui/other.json", text)]);
        assert_eq!(places(&check(&repository)), ["ui/package-lock.json:2"]);
    }
}
