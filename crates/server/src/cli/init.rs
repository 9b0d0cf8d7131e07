//! `standfast init`: a first configuration file, with a comment on every key that people change first.
//!
//! The file is right as it stands: it is checked before it is written, with the same rules as `validate`. Nothing is ever
//! overwritten. What the keys mean in full is docs/configuration.md.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use standfast::config::{self, Source, Unset};

use super::plain::plain;

/// What `init` can be told.
#[derive(Debug, Args)]
pub(super) struct Init {
    /// The file to write.
    #[arg(default_value = "standfast.yaml")]
    file: PathBuf,
    /// Which provider of models; `scripted` needs no key and no network.
    #[arg(long, value_name = "P", default_value = "scripted")]
    provider: ProviderArg,
    /// Where runs are stored.
    #[arg(long, value_name = "S", default_value = "sqlite")]
    store: StoreArg,
}

/// A provider of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProviderArg {
    Scripted,
    Anthropic,
    Openai,
    OpenaiResponses,
    Gemini,
    Ollama,
}

/// Where runs are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreArg {
    Sqlite,
    Postgres,
    Files,
    Memory,
}

/// The file with the replies of the scripted model.
const SCRIPT: &str = "\
# What the scripted model says, reply by reply; docs/scripted-model.md has all that can stand here.
replies:
  - text: I will look at what is there.
    calls:
      - tool: execute_command
        arguments: '{\"command\": \"ls -l\"}'
  - text: I have looked.
";

impl ProviderArg {
    fn section(self, script: &str) -> String {
        let (kind, model, key) = match self {
            ProviderArg::Scripted => {
                return format!(
                    "  main:\n    type: scripted          # follows a file: no key, no network; see {script}\n    script: {script}\n"
                );
            }
            ProviderArg::Anthropic => ("anthropic", "claude-sonnet-4-5", Some("ANTHROPIC_API_KEY")),
            ProviderArg::Openai => ("openai", "gpt-4o", Some("OPENAI_API_KEY")),
            ProviderArg::OpenaiResponses => ("openai_responses", "gpt-5", Some("OPENAI_API_KEY")),
            ProviderArg::Gemini => ("gemini", "gemini-2.5-flash", Some("GEMINI_API_KEY")),
            ProviderArg::Ollama => ("ollama", "llama3.1", None),
        };
        let mut text = format!("  main:\n    type: {kind}\n    model: {model}\n");
        text.extend(key.map(|key| {
            format!(
                "    api_key: ${{{key}}}    # from the environment, or from a file `.env` beside this one\n"
            )
        }));
        text.push_str("    # base_url: http://127.0.0.1:11434    # a gateway, or a server that speaks the same protocol\n");
        text
    }

    fn variable(self) -> Option<&'static str> {
        match self {
            ProviderArg::Anthropic => Some("ANTHROPIC_API_KEY"),
            ProviderArg::Openai | ProviderArg::OpenaiResponses => Some("OPENAI_API_KEY"),
            ProviderArg::Gemini => Some("GEMINI_API_KEY"),
            ProviderArg::Scripted | ProviderArg::Ollama => None,
        }
    }
}

impl StoreArg {
    fn section(self) -> &'static str {
        match self {
            StoreArg::Sqlite => {
                "  main:\n    backend: sql\n    sql: {driver: sqlite, database: ./data/standfast.db}    # one server, one file\n"
            }
            StoreArg::Postgres => {
                "  main:\n    backend: sql\n    sql: {driver: postgres, url: \"${DATABASE_URL}\"}    # any number of servers share it\n"
            }
            StoreArg::Files => {
                "  main:\n    backend: file\n    file: {directory: ./data/sessions}    # readable JSON files\n"
            }
            StoreArg::Memory => "  main: {backend: memory}    # a restart loses everything\n",
        }
    }
}

fn text(provider: ProviderArg, store: StoreArg, script: &str) -> String {
    format!(
        "\
# Configuration of Standfast. Every key: docs/configuration.md; completion in editors: standfast schema.
#   standfast validate    checks this file      standfast validate --connect    also what it names
#   standfast serve       takes it, in the folder where it is

llms:
{llm}
tools:
  execute_command:
    type: command
    requires_approval: true          # every command waits for a person; false lets harmless ones run
    allowed_commands: [ls, cat, git] # anything else is refused
    # network: true                  # commands are confined: no network unless you say so
    # working_directory: ./workspace # all that commands can change
  # files:                           # the tools of an MCP server
  #   type: mcp
  #   command: npx
  #   args: [-y, \"@modelcontextprotocol/server-filesystem\", ./workspace]

session_stores:
{store}
agents:
  assistant:
    llm: main
    instructions: You look after a folder. Say what you are about to do before you do it.
    session_store: main
    tools: [execute_command, read_file, list_dir, suspend-for-input]
    # approvers: [owner, \"group:operations\"]    # exactly who may decide; without it whoever started the run
    task:
      input_timeout: 24h             # how long a person may take
      hitl: {{on_timeout: keep}}       # what happens then: keep, deny, fail, cancel, resume_with_error

server:
  listen: 127.0.0.1:8080             # any other address needs auth
  # auth: {{api_keys: true}}           # then: standfast keys create --user NAME
  # public_url: https://standfast.example.org
",
        llm = provider.section(script),
        store = store.section(),
    )
}

pub(super) fn run(arguments: &Init) -> ExitCode {
    let Init { file, provider, store } = arguments;
    match write(file, *provider, *store) {
        Ok(written) => {
            println!("{written}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("standfast: {}", plain(&why));
            ExitCode::FAILURE
        }
    }
}

fn write(file: &Path, provider: ProviderArg, store: StoreArg) -> Result<String, String> {
    if file.exists() {
        return Err(taken(file));
    }
    let script = script_of(file);
    let script_name = script.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let text = text(provider, store, &script_name);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if provider == ProviderArg::Scripted {
        create(&script, SCRIPT)?;
    }
    let source = Source { name: file.display().to_string(), text: text.clone() };
    config::check(source, folder, &|_| None, Unset::Allow).map_err(|problems| problems.show())?;
    create(file, &text)?;
    let shown = plain(&file.display().to_string());
    let mut said = format!("wrote {shown}");
    if provider == ProviderArg::Scripted {
        said.push_str(&format!(" and {}", plain(&script.display().to_string())));
    }
    let variables: Vec<&str> = provider
        .variable()
        .into_iter()
        .chain((store == StoreArg::Postgres).then_some("DATABASE_URL"))
        .collect();
    if !variables.is_empty() {
        said.push_str(&format!(
            "\nset {}, in the environment or in a file .env beside it",
            variables.join(" and ")
        ));
    }
    let serve = if file == Path::new("standfast.yaml") {
        "standfast serve".to_owned()
    } else {
        format!("standfast serve --config '{shown}'")
    };
    said.push_str(&format!(
        "\nthen: {serve}\n      standfast send assistant 'What is in this folder?' --wait"
    ));
    Ok(said)
}

/// The script beside a configuration: `standfast.script.yaml`.
fn script_of(file: &Path) -> PathBuf {
    file.with_extension("script.yaml")
}

fn taken(path: &Path) -> String {
    format!("{} is there already and was left as it is; name another file", path.display())
}

/// Writes a file that is not there yet.
fn create(path: &Path, text: &str) -> Result<(), String> {
    let shown = path.display();
    let made = File::options().write(true).create_new(true).open(path);
    let mut file = made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => taken(path),
        _ => format!("cannot write {shown}: {error}"),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| format!("cannot write {shown}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_a_right_file() {
        for provider in ProviderArg::value_variants() {
            for store in StoreArg::value_variants() {
                let folder = tempfile::tempdir().unwrap();
                let file = folder.path().join("standfast.yaml");
                write(&file, *provider, *store).unwrap();
                config::load(&file, Unset::Allow).unwrap();
                let again = write(&file, *provider, *store).unwrap_err();
                assert!(again.contains("is there already"), "{again}");
            }
        }
    }
}
