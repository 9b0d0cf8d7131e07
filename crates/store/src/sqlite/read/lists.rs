//! Pages of runs and holds. A page is an index range, or a bounded scan whose cursor says where it stopped.
//!
//! An open hold's row is made from the fold of its run; what cannot be read is left out and reported by id.

use std::collections::{BTreeMap, HashMap};

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Params, params};
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Secret, Seq, Shard};
use standfast_core::name::{InboxName, SessionId, Tenant};
use standfast_core::project::{self, HoldRow, Phase, RunRow};
use standfast_core::run::FOLD_VERSION;
use standfast_core::time::Timestamp;

use super::super::append::run_number;
use super::super::rows::{PHASE_COLUMN, RunColumns};
use super::super::{names, sql};
use super::{ReadSession, unreadable};
use crate::columns::{self, Record, kind_number};
use crate::error::StoreError;
use crate::fairness::take_turns;
use crate::query::{
    Audience, Claimant, DecidedQuery, DueNotice, EndedQuery, EndedRun, HoldFilter, HoldQuery, InboxCounts,
    Page, RunFilter, RunQuery, SCAN_MAX, ScannedRun, StoredRun, UnreadableRun,
};
use crate::subscription::NoticeQuery;

impl ReadSession<'_> {
    pub(in crate::sqlite) fn list_runs(&self, query: &RunQuery) -> Result<Page<RunRow>, StoreError> {
        let empty = Page::of(Vec::new(), None);
        let Some(tenant) = self.name(query.tenant.as_str())? else { return Ok(empty) };
        let before = query.cursor.map_or(i64::MAX, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
        match &query.filter {
            RunFilter::All => self.page_of_runs(query, tenant, sql::RUNS_ALL, params![before, SCAN_MAX]),
            RunFilter::Agent(agent) => {
                let Some(agent) = self.name(agent.as_str())? else { return Ok(empty) };
                let by = params![before, SCAN_MAX, tenant, agent];
                self.page_of_runs(query, tenant, sql::RUNS_BY_AGENT, by)
            }
            RunFilter::Session(agent, session) => {
                let Some(agent) = self.name(agent.as_str())? else { return Ok(empty) };
                // One that has it to itself is the only one of that name: otherwise there would be rows.
                if self.own_session(tenant, agent, None, session)?.is_some() {
                    return self.page_of_own_run(query, tenant, session, before);
                }
                let by = params![before, SCAN_MAX, tenant, agent, session.as_str()];
                self.page_of_runs(query, tenant, sql::RUNS_BY_SESSION_NAME, by)
            }
            RunFilter::SessionOf(owner, agent, session) => {
                let (owner, agent) = (self.name(owner.as_str())?, self.name(agent.as_str())?);
                let (Some(owner), Some(agent)) = (owner, agent) else { return Ok(empty) };
                if self.own_session(tenant, agent, Some(owner), session)?.is_some() {
                    return self.page_of_own_run(query, tenant, session, before);
                }
                let Some(session) = self.session_number(tenant, (owner, agent), session)? else {
                    return Ok(empty);
                };
                self.page_of_runs(query, tenant, sql::RUNS_BY_SESSION, params![before, SCAN_MAX, session])
            }
            RunFilter::Owner(owner) => {
                let Some(owner) = self.name(owner.as_str())? else { return Ok(empty) };
                let by = params![before, SCAN_MAX, tenant, owner];
                self.page_of_runs(query, tenant, sql::RUNS_BY_OWNER, by)
            }
            RunFilter::Inbox(inbox) => {
                let Some(inbox) = self.name(inbox.as_str())? else { return Ok(empty) };
                let by = params![before, SCAN_MAX, tenant, inbox];
                self.page_of_runs(query, tenant, sql::RUNS_BY_INBOX, by)
            }
            RunFilter::WithJobs => {
                self.page_of_runs(query, tenant, sql::RUNS_WITH_JOBS, params![before, SCAN_MAX, tenant])
            }
            RunFilter::Claimable(inbox, now, claimant) => {
                let Some(inbox) = self.name(inbox.as_str())? else { return Ok(empty) };
                let page = match claimant {
                    Claimant::Anybody => {
                        let by = params![tenant, inbox, now.0, SCAN_MAX];
                        self.page_of_runs(query, tenant, sql::RUNS_CLAIMABLE, by)?
                    }
                    Claimant::Agent(agent) => {
                        let Some(agent) = self.name(agent.as_str())? else { return Ok(empty) };
                        let by = params![tenant, inbox, now.0, SCAN_MAX, agent];
                        self.page_of_runs(query, tenant, sql::RUNS_CLAIMABLE_BY_AGENT, by)?
                    }
                    Claimant::Worker { agent, kinds } => {
                        let kinds = crate::columns::json(kinds);
                        let by = params![tenant, inbox, now.0, SCAN_MAX, agent.as_str(), kinds];
                        self.page_of_runs(query, tenant, sql::RUNS_CLAIMABLE_BY_WORKER, by)?
                    }
                };
                Ok(Page { next: None, ..page })
            }
        }
    }

    pub(in crate::sqlite) fn inbox_counts(&self, tenant: &Tenant) -> Result<Vec<InboxCounts>, StoreError> {
        let Some(tenant) = self.name(tenant.as_str())? else { return Ok(Vec::new()) };
        let mut statement = self.connection.prepare_cached(sql::INBOX_COUNTS).map_err(unreadable)?;
        let counted = statement.query_map([tenant], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, u8>(1)?,
                row.get::<_, bool>(2)?,
                row.get::<_, u64>(3)?,
            ))
        });
        let counted: Vec<_> = counted.and_then(|rows| rows.collect::<Result<_, _>>()).map_err(unreadable)?;
        // An invalid name and a newer version's phase are left out.
        Ok(InboxCounts::gathered(counted.into_iter().filter_map(|(inbox, phase, is_aside, count)| {
            let phase = if is_aside { Phase::Failed } else { Phase::from_number(phase)? };
            Some((InboxName::new(inbox).ok()?, phase, count))
        })))
    }

    /// The run whose own conversation has this name.
    fn page_of_own_run(
        &self,
        query: &RunQuery,
        tenant: i64,
        session: &SessionId,
        before: i64,
    ) -> Result<Page<RunRow>, StoreError> {
        let run = RunId::of_own_session(session);
        let by = params![before, SCAN_MAX, run.as_ref().map(RunId::bytes)];
        self.page_of_runs(query, tenant, sql::RUNS_BY_ID, by)
    }

    fn page_of_runs(
        &self,
        query: &RunQuery,
        tenant: i64,
        statement: &str,
        by: impl Params,
    ) -> Result<Page<RunRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(statement).map_err(unreadable)?;
        let mut rows = statement.query(by).map_err(unreadable)?;
        let mut page = Page::of(Vec::new(), None);
        let mut looked_at = 0;
        while let Some(row) = rows.next().map_err(unreadable)? {
            let no: i64 = row.get(0).map_err(unreadable)?;
            looked_at += 1;
            // Most rows differ in their columns alone: reading a fold costs far more than looking at it.
            if may_be_wanted(query, tenant, row).map_err(unreadable)? {
                let columns = RunColumns::read(row).map_err(unreadable)?;
                let facts = columns.facts(self.connection, self.texts);
                match columns.stored(self.connection, self.texts) {
                    Ok(StoredRun { row, .. }) if is_wanted(query, row.phase) => page.items.push(row),
                    // It counts as failed, and does not stop the list.
                    Err(StoreError::Corrupt { run, why }) if is_wanted(query, Phase::Failed) => {
                        page.unreadable.push(UnreadableRun { run, facts, why });
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            if page.items.len() + page.unreadable.len() >= query.limit || looked_at >= SCAN_MAX {
                return Ok(Page { next: u64::try_from(no).ok(), ..page });
            }
        }
        Ok(page)
    }

    pub(in crate::sqlite) fn list_holds(&self, query: &HoldQuery) -> Result<Page<HoldRow>, StoreError> {
        let empty = Page::of(Vec::new(), None);
        let Some(tenant) = self.name(query.tenant.as_str())? else { return Ok(empty) };
        let after = query.cursor.map_or(0, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
        let who = match &query.audience {
            Audience::Everyone => None,
            Audience::AnyOf(all) => {
                let mut numbers = Vec::new();
                for one in all {
                    numbers.extend(self.name(&names::within(query.tenant.as_str(), &one.0))?);
                }
                Some(numbers)
            }
        };
        let who = who.as_deref();
        match (&query.filter, who) {
            (HoldFilter::All | HoldFilter::Undated, Some(who)) => {
                let lists: Vec<Numbers> = who.iter().map(|who| Numbers::SeenBy(*who)).collect();
                self.page_merged(query, &lists, after)
            }
            (HoldFilter::All | HoldFilter::Undated, None) => {
                let lists = self.agents_with_holds(tenant)?;
                self.page_merged(query, &lists, after)
            }
            (HoldFilter::Dated, _) => {
                self.page_of_holds(query, who, sql::HOLDS_DATED, params![tenant, after, SCAN_MAX])
            }
            (HoldFilter::Agent(agent), _) => {
                let Some(agent) = self.name(agent.as_str())? else { return Ok(empty) };
                self.page_of_holds(query, who, sql::HOLDS_BY_AGENT, params![tenant, after, SCAN_MAX, agent])
            }
            (HoldFilter::Tool(tool), _) => {
                let Some(tool) = self.name(tool.as_str())? else { return Ok(empty) };
                self.page_of_holds(query, who, sql::HOLDS_BY_TOOL, params![tenant, after, SCAN_MAX, tool])
            }
            (HoldFilter::Inbox(inbox), _) => {
                let Some(inbox) = self.name(inbox.as_str())? else { return Ok(empty) };
                self.page_of_holds(query, who, sql::HOLDS_BY_INBOX, params![tenant, after, SCAN_MAX, inbox])
            }
            (HoldFilter::Session(agent, session), _) => {
                let Some(agent) = self.name(agent.as_str())? else { return Ok(empty) };
                if let Some(own) = self.own_session(tenant, agent, None, session)? {
                    let by = params![tenant, after, SCAN_MAX, own.no];
                    return self.page_of_holds(query, who, sql::HOLDS_BY_RUN, by);
                }
                let by = params![tenant, after, SCAN_MAX, agent, session.as_str()];
                self.page_of_holds(query, who, sql::HOLDS_BY_SESSION, by)
            }
            (HoldFilter::Run(run), _) => {
                let Some(run) = run_number(self.connection, *run).map_err(unreadable)? else {
                    return Ok(empty);
                };
                self.page_of_holds(query, who, sql::HOLDS_BY_RUN, params![tenant, after, SCAN_MAX, run])
            }
        }
    }

    pub(in crate::sqlite) fn decided_holds(&self, query: &DecidedQuery) -> Result<Page<HoldRow>, StoreError> {
        let Some(tenant) = self.name(query.tenant.as_str())? else { return Ok(Page::of(Vec::new(), None)) };
        let since = query.since.map_or(i64::MIN, |since| since.0);
        let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, Option<HoldRow>)> {
            let key = HoldKey { call: CallNo(row.get(2)?), secret: Secret(row.get(3)?) };
            let id = HoldId { run: RunId::from_bytes(row.get(1)?), key };
            let record = columns::parse::<Record>(&row.get::<_, String>(4)?);
            Ok((row.get(0)?, record.ok().map(|record| record.row(id))))
        };
        let found = || -> rusqlite::Result<Vec<(i64, Option<HoldRow>)>> {
            let mut statement = self.connection.prepare_cached(sql::HOLDS_DECIDED)?;
            let asked = params![tenant, since, query.until().0, DecidedQuery::LOOKS_AT];
            statement.query_map(asked, read)?.collect()
        };
        Ok(query.page(found().map_err(unreadable)?))
    }

    fn page_of_holds(
        &self,
        query: &HoldQuery,
        who: Option<&[i64]>,
        statement: &str,
        by: impl Params,
    ) -> Result<Page<HoldRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(statement).map_err(unreadable)?;
        let mut rows = statement.query(by).map_err(unreadable)?;
        let mut page = HoldPage::new(query);
        while let Some(row) = rows.next().map_err(unreadable)? {
            let hold = OpenHold::read(row).map_err(unreadable)?;
            let is_seen = self.may_see(who, hold.no)?;
            page.look_at(self, &hold, is_seen)?;
            if page.is_full() {
                break;
            }
        }
        Ok(page.done())
    }

    /// Several lists as one, each hold once, oldest first: they are merged chunk by chunk.
    fn page_merged(
        &self,
        query: &HoldQuery,
        lists: &[Numbers],
        mut after: i64,
    ) -> Result<Page<HoldRow>, StoreError> {
        let chunk = query.limit.clamp(1, SCAN_MAX);
        let by_number = match query.filter {
            HoldFilter::Undated => sql::HOLD_UNDATED_BY_NUMBER,
            _ => sql::HOLD_BY_NUMBER,
        };
        let mut page = HoldPage::new(query);
        loop {
            // Beyond the end of the shortest full chunk a list may have more that is not here yet.
            let (mut numbers, mut cutoff) = (Vec::new(), i64::MAX);
            for list in lists {
                let list = list.after(self, after, chunk).map_err(unreadable)?;
                if let (Some(last), true) = (list.last(), list.len() == chunk) {
                    cutoff = cutoff.min(*last);
                }
                numbers.extend(list);
            }
            numbers.retain(|no| *no <= cutoff);
            numbers.sort_unstable();
            numbers.dedup();
            for no in numbers {
                let mut statement = self.connection.prepare_cached(by_number).map_err(unreadable)?;
                let hold = statement.query_row(params![no], OpenHold::read).optional().map_err(unreadable)?;
                match hold {
                    Some(hold) => page.look_at(self, &hold, true)?,
                    None => page.pass_over(no),
                }
                if page.is_full() {
                    return Ok(page.done());
                }
            }
            if cutoff == i64::MAX {
                return Ok(page.done());
            }
            after = cutoff;
        }
    }

    /// A list for each agent of the tenant that has open holds.
    fn agents_with_holds(&self, tenant: i64) -> Result<Vec<Numbers>, StoreError> {
        let mut lists = Vec::new();
        let mut last = 0i64;
        loop {
            let mut statement = self.connection.prepare_cached(sql::HOLDS_NEXT_AGENT).map_err(unreadable)?;
            let next = statement.query_row(params![tenant, last], |row| row.get(0)).optional();
            let Some(agent) = next.map_err(unreadable)? else { return Ok(lists) };
            lists.push(Numbers::OfAgent { tenant, agent });
            last = agent;
        }
    }

    fn may_see(&self, who: Option<&[i64]>, hold: i64) -> Result<bool, StoreError> {
        let Some(who) = who else { return Ok(true) };
        for one in who {
            let mut statement = self.connection.prepare_cached(sql::AUDIENCE_HAS).map_err(unreadable)?;
            if statement.exists(params![one, hold]).map_err(unreadable)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The row of an open hold, from the fold of its run; none when that run cannot be read.
    pub(in crate::sqlite) fn hold_row(&self, hold: &OpenHold) -> Result<Option<HoldRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql::RUN_BY_NUMBER).map_err(unreadable)?;
        let columns =
            statement.query_row(params![hold.run], RunColumns::read).optional().map_err(unreadable)?;
        let stored = columns.and_then(|columns| columns.stored(self.connection, self.texts).ok());
        let (Some(stored), Some(key)) = (stored, hold.key) else { return Ok(None) };
        let run = stored.row.run;
        Ok(run.hold(key).map(|open| project::hold_row(&run, open)))
    }

    pub(in crate::sqlite) fn ended_runs(&self, query: &EndedQuery) -> Result<Page<RunId>, StoreError> {
        let Some(tenant) = self.name(query.tenant.as_str())? else { return Ok(Page::of(Vec::new(), None)) };
        let after = query.cursor.map_or(0, u64::cast_signed);
        let mut agents = BTreeMap::new();
        for (agent, before) in &query.agents {
            agents.extend(self.name(agent.as_str())?.map(|number| (number, *before)));
        }
        let look = |row: &rusqlite::Row<'_>| -> rusqlite::Result<ScannedRun> {
            let run = RunId::from_bytes(row.get(1)?);
            let (ended, agent, at): (i64, i64, i64) = (row.get(2)?, row.get(4)?, row.get(5)?);
            let before = agents.get(&agent).copied();
            let is_wanted = query.wants(EndedRun::from_number(ended), before, Timestamp(at));
            Ok(ScannedRun { no: row.get(0)?, run, is_wanted, is_old: row.get(3)? })
        };
        let read = || -> rusqlite::Result<Vec<ScannedRun>> {
            let mut statement = self.connection.prepare_cached(sql::RUNS_ENDED)?;
            let asked = params![after, EndedQuery::LOOKS_AT, tenant, query.last_before().0];
            statement.query_map(asked, look)?.collect()
        };
        Ok(query.page(&read().map_err(unreadable)?))
    }
}

/// Whether a run may be on a page, by its columns. A quarantined run counts as failed.
fn may_be_wanted(query: &RunQuery, tenant: i64, row: &rusqlite::Row<'_>) -> rusqlite::Result<bool> {
    if row.get::<_, i64>(2)? != tenant {
        return Ok(false);
    }
    let at: rusqlite::Result<i64> = row.get(13);
    // An invalid column is reported when the row is read.
    if at.is_ok_and(|at| query.since.is_some_and(|since| at < since.0)) {
        return Ok(false);
    }
    let phase = if row.get_ref(PHASE_COLUMN - 1)? == ValueRef::Null {
        row.get::<_, u8>(PHASE_COLUMN).ok().and_then(Phase::from_number)
    } else {
        Some(Phase::Failed)
    };
    Ok(phase.is_none_or(|phase| is_wanted(query, phase)))
}

fn is_wanted(query: &RunQuery, phase: Phase) -> bool {
    query.phases.is_empty() || query.phases.contains(&phase)
}

/// A list of open holds by their numbers, oldest first.
enum Numbers {
    /// Those that somebody may see.
    SeenBy(i64),
    /// Those of one agent of a tenant. All agents together are all open holds: one index less to keep.
    OfAgent { tenant: i64, agent: i64 },
}

impl Numbers {
    fn after(&self, reading: &ReadSession<'_>, after: i64, chunk: usize) -> rusqlite::Result<Vec<i64>> {
        let number = |row: &rusqlite::Row<'_>| row.get(0);
        match self {
            Numbers::SeenBy(who) => {
                let mut statement = reading.connection.prepare_cached(sql::AUDIENCE_HOLDS)?;
                statement.query_map(params![who, after, chunk], number)?.collect()
            }
            Numbers::OfAgent { tenant, agent } => {
                let mut statement = reading.connection.prepare_cached(sql::HOLD_NUMBERS_BY_AGENT)?;
                statement.query_map(params![tenant, after, chunk, agent], number)?.collect()
            }
        }
    }
}

/// A page of holds that fills up row by row.
struct HoldPage<'a> {
    query: &'a HoldQuery,
    items: Vec<HoldRow>,
    looked_at: usize,
    last: i64,
}

impl HoldPage<'_> {
    fn new(query: &HoldQuery) -> HoldPage<'_> {
        HoldPage { query, items: Vec::new(), looked_at: 0, last: 0 }
    }

    fn look_at(
        &mut self,
        reading: &ReadSession<'_>,
        hold: &OpenHold,
        is_seen: bool,
    ) -> Result<(), StoreError> {
        self.looked_at += 1;
        self.last = hold.no;
        let kinds = &self.query.kinds;
        let is_kind = kinds.is_empty() || kinds.iter().any(|kind| kind_number(*kind) == hold.kind);
        if is_seen && is_kind {
            self.items.extend(reading.hold_row(hold)?);
        }
        Ok(())
    }

    /// One that is not of this list was looked at too.
    fn pass_over(&mut self, no: i64) {
        self.looked_at += 1;
        self.last = no;
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.query.limit || self.looked_at >= SCAN_MAX
    }

    fn done(self) -> Page<HoldRow> {
        let next = self.is_full().then_some(self.last).and_then(|last| u64::try_from(last).ok());
        Page::of(self.items, next)
    }
}

/// An open hold as its row says.
pub(in crate::sqlite) struct OpenHold {
    pub(in crate::sqlite) no: i64,
    run: i64,
    /// None when its columns make no key: a broken row must not stop a list.
    key: Option<HoldKey>,
    kind: i64,
}

impl OpenHold {
    pub(in crate::sqlite) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<OpenHold> {
        let (call, secret): (i64, Vec<u8>) = (row.get(2)?, row.get(3)?);
        let key = u32::try_from(call).ok().zip(<[u8; 16]>::try_from(secret).ok());
        let key = key.map(|(call, secret)| HoldKey { call: CallNo(call), secret: Secret(secret) });
        Ok(OpenHold { no: row.get(0)?, run: row.get(1)?, key, kind: row.get(4)? })
    }
}

pub(super) fn due_notices(
    reading: &ReadSession<'_>,
    query: &NoticeQuery,
) -> rusqlite::Result<Vec<DueNotice>> {
    let mut without = Vec::with_capacity(query.without.len());
    for subscription in &query.without {
        without.extend(names::find(reading.connection, subscription)?);
    }
    let (mut queues, mut found) = (Vec::new(), HashMap::new());
    // What the server puts for itself belongs to nobody.
    let mut next = Some(String::new());
    while let Some(owner) = next {
        if !query.without_owners.contains(&owner) {
            let due = due_notices_of(reading, query, &without, &owner)?;
            queues.push(due.iter().map(|(at, notice)| (*at, notice.no)).collect());
            found.extend(due.into_iter().map(|(_, notice)| (notice.no, notice)));
        }
        let mut statement = reading.connection.prepare_cached(sql::NOTICES_NEXT_OWNER)?;
        next = statement.query_row(params![owner], |row| row.get(0)).optional()?;
    }
    Ok(take_turns(queues, query.limit).into_iter().filter_map(|no| found.remove(&no)).collect())
}

/// The due notices of one owner, the longest due first.
fn due_notices_of(
    reading: &ReadSession<'_>,
    query: &NoticeQuery,
    without: &[i64],
    owner: &str,
) -> rusqlite::Result<Vec<(Timestamp, DueNotice)>> {
    let scan = if without.is_empty() { SCAN_MAX } else { SCAN_MAX * 50 };
    let mut statement = reading.connection.prepare_cached(sql::NOTICES_DUE)?;
    let mut rows = statement.query(params![query.now.0, scan, FOLD_VERSION, owner])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        if due.len() >= query.each.min(query.limit) {
            break;
        }
        if without.contains(&row.get(2)?) {
            continue;
        }
        match due_notice(reading, row, owner) {
            Ok((shard, notice)) if query.shards.contains(shard) => due.push((Timestamp(row.get(6)?), notice)),
            Ok(_) => {}
            Err(error @ rusqlite::Error::SqliteFailure(..)) => return Err(error),
            // A row that cannot be read must not keep the others from being told.
            Err(_) => {}
        }
    }
    Ok(due)
}

fn due_notice(
    reading: &ReadSession<'_>,
    row: &rusqlite::Row<'_>,
    owner: &str,
) -> rusqlite::Result<(Shard, DueNotice)> {
    let notice = DueNotice {
        no: row.get(0)?,
        subscription: reading.texts.text(reading.connection, row.get(2)?)?.to_string(),
        owner: owner.to_owned(),
        run: super::super::work::run_id(reading.connection, row.get(3)?)?,
        from: Seq(row.get(4)?),
        attempts: row.get(5)?,
    };
    Ok((Shard(row.get(1)?), notice))
}
