//! Requests to other servers: which addresses may be called (`guard.rs`), and one bounded request (`http.rs`).
//!
//! Deliveries of the engine and tools that call others share it. Knows neither of them.

pub mod guard;
pub mod http;
