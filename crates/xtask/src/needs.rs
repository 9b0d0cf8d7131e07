//! What the tests need on a machine beyond the Rust toolchain, and how to get it.
//!
//! `cargo xtask test` runs this first, so a fresh machine needs no list of commands to copy. A new tool or
//! package is a line in one of the two tables.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::package_stamp::PackageStamp;
use crate::process;

/// What is installed from crates.io, and how to see whether it is there.
struct CargoTool {
    known_as: KnownAs,
    install: &'static [&'static str],
}

enum KnownAs {
    /// `cargo NAME`.
    Subcommand(&'static str),
    /// A program of its own.
    Program(&'static str),
}

/// A package of the operating system, known to be there when its program is found.
struct SystemPackage {
    debian_name: &'static str,
    program: &'static str,
}

/// What makes the guide.
pub(crate) const MDBOOK: &str = "mdbook";

const CARGO_TOOLS: &[CargoTool] = &[
    CargoTool {
        known_as: KnownAs::Subcommand("nextest"),
        install: &["install", "cargo-nextest", "--locked"],
    },
    // Pinned: deny.toml is written for this version's schema.
    CargoTool {
        known_as: KnownAs::Subcommand("deny"),
        install: &["install", "cargo-deny", "--locked", "--version", "0.20.2"],
    },
    // Pinned: docs/book.toml is written for it. Without its server and file watcher.
    CargoTool {
        known_as: KnownAs::Program(MDBOOK),
        install: &[
            "install",
            "mdbook",
            "--locked",
            "--version",
            "0.5.4",
            "--no-default-features",
            "--features",
            "search",
        ],
    },
];

const SYSTEM_PACKAGES: &[SystemPackage] = &[
    // Fault tests make system calls fail with it.
    SystemPackage { debian_name: "strace", program: "strace" },
    // The tests of the Postgres store start a server of their own. Its programs are not on the path; this one, which
    // comes with every server, is.
    SystemPackage { debian_name: "postgresql", program: "pg_createcluster" },
    // The commands of README.md and of the five-minute start are run as they stand.
    SystemPackage { debian_name: "curl", program: "curl" },
    // The pages are tested in a real browser, driven from node. This one is Chromium without windows and menus, which takes half
    // the processor time.
    SystemPackage { debian_name: "chromium-headless-shell", program: "chromium-headless-shell" },
    SystemPackage { debian_name: "nodejs", program: "node" },
    SystemPackage { debian_name: "npm", program: "npm" },
    // One of the MCP servers is for repositories.
    SystemPackage { debian_name: "git", program: "git" },
    // The index of the file store is tested with a real one, killed and flushed.
    SystemPackage { debian_name: "redis-server", program: "redis-server" },
    // Its `promtool` plays the alerts and parses the dashboard.
    SystemPackage { debian_name: "prometheus", program: "promtool" },
    // Pending holds are looked through on a terminal.
    SystemPackage { debian_name: "tmux", program: "tmux" },
    // The unit of the service is read by systemd itself; nothing of it is started.
    SystemPackage { debian_name: "systemd", program: "systemd-analyze" },
    // Certificates for a Postgres that encrypts.
    SystemPackage { debian_name: "openssl", program: "openssl" },
];

/// Where the browser tests and their package.json are.
pub(crate) const BROWSER_TESTS: &str = "crates/e2e/browser";

/// Where the MCP servers are that the tests talk to, by their package.json.
const MCP_TESTS: &str = "crates/e2e/tests/outside/mcp";

/// Where the mail server is that approvers get mail by.
const MAIL_TESTS: &str = "crates/e2e/tests/outside/mail";

/// Where the packages of Slack, Discord and Microsoft are that check what is said in chats.
const CHAT_TESTS: &str = "crates/e2e/tests/outside/chats";

/// Where the collector is that traces are read by.
const TRACE_TESTS: &str = "crates/e2e/tests/outside/traces";

/// Where the official clients of A2A are driven from, with the lists of their packages.
const CLIENT_TESTS: &str = "crates/e2e/clients";

/// The clients of an older version of A2A, which cannot be installed beside those of the newest.
const OLDER_CLIENT_TESTS: &str = "crates/e2e/clients/v03";

/// Environments of Python below the target folder, and the folders with the lists of their packages.
const PYTHON: &[(&str, &str)] = &[
    ("a2a-clients", CLIENT_TESTS),
    ("a2a-clients-v03", OLDER_CLIENT_TESTS),
    ("mcp-servers", MCP_TESTS),
    ("mail-server", MAIL_TESTS),
    ("chat-clients", CHAT_TESTS),
    ("trace-collector", TRACE_TESTS),
    (TYPOS, "crates/xtask/typos"),
];

/// The environment of the program that finds slips in texts.
const TYPOS: &str = "typos";

/// What people read, from the root on.
const READ_BY_PEOPLE: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTEXT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "packaging",
    "examples",
];

/// The same for the server that ours is compared with over A2A.
const A2A_BENCH: (&str, &str) = ("a2a-bench", "crates/bench/a2a");

/// Where the examples are; those in TypeScript are compiled with what their package.json names.
const EXAMPLES: &str = "examples";

/// Folders with the lists of their packages from npm.
const NPM: &[&str] = &[MCP_TESTS, CHAT_TESTS, BROWSER_TESTS, CLIENT_TESTS, OLDER_CLIENT_TESTS, EXAMPLES];

/// Installs what is missing, or says what to install.
pub(crate) fn install_missing(root: &Path) -> Result<()> {
    for tool in CARGO_TOOLS {
        let is_there = match tool.known_as {
            KnownAs::Subcommand(name) => process::has_cargo_subcommand(root, name),
            KnownAs::Program(name) => process::installed(name).is_some(),
        };
        if !is_there {
            process::run(root, install(root, tool))?;
        }
    }
    let missing: Vec<&str> = SYSTEM_PACKAGES
        .iter()
        .filter(|package| !process::is_on_path(package.program))
        .map(|package| package.debian_name)
        .collect();
    let missing: Vec<&str> = missing.into_iter().chain(python_packages(root)).collect();
    if !missing.is_empty() {
        install_packages(root, &missing)?;
    }
    NPM.iter().try_for_each(|folder| npm_packages(root, folder))?;
    PYTHON.iter().try_for_each(|(environment, packages)| python(root, environment, packages))
}

/// How a tool is installed: from source, as there are no packages of these versions, but built quickly. They check a
/// repository in seconds either way; and what one needs, the next need not build again.
fn install(root: &Path, tool: &CargoTool) -> Command {
    let mut command = process::cargo_command(tool.install);
    command.env("CARGO_TARGET_DIR", process::target_folder(root).join("tools"));
    for (setting, value) in [("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "0")] {
        command.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    command
}

/// The server that ours is compared with over A2A.
pub(crate) fn install_for_a2a_bench(root: &Path) -> Result<()> {
    if let Some(missing) = python_packages(root) {
        install_packages(root, &[missing])?;
    }
    python(root, A2A_BENCH.0, A2A_BENCH.1)
}

/// Looks for slips in what people read. Words that only look like one stand in `typos.toml`.
pub(crate) fn find_typos(root: &Path) -> Result<()> {
    let mut typos = Command::new(process::target_folder(root).join(TYPOS).join("bin/typos"));
    typos.args(["--config", "typos.toml", "--format", "brief"]).args(READ_BY_PEOPLE);
    process::run(root, typos)
}

/// The Python clients and servers of the tests live in environments of their own. What makes one is a package beside Python, and
/// leaves no program by which it could be found.
fn python_packages(root: &Path) -> Option<&'static str> {
    process::output(root, "python3", &["-c", "import ensurepip"]).is_err().then_some("python3-venv")
}

/// Packages of Python, in an environment of their own, unless exactly they are there.
pub(crate) fn python(root: &Path, environment: &str, packages: &str) -> Result<()> {
    let environment = process::target_folder(root).join(environment);
    let python = environment.join("bin/python");
    if !python.exists() {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(&environment);
        process::run(root, venv)?;
    }
    let list = root.join(packages).join("requirements.txt");
    let version = process::output(root, &python.to_string_lossy(), &["--version"])?;
    PackageStamp::of(&environment, &version, std::slice::from_ref(&list))?.install(|| {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
        pip.arg(&list);
        process::run(root, pip)
    })
}

/// Packages of npm, as the lock file of their folder says, unless exactly they are there.
pub(crate) fn npm_packages(root: &Path, folder: &str) -> Result<()> {
    let folder = root.join(folder);
    let lists = ["package.json", "package-lock.json"].map(|list| folder.join(list));
    let version = process::output(root, "node", &["--version"])?;
    let stamp = PackageStamp::of(&folder.join("node_modules"), &version, &lists)?;
    stamp.install(|| process::run(&folder, npm(&["ci"])))
}

/// npm, which prints what is wrong and nothing else.
pub(crate) fn npm(arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).arg("--loglevel=error");
    command
}

/// Packages of the operating system.
pub(crate) fn install_packages(root: &Path, missing: &[&str]) -> Result<()> {
    if !process::is_on_path("apt-get") || !is_root(root) {
        bail!("{}", please_install(missing));
    }
    process::run(root, apt_get(&["update"]))?;
    process::run(root, apt_get(&[&["install", "--yes", "--no-install-recommends"], missing].concat()))
}

fn is_root(root: &Path) -> bool {
    process::output(root, "id", &["-u"]).is_ok_and(|id| id.trim_ascii() == b"0")
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn please_install(missing: &[&str]) -> String {
    let names = missing.join(" ");
    format!(
        "these packages are needed and cannot be installed here (no apt-get, or not root): {names}. \
         Install them (on Debian: `sudo apt-get install {names}`) and run this again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads README or CONTRIBUTING before the first run knows everything that it installs.
    #[test]
    fn the_documents_name_every_tool_and_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let tools = CARGO_TOOLS.iter().map(|tool| tool.install[1]);
        let packages = SYSTEM_PACKAGES.iter().map(|package| package.debian_name);
        let needed: Vec<&str> = tools.chain(packages).chain(["python3-venv"]).collect();
        for page in ["README.md", "CONTRIBUTING.md"] {
            let text = std::fs::read_to_string(root.join(page)).unwrap();
            let missing: Vec<&&str> = needed.iter().filter(|name| !text.contains(**name)).collect();
            assert!(missing.is_empty(), "{page} does not name {missing:?}");
        }
    }

    #[test]
    fn the_message_names_the_packages_and_the_command() {
        let message = please_install(&["strace", "redis-server"]);
        assert!(message.contains("sudo apt-get install strace redis-server"), "{message}");
    }
}
