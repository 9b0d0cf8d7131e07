//! Short texts that repeat (tenants, agents, users, actors, digests of definitions) as numbers.
//!
//! A name is never changed or removed, so what was read once stays true; only a transaction that is rolled back takes its
//! new names with it. The other direction is what the writer remembers, see `remembered.rs`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rusqlite::{Connection, OptionalExtension, params};

use super::sql;

/// The number of a text, if it has one.
pub(super) fn find(connection: &Connection, text: &str) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(sql::NAME_NUMBER)?.query_row(params![text], |row| row.get(0)).optional()
}

/// More names than a server usually has; past it the map starts over instead of growing without bound.
const MAX: usize = 50_000;

/// Number to text. Names are never changed or removed, so what was read once stays true; only the writer reads names
/// before they are durable, and forgets them when its transaction is rolled back.
#[derive(Debug, Default)]
pub(super) struct Texts {
    known: RwLock<HashMap<i64, Arc<str>>>,
}

impl Texts {
    /// The text of a number.
    pub(super) fn text(&self, connection: &Connection, number: i64) -> rusqlite::Result<Arc<str>> {
        if let Some(text) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return Ok(text.clone());
        }
        let text: Arc<str> = connection
            .prepare_cached(sql::NAME_TEXT)?
            .query_row(params![number], |row| row.get::<_, String>(0))?
            .into();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX {
            known.clear();
        }
        known.insert(number, text.clone());
        Ok(text)
    }

    /// Forgets everything.
    pub(super) fn forget(&self) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A name that counts only within its tenant. Tenants have no control characters, so no two pairs share a text.
pub(super) fn within(tenant: &str, name: &str) -> String {
    format!("{tenant}\n{name}")
}
