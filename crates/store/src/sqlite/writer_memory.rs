//! What the writer remembers between its transactions, so that it need not look up what it just wrote.
//!
//! The writer is alone: nobody else appends to this file. What it remembers is forgotten when a transaction is rolled
//! back (its new rows go with it) and when another connection has changed the file, whatever it changed. Leases and
//! the like are changed by jobs that read their runs from the file: those runs are forgotten first.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension, params};
use standfast_core::digest::Digest;
use standfast_core::id::{HoldKey, RunId};

use super::names;
use super::sql;
use super::work::RunPosition;
use crate::query::SessionKey;

/// What the writer remembers.
#[derive(Debug, Default)]
pub(super) struct WriterMemory {
    /// Text to number.
    names: HashMap<String, i64>,
    /// The names of definitions, which are digests.
    digests: HashMap<Digest, i64>,
    /// Whether a tenant has subscriptions, by its number.
    listeners: HashMap<i64, bool>,
    /// Tenants that have their row.
    tenants: HashSet<i64>,
    /// Definitions that are there, by tenant.
    definitions: HashSet<(i64, Digest)>,
    /// Conversations that have a row, by name.
    sessions: HashMap<SessionKey, SessionPosition>,
    /// The transaction under way has put a notice.
    has_put_notices: bool,
    /// The number of the next new run.
    next_run: Option<i64>,
    /// What the file looked like, see `PRAGMA data_version`.
    version: Option<i64>,
    /// Where runs stand.
    pub(super) runs: RunPositions,
}

/// A conversation that has a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionPosition {
    pub(super) no: i64,
    pub(super) is_closed: bool,
}

/// More of a kind than a server usually has; past it the map starts over instead of growing without bound.
const MAX: usize = 50_000;

impl WriterMemory {
    /// Called inside each transaction before anything else: forgets everything if somebody else wrote to the file.
    pub(super) fn begin(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let version = connection.prepare_cached(sql::DATA_VERSION)?.query_row([], |row| row.get(0))?;
        if self.version != Some(version) {
            self.forget();
            self.version = Some(version);
        }
        self.has_put_notices = false;
        self.runs.age();
        Ok(())
    }

    /// The number of a text, which gets one if it has none.
    pub(super) fn number(&mut self, connection: &Connection, text: &str) -> rusqlite::Result<i64> {
        if let Some(number) = self.names.get(text) {
            return Ok(*number);
        }
        let found = names::find(connection, text)?;
        let number = match found {
            Some(number) => number,
            None => {
                connection.prepare_cached(sql::NAME_ADD)?.execute(params![text])?;
                connection.last_insert_rowid()
            }
        };
        if self.names.len() >= MAX {
            self.names.clear();
        }
        self.names.insert(text.to_owned(), number);
        Ok(number)
    }

    /// The number of a digest's text.
    pub(super) fn digest_number(&mut self, connection: &Connection, digest: Digest) -> rusqlite::Result<i64> {
        if let Some(number) = self.digests.get(&digest) {
            return Ok(*number);
        }
        let number = self.number(connection, &digest.to_string())?;
        if self.digests.len() >= MAX {
            self.digests.clear();
        }
        self.digests.insert(digest, number);
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

    /// A notice was put.
    pub(super) fn puts_notice(&mut self) {
        self.has_put_notices = true;
    }

    /// Whether the transaction under way has put a notice.
    pub(super) fn has_put_notices(&self) -> bool {
        self.has_put_notices
    }

    /// A subscription changed.
    pub(super) fn forget_listeners(&mut self) {
        self.listeners.clear();
    }

    /// Whether a tenant is known to have its row; from now on it is.
    pub(super) fn meets_tenant(&mut self, tenant: i64) -> bool {
        self.tenants.insert(tenant)
    }

    /// Whether a definition is not known to be there; from now on it is.
    pub(super) fn meets_definition(&mut self, tenant: i64, digest: Digest) -> bool {
        if self.definitions.len() >= MAX {
            self.definitions.clear();
        }
        self.definitions.insert((tenant, digest))
    }

    /// A conversation that has a row.
    pub(super) fn session(
        &mut self,
        connection: &Connection,
        key: &SessionKey,
    ) -> rusqlite::Result<Option<SessionPosition>> {
        if let Some(found) = self.sessions.get(key) {
            return Ok(Some(*found));
        }
        let tenant = self.number(connection, key.tenant.as_str())?;
        let agent = self.number(connection, key.agent.as_str())?;
        let owner = self.number(connection, key.owner.as_str())?;
        let found = connection
            .prepare_cached(sql::SESSION_NUMBER)?
            .query_row(params![tenant, agent, key.session.as_str(), owner], |row| {
                Ok(SessionPosition { no: row.get(0)?, is_closed: row.get(1)? })
            })
            .optional()?;
        if let Some(found) = found {
            self.remember_session(key, found);
        }
        Ok(found)
    }

    pub(super) fn remember_session(&mut self, key: &SessionKey, found: SessionPosition) {
        if self.sessions.len() >= MAX {
            self.sessions.clear();
        }
        self.sessions.insert(key.clone(), found);
    }

    /// A conversation is about to change.
    pub(super) fn forget_session(&mut self, key: &SessionKey) {
        self.sessions.remove(key);
    }

    /// The number that a new run gets. Numbers are given one after the other: an audit notices what is missing.
    pub(super) fn next_run(&mut self, connection: &Connection) -> rusqlite::Result<i64> {
        if let Some(next) = self.next_run {
            return Ok(next);
        }
        let next = connection.prepare_cached(sql::RUN_NEXT)?.query_row([], |row| row.get(0))?;
        self.next_run = Some(next);
        Ok(next)
    }

    /// A run has got that number.
    pub(super) fn run_added(&mut self) {
        self.next_run = self.next_run.map(|next| next + 1);
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        *self = WriterMemory::default();
    }
}

/// Where a hold is that was just opened.
#[derive(Debug, Clone)]
pub(super) struct HoldPosition {
    pub(super) key: HoldKey,
    pub(super) no: i64,
    pub(super) audience: Vec<i64>,
}

/// Which append of the transaction under way has the row that a run is to get.
#[derive(Debug, Clone, Copy)]
pub(super) struct AppendIndex {
    pub(super) job: usize,
    pub(super) batch: usize,
}

/// Where runs stand that were written not long ago. Two generations, so that there are never many and those in use stay.
#[derive(Debug, Default)]
pub(super) struct RunPositions {
    young: HashMap<RunId, RunPosition>,
    old: HashMap<RunId, RunPosition>,
    /// Runs whose rows are not written yet, in the order in which they were appended to.
    unwritten: Vec<RunId>,
}

/// As many as a generation has.
const GENERATION: usize = 4096;

impl RunPositions {
    fn age(&mut self) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
    }

    pub(super) fn get(&mut self, run: RunId) -> Option<&mut RunPosition> {
        if let Some(found) = self.old.remove(&run) {
            self.young.insert(run, found);
        }
        self.young.get_mut(&run)
    }

    pub(super) fn put(&mut self, run: RunId, position: RunPosition) {
        self.old.remove(&run);
        self.young.insert(run, position);
    }

    /// The run is read from the file next time.
    pub(super) fn forget(&mut self, run: RunId) {
        self.young.remove(&run);
        self.old.remove(&run);
    }

    /// The row of a run is to be written before the transaction ends.
    pub(super) fn defer(&mut self, run: RunId, index: AppendIndex) {
        let Some(position) = self.get(run) else { return };
        let was_deferred = position.unwritten.replace(index).is_some();
        if !was_deferred {
            self.unwritten.push(run);
        }
    }

    /// The runs whose rows are to be written now.
    pub(super) fn take_unwritten(&mut self) -> Vec<RunId> {
        std::mem::take(&mut self.unwritten)
    }
}
