//! Pages of runs, holds and conversations. A page is an index range, or a bounded scan whose cursor says where it stopped.
//!
//! An open hold's row is made from the fold of its run, and is left out when that cannot be read; such runs are listed apart.

use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Secret};
use standfast_core::name::{AgentName, SessionId, Tenant, UserId};
use standfast_core::project::{self, HoldRow, Phase, RunRow};
use standfast_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connect::Params;
use super::pool::Pool;
use super::read::{stored, unreadable};
use super::rows::{RunColumns, column};
use super::side::SideConnection;
use super::sql;
use super::types::{self, Bytes16};
use crate::columns::{self, CorruptRow, Record, deadline, kind_number};
use crate::error::StoreError;
use crate::query::{
    Audience, Claimant, DecidedQuery, EndedQuery, EndedRun, HoldFilter, HoldQuery, Page, RunFilter, RunQuery,
    SCAN_MAX, ScannedRun, SessionKey, SessionQuery, SessionRow, UnreadableRun,
};

type Param<'a> = &'a (dyn ToSql + Sync);

pub(super) async fn ended_runs(pool: &Pool, query: &EndedQuery) -> Result<Page<RunId>, StoreError> {
    let after = query.cursor.map_or(0, u64::cast_signed);
    let before = query.last_before().0;
    let params: [Param<'_>; 4] =
        [&after, &types::rows(EndedQuery::LOOKS_AT), &query.tenant.as_str(), &before];
    let rows = pool.read(sql::RUNS_ENDED, &params).await?;
    let look = |row: &Row| -> Result<ScannedRun, CorruptRow> {
        let run = column::<Bytes16>(row, 1)?.run();
        let ended = EndedRun::from_number(i64::from(column::<i32>(row, 2)?));
        let agent: String = column(row, 4)?;
        let before = query.agents.iter().find(|(name, _)| name.as_str() == agent).map(|(_, before)| *before);
        let is_wanted = query.wants(ended, before, Timestamp(column(row, 5)?));
        Ok(ScannedRun { no: column(row, 0)?, run, is_wanted, is_old: column(row, 3)? })
    };
    let looked_at =
        rows.iter().map(look).collect::<Result<Vec<ScannedRun>, CorruptRow>>().map_err(unreadable)?;
    Ok(query.page(&looked_at))
}

pub(super) async fn list_runs(pool: &Pool, query: &RunQuery) -> Result<Page<RunRow>, StoreError> {
    let tenant = query.tenant.as_str();
    let before = query.cursor.map_or(i64::MAX, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
    let (scan, limit) = (types::rows(SCAN_MAX), types::rows(query.limit));
    let phases: Vec<i16> = query.phases.iter().map(|phase| i16::from(*phase as u8)).collect();
    let since = query.since.map_or(i64::MIN, |since| since.0);
    let first: [Param<'_>; 6] = [&tenant, &before, &scan, &limit, &phases, &since];
    let end: [Param<'_>; 3] = [&tenant, &before, &scan];
    match &query.filter {
        RunFilter::All => {
            let agents = pool.read(sql::AGENTS_WITH_RUNS, &[&tenant]).await?;
            let agents = agents.iter().map(|row| column(row, 0)).collect::<Result<Vec<String>, CorruptRow>>();
            let agents = agents.map_err(unreadable)?;
            page_of_runs(pool, query, (sql::RUNS_ALL, sql::RUNS_ALL_END), &first, &end, &[&agents]).await
        }
        RunFilter::Agent(agent) => {
            let by: [Param<'_>; 1] = [&agent.as_str()];
            let statements = (sql::RUNS_BY_AGENT, sql::RUNS_BY_AGENT_END);
            page_of_runs(pool, query, statements, &first, &end, &by).await
        }
        RunFilter::Session(agent, session) => {
            let by: [Param<'_>; 2] = [&agent.as_str(), &session.as_str()];
            let statements = (sql::RUNS_BY_SESSION, sql::RUNS_BY_SESSION_END);
            page_of_runs(pool, query, statements, &first, &end, &by).await
        }
        RunFilter::SessionOf(owner, agent, session) => {
            let by: [Param<'_>; 3] = [&agent.as_str(), &session.as_str(), &owner.as_str()];
            let statements = (sql::RUNS_BY_CONVERSATION, sql::RUNS_BY_CONVERSATION_END);
            page_of_runs(pool, query, statements, &first, &end, &by).await
        }
        RunFilter::Owner(owner) => {
            let by: [Param<'_>; 1] = [&owner.as_str()];
            let statements = (sql::RUNS_BY_OWNER, sql::RUNS_BY_OWNER_END);
            page_of_runs(pool, query, statements, &first, &end, &by).await
        }
        RunFilter::Inbox(inbox) => {
            let by: [Param<'_>; 1] = [&inbox.as_str()];
            let statements = (sql::RUNS_BY_INBOX, sql::RUNS_BY_INBOX_END);
            page_of_runs(pool, query, statements, &first, &end, &by).await
        }
        RunFilter::WithJobs => {
            let agents = pool.read(sql::AGENTS_WITH_RUNS, &[&tenant]).await?;
            let agents = agents.iter().map(|row| column(row, 0)).collect::<Result<Vec<String>, CorruptRow>>();
            let agents = agents.map_err(unreadable)?;
            let statements = (sql::RUNS_WITH_JOBS, sql::RUNS_WITH_JOBS_END);
            page_of_runs(pool, query, statements, &first, &end, &[&agents]).await
        }
        RunFilter::Claimable(inbox, now, claimant) => {
            let (driver, agent, kinds): (Option<i16>, Option<&str>, &[String]) = match claimant {
                Claimant::Anybody => (None, None, &[]),
                Claimant::Agent(agent) => (Some(0), Some(agent.as_str()), &[]),
                Claimant::Worker { agent, kinds } => (Some(1), Some(agent.as_str()), kinds),
            };
            let params: [Param<'_>; 9] =
                [&tenant, &inbox.as_str(), &now.0, &limit, &phases, &since, &driver, &agent, &kinds];
            let rows = pool.read(sql::RUNS_CLAIMABLE, &params).await?;
            runs_of(pool, query, &rows, None).await
        }
    }
}

async fn page_of_runs(
    pool: &Pool,
    query: &RunQuery,
    (page, its_end): (&'static str, &'static str),
    first: Params<'_>,
    end: Params<'_>,
    by: Params<'_>,
) -> Result<Page<RunRow>, StoreError> {
    let rows = pool.read(page, &[first, by].concat()).await?;
    let last = rows.last().map(|row| column::<i64>(row, 1).map_err(unreadable)).transpose()?;
    let is_filtered = !query.phases.is_empty() || query.since.is_some();
    let stop = PageEnd { last, is_full: rows.len() >= query.limit, is_filtered };
    let next = stop.next(pool, its_end, &[end, by].concat()).await?;
    runs_of(pool, query, &rows, next).await
}

/// Where a page stopped.
struct PageEnd {
    last: Option<i64>,
    is_full: bool,
    is_filtered: bool,
}

impl PageEnd {
    /// A page that is not full has looked at everything there is, or at as much as it may.
    async fn next(
        &self,
        pool: &Pool,
        its_end: &'static str,
        by: Params<'_>,
    ) -> Result<Option<u64>, StoreError> {
        let last = match (self.is_full, self.is_filtered) {
            (true, _) => self.last,
            (false, false) => None,
            (false, true) => {
                let rows = pool.read(its_end, by).await?;
                rows.first().map(|row| column(row, 0).map_err(unreadable)).transpose()?.flatten()
            }
        };
        Ok(last.and_then(|last| u64::try_from(last).ok()))
    }
}

/// A run that cannot be read counts as failed, and does not stop the list.
async fn runs_of(
    pool: &Pool,
    query: &RunQuery,
    rows: &[Row],
    next: Option<u64>,
) -> Result<Page<RunRow>, StoreError> {
    let mut page = Page::of(Vec::with_capacity(rows.len()), next);
    let is_failed_wanted = query.phases.is_empty() || query.phases.contains(&Phase::Failed);
    for row in rows {
        match stored(pool, row, 0).await {
            Ok(stored) => page.items.push(stored.row),
            Err(StoreError::Unavailable { why }) => return Err(StoreError::Unavailable { why }),
            Err(StoreError::Corrupt { run, why }) if is_failed_wanted => {
                let facts = RunColumns::of(row, 0).ok().and_then(|columns| columns.facts().ok());
                page.unreadable.push(UnreadableRun { run, facts, why });
            }
            Err(_) => {}
        }
    }
    Ok(page)
}

pub(super) async fn list_sessions(pool: &Pool, query: &SessionQuery) -> Result<Page<SessionRow>, StoreError> {
    let tenant = query.tenant.as_str();
    let before = query.cursor.map_or(i64::MAX, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
    let (scan, limit) = (types::rows(SCAN_MAX), types::rows(query.limit));
    let agent = query.agent.as_ref().map(AgentName::as_str);
    let session = query.session.as_ref().map(SessionId::as_str);
    let owner = query.owner.as_ref().map(UserId::as_str);
    let (page, its_end, by): (_, _, Vec<Param<'_>>) = match (&agent, &session, &owner) {
        (Some(agent), Some(session), _) => {
            (sql::SESSIONS_BY_NAME, sql::SESSIONS_BY_NAME_END, vec![agent, session])
        }
        (_, _, Some(owner)) => (sql::SESSIONS_BY_OWNER, sql::SESSIONS_BY_OWNER_END, vec![owner]),
        (_, _, None) => (sql::SESSIONS_ALL, sql::SESSIONS_ALL_END, Vec::new()),
    };
    let rows = pool.read(page, &[&tenant, &before, &scan, &agent, &limit, &session, &owner]).await?;
    let last = rows.last().map(|row| column::<i64>(row, 0).map_err(unreadable)).transpose()?;
    let is_filtered = agent.is_some() || session.is_some() || owner.is_some();
    let stop = PageEnd { last, is_full: rows.len() >= query.limit, is_filtered };
    let end: [Param<'_>; 3] = [&tenant, &before, &scan];
    let next = stop.next(pool, its_end, &[&end[..], &by].concat()).await?;
    // A session with invalid names does not stop the list.
    Ok(Page::of(rows.iter().filter_map(|row| session_row(&query.tenant, row).ok()).collect(), next))
}

fn session_row(tenant: &Tenant, row: &Row) -> Result<SessionRow, CorruptRow> {
    let agent = AgentName::new(column::<&str>(row, 1)?)?;
    let session = SessionId::new(column::<&str>(row, 2)?)?;
    let owner = UserId::new(column::<&str>(row, 7)?)?;
    Ok(SessionRow {
        key: SessionKey { tenant: tenant.clone(), agent, owner, session },
        metadata: column(row, 3)?,
        created_at: Timestamp(column(row, 4)?),
        updated_at: Timestamp(column(row, 5)?),
        closed: column(row, 6)?,
    })
}

pub(super) async fn list_holds(pool: &Pool, query: &HoldQuery) -> Result<Page<HoldRow>, StoreError> {
    let tenant = query.tenant.as_str();
    let after = query.cursor.map_or(0, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
    let (scan, limit) = (types::rows(SCAN_MAX), types::rows(query.limit));
    let kinds: Vec<i16> =
        query.kinds.iter().map(|kind| i16::try_from(kind_number(*kind)).unwrap_or(i16::MAX)).collect();
    let who: Option<Vec<&[u8]>> = match &query.audience {
        Audience::Everyone => None,
        Audience::AnyOf(all) => Some(all.iter().map(|one| one.0.as_bytes()).collect()),
    };
    let first: [Param<'_>; 6] = [&tenant, &after, &scan, &kinds, &who, &limit];
    let end: [Param<'_>; 3] = [&tenant, &after, &scan];
    let run;
    let ((page, its_end), by): (_, Vec<Param<'_>>) = match &query.filter {
        HoldFilter::All => match &who {
            None => ((sql::HOLDS_ALL, sql::HOLDS_ALL_END), vec![]),
            Some(_) => ((sql::HOLDS_SEEN, sql::HOLDS_SEEN_END), vec![]),
        },
        HoldFilter::Undated => match &who {
            None => ((sql::HOLDS_UNDATED, sql::HOLDS_ALL_END), vec![]),
            Some(_) => ((sql::HOLDS_UNDATED_SEEN, sql::HOLDS_SEEN_END), vec![]),
        },
        HoldFilter::Dated => ((sql::HOLDS_DATED, sql::HOLDS_DATED_END), vec![]),
        HoldFilter::Agent(agent) => {
            return by_name(
                pool,
                query,
                (sql::HOLDS_BY_AGENT, sql::HOLDS_BY_AGENT_END),
                &first,
                &end,
                &[&agent.as_str()],
            )
            .await;
        }
        HoldFilter::Tool(tool) => {
            return by_name(
                pool,
                query,
                (sql::HOLDS_BY_TOOL, sql::HOLDS_BY_TOOL_END),
                &first,
                &end,
                &[&tool.as_str()],
            )
            .await;
        }
        HoldFilter::Inbox(inbox) => {
            let statements = (sql::HOLDS_BY_INBOX, sql::HOLDS_BY_INBOX_END);
            return by_name(pool, query, statements, &first, &end, &[&inbox.as_str()]).await;
        }
        HoldFilter::Session(agent, session) => {
            let statements = (sql::HOLDS_BY_SESSION, sql::HOLDS_BY_SESSION_END);
            return by_name(pool, query, statements, &first, &end, &[&agent.as_str(), &session.as_str()])
                .await;
        }
        HoldFilter::Run(id) => {
            run = Bytes16::from(*id);
            ((sql::HOLDS_BY_RUN, sql::HOLDS_BY_RUN_END), vec![&run])
        }
    };
    // Whoever asks for what they see is part of where that list ends.
    let seen: Vec<Param<'_>> = match page {
        sql::HOLDS_SEEN | sql::HOLDS_UNDATED_SEEN => vec![&who],
        _ => by.clone(),
    };
    page_of_holds(pool, query, (page, its_end), &[&first[..], &by].concat(), &[&end[..], &seen].concat())
        .await
}

pub(super) async fn decided_holds(pool: &Pool, query: &DecidedQuery) -> Result<Page<HoldRow>, StoreError> {
    let since = query.since.map_or(i64::MIN, |since| since.0);
    let params: [Param<'_>; 4] =
        [&query.tenant.as_str(), &since, &query.until().0, &types::rows(DecidedQuery::LOOKS_AT)];
    let rows = pool.read(sql::HOLDS_DECIDED, &params).await?;
    let decided = |row: &Row| -> Result<(i64, Option<HoldRow>), CorruptRow> {
        let call: i64 = column(row, 2)?;
        let call = u32::try_from(call).map_err(|_| CorruptRow(format!("there is no call {call}")))?;
        let key = HoldKey { call: CallNo(call), secret: Secret(column::<Bytes16>(row, 3)?.0) };
        let id = HoldId { run: column::<Bytes16>(row, 1)?.run(), key };
        let record = columns::parse::<Record>(column::<&str>(row, 4)?);
        Ok((column(row, 0)?, record.ok().map(|record| record.row(id))))
    };
    let looked_at = rows.iter().map(decided).collect::<Result<Vec<_>, CorruptRow>>().map_err(unreadable)?;
    Ok(query.page(looked_at))
}

async fn by_name(
    pool: &Pool,
    query: &HoldQuery,
    statements: (&'static str, &'static str),
    first: Params<'_>,
    end: Params<'_>,
    by: Params<'_>,
) -> Result<Page<HoldRow>, StoreError> {
    page_of_holds(pool, query, statements, &[first, by].concat(), &[end, by].concat()).await
}

async fn page_of_holds(
    pool: &Pool,
    query: &HoldQuery,
    (page, its_end): (&'static str, &'static str),
    first: Params<'_>,
    end: Params<'_>,
) -> Result<Page<HoldRow>, StoreError> {
    let rows = pool.read(page, first).await?;
    let last = rows.last().map(|row| column::<i64>(row, 0).map_err(unreadable)).transpose()?;
    let is_filtered = !query.kinds.is_empty()
        || query.audience != Audience::Everyone
        || matches!(query.filter, HoldFilter::Undated);
    let stop = PageEnd { last, is_full: rows.len() >= query.limit, is_filtered };
    let next = stop.next(pool, its_end, end).await?;
    let mut items = Vec::with_capacity(rows.len());
    for row in &rows {
        items.extend(hold_row(pool, row).await?);
    }
    Ok(Page::of(items, next))
}

/// Takes the deadlines of holds that an older version opened into the column by which lists are in order.
pub(super) async fn look_at_deadlines(pool: &Pool, side: &SideConnection) -> Result<(), StoreError> {
    loop {
        let rows = pool.read(sql::HOLDS_WITHOUT_LOOK, &[&types::rows(SCAN_MAX)]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let (mut numbers, mut deadlines) = (Vec::new(), Vec::new());
        for row in &rows {
            numbers.push(column::<i64>(row, 0).map_err(unreadable)?);
            // One whose run cannot be read is in no list, and in nobody's way.
            deadlines.push(hold_row(pool, row).await?.as_ref().map_or(0, deadline));
        }
        side.transact(move |connection| {
            let (numbers, deadlines) = (numbers.clone(), deadlines.clone());
            Box::pin(async move {
                connection.query(sql::HOLDS_LOOKED_AT, &[&numbers, &deadlines]).await?;
                Ok(())
            })
        })
        .await?;
    }
}

/// The row of an open hold, from the fold of its run; none when that run cannot be read.
async fn hold_row(pool: &Pool, row: &Row) -> Result<Option<HoldRow>, StoreError> {
    let key = || -> Result<HoldKey, CorruptRow> {
        let call: i64 = column(row, 1)?;
        let call = u32::try_from(call).map_err(|_| CorruptRow(format!("there is no call {call}")))?;
        Ok(HoldKey { call: CallNo(call), secret: Secret(column::<Bytes16>(row, 2)?.0) })
    };
    let run = match stored(pool, row, 3).await {
        Ok(stored) => stored.row.run,
        Err(StoreError::Unavailable { why }) => return Err(StoreError::Unavailable { why }),
        Err(_) => return Ok(None),
    };
    let open = key().ok().and_then(|key| run.hold(key));
    Ok(open.map(|open| project::hold_row(&run, open)))
}
