//! Which conversation a new run belongs to, and when one gets a row.
//!
//! A run that was begun without naming a conversation has one of its own name, without a row. It gets one when there is
//! more to say of it: a second run, metadata, a close.

use rusqlite::{Connection, params};
use standfast_core::id::RunId;
use standfast_core::run::Facts;

use super::job::Failure;
use super::read::sessions::OwnSession;
use super::sql;
use super::writer_memory::{SessionPosition, WriterMemory};
use crate::query::SessionKey;

/// The conversation that a new run belongs to.
pub(super) struct ChosenSession {
    /// 0 when it has the run's own name, which needs no row.
    pub(super) no: i64,
    is_new: bool,
    /// A run that had a conversation of this name to itself until now.
    first: Option<OwnSession>,
}

impl ChosenSession {
    pub(super) fn of(
        connection: &Connection,
        memory: &mut WriterMemory,
        facts: &Facts,
        (no, tenant): (i64, i64),
    ) -> Result<ChosenSession, Failure> {
        if RunId::of_own_session(&facts.session) == Some(facts.id) {
            return Ok(ChosenSession { no: 0, is_new: false, first: None });
        }
        if let Some(found) = memory.session(connection, &SessionKey::of(facts))? {
            return Ok(ChosenSession { no: found.no, is_new: false, first: None });
        }
        let agent = memory.number(connection, facts.agent.as_str())?;
        let owner = memory.number(connection, facts.owner.as_str())?;
        let first = OwnSession::find(connection, tenant, &facts.session)?;
        let is_theirs = |own: &&OwnSession| own.agent == agent && own.owner == owner;
        match first.as_ref().filter(is_theirs).map(|own| own.no) {
            Some(theirs) => Ok(ChosenSession { no: theirs, is_new: false, first }),
            // One of another user or agent has the same name: both have rows now, so that the name finds both.
            None => Ok(ChosenSession { no, is_new: true, first }),
        }
    }

    pub(super) fn write(
        &self,
        connection: &Connection,
        memory: &mut WriterMemory,
        facts: &Facts,
        (tenant, agent, owner): (i64, i64, i64),
    ) -> Result<(), Failure> {
        if let Some(first) = &self.first {
            add_own_session(connection, tenant, facts.session.as_str(), first)?;
        }
        if self.is_new {
            let row = params![self.no, tenant, agent, facts.session.as_str(), owner, facts.started_at.0];
            connection.prepare_cached(sql::SESSION_ADD)?.execute(row)?;
            let found = SessionPosition { no: self.no, is_closed: false };
            memory.remember_session(&SessionKey::of(facts), found);
        }
        Ok(())
    }
}

/// Gives the conversation that a run has to itself a row, because there is more to say of it.
fn add_own_session(
    connection: &Connection,
    tenant: i64,
    session: &str,
    own: &OwnSession,
) -> Result<(), Failure> {
    let row = params![own.no, tenant, own.agent, session, own.owner, own.started_at.0];
    connection.prepare_cached(sql::SESSION_ADD)?.execute(row)?;
    connection.prepare_cached(sql::RUN_SHARES_SESSION)?.execute(params![own.no])?;
    Ok(())
}

/// The number of a conversation's row, which it gets if it had none; none when there is no such conversation.
pub(super) fn session_row(
    connection: &Connection,
    memory: &mut WriterMemory,
    key: &SessionKey,
) -> Result<Option<i64>, Failure> {
    if let Some(found) = memory.session(connection, key)? {
        return Ok(Some(found.no));
    }
    let tenant = memory.number(connection, key.tenant.as_str())?;
    let agent = memory.number(connection, key.agent.as_str())?;
    let owner = memory.number(connection, key.owner.as_str())?;
    let own = OwnSession::find(connection, tenant, &key.session)?;
    let Some(own) = own.filter(|own| own.agent == agent && own.owner == owner) else { return Ok(None) };
    add_own_session(connection, tenant, key.session.as_str(), &own)?;
    Ok(Some(own.no))
}
