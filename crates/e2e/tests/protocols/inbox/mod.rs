//! The agent inbox (S4) on the real program: tasks, claims, workers elsewhere, agents that serve, questions and answers.
//!
//! What the core decides is in the scenarios; here everything goes over HTTP, as senders, workers and people would.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod claims;
mod cli;
mod examples;
mod grants;
mod keys;
mod life;
mod nodes;
mod notices;
mod races;
mod resume;
mod rules;
mod served;
mod server;
mod tasks;
