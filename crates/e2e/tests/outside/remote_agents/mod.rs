//! Work that is handed to agents elsewhere: between two real servers that are killed in the middle, to an agent made
//! with the official Python SDK, and to one that misbehaves.
//!
//! People decide through the command line, as they do with everything else.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cards;
mod official;
mod page;
mod pair;
mod server;
mod trouble;
mod unruly;
