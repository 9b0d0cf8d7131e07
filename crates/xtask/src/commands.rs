//! The subcommands of `cargo xtask` and of `standfast`, as data, and the parser of the former.
//!
//! One place, because tidy checks the documentation against these lists: a command that is renamed here turns
//! every page that still has the old name red.

use std::ffi::OsString;

use anyhow::{Result, bail};

use crate::dist::DistOptions;

/// What the arguments of `cargo xtask` ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Test,
    Bench(Vec<OsString>),
    Faults(Vec<OsString>),
    Fuzz(Vec<OsString>),
    Tidy,
    TidyMissing,
    TidyTests,
    TidyGraph,
    TidySvg(OsString),
    Product,
    Dist(DistOptions),
    UpgradeCheck(Vec<OsString>),
    Clients,
    Book,
    Screenshots,
}

/// A line of the help text.
pub(crate) struct Subcommand {
    pub(crate) name: &'static str,
    arguments: &'static str,
    summary: &'static str,
}

/// What `cargo xtask` knows.
pub(crate) const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "test",
        arguments: "",
        summary: "what CI does: format, tidy, needs, clippy, product, tests and browser tests, counts of a cycle, doc tests, book, deny",
    },
    Subcommand {
        name: "bench",
        arguments: "[ARGS…]",
        summary: "measure the approval cycle over HTTP (--quick, --full, --json FILE; --counts: only count, beside the checked-in table; --postgres: several servers; --store: the store alone)",
    },
    Subcommand {
        name: "faults",
        arguments: "[ARGS…]",
        summary: "store and server under injected faults, at full length (--quick, --only F1,F2, --json FILE)",
    },
    Subcommand {
        name: "fuzz",
        arguments: "[NAME…]",
        summary: "the parsers that meet a stranger's bytes, a minute each, with inputs that libFuzzer makes, guided by the code that they reach; --seconds N",
    },
    Subcommand {
        name: "tidy",
        arguments: "[OPTION]",
        summary: "the repository's rules; --missing lists the requirements that no test names, --tests writes the table of what shows each, --graph prints who uses whom, --svg FILE draws it",
    },
    Subcommand {
        name: "product",
        arguments: "",
        summary: "build the program that the tests from outside are handed, without features of tests",
    },
    Subcommand {
        name: "dist",
        arguments: "[OPTION]",
        summary: "build what is shipped: static binary, archive, wheel, packages of npm; --check installs each in an empty environment, builds the image with buildah and renders the chart with Helm, --binary FILE packages that binary",
    },
    Subcommand {
        name: "upgrade-check",
        arguments: "COMMIT",
        summary: "two real programs on one database: rolling upgrade from that commit on Postgres, replacement on SQLite, the way back; --old FILE and --new FILE name programs",
    },
    Subcommand {
        name: "clients",
        arguments: "",
        summary: "the packages for Python and TypeScript against the product, with the real frameworks",
    },
    Subcommand {
        name: "book",
        arguments: "",
        summary: "build the guide into target/book and follow every link",
    },
    Subcommand {
        name: "screenshots",
        arguments: "",
        summary: "take the pictures of README.md and the guide, in Chromium against the product; also every page in light, dark and phone width, into target/screenshots",
    },
    Subcommand { name: "help", arguments: "", summary: "this list" },
];

/// What the program `standfast` knows; the documentation may name no other subcommand. Add the name in the
/// change that adds the subcommand.
pub(crate) const STANDFAST_SUBCOMMANDS: &[&str] = &[
    "audit",
    "backup",
    "cancel",
    "completions",
    "doctor",
    "export",
    "grants",
    "health",
    "help",
    "holds",
    "hook",
    "import",
    "inbox",
    "init",
    "keys",
    "llm",
    "login",
    "logout",
    "man",
    "mcp",
    "nodes",
    "policy",
    "restore",
    "restore-run",
    "runs",
    "schema",
    "send",
    "serve",
    "show",
    "subscriptions",
    "test",
    "validate",
    "verify",
    "watch",
];

/// Turns the arguments into a command once, so that nothing after it looks at text.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let mut arguments = arguments.into_iter();
    let Some(name) = arguments.next() else {
        return Ok(Command::Help);
    };
    let rest: Vec<OsString> = arguments.collect();
    match name.to_str() {
        Some("help" | "--help" | "-h") => Ok(Command::Help),
        Some("test") if rest.is_empty() => Ok(Command::Test),
        Some("test") => bail!("`cargo xtask test` takes no arguments, it got {}", joined(&rest)),
        Some("bench") => Ok(Command::Bench(rest)),
        Some("faults") => Ok(Command::Faults(rest)),
        Some("fuzz") => Ok(Command::Fuzz(rest)),
        Some("tidy") if rest.is_empty() => Ok(Command::Tidy),
        Some("tidy") if rest == ["--missing"] => Ok(Command::TidyMissing),
        Some("tidy") if rest == ["--tests"] => Ok(Command::TidyTests),
        Some("tidy") if rest == ["--graph"] => Ok(Command::TidyGraph),
        Some("tidy") => match <[OsString; 2]>::try_from(rest) {
            Ok([option, file]) if option == "--svg" => Ok(Command::TidySvg(file)),
            Ok(others) => bail!("{TIDY_TAKES}, it got {}", joined(&others)),
            Err(others) => bail!("{TIDY_TAKES}, it got {}", joined(&others)),
        },
        Some("product") if rest.is_empty() => Ok(Command::Product),
        Some("product") => bail!("`cargo xtask product` takes no arguments, it got {}", joined(&rest)),
        Some("dist") => dist(rest).map(Command::Dist),
        Some("upgrade-check") => Ok(Command::UpgradeCheck(rest)),
        Some("clients") if rest.is_empty() => Ok(Command::Clients),
        Some("clients") => bail!("`cargo xtask clients` takes no arguments, it got {}", joined(&rest)),
        Some("book") if rest.is_empty() => Ok(Command::Book),
        Some("book") => bail!("`cargo xtask book` takes no arguments, it got {}", joined(&rest)),
        Some("screenshots") if rest.is_empty() => Ok(Command::Screenshots),
        Some("screenshots") => {
            bail!("`cargo xtask screenshots` takes no arguments, it got {}", joined(&rest))
        }
        Some(_) | None => bail!(
            "there is no subcommand `{}`; known: {}. `cargo xtask help` says what each does",
            name.to_string_lossy(),
            SUBCOMMANDS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// The options of `dist`.
fn dist(arguments: Vec<OsString>) -> Result<DistOptions> {
    let mut options = DistOptions::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match (argument.to_str(), options.binary.is_some()) {
            (Some("--check"), _) => options.check = true,
            (Some("--binary"), false) => match arguments.next() {
                Some(file) => options.binary = Some(file),
                None => bail!("`cargo xtask dist --binary` needs a file"),
            },
            _ => bail!("`cargo xtask dist` takes --check and --binary FILE, it got {}", joined(&[argument])),
        }
    }
    Ok(options)
}

/// What a wrong call of `tidy` is told.
const TIDY_TAKES: &str = "`cargo xtask tidy` takes --missing, --tests, --graph, --svg FILE or nothing";

/// The text of `cargo xtask help`.
pub(crate) fn help() -> String {
    let mut text = String::from("usage: cargo xtask SUBCOMMAND\n\n");
    for Subcommand { name, arguments, summary } in SUBCOMMANDS {
        let call = format!("{name} {arguments}");
        text.push_str(&format!("  {call:18} {summary}\n"));
    }
    text
}

fn joined(arguments: &[OsString]) -> String {
    let shown: Vec<String> = arguments.iter().map(|one| format!("`{}`", one.to_string_lossy())).collect();
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn no_argument_and_help_print_the_list() {
        assert_eq!(parsed("").unwrap(), Command::Help);
        assert_eq!(parsed("help").unwrap(), Command::Help);
        for subcommand in SUBCOMMANDS {
            assert!(help().contains(&format!("  {}", subcommand.name)), "{}", subcommand.name);
        }
    }

    #[test]
    fn every_listed_subcommand_parses() {
        for subcommand in SUBCOMMANDS {
            assert!(parsed(subcommand.name).is_ok(), "{}", subcommand.name);
        }
    }

    #[test]
    fn bench_and_faults_pass_their_arguments_on() {
        let expected = vec![OsString::from("--json"), OsString::from("out.json")];
        assert_eq!(parsed("bench --json out.json").unwrap(), Command::Bench(expected));
        assert_eq!(parsed("faults").unwrap(), Command::Faults(Vec::new()));
    }

    #[test]
    fn tidy_takes_one_option() {
        assert_eq!(parsed("tidy").unwrap(), Command::Tidy);
        assert_eq!(parsed("tidy --missing").unwrap(), Command::TidyMissing);
        assert_eq!(parsed("tidy --tests").unwrap(), Command::TidyTests);
        assert_eq!(parsed("tidy --graph").unwrap(), Command::TidyGraph);
        assert_eq!(parsed("tidy --svg a.svg").unwrap(), Command::TidySvg("a.svg".into()));
        assert!(parsed("tidy --svg").is_err());
        assert!(parsed("tidy --all").unwrap_err().to_string().contains("`--all`"));
    }

    #[test]
    fn an_unknown_subcommand_names_the_known_ones() {
        let message = parsed("tset").unwrap_err().to_string();
        assert!(
            message.contains(
                "`tset`; known: test, bench, faults, fuzz, tidy, product, dist, upgrade-check, clients, book, screenshots, help"
            ),
            "{message}"
        );
    }
}
