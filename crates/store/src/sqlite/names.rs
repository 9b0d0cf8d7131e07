//! Short texts that repeat (tenants, agents, users, actors, digests of definitions) as numbers.
//!
//! A name is never changed or removed, so both directions can be remembered; only a transaction that is rolled back
//! takes its new names with it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rusqlite::{Connection, OptionalExtension, params};

use super::sql;

/// Text to number, for the writer. Emptied when a transaction is rolled back, because its new names go with it.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    known: HashMap<String, i64>,
    /// Whether a tenant has subscriptions, by its number.
    listeners: HashMap<i64, bool>,
}

impl Numbers {
    /// More names than a server usually has; past it the map starts over instead of growing without bound.
    const MAX: usize = 50_000;

    /// The number of a text, which gets one if it has none.
    pub(super) fn number(&mut self, connection: &Connection, text: &str) -> rusqlite::Result<i64> {
        if let Some(number) = self.known.get(text) {
            return Ok(*number);
        }
        let found = find(connection, text)?;
        let number = match found {
            Some(number) => number,
            None => {
                connection.prepare_cached(sql::NAME_ADD)?.execute(params![text])?;
                connection.last_insert_rowid()
            }
        };
        if self.known.len() >= Self::MAX {
            self.known.clear();
        }
        self.known.insert(text.to_owned(), number);
        Ok(number)
    }

    /// Whether a tenant has subscriptions that appends have to look at.
    pub(super) fn has_listeners(&mut self, connection: &Connection, tenant: i64) -> rusqlite::Result<bool> {
        if let Some(known) = self.listeners.get(&tenant) {
            return Ok(*known);
        }
        let has_some = connection.prepare_cached(sql::HAS_LISTENERS)?.exists(params![tenant])?;
        self.listeners.insert(tenant, has_some);
        Ok(has_some)
    }

    /// A subscription changed.
    pub(super) fn forget_listeners(&mut self) {
        self.listeners.clear();
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.listeners.clear();
    }
}

/// The number of a text, if it has one.
pub(super) fn find(connection: &Connection, text: &str) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(sql::NAME_NUMBER)?.query_row(params![text], |row| row.get(0)).optional()
}

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
        if known.len() >= Numbers::MAX {
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
