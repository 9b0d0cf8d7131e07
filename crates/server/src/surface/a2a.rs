//! A2A, protocol version 1.0: agents at `/v1/agents/{agent}`, over JSON-RPC and over HTTP+JSON.
//!
//! `wire.rs` has the protocol's own types, `map.rs` what core values become, `error.rs` what a no becomes in each
//! binding. `operations.rs` does what either binding asks for; `jsonrpc.rs` and `rest.rs` only take requests apart and
//! put answers together, so that another binding, or an older version of the protocol, is one more file like them.

mod card;
mod decisions;
mod error;
mod jsonrpc;
mod list;
mod map;
mod negotiate;
mod operations;
mod progress;
mod push;
mod rest;
mod routes;
mod send;
mod stream;
mod wire;

pub use push::Push;
pub use routes::{problems_as_errors, routes};
