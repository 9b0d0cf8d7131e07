//! Async tools with the real binary: jobs are started, reported about, cancelled, expired, and the server is killed.
//!
//! `world.rs` is the outside system; `flow.rs` what a call goes through, `reports.rs` who may report.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod flow;
mod reports;
#[path = "../tooling/started.rs"]
mod started;
mod world;
