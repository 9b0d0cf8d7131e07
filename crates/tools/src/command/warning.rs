//! What people should know before they let a command run: that the sandbox will not let it do what it says.
//!
//! A path that it names outside of what commands can change is the one such thing that can be seen in its words. It is
//! shown on the hold and in the approval text; what follows from a refusal is `sandbox/refusal.rs`.

use std::path::PathBuf;

use super::{CommandOptions, authority};
use crate::sandbox::{Plan, words};

/// The warning of a command, where there is one.
pub(super) fn of(options: &CommandOptions, plan: &Plan, argv: &[String]) -> Option<String> {
    let directory = options.working_directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let only_reads = match authority::known(argv) {
        authority::Lookup::Usual { program, .. } => !program.changes,
        authority::Lookup::Odd(_) | authority::Lookup::Unknown => false,
    };
    // The value of an option may be written right behind its letter.
    let parts = argv.iter().skip(1).flat_map(|word| {
        let behind_letter = word.strip_prefix('-').and_then(|rest| rest.get(1..));
        words(word).chain(behind_letter)
    });
    let mut outside = parts.filter_map(|word| plan.outside(word, &directory));
    let path = outside.find(|path| !(only_reads && plan.can_read(path)))?;
    let reach =
        if plan.can_read(&path) { "can be read here and not changed" } else { "is not there for commands" };
    Some(format!("{} {reach}: {}", path.display(), plan.limits_of_change("commands")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Isolation, Reach, Spaces};

    /// S3-21: a path outside is warned of, one that is only read there is not, and what commands can change is free.
    #[test]
    fn a_path_outside_is_warned_of() {
        let plan = Plan {
            writable: vec!["/work".into(), "/tmp".into()],
            readable: vec!["/usr".into(), "/etc".into()],
            network: Reach::None,
            isolation: Isolation::default(),
            spaces: Spaces::default(),
        };
        let options = CommandOptions { working_directory: Some("/work".into()), ..CommandOptions::default() };
        let warning = |line: &str| {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            of(&options, &plan, &argv)
        };
        assert_eq!(
            warning("rm -rf /srv/old-files").unwrap(),
            "/srv/old-files is not there for commands: commands can change only /work, /tmp (`writable`)"
        );
        assert!(warning("rm -rf /usr/share/x").unwrap().contains("can be read here and not changed"));
        assert!(warning("cp a ../b").is_some());
        assert!(warning("tool -o/srv/x").is_some());
        for free in
            ["rm -rf /tmp/old-files", "ls -la", "cat /etc/hosts", "rm a/b", "ls -l /dev/null", "echo a / b"]
        {
            assert_eq!(warning(free), None, "{free}");
        }
    }
}
