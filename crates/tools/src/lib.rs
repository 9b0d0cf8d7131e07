//! The tools: one file or folder for each. What a tool is, the engine says.
//!
//! `command` runs programs, in a `sandbox` and with `cgroup` limits, as a `child` behind the shim `exec_child`; `files` reads and writes
//! below a `workspace`; `http_request` and `external` call other servers, `a2a` agents elsewhere, `agent` one of this
//! server, `mcp` the tools of MCP servers.

#![warn(missing_docs)]

pub mod a2a;
pub mod agent;
pub mod cgroup;
pub mod child;
pub mod command;
pub mod descendants;
pub mod exec_child;
pub mod external;
pub mod files;
pub mod http_request;
pub mod mcp;
pub mod sandbox;
pub mod workspace;
