//! The agent inbox (S4): named queues of tasks for agents, under `/api/inboxes`.
//!
//! `wire.rs` has the bodies, `map.rs` what core values become and what bodies mean, `routes.rs` the handlers, `calls.rs` those of
//! calls that workers ask for, `error.rs`
//! what a no becomes, `notices.rs` what receivers are sent. A task is a run; nothing here decides what may follow what.

mod calls;
mod error;
mod map;
mod notices;
mod routes;
mod shown_tasks;
mod wire;

pub use notices::TaskWebhook;
pub use routes::routes;
