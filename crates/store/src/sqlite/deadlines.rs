//! Deadlines of holds that were opened by an older version: taken from the folds of their runs into the column by which lists
//! are in order.
//!
//! Done when a file is opened, in one transaction, and of no cost afterwards: an index has the holds that nobody looked at.

use rusqlite::{Connection, TransactionBehavior, params};

use super::names::Texts;
use super::read::ReadSession;
use super::read::lists::OpenHold;
use super::sql;
use crate::columns::deadline;

/// Holds that are looked at in one step.
const STEP: i64 = 1000;

pub(super) fn fill_in(connection: &mut Connection) -> Result<(), String> {
    let said = |error: rusqlite::Error| error.to_string();
    if without_look(connection, 1).map_err(said)?.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(said)?;
    let texts = Texts::default();
    loop {
        let holds = without_look(&transaction, STEP).map_err(said)?;
        if holds.is_empty() {
            break;
        }
        let reading = ReadSession { connection: &transaction, texts: &texts };
        for hold in holds {
            // One whose run cannot be read is in no list, and in nobody's way.
            let row = reading.hold_row(&hold).map_err(|error| error.to_string())?;
            let at = row.as_ref().map_or(0, deadline);
            let mut statement = transaction.prepare_cached(sql::HOLD_DEADLINE).map_err(said)?;
            statement.execute(params![hold.no, at]).map_err(said)?;
        }
    }
    transaction.commit().map_err(said)
}

fn without_look(connection: &Connection, limit: i64) -> rusqlite::Result<Vec<OpenHold>> {
    let mut statement = connection.prepare_cached(sql::HOLDS_WITHOUT_LOOK)?;
    statement.query_map(params![limit], OpenHold::read)?.collect()
}
