//! The section `gateways`: MCP servers that clients reach through this one, behind the policy.
//!
//! How a server is reached is said by the same keys as for tools of MCP servers (`tool.rs`); what may run is the policy's to say.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;

use super::llm::web_address;
use super::tool::{McpKeys, Oauth, Sandbox};
use super::values::{Secret, Span, more_than_nothing};

/// A gateway.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Gateway {
    /// The URL of an MCP server that speaks streamable HTTP.
    #[garde(inner(custom(web_address)))]
    pub url: Option<String>,
    /// With `url`: headers of every request to the server, such as `Authorization`. What clients send as `Authorization` is for this
    /// server and goes no further.
    #[garde(skip)]
    pub headers: BTreeMap<String, Secret>,
    /// With `url`: how people log in where the server requires it.
    #[garde(dive)]
    pub oauth: Option<Oauth>,
    /// With `url`: hosts of the server's login that may be called although their address is private, as `host` or `host:port`.
    pub allowed_hosts: Option<Vec<String>>,
    /// The program that is the server, over its standard input and output. Each session of a client has one of its own.
    #[garde(inner(length(min = 1)))]
    pub command: Option<String>,
    /// With `command`: the arguments of the program.
    pub args: Vec<String>,
    /// With `command`: the environment of the program, in addition to `PATH`, `HOME` and `LANG`. It gets no other variables.
    #[garde(skip)]
    pub env: BTreeMap<String, Secret>,
    /// With `command`: where the program runs; relative to the configuration file. Default: the folder of that file; with
    /// `sandbox: on` it is `workspace` beside it, the only directory that the program can write to.
    #[garde(inner(length(min = 1)))]
    pub working_directory: Option<String>,
    /// With `command`: whether the kernel confines the program. With `on` the server does not start on a kernel that cannot.
    #[schemars(extend("default" = "off"))]
    pub sandbox: Option<Sandbox>,
    /// With `sandbox: on`: directories that the program can read, in addition to the working directory and those of the system.
    pub readable: Option<Vec<String>>,
    /// With `sandbox: on`: whether the program reaches the network.
    #[schemars(extend("default" = false))]
    pub network: Option<bool>,
    /// How long a call waits for a decision before the model is told to come back later. Default: as long as the client can: 45
    /// seconds, 240 with a client that follows progress. The request for approval stays open all the same.
    #[garde(inner(custom(more_than_nothing)))]
    pub wait: Option<Span>,
    /// Whether clients of the newest protocol (2026-07-28), which know no sessions, have one of this server's at an MCP server that needs
    /// sessions. Clients that speak both generations find the older one by themselves.
    #[schemars(extend("default" = false))]
    pub give_sessions: Option<bool>,
}

/// How an MCP server is reached, whoever needs it.
#[derive(Debug, Clone, Copy)]
pub struct McpConnection<'a> {
    /// The program.
    pub command: Option<&'a str>,
    /// Its arguments.
    pub args: &'a [String],
    /// Its environment.
    pub env: &'a BTreeMap<String, Secret>,
    /// Where it runs.
    pub working_directory: Option<&'a str>,
    /// Whether it is confined.
    pub sandbox: Option<Sandbox>,
    /// What it can read.
    pub readable: Option<&'a [String]>,
    /// Whether it reaches the network.
    pub network: Option<bool>,
    /// The address.
    pub url: Option<&'a str>,
    /// Headers of every request.
    pub headers: &'a BTreeMap<String, Secret>,
    /// How people log in there.
    pub oauth: Option<&'a Oauth>,
    /// Hosts of the login that may be private.
    pub allowed_hosts: Option<&'a [String]>,
}

impl Gateway {
    /// How its server is reached.
    #[must_use]
    pub fn connection(&self) -> McpConnection<'_> {
        McpConnection {
            command: self.command.as_deref(),
            args: &self.args,
            env: &self.env,
            working_directory: self.working_directory.as_deref(),
            sandbox: self.sandbox,
            readable: self.readable.as_deref(),
            network: self.network,
            url: self.url.as_deref(),
            headers: &self.headers,
            oauth: self.oauth.as_ref(),
            allowed_hosts: self.allowed_hosts.as_deref(),
        }
    }
}

impl McpKeys {
    /// How the server is reached.
    #[must_use]
    pub fn connection(&self) -> McpConnection<'_> {
        McpConnection {
            command: self.command.as_deref(),
            args: &self.args,
            env: &self.env,
            working_directory: self.working_directory.as_deref(),
            sandbox: self.sandbox,
            readable: self.readable.as_deref(),
            network: self.network,
            url: self.url.as_deref(),
            headers: &self.headers,
            oauth: self.oauth.as_ref(),
            allowed_hosts: self.allowed_hosts.as_deref(),
        }
    }
}
