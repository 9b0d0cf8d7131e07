//! The types of tools: how the file writes them, which are built in, which need approval by default.
//!
//! The keys of each type are `tool.rs`.

use schemars::JsonSchema;
use serde::Deserialize;

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
    /// Replaces an exact piece of text in a file.
    EditFile,
    /// Lets the model ask a person; the answer is the result.
    #[serde(rename = "suspend-for-input")]
    SuspendForInput,
    /// Sends one HTTP request.
    HttpRequest,
    /// Starts a job in another system that reports back later.
    External,
    /// Delegates work to another agent of this server.
    Agent,
    /// The tools of an MCP server.
    Mcp,
    /// Delegates work to a remote agent that speaks A2A.
    A2a,
}

impl ToolType {
    /// Every type, in the order of the reference.
    pub const ALL: &[ToolType] = &[
        ToolType::Command,
        ToolType::ReadFile,
        ToolType::WriteFile,
        ToolType::DeleteFile,
        ToolType::ListDir,
        ToolType::SearchFiles,
        ToolType::EditFile,
        ToolType::SuspendForInput,
        ToolType::HttpRequest,
        ToolType::External,
        ToolType::Agent,
        ToolType::Mcp,
        ToolType::A2a,
    ];

    /// Tools that an agent can name without an entry under `tools` (C32).
    pub const BUILT_IN: &[(&str, ToolType)] = &[
        ("execute_command", ToolType::Command),
        ("read_file", ToolType::ReadFile),
        ("write_file", ToolType::WriteFile),
        ("delete_file", ToolType::DeleteFile),
        ("list_dir", ToolType::ListDir),
        ("search_files", ToolType::SearchFiles),
        ("edit_file", ToolType::EditFile),
        ("http_request", ToolType::HttpRequest),
        ("suspend-for-input", ToolType::SuspendForInput),
    ];

    /// The built-in tool of this name.
    #[must_use]
    pub fn built_in(name: &str) -> Option<ToolType> {
        ToolType::BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Whether a call needs approval by default (C32): only read-only tools run without it.
    #[must_use]
    pub fn needs_approval(self) -> bool {
        match self {
            ToolType::ReadFile | ToolType::ListDir | ToolType::SearchFiles | ToolType::SuspendForInput => {
                false
            }
            ToolType::Command
            | ToolType::WriteFile
            | ToolType::DeleteFile
            | ToolType::EditFile
            | ToolType::HttpRequest
            | ToolType::External
            | ToolType::Agent
            | ToolType::Mcp
            | ToolType::A2a => true,
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
            ToolType::EditFile => "edit_file",
            ToolType::HttpRequest => "http_request",
            ToolType::External => "external",
            ToolType::Agent => "agent",
            ToolType::Mcp => "mcp",
            ToolType::A2a => "a2a",
        }
    }
}
