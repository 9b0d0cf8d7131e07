//! Conversations as they are read: those that have a row, and those that have only the name of their one run.
//!
//! Both have the number of their first run, so that lists of the two are merged by it.

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params, params_from_iter};
use standfast_core::id::RunId;
use standfast_core::name::{AgentName, SessionId, Tenant, UserId};
use standfast_core::time::Timestamp;

use super::super::sql;
use super::{ReadSession, unreadable};
use crate::error::StoreError;
use crate::query::{Page, SCAN_MAX, SessionKey, SessionQuery, SessionRow};

/// A run that was begun without naming a conversation: its own is nowhere else.
pub(in crate::sqlite) struct OwnSession {
    pub(in crate::sqlite) no: i64,
    pub(in crate::sqlite) agent: i64,
    pub(in crate::sqlite) owner: i64,
    pub(in crate::sqlite) started_at: Timestamp,
}

impl OwnSession {
    /// The run that has a conversation of this name to itself, if there is one.
    pub(in crate::sqlite) fn find(
        connection: &rusqlite::Connection,
        tenant: i64,
        session: &SessionId,
    ) -> rusqlite::Result<Option<OwnSession>> {
        let Some(run) = RunId::of_own_session(session) else { return Ok(None) };
        let mut statement = connection.prepare_cached(sql::RUN_OWN_SESSION)?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok(OwnSession {
                no: row.get(0)?,
                agent: row.get(1)?,
                owner: row.get(2)?,
                started_at: Timestamp(row.get(3)?),
            })
        };
        statement.query_row(params![run.bytes(), tenant], read).optional()
    }
}

/// A conversation in a list: its number, and what there is to say if it is wanted.
struct ListedSession {
    no: i64,
    row: Option<SessionRow>,
}

type SessionResult = rusqlite::Result<Option<ListedSession>>;

/// What is asked for, by number.
struct SessionFilter<'a> {
    tenant: i64,
    agent: Option<i64>,
    owner: Option<i64>,
    query: &'a SessionQuery,
}

impl ReadSession<'_> {
    pub(in crate::sqlite) fn session(&self, key: &SessionKey) -> Result<Option<SessionRow>, StoreError> {
        let (tenant, agent) = (self.name(key.tenant.as_str())?, self.name(key.agent.as_str())?);
        let owner = self.name(key.owner.as_str())?;
        let (Some(tenant), Some(agent), Some(owner)) = (tenant, agent, owner) else { return Ok(None) };
        let row = |row: &rusqlite::Row<'_>| {
            Ok(SessionRow {
                key: key.clone(),
                metadata: row.get::<_, Option<String>>(0)?.unwrap_or_else(|| "{}".into()),
                created_at: Timestamp(row.get(1)?),
                updated_at: Timestamp(row.get(2)?),
                closed: row.get(3)?,
            })
        };
        let mut statement = self.connection.prepare_cached(sql::SESSION_ROW).map_err(unreadable)?;
        let named = params![tenant, agent, key.session.as_str(), owner];
        if let Some(found) = statement.query_row(named, row).optional().map_err(unreadable)? {
            return Ok(Some(found));
        }
        let own = OwnSession::find(self.connection, tenant, &key.session).map_err(unreadable)?;
        let own = own.filter(|own| own.agent == agent && own.owner == owner);
        Ok(own.map(|own| fresh(key.clone(), own.started_at)))
    }

    /// The run that has this conversation to itself; of one user, or of whoever it is.
    pub(super) fn own_session(
        &self,
        tenant: i64,
        agent: i64,
        owner: Option<i64>,
        session: &SessionId,
    ) -> Result<Option<OwnSession>, StoreError> {
        let own = OwnSession::find(self.connection, tenant, session).map_err(unreadable)?;
        Ok(own.filter(|own| own.agent == agent && owner.is_none_or(|owner| owner == own.owner)))
    }

    pub(in crate::sqlite) fn list_sessions(
        &self,
        query: &SessionQuery,
    ) -> Result<Page<SessionRow>, StoreError> {
        let page = Page::of(Vec::new(), None);
        let Some(tenant) = self.name(query.tenant.as_str())? else { return Ok(page) };
        let (agent, owner) = (query.agent.as_ref(), query.owner.as_ref());
        let agent = agent.map(|agent| self.name(agent.as_str())).transpose()?;
        let owner = owner.map(|owner| self.name(owner.as_str())).transpose()?;
        // A name that the store has never heard belongs to no conversation.
        if agent == Some(None) || owner == Some(None) {
            return Ok(page);
        }
        let wanted = SessionFilter { tenant, agent: agent.flatten(), owner: owner.flatten(), query };
        self.page_of_sessions(&wanted, page).map_err(unreadable)
    }

    /// Those with a row and those without, merged, newest first.
    fn page_of_sessions(
        &self,
        wanted: &SessionFilter<'_>,
        mut page: Page<SessionRow>,
    ) -> rusqlite::Result<Page<SessionRow>> {
        let query = wanted.query;
        let before = query.cursor.map_or(i64::MAX, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
        let bounds = vec![Value::from(before), i64::try_from(SCAN_MAX).unwrap_or(i64::MAX).into()];
        let tenant = Value::from(wanted.tenant);
        let (named, own, by) = match (wanted.agent, &query.session, wanted.owner) {
            (Some(agent), Some(session), _) => {
                (sql::SESSIONS_BY_NAME, None, vec![tenant, agent.into(), session.as_str().to_owned().into()])
            }
            (_, _, Some(owner)) => {
                (sql::SESSIONS_BY_OWNER, Some(sql::OWN_SESSIONS_BY_OWNER), vec![tenant, owner.into()])
            }
            (_, _, None) => (sql::SESSIONS_ALL, Some(sql::OWN_SESSIONS), Vec::new()),
        };
        let by = [bounds, by].concat();
        let mut named = self.connection.prepare_cached(named)?;
        let mut named = named.query(params_from_iter(by.iter()))?;
        let mut next_named =
            || -> SessionResult { named.next()?.map(|row| wanted.listed(self, row)).transpose() };
        let mut own_rows = own.map(|own| self.connection.prepare_cached(own)).transpose()?;
        let mut own_rows =
            own_rows.as_mut().map(|rows| rows.query(params_from_iter(by.iter()))).transpose()?;
        let mut one = wanted.own_of_that_name(self, before)?;
        let mut next_own = || -> SessionResult {
            match &mut own_rows {
                Some(rows) => rows.next()?.map(|row| wanted.listed_own(self, row)).transpose(),
                None => Ok(one.take()),
            }
        };
        let (mut first, mut second) = (next_named()?, next_own()?);
        let mut looked_at = 0;
        loop {
            let number = |one: &Option<ListedSession>| one.as_ref().map(|one| one.no);
            let listed = if number(&first) >= number(&second) {
                std::mem::replace(&mut first, next_named()?)
            } else {
                std::mem::replace(&mut second, next_own()?)
            };
            let Some(listed) = listed else { return Ok(page) };
            looked_at += 1;
            page.items.extend(listed.row);
            if page.items.len() >= query.limit || looked_at >= SCAN_MAX {
                return Ok(Page { next: u64::try_from(listed.no).ok(), ..page });
            }
        }
    }

    pub(super) fn session_number(
        &self,
        tenant: i64,
        (owner, agent): (i64, i64),
        session: &SessionId,
    ) -> Result<Option<i64>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql::SESSION_NUMBER).map_err(unreadable)?;
        let named = params![tenant, agent, session.as_str(), owner];
        statement.query_row(named, |row| row.get(0)).optional().map_err(unreadable)
    }
}

impl SessionFilter<'_> {
    /// When a name is asked for: the run that has a conversation of that name to itself.
    fn own_of_that_name(&self, reading: &ReadSession<'_>, before: i64) -> SessionResult {
        let (Some(agent), Some(session)) = (self.agent, &self.query.session) else { return Ok(None) };
        let own = OwnSession::find(reading.connection, self.tenant, session)?;
        let own = own.filter(|own| {
            own.agent == agent && self.owner.is_none_or(|owner| owner == own.owner) && own.no < before
        });
        let Some(own) = own else { return Ok(None) };
        let key = self.session_key(reading, (own.agent, own.owner), session.as_str())?;
        Ok(Some(ListedSession { no: own.no, row: key.map(|key| fresh(key, own.started_at)) }))
    }

    /// A conversation from its row.
    fn listed(&self, reading: &ReadSession<'_>, row: &rusqlite::Row<'_>) -> rusqlite::Result<ListedSession> {
        let (no, of, agent, owner): (i64, i64, i64, i64) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(8)?);
        let is_named = |name: &SessionId| row.get_ref(3).is_ok_and(|text| text.as_str() == Ok(name.as_str()));
        let is_wanted = self.wants(of, agent, owner) && self.query.session.as_ref().is_none_or(is_named);
        if !is_wanted {
            return Ok(ListedSession { no, row: None });
        }
        let key = self.session_key(reading, (agent, owner), &row.get::<_, String>(3)?)?;
        let Some(key) = key else { return Ok(ListedSession { no, row: None }) };
        let row = SessionRow {
            key,
            metadata: row.get::<_, Option<String>>(4)?.unwrap_or_else(|| "{}".into()),
            created_at: Timestamp(row.get(5)?),
            updated_at: Timestamp(row.get(6)?),
            closed: row.get(7)?,
        };
        Ok(ListedSession { no, row: Some(row) })
    }

    /// A run, if it has its conversation to itself.
    fn listed_own(
        &self,
        reading: &ReadSession<'_>,
        row: &rusqlite::Row<'_>,
    ) -> rusqlite::Result<ListedSession> {
        let (no, of, agent, owner): (i64, i64, i64, i64) =
            (row.get(0)?, row.get(2)?, row.get(3)?, row.get(4)?);
        let is_own = row.get::<_, i64>(6)? == 0;
        let id = row.get::<_, [u8; 16]>(1).map(|id| RunId::from_bytes(id).own_session());
        let is_named = |name: &SessionId| id.as_ref().is_ok_and(|id| id == name);
        let is_wanted =
            is_own && self.wants(of, agent, owner) && self.query.session.as_ref().is_none_or(is_named);
        // An id that cannot be read is not a name.
        let (true, Ok(id)) = (is_wanted, &id) else { return Ok(ListedSession { no, row: None }) };
        let key = self.session_key(reading, (agent, owner), id.as_str())?;
        let started_at = Timestamp(row.get(5)?);
        Ok(ListedSession { no, row: key.map(|key| fresh(key, started_at)) })
    }

    /// None when its names are invalid.
    fn session_key(
        &self,
        reading: &ReadSession<'_>,
        (agent, owner): (i64, i64),
        session: &str,
    ) -> rusqlite::Result<Option<SessionKey>> {
        let tenant: Tenant = self.query.tenant.clone();
        let agent = AgentName::new(reading.texts.text(reading.connection, agent)?);
        let owner = UserId::new(reading.texts.text(reading.connection, owner)?);
        let (Ok(agent), Ok(owner), Ok(session)) = (agent, owner, SessionId::new(session)) else {
            return Ok(None);
        };
        Ok(Some(SessionKey { tenant, agent, owner, session }))
    }

    fn wants(&self, tenant: i64, agent: i64, owner: i64) -> bool {
        tenant == self.tenant
            && self.agent.is_none_or(|wanted| wanted == agent)
            && self.owner.is_none_or(|wanted| wanted == owner)
    }
}

/// A conversation of which nobody has said anything.
fn fresh(key: SessionKey, began: Timestamp) -> SessionRow {
    SessionRow { key, metadata: "{}".into(), created_at: began, updated_at: began, closed: false }
}
