//! Teal Agents against the real program: chat, pauses, the resume route, its pages, races, crashes, several nodes.
//!
//! Everything is asked over HTTP, as clients would. What really ran is counted by a server elsewhere.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chat;
mod crashes;
mod elsewhere;
mod examples;
mod pages;
mod races;
mod requests;
mod resume;
mod server;
mod streams;
