//! What the sandbox does not let a program do, in words with the key that opens it: before it runs and after it failed.
//!
//! A program only reports that it may not, or that it found nobody to talk to. This reads such reports; it explains, and what
//! holds is the kernel's. Knows nothing of tools.

use std::path::{Path, PathBuf};

use super::{Plan, Reach, real_or_planned};

/// What programs say when the kernel does not let them.
const REFUSALS: &[&str] =
    &["Read-only file system", "Permission denied", "Operation not permitted", "EROFS", "EACCES", "EPERM"];

/// What they say without network.
const UNREACHABLE: &[&str] = &[
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "ENOTFOUND",
    "EAI_AGAIN",
    "getaddrinfo",
    "socket: Operation not permitted",
    "_socket.socket.__init__",
    "urlopen error [Errno 1]",
    "connect EPERM",
    "socket EPERM",
];

/// The parts of a text that may be paths: words, without quotes and other signs around them.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| c.is_whitespace() || ";|&()<>`'\"=,[]{}".contains(c));
    parts.map(|part| part.trim_end_matches(':')).filter(|part| !part.is_empty())
}

impl Plan {
    /// The real path of a word that names one which programs cannot change.
    #[must_use]
    pub fn outside(&self, word: &str, directory: &Path) -> Option<PathBuf> {
        let path = Path::new(word);
        let is_path =
            path.parent().is_some() && path.is_absolute() || word.split('/').any(|step| step == "..");
        if !is_path {
            return None;
        }
        let real = real_or_planned(&directory.join(path));
        let is_free = self.writable.iter().any(|root| real.starts_with(root)) || real.starts_with("/dev");
        (!is_free).then_some(real)
    }

    /// Whether programs can read it.
    #[must_use]
    pub fn can_read(&self, path: &Path) -> bool {
        let mut roots = self.readable.iter().chain(&self.writable);
        roots.any(|root| path.starts_with(root)) || path.starts_with("/proc")
    }

    /// What programs can change, and the key that adds to it.
    #[must_use]
    pub fn limits_of_change(&self, who: &str) -> String {
        let all: Vec<String> = self.writable.iter().map(|path| path.display().to_string()).collect();
        format!("{who} can change only {} (`writable`)", all.join(", "))
    }

    /// What the sandbox refused, where a program that failed reports a refusal: what it said, what else names paths, and
    /// where it ran.
    #[must_use]
    pub fn explain<'a>(
        &self,
        said: &'a str,
        named: impl IntoIterator<Item = &'a str>,
        directory: &Path,
    ) -> Option<String> {
        if self.network == Reach::None && UNREACHABLE.iter().any(|sign| said.contains(sign)) {
            return Some(
                "the sandbox refused it: there is no network here (`network: true` opens it)".into(),
            );
        }
        let line = said.lines().find(|line| REFUSALS.iter().any(|sign| line.contains(sign)))?;
        // What comes first is who says so.
        let told = line.split_once(": ").map_or(line, |(_, told)| told);
        let named = named.into_iter().flat_map(words);
        let path = words(told).chain(named).find_map(|word| self.outside(word, directory))?;
        let key = if self.can_read(&path) {
            "can be read and not changed (`writable` adds directories)"
        } else {
            "is out of reach (`writable` and `readable` add directories)"
        };
        Some(format!("the sandbox refused it: {} {key}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Isolation, Spaces};
    use super::*;

    fn plan() -> Plan {
        Plan {
            writable: vec!["/work".into(), "/tmp".into()],
            readable: vec!["/usr".into(), "/etc".into()],
            network: Reach::None,
            isolation: Isolation::default(),
            spaces: Spaces::default(),
        }
    }

    /// S3-21: a refusal is reported as what it is, with the key; a failure that is none is left alone.
    #[test]
    fn a_refusal_names_the_key() {
        let told = |said: &str, line: &str| plan().explain(said, [line], Path::new("/work"));
        assert_eq!(
            told("rm: cannot remove '/srv/x': Read-only file system", "rm /srv/x").unwrap(),
            "the sandbox refused it: /srv/x is out of reach (`writable` and `readable` add directories)"
        );
        assert_eq!(
            told("touch: cannot touch '/etc/x': Permission denied", "touch /etc/x").unwrap(),
            "the sandbox refused it: /etc/x can be read and not changed (`writable` adds directories)"
        );
        assert!(told("PermissionError: [Errno 13] Permission denied: '/srv/y'", "python3 a.py").is_some());
        let network = told("curl: (6) Could not resolve host: example.org", "curl example.org").unwrap();
        assert!(network.contains("`network: true`"), "{network}");
        let open = Plan { network: Reach::Internet, ..plan() };
        assert_eq!(open.explain("Could not resolve host: nowhere", [], Path::new("/work")), None);
        assert_eq!(
            told("/usr/bin/sh: 1: ./noexec: Permission denied", "sh -c ./noexec"),
            None,
            "who says so"
        );
        assert_eq!(told("make: *** No rule to make target", "make"), None);
        assert_eq!(
            told("./run.sh: Permission denied", "./run.sh"),
            None,
            "a file of its own that is not a program"
        );
        assert_eq!(told("cannot open /tmp/x: Permission denied", "cat /tmp/x"), None, "it is within reach");
    }
}
