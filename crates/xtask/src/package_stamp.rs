//! What the packages in a folder were installed from, so that an unchanged list is not installed again.
//!
//! The stamp lies among the packages themselves: whoever deletes them deletes it too. It has the lists word for word, and the
//! version of the program that uses the packages; which lists there are is known to `needs.rs`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The stamp's name among the packages.
const NAME: &str = ".standfast-installed";

/// What packages are installed from.
pub(crate) struct PackageStamp {
    file: PathBuf,
    content: Vec<u8>,
}

impl PackageStamp {
    /// For the packages in a folder, from these lists, for a program that says this of its version.
    pub(crate) fn of(packages: &Path, version: &[u8], lists: &[PathBuf]) -> Result<PackageStamp> {
        let mut content = version.to_vec();
        for list in lists {
            let text = std::fs::read(list).with_context(|| format!("{} cannot be read", list.display()))?;
            content.extend_from_slice(format!("\n{} bytes:\n", text.len()).as_bytes());
            content.extend_from_slice(&text);
        }
        Ok(PackageStamp { file: packages.join(NAME), content })
    }

    /// Whether exactly this is installed.
    pub(crate) fn is_current(&self) -> bool {
        std::fs::read(&self.file).is_ok_and(|installed| installed == self.content)
    }

    /// Installs it, unless it is there. What is interrupted or fails counts as not installed.
    pub(crate) fn install(&self, install: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.is_current() {
            return Ok(());
        }
        if self.file.exists() {
            std::fs::remove_file(&self.file)?;
        }
        install()?;
        std::fs::write(&self.file, &self.content)
            .with_context(|| format!("{} cannot be written", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;

    use super::*;

    #[test]
    fn only_what_changed_is_installed_again() {
        let folder = std::env::temp_dir().join(format!("package-stamp-{}", std::process::id()));
        let (packages, list) = (folder.join("packages"), folder.join("list"));
        std::fs::create_dir_all(&packages).unwrap();
        std::fs::write(&list, "one==1").unwrap();
        let installs = Cell::new(0);
        let install = |version: &str| {
            let stamp = PackageStamp::of(&packages, version.as_bytes(), std::slice::from_ref(&list)).unwrap();
            let done = stamp.install(|| {
                installs.set(installs.get() + 1);
                std::fs::create_dir_all(&packages)?;
                Ok(())
            });
            done.unwrap();
            installs.get()
        };
        assert_eq!((install("1"), install("1")), (1, 1));
        assert_eq!((install("2"), install("2")), (2, 2), "another version of the program");
        std::fs::write(&list, "one==2").unwrap();
        assert_eq!((install("2"), install("2")), (3, 3), "another list");
        std::fs::remove_dir_all(&packages).unwrap();
        assert_eq!((install("2"), install("2")), (4, 4), "the packages were deleted");
        std::fs::write(&list, "one==3").unwrap();
        let stamp = PackageStamp::of(&packages, b"2", std::slice::from_ref(&list)).unwrap();
        assert!(stamp.install(|| bail!("no network")).is_err());
        std::fs::write(&list, "one==2").unwrap();
        assert_eq!(install("2"), 5, "a failed install leaves nothing that counts");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
