//! The tool of type `command`: one program with its arguments, never a shell.
//!
//! The text of a command is split into words as a POSIX shell splits it (quotes, backslashes and `#` comments), and
//! nothing else of a shell happens: `$HOME`, `;`, `|` and `*` are ordinary characters. Which commands need a person is
//! `command/rules.rs`, how one is started and ended `child.rs`, what it can reach `sandbox.rs`,
//! what people and the model get to see of it `command/result.rs`.

pub mod authority;
mod git;
mod operands;
mod preview;
mod result;
pub mod rules;
mod warning;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde::Deserialize;
use standfast_core::body::Body;
use standfast_core::definition::ToolSpec;
use standfast_core::json::RawJson;
use standfast_core::message::{FileDigest, Replay, ToolResult};
use standfast_core::time::Millis;
use standfast_engine::tool::preview::{CallPreview, Risk};
use standfast_engine::tool::{CommandLine, Invocation, Judgement, Nature, Outcome, Tool, ToolFuture};

use super::child::{self, Order};
use super::sandbox::{self, Confinement, Isolation, NoSandbox, Plan, Reach, real_or_planned};

/// How it is described to the model.
const DESCRIPTION: &str = "Run one program with arguments. There is no shell: no pipes, no redirection, no variables, \
                           no wildcards.";

/// What it takes.
const SCHEMA: &str = r#"{"type":"object","properties":{"command":{"type":"string","description":"The program and its arguments in one line, with quotes where a word has spaces"},"argv":{"type":"array","items":{"type":"string"},"minItems":1,"description":"The program and its arguments, one by one"}},"oneOf":[{"required":["command"]},{"required":["argv"]}],"additionalProperties":false}"#;

/// What commands there are and how far they may go. The names of the fields are those of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOptions {
    /// What may run without a person: programs (`git`: found through `PATH`; `/bin/ls`: compared as it is written), or
    /// the first words of a command (`git log`). None and an empty list both mean: nothing.
    pub allowed_commands: Option<Vec<String>>,
    /// What never runs, whoever agrees: programs under every path, or the first words of a command.
    pub denied_commands: Vec<String>,
    /// Whether a command that is not listed is refused (true) or a person is asked (false). Not said: true where there
    /// is a list of allowed commands, and false where there is none.
    pub deny_by_default: Option<bool>,
    /// Where commands run, and the only place that they can write to beside `writable`. None is where the server runs.
    pub working_directory: Option<PathBuf>,
    /// How long each may take.
    pub max_execution_time: Millis,
    /// How many bytes of output are kept, both streams together.
    pub output_limit: u64,
    /// How many processes one command may have at a time.
    pub process_limit: u32,
    /// How many bytes of memory its processes may have together; of each, where the kernel does not count them together.
    pub memory_limit: u64,
    /// How many bytes a file may have that it writes.
    pub file_limit: u64,
    /// How many bytes it may write, all files together.
    pub disk_limit: u64,
    /// Whether the kernel confines them.
    pub confinement: Confinement,
    /// Whether they get namespaces of their own, where they are confined.
    pub isolation: Isolation,
    /// What of the network they reach, where they are confined.
    pub network: Reach,
    /// Directories that they can change beside the working directory.
    pub writable: Vec<PathBuf>,
    /// Directories that they can read beside those of the system and the working directory.
    pub readable: Vec<PathBuf>,
    /// What they can never reach: configuration, store, keys (T26).
    pub protected: Vec<PathBuf>,
}

impl Default for CommandOptions {
    /// Every command asks a person; two minutes, 64 KiB of output, 64 processes, 2 GiB of memory, files of 2 GiB and 4 GiB in
    /// all, confined, without network.
    fn default() -> CommandOptions {
        CommandOptions {
            allowed_commands: None,
            denied_commands: Vec::new(),
            deny_by_default: None,
            working_directory: None,
            max_execution_time: Millis::seconds(120),
            output_limit: 64 * 1024,
            process_limit: 64,
            memory_limit: 2 << 30,
            file_limit: 2 << 30,
            disk_limit: 4 << 30,
            confinement: Confinement::On,
            isolation: Isolation::Namespaces,
            network: Reach::None,
            writable: Vec::new(),
            readable: Vec::new(),
            protected: Vec::new(),
        }
    }
}

impl CommandOptions {
    /// What commands can change: the working directory and `writable`, without links.
    fn changeable(&self) -> Vec<PathBuf> {
        let directory = self.working_directory.clone().unwrap_or_else(|| PathBuf::from("."));
        std::iter::once(&directory).chain(&self.writable).map(|path| real_or_planned(path)).collect()
    }

    /// Whether a command that is not listed is refused.
    #[must_use]
    pub fn denies_by_default(&self) -> bool {
        self.deny_by_default.unwrap_or(self.allowed_commands.is_some())
    }
}

/// Runs programs on the machine of the server.
#[derive(Debug, Clone)]
pub struct CommandTool {
    options: CommandOptions,
    plan: Option<Plan>,
    shim: PathBuf,
}

impl CommandTool {
    /// Checks that the options can be kept: without what confines commands there is no tool (T24).
    pub fn new(options: CommandOptions) -> Result<CommandTool, NoSandbox> {
        let shim = child::own_program().map_err(|error| NoSandbox::Directory {
            path: PathBuf::from("/proc/self/exe"),
            error: error.to_string(),
        })?;
        CommandTool::through(options, shim)
    }

    /// The same, with commands started by this program `standfast`.
    pub fn through(options: CommandOptions, shim: PathBuf) -> Result<CommandTool, NoSandbox> {
        let plan = match options.confinement {
            Confinement::Off => None,
            Confinement::On => Some(plan(&options)?),
        };
        Ok(CommandTool { options, plan, shim })
    }

    /// How it is described to a model.
    #[must_use]
    pub fn spec() -> ToolSpec {
        let Ok(schema) = RawJson::parse(SCHEMA) else { unreachable!("the schema is a constant") };
        ToolSpec {
            description: DESCRIPTION.into(),
            schema,
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        }
    }

    fn order(&self, invocation: &Invocation) -> Result<Order, BadCommand> {
        let mut argv = argv(&invocation.arguments)?;
        rules::forbidden(&self.options, &argv)?;
        let directory = self.options.working_directory.clone();
        let path = search_path(&self.options);
        if let Some(program) = argv.first_mut() {
            *program = found(program, &path)?;
        }
        Ok(Order {
            argv,
            path,
            directory,
            time_limit: self.options.max_execution_time,
            output_limit: self.options.output_limit,
            process_limit: self.options.process_limit,
            memory_limit: self.options.memory_limit,
            file_limit: self.options.file_limit,
            disk_limit: self.options.disk_limit,
            plan: self.plan.clone(),
            env: git::environment(),
            token: invocation.token(),
        })
    }
}

impl Tool for CommandTool {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let (order, shim) = (self.order(&invocation), self.shim.clone());
        Box::pin(async move {
            match order {
                Ok(order) => result::outcome(child::run(&shim, &order).await, &order),
                Err(bad) => Outcome::Done(ToolResult::Failed(Body::text(format!("not executed: {bad}")))),
            }
        })
    }

    fn judge(&self, arguments: &str) -> Judgement {
        rules::judge(&self.options, arguments)
    }

    /// Known only of programs of the table that look and change nothing, with options that it knows too.
    fn risk(&self, arguments: &str) -> Option<Risk> {
        preview::risk(&argv(arguments).ok()?)
    }

    fn preview(&self, arguments: &str) -> Option<CallPreview> {
        let words = argv(arguments).ok()?;
        Some(CallPreview::Command(preview::command(&self.options, self.plan.as_ref(), words)))
    }

    fn nature(&self) -> Nature<'_> {
        Nature::CommandLine(self)
    }
}

impl CommandLine for CommandTool {
    fn judge_listed(&self, arguments: &str) -> Judgement {
        rules::judge_listed(&self.options, arguments)
    }

    fn files(&self, arguments: &str) -> Vec<FileDigest> {
        let Ok(argv) = argv(arguments) else { return Vec::new() };
        operands::files(&self.options, &argv, &search_path(&self.options))
    }

    fn warning(&self, arguments: &str) -> Option<String> {
        warning::of(&self.options, self.plan.as_ref()?, &argv(arguments).ok()?)
    }

    /// A line and its words are the same command.
    fn loose_key(&self, arguments: &str) -> Option<String> {
        argv(arguments).ok().map(|words| format!("{words:?}"))
    }
}

/// What commands with these options can reach.
fn plan(options: &CommandOptions) -> Result<Plan, NoSandbox> {
    sandbox::probe()?;
    let workspace = match &options.working_directory {
        Some(directory) => directory.clone(),
        None => PathBuf::from("."),
    };
    let plan = Plan::around(&workspace, &options.readable, &options.protected, options.network)?;
    let plan = plan.with_writable(&options.writable, &options.protected)?;
    Ok(Plan { isolation: options.isolation, ..plan })
}

/// Why a command does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// The arguments are not what the tool takes.
    #[error("the arguments must be {{\"command\": string}} or {{\"argv\": [string, …]}}: {0}")]
    Input(String),
    /// A quote that nothing closes.
    #[error("the command has a quote that is not closed")]
    OpenQuote,
    /// A comment, which a splitter drops: what people are shown must be what runs.
    #[error(
        "the command has a word that begins with #, which would be dropped as a comment; use argv instead"
    )]
    Comment,
    /// No program.
    #[error("the command names no program")]
    Empty,
    /// A character that no argument can have.
    #[error("the command has a NUL character")]
    Nul,
    /// A program that is not on the list.
    #[error("the program {program:?} is not allowed here; allowed: {}", listed(allowed))]
    NotAllowed {
        /// What was asked for.
        program: String,
        /// What there is.
        allowed: Vec<String>,
    },
    /// Something that never runs here.
    #[error("{denied:?} is denied here, and the program {program:?} would run it")]
    Denied {
        /// What was asked for.
        program: String,
        /// The entry of the list.
        denied: String,
    },
    /// No such program outside of the working directory.
    #[error("the program {program:?} cannot be started: No such file in {path}")]
    NotFound {
        /// What was asked for.
        program: String,
        /// Where it was looked for.
        path: String,
    },
}

fn listed(allowed: &[String]) -> String {
    if allowed.is_empty() { "nothing".into() } else { allowed.join(", ") }
}

/// Where programs are looked for: the server's `PATH` without relative entries and without what commands can write to.
fn search_path(options: &CommandOptions) -> OsString {
    let usual = || OsString::from("/usr/local/bin:/usr/bin:/bin");
    let all = std::env::var_os("PATH").unwrap_or_else(usual);
    // Whoever runs commands where the server runs has said nothing of what is theirs.
    let inside = if options.working_directory.is_some() { options.changeable() } else { Vec::new() };
    let trusted = std::env::split_paths(&all).filter(|entry| {
        let real = entry.canonicalize().unwrap_or_else(|_| entry.clone());
        entry.is_absolute() && !inside.iter().any(|inside| real.starts_with(inside))
    });
    std::env::join_paths(trusted).unwrap_or_else(|_| usual())
}

/// The file of a program. A name with a slash is a path already, and is taken as it is written.
fn found(program: &str, path: &OsString) -> Result<String, BadCommand> {
    if program.contains('/') {
        return Ok(program.to_owned());
    }
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let file = std::env::split_paths(path).map(|directory| directory.join(program)).find(is_program);
    let text = file.and_then(|file| file.into_os_string().into_string().ok());
    text.ok_or_else(|| BadCommand::NotFound {
        program: program.to_owned(),
        path: path.to_string_lossy().into_owned(),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    command: Option<String>,
    argv: Option<Vec<String>>,
}

/// The words that run, from the argument text.
fn argv(arguments: &str) -> Result<Vec<String>, BadCommand> {
    // Also finds members that stand twice: the reader below would refuse them too, but says less.
    RawJson::parse(arguments).map_err(|error| BadCommand::Input(error.to_string()))?;
    let input: Input =
        serde_json::from_str(arguments).map_err(|error| BadCommand::Input(error.to_string()))?;
    match (input.command, input.argv) {
        (Some(command), None) if has_comment(&command) => Err(BadCommand::Comment),
        (Some(command), None) => shell_words::split(&command).map_err(|_| BadCommand::OpenQuote),
        (None, Some(argv)) => Ok(argv),
        (Some(_), Some(_)) => Err(BadCommand::Input("it has both".into())),
        (None, None) => Err(BadCommand::Input("it has neither".into())),
    }
}

/// The line that the words come from, where it is one.
fn command_text(arguments: &str) -> Option<String> {
    serde_json::from_str::<Input>(arguments).ok()?.command
}

/// Errs on the side of refusing: also inside quotes.
fn has_comment(command: &str) -> bool {
    command.split_whitespace().any(|word| word.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_like_a_shell_would_and_nothing_is_expanded() {
        let words = |text: &str| argv(text).unwrap();
        assert_eq!(words(r#"{"command": "rm -rf '/tmp/old files'"}"#), ["rm", "-rf", "/tmp/old files"]);
        assert_eq!(words(r#"{"command": "echo $HOME; ls *"}"#), ["echo", "$HOME;", "ls", "*"]);
        assert_eq!(words(r#"{"command": "echo \"a b\"c\\ d ''"}"#), ["echo", "a bc d", ""]);
        assert_eq!(words(r#"{"argv": ["echo", "it's $HOME"]}"#), ["echo", "it's $HOME"]);
    }

    #[test]
    fn what_is_not_a_command_says_why() {
        let why = |text: &str| argv(text).unwrap_err().to_string();
        assert_eq!(why(r#"{"command": "echo 'a"}"#), "the command has a quote that is not closed");
        assert!(why("{}").ends_with("it has neither"), "{}", why("{}"));
        assert!(why(r#"{"command": "ls", "argv": ["ls"]}"#).ends_with("it has both"));
        assert!(why(r#"{"command": "ls", "shell": true}"#).contains("unknown field `shell`"));
        assert!(why(r#"{"command": 7}"#).contains("invalid type: integer `7`"));
        assert!(why("[").contains("EOF"));
    }

    #[test]
    fn the_schema_is_json_and_closed() {
        assert!(CommandTool::spec().schema.text().contains(r#""additionalProperties":false"#));
    }
}
