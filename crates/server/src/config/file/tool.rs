//! The section `tools`: what agents can do, and what a person is asked about first.
//!
//! Which types need approval by default is here; what each comes to is `build/tools.rs`.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;

use super::llm::web_address;
use super::values::{
    AfterGrace, OnDeny, OnTimeout, Parameters, Secret, SelfApproval, Span, more_than_nothing,
};

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
    /// `suspend-for-input`, yes for everything else; for tools of an `mcp` server what docs/mcp.md says.
    pub requires_approval: Option<bool>,
    /// What a catalog of Teal Agents says of the tool. `requires_hitl` in it is taken as `requires_approval`.
    #[garde(dive)]
    pub governance: Governance,
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
    /// Whether whoever started a run may decide about a call of this tool. The strictest of server, agent and tool
    /// counts.
    pub self_approval: Option<SelfApproval>,
    /// For `command`: what may run, as programs or the first words of a command (`git log`). Anything else is refused.
    /// Without it every command asks a person.
    pub allowed_commands: Option<Vec<String>>,
    /// For `command`: what never runs, whoever agrees: programs under every path, or the first words of a command.
    pub denied_commands: Option<Vec<String>>,
    /// For `command`: whether a command that is not listed is refused (true) or a person is asked (false). Without it:
    /// true where there are `allowed_commands`, false where there are none.
    pub deny_by_default: Option<bool>,
    /// Relative to the configuration file; `workspace` beside it without it. For `command`: where the programs run, and
    /// the only place that they can write to. For file tools: the directory that they stay below. For `mcp`: where the
    /// program runs, which is the folder of the configuration file without it; with `sandbox: on` as for `command`.
    #[garde(inner(length(min = 1)))]
    pub working_directory: Option<String>,
    /// For `command`, and for `mcp` with `sandbox: on`: directories that programs can read beside the working directory
    /// and those of the system.
    pub readable: Option<Vec<String>>,
    /// For `command`: how long one may run.
    #[garde(inner(custom(more_than_nothing)))]
    #[schemars(extend("default" = "2m"))]
    pub max_execution_time: Option<Span>,
    /// For `command`: how many processes one may have at a time; more end it.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 64))]
    pub max_processes: Option<u32>,
    /// For `command`: how many bytes of memory its processes may have together; each of them, where the kernel does not
    /// count them together.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 2147483648u64))]
    pub max_memory: Option<u64>,
    /// For `command`: how many bytes a file may have that it writes.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 2147483648u64))]
    pub max_file_size: Option<u64>,
    /// For `command` and for `mcp` with `command`: whether the kernel confines programs. With `on` the server does not
    /// start where it cannot. Without it: `on` for `command`, `off` for `mcp`.
    pub sandbox: Option<Sandbox>,
    /// For `command` and `mcp`: whether confined programs reach the network.
    #[schemars(extend("default" = false))]
    pub network: Option<bool>,
    /// For `command`, `http_request`, `mcp` and `a2a`: how many bytes of output, or of the answer, are kept. Without it:
    /// 65536, 262144, 1048576 and 1048576.
    #[garde(inner(range(min = 1)))]
    pub max_output: Option<u64>,
    /// For `external`: how long the job may take (24h without it). For `a2a`: how long the remote agent may work before it
    /// answers or asks something (24h without it). For `http_request` and `mcp`: how long the answer may take (60s and 2m
    /// without it).
    #[garde(inner(custom(more_than_nothing)))]
    pub timeout: Option<Span>,
    /// For `external`: the address that starts the job. For `mcp`: the address of a server that speaks streamable HTTP.
    /// For `a2a`: the address of the remote agent, below which its card is, or the card itself (`….json`).
    #[garde(inner(custom(web_address)))]
    pub url: Option<String>,
    /// For `external`: the key that the job's callbacks are signed with. Without it each call gets one of its own.
    #[garde(skip)]
    pub webhook_secret: Option<Secret>,
    /// For `external`: the key before that one, while jobs that know only it still report. Both are taken.
    #[garde(skip)]
    pub previous_webhook_secret: Option<Secret>,
    /// For `external`: an address that is told, signed, when a call is settled. The job's answer may name another one.
    #[garde(inner(custom(web_address)))]
    pub webhook_url: Option<String>,
    /// For `external`: what a result must keep to, as a JSON Schema. What does not is refused, and the call goes on
    /// waiting.
    pub validate_result: Option<Parameters>,
    /// `true` makes a tool `external` without saying so under `type`: its result comes later, from elsewhere.
    #[serde(rename = "async")]
    pub is_async: Option<bool>,
    /// For `external`: what the job takes, as a JSON Schema of type `object`. Without it any object.
    pub parameters: Option<Parameters>,
    /// For `external`, `http_request` and `a2a`: hosts that may be called although they are not public, as `host` or
    /// `host:port`. For `mcp` with `url`: hosts of the login that the server names, in the same way.
    pub allowed_hosts: Option<Vec<String>>,
    /// For `external`, `http_request` and `a2a`: whether no other host may be called than those of `allowed_hosts`.
    #[schemars(extend("default" = false))]
    pub only_allowed_hosts: Option<bool>,
    /// For `agent`: the agent that does the work, a name below `agents`.
    pub agent: Option<String>,
    /// For `mcp`: the program that is the server, spoken to over its standard input and output.
    #[garde(inner(length(min = 1)))]
    pub command: Option<String>,
    /// For `mcp` with `command`: the arguments of the program.
    pub args: Vec<String>,
    /// For `mcp` with `command`: its environment, beside `PATH`, `HOME` and `LANG`. Nothing else reaches it.
    #[garde(skip)]
    pub env: BTreeMap<String, Secret>,
    /// For `mcp` with `url`, and for `a2a`: headers of every request, such as `Authorization`.
    #[garde(skip)]
    pub headers: BTreeMap<String, Secret>,
    /// For `a2a`: whether a first message that is sent again, with the same key, does not begin a second task. Then a start
    /// whose answer was lost is simply made again; otherwise a person is asked. Without it: what the remote agent's card
    /// says.
    pub idempotent: Option<bool>,
    /// For `mcp` with `url`: how people log in where the server asks for it. Without it a client is registered there.
    #[garde(dive)]
    pub oauth: Option<Oauth>,
    /// For `mcp`: the tools of the server that agents get, by the server's own names. Without it all of them.
    pub allow: Option<Vec<String>>,
    /// For `mcp`: tools of the server that agents do not get.
    pub deny: Option<Vec<String>>,
    /// For `mcp`: whether the server's own word counts that a tool changes nothing or may be repeated. Write `false` for
    /// a server that you do not trust: then every tool asks, unless the file says otherwise.
    #[schemars(extend("default" = true))]
    pub trust_hints: Option<bool>,
    /// For `mcp`: what is different for single tools of the server, by the server's own names.
    #[garde(skip)]
    pub overrides: BTreeMap<String, McpOverride>,
}

impl Tool {
    /// What the tool of this name does; none when nothing says so.
    #[must_use]
    pub fn kind_as(&self, name: &str) -> Option<ToolType> {
        let is_async = (self.is_async == Some(true)).then_some(ToolType::External);
        self.kind.or(is_async).or_else(|| ToolType::built_in(name))
    }
}

/// How people log in at an MCP server.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Oauth {
    /// The id of a client that was registered by hand at the authorization server, with `PUBLIC_URL/login/callback` as
    /// its redirect URI.
    #[garde(inner(length(min = 1)))]
    pub client_id: Option<String>,
    /// Its secret, if it has one.
    #[garde(skip)]
    pub client_secret: Option<Secret>,
    /// What is asked for, instead of what the server names.
    pub scopes: Option<Vec<String>>,
}

/// What is different for one tool of an MCP server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpOverride {
    /// Whether a person is asked before each call of it. Only this frees a tool that its server calls destructive.
    pub requires_approval: Option<bool>,
    /// Whether calling it twice is as good as calling it once, whatever its server says.
    pub idempotent: Option<bool>,
    /// The text that people are asked with.
    pub approval_prompt: Option<String>,
    /// What the model is told about it, instead of what the server says.
    pub description: Option<String>,
}

/// Whether the kernel confines programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// They reach their working directory and what the system has to read, and nothing else.
    On,
    /// They can do whatever the server's user can do.
    Off,
}

/// What a catalog of Teal Agents says of a tool: notes for whoever reads the file. Nothing here goes by them.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Governance {
    /// What a call of it costs.
    pub cost: Option<Cost>,
    /// What it handles.
    pub data_sensitivity: Option<DataSensitivity>,
}

/// What a call costs, roughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Hardly anything.
    Low,
    /// Something.
    Medium,
    /// Much.
    High,
}

/// How careful one has to be with what a tool handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataSensitivity {
    /// Anybody may know it.
    Public,
    /// It belongs to the company.
    Proprietary,
    /// Few may know it.
    Confidential,
    /// It can harm people.
    Sensitive,
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
    /// Replaces an exact piece of text in a file.
    EditFile,
    /// Lets the model ask a person; the answer is the result.
    #[serde(rename = "suspend-for-input")]
    SuspendForInput,
    /// Sends one HTTP request.
    HttpRequest,
    /// Starts a job elsewhere that reports back later.
    External,
    /// Hands work to another agent of this server.
    Agent,
    /// The tools of an MCP server.
    Mcp,
    /// Hands work to an agent elsewhere that speaks A2A.
    A2a,
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
        ("edit_file", ToolType::EditFile),
        ("http_request", ToolType::HttpRequest),
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
