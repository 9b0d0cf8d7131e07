//! A2A: agents at `/v1/agents/{agent}`, over JSON-RPC, HTTP+JSON and gRPC, in version 1.0 and in older ones.
//!
//! `wire.rs` has the protocol's own types, `map.rs` what core values become, `error.rs` what a no becomes in each
//! binding. `operations.rs` does what any binding asks for; `jsonrpc.rs`, `rest.rs` and `grpc.rs` only take requests
//! apart and put answers together, so that another binding is one more file like them. Older versions of the protocol
//! are `v03/`: translated at the edge onto the same operations.

mod answer_slip;
mod card;
mod decisions;
mod error;
mod grpc;
mod intercept;
mod jsonrpc;
mod list;
mod live;
mod map;
mod modes;
mod negotiate;
mod operations;
mod progress;
mod push;
mod rest;
mod routes;
mod send;
mod signature;
#[cfg(test)]
mod strangers;
mod stream;
mod v03;
mod wire;

pub use push::Push;
pub use routes::{is_addressed, retells, routes};
