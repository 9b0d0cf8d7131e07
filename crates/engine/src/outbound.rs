//! Requests to other servers: which addresses may be called (`guard.rs`), and one bounded request (`http.rs`), and a
//! connection that is another protocol's from its answer on (`upgrade.rs`).
//!
//! Deliveries of the engine and tools that call others share it. Knows neither of them.

pub mod guard;
pub mod http;
pub mod upgrade;
