//! What the real program calls: chats, mail servers, servers of MCP, agents on other servers and collectors of traces, official ones and
//! some that misbehave.
//!
//! `cargo xtask test` installs the official ones from npm and PyPI. Every start of the program: `crates/testkit`.

mod chats;
mod mail;
mod mcp;
mod pages;
mod remote_agents;
mod traces;
