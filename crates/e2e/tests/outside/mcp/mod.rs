//! Tools of real MCP servers, below the real binary: the official filesystem and everything servers from npm, the
//! official git server from PyPI, and some made with the official SDKs: they misbehave as they are told, ask back, want
//! a login.
//!
//! `cargo xtask test` installs the packages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accounts;
mod asking;
mod calls;
mod desk;
mod gateway;
mod gateway_calls;
mod gateway_faults;
mod gateway_generations;
mod gateway_killed;
mod gateway_ladder;
mod gateway_login;
mod gateway_nodes;
mod gateway_replays;
mod login;
mod over_http;
mod pages;
mod proxied;
mod python;
mod server;
mod start;
