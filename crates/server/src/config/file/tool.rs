//! The section `tools`: what agents can do, and what needs approval. One struct for each type has the keys of that type.
//!
//! Which types need approval by default is in `tool_type.rs`, the JSON Schema of an entry in `tool_schema.rs`; what each
//! type does is `build/tools.rs`.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Map, Value};
use standfast_policy::effect_key::KeyTemplate;

use super::llm::web_address;
use super::policy::ScopedPolicy;
use super::reconcile::Reconcile;
use super::tool_type::ToolType;
use super::values::{
    AfterGrace, OnDeny, OnTimeout, Parameters, Secret, SelfApproval, Span, more_than_nothing,
};

/// A tool: what every tool can have, and what only its type has.
#[derive(Debug, Default)]
pub struct Tool {
    /// What every tool can have.
    pub common: CommonKeys,
    /// What only its type has; none when nothing says which type it is.
    pub kind: Option<ToolKind>,
}

/// What a tool does, with the keys that only this type has.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolKind {
    /// Runs one program with arguments; never a shell.
    Command(CommandKeys),
    /// Reads a file.
    ReadFile(FileKeys),
    /// Writes a file.
    WriteFile(FileKeys),
    /// Deletes a file.
    DeleteFile(FileKeys),
    /// Lists a directory.
    ListDir(FileKeys),
    /// Searches files for a text.
    SearchFiles(FileKeys),
    /// Replaces an exact piece of text in a file.
    EditFile(FileKeys),
    /// Lets the model ask a person; the answer is the result.
    #[serde(rename = "suspend-for-input")]
    SuspendForInput,
    /// Sends one HTTP request.
    HttpRequest(HttpRequestKeys),
    /// Starts a job in another system that reports back later.
    External(ExternalKeys),
    /// Delegates work to another agent of this server.
    Agent(AgentKeys),
    /// The tools of an MCP server.
    Mcp(Box<McpKeys>),
    /// Delegates work to a remote agent that speaks A2A.
    A2a(A2aKeys),
}

/// What every tool can have.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(default)]
#[garde(allow_unvalidated)]
pub struct CommonKeys {
    /// Whether the model is offered the tool at all.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// Whether each call needs a person's approval. Default: false for `read_file`, `list_dir`, `search_files` and
    /// `suspend-for-input`, true for everything else; for the tools of an `mcp` server see docs/mcp.md.
    pub requires_approval: Option<bool>,
    /// Annotations from a Teal Agents tool catalog. `requires_hitl` in it is read as `requires_approval`.
    #[garde(dive)]
    pub governance: Governance,
    /// The text that approvers see instead of the default one. `{tool}` and `{input}` are filled in.
    #[garde(inner(length(min = 1)))]
    pub approval_prompt: Option<String>,
    /// The description that the model gets, instead of the default one.
    #[garde(inner(length(min = 1)))]
    pub description: Option<String>,
    /// How long a decision about a call of this tool may take, instead of the agent's `task.input_timeout`.
    pub input_timeout: Option<Span>,
    /// What a denial does, instead of the agent's `task.hitl.on_deny`.
    pub on_deny: Option<OnDeny>,
    /// What happens when nobody decides in time, instead of the agent's `task.hitl.on_timeout`.
    pub on_timeout: Option<OnTimeout>,
    /// How long a late decision is still accepted, instead of the agent's `task.hitl.expiry_grace`.
    pub expiry_grace: Option<Span>,
    /// What happens when the grace period ends, instead of the agent's `task.hitl.after_grace`.
    pub after_grace: Option<AfterGrace>,
    /// How many different people must agree before a call runs.
    #[garde(inner(range(min = 1, max = 20)))]
    #[schemars(extend("default" = 1))]
    pub quorum: Option<u32>,
    /// What names what a call does in the world, made of its arguments, such as `refund:{payment_id}`: over all runs, sessions
    /// and agents there is at most one start for a name. A second call for it needs a person, who is shown the first and what
    /// came of it.
    #[garde(inner(custom(key_template)))]
    pub effect_key: Option<String>,
    /// A read-only call that says whether the effect happened, where nobody knows what became of a call: it is made before a
    /// person is asked; see docs/tools.md.
    pub reconcile: Option<Reconcile>,
    /// Whether the person who started a run may decide about a call of this tool. The strictest of server, agent and
    /// tool wins.
    pub self_approval: Option<SelfApproval>,
    /// Rules for calls of this tool, in addition to those of the section `policy`. Below a `mcp` entry they name the tools as
    /// the server does.
    #[garde(dive)]
    pub policy: Option<ScopedPolicy>,
}

fn key_template(text: &str, (): &()) -> garde::Result {
    KeyTemplate::parse(text).map(drop).map_err(|why| garde::Error::new(format!("wrong: {why}")))
}

/// Keys of `type: command`.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(default)]
#[garde(allow_unvalidated)]
pub struct CommandKeys {
    /// Which commands may run: programs, or the first words of a command (`git log`). Anything else is refused. Without
    /// it every command needs approval.
    pub allowed_commands: Option<Vec<String>>,
    /// Which commands never run, even with approval: programs under every path, or the first words of a command.
    pub denied_commands: Option<Vec<String>>,
    /// Whether a command that is not listed is refused (true) or needs approval (false). Default: true with
    /// `allowed_commands`, false without.
    pub deny_by_default: Option<bool>,
    /// Where commands run, and what they can change; relative to the configuration file. Default: `workspace` beside it.
    #[garde(inner(length(min = 1)))]
    pub working_directory: Option<String>,
    /// Directories that commands can change, in addition to the working directory.
    pub writable: Option<Vec<String>>,
    /// Directories that commands can read, in addition to the working directory and those of the system.
    pub readable: Option<Vec<String>>,
    /// How long a command may run.
    #[garde(inner(custom(more_than_nothing)))]
    #[schemars(extend("default" = "2m"))]
    pub max_execution_time: Option<Span>,
    /// How many processes a command may have at a time; one that starts more is killed.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 64))]
    pub max_processes: Option<u32>,
    /// How many bytes of memory the processes of a command may use together; each of them, where the kernel does not
    /// count them together.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 2147483648u64))]
    pub max_memory: Option<u64>,
    /// The largest file, in bytes, that a command may write.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 2147483648u64))]
    pub max_file_size: Option<u64>,
    /// How many bytes a command may write to files in all, also to those that it removes again; one that writes more is
    /// killed.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 4294967296u64))]
    pub max_disk: Option<u64>,
    /// Whether the kernel confines the programs. With `on` the server does not start on a kernel that cannot.
    #[schemars(extend("default" = "on"))]
    pub sandbox: Option<Sandbox>,
    /// Whether confined programs reach the network.
    #[schemars(extend("default" = false))]
    pub network: Option<bool>,
    /// How many bytes of the output are kept.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 65536))]
    pub max_output: Option<u64>,
}

/// Keys of the file tools.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(default)]
#[garde(allow_unvalidated)]
pub struct FileKeys {
    /// The directory that the tool cannot leave; relative to the configuration file. Default: `workspace` beside it.
    #[garde(inner(length(min = 1)))]
    pub working_directory: Option<String>,
}

/// Keys of `type: http_request`.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(default)]
#[garde(allow_unvalidated)]
pub struct HttpRequestKeys {
    /// Hosts that may be called although their address is private, as `host` or `host:port`.
    pub allowed_hosts: Option<Vec<String>>,
    /// Whether the hosts in `allowed_hosts` are the only ones that may be called.
    #[schemars(extend("default" = false))]
    pub only_allowed_hosts: Option<bool>,
    /// How long the response may take.
    #[garde(inner(custom(more_than_nothing)))]
    #[schemars(extend("default" = "60s"))]
    pub timeout: Option<Span>,
    /// How many bytes of the response are kept.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 262144))]
    pub max_output: Option<u64>,
}

/// Keys of `type: external`.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(default)]
#[garde(allow_unvalidated)]
pub struct ExternalKeys {
    /// The URL that starts the job. Required.
    #[garde(inner(custom(web_address)))]
    pub url: Option<String>,
    /// How long the job may take.
    #[garde(inner(custom(more_than_nothing)))]
    #[schemars(extend("default" = "24h"))]
    pub timeout: Option<Span>,
    /// The key that signs the job's callbacks. Without it each call gets its own.
    #[garde(skip)]
    pub webhook_secret: Option<Secret>,
    /// The key before `webhook_secret`, for jobs that started with it. Both are accepted.
    #[garde(skip)]
    pub previous_webhook_secret: Option<Secret>,
    /// A URL that gets a signed notification when a call is settled. The job's response may name another one.
    #[garde(inner(custom(web_address)))]
    pub webhook_url: Option<String>,
    /// A JSON Schema for results. A result that does not match is refused, and the call stays pending.
    pub validate_result: Option<Parameters>,
    /// `true` makes a tool `external` without `type`: its result arrives later, from another system.
    #[serde(rename = "async")]
    pub is_async: Option<bool>,
    /// The job's arguments, as a JSON Schema of type `object`. Default: any object.
    pub parameters: Option<Parameters>,
    /// Hosts that may be called although their address is private, as `host` or `host:port`.
    pub allowed_hosts: Option<Vec<String>>,
    /// Whether the hosts in `allowed_hosts` are the only ones that may be called.
    #[schemars(extend("default" = false))]
    pub only_allowed_hosts: Option<bool>,
}

/// Keys of `type: agent`.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(default)]
#[garde(allow_unvalidated)]
pub struct AgentKeys {
    /// The agent that does the work, a name below `agents`. Required.
    pub agent: Option<String>,
}

/// Keys of `type: mcp`. A server has either `command` or `url`.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(default)]
#[garde(allow_unvalidated)]
pub struct McpKeys {
    /// The program that is the server, over its standard input and output.
    #[garde(inner(length(min = 1)))]
    pub command: Option<String>,
    /// With `command`: the arguments of the program.
    pub args: Vec<String>,
    /// With `command`: the environment of the program, in addition to `PATH`, `HOME` and `LANG`. It gets no other
    /// variables.
    #[garde(skip)]
    pub env: BTreeMap<String, Secret>,
    /// With `command`: where the program runs; relative to the configuration file. Default: the folder of that file;
    /// with `sandbox: on` it is `workspace` beside it, the only directory that the program can write to.
    #[garde(inner(length(min = 1)))]
    pub working_directory: Option<String>,
    /// With `command`: whether the kernel confines the program. With `on` the server does not start on a kernel that
    /// cannot.
    #[schemars(extend("default" = "off"))]
    pub sandbox: Option<Sandbox>,
    /// With `sandbox: on`: directories that the program can read, in addition to the working directory and those of the
    /// system.
    pub readable: Option<Vec<String>>,
    /// With `sandbox: on`: whether the program reaches the network.
    #[schemars(extend("default" = false))]
    pub network: Option<bool>,
    /// The URL of a server that speaks streamable HTTP.
    #[garde(inner(custom(web_address)))]
    pub url: Option<String>,
    /// With `url`: headers of every request, such as `Authorization`.
    #[garde(skip)]
    pub headers: BTreeMap<String, Secret>,
    /// With `url`: how people log in where the server requires it. Without it a client is registered there.
    #[garde(dive)]
    pub oauth: Option<Oauth>,
    /// With `url`: hosts of the server's login that may be called although their address is private, as `host` or
    /// `host:port`.
    pub allowed_hosts: Option<Vec<String>>,
    /// How long the response to a call may take.
    #[garde(inner(custom(more_than_nothing)))]
    #[schemars(extend("default" = "2m"))]
    pub timeout: Option<Span>,
    /// How many bytes of a response are kept.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 1048576))]
    pub max_output: Option<u64>,
    /// The tools of the server that agents get, by the server's own names. Default: all of them.
    pub allow: Option<Vec<String>>,
    /// Tools of the server that agents do not get.
    pub deny: Option<Vec<String>>,
    /// Whether the server's hints count that a tool is read-only or idempotent. Write `false` for a server that you do
    /// not trust: then every tool needs approval, unless the file says otherwise.
    #[schemars(extend("default" = true))]
    pub trust_hints: Option<bool>,
    /// Settings of single tools of the server, by the server's own names.
    #[garde(skip)]
    pub overrides: BTreeMap<String, McpOverride>,
}

/// Keys of `type: a2a`.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(default)]
#[garde(allow_unvalidated)]
pub struct A2aKeys {
    /// The URL of the remote agent, below which its card is, or the card itself (`….json`). Required.
    #[garde(inner(custom(web_address)))]
    pub url: Option<String>,
    /// Headers of every request, such as `Authorization`.
    #[garde(skip)]
    pub headers: BTreeMap<String, Secret>,
    /// How long the remote agent may work before it answers or asks something.
    #[garde(inner(custom(more_than_nothing)))]
    #[schemars(extend("default" = "24h"))]
    pub timeout: Option<Span>,
    /// How many bytes of a response are kept.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 1048576))]
    pub max_output: Option<u64>,
    /// Whether the remote agent deduplicates a first message that is sent again with the same key. If so, a start whose
    /// response was lost is retried; if not, a person is asked. Default: what the remote agent's card says.
    pub idempotent: Option<bool>,
    /// Hosts that may be called although their address is private, as `host` or `host:port`.
    pub allowed_hosts: Option<Vec<String>>,
    /// Whether the hosts in `allowed_hosts` are the only ones that may be called.
    #[schemars(extend("default" = false))]
    pub only_allowed_hosts: Option<bool>,
}

impl Tool {
    /// The type of the tool; none when nothing says which it is.
    #[must_use]
    pub fn tool_type(&self) -> Option<ToolType> {
        self.kind.as_ref().map(ToolKind::tool_type)
    }

    /// The tool of an entry: its type is what it says, else `external` for what is `async`, else that of the built-in
    /// tool of this name.
    fn of_entry(name: &str, mut keys: Map<String, Value>) -> serde_json::Result<Tool> {
        let said = keys.remove("type").map(serde_json::from_value).transpose()?;
        let by_async = || (keys.get("async") == Some(&Value::Bool(true))).then_some(ToolType::External);
        let tool_type: Option<ToolType> = said.or_else(by_async).or_else(|| ToolType::built_in(name));
        let common = serde_json::from_value(Value::Object(keys.clone()))?;
        let kind = tool_type.map(|tool_type| {
            keys.insert("type".to_owned(), tool_type.as_str().into());
            serde_json::from_value(Value::Object(keys))
        });
        Ok(Tool { common, kind: kind.transpose()? })
    }
}

impl ToolKind {
    /// Its type alone.
    #[must_use]
    pub fn tool_type(&self) -> ToolType {
        match self {
            ToolKind::Command(_) => ToolType::Command,
            ToolKind::ReadFile(_) => ToolType::ReadFile,
            ToolKind::WriteFile(_) => ToolType::WriteFile,
            ToolKind::DeleteFile(_) => ToolType::DeleteFile,
            ToolKind::ListDir(_) => ToolType::ListDir,
            ToolKind::SearchFiles(_) => ToolType::SearchFiles,
            ToolKind::EditFile(_) => ToolType::EditFile,
            ToolKind::SuspendForInput => ToolType::SuspendForInput,
            ToolKind::HttpRequest(_) => ToolType::HttpRequest,
            ToolKind::External(_) => ToolType::External,
            ToolKind::Agent(_) => ToolType::Agent,
            ToolKind::Mcp(_) => ToolType::Mcp,
            ToolKind::A2a(_) => ToolType::A2a,
        }
    }
}

/// Reads the section `tools`: the type of an entry may follow from its name.
pub(super) fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Tool>, D::Error> {
    let entries = BTreeMap::<String, Map<String, Value>>::deserialize(deserializer)?;
    let tools = entries.into_iter().map(|(name, keys)| {
        let tool = Tool::of_entry(&name, keys).map_err(D::Error::custom)?;
        Ok((name, tool))
    });
    tools.collect()
}

/// The keys of both parts stand side by side in the file, so their paths have no part of their own.
impl Validate for Tool {
    type Context = ();

    fn validate_into(&self, (): &(), parent: &mut dyn FnMut() -> garde::Path, report: &mut garde::Report) {
        self.common.validate_into(&(), parent, report);
        match &self.kind {
            Some(ToolKind::Command(keys)) => keys.validate_into(&(), parent, report),
            Some(
                ToolKind::ReadFile(keys)
                | ToolKind::WriteFile(keys)
                | ToolKind::DeleteFile(keys)
                | ToolKind::ListDir(keys)
                | ToolKind::SearchFiles(keys)
                | ToolKind::EditFile(keys),
            ) => keys.validate_into(&(), parent, report),
            Some(ToolKind::HttpRequest(keys)) => keys.validate_into(&(), parent, report),
            Some(ToolKind::External(keys)) => keys.validate_into(&(), parent, report),
            Some(ToolKind::Agent(keys)) => keys.validate_into(&(), parent, report),
            Some(ToolKind::Mcp(keys)) => keys.validate_into(&(), parent, report),
            Some(ToolKind::A2a(keys)) => keys.validate_into(&(), parent, report),
            Some(ToolKind::SuspendForInput) | None => {}
        }
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
    /// The scopes to request, instead of those that the server names.
    pub scopes: Option<Vec<String>>,
}

/// Settings of one tool of an MCP server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpOverride {
    /// Whether each call needs a person's approval. Only this exempts a tool that its server calls destructive.
    pub requires_approval: Option<bool>,
    /// Whether the tool is idempotent, whatever its server says.
    pub idempotent: Option<bool>,
    /// The text that approvers see.
    pub approval_prompt: Option<String>,
    /// The description that the model gets, instead of the server's.
    pub description: Option<String>,
    /// A read-only call that says whether the effect of a call of this tool happened; see docs/tools.md.
    pub reconcile: Option<Reconcile>,
}

/// Whether the kernel confines programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// Programs reach their working directory and the readable parts of the system, and nothing else.
    On,
    /// Programs can do whatever the server's user can do.
    Off,
}

/// Annotations from a Teal Agents tool catalog, for whoever reads the file. They have no effect.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Governance {
    /// What a call costs.
    pub cost: Option<Cost>,
    /// How sensitive the data is that it handles.
    pub data_sensitivity: Option<DataSensitivity>,
}

/// What a call costs, roughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Cheap.
    Low,
    /// Moderate.
    Medium,
    /// Expensive.
    High,
}

/// How sensitive the data of a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataSensitivity {
    /// Public.
    Public,
    /// Internal to the company.
    Proprietary,
    /// Confidential.
    Confidential,
    /// Personal or otherwise sensitive.
    Sensitive,
}
