//! The native API under `/api/v1`: agents, runs, holds, sessions, events, subscriptions.
//!
//! `wire.rs` has the bodies, `map.rs` what core values become, `routes.rs` the handlers, `hold_lists.rs` which holds
//! are asked for, `people.rs` what people do to a hold without deciding it, `events.rs` the stream, `gates.rs` calls of other people's agents,
//! `subscriptions.rs` who is notified, `nodes.rs` the servers that share a database,
//! `words.rs` words that clients choose from.

mod events;
mod gates;
mod grants;
mod hold_lists;
mod map;
mod nodes;
mod people;
mod routes;
mod sessions;
mod subscriptions;
mod wire;
mod words;

pub use routes::routes;
pub use subscriptions::Webhook;
