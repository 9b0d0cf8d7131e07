//! The configuration file as types: every key there is, with its description.
//!
//! One file for each section. **To add a key, add a field here**: the check, the JSON Schema, the completion in editors
//! and docs/configuration.md all follow from the types and their doc comments. What a key may not be together with
//! others is `check.rs`; what it does is `build.rs`.

mod agent;
mod channels;
mod encryption;
mod gateway;
mod llm;
mod people;
mod policy;
mod rates;
mod reconcile;
mod server;
mod store;
mod tool;
mod tool_schema;
mod tool_type;
mod traces;
mod values;

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;

pub use agent::{A2a as AgentA2a, Agent, Engine, Hitl, Mode, Reasoning, Skill, Task, TaskBackend};
pub use channels::{Channel, ChannelDecide, ChannelEvent, ChannelFormat, ChannelTls, ChannelType};
pub use encryption::{Encryption, EncryptionKey};
pub use gateway::{Gateway, McpConnection};
pub use llm::{Llm, LlmType};
pub use people::{Away, LinkSignIn, Links, Notify, Person};
pub use policy::{Grants, GrantsFor, Policy, PolicyEffect, PolicyMode, ScopedPolicy};
pub use rates::Rates;
pub use reconcile::{BadReconcile, Reconcile};
pub use server::{
    A2aDecisions, AsyncTools, Audit, Auth, CardSignature, Inboxes, Jwt, Limits, Log, LogFormat, Server,
    SignIn, Tls, network,
};
pub use store::{Backend, Driver, Files, SessionStore, Sql, SslMode};
pub use tool::{
    A2aKeys, AgentKeys, CommandKeys, CommonKeys, ExternalKeys, FileKeys, HttpRequestKeys, McpKeys,
    McpOverride, Sandbox, Tool, ToolKind,
};
pub use tool_type::ToolType;
pub use traces::{TraceProtocol, Traces};
pub use values::{AfterGrace, OnDeny, OnTimeout, Parameters, Secret, SelfApproval, Span};

/// The configuration of a Standfast server, `standfast.yaml`.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
#[schemars(title = "Standfast configuration")]
pub struct File {
    /// The models that agents use, by name.
    #[garde(dive)]
    pub llms: BTreeMap<String, Llm>,
    /// The tools that agents may have, by the name that the model sees. A built-in tool needs an entry only to change
    /// its defaults.
    #[garde(dive)]
    #[serde(deserialize_with = "tool::by_name")]
    pub tools: BTreeMap<String, Tool>,
    /// The agents, by name. The name is part of their URLs.
    #[garde(dive)]
    pub agents: BTreeMap<String, Agent>,
    /// Where agents store their sessions, runs and holds, by name. All durable ones must name the same database.
    #[garde(dive)]
    pub session_stores: BTreeMap<String, SessionStore>,
    /// People by their user names, as credentials say them: approval links are issued for them, and channels reach them.
    #[garde(dive)]
    pub people: BTreeMap<String, Person>,
    /// How people are notified of pending holds; see docs/mail.md.
    #[garde(dive)]
    pub channels: Vec<Channel>,
    /// MCP servers that clients reach through this one at `/mcp/<name>`, with every call judged by `policy`; see
    /// docs/mcp-gateway.md. Rules know their tools as `mcp__<name>__<tool>`.
    #[garde(dive)]
    pub gateways: BTreeMap<String, Gateway>,
    /// The server: address, authentication, limits.
    #[garde(dive)]
    pub server: Server,
    /// Which tool calls run, which wait for a person, and which never run; see docs/policy.md.
    #[garde(dive)]
    pub policy: Policy,
}
