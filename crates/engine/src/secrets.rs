//! The server's own key, and what is made from it: signatures of webhooks (`sign.rs`), sealed texts (`seal.rs`).
//!
//! Below the engine and the vault, which both use it. Knows no receiver, no store and no configuration.

mod seal;
mod sign;

pub use sign::{SigningKey, SigningSecret, seconds, signature};
