//! Tells an observer which statements run, if it counts them.
//!
//! SQLite itself reports each statement, so none can be forgotten. With nobody who counts there is no hook at all.

use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use crate::observer::{Effort, Observer};

/// The observer, if it counts.
pub(super) fn counting(observer: Option<&Arc<dyn Observer>>) -> Option<Arc<dyn Observer>> {
    observer.filter(|observer| observer.counts_efforts()).cloned()
}

/// Reports every statement of a connection as this effort, except those that only begin or end a transaction.
pub(super) fn count(
    connection: &mut Connection,
    observer: Arc<dyn Observer>,
    effort: Effort,
) -> rusqlite::Result<()> {
    let told = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(_, sql) = event
            && !["BEGIN", "COMMIT", "ROLLBACK"].iter().any(|word| sql.starts_with(word))
        {
            observer.spent(effort);
        }
    };
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(told))
}
