//! Tokens of an identity provider: a real one on this machine, with keys that are made for each test.
//!
//! `provider.rs` is the identity provider, `forged.rs` what must never be let in, `keys.rs` how its keys come and go, with
//! a clock that stands still; `server.rs` is the real binary with a configuration file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod forged;
mod keys;
mod provider;
mod server;
