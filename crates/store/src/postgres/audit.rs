//! Proving a Postgres database right: every chain verifies, every row is what its events fold into, the audits of tenants
//! are whole. Exporting what is proven, and saying where each chain ends, for heads that are signed.
//!
//! Reads only, run by run in single statements, so that no snapshot is held open beside the nodes at work. A run that is
//! appended to meanwhile is judged by what it was when its row was read.

use std::ops::ControlFlow;
use std::sync::Arc;

use standfast_core::digest::Digest;
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Secret, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::run::Run;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Row;

use super::connect::{Connection, Connector};
use super::failure::Failure;
use super::pool::Pool;
use super::rows::{column, digest, seq};
use super::side::SideConnection;
use super::types::{self, Bytes16};
use super::work::{put_row, time_of};
use super::{OpenError, PostgresOptions, deliveries, read, schema, sql};
use crate::audit::{
    AuditContext, Entries, Evidence, ExportedRun, Finding, Report, RunFindings, SignedCoverage,
    StoredColumns, StoredHold, look_and_export, look_at,
};
use crate::columns::{self, CorruptRow, Record};
use crate::error::StoreError;
use crate::query::{AuditEntry, KeyRecord};
use crate::row_audit::{Adoption, RowAudit, RowEntry, RowEvidence, RowKind, wrong_rows};

/// Runs listed at once.
const PAGE: usize = 500;

/// A run that changes while it is looked at is looked at again before anything is said of it.
const LOOKS: u32 = 3;

/// Which phase a run is listed under, and by which fold.
const COLUMNS: &str = "SELECT phase, fold FROM runs WHERE id = $1";

/// The rows of a run's holds.
const HOLDS: &str = "SELECT call, secret, tenant, agent, tool, kind, inbox, closed, record FROM holds WHERE run = $1 ORDER BY no";

/// A page of definitions.
const DEFINITIONS: &str = "SELECT tenant, digest, bytes FROM definitions WHERE (tenant, digest) > ($1, $2) \
     ORDER BY tenant, digest LIMIT 100";

/// A page of API keys.
const KEYS: &str = "SELECT tenant, prefix, hash, facts, expires_at, revoked_at FROM credentials WHERE prefix > $1 \
     ORDER BY prefix LIMIT 500";

/// A page of subscriptions.
const SUBSCRIPTIONS: &str = "SELECT id, topic, wants, active, facts, owner, tenant FROM subscriptions \
     WHERE (tenant, id) > ($1, $2) ORDER BY tenant, id LIMIT 500";

/// A page of sessions that are not as they began: with metadata, or closed.
const SESSIONS: &str = "SELECT tenant, agent, session, owner, metadata, closed FROM sessions \
     WHERE (tenant, agent, session, owner) > ($1, $2, $3, $4) AND (metadata <> '{}' OR closed) \
     ORDER BY tenant, agent, session, owner LIMIT 500";

/// A page of sealed documents.
const SEALED: &str =
    "SELECT tenant, name, value FROM sealed WHERE (tenant, name) > ($1, $2) ORDER BY tenant, name LIMIT 500";

/// Whether rows of an older version have to be taken into the audit, and whether those of every kind: there is one while
/// they wait, or may still come.
const UNSAID: &str = "SELECT until, kind IS NULL FROM unsaid_rows ORDER BY kind IS NULL FOR UPDATE";

/// They have been; nodes of the version before may go on until then.
const ALL_SAID: &str = "UPDATE unsaid_rows SET until = coalesce(until, $1)";

/// No more of them can come.
const NONE_UNSAID: &str = "DELETE FROM unsaid_rows WHERE coalesce(until < $1, false)";

/// None ever came.
const NEVER_UNSAID: &str = "DELETE FROM unsaid_rows";

/// How long nodes of the version before may go on beside newer ones: a day.
const MIXED: i64 = 24 * 60 * 60 * 1000;

/// Links and holds of runs that are not there.
const ORPHANS: &str = "SELECT DISTINCT run FROM links l WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = l.run) \
     UNION SELECT DISTINCT run FROM holds h WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = h.run) LIMIT 20";

/// Where each chain ends.
const HEADS: &str = "SELECT no, id, seq, head FROM runs WHERE no > $1 ORDER BY no LIMIT $2";

/// How many subscriptions there are, and how many deliveries were given up.
const DELIVERIES: &str = "SELECT (SELECT count(*) FROM subscriptions), (SELECT count(*) FROM dead_letters)";

/// Looks at every run of a database. `progress` hears after each page how many runs were looked at. Must not be called
/// inside a runtime.
pub fn verify(options: &PostgresOptions, progress: impl FnMut(u64)) -> Result<Report, OpenError> {
    verify_against(options, &SignedCoverage::default(), progress)
}

/// The same, and whether everything that was signed is still there.
pub fn verify_against(
    options: &PostgresOptions,
    covered: &SignedCoverage,
    progress: impl FnMut(u64),
) -> Result<Report, OpenError> {
    let look = |evidence: &RunAsOf<'_>, known: &AuditContext, run| Ok((look_at(evidence, known, run)?, ()));
    walk(options, covered, progress, look, |()| ControlFlow::Continue(()))
}

/// Looks at one run, or at every run, and hands over what its log says, as far as it verifies. Ends early when `take`
/// says so.
pub fn export(
    options: &PostgresOptions,
    only: Option<RunId>,
    mut take: impl FnMut(ExportedRun) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    let look =
        |evidence: &RunAsOf<'_>, known: &AuditContext, run| look_and_export(evidence, known, only, run);
    let hand_on = |exported: Option<ExportedRun>| exported.map_or(ControlFlow::Continue(()), &mut take);
    let report = walk(options, &SignedCoverage::default(), |_| {}, look, hand_on)?;
    Ok(report.only(only))
}

/// Where the chain of each run ends: its last event and the hash of its last link. Must not be called inside a runtime.
pub fn heads(options: &PostgresOptions, mut take: impl FnMut(RunId, Seq, Digest)) -> Result<(), OpenError> {
    let (runtime, pool, place) = open(options)?;
    let mut after = 0i64;
    loop {
        let page = runtime.block_on(heads_after(&pool, after));
        let page =
            page.map_err(|error| OpenError::Unusable { place: place.clone(), why: error.to_string() })?;
        let Some((last, ..)) = page.last() else { return Ok(()) };
        after = *last;
        page.into_iter().for_each(|(_, run, seq, head)| take(run, seq, head));
    }
}

/// How many subscriptions there are of all tenants, and how many deliveries were given up. Must not be called inside a runtime.
pub fn delivery_counts(options: &PostgresOptions) -> Result<(u64, u64), OpenError> {
    let (runtime, pool, place) = open(options)?;
    let counted = runtime.block_on(deliveries_counted(&pool));
    counted.map_err(|error| OpenError::Unusable { place, why: error.to_string() })
}

async fn deliveries_counted(pool: &Pool) -> Result<(u64, u64), StoreError> {
    let rows = pool.read(DELIVERIES, &[]).await?;
    let count = |at| -> Result<u64, CorruptRow> {
        let found: i64 = rows.first().map_or(Ok(0), |row| column(row, at))?;
        Ok(u64::try_from(found).unwrap_or(0))
    };
    Ok((count(0).map_err(read::unreadable)?, count(1).map_err(read::unreadable)?))
}

async fn heads_after(pool: &Pool, after: i64) -> Result<Vec<(i64, RunId, Seq, Digest)>, StoreError> {
    let rows = pool.read(HEADS, &[&after, &types::rows(PAGE)]).await?;
    let head =
        |row: &Row| Ok((column(row, 0)?, column::<Bytes16>(row, 1)?.run(), seq(row, 2)?, digest(row, 3)?));
    rows.iter().map(head).collect::<Result<_, CorruptRow>>().map_err(read::unreadable)
}

/// The audit of every tenant, oldest first: what happened beside the runs. Ends early when `take` says so.
pub fn audit_entries(
    options: &PostgresOptions,
    mut take: impl FnMut(&str, AuditEntry) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    let (runtime, pool, place) = open(options)?;
    let mut after = (String::new(), 0);
    loop {
        let page = runtime.block_on(read::audit_of_all(&pool, &after, PAGE));
        let page =
            page.map_err(|error| OpenError::Unusable { place: place.clone(), why: error.to_string() })?;
        if page.is_empty() {
            return Ok(());
        }
        for (tenant, entry) in page {
            after = (tenant, entry.no);
            if take(&after.0, entry).is_break() {
                return Ok(());
            }
        }
    }
}

/// A database that is only read, by one connection.
fn open(options: &PostgresOptions) -> Result<(Runtime, Pool, String), OpenError> {
    let connector = Arc::new(Connector::new(options)?);
    let place = connector.place().to_owned();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| OpenError::Unusable { place: place.clone(), why: error.to_string() })?;
    runtime.block_on(schema::check_readable(&connector))?;
    Ok((runtime, Pool::new(connector, 1), place))
}

fn walk<T>(
    options: &PostgresOptions,
    covered: &SignedCoverage,
    mut progress: impl FnMut(u64),
    look: impl Fn(&RunAsOf<'_>, &AuditContext, RunId) -> Result<(RunFindings, T), StoreError>,
    mut hand_on: impl FnMut(T) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    let (runtime, pool, place) = open(options)?;
    let unusable = |why: String| OpenError::Unusable { place: place.clone(), why };
    let failed = |error: StoreError| unusable(error.to_string());
    let mut report = Report::default();
    let beside_runs = |report: &mut Report| -> Result<AuditContext, OpenError> {
        let (mut known, mut entries) = (AuditContext::of(covered), Entries::default());
        runtime.block_on(definitions(&pool, &mut known, report)).map_err(failed)?;
        audit_entries(options, |tenant, entry| {
            entries.take(tenant, &entry, &mut known, report);
            ControlFlow::Continue(())
        })?;
        entries.end(&known, report);
        Ok(known)
    };
    let mut known = beside_runs(&mut report)?;
    let mut after = 0i64;
    loop {
        let page = runtime.block_on(runs_after(&pool, after)).map_err(failed)?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        for (_, run) in page {
            report.runs += 1;
            match look_until_still(&runtime, &pool, run, |evidence, run| look(evidence, &known, run)) {
                Ok((seen, _)) if seen.is_skipped => report.runs -= 1,
                Ok((seen, found)) => {
                    report.add(run, seen, &mut known);
                    if hand_on(found).is_break() {
                        return Ok(report);
                    }
                }
                Err(error) => report.add_unreadable(run, &error, &mut known),
            }
        }
        progress(report.runs);
    }
    let suspects = report.suspects();
    if !suspects.is_empty() {
        // What was stored while runs were looked at, a definition or a proof, clears them.
        let later = beside_runs(&mut Report::default())?;
        for run in suspects {
            let looked = look_until_still(&runtime, &pool, run, |evidence, run| look(evidence, &later, run));
            report.look_again(run, looked.map(|(seen, _)| seen));
        }
    }
    let orphans = runtime.block_on(pool.read(ORPHANS, &[])).map_err(failed)?;
    for row in &orphans {
        let run = column::<Bytes16>(row, 0).map_err(|corrupt| unusable(corrupt.0))?.run();
        let what = "it is gone: its events or holds are still here".to_owned();
        report.findings.push(Finding { run: run.to_string(), what });
    }
    let side = SideConnection::new(Arc::new(Connector::new(options)?));
    let look = || runtime.block_on(side.transact(|connection| Box::pin(rows_as_of(connection))));
    report.findings.extend(wrong_rows(RowAudit::All, look).map_err(failed)?);
    known.end(&mut report);
    Ok(report)
}

/// Takes rows into the audit that an older version wrote, whose audit has no entries for them: all or none, and nobody
/// changes any meanwhile. Nodes of the version before may still be there for a while: so it is done at each start for a day.
pub(super) async fn adopt_rows(side: &SideConnection) -> Result<(), StoreError> {
    side.transact(|connection| Box::pin(adopt_now(connection))).await
}

/// A new database has no rows of an older version, and no nodes of one.
pub(super) async fn adopt_nothing(side: &SideConnection) -> Result<(), StoreError> {
    side.transact(|connection| Box::pin(end_adoption(connection))).await
}

async fn end_adoption(connection: &Connection) -> Result<(), Failure> {
    connection.query(NEVER_UNSAID, &[]).await?;
    Ok(())
}

async fn adopt_now(connection: &Connection) -> Result<(), Failure> {
    let now = time_of(connection).await?.0;
    connection.query(NONE_UNSAID, &[&now]).await?;
    let waiting = connection.query(UNSAID, &[]).await?;
    // The one for every kind is the last.
    let Some(row) = waiting.last() else { return Ok(()) };
    let is_everything: bool = column(row, 1).map_err(read::unreadable)?;
    let adoption = if is_everything { Adoption::Everything } else { Adoption::Sealed };
    let lock = "LOCK TABLE credentials, subscriptions, sessions, sealed IN SHARE MODE";
    connection.client.batch_execute(lock).await?;
    for (tenant, row) in rows(connection).await?.unsaid(adoption) {
        put_row(connection, tenant.as_str(), &row).await?;
    }
    connection.query(ALL_SAID, &[&now.saturating_add(MIXED)]).await?;
    Ok(())
}

/// Keys, subscriptions, sessions and sealed documents, and what the audit says of them, as of one instant.
async fn rows_as_of(connection: &Connection) -> Result<RowEvidence, Failure> {
    connection.client.batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    rows(connection).await
}

async fn rows(connection: &Connection) -> Result<RowEvidence, Failure> {
    let mut evidence = RowEvidence::default();
    let mut after = (String::new(), 0i64);
    loop {
        let limit = types::rows(PAGE);
        let page = connection.query(sql::AUDIT_ALL, &[&after.0, &after.1, &limit]).await?;
        let Some(last) = page.last() else { break };
        after = (column(last, 0).map_err(read::unreadable)?, column(last, 1).map_err(read::unreadable)?);
        for row in &page {
            let (tenant, entry) = read::entry_of_all(row).map_err(read::unreadable)?;
            evidence.take_entry(&tenant, &entry);
        }
    }
    let mut after = String::new();
    loop {
        let page = connection.query(KEYS, &[&after]).await?;
        let Some(last) = page.last() else { break };
        after = column(last, 1).map_err(read::unreadable)?;
        for row in &page {
            let text = |at: usize| column::<&str>(row, at).map_err(read::unreadable);
            match read::read_credential(row) {
                Ok(key) => evidence.take_row(key.tenant.as_str(), RowEntry::key(&key)),
                Err(_) => evidence.take_unreadable(text(0)?, RowKind::Key, text(1)?),
            }
        }
    }
    let mut after = (String::new(), String::new());
    loop {
        let page = connection.query(SUBSCRIPTIONS, &[&after.0, &after.1]).await?;
        let Some(last) = page.last() else { break };
        after = (column(last, 6).map_err(read::unreadable)?, column(last, 0).map_err(read::unreadable)?);
        for row in &page {
            let text = |at: usize| column::<&str>(row, at).map_err(read::unreadable);
            match deliveries::read_any(row) {
                Ok(one) => evidence.take_row(one.tenant.as_str(), RowEntry::subscription(&one)),
                Err(_) => evidence.take_unreadable(text(6)?, RowKind::Subscription, text(0)?),
            }
        }
    }
    let mut after: [String; 4] = Default::default();
    loop {
        let [tenant, agent, session, owner] = &after;
        let page = connection.query(SESSIONS, &[tenant, agent, session, owner]).await?;
        let read = |row: &Row| {
            let names = [column(row, 0)?, column(row, 1)?, column(row, 2)?, column(row, 3)?];
            Ok((names, column::<String>(row, 4)?, column(row, 5)?))
        };
        let page = page.iter().map(read).collect::<Result<Vec<([String; 4], _, _)>, _>>();
        let page = page.map_err(read::unreadable)?;
        let Some((last, ..)) = page.last() else { break };
        after = last.clone();
        for ([tenant, agent, session, owner], metadata, is_closed) in &page {
            evidence.take_row(tenant, RowEntry::session_of([agent, owner, session], metadata, *is_closed));
        }
    }
    let mut after = (String::new(), String::new());
    loop {
        let page = connection.query(SEALED, &[&after.0, &after.1]).await?;
        let Some(last) = page.last() else { break };
        after = (column(last, 0).map_err(read::unreadable)?, column(last, 1).map_err(read::unreadable)?);
        for row in &page {
            let text = |at: usize| column::<&str>(row, at).map_err(read::unreadable);
            evidence.take_row(text(0)?, RowEntry::sealed(text(1)?, Some(text(2)?)));
        }
    }
    Ok(evidence)
}

/// The definitions that runs are pinned to: whose, their digest, their bytes. Must not be called inside a runtime.
pub fn agent_definitions(
    options: &PostgresOptions,
    mut take: impl FnMut(&str, Digest, &[u8]),
) -> Result<(), OpenError> {
    let (runtime, pool, place) = open(options)?;
    let read = runtime.block_on(each_definition(&pool, &mut take));
    read.map_err(|error| OpenError::Unusable { place, why: error.to_string() })
}

async fn definitions(pool: &Pool, known: &mut AuditContext, report: &mut Report) -> Result<(), StoreError> {
    let mut take = |tenant: &str, digest, bytes: &[u8]| known.take_definition(tenant, digest, bytes, report);
    each_definition(pool, &mut take).await
}

async fn each_definition(pool: &Pool, take: &mut dyn FnMut(&str, Digest, &[u8])) -> Result<(), StoreError> {
    let mut after = (String::new(), Vec::new());
    loop {
        let page = pool.read(DEFINITIONS, &[&after.0, &after.1]).await?;
        if page.is_empty() {
            return Ok(());
        }
        for row in &page {
            let read = || Ok((column::<String>(row, 0)?, digest(row, 1)?, column::<&[u8]>(row, 2)?));
            let (tenant, digest, bytes) = read().map_err(read::unreadable)?;
            take(&tenant, digest, bytes);
            after = (tenant, digest.0.to_vec());
        }
    }
}

/// A hold from its row.
fn stored_hold(run: RunId, row: &Row) -> Result<StoredHold, CorruptRow> {
    let call =
        u32::try_from(column::<i64>(row, 0)?).map_err(|_| CorruptRow("there is no such call".into()))?;
    let key = HoldKey { call: CallNo(call), secret: Secret(column::<Bytes16>(row, 1)?.0) };
    let is_closed: bool = column(row, 7)?;
    let record = column::<Option<&str>>(row, 8)?.map(columns::parse::<Record>).transpose()?;
    Ok(StoredHold {
        key,
        tenant: column(row, 2)?,
        agent: column(row, 3)?,
        tool: column(row, 4)?,
        kind: i64::from(column::<i16>(row, 5)?),
        inbox: column::<Option<String>>(row, 6)?.filter(|_| !is_closed),
        is_closed,
        record: record.map(|record| record.row(HoldId { run, key })),
    })
}

fn look_until_still<T>(
    runtime: &Runtime,
    pool: &Pool,
    run: RunId,
    look: impl Fn(&RunAsOf<'_>, RunId) -> Result<(RunFindings, T), StoreError>,
) -> Result<(RunFindings, T), StoreError> {
    let mut looks = 0;
    loop {
        looks += 1;
        let stored =
            runtime.block_on(read::load(pool, run)).map(|stored| Arc::unwrap_or_clone(stored.row.run));
        let seen = look(&RunAsOf { runtime, pool, stored }, run);
        if looks == LOOKS || seen.as_ref().is_ok_and(|(seen, _)| seen.wrong.is_none()) {
            return seen;
        }
    }
}

async fn runs_after(pool: &Pool, after: i64) -> Result<Vec<(i64, RunId)>, StoreError> {
    let rows = pool.read(sql::RUNS_AFTER, &[&after, &types::rows(PAGE)]).await?;
    let place = |row: &tokio_postgres::Row| Ok((column(row, 0)?, column::<Bytes16>(row, 1)?.run()));
    rows.iter().map(place).collect::<Result<_, crate::columns::CorruptRow>>().map_err(read::unreadable)
}

/// A run as its row says: what was appended later is not looked at.
struct RunAsOf<'a> {
    runtime: &'a Runtime,
    pool: &'a Pool,
    stored: Result<Run, StoreError>,
}

impl Evidence for RunAsOf<'_> {
    fn links(&self, run: RunId) -> Result<Vec<Link>, StoreError> {
        let mut links = self.runtime.block_on(read::links(self.pool, run, Seq(0), usize::MAX))?;
        if let Ok(stored) = &self.stored {
            links.retain(|link| link.header.first <= stored.state.seq);
        }
        Ok(links)
    }

    fn run(&self, _: RunId) -> Result<Run, StoreError> {
        self.stored.clone()
    }

    fn blob(&self, run: RunId, digest: Digest) -> Result<Option<String>, StoreError> {
        self.runtime.block_on(read::blob(self.pool, run, digest))
    }

    fn columns(&self, run: RunId) -> Result<StoredColumns, StoreError> {
        let rows = self.runtime.block_on(self.pool.read(COLUMNS, &[&Bytes16::from(run)]))?;
        let row = rows.first().ok_or(StoreError::NotFound { run })?;
        let read = || {
            Ok(StoredColumns {
                phase: i64::from(column::<i16>(row, 0)?),
                fold: i64::from(column::<i32>(row, 1)?),
            })
        };
        read().map_err(|corrupt: CorruptRow| corrupt.of(run))
    }

    fn holds(&self, run: RunId) -> Result<Vec<StoredHold>, StoreError> {
        let rows = self.runtime.block_on(self.pool.read(HOLDS, &[&Bytes16::from(run)]))?;
        let holds = rows.iter().map(|row| stored_hold(run, row)).collect::<Result<_, CorruptRow>>();
        holds.map_err(|corrupt| corrupt.of(run))
    }

    fn key(&self, tenant: &Tenant, key: &str) -> Result<Option<KeyRecord>, StoreError> {
        self.runtime.block_on(read::find_key(self.pool, tenant, key))
    }
}
