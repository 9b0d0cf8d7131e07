//! Short texts that repeat (tenants, agents, users, actors, digests of definitions) as numbers; and with them the keys of sealed
//! payloads, as whoever reads rows needs both.
//!
//! A name is never changed or removed, so what was read once stays true; only a transaction that is rolled back takes its
//! new names with it. The other direction is what the writer remembers, see `writer_memory.rs`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rusqlite::{Connection, OptionalExtension, params};
use standfast_core::id::RunId;

use super::payload_keys::{FoundKey, PayloadKeys};
use super::sql;
use crate::error::StoreError;

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
    /// The keys of runs; none when nothing is sealed, or nobody gave them.
    keys: Option<Arc<PayloadKeys>>,
}

impl Texts {
    /// Without texts, with these keys.
    pub(super) fn with(keys: Option<Arc<PayloadKeys>>) -> Texts {
        Texts { known: RwLock::default(), keys }
    }

    /// The keys of runs, if they were given.
    pub(super) fn keys(&self) -> Option<&Arc<PayloadKeys>> {
        self.keys.as_ref()
    }

    /// The key of a run, to open what is sealed with it.
    pub(super) fn key(&self, run: RunId) -> Result<FoundKey, StoreError> {
        self.keys.as_ref().map_or(Ok(FoundKey::Never), |keys| keys.find(run))
    }

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
