//! Async tools: jobs elsewhere report back under `/async-tool` (and `/async-tools`).
//!
//! `wire.rs` has the bodies of that protocol, `map.rs` what core values become in its words, `routes.rs` the handlers,
//! `lists.rs` those of lists, `options.rs` who else is notified of a
//! call, `events.rs` the stream, `notice.rs` what a `webhookURL` is sent, `files.rs` the record as files, `rate.rs` how often somebody may report, `error.rs` what a no becomes. Only outside jobs are
//! seen here: the id of any other hold is unknown (C25).

mod error;
mod events;
mod files;
mod lists;
mod map;
mod notice;
mod options;
mod rate;
mod routes;
#[cfg(test)]
mod strangers;
mod wire;

pub use error::retells;
pub use files::{ExportCount, NotWritten, mirror, write_files};
pub use notice::JobReceiver;
pub use routes::{alias, routes};
