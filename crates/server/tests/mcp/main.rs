//! Tools of real MCP servers, below the real binary: the official filesystem and everything servers from npm, and two
//! made with the official SDKs: one that misbehaves as it is told, one that asks back.
//!
//! `cargo xtask test` installs the packages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod asking;
mod calls;
mod over_http;
mod server;
mod start;
#[path = "../tooling/started.rs"]
mod started;
