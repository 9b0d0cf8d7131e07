//! The protocols of the real program, over HTTP, as their clients speak them.
//!
//! One folder for each protocol, with its own clients; `openapi.rs` and `openapi_fuzz.rs` hold the document against the routes,
//! `openapi_changes.rs` against the one in the tree and that of the last release. `printed.rs` reads pages of the guide,
//! `guide_pages.rs` types the commands of those that need a server alone.
//! Every start of the program, waiting and receivers of webhooks: `crates/testkit`.

mod a2a;
mod async_tool;
mod conversations;
mod gates;
mod guide_pages;
mod inbox;
mod late;
mod narrow_scopes;
mod openapi;
mod openapi_changes;
mod openapi_fuzz;
mod printed;
mod replays;
mod state_names;
mod strangers_bytes;
mod teal;
mod unreadable;
mod webhooks;
mod who_decides;
