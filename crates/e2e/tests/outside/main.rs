//! What the real program calls: servers of MCP and agents on other servers, official ones and some that misbehave.
//!
//! `cargo xtask test` installs the official ones from npm and PyPI. Every start of the program: `crates/testkit`.

mod mcp;
mod remote_agents;
