//! The native API under `/api/v1`: agents, runs, holds, sessions, events, subscriptions.
//!
//! `wire.rs` has the bodies, `map.rs` what core values become, `routes.rs` the handlers, `hold_lists.rs` which holds
//! are asked for, `people.rs` what people do to a hold without deciding it, `events.rs` the stream, `gates.rs` calls of other people's agents,
//! `links.rs` approval links, `subscriptions.rs` who is notified, `nodes.rs` the servers that share a database,
//! `words.rs` words that clients choose from.

mod events;
mod gates;
mod grants;
mod hold_lists;
mod links;
mod map;
mod nodes;
mod people;
mod routes;
mod sessions;
mod sign_ins;
mod subscriptions;
mod wire;
mod words;

use standfast_core::id::{CallNo, HoldId, RunId};
use standfast_core::receipt::Receipt;

pub use gates::GateCallback;
pub use routes::routes;
pub use subscriptions::Webhook;

/// The receipt of a hold, as this API answers it.
#[must_use]
pub fn receipt_text(hold: HoldId, receipt: &Receipt) -> String {
    serde_json::to_string(&map::receipt(hold, receipt)).unwrap_or_default()
}

/// The receipt of a call, as this API answers it.
#[must_use]
pub fn call_receipt_text(run: RunId, call: CallNo, receipt: &Receipt) -> String {
    serde_json::to_string(&map::call_receipt(run, call.0, receipt)).unwrap_or_default()
}
