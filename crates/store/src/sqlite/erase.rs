//! Deleting the contents of a run while its chain stays.
//!
//! What may be erased was decided before, by the run's own `run.erased`; this only carries it out.

use rusqlite::{Connection, OptionalExtension, params};
use standfast_core::id::{RunId, Seq};

use super::job::Failure;
use super::names::Texts;
use super::payload_keys::FoundKey;
use super::rows::{self, RunColumns, SEQ_MAX, link_key};
use super::sql;
use crate::error::StoreError;

/// Deletes payloads, salts, large values and failed deliveries; the event that says so stays readable. The key of the run is
/// destroyed before anything is deleted: a crash in between leaves what nobody can read, and is carried on with.
pub(super) fn erase(connection: &Connection, texts: &Texts, run: RunId) -> Result<(), Failure> {
    let columns = connection
        .prepare_cached(sql::RUN_BY_ID)?
        .query_row(params![run.bytes()], RunColumns::read)
        .optional()?;
    let Some(columns) = columns else { return Err(StoreError::NotFound { run }.into()) };
    let no = columns.no;
    if !columns.stored(connection, texts)?.row.run.state.erased {
        let why = format!("run {run} has no run.erased event yet; append it first");
        return Err(StoreError::unavailable(why).into());
    }
    let bounds = params![link_key(no, Seq(0)), link_key(no, Seq(SEQ_MAX)), i64::MAX];
    let mut commitments = Vec::new();
    {
        let mut statement = connection.prepare_cached(sql::LINKS)?;
        let mut found = statement.query(bounds)?;
        while let Some(row) = found.next()? {
            // What is sealed need not be opened: its commitment is there.
            let link = rows::link(run, row, connection, texts, &FoundKey::Never);
            let link = link.map_err(|corrupt| corrupt.of(run))?;
            // The event that says so stays readable, and so does what followed it.
            if link.says_erased() {
                break;
            }
            commitments.push((row.get::<_, i64>(0)?, link.contents.commitment()));
        }
    }
    if let Some(keys) = texts.keys() {
        keys.destroy(run)?;
    }
    // What is deleted is overwritten, not only unlinked: contents must be gone from the file too.
    connection.pragma_update(None, "secure_delete", true)?;
    for (key, commitment) in commitments {
        connection.prepare_cached(sql::LINK_ERASE)?.execute(params![key, commitment.0])?;
    }
    connection.prepare_cached(sql::BLOBS_ERASE)?.execute(params![no])?;
    connection.prepare_cached(sql::EXTERNAL_ERASE)?.execute(params![no])?;
    connection.prepare_cached(sql::LETTERS_ERASE)?.execute(params![no])?;
    connection.prepare_cached(sql::RUN_ERASED)?.execute(params![no])?;
    connection.pragma_update(None, "secure_delete", false)?;
    Ok(())
}
