//! The tool of type `command`: one program with its arguments, never a shell.
//!
//! The text of a command is split into words as a POSIX shell splits it (quotes, backslashes and `#` comments), and
//! nothing else of a shell happens: `$HOME`, `;`, `|` and `*` are ordinary characters. How it is started and ended is
//! `child.rs`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use holdpoint_core::body::Body;
use holdpoint_core::definition::ToolSpec;
use holdpoint_core::json::RawJson;
use holdpoint_core::message::{Replay, ToolResult};
use holdpoint_core::time::Millis;
use serde::{Deserialize, Serialize};

use super::child::{self, End, Kept, Lost, Order, Ran, Report};
use super::{Invocation, Outcome, Running, Tool};

/// What the model is told of it.
const DESCRIPTION: &str = "Run one program with arguments. There is no shell: no pipes, no redirection, no variables, \
                           no wildcards.";

/// What it takes.
const SCHEMA: &str = r#"{"type":"object","properties":{"command":{"type":"string","description":"The program and its arguments in one line, with quotes where a word has spaces"},"argv":{"type":"array","items":{"type":"string"},"minItems":1,"description":"The program and its arguments, one by one"}},"oneOf":[{"required":["command"]},{"required":["argv"]}],"additionalProperties":false}"#;

/// Runs programs on the machine of the server.
#[derive(Debug, Clone)]
pub struct CommandTool {
    /// The programs that may run: bare names, found through `PATH`, or absolute paths, compared as they are written.
    /// None means any, an empty set means none at all.
    pub allowed: Option<BTreeSet<String>>,
    /// Where they run; none is where the server runs.
    pub directory: Option<PathBuf>,
    /// How long each may take.
    pub time_limit: Millis,
    /// How many bytes of output are kept, both streams together.
    pub output_limit: u64,
    /// The program `holdpoint`, which starts the commands and ends them.
    pub shim: PathBuf,
}

impl CommandTool {
    /// Any program, for up to two minutes, 64 KiB of output.
    pub fn usual() -> std::io::Result<CommandTool> {
        Ok(CommandTool {
            allowed: None,
            directory: None,
            time_limit: Millis::seconds(120),
            output_limit: 64 * 1024,
            shim: child::own_program()?,
        })
    }

    /// How a model is told of it.
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
        let argv = argv(&invocation.arguments)?;
        let program = argv.first().filter(|program| !program.is_empty()).ok_or(BadCommand::Empty)?;
        if argv.iter().any(|word| word.contains('\0')) {
            return Err(BadCommand::Nul);
        }
        if let Some(allowed) = &self.allowed
            && !allowed.contains(program)
        {
            return Err(BadCommand::NotAllowed { program: program.clone(), allowed: allowed.clone() });
        }
        Ok(Order {
            argv,
            directory: self.directory.clone(),
            time_limit: self.time_limit,
            output_limit: self.output_limit,
            token: invocation.token(),
        })
    }
}

impl Tool for CommandTool {
    fn run(&self, invocation: Invocation) -> Running {
        let (order, shim) = (self.order(&invocation), self.shim.clone());
        Box::pin(async move {
            match order {
                Ok(order) => outcome(child::run(&shim, &order).await, &order),
                Err(bad) => Outcome::Done(ToolResult::Failed(Body::text(format!("not executed: {bad}")))),
            }
        })
    }
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
        allowed: BTreeSet<String>,
    },
}

fn listed(allowed: &BTreeSet<String>) -> String {
    if allowed.is_empty() { "nothing".into() } else { allowed.iter().cloned().collect::<Vec<_>>().join(", ") }
}

/// The words that run, from the argument text.
fn argv(arguments: &str) -> Result<Vec<String>, BadCommand> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Input {
        command: Option<String>,
        argv: Option<Vec<String>>,
    }
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

/// Errs on the side of refusing: also inside quotes.
fn has_comment(command: &str) -> bool {
    command.split_whitespace().any(|word| word.starts_with('#'))
}

/// What came of it. A command that ended by itself is a result, whatever its exit code says.
fn outcome(report: Result<Report, Lost>, order: &Order) -> Outcome {
    Outcome::Done(match report {
        Ok(Report::Ran(ran)) => match ran.end {
            End::Exit(_) => ToolResult::Ok(shown(ran, order)),
            End::Signal(_) | End::TimedOut => ToolResult::Failed(shown(ran, order)),
        },
        Ok(Report::NotStarted(why)) => ToolResult::Failed(Body::text(format!("not executed: {why}"))),
        Err(lost @ Lost::Unknown(_)) => return Outcome::Unknown(lost.to_string()),
        Err(lost) => ToolResult::Failed(Body::text(lost.to_string())),
    })
}

fn shown(ran: Ran, order: &Order) -> Body {
    #[derive(Serialize)]
    struct Shown {
        exit_code: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        stdout: String,
        stderr: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        timed_out: bool,
    }
    let (exit_code, signal) = match ran.end {
        End::Exit(code) => (Some(code), None),
        End::Signal(signal) => (None, Some(signal)),
        End::TimedOut => (None, None),
    };
    let shown = Shown {
        exit_code,
        signal,
        truncated: ran.stdout.dropped > 0 || ran.stderr.dropped > 0,
        timed_out: ran.end == End::TimedOut,
        stdout: noted(ran.stdout, order),
        stderr: noted(ran.stderr, order),
    };
    let json = serde_json::to_string(&shown).ok().and_then(|text| RawJson::parse(&text).ok());
    let Some(json) = json else { unreachable!("strings and numbers are JSON") };
    Body::Json(json)
}

/// The text with a note where something is missing.
fn noted(kept: Kept, order: &Order) -> String {
    match kept.dropped {
        0 => kept.text,
        dropped => {
            format!("{}\n[{dropped} more bytes; {} bytes of output are kept]", kept.text, order.output_limit)
        }
    }
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
