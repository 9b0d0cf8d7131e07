//! A2A against the real program: all bindings, older versions, decisions, lists, cards, streams across restarts and nodes, malformed requests.
//!
//! Everything is asked over HTTP, as clients would.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bindings;
mod cancelled;
mod cards;
mod clients;
mod conformance;
mod corrupt;
mod decisions;
mod dialect;
mod families;
mod golden;
mod lists;
mod live;
mod loops;
mod malformed;
mod modes;
mod nodes;
mod passes;
mod pause_order;
mod printed_command;
mod push;
mod repeats;
mod resolves;
mod revoked;
mod rust_client;
mod server;
mod streams;
mod tasks;
mod v03;
mod votes;
