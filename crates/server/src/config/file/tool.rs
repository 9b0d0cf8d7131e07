//! The section `tools`: what agents can do, and what a person is asked about first.
//!
//! Which types this version can already run is `available.rs`; which need approval by default is here.

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;

use super::llm::web_address;
use super::values::{AfterGrace, OnDeny, OnTimeout, Secret, Span};

/// A tool.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Tool {
    /// What it does. May be left out when the tool has the name of a built-in one.
    #[serde(rename = "type")]
    pub kind: Option<ToolType>,
    /// Whether the model is offered the tool at all.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// Whether a person is asked before each call. Without it: no for `read_file`, `list_dir`, `search_files` and
    /// `suspend-for-input`, yes for everything else.
    pub requires_approval: Option<bool>,
    /// The text that people are asked with, instead of the usual one. `{tool}` and `{input}` are filled in.
    #[garde(inner(length(min = 1)))]
    pub approval_prompt: Option<String>,
    /// What the model is told about the tool, instead of the usual description.
    #[garde(inner(length(min = 1)))]
    pub description: Option<String>,
    /// How long a decision about a call of this tool may take, instead of the agent's `task.input_timeout`.
    pub input_timeout: Option<Span>,
    /// What a denial does, instead of the agent's `task.hitl.on_deny`.
    pub on_deny: Option<OnDeny>,
    /// What silence does, instead of the agent's `task.hitl.on_timeout`.
    pub on_timeout: Option<OnTimeout>,
    /// How long a late answer is still taken, instead of the agent's `task.hitl.expiry_grace`.
    pub expiry_grace: Option<Span>,
    /// What the end of the grace does, instead of the agent's `task.hitl.after_grace`.
    pub after_grace: Option<AfterGrace>,
    /// For `command`: what may run, as programs or the first words of a command (`git log`). Anything else is refused.
    /// Without it every command asks a person.
    pub allowed_commands: Option<Vec<String>>,
    /// Relative to the configuration file; `workspace` beside it without it. For `command`: where the programs run, and
    /// the only place that they can write to. For file tools: the directory that they stay below.
    #[garde(inner(length(min = 1)))]
    pub working_directory: Option<String>,
    /// For `command`: how long one may run (2m without it). For `external`: how long the job may take (24h without it).
    pub timeout: Option<Span>,
    /// For `command`: how many bytes of output are kept.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 65536))]
    pub max_output: Option<u64>,
    /// For `external`: the address that starts the job.
    #[garde(inner(custom(web_address)))]
    pub url: Option<String>,
    /// For `external`: the key that the job's callbacks are signed with. Without it each call gets one of its own.
    #[garde(skip)]
    pub webhook_secret: Option<Secret>,
}

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolType {
    /// Runs one program with arguments; never a shell.
    Command,
    /// Reads a file.
    ReadFile,
    /// Writes a file.
    WriteFile,
    /// Deletes a file.
    DeleteFile,
    /// Lists a directory.
    ListDir,
    /// Searches files for a text.
    SearchFiles,
    /// Lets the model ask a person; the answer is the result.
    #[serde(rename = "suspend-for-input")]
    SuspendForInput,
    /// Starts a job elsewhere that reports back later.
    External,
}

impl ToolType {
    /// Tools that an agent can name without an entry under `tools` (C32).
    pub const BUILT_IN: &[(&str, ToolType)] = &[
        ("execute_command", ToolType::Command),
        ("read_file", ToolType::ReadFile),
        ("write_file", ToolType::WriteFile),
        ("delete_file", ToolType::DeleteFile),
        ("list_dir", ToolType::ListDir),
        ("search_files", ToolType::SearchFiles),
        ("suspend-for-input", ToolType::SuspendForInput),
    ];

    /// The built-in tool of this name.
    #[must_use]
    pub fn built_in(name: &str) -> Option<ToolType> {
        ToolType::BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Whether a person is asked when nothing is said about it (C32): only what changes nothing runs by itself.
    #[must_use]
    pub fn needs_approval(self) -> bool {
        match self {
            ToolType::ReadFile | ToolType::ListDir | ToolType::SearchFiles | ToolType::SuspendForInput => {
                false
            }
            ToolType::Command | ToolType::WriteFile | ToolType::DeleteFile | ToolType::External => true,
        }
    }

    /// As it is written in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ToolType::Command => "command",
            ToolType::ReadFile => "read_file",
            ToolType::WriteFile => "write_file",
            ToolType::DeleteFile => "delete_file",
            ToolType::ListDir => "list_dir",
            ToolType::SearchFiles => "search_files",
            ToolType::SuspendForInput => "suspend-for-input",
            ToolType::External => "external",
        }
    }
}
