//! What the tests of Standfast share: the product's process, HTTP and command-line clients, servers that misbehave, waiting.
//!
//! Knows the product as its users do, by its program, its routes and its commands; never its types. `binary.rs` finds the
//! program that is tested, `process.rs` starts it, `cli.rs` and `http.rs` ask it, `server.rs` is both, `wait.rs` waits, `clock_race.rs` acts
//! when a deadline comes. What it calls in tests:
//! `provider.rs` (a model), `receiver.rs` (webhooks), `other_server.rs` (tools), `redis.rs` (an index). `certificates.rs`: what they
//! and the program show to whoever encrypts. `damage.rs`: bytes with something wrong, for parsers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod binary;
mod certificates;
mod cli;
pub mod clock_race;
pub mod damage;
mod folder;
pub mod http;
pub mod json;
pub mod other_server;
pub mod process;
pub mod provider;
pub mod receiver;
pub mod redis;
mod server;
pub mod wait;

pub use binary::standfast;
pub use certificates::certify;
pub use folder::{folder, serve, serve_command};
pub use http::{Answer, Http};
pub use json::{of_run, text};
pub use process::{Process, free_port, start};
pub use server::Server;
pub use wait::{rounds, until, until_found};
