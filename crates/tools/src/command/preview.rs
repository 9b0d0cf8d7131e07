//! What a command would do, for the person who decides: its words one by one, and what the sandbox lets it do.
//!
//! Says nothing that the sandbox does not enforce. Whether a command needs a person is `rules.rs`.

use standfast_engine::tool::preview::{CommandPreview, Risk};

use super::{CommandOptions, authority, rules};
use crate::sandbox::{Plan, Reach};

/// Known of programs of the table that change nothing; of everything else nothing is known.
pub(super) fn risk(argv: &[String]) -> Option<Risk> {
    match authority::known(argv) {
        authority::Lookup::Usual { program, .. } if !program.changes => Some(Risk::ReadOnly),
        authority::Lookup::Usual { .. } | authority::Lookup::Odd(_) | authority::Lookup::Unknown => None,
    }
}

pub(super) fn command(options: &CommandOptions, plan: Option<&Plan>, argv: Vec<String>) -> CommandPreview {
    let directory = options.working_directory.clone().or_else(|| std::env::current_dir().ok());
    let directory = directory.map_or_else(|| ".".to_owned(), |path| path.display().to_string());
    let seconds = options.max_execution_time.0 / 1000;
    let mut allowed = Vec::new();
    let mut denied = Vec::new();
    match plan {
        None => {
            allowed.push("anything that the server's user can do: there is no sandbox (sandbox: off)".into())
        }
        Some(plan) => {
            let writable: Vec<String> = plan.writable.iter().map(|path| path.display().to_string()).collect();
            allowed.push(format!(
                "change files in {} and in a temporary directory of its own",
                writable.join(", ")
            ));
            let more: Vec<String> = options.readable.iter().map(|path| path.display().to_string()).collect();
            allowed.push(match more.as_slice() {
                [] => "read the programs and libraries of the system".to_owned(),
                more => format!("read the programs and libraries of the system, and {}", more.join(", ")),
            });
            match plan.network {
                Reach::None => denied.push("use the network".to_owned()),
                Reach::Internet => allowed.push("use the network".to_owned()),
            }
            denied.push("reach other files, such as home directories and this server's data".to_owned());
            denied.push("see or signal processes of others".to_owned());
        }
    }
    allowed.push(format!("run for up to {seconds} s with at most {} processes", options.process_limit));
    let trouble = rules::forbidden(options, &argv).err().map(|bad| bad.to_string());
    CommandPreview { argv, directory, allowed, denied, trouble }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_what_the_table_knows_to_look_is_called_read_only() {
        assert_eq!(risk(&words("ls -la")), Some(Risk::ReadOnly));
        for line in ["rm -rf x", "mv a b", "no-such-program"] {
            assert_eq!(risk(&words(line)), None, "{line}");
        }
    }

    #[test]
    fn what_the_sandbox_allows_is_what_it_enforces() {
        let plan = Plan {
            writable: vec!["/work".into()],
            readable: Vec::new(),
            network: Reach::None,
            isolation: crate::sandbox::Isolation::default(),
            spaces: crate::sandbox::Spaces::default(),
        };
        let options = CommandOptions { working_directory: Some("/work".into()), ..CommandOptions::default() };
        let confined = command(&options, Some(&plan), words("ls -la"));
        assert_eq!(confined.argv, ["ls", "-la"]);
        assert!(confined.denied.iter().any(|text| text == "use the network"));
        let free = command(&options, None, words("ls"));
        assert_eq!(free.denied, Vec::<String>::new());
        assert!(free.allowed[0].starts_with("anything"));
    }
}
