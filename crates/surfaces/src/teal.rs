//! Teal Agents, `v1alpha1`: chat with an agent, and one resume route for everything that it may stop for.
//!
//! `wire.rs` has the protocol's own types, `map.rs` what core values become, `error.rs` what a no becomes. `routes.rs`
//! takes requests apart, `resume.rs` decides, `reply.rs` says what came of it, `stream.rs` says it while it happens,
//! `page.rs` is what a browser sees at an approval or rejection URL. No rule about runs or holds is here.

mod error;
mod map;
mod page;
mod reply;
mod resume;
mod routes;
mod stream;
mod wire;

pub use error::{PREFIX, retells};
pub use routes::routes;
