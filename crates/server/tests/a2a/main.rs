//! A2A against the real program: all bindings, older versions, decisions, lists, cards, streams across restarts and nodes, malformed requests.
//!
//! Everything is asked over HTTP, as clients would.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bindings;
mod cards;
mod clients;
mod conformance;
mod decisions;
mod dialect;
#[expect(dead_code, reason = "providers that misbehave are tested with the models")]
#[path = "../models/fake.rs"]
mod fake;
mod families;
mod golden;
mod lists;
mod live;
mod malformed;
mod modes;
mod nodes;
mod passes;
mod push;
#[expect(dead_code, reason = "webhooks are tested with the rest of it")]
#[path = "../tooling/receiver.rs"]
mod receiver;
mod repeats;
mod revoked;
mod rust_client;
mod server;
#[path = "../tooling/started.rs"]
mod started;
mod streams;
mod tasks;
mod v03;
