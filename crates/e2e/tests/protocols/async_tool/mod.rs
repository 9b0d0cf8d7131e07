//! Async tools with the real binary: jobs are started, reported about, cancelled, expired, and the server is killed.
//!
//! `world.rs` is the outside system; `flow.rs` what a call goes through, `reports.rs` who may report, `ends.rs` time,
//! crashes and restarts, `views.rs` what is shown and told, `lists.rs` lists, cursors and the stream, `options.rs` who else is told, `records.rs` copies as files and database, `file_store.rs` files as the store, `redis_index.rs` the Redis beside them, `examples.rs` those of the guide, `nodes.rs` several servers on one database,
//! `secrets.rs` what must not come back from jobs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ends;
mod examples;
mod file_store;
mod flow;
mod lists;
mod nodes;
mod options;
mod records;
mod redis_index;
mod reports;
mod secrets;
mod views;
mod world;
